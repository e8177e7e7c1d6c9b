//! Finds kernel tables in the folders that the profilers leave.
//!
//! One profile may be there in several forms: torch_npu leaves `kernel_details.csv` or a database in
//! `ASCEND_PROFILER_OUTPUT`, and beside it a `PROF_*` in which msprof may have exported `op_summary` and a
//! database of the same records. Each profile is read in one form: `kernel_details`, else `op_summary`,
//! else a database.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io, mem,
    ops::Bound,
    path::{Path, PathBuf},
};

use super::ProfileError;

/// A kernel table that was found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProfileFile(pub PathBuf);

/// Folders below this depth are not looked into.
const DEEPEST: usize = 12;
/// A profile's tables lie at most so many folders below its root.
const HIGHEST: usize = 4;

/// The forms of a profile, the preferred first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ProfileFormat {
    KernelDetails,
    OpSummary,
    TorchDatabase,
    MsprofDatabase,
}

impl ProfileFormat {
    fn from_file_name(name: &str) -> Option<Self> {
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
type FilesByFormat = BTreeMap<ProfileFormat, Vec<PathBuf>>;

/// The tables of some paths, each profile's in one form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoveredProfiles {
    /// What is to be read, each file once.
    pub files: Vec<ProfileFile>,
    /// Paths that were asked for and are not read.
    pub passed_over: Vec<SkippedPath>,
}

/// A path whose records are read from another file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedPath {
    /// As it was given.
    pub path: PathBuf,
    /// A file of the same profile that is read.
    pub instead: PathBuf,
}

/// Finds the tables of a path, as [`ProfileFile::find_all`] does for several.
///
/// # Errors
/// [`ProfileError::NoProfile`] where a folder holds none; [`ProfileError::Io`].
pub fn find_profiles(path: &Path) -> Result<Vec<ProfileFile>, ProfileError> {
    ProfileFile::find_all(&[path]).map(|found| found.files)
}

impl ProfileFile {
    /// Finds the tables of some paths: files as they are, and of every profile below a folder its tables in
    /// one form. Of several exports by msprof the newest counts. A profile of which several forms or exports
    /// are given is read once, whether they are given as files or as folders, and so is a path that is given
    /// twice, under whatever name. Below folders symbolic links are not followed.
    ///
    /// # Errors
    /// [`ProfileError::NoProfile`] where a folder holds none; [`ProfileError::Io`].
    pub fn find_all<P: AsRef<Path>>(paths: &[P]) -> Result<DiscoveredProfiles, ProfileError> {
        let mut search = ProfileSearch::default();
        let resolved: Vec<(&Path, PathBuf)> = paths
            .iter()
            .map(|path| {
                let path = path.as_ref();
                resolve(path).map(|resolved| (path, resolved)).map_err(|source| io_error(path, source))
            })
            .collect::<Result<_, ProfileError>>()?;
        // Folders first, and the outer ones before those in them, which hold nothing new then.
        let mut folders: Vec<_> = resolved.iter().filter(|(_, path)| path.is_dir()).collect();
        folders.sort_by_key(|(_, path)| path);
        for (given, folder) in folders {
            search.add_folder(folder).map_err(|source| io_error(given, source))?;
            if search.below(folder).next().is_none() {
                return Err(ProfileError::NoProfile { folder: (*given).to_owned() });
            }
        }
        for (_, file) in resolved.iter().filter(|(_, path)| !path.is_dir()) {
            search.add_file(file);
        }
        Ok(search.into_found(&resolved))
    }
}

/// The one name of a file or folder; a pipe is neither, and cannot be read twice.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    let metadata = fs::metadata(path)?;
    if metadata.is_file() || metadata.is_dir() {
        path.canonicalize()
    } else {
        Err(io::Error::other("it is neither a file nor a folder"))
    }
}

fn io_error(path: &Path, source: io::Error) -> ProfileError {
    ProfileError::Io { file: path.to_owned(), source }
}

/// What is known while paths are gone through, all of them resolved.
#[derive(Debug, Default)]
struct ProfileSearch {
    profiles: BTreeMap<PathBuf, FilesByFormat>,
    /// The profile of each file in them.
    profile_of: BTreeMap<PathBuf, PathBuf>,
    folders: Vec<PathBuf>,
    /// Files that are read whatever else is.
    alone: BTreeSet<PathBuf>,
}

impl ProfileSearch {
    fn add_folder(&mut self, folder: &Path) -> io::Result<()> {
        if !self.folders.iter().any(|outer| folder.starts_with(outer)) {
            self.folders.push(folder.to_owned());
            self.walk(folder, &EnclosingProfile::from_folder(folder))?;
        }
        Ok(())
    }

    /// A file that was asked for by name. One that is in no profile's folder is a profile of its own, unless a
    /// folder that was asked for too says otherwise.
    fn add_file(&mut self, file: &Path) {
        if self.profile_of.contains_key(file) {
            return;
        }
        let form = ProfileFormat::from_file_name(&file.file_name().unwrap_or_default().to_string_lossy());
        match (EnclosingProfile::from_folder(file).profile, form) {
            (Some(profile), Some(form)) => self.insert(profile, form, file.to_owned()),
            _ => drop(self.alone.insert(file.to_owned())),
        }
    }

    fn insert(&mut self, profile: PathBuf, form: ProfileFormat, file: PathBuf) {
        self.profile_of.insert(file.clone(), profile.clone());
        self.profiles.entry(profile).or_default().entry(form).or_default().push(file);
    }

    /// The files at a path or below it: paths are in the order of their components.
    fn below<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = &'a PathBuf> {
        let from = self.profile_of.range::<Path, _>((Bound::Included(path), Bound::Unbounded));
        from.map(|(file, _)| file).take_while(move |file| file.starts_with(path))
    }

    fn into_found(mut self, asked: &[(&Path, PathBuf)]) -> DiscoveredProfiles {
        let profiles = mem::take(&mut self.profiles).into_iter();
        let read: BTreeMap<PathBuf, Vec<PathBuf>> = profiles
            .filter_map(|(profile, forms)| Some((profile, newest_of_folders(best_form(forms)?))))
            .collect();
        let is_read: BTreeSet<&PathBuf> = read.values().flatten().collect();
        let mut passed_over = Vec::new();
        for (given, path) in asked {
            if let Some(first) = self.below(path).next()
                && !self.below(path).any(|file| is_read.contains(file))
                && let Some(instead) = read.get(&self.profile_of[first]).and_then(|files| files.first())
            {
                passed_over.push(SkippedPath { path: (*given).to_owned(), instead: instead.clone() });
            }
        }
        let mut files: Vec<_> = read.into_values().flatten().chain(self.alone).map(ProfileFile).collect();
        files.sort();
        files.dedup();
        DiscoveredProfiles { files, passed_over }
    }

    /// Collects the files of every profile under its root. A file that is in no profile's folder counts as
    /// one of the profile of its folder.
    fn walk(&mut self, folder: &Path, around: &EnclosingProfile) -> io::Result<()> {
        let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        let holds = |inside: &str| entries.iter().any(|entry| entry.file_name().to_str() == Some(inside));
        let below = around.inside(folder, holds);
        for entry in entries {
            let kind = entry.file_type()?;
            if kind.is_dir() && around.depth < DEEPEST {
                self.walk(&entry.path(), &below)?;
            } else if kind.is_file()
                && let Some(form) = ProfileFormat::from_file_name(&entry.file_name().to_string_lossy())
            {
                let profile = below.profile.clone().unwrap_or_else(|| folder.to_owned());
                self.insert(profile, form, entry.path());
            }
        }
        Ok(())
    }
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
        if ProfileFormat::from_file_name(&entry.file_name().to_string_lossy())
            == Some(ProfileFormat::OpSummary)
        {
            tables.push(entry.path());
        }
    }
    Ok(newest(tables).into_iter().map(ProfileFile).collect())
}

/// The preferred form that is there. One whose files are all empty is passed over for another, as an
/// export that failed leaves them.
fn best_form(forms: FilesByFormat) -> Option<(ProfileFormat, Vec<PathBuf>)> {
    let is_filled = |files: &[PathBuf]| {
        files.iter().any(|file| fs::metadata(file).is_ok_and(|metadata| metadata.len() > 0))
    };
    let filled = forms.iter().find(|(_, files)| is_filled(files)).map(|(form, _)| *form);
    let best = filled.or_else(|| forms.keys().next().copied())?;
    forms.into_iter().find(|(form, _)| *form == best)
}

fn newest_of_folders((form, files): (ProfileFormat, Vec<PathBuf>)) -> Vec<PathBuf> {
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
struct EnclosingProfile {
    depth: usize,
    /// The root of the profile that the folder is a part of.
    profile: Option<PathBuf>,
    /// Whether the folder's parent is the root of a torch_npu profile, whose `PROF_*` are of that profile.
    is_below_torch_root: bool,
}

impl EnclosingProfile {
    /// What encloses a path, going by the folders above it.
    fn from_folder(path: &Path) -> Self {
        let above: Vec<&Path> = path.ancestors().skip(1).take(HIGHEST).collect();
        let around = above.iter().rev().fold(Self::default(), |around, folder| {
            around.inside(folder, |inside| folder.join(inside).exists())
        });
        Self { depth: 0, ..around }
    }

    /// What encloses that which is in a folder.
    fn inside(&self, folder: &Path, holds: impl Fn(&str) -> bool) -> Self {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let is_torch_root =
            name.ends_with("_ascend_pt") || name.ends_with("_ascend_ms") || holds("ASCEND_PROFILER_OUTPUT");
        let is_prof = name.starts_with("PROF_") || holds("mindstudio_profiler_output");
        let is_root = is_torch_root || is_prof && !self.is_below_torch_root;
        Self {
            depth: self.depth + 1,
            profile: if is_root { Some(folder.to_owned()) } else { self.profile.clone() },
            is_below_torch_root: is_torch_root,
        }
    }
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

    #[test]
    fn a_profile_is_read_once_however_it_is_given() {
        const FILES: [&str; 7] = [
            "t/a_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv",
            "t/a_ascend_pt/ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_0.db",
            "t/a_ascend_pt/PROF_1/msprof_20260101000000.db",
            "t/b/PROF_2/mindstudio_profiler_output/op_summary_20260101000000.csv",
            "t/b/PROF_2/mindstudio_profiler_output/op_summary_20260102000000.csv",
            "t/loose/op_summary_20260101000000.csv",
            "t/loose/kernel_details_1.csv",
        ];
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("there");
        for file in FILES {
            fs::create_dir_all(root.join(file).parent().expect("below")).expect("made");
            fs::write(root.join(file), "x").expect("written");
        }
        fs::write(root.join("t/loose/k.csv"), "x").expect("written");
        std::os::unix::fs::symlink(root.join("t/a_ascend_pt"), root.join("link")).expect("linked");
        let short = |path: &Path| path.strip_prefix(&root).expect("below").to_string_lossy().into_owned();
        let found = |given: &[&str]| {
            let paths: Vec<PathBuf> = given.iter().map(|path| root.join(path)).collect();
            let found = ProfileFile::find_all(&paths).expect("some");
            let files: Vec<String> = found.files.iter().map(|file| short(&file.0)).collect();
            let passed: Vec<String> = found
                .passed_over
                .iter()
                .map(|passed| format!("{} for {}", short(&passed.path), short(&passed.instead)))
                .collect();
            (files, passed)
        };
        let all = || [FILES[0], FILES[4], FILES[6]].map(String::from).to_vec();
        let passed = |path: &str, instead: &str| vec![format!("{path} for {instead}")];
        assert_eq!(found(&["t"]), (all(), vec![]));
        assert_eq!(found(&["t", "t/./b", "link/..", "t"]), (all(), vec![]), "under several names");
        assert_eq!(found(&["t", FILES[0]]), (all(), vec![]), "what the folder says as well");
        for given in [FILES[1], FILES[2], "t/a_ascend_pt/PROF_1"] {
            assert_eq!(found(&["t", given]), (all(), passed(given, FILES[0])));
            assert_eq!(found(&[given, "t"]), (all(), passed(given, FILES[0])), "in any order");
        }
        assert_eq!(found(&["t", FILES[3]]), (all(), passed(FILES[3], FILES[4])), "exported anew");
        assert_eq!(found(&["t", FILES[5]]), (all(), passed(FILES[5], FILES[6])));
        // Without the folder, forms of one profile are still known as such.
        let link = "link/PROF_1/msprof_20260101000000.db";
        assert_eq!(found(&[FILES[1], link]), (vec![FILES[1].to_owned()], passed(link, FILES[1])));
        let halves = ["t/a_ascend_pt/PROF_1", "t/a_ascend_pt/ASCEND_PROFILER_OUTPUT"];
        assert_eq!(found(&halves), (vec![FILES[0].to_owned()], passed(halves[0], FILES[0])));
        assert_eq!(found(&[FILES[2]]).0, [FILES[2]], "alone it is what was asked for");
        assert_eq!(found(&[FILES[5], FILES[6]]).0, [FILES[6], FILES[5]], "nothing says they are one profile");
        let with_other = found(&["t", "t/loose/k.csv", "t/loose/../loose/k.csv"]);
        assert_eq!(with_other.0, [FILES[0], FILES[4], "t/loose/k.csv", FILES[6]].map(String::from));
    }
}
