//! Carries a run out: one thread per device, one place where results are kept and told.
//!
//! Layer 4: imports everything below. The dispatcher is the only one that talks to the scheduler, the
//! ledger and whoever listens; it writes the ledger first and tells afterwards. It prints nothing.

mod collect;
mod dispatch;
mod error;
mod lane;
mod paused;
mod preview;
mod run;
mod sentry;
mod watch;
mod write_back;

pub use collect::Settings;
pub use error::EngineError;
pub use paused::Paused;
pub use preview::{Place, Preview, preview};
pub use run::{Outcome, Resumed, Run, pause_file, run};
