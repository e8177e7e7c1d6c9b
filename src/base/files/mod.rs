//! Atomic writes, reads of regular files, the lock of a folder, free space, and temporary files and folders.

mod archive;
pub(crate) mod atomic;
pub(crate) mod disk_space;
mod error;
pub(crate) mod lock;
mod regular;
pub(crate) mod scratch;
pub(crate) mod stale;

pub(crate) use archive::{file_digest, unpack_archive, write_archive};
pub(crate) use atomic::{sync_folder, write_atomic, write_atomic_by};
pub(crate) use error::FileError;
pub(crate) use lock::{FolderLock, LockOwner, LockState};
pub(crate) use regular::{
    MAX_DOCUMENT, MAX_SETTINGS, MAX_TABLE, entries, is_missing, named_entries, open_regular, read_end,
    read_json, read_line, read_regular, read_regular_text,
};
pub(crate) use scratch::{ScratchFolder, keep_folder};
