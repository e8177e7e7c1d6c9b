//! Files that are either the old ones or the new ones, whatever happens in between.

use std::{
    fs::{self, File, Permissions},
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use super::StoreError;

/// Readable and writable as far as the user's umask allows.
const DEFAULT_MODE: u32 = 0o666;

/// Writes a file by way of a temporary one in the same folder: write, sync, rename, sync of the folder.
/// A file that was there keeps its mode.
///
/// # Errors
/// [`StoreError::Io`]; the old file is then as it was, and the temporary one is gone.
pub fn write_atomic(path: &Path, content: &[u8]) -> Result<(), StoreError> {
    // A link stays a link: what it leads to is replaced.
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let path = target.as_path();
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut temporary = tempfile::Builder::new()
        .prefix(".npubench-")
        .suffix(".tmp")
        .permissions(Permissions::from_mode(DEFAULT_MODE))
        .tempfile_in(folder)
        .map_err(StoreError::io("write into", folder))?;
    let file = temporary.as_file_mut();
    file.write_all(content).map_err(StoreError::io("write", path))?;
    if let Ok(existing) = fs::metadata(path) {
        file.set_permissions(existing.permissions()).map_err(StoreError::io("set the mode of", path))?;
    }
    file.sync_all().map_err(StoreError::io("sync", path))?;
    temporary.persist(path).map_err(|error| StoreError::io("replace", path)(error.error))?;
    sync_folder(folder)
}

/// Makes the entries of a folder durable.
pub(super) fn sync_folder(folder: &Path) -> Result<(), StoreError> {
    File::open(folder).and_then(|file| file.sync_all()).map_err(StoreError::io("sync", folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_content_and_keeps_the_mode() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.csv");
        fs::write(&path, "old").expect("written");
        fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("set");
        write_atomic(&path, b"new").expect("replaced");
        assert_eq!(fs::read(&path).expect("read"), b"new");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 1, "no temporary file is left");
    }

    #[test]
    fn a_failure_leaves_nothing_behind() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("is-a-folder");
        fs::create_dir(&path).expect("made");
        fs::write(path.join("inside"), "x").expect("written");
        let error = write_atomic(&path, b"new").expect_err("a folder cannot be replaced by a file");
        assert!(error.to_string().contains("is-a-folder"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 1);
    }
}
