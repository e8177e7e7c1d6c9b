//! State shared by the stand-in processes of a host: its start time, and the number of times that each fault fired.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use crate::domain::Nanos;

/// A folder with a file for every firing of a fault. A file is created exclusively, so that stand-ins that run at the
/// same time never count one firing twice.
#[derive(Clone, Debug)]
pub(in crate::rehearsal) struct FireCounter {
    folder: PathBuf,
}

const FOLDER: &str = "faults";
const BEGAN: &str = "began";

impl FireCounter {
    /// Opens the counts of the host in a folder.
    pub(in crate::rehearsal) fn of_host(folder: &Path) -> Self {
        Self { folder: folder.join(FOLDER) }
    }

    /// Records the start time of the host. A host installed again in its folder keeps its first start time.
    pub(in crate::rehearsal) fn begin(&self, now: Nanos) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        match File::create_new(self.folder.join(BEGAN)) {
            Ok(mut file) => file.write_all(now.0.to_string().as_bytes()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns the recorded start time.
    pub(super) fn began(&self) -> Option<Nanos> {
        fs::read_to_string(self.folder.join(BEGAN)).ok()?.parse().ok().map(Nanos)
    }

    /// Counts a firing under a name and returns true, or returns false once `most` were counted.
    pub(super) fn take(&self, name: &str, most: u32) -> bool {
        // In a folder that cannot be written, faults with a limited number of firings do not fire.
        (0..most).any(|number| File::create_new(self.folder.join(format!("{name}.{number}"))).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn strikes_are_counted_once_by_all_who_count_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let strikes = FireCounter::of_host(folder.path());
        strikes.begin(Nanos(5)).expect("written");
        strikes.begin(Nanos(6)).expect("nothing to do");
        assert_eq!(strikes.began(), Some(Nanos(5)));
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let strikes = strikes.clone();
                thread::spawn(move || (0..5).filter(|_| strikes.take("0", 7)).count())
            })
            .collect();
        let taken: usize = threads.into_iter().map(|thread| thread.join().expect("it ends")).sum();
        assert_eq!(taken, 7);
        assert!(strikes.take("1", 1) && !strikes.take("1", 1));
    }
}
