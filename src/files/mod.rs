//! Atomic writes, the lock of a folder, and temporary files of killed writers.
//!
//! Layer 1: imports no module of this crate.

pub(crate) mod atomic;
mod error;
pub(crate) mod lock;
pub(crate) mod stale;

pub(crate) use atomic::write_atomic;
pub(crate) use error::FileError;
pub(crate) use lock::{FolderLock, LockOwner, LockState};
