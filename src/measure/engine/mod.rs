//! Executes runs: one thread per device, and a dispatcher that stores the results and reports them as events.

mod assess;
mod collect;
mod dispatch;
mod dry_run;
mod gang;
mod host_monitor;
mod run;
mod write_back;

pub(crate) use assess::{
    AssessmentRules, CollectionOutput, ReassessedCollection, expected_launches, find_changes, launched_cases,
};
pub(crate) use collect::{last_line, write_scripts};
pub(crate) use dry_run::{PlanPreview, ScheduledSlot, dry_run};
pub(crate) use gang::{FollowerRun, SweepNodes};
pub(crate) use host_monitor::{PausedDevices, pause_file, require_large_disk};
pub(crate) use run::{CollectionSettings, EngineError, ResumedRun, RunOutcome, RunRequest, execute_run};
pub(crate) use write_back::{UnwrittenTable, WrittenRows, rewrite_rows};

type Result<T, E = EngineError> = std::result::Result<T, E>;
