//! Report of one run: what was measured, what failed and why, the devices over the night, and the cases to look at, as a page
//! that needs no other file, as markdown, and as JUnit.

mod junit;
mod markdown;
mod page;
mod plots;
mod run_results;

pub(crate) use junit::run_junit;
pub(crate) use markdown::run_markdown;
pub(crate) use page::{CoverageChange, report_page};
pub(crate) use run_results::RunResults;
