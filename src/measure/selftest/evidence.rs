//! Collections of a selftest: scripts and cases of a database under msprof, started as the collections of a run are.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};

use super::experiment::EvidenceError;
use crate::{
    base::{
        files::{MAX_TABLE, named_entries, read_regular_text},
        process::{self, CommandSpec, ExitKind},
    },
    cases::plan::{PlannedCase, planned_case},
    kernel::{
        Attempt, Cause, IdentifiedCase, LogicalDeviceId, ProfilerSettings, Verdict,
        render::{
            CollectScript, GangLaunch, HostNumbers, Manifest, ManifestCase, ScriptCommunication,
            collect_script, files, replay_script, selftest_script,
        },
    },
    measure::{
        device::DeviceLeases,
        engine::{CollectionOutput, expected_launches, last_line, write_scripts},
        run_context::RunContext,
        verify::{CollectionRecords, ExpectedLaunches, RawRecord, SoftwareChange, read_records},
    },
    profile::exporter_loss,
};

const COLLECTION_LIMIT: Duration = Duration::from_secs(300);

pub(super) struct SelftestContext {
    pub(super) host: RunContext,
    pub(super) python: String,
    /// Variables of all programs; `PATH` precedes the present one.
    pub(super) environment: Vec<(String, String)>,
    pub(super) devices: Vec<u32>,
    pub(super) leases: DeviceLeases,
    /// Set by the first signal.
    pub(super) stop: Arc<AtomicBool>,
    /// Set when the programs of a script hung before its first line; those of further scripts would, too.
    pub(super) has_hung: AtomicBool,
}

pub(super) struct SelftestScript<'a> {
    pub(super) context: &'a SelftestContext,
    pub(super) folder: PathBuf,
    pub(super) function: &'static str,
    pub(super) parameters: Value,
    /// Physical numbers of the devices by rank; more than one starts torchrun.
    pub(super) devices: &'a [u32],
    pub(super) number: u32,
    pub(super) profiler: ProfilerSettings,
}

pub(super) fn write_table(
    path: &Path,
    header: &str,
    rows: impl IntoIterator<Item = Vec<String>>,
) -> Result<(), EvidenceError> {
    let write = || -> Result<(), csv::Error> {
        let mut table = csv::Writer::from_path(path)?;
        table.write_record(header.split(','))?;
        rows.into_iter().try_for_each(|row| table.write_record(row))?;
        Ok(table.flush()?)
    };
    write().map_err(|error| EvidenceError::io(path)(error.into()))
}

/// Returns the lines of a journal, up to one that is cut; none without the file.
pub(super) fn journal_lines(journal: &Path) -> Vec<Value> {
    let text = read_regular_text(journal, MAX_TABLE).unwrap_or_default();
    text.lines().map_while(|line| serde_json::from_str(line).ok()).collect()
}

#[derive(Debug)]
pub(super) struct CollectedEvidence {
    pub(super) folder: PathBuf,
    /// Exit of the shell script, which ends as msprof does.
    pub(super) exit: ExitKind,
    pub(super) journal: Vec<Value>,
    /// Records by start time, or the reason why the profile cannot be read.
    pub(super) records: Result<Vec<RawRecord>, String>,
}

impl CollectedEvidence {
    pub(super) fn read(folder: &Path, exit: ExitKind) -> Self {
        let records = read_records(&folder.join(files::PROFILE)).map_err(|error| error.to_string());
        Self {
            folder: folder.to_owned(),
            exit,
            journal: journal_lines(&folder.join(files::JOURNAL)),
            records: records.and_then(CollectionRecords::into_complete),
        }
    }

    pub(super) fn journal_value(&self, key: &str) -> Option<&Value> {
        self.journal.iter().find_map(|line| line.get(key))
    }

    pub(super) fn readable_records(&self) -> Result<&[RawRecord], EvidenceError> {
        let unreadable = |problem| EvidenceError::Missing(format!("the profile cannot be read: {problem}"));
        self.records.as_deref().map_err(unreadable)
    }

    /// Returns the evidence if the script has ended by itself; else the last line of the log is the reason. The export of a
    /// program that ended by itself loses no data.
    pub(super) fn completed(self) -> Result<Self, EvidenceError> {
        if self.journal_value("done").is_none() {
            return Err(EvidenceError::Missing(format!("the script did not finish: {}", self.last_line())));
        }
        match self.profile_folders().iter().find_map(|profile| exporter_loss(profile)) {
            Some(loss) => {
                Err(EvidenceError::Missing(format!("the exporter reports lost data: {}", loss.line)))
            }
            None => Ok(self),
        }
    }

    pub(super) fn last_line(&self) -> String {
        last_line(&self.folder.join(files::LOG))
    }

    pub(super) fn profile_folders(&self) -> Vec<PathBuf> {
        named_entries(&self.folder.join(files::PROFILE), "PROF_", "").unwrap_or_default()
    }
}

impl SelftestContext {
    pub(super) fn script(
        &self,
        folder: impl Into<PathBuf>,
        function: &'static str,
        parameters: Value,
    ) -> SelftestScript<'_> {
        let (folder, devices, profiler) = (folder.into(), &self.devices[..1], ProfilerSettings::default());
        SelftestScript { context: self, folder, function, parameters, devices, number: 1, profiler }
    }

    /// Exports the profiles of a collection again, as a run does where msprof left no tables.
    pub(super) fn export_again(
        &self,
        folder: &Path,
        devices: &[u32],
    ) -> Result<CollectedEvidence, EvidenceError> {
        let exit = self.run_script(folder, devices, Some("export"), files::EXPORT_LOG)?;
        Ok(CollectedEvidence::read(folder, exit))
    }

    pub(super) fn logical_ids(&self, devices: &[u32]) -> Vec<LogicalDeviceId> {
        devices.iter().map(|device| self.host.numbering.logical_id(*device)).collect()
    }

    pub(super) fn empty_manifest(&self, devices: &[u32], number: u32) -> Manifest {
        Manifest {
            device: self.logical_ids(devices)[0],
            host_numbers: HostNumbers {
                devices: devices.to_vec(),
                listed: self.host.numbering.listed(),
                is_exact: self.host.numbering.is_exact,
            },
            seed: 1,
            ..Manifest::without_cases("selftest", number, self.host.database.kind())
        }
    }

    fn write_folder(
        &self,
        folder: &Path,
        manifest: &Manifest,
        parameters: Value,
        script: &str,
    ) -> Result<(), EvidenceError> {
        let collect = CollectScript {
            is_gloo: false,
            run: &manifest.run,
            collection: manifest.collection,
            python: &self.python,
            environment: &self.environment,
            pinned: &manifest.environment,
            profiler: &manifest.profiler,
            gang: (!manifest.gang.is_empty())
                .then_some(GangLaunch { ranks: manifest.gang.len(), rendezvous: None }),
        };
        let collect = collect_script(&self.host.assets, &collect)?;
        let mut text = json!(manifest);
        if parameters.is_object() {
            text["selftest"] = parameters;
        }
        Ok(write_scripts(folder, script, &collect, &text.to_string())?)
    }

    pub(super) fn run_script(
        &self,
        folder: &Path,
        devices: &[u32],
        argument: Option<&str>,
        log: &str,
    ) -> Result<ExitKind, EvidenceError> {
        let stdin = self.leases.share_files(devices).map_err(EvidenceError::io(folder))?;
        // The file names the running program, so that a later npubench can end it.
        let parts = folder.iter().rev().take(2).map(|part| part.to_string_lossy().into_owned());
        let parts: Vec<String> = parts.collect();
        let record = format!("selftest-{}-{}.json", std::process::id(), parts.join("-"));
        let record = self.host.database.processes().join(record);
        let log = folder.join(log);
        let words = ["sh", files::COLLECT].into_iter().chain(argument).map(Into::into);
        let job = CommandSpec {
            stdin: Some(stdin),
            record: Some(&record),
            ..CommandSpec::new(words.collect(), folder, &log, COLLECTION_LIMIT)
        };
        match process::run_command(&job, &self.stop)? {
            ExitKind::Stopped => Err(EvidenceError::Interrupted),
            exit => {
                let journals = named_entries(folder, "launched", ".jsonl").unwrap_or_default();
                let is_empty =
                    journals.iter().all(|path| fs::metadata(path).is_ok_and(|file| file.len() == 0));
                self.has_hung.fetch_or(exit.is_hung() && is_empty, Ordering::Relaxed);
                Ok(exit)
            }
        }
    }
}

impl SelftestScript<'_> {
    pub(super) fn prepare(&self) -> Result<(), EvidenceError> {
        let Self { context, folder, devices, number, .. } = self;
        let profiler = self.profiler.clone();
        let mut manifest = Manifest { profiler, ..context.empty_manifest(devices, *number) };
        if devices.len() > 1 {
            manifest.gang = context.logical_ids(devices);
        }
        let mut parameters = self.parameters.clone();
        parameters["function"] = json!(self.function);
        context.write_folder(folder, &manifest, parameters, &selftest_script(&context.host.assets)?)
    }

    pub(super) fn run(&self) -> Result<CollectedEvidence, EvidenceError> {
        let exit = self.context.run_script(&self.folder, self.devices, None, files::LOG)?;
        Ok(CollectedEvidence::read(&self.folder, exit))
    }

    pub(super) fn collect(&self) -> Result<CollectedEvidence, EvidenceError> {
        self.prepare()?;
        self.run()
    }

    pub(super) fn complete(&self) -> Result<CollectedEvidence, EvidenceError> {
        self.collect()?.completed()
    }
}

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
        planned_case(&self.host.catalogue, &self.host.profile, case)
            .map_err(|(_, outcome)| outcome.reason.to_string())
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
        let entries = kernels.filter_map(|kernel| Some((kernel, self.host.catalogue.entry(kernel)?)));
        let script = replay_script(&self.host.assets, ScriptCommunication::Kernels, entries)?;
        self.write_folder(folder, &manifest, Value::Null, &script)?;
        let exit = self.run_script(folder, replay.devices, None, files::LOG)?;
        let mut output = CollectionOutput::read(folder, &manifest);
        if output.records.is_empty() || output.damaged.is_some() {
            // A run does the same: msprof may end without tables, and a second export mostly creates them.
            self.run_script(folder, replay.devices, Some("export"), files::EXPORT_LOG)?;
            output = CollectionOutput::read(folder, &manifest);
        }
        let expected: Vec<ExpectedLaunches<'_>> =
            replay.cases.iter().map(|planned| expected_launches(&self.host.catalogue, planned)).collect();
        let mut attempts = output.assess(&manifest, &expected, exit.into(), &SoftwareChange::None);
        // The log has the reason why a case was not launched.
        for attempt in attempts.iter_mut().filter(|attempt| attempt.outcome.verdict == Verdict::NotRun) {
            let text = format!("{}: {}", attempt.outcome.reason, last_line(&folder.join(files::LOG)));
            attempt.outcome.reason = Cause::Recorded { text }.into();
        }
        Ok(attempts)
    }
}
