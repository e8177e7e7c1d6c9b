//! One model of a whole run, from what a profiler wrote: device tasks, collectives, host operators, ranges and steps.
//!
//! Layer 3: imports `domain`, `config`, `catalogue` and `profile`.

mod flops;
mod gaps;
mod intervals;
mod modules;
mod names;
mod read;
mod run;
mod step_times;
mod steps;
mod stragglers;
mod vendor_steps;

pub(crate) use flops::{PeakRate, RunFlops, Utilisation};
pub(crate) use gaps::{FreeGap, GapCause};
pub(crate) use intervals::{TimeSet, TimeSpan};
pub(crate) use modules::{LaunchedTask, MODULE_DOMAIN, ModuleRow, ModuleTable, OperatorCall, module_table};
pub(crate) use names::{NameId, NameTable};
pub(crate) use read::{RunReadError, read_runs};
pub(crate) use run::{Collective, DeviceTask, MissingPart, ProfileForm, RunTimeline, SignatureId, TaskRole};
pub(crate) use step_times::{StepTimes, StreamTimes, step_times};
pub(crate) use stragglers::{CollectiveArrival, RankWaits, collective_arrivals, waits_by_rank};
pub(crate) use vendor_steps::{StepDifference, VendorSteps};
