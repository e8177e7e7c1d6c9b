//! Runs in traces of torch on GPUs, for comparisons: kernels, copies, operators, and the flows between them.
//!
//! Events have categories: `cpu_op` and `user_annotation` (host), `cuda_runtime` and `cuda_driver` (launches, with a
//! correlation number), `kernel`, `gpu_memcpy` and `gpu_memset` (device, with the same number). Kernels of nccl are
//! collectives. Instants named `[memory]` are allocations (positive `Bytes`) and releases.

use super::host_events::{OperatorShapes, add_module, thread_of};
use crate::profile::{
    for_each_trace_event,
    timeline::{intervals::valid_time, prelude::*},
};

const MATRIX_KERNELS: [&str; 5] = ["gemm", "conv", "cutlass", "wgrad", "gemvx"];

#[derive(Default, Deserialize)]
#[serde(default)]
struct GpuArguments<'a> {
    correlation: Option<i64>,
    device: Option<u32>,
    stream: Option<u32>,
    #[serde(rename = "Collective name", borrow)]
    collective: Option<Cow<'a, str>>,
}

/// Arguments of an allocation or release. `Device Type` is 0 for the host.
#[derive(Default, Deserialize)]
#[serde(default)]
struct MemoryArguments {
    #[serde(rename = "Bytes")]
    bytes: Option<i64>,
    #[serde(rename = "Device Type")]
    device_type: Option<i64>,
    #[serde(rename = "Total Allocated")]
    total_allocated: Option<i64>,
    #[serde(rename = "Total Reserved")]
    total_reserved: Option<i64>,
}

#[derive(Default)]
struct GpuReader {
    run: RunTimeline,
    tasks: Vec<(DeviceTask, Option<i64>)>,
    collectives: Vec<(Collective, Option<i64>)>,
    launches: HashMap<i64, (u64, TimeSpan)>,
    shapes: OperatorShapes,
}

pub(super) fn read_gpu_trace(file: &Path) -> Result<Option<RunTimeline>, ProfileError> {
    let mut reader = GpuReader::default();
    for_each_trace_event(file, &mut |event| {
        reader.add_event(event);
        Ok(())
    })
    .map_err(|source| ProfileError::Trace { file: file.to_owned(), source })?;
    if reader.tasks.is_empty() && reader.collectives.is_empty() {
        return Ok(None);
    }
    reader.run.form = Some(ProfileForm::GpuTrace);
    reader.run.files.push(file.to_owned());
    Ok(Some(reader.into_run()))
}

fn short_kernel_name(name: &str) -> &str {
    const ANONYMOUS: &str = "(anonymous namespace)::";
    let name = name.strip_prefix("void ").unwrap_or(name);
    let mut end = 0;
    // Brackets of an anonymous namespace are part of the name.
    while let Some(next) = name[end..].find(['<', '(']).map(|at| end + at) {
        match name[next..].strip_prefix(ANONYMOUS) {
            Some(rest) => end = name.len() - rest.len(),
            None if next > 0 => return &name[..next],
            None => break,
        }
    }
    name
}

impl GpuReader {
    fn add_event(&mut self, event: &TraceEvent<'_>) {
        if event.ph == "i" && event.name == "[memory]" {
            self.add_memory(event);
        }
        if event.ph != "X" {
            return;
        }
        let Some(span) = event.span() else {
            self.run.untimed += u64::from(matches!(&*event.cat, "kernel" | "gpu_memcpy" | "gpu_memset"));
            return;
        };
        let thread = thread_of(event);
        let call = |names: &mut NameTable| HostOperator {
            span,
            thread,
            name: names.insert(&event.name),
            shapes: NameId::EMPTY,
        };
        match &*event.cat {
            // Annotations of torch itself, such as `Optimizer.step#SGD.step`, are operators as on NPUs. Those of users
            // enclose whole passes, and would hide the operators in them.
            "user_annotation"
                if !event.name.contains('#') && !event.name.starts_with("DistributedDataParallel.") =>
            {
                self.run.runtime_calls.push(call(&mut self.run.names));
            }
            "cpu_op" | "user_annotation" => self.shapes.add_operator(&mut self.run, event, span),
            "python_function" => add_module(&mut self.run, event, span),
            "cuda_runtime" | "cuda_driver" => {
                self.run.runtime_calls.push(call(&mut self.run.names));
                let arguments: GpuArguments<'_> = event.arguments();
                if let Some(correlation) = arguments.correlation {
                    self.launches.insert(correlation, (thread, span));
                }
            }
            category @ ("kernel" | "gpu_memcpy" | "gpu_memset") => self.add_task(event, category, span),
            _ => {}
        }
    }

    fn add_memory(&mut self, event: &TraceEvent<'_>) {
        let arguments: MemoryArguments = event.arguments();
        if arguments.device_type.is_none_or(|kind| kind == 0) {
            return;
        }
        let Some(at) = event.start().and_then(|start| valid_time(start.0)) else {
            self.run.untimed += 1;
            return;
        };
        let size = |bytes: Option<i64>| bytes.and_then(|bytes| u64::try_from(bytes).ok());
        let memory = self.run.memory.get_or_insert_default();
        memory.peak_allocated = memory.peak_allocated.max(size(arguments.total_allocated));
        memory.peak_reserved = memory.peak_reserved.max(size(arguments.total_reserved));
        let allocated = size(arguments.bytes).filter(|bytes| *bytes > 0);
        memory.allocations.extend(allocated.map(|bytes| (at, bytes)));
    }

    fn add_task(&mut self, event: &TraceEvent<'_>, category: &str, span: TimeSpan) {
        let GpuArguments { correlation, device, stream, collective } = event.arguments();
        let lower = event.name.to_ascii_lowercase();
        let short_name = short_kernel_name(&event.name);
        let name = self.run.names.insert(&event.name);
        if category == "kernel" && lower.contains("nccl") {
            let kind = self.run.names.insert(collective.as_deref().unwrap_or(short_name));
            let collective = Collective { device, span, name, kind, ..Collective::default() };
            self.collectives.push((collective, correlation));
            return;
        }
        let (kind, role) = match category {
            "kernel" => (short_name, TaskRole::Kernel),
            "gpu_memset" => ("MEMSET", TaskRole::Other),
            _ => ("MEMCPY", TaskRole::Other),
        };
        let uses_matrix_units = || MATRIX_KERNELS.iter().any(|part| lower.contains(part));
        let task = DeviceTask {
            device,
            stream,
            uses_cube: (role == TaskRole::Kernel).then(uses_matrix_units),
            span,
            name,
            kind: self.run.names.insert(kind),
            role,
            ..DeviceTask::default()
        };
        self.tasks.push((task, correlation));
    }

    fn into_run(mut self) -> RunTimeline {
        self.run.operators.sort_by_key(|operator| operator.span.outer_first());
        let nesting = OperatorNesting::new(&self.run.operators);
        let launched = |correlation: Option<i64>| -> (Option<OperatorId>, Option<TimeSpan>) {
            let Some((thread, launch)) = correlation.and_then(|number| self.launches.get(&number)) else {
                return (None, None);
            };
            (nesting.operator_at(*thread, launch.start), Some(*launch))
        };
        self.run.tasks.extend(self.tasks.into_iter().map(|(task, correlation)| {
            let (operator, launch) = launched(correlation);
            DeviceTask { operator, launch, ..task }
        }));
        self.run.collectives.extend(self.collectives.into_iter().map(|(collective, correlation)| {
            let (operator, launch) = launched(correlation);
            Collective { operator, launch, ..collective }
        }));
        self.run
    }
}
