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

pub use answers::{AnsweredQuestion, CoverageAnalyzer, WorkloadCoverage, add_equal_calls};
pub use closing::GapClosing;
pub(crate) use density::{AuditedAnswer, AuditedQuestion, audit_questions};
pub use estimate::estimate_durations;
pub use fill_cases::{FillCase, FillCases, FilledBy};
pub use gaps::{CoverageGap, GapBracket, coverage_gaps};
pub(crate) use in_model::{InModelKernel, InModelKernels, join_kernels, missing_kernels_csv};
pub use kernels::{EntryShare, KernelCoverage, entry_share, kernel_coverage};
pub use metrics::{CoverageMetrics, MetricRatio, coverage_metrics, production_note, untimed_note};
pub use predicted::{modelled_micros, predicted_time};
pub use totals::{AnswerClass, CoverageTotals};
