//! Raw records of a collection in its folder.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::BracketEvidence;
use crate::{
    base::files::{file_digest, read_regular},
    kernel::{
        CaseId,
        render::{
            Manifest,
            files::{COLLECT, EVIDENCE, JOURNAL, LOG, MANIFEST, PROFILE, REPLAY},
        },
    },
};

/// Depth of the files of a collection below its folder: `profile/PROF_*/mindstudio_profiler_output/*.csv`, in a folder
/// of its rank for gangs, and one more for other layouts.
const MAX_DEPTH: usize = 5;

fn manifest(folder: &Path) -> Option<Manifest> {
    serde_json::from_slice(&read_regular(&folder.join(MANIFEST)).ok()?).ok()
}

/// Returns the sentinels around a case by the manifest of a collection; `None` if it is not planned there, as a case of
/// an equal call, or the manifest cannot be read.
pub(super) fn case_bracket(folder: &Path, case: &CaseId) -> Option<BracketEvidence> {
    let Manifest { sentinels, cases, .. } = manifest(folder)?;
    let ordinal = cases.iter().find(|planned| planned.case == *case)?.ordinal;
    let (opening, closing) = (sentinels.opening(ordinal), sentinels.closing_length(ordinal));
    Some(BracketEvidence { kernel: sentinels.kernel, opening, closing })
}

/// Returns the names of the hosts of a collection over several nodes; none for one host, or if the manifest cannot be read.
pub(super) fn collection_hosts(folder: &Path) -> Vec<String> {
    manifest(folder).into_iter().flat_map(|manifest| manifest.hosts).map(|host| host.name).collect()
}

/// Returns the files with the evidence of a collection that exist: script, manifest, journal, log, and the profiler's tables.
pub(super) fn record_files(folder: &Path) -> Vec<PathBuf> {
    let own = [EVIDENCE, COLLECT, REPLAY, MANIFEST, JOURNAL, LOG].map(|name| folder.join(name));
    let own = own.into_iter().filter(|path| path.is_file());
    let tables = archived_files(&folder.join(PROFILE), MAX_DEPTH - 1);
    own.chain(tables.into_iter().filter(|path| is_kernel_table(path))).collect()
}

/// State of the compressed evidence of a collection.
#[derive(Clone, Debug, PartialEq, Eq, strum::Display)]
pub(crate) enum ArchiveState {
    #[strum(to_string = "unchanged since the collection")]
    Unchanged,
    #[strum(to_string = "changed: its SHA-256 is not that of the ledger")]
    Changed,
    #[strum(to_string = "removed")]
    Missing,
    /// It exists, but cannot be read for this reason.
    #[strum(to_string = "not readable: {0}")]
    Unreadable(String),
}

pub(crate) fn archive_state(folder: &Path, digest: &str) -> ArchiveState {
    match file_digest(&folder.join(EVIDENCE)) {
        Ok(found) if found == digest => ArchiveState::Unchanged,
        Ok(_) => ArchiveState::Changed,
        Err(error) if error.kind() == io::ErrorKind::NotFound => ArchiveState::Missing,
        Err(error) => ArchiveState::Unreadable(error.to_string()),
    }
}

/// Returns the files that the compressed evidence of a collection contains, in the order of their paths: all but the profiler's
/// binary data and databases, whose content is in the tables.
pub(crate) fn files_to_archive(folder: &Path) -> Vec<PathBuf> {
    archived_files(folder, MAX_DEPTH)
}

fn archived_files(folder: &Path, depth: usize) -> Vec<PathBuf> {
    let mut files = Vec::new();
    add_archived(folder, depth, &mut files);
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

fn is_kernel_table(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    ["op_summary", "kernel_details"].iter().any(|prefix| name.starts_with(prefix)) && name.ends_with(".csv")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::files::write_archive;

    #[test]
    fn archive_has_every_listed_table() {
        let folder = tempfile::tempdir().expect("a folder");
        for depth in 0..8 {
            let levels = ["level"; 8];
            let below: PathBuf = folder.path().join(PROFILE).join(levels[..depth].join("/"));
            fs::create_dir_all(&below).expect("created");
            fs::write(below.join("op_summary_1.csv"), "").expect("written");
        }
        let archived = files_to_archive(folder.path());
        let listed = record_files(folder.path());
        assert_eq!(listed.len(), MAX_DEPTH);
        assert_eq!(listed, archived);
    }

    #[test]
    fn unreadable_archive_is_not_a_removed_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(EVIDENCE);
        assert_eq!(archive_state(folder.path(), ""), ArchiveState::Missing);
        let digest = write_archive(&path, folder.path(), &[]).expect("written");
        assert_eq!(archive_state(folder.path(), &digest), ArchiveState::Unchanged);
        assert_eq!(archive_state(folder.path(), ""), ArchiveState::Changed);
        fs::remove_file(&path).expect("removed");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        let state = archive_state(folder.path(), &digest);
        assert!(matches!(state, ArchiveState::Unreadable(_)), "{state}");
        assert!(
            state.to_string().starts_with("not readable: ") && state.to_string().contains("pipe"),
            "{state}"
        );
    }

    /// A manifest with an ordinal beyond all limits is damaged.
    #[test]
    fn damaged_manifest_has_no_bracket() {
        let folder = tempfile::tempdir().expect("a folder");
        let case = CaseId::from_stored("00000000000000ff");
        let text = format!(r#"{{"cases": [{{"case": "{case}", "ordinal": {}}}]}}"#, u64::MAX);
        fs::write(folder.path().join(MANIFEST), text).expect("written");
        assert_eq!(case_bracket(folder.path(), &case), None);
    }
}
