//! Coverage: the answers of a database to the questions of workloads, metrics over them, and the gaps with what would
//! close each.

mod answers;
mod attention_case;
mod case_builder;
mod case_problem;
mod closing;
mod density;
mod estimate;
mod fill_cases;
mod gaps;
mod in_model;
mod kernels;
mod metrics;
mod predicted;
mod totals;

pub(crate) use answers::{AnsweredQuestion, add_equal_calls};
pub use answers::{CoverageAnalyzer, WorkloadCoverage};

pub(crate) use density::{AuditedAnswer, AuditedQuestion, audit_questions};
pub(crate) use estimate::estimate_durations;
pub(crate) use fill_cases::{FillCase, FillCases, FilledBy};
pub(crate) use gaps::CoverageGap;
pub use gaps::coverage_gaps;
pub(crate) use in_model::{InModelKernel, InModelKernels, join_kernels, missing_kernels_csv};
pub use kernels::kernel_coverage;
pub(crate) use kernels::{KernelCoverage, entry_share};
pub use metrics::coverage_metrics;
pub(crate) use metrics::{CoverageMetrics, MetricRatio, production_note, untimed_note};
pub(crate) use predicted::{modelled_micros, predicted_time};
pub use totals::AnswerClass;
pub(crate) use totals::CoverageTotals;
