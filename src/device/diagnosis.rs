//! Whether this host can measure, point by point. It looks and changes nothing.

use std::path::Path;

use super::{CustomOperators, DeviceError, VISIBLE, search_path};
use crate::{process::find_program, profile::npu_smi::NpuSmiInfo};

/// How a point stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckStatus {
    /// As it should be.
    Fine,
    /// Measuring works, with a drawback.
    Poor,
    /// Nothing can be measured.
    Missing,
}

impl CheckStatus {
    /// Its word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fine => "ok",
            Self::Poor => "poor",
            Self::Missing => "missing",
        }
    }
}

/// One point of a diagnosis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoctorCheck {
    /// What was looked at.
    pub what: &'static str,
    /// How it stands.
    pub state: CheckStatus,
    /// What was found.
    pub found: String,
    /// What to do; empty where nothing need be done.
    pub mend: String,
}

fn point(what: &'static str, state: CheckStatus, found: impl Into<String>, mend: &str) -> DoctorCheck {
    let mend = if state == CheckStatus::Fine { String::new() } else { mend.to_owned() };
    DoctorCheck { what, state, found: found.into(), mend }
}

/// Room that a night of collections takes; msprof wants twenty times its raw data.
const ROOM: u64 = 50 << 30;

/// The devices, as `npu-smi` tells of them.
#[must_use]
pub fn devices(info: &Result<NpuSmiInfo, DeviceError>) -> DoctorCheck {
    let info = match info {
        Ok(info) => info,
        Err(error) => return point("devices", CheckStatus::Missing, error.to_string(), error.hint()),
    };
    let ill: Vec<String> = info
        .chips
        .iter()
        .filter(|chip| chip.health != "OK")
        .map(|chip| format!("device {} says `{}`", chip.device, chip.health))
        .collect();
    let name = info.chips.first().map_or("", |chip| chip.name.as_str());
    let found = format!("{} of {name}, npu-smi {}", info.chips.len(), info.version);
    match (info.chips.is_empty(), ill.is_empty()) {
        (true, _) => point(
            "devices",
            CheckStatus::Missing,
            "none",
            "load the driver, or map devices into the container",
        ),
        (false, true) => point("devices", CheckStatus::Fine, found, ""),
        (false, false) => point(
            "devices",
            CheckStatus::Poor,
            format!("{found}; {}", ill.join(", ")),
            "they are left out; reset them",
        ),
    }
}

/// What the environment says.
#[must_use]
pub fn environment(variable: impl Fn(&str) -> Option<String>) -> Vec<DoctorCheck> {
    let cann = match variable("ASCEND_HOME_PATH") {
        Some(path) if Path::new(&path).is_dir() => point("CANN", CheckStatus::Fine, path, ""),
        Some(path) => point("CANN", CheckStatus::Missing, format!("`{path}` is no folder"), SET_CANN),
        None => point("CANN", CheckStatus::Missing, "ASCEND_HOME_PATH is not set", SET_CANN),
    };
    let visible = match variable(VISIBLE) {
        None => point("device numbers", CheckStatus::Fine, format!("{VISIBLE} is not set"), ""),
        Some(value) => {
            let found = format!("{VISIBLE}={value}, which the profiler does not support");
            point(
                "device numbers",
                CheckStatus::Missing,
                found,
                "unset it and choose devices with `--devices`",
            )
        }
    };
    let msprof = match find_program("msprof", &search_path(&[])) {
        Some(path) => point("msprof", CheckStatus::Fine, path.to_string_lossy(), ""),
        None => point("msprof", CheckStatus::Missing, "not in the PATH", SET_CANN),
    };
    vec![cann, visible, msprof]
}

const SET_CANN: &str = "source CANN's set_env.sh";

/// The packages of operators that CANN does not bring.
#[must_use]
pub fn operators(packages: &[CustomOperators], kernels: &[&str]) -> DoctorCheck {
    if packages.is_empty() {
        let mend = "install the package that brings them, such as vllm-ascend, or set ASCEND_CUSTOM_OPP_PATH";
        return point(
            "custom operators",
            CheckStatus::Poor,
            format!("none; {} need them", kernels.join(", ")),
            mend,
        );
    }
    let named = packages.iter().map(|package| {
        let how = if package.is_set { "" } else { " (set for the replays)" };
        format!("{}{how}", package.folder.display())
    });
    point("custom operators", CheckStatus::Fine, named.collect::<Vec<_>>().join(", "), "")
}

/// The mode of new files, and the room for raw data.
#[must_use]
pub fn files(folder: &Path) -> Vec<DoctorCheck> {
    let umask = nix::sys::stat::umask(nix::sys::stat::Mode::empty());
    nix::sys::stat::umask(umask);
    let bits = umask.bits();
    let strict = bits & 0o027 == 0o027;
    let state = if strict { CheckStatus::Fine } else { CheckStatus::Poor };
    let mode = point("umask", state, format!("{bits:04o}"), "msprof wants 0027 or stricter: `umask 0027`");
    let room = match nix::sys::statvfs::statvfs(folder) {
        Err(error) => {
            point("disk", CheckStatus::Poor, format!("`{}`: {error}", folder.display()), "check the folder")
        }
        Ok(disk) => {
            let free = disk.blocks_available() * disk.fragment_size();
            let state = if free >= ROOM { CheckStatus::Fine } else { CheckStatus::Poor };
            let found = format!("{} GiB free below `{}`", free >> 30, folder.display());
            point(
                "disk",
                state,
                found,
                "a night takes tens of GiB of raw data; free some, or use another disk",
            )
        }
    };
    vec![mode, room]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_with_what_to_do() {
        let points = environment(|name| (name == VISIBLE).then(|| "3".to_owned()));
        let told: Vec<(&str, CheckStatus)> = points.iter().map(|point| (point.what, point.state)).collect();
        assert_eq!(told[..2], [("CANN", CheckStatus::Missing), ("device numbers", CheckStatus::Missing)]);
        assert!(points.iter().all(|point| (point.state == CheckStatus::Fine) == point.mend.is_empty()));
        assert_eq!(operators(&[], &["X"]).found, "none; X need them");
    }
}
