//! Bisection for the case that broke a collection.
//!
//! The journal names the case that ran when the process ended, which is nearly always the cause: it runs alone. If the
//! journal names none, or a name was wrong before, the cases are halved: one half runs, and its end shows which half
//! contains the cause. The cleared cases wait for the end of the bisection, so that they cost one collection in all and
//! not one per step. A bisection among n cases takes at most log2(n) collections, and one more for the last suspect.

#[derive(Clone, Debug)]
pub(super) struct Bisection {
    pub(super) broken_on: (u32, u32),
    /// True while one suspect runs alone; else one half runs, and if it succeeds, the cause is among the others.
    is_suspect: bool,
    others: Vec<usize>,
    cleared: Vec<usize>,
}

#[derive(Clone, Debug)]
pub(super) struct BisectionRequest {
    pub(super) cases: Vec<usize>,
    /// True if its only case is a suspect by elimination, not by name.
    pub(super) is_eliminated: bool,
}

#[derive(Debug)]
pub(super) enum BisectionStep {
    Continue(Bisection, BisectionRequest),
    Done {
        cleared: Vec<usize>,
        /// True if the suspect succeeded alone, so that the device broke the collection.
        was_misled: bool,
    },
}

impl Bisection {
    pub(super) fn start(
        broken_on: (u32, u32),
        cases: Vec<usize>,
        named: Option<usize>,
    ) -> Option<(Self, BisectionRequest)> {
        let Some(suspect) = named else {
            return (!cases.is_empty()).then(|| Self::halve(broken_on, cases, Vec::new()));
        };
        let others = cases.into_iter().filter(|case| *case != suspect).collect();
        let request = BisectionRequest { cases: vec![suspect], is_eliminated: false };
        Some((Self { broken_on, is_suspect: true, others, cleared: Vec::new() }, request))
    }

    fn halve(broken_on: (u32, u32), mut cases: Vec<usize>, cleared: Vec<usize>) -> (Self, BisectionRequest) {
        let is_suspect = cases.len() == 1;
        let others = cases.split_off(cases.len().div_ceil(2));
        let is_eliminated = cases.len() == 1;
        (Self { broken_on, is_suspect, others, cleared }, BisectionRequest { cases, is_eliminated })
    }

    /// `open` are the cases of the requested collection without a verdict.
    pub(super) fn advance(self, open: Vec<usize>, broke: bool, was_alone: bool) -> BisectionStep {
        let Self { broken_on, is_suspect, others, mut cleared } = self;
        if is_suspect || (broke && was_alone) {
            cleared.extend(others);
            return BisectionStep::Done { cleared, was_misled: is_suspect && !broke };
        }
        let suspects = if broke {
            cleared.extend(others);
            open
        } else {
            others
        };
        if suspects.is_empty() {
            return BisectionStep::Done { cleared, was_misled: false };
        }
        let (bisection, step) = Self::halve(broken_on, suspects, cleared);
        BisectionStep::Continue(bisection, step)
    }

    pub(super) fn into_waiting(self) -> Vec<usize> {
        [self.cleared, self.others].concat()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// For each position of the cause, the bisection ends at it within its bound, and clears all other cases.
        #[test]
        fn bisection_finds_the_cause_within_its_bound(count in 1_usize..600, at in 0.0..1.0_f64) {
            let cause = (at * count as f64) as usize;
            let (mut bisection, mut step) =
                Bisection::start((0, 1), (0..count).collect(), None).expect("there are cases");
            let mut settled = vec![false; count];
            let mut collections = 0;
            loop {
                collections += 1;
                let broke = step.cases.contains(&cause);
                let alone = step.cases.len() == 1 && broke;
                if !broke {
                    step.cases.iter().for_each(|case| settled[*case] = true);
                }
                let open = if broke { step.cases.clone() } else { Vec::new() };
                match bisection.advance(open, broke, step.cases.len() == 1) {
                    BisectionStep::Continue(goes, next) => (bisection, step) = (goes, next),
                    BisectionStep::Done { cleared, was_misled } => {
                        cleared.iter().for_each(|case| settled[*case] = true);
                        prop_assert!(alone && !was_misled);
                        break;
                    }
                }
            }
            let bound = count.next_power_of_two().trailing_zeros() + 1;
            prop_assert!(collections <= bound, "{collections} collections for {count}");
            prop_assert!(settled.iter().enumerate().all(|(case, settled)| *settled == (case != cause)));
        }
    }

    #[test]
    fn named_suspect_runs_alone_and_the_others_are_cleared_after_it() {
        let (bisection, step) = Bisection::start((0, 1), vec![3, 4, 5], Some(4)).expect("there are cases");
        assert_eq!((step.cases, step.is_eliminated), (vec![4], false));
        let BisectionStep::Done { cleared: freed, was_misled } = bisection.advance(vec![4], true, true)
        else {
            panic!("the bisection continues")
        };
        assert_eq!((freed, was_misled), (vec![3, 5], false));
    }
}
