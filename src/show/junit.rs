//! A run as JUnit, for the pages of CI systems: a suite for each kernel, a test for each case.
//!
//! Jenkins, GitLab and GitHub's actions read these elements and attributes. Numbers of skipped tests are `disabled` of a suite, and
//! `properties` of a test have its verdict and median.

use std::fmt::Write as _;

use super::{prelude::*, run_results::verdict_word};
use crate::kernel::FailingVerdicts;

/// Returns the element of a case without success. Cases with a verdict of [`FailingVerdicts`] are failures if they were
/// launched, and skipped if they were not; those that the run has not finished are errors.
fn element(case: &ShownCase) -> Option<&'static str> {
    match case.verdict {
        None => Some("error"),
        Some(verdict) if verdict.keeps_the_row() => Some("skipped"),
        Some(verdict) if FailingVerdicts::default().contains(verdict) => Some("failure"),
        Some(_) => None,
    }
}

fn count_attributes(cases: &[&ShownCase], has_skipped: bool) -> String {
    let count = |name: &str| cases.iter().filter(|case| element(case) == Some(name)).count();
    let skipped = or_empty(has_skipped.then(|| format!(" disabled=\"{}\"", count("skipped"))));
    let (tests, errors, failures) = (cases.len(), count("error"), count("failure"));
    format!("tests=\"{tests}\"{skipped} errors=\"{errors}\" failures=\"{failures}\"")
}

pub(crate) fn run_junit(results: &RunResults) -> String {
    let (mut all, mut suites) = (Vec::new(), String::new());
    for (kernel, cases) in results.kernels() {
        let (name, counts) = (escaped(kernel.as_str()), count_attributes(&cases, true));
        let _ = writeln!(suites, "    <testsuite name=\"{name}\" {counts}>");
        cases.iter().for_each(|case| push_test(&mut suites, results, case));
        suites += "    </testsuite>\n";
        all.extend(cases);
    }
    let (name, counts) = (escaped(&results.past.record.run), count_attributes(&all, false));
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"npubench run {name}\" {counts}>\n{suites}</testsuites>\n"
    )
}

fn push_test(text: &mut String, results: &RunResults, case: &ShownCase) {
    let [name, class] = [&*format!("{} {}", case.case, case.inputs), case.kernel.as_str()].map(escaped);
    let _ = writeln!(text, "        <testcase name=\"{name}\" classname=\"{class}\">");
    if let Some(element) = element(case) {
        let message = match case.verdict {
            None => "the run has not finished the case",
            Some(_) => case.reason.as_deref().unwrap_or_default(),
        };
        let log = case.log.as_ref().and_then(|path| results.logs.get(path));
        let log = or_empty(log.filter(|_| element != "skipped").map(|log| escaped(log)));
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

/// Returns a text for content and attributes: markup is escaped, line breaks stay, control characters are shown as on a terminal,
/// and further characters that XML 1.0 does not allow (section 2.2) are left out.
pub(super) fn escaped(text: &str) -> String {
    let mut xml = String::with_capacity(text.len());
    for c in printable(text).chars() {
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
        assert_eq!(
            escaped("a<b> & \"c\"\n\u{1b}[0m\u{fffe}µ"),
            "a&lt;b&gt; &amp; &quot;c&quot;&#10;\\x1b[0mµ"
        );
    }
}
