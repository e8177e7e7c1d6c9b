//! Checks of the installation: CANN, msprof, and the Python with which msprof exports. Every collection fails without
//! one of them.

use std::{path::Path, sync::atomic::AtomicBool};

use super::{DoctorCheck, run_host_program, search_path};
use crate::{base::process::find_program, kernel::version_numbers};

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
    use crate::measure::device::CheckStatus;

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
    fn each_failed_check_names_a_fix() {
        let scratch = tempfile::tempdir().expect("a folder");
        let checks = check_installation(|_| None, None, scratch.path());
        assert_eq!((checks[0].name, checks[0].status), ("CANN", CheckStatus::Missing));
        assert!(checks.iter().all(|check| (check.status == CheckStatus::Passed) == check.fix.is_empty()));
    }
}
