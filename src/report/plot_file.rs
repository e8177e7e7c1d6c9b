//! File of an image: outside of databases, and never in place of anything but a regular file.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    database::folder::DATABASE_FILE,
    files::{FileError, write_atomic},
};

#[derive(Debug, thiserror::Error)]
pub(crate) enum ImageFileError {
    #[error("`{}` {problem}", .path.display())]
    Unusable { path: PathBuf, problem: String },
    #[error(transparent)]
    File(#[from] FileError),
}

impl ImageFileError {
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::Unusable { .. } => {
                "give a name that ends in `.svg`, in an existing folder outside of databases".to_owned()
            }
            Self::File(error) => error.hint(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct ImageFile {
    pub path: PathBuf,
}

impl ImageFile {
    /// Checks the path before anything else is written: the name ends in `.svg`, an existing file is a regular one, and the
    /// folder exists and belongs neither to `database` nor to another database.
    pub(crate) fn new(path: &Path, database: &Path) -> Result<Self, ImageFileError> {
        let no_image = |problem: String| ImageFileError::Unusable { path: path.to_owned(), problem };
        if path.extension().is_none_or(|extension| !extension.eq_ignore_ascii_case("svg")) {
            return Err(no_image("does not end in `.svg`".to_owned()));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if resolve_links(folder).starts_with(resolve_links(database)) {
            return Err(no_image("is in the database's folder".to_owned()));
        }
        let folder = folder
            .canonicalize()
            .map_err(|error| no_image(format!("is in a folder that cannot be opened: {error}")))?;
        if let Some(other) = folder.ancestors().find(|folder| folder.join(DATABASE_FILE).exists()) {
            return Err(no_image(format!("is in the database `{}`", other.display())));
        }
        // A folder that is not writable is detected before the rows are written.
        tempfile::tempfile_in(&folder).map_err(FileError::io("write into", &folder))?;
        match fs::symlink_metadata(path) {
            Ok(existing) if !existing.is_file() => {
                Err(no_image("exists and is not a regular file".to_owned()))
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(no_image(format!("cannot be inspected: {error}")))
            }
            _ => Ok(Self { path: path.to_owned() }),
        }
    }

    /// Writes the image, in place of an existing one. Fails with [`FileError`]; an existing image is then unchanged.
    pub(crate) fn write(&self, svg: &str) -> Result<(), FileError> {
        write_atomic(&self.path, svg.as_bytes())
    }
}

/// Resolves links; returns the absolute path of a folder that does not exist.
fn resolve_links(folder: &Path) -> PathBuf {
    folder.canonicalize().or_else(|_| std::path::absolute(folder)).unwrap_or_else(|_| folder.to_owned())
}
