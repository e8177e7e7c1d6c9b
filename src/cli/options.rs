//! Options that several commands share.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::{
    config::{AssetFiles, DeviceProfile},
    database::Database,
    device::search_path,
    domain::{DataKind, KernelName},
    process::find_program,
    session::CommandError,
};

/// Which templates, catalogue and device profiles are used.
#[derive(Debug, Args)]
pub(super) struct AssetOptions {
    /// Folder with `templates`, `op_replay` or `grids`, whose files stand in front of the built-in ones
    #[arg(long, value_name = "DIR", env = "NPUBENCH_ASSETS")]
    pub(super) assets: Option<PathBuf>,
}

impl AssetOptions {
    /// The built-in ones where the folder is not there yet, for a command that makes it.
    pub(super) fn load_where_there(&self) -> Result<AssetFiles, CommandError> {
        match &self.assets {
            Some(folder) if !folder.exists() => Ok(AssetFiles::embedded()),
            // What is missing there may be what the command makes.
            Some(folder) => Ok(AssetFiles::overlaid(folder)?),
            None => self.load(),
        }
    }

    pub(super) fn load(&self) -> Result<AssetFiles, CommandError> {
        let assets = match &self.assets {
            Some(folder) => AssetFiles::overlaid(folder)?,
            None => AssetFiles::embedded(),
        };
        assets.check()?;
        Ok(assets)
    }
}

/// Whether there is such a device profile, and the database, where there is one, has no other.
pub(super) fn check_device(
    device: Option<&str>,
    assets: &AssetOptions,
    db: &Path,
) -> Result<(), CommandError> {
    let Some(device) = device else { return Ok(()) };
    DeviceProfile::load(&assets.load()?, device)?;
    match Database::open(db) {
        Ok(database) if database.has_tables() && database.device() != device => Err(CommandError::bad_input(
            format!("`{}` is of device `{}`, not `{device}`", db.display(), database.device()),
            "a database's device is given when it is made; use another folder",
        )),
        _ => Ok(()),
    }
}

/// A number of rows; `--rows -1` is one that somebody tries.
pub(super) fn parse_rows(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("`{text}` is not a whole number from 0 on; 0 is all that are valid"))
}

/// A seed.
pub(super) fn parse_seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is not a whole number from 0 to {}", u64::MAX))
}

/// Bytes of so many GiB.
pub(super) fn parse_gib(text: &str) -> Result<u64, String> {
    let gib = text.parse::<f64>().ok().filter(|gib| *gib > 0.0 && *gib <= f64::from(MOST_GIB));
    let bytes = gib.map(|gib| gib * f64::from(1 << 30));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 2^50, and positive")]
    bytes
        .map(|bytes| bytes as u64)
        .ok_or_else(|| format!("`{text}` is not a number above 0, up to {MOST_GIB}"))
}

/// The kind of a database, as a word of the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum DataKindArg {
    /// Measured on devices
    Npu,
    /// Simulated by the rehearsal host
    Rehearsal,
}

impl From<DataKindArg> for DataKind {
    fn from(word: DataKindArg) -> Self {
        match word {
            DataKindArg::Npu => Self::Npu,
            DataKindArg::Rehearsal => Self::Rehearsal,
        }
    }
}

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// For a person
    #[default]
    Plain,
    /// JSON, for a program
    Json,
}

/// A list of devices such as `0-3,8`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeviceList(pub(super) Vec<u32>);

/// More memory than any device has.
const MOST_GIB: u32 = 1 << 20;
/// More devices than any host has; keeps a mistyped range from becoming a long list.
const MOST_DEVICES: u32 = 1024;

pub(super) fn parse_devices(text: &str) -> Result<DeviceList, String> {
    let expected = || format!("`{text}` is not a list of devices such as `0-3,8`");
    let number = |word: &str| word.trim().parse::<u32>().ok().filter(|&device| device < MOST_DEVICES);
    let mut devices = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first).ok_or_else(expected)?, number(last).ok_or_else(expected)?);
        if first > last {
            return Err(expected());
        }
        devices.extend(first..=last);
    }
    devices.sort_unstable();
    devices.dedup();
    Ok(DeviceList(devices))
}

/// The interpreter as the scripts will name it.
pub(super) fn python_program(named: &str) -> Result<String, CommandError> {
    if find_program(named, &search_path(&[])).is_none() {
        return Err(CommandError::bad_input(
            format!("there is no program `{named}`, which runs the replay scripts"),
            "install Python 3.8 or later, or name it with `--python PROGRAM`",
        ));
    }
    let path = Path::new(named);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if !name.starts_with("python") {
        return Err(CommandError::bad_input(
            format!("`{named}` is not named like a Python; msprof takes only names that begin with `python`"),
            "give the interpreter itself with `--python`, such as `venv/bin/python3`",
        ));
    }
    // Scripts run in folders of their own. Links stay: a virtual environment is known by its link.
    let is_path = named.contains('/');
    let absolute = std::path::absolute(path).ok().filter(|_| is_path);
    Ok(absolute.map_or_else(|| named.to_owned(), |path| path.to_string_lossy().into_owned()))
}

/// A skew from 0 on; beyond 4 the first expert has nearly all.
pub(super) fn parse_skew(text: &str) -> Result<f64, String> {
    let skew = text.parse::<f64>().ok().filter(|skew| (0.0..=4.0).contains(skew));
    skew.ok_or_else(|| format!("`{text}` is not a number from 0 to 4"))
}

/// Kernel names given as words, each possibly a list with commas.
pub(super) fn kernels(words: &[String]) -> Result<Vec<KernelName>, CommandError> {
    words.iter().map(|word| Ok(KernelName::new(word)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_a_unit_have_a_range() {
        assert_eq!(parse_gib("0.5"), Ok(1 << 29));
        assert_eq!(parse_gib("1048576"), Ok(1 << 50));
        for wrong in ["0", "-1", "nan", "inf", "1e9", "64G", ""] {
            assert!(parse_gib(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn device_lists() {
        assert_eq!(parse_devices("0-3,8,2"), Ok(DeviceList(vec![0, 1, 2, 3, 8])));
        for wrong in ["", "3-1", "a", "1-", "-1", "0-99999999", "1,,2"] {
            assert!(parse_devices(wrong).is_err(), "{wrong}");
        }
    }
}
