//! Cases of a database in a collection of a selftest, by the pipeline of runs: resolved call, manifest, replay script,
//! and the assessment of the records.

use std::path::Path;

use super::{
    evidence::{CollectedEvidence, SelftestContext},
    experiment::EvidenceError,
};
use crate::{
    base::process::ExitKind,
    cases::plan::{PlannedCase, planned_case},
    kernel::{
        Attempt, Cause, IdentifiedCase, Verdict,
        render::{Manifest, ManifestCase, ScriptCommunication, files, replay_script},
    },
    measure::{
        engine::expected_launches,
        verify::{
            CollectionTermination, ExpectedLaunches, LaunchJournal, SoftwareChange, assess_collection,
            read_journal,
        },
    },
};

/// Cases to replay in one collection.
#[derive(Clone, Copy, Debug)]
pub(super) struct CaseReplay<'a> {
    pub(super) cases: &'a [&'a PlannedCase],
    /// Physical numbers of the devices by rank; more than one for cases of a gang.
    pub(super) devices: &'a [u32],
    pub(super) warm_up: u32,
    pub(super) measured: u32,
    /// Size of a tensor that is read before each launch; `None` for a warm cache.
    pub(super) flush_bytes: Option<u64>,
}

impl SelftestContext {
    /// Resolves a case by the catalogue, as a plan does; the error is the reason why it cannot be replayed.
    pub(super) fn planned_case(&self, case: IdentifiedCase) -> Result<PlannedCase, String> {
        planned_case(&self.catalogue, &self.profile, case).map_err(|(_, outcome)| outcome.reason.to_string())
    }

    /// Replays cases in a folder, which is created, and assesses their records as a run does. Returns the attempts in the
    /// order of the cases.
    pub(super) fn replay_cases(
        &self,
        folder: &Path,
        replay: &CaseReplay<'_>,
    ) -> Result<Vec<Attempt>, EvidenceError> {
        let mut manifest = Manifest {
            warm_up: replay.warm_up,
            measured: replay.measured,
            ..self.empty_manifest(replay.devices, 1)
        };
        let cases = replay.cases.iter().zip(0..).map(|(planned, ordinal)| {
            ManifestCase::new(ordinal, &planned.case, &planned.call, manifest.seed)
        });
        manifest.cases = cases.collect();
        manifest.set_flush(replay.flush_bytes);
        manifest.set_gang(&self.logical_ids(replay.devices));
        let kernels = replay.cases.iter().map(|planned| &planned.case.kernel);
        let entries = kernels.filter_map(|kernel| Some((kernel, self.catalogue.entry(kernel)?)));
        let script = replay_script(&self.assets, ScriptCommunication::Kernels, entries)?;
        let text = serde_json::to_string_pretty(&manifest).expect("a manifest has texts as keys");
        self.write_folder(folder, &manifest, &text, &script)?;
        let exit = self.run_script(folder, replay.devices, None, files::LOG)?;
        let mut evidence = self.read_evidence(folder, exit);
        if evidence.records.as_ref().map_or(true, Vec::is_empty) {
            // As in a run: msprof may end without tables, which a second export mostly recovers.
            evidence = CollectedEvidence { exit, ..self.export_again(folder, replay.devices)? };
        }
        Ok(self.assess_cases(&manifest, replay.cases, &evidence))
    }

    /// Assesses the records of a collection. The log has the reason why a case was not launched.
    fn assess_cases(
        &self,
        manifest: &Manifest,
        cases: &[&PlannedCase],
        evidence: &CollectedEvidence,
    ) -> Vec<Attempt> {
        let end = match evidence.exit {
            ExitKind::Exited(_) | ExitKind::Signalled(_) => CollectionTermination::Exited,
            ExitKind::TimedOut => CollectionTermination::TimedOut,
            ExitKind::CutOff | ExitKind::Stopped => CollectionTermination::Stopped,
        };
        let ranks = 0..manifest.devices().len();
        let journals: Vec<LaunchJournal> =
            ranks.map(|rank| read_journal(&evidence.folder.join(files::journal(rank)))).collect();
        let expected: Vec<ExpectedLaunches<'_>> =
            cases.iter().map(|planned| expected_launches(&self.catalogue, planned)).collect();
        let (records, unreadable) = match &evidence.records {
            Ok(records) => (records.as_slice(), None),
            Err(problem) => (Default::default(), Some(problem)),
        };
        let mut attempts =
            assess_collection(manifest, &expected, &journals, records, end, &SoftwareChange::None);
        for attempt in &mut attempts {
            match (attempt.outcome.verdict, unreadable) {
                (Verdict::LostRecords, Some(problem)) => {
                    attempt.outcome.reason = Cause::UnreadableProfile { message: problem.to_string() }.into();
                }
                (Verdict::NotRun, _) => {
                    let text = format!("{} ({})", attempt.outcome.reason, evidence.last_line());
                    attempt.outcome.reason = Cause::Recorded { text }.into();
                }
                _ => {}
            }
        }
        attempts
    }
}
