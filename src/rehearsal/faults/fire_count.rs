//! State shared by the stand-in processes of a host: its start time, and the number of times that each fault fired.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use crate::kernel::Nanos;

/// A folder with a file for every firing of a fault. A file is created exclusively, so that stand-ins that run at the
/// same time never count one firing twice.
#[derive(Clone, Debug)]
pub(in crate::rehearsal) struct FireCounter {
    folder: PathBuf,
}

const FOLDER: &str = "faults";
const STARTED: &str = "started";

impl FireCounter {
    /// Opens the counts of the host in a folder.
    pub(in crate::rehearsal) fn of_host(folder: &Path) -> Self {
        Self { folder: folder.join(FOLDER) }
    }

    /// Records the start time of the host. A host installed again in its folder keeps its first start time.
    pub(in crate::rehearsal) fn record_start(&self, now: Nanos) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        match File::create_new(self.folder.join(STARTED)) {
            Ok(mut file) => file.write_all(now.0.to_string().as_bytes()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns the recorded start time.
    pub(super) fn started(&self) -> Option<Nanos> {
        fs::read_to_string(self.folder.join(STARTED)).ok()?.parse().ok().map(Nanos)
    }

    /// Counts a firing under a name and returns true, or returns false once `limit` were counted.
    pub(super) fn count(&self, name: &str, limit: u32) -> bool {
        // In a folder that cannot be written, faults with a limited number of firings do not fire.
        (0..limit).any(|number| File::create_new(self.folder.join(format!("{name}.{number}"))).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn concurrent_counters_never_exceed_the_limit() {
        let folder = tempfile::tempdir().expect("a folder");
        let counter = FireCounter::of_host(folder.path());
        counter.record_start(Nanos(5)).expect("written");
        counter.record_start(Nanos(6)).expect("nothing to do");
        assert_eq!(counter.started(), Some(Nanos(5)));
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let counter = counter.clone();
                thread::spawn(move || (0..5).filter(|_| counter.count("0", 7)).count())
            })
            .collect();
        let taken: usize = threads.into_iter().map(|thread| thread.join().expect("it ends")).sum();
        assert_eq!(taken, 7);
        assert!(counter.count("1", 1) && !counter.count("1", 1));
    }
}
