//! Assessment of a collection, from raw records to verdicts: every launch must be recorded, as the right kernel, on the
//! right device, no faster than the roofline bound, with small dispersion.

mod collection;
mod controls;
mod estimates;
mod journal;
mod low_clocks;
mod ranks;
mod record_rules;
mod rules;
mod samples;

pub(crate) use collection::RawRecord;
pub use collection::{
    CollectionRecords, CollectionTermination, EqualKernel, ExpectedLaunches, SoftwareChange,
    assess_collection, read_records,
};
pub(crate) use controls::control_readings;
pub(crate) use estimates::{
    CaseReferences, EstimateInput, EstimatedCase, EstimatedMedian, JointEstimates, RunEstimates,
    timer_resolution,
};
pub(crate) use journal::{JournalLine, coded_error};
pub use journal::{LaunchJournal, read_journal};
pub(crate) use low_clocks::{DeviatingDevice, LowClocks, RunningDevices, Withdrawal};
pub(crate) use record_rules::PLAUSIBLE;
pub(crate) use rules::{RowNumbers, RuleResult, VerificationRule, judge_row_rules, verification_rules};
pub(crate) use samples::{TIMER_QUANTUM_NS, pool_attempts, pooled_sample_count};
