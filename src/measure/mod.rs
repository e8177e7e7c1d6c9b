//! The night: devices, the scheduler, the engine, from records to verdicts, the selftest, collectives, several hosts,
//! and the collection of profiles.

pub(crate) mod case_numbers;
pub(crate) mod collect;
pub(crate) mod collective;
pub(crate) mod database_check;
pub mod device;
pub(crate) mod device_choice;
pub(crate) mod engine;
pub(crate) mod events;
pub(crate) mod evidence;
pub(crate) mod filtered_cases;
pub(crate) mod fleet;
pub(crate) mod nodes;
pub(crate) mod recorder;
pub(crate) mod reparse;
pub(crate) mod run_context;
pub(crate) mod run_options;
pub(crate) mod run_plan;
pub(crate) mod run_state;
pub mod sched;
pub(crate) mod selftest;
pub(crate) mod vendor_check;
pub mod verify;
