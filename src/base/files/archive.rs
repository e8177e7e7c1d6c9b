//! Compressed archives with a digest of their content.

use std::{
    fmt::Write as _,
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
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

fn write_files(target: &Path, folder: &Path, files: &[PathBuf]) -> io::Result<String> {
    let output = HashingWriter { inner: File::create(target)?, hash: Sha256::new() };
    let mut archive = tar::Builder::new(GzEncoder::new(output, Compression::default()));
    for path in files {
        let mut file = open_regular(path)?;
        let length = file.metadata()?.len();
        let mut header = tar::Header::new_gnu();
        header.set_size(length);
        header.set_mode(0o644);
        let name = path.strip_prefix(folder).unwrap_or(path);
        // A file that grows meanwhile is cut at the stated size.
        archive.append_data(&mut header, name, Read::by_ref(&mut file).take(length))?;
    }
    let output = archive.into_inner()?.finish()?;
    output.inner.sync_all()?;
    Ok(hex_digits(&output.hash.finalize()))
}

pub(crate) fn unpack_archive(archive: &Path, folder: &Path) -> io::Result<()> {
    let file = io::BufReader::new(open_regular(archive)?);
    let mut archive = tar::Archive::new(GzDecoder::new(file));
    archive.set_preserve_mtime(false);
    archive.unpack(folder)
}

pub(crate) fn file_digest(path: &Path) -> io::Result<String> {
    let mut hashed = HashingWriter { inner: io::sink(), hash: Sha256::new() };
    io::copy(&mut open_regular(path)?, &mut hashed)?;
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
}
