//! What a run needs of its host: the device profile of a new database and its comparison with a profile or a host, environment
//! variables, leases of devices, and the path of the database.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
    time::Duration,
};

use crate::{
    base::{assets::AssetFiles, command_error::CommandError, files::ScratchFolder, print::print_note},
    database::Database,
    kernel::{DataKind, DeviceFacts, SoftwareFingerprint, device::DeviceProfile, soc_of_chip},
    measure::{
        device::{
            self, DeviceError, DeviceLeases, HostSoftware, LeaseFolder, PlatformConfig, SoftwareLocations,
            custom_operators,
            npu_smi::{NpuChip, NpuSmiInfo},
            operator_environment,
        },
        run_options::RunOptions,
        vendor_check::{first_device_soc, package_folders},
    },
    profile::DeviceEvidence,
    rehearsal,
};

const DEVICE_VARIABLE: &str = "NPUBENCH_DEVICE";
/// SoC name by npu-smi of every A3.
const A3_FAMILY: &str = "Ascend910";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceChoice {
    pub(crate) name: String,
    pub(crate) source: String,
}

pub(crate) const CORRECT_DEVICE: &str = "use another folder for another device; if the device of the database is \
    wrong, correct `device` in its database.yaml: the profiling columns do not depend on it, and `run --update all` \
    assesses measured rows again";

/// Chooses the device of a new database: the given one, else the one that the profile shows, else the host's. A database
/// of kind `rehearsal` may have an assumed device. `chip` returns the name of the host's chips by npu-smi.
pub(crate) fn choose_device(
    assets: &AssetFiles,
    kind: DataKind,
    given: Option<&str>,
    evidence: &DeviceEvidence,
    chip: impl FnOnce() -> Option<String>,
) -> Result<DeviceChoice, CommandError> {
    let profiles = DeviceProfile::load_all(assets)?;
    let fitting = fitting_devices(&profiles, evidence);
    let variable = std::env::var(DEVICE_VARIABLE).ok().filter(|name| !name.is_empty());
    let given = given.map(|name| (name.to_owned(), "given with --device"));
    if let Some((name, source)) = given.or_else(|| variable.map(|name| (name, "given by NPUBENCH_DEVICE"))) {
        let profile = DeviceProfile::load(assets, &name)?;
        check_evidence(&profile, kind, evidence, &fitting)?;
        return Ok(DeviceChoice { name, source: source.to_owned() });
    }
    let choice = |name: &str, source: String| Ok(DeviceChoice { name: name.to_owned(), source });
    let sources = evidence.sources.join(", ");
    if let ([name], false) = (fitting.as_slice(), evidence.facts.is_empty()) {
        return choice(name, format!("from the profile: {evidence} by {sources}"));
    }
    if kind == DataKind::Rehearsal {
        let default = DeviceProfile::default_name();
        let name =
            if fitting.contains(&default) { default } else { fitting.first().copied().unwrap_or(default) };
        return choice(name, "assumed; `--device` gives another one".to_owned());
    }
    let soc = chip().map(|chip| soc_of_chip(&chip));
    if let Some(soc) = soc.filter(|soc| !soc.is_empty()) {
        let of_host = profiles.iter().filter(|profile| profile.is_of_soc(&soc));
        let of_host: Vec<&str> =
            of_host.map(|profile| profile.device.as_str()).filter(|name| fitting.contains(name)).collect();
        if let [name] = of_host.as_slice() {
            return choice(name, format!("of this host: {soc} by npu-smi"));
        }
    }
    let facts = &evidence.facts;
    let (problem, fits) = match facts.is_empty() {
        true => {
            ("the profile does not contain its device, and this host has none".to_owned(), "known profiles")
        }
        false => (format!("the device of the profile is ambiguous: {evidence} by {sources}"), "these fit"),
    };
    let all = || profiles.iter().map(|profile| profile.device.as_str()).collect();
    let names = if fitting.is_empty() { all() } else { fitting };
    Err(CommandError::bad_input(
        problem,
        format!("give the device with `--device`; {fits}: {}", names.join(", ")),
    ))
}

fn fitting_devices<'p>(profiles: &'p [DeviceProfile], evidence: &DeviceEvidence) -> Vec<&'p str> {
    let is_fitting = |profile: &&DeviceProfile| {
        profile.fits(&evidence.exact_facts()) && !profile.is_exceeded_by(&evidence.facts)
    };
    profiles.iter().filter(is_fitting).map(|profile| profile.device.as_str()).collect()
}

/// Refuses a device that contradicts what the profiler states, or that has fewer cores or a lower clock than the records
/// show: kernels may use a part of the cores, and a device may be set to any clock below its rating.
///
/// Cores that are inferred are those of another device if a known one has them. A rehearsal may assume any device that is large enough.
fn check_evidence(
    device: &DeviceProfile,
    kind: DataKind,
    evidence: &DeviceEvidence,
    fitting: &[&str],
) -> Result<(), CommandError> {
    let mut stated = evidence.facts.clone();
    // A device may be set to any clock, and the records may be of kernels that use a part of the cores.
    stated.clock_mhz = None;
    if evidence.are_cores_inferred {
        (stated.cube_cores, stated.vector_cores) = (None, None);
    }
    let cores = DeviceFacts { clock_mhz: None, ..evidence.facts.clone() };
    let is_another = kind == DataKind::Npu && !fitting.is_empty() && !device.fits(&cores);
    if device.fits(&stated) && !device.is_exceeded_by(&evidence.facts) && !is_another {
        return Ok(());
    }
    let hint = match fitting {
        [] => "see docs/device-profiles.md for a device profile of your own".to_owned(),
        names => format!(
            "these profiles fit: {}; if the kernels of the profile use a part of the cores, take one of a larger step",
            names.join(", ")
        ),
    };
    let own = DeviceFacts {
        soc: None,
        cube_cores: Some(device.cube_cores),
        vector_cores: Some(device.vector_cores),
        clock_mhz: Some(device.clock_mhz),
    };
    let problem = format!(
        "the profile is of {evidence} by {}, not of `{}` with {own}",
        evidence.sources.join(", "),
        device.device
    );
    Err(CommandError::bad_input(problem, hint))
}

pub(crate) fn check_profile_device(
    assets: &AssetFiles,
    database: &Database,
    device: &DeviceProfile,
    evidence: &DeviceEvidence,
) -> Result<(), CommandError> {
    let profiles = DeviceProfile::load_all(assets)?;
    let fitting = fitting_devices(&profiles, evidence);
    check_evidence(device, database.kind(), evidence, &fitting).map_err(|error| {
        let message = format!("{}, the device of `{}`", error.message, database.folder().display());
        CommandError::bad_input(message, CORRECT_DEVICE)
    })
}

fn find_soc(
    device: &DeviceProfile,
    chips: &[NpuChip],
    python: &str,
    environment: &[(String, String)],
) -> Result<Option<String>, String> {
    let (name, socs) = (&device.device, device.soc.join(", "));
    if let Some(other) = chips.iter().find(|chip| !device.is_of_soc(&soc_of_chip(&chip.name))) {
        let NpuChip { physical_id, name: found, .. } = other;
        return Err(format!(
            "device {physical_id} of this host is {found}, the device of the database is `{name}` ({socs})"
        ));
    }
    // npu-smi has one name for all A3, so torch_npu is imported for theirs.
    let soc = match chips.first().map(|chip| soc_of_chip(&chip.name)) {
        Some(family) if family == A3_FAMILY => first_device_soc(python, environment).ok(),
        soc => soc,
    };
    match soc.as_ref().filter(|soc| !device.is_of_soc(soc)) {
        Some(other) => Err(format!(
            "the devices of this host are {other}, the device of the database is `{name}` ({socs})"
        )),
        None => Ok(soc),
    }
}

pub(crate) fn soc_contradiction(
    device: &DeviceProfile,
    chips: &[NpuChip],
    python: &str,
    environment: &[(String, String)],
) -> Option<String> {
    find_soc(device, chips, python, environment).err()
}

pub(super) fn adapt_to_host(
    device: &mut DeviceProfile,
    database: &Database,
    chips: &[NpuChip],
    python: &str,
    environment: &[(String, String)],
) -> Result<(), CommandError> {
    let variable =
        |name: &str| environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    let (soc, cann) = match database.kind() {
        // The rehearsal host has the device of the database; its npu-smi prints the table of an A3.
        DataKind::Rehearsal => (device.first_soc().map(str::to_owned), variable("ASCEND_HOME_PATH")),
        DataKind::Npu => {
            let soc = find_soc(device, chips, python, environment);
            let soc = soc.map_err(|problem| CommandError::bad_input(problem, CORRECT_DEVICE))?;
            (soc, std::env::var("ASCEND_HOME_PATH").ok())
        }
    };
    let config = soc.zip(cann).and_then(|(soc, cann)| PlatformConfig::read(Path::new(&cann), &soc));
    config.iter().flat_map(|config| config.apply_to(device)).for_each(|note| print_note(&note));
    Ok(())
}

/// Returns what npu-smi lists; `None` for the rehearsal host, and if it fails.
pub(crate) fn listed_devices(kind: DataKind) -> Option<NpuSmiInfo> {
    if kind == DataKind::Rehearsal {
        return None;
    }
    let scratch = ScratchFolder::create().ok()?;
    device::query_npu_smi(&[], scratch.path(), &AtomicBool::new(false)).ok()
}

pub(crate) fn chip_of_host() -> Option<String> {
    let chips = listed_devices(DataKind::Npu)?.chips;
    let first = chips.first()?.name.clone();
    chips.iter().all(|chip| chip.name == first).then_some(first)
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
    pub(super) software: HostSoftware,
}

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
    let hint = "the folder must be writable; check its owner, mode and mount";
    fs::create_dir_all(folder).map_err(CommandError::io("create", folder, hint))?;
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
    use crate::kernel::DeviceFacts;

    fn evidence(soc: Option<&str>, cores: Option<u32>, clock_mhz: Option<u32>) -> DeviceEvidence {
        DeviceEvidence {
            facts: DeviceFacts {
                soc: soc.map(str::to_owned),
                cube_cores: cores,
                vector_cores: cores.map(|cores| 2 * cores),
                clock_mhz,
            },
            sources: vec!["NPU_INFO", "info.json"],
            ..DeviceEvidence::default()
        }
    }

    fn choose(
        kind: DataKind,
        given: Option<&str>,
        evidence: &DeviceEvidence,
        chip: Option<&str>,
    ) -> Result<(String, String), CommandError> {
        let choice =
            choose_device(&AssetFiles::embedded(), kind, given, evidence, || chip.map(str::to_owned));
        choice.map(|choice| (choice.name, choice.source))
    }

    /// A profile that was throttled throughout: the device may be any that is fast enough.
    #[test]
    fn the_clock_that_ran_is_a_lower_bound() {
        let mut ran = evidence(Some("Ascend910B"), Some(20), Some(1400));
        ran.is_clock_inferred = true;
        let candidates = |evidence: &DeviceEvidence| {
            let error = choose(DataKind::Npu, None, evidence, None).expect_err("several have 20 cores");
            (error.message, error.hint.matches("ATLAS_").count())
        };
        let (message, all) = candidates(&ran);
        assert!(message.contains("a clock of at least 1400 MHz") && all == 5, "{all}: {message}");
        ran.facts.clock_mhz = Some(1650);
        assert_eq!(candidates(&ran).1, 2, "no device of 1500 MHz ran at 1650");
    }

    #[test]
    fn device_follows_from_the_profile_where_it_is_unique() {
        let b4 = evidence(Some("Ascend910B"), Some(20), Some(1500));
        let error = choose(DataKind::Npu, None, &b4, None).expect_err("several have 20 cores");
        assert!(
            error
                .message
                .contains("Ascend910B, 20 cube cores, 40 vector cores, 1500 MHz by NPU_INFO, info.json")
        );
        assert!(
            error.hint.contains("ATLAS_800_A2_280T_32G_PCIE, ") && !error.hint.contains("752T"),
            "{}",
            error.hint
        );
        let (name, source) = choose(DataKind::Npu, None, &evidence(Some("Ascend310P"), None, None), None)
            .expect("one profile");
        assert_eq!(name, "ASCEND_310P3");
        assert!(source.starts_with("from the profile: Ascend310P by"), "{source}");
    }

    #[test]
    fn given_device_with_fewer_cores_or_a_lower_clock_than_the_records_show_is_refused() {
        let mut shown = evidence(None, Some(24), Some(1650));
        shown.are_cores_inferred = true;
        let given = |name, shown: &DeviceEvidence| {
            choose(DataKind::Npu, Some(name), shown, None).map(|_| ()).map_err(|error| error.message)
        };
        assert_eq!(given("ATLAS_800_A3_752T_128G_DIE", &shown), Ok(()), "1850 MHz, set lower");
        let error = given("ATLAS_800_A2_313T_64G", &shown).expect_err("20 cores");
        assert!(
            error.contains("24 cube cores") && error.contains("not of `ATLAS_800_A2_313T_64G`"),
            "{error}"
        );
        shown.facts.cube_cores = Some(16);
        shown.facts.vector_cores = Some(32);
        assert_eq!(given("ATLAS_800_A2_313T_64G", &shown), Ok(()), "kernels that use a part of the cores");
        shown.facts.cube_cores = Some(20);
        shown.facts.vector_cores = Some(40);
        let error = given("ATLAS_800_A3_752T_128G_DIE", &shown).expect_err("others have 20 cores");
        assert!(
            error.contains("20 cube cores, 40 vector cores")
                && error.contains("24 cube cores, 48 vector cores, 1850")
        );
        let rehearsed = choose(DataKind::Rehearsal, Some("ATLAS_800_A3_752T_128G_DIE"), &shown, None);
        assert!(rehearsed.is_ok(), "it may assume a device");
        shown.facts.cube_cores = Some(16);
        shown.facts.vector_cores = Some(32);
        let error = given("ATLAS_800_A2_280T_32G_PCIE", &shown).expect_err("1500 MHz");
        assert!(error.contains("1650 MHz"), "{error}");
    }

    #[test]
    fn chip_of_the_host_decides_between_candidates() {
        let b = evidence(Some("Ascend910B"), Some(20), Some(1800));
        let chosen =
            |chip| choose(DataKind::Npu, None, &b, chip).map(|(name, _)| name).map_err(|error| error.message);
        assert_eq!(chosen(Some("910B3")).as_deref(), Ok("ATLAS_800_A2_313T_64G"));
        assert!(chosen(Some("910B2")).is_err(), "the profile was taken on another host");
        assert!(chosen(None).is_err());
        let unknown = DeviceEvidence::default();
        let (name, source) = choose(DataKind::Npu, None, &unknown, Some("910B4")).expect("the host's chip");
        assert_eq!(
            (&*name, &*source),
            ("ATLAS_800_A2_280T_32G_PCIE", "of this host: Ascend910B4 by npu-smi")
        );
        // npu-smi has one name for all models of A3.
        let error = choose(DataKind::Npu, None, &unknown, Some("Ascend910")).expect_err("ambiguous");
        assert_eq!(error.message, "the profile does not contain its device, and this host has none");
    }

    #[test]
    fn only_rehearsals_may_assume_a_device() {
        let unknown = DeviceEvidence::default();
        let (name, source) = choose(DataKind::Rehearsal, None, &unknown, None).expect("assumed");
        assert_eq!(name, DeviceProfile::default_name());
        assert!(source.starts_with("assumed"), "{source}");
        let (name, _) =
            choose(DataKind::Rehearsal, None, &evidence(Some("Ascend910B"), Some(20), Some(1800)), None)
                .expect("one");
        assert_ne!(name, DeviceProfile::default_name(), "it has 24 cores");
        assert!(choose(DataKind::Npu, None, &unknown, None).is_err());
    }

    #[test]
    fn given_device_must_not_contradict_the_profile() {
        let given = Some("ATLAS_800_A2_313T_64G");
        let b = evidence(Some("Ascend910B"), Some(24), Some(1800));
        let error = choose(DataKind::Npu, given, &b, None).expect_err("24 cores");
        assert!(error.message.contains("not of `ATLAS_800_A2_313T_64G`"), "{}", error.message);
        let inferred = DeviceEvidence { are_cores_inferred: true, ..evidence(None, Some(18), Some(1800)) };
        assert!(choose(DataKind::Npu, given, &inferred, None).is_ok(), "kernels may use a part of the cores");
        assert!(choose(DataKind::Npu, Some("A2"), &DeviceEvidence::default(), None).is_err());
    }
}
