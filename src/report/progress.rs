//! The live table of a run on a terminal: an overall bar, and a line for each device.
//!
//! Where the terminal has fewer lines than the table, the last ones are left out; it never scrolls.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{
    DeviceActivity, DeviceStatus, RunState, Timestamp, print_note,
    timestamp::{clock, span},
};
use crate::{domain::CollectionPurpose, events::RunEvent};

/// The table is drawn anew so often, for its clocks.
const TICK: Duration = Duration::from_secs(1);

/// The table, and the thread that keeps its clocks going.
#[derive(Debug)]
pub(super) struct ProgressDisplay {
    shown: Arc<Mutex<DisplayState>>,
    lines: MultiProgress,
    ticks: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct DisplayState {
    lines: MultiProgress,
    overall: ProgressBar,
    devices: Vec<ProgressBar>,
    board: RunState,
}

impl ProgressDisplay {
    pub(super) fn for_stderr() -> Self {
        let lines = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(4));
        let overall = lines.add(ProgressBar::new(0));
        overall.set_style(style("{bar:30} {pos}/{len} {wide_msg}"));
        let board = RunState::default();
        let shown = DisplayState { lines: lines.clone(), overall, devices: Vec::new(), board };
        let shown = Arc::new(Mutex::new(shown));
        let (ticks, inbox) = mpsc::channel::<()>();
        let ticking = Arc::clone(&shown);
        let work = move || {
            while inbox.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                lock(&ticking).draw(Timestamp::now());
            }
        };
        // Without the thread the table still follows events.
        let thread = thread::Builder::new().name("table".to_owned()).spawn(work).ok();
        Self { shown, lines, ticks: Some(ticks), thread }
    }

    /// Prints a line above the table.
    pub(super) fn print_line(&self, line: &str) {
        self.lines.suspend(|| print_note(line));
    }

    pub(super) fn on_event(&self, event: &RunEvent) {
        let mut shown = lock(&self.shown);
        let now = Timestamp::now();
        shown.board.on_event(now, event);
        match event {
            RunEvent::RunStarted { .. } => shown.begin(),
            // There may be a hundred thousand; the next tick shows them.
            RunEvent::CaseFinished { .. } | RunEvent::CaseAttempted { .. } => return,
            RunEvent::RunFinished { .. } => {
                shown.end();
                return;
            }
            _ => {}
        }
        shown.draw(now);
    }
}

fn lock(shown: &Mutex<DisplayState>) -> MutexGuard<'_, DisplayState> {
    shown.lock().unwrap_or_else(PoisonError::into_inner)
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        self.ticks = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        lock(&self.shown).end();
    }
}

impl DisplayState {
    fn begin(&mut self) {
        self.overall.set_length(u64::try_from(self.board.cases).unwrap_or_default());
        while self.devices.len() < self.board.devices.len() {
            let line = self.lines.add(ProgressBar::new(0));
            line.set_style(style("{wide_msg}"));
            self.devices.push(line);
        }
    }

    fn draw(&self, now: Timestamp) {
        if self.board.run.is_empty() {
            return;
        }
        self.overall.set_position(u64::try_from(self.board.done).unwrap_or_default());
        self.overall.set_message(overall_text(&self.board, now));
        for (line, device) in self.devices.iter().zip(&self.board.devices) {
            line.set_message(device_text(device, now));
        }
    }

    fn end(&mut self) {
        self.devices.drain(..).for_each(|line| line.finish_and_clear());
        self.overall.finish_and_clear();
        // Nothing is drawn any more.
        self.board = RunState::default();
    }
}

/// What stands behind the overall bar.
fn overall_text(board: &RunState, now: Timestamp) -> String {
    let gone = clock(now.since(board.started));
    let left = board.eta.map_or_else(String::new, |eta| format!(", {} left", span(eta.since(now))));
    let late = match board.not_in_time {
        0 => String::new(),
        late => format!(", {late} not in time"),
    };
    let waits = if board.is_disk_full { ", waiting for room on the disk" } else { "" };
    format!("cases, {gone} gone{left}{late}{waits}")
}

/// What a device does, in a line.
fn device_text(line: &DeviceStatus, now: Timestamp) -> String {
    let does = match (&line.collection, line.state) {
        (Some(current), _) => {
            let times = (clock(now.since(current.since)), clock(current.predicted_s));
            format!("{:>5} of {:>5}  collection {}: {}", times.0, times.1, current.number, current.what())
        }
        (None, DeviceActivity::Quarantined) => {
            let again =
                line.again.map_or_else(String::new, |at| format!(", again in {}", clock(at.since(now))));
            format!("quarantined{again}: {}", line.reason.as_deref().unwrap_or_default())
        }
        (None, state) => state.as_str().to_owned(),
    };
    let reserved = if line.is_paused && line.collection.is_some() { ", then reserved" } else { "" };
    let rate = line.cases_a_minute.map_or_else(String::new, |rate| format!("{rate:.0}/min"));
    let warm = line.reading.as_ref().and_then(|reading| reading.temperature_c);
    let warm = warm.map_or_else(String::new, |degrees| format!("{degrees} C"));
    let tail = [rate, warm].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
    let tail = if tail.is_empty() { tail } else { format!("  ({tail})") };
    format!("device {:<3} {does}{reserved}{tail}", line.device)
}

impl super::run_state::RunningCollection {
    /// What runs, in words: `MatMulV2, 12 cases`, `Add 0123456789abcdef (search)`.
    pub(super) fn what(&self) -> String {
        let kernels: Vec<&str> = self.kernels.iter().map(crate::domain::KernelName::as_str).collect();
        let kernels = match kernels.as_slice() {
            [first, second, _, ..] => format!("{first}, {second} and {} more", kernels.len() - 2),
            few => few.join(", "),
        };
        let cases =
            self.case.as_ref().map_or_else(|| format!(", {} cases", self.cases), |case| format!(" {case}"));
        let why = if self.purpose == CollectionPurpose::Measure {
            String::new()
        } else {
            format!(" ({})", self.purpose)
        };
        format!("{kernels}{cases}{why}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::{CaseId, KernelName, Nanos},
        report::run_state::{DeviceSnapshot, RunningCollection},
    };

    #[test]
    fn lines_say_what_each_device_does() {
        let start = Timestamp(Nanos(0));
        let now = start.after(75.0);
        let kernels =
            |names: &[&str]| names.iter().map(|name| KernelName::new(name).expect("a name")).collect();
        let current = |number, names: &[&str], cases, case: Option<&str>, purpose| RunningCollection {
            number,
            purpose,
            kernels: kernels(names),
            cases,
            case: case.map(CaseId::from_stored),
            since: start,
            predicted_s: 240.0,
            predicted_end: start.after(240.0),
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
            cases_a_minute: Some(61.7),
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
            is_paused: true,
            collection: Some(current(12, &["Add"], 1, Some("0123456789abcdef"), CollectionPurpose::Search)),
            ..DeviceStatus::default()
        };
        let ill = DeviceStatus {
            device: 11,
            state: DeviceActivity::Quarantined,
            reason: Some("two controls failed".to_owned()),
            again: Some(start.after(135.0)),
            ..DeviceStatus::default()
        };
        let reserved = DeviceStatus {
            device: 12,
            state: DeviceActivity::Reserved,
            is_paused: true,
            ..DeviceStatus::default()
        };
        let text = [idle, busy, searching, ill, reserved].map(|line| device_text(&line, now)).join("\n");
        insta::assert_snapshot!(text, @r"
        device 0   idle
        device 1    1:15 of  4:00  collection 3: Add, Cast and 2 more, 12 cases  (62/min, 41 C)
        device 10   1:15 of  4:00  collection 12: Add 0123456789abcdef (search), then reserved
        device 11  quarantined, again in 1:00: two controls failed
        device 12  reserved
        ");
        let board =
            RunState { started: start, eta: Some(start.after(195.0)), not_in_time: 7, ..RunState::default() };
        assert_eq!(overall_text(&board, now), "cases, 1:15 gone, 2 minutes left, 7 not in time");
    }
}
