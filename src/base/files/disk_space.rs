//! Free space of a file system, and the errors of a full one.

use std::{
    io::{self, Write as _},
    path::Path,
};

use nix::sys::statvfs::statvfs;

/// Bytes that a folder with space for small files accepts.
const PROBE: usize = 64 << 10;

pub(crate) fn free_bytes(folder: &Path) -> Option<u64> {
    let found = statvfs(folder).ok()?;
    Some(found.blocks_available().saturating_mul(found.fragment_size()))
}

/// Returns the size of a file system; `None` if it is unknown, or unlimited as that of some tmpfs.
pub(crate) fn total_bytes(folder: &Path) -> Option<u64> {
    let found = statvfs(folder).ok()?;
    Some(found.blocks().saturating_mul(found.fragment_size())).filter(|bytes| *bytes > 0)
}

pub(crate) fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Writes a small temporary file without a name. Returns false if no space is left for it; other errors return true,
/// because more space would not remove them. Quotas, which the free bytes do not show, are found, too.
pub(crate) fn has_space(folder: &Path) -> bool {
    let write = || -> io::Result<()> {
        let mut file = tempfile::tempfile_in(folder)?;
        file.write_all(&[0; PROBE])?;
        file.sync_all()
    };
    !write().is_err_and(|error| is_disk_full(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_folder_is_no_full_disk() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(has_space(folder.path()) && has_space(&folder.path().join("missing")));
        assert!(free_bytes(folder.path()).is_some());
        assert!(is_disk_full(&io::Error::from_raw_os_error(nix::libc::ENOSPC)));
        assert!(is_disk_full(&io::Error::from_raw_os_error(nix::libc::EDQUOT)));
        assert!(!is_disk_full(&io::Error::from_raw_os_error(nix::libc::EACCES)));
    }
}
