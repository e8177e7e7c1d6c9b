//! Finds kernel tables in the folders that the profilers leave.
//!
//! One profile may be there in several forms: torch_npu leaves `kernel_details.csv` or a database in
//! `ASCEND_PROFILER_OUTPUT`, and beside it a `PROF_*` in which msprof may have exported `op_summary` and a
//! database of the same records. Each profile is read in one form: `kernel_details`, else `op_summary`,
//! else a database.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use super::ProfileError;

/// A kernel table that was found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProfileFile(pub PathBuf);

/// Folders below this depth are not looked into; a profile's tables lie at most four below its root.
const DEEPEST: usize = 12;

/// The forms of a profile, the preferred first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Form {
    KernelDetails,
    OpSummary,
    TorchDatabase,
    MsprofDatabase,
}

impl Form {
    fn of(name: &str) -> Option<Self> {
        let is = |start: &str, end: &str| name.starts_with(start) && name.ends_with(end);
        match () {
            () if is("kernel_details", ".csv") => Some(Self::KernelDetails),
            () if is("op_summary", ".csv") => Some(Self::OpSummary),
            () if is("ascend_pytorch_profiler", ".db") => Some(Self::TorchDatabase),
            () if is("msprof_", ".db") => Some(Self::MsprofDatabase),
            () => None,
        }
    }

    /// msprof exports anew under another time, beside the older export of the same records.
    const fn is_exported_anew(self) -> bool {
        matches!(self, Self::OpSummary | Self::MsprofDatabase)
    }
}

/// The files of one profile by form.
type Forms = BTreeMap<Form, Vec<PathBuf>>;

/// Finds the tables of a path: the file itself, or of every profile below a folder its tables in one form.
/// Of several exports by msprof the newest counts. Symbolic links are not followed.
///
/// # Errors
/// [`ProfileError::NoProfile`] where a folder holds none; [`ProfileError::Io`].
pub fn find_profiles(path: &Path) -> Result<Vec<ProfileFile>, ProfileError> {
    let io = |source| ProfileError::Io { file: path.to_owned(), source };
    if fs::metadata(path).map_err(io)?.is_file() {
        return Ok(vec![ProfileFile(path.to_owned())]);
    }
    let mut profiles = BTreeMap::new();
    walk(path, &Surroundings::default(), &mut profiles).map_err(io)?;
    let mut found: Vec<ProfileFile> =
        profiles.into_values().flat_map(best_form).flat_map(newest_of_folders).map(ProfileFile).collect();
    if found.is_empty() {
        return Err(ProfileError::NoProfile { folder: path.to_owned() });
    }
    found.sort();
    Ok(found)
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

fn newest_op_summary(folder: &Path) -> io::Result<Vec<ProfileFile>> {
    let mut tables = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if Form::of(&entry.file_name().to_string_lossy()) == Some(Form::OpSummary) {
            tables.push(entry.path());
        }
    }
    Ok(newest(tables).into_iter().map(ProfileFile).collect())
}

/// The preferred form that is there. One whose files are all empty is passed over for another, as an
/// export that failed leaves them.
fn best_form(forms: Forms) -> Option<(Form, Vec<PathBuf>)> {
    let is_filled = |files: &[PathBuf]| {
        files.iter().any(|file| fs::metadata(file).is_ok_and(|metadata| metadata.len() > 0))
    };
    let filled = forms.iter().find(|(_, files)| is_filled(files)).map(|(form, _)| *form);
    let best = filled.or_else(|| forms.keys().next().copied())?;
    forms.into_iter().find(|(form, _)| *form == best)
}

fn newest_of_folders((form, files): (Form, Vec<PathBuf>)) -> Vec<PathBuf> {
    if !form.is_exported_anew() {
        return files;
    }
    let mut folders: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
    for file in files {
        folders.entry(file.parent().map(Path::to_owned).unwrap_or_default()).or_default().push(file);
    }
    folders.into_values().flat_map(newest).collect()
}

/// Exports stand side by side under their times, `op_summary[_slice_N]_<yyyymmddHHMMSS>.csv` and
/// `msprof_<yyyymmddHHMMSS>.db`; slices have one time. What carries no time is no export of another.
fn newest(files: Vec<PathBuf>) -> Vec<PathBuf> {
    let time = |file: &Path| {
        let stem = file.file_stem()?.to_str()?;
        let last = stem.rsplit('_').next()?;
        (last.len() == 14 && last.bytes().all(|byte| byte.is_ascii_digit())).then(|| last.to_owned())
    };
    let newest = files.iter().filter_map(|file| time(file)).max();
    files.into_iter().filter(|file| time(file).is_none_or(|time| Some(time) == newest)).collect()
}

/// What encloses a folder that is walked into.
#[derive(Clone, Debug, Default)]
struct Surroundings {
    depth: usize,
    /// The root of the profile that the folder is a part of.
    profile: Option<PathBuf>,
    /// Whether the folder's parent is the root of a torch_npu profile, whose `PROF_*` are of that profile.
    is_below_torch_root: bool,
}

/// Collects the files of every profile under its root. A file that is in no profile's folder counts as one
/// of the profile of its folder.
fn walk(folder: &Path, around: &Surroundings, profiles: &mut BTreeMap<PathBuf, Forms>) -> io::Result<()> {
    let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let holds = |inside: &str| entries.iter().any(|entry| entry.file_name().to_str() == Some(inside));
    let is_torch_root =
        name.ends_with("_ascend_pt") || name.ends_with("_ascend_ms") || holds("ASCEND_PROFILER_OUTPUT");
    let is_prof = name.starts_with("PROF_") || holds("mindstudio_profiler_output");
    let is_root = is_torch_root || is_prof && !around.is_below_torch_root;
    let profile = if is_root { Some(folder.to_owned()) } else { around.profile.clone() };
    let below = Surroundings {
        depth: around.depth + 1,
        profile: profile.clone(),
        is_below_torch_root: is_torch_root,
    };
    for entry in entries {
        let kind = entry.file_type()?;
        if kind.is_dir() && around.depth < DEEPEST {
            walk(&entry.path(), &below, profiles)?;
        } else if kind.is_file()
            && let Some(form) = Form::of(&entry.file_name().to_string_lossy())
        {
            let root = profile.clone().unwrap_or_else(|| folder.to_owned());
            profiles.entry(root).or_default().entry(form).or_default().push(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found below `from` in a folder of these files, by their names in it.
    fn found(files: &[&str], from: &str) -> Vec<String> {
        let folder = tempfile::tempdir().expect("a folder");
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().expect("below")).expect("made");
            fs::write(path, "x").expect("written");
        }
        let below = |file: &ProfileFile| {
            file.0.strip_prefix(folder.path()).expect("below").to_string_lossy().into_owned()
        };
        find_profiles(&folder.path().join(from)).expect("some").iter().map(below).collect()
    }

    #[test]
    fn a_profile_in_several_forms_is_found_in_one() {
        let files = [
            "all_ascend_pt/a_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv",
            "all_ascend_pt/a_ascend_pt/PROF_1/mindstudio_profiler_output/op_summary_20260101000000.csv",
            "all_ascend_pt/b/ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler.db",
            "all_ascend_pt/b/PROF_1/msprof_20260101000000.db",
            "PROF_all/PROF_2/device_0/summary/op_summary_0_1.csv",
            "PROF_all/PROF_2/device_1/summary/op_summary_1_1.csv",
            "PROF_all/PROF_2/msprof_20260101000000.db",
            "PROF_all/PROF_3/msprof_20260101000000.db",
        ];
        assert_eq!(found(&files, ""), [files[4], files[5], files[7], files[0], files[2]]);
        assert_eq!(found(&files, "all_ascend_pt/b/PROF_1"), [files[3]], "as it was asked for");
    }

    #[test]
    fn the_newest_export_counts_and_all_its_slices() {
        let files = [
            "mindstudio_profiler_output/op_summary_slice_0_20260102000000.csv",
            "mindstudio_profiler_output/op_summary_slice_1_20260102000000.csv",
            "mindstudio_profiler_output/op_summary_20260101000000.csv",
            "msprof_20260102000000.db",
        ];
        assert_eq!(found(&files, ""), files[..2]);
        let gathered =
            ["msprof_20260101000000.db", "msprof_20260102000000.db", "msprof_host1.db", "msprof_host2.db"];
        assert_eq!(found(&gathered, ""), gathered[1..], "only what carries a time is an export of another");
        let ranks = ["ascend_pytorch_profiler_0.db", "ascend_pytorch_profiler_1.db", "analysis.db"];
        assert_eq!(found(&ranks, ""), ranks[..2]);
    }
}
