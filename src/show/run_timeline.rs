//! Times of the steps of a recorded run: tables and JSON lines.

use super::prelude::*;
use crate::profile::timeline::{
    CollectiveArrival, FreeGap, GapCause, MissingPart, StepDifference, StepTimes, StreamTimes, VendorSteps,
    sum_lengths, waits_by_rank,
};

const SHOWN_ARRIVALS: usize = 10;
const SHOWN_DIFFERENCES: usize = 12;

#[derive(Debug)]
pub(crate) struct StepTimesReport<'a> {
    pub(crate) runs: &'a [RunTimeline],
    pub(crate) times: &'a [StepTimes],
    pub(crate) arrivals: &'a [CollectiveArrival],
    pub(crate) vendor: &'a [VendorSteps],
    pub(crate) gaps: usize,
}

fn share(part: i64, whole: i64) -> String {
    or_dash((whole > 0).then(|| format!("{:.1} %", 100.0 * float(part) / float(whole))))
}

impl<'a> StepTimesReport<'a> {
    pub(super) fn run_of(&self, times: &StepTimes) -> Option<&'a RunTimeline> {
        self.runs.get(times.run)
    }

    /// Returns true if the kernels of the row's run are recorded: without them only times of communication are known.
    pub(super) fn has_kernels(&self, times: &StepTimes) -> bool {
        self.run_of(times).is_none_or(|run| !run.missing.contains(&MissingPart::Kernels))
    }

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

    fn streams(&self) -> BTreeMap<(usize, Option<u32>, Option<u32>), Vec<&'a StreamTimes>> {
        let mut streams: BTreeMap<_, Vec<&StreamTimes>> = BTreeMap::new();
        for times in self.times {
            for stream in &times.streams {
                streams.entry((times.run, times.device, stream.stream)).or_default().push(stream);
            }
        }
        streams
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

pub(crate) fn step_times_text(report: &StepTimesReport<'_>, width: Option<usize>) -> String {
    [
        steps_table(report, width),
        largest_part(report),
        gaps_table(report, width),
        streams_table(report, width),
        others_text(report),
        arrivals_table(report, width),
        vendor_text(report, width),
        missing_text(report.runs.iter(), &|_| true),
    ]
    .concat()
}

fn steps_table(report: &StepTimesReport<'_>, width: Option<usize>) -> String {
    let known = |times: &StepTimes, time: i64| or_dash(report.has_kernels(times).then(|| millis(time)));
    let free = |times: &StepTimes| {
        or_dash(report.has_kernels(times).then(|| share(times.free, times.span.length())))
    };
    Table::new(report.times)
        .number("rank", 0, |times| or_dash(times.rank))
        .number("device", DETAIL + 1, |times| or_dash(times.device))
        .number("step", 0, |times| or_dash(times.step))
        .number("span ms", 0, |times| millis(times.span.length()))
        .number("computing ms", 1, |times| known(times, times.computing))
        .number("communication ms", 3, |times| millis(times.communication))
        .number("of it p2p ms", DETAIL + 3, |times| millis(times.point_to_point))
        .number("overlapped ms", DETAIL + 2, |times| known(times, times.overlapped))
        .number("not overlapped ms", rank(2).min(11).wanted(17).with_long_header(), |times| {
            known(times, times.not_overlapped)
        })
        .number("free ms", 0, |times| known(times, times.free))
        .number("free", DETAIL, free)
        .number("preparing ms", DETAIL + 3, |times| or_dash(times.preparing.map(millis)))
        .number("kernels", DETAIL + 2, |times| times.kernels)
        .number("collectives", DETAIL + 2, |times| times.collectives)
        .print(width)
}

fn largest_part(report: &StepTimesReport<'_>) -> String {
    let sum = |part: fn(&StepTimes) -> i64| sum_lengths(report.with_kernels().map(part));
    let span = sum(|times| times.span.length());
    let parts = [
        ("computing", sum(|times| times.computing)),
        ("communication that is not overlapped", sum(|times| times.not_overlapped)),
        ("free time, in which the device neither computes nor communicates", sum(|times| times.free)),
    ];
    let has_parts = report.with_kernels().next().is_some();
    let largest = parts.into_iter().max_by_key(|(_, time)| *time).filter(|_| has_parts);
    or_empty(
        largest.map(|(name, time)| {
            format!("largest part: {name}, {} of {} ms\n", share(time, span), millis(span))
        }),
    )
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
    let causes = report.free_by_cause();
    if causes.is_empty() {
        return String::new();
    }
    let causes = causes.iter().map(|(cause, time)| (cause_text(*cause), millis(*time)));
    let of_run = |(times, gap)| Some((report.run_of(times)?, times, gap));
    let gaps = report.longest_gaps().into_iter().filter_map(of_run);
    let inside = |run: &RunTimeline, gap: &FreeGap| {
        or_empty(gap.other_tasks.map(|(kind, time)| format!("{} {} us", run.names.text(kind), micros(time))))
    };
    let table = Table::new(gaps)
        .number("rank", 4, |(_, times, _)| or_dash(times.rank))
        .number("step", 3, |(_, times, _)| or_dash(times.step))
        .number("start ms", 1, |(_, times, gap)| millis(gap.span.start - times.span.start))
        .number("gap us", 0, |(.., gap)| micros(gap.span.length()))
        .text("cause", 0, |(.., gap)| cause_text(gap.cause))
        .text("before", rank(2).min(10), |(run, _, gap)| run.names.text(gap.before))
        .text("after", rank(2).min(10), |(run, _, gap)| run.names.text(gap.after))
        .text("inside", rank(DETAIL).min(12), |(run, _, gap)| inside(run, gap));
    format!("\nfree time by cause, ms: {}\n{}", with_counts(causes), table.print(width))
}

fn streams_table(report: &StepTimesReport<'_>, width: Option<usize>) -> String {
    let streams = report.streams();
    let time = |steps: &[&StreamTimes], of: fn(&StreamTimes) -> i64| {
        millis(sum_lengths(steps.iter().map(|times| of(times))))
    };
    let table = Table::new(&streams)
        .number("rank", 0, |((run, ..), _)| or_dash(report.runs.get(*run).and_then(|run| run.rank)))
        .number("device", DETAIL + 1, |((_, device, _), _)| or_dash(*device))
        .number("stream", 0, |((.., stream), _)| or_dash(*stream))
        .number("computing ms", 0, |(_, steps)| time(steps, |times| times.computing))
        .number("waiting ms", 1, |(_, steps)| time(steps, |times| times.waiting))
        .number("other tasks ms", 2, |(_, steps)| time(steps, |times| times.others))
        .number("kernels", DETAIL, |(_, steps)| steps.iter().map(|times| times.kernels).sum::<usize>())
        .number("tasks", DETAIL, |(_, steps)| steps.iter().map(|times| times.tasks).sum::<usize>());
    if streams.is_empty() { String::new() } else { format!("\n{}", table.print(width)) }
}

fn others_text(report: &StepTimesReport<'_>) -> String {
    let sum = |part: fn(&StepTimes) -> i64| sum_lengths(report.times.iter().map(part));
    match (sum(|times| times.other_before), sum(|times| times.other_behind)) {
        (0, 0) => String::new(),
        (before, behind) => format!(
            "copies and other tasks outside of the spans of the rows: {} ms before them, {} ms behind them\n",
            millis(before),
            millis(behind)
        ),
    }
}

fn arrivals_table(report: &StepTimesReport<'_>, width: Option<usize>) -> String {
    if report.arrivals.is_empty() {
        return String::new();
    }
    let waits = waits_by_rank(report.arrivals);
    let ranks = Table::new(&waits)
        .number("rank", 0, |(rank, _)| rank)
        .number("waited ms", 1, |(_, waits)| millis(waits.waited))
        .number("arrived last", 0, |(_, waits)| waits.last)
        .number("others waited for it ms", 0, |(_, waits)| millis(waits.caused));
    let late = report.arrivals.iter().take(SHOWN_ARRIVALS).filter_map(|arrival| {
        let ((_, transfer), (rank, wait)) = arrival.straggler().zip(arrival.longest_wait())?;
        Some((arrival, transfer, arrival.last_rank().map(|_| rank), wait))
    });
    let arrivals = Table::new(late)
        .text("collective", rank(0).min(16), |(arrival, ..)| &arrival.name)
        .number("step", 4, |(arrival, ..)| or_dash(arrival.step))
        .number("transfer us", 3, |(_, transfer, ..)| micros(transfer))
        .number("last", 0, |(arrival, ..)| or_dash(arrival.last_rank()))
        .number("longest wait us", 0, |(.., wait)| micros(wait))
        .number("by rank", 1, |(_, _, rank, _)| or_dash(rank))
        .number("all waits us", 2, |(arrival, ..)| micros(arrival.total_wait()));
    format!("\n{}\n{}", ranks.print(width), arrivals.print(width))
}

fn vendor_text(report: &StepTimesReport<'_>, width: Option<usize>) -> String {
    let text = |vendor: &VendorSteps| {
        let (file, steps) = (vendor.file.display(), format_count(vendor.steps, "step"));
        if vendor.differences.is_empty() {
            return format!("\n`{file}` has the same times in {steps}\n");
        }
        let times = format_count(vendor.differences.len(), "time");
        let table = Table::new(vendor.differences.iter().take(SHOWN_DIFFERENCES))
            .text("step", 0, |difference| or_dash(difference.step))
            .text("column", rank(0).min(12), |difference| difference.column)
            .number("there us", 0, |difference| micros(difference.theirs))
            .number("here us", 0, |difference| micros(difference.ours));
        format!("\n`{file}` differs in {times} of {steps}:\n{}", table.print(width))
    };
    report.vendor.iter().filter(|vendor| vendor.steps > 0).map(text).collect()
}

/// Returns what the profiles do not have, of the parts that matter.
pub(super) fn missing_text<'r>(
    runs: impl ExactSizeIterator<Item = &'r RunTimeline>,
    matters: &dyn Fn(&MissingPart) -> bool,
) -> String {
    let count = runs.len();
    let mut parts: Vec<(String, Vec<String>)> = Vec::new();
    for run in runs {
        let rank = or_dash(run.rank);
        for part in run.missing.iter().filter(|part| matters(part)).map(ToString::to_string) {
            match parts.iter_mut().find(|(text, _)| *text == part) {
                Some((_, ranks)) => ranks.push(rank.clone()),
                None => parts.push((part, vec![rank.clone()])),
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

record! {
    /// Step of one device. Times that need kernels are null without them.
    StepRecord<'a>(report: &StepTimesReport<'a>, times: &'a StepTimes)
    with {
        let run = report.run_of(times);
        let has_kernels = report.has_kernels(times);
        let known = |time: i64| has_kernels.then_some(time);
        let by_cause = || times.free_by_cause.iter().map(|(cause, time)| (<&str>::from(*cause), *time)).collect();
        let gaps = || times.gaps.iter().take(report.gaps).map(|gap| GapRecord::new(gap, run)).collect();
    } {
        item: &'static str = "step",
        rank: Option<u32> = times.rank,
        device: Option<u32> = times.device,
        step: Option<u64> = times.step,
        files: Option<&'a [PathBuf]> = run.map(|run| &*run.files),
        form: Option<String> = run.and_then(|run| run.form).map(|form| form.to_string()),
        start_ns: i64 = times.span.start,
        span_ns: i64 = times.span.length(),
        computing_ns: Option<i64> = known(times.computing),
        communication_ns: i64 = times.communication,
        collective_ns: i64 = times.collective,
        point_to_point_ns: i64 = times.point_to_point,
        overlapped_ns: Option<i64> = known(times.overlapped),
        not_overlapped_ns: Option<i64> = known(times.not_overlapped),
        free_ns: Option<i64> = known(times.free),
        stage_ns: i64 = times.stage(),
        bubble_ns: i64 = times.bubble,
        not_overlapped_excluding_receive_ns: Option<i64> = known(times.not_overlapped_excluding_receive()),
        preparing_ns: Option<i64> = times.preparing,
        other_tasks_before_ns: i64 = times.other_before,
        other_tasks_behind_ns: i64 = times.other_behind,
        kernels: usize = times.kernels,
        collectives: usize = times.collectives,
        free_by_cause_ns: Option<BTreeMap<&'static str, i64>> = has_kernels.then(by_cause),
        gaps: Option<usize> = has_kernels.then_some(times.gaps.len()),
        longest_gaps: Option<Vec<GapRecord<'a>>> = has_kernels.then(gaps),
        streams: &'a [StreamTimes] = &times.streams,
        not_recorded: Option<Vec<String>> = run.map(|run| run.missing.iter().map(ToString::to_string).collect()),
    }
}

record! {
    GapRecord<'a>(gap: &FreeGap, run: Option<&'a RunTimeline>)
    with { let name = |id| run.map(|run| run.names.text(id)); } {
        start_ns: i64 = gap.span.start,
        gap_ns: i64 = gap.span.length(),
        cause: &'static str = gap.cause.into(),
        before: Option<&'a str> = name(gap.before),
        after: Option<&'a str> = name(gap.after),
        inside: Option<&'a str> = gap.other_tasks.and_then(|(kind, _)| name(kind)),
        inside_ns: Option<i64> = gap.other_tasks.map(|(_, time)| time),
    }
}

record! {
    ArrivalRecord<'a>(arrival: &'a CollectiveArrival) {
        item: &'static str = "collective",
        collective: &'a str = &arrival.name,
        step: Option<u64> = arrival.step,
        transfer_ns: Option<i64> = arrival.straggler().map(|(_, transfer)| transfer),
        last_rank: Option<u32> = arrival.last_rank(),
        durations_ns: &'a BTreeMap<u32, i64> = &arrival.durations,
    }
}

record! {
    VendorRecord<'a>(vendor: &'a VendorSteps, difference: &StepDifference) {
        item: &'static str = "vendor_difference",
        file: &'a Path = &vendor.file,
        step: Option<u64> = difference.step,
        column: &'static str = difference.column,
        there_ns: i64 = difference.theirs,
        here_ns: i64 = difference.ours,
    }
}

/// What `timeline --format json` prints: a record for each step, each late collective, and each difference to the vendor's
/// table. Times are nanoseconds.
pub(crate) fn step_times_records(report: &StepTimesReport<'_>) -> Vec<Box<RawValue>> {
    let steps = report.times.iter().map(|times| json_record(&StepRecord::new(report, times)));
    let arrivals = report.arrivals.iter().map(|arrival| json_record(&ArrivalRecord::new(arrival)));
    let differences = report.vendor.iter().flat_map(|vendor| {
        vendor.differences.iter().map(move |difference| json_record(&VendorRecord::new(vendor, difference)))
    });
    steps.chain(arrivals).chain(differences).collect()
}
