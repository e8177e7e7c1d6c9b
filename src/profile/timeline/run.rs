//! Model of one rank's run: device tasks, collectives, host operators, ranges and steps, in nanoseconds since the epoch.
//!
//! Readers of databases and of text profiles fill the same model, so that analyses give the same figures for both.

use super::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
pub(crate) enum ProfileForm {
    #[strum(to_string = "database")]
    Database,
    #[strum(to_string = "trace and kernel table")]
    TraceAndTable,
    #[strum(to_string = "trace")]
    Trace,
    #[strum(to_string = "kernel table")]
    Table,
    #[strum(to_string = "trace of a GPU")]
    GpuTrace,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TaskRole {
    Kernel,
    /// Kernel that carries out a collective; it is communication, not computing.
    CollectiveKernel,
    CollectiveTask,
    /// Any other task: copies between host and device, events, waits for events.
    #[default]
    Other,
}

impl TaskRole {
    pub(crate) const fn is_kernel(self) -> bool {
        matches!(self, Self::Kernel | Self::CollectiveKernel)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct OperatorId(pub(crate) u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SignatureId(pub(crate) u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CollectiveId(pub(crate) u32);

#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceTask {
    pub(crate) span: TimeSpan,
    pub(crate) device: Option<u32>,
    pub(crate) stream: Option<u32>,
    /// Name of the kernel in the model, such as `aclnnAddmm_MatMulV2_0`.
    pub(crate) name: NameId,
    /// Type of the kernel, such as `MatMulV2`, or of the task, such as `EVENT_WAIT`.
    pub(crate) kind: NameId,
    /// Type of the core that ran a kernel, such as `AI_VECTOR_CORE`; [`NameId::EMPTY`] if it is not recorded.
    pub(crate) core: NameId,
    pub(crate) role: TaskRole,
    pub(crate) signature: Option<SignatureId>,
    pub(crate) uses_cube: Option<bool>,
    pub(crate) operator: Option<OperatorId>,
    pub(crate) launch: Option<TimeSpan>,
    pub(crate) step: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Collective {
    pub(crate) span: TimeSpan,
    pub(crate) device: Option<u32>,
    /// Name with group and number, such as `hcom_allReduce__586_0_1`.
    pub(crate) name: NameId,
    /// Type, such as `hcom_allReduce_`.
    pub(crate) kind: NameId,
    pub(crate) group: NameId,
    pub(crate) operator: Option<OperatorId>,
    pub(crate) launch: Option<TimeSpan>,
    pub(crate) step: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct LaunchedSpan {
    pub(super) span: TimeSpan,
    pub(super) name: NameId,
    pub(super) operator: Option<OperatorId>,
    pub(super) launch: Option<TimeSpan>,
    pub(super) step: Option<u64>,
}

/// Task of a collective on one of its planes: a copy, a notification or a wait for one.
#[derive(Clone, Debug)]
pub(crate) struct CollectiveTask {
    pub(crate) span: TimeSpan,
    /// Type, such as `Notify_Wait`, `Memcpy` or `RDMASend`.
    pub(crate) kind: NameId,
    pub(crate) plane: Option<u32>,
    pub(crate) collective: Option<CollectiveId>,
}

#[derive(Clone, Debug)]
pub(crate) struct HostOperator {
    pub(crate) span: TimeSpan,
    pub(crate) thread: u64,
    pub(crate) name: NameId,
    /// Shapes of the inputs, such as `32,5;1,32`; [`NameId::EMPTY`] if they are not recorded.
    pub(crate) shapes: NameId,
}

#[derive(Clone, Debug)]
pub(crate) struct HostRange {
    pub(crate) span: TimeSpan,
    pub(crate) thread: u64,
    pub(crate) name: NameId,
    /// Domain of mstx; [`NameId::EMPTY`] for a module of torch.
    pub(crate) domain: NameId,
}

#[derive(Clone, Debug)]
pub(crate) struct HostMark {
    pub(crate) at: i64,
    pub(crate) name: NameId,
    pub(crate) domain: NameId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HostStep {
    pub(crate) span: TimeSpan,
    pub(crate) number: u64,
}

/// Sizes in bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunMemory {
    pub(crate) peak_reserved: Option<u64>,
    pub(crate) peak_allocated: Option<u64>,
    /// Allocations on the host: time in nanoseconds and size.
    pub(crate) allocations: Vec<(i64, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::Display)]
pub(crate) enum MissingPart {
    #[strum(to_string = "kernels: without them computing, overlap and free time are unknown")]
    Kernels,
    #[strum(to_string = "names of some kernels: those that carry out collectives count as computing")]
    KernelNames,
    #[strum(to_string = "types of kernels: recorded from profiler level 1 on")]
    KernelTypes,
    #[strum(to_string = "shapes of kernels: recorded from profiler level 1 on")]
    Shapes,
    #[strum(to_string = "shapes of kernels: a trace of a GPU does not have them")]
    ShapesOfGpu,
    #[strum(
        to_string = "host operators and what they launched: they are in trace_view.json and ascend_pytorch_profiler_*.db"
    )]
    Operators,
    #[strum(
        to_string = "launches by CANN: recorded from profiler level 1 on, in trace_view.json and ascend_pytorch_profiler_*.db"
    )]
    Launches,
    #[strum(to_string = "steps: no ProfilerStep is recorded, the whole run is one row")]
    Steps,
    #[strum(to_string = "copies, events and waits of the device: they are in trace_view.json and databases")]
    OtherTasks,
}

#[derive(Debug, Default)]
pub(crate) struct RunTimeline {
    pub(crate) names: NameTable,
    /// Cells of kernels: shapes, types and formats of inputs, then of outputs.
    pub(crate) signatures: IndexSet<[NameId; 6], foldhash::fast::RandomState>,
    pub(crate) files: Vec<PathBuf>,
    pub(crate) form: Option<ProfileForm>,
    pub(crate) rank: Option<u32>,
    pub(crate) tasks: Vec<DeviceTask>,
    pub(crate) collectives: Vec<Collective>,
    /// Tasks of collectives by start; empty if they are not recorded.
    pub(crate) collective_tasks: Vec<CollectiveTask>,
    /// Operators by start, the outer before the inner ones.
    pub(crate) operators: Vec<HostOperator>,
    pub(crate) runtime_calls: Vec<HostOperator>,
    /// Memory in the trace of a GPU; the memory of NPUs is in separate files.
    pub(crate) memory: Option<RunMemory>,
    /// Operators of the backward pass, each with its operator of the forward pass.
    pub(crate) backward: Vec<(OperatorId, OperatorId)>,
    /// Ranges by start, the outer before the inner ones.
    pub(crate) ranges: Vec<HostRange>,
    pub(crate) marks: Vec<HostMark>,
    pub(crate) steps: Vec<HostStep>,
    pub(crate) missing: Vec<MissingPart>,
    pub(crate) untimed: u64,
    pub(crate) repeated: u64,
    /// Kernels and collectives of a trace that the table beside it lacks.
    pub(crate) without_row: u64,
    pub(crate) unfinished_ranges: u64,
    pub(crate) unnamed: u64,
    /// Kernels on cores of both kinds whose task of the scheduler is recorded, and the time by which those tasks are longer, in
    /// nanoseconds; no duration contains it.
    pub(crate) mixed_kernels: u64,
    pub(crate) scheduling: i64,
    pub(crate) unknown_schema: Option<String>,
}

impl RunTimeline {
    pub(crate) fn domains(&self) -> impl Iterator<Item = &str> {
        let of_ranges = self.ranges.iter().map(|range| range.domain);
        let all = of_ranges.chain(self.marks.iter().map(|mark| mark.domain));
        all.filter(|domain| *domain != NameId::EMPTY).map(|domain| self.names.text(domain))
    }

    pub(crate) fn insert_signature(&mut self, cells: [NameId; 6]) -> Option<SignatureId> {
        let is_recorded = cells.iter().any(|cell| cell.is_recorded());
        let place = is_recorded.then(|| self.signatures.insert_full(cells).0)?;
        u32::try_from(place).ok().map(SignatureId)
    }

    pub(crate) fn signature_cells(&self, id: SignatureId) -> [&str; 6] {
        let cells = self.signatures.get_index(id.0 as usize).copied().unwrap_or([NameId::EMPTY; 6]);
        cells.map(|cell| self.names.text(cell))
    }

    pub(crate) fn operator(&self, id: OperatorId) -> Option<&HostOperator> {
        self.operators.get(id.0 as usize)
    }

    pub(super) fn host_step_number(&self, time: i64) -> Option<u64> {
        place_at(&self.steps, time).map(|at| self.steps[at].number)
    }

    pub(crate) fn kernels(&self) -> impl Iterator<Item = &DeviceTask> {
        self.tasks.iter().filter(|task| task.role == TaskRole::Kernel)
    }

    pub(super) fn launched_on(&self, device: Option<u32>) -> impl Iterator<Item = LaunchedSpan> {
        let kernels = self.kernels().filter(move |task| task.device == device).map(|task| LaunchedSpan {
            span: task.span,
            name: if task.kind.is_recorded() { task.kind } else { task.name },
            operator: task.operator,
            launch: task.launch,
            step: task.step,
        });
        let collectives = self.collectives.iter().filter(move |one| one.device == device);
        kernels.chain(collectives.map(|one| LaunchedSpan {
            span: one.span,
            name: one.name,
            operator: one.operator,
            launch: one.launch,
            step: one.step,
        }))
    }

    pub(crate) fn devices(&self) -> Vec<Option<u32>> {
        let collectives = self.collectives.iter().map(|one| one.device);
        let devices: BTreeSet<_> = self.kernels().map(|task| task.device).chain(collectives).collect();
        devices.into_iter().collect()
    }

    pub(crate) fn hull(&self) -> Option<TimeSpan> {
        let spans = self.kernels().map(|task| task.span).chain(self.collectives.iter().map(|one| one.span));
        spans.reduce(|hull, span| TimeSpan::new(hull.start.min(span.start), hull.end.max(span.end)))
    }

    pub(super) fn set_only_device(&mut self) {
        if let [None, only @ Some(_)] | [only @ Some(_)] = *self.devices() {
            self.tasks.iter_mut().for_each(|task| task.device = task.device.or(only));
            self.collectives.iter_mut().for_each(|collective| collective.device = collective.device.or(only));
        }
    }

    pub(super) fn sort_parts(&mut self) {
        self.tasks.sort_by_key(|task| (task.span.start, task.span.end, task.stream));
        self.sort_collectives();
        self.ranges.sort_by_key(|range| range.span.outer_first());
        self.backward.sort_unstable();
        self.backward.dedup();
        self.steps.sort_unstable();
        self.steps.dedup();
    }

    fn sort_collectives(&mut self) {
        let mut collectives: Vec<(CollectiveId, Collective)> =
            (0..).map(CollectiveId).zip(std::mem::take(&mut self.collectives)).collect();
        collectives.sort_by_key(|(_, one)| (one.span, one.name));
        let places: HashMap<CollectiveId, CollectiveId> =
            collectives.iter().map(|(id, _)| *id).zip((0..).map(CollectiveId)).collect();
        self.collectives = collectives.into_iter().map(|(_, one)| one).collect();
        for task in &mut self.collective_tasks {
            task.collective = task.collective.and_then(|id| places.get(&id).copied());
        }
        self.collective_tasks.sort_by_key(|task| (task.span, task.plane));
    }

    pub(crate) fn collective(&self, id: CollectiveId) -> Option<&Collective> {
        self.collectives.get(id.0 as usize)
    }

    pub(super) fn missing_parts(&self) -> Vec<MissingPart> {
        let has_kernels = self.kernels().next().is_some();
        let has_name = |task: &DeviceTask| task.name.is_recorded() || task.kind.is_recorded();
        let has_shapes = |task: &DeviceTask| {
            let cells = task.signature.and_then(|id| self.signatures.get_index(id.0 as usize));
            cells.is_some_and(|cells| cells[0].is_recorded() || cells[3].is_recorded())
        };
        let without_shapes = match self.form {
            Some(ProfileForm::GpuTrace) => MissingPart::ShapesOfGpu,
            _ => MissingPart::Shapes,
        };
        let has_types = self.kernels().any(|task| task.kind.is_recorded());
        let has_steps = !self.steps.is_empty() || self.tasks.iter().any(|task| task.step.is_some());
        let parts = [
            (has_kernels, MissingPart::Kernels),
            (self.kernels().all(has_name), MissingPart::KernelNames),
            (!has_kernels || has_types, MissingPart::KernelTypes),
            (!has_kernels || self.kernels().any(has_shapes), without_shapes),
            (!self.operators.is_empty(), MissingPart::Operators),
            (self.kernels().any(|task| task.launch.is_some()), MissingPart::Launches),
            (has_steps, MissingPart::Steps),
            (self.form != Some(ProfileForm::Table), MissingPart::OtherTasks),
        ];
        parts.into_iter().filter(|(is_found, _)| !is_found).map(|(_, part)| part).collect()
    }
}

/// Returns the place of the step that includes a time, of steps by start.
pub(super) fn place_at(steps: &[HostStep], time: i64) -> Option<usize> {
    let at = steps.partition_point(|step| step.span.start <= time).checked_sub(1)?;
    (time < steps[at].span.end).then_some(at)
}

impl Collective {
    /// Returns true for a transfer between two ranks, which the vendor's tables call p2p.
    pub(crate) fn is_point_to_point(&self, names: &NameTable) -> bool {
        [self.kind, self.name].into_iter().any(|id| {
            let name = names.text(id).to_ascii_lowercase();
            ["hcom_send", "hcom_receive", "hcom_batchsendrecv"].iter().any(|prefix| name.starts_with(prefix))
        })
    }
}

/// Returns true for a kernel that carries out a collective: those on AI CPUs and vector cores have such names.
pub(super) fn is_collective_kernel(name: &str) -> bool {
    name.ends_with("AicpuKernel") || name.ends_with("AivKernel")
}

pub(super) fn is_copy(kind: &str) -> bool {
    let kind = kind.to_ascii_uppercase();
    ["MEMCPY", "SDMA", "DMA_SQE"].iter().any(|word| kind.contains(word))
}
