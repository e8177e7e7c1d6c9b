//! What a run does at a moment, made from its events: behind the live table and the status file.
//!
//! Pure: events and the time come in, nothing is read or written.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Timestamp;
use crate::{
    domain::{CaseId, CollectionPurpose, DataKind, KernelName, Verdict},
    events::RunEvent,
};

/// How far a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunPhase {
    /// Collections run, or would if a device were there.
    #[default]
    Running,
    /// It was told to stop; what runs may end.
    Stopping,
    /// Everything is done and kept.
    Ended,
}

/// What a device does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceActivity {
    /// Nothing, for now.
    #[default]
    Idle,
    /// A collection.
    Running,
    /// Nothing: it does not work.
    #[serde(alias = "set_aside")]
    Quarantined,
    /// Nothing: it is lent to somebody else.
    #[serde(alias = "lent")]
    Reserved,
}

impl DeviceActivity {
    /// Its words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Running => "running",
            Self::Quarantined => "quarantined",
            Self::Reserved => "reserved",
        }
    }
}

/// A collection that runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunningCollection {
    /// Its number.
    pub number: u32,
    /// Why it was begun.
    pub purpose: CollectionPurpose,
    /// The kernels of its cases.
    pub kernels: Vec<KernelName>,
    /// Number of its cases.
    pub cases: usize,
    /// The case, where it is but one.
    pub case: Option<CaseId>,
    /// When it began.
    pub since: Timestamp,
    /// Seconds that it is predicted to take.
    pub predicted_s: f64,
    /// When it is predicted to end.
    pub predicted_end: Timestamp,
}

/// What a device said of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceSnapshot {
    /// When.
    pub at: Timestamp,
    /// In words.
    pub health: String,
    /// Degrees Celsius.
    pub temperature_c: Option<i64>,
    /// Watt.
    pub power_w: Option<f64>,
}

/// A device of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// Its number.
    pub device: u32,
    /// What it does.
    pub state: DeviceActivity,
    /// Whether nothing new begins on it: it is asked for, in use, ill or gone.
    pub is_paused: bool,
    /// Reason why it is quarantined or reserved.
    pub reason: Option<String>,
    /// When it is tried again.
    pub again: Option<Timestamp>,
    /// What runs on it.
    pub collection: Option<RunningCollection>,
    /// Collections that have ended on it.
    pub collections: usize,
    /// Cases of these.
    pub cases: usize,
    /// Cases a minute while one of these ran.
    pub cases_a_minute: Option<f64>,
    /// The last reading.
    pub reading: Option<DeviceSnapshot>,
    /// Seconds that its collections took.
    #[serde(skip)]
    pub(super) busy: f64,
    #[serde(skip)]
    pub(super) is_quarantined: bool,
}

impl DeviceStatus {
    fn settle(&mut self) {
        self.state = match self {
            Self { collection: Some(_), .. } => DeviceActivity::Running,
            Self { is_quarantined: true, .. } => DeviceActivity::Quarantined,
            Self { is_paused: true, .. } => DeviceActivity::Reserved,
            _ => DeviceActivity::Idle,
        };
    }
}

/// What a run does at a moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunState {
    /// The run.
    pub run: String,
    /// Measured or rehearsed.
    pub kind: Option<DataKind>,
    /// How far it is.
    pub phase: RunPhase,
    /// When it began, or went on.
    pub started: Timestamp,
    /// When everything must have ended.
    pub deadline: Option<Timestamp>,
    /// Cases to measure.
    pub cases: usize,
    /// Of these, the cases that have their verdict.
    pub done: usize,
    /// Of these, the cases that have none.
    pub open: usize,
    /// Of the open ones, those that will have none before the deadline.
    pub not_in_time: usize,
    /// When the others will have theirs.
    pub eta: Option<Timestamp>,
    /// Cases that got their verdict, a minute, since the first collection.
    pub cases_a_minute: Option<f64>,
    /// Cases by verdict, also those that were not launched.
    pub verdicts: BTreeMap<Verdict, usize>,
    /// Whether it waits for room on the disk.
    pub is_disk_full: bool,
    /// Its devices.
    pub devices: Vec<DeviceStatus>,
    #[serde(skip)]
    pub(super) launched: Option<Timestamp>,
}

impl RunState {
    /// Takes note of an event.
    pub fn on_event(&mut self, now: Timestamp, event: &RunEvent) {
        match event {
            RunEvent::RunStarted { run, kind, cases, devices, budget_s, .. } => {
                let line = |&device| DeviceStatus { device, ..DeviceStatus::default() };
                *self = Self {
                    run: run.clone(),
                    kind: Some(*kind),
                    started: now,
                    deadline: budget_s.map(|budget| now.after(budget)),
                    cases: *cases,
                    open: *cases,
                    devices: devices.iter().map(line).collect(),
                    ..Self::default()
                };
            }
            RunEvent::CaseFinished { outcome, .. } => {
                *self.verdicts.entry(outcome.verdict).or_default() += 1;
                if let Some(launched) = self.launched
                    && outcome.verdict != Verdict::NotRun
                {
                    self.done += 1;
                    self.open = self.cases.saturating_sub(self.done);
                    self.cases_a_minute = rate(self.done, now.since(launched));
                }
            }
            RunEvent::Progress { open, in_time, seconds } => {
                self.open = *open;
                self.not_in_time = open.saturating_sub(*in_time);
                self.eta = Some(now.after(*seconds));
            }
            RunEvent::DiskFull { .. } => self.is_disk_full = true,
            RunEvent::DiskFreed { .. } => self.is_disk_full = false,
            RunEvent::StopRequested { .. } => self.phase = RunPhase::Stopping,
            RunEvent::RunFinished { .. } => {
                self.phase = RunPhase::Ended;
                self.eta = None;
            }
            other => self.on_device_event(now, other),
        }
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
                    since: now,
                    predicted_s: *predicted_s,
                    predicted_end: now.after(*predicted_s),
                };
                self.change(devices, |line| line.collection = Some(current.clone()));
            }
            RunEvent::CollectionFinished { devices, seconds, .. } => self.change(devices, |line| {
                line.collections += 1;
                line.cases += line.collection.take().map_or(0, |current| current.cases);
                line.busy += seconds;
                line.cases_a_minute = rate(line.cases, line.busy);
            }),
            RunEvent::DeviceQuarantined { device, reason, retry_in_s } => self.change(&[*device], |line| {
                line.is_quarantined = true;
                line.reason = Some(reason.clone());
                line.again = retry_in_s.map(|seconds| now.after(seconds));
            }),
            RunEvent::DeviceReadmitted { device } => self.change(&[*device], |line| {
                line.is_quarantined = false;
                (line.reason, line.again) = (None, None);
            }),
            RunEvent::DeviceReserved { device, reason } => self.change(&[*device], |line| {
                line.is_paused = true;
                line.reason = Some(reason.clone());
            }),
            RunEvent::DeviceReleased { device } => self.change(&[*device], |line| {
                line.is_paused = false;
                line.reason = None;
            }),
            RunEvent::DeviceRead { device, health, temperature_c, power_w, .. } => {
                self.change(&[*device], |line| {
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

    fn change(&mut self, devices: &[u32], change: impl Fn(&mut DeviceStatus)) {
        for line in self.devices.iter_mut().filter(|line| devices.contains(&line.device)) {
            change(line);
            line.settle();
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a number of cases")]
fn rate(cases: usize, seconds: f64) -> Option<f64> {
    (seconds > 0.0).then(|| cases as f64 * 60.0 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{CaseOutcome, Nanos};

    fn started(devices: &[u32]) -> RunEvent {
        RunEvent::RunStarted {
            run: "r".to_owned(),
            kind: DataKind::Rehearsal,
            cases: 4,
            refused: 1,
            already_measured: 0,
            devices: devices.to_vec(),
            resumed: false,
            budget_s: Some(100.0),
        }
    }

    fn finished(verdict: Verdict) -> RunEvent {
        RunEvent::CaseFinished {
            case: CaseId::from_stored("c"),
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
    fn a_device_that_is_asked_for_is_lent_when_its_collection_has_ended() {
        let (mut board, start) = (RunState::default(), Timestamp(Nanos(1_000_000_000)));
        let mut states = Vec::new();
        let end = RunEvent::CollectionFinished {
            collection: 1,
            devices: vec![3],
            purpose: CollectionPurpose::Measure,
            outcome: "done".to_owned(),
            seconds: 6.0,
        };
        let aside =
            RunEvent::DeviceQuarantined { device: 3, reason: "ill".to_owned(), retry_in_s: Some(60.0) };
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
            board.on_event(start, event);
            states.push(board.devices[0].state.as_str());
        }
        assert_eq!(states, ["idle", "running", "running", "reserved", "quarantined", "quarantined", "idle"]);
        assert_eq!((board.devices[0].cases, board.devices[0].cases_a_minute), (3, Some(30.0)));
        assert_eq!(board.devices[1], DeviceStatus { device: 5, ..DeviceStatus::default() });
    }

    #[test]
    fn only_launched_cases_are_done() {
        let (mut board, start) = (RunState::default(), Timestamp(Nanos(0)));
        board.on_event(start, &started(&[0]));
        board.on_event(start, &finished(Verdict::Unsupported));
        board.on_event(start, &collection(1, &[0]));
        board.on_event(start.after(30.0), &finished(Verdict::Ok));
        board.on_event(start.after(30.0), &RunEvent::Progress { open: 3, in_time: 2, seconds: 15.0 });
        board.on_event(start.after(40.0), &finished(Verdict::NotRun));
        assert_eq!((board.cases, board.done, board.open, board.not_in_time), (4, 1, 3, 1));
        assert_eq!(board.eta, Some(start.after(45.0)));
        assert_eq!(board.deadline, Some(start.after(100.0)));
        assert_eq!(board.cases_a_minute, Some(2.0));
        let verdicts: Vec<_> = board.verdicts.values().sum::<usize>().to_string().chars().collect();
        assert_eq!(verdicts, ['3']);
        let text = serde_json::to_string(&board).expect("JSON");
        let back: RunState = serde_json::from_str(&text).expect("read back");
        assert_eq!(serde_json::to_string(&back).expect("JSON"), text);
    }

    #[test]
    fn device_states_of_the_previous_version_are_read() {
        let read = |text: &str| serde_json::from_str::<DeviceActivity>(text).expect("a state");
        assert_eq!(read("\"lent\""), DeviceActivity::Reserved);
        assert_eq!(read("\"set_aside\""), DeviceActivity::Quarantined);
    }
}
