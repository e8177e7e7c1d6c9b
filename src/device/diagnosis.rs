//! Whether this host can measure, point by point. It looks and changes nothing.

use std::path::Path;

use super::{CustomOperators, DeviceError, VISIBLE, search_path};
use crate::{process::find_program, profile::npu_smi::NpuSmiInfo};

/// How a point stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// As it should be.
    Fine,
    /// Measuring works, with a drawback.
    Poor,
    /// Nothing can be measured.
    Missing,
}

impl State {
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
pub struct Point {
    /// What was looked at.
    pub what: &'static str,
    /// How it stands.
    pub state: State,
    /// What was found.
    pub found: String,
    /// What to do; empty where nothing need be done.
    pub mend: String,
}

fn point(what: &'static str, state: State, found: impl Into<String>, mend: &str) -> Point {
    let mend = if state == State::Fine { String::new() } else { mend.to_owned() };
    Point { what, state, found: found.into(), mend }
}

/// Room that a night of collections takes; msprof wants twenty times its raw data.
const ROOM: u64 = 50 << 30;

/// The devices, as `npu-smi` tells of them.
#[must_use]
pub fn devices(info: &Result<NpuSmiInfo, DeviceError>) -> Point {
    let info = match info {
        Ok(info) => info,
        Err(error) => return point("devices", State::Missing, error.to_string(), error.hint()),
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
        (true, _) => {
            point("devices", State::Missing, "none", "load the driver, or map devices into the container")
        }
        (false, true) => point("devices", State::Fine, found, ""),
        (false, false) => point(
            "devices",
            State::Poor,
            format!("{found}; {}", ill.join(", ")),
            "they are left out; reset them",
        ),
    }
}

/// What the environment says.
#[must_use]
pub fn environment(variable: impl Fn(&str) -> Option<String>) -> Vec<Point> {
    let cann = match variable("ASCEND_HOME_PATH") {
        Some(path) if Path::new(&path).is_dir() => point("CANN", State::Fine, path, ""),
        Some(path) => point("CANN", State::Missing, format!("`{path}` is no folder"), SET_CANN),
        None => point("CANN", State::Missing, "ASCEND_HOME_PATH is not set", SET_CANN),
    };
    let visible = match variable(VISIBLE) {
        None => point("device numbers", State::Fine, format!("{VISIBLE} is not set"), ""),
        Some(value) => {
            let found = format!("{VISIBLE}={value}, which the profiler does not support");
            point("device numbers", State::Missing, found, "unset it and choose devices with `--devices`")
        }
    };
    let msprof = match find_program("msprof", &search_path(&[])) {
        Some(path) => point("msprof", State::Fine, path.to_string_lossy(), ""),
        None => point("msprof", State::Missing, "not in the PATH", SET_CANN),
    };
    vec![cann, visible, msprof]
}

const SET_CANN: &str = "source CANN's set_env.sh";

/// The packages of operators that CANN does not bring.
#[must_use]
pub fn operators(packages: &[CustomOperators], kernels: &[&str]) -> Point {
    if packages.is_empty() {
        let mend = "install the package that brings them, such as vllm-ascend, or set ASCEND_CUSTOM_OPP_PATH";
        return point(
            "custom operators",
            State::Poor,
            format!("none; {} need them", kernels.join(", ")),
            mend,
        );
    }
    let named = packages.iter().map(|package| {
        let how = if package.is_set { "" } else { " (set for the replays)" };
        format!("{}{how}", package.folder.display())
    });
    point("custom operators", State::Fine, named.collect::<Vec<_>>().join(", "), "")
}

/// The mode of new files, and the room for raw data.
#[must_use]
pub fn files(folder: &Path) -> Vec<Point> {
    let umask = nix::sys::stat::umask(nix::sys::stat::Mode::empty());
    nix::sys::stat::umask(umask);
    let bits = umask.bits();
    let strict = bits & 0o027 == 0o027;
    let state = if strict { State::Fine } else { State::Poor };
    let mode = point("umask", state, format!("{bits:04o}"), "msprof wants 0027 or stricter: `umask 0027`");
    let room = match nix::sys::statvfs::statvfs(folder) {
        Err(error) => {
            point("disk", State::Poor, format!("`{}`: {error}", folder.display()), "check the folder")
        }
        Ok(disk) => {
            let free = disk.blocks_available() * disk.fragment_size();
            let state = if free >= ROOM { State::Fine } else { State::Poor };
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
        let told: Vec<(&str, State)> = points.iter().map(|point| (point.what, point.state)).collect();
        assert_eq!(told[..2], [("CANN", State::Missing), ("device numbers", State::Missing)]);
        assert!(points.iter().all(|point| (point.state == State::Fine) == point.mend.is_empty()));
        assert_eq!(operators(&[], &["X"]).found, "none; X need them");
    }
}
