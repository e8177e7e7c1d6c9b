//! Carries a run out: one thread per device, one place where results are kept and told.
//!
//! Layer 4: imports everything below. The dispatcher is the only one that talks to the scheduler, the
//! ledger and whoever listens; it writes the ledger first and tells afterwards. It prints nothing.

mod collect;
mod device_monitor;
mod dispatch;
mod dry_run;
mod error;
mod host_monitor;
mod lane;
mod paused;
mod run;
mod write_back;

pub use collect::CollectionSettings;
pub use dry_run::{PlanPreview, ScheduledSlot, dry_run};
pub use error::EngineError;
pub use paused::PausedDevices;
pub use run::{ResumedRun, RunOutcome, RunRequest, pause_file, run};
