//! Assessment of a collection, from raw records to verdicts: every launch must be recorded, as the right kernel, on the
//! right device, no faster than the roofline bound, with small dispersion.
//!
//! Layer 4: imports `stats`, `domain`, `profile` and `render`. It reads the output of a collection and writes
//! no file.

mod collection;
mod evidence;
mod journal;
mod ranks;
mod samples;

pub use collection::{CollectionTermination, ExpectedLaunches, RawRecord, assess_collection, read_records};
pub use evidence::pool_attempts;
pub use journal::{JournalLine, LaunchJournal, read_journal};
pub use samples::{NOISE_TARGET, TIMER_QUANTUM_NS};
