//! Table of `npubench status`: the state of a run and of its devices.

use super::prelude::*;
use crate::measure::run_state::{RunPhase, RunState};

/// If the status is older than this number of seconds, its age is shown; an active run writes its status at least every
/// ten seconds.
const OVERDUE: f64 = 30.0;

pub(crate) fn status_table(status: &RunStatusFile, now: Timestamp, width: Option<usize>) -> String {
    let collection = |line: &DeviceStatus| or_empty(line.collection.as_ref().map(|current| current.number));
    let elapsed = |line: &DeviceStatus| {
        let started = line.collection.as_ref().map(|current| current.started);
        or_empty(started.map(|started| format_clock(now.seconds_since(started))))
    };
    let end = |line: &DeviceStatus| {
        let end = line.collection.as_ref().map(|current| current.predicted_end).or(line.retry_at);
        or_empty(end.map(Timestamp::local_clock))
    };
    let table = Table::new(&status.state.devices)
        .number("device", 0, |line| line.device)
        .text("state", 0, |line| line.state)
        .number("elapsed", 2, elapsed)
        .text("ends at", 1, end)
        .number("collection", 4, collection)
        .number("cases/min", 3, |line| or_empty(line.cases_per_minute.map(|rate| format!("{rate:.0}"))))
        .text("details", rank(DETAIL).min(24), work_text)
        .below(|_| true)
        .text("reading", rank(DETAIL).min(12), reading_text);
    run_lines(status, now) + &table.print(width)
}

fn run_lines(status: &RunStatusFile, now: Timestamp) -> String {
    let state = &status.state;
    let kind = or_empty(state.kind.map(|kind| format!(" ({kind})")));
    let phase = match state.phase {
        RunPhase::Running => "",
        RunPhase::Stopping => ", stopping",
        RunPhase::Ended => ", ended",
    };
    let age = now.seconds_since(status.written);
    let overdue = or_empty((age > OVERDUE).then(|| format!("; status written {} ago", format_duration(age))));
    let mut text = format!(
        "run {}{kind}{phase}: process {} on {}, {} elapsed{overdue}\n",
        state.run,
        status.process,
        status.host,
        format_clock(now.seconds_since(state.started))
    );
    let mut parts = vec![format!("{} of {} done", state.done, format_count(state.cases, "case"))];
    parts.extend(state.cases_per_minute.map(|rate| format!("{rate:.0} per minute")));
    parts.extend(end_text(state, now));
    parts.extend(state.deadline.map(|at| format!("must end by {}", at.local_time())));
    parts.extend((state.not_in_time > 0).then(|| format!("{} not in time", state.not_in_time)));
    parts.extend(state.disk_full.then(|| "waiting for free disk space".to_owned()));
    parts.extend(state.ledger_waiting.then(|| "waiting to store results".to_owned()));
    text += &(parts.join(", ") + "\n");
    if !state.verdicts.is_empty() {
        text += &(counted(&state.verdicts) + "\n");
    }
    text
}

fn end_text(state: &RunState, now: Timestamp) -> Option<String> {
    if state.disk_full || state.ledger_waiting {
        return None;
    }
    if state.phase != RunPhase::Ended && state.is_waiting() {
        let retry = state.devices.iter().filter_map(|line| line.retry_at).min();
        let retry = retry.map(|at| format!(" (the first is tried at {})", at.local_time()));
        return Some(format!("waiting for a device{}", or_empty(retry)));
    }
    let eta = state.eta?;
    let left = eta.seconds_since(now);
    Some(if left < 0.0 {
        format!("predicted to end at {}", eta.local_time())
    } else {
        format!("ends at {} (in {})", eta.local_time(), format_duration(left))
    })
}

fn work_text(line: &DeviceStatus) -> String {
    match (&line.collection, line.state) {
        (Some(current), _) => current.work_text() + if line.reserved { ", then reserved" } else { "" },
        (None, DeviceActivity::Paused | DeviceActivity::Reserved) => or_empty(line.reason.as_ref()),
        (None, _) => String::new(),
    }
}

fn reading_text(line: &DeviceStatus) -> String {
    let Some(reading) = &line.reading else { return String::new() };
    let mut parts = vec![reading.health.clone()];
    parts.extend(reading.temperature_c.map(|degrees| format!("{degrees} C")));
    parts.extend(reading.power_w.map(|power| format!("{power:.0} W")));
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        kernel::{CaseId, CollectionPurpose, DataKind, KernelName},
        measure::{events::RunEvent, run_state::RunState},
    };

    #[test]
    fn status_table_shows_the_run_and_each_device() {
        let start = "2026-03-01T22:00:00Z".parse::<Timestamp>().expect("a timestamp");
        let mut state = RunState::default();
        let started = |collection, device, case: Option<&str>, purpose| RunEvent::CollectionStarted {
            collection,
            devices: vec![device],
            cases: if case.is_some() { 1 } else { 12 },
            case: case.map(CaseId::from_stored),
            kernels: vec![KernelName::new("MatMulV2").expect("a name")],
            purpose,
            predicted_s: 200.0,
        };
        let events = [
            RunEvent::RunStarted {
                run: "20260301-220000-00007".to_owned(),
                kind: DataKind::Npu,
                cases: 40,
                not_launched: 0,
                already_measured: 0,
                devices: vec![0, 1, 2, 3],
                resumed: false,
                budget_s: None,
            },
            RunEvent::DeviceRead {
                device: 0,
                health: "OK".to_owned(),
                temperature_c: Some(38),
                power_w: Some(171.2),
                memory_used_mb: None,
            },
            started(1, 0, None, CollectionPurpose::Measure),
            started(2, 1, Some("0123456789abcdef"), CollectionPurpose::Alone),
            RunEvent::DeviceReserved {
                device: 1,
                reason: "it is reserved by `npubench pause` until `npubench unpause`".to_owned(),
            },
            RunEvent::DeviceReserved {
                device: 2,
                reason: "it is reserved by `npubench pause` until `npubench unpause`".to_owned(),
            },
            RunEvent::DevicePaused { device: 3, reason: "two controls failed".to_owned(), retry_in_s: None },
            RunEvent::Progress { open: 40, in_time: 38, seconds: 600.0 },
        ];
        events.iter().for_each(|event| state.on_event(start, event));
        let now = start.plus_seconds(75.0);
        let mut waiting = state.clone();
        for device in [0, 1] {
            waiting.on_event(
                start,
                &RunEvent::CollectionFinished {
                    collection: 0,
                    devices: vec![device],
                    purpose: CollectionPurpose::Measure,
                    outcome: "done".to_owned(),
                    seconds: 9.0,
                },
            );
        }
        waiting.on_event(start, &RunEvent::DeviceReserved { device: 0, reason: "it is paused".to_owned() });
        assert_eq!(end_text(&waiting, now).as_deref(), Some("waiting for a device"));
        let status = RunStatusFile {
            written: now.plus_seconds(-40.0),
            process: 4711,
            host: "atlas".to_owned(),
            state,
        };
        // Times of day depend on the time zone in which the test runs.
        let local = [start.plus_seconds(600.0).local_time(), start.plus_seconds(200.0).local_clock()];
        let text =
            status_table(&status, now, None).replace(&local[0], "22:10:00").replace(&local[1], "22:03:20");
        insta::assert_snapshot!(text, @"
        run 20260301-220000-00007 (npu): process 4711 on atlas, 1:15 elapsed; status written 40 seconds ago
        0 of 40 cases done, ends at 22:10:00 (in 9 minutes), 2 not in time
         device  state     elapsed  ends at   collection  details                                                      reading
              0  running      1:15  22:03:20           1  MatMulV2, 12 cases                                           OK, 38 C, 171 W
              1  running      1:15  22:03:20           2  MatMulV2 0123456789abcdef (alone), then reserved
              2  reserved                                 it is reserved by `npubench pause` until `npubench unpause`
              3  paused                                   two controls failed
        ");
        for width in [60, 80, 120, 200] {
            let text = status_table(&status, now, Some(width));
            let mut cells = text.lines().filter(|line| line.starts_with(' '));
            assert!(cells.all(|line| line.chars().count() <= width), "{width}: {text}");
            assert!(text.contains("two controls failed"), "{text}");
        }
    }
}
