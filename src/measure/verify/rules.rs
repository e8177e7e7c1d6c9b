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

/// Returns the names and conditions of the rules on samples.
fn sample_conditions() -> [(&'static str, String); 7] {
    let percent = |share: f64| share * 100.0;
    [
        (
            "trend",
            format!(
                "the durations of {LEAST_SAMPLES} samples or more change by less than {} %, or Kendall's S deviates by less than \
                 {LEAST_TREND_DEVIATE} standard deviations, in a collection and summed over those of a row",
                percent(LEAST_CHANGE)
            ),
        ),
        (
            "step",
            format!(
                "no change by {} % or more at a launch with Student's t of 4.2 + 25 / n or more between the samples before and \
                 after it",
                percent(LEAST_CHANGE)
            ),
        ),
        (
            "modes",
            format!(
                "the durations have no two modes {} % apart or more with Ashman's D of 3 + 52 / n or more",
                percent(LEAST_CHANGE)
            ),
        ),
        ("too_few_samples", "the samples give an interval of the median: six of them".to_owned()),
        (
            "outliers",
            format!(
                "at most one sample, or {} % of the samples, lies outside the severe outlier fence",
                percent(MOST_OUTLIERS)
            ),
        ),
        (
            "interval",
            format!(
                "half of the 95 % interval is at most {} % of the median ({} % where devices differ in all cases), or a step of the timer, {} us",
                percent(NOISE_TARGET),
                percent(DEVICE_TARGET),
                Nanos(TIMER_QUANTUM_NS)
            ),
        ),
        (
            "agreement",
            format!(
                "the standard error of the mean of the medians of a row's collections without a pattern is at most {} %, or they differ by two steps of \
                 the timer at most",
                percent(MOST_DISAGREEMENT)
            ),
        ),
    ]
}

/// Returns all rules in the order in which they are applied.
pub(crate) fn verification_rules() -> Vec<VerificationRule> {
    let of_records = RECORD_RULES.iter().map(|rule| VerificationRule {
        rule: rule.name,
        scope: RuleScope::Records,
        verdict: rule.verdict,
        condition: (rule.condition)(),
    });
    let other = |rule, scope, verdict, condition| VerificationRule { rule, scope, verdict, condition };
    let of_samples = sample_conditions()
        .into_iter()
        .map(|(rule, condition)| other(rule, RuleScope::Samples, Verdict::Noisy, condition));
    let percent = |share: f64| share * 100.0;
    let clock = [
        (
            "frequency_track",
            format!(
                "at most {} % of the launches ran at a lower clock than the set one, by the frequency track",
                percent(MOST_THROTTLED)
            ),
        ),
        (
            "cycle_rate",
            format!(
                "cycles per block and time are less than {} % below those of other collections of the case, of its neighbours or of \
                 the control kernels, or above those of most devices, or within their error",
                percent(LEAST_CLOCK_DEFICIT)
            ),
        ),
    ];
    let of_clock = clock
        .into_iter()
        .map(|(rule, condition)| other(rule, RuleScope::Clock, Verdict::Throttled, condition));
    let software = other(
        "software",
        RuleScope::Software,
        Verdict::Implausible,
        "the software of the host did not change during the collection".to_owned(),
    );
    let same_variant = other(
        "row_variant",
        RuleScope::Records,
        Verdict::Suspicious,
        "all collections of a row have the same `OP State`, unit and, but for numbers, `Op Name`, as far as they are recorded".to_owned(),
    );
    of_records
        .chain(of_samples)
        .chain([same_variant])
        .chain(reference_rules())
        .chain(control_rules())
        .chain(of_clock)
        .chain([software])
        .collect()
}

/// Returns the rules on the median of a row and other durations of the case.
fn reference_rules() -> impl Iterator<Item = VerificationRule> {
    let references = [
        (
            "history",
            format!(
                "the median is at most {HISTORY_FACTOR} times that with earlier software, in either direction, or so in \
                 {CONFIRMING_COLLECTIONS} collections"
            ),
        ),
        (
            "neighbours",
            format!(
                "the median is at most the greater of {NEIGHBOUR_FACTOR} times and {NEIGHBOUR_DEVIATIONS} standard deviations from the line \
                 through the nearest cases of other sizes, or so in {CONFIRMING_COLLECTIONS} collections"
            ),
        ),
        (
            "production",
            format!(
                "the median is at most {PRODUCTION_FACTOR} times that of production profiles, in either direction; with a cold cache it may be longer"
            ),
        ),
        (
            "one_block",
            format!(
                "a case on the vector cores whose tensors have {} MiB or more runs on several blocks",
                ONE_BLOCK_BYTES >> 20
            ),
        ),
        (
            "far_above_roofline",
            format!(
                "the median is at most {MOST_BOUNDS} times the sum of the roofline bound and {LAUNCH_PART} us"
            ),
        ),
    ];
    references.into_iter().map(|(rule, condition)| VerificationRule {
        rule,
        scope: RuleScope::References,
        verdict: Verdict::Suspicious,
        condition,
    })
}

/// Returns the rules on the control kernels at the ends of a collection.
fn control_rules() -> impl Iterator<Item = VerificationRule> {
    let rules = [
        (
            "control_overlap",
            Verdict::Implausible,
            "no launch of a control kernel took longer than until the start of the next one, with the limits of `overlap`".to_owned(),
        ),
        (
            "control_core_time",
            Verdict::Implausible,
            "the cores worked no longer than the launches of a control kernel took, with the limit of `core_time`".to_owned(),
        ),
        (
            "control_change",
            Verdict::Noisy,
            format!(
                "each control kernel takes less than {} % more or less at the end of the collection than at its start, or the change is \
                 below {CONTROL_CHANGE_ERRORS} standard errors, in more than half of the collections of a row",
                LEAST_CONTROL_CHANGE * 100.0
            ),
        ),
        (
            "control_clock",
            Verdict::Throttled,
            format!(
                "the cycles per time of a control kernel with such a change fell by less than {} %, or within their error",
                LEAST_CLOCK_DEFICIT * 100.0
            ),
        ),
    ];
    rules.into_iter().map(|(rule, verdict, condition)| VerificationRule {
        rule,
        scope: RuleScope::Controls,
        verdict,
        condition,
    })
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
