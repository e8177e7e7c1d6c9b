//! Selection of the faults that fire, by target and time. Their effects are implemented in
//! `npu/fault_injector.rs`, `msprof/corrupt.rs` and, as readings of devices, in `shims.rs`.

mod fire_count;
mod latency;
#[cfg(test)]
mod tests;

use std::path::Path;

use super::HostConfig;
pub(super) use super::faults::{fire_count::FireCounter, latency::SimulatedLatency};
use crate::{
    base::stats::pick_number,
    kernel::{
        LogicalDeviceId, Nanos,
        render::{Manifest, ManifestCase},
    },
    rehearsal::fault_plan::{
        DeviceThrottling, FaultKind, FaultPlan, FaultScope, FaultTarget, IdleClock, LeftoverProcess,
        NeighbourProgram, PlannedFault, RandomKey,
    },
};

/// The faults of one host, in one of its processes.
#[derive(Clone, Debug)]
pub(super) struct ActiveFaults {
    pub(super) plan: FaultPlan,
    seed: u64,
    /// `None` without a host's folder: firings are not counted, and the plan's time stays 0.
    fire_counter: Option<FireCounter>,
    started: Nanos,
    collection: u32,
    /// The device of the collection, by the host's number as in a fault plan.
    pub(super) device: u32,
    /// The same device by torch's number.
    pub(super) logical_id: LogicalDeviceId,
    cases: Vec<ManifestCase>,
    /// Rank of the process, once it has chosen its device.
    pub(super) rank: usize,
}

impl ActiveFaults {
    /// Creates the faults of a configuration; `folder` is the host's.
    pub(super) fn new(config: &HostConfig, folder: Option<&Path>, manifest: Option<&Manifest>) -> Self {
        let fire_counter = folder.map(FireCounter::of_host);
        let started = fire_counter.as_ref().and_then(FireCounter::started).unwrap_or_else(super::now);
        Self {
            seed: config.faults.seed.unwrap_or(config.seed),
            plan: config.faults.clone(),
            fire_counter,
            started,
            collection: manifest.map_or(0, |manifest| manifest.collection),
            device: manifest.map_or(0, |manifest| config.physical_id(manifest.device)),
            logical_id: manifest.map(|manifest| manifest.device).unwrap_or_default(),
            cases: manifest.map(|manifest| manifest.cases.clone()).unwrap_or_default(),
            rank: 0,
        }
    }

    /// Returns true if the collection has a case of that ordinal.
    pub(super) fn has_case(&self, ordinal: u32) -> bool {
        self.cases.iter().any(|case| case.ordinal == ordinal)
    }

    /// Returns the faults that fire for the case of that ordinal, and counts them.
    pub(super) fn fire_for_case(&self, ordinal: u32) -> Vec<FaultKind> {
        let Some(case) = self.cases.iter().find(|case| case.ordinal == ordinal) else { return Vec::new() };
        self.fire(FaultScope::Case, |fault, index| {
            let target = &fault.target;
            (selects_case(target, case)
                && fault.kind.rank().is_none_or(|rank| rank == self.rank)
                && target.every.is_none_or(|every| (ordinal + 1).is_multiple_of(every))
                && self.matches_collection(target)
                && self.is_drawn(index, target, case.case.seed(), self.device))
            .then(|| case.case.as_str().to_owned())
        })
    }

    /// Returns the faults that fire for the collection, and counts them.
    pub(super) fn fire_for_collection(&self) -> Vec<FaultKind> {
        self.fire(FaultScope::Collection, |fault, index| {
            let target = &fault.target;
            let selects_all_cases =
                [&target.kernel, &target.case, &target.shapes].iter().all(|names| names.is_empty())
                    && target.ordinal.is_empty();
            // The same set of cases has the same faults in any order.
            let cases = self.cases.iter().fold(0_u64, |sum, case| sum.wrapping_add(case.case.seed()));
            ((selects_all_cases || self.cases.iter().any(|case| selects_case(target, case)))
                && target.every.is_none_or(|every| self.collection.is_multiple_of(every))
                && self.matches_collection(target)
                && self.is_drawn(index, target, cases, self.device))
            .then(|| format!("{cases:016x}"))
        })
    }

    /// Returns the present state of a device.
    pub(super) fn device_state(&self, device: u32) -> FaultyDeviceState {
        let mut state = FaultyDeviceState::default();
        let now = self.now();
        for (index, fault) in self.plan.faults.iter().enumerate() {
            let target = &fault.target;
            let holds = fault.kind.scope() == FaultScope::Device
                && fault.when.holds(now)
                && (target.devices.is_empty() || target.devices.contains(&device))
                && self.is_drawn(index, target, 0, device);
            match &fault.kind {
                _ if !holds => {}
                FaultKind::DeviceLost(_) => state.is_lost = true,
                FaultKind::SlowDevice(slow) => state.slowness = slow.factor,
                FaultKind::IdleClock(clock) => state.idle_clock = Some(clock.clone()),
                FaultKind::SlowKernels(slow) => state.kernel_slowness = slow.factor,
                FaultKind::Neighbour(program) => state.neighbour = Some(program.clone()),
                FaultKind::Throttling(throttling) => state.throttling = Some(throttling.clone()),
                FaultKind::LeftoverProcess(process) => {
                    let until = process.seconds.map_or(f64::INFINITY, |seconds| fault.when.from + seconds);
                    state.leftover_process =
                        (now < until).then(|| process.clone()).or(state.leftover_process);
                }
                _ => {}
            }
        }
        state
    }

    /// Returns the simulated seconds since the start of the host.
    fn now(&self) -> f64 {
        let elapsed = super::now().0.saturating_sub(self.started.0).max(0);
        Nanos(elapsed).seconds() * self.plan.speed
    }

    /// Returns the active faults of a scope for which `find` returns a subject, and counts their firings.
    fn fire(
        &self,
        scope: FaultScope,
        find: impl Fn(&PlannedFault, usize) -> Option<String>,
    ) -> Vec<FaultKind> {
        let now = self.now();
        let faults = self.plan.faults.iter().enumerate();
        let fired = faults.filter_map(|(index, fault)| {
            let is_active = fault.kind.scope() == scope && fault.when.holds(now);
            let subject = is_active.then(|| find(fault, index)).flatten()?;
            self.count_firing(index, fault, &subject).then(|| fault.kind.clone())
        });
        fired.collect()
    }

    /// Returns true if the fault may fire once more.
    fn count_firing(&self, index: usize, fault: &PlannedFault, subject: &str) -> bool {
        let Some(fire_counter) = &self.fire_counter else { return true };
        let each =
            fault.times_each.is_none_or(|limit| fire_counter.count(&format!("{index}.{subject}"), limit));
        each && fault.times.is_none_or(|limit| fire_counter.count(&format!("{index}.all"), limit))
    }

    fn matches_collection(&self, target: &FaultTarget) -> bool {
        (target.devices.is_empty() || target.devices.contains(&self.device))
            && (target.collections.is_empty() || target.collections.contains(&self.collection))
    }

    /// Returns true with the fault's probability, by a hash of the seed.
    fn is_drawn(&self, index: usize, target: &FaultTarget, subject: u64, device: u32) -> bool {
        const STEPS: u64 = 1 << 53;
        let Some(probability) = target.probability else { return true };
        let (subject, device) = match target.drawn_by {
            RandomKey::CaseAndDevice => (subject, u64::from(device) + 1),
            RandomKey::Case => (subject, 0),
            RandomKey::Device => (0, u64::from(device) + 1),
        };
        let drawn = pick_number(&[self.seed, index as u64, subject, device], STEPS);
        (drawn as f64) < probability * STEPS as f64
    }
}

/// State of a device with its faults.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FaultyDeviceState {
    pub(super) is_lost: bool,
    /// Factor on the time of everything but kernels.
    pub(super) slowness: f64,
    /// Factor on the time of kernels at a lower clock that no reading shows.
    pub(super) kernel_slowness: f64,
    /// Clock after an idle time.
    pub(super) idle_clock: Option<IdleClock>,
    pub(super) throttling: Option<DeviceThrottling>,
    pub(super) neighbour: Option<NeighbourProgram>,
    pub(super) leftover_process: Option<LeftoverProcess>,
}

impl Default for FaultyDeviceState {
    fn default() -> Self {
        Self {
            is_lost: false,
            slowness: 1.0,
            kernel_slowness: 1.0,
            idle_clock: None,
            throttling: None,
            neighbour: None,
            leftover_process: None,
        }
    }
}

/// Returns true if a target selects the case; a target without criteria selects all.
fn selects_case(target: &FaultTarget, case: &ManifestCase) -> bool {
    let inputs = case.shapes.split(" -> ").next().unwrap_or_default();
    let is_shape = |wanted: &String| {
        let wanted = wanted.replace([' ', '"'], "");
        wanted == inputs || inputs.split(';').any(|slot| slot == wanted)
    };
    (target.kernel.is_empty() || target.kernel.contains(&case.kernel))
        && (target.case.is_empty() || target.case.iter().any(|start| case.case.as_str().starts_with(start)))
        && (target.shapes.is_empty() || target.shapes.iter().any(is_shape))
        && (target.ordinal.is_empty() || target.ordinal.contains(&case.ordinal))
}
