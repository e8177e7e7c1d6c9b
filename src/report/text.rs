//! A live table on a terminal, plain lines elsewhere.

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal as _},
};

use super::{EventSink, print_note, progress::ProgressDisplay, timestamp::span};
use crate::{
    domain::{CollectionPurpose, Verdict},
    events::RunEvent,
};

/// Cases refused for one reason are said in one line, with their kernels.
type RefusalGroups = BTreeMap<(Verdict, String), BTreeMap<String, usize>>;

/// Tells a person what happens.
#[derive(Debug)]
pub struct TextReporter {
    live: Option<ProgressDisplay>,
    refused: RefusalGroups,
    launched: bool,
    finished: usize,
    total: usize,
    /// A collection's line, held back until its cases are counted.
    pending: Option<String>,
}

impl TextReporter {
    /// A table where standard error is a terminal, lines elsewhere.
    #[must_use]
    pub fn for_stderr() -> Self {
        let live = io::stderr().is_terminal().then(ProgressDisplay::for_stderr);
        Self { live, refused: RefusalGroups::new(), launched: false, finished: 0, total: 0, pending: None }
    }

    fn print_line(&self, line: &str) {
        match &self.live {
            Some(live) => live.print_line(line),
            None => print_note(line),
        }
    }

    fn tell_pending(&mut self) {
        if let Some(line) = self.pending.take() {
            self.print_line(&format!("{line}; {} of {} done", self.finished, plural(self.total, "case")));
        }
    }

    fn tell_refused(&mut self) {
        for ((verdict, reason), kernels) in std::mem::take(&mut self.refused) {
            // What an interrupted run had measured.
            if verdict == Verdict::Ok {
                continue;
            }
            let cases = plural(kernels.values().sum(), "case");
            let kernels: Vec<String> =
                kernels.iter().map(|(kernel, count)| format!("{kernel} {count}")).collect();
            self.print_line(&format!("{verdict}: {cases}: {reason} ({})", kernels.join(", ")));
        }
    }

    /// What became of a device or of the disk.
    fn tell_of_host(&self, event: &RunEvent) {
        match event {
            RunEvent::DeviceQuarantined { device, reason, retry_in_s } => {
                let again = retry_in_s.map_or_else(
                    || "it is excluded for the rest of this run".to_owned(),
                    |seconds| format!("it is tried again in {}", span(seconds)),
                );
                self.print_line(&format!("device {device} is quarantined: {reason}; {again}"));
            }
            RunEvent::DeviceReadmitted { device } => {
                self.print_line(&format!("device {device} works again, and is used again"));
            }
            RunEvent::DeviceReserved { device, reason } => {
                self.print_line(&format!("no new collection is started on device {device}: {reason}"));
            }
            RunEvent::DeviceReleased { device } => self.print_line(&format!("device {device} is used again")),
            RunEvent::DiskFull { folder, free, needed } => self.print_line(&format!(
                "waiting for room on the disk of {}: {} MiB are free, {} MiB are needed; nothing new begins",
                folder.display(),
                free >> 20,
                needed >> 20
            )),
            RunEvent::DiskFreed { folder } => {
                self.print_line(&format!("there is room on the disk of {} again", folder.display()));
            }
            _ => {}
        }
    }
}

/// `1 case`, `2 cases`.
pub(super) fn plural(count: usize, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

/// `0-3,8` for a sorted list.
#[must_use]
pub fn ranges(devices: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for &device in devices {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == device => *last = device,
            _ => parts.push((device, device)),
        }
    }
    let parts: Vec<String> = parts
        .into_iter()
        .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") })
        .collect();
    parts.join(",")
}

fn on_devices(devices: &[u32]) -> String {
    format!("device{} {}", if devices.len() == 1 { "" } else { "s" }, ranges(devices))
}

impl EventSink for TextReporter {
    fn on_event(&mut self, event: &RunEvent) {
        if let Some(live) = &self.live {
            live.on_event(event);
        }
        // A collection's cases, and the rows of kernels that they complete, belong to its line.
        if !matches!(
            event,
            RunEvent::CaseAttempted { .. } | RunEvent::CaseFinished { .. } | RunEvent::RowsWritten { .. }
        ) {
            self.tell_pending();
        }
        match event {
            RunEvent::RunStarted {
                run, kind, cases, already_measured, devices, resumed, budget_s, ..
            } => {
                self.total = *cases;
                let cases = plural(*cases, "case");
                let devices = on_devices(devices);
                let goes_on = if *resumed { " goes on" } else { "" };
                let done = if *resumed { "have a verdict already" } else { "already measured" };
                let until =
                    budget_s.map_or_else(String::new, |budget| format!("; to end within {}", span(budget)));
                self.print_line(&format!(
                    "run {run} ({kind}){goes_on}: {cases} on {devices}; {already_measured} {done}{until}"
                ));
            }
            RunEvent::OrphansEnded { programs } => {
                self.print_line(&format!("ended {} of an earlier run", plural(*programs, "program")));
            }
            RunEvent::RowUnreadable { place } => self.print_line(&format!("left out: {place}")),
            RunEvent::CollectionStarted { .. } => {
                if !self.launched {
                    self.launched = true;
                    self.tell_refused();
                }
            }
            RunEvent::CollectionFinished { collection, devices, purpose, outcome, seconds } => {
                let why = if *purpose == CollectionPurpose::Measure {
                    String::new()
                } else {
                    format!(" ({purpose})")
                };
                let devices = on_devices(devices);
                let line = format!("collection {collection}{why} on {devices}: {outcome}, {seconds:.1} s");
                match &self.live {
                    // The table shows what its device does next.
                    Some(_) if outcome == "done" => {}
                    Some(live) => live.print_line(&line),
                    None => self.pending = Some(line),
                }
            }
            RunEvent::CaseFinished { kernel, shapes, outcome, case } => {
                if !self.launched {
                    let kernels = self.refused.entry((outcome.verdict, outcome.reason.clone())).or_default();
                    *kernels.entry(kernel.to_string()).or_default() += 1;
                    return;
                }
                self.finished += usize::from(outcome.verdict != Verdict::NotRun);
                if !matches!(outcome.verdict, Verdict::Ok | Verdict::NotRun) {
                    let verdict = outcome.verdict;
                    self.print_line(&format!("{verdict}: {kernel} {shapes} ({case}): {}", outcome.reason));
                }
            }
            RunEvent::DeviceQuarantined { .. }
            | RunEvent::DeviceRead { .. }
            | RunEvent::DeviceReadmitted { .. }
            | RunEvent::DeviceReserved { .. }
            | RunEvent::DeviceReleased { .. }
            | RunEvent::DiskFull { .. }
            | RunEvent::DiskFreed { .. } => self.tell_of_host(event),
            RunEvent::StopRequested { running, at_once } => {
                let running = plural(*running, "running collection");
                self.print_line(&if *at_once {
                    format!("ending {running} at once")
                } else {
                    format!("stopping: {running} may end; a second Ctrl-C ends them at once")
                });
            }
            RunEvent::RowsWritten { kernel, kept, .. } => {
                if *kept > 0 {
                    let rows = plural(*kept, "row");
                    self.print_line(&format!(
                        "{rows} of {kernel} keep results with more samples than the ledger has"
                    ));
                }
            }
            RunEvent::RunFinished { .. } => self.tell_refused(),
            RunEvent::CaseAttempted { .. } | RunEvent::Progress { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_said_as_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 3, 8]), "0-3,8");
        assert_eq!(ranges(&[5]), "5");
    }
}
