//! Environment of the stand-ins: the host that they belong to, their output and exit code.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
};

use super::{HostConfig, HostError, variables};

/// Exit code of the real msprof after an error: -1, as the shell sees it.
pub(super) const FAILED: u8 = 255;

/// Prints a line to standard output, where the real programs print their errors as well.
pub(super) fn print_line(line: &str) {
    // A closed standard output is not an error of the stand-in.
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Returns the rehearsal host that started this process, and its folder.
pub(super) fn host_of_process() -> Result<(HostConfig, PathBuf), HostError> {
    let file = PathBuf::from(std::env::var_os(variables::HOST).ok_or(HostError::NoHost)?);
    let config = HostConfig::read(&file)?;
    Ok((config, file.parent().unwrap_or(Path::new(".")).to_owned()))
}
