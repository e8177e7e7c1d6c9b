//! State of a run, computed from its events, for the progress display; and `status.json` in the folder of the run, which has it for
//! `npubench status` in another terminal.
//!
//! A separate thread writes the file, so that a slow disk does not delay the run: at most once per second, at least every ten
//! seconds, and at the end. The file is renamed into place without sync, since it is of no use after a power loss.

use std::{
    collections::{BTreeMap, HashMap},
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
        files::{FileError, LockOwner, MAX_DOCUMENT, read_regular},
        print::report_first_error,
        worker_thread::WorkerThread,
    },
    kernel::{CaseId, CollectionPurpose, DataKind, KernelName, Verdict, timestamp::Timestamp},
    measure::events::RunEvent,
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RunPhase {
    /// Collections run, or wait for a device.
    #[default]
    Running,
    /// A stop was requested; running collections may end.
    Stopping,
    Ended,
}

#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, strum::Display, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub(crate) enum DeviceActivity {
    /// No collection, for now.
    #[default]
    Idle,
    Running,
    /// Nothing: it did not work and is tried again later, or not in this run.
    Paused,
    /// Nothing: it is reserved for others.
    Reserved,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub(crate) struct RunningCollection {
    /// Number of the collection in the run, from 1.
    pub number: u32,
    pub purpose: CollectionPurpose,
    pub kernels: Vec<KernelName>,
    pub cases: usize,
    /// The case, if the collection has only one.
    pub case: Option<CaseId>,
    pub started: Timestamp,
    pub predicted_s: f64,
    pub predicted_end: Timestamp,
}

/// A reading of the state of a device by `npu-smi`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub(crate) struct DeviceSnapshot {
    pub at: Timestamp,
    /// Health as printed by `npu-smi`; `OK` if healthy.
    pub health: String,
    pub temperature_c: Option<i64>,
    pub power_w: Option<f64>,
}

/// State of a device of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub(crate) struct DeviceStatus {
    pub device: u32,
    pub state: DeviceActivity,
    /// True if no new collection is started on the device: it is reserved by `npubench pause`, in use by other programs,
    /// unhealthy or no longer listed.
    pub reserved: bool,
    pub reason: Option<String>,
    /// Time at which a device that failed is tried again.
    pub retry_at: Option<Timestamp>,
    pub collection: Option<RunningCollection>,
    /// Number of collections that have ended on the device.
    pub collections: usize,
    /// Number of cases of these collections.
    pub cases: usize,
    /// Cases per minute of collection time.
    pub cases_per_minute: Option<f64>,
    pub reading: Option<DeviceSnapshot>,
    #[serde(skip)]
    pub(crate) busy_seconds: f64,
    /// Reason of a pause, and its end; without an end for a device that is excluded.
    #[serde(skip)]
    pub(crate) pause: Option<(String, Option<Timestamp>)>,
    #[serde(skip)]
    pub(crate) reservation: Option<String>,
}

impl DeviceStatus {
    pub(super) fn is_paused(&self) -> bool {
        self.pause.is_some() || self.state == DeviceActivity::Paused
    }

    fn update_activity(&mut self) {
        let pause = self.pause.as_ref();
        self.state = match (&self.collection, pause) {
            (Some(_), _) => DeviceActivity::Running,
            (None, Some((_, None))) => DeviceActivity::Paused,
            _ if self.reserved => DeviceActivity::Reserved,
            (None, Some(_)) => DeviceActivity::Paused,
            (None, None) => DeviceActivity::Idle,
        };
        let of_pause = pause.map(|(reason, _)| reason.clone());
        let of_reservation = self.reservation.clone().filter(|_| self.state != DeviceActivity::Paused);
        self.reason = of_reservation.or(of_pause);
        self.retry_at = pause.and_then(|(_, until)| *until).filter(|_| !self.reserved);
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub(crate) struct RunState {
    pub run: String,
    /// Kind of the durations: measured or simulated.
    pub kind: Option<DataKind>,
    pub phase: RunPhase,
    /// Start of the run, or of its last continuation.
    pub started: Timestamp,
    /// Time at which everything must have ended.
    pub deadline: Option<Timestamp>,
    /// Number of cases to measure.
    pub cases: usize,
    /// Number of these cases with a verdict.
    pub done: usize,
    /// Number of these cases without a verdict.
    pub open: usize,
    /// Number of open cases that will have no verdict before the deadline.
    pub not_in_time: usize,
    /// Time at which the other open cases will have a verdict.
    pub eta: Option<Timestamp>,
    /// Cases with a verdict per minute since the first collection.
    pub cases_per_minute: Option<f64>,
    /// Number of cases by verdict, including cases that were not launched.
    pub verdicts: BTreeMap<Verdict, usize>,
    pub disk_full: bool,
    /// True while a result cannot be stored in the ledger.
    #[serde(default)]
    pub ledger_waiting: bool,
    pub devices: Vec<DeviceStatus>,
    /// Start of the first collection.
    #[serde(skip)]
    pub(crate) launched: Option<Timestamp>,
    /// Verdict of each case that has one, and true if it counts as done: those before the first collection do not. A case whose
    /// verdict changes, such as by another collection, is finished again.
    #[serde(skip)]
    pub(crate) finished: HashMap<CaseId, (Verdict, bool)>,
}

impl RunState {
    pub(crate) fn on_event(&mut self, now: Timestamp, event: &RunEvent) {
        match event {
            RunEvent::RunStarted { run, kind, cases, devices, budget_s, .. } => {
                let line = |&device| DeviceStatus { device, ..DeviceStatus::default() };
                *self = Self {
                    run: run.clone(),
                    kind: Some(*kind),
                    started: now,
                    deadline: budget_s.map(|budget| now.plus_seconds(budget)),
                    cases: *cases,
                    open: *cases,
                    devices: devices.iter().map(line).collect(),
                    ..Self::default()
                };
            }
            RunEvent::CaseFinished { case, outcome, .. } => {
                self.reopen_case(case);
                let is_done = self.launched.is_some() && outcome.verdict != Verdict::NotRun;
                self.finished.insert(case.clone(), (outcome.verdict, is_done));
                *self.verdicts.entry(outcome.verdict).or_default() += 1;
                if let Some(launched) = self.launched.filter(|_| is_done) {
                    self.done += 1;
                    self.open = self.cases.saturating_sub(self.done);
                    self.cases_per_minute = cases_per_minute(self.done, now.seconds_since(launched));
                }
            }
            RunEvent::MeasurementsWithdrawn { case_ids, .. } => {
                case_ids.iter().for_each(|case| self.reopen_case(case));
                self.open = self.cases.saturating_sub(self.done);
            }
            RunEvent::Progress { open, in_time, seconds } => {
                self.open = *open;
                self.not_in_time = open.saturating_sub(*in_time);
                // If there is no device or no disk space, there is no forecast.
                self.eta = (!self.is_waiting()).then(|| now.plus_seconds(*seconds));
            }
            RunEvent::DiskFull { .. } => self.disk_full = true,
            RunEvent::DiskFreed { .. } => self.disk_full = false,
            RunEvent::LedgerWaiting { .. } => self.ledger_waiting = true,
            RunEvent::LedgerWritable { .. } => self.ledger_waiting = false,
            RunEvent::StopRequested { .. } => self.phase = RunPhase::Stopping,
            RunEvent::RunFinished { .. } => {
                self.phase = RunPhase::Ended;
                self.eta = None;
            }
            other => self.on_device_event(now, other),
        }
    }

    fn reopen_case(&mut self, case: &CaseId) {
        let Some((verdict, was_done)) = self.finished.remove(case) else { return };
        let known = self.verdicts.entry(verdict).or_default();
        *known = known.saturating_sub(1);
        self.verdicts.retain(|_, count| *count > 0);
        self.done -= usize::from(was_done);
    }

    pub(crate) fn is_waiting(&self) -> bool {
        let is_idle = self.devices.iter().all(|line| line.collection.is_none());
        let has_device = self.devices.iter().any(|line| !line.reserved && !line.is_paused());
        !self.devices.is_empty() && is_idle && (self.disk_full || self.ledger_waiting || !has_device)
    }

    fn on_device_event(&mut self, now: Timestamp, event: &RunEvent) {
        match event {
            RunEvent::CollectionStarted {
                collection,
                devices,
                cases,
                case,
                kernels,
                purpose,
                predicted_s,
            } => {
                self.launched.get_or_insert(now);
                let current = RunningCollection {
                    number: *collection,
                    purpose: *purpose,
                    kernels: kernels.clone(),
                    cases: *cases,
                    case: case.clone(),
                    started: now,
                    predicted_s: *predicted_s,
                    predicted_end: now.plus_seconds(*predicted_s),
                };
                self.update_devices(devices, |line| line.collection = Some(current.clone()));
            }
            RunEvent::CollectionFinished { devices, seconds, .. } => self.update_devices(devices, |line| {
                line.collections += 1;
                line.cases += line.collection.take().map_or(0, |current| current.cases);
                line.busy_seconds += seconds;
                line.cases_per_minute = cases_per_minute(line.cases, line.busy_seconds);
            }),
            RunEvent::DevicePaused { device, reason, retry_in_s } => {
                let until = retry_in_s.map(|seconds| now.plus_seconds(seconds));
                self.update_devices(&[*device], |line| line.pause = Some((reason.clone(), until)));
            }
            RunEvent::DeviceReadmitted { device } => {
                self.update_devices(&[*device], |line| line.pause = None);
            }
            RunEvent::DeviceReserved { device, reason } => self.update_devices(&[*device], |line| {
                (line.reserved, line.reservation) = (true, Some(reason.clone()));
            }),
            RunEvent::DeviceReleased { device } => self.update_devices(&[*device], |line| {
                (line.reserved, line.reservation) = (false, None);
            }),
            RunEvent::DeviceRead { device, health, temperature_c, power_w, .. } => {
                self.update_devices(&[*device], |line| {
                    line.reading = Some(DeviceSnapshot {
                        at: now,
                        health: health.clone(),
                        temperature_c: *temperature_c,
                        power_w: *power_w,
                    });
                });
            }
            _ => {}
        }
    }

    fn update_devices(&mut self, devices: &[u32], change: impl Fn(&mut DeviceStatus)) {
        for line in self.devices.iter_mut().filter(|line| devices.contains(&line.device)) {
            change(line);
            line.update_activity();
        }
    }
}

fn cases_per_minute(cases: usize, seconds: f64) -> Option<f64> {
    (seconds > 0.0).then(|| cases as f64 * 60.0 / seconds)
}

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
    /// Reads the status file in the folder of a run; `None` without one.
    pub(crate) fn load(folder: &Path) -> Result<Option<Self>, FileError> {
        let path = folder.join(FILE);
        let read = match read_regular(&path, MAX_DOCUMENT) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.and_then(|text| serde_json::from_slice(&text).map_err(io::Error::from)),
        };
        read.map(Some).map_err(FileError::io("read", &path))
    }

    pub(crate) fn lock_owner(&self) -> LockOwner {
        LockOwner { process: self.process, host: self.host.clone() }
    }
}

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
    use crate::kernel::{CaseOutcome, Nanos};

    fn started(devices: &[u32]) -> RunEvent {
        RunEvent::RunStarted {
            run: "r".to_owned(),
            kind: DataKind::Rehearsal,
            cases: 4,
            not_launched: 1,
            already_measured: 0,
            devices: devices.to_vec(),
            resumed: false,
            budget_s: Some(100.0),
        }
    }

    fn finished(case: &str, verdict: Verdict) -> RunEvent {
        RunEvent::CaseFinished {
            case: CaseId::from_stored(case),
            kernel: KernelName::new("Add").expect("a name"),
            shapes: String::new(),
            outcome: CaseOutcome::new(verdict, ""),
        }
    }

    fn collection(number: u32, devices: &[u32]) -> RunEvent {
        RunEvent::CollectionStarted {
            collection: number,
            devices: devices.to_vec(),
            cases: 3,
            case: None,
            kernels: Vec::new(),
            purpose: CollectionPurpose::Measure,
            predicted_s: 10.0,
        }
    }

    #[test]
    fn reserved_device_is_shown_as_such_after_its_collection_has_ended() {
        let (mut state, start) = (RunState::default(), Timestamp(Nanos(1_000_000_000)));
        let (mut states, mut reasons) = (Vec::new(), Vec::new());
        let end = RunEvent::CollectionFinished {
            collection: 1,
            devices: vec![3],
            purpose: CollectionPurpose::Measure,
            outcome: "done".to_owned(),
            seconds: 6.0,
        };
        let aside = RunEvent::DevicePaused { device: 3, reason: "ill".to_owned(), retry_in_s: Some(60.0) };
        let events = [
            started(&[3, 5]),
            collection(1, &[3]),
            RunEvent::DeviceReserved { device: 3, reason: "it is paused".to_owned() },
            end,
            aside,
            RunEvent::DeviceReleased { device: 3 },
            RunEvent::DeviceReadmitted { device: 3 },
        ];
        for event in &events {
            state.on_event(start, event);
            states.push(state.devices[0].state.to_string());
            reasons.push(state.devices[0].reason.clone());
        }
        assert_eq!(states, ["idle", "running", "running", "reserved", "reserved", "paused", "idle"]);
        assert_eq!(
            reasons[3..],
            [Some("it is paused"), Some("it is paused"), Some("ill"), None]
                .map(|text| text.map(str::to_owned))
        );
        assert_eq!((state.devices[0].cases, state.devices[0].cases_per_minute), (3, Some(30.0)));
        assert_eq!(state.devices[1], DeviceStatus { device: 5, ..DeviceStatus::default() });
    }

    #[test]
    fn excluded_device_is_shown_as_such_although_it_is_reserved() {
        let (mut state, start) = (RunState::default(), Timestamp(Nanos(1_000_000_000)));
        let paused = |retry_in_s| RunEvent::DevicePaused { device: 3, reason: "lost".to_owned(), retry_in_s };
        let mut shown = |events: &[RunEvent]| {
            events.iter().for_each(|event| state.on_event(start, event));
            let device = &state.devices[0];
            (device.state, device.reason.clone().unwrap_or_default(), device.retry_at.is_some())
        };
        let reserved = RunEvent::DeviceReserved { device: 3, reason: "not listed".to_owned() };
        let found = shown(&[started(&[3]), paused(Some(60.0))]);
        assert_eq!(found, (DeviceActivity::Paused, "lost".to_owned(), true));
        assert_eq!(shown(&[reserved]), (DeviceActivity::Reserved, "not listed".to_owned(), false));
        assert_eq!(shown(&[paused(None)]), (DeviceActivity::Paused, "lost".to_owned(), false));
    }

    #[test]
    fn run_without_a_usable_device_has_no_predicted_end() {
        let (mut state, start) = (RunState::default(), Timestamp(Nanos(0)));
        let progress = RunEvent::Progress { open: 4, in_time: 4, seconds: 15.0 };
        let reserved = |device| RunEvent::DeviceReserved { device, reason: "it is paused".to_owned() };
        let paused = RunEvent::DevicePaused { device: 5, reason: "ill".to_owned(), retry_in_s: Some(60.0) };
        let mut eta = |events: &[RunEvent]| {
            events.iter().for_each(|event| state.on_event(start, event));
            (state.is_waiting(), state.eta.is_some())
        };
        assert_eq!(eta(&[started(&[3, 5]), progress.clone()]), (false, true));
        assert_eq!(eta(&[reserved(3), paused, progress.clone()]), (true, false));
        assert_eq!(eta(&[RunEvent::DeviceReleased { device: 3 }, progress]), (false, true));
    }

    #[test]
    fn only_launched_cases_count_as_done() {
        let (mut state, start) = (RunState::default(), Timestamp(Nanos(0)));
        state.on_event(start, &started(&[0]));
        state.on_event(start, &finished("a", Verdict::Unsupported));
        state.on_event(start, &collection(1, &[0]));
        state.on_event(start.plus_seconds(30.0), &finished("b", Verdict::Ok));
        state.on_event(start.plus_seconds(30.0), &RunEvent::Progress { open: 3, in_time: 2, seconds: 15.0 });
        state.on_event(start.plus_seconds(40.0), &finished("c", Verdict::NotRun));
        assert_eq!((state.cases, state.done, state.open, state.not_in_time), (4, 1, 3, 1));
        assert_eq!(state.eta, Some(start.plus_seconds(45.0)));
        assert_eq!(state.deadline, Some(start.plus_seconds(100.0)));
        assert_eq!(state.cases_per_minute, Some(2.0));
        let verdicts: Vec<_> = state.verdicts.values().sum::<usize>().to_string().chars().collect();
        assert_eq!(verdicts, ['3']);
        let text = serde_json::to_string(&state).expect("JSON");
        let back: RunState = serde_json::from_str(&text).expect("read back");
        assert_eq!(serde_json::to_string(&back).expect("JSON"), text);
    }

    /// A noisy case that is steady over further collections, and one whose result is withdrawn.
    #[test]
    fn cases_that_are_finished_again_are_counted_once() {
        let (mut state, start) = (RunState::default(), Timestamp(Nanos(0)));
        state.on_event(start, &started(&[0]));
        // The measurement of a resumed run, before its first collection.
        state.on_event(start, &finished("d", Verdict::Ok));
        state.on_event(start, &collection(1, &[0]));
        for (case, verdict) in [("a", Verdict::Noisy), ("b", Verdict::Ok), ("a", Verdict::Ok)] {
            state.on_event(start, &finished(case, verdict));
        }
        assert_eq!((state.done, state.open, state.verdicts.clone()), (2, 2, [(Verdict::Ok, 3)].into()));
        state.on_event(
            start,
            &RunEvent::MeasurementsWithdrawn {
                cases: 2,
                case_ids: ["b", "d"].map(CaseId::from_stored).to_vec(),
                verdicts: vec![(Verdict::Ok, 2)],
                reason: "a low clock".to_owned(),
            },
        );
        assert_eq!((state.done, state.open, state.verdicts.clone()), (1, 3, [(Verdict::Ok, 1)].into()));
        state.on_event(start, &finished("b", Verdict::Throttled));
        assert_eq!((state.done, state.open), (2, 2));
    }
}

#[cfg(test)]
mod file_tests {
    use super::*;

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
        let status = RunStatusFile::load(folder.path()).expect("readable").expect("a status file");
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
        assert_eq!(RunStatusFile::load(&folder.path().join("missing")).expect("readable"), None);
    }
}
