//! Removal of temporary files of killed writers.

use std::{ffi::OsStr, fs, path::Path};

use super::{open_regular, scratch::DRAFT};

pub(crate) fn is_empty_or_drafts(folder: &Path) -> bool {
    let is_draft = |name: &OsStr| name.to_string_lossy().starts_with(DRAFT);
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.into_iter().all(|entry| entry.is_ok_and(|entry| is_draft(&entry.file_name())))
}

/// Removes temporary files of killed writers, which no process has locked, and SQLite's journals of them from a folder.
pub(crate) fn remove_unfinished_files(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        // A writer locks its file, not the journal that SQLite makes beside it.
        let written = name.strip_suffix("-journal").unwrap_or(&name);
        let is_temporary = name.starts_with(".npubench-") && written.ends_with(".tmp");
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        let written = folder.join(written);
        let locked = if written.exists() { written } else { entry.path() };
        // On a file system without locks they are kept: a process may still write them.
        if is_temporary
            && is_file
            && let Ok(file) = open_regular(&locked)
            && file.try_lock().is_ok()
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn folder_with_drafts_alone_counts_as_empty() {
        let place = tempfile::tempdir().expect("a folder");
        fs::create_dir(place.path().join(format!("{DRAFT}1"))).expect("created");
        assert!(is_empty_or_drafts(place.path()) && is_empty_or_drafts(&place.path().join("missing")));
        fs::write(place.path().join("Add.csv"), "").expect("written");
        assert!(!is_empty_or_drafts(place.path()));
    }

    #[test]
    fn only_temporary_files_are_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let names = [".npubench-x1.tmp", ".npubench-x1.tmp-journal", ".npubench-notes", "a.tmp", "Add.csv"];
        for name in names {
            fs::write(folder.path().join(name), "").expect("written");
        }
        remove_unfinished_files(folder.path());
        let left = names.map(|name| folder.path().join(name).exists());
        assert_eq!(left, [false, false, true, true, true]);
    }

    #[test]
    fn file_of_a_writer_and_its_journal_are_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let names = [".npubench-x1.tmp", ".npubench-x1.tmp-journal"].map(|name| folder.path().join(name));
        for name in &names {
            fs::write(name, "").expect("written");
        }
        let writer = File::open(&names[0]).expect("opened");
        writer.lock().expect("locked");
        remove_unfinished_files(folder.path());
        assert!(names.iter().all(|name| name.exists()));
        drop(writer);
        remove_unfinished_files(folder.path());
        assert!(!names.iter().any(|name| name.exists()));
    }
}
