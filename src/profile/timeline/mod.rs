//! One model of a whole run, from what a profiler wrote: device tasks, collectives, host operators, ranges and steps.

mod attention_flops;
mod compare;
mod flops;
mod gaps;
mod intervals;
mod kernel_class;
mod memory;
mod modules;
mod names;
mod nesting;
mod prelude;
mod read;
mod run;
mod step_times;
mod steps;
mod stragglers;
mod vendor_steps;

pub(crate) use compare::{
    AttributedTime, CallKind, ComparedCall, ComparedPart, ComparedRow, RecordedCall, RunComparison, RunSums,
    TimeSum, compare_calls, compare_runs,
};
pub(crate) use flops::{PeakRate, RunFlops, Utilisation};
pub(crate) use gaps::{FreeGap, GapCause};
pub(crate) use intervals::{TimeSpan, sum_lengths};
pub(crate) use modules::{LaunchedTask, MODULE_DOMAIN, ModuleRow, ModuleTable, module_table};
pub(crate) use names::NameId;
pub(crate) use read::read_runs;
pub(crate) use run::{DeviceTask, HostMark, HostRange, MissingPart, RunMemory, RunTimeline, SignatureId};
pub(crate) use step_times::{StepTimes, StreamTimes, step_times};
pub(crate) use stragglers::{CollectiveArrival, collective_arrivals, repeated_rank, waits_by_rank};
pub(crate) use vendor_steps::{StepDifference, VendorSteps};
