//! Selection of the cases of a run, with their values and initial costs.

mod collectives;
mod cost_model;
mod equal_calls;
mod row_filter;
mod select;

pub(crate) use cost_model::{DEFAULT_LAUNCHES, EXPORTED_RECORD, InitialCosts, LaunchCount};
pub(crate) use equal_calls::EqualCallEvidence;
pub(crate) use row_filter::{FilterEvidence, FilteredTable, RowFilter};
pub(crate) use select::{
    CaseSelection, EarlierResult, MissingTable, PlannedCase, RecordedTime, RefusedCall, RunPlan, UpdateMode,
    planned_case, select_cases,
};
