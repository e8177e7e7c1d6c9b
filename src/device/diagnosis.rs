//! Checks of `npubench doctor`: conditions for measuring on this host. They change nothing.

use std::path::Path;

use super::{CustomOperators, DeviceError, VISIBLE, search_path};
use crate::{process::find_program, profile::npu_smi::NpuSmiInfo};

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckStatus {
    /// The condition holds.
    Passed,
    /// Measuring works with a limitation.
    Warning,
    /// Measuring is impossible.
    Missing,
}

impl CheckStatus {
    /// Returns the text of the status in output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "ok",
            Self::Warning => "warning",
            Self::Missing => "missing",
        }
    }
}

/// One check of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoctorCheck {
    /// Checked condition.
    pub name: &'static str,
    /// Result of the check.
    pub status: CheckStatus,
    /// Observed state.
    pub found: String,
    /// Required action; empty if the check passed.
    pub fix: String,
}

fn doctor_check(name: &'static str, state: CheckStatus, found: impl Into<String>, fix: &str) -> DoctorCheck {
    let fix = if state == CheckStatus::Passed { String::new() } else { fix.to_owned() };
    DoctorCheck { name, status: state, found: found.into(), fix }
}

/// Free bytes recommended for a run of ten hours; msprof needs twenty times the size of its raw data.
const FREE_DISK: u64 = 50 << 30;

/// Checks the devices listed by `npu-smi`.
pub fn check_devices(info: &Result<NpuSmiInfo, DeviceError>) -> DoctorCheck {
    let info = match info {
        Ok(info) => info,
        Err(error) => return doctor_check("devices", CheckStatus::Missing, error.to_string(), error.hint()),
    };
    let unhealthy: Vec<String> = info
        .chips
        .iter()
        .filter(|chip| chip.health != "OK")
        .map(|chip| format!("the health of device {} is `{}`", chip.device, chip.health))
        .collect();
    let name = info.chips.first().map_or("", |chip| chip.name.as_str());
    let found = format!("{} of {name}, npu-smi {}", info.chips.len(), info.version);
    match (info.chips.is_empty(), unhealthy.is_empty()) {
        (true, _) => doctor_check(
            "devices",
            CheckStatus::Missing,
            "none",
            "load the driver, or map devices into the container",
        ),
        (false, true) => doctor_check("devices", CheckStatus::Passed, found, ""),
        (false, false) => doctor_check(
            "devices",
            CheckStatus::Warning,
            format!("{found}; {}", unhealthy.join(", ")),
            "they are left out; reset them",
        ),
    }
}

/// Checks CANN, device numbering and msprof in the environment.
pub fn check_cann(variable: impl Fn(&str) -> Option<String>) -> Vec<DoctorCheck> {
    let cann = match variable("ASCEND_HOME_PATH") {
        Some(path) if Path::new(&path).is_dir() => doctor_check("CANN", CheckStatus::Passed, path, ""),
        Some(path) => {
            doctor_check("CANN", CheckStatus::Missing, format!("`{path}` is not a folder"), SET_CANN)
        }
        None => doctor_check("CANN", CheckStatus::Missing, "ASCEND_HOME_PATH is not set", SET_CANN),
    };
    let visible = match variable(VISIBLE) {
        None => doctor_check("device numbers", CheckStatus::Passed, format!("{VISIBLE} is not set"), ""),
        Some(value) => {
            let found = format!("{VISIBLE}={value}, which the profiler does not support");
            doctor_check(
                "device numbers",
                CheckStatus::Missing,
                found,
                "unset it and choose devices with `--devices`",
            )
        }
    };
    let msprof = match find_program("msprof", &search_path(&[])) {
        Some(path) => doctor_check("msprof", CheckStatus::Passed, path.to_string_lossy(), ""),
        None => doctor_check("msprof", CheckStatus::Missing, "not in the PATH", SET_CANN),
    };
    vec![cann, visible, msprof]
}

const SET_CANN: &str = "source CANN's set_env.sh";

/// Checks for packages of custom operators.
pub fn check_operators(packages: &[CustomOperators], kernels: &[&str]) -> DoctorCheck {
    if packages.is_empty() {
        let fix = "install the package that brings them, such as vllm-ascend, or set ASCEND_CUSTOM_OPP_PATH";
        return doctor_check(
            "custom operators",
            CheckStatus::Warning,
            format!("none; {} need them", kernels.join(", ")),
            fix,
        );
    }
    let named = packages.iter().map(|package| {
        let how = if package.is_set { "" } else { " (set for the replays)" };
        format!("{}{how}", package.folder.display())
    });
    doctor_check("custom operators", CheckStatus::Passed, named.collect::<Vec<_>>().join(", "), "")
}

/// Checks the mode of new files and the free disk space.
pub fn check_files(folder: &Path) -> Vec<DoctorCheck> {
    let umask = nix::sys::stat::umask(nix::sys::stat::Mode::empty());
    nix::sys::stat::umask(umask);
    let bits = umask.bits();
    let strict = bits & 0o027 == 0o027;
    let state = if strict { CheckStatus::Passed } else { CheckStatus::Warning };
    let mode =
        doctor_check("umask", state, format!("{bits:04o}"), "msprof wants 0027 or stricter: `umask 0027`");
    let disk = match nix::sys::statvfs::statvfs(folder) {
        Err(error) => doctor_check(
            "disk",
            CheckStatus::Warning,
            format!("`{}`: {error}", folder.display()),
            "check the folder",
        ),
        Ok(disk) => {
            let free = disk.blocks_available() * disk.fragment_size();
            let state = if free >= FREE_DISK { CheckStatus::Passed } else { CheckStatus::Warning };
            let found = format!("{} GiB free below `{}`", free >> 30, folder.display());
            doctor_check(
                "disk",
                state,
                found,
                "a night takes tens of GiB of raw data; free some, or use another disk",
            )
        }
    };
    vec![mode, disk]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failed_check_names_a_fix() {
        let checks = check_cann(|name| (name == VISIBLE).then(|| "3".to_owned()));
        let found: Vec<(&str, CheckStatus)> = checks.iter().map(|check| (check.name, check.status)).collect();
        assert_eq!(found[..2], [("CANN", CheckStatus::Missing), ("device numbers", CheckStatus::Missing)]);
        assert!(checks.iter().all(|check| (check.status == CheckStatus::Passed) == check.fix.is_empty()));
        assert_eq!(check_operators(&[], &["X"]).found, "none; X need them");
    }
}
