//! Error type for access to files and locks.

use crate::base::command_error::Failure;
use std::{
    io,
    path::{Path, PathBuf},
};

use super::disk_space;

/// Failed file system call, or a folder that another process has locked.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot {action} `{}`: {source}", .path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("`{}` is in use by {owner}", .path.display())]
    Locked { path: PathBuf, owner: String },
    /// A file of npubench's own that is a symbolic link.
    #[error("`{}` is a symbolic link", .path.display())]
    Link { path: PathBuf },
}

impl FileError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    pub(crate) fn is_disk_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if disk_space::is_disk_full(source))
    }
}

pub(super) fn is_refused_write(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

impl Failure for FileError {
    fn hint(&self) -> String {
        let hint = match self {
            Self::Io { source, .. } if is_refused_write(source) => {
                "the folder must be writable; check its owner, mode and mount"
            }
            Self::Io { .. } => "check the path, its kind, size and permissions, and the free space",
            Self::Locked { .. } => "wait until it ends, or stop it",
            Self::Link { .. } => {
                "npubench writes no file through a link in its state folder; remove the link"
            }
        };
        hint.to_owned()
    }
}
