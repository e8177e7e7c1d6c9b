//! Pairs of the calls of two runs that have the same order.
//!
//! Threads are paired by the calls that they have in common, so that the backward pass and other threads are apart, and
//! the steps by their order. The calls of a thread in a step are matched twice: by the longest common subsequence of names and
//! shapes, with what lies between these pairs matched by that of the names, and by that of the names alone. Part by part, the
//! matching with more pairs is taken, where those with equal shapes count twice. Very long sequences that differ much are
//! matched by approximations of these subsequences, between whose pairs no name is on both sides either.

use super::{
    calls::{CallGroup, CallKind, RecordedCall, RunCalls},
    common_sequence::{KeyedLists, better_parts, gaps_between},
};
use crate::profile::timeline::prelude::*;

#[derive(Clone, Copy, Debug)]
pub(crate) struct ComparedCall<'c> {
    pub(crate) kind: CallKind,
    /// Number of the thread, or of another list of calls that are matched among themselves, from 1.
    pub(crate) thread: usize,
    pub(crate) base: Option<&'c RecordedCall<'c>>,
    pub(crate) other: Option<&'c RecordedCall<'c>>,
}

impl<'c> ComparedCall<'c> {
    pub(crate) fn base_or_other(&self) -> Option<&'c RecordedCall<'c>> {
        self.base.or(self.other)
    }

    pub(crate) fn difference(&self) -> i64 {
        let total = |side: Option<&RecordedCall<'_>>| side.map_or(0, |call| call.total);
        total(self.other).saturating_sub(total(self.base))
    }

    pub(crate) fn ratio(&self) -> Option<f64> {
        let (base, other) = (self.base?.total, self.other?.total);
        (base > 0).then(|| other as f64 / base as f64)
    }
}

type Calls<'c> = Vec<&'c RecordedCall<'c>>;

/// Matches the calls of two runs, in their order, by thread and step. Calls of a kind that one of the runs does not
/// have are left out.
pub(crate) fn compare_calls<'c>(base: &'c RunCalls<'_>, other: &'c RunCalls<'_>) -> Vec<ComparedCall<'c>> {
    let has_kind = |group: CallGroup| match group.kind() {
        CallKind::OperatorCall => base.has_operators && other.has_operators,
        CallKind::ModuleCall => base.has_modules && other.has_modules,
    };
    let [base_groups, other_groups] = [base, other].map(|run| {
        let mut groups: BTreeMap<CallGroup, Calls<'c>> = BTreeMap::new();
        for call in run.calls.iter().filter(|call| has_kind(call.group)) {
            groups.entry(call.group).or_default().push(call);
        }
        groups
    });
    let mut found = Vec::new();
    let mut threads: BTreeMap<CallKind, usize> = BTreeMap::new();
    for (base_group, other_group) in pair_groups(&base_groups, &other_groups) {
        let Some(group) = base_group.or(other_group) else { continue };
        let calls = |groups: &BTreeMap<CallGroup, Calls<'c>>, group: Option<CallGroup>| {
            group.and_then(|group| groups.get(&group)).cloned().unwrap_or_default()
        };
        let number = threads.entry(group.kind()).or_default();
        *number += 1;
        let (of_base, of_other) = (calls(&base_groups, base_group), calls(&other_groups, other_group));
        for (base_step, other_step) in pair_steps((of_base, &base.steps), (of_other, &other.steps)) {
            let pairs = match_calls(&base_step, &other_step);
            found.extend(pairs.into_iter().map(|(base, other)| ComparedCall {
                kind: group.kind(),
                thread: *number,
                base,
                other,
            }));
        }
    }
    found.sort_by_key(|call| call.kind);
    found
}

/// Returns the pairs of groups by the start of their first call. Threads with the most calls of the same names are pairs.
fn pair_groups(
    base: &BTreeMap<CallGroup, Calls<'_>>,
    other: &BTreeMap<CallGroup, Calls<'_>>,
) -> Vec<(Option<CallGroup>, Option<CallGroup>)> {
    fn names<'a>(calls: &'a Calls<'_>) -> HashMap<&'a str, usize> {
        let mut names = HashMap::new();
        calls.iter().for_each(|call| *names.entry(call.matched_name()).or_default() += 1);
        names
    }
    let start = |calls: &Calls<'_>| calls.first().map_or(i64::MAX, |call| call.start);
    let [bases, others] = [base, other].map(|groups| {
        groups.iter().map(|(group, calls)| (*group, start(calls), names(calls))).collect::<Vec<_>>()
    });
    let mut common = Vec::new();
    for (group, start, own) in &bases {
        for (other_group, other_start, other_names) in &others {
            let in_other = |name: &&str| other_names.get(*name).copied().unwrap_or_default();
            let shared: usize = own.iter().map(|(name, count)| in_other(name).min(*count)).sum();
            let can_match = match (group, other_group) {
                (CallGroup::Thread(_), CallGroup::Thread(_)) => shared > 0,
                _ => group == other_group,
            };
            if can_match {
                common.push((std::cmp::Reverse(shared), *start, *other_start, *group, *other_group));
            }
        }
    }
    common.sort_unstable();
    let (mut of_base, mut of_other) = (HashMap::new(), HashSet::new());
    for (.., base, other) in common {
        if !of_base.contains_key(&base) && of_other.insert(other) {
            of_base.insert(base, other);
        }
    }
    let pairs =
        bases.iter().map(|(group, start, _)| (false, *start, Some(*group), of_base.get(group).copied()));
    let rest = others.iter().filter(|(group, ..)| !of_other.contains(group));
    let mut pairs: Vec<_> =
        pairs.chain(rest.map(|(group, start, _)| (true, *start, None, Some(*group)))).collect();
    pairs.sort_unstable();
    pairs.into_iter().map(|(.., base, other)| (base, other)).collect()
}

/// Divides calls by step: the first step of base with the first of other, and so on; then those outside of the compared
/// steps. If one of the runs has no recorded steps, or steps of kernels alone, the calls of each run are one list.
fn pair_steps<'c>(
    (base, base_steps): (Calls<'c>, &[u64]),
    (other, other_steps): (Calls<'c>, &[u64]),
) -> Vec<(Calls<'c>, Calls<'c>)> {
    let is_without_steps = |calls: &Calls<'_>, steps: &[u64]| {
        steps.is_empty() || !calls.is_empty() && calls.iter().all(|call| call.step.is_none())
    };
    if is_without_steps(&base, base_steps) || is_without_steps(&other, other_steps) {
        return vec![(base, other)];
    }
    let most = base_steps.len().max(other_steps.len());
    let divide = |calls: Calls<'c>, steps: &[u64]| {
        let mut divided = vec![Vec::new(); most + 1];
        for call in calls {
            let place = call.step.and_then(|step| steps.binary_search(&step).ok());
            divided[place.unwrap_or(most)].push(call);
        }
        divided
    };
    divide(base, base_steps).into_iter().zip(divide(other, other_steps)).collect()
}

type CallPair<'c> = (Option<&'c RecordedCall<'c>>, Option<&'c RecordedCall<'c>>);

/// Matches two lists of calls in their order; calls without a match are pairs with `None`. Shapes count if both lists have some:
/// the shapes of kernels and of operators are recorded apart.
fn match_calls<'c>(base: &[&'c RecordedCall<'c>], other: &[&'c RecordedCall<'c>]) -> Vec<CallPair<'c>> {
    let names = KeyedLists::new(base, other, &|call| call.matched_name());
    let mut pairs = names.match_keys(names.whole());
    let has_shapes = |calls: &[&RecordedCall<'_>]| calls.iter().any(|call| !call.shapes.is_empty());
    if has_shapes(base) && has_shapes(other) {
        let shapes = KeyedLists::new(base, other, &|call| (call.matched_name(), call.shapes));
        let mut by_shapes = shapes.match_keys(shapes.whole());
        by_shapes.extend(names.match_keys(gaps_between(&by_shapes, 0..base.len(), 0..other.len())));
        by_shapes.sort_unstable();
        pairs = better_parts(&by_shapes, &pairs, &|pair| shapes.is_equal(pair));
    }
    let mut found = Vec::with_capacity(base.len().max(other.len()));
    let (mut base_at, mut other_at) = (0, 0);
    for (base_place, other_place) in pairs.into_iter().chain([(base.len(), other.len())]) {
        found.extend(base[base_at..base_place].iter().map(|call| (Some(*call), None)));
        found.extend(other[other_at..other_place].iter().map(|call| (None, Some(*call))));
        found.extend(base.get(base_place).map(|call| (Some(*call), other.get(other_place).copied())));
        (base_at, other_at) = (base_place + 1, other_place + 1);
    }
    found
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use proptest::prelude::*;

    use super::*;

    /// Run of calls `(thread, step, name, shapes)` in their order.
    fn run(calls: &[(u64, u64, &'static str, &'static str)]) -> RunCalls<'static> {
        let mut steps: Vec<u64> = calls.iter().map(|call| call.1).collect();
        steps.sort_unstable();
        steps.dedup();
        let calls = calls.iter().zip(0..).map(|((thread, step, name, shapes), start)| RecordedCall {
            name: Cow::Borrowed(*name),
            shapes,
            step: Some(*step),
            number: 1,
            start,
            total: start,
            self_time: None,
            kernels: Vec::new(),
            copies: None,
            is_wanted: true,
            group: CallGroup::Thread(*thread),
        });
        RunCalls { calls: calls.collect(), steps, has_operators: true, has_modules: false }
    }

    /// Returns thread, and name, shapes and place of each side.
    fn pairs(base: &RunCalls<'_>, other: &RunCalls<'_>) -> Vec<(usize, String, String)> {
        let side = |call: Option<&RecordedCall<'_>>| {
            call.map_or_else(
                || "-".to_owned(),
                |call| format!("{}({})@{}", call.name, call.shapes, call.start),
            )
        };
        let calls = compare_calls(base, other).into_iter();
        calls.map(|call| (call.thread, side(call.base), side(call.other))).collect()
    }

    /// Asserts that matched calls have equal names, that all calls are listed in their order, so that no pairs cross, and that no name
    /// is in both runs between two pairs. Returns the number of pairs.
    fn assert_matched(base: &RunCalls<'_>, other: &RunCalls<'_>) -> usize {
        let found = compare_calls(base, other);
        let starts = |calls: &mut dyn Iterator<Item = &RecordedCall<'_>>| {
            calls.map(|call| call.start).collect::<Vec<_>>()
        };
        let listed = [
            starts(&mut found.iter().filter_map(|call| call.base)),
            starts(&mut found.iter().filter_map(|call| call.other)),
        ];
        assert_eq!(listed, [base, other].map(|run| starts(&mut run.calls.iter())));
        let mut pairs = 0;
        let mut left: [HashSet<&str>; 2] = Default::default();
        for call in &found {
            match (call.base, call.other) {
                (Some(base), Some(other)) => {
                    assert_eq!(base.name, other.name);
                    pairs += 1;
                    left = Default::default();
                }
                (base, other) => {
                    left[0].extend(base.map(RecordedCall::matched_name));
                    left[1].extend(other.map(RecordedCall::matched_name));
                    assert!(left[0].is_disjoint(&left[1]), "{left:?}");
                }
            }
        }
        pairs
    }

    fn expected(rows: &[(usize, &str, &str)]) -> Vec<(usize, String, String)> {
        rows.iter().map(|(thread, base, other)| (*thread, (*base).to_owned(), (*other).to_owned())).collect()
    }

    #[test]
    fn equal_shapes_are_matched_before_equal_names() {
        let base = run(&[(1, 0, "to", "8"), (1, 0, "add", "4"), (1, 0, "to", "4"), (1, 0, "end", "")]);
        let other = run(&[(1, 0, "to", "4"), (1, 0, "mul", "4"), (1, 0, "end", "")]);
        let rows = [
            (1, "to(8)@0", "-"),
            (1, "add(4)@1", "-"),
            (1, "to(4)@2", "to(4)@0"),
            (1, "-", "mul(4)@1"),
            (1, "end()@3", "end()@2"),
        ];
        assert_eq!(pairs(&base, &other), expected(&rows));
        // Another batch has no shape in common: the names decide.
        let other = run(&[(1, 0, "to", "16"), (1, 0, "add", "9"), (1, 0, "to", "9"), (1, 0, "end", "")]);
        assert!(compare_calls(&base, &other).iter().all(|call| call.base.is_some() && call.other.is_some()));
        // If one run has no shapes, the names decide as well.
        let other = run(&[(1, 0, "to", ""), (1, 0, "add", ""), (1, 0, "to", ""), (1, 0, "end", "")]);
        assert!(compare_calls(&base, &other).iter().all(|call| call.base.is_some() && call.other.is_some()));
    }

    #[test]
    fn threads_are_matched_by_their_calls_and_not_by_their_numbers() {
        let base = run(&[(1, 0, "mm", ""), (2, 0, "mm_backward", ""), (1, 0, "add", ""), (3, 0, "load", "")]);
        let other = run(&[(1, 0, "mm_backward", ""), (1, 0, "add", ""), (7, 0, "mm", ""), (7, 0, "add", "")]);
        let rows = [
            (1, "mm()@0", "mm()@2"),
            (1, "add()@2", "add()@3"),
            (2, "mm_backward()@1", "mm_backward()@0"),
            (2, "-", "add()@1"),
            (3, "load()@3", "-"),
        ];
        assert_eq!(pairs(&base, &other), expected(&rows));
    }

    #[test]
    fn steps_are_matched_by_their_order_and_calls_do_not_cross_them() {
        let base = run(&[(1, 7, "a", ""), (1, 7, "b", ""), (1, 8, "a", "")]);
        let other = run(&[(1, 90, "a", ""), (1, 91, "b", ""), (1, 91, "a", ""), (1, 92, "c", "")]);
        let rows = [
            (1, "a()@0", "a()@0"),
            (1, "b()@1", "-"),
            (1, "-", "b()@1"),
            (1, "a()@2", "a()@2"),
            (1, "-", "c()@3"),
        ];
        assert_eq!(pairs(&base, &other), expected(&rows));
        // A run without recorded steps is compared with all steps of the other.
        let mut whole = run(&[(1, 0, "a", ""), (1, 0, "b", ""), (1, 0, "a", ""), (1, 0, "c", "")]);
        whole.steps.clear();
        let rows =
            [(1, "a()@0", "a()@0"), (1, "b()@1", "b()@1"), (1, "a()@2", "a()@2"), (1, "c()@3", "c()@3")];
        assert_eq!(pairs(&whole, &other), expected(&rows));
    }

    /// Shapes of a kernel without an operator, which a table has, are no shapes of the operators of its run.
    #[test]
    fn shapes_of_kernels_do_not_stand_for_those_of_operators() {
        let base = run(&[(1, 0, "to", "8"), (1, 0, "add", "4"), (1, 0, "end", "")]);
        let mut other = run(&[(1, 0, "to", ""), (1, 0, "end", ""), (1, 0, "add", ""), (1, 0, "end", "")]);
        let kernel =
            RecordedCall { shapes: "8", group: CallGroup::OutsideOperators, ..other.calls[0].clone() };
        other.calls.push(kernel);
        let found = compare_calls(&base, &other);
        assert_eq!(found.iter().filter(|call| call.base.is_some() && call.other.is_some()).count(), 3);
    }

    /// The steps of a run can be known from its kernels alone.
    #[test]
    fn calls_without_steps_are_matched_with_all_of_the_other_run() {
        let base = run(&[(1, 7, "a", ""), (1, 8, "b", "")]);
        let mut other = run(&[(1, 7, "a", ""), (1, 8, "b", "")]);
        other.calls.iter_mut().for_each(|call| call.step = None);
        assert_eq!(pairs(&base, &other), expected(&[(1, "a()@0", "a()@0"), (1, "b()@1", "b()@1")]));
    }

    /// An exact search would take minutes.
    #[test]
    fn a_short_run_is_matched_with_a_very_long_one() {
        const NAMES: [&str; 3] = ["a", "b", "c"];
        let calls = |count: usize, more: usize| {
            run(&(0..count).map(|at| (1, 0, NAMES[(at * at + more) % 3], "")).collect::<Vec<_>>())
        };
        let (base, other) = (calls(100, 1), calls(200_000, 0));
        let found = compare_calls(&base, &other);
        assert_eq!(found.iter().filter(|call| call.base.is_some()).count(), 100);
        assert_eq!(found.iter().filter(|call| call.other.is_some()).count(), 200_000);
    }

    const NAMES: [&str; 3] = ["a", "b", "c"];
    /// Shapes with a batch of 8, and the same with another batch.
    const SHAPES: [[&str; 3]; 2] = [["8,1", "8,2", "8,4"], ["16,1", "16,2", "16,4"]];

    /// Calls of one thread and step from places of names, batches and shapes.
    fn calls_of(places: &[(usize, usize, usize)]) -> RunCalls<'static> {
        let call = |&(name, batch, shape): &(usize, usize, usize)| (1, 0, NAMES[name], SHAPES[batch][shape]);
        run(&places.iter().map(call).collect::<Vec<_>>())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn calls_of_equal_names_are_matched_without_crossing(
            base in prop::collection::vec((0..3_usize, 0..2_usize, 0..3_usize), 0..40),
            other in prop::collection::vec((0..3_usize, 0..2_usize, 0..3_usize), 0..40),
        ) {
            let (base, other) = (calls_of(&base), calls_of(&other));
            assert_matched(&base, &other);
            let same = compare_calls(&base, &base);
            let start = |call: Option<&RecordedCall<'_>>| call.map(|call| call.start);
            prop_assert!(same.iter().all(|call| start(call.base) == start(call.other)));
        }
    }

    /// One more call at the start and one less at the end shift the names, but not the shapes.
    #[test]
    fn equal_shapes_outweigh_a_pair_of_names_more() {
        let shapes = ["1", "2", "3", "4", "5", "6"];
        let calls = |shapes: &[&'static str]| {
            run(&shapes.iter().map(|shape| (1, 0, "to", *shape)).collect::<Vec<_>>())
        };
        let (base, other) = (calls(&shapes[..5]), calls(&shapes[1..]));
        let found = compare_calls(&base, &other);
        let pairs: Vec<_> =
            found.iter().filter_map(|call| Some((call.base?.shapes, call.other?.shapes))).collect();
        assert_eq!(pairs, [("2", "2"), ("3", "3"), ("4", "4"), ("5", "5")]);
    }

    /// Every call is in one row, in the order of its run, also where the matching is not exact.
    #[test]
    fn every_call_of_long_runs_is_in_one_row() {
        const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
        const SHAPES: [&str; 3] = ["1", "2", "3"];
        let calls = |factor: usize, count: usize| {
            let calls: Vec<_> =
                (0..count).map(|at| (1, 0, NAMES[at * at * factor / 3 % 101 % 5], SHAPES[at % 3])).collect();
            run(&calls)
        };
        for count in [300, 12_000] {
            let (base, other) = (calls(7, count), calls(11, count));
            assert!(assert_matched(&base, &other) > count / 4);
        }
    }
}
