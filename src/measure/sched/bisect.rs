//! Bisection for the case that broke a collection.
//!
//! The journal names the case that ran when the process ended, which is nearly always the cause: it runs alone. If the
//! journal names none, or a name was wrong before, the cases are halved: one half runs, and its end shows which half
//! contains the cause. The cleared cases wait for the end of the bisection, so that they cost one collection in all and
//! not one per step. A bisection among n cases takes at most log2(n) collections, and one more for the last suspect.

#[derive(Clone, Debug)]
pub(super) struct Bisection {
    /// Device and number of the collection that broke.
    pub(super) broken_on: (u32, u32),
    stage: BisectionStage,
    cleared: Vec<usize>,
}

#[derive(Clone, Debug)]
enum BisectionStage {
    /// One case runs alone; the others wait.
    Suspect { rest: Vec<usize> },
    /// One half runs; if it succeeds, the cause is in the other half.
    Half { others: Vec<usize> },
}

#[derive(Clone, Debug)]
pub(super) struct BisectionRequest {
    /// Cases to run together.
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
    /// Starts a bisection among the open cases of a broken collection. `named` is one of them.
    pub(super) fn start(
        broken_on: (u32, u32),
        cases: Vec<usize>,
        named: Option<usize>,
    ) -> Option<(Self, BisectionRequest)> {
        match named {
            Some(suspect) => {
                let rest = cases.into_iter().filter(|case| *case != suspect).collect();
                let bisection =
                    Self { broken_on, stage: BisectionStage::Suspect { rest }, cleared: Vec::new() };
                Some((bisection, BisectionRequest { cases: vec![suspect], is_eliminated: false }))
            }
            None if cases.is_empty() => None,
            None => Some(Self::halve(broken_on, cases, Vec::new())),
        }
    }

    fn halve(
        broken_on: (u32, u32),
        mut suspects: Vec<usize>,
        cleared: Vec<usize>,
    ) -> (Self, BisectionRequest) {
        let is_last = suspects.len() == 1;
        let others = suspects.split_off(suspects.len().div_ceil(2));
        let stage = if is_last {
            BisectionStage::Suspect { rest: Vec::new() }
        } else {
            BisectionStage::Half { others }
        };
        let is_eliminated = suspects.len() == 1;
        (Self { broken_on, stage, cleared }, BisectionRequest { cases: suspects, is_eliminated })
    }

    /// Returns the next step after the requested collection: `open` are its cases without a verdict, `broke` if it
    /// broke, `was_alone` if it had one case.
    pub(super) fn advance(self, open: Vec<usize>, broke: bool, was_alone: bool) -> BisectionStep {
        let mut cleared = self.cleared;
        match self.stage {
            BisectionStage::Suspect { rest } => {
                cleared.extend(rest);
                BisectionStep::Done { cleared, was_misled: !broke }
            }
            BisectionStage::Half { others } if broke && was_alone => {
                cleared.extend(others);
                BisectionStep::Done { cleared, was_misled: false }
            }
            BisectionStage::Half { others } => {
                let suspects = if broke {
                    cleared.extend(others);
                    open
                } else {
                    others
                };
                if suspects.is_empty() {
                    return BisectionStep::Done { cleared, was_misled: false };
                }
                let (bisection, step) = Self::halve(self.broken_on, suspects, cleared);
                BisectionStep::Continue(bisection, step)
            }
        }
    }

    pub(super) fn into_waiting(self) -> Vec<usize> {
        let Self {
            mut cleared,
            stage: BisectionStage::Suspect { rest: others } | BisectionStage::Half { others },
            ..
        } = self;
        cleared.extend(others);
        cleared
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
