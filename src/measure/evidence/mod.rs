//! Evidence of rows: the content that the ledger gives a row, its comparison with the tables, and everything that is known of
//! one case.

mod case_evidence;
mod clock;
mod compare;
mod controls;
mod difference;
mod find_case;
mod host_levels;
mod ledger_rows;
mod missing_rows;
mod noise_budget;
mod production_states;
mod raw_records;
mod repeat_command;

pub(crate) use case_evidence::{
    BracketEvidence, CaseEvidence, CollectionEvidence, EvidenceSources, ReadingEvidence, ResultEvidence,
    StateEvidence,
};
pub(crate) use clock::{ClockEvidence, clock_limits};
pub(crate) use compare::{DatabaseComparison, LedgerComparison, RowComparison, compare_database};
pub(crate) use controls::{ControlEvidence, ControlLevel, control_evidence, control_levels};
pub(crate) use difference::{CaseDifference, FailedCase, LedgerDifference, MeasuredSide, compare_sides};
pub(crate) use find_case::find_case;
pub(crate) use host_levels::{HostLevel, host_levels};
pub(crate) use ledger_rows::{LedgerRows, case_row};
pub(crate) use missing_rows::{MissingRows, missing_rows};
pub(crate) use noise_budget::{KernelNoise, NoiseBudget};
pub(crate) use production_states::ProductionStates;
pub(crate) use raw_records::{ArchiveState, archive_state, files_to_archive};
pub(crate) use repeat_command::repeat_commands;
