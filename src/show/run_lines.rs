//! Event sink for users: a progress display on a terminal, otherwise plain lines.

use std::{any::Any, collections::HashSet};

use super::{
    cases::{SimilarCases, verdict_style},
    emit::OutputFormat,
    prelude::*,
    progress::{ProgressDisplay, WaitingLine},
    run_end::print_run_end,
};
pub(crate) use crate::base::count_text::number_ranges as device_ranges;
use crate::{
    base::print::{is_verbose, notes_have_colors, painted},
    kernel::{CollectionPurpose, DeviceDeviation},
    measure::events::{EventSink, RunEnd, RunEvent, RunScreen},
};

const MAX_DEVICES: usize = 8;

#[derive(Debug, Default)]
struct TextReporter {
    display: ProgressDisplay,
    not_launched: BTreeMap<(Verdict, String), SimilarCases>,
    launched: bool,
    finished: HashSet<CaseId>,
    total: usize,
    pending: Option<String>,
}

impl TextReporter {
    fn print_pending(&mut self) {
        if let Some(line) = self.pending.take() {
            // A resumed run may have only further rounds to do.
            let progress = match self.total {
                0 => String::new(),
                total => format!("; {} of {} done", self.finished.len(), format_count(total, "case")),
            };
            print_note(&format!("{line}{progress}"));
        }
    }

    fn print_not_launched(&mut self) {
        for ((verdict, _), similar) in std::mem::take(&mut self.not_launched) {
            // Cases measured before a resumed run was interrupted.
            if verdict.is_done() {
                continue;
            }
            let (cases, kernels) = (similar.count(), with_counts(&similar.kernels));
            print_note(&format!("{verdict}: {cases}{}: {} ({kernels})", similar.such_as(), similar.first));
        }
    }
}

fn event_line(event: &RunEvent) -> Option<String> {
    Some(match event {
        RunEvent::RowUnreadable { place } => format!("left out: {place}"),
        RunEvent::TableMissing { problem, .. } => problem.clone(),
        RunEvent::StopRequested { running, at_once } => {
            let running = format_count(*running, "running collection");
            match at_once {
                true => format!("ending {running} at once"),
                false => format!("stopping: {running} may end; a second Ctrl-C ends them at once"),
            }
        }
        RunEvent::RowsWritten { kernel, kept, .. } if *kept > 0 => kept_rows_note(*kept, kernel.as_str()),
        RunEvent::RowsNotWritten { kernel, problem, .. } => {
            format!("rows of {kernel} are not written yet: {problem}; the results are in the ledger")
        }
        RunEvent::MeasurementRepeated { cases, round } => {
            format!("round {round}: {} in another collection", format_count(*cases, "case"))
        }
        RunEvent::DevicesDiffer { devices } => device_text(devices),
        RunEvent::PrecisionReached { percent, max_collections, measured, precise, open } => {
            let cases = format_count(*measured, "case");
            let hopeless = measured.saturating_sub(precise + open);
            let hopeless = (hopeless > 0)
                .then(|| format!("; {hopeless} would need more than {max_collections} collections"));
            let open = (*open > 0).then(|| {
                format!(
                    "; {open} need further collections: the same command with `--precision {percent} --max-collections \
                     {max_collections}` goes on with them"
                )
            });
            format!(
                "{precise} of {cases} within {percent} % or one step of the timer, apart from its rounding of half a \
                 step{}{}",
                or_empty(hopeless),
                or_empty(open)
            )
        }
        RunEvent::ResultsSuspicious { cases, kernel, shapes, outcome } => format!(
            "{}, `npubench why` explains each; the first is {kernel} {shapes}: {}",
            format_count(*cases, "suspicious result"),
            outcome.reason.cause
        ),
        RunEvent::DeviceRunsOtherKernels { device, wrong, right } => format!(
            "device {device}: {wrong} of {} ran as other kernels or on an AI CPU, and other devices ran most as they should: \
             check its installation, or leave it out with `--devices`",
            format_count((wrong + right) as usize, "attempt")
        ),
        RunEvent::EarlierResultsSuspicious { cases, open, cache } => suspicious_text(*cases, *open, *cache),
        RunEvent::MeasurementsWithdrawn { cases, reason, .. } => {
            format!("results of {} are withdrawn and measured again: {reason}", format_count(*cases, "case"))
        }
        RunEvent::DevicePaused { device, reason, retry_in_s } => {
            let again = retry_in_s.map_or_else(
                || "it is excluded for the rest of this run".to_owned(),
                |seconds| match seconds < 0.5 {
                    true => "it is tried again at once".to_owned(),
                    false => format!("it is tried again in {}", format_duration(seconds)),
                },
            );
            format!("device {device} is paused: {reason}; {again}")
        }
        RunEvent::DeviceReadmitted { device } => format!("device {device} works again and is used again"),
        RunEvent::DeviceReserved { device, reason } => {
            format!("no new collection is started on device {device}: {reason}")
        }
        RunEvent::DeviceReleased { device } => format!("device {device} is used again"),
        RunEvent::DiskFull { folder, free, needed } => format!(
            "waiting for free disk space in {}: {} MiB are free, {} MiB are needed; no new collection is started",
            folder.display(),
            free >> 20,
            needed >> 20
        ),
        RunEvent::DiskFreed { folder } => {
            format!("the disk of {} has enough free space again", folder.display())
        }
        RunEvent::LedgerWaiting { problem, .. } => {
            format!("waiting to store results: {problem}; it is tried again, no new collection is started")
        }
        RunEvent::LedgerWritable { seconds, .. } => {
            format!("results are stored again after {}", format_duration(*seconds))
        }
        _ => return None,
    })
}

fn verdict_text(verdict: Verdict) -> String {
    match notes_have_colors() {
        true => painted(verdict.as_str(), verdict_style(Some(verdict))),
        false => verdict.to_string(),
    }
}

fn device_text(devices: &[DeviceDeviation]) -> String {
    let mut sorted: Vec<&DeviceDeviation> = devices.iter().collect();
    sorted.sort_by(|one, other| other.deviation.total_cmp(&one.deviation));
    let has_hosts = devices.windows(2).any(|pair| pair[0].place.host != pair[1].place.host);
    let (slowest, others) = (sorted.iter().take(MAX_DEVICES), sorted.len().saturating_sub(MAX_DEVICES));
    let text = slowest.map(|DeviceDeviation { place, deviation }| {
        let host = or_empty(has_hosts.then(|| format!("{} of ", place.host)));
        format!("{host}{} {:+.1} %", place.device, 100.0 * deviation)
    });
    let (text, more) =
        (joined(text, ", "), (others > 0).then(|| format!(" and {}", format_count(others, "other"))));
    let text = text + &or_empty(more);
    format!(
        "devices differ in all cases, and no clock shows which are right: {text} off their mean; the intervals contain it, and \
         only more devices make them narrower (`npubench noise`)"
    )
}

/// Returns a line about results of earlier runs that became suspicious; `open` of them are measured again.
fn suspicious_text(cases: usize, open: usize, cache: CacheState) -> String {
    let run = match cache {
        CacheState::Hot => "`npubench run`",
        CacheState::Cold => "`npubench run --cache cold`",
    };
    let rest = match (open, cases.saturating_sub(open)) {
        (0, _) => "several collections agree, so that they are not measured again".to_owned(),
        (1, 0) => format!("the next {run} measures it again"),
        (_, 0) => format!("the next {run} measures them again"),
        (open, _) => format!("the next {run} measures {open} again, those of a single collection"),
    };
    format!("{} of earlier runs became suspicious by new measurements; {rest}", format_count(cases, "result"))
}

fn kept_rows_note(rows: usize, kernel: &str) -> String {
    let keep = if rows == 1 { "keeps" } else { "keep" };
    format!("{} of {kernel} {keep} results with more samples than the ledger has", format_count(rows, "row"))
}

pub(crate) fn device_list(devices: &[u32]) -> String {
    format!("device{} {}", if devices.len() == 1 { "" } else { "s" }, device_ranges(devices))
}

impl EventSink for TextReporter {
    fn on_event(&mut self, event: &RunEvent) {
        self.display.on_event(event);
        // The line of a collection is printed after the cases that it completes and the rows of their kernels.
        if !matches!(
            event,
            RunEvent::CaseAttempted { .. } | RunEvent::CaseFinished { .. } | RunEvent::RowsWritten { .. }
        ) {
            self.print_pending();
        }
        match event {
            RunEvent::RunStarted {
                run, kind, cases, already_measured, devices, resumed, budget_s, ..
            } => {
                self.total = *cases;
                let cases = format_count(*cases, "case");
                let devices = device_list(devices);
                let mark = if *resumed { " resumed" } else { "" };
                let done = if *resumed { "already have a verdict" } else { "already measured" };
                let limit = or_empty(budget_s.map(|budget| {
                    let ends = Timestamp::now().plus_seconds(budget).local_date_time();
                    format!("; time limit {}, until {ends}", format_duration(budget))
                }));
                print_note(&format!(
                    "run {run} ({kind}){mark}: {cases} on {devices}; {already_measured} {done}{limit}"
                ));
            }
            RunEvent::CollectionStarted { .. } if !self.launched => {
                self.launched = true;
                self.print_not_launched();
            }
            RunEvent::CollectionFinished { collection, devices, purpose, outcome, seconds } => {
                let note =
                    or_empty((*purpose != CollectionPurpose::Measure).then(|| format!(" ({purpose})")));
                let devices = device_list(devices);
                let line = format!("collection {collection}{note} on {devices}: {outcome}, {seconds:.1} s");
                match self.display.is_drawn() {
                    // The display shows the next collection of the device.
                    true if outcome == "done" && !is_verbose() => {}
                    true => print_note(&line),
                    false => self.pending = Some(line),
                }
            }
            RunEvent::CaseFinished { kernel, shapes, outcome, case } => {
                if !self.launched {
                    let group = (outcome.verdict, outcome.reason.cause.group().join(" "));
                    self.not_launched.entry(group).or_default().add(&outcome.reason.to_string(), kernel);
                    return;
                }
                if outcome.verdict != Verdict::NotRun {
                    self.finished.insert(case.clone());
                }
                let is_listed = !outcome.verdict.is_done() || is_verbose();
                if is_listed && outcome.verdict != Verdict::NotRun {
                    let verdict = verdict_text(outcome.verdict);
                    print_note(&format!("{verdict}: {kernel} {shapes} ({case}): {}", outcome.reason));
                }
            }
            RunEvent::MeasurementsWithdrawn { case_ids, .. } => {
                case_ids.iter().for_each(|case| {
                    self.finished.remove(case);
                });
            }
            RunEvent::RunFinished { .. } => self.print_not_launched(),
            _ => {}
        }
        event_line(event).iter().for_each(|line| print_note(line));
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct JsonLines;

impl EventSink for JsonLines {
    fn on_event(&mut self, event: &RunEvent) {
        match serde_json::to_string(event) {
            Ok(line) => print_data(&(printable_json(&line).into_owned() + "\n")),
            Err(error) => print_warning(&format!("an event cannot be written as JSON: {error}")),
        }
    }
}

/// Screen of a command that measures: text, or events as JSON on standard output, of which the last one is the end of the run.
impl RunScreen for OutputFormat {
    fn wait_for(&self, awaited: &str) -> Box<dyn Any> {
        Box::new(WaitingLine::on_stderr(awaited))
    }

    fn events(&self) -> Box<dyn EventSink> {
        match self {
            Self::Plain => Box::new(TextReporter::default()),
            Self::Json => Box::new(JsonLines),
        }
    }

    fn end(&self, end: &RunEnd<'_>) {
        if *self == Self::Plain {
            print_run_end(end);
        }
    }
}

pub(crate) const fn run_screen(format: OutputFormat) -> &'static dyn RunScreen {
    match format {
        OutputFormat::Plain => &OutputFormat::Plain,
        OutputFormat::Json => &OutputFormat::Json,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn note_about_kept_rows_agrees_in_number() {
        let note =
            |rows| kept_rows_note(rows, "Add").replace(" results with more samples than the ledger has", "");
        assert_eq!([note(1), note(2)], ["1 row of Add keeps", "2 rows of Add keep"]);
    }

    #[test]
    fn suspicious_results_of_one_collection_are_measured_again() {
        let rest = |cases, open, cache| {
            let text = suspicious_text(cases, open, cache);
            text.split_once("; ").map(|(_, rest)| rest.to_owned()).expect("two parts")
        };
        let again = [(1, 1), (3, 3), (3, 2), (3, 0)].map(|(cases, open)| rest(cases, open, CacheState::Hot));
        assert_eq!(
            again,
            [
                "the next `npubench run` measures it again",
                "the next `npubench run` measures them again",
                "the next `npubench run` measures 2 again, those of a single collection",
                "several collections agree, so that they are not measured again",
            ]
        );
        assert_eq!(rest(1, 1, CacheState::Cold), "the next `npubench run --cache cold` measures it again");
    }

    #[test]
    fn consecutive_devices_are_shown_as_ranges() {
        assert_eq!(device_ranges(&[0, 1, 2, 3, 8]), "0-3,8");
        assert_eq!(device_ranges(&[5]), "5");
    }
}
