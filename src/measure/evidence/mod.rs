//! Evidence of rows: the content that the ledger gives a row, its comparison with the tables, and everything that is known of
//! one case.

mod case_evidence;
mod compare;
mod difference;
mod find_case;
mod levels;
mod missing_rows;
mod noise_budget;
mod production_states;

pub(crate) use case_evidence::{
    ArchiveState, BracketEvidence, CaseEvidence, CollectionEvidence, EvidenceSources, ReadingEvidence,
    ResultEvidence, StateEvidence, archive_state, files_to_archive,
};
pub(crate) use compare::{
    DatabaseComparison, LedgerComparison, LedgerRows, RowComparison, case_row, compare_database,
};
pub(crate) use difference::{CaseDifference, FailedCase, LedgerDifference, MeasuredSide, compare_sides};
pub(crate) use find_case::{find_case, repeat_commands};
pub(crate) use levels::{
    ClockEvidence, ControlEvidence, ControlLevel, HostLevel, clock_limits, control_evidence, control_levels,
    host_levels,
};
pub(crate) use missing_rows::{MissingRows, missing_rows};
pub(crate) use noise_budget::{KernelNoise, NoiseBudget};
pub(crate) use production_states::ProductionStates;
