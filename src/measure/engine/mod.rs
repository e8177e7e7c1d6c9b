//! Executes runs: one thread per device, and a dispatcher that stores the results and reports them as events.

mod assess;
mod attempt_changes;
mod collect;
mod conditions;
mod device_monitor;
mod disk_failures;
mod dispatch;
mod dry_run;
mod equal_calls;
mod error;
mod follower;
mod gang_parts;
mod host_monitor;
mod lane;
mod lane_context;
mod ledger_writer;
mod paused;
mod reassess;
mod request;
mod run;
mod scheduler_input;
mod stop_requests;
mod write_back;

pub(crate) use assess::expected_launches;
pub(crate) use attempt_changes::find_changes;
pub(crate) use dry_run::{PlanPreview, dry_run};
pub(crate) use error::EngineError;
pub(crate) use follower::FollowerRun;
pub(crate) use gang_parts::SweepNodes;
pub(crate) use lane_context::CollectionSettings;
pub(crate) use paused::{PausedDevices, pause_file};
pub(crate) use reassess::{AssessmentRules, ReassessedCollection};
pub(crate) use request::{ResumedRun, RunOutcome, RunRequest};
pub(crate) use run::execute_run;
pub(crate) use write_back::rewrite_rows;
