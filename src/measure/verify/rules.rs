//! The rules by which measurements get their verdicts, with their limits, and their results for one row.

use serde::Serialize;

use super::{
    CaseReferences,
    collection::{LAUNCH_PART, MAX_BOUNDS, ONE_BLOCK_BYTES, one_block},
    controls::control_change,
    estimates::HISTORY_FACTOR,
    record_rules::{MAX_THROTTLED, RECORD_RULES},
    samples::{
        DEVICE_TARGET, MAX_DISAGREEMENT, MAX_OUTLIERS, NOISE_TARGET, RowPatterns, TIMER_QUANTUM_NS,
        is_mostly_patterned, pattern_cause, variant_contradiction, widest_interval,
    },
};
use crate::{
    base::{
        count_text::format_count,
        stats::{
            CONTROL_CHANGE_ERRORS, DurationPattern, MIN_CHANGE, MIN_CLOCK_DEFICIT, MIN_CONTROL_CHANGE,
            MIN_SAMPLES, MIN_TREND_DEVIATE, NEIGHBOUR_DEVIATIONS, NEIGHBOUR_FACTOR,
        },
    },
    kernel::{
        CONFIRMING_COLLECTIONS, CacheState, CaseOutcome, Cause, IntervalMethod, Nanos, PRODUCTION_FACTOR,
        Reason, RecordedTask, Verdict, production_contradiction,
    },
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

pub(crate) fn verification_rules() -> Vec<VerificationRule> {
    let of_records =
        RECORD_RULES.iter().map(|rule| (rule.name, RuleScope::Records, rule.verdict, rule.condition));
    let all = of_records.chain(OTHER_RULES).map(|(rule, scope, verdict, condition)| VerificationRule {
        rule,
        scope,
        verdict,
        condition: condition(),
    });
    all.collect()
}

fn percent(share: f64) -> f64 {
    share * 100.0
}

/// Name, scope, verdict of measurements that break the rule, and its condition.
const OTHER_RULES: [(&str, RuleScope, Verdict, fn() -> String); 20] = [
    ("trend", RuleScope::Samples, Verdict::Noisy, || {
        let change = percent(MIN_CHANGE);
        format!(
            "the durations of {MIN_SAMPLES} samples or more change by less than {change} %, or Kendall's S deviates by less than \
             {MIN_TREND_DEVIATE} standard deviations, in a collection and summed over those of a row"
        )
    }),
    ("step", RuleScope::Samples, Verdict::Noisy, || {
        let change = percent(MIN_CHANGE);
        format!(
            "no change by {change} % or more at a launch with Student's t of 4.2 + 25 / n or more between the samples before and \
             after it"
        )
    }),
    ("modes", RuleScope::Samples, Verdict::Noisy, || {
        let change = percent(MIN_CHANGE);
        format!(
            "the durations have no two modes {change} % apart or more with Ashman's D of 3 + 52 / n or more"
        )
    }),
    ("too_few_samples", RuleScope::Samples, Verdict::Noisy, || {
        "the samples give an interval of the median: six of them".to_owned()
    }),
    ("outliers", RuleScope::Samples, Verdict::Noisy, || {
        let most = percent(MAX_OUTLIERS);
        format!("at most one sample, or {most} % of the samples, lies outside the severe outlier fence")
    }),
    ("interval", RuleScope::Samples, Verdict::Noisy, || {
        let (most, of_devices, step) =
            (percent(NOISE_TARGET), percent(DEVICE_TARGET), Nanos(TIMER_QUANTUM_NS));
        format!(
            "half of the 95 % interval is at most {most} % of the median ({of_devices} % where devices differ in all cases), or a step \
             of the timer, {step} us"
        )
    }),
    ("agreement", RuleScope::Samples, Verdict::Noisy, || {
        let most = percent(MAX_DISAGREEMENT);
        format!(
            "the standard error of the mean of the medians of a row's collections without a pattern is at most {most} %, or they differ \
             by two steps of the timer at most"
        )
    }),
    ("row_variant", RuleScope::Records, Verdict::Suspicious, || {
        "all collections of a row have the same `OP State`, unit and, but for numbers, `Op Name`, as far as they are recorded"
            .to_owned()
    }),
    ("history", RuleScope::References, Verdict::Suspicious, || {
        format!(
            "the median is at most {HISTORY_FACTOR} times that with earlier software, in either direction, or so in \
             {CONFIRMING_COLLECTIONS} collections"
        )
    }),
    ("neighbours", RuleScope::References, Verdict::Suspicious, || {
        format!(
            "the median is at most the greater of {NEIGHBOUR_FACTOR} times and {NEIGHBOUR_DEVIATIONS} standard deviations from the line \
             through the nearest cases of other sizes, or so in {CONFIRMING_COLLECTIONS} collections"
        )
    }),
    ("production", RuleScope::References, Verdict::Suspicious, || {
        format!(
            "the median is at most {PRODUCTION_FACTOR} times that of production profiles, in either direction; with a cold cache it may \
             be longer"
        )
    }),
    ("one_block", RuleScope::References, Verdict::Suspicious, || {
        let mib = ONE_BLOCK_BYTES >> 20;
        format!("a case on the vector cores whose tensors have {mib} MiB or more runs on several blocks")
    }),
    ("far_above_roofline", RuleScope::References, Verdict::Suspicious, || {
        format!("the median is at most {MAX_BOUNDS} times the sum of the roofline bound and {LAUNCH_PART} us")
    }),
    ("control_overlap", RuleScope::Controls, Verdict::Implausible, || {
        "no launch of a control kernel took longer than until the start of the next one, with the limits of `overlap`"
            .to_owned()
    }),
    ("control_core_time", RuleScope::Controls, Verdict::Implausible, || {
        "the cores worked no longer than the launches of a control kernel took, with the limit of `core_time`"
            .to_owned()
    }),
    ("control_change", RuleScope::Controls, Verdict::Noisy, || {
        let change = percent(MIN_CONTROL_CHANGE);
        format!(
            "each control kernel takes less than {change} % more or less at the end of the collection than at its start, or the change \
             is below {CONTROL_CHANGE_ERRORS} standard errors, in more than half of the collections of a row"
        )
    }),
    ("control_clock", RuleScope::Controls, Verdict::Throttled, || {
        let deficit = percent(MIN_CLOCK_DEFICIT);
        format!(
            "the cycles per time of a control kernel with such a change fell by less than {deficit} %, or within their error"
        )
    }),
    ("frequency_track", RuleScope::Clock, Verdict::Throttled, || {
        let most = percent(MAX_THROTTLED);
        format!(
            "at most {most} % of the launches ran at a lower clock than the set one, by the frequency track"
        )
    }),
    ("cycle_rate", RuleScope::Clock, Verdict::Throttled, || {
        let deficit = percent(MIN_CLOCK_DEFICIT);
        format!(
            "cycles per block and time are less than {deficit} % below those of other collections of the case, of its neighbours or of \
             the control kernels, or above those of most devices, or within their error"
        )
    }),
    ("software", RuleScope::Software, Verdict::Implausible, || {
        "the software of the host did not change during the collection".to_owned()
    }),
];

/// State of a rule for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::Display, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub(crate) enum RuleState {
    Fulfilled,
    Broken,
    /// Broken, and confirmed by several collections.
    Confirmed,
    #[strum(to_string = "not judged")]
    NotJudged,
}

/// Result of a rule, or of the rules on records together. The fields are in the order of the JSON keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub(crate) struct RuleResult {
    pub(crate) rule: &'static str,
    pub(crate) state: RuleState,
    /// What was found, and the limit.
    pub(crate) found: String,
}

/// Durations in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowNumbers<'a> {
    pub(crate) left_out: &'a [&'a CaseOutcome],
    pub(crate) collections: &'a [&'a [i64]],
    pub(crate) reasons: &'a [&'a Reason],
    pub(crate) tasks: &'a [&'a RecordedTask],
    pub(crate) outliers: usize,
    pub(crate) median: f64,
    pub(crate) interval: Option<(f64, f64)>,
    pub(crate) method: Option<IntervalMethod>,
    pub(crate) references: Option<&'a CaseReferences>,
    /// The error is the reason why the row is not compared with production.
    pub(crate) production: Result<Nanos, &'static str>,
    pub(crate) cache: CacheState,
    pub(crate) fastest: Option<Nanos>,
    /// Relative differences from their median.
    pub(crate) clocks: &'a [f64],
}

/// True with what was found if a rule is broken; the error is the reason why it is not judged.
type Judgement = Result<(bool, String), String>;

pub(crate) fn judge_row_rules(row: &RowNumbers<'_>) -> Vec<RuleResult> {
    let patterns = RowPatterns::of_collections(row.collections);
    let is_trend = |pattern: &DurationPattern| matches!(pattern, DurationPattern::Trend { .. });
    let is_step = |pattern: &DurationPattern| matches!(pattern, DurationPattern::Step { .. });
    let has_modes = |pattern: &DurationPattern| matches!(pattern, DurationPattern::TwoModes { .. });
    let results = [
        ("records", Ok(judge_records(row))),
        ("trend", judge_pattern(row, &patterns, true, is_trend)),
        ("step", judge_pattern(row, &patterns, false, is_step)),
        ("modes", judge_pattern(row, &patterns, false, has_modes)),
        ("outliers", Ok(judge_outliers(row))),
        ("interval", judge_interval(row)),
        ("agreement", judge_agreement(&patterns)),
        ("row_variant", judge_variant(row)),
        ("history", judge_history(row)),
        ("neighbours", judge_neighbours(row)),
        ("production", judge_production(row)),
        ("far_above_roofline", judge_roofline(row)),
        ("one_block", Ok(judge_finding(row, one_block, |broken, _| broken > 0))),
        ("control_change", Ok(judge_finding(row, control_change, is_mostly_patterned))),
        ("cycle_rate", judge_clock(row)),
    ];
    let is_confirmed = row.collections.len() >= CONFIRMING_COLLECTIONS;
    let result = |(rule, judgement): (&'static str, Judgement)| {
        let (state, found) = match judgement {
            Ok((false, found)) => (RuleState::Fulfilled, found),
            Ok((true, found)) if is_confirmed && matches!(rule, "history" | "neighbours") => {
                (RuleState::Confirmed, found)
            }
            Ok((true, found)) => (RuleState::Broken, found),
            Err(reason) => (RuleState::NotJudged, reason),
        };
        RuleResult { rule, state, found }
    };
    results.into_iter().map(result).collect()
}

fn count_text(collections: usize) -> String {
    format_count(collections, "collection")
}

/// A collection that breaks one of the rules on records is not in the row.
fn judge_records(row: &RowNumbers<'_>) -> (bool, String) {
    let all = row.collections.len() + row.left_out.len();
    let failed = || row.left_out.iter().filter(|outcome| !outcome.verdict.is_recorded());
    let (rules, fulfilled) = (RECORD_RULES.len(), all - failed().count());
    let text = format!("the {rules} rules on records are fulfilled in {fulfilled} of {}", count_text(all));
    let found = match failed().next_back() {
        Some(last) => format!("{text}; else, the last one: {}, {}", last.verdict, last.reason.cause),
        None => text,
    };
    (fulfilled == 0, found)
}

fn judge_pattern(
    row: &RowNumbers<'_>,
    patterns: &RowPatterns<'_>,
    is_of_all: bool,
    is_kind: fn(&DurationPattern) -> bool,
) -> Judgement {
    let all = row.collections.len();
    let samples = row.collections.iter().map(|samples| samples.len());
    let most = if is_of_all { samples.sum() } else { samples.max().unwrap_or_default() };
    if most < MIN_SAMPLES {
        let each = if all == 1 { "the collection".to_owned() } else { format!("each of {all} collections") };
        return Err(format!("below {MIN_SAMPLES} samples in {each}"));
    }
    let mut of_kind = patterns.of_collections.iter().filter(|pattern| is_kind(pattern));
    let number = of_kind.clone().count();
    let common = patterns.common.as_ref().filter(|pattern| is_kind(pattern));
    Ok(match (of_kind.next_back(), common) {
        (_, Some(trend)) => {
            (true, format!("{}, in {} together", pattern_cause(trend), count_text(patterns.steady.len())))
        }
        (Some(pattern), None) => {
            (patterns.is_of_most, format!("{}, in {number} of {}", pattern_cause(pattern), count_text(all)))
        }
        (None, None) => (false, format!("none in {}", count_text(all))),
    })
}

fn judge_outliers(row: &RowNumbers<'_>) -> (bool, String) {
    let accepted: usize = row.collections.iter().map(|samples| samples.len()).sum();
    let all = accepted + row.outliers;
    let share = row.outliers as f64 / all.max(1) as f64;
    let found = format!("{} of {all} samples; at most one, or {:.0} %", row.outliers, MAX_OUTLIERS * 100.0);
    (row.outliers > 1 && share > MAX_OUTLIERS, found)
}

fn judge_interval(row: &RowNumbers<'_>) -> Judgement {
    let (low, high) = row.interval.ok_or("too few samples")?;
    let half = (high - row.median).max(row.median - low);
    let (widest, step) = (widest_interval(row.method), Nanos(TIMER_QUANTUM_NS));
    let found = format!(
        "its farther end is {:.2} % from the median of the samples; at most {:.0} %, or {step} us",
        100.0 * half / row.median,
        widest * 100.0,
    );
    Ok((half > TIMER_QUANTUM_NS as f64 && half > widest * row.median, found))
}

fn judge_agreement(patterns: &RowPatterns<'_>) -> Judgement {
    let agreement = patterns.agreement().ok_or("the row has fewer than two collections without a pattern")?;
    let found = format!(
        "the medians differ by {:.2} %, the error of their mean is {:.2} %; at most {:.1} %",
        100.0 * agreement.difference,
        100.0 * agreement.error,
        100.0 * MAX_DISAGREEMENT
    );
    Ok((agreement.is_poor, found))
}

fn judge_variant(row: &RowNumbers<'_>) -> Judgement {
    let is_known = |task: &&&RecordedTask| !(task.operator.is_empty() && task.state.is_empty());
    let known = row.tasks.iter().filter(is_known).count();
    match variant_contradiction(row.tasks) {
        Some(difference) => Ok((true, difference.to_string())),
        None if known > 1 => Ok((false, format!("the same in {}", count_text(known)))),
        None => Err("fewer than two collections of the row with `Op Name` or `OP State`".to_owned()),
    }
}

/// `is_broken` takes the number of collections with this finding and the number of all collections.
fn judge_finding(
    row: &RowNumbers<'_>,
    finding: fn(&Reason) -> Option<&Cause>,
    is_broken: fn(usize, usize) -> bool,
) -> (bool, String) {
    let broken: Vec<&Cause> = row.reasons.iter().filter_map(|reason| finding(reason)).collect();
    let all = row.reasons.len();
    let found = match broken.last() {
        Some(last) => Cause::clone(last).in_collections(broken.len(), all).to_string(),
        None => format!("none in {}", count_text(all)),
    };
    (is_broken(broken.len(), all), found)
}

fn judge_history(row: &RowNumbers<'_>) -> Judgement {
    let earlier = row.references.and_then(|references| Some((references, references.earlier?)));
    let (references, earlier) = earlier.ok_or("not measured with earlier software")?;
    let median = references.log_median.exp();
    let found = ratio_text(median, earlier.exp(), "that with earlier software", HISTORY_FACTOR);
    Ok((references.history_contradiction().is_some(), found))
}

fn judge_neighbours(row: &RowNumbers<'_>) -> Judgement {
    let fit = row.references.and_then(|references| Some((references, references.neighbours?)));
    let (references, fit) = fit.ok_or("too few measured cases of smaller and of larger sizes")?;
    let what = format!("that expected from {} cases of other sizes", fit.neighbours);
    let limit = NEIGHBOUR_FACTOR.max((NEIGHBOUR_DEVIATIONS * fit.deviation).exp());
    let found = ratio_text(references.log_median.exp(), fit.log_duration.exp(), &what, limit);
    Ok((references.neighbour_contradiction().is_some(), found))
}

fn judge_production(row: &RowNumbers<'_>) -> Judgement {
    let production = row.production?;
    let is_broken = production_contradiction(row.median, production, row.cache).is_some();
    Ok((is_broken, ratio_text(row.median, production.0 as f64, "that of production", PRODUCTION_FACTOR)))
}

fn judge_roofline(row: &RowNumbers<'_>) -> Judgement {
    let fastest = row.fastest.ok_or("the call has no roofline bound")?;
    let ratio = row.median / (fastest.0 + LAUNCH_PART.0) as f64;
    let found =
        format!("{ratio:.2} times the sum of the bound and {LAUNCH_PART} us; at most {MAX_BOUNDS} times");
    Ok((ratio > MAX_BOUNDS as f64, found))
}

fn judge_clock(row: &RowNumbers<'_>) -> Judgement {
    let throttled = row.left_out.iter().filter(|outcome| outcome.verdict == Verdict::Throttled).count();
    let left_out = match throttled {
        0 => String::new(),
        number => format!("; {} throttled and left out", count_text(number)),
    };
    let lowest = row.clocks.iter().copied().min_by(f64::total_cmp).ok_or_else(|| {
        let found =
            "fewer than two collections with cycles: only control kernels and neighbours show the clock";
        format!("{found}{left_out}")
    })?;
    let found = format!(
        "{:+.2} % in the slowest collection of the row; {:.0} % and significant make it throttled{left_out}",
        100.0 * lowest,
        -100.0 * MIN_CLOCK_DEFICIT
    );
    // A difference within its error is none; collections at a low clock are not in the row.
    Ok((false, found))
}

fn ratio_text(median: f64, expected: f64, what: &str, limit: f64) -> String {
    format!(
        "{:.2} times {what}, {:.3} us; at most {limit:.2} times either way",
        median / expected,
        expected / 1e3
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{base::stats::NeighbourFit, measure::verify::controls::tests::control_change_of};

    #[test]
    fn rules_have_distinct_names_and_verdicts_that_are_not_ok() {
        let rules = verification_rules();
        let names: BTreeSet<&str> = rules.iter().map(|rule| rule.rule).collect();
        assert_eq!(names.len(), rules.len());
        assert!(rules.iter().all(|rule| rule.verdict != Verdict::Ok && !rule.condition.is_empty()));
    }

    #[test]
    fn each_rule_states_its_numbers() {
        let steady: Vec<i64> = (0..20).map(|launch| 10_000 + 20 * (launch * 7 % 5)).collect();
        let rising: Vec<i64> = (0..20).map(|launch| 10_000 + 60 * launch).collect();
        let references = CaseReferences {
            log_median: 10_050_f64.ln(),
            earlier: Some(5_000_f64.ln()),
            neighbours: Some(NeighbourFit { log_duration: 9_800_f64.ln(), deviation: 0.1, neighbours: 8 }),
        };
        let collections = [steady.as_slice(), rising.as_slice()];
        let task = |operator: &str| RecordedTask { operator: operator.to_owned(), ..RecordedTask::default() };
        let row = RowNumbers {
            cache: CacheState::Hot,
            left_out: &[
                &CaseOutcome::new(Verdict::LostRecords, Cause::RecordCount { launches: 20, records: 19 }),
                &CaseOutcome::new(Verdict::Throttled, "the clock was 4 % low"),
            ],
            collections: &collections,
            reasons: &[&Cause::EveryLaunchRecorded.into(), &control_change_of(3.1).into()],
            outliers: 3,
            median: 10_050.0,
            interval: Some((9_900.0, 10_300.0)),
            method: None,
            references: Some(&references),
            production: Ok(Nanos(6_000)),
            fastest: Some(Nanos(4_000)),
            clocks: &[0.001, -0.004],
            tasks: &[&task("AddAiCore"), &task("AddV3")],
        };
        insta::assert_snapshot!(table(&judge_row_rules(&row)));
        let bare = RowNumbers {
            left_out: &[],
            collections: &collections[..1],
            reasons: &[&Cause::OneBlock { mib: 64 }.into()],
            outliers: 0,
            interval: None,
            method: None,
            references: None,
            production: Err("no production profile has it"),
            fastest: None,
            clocks: &[],
            tasks: &[&task("AddAiCore")],
            ..row
        };
        insta::assert_snapshot!(table(&judge_row_rules(&bare)));
    }

    fn table(results: &[RuleResult]) -> String {
        let line = |result: &RuleResult| format!("{}: {}: {}", result.rule, result.state, result.found);
        results.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}
