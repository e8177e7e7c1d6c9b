//! The one place that opens files of users and of other programs for reading. Pipes, sockets and devices, which may wait for ever or
//! have no end, are refused at once, and so is a file that is larger than its kind can be.

use std::{
    fs::{self, File, FileType},
    io::{self, BufRead, Read as _, Seek as _},
    os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use nix::fcntl::OFlag;
use serde::de::DeserializeOwned;

use super::FileError;
use crate::base::command_error::CommandError;

/// Bytes of a file of settings, and of one question of a stream.
pub(crate) const MAX_SETTINGS: u64 = 1 << 20;
/// Bytes of a document that is read as a whole: YAML, JSON, TOML, text of another program.
pub(crate) const MAX_DOCUMENT: u64 = 16 << 20;
/// Bytes of a table or a log that is read as a whole. A table of 78,000 rows has 40 MB.
pub(crate) const MAX_TABLE: u64 = 256 << 20;

/// Opens a file for reading. A path that is neither a regular file nor a folder is an error; a folder fails when it is
/// read. An error is of the kind [`io::ErrorKind::NotFound`] only if nothing has the path.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    // Opening a device may act on it, so its kind is read before.
    check_kind(fs::metadata(path).or_else(|error| is_missing(path).and(Err(error)))?.file_type())?;
    // If a pipe has replaced the file meanwhile, opening it would wait for a writer.
    let file = File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    check_kind(file.metadata()?.file_type())?;
    Ok(file)
}

/// Reads a file of at most `max` bytes.
pub(crate) fn read_regular(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    let length = file.metadata()?.len();
    let mut bytes = Vec::new();
    if length <= max {
        bytes.reserve_exact(usize::try_from(length).unwrap_or_default());
        file.take(max + 1).read_to_end(&mut bytes)?;
    }
    match length > max || bytes.len() as u64 > max {
        true => Err(io::Error::other(format!("it has more than {max} bytes, the limit of such a file"))),
        false => Ok(bytes),
    }
}

/// Reads a text in UTF-8 of at most `max` bytes.
pub(crate) fn read_regular_text(path: &Path, max: u64) -> io::Result<String> {
    io::read_to_string(&*read_regular(path, max)?)
}

/// Reads at most `max` bytes at the end of a text, which may still grow.
pub(crate) fn read_end(path: &Path, max: u64) -> io::Result<String> {
    let mut file = open_regular(path)?;
    let start = file.metadata()?.len().saturating_sub(max);
    file.seek(io::SeekFrom::Start(start))?;
    let mut end = Vec::new();
    file.take(max).read_to_end(&mut end)?;
    Ok(String::from_utf8_lossy(&end).into_owned())
}

/// Reads the next line of at most `max` bytes with its end; `None` at the end. `number` is that of the line.
pub(crate) fn read_line(input: &mut dyn BufRead, number: u64, max: u64) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    input.take(max + 1).read_until(b'\n', &mut line)?;
    match line.len() as u64 {
        0 => Ok(None),
        length if length > max => {
            Err(io::Error::other(format!("line {number} has more than {max} bytes, the limit of a line")))
        }
        _ => Ok(Some(line)),
    }
}

/// Returns true if nothing has the path. A link that leads nowhere, and a path that cannot be looked at, are errors.
pub(crate) fn is_missing(path: &Path) -> io::Result<bool> {
    let is_absent = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    match fs::metadata(path) {
        Err(error) if is_absent(&error) => match fs::symlink_metadata(path) {
            // It was created meanwhile.
            Ok(found) if !found.is_symlink() => Ok(false),
            Ok(_) => Err(io::Error::other(format!("`{}` is a link that leads nowhere", path.display()))),
            // Its folder may be such a link.
            Err(error) if is_absent(&error) => {
                match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                    Some(parent) => is_missing(parent).map(|_| true),
                    None => Ok(true),
                }
            }
            Err(error) => Err(error),
        },
        found => found.map(|_| false),
    }
}

/// Returns the paths in a folder, in their order; none if nothing has its path.
pub(crate) fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    if is_missing(folder)? {
        return Ok(Vec::new());
    }
    let paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let mut paths = paths.collect::<io::Result<Vec<PathBuf>>>()?;
    paths.sort();
    Ok(paths)
}

/// Reads a file of JSON; `None` if it does not exist. A file with other content is no `what`, and `hint` returns what to do.
pub(crate) fn read_json<T: DeserializeOwned>(
    path: &Path,
    what: &str,
    hint: impl FnOnce() -> String,
) -> Result<Option<T>, CommandError> {
    let text = match read_regular_text(path, MAX_DOCUMENT) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(FileError::io("read", path))?,
    };
    serde_json::from_str(&text).map(Some).map_err(|error| {
        CommandError::bad_input(format!("`{}` is no {what}: {error}", path.display()), hint())
    })
}

/// Returns the paths in a folder whose names have a start and an end, in their order; none if nothing has its path.
pub(crate) fn named_entries(folder: &Path, start: &str, end: &str) -> io::Result<Vec<PathBuf>> {
    let mut paths = entries(folder)?;
    paths.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(start) && name.ends_with(end)
    });
    Ok(paths)
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
        assert_eq!(read_regular_text(&path("link"), 4).expect("read"), "text");
        mkfifo(&path("pipe"), Mode::S_IRWXU).expect("created");
        let _listener = UnixListener::bind(path("socket")).expect("bound");
        let problem = |path: &Path| read_regular(path, 4).expect_err("refused").to_string();
        assert_eq!(problem(&path("pipe")), "it is a named pipe, not a regular file");
        assert_eq!(problem(&path("socket")), "it is a socket, not a regular file");
        assert_eq!(problem(Path::new("/dev/zero")), "it is a device, not a regular file");
        assert_eq!(read_regular(&path("missing"), 4).expect_err("missing").kind(), io::ErrorKind::NotFound);
        assert!(read_regular(folder.path(), MAX_TABLE).is_err());
    }

    #[test]
    fn large_files_and_long_lines_are_refused() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().set_len(20 << 30).expect("sparse");
        let problem = read_regular(file.path(), MAX_TABLE).expect_err("too large");
        assert_eq!(problem.to_string(), "it has more than 268435456 bytes, the limit of such a file");
        let mut lines = &b"ab\nabc\n"[..];
        assert_eq!(read_line(&mut lines, 1, 3).expect("short").as_deref(), Some(&b"ab\n"[..]));
        let problem = read_line(&mut lines, 2, 3).expect_err("too long").to_string();
        assert_eq!(problem, "line 2 has more than 3 bytes, the limit of a line");
        assert_eq!(read_line(&mut &b""[..], 3, 3).expect("the end"), None);
    }

    #[test]
    fn absence_is_neither_broken_link_nor_unreadable_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        std::os::unix::fs::symlink("nowhere", path("broken")).expect("linked");
        std::os::unix::fs::symlink("loop", path("loop")).expect("linked");
        fs::write(path("file"), "").expect("written");
        assert!(is_missing(&path("missing/below")).expect("looked at"));
        assert!(!is_missing(&path("file")).expect("looked at"));
        for wrong in ["broken", "broken/below", "loop", "loop/below", "file/below"] {
            is_missing(&path(wrong)).expect_err(wrong);
            let problem = open_regular(&path(wrong)).expect_err(wrong);
            assert_ne!(problem.kind(), io::ErrorKind::NotFound, "{wrong}");
            entries(&path(wrong)).expect_err(wrong);
        }
        assert_eq!(named_entries(folder.path(), "f", "").expect("listed"), [path("file")]);
    }
}
