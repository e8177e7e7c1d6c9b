//! Readers of runs: the profiles below a path, one [`RunTimeline`] for each rank.
//!
//! Of a profile in several forms the database is read, else the trace with the kernel table, else what there is.

mod database;
mod gpu_trace;
mod kernel_table;
mod trace;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::run::{ProfileForm, RunTimeline};
use crate::profile::{ProfileError, TraceError, is_database};

/// Maximum depth of searched folders.
const DEEPEST: usize = 12;
/// Folder of a profile with its tables.
const OUTPUT: &str = "ASCEND_PROFILER_OUTPUT";
/// State folder of a database, which contains the profiles of its replays.
const STATE_FOLDER: &str = ".npubench";

/// Unreadable run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunReadError {
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

impl RunReadError {
    /// Returns what to do about the error.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::Profile(error) => error.hint().to_owned(),
            Self::Trace { .. } => {
                "the file may be cut off or still being written; export the profile again, or give its \
                 ascend_pytorch_profiler_*.db"
                    .to_owned()
            }
            Self::NoRun(_) | Self::UnknownFile(_) => {
                "give the folder of a profile (`*_ascend_pt`), or one of these files".to_owned()
            }
            Self::Io { .. } => "check the path and its permissions".to_owned(),
        }
    }
}

/// Files of one rank.
#[derive(Clone, Debug, Default)]
struct RunFiles {
    databases: Vec<PathBuf>,
    trace: Option<PathBuf>,
    table: Option<PathBuf>,
    /// Folder with `profiler_info_*.json`.
    root: Option<PathBuf>,
    /// True if the only file is empty.
    is_placeholder: bool,
}

impl RunFiles {
    fn is_empty(&self) -> bool {
        self.databases.is_empty() && self.trace.is_none() && self.table.is_none()
    }

    /// Adds a file if it is of a known form; false otherwise. An empty file, which a failed export leaves, gives way to
    /// others.
    fn add_file(&mut self, path: &Path) -> bool {
        let is_empty = fs::metadata(path).is_ok_and(|metadata| metadata.len() == 0);
        if is_empty && !self.is_empty() {
            return true;
        }
        if !is_empty && self.is_placeholder {
            *self = Self { root: self.root.take(), ..Self::default() };
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is = |start: &str, end: &str| name.starts_with(start) && name.ends_with(end);
        match () {
            () if is("ascend_pytorch_profiler", ".db") => self.databases.insert(0, path.to_owned()),
            () if is("msprof_", ".db") => self.databases.push(path.to_owned()),
            () if is("trace_view", ".json") => self.trace = Some(path.to_owned()),
            () if is("msprof_", ".json") => drop(self.trace.get_or_insert_with(|| path.to_owned())),
            () if is("kernel_details", ".csv") => self.table = Some(path.to_owned()),
            () if is("op_summary", ".csv") => drop(self.table.get_or_insert_with(|| path.to_owned())),
            () => return false,
        }
        self.is_placeholder = is_empty;
        true
    }

    fn read(&self) -> Result<RunTimeline, RunReadError> {
        let mut run = match (self.databases.first(), &self.trace, &self.table) {
            (Some(file), ..) => database::read_database(file)?,
            (None, Some(trace), table) => trace::read_trace(trace, table.as_deref())?,
            (None, None, Some(table)) => {
                let mut run = RunTimeline { form: Some(ProfileForm::Table), ..RunTimeline::default() };
                kernel_table::add_kernel_table(&mut run, table)?;
                run
            }
            (None, None, None) => RunTimeline::default(),
        };
        run.rank = run.rank.or_else(|| rank_of_folder(self.root.as_deref()?));
        run.finish();
        Ok(run)
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
    let mut files = RunFiles::default();
    let root = path.parent().and_then(Path::parent).map(Path::to_owned);
    files.root = root.filter(|root| root.join(OUTPUT).is_dir());
    if files.add_file(path) {
        return Ok(files);
    }
    let extension = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    match &*extension {
        "json" => files.trace = Some(path.to_owned()),
        "csv" => files.table = Some(path.to_owned()),
        _ if is_database(path)? => files.databases.push(path.to_owned()),
        _ => return Err(RunReadError::UnknownFile(path.to_owned())),
    }
    Ok(files)
}

/// Collects the runs below a folder. The files of one folder are of one rank, and those of a `PROF_*` beside
/// `ASCEND_PROFILER_OUTPUT` are of the same one.
fn search_folder(folder: &Path, depth: usize, found: &mut Vec<RunFiles>) -> Result<(), RunReadError> {
    let io = |source| RunReadError::Io { file: folder.to_owned(), source };
    let mut entries = fs::read_dir(folder).map_err(io)?.collect::<io::Result<Vec<_>>>().map_err(io)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    let is_root = entries.iter().any(|entry| entry.file_name() == OUTPUT);
    let mut own = RunFiles { root: folder.parent().map(Path::to_owned), ..RunFiles::default() };
    for entry in &entries {
        if entry.file_type().map_err(io)?.is_file() {
            own.add_file(&entry.path());
        }
    }
    if !own.is_empty() {
        found.push(own);
    }
    let before = found.len();
    for entry in &entries {
        let is_folder = entry.file_type().map_err(io)?.is_dir();
        let name = entry.file_name();
        if !is_folder || name == STATE_FOLDER || depth >= DEEPEST {
            continue;
        }
        // What msprof exported is read only if torch_npu wrote nothing, which sorts before it.
        if is_root && name != OUTPUT && found.len() > before {
            continue;
        }
        search_folder(&entry.path(), depth + 1, found)?;
    }
    Ok(())
}

/// Returns the rank in `profiler_info_<rank>.json`.
fn rank_of_folder(folder: &Path) -> Option<u32> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    let ranks = entries.filter_map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.strip_prefix("profiler_info_")?.strip_suffix(".json")?.parse().ok()
    });
    let ranks: Vec<u32> = ranks.collect();
    if let [rank] = *ranks { Some(rank) } else { None }
}
