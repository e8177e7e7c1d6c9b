//! Where an image may be written: a place of its own, never over what somebody else keeps.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    database::folder::DATABASE_FILE,
    files::{FileError, write_atomic},
};

/// Path that no image can be written to.
#[derive(Debug, thiserror::Error)]
pub enum ImageFileError {
    /// Path with another extension, in a database or of another kind of file.
    #[error("`{}` {problem}", .path.display())]
    Unusable {
        /// The given path.
        path: PathBuf,
        /// Found obstacle.
        problem: String,
    },
    /// Folder that is not writable.
    #[error(transparent)]
    File(#[from] FileError),
}

impl ImageFileError {
    /// Returns the advice that is printed as `hint:`.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Unusable { .. } => {
                "give a name that ends in `.svg`, in an existing folder outside of databases".to_owned()
            }
            Self::File(error) => error.hint(),
        }
    }
}

/// A path at which an SVG image may be written.
#[derive(Debug)]
pub struct ImageFile {
    path: PathBuf,
}

impl ImageFile {
    /// Looks at the path before anything else is written. The name ends in `.svg`, what is there already is a
    /// regular file, and the folder is there and neither `database` nor any other database's.
    ///
    /// # Errors
    /// [`ImageFileError`].
    pub fn new(path: &Path, database: &Path) -> Result<Self, ImageFileError> {
        let refused = |problem: String| ImageFileError::Unusable { path: path.to_owned(), problem };
        if path.extension().is_none_or(|extension| !extension.eq_ignore_ascii_case("svg")) {
            return Err(refused("does not end in `.svg`".to_owned()));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if resolved(folder).starts_with(resolved(database)) {
            return Err(refused("is in the database's folder".to_owned()));
        }
        let folder = folder.canonicalize().map_err(|error| refused(format!("has no folder: {error}")))?;
        if let Some(other) = folder.ancestors().find(|folder| folder.join(DATABASE_FILE).exists()) {
            return Err(refused(format!("is in the database `{}`", other.display())));
        }
        // Whether it can be written is found out before anything else is.
        tempfile::tempfile_in(&folder).map_err(FileError::io("write into", &folder))?;
        match fs::symlink_metadata(path) {
            Ok(there) if !there.is_file() => Err(refused("is there and no regular file".to_owned())),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(refused(format!("cannot be looked at: {error}")))
            }
            _ => Ok(Self { path: path.to_owned() }),
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the image, in place of an older one.
    ///
    /// # Errors
    /// [`FileError`]; an older one is then as it was.
    pub fn write(&self, svg: &str) -> Result<(), FileError> {
        write_atomic(&self.path, svg.as_bytes())
    }
}

/// Without links, also where the folder is not there yet.
fn resolved(folder: &Path) -> PathBuf {
    folder.canonicalize().or_else(|_| std::path::absolute(folder)).unwrap_or_else(|_| folder.to_owned())
}
