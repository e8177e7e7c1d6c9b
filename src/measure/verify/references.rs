//! Contradictions between the median of a case and other measurements of the ledger: the same case with earlier software, and
//! cases of the same kernel with other sizes. A second collection decides if the case or the measurement is unusual.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;

use crate::{
    base::stats::{NeighbourFit, ShapePoint, fit_neighbours},
    database::ledger::KnownCase,
    kernel::{
        CONFIRMING_COLLECTIONS, CaseId, CaseOutcome, Cause, KernelName, Nanos, cause::CollectionScope,
        split_signature_dims,
    },
};

/// Greatest factor between the medians of a case with the newest software and with the one before it, in either direction.
pub(super) const HISTORY_FACTOR: f64 = 1.3;

/// Median of a case over its collections with the newest software, and with the software before that.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CaseMedian {
    pub(super) case: CaseId,
    pub(super) log_median: f64,
    pub(super) earlier: Option<f64>,
    pub(super) software: usize,
}

/// Durations of a case and of others with which its median is compared, as logarithms of nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CaseReferences {
    pub(crate) log_median: f64,
    /// Median with the software before the newest one.
    pub(crate) earlier: Option<f64>,
    /// Duration expected from cases of other sizes; `None` with too few of them.
    pub(crate) neighbours: Option<NeighbourFit>,
}

impl CaseReferences {
    /// Returns how the median contradicts earlier software, else its neighbours.
    pub(crate) fn contradiction(&self) -> Option<Cause> {
        self.history_contradiction().or_else(|| self.neighbour_contradiction())
    }

    pub(crate) fn history_contradiction(&self) -> Option<Cause> {
        let earlier = self.earlier?;
        let ratio = self.log_median - earlier;
        (ratio.abs() > HISTORY_FACTOR.ln())
            .then(|| Cause::History { ratio: ratio.exp().into(), median_ns: nanos(earlier) })
    }

    pub(crate) fn neighbour_contradiction(&self) -> Option<Cause> {
        let fit = self.neighbours.filter(|fit| fit.contradicts(self.log_median))?;
        let ratio = (self.log_median - fit.log_duration).exp();
        let expected_ns = nanos(fit.log_duration);
        Some(Cause::Neighbours { ratio: ratio.into(), cases: fit.neighbours, expected_ns })
    }
}

/// Cases of a kernel that differ only in size.
#[derive(Debug, Default)]
struct NeighbourClass {
    /// Numbers of the medians of the points.
    medians: Vec<usize>,
    points: Vec<ShapePoint>,
}

/// Returns the reference durations of each case, which do not depend on the order of `medians`. `cases` has their signatures.
pub(super) fn find_references(
    mut medians: Vec<CaseMedian>,
    cases: &[KnownCase],
) -> impl Iterator<Item = (CaseId, CaseReferences)> {
    // Cases at equal distances are neighbours in this order, as far as there is room for them.
    medians.sort_unstable_by(|one, other| (one.software, &one.case).cmp(&(other.software, &other.case)));
    let signatures: HashMap<&CaseId, &KnownCase, FixedState> =
        cases.iter().map(|known| (&known.case, known)).collect();
    let mut classes: BTreeMap<(usize, &str, String), NeighbourClass> = BTreeMap::new();
    for (number, median) in medians.iter().enumerate() {
        let Some(known) = signatures.get(&median.case) else { continue };
        let Ok(kernel) = KernelName::new(&known.kernel) else { continue };
        let (dims, class) = split_signature_dims(&kernel, &known.signature);
        let log_dims = dims.into_iter().map(|dim| (dim.max(1) as f64).ln()).collect();
        let class = classes.entry((median.software, known.kernel.as_str(), class)).or_default();
        class.medians.push(number);
        class.points.push(ShapePoint { log_dims, log_duration: median.log_median });
    }
    let mut neighbours: Vec<Option<NeighbourFit>> = vec![None; medians.len()];
    for NeighbourClass { medians, points } in classes.into_values() {
        for (number, fit) in medians.into_iter().zip(fit_neighbours(&points)) {
            neighbours[number] = fit;
        }
    }
    let all = medians.into_iter().zip(neighbours);
    all.map(|(CaseMedian { case, log_median, earlier, .. }, neighbours)| {
        (case, CaseReferences { log_median, earlier, neighbours })
    })
}

/// Returns the outcome of a row that measurements of the ledger contradict: `suspicious` until enough collections agree.
pub(super) fn judge_contradiction(
    outcome: CaseOutcome,
    contradiction: Cause,
    collections: usize,
) -> CaseOutcome {
    if collections < CONFIRMING_COLLECTIONS {
        return outcome.with_contradiction(contradiction);
    }
    outcome.with_remark(contradiction.within(collections, None, CollectionScope::Each))
}

fn nanos(log_nanos: f64) -> Nanos {
    let nanos = log_nanos.exp().round() as i64;
    Nanos(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Verdict;

    fn known(number: u64, rows: u64) -> KnownCase {
        let case = CaseId::from_stored(format!("{number:016x}"));
        let signature = format!("Add|{rows},512:FLOAT:ND|{rows},512:FLOAT:ND|");
        KnownCase { case, kernel: "Add".to_owned(), signature }
    }

    fn contradictions(medians: &[CaseMedian], cases: &[KnownCase]) -> BTreeMap<CaseId, String> {
        let found = find_references(medians.to_vec(), cases);
        found.filter_map(|(case, references)| Some((case, references.contradiction()?.to_string()))).collect()
    }

    #[test]
    fn neighbours_and_history_contradict() {
        let cases: Vec<KnownCase> = (0..10).map(|step| known(step, 8 << step)).collect();
        let mut medians: Vec<CaseMedian> = cases
            .iter()
            .zip(0_i32..)
            .map(|(known, step)| CaseMedian {
                case: known.case.clone(),
                log_median: (1_000.0 * 1.9_f64.powi(step)).ln(),
                earlier: None,
                software: 0,
            })
            .collect();
        assert_eq!(contradictions(&medians, &cases), BTreeMap::new());
        medians[4].log_median += 4_f64.ln();
        medians[7].earlier = Some(medians[7].log_median - 0.5_f64.ln());
        medians[8].earlier = Some(medians[8].log_median + 0.2);
        let found = contradictions(&medians, &cases);
        insta::assert_debug_snapshot!(
            found.iter().map(|(case, text)| (case.as_str(), text.as_str())).collect::<Vec<_>>()
        );
        // Cases of other software are not neighbours.
        medians.iter_mut().enumerate().for_each(|(index, median)| median.software = index);
        assert_eq!(contradictions(&medians, &cases).len(), 1);
    }

    /// Many shapes of one size are at equal distances from others, which have more neighbours than are used.
    #[test]
    fn references_do_not_depend_on_the_order_of_measurements() {
        let cases: Vec<KnownCase> = (0..81_u64)
            .map(|number| {
                let (rows, columns) = (1 << (number % 9), 1 << (number / 9));
                let case =
                    CaseId::from_stored(format!("{:016x}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
                let signature = format!("Add|{rows},{columns}:FLOAT:ND|{rows},{columns}:FLOAT:ND|");
                KnownCase { case, kernel: "Add".to_owned(), signature }
            })
            .collect();
        let mut medians: Vec<CaseMedian> = cases
            .iter()
            .zip(0_i32..)
            .map(|(known, number)| CaseMedian {
                case: known.case.clone(),
                log_median: f64::from(number * 37 % 23),
                earlier: None,
                software: 0,
            })
            .collect();
        let references = |medians: &[CaseMedian]| -> BTreeMap<CaseId, Option<NeighbourFit>> {
            let found = find_references(medians.to_vec(), &cases);
            found.map(|(case, references)| (case, references.neighbours)).collect()
        };
        let first = references(&medians);
        assert!(first.values().flatten().count() > 5, "{first:?}");
        for step in [7, 11, 13] {
            medians.rotate_left(step);
            medians.reverse();
            assert_eq!(references(&medians), first);
        }
    }

    #[test]
    fn a_second_collection_confirms() {
        let ok = CaseOutcome::new(Verdict::Ok, "every launch recorded");
        let alone = judge_contradiction(ok.clone(), "too slow".into(), 1);
        assert_eq!(alone, CaseOutcome::new(Verdict::Suspicious, "too slow"));
        let confirmed = judge_contradiction(ok, "too slow".into(), 2);
        assert_eq!(confirmed.verdict, Verdict::Ok);
        assert_eq!(confirmed.reason.to_string(), "every launch recorded; too slow, in 2 collections");
    }
}
