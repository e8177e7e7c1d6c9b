//! Times of the steps of a recorded run: tables and JSON lines.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use schemars::JsonSchema;
use serde::Serialize;

use super::table::{DETAIL, FittedColumn, fitted_text};
use crate::profile::timeline::{
    CollectiveArrival, FreeGap, GapCause, MissingPart, RunTimeline, StepTimes, StreamTimes, VendorSteps,
    sum_lengths, waits_by_rank,
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
pub(super) fn micros(nanos: i64) -> f64 {
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

pub(super) fn number_cell<N: ToString>(number: Option<N>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

impl<'a> StepTimesReport<'a> {
    /// Returns the run of a row.
    pub(super) fn run_of(&self, times: &StepTimes) -> Option<&'a RunTimeline> {
        self.runs.get(times.run)
    }

    /// Returns true if the kernels of the row's run are recorded: without them only times of communication are known.
    pub(super) fn has_kernels(&self, times: &StepTimes) -> bool {
        self.run_of(times).is_none_or(|run| !run.missing.contains(&MissingPart::Kernels))
    }

    /// Returns the rows of runs with kernels.
    fn with_kernels(&self) -> impl Iterator<Item = &'a StepTimes> + Clone {
        self.times.iter().filter(|times| self.has_kernels(times))
    }

    fn longest_gaps(&self) -> Vec<(&'a StepTimes, &'a FreeGap)> {
        let of_step = |times: &'a StepTimes| times.gaps.iter().take(self.gaps).map(move |gap| (times, gap));
        let mut gaps: Vec<_> = self.with_kernels().flat_map(of_step).collect();
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
        for (cause, time) in self.with_kernels().flat_map(|times| &times.free_by_cause) {
            let sum = sums.entry(*cause).or_insert(0);
            *sum = sum_lengths([*sum, *time]);
        }
        sums
    }
}

/// Returns the tables of steps, gaps, streams and late ranks, and what is missing.
pub(crate) fn step_times_text(report: &StepTimesReport<'_>, width: Option<usize>) -> String {
    let mut text = steps_table(report, width);
    text.push_str(&largest_part(report));
    text.push_str(&gaps_table(report, width));
    text.push_str(&streams_table(report, width));
    text.push_str(&others_text(report));
    text.push_str(&arrivals_table(report, width));
    text.push_str(&vendor_text(report, width));
    text.push_str(&missing_text(report.runs.iter(), &|_| true));
    text
}

fn steps_table(report: &StepTimesReport<'_>, width: Option<usize>) -> String {
    let columns = vec![
        FittedColumn::number("rank", 0),
        FittedColumn::number("device", DETAIL + 1),
        FittedColumn::number("step", 0),
        FittedColumn::number("span ms", 0),
        FittedColumn::number("computing ms", 1),
        FittedColumn::number("communication ms", 3),
        FittedColumn::number("of it p2p ms", DETAIL + 3),
        FittedColumn::number("overlapped ms", DETAIL + 2),
        FittedColumn::number("not overlapped ms", 2).shortened_to(11).wanted(17).with_long_header(),
        FittedColumn::number("free ms", 0),
        FittedColumn::number("free", DETAIL),
        FittedColumn::number("preparing ms", DETAIL + 3),
        FittedColumn::number("kernels", DETAIL + 2),
        FittedColumn::number("collectives", DETAIL + 2),
    ];
    let row = |times: &StepTimes| {
        let with_kernels = |cell: String| if report.has_kernels(times) { cell } else { "-".to_owned() };
        vec![
            number_cell(times.rank),
            number_cell(times.device),
            number_cell(times.step),
            millis_cell(times.span.length()),
            with_kernels(millis_cell(times.computing)),
            millis_cell(times.communication),
            millis_cell(times.point_to_point),
            with_kernels(millis_cell(times.overlapped)),
            with_kernels(millis_cell(times.not_overlapped)),
            with_kernels(millis_cell(times.free)),
            with_kernels(share(times.free, times.span.length())),
            times.preparing.map_or_else(|| "-".to_owned(), millis_cell),
            times.kernels.to_string(),
            times.collectives.to_string(),
        ]
    };
    fitted_text(columns, report.times.iter().map(row), width)
}

/// Returns the part of the time that dominates all steps.
fn largest_part(report: &StepTimesReport<'_>) -> String {
    let sum = |part: fn(&StepTimes) -> i64| sum_lengths(report.with_kernels().map(part));
    let span = sum(|times| times.span.length());
    if report.with_kernels().next().is_none() {
        return String::new();
    }
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

pub(super) fn cause_text(cause: GapCause) -> &'static str {
    match cause {
        GapCause::DeviceTask => "other device tasks",
        GapCause::Framework => "framework",
        GapCause::Launch => "launch",
        GapCause::Wait => "wait",
        GapCause::Host => "host",
        GapCause::NotRecorded => "not recorded",
    }
}

fn gaps_table(report: &StepTimesReport<'_>, width: Option<usize>) -> String {
    let gaps = report.longest_gaps();
    let causes = report.free_by_cause();
    if causes.is_empty() {
        return String::new();
    }
    let causes: Vec<String> =
        causes.iter().map(|(cause, time)| format!("{} {}", cause_text(*cause), millis_cell(*time))).collect();
    let mut text = format!("\nfree time by cause, ms: {}\n", causes.join(", "));
    let columns = vec![
        FittedColumn::number("rank", 4),
        FittedColumn::number("step", 3),
        FittedColumn::number("start ms", 1),
        FittedColumn::number("gap us", 0),
        FittedColumn::text("cause", 0),
        FittedColumn::text("before", 2).shortened_to(10),
        FittedColumn::text("after", 2).shortened_to(10),
        FittedColumn::text("inside", DETAIL).shortened_to(12),
    ];
    let rows = gaps.iter().filter_map(|(times, gap)| {
        let run = report.run_of(times)?;
        let inside = gap.other_tasks.map_or_else(String::new, |(kind, time)| {
            format!("{} {} us", run.names.text(kind), micros_cell(time))
        });
        Some(vec![
            number_cell(times.rank),
            number_cell(times.step),
            millis_cell(gap.span.start - times.span.start),
            micros_cell(gap.span.length()),
            cause_text(gap.cause).to_owned(),
            run.names.text(gap.before).to_owned(),
            run.names.text(gap.after).to_owned(),
            inside,
        ])
    });
    if !gaps.is_empty() {
        text.push_str(&fitted_text(columns, rows, width));
    }
    text
}

fn streams_table(report: &StepTimesReport<'_>, width: Option<usize>) -> String {
    let streams = report.streams();
    if streams.is_empty() {
        return String::new();
    }
    let columns = vec![
        FittedColumn::number("rank", 0),
        FittedColumn::number("device", DETAIL + 1),
        FittedColumn::number("stream", 0),
        FittedColumn::number("computing ms", 0),
        FittedColumn::number("waiting ms", 1),
        FittedColumn::number("other tasks ms", 2),
        FittedColumn::number("kernels", DETAIL),
        FittedColumn::number("tasks", DETAIL),
    ];
    let rows = streams.iter().map(|((run, device, _), times)| {
        vec![
            number_cell(report.runs.get(*run).and_then(|run| run.rank)),
            number_cell(*device),
            number_cell(times.stream),
            millis_cell(times.computing),
            millis_cell(times.waiting),
            millis_cell(times.others),
            times.kernels.to_string(),
            times.tasks.to_string(),
        ]
    });
    format!("\n{}", fitted_text(columns, rows, width))
}

/// Returns the work of the devices outside of the spans of the rows.
fn others_text(report: &StepTimesReport<'_>) -> String {
    let sum = |part: fn(&StepTimes) -> i64| sum_lengths(report.times.iter().map(part));
    match (sum(|times| times.other_before), sum(|times| times.other_behind)) {
        (0, 0) => String::new(),
        (before, behind) => format!(
            "copies and other tasks outside of the spans of the rows: {} ms before them, {} ms behind them\n",
            millis_cell(before),
            millis_cell(behind)
        ),
    }
}

fn arrivals_table(report: &StepTimesReport<'_>, width: Option<usize>) -> String {
    if report.arrivals.is_empty() {
        return String::new();
    }
    let columns = vec![
        FittedColumn::number("rank", 0),
        FittedColumn::number("waited ms", 1),
        FittedColumn::number("arrived last", 0),
        FittedColumn::number("others waited for it ms", 0),
    ];
    let waits = waits_by_rank(report.arrivals).into_iter().map(|(rank, waits)| {
        vec![rank.to_string(), millis_cell(waits.waited), waits.last.to_string(), millis_cell(waits.caused)]
    });
    let ranks = fitted_text(columns, waits, width);
    let columns = vec![
        FittedColumn::text("collective", 0).shortened_to(16),
        FittedColumn::number("step", 4),
        FittedColumn::number("transfer us", 3),
        FittedColumn::number("last", 0),
        FittedColumn::number("longest wait us", 0),
        FittedColumn::number("by rank", 1),
        FittedColumn::number("all waits us", 2),
    ];
    let rows = report.arrivals.iter().take(SHOWN_ARRIVALS).filter_map(|arrival| {
        let ((_, transfer), (rank, wait)) = arrival.straggler().zip(arrival.longest_wait())?;
        let last = arrival.last_rank();
        let rank_cell = |rank: u32| last.map_or_else(|| "-".to_owned(), |_| rank.to_string());
        Some(vec![
            arrival.name.clone(),
            number_cell(arrival.step),
            micros_cell(transfer),
            rank_cell(last.unwrap_or_default()),
            micros_cell(wait),
            rank_cell(rank),
            micros_cell(arrival.total_wait()),
        ])
    });
    format!("\n{ranks}\n{}", fitted_text(columns, rows, width))
}

fn vendor_text(report: &StepTimesReport<'_>, width: Option<usize>) -> String {
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
        let columns = vec![
            FittedColumn::text("step", 0),
            FittedColumn::text("column", 0).shortened_to(12),
            FittedColumn::number("there us", 0),
            FittedColumn::number("here us", 0),
        ];
        let rows = vendor.differences.iter().take(SHOWN_DIFFERENCES).map(|difference| {
            vec![
                number_cell(difference.step),
                difference.column.to_owned(),
                micros_cell(difference.theirs),
                micros_cell(difference.ours),
            ]
        });
        text.push_str(&fitted_text(columns, rows, width));
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

/// What `timeline --format json` prints: a record for each step, each late collective, and each difference to the vendor's
/// table. Times are nanoseconds; those that need kernels are null without them.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "item", rename_all = "snake_case")]
pub(crate) enum TimelineRecord<'a> {
    Step(Box<StepRecord<'a>>),
    Collective {
        collective: &'a str,
        step: Option<u64>,
        transfer_ns: Option<i64>,
        last_rank: Option<u32>,
        /// By rank.
        durations_ns: &'a BTreeMap<u32, i64>,
    },
    VendorDifference {
        file: &'a Path,
        step: Option<u64>,
        column: &'static str,
        there_ns: i64,
        here_ns: i64,
    },
}

/// Step of one device.
#[derive(Serialize, JsonSchema)]
pub(crate) struct StepRecord<'a> {
    rank: Option<u32>,
    device: Option<u32>,
    step: Option<u64>,
    files: Option<&'a [PathBuf]>,
    form: Option<String>,
    start_ns: i64,
    span_ns: i64,
    computing_ns: Option<i64>,
    communication_ns: i64,
    collective_ns: i64,
    point_to_point_ns: i64,
    overlapped_ns: Option<i64>,
    not_overlapped_ns: Option<i64>,
    free_ns: Option<i64>,
    stage_ns: i64,
    bubble_ns: i64,
    not_overlapped_excluding_receive_ns: Option<i64>,
    preparing_ns: Option<i64>,
    other_tasks_before_ns: i64,
    other_tasks_behind_ns: i64,
    kernels: usize,
    collectives: usize,
    free_by_cause_ns: Option<BTreeMap<&'static str, i64>>,
    gaps: Option<usize>,
    longest_gaps: Option<Vec<GapRecord<'a>>>,
    streams: Vec<StreamRecord>,
    not_recorded: Option<Vec<String>>,
}

/// Free time between two tasks of a device.
#[derive(Serialize, JsonSchema)]
struct GapRecord<'a> {
    start_ns: i64,
    gap_ns: i64,
    cause: &'static str,
    before: Option<&'a str>,
    after: Option<&'a str>,
    /// Kind of the other device tasks in the gap that take the most time.
    inside: Option<&'a str>,
    inside_ns: Option<i64>,
}

#[derive(Serialize, JsonSchema)]
struct StreamRecord {
    stream: Option<u32>,
    computing_ns: i64,
    waiting_ns: i64,
    other_ns: i64,
    kernels: usize,
    tasks: usize,
}

impl<'a> StepTimesReport<'a> {
    pub(crate) fn records(&self) -> Vec<TimelineRecord<'a>> {
        let steps = self.times.iter().map(|times| TimelineRecord::Step(Box::new(self.step_record(times))));
        let arrivals = self.arrivals.iter().map(|arrival| TimelineRecord::Collective {
            collective: &arrival.name,
            step: arrival.step,
            transfer_ns: arrival.straggler().map(|(_, transfer)| transfer),
            last_rank: arrival.last_rank(),
            durations_ns: &arrival.durations,
        });
        let differences = self.vendor.iter().flat_map(|vendor| {
            vendor.differences.iter().map(|difference| TimelineRecord::VendorDifference {
                file: &vendor.file,
                step: difference.step,
                column: difference.column,
                there_ns: difference.theirs,
                here_ns: difference.ours,
            })
        });
        steps.chain(arrivals).chain(differences).collect()
    }

    fn step_record(&self, times: &'a StepTimes) -> StepRecord<'a> {
        let run = self.run_of(times);
        let name = |id| run.map(|run| run.names.text(id));
        let has_kernels = self.has_kernels(times);
        let known = |time: i64| has_kernels.then_some(time);
        let gap = |gap: &FreeGap| GapRecord {
            start_ns: gap.span.start,
            gap_ns: gap.span.length(),
            cause: gap.cause.into(),
            before: name(gap.before),
            after: name(gap.after),
            inside: gap.other_tasks.and_then(|(kind, _)| name(kind)),
            inside_ns: gap.other_tasks.map(|(_, time)| time),
        };
        let stream = |stream: &StreamTimes| StreamRecord {
            stream: stream.stream,
            computing_ns: stream.computing,
            waiting_ns: stream.waiting,
            other_ns: stream.others,
            kernels: stream.kernels,
            tasks: stream.tasks,
        };
        StepRecord {
            rank: times.rank,
            device: times.device,
            step: times.step,
            files: run.map(|run| &*run.files),
            form: run.and_then(|run| run.form).map(|form| form.to_string()),
            start_ns: times.span.start,
            span_ns: times.span.length(),
            computing_ns: known(times.computing),
            communication_ns: times.communication,
            collective_ns: times.collective,
            point_to_point_ns: times.point_to_point,
            overlapped_ns: known(times.overlapped),
            not_overlapped_ns: known(times.not_overlapped),
            free_ns: known(times.free),
            stage_ns: times.stage(),
            bubble_ns: times.bubble,
            not_overlapped_excluding_receive_ns: known(times.not_overlapped_excluding_receive()),
            preparing_ns: times.preparing,
            other_tasks_before_ns: times.other_before,
            other_tasks_behind_ns: times.other_behind,
            kernels: times.kernels,
            collectives: times.collectives,
            free_by_cause_ns: has_kernels.then(|| {
                times.free_by_cause.iter().map(|(cause, time)| (<&str>::from(*cause), *time)).collect()
            }),
            gaps: has_kernels.then_some(times.gaps.len()),
            longest_gaps: has_kernels.then(|| times.gaps.iter().take(self.gaps).map(gap).collect()),
            streams: times.streams.iter().map(stream).collect(),
            not_recorded: run.map(|run| run.missing.iter().map(ToString::to_string).collect()),
        }
    }
}
