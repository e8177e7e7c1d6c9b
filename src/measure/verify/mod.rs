//! Assessment of a collection, from raw records to verdicts: every launch must be recorded, as the right kernel, on the
//! right device, no faster than the roofline bound, with small dispersion.

mod cache_flushes;
mod collection;
mod controls;
mod equal_calls;
mod evidence;
mod joint_estimates;
mod journal;
mod low_clocks;
mod ranks;
mod record_rules;
mod recorded_clock;
mod references;
mod row_patterns;
mod row_rules;
mod rules;
mod run_estimates;
mod samples;
mod sentinels;
mod software_change;
mod variants;

pub(crate) use collection::RawRecord;
pub use collection::{
    CollectionRecords, CollectionTermination, ExpectedLaunches, assess_collection, read_records,
};
pub(crate) use controls::control_readings;
pub use equal_calls::EqualKernel;
pub(crate) use evidence::{pool_attempts, pooled_sample_count};
pub(crate) use joint_estimates::{
    EstimateInput, EstimatedCase, EstimatedMedian, JointEstimates, timer_resolution,
};
pub(crate) use journal::JournalLine;
pub use journal::{LaunchJournal, read_journal};
pub(crate) use low_clocks::{DeviatingDevice, LowClocks, RunningDevices, Withdrawal};
pub(crate) use references::CaseReferences;
pub(crate) use row_rules::{RowNumbers, RuleResult, judge_row_rules};
pub(crate) use rules::{VerificationRule, verification_rules};
pub(crate) use run_estimates::RunEstimates;
pub(crate) use samples::TIMER_QUANTUM_NS;
pub use software_change::SoftwareChange;
