//! Surroundings of a run's programs: environment variables, leases of devices, and the path of the database.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    base::command_error::CommandError,
    database::Database,
    kernel::{DataKind, SoftwareFingerprint},
    measure::{
        device::{
            DeviceError, DeviceLeases, HostSoftware, LeaseFolder, SoftwareLocations, custom_operators,
            npu_smi::{NpuChip, NpuSmiInfo},
            operator_environment,
        },
        run_options::RunOptions,
        vendor_check::package_folders,
    },
    rehearsal,
};

/// Refuses a folder whose path contains a character that msprof does not accept.
///
/// The list is the one of msprof's argument check; `:` separates the entries of `PATH` on the rehearsal host.
pub(crate) fn check_path(folder: &Path, kind: DataKind) -> Result<(), CommandError> {
    const REFUSED: &str = "'\"\\%><|&$;`";
    let is_refused =
        |c: char| c.is_control() || REFUSED.contains(c) || (kind == DataKind::Rehearsal && c == ':');
    match folder.to_string_lossy().chars().find(|c| is_refused(*c)) {
        None => Ok(()),
        Some(found) => Err(CommandError::bad_input(
            format!("the path `{}` contains {found:?}, which msprof does not accept", folder.display()),
            "rename the folder, or move it and keep a link at the old place",
        )),
    }
}

/// Folder of the locked files that stand for devices: the one given by the user, which containers may share; else that
/// of the user for real devices, and that of the database for rehearsed ones.
pub(super) fn lease_folder(database: &Database, options: &RunOptions, chips: &[NpuChip]) -> LeaseFolder {
    match (&options.leases, database.kind()) {
        (Some(folder), DataKind::Npu) => LeaseFolder::of_containers(folder.clone()).with_names(chips, ""),
        // Rehearsed devices have addresses that real ones may have, too.
        (Some(folder), DataKind::Rehearsal) => {
            LeaseFolder::of_containers(folder.clone()).with_names(chips, "rehearsal-")
        }
        (None, DataKind::Npu) => LeaseFolder::of_user().with_names(chips, ""),
        (None, DataKind::Rehearsal) => LeaseFolder::of_database(database.state_folder().join("leases")),
    }
}

/// Leases the devices that no process uses, so that no run of another npubench is disturbed. Returns their physical
/// numbers; those that another npubench holds are left out.
pub(crate) fn lease_free_devices(
    folder: &LeaseFolder,
    info: &NpuSmiInfo,
    chips: &[NpuChip],
) -> Result<(DeviceLeases, Vec<u32>), DeviceError> {
    let free = chips.iter().filter(|chip| info.processes_on(chip).next().is_none());
    let mut devices: Vec<u32> = free.map(|chip| chip.physical_id).collect();
    let leases = DeviceLeases::acquire(folder, &devices, Duration::ZERO)?;
    let in_use = leases.acquire_missing(&devices);
    devices.retain(|device| !in_use.contains_key(device));
    Ok((leases, devices))
}

#[derive(Clone, Debug)]
pub(super) struct ProgramEnvironment {
    pub(super) variables: Vec<(String, String)>,
    /// Software of the host, as far as it is known before a script has run.
    pub(super) software: HostSoftware,
}

/// Inputs of the rehearsal host's durations besides seed and model.
#[derive(Clone, Debug, Default)]
pub(super) struct RehearsedDurations {
    /// Recorded medians that cases take, in nanoseconds by case id.
    pub(super) recorded_medians: BTreeMap<String, i64>,
    pub(super) earlier_runs: u64,
}

/// Returns the surroundings of the host's programs. The programs of the rehearsal host are written into `folder`; `durations`
/// is called for that host only.
pub(super) fn program_environment(
    options: &RunOptions,
    folder: &Path,
    database: &Database,
    durations: impl FnOnce() -> RehearsedDurations,
) -> Result<ProgramEnvironment, CommandError> {
    let profiler = Some(options.profiler.options().join(" "));
    let environment = options.pinned_environment().values();
    let settings = SoftwareFingerprint { profiler, environment, ..SoftwareFingerprint::default() };
    if database.kind() == DataKind::Npu {
        // CANN does not find custom operators that are installed with a Python package by itself.
        let variable = |name: &str| std::env::var(name).ok();
        let packages = custom_operators(variable, &package_folders(&options.python, "vllm_ascend"));
        let variables = operator_environment(&packages, variable);
        let locations = SoftwareLocations::of_host(variable);
        return Ok(ProgramEnvironment {
            variables,
            software: HostSoftware { locations, packages, settings },
        });
    }
    fs::create_dir_all(folder).map_err(|error| {
        CommandError::bad_input(
            format!("cannot create `{}`: {error}", folder.display()),
            "the folder must be writable; check its owner, mode and mount",
        )
    })?;
    let RehearsedDurations { recorded_medians, earlier_runs } = durations();
    let config = rehearsal::HostConfig {
        model: options.rehearsal_model,
        seed: options.seed,
        earlier_runs,
        device_profile: database.device().to_owned(),
        assets: options.assets.as_ref().and_then(|folder| folder.canonicalize().ok()),
        recorded_medians,
        faults: options.faults.clone(),
    };
    let variables = rehearsal::install(folder, &config)?;
    let cann = variables.iter().find(|(name, _)| name == "ASCEND_HOME_PATH");
    let locations = SoftwareLocations {
        cann: cann.map(|(_, home)| PathBuf::from(home)),
        driver_root: rehearsal::ascend_root(folder),
    };
    Ok(ProgramEnvironment { variables, software: HostSoftware { locations, packages: Vec::new(), settings } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_msprof_refuses_are_refused_first() {
        for kind in [DataKind::Npu, DataKind::Rehearsal] {
            assert!(check_path(Path::new("/data/night run (2)/db-1"), kind).is_ok());
            for wrong in ["/data/a|b", "/data/$HOME", "/data/a;b", "/data/a\nb", "/data/it's"] {
                let error = check_path(Path::new(wrong), kind).expect_err(wrong).to_string();
                assert!(error.contains("msprof"), "{error}");
            }
        }
        assert!(check_path(Path::new("/data/a:b"), DataKind::Npu).is_ok());
        assert!(check_path(Path::new("/data/a:b"), DataKind::Rehearsal).is_err());
    }
}
