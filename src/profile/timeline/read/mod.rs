//! Readers of runs: the profiles below a path, one [`RunTimeline`] for each rank.
//!
//! If a profile exists in several forms, the database is read, else the trace with the kernel table, else whatever
//! exists.

mod database;
mod gpu_trace;
mod host_events;
mod kernel_table;
mod launch_queue;
mod trace;

use std::{fs, io};

use super::{prelude::*, steps::assign_steps};
use crate::{
    base::files::named_entries,
    profile::{
        discover::{MAX_DEPTH, ProfileFormat, STATE_FOLDER, is_of_msprof},
        is_database, newest_exports,
    },
};

/// Number of folders from the folder of a table outwards to the folder of its profile: an old msprof wrote
/// `PROF_*/device_0/summary`.
const PROFILE_DEPTH: usize = 4;
const OUTPUT: &str = "ASCEND_PROFILER_OUTPUT";

#[derive(Clone, Debug, Default)]
struct RunFiles {
    database: Option<PathBuf>,
    trace: Option<PathBuf>,
    tables: Vec<PathBuf>,
    folder: PathBuf,
}

impl RunFiles {
    fn read(&self) -> Result<RunTimeline, ProfileError> {
        let mut run = match (&self.database, &self.trace) {
            (Some(file), _) => database::read_database(file)?,
            (None, Some(trace)) => trace::read_trace(trace, &self.tables)?,
            (None, None) => {
                let mut run = RunTimeline { form: Some(ProfileForm::Table), ..RunTimeline::default() };
                kernel_table::add_kernel_tables(&mut run, &self.tables)?;
                run
            }
        };
        run.rank = run.rank.or_else(|| rank_of_folder(&self.folder)).or_else(|| {
            let name = self.database.as_deref()?.file_stem()?.to_str()?;
            name.strip_prefix("ascend_pytorch_profiler_")?.parse().ok()
        });
        run.sort_parts();
        assign_steps(&mut run);
        run.missing = run.missing_parts();
        Ok(run)
    }
}

/// Returns the runs of files of known forms: of torch_npu each database, else each trace with the table of the same name;
/// else the newest export of msprof. Empty files, which a failed export leaves, give way to others.
fn runs_of_files(paths: Vec<PathBuf>) -> Result<Vec<RunFiles>, ProfileError> {
    let known = paths.into_iter().filter_map(|path| Some((ProfileFormat::of_file(&path)?, path)));
    let mut known: Vec<((ProfileFormat, String), PathBuf)> = known.collect();
    let is_filled = |path: &Path| fs::metadata(path).map_or(true, |metadata| metadata.len() > 0);
    if known.iter().any(|(_, path)| is_filled(path)) {
        known.retain(|(_, path)| is_filled(path));
    }
    let mut forms: BTreeMap<ProfileFormat, Vec<PathBuf>> = BTreeMap::new();
    let mut torch_text: BTreeMap<String, RunFiles> = BTreeMap::new();
    for ((format, rest), path) in known {
        match format {
            ProfileFormat::TorchTrace => torch_text.entry(rest).or_default().trace = Some(path),
            ProfileFormat::KernelDetails => torch_text.entry(rest).or_default().tables.push(path),
            _ => forms.entry(format).or_default().push(path),
        }
    }
    let of_database = |file| RunFiles { database: Some(file), ..RunFiles::default() };
    if let Some(databases) = forms.remove(&ProfileFormat::TorchDatabase) {
        return Ok(databases.into_iter().map(of_database).collect());
    }
    if !torch_text.is_empty() {
        let is_named = !torch_text.contains_key("");
        let mut runs: Vec<RunFiles> = torch_text.into_values().collect();
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
    let mut newest = |format| newest_exports(forms.remove(&format).unwrap_or_default());
    let databases = newest(ProfileFormat::MsprofDatabase)?;
    if !databases.is_empty() {
        return Ok(databases.into_iter().map(of_database).collect());
    }
    let trace = newest(ProfileFormat::MsprofTrace)?.into_iter().next();
    let tables = newest(ProfileFormat::OpSummary)?;
    let has_files = trace.is_some() || !tables.is_empty();
    Ok(has_files.then(|| RunFiles { trace, tables, ..RunFiles::default() }).into_iter().collect())
}

/// Reads the runs of all ranks below a path, or of one file, by rank and path.
pub(crate) fn read_runs(path: &Path) -> Result<Vec<RunTimeline>, ProfileError> {
    let metadata = fs::metadata(path).map_err(ProfileError::io(path))?;
    let mut found = Vec::new();
    if metadata.is_dir() {
        search_folder(path, 0, &mut found)?;
        if found.is_empty() {
            return Err(ProfileError::NoRun(path.to_owned()));
        }
    } else {
        found.push(files_of_path(path)?);
    }
    let mut runs = found.iter().map(RunFiles::read).collect::<Result<Vec<_>, _>>()?;
    runs.sort_by(|a, b| (a.rank, &a.files).cmp(&(b.rank, &b.files)));
    Ok(runs)
}

fn files_of_path(path: &Path) -> Result<RunFiles, ProfileError> {
    let found = runs_of_files(vec![path.to_owned()])?.pop();
    let extension = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let own = || path.to_owned();
    let mut files = match (found, &*extension) {
        (Some(files), _) => files,
        (None, "json") => RunFiles { trace: Some(own()), ..RunFiles::default() },
        (None, "csv") => RunFiles { tables: vec![own()], ..RunFiles::default() },
        _ if is_database(path)? => RunFiles { database: Some(own()), ..RunFiles::default() },
        _ => return Err(ProfileError::UnknownFile(own())),
    };
    files.folder = path.parent().map(Path::to_owned).unwrap_or_default();
    Ok(files)
}

/// Collects the runs below a folder. Symbolic links are not followed. What msprof exported in a `PROF_*` is of the same
/// run as an `ASCEND_PROFILER_OUTPUT` beside it, and the text beside a database of msprof of the same one as the database.
fn search_folder(folder: &Path, depth: usize, found: &mut Vec<RunFiles>) -> Result<(), ProfileError> {
    let io = ProfileError::io(folder);
    let mut entries = fs::read_dir(folder).map_err(&io)?.collect::<io::Result<Vec<_>>>().map_err(&io)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    for entry in &entries {
        let kind = entry.file_type().map_err(&io)?;
        if kind.is_file() {
            files.push(entry.path());
        } else if kind.is_dir() && entry.file_name() != STATE_FOLDER {
            folders.push(entry.path());
        }
    }
    let mut own = runs_of_files(files)?;
    own.iter_mut().for_each(|files| folder.clone_into(&mut files.folder));
    let is_complete = is_of_msprof(folder) && !own.is_empty();
    found.append(&mut own);
    if is_complete || depth >= MAX_DEPTH {
        return Ok(());
    }
    let output = folders.iter().position(|folder| folder.ends_with(OUTPUT));
    if let Some(output) = output.map(|at| folders.remove(at)) {
        let before = found.len();
        search_folder(&output, depth + 1, found)?;
        if found.len() > before {
            folders.retain(|folder| !is_of_msprof(folder));
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
        let files = named_entries(folder, "profiler_info_", ".json").unwrap_or_default();
        let ranks = files
            .iter()
            .filter_map(|path| path.file_stem()?.to_str()?.strip_prefix("profiler_info_")?.parse().ok());
        if let [rank] = *ranks.collect::<Vec<u32>>() { Some(rank) } else { None }
    })
}

#[cfg(test)]
mod tests;
