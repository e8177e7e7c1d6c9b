//! A run as JUnit, for the pages of CI systems: a suite for each kernel, a test for each case.
//!
//! Jenkins, GitLab and GitHub's actions read these elements and attributes. Numbers of skipped tests are `disabled` of a suite, and
//! `properties` of a test have its verdict and median.

use std::fmt::Write as _;

use super::{
    cases::ShownCase,
    prelude::*,
    run_results::{RunResults, verdict_word},
};
use crate::kernel::FailingVerdicts;

/// Number of the tests of a report or a suite, and of those without success.
#[derive(Clone, Copy, Default)]
struct TestCounts {
    tests: usize,
    skipped: usize,
    errors: usize,
    failures: usize,
}

impl TestCounts {
    fn add(&mut self, outcome: Outcome) {
        self.tests += 1;
        self.skipped += usize::from(outcome == Outcome::Skipped);
        self.errors += usize::from(outcome == Outcome::Error);
        self.failures += usize::from(outcome == Outcome::Failure);
    }

    fn attributes(self, has_skipped: bool) -> String {
        let Self { tests, skipped, errors, failures } = self;
        let skipped = or_empty(has_skipped.then(|| format!(" disabled=\"{skipped}\"")));
        format!("tests=\"{tests}\"{skipped} errors=\"{errors}\" failures=\"{failures}\"")
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Success,
    Skipped,
    Error,
    Failure,
}

impl Outcome {
    /// Cases with a verdict of [`FailingVerdicts`] are failures if they were launched, and skipped if they were not; those that
    /// the run has not finished are errors.
    fn of_case(case: &ShownCase) -> Self {
        match case.verdict {
            None => Self::Error,
            Some(verdict) if verdict.keeps_the_row() => Self::Skipped,
            Some(verdict) if FailingVerdicts::default().contains(verdict) => Self::Failure,
            Some(_) => Self::Success,
        }
    }

    const fn element(self) -> Option<&'static str> {
        match self {
            Self::Success => None,
            Self::Skipped => Some("skipped"),
            Self::Error => Some("error"),
            Self::Failure => Some("failure"),
        }
    }
}

pub(crate) fn run_junit(results: &RunResults) -> String {
    let (mut all, mut suites) = (TestCounts::default(), String::new());
    for kernel in results.kernels.keys() {
        let (mut counts, mut tests) = (TestCounts::default(), String::new());
        for case in results.cases.iter().filter(|case| case.kernel == *kernel) {
            let outcome = Outcome::of_case(case);
            counts.add(outcome);
            all.add(outcome);
            push_test(&mut tests, results, case, outcome);
        }
        let (name, counts) = (escaped(kernel.as_str()), counts.attributes(true));
        let _ = writeln!(suites, "    <testsuite name=\"{name}\" {counts}>\n{tests}    </testsuite>");
    }
    let (name, counts) = (escaped(&results.past.record.run), all.attributes(false));
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"npubench run {name}\" {counts}>\n{suites}</testsuites>\n"
    )
}

fn push_test(text: &mut String, results: &RunResults, case: &ShownCase, outcome: Outcome) {
    let [name, class] = [&*format!("{} {}", case.case, case.inputs), case.kernel.as_str()].map(escaped);
    let _ = writeln!(text, "        <testcase name=\"{name}\" classname=\"{class}\">");
    if let Some(element) = outcome.element() {
        let message = match case.verdict {
            None => "the run has not finished the case",
            Some(_) => case.reason.as_deref().unwrap_or_default(),
        };
        let log = case.log.as_ref().and_then(|path| results.logs.get(path));
        let log = log.filter(|_| outcome != Outcome::Skipped).map_or_else(String::new, |log| escaped(log));
        let (message, cause) = (escaped(message), case.cause.unwrap_or("open"));
        let _ =
            writeln!(text, "            <{element} message=\"{message}\" type=\"{cause}\">{log}</{element}>");
    }
    // `time` has milliseconds, of which most kernels take none.
    let median = or_empty(case.median_us.map(|median| property("median_us", &decimals3(median))));
    let verdict = property("verdict", verdict_word(case));
    let _ = writeln!(text, "            <properties>\n{verdict}{median}            </properties>");
    text.push_str("        </testcase>\n");
}

fn property(name: &str, value: &str) -> String {
    format!("                <property name=\"{name}\" value=\"{value}\"/>\n")
}

/// Returns a text for content and attributes: markup is escaped, line breaks stay, and characters that XML 1.0 does not allow
/// (section 2.2) are left out.
pub(super) fn escaped(text: &str) -> String {
    let mut xml = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => xml.push_str("&lt;"),
            '>' => xml.push_str("&gt;"),
            '&' => xml.push_str("&amp;"),
            '"' => xml.push_str("&quot;"),
            '\n' => xml.push_str("&#10;"),
            '\t' | ' '..='\u{7e}' | '\u{a0}'..='\u{fffd}' | '\u{10000}'.. => xml.push(c),
            _ => {}
        }
    }
    xml
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_valid_in_xml() {
        assert_eq!(escaped("a<b> & \"c\"\n\u{1b}[0m\u{fffe}µ"), "a&lt;b&gt; &amp; &quot;c&quot;&#10;[0mµ");
    }
}
