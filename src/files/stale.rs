//! Removal of temporary files and folders of killed writers.

use std::{
    ffi::OsStr,
    fs::{self, File},
    path::Path,
    time::{Duration, SystemTime},
};

/// Prefix of the temporary folder that becomes a database when it is complete. Its writer holds a lock on it.
pub(crate) const DRAFT: &str = ".npubench-new-";
/// Minimum age of a removed folder; creating and locking it takes far less.
const GRACE: Duration = Duration::from_secs(60);

/// Returns true if a folder is missing, empty, or contains only temporary folders of databases.
pub(crate) fn is_empty_or_drafts(folder: &Path) -> bool {
    let is_draft = |name: &OsStr| name.to_string_lossy().starts_with(DRAFT);
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.into_iter().all(|entry| entry.is_ok_and(|entry| is_draft(&entry.file_name())))
}

/// Removes temporary folders of databases without a writer. Errors are ignored.
pub(crate) fn remove_unfinished_folders(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let is_draft = entry.file_name().to_string_lossy().starts_with(DRAFT);
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_draft && is_folder && is_abandoned(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_abandoned(draft: &Path) -> bool {
    let Ok(folder) = File::open(draft) else { return false };
    let modified = folder.metadata().and_then(|there| there.modified());
    let age = modified.ok().and_then(|time| SystemTime::now().duration_since(time).ok());
    age.is_some_and(|age| age > GRACE) && folder.try_lock().is_ok()
}

/// Removes temporary files in a database folder whose lock the caller holds, so that no other process writes there.
pub(crate) fn remove_unfinished_files(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_temporary = name.starts_with(".npubench-") && name.ends_with(".tmp");
        if is_temporary && entry.file_type().is_ok_and(|kind| kind.is_file()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(place: &Path, name: &str, age: u64) -> File {
        let path = place.join(format!("{DRAFT}{name}"));
        fs::create_dir(&path).expect("created");
        fs::write(path.join("Add.csv"), "half").expect("written");
        let folder = File::open(&path).expect("opened");
        folder.set_modified(SystemTime::now() - Duration::from_secs(age)).expect("set");
        folder
    }

    #[test]
    fn only_abandoned_drafts_are_removed() {
        let place = tempfile::tempdir().expect("a folder");
        let locked = draft(place.path(), "locked", 600);
        locked.lock().expect("locked");
        drop((draft(place.path(), "old", 600), draft(place.path(), "new", 0)));
        fs::write(place.path().join(format!("{DRAFT}file")), "other").expect("written");
        remove_unfinished_folders(place.path());
        let left = |name: &str| place.path().join(format!("{DRAFT}{name}")).exists();
        assert_eq!(["locked", "old", "new", "file"].map(left), [true, false, true, true]);
        assert!(is_empty_or_drafts(place.path()) && is_empty_or_drafts(&place.path().join("missing")));
        fs::write(place.path().join("Add.csv"), "").expect("written");
        assert!(!is_empty_or_drafts(place.path()));
    }

    #[test]
    fn only_temporary_files_are_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in [".npubench-x1.tmp", ".npubench-notes", "a.tmp", "Add.csv"] {
            fs::write(folder.path().join(name), "").expect("written");
        }
        remove_unfinished_files(folder.path());
        let left = |name: &str| folder.path().join(name).exists();
        assert_eq!(
            [".npubench-x1.tmp", ".npubench-notes", "a.tmp", "Add.csv"].map(left),
            [false, true, true, true]
        );
    }
}
