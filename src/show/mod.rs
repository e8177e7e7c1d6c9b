//! Everything that is printed: tables, pages, JSON, progress.

pub(crate) mod case_report;
pub(crate) mod coverage_report;
pub(crate) mod emit;
pub(crate) mod night_report;
pub(crate) mod report;
