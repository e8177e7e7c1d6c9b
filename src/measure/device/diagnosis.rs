//! Checks of `npubench doctor`: conditions for measuring on this host. They change nothing.

use std::{io, path::Path, sync::atomic::AtomicBool};

use super::{
    CustomOperators, DeviceError, DeviceNumbering, HostDevices, VISIBLE, describe_health,
    npu_smi::NpuSmiInfo, run_host_program, search_path,
};
use crate::{
    base::{command_error::Failure, process::find_program},
    kernel::{LogicalDeviceId, SoftwareFingerprint, version_numbers},
};

/// Result of a check, with its text in output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, serde::Serialize, schemars::JsonSchema)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub(crate) enum CheckStatus {
    #[strum(serialize = "ok")]
    #[serde(rename = "ok")]
    Passed,
    /// Measuring works with a limitation.
    Warning,
    /// Measuring is impossible.
    Missing,
}

/// Free bytes recommended for a run of ten hours; msprof needs twenty times the size of its raw data.
const FREE_DISK: u64 = 50 << 30;

/// One check of a host.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
pub(crate) struct DoctorCheck {
    /// Checked condition.
    #[serde(rename = "check")]
    pub(crate) name: &'static str,
    pub(crate) status: CheckStatus,
    /// Observed state.
    pub(crate) found: String,
    /// Required action; empty if the check passed.
    pub(crate) fix: String,
}

impl DoctorCheck {
    pub(crate) fn passed(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, status: CheckStatus::Passed, found: found.into(), fix: String::new() }
    }

    pub(crate) fn warning(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, status: CheckStatus::Warning, found: found.into(), fix: fix.into() }
    }

    pub(crate) fn missing(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, status: CheckStatus::Missing, found: found.into(), fix: fix.into() }
    }

    fn warning_unless(is_passed: bool, name: &'static str, found: String, fix: &str) -> Self {
        if is_passed { Self::passed(name, found) } else { Self::warning(name, found, fix) }
    }
}

pub(crate) fn check_devices(host: &Result<HostDevices, DeviceError>) -> DoctorCheck {
    const NAME: &str = "devices";
    let info = match host {
        Ok(host) => &host.info,
        Err(error) => return DoctorCheck::missing(NAME, error.to_string(), error.hint()),
    };
    let Some(first) = info.chips.first() else {
        return DoctorCheck::missing(NAME, "none", "load the driver, or map devices into the container");
    };
    let version = if info.version.is_empty() { "of unknown version" } else { &info.version };
    let mut found = format!("{} of {}, npu-smi {version}", info.chips.len(), first.name);
    let unhealthy = info.chips.iter().filter(|chip| chip.health != "OK").map(describe_health);
    let unhealthy = unhealthy.collect::<Vec<_>>().join(", ");
    if unhealthy.is_empty() {
        return DoctorCheck::passed(NAME, found);
    }
    found.push_str(&format!("; {unhealthy}"));
    DoctorCheck::warning(NAME, found, "they are left out; reset them")
}

/// Returns a text for each occupied device: `0 (process 2271 mindie_llm_back, 23990 MB)`.
pub(crate) fn describe_occupied(info: &NpuSmiInfo) -> Vec<String> {
    let memory = |mb: Option<u64>| mb.map_or_else(String::new, |mb| format!(", {mb} MB"));
    let texts = info.occupied_chips().map(|chip| {
        let processes = info.processes_on(chip).map(|process| {
            let name = if process.name.is_empty() { "without a name" } else { &process.name };
            let pid = process.container_pid.unwrap_or(process.pid);
            format!("process {pid} {name}{}", memory(process.memory_mb))
        });
        let processes: Vec<String> = processes.collect();
        let used = match (processes.is_empty(), chip.memory_used_mb, chip.memory_total_mb) {
            (true, Some(used), Some(total)) => {
                format!("{used} of {total} MB in use without a listed process, perhaps of another container")
            }
            _ => processes.join("; "),
        };
        format!("{} ({used})", chip.physical_id)
    });
    texts.collect()
}

pub(crate) const OCCUPIED_FIX: &str =
    "a run starts no collection there until they are free; `--busy skip` or `--devices` leaves them out";

pub(crate) fn check_occupied(info: &NpuSmiInfo) -> DoctorCheck {
    const NAME: &str = "devices in use";
    match describe_occupied(info) {
        occupied if occupied.is_empty() => DoctorCheck::passed(NAME, "none"),
        occupied => DoctorCheck::warning(NAME, occupied.join(", "), OCCUPIED_FIX),
    }
}

const DEVICES_OF_TORCH: &str = "devices of torch";
const MAP_SAME_DEVICES: &str = "map the same devices for `npu-smi` and torch, and compare `npu-smi info -m`";

pub(crate) fn check_device_count(numbering: &DeviceNumbering, counted: u32) -> DoctorCheck {
    match numbering.mismatch(counted) {
        Some(problem) => DoctorCheck::missing(DEVICES_OF_TORCH, problem, MAP_SAME_DEVICES),
        None => DoctorCheck::passed(DEVICES_OF_TORCH, counted.to_string()),
    }
}

pub(crate) fn check_numbering(host: &HostDevices, counted: Result<u32, String>) -> DoctorCheck {
    const NAME: &str = DEVICES_OF_TORCH;
    let numbering = DeviceNumbering::of_listed(&host.info);
    let count = match counted {
        Ok(count) => count,
        Err(error) => {
            let fix = import_fix(&error).unwrap_or("check the driver and CANN");
            return DoctorCheck::missing(NAME, error, fix);
        }
    };
    let resolved = match numbering.has_gaps() {
        true => numbering.resolve_gaps(count).map_err(|error| error.to_string()),
        false => numbering.mismatch(count).map_or(Ok(numbering), Err),
    };
    match resolved {
        Err(problem) => DoctorCheck::missing(NAME, problem, MAP_SAME_DEVICES),
        Ok(numbering) => {
            let remark = numbering.remark(host);
            let remark = remark.unwrap_or_else(|| "numbered as in `npu-smi info`".to_owned());
            let (has_map, found) = (host.without_chip_map.is_none(), format!("{count}; {remark}"));
            DoctorCheck::warning_unless(has_map, NAME, found, "update the driver's npu-smi")
        }
    }
}

fn import_fix(error: &str) -> Option<&'static str> {
    let is_missing = error.contains("ModuleNotFoundError");
    is_missing.then_some("install torch and torch_npu, or give the Python that has them with `--python`")
}

/// Checks that torch_npu could use a device: the first usable one of those that are free, if any is free.
pub(crate) fn check_device_use(
    usable: Result<Result<Option<LogicalDeviceId>, String>, String>,
) -> DoctorCheck {
    const NAME: &str = "device use";
    match usable {
        Ok(Ok(Some(device))) => DoctorCheck::passed(NAME, format!("torch_npu uses device {device} of torch")),
        Ok(Ok(None)) => DoctorCheck::warning(
            NAME,
            "not tried, because all devices are in use",
            "repeat the command when a device is free",
        ),
        Ok(Err(problem)) | Err(problem) => {
            let fix = import_fix(&problem).unwrap_or(
                "compare the driver with the version that CANN's release notes require, and check that this user may open \
                 /dev/davinci*",
            );
            DoctorCheck::missing(NAME, problem, fix)
        }
    }
}

/// Checks that the versions of driver and firmware are known. No file of an installation lists the drivers that its CANN
/// supports, so that the versions are printed for comparison with its release notes.
pub(crate) fn check_driver(software: &SoftwareFingerprint) -> DoctorCheck {
    let SoftwareFingerprint { driver, firmware, .. } = software;
    let version = |version: &Option<String>| version.clone().unwrap_or_else(|| "unknown".to_owned());
    let found = format!("{}, firmware {}", version(driver), version(firmware));
    let fix = "its version.info is not readable; inside a container, map the driver's folder, so that rows record it";
    DoctorCheck::warning_unless(driver.is_some() && firmware.is_some(), "driver", found, fix)
}

pub(crate) fn check_visible_devices(variable: impl Fn(&str) -> Option<String>) -> DoctorCheck {
    const NAME: &str = "device numbers";
    match variable(VISIBLE) {
        None => DoctorCheck::passed(NAME, format!("{VISIBLE} is not set")),
        Some(value) => {
            let error = DeviceError::Renumbered { value };
            DoctorCheck::missing(NAME, error.to_string().replace('`', ""), error.hint())
        }
    }
}

pub(crate) fn check_operators(packages: &[CustomOperators], kernels: &[&str]) -> DoctorCheck {
    const NAME: &str = "custom operators";
    if packages.is_empty() {
        let fix = "install the package that brings them, such as vllm-ascend, or set ASCEND_CUSTOM_OPP_PATH";
        return DoctorCheck::warning(NAME, format!("none; {} need them", kernels.join(", ")), fix);
    }
    let named = packages.iter().map(|CustomOperators { folder, is_set }| {
        format!("{}{}", folder.display(), if *is_set { "" } else { " (set for the replays)" })
    });
    DoctorCheck::passed(NAME, named.collect::<Vec<_>>().join(", "))
}

pub(crate) fn check_files(folder: &Path) -> [DoctorCheck; 2] {
    let umask = nix::sys::stat::umask(nix::sys::stat::Mode::empty());
    nix::sys::stat::umask(umask);
    let (bits, fix) = (umask.bits(), "msprof requires 0027 or stricter: `umask 0027`");
    let mode = DoctorCheck::warning_unless(bits & 0o027 == 0o027, "umask", format!("{bits:04o}"), fix);
    // A folder that does not exist yet will be on the disk of the folder above.
    let existing = folder.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("."));
    let disk = match nix::sys::statvfs::statvfs(existing) {
        Err(error) => {
            let found = format!("`{}`: {}", folder.display(), io::Error::from(error));
            DoctorCheck::warning("disk", found, "check the folder")
        }
        Ok(disk) => {
            let free = disk.blocks_available() * disk.fragment_size();
            let found = format!("{} GiB free below `{}`", free >> 30, folder.display());
            let fix = "a run of one night needs tens of GiB of raw data; free some, or use another disk";
            DoctorCheck::warning_unless(free >= FREE_DISK, "disk", found, fix)
        }
    };
    [mode, disk]
}

/// Oldest CANN whose msprof takes the application behind its options; 6.x and 7.0 have other values of `--task-time`.
pub(crate) const MIN_CANN: [u32; 3] = [8, 0, 0];
/// Oldest Python with which msprof exports, by its documentation.
pub(crate) const MIN_EXPORT_PYTHON: [u32; 3] = [3, 7, 5];
const SET_CANN: &str = "source CANN's set_env.sh";
const UPDATE_CANN: &str = "install CANN 8.0 or later, and source its set_env.sh";
const UPDATE_PYTHON: &str =
    "put a python3 of 3.7.5 or later first in the PATH; msprof exports its tables with it";

/// Checks CANN, its version, msprof and python3 in the PATH. `cann_version` is the version in the installation's files;
/// output of programs is written to the folder `scratch`.
pub(crate) fn check_installation(
    variable: impl Fn(&str) -> Option<String>,
    cann_version: Option<&str>,
    scratch: &Path,
) -> [DoctorCheck; 4] {
    let cann = match variable("ASCEND_HOME_PATH") {
        Some(path) if Path::new(&path).is_dir() => DoctorCheck::passed("CANN", path),
        Some(path) => DoctorCheck::missing("CANN", format!("`{path}` is not a folder"), SET_CANN),
        None => DoctorCheck::missing("CANN", "ASCEND_HOME_PATH is not set", SET_CANN),
    };
    let msprof = match find_program("msprof", &search_path(&[])) {
        Some(path) => DoctorCheck::passed("msprof", path.to_string_lossy()),
        None => DoctorCheck::missing("msprof", "not in the PATH", SET_CANN),
    };
    let (log, stop) = (scratch.join("python3.txt"), AtomicBool::new(false));
    let python = run_host_program("python3", &["--version"], &[], &log, &stop);
    let python = python.map_err(|error| error.to_string());
    [cann, check_cann_version(cann_version), msprof, check_export_python(python.as_deref())]
}

fn check_cann_version(version: Option<&str>) -> DoctorCheck {
    const NAME: &str = "CANN version";
    match version.and_then(|text| Some((text, version_numbers(text)?))) {
        Some((text, numbers)) if numbers >= MIN_CANN => DoctorCheck::passed(NAME, text),
        Some((text, _)) => {
            let found = format!("{text}; its msprof has other options than that of 8.0");
            DoctorCheck::missing(NAME, found, UPDATE_CANN)
        }
        None => {
            let found = "no file of the installation contains it";
            DoctorCheck::warning(NAME, found, "compare it with 8.0 by hand")
        }
    }
}

fn check_export_python(version: Result<&str, &String>) -> DoctorCheck {
    const NAME: &str = "python3 of the export";
    match version.map(|text| (text.trim(), version_numbers(text))) {
        Ok((text, Some(numbers))) if numbers >= MIN_EXPORT_PYTHON => DoctorCheck::passed(NAME, text),
        Ok((text, _)) => DoctorCheck::missing(NAME, text, UPDATE_PYTHON),
        Err(problem) => DoctorCheck::missing(NAME, problem, UPDATE_PYTHON),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::device::npu_smi::parse_info;

    #[test]
    fn unknown_version_of_npu_smi_is_named() {
        let table = "\
            | NPU   Name   | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
            | Chip         | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
            | 0     910B3  | OK            | 97.5        41                0    / 0             |
            | 0            | 0000:C1:00.0  | 12          0    / 0          3379 / 65536         |
            ";
        let info = parse_info(table).expect("a chip");
        let check = check_devices(&Ok(HostDevices { info, without_chip_map: None }));
        assert!(check.found.contains("npu-smi of unknown version"), "{check:?}");
    }

    #[test]
    fn devices_in_use_are_named_with_their_processes() {
        let table = "\
            | npu-smi 24.1.1            Version: 24.1.1                                            |
            | NPU   Name   | Health     | Power(W)    Temp(C)           Hugepages-Usage(page)      |
            | Chip         | Bus-Id     | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)              |
            | 0     910B4  | OK         | 88.2        30                0    / 0                   |
            | 0            | 0000:C1:00.0 | 0         0    / 0          26838/ 32768               |
            | 1     910B4  | OK         | 87.0        30                0    / 0                   |
            | 0            | 0000:C2:00.0 | 0         0    / 0          2871 / 32768               |
            | 2     910B4  | OK         | 87.0        30                0    / 0                   |
            | 0            | 0000:C3:00.0 | 0         0    / 0          29356/ 32768               |
            | 3     910B4  | OK         | 87.0        30                0    / 0                   |
            | 0            | 0000:C4:00.0 | 0         0    / 0          2990 / 32768               |
            | NPU     Chip | Process id | Process name             | Process memory(MB)            |
            | 0       0    | 2271       | mindie_llm_back          | 23990                         |
            | 0       0    | 2272       |                          | 117                           |
            | 3       0    | 4409       | python                   | 90                            |
            ";
        let info = parse_info(table).expect("chips and processes");
        let expected = [
            "0 (process 2271 mindie_llm_back, 23990 MB; process 2272 without a name, 117 MB)",
            "2 (29356 of 32768 MB in use without a listed process, perhaps of another container)",
            "3 (process 4409 python, 90 MB)",
        ];
        assert_eq!(describe_occupied(&info), expected);
        assert_eq!(check_occupied(&info).status, CheckStatus::Warning);
        let free = NpuSmiInfo { processes: Vec::new(), chips: vec![info.chips[1].clone()], ..info };
        assert_eq!(check_occupied(&free), DoctorCheck::passed("devices in use", "none"));
    }

    #[test]
    fn each_failed_check_names_a_fix() {
        let check = check_visible_devices(|name| (name == VISIBLE).then(|| "3".to_owned()));
        assert!(check.status == CheckStatus::Missing && check.fix.contains("--devices"), "{check:?}");
        assert_eq!(check_visible_devices(|_| None).status, CheckStatus::Passed);
        let missing = check_device_use(Err("ModuleNotFoundError: No module named 'torch'".to_owned()));
        assert!(missing.fix.contains("--python"), "{missing:?}");
        let refused = check_device_use(Ok(Err("error code is 107001".to_owned())));
        assert!(
            refused.status == CheckStatus::Missing && refused.fix.contains("/dev/davinci"),
            "{refused:?}"
        );
        assert_eq!(check_device_use(Ok(Ok(Some(LogicalDeviceId(2))))).status, CheckStatus::Passed);
        assert_eq!(check_device_use(Ok(Ok(None))).status, CheckStatus::Warning);
        assert_eq!(check_driver(&SoftwareFingerprint::default()).status, CheckStatus::Warning);
        assert_eq!(check_operators(&[], &["X"]).found, "none; X need them");
    }

    #[test]
    fn versions_before_the_required_ones_are_missing() {
        let status = |version| check_cann_version(version).status;
        assert_eq!(status(Some("8.0.RC1")), CheckStatus::Passed);
        assert_eq!(status(Some("8.5.0")), CheckStatus::Passed);
        assert_eq!(status(Some("7.0.RC1")), CheckStatus::Missing);
        assert_eq!(status(None), CheckStatus::Warning);
        assert_eq!(status(Some("unknown")), CheckStatus::Warning);
        let python = |text| check_export_python(Ok(text)).status;
        assert_eq!(python("Python 3.11.2\n"), CheckStatus::Passed);
        assert_eq!(python("Python 3.7.4"), CheckStatus::Missing);
        assert_eq!(python(""), CheckStatus::Missing);
        assert_eq!(check_export_python(Err(&"not found".to_owned())).status, CheckStatus::Missing);
    }

    #[test]
    fn each_failed_check_of_the_installation_names_a_fix() {
        let scratch = tempfile::tempdir().expect("a folder");
        let checks = check_installation(|_| None, None, scratch.path());
        assert_eq!((checks[0].name, checks[0].status), ("CANN", CheckStatus::Missing));
        assert!(checks.iter().all(|check| (check.status == CheckStatus::Passed) == check.fix.is_empty()));
    }
}
