//! Collections of a selftest: a script under msprof, started as the collections of a run are.

use std::{
    fs,
    panic::resume_unwind,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
    thread::ScopedJoinHandle,
    time::Duration,
};

use serde_json::{Value, json};

use super::finding::EvidenceError;
use crate::{
    base::{
        assets::AssetFiles,
        process::{self, CommandSpec, ExitKind},
    },
    database::Database,
    kernel::{
        DataKind, LogicalDeviceId, ProfilerSettings, SoftwareFingerprint,
        catalogue::Catalogue,
        device::DeviceProfile,
        render::{
            CollectScript, GangLaunch, HostNumbers, Manifest, PinnedEnvironment, SentinelLengths,
            collect_script, files, selftest_script,
        },
    },
    measure::{
        device::{DeviceLeases, DeviceNumbering},
        verify::{CollectionRecords, RawRecord, read_records},
    },
};

/// Time limit of a collection, with the import of torch_npu and the export.
const COLLECTION_LIMIT: Duration = Duration::from_secs(300);
/// Number of a collection in its manifest; the folder identifies the collection.
const COLLECTION: u32 = 1;
/// Length of a quoted log line in characters.
const LOG_LINE: usize = 200;

/// Host, database and programs of a selftest.
pub(crate) struct SelftestContext {
    pub(crate) database: Database,
    pub(crate) assets: AssetFiles,
    pub(crate) catalogue: Catalogue,
    pub(crate) profile: DeviceProfile,
    /// Software of the host, as far as it is known before a script has run.
    pub(crate) software: SoftwareFingerprint,
    /// True if npu-smi's process ids are those of this process namespace.
    pub(crate) sees_host_processes: bool,
    /// Python interpreter of the scripts.
    pub(crate) python: String,
    /// Variables of all programs; `PATH` precedes the present one.
    pub(crate) environment: Vec<(String, String)>,
    /// Devices of the collections, by their physical numbers.
    pub(crate) devices: Vec<u32>,
    /// Card of the first device, the argument of `npu-smi -i`.
    pub(crate) first_card: u32,
    /// Numbers of the devices for torch and profiles.
    pub(crate) numbering: DeviceNumbering,
    pub(crate) leases: DeviceLeases,
    /// Set by the first signal.
    pub(crate) stop: Arc<AtomicBool>,
}

/// A collection of `selftest.py`.
#[derive(Clone, Debug)]
pub(crate) struct ScriptRequest<'a> {
    /// Function of the script.
    pub(crate) function: &'a str,
    /// Parameters of the function, a JSON object.
    pub(crate) parameters: Value,
    /// Physical numbers of the devices by rank; more than one starts torchrun.
    pub(crate) devices: &'a [u32],
}

/// Properties in which the collections of an experiment differ.
#[derive(Clone, Debug)]
pub(crate) struct CollectionVariant {
    /// Number of the collection in its manifest.
    pub(crate) number: u32,
    pub(crate) profiler: ProfilerSettings,
}

impl Default for CollectionVariant {
    fn default() -> Self {
        Self { number: COLLECTION, profiler: ProfilerSettings::default() }
    }
}

/// Writes a table into the folder of an experiment, which is created.
pub(super) fn write_table(
    path: &Path,
    header: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> Result<(), EvidenceError> {
    let write = || -> Result<(), csv::Error> {
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        let mut table = csv::Writer::from_path(path)?;
        table.write_record(header)?;
        rows.into_iter().try_for_each(|row| table.write_record(row))?;
        Ok(table.flush()?)
    };
    write().map_err(|error| EvidenceError::io(path)(error.into()))
}

/// Returns the results of threads in their order. A panic of a thread goes on in this one.
pub(super) fn join_all<T>(threads: Vec<ScopedJoinHandle<'_, T>>) -> Vec<T> {
    let end = |thread: ScopedJoinHandle<'_, T>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
    threads.into_iter().map(end).collect()
}

/// Output of a collection.
#[derive(Debug)]
pub(crate) struct CollectedEvidence {
    pub(crate) folder: PathBuf,
    /// Exit of the shell script, which ends as msprof does.
    pub(crate) exit: ExitKind,
    pub(crate) log: String,
    /// Lines of the journal of rank 0.
    pub(crate) journal: Vec<Value>,
    /// Records by start time, or the reason why the profile cannot be read.
    pub(crate) records: Result<Vec<RawRecord>, String>,
}

impl CollectedEvidence {
    /// Returns the first value of a key in the journal.
    pub(crate) fn journal_value(&self, key: &str) -> Option<&Value> {
        self.journal.iter().find_map(|line| line.get(key))
    }

    /// Returns the records; a profile that cannot be read is missing evidence.
    pub(crate) fn readable_records(&self) -> Result<&[RawRecord], EvidenceError> {
        match &self.records {
            Ok(records) => Ok(records),
            Err(problem) => Err(EvidenceError::Missing(format!("the profile cannot be read: {problem}"))),
        }
    }

    /// Returns the journal line that marks the end of the script, or the last line of the log as the reason.
    pub(crate) fn require_completed(&self) -> Result<(), EvidenceError> {
        if self.journal_value("done").is_some() {
            return Ok(());
        }
        let reason = format!("the script did not finish: {} ({})", self.last_line(), self.folder.display());
        Err(EvidenceError::Missing(reason))
    }

    /// Returns the last line of the script in the log, shortened; without one, the last warning or error of msprof.
    pub(crate) fn last_line(&self) -> String {
        let lines = || self.log.lines().rev().map(str::trim).filter(|line| !line.is_empty());
        let starts_with = |line: &str, marks: &[&str]| marks.iter().any(|mark| line.starts_with(mark));
        let of_script = lines().find(|line| !starts_with(line, &["[INFO]", "[WARNING]", "[ERROR]"]));
        let line = of_script.or_else(|| lines().find(|line| !starts_with(line, &["[INFO]"])));
        line.unwrap_or("no output").chars().take(LOG_LINE).collect()
    }

    /// Returns the `PROF_*` folders in the order of names.
    pub(crate) fn profile_folders(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder.join(files::PROFILE)).into_iter().flatten().flatten();
        let is_profile =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("PROF_"));
        let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_profile).collect();
        folders.sort();
        folders
    }
}

impl SelftestContext {
    pub(crate) const fn kind(&self) -> DataKind {
        self.database.kind()
    }

    /// Returns the first device, on which all experiments that need one run.
    pub(crate) fn first_device(&self) -> u32 {
        self.devices.first().copied().unwrap_or_default()
    }

    /// Runs a function of the selftest's script in a folder, which is created.
    pub(crate) fn collect(
        &self,
        folder: &Path,
        request: &ScriptRequest<'_>,
    ) -> Result<CollectedEvidence, EvidenceError> {
        self.collect_variant(folder, request, &CollectionVariant::default())
    }

    /// Runs a function of the selftest's script on the first device. Fails if the script did not finish.
    pub(crate) fn complete(
        &self,
        folder: &Path,
        function: &str,
        parameters: Value,
    ) -> Result<CollectedEvidence, EvidenceError> {
        let request = ScriptRequest { function, parameters, devices: &[self.first_device()] };
        let evidence = self.collect(folder, &request)?;
        evidence.require_completed()?;
        Ok(evidence)
    }

    /// Runs a function of the selftest's script with other settings of the profiler.
    pub(crate) fn collect_variant(
        &self,
        folder: &Path,
        request: &ScriptRequest<'_>,
        variant: &CollectionVariant,
    ) -> Result<CollectedEvidence, EvidenceError> {
        self.prepare_variant(folder, request, variant)?;
        let exit = self.run_script(folder, request.devices, None, files::LOG)?;
        self.read_evidence(folder, exit)
    }

    /// Exports the profiles of a collection again, as a run does where msprof left no tables.
    pub(crate) fn export_again(
        &self,
        folder: &Path,
        devices: &[u32],
    ) -> Result<CollectedEvidence, EvidenceError> {
        let exit = self.run_script(folder, devices, Some("export"), files::EXPORT_LOG)?;
        self.read_evidence(folder, exit)
    }

    /// Writes script, manifest and `collect.sh`.
    pub(crate) fn prepare_script(
        &self,
        folder: &Path,
        request: &ScriptRequest<'_>,
    ) -> Result<(), EvidenceError> {
        self.prepare_variant(folder, request, &CollectionVariant::default())
    }

    fn prepare_variant(
        &self,
        folder: &Path,
        request: &ScriptRequest<'_>,
        variant: &CollectionVariant,
    ) -> Result<(), EvidenceError> {
        let CollectionVariant { number, profiler } = variant.clone();
        let mut manifest = Manifest { collection: number, profiler, ..self.empty_manifest(request.devices) };
        if request.devices.len() > 1 {
            manifest.gang = self.logical_ids(request.devices);
        }
        let mut text = json!(manifest);
        text["selftest"] = request.parameters.clone();
        text["selftest"]["function"] = json!(request.function);
        self.write_folder(folder, &manifest, &text.to_string(), &selftest_script(&self.assets)?)
    }

    /// Returns the numbers of devices for torch and profiles.
    pub(crate) fn logical_ids(&self, devices: &[u32]) -> Vec<LogicalDeviceId> {
        devices.iter().map(|device| self.numbering.logical_id(*device)).collect()
    }

    /// Returns a manifest without cases.
    pub(crate) fn empty_manifest(&self, devices: &[u32]) -> Manifest {
        Manifest {
            run: "selftest".to_owned(),
            collection: COLLECTION,
            kind: self.kind(),
            device: self.logical_ids(devices).first().copied().unwrap_or_default(),
            gang: Vec::new(),
            hosts: Vec::new(),
            host: 0,
            host_numbers: HostNumbers {
                devices: devices.to_vec(),
                listed: self.numbering.listed(),
                is_exact: self.numbering.is_exact(),
            },
            seed: 1,
            warm_up: 0,
            measured: 0,
            flush_bytes: None,
            expert_skew: 0.0,
            profiler: ProfilerSettings::default(),
            environment: PinnedEnvironment::default(),
            sentinels: SentinelLengths::default(),
            controls: None,
            cases: Vec::new(),
        }
    }

    /// Writes the folder of a collection: script, manifest and `collect.sh`.
    pub(crate) fn write_folder(
        &self,
        folder: &Path,
        manifest: &Manifest,
        manifest_text: &str,
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
        let collect = collect_script(&self.assets, &collect)?;
        let profile = folder.join(files::PROFILE);
        fs::create_dir_all(&profile).map_err(EvidenceError::io(&profile))?;
        let texts = [(files::REPLAY, script), (files::MANIFEST, manifest_text), (files::COLLECT, &collect)];
        for (name, text) in texts {
            let path = folder.join(name);
            fs::write(&path, text).map_err(EvidenceError::io(&path))?;
        }
        Ok(())
    }

    /// Runs `collect.sh` of a folder with the leases of its devices.
    pub(crate) fn run_script(
        &self,
        folder: &Path,
        devices: &[u32],
        argument: Option<&str>,
        log: &str,
    ) -> Result<ExitKind, EvidenceError> {
        let stdin = self.leases.share_files(devices).map_err(EvidenceError::io(folder))?;
        let record = self.process_record(folder);
        let log = folder.join(log);
        let job = CommandSpec {
            stdin: Some(stdin),
            record: Some(&record),
            ..CommandSpec::new(
                ["sh", files::COLLECT].into_iter().chain(argument).map(Into::into).collect(),
                folder,
                &log,
                COLLECTION_LIMIT,
            )
        };
        match process::run_command(&job, &self.stop)? {
            ExitKind::Stopped => Err(EvidenceError::Interrupted),
            exit => Ok(exit),
        }
    }

    /// Returns the file that names a running program, by which a later npubench can end it.
    fn process_record(&self, folder: &Path) -> PathBuf {
        let parts = folder.iter().rev().take(2).map(|part| part.to_string_lossy().into_owned());
        let name: Vec<String> = parts.collect();
        let file = format!("selftest-{}-{}.json", std::process::id(), name.join("-"));
        self.database.state_folder().join("processes").join(file)
    }

    /// Reads journal, log and records of a collection that has ended.
    pub(crate) fn read_evidence(
        &self,
        folder: &Path,
        exit: ExitKind,
    ) -> Result<CollectedEvidence, EvidenceError> {
        let read = |name: &str| {
            let bytes = fs::read(folder.join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let journal = read(files::JOURNAL);
        Ok(CollectedEvidence {
            folder: folder.to_owned(),
            exit,
            log: read(files::LOG),
            journal: journal.lines().map_while(|line| serde_json::from_str(line).ok()).collect(),
            records: read_records(&folder.join(files::PROFILE))
                .map_err(|error| error.to_string())
                .and_then(CollectionRecords::into_complete),
        })
    }
}
