//! State of a run, computed from its events, for the progress display and the status file.
//!
//! The computation is pure: its inputs are events and times, and it neither reads nor writes.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::{
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
    #[serde(skip)]
    pub(crate) is_paused: bool,
    #[serde(skip)]
    pub(crate) pause_reason: Option<String>,
    /// End of the pause; `None` for a device that is excluded.
    #[serde(skip)]
    pub(crate) paused_until: Option<Timestamp>,
    #[serde(skip)]
    pub(crate) reservation_reason: Option<String>,
}

impl DeviceStatus {
    pub(super) fn is_paused(&self) -> bool {
        self.is_paused || self.state == DeviceActivity::Paused
    }

    /// Updates state, reason and time of the next try. A reserved device is not tried again at the end of a pause.
    fn update_activity(&mut self) {
        self.state = match self {
            Self { collection: Some(_), .. } => DeviceActivity::Running,
            Self { is_paused: true, paused_until: None, .. } => DeviceActivity::Paused,
            Self { reserved: true, .. } => DeviceActivity::Reserved,
            Self { is_paused: true, .. } => DeviceActivity::Paused,
            _ => DeviceActivity::Idle,
        };
        self.reason = match self.state {
            DeviceActivity::Paused => self.pause_reason.clone(),
            _ => self.reservation_reason.clone().or_else(|| self.pause_reason.clone()),
        };
        self.retry_at = self.paused_until.filter(|_| !self.reserved);
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

    /// Removes a case that is finished already from the numbers.
    fn reopen_case(&mut self, case: &CaseId) {
        let Some((verdict, was_done)) = self.finished.remove(case) else { return };
        let known = self.verdicts.entry(verdict).or_default();
        *known = known.saturating_sub(1);
        self.verdicts.retain(|_, count| *count > 0);
        self.done -= usize::from(was_done);
    }

    /// Returns true if no collection runs, and none can be started for now: no device can be used, or the disk is full.
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
                self.update_devices(&[*device], |line| {
                    line.is_paused = true;
                    line.pause_reason = Some(reason.clone());
                    line.paused_until = retry_in_s.map(|seconds| now.plus_seconds(seconds));
                });
            }
            RunEvent::DeviceReadmitted { device } => self.update_devices(&[*device], |line| {
                line.is_paused = false;
                (line.pause_reason, line.paused_until) = (None, None);
            }),
            RunEvent::DeviceReserved { device, reason } => self.update_devices(&[*device], |line| {
                line.reserved = true;
                line.reservation_reason = Some(reason.clone());
            }),
            RunEvent::DeviceReleased { device } => self.update_devices(&[*device], |line| {
                line.reserved = false;
                line.reservation_reason = None;
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
