//! Finds kernel tables in the folders that the profilers leave.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::ProfileError;

/// A kernel table that was found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProfileFile(pub PathBuf);

/// Folders below this depth are not looked into; a profile's tables lie at most four below its root.
const DEEPEST: usize = 12;

/// Finds the tables of a path: the file itself, or every `kernel_details*.csv` below a folder, or,
/// where there is none, the newest export of every `op_summary*.csv`. Symbolic links are not followed.
///
/// # Errors
/// [`ProfileError::NoProfile`] where a folder holds none; [`ProfileError::Io`].
pub fn find_profiles(path: &Path) -> Result<Vec<ProfileFile>, ProfileError> {
    let io = |source| ProfileError::Io { file: path.to_owned(), source };
    if fs::metadata(path).map_err(io)?.is_file() {
        return Ok(vec![ProfileFile(path.to_owned())]);
    }
    let mut details = Vec::new();
    let mut output_folders = Vec::new();
    walk(path, 0, &mut |file, name| {
        if name.starts_with("kernel_details") && name.ends_with(".csv") {
            details.push(ProfileFile(file.to_owned()));
        } else if is_op_summary(name) {
            output_folders.extend(file.parent().map(Path::to_owned));
        }
    })
    .map_err(io)?;
    if details.is_empty() {
        output_folders.sort();
        output_folders.dedup();
        for folder in output_folders {
            details.extend(newest_op_summary(&folder).map_err(io)?);
        }
    }
    if details.is_empty() {
        return Err(ProfileError::NoProfile { folder: path.to_owned() });
    }
    details.sort();
    Ok(details)
}

/// The `op_summary` tables of every `PROF_*` folder that one msprof collection left in `folder`; of
/// several exports the newest, with all its slices.
///
/// # Errors
/// [`ProfileError::Io`] where a folder cannot be listed.
pub fn collection_summaries(folder: &Path) -> Result<Vec<ProfileFile>, ProfileError> {
    let io = |source| ProfileError::Io { file: folder.to_owned(), source };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        let entry = entry.map_err(io)?;
        let output = entry.path().join("mindstudio_profiler_output");
        if entry.file_name().to_string_lossy().starts_with("PROF_") && output.is_dir() {
            found.extend(newest_op_summary(&output).map_err(io)?);
        }
    }
    found.sort();
    Ok(found)
}

fn is_op_summary(name: &str) -> bool {
    name.starts_with("op_summary") && name.ends_with(".csv")
}

/// Exports stand side by side under their time stamps, `op_summary[_slice_N]_<yyyymmddHHMMSS>.csv`.
fn newest_op_summary(folder: &Path) -> io::Result<Vec<ProfileFile>> {
    let mut tables: Vec<(String, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if is_op_summary(&name) {
            let stamp = name.trim_end_matches(".csv").rsplit('_').next().unwrap_or_default();
            tables.push((stamp.to_owned(), entry.path()));
        }
    }
    let newest = tables.iter().map(|(stamp, _)| stamp.clone()).max().unwrap_or_default();
    let mut files: Vec<ProfileFile> =
        tables.into_iter().filter(|(stamp, _)| *stamp == newest).map(|(_, path)| ProfileFile(path)).collect();
    files.sort();
    Ok(files)
}

fn walk(folder: &Path, depth: usize, visit: &mut dyn FnMut(&Path, &str)) -> io::Result<()> {
    let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let kind = entry.file_type()?;
        if kind.is_dir() && depth < DEEPEST {
            walk(&entry.path(), depth + 1, visit)?;
        } else if kind.is_file() {
            visit(&entry.path(), &entry.file_name().to_string_lossy());
        }
    }
    Ok(())
}
