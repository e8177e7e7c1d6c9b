//! List of the rules by which measurements get their verdicts, with their limits.

use serde::Serialize;

use super::{
    collection::{LAUNCH_PART, MOST_BOUNDS, ONE_BLOCK_BYTES},
    record_rules::RECORD_RULES,
    recorded_clock::MOST_THROTTLED,
    references::HISTORY_FACTOR,
    row_patterns::MOST_DISAGREEMENT,
    samples::{DEVICE_TARGET, MOST_OUTLIERS, NOISE_TARGET, TIMER_QUANTUM_NS},
};
use crate::{
    base::stats::{
        CONTROL_CHANGE_ERRORS, LEAST_CHANGE, LEAST_CLOCK_DEFICIT, LEAST_CONTROL_CHANGE, LEAST_SAMPLES,
        LEAST_TREND_DEVIATE, NEIGHBOUR_DEVIATIONS, NEIGHBOUR_FACTOR,
    },
    kernel::{CONFIRMING_COLLECTIONS, Nanos, PRODUCTION_FACTOR, Verdict},
};

/// Measurements that a rule judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::Display, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub(crate) enum RuleScope {
    /// The records of a case in a collection, and those of the collections of a row.
    Records,
    /// The samples of a case in a collection, and those of a row.
    Samples,
    /// The control kernels at the ends of a collection.
    Controls,
    /// The median of a row and other durations of the case.
    References,
    /// The clock of the device during a collection.
    Clock,
    /// The software of the host.
    Software,
}

/// A rule with the verdict of measurements that break it. The fields are in the order of the JSON keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub(crate) struct VerificationRule {
    pub(crate) rule: &'static str,
    pub(crate) scope: RuleScope,
    pub(crate) verdict: Verdict,
    /// Condition that measurements fulfil.
    pub(crate) condition: String,
}

type Rule = (&'static str, RuleScope, Verdict, String);

/// Returns all rules in the order in which they are applied.
pub(crate) fn verification_rules() -> Vec<VerificationRule> {
    let of_records =
        RECORD_RULES.iter().map(|rule| (rule.name, RuleScope::Records, rule.verdict, (rule.condition)()));
    let others = sample_rules().into_iter().chain(reference_rules()).chain(device_rules());
    let rules = of_records.chain(others);
    rules
        .map(|(rule, scope, verdict, condition)| VerificationRule { rule, scope, verdict, condition })
        .collect()
}

fn percent(share: f64) -> f64 {
    share * 100.0
}

/// Rules on the samples of a collection, and of a row.
fn sample_rules() -> [Rule; 8] {
    let noisy = |rule, condition| (rule, RuleScope::Samples, Verdict::Noisy, condition);
    let change = percent(LEAST_CHANGE);
    [
        noisy(
            "trend",
            format!(
                "the durations of {LEAST_SAMPLES} samples or more change by less than {change} %, or Kendall's S deviates by less than \
                 {LEAST_TREND_DEVIATE} standard deviations, in a collection and summed over those of a row"
            ),
        ),
        noisy(
            "step",
            format!(
                "no change by {change} % or more at a launch with Student's t of 4.2 + 25 / n or more between the samples before and \
                 after it"
            ),
        ),
        noisy(
            "modes",
            format!("the durations have no two modes {change} % apart or more with Ashman's D of 3 + 52 / n or more"),
        ),
        noisy("too_few_samples", "the samples give an interval of the median: six of them".to_owned()),
        noisy(
            "outliers",
            format!(
                "at most one sample, or {} % of the samples, lies outside the severe outlier fence",
                percent(MOST_OUTLIERS)
            ),
        ),
        noisy(
            "interval",
            format!(
                "half of the 95 % interval is at most {} % of the median ({} % where devices differ in all cases), or a step of the timer, {} us",
                percent(NOISE_TARGET),
                percent(DEVICE_TARGET),
                Nanos(TIMER_QUANTUM_NS)
            ),
        ),
        noisy(
            "agreement",
            format!(
                "the standard error of the mean of the medians of a row's collections without a pattern is at most {} %, or they differ by two steps of \
                 the timer at most",
                percent(MOST_DISAGREEMENT)
            ),
        ),
        (
            "row_variant",
            RuleScope::Records,
            Verdict::Suspicious,
            "all collections of a row have the same `OP State`, unit and, but for numbers, `Op Name`, as far as they are recorded".to_owned(),
        ),
    ]
}

/// Rules on the median of a row and other durations of the case.
fn reference_rules() -> [Rule; 5] {
    let suspicious = |rule, condition| (rule, RuleScope::References, Verdict::Suspicious, condition);
    [
        suspicious(
            "history",
            format!(
                "the median is at most {HISTORY_FACTOR} times that with earlier software, in either direction, or so in \
                 {CONFIRMING_COLLECTIONS} collections"
            ),
        ),
        suspicious(
            "neighbours",
            format!(
                "the median is at most the greater of {NEIGHBOUR_FACTOR} times and {NEIGHBOUR_DEVIATIONS} standard deviations from the line \
                 through the nearest cases of other sizes, or so in {CONFIRMING_COLLECTIONS} collections"
            ),
        ),
        suspicious(
            "production",
            format!(
                "the median is at most {PRODUCTION_FACTOR} times that of production profiles, in either direction; with a cold cache it may be longer"
            ),
        ),
        suspicious(
            "one_block",
            format!(
                "a case on the vector cores whose tensors have {} MiB or more runs on several blocks",
                ONE_BLOCK_BYTES >> 20
            ),
        ),
        suspicious(
            "far_above_roofline",
            format!(
                "the median is at most {MOST_BOUNDS} times the sum of the roofline bound and {LAUNCH_PART} us"
            ),
        ),
    ]
}

/// Rules on the device and the host during a collection: control kernels, clock and software.
fn device_rules() -> [Rule; 7] {
    let control = |rule, verdict, condition| (rule, RuleScope::Controls, verdict, condition);
    let clock = |rule, condition| (rule, RuleScope::Clock, Verdict::Throttled, condition);
    [
        control(
            "control_overlap",
            Verdict::Implausible,
            "no launch of a control kernel took longer than until the start of the next one, with the limits of `overlap`".to_owned(),
        ),
        control(
            "control_core_time",
            Verdict::Implausible,
            "the cores worked no longer than the launches of a control kernel took, with the limit of `core_time`".to_owned(),
        ),
        control(
            "control_change",
            Verdict::Noisy,
            format!(
                "each control kernel takes less than {} % more or less at the end of the collection than at its start, or the change is \
                 below {CONTROL_CHANGE_ERRORS} standard errors, in more than half of the collections of a row",
                percent(LEAST_CONTROL_CHANGE)
            ),
        ),
        control(
            "control_clock",
            Verdict::Throttled,
            format!(
                "the cycles per time of a control kernel with such a change fell by less than {} %, or within their error",
                percent(LEAST_CLOCK_DEFICIT)
            ),
        ),
        clock(
            "frequency_track",
            format!(
                "at most {} % of the launches ran at a lower clock than the set one, by the frequency track",
                percent(MOST_THROTTLED)
            ),
        ),
        clock(
            "cycle_rate",
            format!(
                "cycles per block and time are less than {} % below those of other collections of the case, of its neighbours or of \
                 the control kernels, or above those of most devices, or within their error",
                percent(LEAST_CLOCK_DEFICIT)
            ),
        ),
        (
            "software",
            RuleScope::Software,
            Verdict::Implausible,
            "the software of the host did not change during the collection".to_owned(),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn rules_have_distinct_names_and_verdicts_that_are_not_ok() {
        let rules = verification_rules();
        let names: BTreeSet<&str> = rules.iter().map(|rule| rule.rule).collect();
        assert_eq!(names.len(), rules.len());
        assert!(rules.iter().all(|rule| rule.verdict != Verdict::Ok && !rule.condition.is_empty()));
    }
}
