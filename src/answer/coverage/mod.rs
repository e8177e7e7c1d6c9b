//! Coverage: the answers of a database to the questions of workloads, metrics over them, and the gaps with what would
//! close each.

mod answers;
mod case_builder;
mod closing;
mod density;
mod estimate;
mod fill_cases;
mod gaps;
mod in_model;
mod metrics;
mod totals;

pub(crate) use answers::{AnsweredQuestion, add_equal_calls};
pub use answers::{CoverageAnalyzer, WorkloadCoverage};
pub(crate) use density::{AuditedAnswer, AuditedQuestion, audit_questions};
pub(crate) use estimate::estimate_durations;
pub(crate) use fill_cases::{FillCase, FillCases, FilledBy};
pub(crate) use gaps::CoverageGap;
pub use gaps::coverage_gaps;
pub(crate) use in_model::{InModelKernel, InModelKernels, join_kernels, missing_kernels_csv};
pub use metrics::coverage_metrics;
pub(crate) use metrics::{CoverageMetrics, MetricRatio, production_note, untimed_note};
pub use totals::{AnswerClass, kernel_coverage};
pub(crate) use totals::{
    CoverageTotals, EntryShare, KernelCoverage, entry_share, modelled_micros, predicted_time,
};
