//! Trace for Perfetto with lanes for the times of the steps of a recorded run.

use super::{
    prelude::*,
    run_timeline::{StepTimesReport, cause_text},
};
use crate::profile::timeline::{HostMark, HostRange, TimeSpan};

const LANES: [&str; 5] = ["Steps", "Computing", "Communication", "Communication (not overlapped)", "Free"];
const MARKS_LANE: usize = 1;

/// Events of a trace for Perfetto. Its importer takes numbers of processes and threads of 32 bits, of which 0 stands for
/// the idle one, and drops events before time 0.
struct LaneWriter {
    events: Vec<Value>,
    /// Time of the first event in nanoseconds since the epoch.
    origin: i64,
}

/// Adds a range that does not start before the last one to a lane with the ends of its open ranges, the innermost one last; false
/// if it crosses an open one.
fn add_nested(open: &mut Vec<i64>, span: TimeSpan) -> bool {
    while open.last().is_some_and(|end| *end <= span.start) {
        open.pop();
    }
    let fits = open.last().is_none_or(|end| span.end <= *end);
    if fits {
        open.push(span.end);
    }
    fits
}

/// Ranges and marks of a run's host, those of one domain of mstx if it is given, else with the modules of torch.
type HostEvents<'a> = (&'a RunTimeline, Vec<&'a HostRange>, Vec<&'a HostMark>);

fn host_events<'a>(run: &'a RunTimeline, domain: Option<&str>) -> HostEvents<'a> {
    let is_shown = |id| domain.is_none_or(|domain| run.names.text(id) == domain);
    let ranges = run.ranges.iter().filter(|range| is_shown(range.domain)).collect();
    (run, ranges, run.marks.iter().filter(|mark| is_shown(mark.domain)).collect())
}

impl LaneWriter {
    fn add_name(&mut self, kind: &str, process: usize, lane: Option<usize>, name: &str) {
        let mut event = json!({"ph": "M", "pid": process, "name": kind, "args": {"name": name}});
        if let Some(lane) = lane {
            event["tid"] = lane.into();
        }
        self.events.push(event);
    }

    fn add_lane(&mut self, process: usize, lane: usize, name: &str) {
        self.add_name("thread_name", process, Some(lane), name);
        self.events.push(json!({"ph": "M", "pid": process, "tid": lane, "name": "thread_sort_index",
                                "args": {"sort_index": lane}}));
    }

    fn add_slice(&mut self, (process, lane): (usize, usize), name: &str, span: TimeSpan, args: &Value) {
        self.events.push(json!({"ph": "X", "pid": process, "tid": lane, "name": name,
                                "ts": float(span.start - self.origin) / 1e3, "dur": float(span.length()) / 1e3,
                                "args": args}));
    }

    fn add_host(&mut self, (run, ranges, marks): &HostEvents<'_>, process: usize) {
        if ranges.is_empty() && marks.is_empty() {
            return;
        }
        self.add_name("process_name", process, None, &format!("rank {}, host", or_dash(run.rank)));
        self.add_lane(process, MARKS_LANE, "Marks");
        let mut threads: BTreeMap<u64, Vec<(usize, Vec<i64>)>> = BTreeMap::new();
        let mut next = MARKS_LANE + 1;
        for range in ranges {
            let lanes = threads.entry(range.thread).or_default();
            let found =
                lanes.iter_mut().position(|(_, open)| add_nested(open, range.span)).unwrap_or_else(|| {
                    // The upper half of a number in a database is the process.
                    let name = format!("Thread {}", range.thread & u64::from(u32::MAX));
                    self.add_lane(process, next, &name);
                    lanes.push((next, vec![range.span.end]));
                    next += 1;
                    lanes.len() - 1
                });
            let args = json!({"domain": run.names.text(range.domain)});
            let place = (process, lanes[found].0);
            self.add_slice(place, run.names.text(range.name), range.span, &args);
        }
        for mark in marks {
            let args = json!({"domain": run.names.text(mark.domain)});
            self.events.push(json!({"ph": "i", "s": "t", "pid": process, "tid": MARKS_LANE,
                                    "name": run.names.text(mark.name),
                                    "ts": float(mark.at - self.origin) / 1e3, "args": args}));
        }
    }
}

/// Returns a trace for Perfetto and chrome://tracing, in the JSON trace event format: for each rank and device a process
/// with lanes for steps, computing, communication, communication that is not overlapped, and free time with its cause;
/// for each host the modules, ranges and marks, or the ranges and marks of one domain of mstx.
/// Times are microseconds since the first of these of all ranks.
pub(crate) fn step_lanes(report: &StepTimesReport<'_>, domain: Option<&str>) -> String {
    let hosts: Vec<HostEvents<'_>> = report.runs.iter().map(|run| host_events(run, domain)).collect();
    let of_hosts = hosts.iter().flat_map(|(_, ranges, marks)| {
        ranges.iter().map(|range| range.span.start).chain(marks.iter().map(|mark| mark.at))
    });
    let origin = report.times.iter().map(|times| times.span.start).chain(of_hosts).min().unwrap_or_default();
    let mut writer = LaneWriter { events: Vec::new(), origin };
    let mut processes: Vec<(usize, Option<u32>)> = Vec::new();
    for times in report.times {
        let key = (times.run, times.device);
        let process = 1 + processes.iter().position(|other| *other == key).unwrap_or_else(|| {
            processes.push(key);
            processes.len() - 1
        });
        let step = times.step.map_or_else(|| "outside of steps".to_owned(), |step| format!("step {step}"));
        writer.add_slice((process, 1), &step, times.span, &json!({}));
        let sets = [&times.sets.computing, &times.sets.communication, &times.sets.not_overlapped];
        let has_kernels = report.has_kernels(times);
        for ((lane, name), set) in (2..).zip(&LANES[1..]).zip(sets) {
            let is_known = has_kernels || *name == "Communication";
            for span in set.spans().iter().filter(|_| is_known) {
                writer.add_slice((process, lane), name, *span, &json!({}));
            }
        }
        let run = report.run_of(times);
        for gap in times.gaps.iter().filter(|_| has_kernels) {
            let args = json!({
                "before": run.map(|run| run.names.text(gap.before)),
                "after": run.map(|run| run.names.text(gap.after)),
            });
            writer.add_slice(
                (process, LANES.len()),
                &format!("Free: {}", cause_text(gap.cause)),
                gap.span,
                &args,
            );
        }
    }
    for (process, (run, device)) in (1..).zip(&processes) {
        let rank = report.runs.get(*run).and_then(|run| run.rank);
        let name = format!("rank {}, device {}", or_dash(rank), or_dash(*device));
        writer.add_name("process_name", process, None, &name);
        for (lane, name) in (1..).zip(LANES) {
            writer.add_lane(process, lane, name);
        }
    }
    for (host, process) in hosts.iter().zip(processes.len() + 1..) {
        writer.add_host(host, process);
    }
    let document = json!({
        "traceEvents": writer.events,
        "otherData": {"tool": "npubench", "origin_ns": origin.to_string()},
    });
    printable_json(&format!("{document}\n")).into_owned()
}
