//! Files that a run writes into its folder for users: events, status, logs named by case, and `npubench.log`, from which a night can
//! be replayed on paper: it has the decisions of the scheduler, programs with their arguments and ends, the verdicts of each
//! collection, and writes of tables.
//!
//! They are derived: the ledger has the results. What cannot be written is kept and written later, such as after a full
//! disk has space again; the first problem of a file is reported.

use std::{
    collections::{BTreeMap, VecDeque},
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::Mutex,
};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tracing::Level;

use crate::{
    base::print::{report_first_error, report_write_error},
    database::collection_path,
    kernel::{CaseId, render::files, timestamp::Timestamp},
    measure::{
        events::{EventSink, RunEvent},
        run_state::StatusFile,
    },
};

pub(crate) const EVENTS: &str = "events.jsonl";
const LOGS: &str = "logs";

pub(crate) struct RunRecorder {
    screen: Box<dyn EventSink>,
    events: Option<EventsFile>,
    status: Option<StatusFile>,
    logs: CaseLogs,
}

impl RunRecorder {
    pub(crate) fn new(screen: Box<dyn EventSink>, folder: &Path, earlier: &[(CaseId, u32)]) -> Self {
        let created = fs::create_dir_all(folder);
        let path = folder.join(EVENTS);
        let events = created.and_then(|()| EventsFile::open(&path));
        let events = events.inspect_err(|error| report_write_error(&path, error)).ok();
        let status = StatusFile::start(folder).inspect_err(|error| report_write_error(folder, error)).ok();
        let mut logs = CaseLogs { folder: folder.to_owned(), ..CaseLogs::default() };
        earlier.iter().for_each(|(case, collection)| logs.add_attempt(case, *collection));
        Self { screen, events, status, logs }
    }
}

impl EventSink for RunRecorder {
    fn on_event(&mut self, event: &RunEvent) {
        let now = Timestamp::now();
        if let Some(events) = &mut self.events {
            events.on_event(now, event);
        }
        if let Some(status) = &self.status {
            status.on_event(now, event);
        }
        self.logs.on_event(event);
        self.screen.on_event(event);
    }
}

struct EventsFile {
    file: File,
    path: PathBuf,
    /// Length of the file after its last complete line; `None` if that line is incomplete.
    complete: Option<u64>,
    pending: VecDeque<String>,
    has_failed: bool,
}

/// Maximum number of lines kept while the disk is full; older ones are dropped.
const MAX_PENDING: usize = 100_000;

#[derive(Serialize)]
struct RecordedEvent<'a> {
    at: Timestamp,
    #[serde(flatten)]
    event: &'a RunEvent,
}

impl EventsFile {
    fn open(path: &Path) -> io::Result<Self> {
        let mut file = File::options().read(true).append(true).create(true).open(path)?;
        // A power loss may have truncated the last line.
        let mut last = *b"\n";
        let length = file.metadata()?.len();
        if length > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        Ok(Self {
            file,
            path: path.to_owned(),
            complete: (last == *b"\n").then_some(length),
            pending: VecDeque::new(),
            has_failed: false,
        })
    }

    fn on_event(&mut self, at: Timestamp, event: &RunEvent) {
        let line = serde_json::to_string(&RecordedEvent { at, event }).expect("events have text keys");
        self.pending.push_back(line);
        if self.pending.len() > MAX_PENDING {
            self.pending.pop_front();
        }
        let written = self.write_pending();
        report_first_error(written, &self.path, &mut self.has_failed);
    }

    fn write_pending(&mut self) -> io::Result<()> {
        while let Some(line) = self.pending.front() {
            let before = if self.complete.is_some() { "" } else { "\n" };
            let text = format!("{before}{line}\n");
            // One system call for each line, so that the file of a killed run has every event.
            if let Err(error) = self.file.write_all(text.as_bytes()) {
                // A full disk may have taken a part of the line.
                self.complete = self.complete.filter(|complete| self.file.set_len(*complete).is_ok());
                return Err(error);
            }
            self.complete = Some(self.file.metadata()?.len());
            self.pending.pop_front();
        }
        Ok(())
    }
}

pub(crate) fn collection_log(collection: u32) -> PathBuf {
    collection_path(collection).join(files::LOG)
}

pub(crate) fn case_log(case: &CaseId, collection: u32) -> PathBuf {
    Path::new(LOGS).join(format!("{case}.{collection}.log"))
}

#[derive(Default)]
struct CaseLogs {
    folder: PathBuf,
    attempts: BTreeMap<CaseId, Vec<u32>>,
    pending: Vec<(CaseId, u32)>,
    has_failed: bool,
}

impl CaseLogs {
    fn add_attempt(&mut self, case: &CaseId, collection: u32) {
        self.attempts.entry(case.clone()).or_default().push(collection);
    }

    fn on_event(&mut self, event: &RunEvent) {
        match event {
            RunEvent::CaseAttempted { case, collection, .. } => self.add_attempt(case, *collection),
            RunEvent::CaseFinished { case, outcome, .. } => {
                let collections = self.attempts.remove(case).unwrap_or_default();
                if outcome.verdict.is_done() {
                    return;
                }
                self.pending.extend(collections.into_iter().map(|collection| (case.clone(), collection)));
                self.link_pending();
            }
            RunEvent::DiskFreed { .. } | RunEvent::RunFinished { .. } => self.link_pending(),
            _ => {}
        }
    }

    fn link_pending(&mut self) {
        for (case, collection) in std::mem::take(&mut self.pending) {
            let linked = self.link_log(&case, collection);
            if linked.is_err() {
                self.pending.push((case, collection));
            }
            report_first_error(linked, &self.folder.join(LOGS), &mut self.has_failed);
        }
    }

    fn link_log(&self, case: &CaseId, collection: u32) -> io::Result<()> {
        fs::create_dir_all(self.folder.join(LOGS))?;
        let target = Path::new("..").join(collection_log(collection));
        match symlink(target, self.folder.join(case_log(case, collection))) {
            // A resumed run may have created it before its interruption.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        }
    }
}

pub(crate) const LOG_FILE: &str = "npubench.log";

/// File of the present run; a command may have several runs, one after the other.
static FILE: Mutex<Option<File>> = Mutex::new(None);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogLevel {
    /// Decisions, programs, verdicts of collections, and writes.
    #[default]
    Info,
    /// Also the events on which the scheduler decides, with the outcomes of all cases.
    Debug,
}

/// Directs the log to the folder of a run, which is created. The first call of a process decides on the detail.
pub(crate) fn start_log(folder: &Path, level: LogLevel) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let file = OpenOptions::new().create(true).append(true).open(folder.join(LOG_FILE))?;
    *FILE.lock().expect("no writer panics") = Some(file);
    let level = match level {
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
    };
    let log = tracing_subscriber::fmt().with_max_level(level).with_ansi(false).with_target(false);
    // A full disk must not fill the screen: the events have what the log lacks.
    let log = log.log_internal_errors(false);
    // It is there from the second run of a command on.
    let _ = log.with_writer(log_writer).try_init();
    Ok(())
}

fn log_writer() -> Box<dyn Write> {
    match FILE.lock().expect("no writer panics").as_ref().and_then(|file| file.try_clone().ok()) {
        Some(file) => Box::new(file),
        None => Box::new(io::sink()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{CaseOutcome, KernelName, Verdict};

    struct NullSink;

    impl EventSink for NullSink {
        fn on_event(&mut self, _: &RunEvent) {}
    }

    fn record_events(folder: &Path, earlier: &[(CaseId, u32)], events: &[RunEvent]) {
        let mut sink = RunRecorder::new(Box::new(NullSink), folder, earlier);
        events.iter().for_each(|event| sink.on_event(event));
    }

    #[test]
    fn events_after_a_truncated_line_start_on_a_new_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(EVENTS);
        record_events(
            folder.path(),
            &[],
            &[RunEvent::DeviceReserved { device: 1, reason: "it is paused".to_owned() }],
        );
        let whole = fs::read_to_string(&path).expect("readable");
        fs::write(&path, format!("{whole}{{\"at\":\"20")).expect("written");
        record_events(folder.path(), &[], &[RunEvent::DeviceReleased { device: 1 }]);
        let text = fs::read_to_string(&path).expect("readable");
        let lines: Vec<Result<serde_json::Value, _>> = text.lines().map(serde_json::from_str).collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[1].is_err());
        let names = [0, 2].map(|line| lines[line].as_ref().expect("JSON")["event"].clone());
        assert_eq!(names, ["device_reserved", "device_released"]);
    }

    #[test]
    fn screen_gets_events_although_files_cannot_be_written() {
        struct CountingSink(std::rc::Rc<std::cell::Cell<u32>>);
        impl EventSink for CountingSink {
            fn on_event(&mut self, _: &RunEvent) {
                self.0.set(self.0.get() + 1);
            }
        }
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join(EVENTS)).expect("created");
        let count = std::rc::Rc::default();
        let mut sink =
            RunRecorder::new(Box::new(CountingSink(std::rc::Rc::clone(&count))), folder.path(), &[]);
        sink.on_event(&RunEvent::DeviceReserved { device: 0, reason: "it is paused".to_owned() });
        sink.on_event(&RunEvent::DeviceReleased { device: 0 });
        drop(sink);
        assert_eq!(count.get(), 2);
    }

    #[test]
    fn only_cases_with_a_verdict_other_than_ok_get_log_links() {
        let folder = tempfile::tempdir().expect("a folder");
        let (good, bad) = (CaseId::from_stored("good"), CaseId::from_stored("bad"));
        let attempted = |case: &CaseId, collection| RunEvent::CaseAttempted {
            case: case.clone(),
            collection,
            outcome: CaseOutcome::new(Verdict::Hung, ""),
        };
        let finished = |case: &CaseId, verdict| RunEvent::CaseFinished {
            case: case.clone(),
            kernel: KernelName::new("Add").expect("a name"),
            shapes: String::new(),
            outcome: CaseOutcome::new(verdict, ""),
        };
        let events = [
            attempted(&good, 1),
            attempted(&bad, 2),
            attempted(&good, 3),
            finished(&good, Verdict::Ok),
            finished(&bad, Verdict::Hung),
        ];
        let log = folder.path().join(collection_log(2));
        fs::create_dir_all(log.parent().expect("a folder")).expect("created");
        fs::write(&log, "output of the script").expect("written");
        record_events(folder.path(), &[(bad.clone(), 1)], &events);
        let names = fs::read_dir(folder.path().join(LOGS)).expect("listed");
        let mut names: Vec<_> = names.map(|entry| entry.expect("listed").file_name()).collect();
        names.sort();
        assert_eq!(names, ["bad.1.log", "bad.2.log"]);
        let linked = fs::read_to_string(folder.path().join(case_log(&bad, 2))).expect("a valid link");
        assert_eq!(linked, "output of the script");
    }
}
