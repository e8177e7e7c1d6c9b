//! Compressed archives with a digest of their content.

use std::{
    ffi::OsStr,
    fmt::{Display, Write as _},
    fs::{self, File},
    io::{self, Read, Write},
    os::unix::ffi::OsStrExt as _,
    path::{Component, Path, PathBuf},
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use sha2::{Digest as _, Sha256};

use super::open_regular;

/// Writes files of a folder into a `.tar.gz` and returns its SHA-256 in hexadecimal digits. Names in the archive are relative
/// to the folder; owners, times and modes are left out, so that the same files have the same digest. A failed write leaves no
/// archive.
pub(crate) fn write_archive(target: &Path, folder: &Path, files: &[PathBuf]) -> io::Result<String> {
    let written = write_files(target, folder, files);
    if written.is_err() {
        let _ = fs::remove_file(target);
    }
    written
}

/// Limits of an archive: files, and bytes of a name, of a file and of all files. An archive that would be over them is not written, so
/// that each archive of npubench can be unpacked. A launch has about 1 kB in the tables of msprof, so that a million launches suffice.
const MAX_ENTRIES: u64 = 10_000;
const MAX_NAME: u64 = 1_000;
const MAX_DEPTH: usize = 16;
const MAX_FILE: u64 = 1 << 30;
const MAX_FILES: u64 = 2 << 30;
/// Headers and fill bytes of a file and of its name take at most four blocks of 512 bytes and the name.
const MAX_STREAM: u64 = MAX_FILES + MAX_ENTRIES * (4 * 512 + MAX_NAME);

fn check_sizes(entries: u64, bytes: u64, all: u64) -> io::Result<()> {
    if entries <= MAX_ENTRIES && bytes <= MAX_FILE && all <= MAX_FILES {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "file {entries} has {bytes} bytes, all up to it {all}; the limits are {MAX_ENTRIES} files, {MAX_FILE} bytes of a file, {MAX_FILES} of all"
    )))
}

fn write_files(target: &Path, folder: &Path, files: &[PathBuf]) -> io::Result<String> {
    let output = HashingWriter { inner: File::create(target)?, hash: Sha256::new() };
    let mut archive = tar::Builder::new(GzEncoder::new(output, Compression::default()));
    let mut all = 0_u64;
    for (number, path) in (1..).zip(files) {
        let mut file = open_regular(path)?;
        let length = file.metadata()?.len();
        all = all.saturating_add(length);
        check_sizes(number, length, all)?;
        let mut header = tar::Header::new_gnu();
        header.set_size(length);
        header.set_mode(0o644);
        let name = path.strip_prefix(folder).unwrap_or(path);
        if name.as_os_str().len() as u64 >= MAX_NAME || name.components().count() > MAX_DEPTH {
            let name = name.display();
            return Err(io::Error::other(format!("the name `{name}` is too long, or in too many folders")));
        }
        // A file that grows meanwhile is cut at the stated size.
        archive.append_data(&mut header, name, Read::by_ref(&mut file).take(length))?;
    }
    let output = archive.into_inner()?.finish()?;
    output.inner.sync_all()?;
    Ok(hex_digits(&output.hash.finalize()))
}

/// Unpacks an archive that others may have made: only regular files with relative names, within limits that are checked before a file
/// is written. The error names the entry.
pub(crate) fn unpack_archive(archive: &Path, folder: &Path) -> io::Result<()> {
    // A few bytes of a compressed file can stand for any number.
    let stream = GzDecoder::new(io::BufReader::new(open_regular(archive)?)).take(MAX_STREAM);
    let mut archive = tar::Archive::new(stream);
    let (mut files, mut all, mut long_name) = (0, 0_u64, None);
    // Raw entries: the library would read a long name of any length into memory, and follow extensions that npubench does not write.
    for (number, entry) in (1..).zip(archive.entries()?.raw(true)) {
        let at_entry = |problem: &dyn Display| io::Error::other(format!("entry {number}: {problem}"));
        let mut entry = entry.map_err(|error| at_entry(&error))?;
        let (kind, length) = (entry.header().entry_type(), entry.header().entry_size()?);
        if kind == tar::EntryType::GNULongName && long_name.is_none() && length <= MAX_NAME {
            let mut name = Vec::new();
            entry.read_to_end(&mut name)?;
            long_name = Some(name);
            continue;
        }
        let name = long_name.take().unwrap_or_else(|| entry.path_bytes().into_owned());
        let name = Path::new(OsStr::from_bytes(name.split(|byte| *byte == 0).next().unwrap_or_default()));
        let refused = |problem: &dyn Display| at_entry(&format!("`{}`: {problem}", name.display()));
        let is_plain = name.components().all(|part| matches!(part, Component::Normal(_)))
            && name.components().count() <= MAX_DEPTH;
        if kind != tar::EntryType::Regular || !is_plain || name.as_os_str().is_empty() {
            return Err(refused(&"only regular files with relative names are unpacked"));
        }
        (files, all) = (files + 1, all.saturating_add(length));
        check_sizes(files, length, all).map_err(|error| refused(&error))?;
        let target = folder.join(name);
        fs::create_dir_all(target.parent().unwrap_or(folder)).map_err(|error| refused(&error))?;
        let mut file = File::create_new(&target).map_err(|error| refused(&error))?;
        if io::copy(&mut entry.by_ref().take(length), &mut file)? < length {
            return Err(refused(&"the archive ends in it"));
        }
    }
    match long_name.is_some() || archive.into_inner().limit() == 0 {
        true => Err(io::Error::other("it is cut off, or larger than an archive of npubench can be")),
        false => Ok(()),
    }
}

pub(crate) fn file_digest(path: &Path) -> io::Result<String> {
    let mut file = open_regular(path)?;
    if file.metadata()?.len() > MAX_STREAM {
        return Err(io::Error::other("it is larger than an archive of npubench can be"));
    }
    let mut hashed = HashingWriter { inner: io::sink(), hash: Sha256::new() };
    io::copy(&mut file, &mut hashed)?;
    Ok(hex_digits(&hashed.hash.finalize()))
}

fn hex_digits(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

struct HashingWriter<W> {
    inner: W,
    hash: Sha256,
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_of_the_same_files_have_the_same_digest() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("deep/table.csv");
        fs::create_dir(folder.path().join("deep")).expect("created");
        let archive = |name: &str, text: &str| {
            fs::write(&file, text).expect("written");
            let target = folder.path().join(name);
            let digest =
                write_archive(&target, folder.path(), std::slice::from_ref(&file)).expect("an archive");
            assert_eq!(file_digest(&target).expect("a digest"), digest);
            digest
        };
        let first = archive("one.tar.gz", "a,b\n1,2\n");
        assert_eq!(first, archive("two.tar.gz", "a,b\n1,2\n"));
        assert_ne!(first, archive("three.tar.gz", "a,b\n1,3\n"));
        let target = folder.path().join("none.tar.gz");
        write_archive(&target, folder.path(), &[folder.path().join("missing")]).expect_err("no such file");
        assert!(!target.exists());
    }

    /// Writes a compressed archive with these entries: kind, name, and content.
    fn archive_of(folder: &Path, entries: &[(tar::EntryType, &str, &[u8])]) -> PathBuf {
        let path = folder.join("x.tar.gz");
        let encoder = GzEncoder::new(File::create(&path).expect("created"), Compression::default());
        let mut archive = tar::Builder::new(encoder);
        for (kind, name, content) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_size(content.len() as u64);
            // The library refuses to write such names.
            let bytes = &mut header.as_gnu_mut().expect("GNU").name;
            bytes[..name.len()].copy_from_slice(name.as_bytes());
            if kind.is_symlink() {
                header.set_link_name("/dev/zero").expect("short");
            }
            header.set_cksum();
            archive.append(&header, *content).expect("appended");
        }
        archive.into_inner().and_then(GzEncoder::finish).expect("written");
        path
    }

    #[test]
    fn what_is_no_plain_file_is_not_unpacked() {
        use tar::EntryType as Kind;
        let file = |name| (Kind::Regular, name, &b"text"[..]);
        let long = format!("deep/{}", "x".repeat(200));
        let long_name = [(Kind::GNULongName, "././@LongLink", long.as_bytes()), file("deep")];
        let name_of_name = [long_name[0], long_name[0]];
        let bomb = vec![b'x'; MAX_NAME as usize + 1];
        for (entries, expected) in [
            (&[file("a"), file("b/c")][..], None),
            (&long_name, None),
            (&name_of_name, Some("entry 2: `deep/xxx")),
            (&[(Kind::GNULongName, "././@LongLink", &bomb[..])], Some("only regular files")),
            (&[long_name[0]], Some("cut off")),
            (&[(Kind::Symlink, "manifest.json", b"")], Some("entry 1: `manifest.json`: only regular files")),
            (&[file("a"), (Kind::Link, "b", b"")], Some("entry 2: `b`: only regular files")),
            (&[(Kind::Directory, "d", b"")], Some("only regular files")),
            (&[(Kind::Char, "d", b"")], Some("only regular files")),
            (&[(Kind::Fifo, "d", b"")], Some("only regular files")),
            (&[(Kind::GNUSparse, "d", b"")], Some("only regular files")),
            (&[(Kind::XHeader, "d", b"12 path=../x\n")], Some("only regular files")),
            (&[file("/etc/x")], Some("relative names")),
            (&[file("a/../../x")], Some("relative names")),
            (&[file("")], Some("relative names")),
            (&[file("a"), file("a")], Some("entry 2: `a`: File exists")),
        ] {
            let root = tempfile::tempdir().expect("a folder");
            let target = root.path().join("in");
            fs::create_dir(&target).expect("created");
            let unpacked = unpack_archive(&archive_of(root.path(), entries), &target);
            match (unpacked, expected) {
                (Ok(()), None) => {}
                (Err(error), Some(text)) => {
                    assert!(error.to_string().contains(text), "{error}, expected {text}");
                }
                (unpacked, _) => panic!("{unpacked:?}, expected {expected:?}"),
            }
            assert!(!root.path().join("x").exists());
        }
    }

    #[test]
    fn sizes_are_judged_before_anything_is_written() {
        let root = tempfile::tempdir().expect("a folder");
        let path = root.path().join("x.tar.gz");
        let mut encoder = GzEncoder::new(File::create(&path).expect("created"), Compression::default());
        let mut header = tar::Header::new_gnu();
        header.set_path("large").expect("short");
        header.set_size(MAX_FILE + 1);
        header.set_cksum();
        encoder
            .write_all(header.as_bytes())
            .and_then(|()| encoder.write_all(&[0; 100_000]))
            .expect("written");
        encoder.finish().expect("written");
        let problem = unpack_archive(&path, root.path()).expect_err("refused").to_string();
        assert!(problem.starts_with("entry 1: `large`: file 1 has 1073741825 bytes"), "{problem}");
        assert!(!root.path().join("large").exists());
    }
}
