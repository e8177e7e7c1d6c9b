//! From raw records to a verdict: the launch count must close, the right kernel must have run, on the
//! right device, no faster than physics allows, and steadily.
//!
//! Layer 3: imports `model`, `stats`, `spec`, `profile`, `render` and `store`. It reads what a
//! collection left behind and writes nothing.

mod collection;
mod evidence;
mod journal;
mod ranks;
mod samples;

pub use collection::{CollectionVerdicts, ExpectedLaunches, RawRecord, assess, read_records};
pub use evidence::pool_attempts;
pub use journal::{JournalLine, LaunchJournal, read_journal};
pub use samples::{NOISE_TARGET, TIMER_QUANTUM_NS};
