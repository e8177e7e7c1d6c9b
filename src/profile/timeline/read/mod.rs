//! Readers of runs: the profiles below a path, one [`RunTimeline`] for each rank.
//!
//! If a profile exists in several forms, the database is read, else the trace with the kernel table, else whatever
//! exists.

mod database;
mod gpu_trace;
mod kernel_table;
mod launch_queue;
mod operator_shapes;
mod trace;

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    run::{ProfileForm, RunTimeline},
    steps::assign_steps,
};
use crate::base::{command_error::Failure, files::named_entries};
use crate::profile::{ProfileError, TraceError, is_database, newest_exports};

/// Maximum depth of searched folders.
const MAX_DEPTH: usize = 12;
/// Number of folders from the folder of a table outwards to the folder of its profile: an old msprof wrote
/// `PROF_*/device_0/summary`.
const PROFILE_DEPTH: usize = 4;
const OUTPUT: &str = "ASCEND_PROFILER_OUTPUT";
/// State folder of a database, which contains the profiles of its replays.
const STATE_FOLDER: &str = ".npubench";

/// Unreadable run.
#[derive(Debug, thiserror::Error)]
pub enum RunReadError {
    #[error(transparent)]
    Profile(#[from] ProfileError),
    #[error("`{}`: {source}", .file.display())]
    Trace {
        file: PathBuf,
        #[source]
        source: TraceError,
    },
    #[error(
        "no ascend_pytorch_profiler*.db, msprof_*.db, trace_view.json, kernel_details.csv or op_summary*.csv below `{}`",
        .0.display()
    )]
    NoRun(PathBuf),
    #[error("cannot read `{}`: {source}", .file.display())]
    Io {
        file: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("`{}` is neither a database of a profiler, a trace, nor a table of kernels", .0.display())]
    UnknownFile(PathBuf),
}

impl Failure for RunReadError {
    fn hint(&self) -> String {
        match self {
            Self::Profile(error) => error.hint(),
            Self::Trace { source: TraceError::NoEvents, .. } => {
                "the file is no trace; give the trace_view.json, kernel_details.csv or database of a profile"
                    .to_owned()
            }
            Self::Trace { source: TraceError::Text { .. }, .. } => {
                "the file may be cut off or still being written; export the profile again, or give its \
                 ascend_pytorch_profiler_*.db"
                    .to_owned()
            }
            Self::NoRun(_) | Self::UnknownFile(_) => {
                "give the folder of a profile (`*_ascend_pt`), or one of these files".to_owned()
            }
            Self::Io { .. } | Self::Trace { source: TraceError::Io(_), .. } => {
                "check the path and its permissions".to_owned()
            }
        }
    }
}

#[derive(Clone, Debug, Default)]
struct RunFiles {
    database: Option<PathBuf>,
    trace: Option<PathBuf>,
    /// Kernel table, in several files if msprof wrote slices.
    tables: Vec<PathBuf>,
    folder: PathBuf,
}

impl RunFiles {
    fn read(&self) -> Result<RunTimeline, RunReadError> {
        let mut run = match (&self.database, &self.trace) {
            (Some(file), _) => database::read_database(file)?,
            (None, Some(trace)) => trace::read_trace(trace, &self.tables)?,
            (None, None) => {
                let mut run = RunTimeline { form: Some(ProfileForm::Table), ..RunTimeline::default() };
                kernel_table::add_kernel_tables(&mut run, &self.tables)?;
                run
            }
        };
        run.rank = run
            .rank
            .or_else(|| rank_of_folder(&self.folder))
            .or_else(|| rank_of_name(self.database.as_deref()?));
        run.sort_parts();
        assign_steps(&mut run);
        run.missing = run.missing_parts();
        Ok(run)
    }
}

#[derive(Debug, Default)]
struct FolderFiles {
    torch_databases: Vec<PathBuf>,
    /// `trace_view*.json` and `kernel_details*.csv` by the rest of their names.
    torch_text: BTreeMap<String, RunFiles>,
    msprof_databases: Vec<PathBuf>,
    msprof_traces: Vec<PathBuf>,
    summaries: Vec<PathBuf>,
}

impl FolderFiles {
    /// Sorts files of known forms; others are left out. Empty files, which a failed export leaves, give way to others.
    fn of_paths(paths: Vec<PathBuf>) -> Self {
        let known: Vec<PathBuf> =
            paths.into_iter().filter(|path| Self::default().add_file(path.clone())).collect();
        let is_filled = |path: &PathBuf| fs::metadata(path).map_or(true, |metadata| metadata.len() > 0);
        let keep_empty = !known.iter().any(is_filled);
        let mut files = Self::default();
        for path in known.into_iter().filter(|path| keep_empty || is_filled(path)) {
            files.add_file(path);
        }
        files
    }

    /// Adds a file if it is of a known form; false otherwise.
    fn add_file(&mut self, path: PathBuf) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let rest = |start: &str, end: &str| name.strip_prefix(start)?.strip_suffix(end).map(str::to_owned);
        if rest("ascend_pytorch_profiler", ".db").is_some() {
            self.torch_databases.push(path);
        } else if rest("msprof_", ".db").is_some() {
            self.msprof_databases.push(path);
        } else if let Some(rest) = rest("trace_view", ".json") {
            self.torch_text.entry(rest).or_default().trace = Some(path);
        } else if let Some(rest) = rest("kernel_details", ".csv") {
            self.torch_text.entry(rest).or_default().tables.push(path);
        } else if rest("msprof_", ".json").is_some() {
            self.msprof_traces.push(path);
        } else if rest("op_summary", ".csv").is_some() {
            self.summaries.push(path);
        } else {
            return false;
        }
        true
    }

    /// Returns the runs: of torch_npu each database, else each trace with the table of the same name; else the newest
    /// export of msprof.
    fn into_runs(self) -> Result<Vec<RunFiles>, ProfileError> {
        let of_database = |file| RunFiles { database: Some(file), ..RunFiles::default() };
        if !self.torch_databases.is_empty() {
            return Ok(self.torch_databases.into_iter().map(of_database).collect());
        }
        if !self.torch_text.is_empty() {
            let is_named = !self.torch_text.contains_key("");
            let mut runs: Vec<RunFiles> = self.torch_text.into_values().collect();
            // The trace and the table may belong to one run although only one of them has the rank in its name.
            if let [first, second] = &mut *runs
                && !is_named
                && first.trace.is_some() == second.trace.is_none()
                && first.tables.is_empty() != second.tables.is_empty()
            {
                first.trace = first.trace.take().or(second.trace.take());
                first.tables.append(&mut second.tables);
                runs.truncate(1);
            }
            return Ok(runs);
        }
        if !self.msprof_databases.is_empty() {
            return Ok(newest_exports(self.msprof_databases)?.into_iter().map(of_database).collect());
        }
        let (traces, tables) = (newest_exports(self.msprof_traces)?, newest_exports(self.summaries)?);
        if traces.is_empty() && tables.is_empty() {
            return Ok(Vec::new());
        }
        Ok(vec![RunFiles { trace: traces.into_iter().next(), tables, ..RunFiles::default() }])
    }
}

/// Reads the runs of all ranks below a path, or of one file, by rank and path.
pub(crate) fn read_runs(path: &Path) -> Result<Vec<RunTimeline>, RunReadError> {
    let metadata = fs::metadata(path).map_err(|source| RunReadError::Io { file: path.to_owned(), source })?;
    let mut found = Vec::new();
    if metadata.is_dir() {
        search_folder(path, 0, &mut found)?;
        if found.is_empty() {
            return Err(RunReadError::NoRun(path.to_owned()));
        }
    } else {
        found.push(files_of_path(path)?);
    }
    let mut runs = found.iter().map(RunFiles::read).collect::<Result<Vec<_>, _>>()?;
    runs.sort_by(|a, b| (a.rank, &a.files).cmp(&(b.rank, &b.files)));
    Ok(runs)
}

/// Returns the form of a given file by its name, else by its content.
fn files_of_path(path: &Path) -> Result<RunFiles, RunReadError> {
    let found = FolderFiles::of_paths(vec![path.to_owned()]).into_runs()?.pop();
    let mut files = match found {
        Some(files) => files,
        None => {
            let extension = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
            match &*extension {
                "json" => RunFiles { trace: Some(path.to_owned()), ..RunFiles::default() },
                "csv" => RunFiles { tables: vec![path.to_owned()], ..RunFiles::default() },
                _ if is_database(path)? => {
                    RunFiles { database: Some(path.to_owned()), ..RunFiles::default() }
                }
                _ => return Err(RunReadError::UnknownFile(path.to_owned())),
            }
        }
    };
    files.folder = path.parent().map(Path::to_owned).unwrap_or_default();
    Ok(files)
}

/// Collects the runs below a folder. Symbolic links are not followed. What msprof exported in a `PROF_*` is of the same
/// run as an `ASCEND_PROFILER_OUTPUT` beside it, and the text beside a database of msprof of the same one as the database.
fn search_folder(folder: &Path, depth: usize, found: &mut Vec<RunFiles>) -> Result<(), RunReadError> {
    let io = |source| RunReadError::Io { file: folder.to_owned(), source };
    let mut entries = fs::read_dir(folder).map_err(io)?.collect::<io::Result<Vec<_>>>().map_err(io)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    for entry in &entries {
        let kind = entry.file_type().map_err(io)?;
        if kind.is_file() {
            files.push(entry.path());
        } else if kind.is_dir() && entry.file_name() != STATE_FOLDER {
            folders.push(entry.path());
        }
    }
    let mut own = FolderFiles::of_paths(files).into_runs()?;
    own.iter_mut().for_each(|files| folder.clone_into(&mut files.folder));
    let is_export = folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with("PROF_"));
    let is_complete = is_export && !own.is_empty();
    found.append(&mut own);
    if is_complete || depth >= MAX_DEPTH {
        return Ok(());
    }
    let output = folders.iter().position(|folder| folder.ends_with(OUTPUT));
    if let Some(output) = output.map(|at| folders.remove(at)) {
        let before = found.len();
        search_folder(&output, depth + 1, found)?;
        if found.len() > before {
            folders.retain(|folder| {
                !folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with("PROF_"))
            });
        }
    }
    folders.iter().try_for_each(|folder| search_folder(folder, depth + 1, found))
}

/// Returns the rank in the name of a `profiler_info_<rank>.json`, which is in the folder of a profile, around the
/// folder of its output; `None` if there are several.
fn rank_of_folder(folder: &Path) -> Option<u32> {
    // The folder of a file in the current folder is empty.
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    folder.canonicalize().ok()?.ancestors().take(PROFILE_DEPTH).find_map(|folder| {
        let files = named_entries(folder, "profiler_info_", ".json");
        let ranks = files
            .iter()
            .filter_map(|path| path.file_stem()?.to_str()?.strip_prefix("profiler_info_")?.parse().ok());
        if let [rank] = *ranks.collect::<Vec<u32>>() { Some(rank) } else { None }
    })
}

/// Returns the rank in the name of an `ascend_pytorch_profiler_<rank>.db`.
fn rank_of_name(file: &Path) -> Option<u32> {
    let name = file.file_stem()?.to_str()?;
    name.strip_prefix("ascend_pytorch_profiler_")?.parse().ok()
}

#[cfg(test)]
mod tests;
