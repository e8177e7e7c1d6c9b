//! File that a user names for a result: outside of databases, and never in place of anything but a regular file.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::base::{
    command_error::CommandError,
    files::{FileError, write_atomic},
};

pub(crate) const DATABASE_FILE: &str = "database.yaml";

#[derive(Debug)]
pub(crate) struct ResultFile {
    pub path: PathBuf,
}

impl ResultFile {
    /// Checks the path before anything else is written: the name has the extension, an existing file is a regular one, and the
    /// folder exists and belongs neither to `database`, if the command has one, nor to another database.
    pub(crate) fn new(
        path: &Path,
        database: Option<&Path>,
        extension: &'static str,
    ) -> Result<Self, CommandError> {
        let refused = |problem: String| {
            CommandError::bad_input(
                format!("`{}` {problem}", path.display()),
                format!(
                    "give a name that ends in `.{extension}`, in an existing folder outside of databases"
                ),
            )
        };
        if path.extension().is_none_or(|found| !found.eq_ignore_ascii_case(extension)) {
            return Err(refused(format!("does not end in `.{extension}`")));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if database.is_some_and(|database| resolve_links(folder).starts_with(resolve_links(database))) {
            return Err(refused("is in the database's folder".to_owned()));
        }
        let folder = folder
            .canonicalize()
            .map_err(|error| refused(format!("is in a folder that cannot be opened: {error}")))?;
        if let Some(other) = folder.ancestors().find(|folder| folder.join(DATABASE_FILE).exists()) {
            return Err(refused(format!("is in the database `{}`", other.display())));
        }
        // A folder that is not writable is detected before the rows are written.
        tempfile::tempfile_in(&folder).map_err(FileError::io("write into", &folder))?;
        match fs::symlink_metadata(path) {
            Ok(existing) if !existing.is_file() => {
                Err(refused("exists and is not a regular file".to_owned()))
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(refused(format!("cannot be inspected: {error}")))
            }
            _ => Ok(Self { path: path.to_owned() }),
        }
    }

    pub(crate) fn apart_from<'p>(
        self,
        mut inputs: impl Iterator<Item = &'p Path>,
    ) -> Result<Self, CommandError> {
        let own = resolve_links(&self.path);
        match inputs.any(|input| resolve_links(input) == own) {
            true => Err(CommandError::bad_input(
                format!("`{}` is an input of this command", self.path.display()),
                "give the name of another file for the result",
            )),
            false => Ok(self),
        }
    }

    /// Writes the content, in place of an existing one. Fails with [`FileError`]; an existing file is then unchanged.
    pub(crate) fn write(&self, content: impl AsRef<[u8]>) -> Result<(), FileError> {
        write_atomic(&self.path, content.as_ref())
    }
}

/// Resolves links; returns the absolute path of a folder that does not exist.
fn resolve_links(folder: &Path) -> PathBuf {
    folder.canonicalize().or_else(|_| std::path::absolute(folder)).unwrap_or_else(|_| folder.to_owned())
}
