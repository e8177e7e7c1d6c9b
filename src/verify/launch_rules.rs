//! Rules on the records of all launches of a case: each launch has a record of its own, and all launches ran alike.

use std::collections::BTreeSet;

use super::RawRecord;
use crate::domain::{CaseOutcome, Verdict};

/// A rule on the records of the launches of a case, in the order of their starts.
struct LaunchRule {
    /// Verdict of a case that breaks the rule.
    verdict: Verdict,
    /// Returns how the records break it.
    find_problem: fn(&[&RawRecord]) -> Option<String>,
}

/// Rules in the order in which they are applied.
const LAUNCH_RULES: [LaunchRule; 3] = [
    LaunchRule { verdict: Verdict::LostRecords, find_problem: repeated_record },
    LaunchRule { verdict: Verdict::WrongKernel, find_problem: several_core_types },
    LaunchRule { verdict: Verdict::WrongKernel, find_problem: several_block_counts },
];

/// Returns the outcome of the first rule that the records break.
pub(super) fn broken_launch_rule(records: &[&RawRecord]) -> Option<CaseOutcome> {
    LAUNCH_RULES.iter().find_map(|rule| {
        let problem = (rule.find_problem)(records)?;
        Some(CaseOutcome::new(rule.verdict, problem))
    })
}

/// Launches of one stream start one after the other: two records with the same start are of one launch, so that the record of
/// another is missing where the count is right.
fn repeated_record(records: &[&RawRecord]) -> Option<String> {
    let first = records.windows(2).position(|pair| pair[0].start == pair[1].start)?;
    Some(format!("one launch is recorded twice, as launches {first} and {}", first + 1))
}

fn several_core_types(records: &[&RawRecord]) -> Option<String> {
    let types: BTreeSet<&str> =
        records.iter().map(|record| record.task.core.as_str()).filter(|core| !core.is_empty()).collect();
    let types: Vec<&str> = types.into_iter().collect();
    (types.len() > 1).then(|| format!("its launches ran on different units: {}", types.join(", ")))
}

/// The number of blocks follows from shapes and installation, so that it is the same for equal calls.
fn several_block_counts(records: &[&RawRecord]) -> Option<String> {
    let counts: BTreeSet<u32> = records.iter().filter_map(|record| record.blocks).collect();
    let counts: Vec<String> = counts.iter().map(ToString::to_string).collect();
    (counts.len() > 1)
        .then(|| format!("its launches used different numbers of blocks: {}", counts.join(", ")))
}
