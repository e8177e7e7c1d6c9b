//! `status.json` in the folder of a run: its current state, for `npubench status` in another terminal.
//!
//! A separate thread writes it, so that a slow disk does not delay the run: at most once per second, at least every ten
//! seconds, and at the end. The file is renamed into place without sync, since it is of no use after a power loss.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::{
    base::{
        files::{LockOwner, read_regular},
        print::report_first_error,
        worker_thread::WorkerThread,
    },
    kernel::timestamp::Timestamp,
    measure::{events::RunEvent, run_state::RunState},
};

const FILE: &str = "status.json";
/// The file is filled with spaces to a multiple of this size, which is the block size of most file systems.
const BLOCK: usize = 4096;
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// Longest interval between two writes, also without events: a recent file shows that the run is active.
const MAX_INTERVAL: Duration = Duration::from_secs(10);

/// Content of the status file of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub(crate) struct RunStatusFile {
    pub written: Timestamp,
    /// Id of the process of the run.
    pub process: u32,
    pub host: String,
    #[serde(flatten)]
    pub state: RunState,
}

impl RunStatusFile {
    /// Reads the status file in the folder of a run; `None` if it is missing or cannot be parsed.
    pub(crate) fn load(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&read_regular(&folder.join(FILE)).ok()?).ok()
    }

    /// Returns the process of the run, as the lock of the database names it.
    pub(crate) fn lock_owner(&self) -> LockOwner {
        LockOwner { process: self.process, host: self.host.clone() }
    }
}

#[derive(Debug)]
pub(super) struct StatusFile(WorkerThread<(Timestamp, RunEvent)>);

impl StatusFile {
    pub(super) fn start(folder: &Path) -> io::Result<Self> {
        let mut writer = StatusWriter::new(folder);
        let work = move |inbox: Receiver<(Timestamp, RunEvent)>| {
            loop {
                match inbox.recv_timeout(writer.time_to_write()) {
                    Ok((now, event)) => {
                        writer.state.on_event(now, &event);
                        writer.is_stale = true;
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
                if writer.time_to_write().is_zero() {
                    writer.write_file();
                }
            }
            writer.write_file();
        };
        WorkerThread::spawn("status".to_owned(), work).map(Self)
    }

    pub(super) fn on_event(&self, now: Timestamp, event: &RunEvent) {
        self.0.send((now, event.clone()));
    }
}

struct StatusWriter {
    path: PathBuf,
    draft: PathBuf,
    owner: LockOwner,
    state: RunState,
    /// True if an event has arrived since the last write.
    is_stale: bool,
    written: Option<Instant>,
    has_failed: bool,
    /// Size of the files in bytes. It has up to two blocks more than the text had when it was set, for growth.
    size: usize,
}

impl StatusWriter {
    fn new(folder: &Path) -> Self {
        Self {
            path: folder.join(FILE),
            draft: folder.join(format!(".{FILE}.tmp")),
            owner: LockOwner::this_process(),
            state: RunState::default(),
            is_stale: false,
            written: None,
            has_failed: false,
            size: 0,
        }
    }

    /// Returns the time left until the file must be written.
    fn time_to_write(&self) -> Duration {
        let step = if self.is_stale { MIN_INTERVAL } else { MAX_INTERVAL };
        match self.written {
            Some(written) => step.saturating_sub(written.elapsed()),
            None if self.is_stale => Duration::ZERO,
            None => MAX_INTERVAL,
        }
    }

    fn write_file(&mut self) {
        self.written = Some(Instant::now());
        self.is_stale = false;
        // A run that has not started has no state.
        if self.state.run.is_empty() {
            return;
        }
        let LockOwner { process, host } = self.owner.clone();
        let status = RunStatusFile { written: Timestamp::now(), process, host, state: self.state.clone() };
        let written =
            serde_json::to_vec(&status).map_err(io::Error::from).and_then(|text| self.replace_file(text));
        report_first_error(written, &self.path, &mut self.has_failed);
    }

    /// Writes the draft over its old content and exchanges it with the file. Both keep their disk space, so that the
    /// status of a run that waits for disk space can be written.
    fn replace_file(&mut self, mut text: Vec<u8>) -> io::Result<()> {
        if text.len() > self.size {
            self.size = (text.len() + BLOCK).next_multiple_of(BLOCK);
        }
        text.resize(self.size, b' ');
        self.write_draft(&text)?;
        fs::rename(&self.draft, &self.path)?;
        // The next draft takes its disk space at once: the disk may be full by then.
        self.write_draft(&text)
    }

    fn write_draft(&self, text: &[u8]) -> io::Result<()> {
        let draft = File::options().write(true).create(true).truncate(false).open(&self.draft)?;
        draft.write_all_at(text, 0)?;
        draft.set_len(u64::try_from(text.len()).unwrap_or(u64::MAX))
    }
}

impl Drop for StatusWriter {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.draft);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::DataKind;

    #[test]
    fn file_has_the_state_after_the_last_event() {
        let folder = tempfile::tempdir().expect("a folder");
        let started = RunEvent::RunStarted {
            run: "r".to_owned(),
            kind: DataKind::Npu,
            cases: 2,
            not_launched: 0,
            already_measured: 0,
            devices: vec![0, 1],
            resumed: false,
            budget_s: None,
        };
        let file = StatusFile::start(folder.path()).expect("a thread");
        file.on_event(Timestamp::now(), &started);
        for device in [0, 1, 0] {
            file.on_event(
                Timestamp::now(),
                &RunEvent::DeviceReserved { device, reason: "it is paused".to_owned() },
            );
        }
        drop(file);
        let status = RunStatusFile::load(folder.path()).expect("a status file");
        assert_eq!(status.lock_owner(), LockOwner::this_process());
        assert!(status.state.devices.iter().all(|line| line.reserved));
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 1, "the temporary file is renamed");
    }

    /// A longer text needs no further disk space while it fits in the file.
    #[test]
    fn files_keep_their_size_while_texts_fit() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut writer = StatusWriter::new(folder.path());
        let mut sizes_after = |length: usize| {
            writer.replace_file(vec![b'x'; length]).expect("written");
            let size = |path: &PathBuf| fs::metadata(path).expect("a file").len();
            [size(&writer.path), size(&writer.draft)]
        };
        assert_eq!([3000, 4200, 8192, 2000].map(&mut sizes_after), [[8192; 2]; 4]);
        assert_eq!([8193, 16_384].map(&mut sizes_after), [[16_384; 2]; 2]);
    }

    #[test]
    fn missing_folder_does_not_stop_the_run() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = StatusFile::start(&folder.path().join("missing")).expect("a thread");
        file.on_event(
            Timestamp::now(),
            &RunEvent::DeviceReserved { device: 0, reason: "it is paused".to_owned() },
        );
        drop(file);
        assert_eq!(RunStatusFile::load(&folder.path().join("missing")), None);
    }
}
