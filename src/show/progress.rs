//! Progress on a terminal: a bar for the run and a line per device, a bar for a vendor check, and what a command waits for.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use super::prelude::*;
use crate::{
    base::live_text::LiveText,
    kernel::CollectionPurpose,
    measure::{
        events::RunEvent,
        run_state::{RunState, RunningCollection},
    },
};

#[derive(Debug, Default)]
pub(super) struct ProgressDisplay {
    state: Arc<Mutex<RunState>>,
    lines: Option<LiveText>,
}

impl ProgressDisplay {
    pub(super) const fn is_drawn(&self) -> bool {
        self.lines.is_some()
    }

    pub(super) fn on_event(&mut self, event: &RunEvent) {
        locked(&self.state).on_event(Timestamp::now(), event);
        match event {
            RunEvent::RunStarted { .. } => {
                let state = Arc::clone(&self.state);
                self.lines =
                    LiveText::on_stderr(move |width| run_text(&locked(&state), Timestamp::now(), width));
            }
            RunEvent::RunFinished { .. } => self.lines = None,
            _ => {}
        }
    }
}

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run_text(state: &RunState, now: Timestamp, width: usize) -> String {
    let overall = overall_line(state.done, state.cases, &overall_texts(state, now), width);
    let devices = state.devices.iter().map(|device| device_text(device, now));
    joined([overall].into_iter().chain(devices), "\n")
}

/// Returns the line of a run or check: a bar, the number of cases, and the first of the texts that fits, else the last.
fn overall_line(done: usize, cases: usize, texts: &[String], terminal: usize) -> String {
    // The numbers and the predicted end behind it are worth more.
    let width = match terminal {
        0..=64 => 0,
        65..=89 => 10,
        _ => 30,
    };
    let filled = (done.min(cases) * width).checked_div(cases).unwrap_or(width);
    let bar = format!("{}{}", "█".repeat(filled), "░".repeat(width - filled));
    let bar = if bar.is_empty() { bar } else { bar + " " };
    let mut lines = texts.iter().map(|text| format!("{bar}{done}/{cases} {text}"));
    let fitting = lines.clone().find(|line| line.chars().count() < terminal);
    fitting.or_else(|| lines.next_back()).unwrap_or_default()
}

/// Returns the texts behind a bar of cases, the longest first: the elapsed time and, if it can be predicted, the time that is
/// left, which a narrow terminal has alone.
fn time_texts(elapsed: f64, left: Option<f64>) -> Vec<String> {
    let elapsed = format!("cases, {} elapsed", format_clock(elapsed));
    match left.map(|left| format!("{} left", format_duration(left))) {
        Some(left) => vec![format!("{elapsed}, {left}"), format!("cases, {left}")],
        None => vec![elapsed],
    }
}

fn overall_texts(state: &RunState, now: Timestamp) -> Vec<String> {
    let left = state.eta.filter(|_| !state.is_waiting()).map(|eta| eta.seconds_since(now));
    let late = or_empty((state.not_in_time > 0).then(|| format!(", {} not in time", state.not_in_time)));
    let waiting = match state {
        RunState { ledger_waiting: true, .. } => ", waiting to store results",
        RunState { disk_full: true, .. } => ", waiting for free disk space",
        state if state.is_waiting() => ", waiting for a device",
        _ => "",
    };
    let times = time_texts(now.seconds_since(state.started), left).into_iter();
    times.map(|time| format!("{time}{late}{waiting}")).collect()
}

#[derive(Debug)]
pub(crate) struct CheckProgress {
    done: Arc<AtomicUsize>,
    _line: Option<LiveText>,
}

impl CheckProgress {
    pub(crate) fn on_stderr(total: usize) -> Self {
        let (started, done) = (Instant::now(), Arc::<AtomicUsize>::default());
        let shared = Arc::clone(&done);
        let line = LiveText::on_stderr(move |width| {
            let texts = time_texts(started.elapsed().as_secs_f64(), None);
            overall_line(shared.load(Ordering::Relaxed), total, &texts, width)
        });
        Self { done, _line: line }
    }

    pub(crate) fn add_case(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }
}

fn device_text(line: &DeviceStatus, now: Timestamp) -> String {
    let activity = match (&line.collection, line.state) {
        (Some(current), _) => {
            let elapsed = format_clock(now.seconds_since(current.started));
            let predicted = format_clock(current.predicted_s);
            format!("{elapsed:>5} of {predicted:>5}  collection {}: {}", current.number, current.work_text())
        }
        (None, DeviceActivity::Paused) => {
            let retry = line.retry_at.map(|at| format!(", retry in {}", format_clock(at.seconds_since(now))));
            format!("paused{}: {}", or_empty(retry), or_empty(line.reason.as_ref()))
        }
        (None, state) => state.to_string(),
    };
    let reserved = if line.reserved && line.collection.is_some() { ", then reserved" } else { "" };
    let rate = line.cases_per_minute.map(|rate| format!("{rate:.0}/min"));
    let temperature = line.reading.as_ref().and_then(|reading| reading.temperature_c);
    let temperature = temperature.map(|degrees| format!("{degrees} C"));
    let tail = joined([rate, temperature].into_iter().flatten(), ", ");
    let tail = if tail.is_empty() { tail } else { format!("  ({tail})") };
    format!("device {:<3} {activity}{reserved}{tail}", line.device)
}

impl RunningCollection {
    /// Returns kernels, cases and purpose, such as `MatMulV2, 12 cases` or `Add 0123456789abcdef (search)`.
    pub(super) fn work_text(&self) -> String {
        let kernels: Vec<_> = self.kernels.iter().collect();
        let kernels = match kernels.as_slice() {
            [first, second, _, ..] => format!("{first}, {second} and {} more", kernels.len() - 2),
            few => joined(few, ", "),
        };
        let cases = match &self.case {
            Some(case) => format!(" {case}"),
            None => format!(", {}", format_count(self.cases, "case")),
        };
        let is_measured = self.purpose == CollectionPurpose::Measure;
        let purpose = or_empty((!is_measured).then(|| format!(" ({})", self.purpose)));
        format!("{kernels}{cases}{purpose}")
    }
}

/// Line while a command waits for a program that may take long, such as npu-smi or an import of torch_npu.
#[derive(Debug)]
pub(crate) struct WaitingLine {
    awaited: Arc<Mutex<(String, Instant)>>,
    _line: Option<LiveText>,
}

impl WaitingLine {
    /// Starts to wait for a program or action. The line appears after a second.
    pub(crate) fn on_stderr(awaited: &str) -> Self {
        let awaited = Arc::new(Mutex::new((awaited.to_owned(), Instant::now())));
        let shared = Arc::clone(&awaited);
        let line = LiveText::on_stderr(move |_| {
            let (name, start) = &*locked(&shared);
            let elapsed = start.elapsed().as_secs_f64();
            match elapsed < 1.0 {
                true => String::new(),
                false => format!("waiting for {name}, {} elapsed", format_clock(elapsed)),
            }
        });
        Self { awaited, _line: line }
    }

    pub(crate) fn wait_for(&self, awaited: &str) {
        *locked(&self.awaited) = (awaited.to_owned(), Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::KernelName;
    use crate::{
        kernel::{CaseId, Nanos},
        measure::run_state::DeviceSnapshot,
    };

    /// A run of ten thousand cases on a narrow terminal.
    #[test]
    fn predicted_end_is_visible_from_36_columns_on() {
        for width in 36..200 {
            let line = overall_line(4752, 11289, &time_texts(3599.0, Some(79.0)), width);
            assert!(line.chars().count() < width && line.ends_with("79 seconds left"), "{width}: {line}");
        }
    }

    /// The bar and `npubench status` predict the same end.
    #[test]
    fn bar_and_status_have_one_forecast() {
        let start = Timestamp(Nanos(0));
        let mut state = RunState::default();
        let started = RunEvent::RunStarted {
            run: "r".to_owned(),
            kind: DataKind::Npu,
            cases: 9,
            not_launched: 0,
            already_measured: 0,
            devices: vec![0],
            resumed: false,
            budget_s: None,
        };
        for event in [started, RunEvent::Progress { open: 9, in_time: 9, seconds: 110.0 }] {
            state.on_event(start, &event);
        }
        let now = start.plus_seconds(63.0);
        assert_eq!(overall_texts(&state, now)[0], "cases, 1:03 elapsed, 47 seconds left");
        let file = RunStatusFile { written: now, process: 1, host: "h".to_owned(), state };
        let status = crate::show::status::status_table(&file, now, None);
        assert!(status.contains("(in 47 seconds)"), "{status}");
    }

    #[test]
    fn device_lines_show_collection_rate_and_reason() {
        let start = Timestamp(Nanos(0));
        let now = start.plus_seconds(75.0);
        let kernels =
            |names: &[&str]| names.iter().map(|name| KernelName::new(name).expect("a name")).collect();
        let current = |number, names: &[&str], cases, case: Option<&str>, purpose| RunningCollection {
            number,
            purpose,
            kernels: kernels(names),
            cases,
            case: case.map(CaseId::from_stored),
            started: start,
            predicted_s: 240.0,
            predicted_end: start.plus_seconds(240.0),
        };
        let idle = DeviceStatus::default();
        let busy = DeviceStatus {
            device: 1,
            state: DeviceActivity::Running,
            collection: Some(current(
                3,
                &["Add", "Cast", "Mul", "Sub"],
                12,
                None,
                CollectionPurpose::Measure,
            )),
            cases_per_minute: Some(61.7),
            reading: Some(DeviceSnapshot {
                at: start,
                health: "OK".to_owned(),
                temperature_c: Some(41),
                power_w: None,
            }),
            ..DeviceStatus::default()
        };
        let searching = DeviceStatus {
            device: 10,
            state: DeviceActivity::Running,
            reserved: true,
            collection: Some(current(12, &["Add"], 1, Some("0123456789abcdef"), CollectionPurpose::Search)),
            ..DeviceStatus::default()
        };
        let ill = DeviceStatus {
            device: 11,
            state: DeviceActivity::Paused,
            reason: Some("two controls failed".to_owned()),
            retry_at: Some(start.plus_seconds(135.0)),
            ..DeviceStatus::default()
        };
        let reserved = DeviceStatus {
            device: 12,
            state: DeviceActivity::Reserved,
            reserved: true,
            ..DeviceStatus::default()
        };
        let text = [idle, busy, searching, ill, reserved].map(|line| device_text(&line, now)).join("\n");
        insta::assert_snapshot!(text, @r"
        device 0   idle
        device 1    1:15 of  4:00  collection 3: Add, Cast and 2 more, 12 cases  (62/min, 41 C)
        device 10   1:15 of  4:00  collection 12: Add 0123456789abcdef (search), then reserved
        device 11  paused, retry in 1:00: two controls failed
        device 12  reserved
        ");
        let state = RunState {
            started: start,
            eta: Some(start.plus_seconds(195.0)),
            not_in_time: 7,
            ..RunState::default()
        };
        assert_eq!(
            overall_texts(&state, now),
            ["cases, 1:15 elapsed, 2 minutes left, 7 not in time", "cases, 2 minutes left, 7 not in time"]
        );
    }
}
