//! Search for kernel tables in the folders of profilers.
//!
//! One profile may exist in several forms: torch_npu writes `kernel_details.csv` or a database into
//! `ASCEND_PROFILER_OUTPUT`, and beside it a `PROF_*` in which msprof may have exported `op_summary` and a database
//! of the same records. Each profile is read in one form: `kernel_details`, else `op_summary`, else a database.

use std::{
    io::{self, Read as _, Seek as _},
    mem,
    ops::Bound,
};

use super::{newest_export::newest_exports, prelude::*};
use crate::base::result_file::DATABASE_FILE;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProfileFile(pub PathBuf);

pub(super) const MAX_DEPTH: usize = 12;
const MAX_PARENTS: usize = 4;

/// Folder of a database that contains the profiles of its replays.
pub(super) const STATE_FOLDER: &str = ".npubench";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ProfileFormat {
    KernelDetails,
    OpSummary,
    TorchDatabase,
    MsprofDatabase,
    TorchTrace,
    MsprofTrace,
}

/// Starts and ends of the names of files; the tables of kernels first, the preferred ones before the others.
const NAMES: [(ProfileFormat, &str, &str); 6] = [
    (ProfileFormat::KernelDetails, "kernel_details", ".csv"),
    (ProfileFormat::OpSummary, "op_summary", ".csv"),
    (ProfileFormat::TorchDatabase, "ascend_pytorch_profiler", ".db"),
    (ProfileFormat::MsprofDatabase, "msprof_", ".db"),
    (ProfileFormat::TorchTrace, "trace_view", ".json"),
    (ProfileFormat::MsprofTrace, "msprof_", ".json"),
];

impl ProfileFormat {
    pub(super) fn of_file(path: &Path) -> Option<(Self, String)> {
        let name = path.file_name()?.to_string_lossy();
        NAMES.iter().find_map(|(format, start, end)| {
            Some((*format, name.strip_prefix(start)?.strip_suffix(end)?.to_owned()))
        })
    }

    fn of_table(path: &Path) -> Option<Self> {
        Self::of_file(path).map(|(format, _)| format).filter(|format| *format <= Self::MsprofDatabase)
    }
}

type FilesByFormat = BTreeMap<ProfileFormat, Vec<PathBuf>>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoveredProfiles {
    pub files: Vec<ProfileFile>,
    /// Given paths that are not read, and files that are not read because files of another form beside them are.
    pub passed_over: Vec<SkippedPath>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedPath {
    pub path: PathBuf,
    pub instead: PathBuf,
    /// True if both lie in a folder that is not one of a profiler, where they may be of different profiles.
    pub may_differ: bool,
}

impl ProfileFile {
    /// Finds the tables of some paths: given files, and of every profile below a folder its tables in one form, from
    /// the newest export by msprof. A profile that is given in several forms, exports or paths is read once. Symbolic
    /// links below folders are not followed. State folders of databases, which contain profiles of replays, are left
    /// out. A folder without tables is an error, and so is a database folder or a path in one.
    pub fn find_all<P: AsRef<Path>>(paths: &[P]) -> Result<DiscoveredProfiles, ProfileError> {
        let (found, left_out) = Self::find_usable(paths)?;
        left_out.into_iter().next().map_or(Ok(found), Err)
    }

    /// Returns true for a table in text whose last line has no line break, which profilers write: the file may be cut off inside of its
    /// last value.
    pub(crate) fn has_open_end(&self) -> io::Result<bool> {
        if self.0.extension().is_none_or(|extension| extension != "csv") {
            return Ok(false);
        }
        let mut file = open_regular(&self.0)?;
        let mut last = [0];
        file.seek(io::SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        Ok(last != *b"\n")
    }

    /// Does the same as [`Self::find_all`], but leaves out the paths that cannot be read or have no tables, and without
    /// the profiles whose exports are incomplete; returns their errors, too.
    pub(crate) fn find_usable<P: AsRef<Path>>(
        paths: &[P],
    ) -> Result<(DiscoveredProfiles, Vec<ProfileError>), ProfileError> {
        let mut search = ProfileSearch::default();
        let (mut resolved, mut left_out) = (Vec::new(), Vec::new());
        for path in paths.iter().map(AsRef::as_ref) {
            match resolve_path(path) {
                Ok(found) => resolved.push((path, found)),
                Err(error) => left_out.push(ProfileError::io(path)(error)),
            }
        }
        if let Some((given, _)) = resolved.iter().find(|(_, path)| is_in_database(path)) {
            return Err(ProfileError::DatabaseFolder((*given).to_owned()));
        }
        // Folders first, outer ones before inner ones, which add nothing then.
        let mut folders: Vec<_> = resolved.iter().filter(|(_, path)| path.is_dir()).collect();
        folders.sort_by_key(|(_, path)| path);
        for (given, folder) in folders {
            if let Err(error) = search.add_folder(folder) {
                left_out.push(ProfileError::io(given)(error));
            } else if search.files_below(folder).next().is_none() {
                left_out.push(ProfileError::NoProfile((*given).to_owned()));
            }
        }
        for (_, file) in resolved.iter().filter(|(_, path)| !path.is_dir()) {
            search.add_file(file);
        }
        let (found, incomplete) = search.into_found(&resolved);
        left_out.extend(incomplete);
        Ok((found, left_out))
    }
}

/// Returns the canonical path of a file or folder; a pipe cannot be read twice.
fn resolve_path(path: &Path) -> io::Result<PathBuf> {
    if !fs::metadata(path)?.is_dir() {
        open_regular(path)?;
    }
    path.canonicalize()
}

fn is_in_database(path: &Path) -> bool {
    path.join(DATABASE_FILE).is_file() || path.iter().any(|part| part == STATE_FOLDER)
}

#[derive(Debug, Default)]
struct ProfileSearch {
    profiles: BTreeMap<PathBuf, FilesByFormat>,
    profile_of: BTreeMap<PathBuf, PathBuf>,
    folders: Vec<PathBuf>,
    alone: BTreeSet<PathBuf>,
    /// Folders that are not of a profiler, with files that are read as one profile.
    gathered: BTreeSet<PathBuf>,
}

impl ProfileSearch {
    fn add_folder(&mut self, folder: &Path) -> io::Result<()> {
        if !self.folders.iter().any(|outer| folder.starts_with(outer)) {
            self.folders.push(folder.to_owned());
            self.walk_folder(folder, &EnclosingProfile::from_folder(folder))?;
        }
        Ok(())
    }

    /// Adds a given file. Outside of profile folders it is a profile of its own, unless it was found below a given
    /// folder.
    fn add_file(&mut self, file: &Path) {
        if self.profile_of.contains_key(file) {
            return;
        }
        match (EnclosingProfile::from_folder(file).profile, ProfileFormat::of_table(file)) {
            (Some(profile), Some(form)) => self.insert_file(profile, form, file.to_owned()),
            _ => drop(self.alone.insert(file.to_owned())),
        }
    }

    fn insert_file(&mut self, profile: PathBuf, form: ProfileFormat, file: PathBuf) {
        self.profile_of.insert(file.clone(), profile.clone());
        self.profiles.entry(profile).or_default().entry(form).or_default().push(file);
    }

    /// Returns the files at a path or below it; paths are sorted by their components.
    fn files_below<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = &'a PathBuf> {
        let from = self.profile_of.range::<Path, _>((Bound::Included(path), Bound::Unbounded));
        from.map(|(file, _)| file).take_while(move |file| file.starts_with(path))
    }

    fn into_found(mut self, given_paths: &[(&Path, PathBuf)]) -> (DiscoveredProfiles, Vec<ProfileError>) {
        let profiles = mem::take(&mut self.profiles);
        let (mut read, mut incomplete): (BTreeMap<PathBuf, Vec<PathBuf>>, _) = (BTreeMap::new(), Vec::new());
        for (profile, forms) in &profiles {
            // A failed export leaves empty files.
            let is_filled = |file: &PathBuf| fs::metadata(file).is_ok_and(|metadata| metadata.len() > 0);
            let best = forms.iter().find(|(_, files)| files.iter().any(is_filled));
            let Some((form, files)) = best.or_else(|| forms.first_key_value()) else { continue };
            // msprof writes each export of the same records to a new file with its time.
            let newest = match form {
                ProfileFormat::OpSummary | ProfileFormat::MsprofDatabase => newest_exports(files.clone()),
                _ => Ok(files.clone()),
            };
            match newest {
                Ok(files) => {
                    read.insert(profile.clone(), files);
                }
                Err(error) => incomplete.push(error),
            }
        }
        let is_read: BTreeSet<&PathBuf> = read.values().flatten().collect();
        let instead_of = |path: &Path| {
            let first = self.files_below(path).next()?;
            let instead = read.get(&self.profile_of[first])?.first()?;
            (!self.files_below(path).any(|file| is_read.contains(file))).then(|| instead.clone())
        };
        let skipped = given_paths.iter().filter_map(|(given, path)| {
            Some(SkippedPath { path: (*given).to_owned(), instead: instead_of(path)?, may_differ: false })
        });
        let mut passed_over: Vec<SkippedPath> = skipped.collect();
        // Of a folder with files of several forms that is not one of a profiler, those of the other forms.
        for (folder, forms) in profiles.into_iter().filter(|(folder, _)| self.gathered.contains(folder)) {
            let Some(instead) = read.get(&folder).and_then(|files| files.first()) else { continue };
            let form = ProfileFormat::of_table(instead);
            let others = forms.into_iter().filter(|(other, _)| Some(*other) != form);
            let others = others.flat_map(|(_, files)| files);
            let others = others.filter(|file| !given_paths.iter().any(|(_, given)| given == file));
            passed_over.extend(others.map(|path| SkippedPath {
                path,
                instead: instead.clone(),
                may_differ: true,
            }));
        }
        let mut files: Vec<_> = read.into_values().flatten().chain(self.alone).map(ProfileFile).collect();
        files.sort();
        files.dedup();
        (DiscoveredProfiles { files, passed_over }, incomplete)
    }

    /// Collects the files of every profile. A file outside of profile folders belongs to a profile of its folder.
    fn walk_folder(&mut self, folder: &Path, around: &EnclosingProfile) -> io::Result<()> {
        let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        let holds = |inside: &str| entries.iter().any(|entry| entry.file_name().to_str() == Some(inside));
        let below = around.enter_folder(folder, holds);
        for entry in entries {
            let kind = entry.file_type()?;
            if kind.is_dir() && entry.file_name() == STATE_FOLDER {
                continue;
            }
            if kind.is_dir() && around.depth < MAX_DEPTH {
                self.walk_folder(&entry.path(), &below)?;
            } else if !kind.is_dir()
                && !kind.is_symlink()
                && let Some(form) = ProfileFormat::of_table(&entry.path())
            {
                let profile = below.profile.clone().unwrap_or_else(|| {
                    self.gathered.insert(folder.to_owned());
                    folder.to_owned()
                });
                self.insert_file(profile, form, entry.path());
            }
        }
        Ok(())
    }
}

/// Returns the `op_summary` tables of every `PROF_*` folder of one msprof collection in `folder`; of several exports
/// the newest, with all its slices. `folder` may also be a `PROF_*` folder itself.
pub fn collection_summaries(folder: &Path) -> Result<Vec<ProfileFile>, ProfileError> {
    const TABLES: &str = "mindstudio_profiler_output";
    let list = |folder: &Path| {
        let paths = fs::read_dir(folder).and_then(|all| all.map(|entry| Ok(entry?.path())).collect());
        paths.map_err(ProfileError::io(folder))
    };
    let newest_summary = |folder: &Path| {
        let mut tables: Vec<PathBuf> = list(folder)?;
        tables.retain(|path| ProfileFormat::of_table(path) == Some(ProfileFormat::OpSummary));
        newest_exports(tables)
    };
    let own = folder.join(TABLES);
    if own.is_dir() {
        return Ok(newest_summary(&own)?.into_iter().map(ProfileFile).collect());
    }
    let mut found = Vec::new();
    for path in list(folder)? {
        let output = path.join(TABLES);
        if is_of_msprof(&path) && output.is_dir() {
            found.extend(newest_summary(&output)?.into_iter().map(ProfileFile));
        }
    }
    found.sort();
    Ok(found)
}

/// Returns true for the name of a folder that msprof writes for a collection.
pub(super) fn is_of_msprof(folder: &Path) -> bool {
    folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with("PROF_"))
}

#[derive(Clone, Debug, Default)]
struct EnclosingProfile {
    depth: usize,
    profile: Option<PathBuf>,
    /// True if the folder's parent is the root of a torch_npu profile, to which its `PROF_*` belong.
    is_below_torch_root: bool,
}

impl EnclosingProfile {
    fn from_folder(path: &Path) -> Self {
        let above: Vec<&Path> = path.ancestors().skip(1).take(MAX_PARENTS).collect();
        let around = above.iter().rev().fold(Self::default(), |around, folder| {
            around.enter_folder(folder, |inside| folder.join(inside).exists())
        });
        Self { depth: 0, ..around }
    }

    fn enter_folder(&self, folder: &Path, holds: impl Fn(&str) -> bool) -> Self {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let is_torch_root =
            name.ends_with("_ascend_pt") || name.ends_with("_ascend_ms") || holds("ASCEND_PROFILER_OUTPUT");
        let is_prof = is_of_msprof(folder) || holds("mindstudio_profiler_output");
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
            fs::create_dir_all(path.parent().expect("below")).expect("created");
            fs::write(path, "x").expect("written");
        }
        let below = |file: &ProfileFile| {
            file.0.strip_prefix(folder.path()).expect("below").to_string_lossy().into_owned()
        };
        let found = ProfileFile::find_all(&[folder.path().join(from)]).expect("some");
        found.files.iter().map(below).collect()
    }

    #[test]
    fn profile_in_several_forms_is_found_in_preferred_form() {
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
    fn newest_op_summary_export_is_read_with_all_slices() {
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
    fn profile_given_by_several_paths_is_read_once() {
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
            fs::create_dir_all(root.join(file).parent().expect("below")).expect("created");
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
                .map(|passed| {
                    let doubt = if passed.may_differ { ", perhaps" } else { "" };
                    format!("{} for {}{doubt}", short(&passed.path), short(&passed.instead))
                })
                .collect();
            (files, passed)
        };
        let all = || [FILES[0], FILES[4], FILES[6]].map(String::from).to_vec();
        let passed = |path: &str, instead: &str| vec![format!("{path} for {instead}")];
        let beside = || format!("{} for {}, perhaps", FILES[5], FILES[6]);
        assert_eq!(found(&["t"]), (all(), vec![beside()]));
        assert_eq!(found(&["t", "t/./b", "link/..", "t"]), (all(), vec![beside()]), "under several names");
        assert_eq!(found(&["t", FILES[0]]), (all(), vec![beside()]), "what the folder contains as well");
        let and_beside = |path: &str, instead: &str| [passed(path, instead), vec![beside()]].concat();
        for given in [FILES[1], FILES[2], "t/a_ascend_pt/PROF_1"] {
            assert_eq!(found(&["t", given]), (all(), and_beside(given, FILES[0])));
            assert_eq!(found(&[given, "t"]), (all(), and_beside(given, FILES[0])), "in any order");
        }
        assert_eq!(found(&["t", FILES[3]]), (all(), and_beside(FILES[3], FILES[4])), "exported anew");
        assert_eq!(found(&["t", FILES[5]]), (all(), passed(FILES[5], FILES[6])));
        // Even if the folder is missing, several forms of one profile are recognised as one profile.
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
