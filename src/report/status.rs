//! `status.json` in the folder of a run: what it does now, for `npubench status` in another terminal.
//!
//! Written by a thread of its own, so that a slow disk does not keep the run waiting: at most once a second, at
//! least every ten, and at the end; by rename and without sync, for it says nothing that a power loss should keep.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{RunState, Timestamp, recorder::report_write_error};
use crate::{events::RunEvent, files::LockOwner};

const FILE: &str = "status.json";
/// Two writes are so far apart.
const SHORTEST: Duration = Duration::from_secs(1);
/// Written so often also where nothing happens: its age tells whether the run lives.
const LONGEST: Duration = Duration::from_secs(10);

/// What a run says of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunStatusFile {
    /// When it said so.
    pub written: Timestamp,
    /// The process.
    pub process: u32,
    /// Its host.
    pub host: String,
    /// What it does.
    #[serde(flatten)]
    pub board: RunState,
}

impl RunStatusFile {
    /// Reads what a run said last; `None` where it said nothing that can be read.
    #[must_use]
    pub fn read(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(folder.join(FILE)).ok()?).ok()
    }

    /// Who said so.
    #[must_use]
    pub fn owner(&self) -> LockOwner {
        LockOwner { process: self.process, host: self.host.clone() }
    }
}

/// Keeps the file true while the run goes on.
#[derive(Debug)]
pub(super) struct StatusFile {
    events: Option<Sender<(Timestamp, RunEvent)>>,
    thread: Option<JoinHandle<()>>,
}

impl StatusFile {
    pub(super) fn start(folder: &Path) -> io::Result<Self> {
        let (events, inbox) = mpsc::channel::<(Timestamp, RunEvent)>();
        let mut writer = StatusWriter::new(folder);
        let work = move || {
            loop {
                match inbox.recv_timeout(writer.patience()) {
                    Ok((now, event)) => writer.note(now, &event),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
                if writer.patience().is_zero() {
                    writer.write();
                }
            }
            writer.write();
        };
        let thread = thread::Builder::new().name("status".to_owned()).spawn(work)?;
        Ok(Self { events: Some(events), thread: Some(thread) })
    }

    pub(super) fn update(&self, now: Timestamp, event: &RunEvent) {
        if let Some(events) = &self.events {
            // The thread ends only when this sender is dropped.
            let _ = events.send((now, event.clone()));
        }
    }
}

impl Drop for StatusFile {
    fn drop(&mut self) {
        self.events = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct StatusWriter {
    path: PathBuf,
    draft: PathBuf,
    owner: LockOwner,
    board: RunState,
    is_stale: bool,
    written: Option<Instant>,
    has_failed: bool,
}

impl StatusWriter {
    fn new(folder: &Path) -> Self {
        Self {
            path: folder.join(FILE),
            draft: folder.join(format!(".{FILE}.tmp")),
            owner: LockOwner::this_process(),
            board: RunState::default(),
            is_stale: false,
            written: None,
            has_failed: false,
        }
    }

    fn note(&mut self, now: Timestamp, event: &RunEvent) {
        self.board.on_event(now, event);
        self.is_stale = true;
    }

    /// How long until it must be written again.
    fn patience(&self) -> Duration {
        let step = if self.is_stale { SHORTEST } else { LONGEST };
        match self.written {
            Some(written) => step.saturating_sub(written.elapsed()),
            None if self.is_stale => Duration::ZERO,
            None => LONGEST,
        }
    }

    fn write(&mut self) {
        self.written = Some(Instant::now());
        self.is_stale = false;
        // A run that has not begun has nothing to say.
        if self.board.run.is_empty() {
            return;
        }
        let LockOwner { process, host } = self.owner.clone();
        let status = RunStatusFile { written: Timestamp::now(), process, host, board: self.board.clone() };
        let written = serde_json::to_vec(&status)
            .map_err(io::Error::from)
            .and_then(|text| fs::write(&self.draft, text))
            .and_then(|()| fs::rename(&self.draft, &self.path));
        if let Err(error) = written
            && !std::mem::replace(&mut self.has_failed, true)
        {
            report_write_error(&self.path, &error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::DataKind;

    #[test]
    fn the_last_word_is_in_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let started = RunEvent::RunStarted {
            run: "r".to_owned(),
            kind: DataKind::Npu,
            cases: 2,
            refused: 0,
            already_measured: 0,
            devices: vec![0, 1],
            resumed: false,
            budget_s: None,
        };
        let file = StatusFile::start(folder.path()).expect("a thread");
        file.update(Timestamp::now(), &started);
        for device in [0, 1, 0] {
            file.update(
                Timestamp::now(),
                &RunEvent::DeviceReserved { device, reason: "it is paused".to_owned() },
            );
        }
        drop(file);
        let status = RunStatusFile::read(folder.path()).expect("it is there");
        assert_eq!(status.owner(), LockOwner::this_process());
        assert!(status.board.devices.iter().all(|line| line.is_paused));
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 1, "no draft is left");
    }

    #[test]
    fn a_folder_that_is_gone_stops_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = StatusFile::start(&folder.path().join("gone")).expect("a thread");
        file.update(
            Timestamp::now(),
            &RunEvent::DeviceReserved { device: 0, reason: "it is paused".to_owned() },
        );
        drop(file);
        assert_eq!(RunStatusFile::read(&folder.path().join("gone")), None);
    }
}
