//! Output about coverage, lookups and models: answers of databases to workloads and single operators, gaps, steps of models,
//! predicted passes, and the choice of further cases.

mod adapt;
mod coverage;
mod coverage_page;
mod fill;
mod interpolation_error;
mod kernel_gaps;
mod lookup;
mod m6;
mod models;
mod question_audit;

pub(crate) use adapt::{
    AdaptedState, ChosenCase, adapt_json, adapt_line, adapt_table, chosen_json, chosen_table,
};
pub(crate) use coverage::{CoverageReport, coverage_csv, coverage_json, coverage_text};
pub(crate) use coverage_page::coverage_page;
pub(crate) use fill::{
    CaseEnd, FillReport, FillResult, fill_json, fill_result_json, fill_result_text, fill_text,
};
pub(crate) use kernel_gaps::{GapKind, KernelEngine, KernelGap, ProfileGaps, gaps_json, gaps_table};
pub(crate) use lookup::{LookupReport, lookup_json, lookup_text};
pub(crate) use m6::{M6Report, ProfiledPass, m6_json, m6_text};
pub(crate) use models::{ModelRecord, StepKernelRecord, models_table, step_table};
pub(crate) use question_audit::{question_json, question_table};
