//! Reads of files of users. Pipes, sockets and devices, which may wait for ever or have no end, are refused at once.

use std::{
    fs::{self, File, FileType},
    io::{self, Read as _},
    os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use nix::fcntl::OFlag;
use serde::de::DeserializeOwned;

use super::FileError;
use crate::base::command_error::CommandError;

/// Opens a file for reading. A path that is neither a regular file nor a folder is an error; a folder fails when it is
/// read.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    // Opening a device may act on it, so its kind is read before.
    check_kind(fs::metadata(path)?.file_type())?;
    // If a pipe has replaced the file meanwhile, opening it would wait for a writer.
    let file = File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    check_kind(file.metadata()?.file_type())?;
    Ok(file)
}

pub(crate) fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a text in UTF-8 as [`open_regular`] opens it.
pub(crate) fn read_regular_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open_regular(path)?.read_to_string(&mut text)?;
    Ok(text)
}

/// Reads a file of JSON; `None` if it does not exist. A file with other content is no `what`, and `hint` returns what to do.
pub(crate) fn read_json<T: DeserializeOwned>(
    path: &Path,
    what: &str,
    hint: impl FnOnce() -> String,
) -> Result<Option<T>, CommandError> {
    let text = match read_regular_text(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(FileError::io("read", path))?,
    };
    serde_json::from_str(&text).map(Some).map_err(|error| {
        CommandError::bad_input(format!("`{}` is no {what}: {error}", path.display()), hint())
    })
}

/// Returns the paths in a folder whose names have a start and an end, in their order; none if it cannot be listed.
pub(crate) fn named_entries(folder: &Path, start: &str, end: &str) -> Vec<PathBuf> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_named = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with(start) && name.ends_with(end)
    };
    let mut paths: Vec<PathBuf> = entries.filter(is_named).map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn check_kind(kind: FileType) -> io::Result<()> {
    let is_device = kind.is_char_device() || kind.is_block_device();
    let kinds = [(kind.is_fifo(), "a named pipe"), (kind.is_socket(), "a socket"), (is_device, "a device")];
    match kinds.into_iter().find(|(is_kind, _)| *is_kind) {
        Some((_, name)) => Err(io::Error::other(format!("it is {name}, not a regular file"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use nix::{sys::stat::Mode, unistd::mkfifo};

    use super::*;

    #[test]
    fn only_regular_files_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        fs::write(path("file"), "text").expect("written");
        std::os::unix::fs::symlink(path("file"), path("link")).expect("linked");
        assert_eq!(read_regular_text(&path("link")).expect("read"), "text");
        mkfifo(&path("pipe"), Mode::S_IRWXU).expect("created");
        let _listener = UnixListener::bind(path("socket")).expect("bound");
        let problem = |path: &Path| read_regular(path).expect_err("refused").to_string();
        assert_eq!(problem(&path("pipe")), "it is a named pipe, not a regular file");
        assert_eq!(problem(&path("socket")), "it is a socket, not a regular file");
        assert_eq!(problem(Path::new("/dev/zero")), "it is a device, not a regular file");
        assert_eq!(read_regular(&path("missing")).expect_err("missing").kind(), io::ErrorKind::NotFound);
        assert!(read_regular(folder.path()).is_err());
    }
}
