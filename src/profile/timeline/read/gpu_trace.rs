//! Runs in traces of torch on GPUs, for comparisons: kernels, copies, operators, and the flows between them.
//!
//! Events have categories: `cpu_op` and `user_annotation` (host), `cuda_runtime` and `cuda_driver` (launches, with a
//! correlation number), `kernel`, `gpu_memcpy` and `gpu_memset` (device, with the same number). Kernels of nccl are
//! collectives. Instants named `[memory]` are allocations (positive `Bytes`) and releases.

use std::{borrow::Cow, collections::HashMap, path::Path};

use serde::Deserialize;

use super::{RunReadError, operator_shapes::OperatorShapes};
use crate::profile::{
    TraceEvent, for_each_trace_event,
    timeline::{
        intervals::{TimeSpan, valid_time},
        names::NameId,
        nesting::OperatorNesting,
        run::{
            Collective, DeviceTask, HostOperator, HostRange, HostStep, OperatorId, ProfileForm, RunTimeline,
            TaskRole,
        },
    },
};

/// Parts of the names of kernels that run on matrix units.
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

/// Task of a device, with the number of its launch.
struct GpuTask {
    span: TimeSpan,
    device: Option<u32>,
    stream: Option<u32>,
    name: NameId,
    kind: NameId,
    uses_cube: bool,
    role: GpuRole,
    correlation: Option<i64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum GpuRole {
    Kernel,
    Collective,
    Copy,
}

#[derive(Default)]
struct GpuReader {
    run: RunTimeline,
    tasks: Vec<GpuTask>,
    launches: HashMap<i64, (u64, TimeSpan)>,
    shapes: OperatorShapes,
}

/// Reads a trace of a GPU; `None` if it has no kernel of one.
pub(super) fn read_gpu_trace(file: &Path) -> Result<Option<RunTimeline>, RunReadError> {
    let mut reader = GpuReader::default();
    for_each_trace_event(file, &mut |event| {
        reader.add_event(event);
        Ok(())
    })
    .map_err(|source| RunReadError::Trace { file: file.to_owned(), source })?;
    if reader.tasks.is_empty() {
        return Ok(None);
    }
    reader.run.form = Some(ProfileForm::GpuTrace);
    reader.run.files.push(file.to_owned());
    Ok(Some(reader.into_run()))
}

/// Returns the name of a kernel without arguments of templates and functions.
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

/// Returns true for the name of an annotation that torch writes.
fn is_annotation_of_torch(name: &str) -> bool {
    name.contains('#') || name.starts_with("DistributedDataParallel.")
}

impl GpuReader {
    fn add_event(&mut self, event: &TraceEvent<'_>) {
        if event.ph == "i" && event.name == "[memory]" {
            self.add_memory(event);
        }
        if event.ph != "X" {
            return;
        }
        let times = event.start().zip(event.duration());
        let span = times
            .and_then(|(start, duration)| TimeSpan::recorded(start.0, start.0.saturating_add(duration.0)));
        let Some(span) = span else {
            self.run.untimed += u64::from(matches!(&*event.cat, "kernel" | "gpu_memcpy" | "gpu_memset"));
            return;
        };
        let thread = event.thread().parse().unwrap_or_default();
        match &*event.cat {
            "cpu_op" | "user_annotation" => match event.name.strip_prefix("ProfilerStep#").map(str::parse) {
                Some(Ok(number)) => self.run.steps.push(HostStep { span, number }),
                // Annotations of torch itself, such as `Optimizer.step#SGD.step`, are operators as on NPUs. Those of
                // users enclose whole passes, and would hide the operators in them.
                _ if event.cat == "user_annotation" && !is_annotation_of_torch(&event.name) => {
                    let name = self.run.names.insert(&event.name);
                    self.run.runtime_calls.push(HostOperator { span, thread, name, shapes: NameId::EMPTY });
                }
                _ => {
                    let name = self.run.names.insert(&event.name);
                    let shapes = self.shapes.insert_shapes(event, &mut self.run.names);
                    self.run.operators.push(HostOperator { span, thread, name, shapes });
                }
            },
            "python_function" => {
                if let Some(module) = event.name.strip_prefix(super::database::MODULE_PREFIX) {
                    let name = self.run.names.insert(module);
                    self.run.ranges.push(HostRange { span, thread, name, domain: NameId::EMPTY });
                }
            }
            "cuda_runtime" | "cuda_driver" => {
                let name = self.run.names.insert(&event.name);
                self.run.runtime_calls.push(HostOperator { span, thread, name, shapes: NameId::EMPTY });
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
        let arguments: GpuArguments<'_> = event.arguments();
        let lower = event.name.to_ascii_lowercase();
        let role = match category {
            "kernel" if lower.contains("nccl") => GpuRole::Collective,
            "kernel" => GpuRole::Kernel,
            _ => GpuRole::Copy,
        };
        let kind = match role {
            GpuRole::Collective => arguments.collective.as_deref().unwrap_or(short_kernel_name(&event.name)),
            GpuRole::Kernel => short_kernel_name(&event.name),
            GpuRole::Copy if category == "gpu_memset" => "MEMSET",
            GpuRole::Copy => "MEMCPY",
        };
        let kind = self.run.names.insert(kind);
        self.tasks.push(GpuTask {
            span,
            device: arguments.device,
            stream: arguments.stream,
            name: self.run.names.insert(&event.name),
            kind,
            uses_cube: MATRIX_KERNELS.iter().any(|part| lower.contains(part)),
            role,
            correlation: arguments.correlation,
        });
    }

    /// Returns the run with the operators of all tasks.
    fn into_run(mut self) -> RunTimeline {
        self.run.operators.sort_by_key(|operator| (operator.span.start, -operator.span.end));
        let nesting = OperatorNesting::new(&self.run.operators);
        let launched = |correlation: Option<i64>| -> (Option<OperatorId>, Option<TimeSpan>) {
            let Some((thread, launch)) = correlation.and_then(|number| self.launches.get(&number)) else {
                return (None, None);
            };
            (nesting.operator_at(*thread, launch.start), Some(*launch))
        };
        let mut tasks = Vec::new();
        let mut collectives = Vec::new();
        for task in &self.tasks {
            let (operator, launch) = launched(task.correlation);
            let (span, device, name, kind) = (task.span, task.device, task.name, task.kind);
            if task.role == GpuRole::Collective {
                let group = NameId::EMPTY;
                collectives.push(Collective {
                    span,
                    device,
                    name,
                    kind,
                    group,
                    operator,
                    launch,
                    step: None,
                });
                continue;
            }
            tasks.push(DeviceTask {
                span,
                device,
                stream: task.stream,
                name,
                kind,
                core: NameId::EMPTY,
                role: if task.role == GpuRole::Kernel { TaskRole::Kernel } else { TaskRole::Other },
                signature: None,
                uses_cube: (task.role == GpuRole::Kernel).then_some(task.uses_cube),
                operator,
                launch,
                step: None,
            });
        }
        (self.run.tasks, self.run.collectives) = (tasks, collectives);
        self.run
    }
}
