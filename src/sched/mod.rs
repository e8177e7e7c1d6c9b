//! The scheduler: a pure state machine that is told what happened and answers what to do.
//!
//! Layer 3: imports `model` only. It has no clock, no threads and does no IO; the engine carries its
//! actions out. Cases are known by their index in the plan, collections by their number.

use std::collections::{BTreeMap, VecDeque};

use crate::model::{Finding, Verdict};

/// A case may be tried this often.
const TRIES: u32 = 2;

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
    /// Cases to try again, with the device they failed on and why.
    again: VecDeque<(usize, u32, Finding)>,
    /// Free or running its cases, by device.
    devices: BTreeMap<u32, Option<Vec<usize>>>,
    tries: Vec<u32>,
    collections: u32,
    stopping: bool,
    ended: bool,
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
            Event::Finished { device, results } => self.on_finished(device, results, &mut actions),
            Event::StopRequested => self.on_stop(&mut actions),
        }
        self.fill_devices(&mut actions);
        if self.running() == 0 && !self.ended && self.fresh.is_empty() && self.again.is_empty() {
            self.ended = true;
            actions.push(Action::End);
        }
        actions
    }

    fn on_finished(&mut self, device: u32, results: Vec<(usize, Finding)>, actions: &mut Vec<Action>) {
        self.devices.insert(device, None);
        let mut bystanders = Vec::new();
        for (case, finding) in results {
            let again = finding.verdict.is_worth_a_retry() && self.tries[case] < TRIES;
            match finding.verdict {
                _ if !again || self.stopping => actions.push(Action::Conclude { case, finding }),
                Verdict::NotRun => bystanders.push(case),
                _ => self.again.push_back((case, device, finding)),
            }
        }
        // Cases that another one took down with it are not suspect: they stay together.
        if !bystanders.is_empty() {
            self.fresh.push_back(bystanders);
        }
    }

    fn on_stop(&mut self, actions: &mut Vec<Action>) {
        self.stopping = true;
        for case in self.fresh.drain(..).flatten() {
            let finding = Finding::new(Verdict::NotRun, "the run was stopped before its turn");
            actions.push(Action::Conclude { case, finding });
        }
        for (case, _, finding) in self.again.drain(..) {
            actions.push(Action::Conclude { case, finding });
        }
    }

    fn fill_devices(&mut self, actions: &mut Vec<Action>) {
        let free: Vec<u32> =
            self.devices.iter().filter(|(_, lane)| lane.is_none()).map(|(device, _)| *device).collect();
        for &device in &free {
            if let Some(cases) = self.fresh.pop_front() {
                let is_retry = cases.iter().any(|&case| self.tries[case] > 0);
                actions.push(self.start(device, cases, is_retry));
            } else if let Some(case) = self.retry_from_elsewhere(device) {
                actions.push(self.start(device, vec![case], true));
            }
        }
        // Nobody else is left to take it: rather on the device where it failed than never.
        if self.running() == 0
            && let (Some(&device), Some((case, ..))) = (free.first(), self.again.pop_front())
        {
            actions.push(self.start(device, vec![case], true));
        }
    }

    fn start(&mut self, device: u32, cases: Vec<usize>, is_retry: bool) -> Action {
        for &case in &cases {
            self.tries[case] += 1;
        }
        self.collections += 1;
        self.devices.insert(device, Some(cases.clone()));
        Action::Start { device, collection: self.collections, cases, is_retry }
    }

    /// A case that failed is tried again alone, so that it cannot fail others, and on another device.
    fn retry_from_elsewhere(&mut self, device: u32) -> Option<usize> {
        let at = self.again.iter().position(|(_, failed_on, _)| *failed_on != device)?;
        self.again.remove(at).map(|(case, ..)| case)
    }
}

#[cfg(test)]
mod tests;
