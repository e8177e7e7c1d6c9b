//! Assesses a collection again from its compressed evidence, with the rules and the catalogue of this version.

use std::{fs, path::Path};

use serde::de::DeserializeOwned;

use super::{
    assess::{CollectionOutput, expected_launches},
    conditions::{CollectionConditions, LaunchedCase, StoredCase},
};
use crate::{
    base::files::unpack_archive,
    cases::plan::{PlannedCase, planned_case},
    kernel::{
        Attempt, CacheState, CaseId, CaseOutcome, ControlReading, IdentifiedCase, Nanos, SoftwareFingerprint,
        catalogue::Catalogue,
        device::DeviceProfile,
        render::{Manifest, ManifestCase, files},
    },
    measure::{
        evidence::{ArchiveState, archive_state},
        verify::ExpectedLaunches,
    },
};

/// Result of an assessment from artefacts.
#[derive(Debug)]
pub(crate) struct ReassessedCollection {
    /// Each case with its attempt.
    pub(crate) attempts: Vec<(IdentifiedCase, Attempt)>,
    /// Readings of the control kernels.
    pub(crate) controls: Vec<ControlReading>,
    /// Software that the collection used.
    pub(crate) software: SoftwareFingerprint,
    /// Cases that cannot be assessed, with the reason.
    pub(crate) left: Vec<(CaseId, String)>,
}

/// Rules by which collections are assessed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AssessmentRules<'a> {
    pub(crate) catalogue: &'a Catalogue,
    pub(crate) device: &'a DeviceProfile,
}

impl AssessmentRules<'_> {
    /// Assesses the collection in `folder`, which has this state of the cache, and whose evidence has the SHA-256
    /// `digest`. It is unpacked below `scratch`, which must be empty. The error is the reason why the evidence cannot
    /// be used.
    pub(crate) fn reassess(
        &self,
        folder: &Path,
        digest: &str,
        cache: CacheState,
        scratch: &Path,
    ) -> Result<ReassessedCollection, String> {
        let archive = folder.join(files::EVIDENCE);
        let state = archive_state(folder, digest);
        if state != ArchiveState::Unchanged {
            return Err(format!("`{}`: {state}", archive.display()));
        }
        unpack_archive(&archive, scratch)
            .map_err(|error| format!("`{}` cannot be unpacked: {error}", archive.display()))?;
        let manifest: Manifest = read_json(scratch, files::MANIFEST, &archive)?;
        if manifest.cache() != cache {
            let (archive, found) = (archive.display(), manifest.cache());
            return Err(format!(
                "`{archive}` has launches with a {found} cache, the ledger has a {cache} one"
            ));
        }
        if !scratch.join(files::CONDITIONS).exists() {
            let archive = archive.display();
            return Err(format!("`{archive}` has no {}", files::CONDITIONS));
        }
        let conditions: CollectionConditions = read_json(scratch, files::CONDITIONS, &archive)?;
        let is_same = manifest.cases.len() == conditions.cases.len()
            && manifest.cases.iter().zip(&conditions.cases).all(|(one, other)| one.case == other.case.case);
        if !is_same {
            let archive = archive.display();
            return Err(format!(
                "`{archive}`: {} and {} differ in their cases",
                files::MANIFEST,
                files::CONDITIONS
            ));
        }
        let mut left = Vec::new();
        let mut cases: Vec<IdentifiedCase> = Vec::new();
        let mut planned: Vec<Option<PlannedCase>> = Vec::new();
        for (listed, launched) in manifest.cases.iter().zip(&conditions.cases) {
            let Some(case) = launched.case.restore() else {
                let (case, archive) = (&listed.case, archive.display());
                return Err(format!("`{archive}`: case {case} of {} cannot be restored", files::CONDITIONS));
            };
            cases.push(case.clone());
            planned.push(match self.planned_case(case, listed, launched, manifest.seed) {
                Ok(planned) => Some(planned),
                Err(problem) => {
                    left.push((listed.case.clone(), problem));
                    None
                }
            });
        }
        let expected = planned.iter().zip(&cases).map(|(planned, case)| match planned {
            Some(planned) => expected_launches(self.catalogue, planned),
            None => without_rules(case),
        });
        let expected: Vec<ExpectedLaunches<'_>> = expected.collect();
        let mut output = CollectionOutput::read(scratch, &manifest);
        // Reasons name the file in the folder of the collection.
        let places = [scratch, folder].map(|path| path.to_string_lossy().into_owned());
        let in_folder = |problem: String| problem.replace(&places[0], &places[1]);
        output.unreadable = output.unreadable.map(in_folder);
        output.damaged = output.damaged.map(|(problem, count)| (in_folder(problem), count));
        let attempts = output.assess(&manifest, &expected, &conditions);
        drop(expected);
        let attempts = cases.into_iter().zip(attempts).zip(planned);
        let attempts = attempts.filter_map(|(attempt, planned)| planned.map(|_| attempt)).collect();
        let controls = output.controls(&manifest);
        let imported = output.journal().imported.unwrap_or_default();
        let software = conditions.software_at_start.with_imported(imported);
        Ok(ReassessedCollection { attempts, controls, software, left })
    }

    /// Resolves a launched case. The error is the reason why the records are not those of its call.
    fn planned_case(
        &self,
        case: IdentifiedCase,
        listed: &ManifestCase,
        launched: &LaunchedCase,
        seed: u64,
    ) -> Result<PlannedCase, String> {
        let planned = planned_case(self.catalogue, self.device, case).map_err(|(_, outcome)| {
            let CaseOutcome { verdict, reason } = outcome;
            format!("this version does not launch it: {verdict}: {reason}")
        })?;
        // In the form of the manifest, whose numbers may have lost digits.
        let current = ManifestCase::new(listed.ordinal, &planned.case, &planned.call, seed);
        let current =
            serde_json::to_string(&current).and_then(|text| serde_json::from_str::<ManifestCase>(&text));
        let current = current.map_err(|error| error.to_string())?;
        if (&current.api, &current.arguments) != (&listed.api, &listed.arguments) {
            return Err("this version launches another call for it".to_owned());
        }
        let is_same_work =
            (current.record.flops, current.record.bytes) == (listed.record.flops, listed.record.bytes);
        let fastest = if is_same_work { launched.fastest() } else { planned.fastest };
        let equal_cases: Option<Vec<IdentifiedCase>> =
            launched.equal_cases.iter().map(StoredCase::restore).collect();
        let equal_cases = equal_cases.ok_or("a case with the same call cannot be restored")?;
        let mut call = planned.call;
        call.notes.clone_from(&launched.notes);
        Ok(PlannedCase { call, fastest, is_on_ai_cpu: launched.is_on_ai_cpu, equal_cases, ..planned })
    }
}

/// Returns the launches of a case that is not assessed; its place in the manifest must be filled.
fn without_rules(case: &IdentifiedCase) -> ExpectedLaunches<'_> {
    ExpectedLaunches {
        case,
        names: Vec::new(),
        equal_kernels: Vec::new(),
        equal_cases: &[],
        also_launched: &[],
        fastest: Nanos(0),
        notes: &[],
        is_on_ai_cpu: false,
        host_slots: Vec::new(),
    }
}

fn read_json<T: DeserializeOwned>(folder: &Path, name: &str, archive: &Path) -> Result<T, String> {
    let text = fs::read(folder.join(name)).map_err(|error| error.to_string());
    let value = text.and_then(|text| serde_json::from_slice(&text).map_err(|error| error.to_string()));
    value.map_err(|problem| format!("`{}`: {name} cannot be read: {problem}", archive.display()))
}
