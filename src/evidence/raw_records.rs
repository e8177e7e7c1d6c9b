//! Raw records of a collection in its folder.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    domain::CaseId,
    files::{file_digest, read_regular},
    render::files::{COLLECT, EVIDENCE, JOURNAL, LOG, MANIFEST, PROFILE, REPLAY},
};

/// Depth of the profiler's tables below the folder of profiles.
const DEEPEST: usize = 4;

/// Returns the number of a case in the manifest of a collection; `None` if it is not planned there, as a case of an equal call,
/// or the manifest cannot be read.
pub(super) fn manifest_ordinal(folder: &Path, case: &CaseId) -> Option<u64> {
    let manifest = read_regular(&folder.join(MANIFEST)).ok()?;
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).ok()?;
    let entry = manifest["cases"].as_array()?.iter().find(|entry| entry["case"] == case.as_str())?;
    entry["ordinal"].as_u64()
}

/// Returns the files with the evidence of a collection that exist: script, manifest, journal, log, and the profiler's tables.
pub(super) fn record_files(folder: &Path) -> Vec<PathBuf> {
    let own = [EVIDENCE, COLLECT, REPLAY, MANIFEST, JOURNAL, LOG].map(|name| folder.join(name));
    let mut found: Vec<PathBuf> = own.into_iter().filter(|path| path.is_file()).collect();
    let mut tables = Vec::new();
    add_tables(&folder.join(PROFILE), DEEPEST, &mut tables);
    tables.sort();
    found.extend(tables);
    found
}

/// State of the compressed evidence of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
pub(super) enum ArchiveState {
    #[strum(to_string = "unchanged since the collection")]
    Unchanged,
    #[strum(to_string = "changed: its SHA-256 is not that of the ledger")]
    Changed,
    #[strum(to_string = "removed")]
    Missing,
}

/// Compares the compressed evidence in a folder with its digest in the ledger. A file that cannot be read is missing.
pub(super) fn archive_state(folder: &Path, digest: &str) -> ArchiveState {
    match file_digest(&folder.join(EVIDENCE)) {
        Ok(found) if found == digest => ArchiveState::Unchanged,
        Ok(_) => ArchiveState::Changed,
        Err(_) => ArchiveState::Missing,
    }
}

/// Returns the files that the compressed evidence of a collection contains, in the order of their paths: all but the profiler's
/// binary data and databases, whose content is in the tables.
pub(crate) fn archived_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    add_archived(folder, DEEPEST, &mut files);
    files.sort();
    files
}

fn add_archived(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let Ok(kind) = entry.file_type() else { continue };
        let is_database = path.extension().is_some_and(|extension| extension == "db");
        if kind.is_dir() && depth > 0 && name != "data" {
            add_archived(&path, depth - 1, files);
        } else if kind.is_file() && !is_database && name != EVIDENCE {
            files.push(path);
        }
    }
}

/// Adds the tables of kernels below a folder.
fn add_tables(folder: &Path, depth: usize, tables: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && depth > 0 {
            add_tables(&path, depth - 1, tables);
        } else if is_kernel_table(&path) {
            tables.push(path);
        }
    }
}

fn is_kernel_table(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    ["op_summary", "kernel_details"].iter().any(|prefix| name.starts_with(prefix)) && name.ends_with(".csv")
}
