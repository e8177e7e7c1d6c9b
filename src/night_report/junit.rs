//! A run as JUnit, for the pages of CI systems: a suite for each kernel, a test for each case.

use std::io;

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::run_results::{RunResults, has_failed, has_result, verdict_word};
use crate::case_report::ShownCase;

/// Returns the run as XML. Cases without a usable result are failures, cases without an attempt are skipped.
pub(crate) fn run_junit(results: &RunResults) -> io::Result<String> {
    let mut report = Report::new(format!("npubench run {}", results.past.record.run));
    for kernel in results.kernels.keys() {
        let mut suite = TestSuite::new(kernel.as_str());
        let cases = results.cases.iter().filter(|case| case.kernel == *kernel);
        suite.add_test_cases(cases.map(|case| test_case(results, case)));
        report.add_test_suite(suite);
    }
    report.to_string().map_err(io::Error::other)
}

fn test_case(results: &RunResults, case: &ShownCase) -> TestCase {
    let mut status = match () {
        () if has_failed(case) => TestCaseStatus::non_success(NonSuccessKind::Failure),
        () if has_result(case) => TestCaseStatus::success(),
        () => TestCaseStatus::skipped(),
    };
    match &mut status {
        TestCaseStatus::NonSuccess { .. } => {
            status.set_type(verdict_word(case)).set_message(case.reason.as_deref().unwrap_or_default());
            let log = case.log.as_ref().and_then(|path| results.logs.get(path));
            if let Some(log) = log {
                status.set_description(log.as_str());
            }
        }
        TestCaseStatus::Skipped { .. } => {
            status.set_type(verdict_word(case)).set_message(case.reason.as_deref().unwrap_or_default());
        }
        TestCaseStatus::Success { .. } => {}
    }
    let mut test = TestCase::new(format!("{} {}", case.case, case.inputs), status);
    test.set_classname(case.kernel.as_str());
    if let Some(median) = case.median_us {
        // `time` has milliseconds, of which most kernels take none.
        test.add_property(("median_us", format!("{median:.3}").as_str()));
    }
    test
}
