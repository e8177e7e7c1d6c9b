//! What a run leaves in its folder for whoever asks: all events, its state, logs named by case.
//!
//! None of it decides anything: the ledger has the results. A file that cannot be written is said once, and the
//! run goes on without it.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use serde::Serialize;

use super::{EventSink, Timestamp, print_note, status::StatusFile};
use crate::{
    domain::{CaseId, Verdict},
    events::RunEvent,
    render::files,
};

/// Every event of a run, a line of JSON each.
const EVENTS: &str = "events.jsonl";
/// Logs of cases that did not end well.
const LOGS: &str = "logs";

/// Everything that a run leaves in its folder, beside what the user sees on the screen.
pub struct RunRecorder {
    screen: Box<dyn EventSink>,
    events: Option<EventsFile>,
    status: Option<StatusFile>,
    logs: CaseLogs,
}

impl RunRecorder {
    /// Keeps what happens in the folder of a run, and passes it on to the screen. `earlier` is what an
    /// interrupted run has tried already: cases and the numbers of their collections.
    pub fn new(screen: Box<dyn EventSink>, folder: &Path, earlier: &[(CaseId, u32)]) -> Self {
        let made = fs::create_dir_all(folder);
        let path = folder.join(EVENTS);
        let events = made.and_then(|()| EventsFile::open(&path));
        let events = events.inspect_err(|error| report_write_error(&path, error)).ok();
        let status = StatusFile::start(folder).inspect_err(|error| report_write_error(folder, error)).ok();
        let mut logs = CaseLogs { folder: folder.to_owned(), attempts: BTreeMap::new(), has_failed: false };
        earlier.iter().for_each(|(case, collection)| logs.note(case, *collection));
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
            status.update(now, event);
        }
        self.logs.on_event(event);
        self.screen.on_event(event);
    }
}

pub(super) fn report_write_error(path: &Path, error: &io::Error) {
    print_note(&format!("warning: cannot write `{}`: {error}; the run goes on without it", path.display()));
}

/// The file of all events. A run that goes on appends to it.
struct EventsFile {
    file: File,
    path: PathBuf,
    /// Whether the last line is not whole, so that the next one must not join it.
    is_cut: bool,
    has_failed: bool,
}

#[derive(Serialize)]
struct RecordedEvent<'a> {
    at: Timestamp,
    #[serde(flatten)]
    event: &'a RunEvent,
}

impl EventsFile {
    fn open(path: &Path) -> io::Result<Self> {
        let mut file = File::options().read(true).append(true).create(true).open(path)?;
        // A power loss may have cut the last line.
        let mut last = *b"\n";
        if file.metadata()?.len() > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        Ok(Self { file, path: path.to_owned(), is_cut: last != *b"\n", has_failed: false })
    }

    /// What does not go onto a full disk is lost here, not in the ledger; what comes when there is room again is kept.
    fn on_event(&mut self, at: Timestamp, event: &RunEvent) {
        let written = self.write(at, event);
        self.is_cut = written.is_err();
        if let Err(error) = written
            && !std::mem::replace(&mut self.has_failed, true)
        {
            report_write_error(&self.path, &error);
        }
    }

    /// One call to the system for each line, so that a killed run has all of them.
    fn write(&mut self, at: Timestamp, event: &RunEvent) -> io::Result<()> {
        let line = serde_json::to_string(&RecordedEvent { at, event })?;
        let before = if self.is_cut { "\n" } else { "" };
        self.file.write_all(format!("{before}{line}\n").as_bytes())
    }
}

/// Where the log of a collection is, in the folder of its run.
#[must_use]
pub(super) fn collection_log(collection: u32) -> PathBuf {
    ["collections", &format!("{collection:05}"), files::LOG].iter().collect()
}

/// The same by the name of a case, for those that did not end `ok`.
#[must_use]
pub(super) fn case_log(case: &CaseId, collection: u32) -> PathBuf {
    Path::new(LOGS).join(format!("{case}.{collection}.log"))
}

/// Links a case's name to the logs of its collections when its verdict is not `ok`.
struct CaseLogs {
    folder: PathBuf,
    /// Collections of cases without a verdict.
    attempts: BTreeMap<CaseId, Vec<u32>>,
    has_failed: bool,
}

impl CaseLogs {
    fn note(&mut self, case: &CaseId, collection: u32) {
        self.attempts.entry(case.clone()).or_default().push(collection);
    }

    fn on_event(&mut self, event: &RunEvent) {
        match event {
            RunEvent::CaseAttempted { case, collection, .. } => self.note(case, *collection),
            RunEvent::CaseFinished { case, outcome, .. } => {
                let collections = self.attempts.remove(case).unwrap_or_default();
                if outcome.verdict == Verdict::Ok {
                    return;
                }
                for collection in collections {
                    let linked = self.link(case, collection);
                    if let Err(error) = linked
                        && !std::mem::replace(&mut self.has_failed, true)
                    {
                        report_write_error(&self.folder.join(LOGS), &error);
                    }
                }
            }
            _ => {}
        }
    }

    fn link(&self, case: &CaseId, collection: u32) -> io::Result<()> {
        fs::create_dir_all(self.folder.join(LOGS))?;
        let target = Path::new("..").join(collection_log(collection));
        match symlink(target, self.folder.join(case_log(case, collection))) {
            // A run that goes on has it from before.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            done => done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{CaseOutcome, KernelName};

    struct Nothing;

    impl EventSink for Nothing {
        fn on_event(&mut self, _: &RunEvent) {}
    }

    fn tell(folder: &Path, earlier: &[(CaseId, u32)], events: &[RunEvent]) {
        let mut sink = RunRecorder::new(Box::new(Nothing), folder, earlier);
        events.iter().for_each(|event| sink.on_event(event));
    }

    #[test]
    fn a_cut_line_does_not_take_the_next_one_with_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(EVENTS);
        tell(
            folder.path(),
            &[],
            &[RunEvent::DeviceReserved { device: 1, reason: "it is paused".to_owned() }],
        );
        let whole = fs::read_to_string(&path).expect("there");
        fs::write(&path, format!("{whole}{{\"at\":\"20")).expect("written");
        tell(folder.path(), &[], &[RunEvent::DeviceReleased { device: 1 }]);
        let text = fs::read_to_string(&path).expect("there");
        let lines: Vec<Result<serde_json::Value, _>> = text.lines().map(serde_json::from_str).collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[1].is_err());
        let names = [0, 2].map(|line| lines[line].as_ref().expect("JSON")["event"].clone());
        assert_eq!(names, ["device_reserved", "device_released"]);
    }

    #[test]
    fn what_cannot_be_kept_does_not_keep_the_screen_from_events() {
        struct Count(std::rc::Rc<std::cell::Cell<u32>>);
        impl EventSink for Count {
            fn on_event(&mut self, _: &RunEvent) {
                self.0.set(self.0.get() + 1);
            }
        }
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join(EVENTS)).expect("made");
        let heard = std::rc::Rc::default();
        let mut sink = RunRecorder::new(Box::new(Count(std::rc::Rc::clone(&heard))), folder.path(), &[]);
        sink.on_event(&RunEvent::DeviceReserved { device: 0, reason: "it is paused".to_owned() });
        sink.on_event(&RunEvent::DeviceReleased { device: 0 });
        drop(sink);
        assert_eq!(heard.get(), 2);
    }

    #[test]
    fn only_cases_that_did_not_end_well_get_logs_of_their_own() {
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
        fs::create_dir_all(log.parent().expect("a folder")).expect("made");
        fs::write(&log, "what it said").expect("written");
        tell(folder.path(), &[(bad.clone(), 1)], &events);
        let names = fs::read_dir(folder.path().join(LOGS)).expect("listed");
        let mut names: Vec<_> = names.map(|entry| entry.expect("listed").file_name()).collect();
        names.sort();
        assert_eq!(names, ["bad.1.log", "bad.2.log"]);
        let through =
            fs::read_to_string(folder.path().join(case_log(&bad, 2))).expect("the link leads there");
        assert_eq!(through, "what it said");
    }
}
