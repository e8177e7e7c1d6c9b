//! The scheduler: a pure state machine that is told what happened and answers what to do.
//!
//! Layer 3: imports `model` only. It has no clock, no threads and does no IO; the engine carries its
//! actions out. Cases are known by their index in the plan, collections by their number.

use std::collections::{BTreeMap, VecDeque};

use crate::model::{Finding, Verdict};

/// A case may be tried this often.
const TRIES: u32 = 2;
/// After so many collections in a row without a single launch the host is at fault, not the cases.
const DEAD_COLLECTIONS: u32 = 3;

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// The run begins.
    Started,
    /// A collection has ended, with a finding for each of its cases.
    Finished {
        /// The device it ran on.
        device: u32,
        /// Its cases, each with what was found.
        results: Vec<(usize, Finding)>,
        /// Whether anything was launched.
        launched: bool,
        /// How it ended, in words.
        outcome: String,
    },
    /// Nothing new is to begin.
    StopRequested,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Begin a collection.
    Start {
        /// On this device, which is free.
        device: u32,
        /// Number of the collection, from 1.
        collection: u32,
        /// Its cases.
        cases: Vec<usize>,
        /// Whether its cases were tried before.
        is_retry: bool,
    },
    /// Give a case its verdict; it comes once for every case.
    Conclude {
        /// The case.
        case: usize,
        /// Its verdict.
        finding: Finding,
    },
    /// Everything has ended.
    End,
}

/// What the scheduler knows.
#[derive(Clone, Debug)]
pub struct State {
    fresh: VecDeque<Vec<usize>>,
    /// Cases to try again, with the device they failed on and why. Suspects of a crash or a hang stand
    /// alone, so that they cannot take others down; the others stay together.
    again: VecDeque<Retry>,
    /// Free or running its cases, by device.
    devices: BTreeMap<u32, Option<Vec<usize>>>,
    tries: Vec<u32>,
    collections: u32,
    /// Collections without a launch since the last one that had some.
    dead: u32,
    launched: bool,
    stopping: bool,
    ended: bool,
}

#[derive(Clone, Debug)]
struct Retry {
    cases: Vec<(usize, Finding)>,
    failed_on: u32,
}

impl State {
    /// A scheduler for these collections, which hold each of `cases` cases once, on these devices.
    #[must_use]
    pub fn new(cases: usize, chunks: Vec<Vec<usize>>, devices: &[u32]) -> Self {
        Self {
            fresh: chunks.into(),
            again: VecDeque::new(),
            devices: devices.iter().map(|device| (*device, None)).collect(),
            tries: vec![0; cases],
            collections: 0,
            dead: 0,
            launched: false,
            stopping: false,
            ended: false,
        }
    }

    /// Collections that are running.
    #[must_use]
    pub fn running(&self) -> usize {
        self.devices.values().filter(|lane| lane.is_some()).count()
    }

    /// Takes note of an event and says what to do, in order.
    pub fn on_event(&mut self, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Started => {}
            Event::Finished { device, results, launched, outcome } => {
                self.dead = if launched { 0 } else { self.dead + 1 };
                self.launched |= launched;
                self.on_finished(device, results, &mut actions);
                if self.dead >= DEAD_COLLECTIONS {
                    let count = self.dead;
                    self.stop(
                        &format!("{count} collections in a row launched nothing: {outcome}"),
                        &mut actions,
                    );
                }
            }
            Event::StopRequested => self.stop("the run was stopped before its turn", &mut actions),
        }
        self.fill_devices(&mut actions);
        if self.running() == 0 && !self.ended && self.fresh.is_empty() && self.again.is_empty() {
            self.ended = true;
            actions.push(Action::End);
        }
        actions
    }

    /// Whether nothing could be launched, or not any more.
    #[must_use]
    pub const fn gave_up(&self) -> bool {
        self.dead >= DEAD_COLLECTIONS || (self.dead > 0 && !self.launched)
    }

    fn on_finished(&mut self, device: u32, results: Vec<(usize, Finding)>, actions: &mut Vec<Action>) {
        self.devices.insert(device, None);
        // A case that was not reached has not been tried, unless nothing at all was.
        let nothing = results.iter().all(|(_, finding)| finding.verdict == Verdict::NotRun);
        let mut together = Vec::new();
        for (case, finding) in results {
            self.tries[case] += u32::from(nothing || finding.verdict != Verdict::NotRun);
            let again = finding.verdict.is_worth_a_retry() && self.tries[case] < TRIES;
            match finding.verdict {
                _ if !again || self.stopping => actions.push(Action::Conclude { case, finding }),
                Verdict::Crashed | Verdict::Hung => {
                    self.again.push_back(Retry { cases: vec![(case, finding)], failed_on: device });
                }
                _ => together.push((case, finding)),
            }
        }
        if !together.is_empty() {
            // In front of the suspects.
            self.again.push_front(Retry { cases: together, failed_on: device });
        }
    }

    fn stop(&mut self, reason: &str, actions: &mut Vec<Action>) {
        self.stopping = true;
        for case in self.fresh.drain(..).flatten() {
            actions.push(Action::Conclude { case, finding: Finding::new(Verdict::NotRun, reason) });
        }
        for (case, finding) in self.again.drain(..).flat_map(|retry| retry.cases) {
            actions.push(Action::Conclude { case, finding });
        }
    }

    fn fill_devices(&mut self, actions: &mut Vec<Action>) {
        let free: Vec<u32> =
            self.devices.iter().filter(|(_, lane)| lane.is_none()).map(|(device, _)| *device).collect();
        for &device in &free {
            if let Some(cases) = self.fresh.pop_front() {
                actions.push(self.start(device, cases, false));
            } else if let Some(at) = self.again.iter().position(|retry| retry.failed_on != device)
                && let Some(retry) = self.again.remove(at)
            {
                actions.push(self.start(device, retry.into_cases(), true));
            }
        }
        // Nobody else is left to take it: rather on the device where it failed than never.
        if self.running() == 0
            && let (Some(&device), Some(retry)) = (free.first(), self.again.pop_front())
        {
            actions.push(self.start(device, retry.into_cases(), true));
        }
    }

    fn start(&mut self, device: u32, cases: Vec<usize>, is_retry: bool) -> Action {
        self.collections += 1;
        self.devices.insert(device, Some(cases.clone()));
        Action::Start { device, collection: self.collections, cases, is_retry }
    }
}

impl Retry {
    fn into_cases(self) -> Vec<usize> {
        self.cases.into_iter().map(|(case, _)| case).collect()
    }
}

#[cfg(test)]
mod tests;
