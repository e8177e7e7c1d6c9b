//! Times of the steps of a recorded run: table, JSON lines, and a trace for Perfetto.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::report::{align_right, plain_table, trim_lines};
use crate::timeline::{
    CollectiveArrival, FreeGap, GapCause, MissingPart, ProfileForm, RunTimeline, StepTimes, StreamTimes,
    TimeSet, VendorSteps, sum_lengths, waits_by_rank,
};

/// Run, device and stream.
type StreamPlace = (usize, Option<u32>, Option<u32>);

/// Collectives that the table of late ranks shows.
const SHOWN_ARRIVALS: usize = 10;
/// Differences to the vendor's table that are shown.
const SHOWN_DIFFERENCES: usize = 12;

/// Times of all runs below a path.
#[derive(Debug)]
pub(crate) struct StepTimesReport<'a> {
    pub(crate) runs: &'a [RunTimeline],
    pub(crate) times: &'a [StepTimes],
    pub(crate) arrivals: &'a [CollectiveArrival],
    pub(crate) vendor: &'a [VendorSteps],
    /// Number of gaps to show.
    pub(crate) gaps: usize,
}

#[expect(clippy::cast_precision_loss, reason = "times of runs have fewer than 53 bits")]
fn micros(nanos: i64) -> f64 {
    nanos as f64 / 1e3
}

fn millis_cell(nanos: i64) -> String {
    format!("{:.3}", micros(nanos) / 1e3)
}

fn micros_cell(nanos: i64) -> String {
    format!("{:.3}", micros(nanos))
}

#[expect(clippy::cast_precision_loss, reason = "times of runs have fewer than 53 bits")]
fn share(part: i64, whole: i64) -> String {
    if whole > 0 { format!("{:.1} %", 100.0 * part as f64 / whole as f64) } else { "-".to_owned() }
}

fn number_cell<N: ToString>(number: Option<N>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

impl<'a> StepTimesReport<'a> {
    /// Returns the run of a row.
    fn run_of(&self, times: &StepTimes) -> Option<&'a RunTimeline> {
        self.runs.get(times.run)
    }

    /// Returns the longest gaps of all steps.
    fn longest_gaps(&self) -> Vec<(&'a StepTimes, &'a FreeGap)> {
        let of_step = |times: &'a StepTimes| times.gaps.iter().take(self.gaps).map(move |gap| (times, gap));
        let mut gaps: Vec<_> = self.times.iter().flat_map(of_step).collect();
        gaps.sort_by_key(|(_, gap)| (-gap.span.length(), gap.span.start));
        gaps.truncate(self.gaps);
        gaps
    }

    /// Returns the streams of each run and device, summed over steps.
    fn streams(&self) -> BTreeMap<StreamPlace, StreamTimes> {
        let mut sums: BTreeMap<_, StreamTimes> = BTreeMap::new();
        for times in self.times {
            for stream in &times.streams {
                let key = (times.run, times.device, stream.stream);
                let sum = sums.entry(key).or_insert(StreamTimes {
                    stream: stream.stream,
                    kernels: 0,
                    tasks: 0,
                    computing: 0,
                    waiting: 0,
                    others: 0,
                });
                sum.kernels += stream.kernels;
                sum.tasks += stream.tasks;
                sum.computing = sum_lengths([sum.computing, stream.computing]);
                sum.waiting = sum_lengths([sum.waiting, stream.waiting]);
                sum.others = sum_lengths([sum.others, stream.others]);
            }
        }
        sums
    }

    fn free_by_cause(&self) -> BTreeMap<GapCause, i64> {
        let mut sums = BTreeMap::new();
        for (cause, time) in self.times.iter().flat_map(|times| &times.free_by_cause) {
            let sum = sums.entry(*cause).or_insert(0);
            *sum = sum_lengths([*sum, *time]);
        }
        sums
    }
}

/// Returns the tables of steps, gaps, streams and late ranks, and what is missing.
pub(crate) fn step_times_text(report: &StepTimesReport<'_>) -> String {
    let mut text = steps_table(report);
    text.push_str(&largest_part(report));
    text.push_str(&gaps_table(report));
    text.push_str(&streams_table(report));
    text.push_str(&arrivals_table(report));
    text.push_str(&vendor_text(report));
    text.push_str(&missing_text(report.runs.iter(), &|_| true));
    text
}

fn steps_table(report: &StepTimesReport<'_>) -> String {
    let mut table = plain_table([
        "rank",
        "device",
        "step",
        "span ms",
        "computing ms",
        "communication ms",
        "of it p2p ms",
        "overlapped ms",
        "not overlapped ms",
        "free ms",
        "free",
        "preparing ms",
        "kernels",
        "collectives",
    ]);
    for times in report.times {
        table.add_row([
            number_cell(times.rank),
            number_cell(times.device),
            number_cell(times.step),
            millis_cell(times.span.length()),
            millis_cell(times.computing),
            millis_cell(times.communication),
            millis_cell(times.point_to_point),
            millis_cell(times.overlapped),
            millis_cell(times.not_overlapped),
            millis_cell(times.free),
            share(times.free, times.span.length()),
            times.preparing.map_or_else(|| "-".to_owned(), millis_cell),
            times.kernels.to_string(),
            times.collectives.to_string(),
        ]);
    }
    align_right(&mut table, 0..14);
    trim_lines(&table)
}

/// Returns the part of the time that dominates all steps.
fn largest_part(report: &StepTimesReport<'_>) -> String {
    let sum = |part: fn(&StepTimes) -> i64| sum_lengths(report.times.iter().map(part));
    let span = sum(|times| times.span.length());
    let parts = [
        ("computing", sum(|times| times.computing)),
        ("communication that is not overlapped", sum(|times| times.not_overlapped)),
        ("free time, in which the device neither computes nor communicates", sum(|times| times.free)),
    ];
    let largest = parts.into_iter().max_by_key(|(_, time)| *time);
    largest.map_or_else(String::new, |(name, time)| {
        format!("largest part: {name}, {} of {} ms\n", share(time, span), millis_cell(span))
    })
}

fn cause_text(cause: GapCause) -> &'static str {
    match cause {
        GapCause::DeviceTask => "other device tasks",
        GapCause::Framework => "framework",
        GapCause::Launch => "launch",
        GapCause::Wait => "wait",
        GapCause::Host => "host",
        GapCause::NotRecorded => "not recorded",
    }
}

fn gaps_table(report: &StepTimesReport<'_>) -> String {
    let gaps = report.longest_gaps();
    let causes = report.free_by_cause();
    if causes.is_empty() {
        return String::new();
    }
    let causes: Vec<String> =
        causes.iter().map(|(cause, time)| format!("{} {}", cause_text(*cause), millis_cell(*time))).collect();
    let mut text = format!("\nfree time by cause, ms: {}\n", causes.join(", "));
    let mut table = plain_table(["rank", "step", "start ms", "gap us", "cause", "before", "after", "inside"]);
    for (times, gap) in &gaps {
        let Some(run) = report.run_of(times) else { continue };
        let inside = gap.other_tasks.map_or_else(String::new, |(kind, time)| {
            format!("{} {} us", run.names.text(kind), micros_cell(time))
        });
        table.add_row([
            number_cell(times.rank),
            number_cell(times.step),
            millis_cell(gap.span.start - times.span.start),
            micros_cell(gap.span.length()),
            cause_text(gap.cause).to_owned(),
            run.names.text(gap.before).to_owned(),
            run.names.text(gap.after).to_owned(),
            inside,
        ]);
    }
    align_right(&mut table, 0..4);
    if !gaps.is_empty() {
        text.push_str(&trim_lines(&table));
    }
    text
}

fn streams_table(report: &StepTimesReport<'_>) -> String {
    let streams = report.streams();
    let mut table = plain_table([
        "rank",
        "device",
        "stream",
        "computing ms",
        "waiting ms",
        "other tasks ms",
        "kernels",
        "tasks",
    ]);
    for ((run, device, _), times) in &streams {
        table.add_row([
            number_cell(report.runs.get(*run).and_then(|run| run.rank)),
            number_cell(*device),
            number_cell(times.stream),
            millis_cell(times.computing),
            millis_cell(times.waiting),
            millis_cell(times.others),
            times.kernels.to_string(),
            times.tasks.to_string(),
        ]);
    }
    align_right(&mut table, 0..8);
    if streams.is_empty() { String::new() } else { format!("\n{}", trim_lines(&table)) }
}

fn arrivals_table(report: &StepTimesReport<'_>) -> String {
    if report.arrivals.is_empty() {
        return String::new();
    }
    let mut ranks = plain_table(["rank", "waited ms", "arrived last", "others waited for it ms"]);
    for (rank, waits) in waits_by_rank(report.arrivals) {
        ranks.add_row([
            rank.to_string(),
            millis_cell(waits.waited),
            waits.last.to_string(),
            millis_cell(waits.caused),
        ]);
    }
    align_right(&mut ranks, 0..4);
    let mut table = plain_table([
        "collective",
        "step",
        "transfer us",
        "last",
        "longest wait us",
        "by rank",
        "all waits us",
    ]);
    for arrival in report.arrivals.iter().take(SHOWN_ARRIVALS) {
        let (Some((last, transfer)), Some((rank, wait))) = (arrival.straggler(), arrival.longest_wait())
        else {
            continue;
        };
        table.add_row([
            arrival.name.clone(),
            number_cell(arrival.step),
            micros_cell(transfer),
            last.to_string(),
            micros_cell(wait),
            rank.to_string(),
            micros_cell(arrival.total_wait()),
        ]);
    }
    align_right(&mut table, 1..7);
    format!("\n{}\n{}", trim_lines(&ranks), trim_lines(&table))
}

fn vendor_text(report: &StepTimesReport<'_>) -> String {
    let mut text = String::new();
    for vendor in report.vendor.iter().filter(|vendor| vendor.steps > 0) {
        let file = vendor.file.display();
        let steps = match vendor.steps {
            1 => "1 step".to_owned(),
            steps => format!("{steps} steps"),
        };
        if vendor.differences.is_empty() {
            text.push_str(&format!("\n`{file}` has the same times in {steps}\n"));
            continue;
        }
        let times = match vendor.differences.len() {
            1 => "1 time".to_owned(),
            count => format!("{count} times"),
        };
        text.push_str(&format!("\n`{file}` differs in {times} of {steps}:\n"));
        let mut table = plain_table(["step", "column", "there us", "here us"]);
        for difference in vendor.differences.iter().take(SHOWN_DIFFERENCES) {
            table.add_row([
                number_cell(difference.step),
                difference.column.to_owned(),
                micros_cell(difference.theirs),
                micros_cell(difference.ours),
            ]);
        }
        align_right(&mut table, 2..4);
        text.push_str(&trim_lines(&table));
    }
    text
}

/// Returns what the profiles do not have, of the parts that matter.
pub(super) fn missing_text<'r>(
    runs: impl ExactSizeIterator<Item = &'r RunTimeline>,
    matters: &dyn Fn(&MissingPart) -> bool,
) -> String {
    let count = runs.len();
    let mut parts: Vec<(String, Vec<String>)> = Vec::new();
    for run in runs {
        let rank = number_cell(run.rank);
        for part in run.missing.iter().filter(|part| matters(part)) {
            match parts.iter_mut().find(|(text, _)| *text == part.to_string()) {
                Some((_, ranks)) => ranks.push(rank.clone()),
                None => parts.push((part.to_string(), vec![rank.clone()])),
            }
        }
    }
    let line = |(text, ranks): &(String, Vec<String>)| match ranks.len() == count {
        true => format!("not recorded: {text}\n"),
        false => format!("not recorded by rank {}: {text}\n", ranks.join(", ")),
    };
    let text: String = parts.iter().map(line).collect();
    if text.is_empty() { text } else { format!("\n{text}") }
}

/// Returns a JSON object for each step, each late collective, and each difference to the vendor's table.
pub(crate) fn step_times_json(report: &StepTimesReport<'_>) -> String {
    let mut lines = String::new();
    for times in report.times {
        let run = report.run_of(times);
        let name = |id| run.map(|run| run.names.text(id).to_owned());
        let gap = |gap: &FreeGap| -> Value {
            json!({
                "start_ns": gap.span.start,
                "gap_ns": gap.span.length(),
                "cause": <&str>::from(gap.cause),
                "before": name(gap.before),
                "after": name(gap.after),
                "inside": gap.other_tasks.and_then(|(kind, _)| name(kind)),
                "inside_ns": gap.other_tasks.map(|(_, time)| time),
            })
        };
        let causes: BTreeMap<&str, i64> =
            times.free_by_cause.iter().map(|(cause, time)| (<&str>::from(*cause), *time)).collect();
        let streams: Vec<Value> = times.streams.iter().map(stream_json).collect();
        let object = json!({
            "item": "step",
            "rank": times.rank,
            "device": times.device,
            "step": times.step,
            "files": run.map(|run| run.files.clone()),
            "form": run.and_then(|run| run.form).map(|form: ProfileForm| form.to_string()),
            "start_ns": times.span.start,
            "span_ns": times.span.length(),
            "computing_ns": times.computing,
            "communication_ns": times.communication,
            "collective_ns": times.collective,
            "point_to_point_ns": times.point_to_point,
            "overlapped_ns": times.overlapped,
            "not_overlapped_ns": times.not_overlapped,
            "free_ns": times.free,
            "stage_ns": times.stage(),
            "bubble_ns": times.bubble,
            "not_overlapped_excluding_receive_ns": times.not_overlapped_excluding_receive(),
            "preparing_ns": times.preparing,
            "kernels": times.kernels,
            "collectives": times.collectives,
            "free_by_cause_ns": causes,
            "gaps": times.gaps.len(),
            "longest_gaps": times.gaps.iter().take(report.gaps).map(gap).collect::<Vec<_>>(),
            "streams": streams,
            "not_recorded": run.map(|run| run.missing.iter().map(ToString::to_string).collect::<Vec<_>>()),
        });
        lines.push_str(&format!("{object}\n"));
    }
    for arrival in report.arrivals {
        let straggler = arrival.straggler();
        let object = json!({
            "item": "collective",
            "collective": arrival.name,
            "step": arrival.step,
            "transfer_ns": straggler.map(|(_, transfer)| transfer),
            "last_rank": straggler.map(|(rank, _)| rank),
            "durations_ns": arrival.durations,
        });
        lines.push_str(&format!("{object}\n"));
    }
    for vendor in report.vendor {
        for difference in &vendor.differences {
            let object = json!({
                "item": "vendor_difference",
                "file": vendor.file,
                "step": difference.step,
                "column": difference.column,
                "there_ns": difference.theirs,
                "here_ns": difference.ours,
            });
            lines.push_str(&format!("{object}\n"));
        }
    }
    lines
}

fn stream_json(stream: &StreamTimes) -> Value {
    json!({
        "stream": stream.stream,
        "computing_ns": stream.computing,
        "waiting_ns": stream.waiting,
        "other_ns": stream.others,
        "kernels": stream.kernels,
        "tasks": stream.tasks,
    })
}

/// Adds the modules, ranges and marks of a run's host, by thread.
fn add_host_lanes(run: &RunTimeline, process: usize, origin: i64, events: &mut Vec<Value>) {
    if run.ranges.is_empty() && run.marks.is_empty() {
        return;
    }
    let name = format!("rank {}, host", number_cell(run.rank));
    events.push(json!({"ph": "M", "pid": process, "name": "process_name", "args": {"name": name}}));
    for range in &run.ranges {
        let args = json!({"domain": run.names.text(range.domain)});
        events.push(
            json!({"ph": "X", "pid": process, "tid": range.thread, "name": run.names.text(range.name),
                           "ts": micros(range.span.start - origin), "dur": micros(range.span.length()),
                           "args": args}),
        );
    }
    for mark in &run.marks {
        let args = json!({"domain": run.names.text(mark.domain)});
        events.push(json!({"ph": "i", "s": "p", "pid": process, "tid": 0, "name": run.names.text(mark.name),
                           "ts": micros(mark.at - origin), "args": args}));
    }
}

/// Returns a trace for Perfetto and chrome://tracing, in the JSON trace event format: for each rank and device a process
/// with lanes for steps, computing, communication, communication that is not overlapped, and free time with its cause;
/// for each host the modules, ranges and marks.
/// Times are microseconds since the first task of all ranks.
pub(crate) fn step_lanes(report: &StepTimesReport<'_>) -> String {
    const LANES: [&str; 5] =
        ["Steps", "Computing", "Communication", "Communication (not overlapped)", "Free"];
    let origin = report.times.iter().map(|times| times.span.start).min().unwrap_or_default();
    let mut events: Vec<Value> = Vec::new();
    let mut processes: Vec<(usize, Option<u32>)> = Vec::new();
    for times in report.times {
        let key = (times.run, times.device);
        let process = processes.iter().position(|other| *other == key).unwrap_or_else(|| {
            processes.push(key);
            processes.len() - 1
        });
        let slice = |lane: usize, name: String, start: i64, length: i64, args: Value| {
            json!({"ph": "X", "pid": process, "tid": lane, "name": name, "ts": micros(start - origin),
                   "dur": micros(length), "args": args})
        };
        let step = times.step.map_or_else(|| "outside of steps".to_owned(), |step| format!("step {step}"));
        events.push(slice(0, step, times.span.start, times.span.length(), json!({})));
        let sets: [&TimeSet; 3] =
            [&times.sets.computing, &times.sets.communication, &times.sets.not_overlapped];
        for (lane, set) in (1..).zip(sets) {
            for span in set.spans() {
                events.push(slice(lane, LANES[lane].to_owned(), span.start, span.length(), json!({})));
            }
        }
        let run = report.run_of(times);
        for gap in &times.gaps {
            let args = json!({
                "before": run.map(|run| run.names.text(gap.before)),
                "after": run.map(|run| run.names.text(gap.after)),
            });
            let name = format!("Free: {}", cause_text(gap.cause));
            events.push(slice(4, name, gap.span.start, gap.span.length(), args));
        }
    }
    for (process, (run, device)) in processes.iter().enumerate() {
        let rank = report.runs.get(*run).and_then(|run| run.rank);
        let name = format!("rank {}, device {}", number_cell(rank), number_cell(*device));
        events.push(json!({"ph": "M", "pid": process, "name": "process_name", "args": {"name": name}}));
        for (lane, name) in LANES.iter().enumerate() {
            events.push(json!({"ph": "M", "pid": process, "tid": lane, "name": "thread_name",
                               "args": {"name": name}}));
            events.push(json!({"ph": "M", "pid": process, "tid": lane, "name": "thread_sort_index",
                               "args": {"sort_index": lane}}));
        }
    }
    for (run, process) in report.runs.iter().zip(processes.len()..) {
        add_host_lanes(run, process, origin, &mut events);
    }
    let document =
        json!({"traceEvents": events, "otherData": {"tool": "npubench", "origin_ns": origin.to_string()}});
    format!("{document}\n")
}
