//! A run as JUnit, for the pages of CI systems: a suite for each kernel, a test for each case.

use std::io;

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use crate::{
    kernel::FailingVerdicts,
    show::{
        run_results::{RunResults, verdict_word},
        shown_cases::ShownCase,
    },
};

/// Returns the run as XML. Cases with a verdict of [`FailingVerdicts`] are failures if they were launched, and skipped if they were
/// not; those that the run has not finished are errors.
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
    let mut status = match case.verdict {
        None => TestCaseStatus::non_success(NonSuccessKind::Error),
        Some(verdict) if verdict.keeps_the_row() => TestCaseStatus::skipped(),
        Some(verdict) if FailingVerdicts::default().contains(verdict) => {
            TestCaseStatus::non_success(NonSuccessKind::Failure)
        }
        Some(_) => TestCaseStatus::success(),
    };
    if !matches!(status, TestCaseStatus::Success { .. }) {
        let reason = match case.verdict {
            None => "the run has not finished the case",
            Some(_) => case.reason.as_deref().unwrap_or_default(),
        };
        status.set_type(case.cause.unwrap_or("open")).set_message(xml_text(reason));
    }
    if let TestCaseStatus::NonSuccess { .. } = &status {
        let log = case.log.as_ref().and_then(|path| results.logs.get(path));
        if let Some(log) = log {
            status.set_description(xml_text(log));
        }
    }
    let mut test = TestCase::new(format!("{} {}", case.case, case.inputs), status);
    test.set_classname(case.kernel.as_str());
    test.add_property(("verdict", verdict_word(case)));
    if let Some(median) = case.median_us {
        // `time` has milliseconds, of which most kernels take none.
        test.add_property(("median_us", format!("{median:.3}").as_str()));
    }
    test
}

/// Returns a text without the two characters that are valid in UTF-8 and not in XML 1.0 (section 2.2), which the library keeps;
/// it removes control characters.
fn xml_text(text: &str) -> String {
    text.replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}")
}
