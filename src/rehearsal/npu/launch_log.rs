//! Launches on the simulated NPU, with a virtual clock that never waits.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::cache_model::{CacheModel, UsedStorage};
use crate::{
    base::stats::{hash_numbers, hash_text, pick_number},
    kernel::{
        AicMetrics, Case, CaseAttributes, CaseId, CollectiveKind, Dtype, KernelName, LogicalDeviceId, Nanos,
        Slot, Tensor,
        device::{ComputeUnit, DeviceProfile, KernelWork},
        render::{ControlCall, Manifest, ManifestCase, SentinelLengths},
    },
    rehearsal::{
        HostConfig,
        fault_plan::{HostDefect, IdleClock, NeighbourProgram, RenamedKernel},
        timing::{self, LaunchContext, TICK_NS},
    },
};

/// The engine of the device that executes a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rehearsal) enum TaskEngine {
    Cube,
    Vector,
    /// The generator of random numbers, which has no counters and shows no inputs.
    Random,
    /// Cores for kernels without a binary for the AI cores; they have no counters.
    AiCpu,
    /// Links between the devices of a group; the profiler shows neither tensors nor counters.
    Communication,
}

/// A launched operation.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::rehearsal) struct LaunchedOperation {
    /// The profiler's name, without the prefix of the rehearsal.
    pub(in crate::rehearsal) name: String,
    pub(in crate::rehearsal) kernel: String,
    pub(in crate::rehearsal) task: TaskEngine,
    /// Input slots; `None` for one without a tensor.
    pub(in crate::rehearsal) inputs: Vec<Slot>,
    pub(in crate::rehearsal) outputs: Vec<Tensor>,
    pub(in crate::rehearsal) work: KernelWork,
}

impl LaunchedOperation {
    /// Cores that it occupies, as far as there are cores: one for every 16 KiB that it writes, and of the vector cores for every
    /// 16 KiB that it reads, because recorded reductions of large tensors run on all of them.
    pub(in crate::rehearsal) fn blocks(&self, profile: &DeviceProfile) -> u64 {
        let add = |sum: u64, tensor: &Tensor| sum.saturating_add(tensor.bytes());
        let written = self.outputs.iter().fold(0, add);
        let work = match self.task {
            TaskEngine::Vector => self.inputs.iter().flatten().fold(0, add).max(written),
            _ => written,
        };
        let cores = match self.task {
            TaskEngine::Cube => profile.cube_cores,
            TaskEngine::Vector => profile.vector_cores,
            TaskEngine::Random | TaskEngine::AiCpu | TaskEngine::Communication => return 0,
        };
        work.div_ceil(16 << 10).clamp(1, u64::from(cores.max(1)))
    }
}

/// One execution.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::rehearsal) struct LoggedLaunch {
    pub(in crate::rehearsal) device: u32,
    /// Number of the task on its device, from 0.
    pub(in crate::rehearsal) task_id: u64,
    /// Seed of the counters; launches with equal durations have equal seeds.
    pub(in crate::rehearsal) variation: u64,
    pub(in crate::rehearsal) start: Nanos,
    pub(in crate::rehearsal) duration: Nanos,
    /// Factor by which the device's clock was slower.
    pub(in crate::rehearsal) slowdown: f64,
    /// Factor by which the recorded clock was slower.
    pub(in crate::rehearsal) shown_slowdown: f64,
    /// True if it used one core.
    pub(in crate::rehearsal) is_on_one_core: bool,
    pub(in crate::rehearsal) operation: LaunchedOperation,
}

#[derive(Clone, Debug)]
struct StreamClock {
    clock: Nanos,
    tasks: u64,
}

/// All launches in order, and the state that durations depend on.
#[derive(Clone, Debug)]
pub(super) struct LaunchLog {
    config: HostConfig,
    profile: DeviceProfile,
    collection: u32,
    /// The manifest's cases by ordinal.
    cases: BTreeMap<u64, Arc<ManifestCase>>,
    /// Calls of control kernels, which follow the cases in the ordinals of sentinels.
    controls: Vec<ControlCall>,
    started: Nanos,
    streams: BTreeMap<u32, StreamClock>,
    /// Ordinal of the case whose opening sentinel was the last one.
    pub(super) case: Option<u64>,
    /// Kernel that the call of the case ran as last.
    pub(super) case_kernel: Option<String>,
    since_sentinel: HashMap<u64, u32>,
    in_process: HashMap<(u32, u64), u32>,
    launches: Vec<LoggedLaunch>,
    /// Mean durations of the model by case and kernel, without noise and faults.
    true_medians: BTreeMap<(CaseId, String), Nanos>,
    /// Operations of captured graphs, with their devices, by number.
    graphs: BTreeMap<i64, Vec<(u32, LaunchedOperation)>>,
    /// Graph that captures the launches.
    capturing: Option<i64>,
    /// True if the last launch has replaced the content of the cache.
    is_flushed: bool,
    /// Factor by which kernels take longer at a lower clock.
    pub(super) slowdown: f64,
    /// Factor by which the recorded clock is lower.
    pub(super) shown_slowdown: f64,
    /// Clock after an idle time; `None` for one that does not fall.
    pub(super) idle_clock: Option<IdleClock>,
    /// Time of launches since the host let the device wait.
    pub(super) busy_since_idle: Nanos,
    /// Caches of the devices, for scripts without cases.
    caches: BTreeMap<u32, CacheModel>,
    /// True if msprof reads counters.
    reads_counters: bool,
    /// True if the launches of the current case run on an AI CPU.
    pub(super) is_on_ai_cpu: bool,
    /// True if the launches of the current case use one core.
    pub(super) is_on_one_core: bool,
    /// Type of the kernel or name of the operator in the records of the current case's launches, in place of their own.
    pub(super) renaming: Option<RenamedKernel>,
    /// Another program that uses the device.
    pub(super) neighbour: Option<NeighbourProgram>,
    /// Factor of the duration of the current case's next launch, in as many more cycles.
    pub(super) unsteadiness: f64,
    /// Time after which this rank starts the collectives of the current case.
    pub(super) late_start: Nanos,
    /// Place of the element of which this rank receives another value from the collectives of the current case.
    pub(super) wrong_element: Option<u64>,
}

/// Shortest pause between two tasks.
const GAP_NS: u64 = 4_000;
/// Divisor of the size of the cache on a host with [`HostDefect::SmallCache`].
const SMALL_CACHE_DIVISOR: u64 = 4;
/// Device that is slower on a host with [`HostDefect::UnequalDevices`], and the factor.
const UNEQUAL_DEVICE: u32 = 1;
const UNEQUAL_FACTOR: f64 = 1.1;
/// Factor on durations with counters on a host with [`HostDefect::ProfilerOverhead`].
const OVERHEAD_FACTOR: f64 = 1.05;
/// Part of the recorded median of a case that its launches take with a warm cache.
const WARM_SHARE: f64 = 0.92;
/// Factor on recorded medians on a host with [`HostDefect::SlowerThanProduction`].
const SLOWER_FACTOR: f64 = 1.3;
/// Range of pauses, in ticks.
const GAP_TICKS: u64 = 100;

impl LaunchLog {
    pub(super) fn new(
        config: HostConfig,
        profile: DeviceProfile,
        manifest: Option<&Manifest>,
        started: Nanos,
    ) -> Self {
        let cases = manifest.map(|manifest| manifest.cases.as_slice()).unwrap_or_default();
        Self {
            config,
            profile,
            collection: manifest.map_or(0, |manifest| manifest.collection),
            cases: cases.iter().map(|case| (u64::from(case.ordinal), Arc::new(case.clone()))).collect(),
            controls: manifest
                .and_then(|manifest| manifest.controls.clone())
                .map(|controls| controls.kernels)
                .unwrap_or_default(),
            started: Nanos(started.0 - started.0.rem_euclid(TICK_NS)),
            streams: BTreeMap::new(),
            case: None,
            case_kernel: None,
            since_sentinel: HashMap::new(),
            in_process: HashMap::new(),
            launches: Vec::new(),
            true_medians: BTreeMap::new(),
            graphs: BTreeMap::new(),
            capturing: None,
            is_flushed: false,
            slowdown: 1.0,
            shown_slowdown: 1.0,
            idle_clock: None,
            busy_since_idle: Nanos(0),
            caches: BTreeMap::new(),
            reads_counters: manifest
                .is_none_or(|manifest| manifest.profiler.aic_metrics != AicMetrics::Disabled),
            is_on_ai_cpu: false,
            is_on_one_core: false,
            renaming: None,
            neighbour: None,
            unsteadiness: 1.0,
            late_start: Nanos(0),
            wrong_element: None,
        }
    }

    /// Returns the time at which the next collective of a rank starts on its device.
    pub(super) fn arrival(&mut self, device: u32, rank: usize) -> Nanos {
        self.open(device);
        let late = self.late_start.0;
        let clock = self.streams.get(&device).map_or(self.started, |stream| stream.clock);
        let launch = self.launch_seed(device);
        let ticks = pick_number(&[launch], GAP_TICKS) + pick_number(&[launch, rank as u64], GAP_TICKS);
        let pause = GAP_NS.cast_signed() + ticks.cast_signed() * TICK_NS + late;
        Nanos(clock.0.saturating_add(pause))
    }

    /// Returns the seed of the differences between the ranks at the next collective of a device. Within a case it depends on the
    /// case and the number of its launch only, so that a case has the same durations in any collection.
    fn launch_seed(&self, device: u32) -> u64 {
        let seed = self.config.noise_seed();
        match self.current_case().map(|case| case.case.seed()) {
            Some(case) => hash_numbers(&[
                seed,
                case,
                u64::from(self.since_sentinel.get(&case).copied().unwrap_or_default()),
            ]),
            None => hash_numbers(&[seed, self.streams.get(&device).map_or(0, |stream| stream.tasks)]),
        }
    }

    /// Returns the duration of a collective from the last arrival on, by the size of its bandwidths; the same on all ranks.
    pub(super) fn collective_duration(&mut self, kind: CollectiveKind, size: u64) -> Nanos {
        let case = self.current_case();
        let signature = case
            .map_or_else(|| hash_numbers(&[hash_text(kind.kernel_name()), size]), |case| case.case.seed());
        let since_sentinel = count(&mut self.since_sentinel, signature);
        let in_process = count(&mut self.in_process, (u32::MAX, signature));
        let context = LaunchContext {
            model: self.config.model,
            noise: self.config.faults.noise,
            device_factor: 1.0,
            slowdown: if self.case.is_some() { self.unsteadiness } else { 1.0 },
            seed: self.config.noise_seed(),
            collection: self.collection,
            // The group, whatever its devices are.
            device: u32::MAX,
            signature,
            since_sentinel,
            in_process,
        };
        // The links bound the duration, not the memory.
        let work = KernelWork { flops: 0.0, bytes: 0.0, unit: ComputeUnit::Mte, dtype: Dtype::Int8 };
        timing::duration(&self.profile, &work, self.config.faults.collectives.duration(size), &context)
    }

    /// Appends the kernel of one rank of a collective, which ends with those of the others but for some ticks.
    pub(super) fn append_collective(
        &mut self,
        device: u32,
        rank: usize,
        operation: LaunchedOperation,
        start: Nanos,
        end: Nanos,
    ) {
        /// Greatest difference between the ends of the ranks, in ticks.
        const END_TICKS: u64 = 3;
        if self.case.is_some() {
            self.case_kernel = Some(operation.kernel.clone());
        }
        let (seed, launch) = (self.config.noise_seed(), self.launch_seed(device));
        let Some(stream) = self.streams.get_mut(&device) else { return };
        let ticks = pick_number(&[launch, rank as u64, 1], END_TICKS);
        let end = Nanos(end.0.saturating_add(ticks.cast_signed() * TICK_NS));
        let launch = LoggedLaunch {
            device,
            task_id: stream.tasks,
            variation: hash_numbers(&[seed, stream.tasks]),
            start,
            duration: Nanos(end.0 - start.0),
            slowdown: 1.0,
            shown_slowdown: 1.0,
            is_on_one_core: false,
            operation,
        };
        self.launches.push(launch);
        stream.clock = end;
        stream.tasks += 1;
    }

    /// Starts the clock of a device, which may differ from those of the others.
    pub(super) fn open(&mut self, device: u32) {
        let clock = Nanos(self.started.0.saturating_add(self.device_clock_ahead(device).0));
        self.streams.entry(device).or_insert(StreamClock { clock, tasks: 0 });
    }

    /// Time by which the clock of a device is ahead of those of the other devices of its host.
    pub(super) fn device_clock_ahead(&self, device: u32) -> Nanos {
        self.config.device_clock_ahead(device)
    }

    pub(super) fn devices(&self) -> Vec<u32> {
        self.streams.keys().copied().collect()
    }

    /// Records a sentinel: an even length opens a case, an odd one closes it.
    pub(super) fn sentinel(&mut self, length: u64) {
        self.since_sentinel.clear();
        self.case_kernel = None;
        let opened = SentinelLengths::default().opening(0);
        let ordinal =
            (length >= opened && (length - opened).is_multiple_of(2)).then(|| (length - opened) / 2);
        // Launches of control kernels are those of no case.
        let is_control = |ordinal: &u64| !self.controls.is_empty() && !self.cases.contains_key(ordinal);
        self.case = ordinal.filter(|ordinal| !is_control(ordinal));
    }

    /// Returns true for a call of a control kernel with these shapes of tensors, outside of a case.
    pub(super) fn is_control_call(&self, api: &str, tensors: &[Vec<u64>]) -> bool {
        self.case.is_none() && self.controls.iter().any(|call| call.api == api && call.tensors == tensors)
    }

    pub(super) fn current_case(&self) -> Option<Arc<ManifestCase>> {
        self.cases.get(&self.case?).map(Arc::clone)
    }

    /// Moves the clock forwards or backwards.
    pub(super) fn jump(&mut self, by: Nanos) {
        self.started = Nanos(self.started.0.saturating_add(by.0));
        for stream in self.streams.values_mut() {
            stream.clock = Nanos(stream.clock.0.saturating_add(by.0));
        }
    }

    /// Returns true if the script's manifest has cases.
    pub(super) fn has_cases(&self) -> bool {
        !self.cases.is_empty()
    }

    /// Returns the number of matrix cores of a device.
    pub(super) const fn cube_cores(&self) -> u32 {
        self.profile.cube_cores
    }

    pub(super) fn has_defect(&self, defect: HostDefect) -> bool {
        self.config.has_defect(defect)
    }

    /// Returns the host's numbers of the devices in use.
    pub(super) fn physical_devices(&self) -> Vec<u32> {
        self.streams.keys().map(|device| self.config.physical_id(LogicalDeviceId(*device))).collect()
    }

    /// Returns the time of a device's stream.
    pub(super) fn stream_time(&self, device: u32) -> Nanos {
        self.streams.get(&device).map_or(self.started, |stream| stream.clock)
    }

    /// Appends a launch with a warm cache.
    pub(super) fn launch(&mut self, device: u32, operation: LaunchedOperation) {
        self.append_launch(device, operation, false);
    }

    /// Appends a launch whose duration depends on whether its storages are in the cache. Launches of cases have a warm
    /// cache.
    pub(super) fn launch_cached(
        &mut self,
        device: u32,
        operation: LaunchedOperation,
        storages: &[UsedStorage],
    ) {
        let mut is_cold = false;
        if !self.has_cases() {
            let shrunk = if self.has_defect(HostDefect::SmallCache) { SMALL_CACHE_DIVISOR } else { 1 };
            let capacity = (self.profile.l2_mib << 20) / shrunk;
            let cache = self.caches.entry(device).or_default();
            for storage in storages {
                is_cold |= !cache.use_storage(*storage, capacity);
            }
        }
        self.append_launch(device, operation, is_cold);
    }

    /// Returns the factor by which kernels take longer on a chip: that of faults, and those of defects.
    fn total_slowdown(&self, chip: u32) -> f64 {
        let unequal = self.has_defect(HostDefect::UnequalDevices) && chip == UNEQUAL_DEVICE;
        let overhead = self.has_defect(HostDefect::ProfilerOverhead) && self.reads_counters;
        let factors = [(unequal, UNEQUAL_FACTOR), (overhead, OVERHEAD_FACTOR)];
        factors.iter().filter(|(holds, _)| *holds).fold(self.slowdown, |all, (_, factor)| all * factor)
    }

    /// Returns the factor by which kernels take longer because the clock has not risen since the last idle time.
    fn idle_factor(&self) -> f64 {
        let is_low = |clock: &&IdleClock| (self.busy_since_idle.0 as f64) < clock.milliseconds * 1e6;
        self.idle_clock.as_ref().filter(is_low).map_or(1.0, |clock| clock.factor)
    }

    /// Returns the factor by which a launch with this hash waits for another program on the device.
    fn neighbour_factor(&self, variation: u64) -> f64 {
        const PARTS: u64 = 1 << 20;
        const NEIGHBOUR: u64 = 0x6e65_6967;
        let Some(NeighbourProgram { factor, share }) = self.neighbour else { return 1.0 };
        let is_waiting = (pick_number(&[variation, NEIGHBOUR], PARTS) as f64) < share * PARTS as f64;
        if is_waiting { factor } else { 1.0 }
    }

    fn append_launch(&mut self, device: u32, mut operation: LaunchedOperation, is_cold: bool) {
        let outputs = &operation.outputs;
        if !outputs.is_empty() && outputs.iter().all(|tensor| tensor.element_count() == 0) {
            // CANN launches nothing for tensors without elements.
            return;
        }
        if let Some(graph) = self.capturing {
            self.graphs.entry(graph).or_default().push((device, operation));
            return;
        }
        if self.is_on_ai_cpu && self.case.is_some() {
            operation.task = TaskEngine::AiCpu;
        }
        self.open(device);
        let signature = signature(&operation);
        let since_sentinel = count(&mut self.since_sentinel, signature);
        let in_process = count(&mut self.in_process, (device, signature));
        let (model, seed, collection) = (self.config.model, self.config.noise_seed(), self.collection);
        let chip = self.config.physical_id(LogicalDeviceId(device));
        let noise = self.config.faults.noise;
        let devices = self.config.devices;
        let mut context = LaunchContext {
            model,
            noise,
            device_factor: noise.device_factor(self.config.seed, chip, devices),
            slowdown: 1.0,
            seed,
            collection,
            device: chip,
            signature,
            since_sentinel,
            in_process,
        };
        let is_cold = is_cold || (self.is_flushed && self.case.is_some() && !self.is_flush(&operation));
        let base = if is_cold { timing::cold_base } else { timing::base };
        let base = base(&self.profile, &operation.kernel, &operation.work);
        let base = self.recorded_base(&operation).unwrap_or(base);
        self.record_true_median(&operation, base);
        self.is_flushed = self.is_flush(&operation);
        let waiting = self.neighbour_factor(timing::variation(&context)) * self.idle_factor();
        let (slowdown, shown_slowdown) = (self.slowdown * waiting, self.shown_slowdown);
        let is_on_one_core = self.is_on_one_core && self.case.is_some();
        let unsteadiness = if self.case.is_some() { self.unsteadiness } else { 1.0 };
        let cores = if is_on_one_core { operation.blocks(&self.profile).max(1) as f64 } else { 1.0 };
        context.slowdown = self.total_slowdown(chip) * waiting * unsteadiness * cores;
        let duration = timing::duration(&self.profile, &operation.work, base, &context);
        self.busy_since_idle = Nanos(self.busy_since_idle.0.saturating_add(duration.0));
        if let Some(renamed) = self.renaming.as_ref().filter(|_| self.case.is_some()) {
            let name = if renamed.operator_only { &mut operation.name } else { &mut operation.kernel };
            name.clone_from(&renamed.name);
        }
        if let Some(stream) = self.streams.get_mut(&device) {
            let pause = GAP_NS + pick_number(&[seed, stream.tasks], GAP_TICKS) * TICK_NS.unsigned_abs();
            let start = Nanos(stream.clock.0.saturating_add(pause.cast_signed()));
            let (task_id, variation) = (stream.tasks, timing::variation(&context));
            let launch = LoggedLaunch {
                device,
                task_id,
                variation,
                start,
                duration,
                slowdown,
                shown_slowdown,
                is_on_one_core,
                operation,
            };
            self.launches.push(launch);
            stream.clock = Nanos(start.0.saturating_add(duration.0));
            stream.tasks += 1;
        }
    }

    /// Captures the launches from now on in a graph instead of executing them.
    pub(super) fn begin_capture(&mut self, graph: i64) {
        self.graphs.insert(graph, Vec::new());
        self.capturing = Some(graph);
    }

    pub(super) fn end_capture(&mut self) {
        self.capturing = None;
    }

    /// Launches the operations of a graph; returns false if there is no such graph.
    pub(super) fn replay(&mut self, graph: i64) -> bool {
        let Some(captured) = self.graphs.get(&graph).cloned() else { return false };
        captured.into_iter().for_each(|(device, operation)| self.launch(device, operation));
        true
    }

    /// Returns the mean duration of the current case from its recorded median, which is that with a cold cache; `None`
    /// without one.
    fn recorded_base(&self, operation: &LaunchedOperation) -> Option<Nanos> {
        let case = self.current_case()?;
        let median = *self.config.recorded_medians.get(case.case.as_str())?;
        if self.case_kernel.as_ref() != Some(&operation.kernel) || self.is_flush(operation) {
            return None;
        }
        let state = if self.is_flushed { 1.0 } else { WARM_SHARE };
        let defect = if self.has_defect(HostDefect::SlowerThanProduction) { SLOWER_FACTOR } else { 1.0 };
        Some(timing::recorded_base(Nanos(median), state * defect))
    }

    /// Records the duration of the kernel of the current case without noise and faults. The factors of the lifelike model have
    /// a median of 1: those of launches, of collections, and of all devices of the host; two modes of collections have a mean
    /// logarithm of 0.
    fn record_true_median(&mut self, operation: &LaunchedOperation, base: Nanos) {
        if self.case_kernel.as_ref() != Some(&operation.kernel) || self.is_flush(operation) {
            return;
        }
        if let Some(case) = self.current_case() {
            self.true_medians.insert((case.case.clone(), operation.kernel.clone()), base);
        }
    }

    pub(super) const fn true_medians(&self) -> &BTreeMap<(CaseId, String), Nanos> {
        &self.true_medians
    }

    /// Returns true for an operation that replaces the content of the cache: it reads more whole numbers than fit.
    fn is_flush(&self, operation: &LaunchedOperation) -> bool {
        let read = operation.inputs.iter().flatten().filter(|tensor| tensor.dtype == Dtype::Int32);
        operation.kernel == SentinelLengths::default().kernel
            && read.map(Tensor::bytes).sum::<u64>() > self.profile.l2_mib << 20
    }

    pub(super) fn take_launches(&mut self) -> Vec<LoggedLaunch> {
        std::mem::take(&mut self.launches)
    }
}

/// An element-wise task of the vector cores.
pub(super) fn plain_operation(
    name: &str,
    kernel: &str,
    inputs: Vec<Tensor>,
    output: Tensor,
) -> LaunchedOperation {
    let bytes = inputs.iter().chain([&output]).fold(0_u64, |sum, tensor| sum.saturating_add(tensor.bytes()));
    let work = KernelWork {
        flops: output.element_count() as f64,
        bytes: bytes as f64,
        unit: ComputeUnit::Vector,
        dtype: output.dtype.clone(),
    };
    LaunchedOperation {
        name: name.to_owned(),
        kernel: kernel.to_owned(),
        task: TaskEngine::Vector,
        inputs: inputs.into_iter().map(Some).collect(),
        outputs: vec![output],
        work,
    }
}

fn signature(operation: &LaunchedOperation) -> u64 {
    let Ok(kernel) = KernelName::new(&operation.kernel) else { return 0 };
    let inputs = operation.inputs.clone();
    let outputs = operation.outputs.iter().cloned().map(Some).collect();
    Case { kernel, inputs, outputs, attributes: CaseAttributes::default() }.id().seed()
}

/// Counts a key, and returns its count before.
fn count<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, u32>, key: K) -> u32 {
    let count = counts.entry(key).or_default();
    let before = *count;
    *count = count.saturating_add(1);
    before
}
