//! Selftests of a host: preparation, execution, and the requirement of a passed selftest for runs on devices.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use nix::sys::signal::Signal;

use super::{
    evidence::SelftestContext,
    experiment::{ExperimentReport, ExperimentStatus, run_experiments},
    production_agreement::{COMPARED_ROWS, heaviest_rows},
    results::{
        SelftestDescription, StoredSelftest, append_report, mismatched_entries, missing_selftest,
        stored_selftests,
    },
};
use crate::{
    base::{
        assets::AssetFiles, command_error::CommandError, exit::ExitStatus, print::print_note,
        shell_argument::quoted_path,
    },
    database::Database,
    kernel::{DataKind, ImportedVersions, KernelName, SoftwareFingerprint, timestamp::Timestamp},
    measure::{
        device::{DeviceError, DeviceLeases, HostFingerprint},
        device_choice::{RehearsedDurations, lease_folder, program_environment},
        engine::{PausedDevices, pause_file},
        events::RunScreen,
        run_context::RunContext,
        run_options::RunOptions,
        vendor_check::{CheckSoftware, installed_software},
    },
};

#[derive(Debug)]
pub(crate) struct SelftestOutcome {
    pub(crate) folder: PathBuf,
    pub(crate) reports: Vec<ExperimentReport>,
    pub(crate) exit: ExitStatus,
}

pub(crate) fn run_selftest(
    db: &Path,
    kind: DataKind,
    assets: AssetFiles,
    options: &RunOptions,
    experiments: &[u32],
    screen: &'static dyn RunScreen,
    mut on_report: impl FnMut(&ExperimentReport),
) -> Result<SelftestOutcome, CommandError> {
    let host = RunContext::find(db, kind, assets, options, screen)?;
    let mut lock = host.database.lock()?;
    host.database.initialise(&mut lock)?;
    let (leases, devices) = lease_devices(&host, options)?;
    let fingerprint = host.selftest_fingerprint(&options.python);
    let now = Timestamp::now().to_jiff();
    let description = SelftestDescription {
        host: fingerprint.host.clone(),
        kind,
        started: now.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string(),
        fingerprint: fingerprint.to_text(),
        devices,
        npubench: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let folder = description.store(&host.database, &now.strftime("%Y%m%d-%H%M%S").to_string())?;
    let context = selftest_context(host, options, &folder, description.devices, leases)?;
    let mut reports = Vec::new();
    let is_complete = run_experiments(&context, &folder, experiments, |report| {
        append_report(&folder, &report)?;
        on_report(&report);
        reports.push(report);
        Ok(())
    })?;
    let is_passed = reports.iter().all(|report| report.status == ExperimentStatus::Pass);
    let exit = match (is_complete, is_passed) {
        (false, _) => ExitStatus::Interrupted,
        (true, false) => ExitStatus::SomeNotOk,
        (true, true) => ExitStatus::Done,
    };
    Ok(SelftestOutcome { folder, reports, exit })
}

/// Leases the devices of the host. Those that are paused or that another run uses are left out; it is an error if none is
/// left.
fn lease_devices(host: &RunContext, options: &RunOptions) -> Result<(DeviceLeases, Vec<u32>), CommandError> {
    let file = pause_file(&host.database);
    let paused = PausedDevices::load(&file).map_err(|error| {
        let problem = format!("`{}` cannot be read: {error}", file.display());
        CommandError::bad_input(problem, "correct or remove the file; `npubench pause` writes it")
    })?;
    let all = host.chips.iter().map(|chip| chip.physical_id);
    let (reserved, mut devices): (Vec<u32>, Vec<u32>) = all.partition(|device| paused.contains(*device));
    // All listed chips are used, so that the leases have the same names as in runs.
    let folder = lease_folder(&host.database, options, &host.info.chips);
    let leases = DeviceLeases::acquire(&folder, &devices, Duration::ZERO)?;
    let in_use = leases.acquire_missing(&devices);
    devices.retain(|device| !in_use.contains_key(device));
    let reserved = reserved.into_iter().map(|device| format!("device {device} is paused"));
    let reasons: Vec<String> = reserved.chain(in_use.into_values()).collect();
    if devices.is_empty() {
        return Err(DeviceError::Busy(reasons.join("; ")).into());
    }
    reasons.iter().for_each(|reason| print_note(&format!("left out: {reason}")));
    Ok((leases, devices))
}

/// Installs the stand-ins of a rehearsal host, and registers the signals that stop the selftest.
fn selftest_context(
    host: RunContext,
    options: &RunOptions,
    folder: &Path,
    devices: Vec<u32>,
    leases: DeviceLeases,
) -> Result<SelftestContext, CommandError> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        signal_hook::flag::register(signal as i32, Arc::clone(&stop)).map_err(|error| {
            CommandError::bad_input(format!("cannot register signal handlers: {error}"), "repeat the command")
        })?;
    }
    let durations = || {
        let rows = heaviest_rows(&host.database, &host.catalogue, &host.profile, COMPARED_ROWS);
        // The experiment reports why a database cannot be read.
        let rows = rows.unwrap_or_default().into_iter();
        let medians = rows.map(|row| (row.planned.case.id().as_str().to_owned(), row.median.0));
        RehearsedDurations { recorded_medians: medians.collect(), ..RehearsedDurations::default() }
    };
    let environment =
        program_environment(options, &folder.join("host"), &host.database, durations)?.variables;
    let (python, has_hung) = (options.python.clone(), AtomicBool::new(false));
    Ok(SelftestContext { host, python, environment, devices, leases, stop, has_hung })
}

impl RunContext {
    /// Returns the fingerprint of the host with the packages installed for an interpreter. Neither the chosen devices nor
    /// the settings of the profiler have an influence on it.
    fn selftest_fingerprint(&self, python: &str) -> HostFingerprint {
        let imported = match self.database.kind() {
            // The stand-ins are not installed as packages.
            DataKind::Rehearsal => ImportedVersions::default(),
            // Experiment 0 reports missing packages.
            DataKind::Npu => installed_software(python)
                .map(|CheckSoftware { torch, torch_npu, mut further }| ImportedVersions {
                    torch: Some(torch),
                    torch_npu: Some(torch_npu),
                    vllm_ascend: further.remove("vllm_ascend"),
                    ..ImportedVersions::default()
                })
                .unwrap_or_default(),
        };
        let software = SoftwareFingerprint { profiler: None, ..self.software.with_imported(imported) };
        HostFingerprint::of_host(&self.info, &self.info.chips, software)
    }

    /// Returns the catalogue's entries that do not fit this host by its selftest, with the reasons.
    pub(crate) fn mismatched_entries(
        &self,
        python: &str,
    ) -> Result<BTreeMap<KernelName, String>, CommandError> {
        let fingerprint = || self.selftest_fingerprint(python).to_text();
        Ok(mismatched_entries(&self.selftests()?.1, self.database.kind(), fingerprint))
    }

    /// Returns the selftests and the folder of their database. Selftests are of the host, and the database of a shard has none
    /// of its own.
    fn selftests(&self) -> Result<(PathBuf, Vec<StoredSelftest>), CommandError> {
        let divided = self.database.divided_folder().map(Database::open).transpose()?;
        let database = divided.as_ref().unwrap_or(&self.database);
        Ok((database.folder().to_owned(), stored_selftests(database)?))
    }

    pub(crate) fn require_selftest(&self, python: &str) -> Result<(), CommandError> {
        let fingerprint = self.selftest_fingerprint(python).to_text();
        let devices: Vec<u32> = self.chips.iter().map(|chip| chip.physical_id).collect();
        let (folder, stored) = self.selftests()?;
        match missing_selftest(&stored, &fingerprint, &devices) {
            None => Ok(()),
            Some(problem) => Err(CommandError::cannot_measure(
                problem,
                format!(
                    "`npubench selftest --db {} --experiments 0-4` runs the required experiments on all free devices; \
                     `--without-selftest` measures without them and marks the rows",
                    quoted_path(&folder)
                ),
            )),
        }
    }
}
