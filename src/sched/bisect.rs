//! Finds the case that broke a collection.
//!
//! The journal names the case that ran when the process ended, which is nearly always the guilty one: it runs
//! alone, and the others go on without waiting. Where nobody is named, or where a name has misled before, the
//! collection's cases are halved: one half is run, and how it ends says in which half the guilty case is. The other
//! half is then held innocent, and waits for the end of the search, so that it costs one collection and not one a
//! step. A search among n cases takes at most log2(n) collections, and one more to see the last suspect alone.

/// A search that is under way.
#[derive(Clone, Debug)]
pub(super) struct Bisection {
    /// The device on which the collection broke, and the collection.
    pub(super) broke: (u32, u32),
    stage: BisectionStage,
    /// Cases that are held innocent.
    innocent: Vec<usize>,
}

#[derive(Clone, Debug)]
enum BisectionStage {
    /// One case runs alone; the others wait for what that shows.
    Suspect { rest: Vec<usize> },
    /// Some run; if they end well, the guilty one is among the others.
    Half { others: Vec<usize> },
}

/// What comes next in a search.
#[derive(Clone, Debug)]
pub(super) struct BisectionRequest {
    /// Cases to run together.
    pub(super) run: Vec<usize>,
    /// Whether the one case that runs is a suspect by elimination, not by name.
    pub(super) is_eliminated: bool,
}

/// How a search goes on.
#[derive(Debug)]
pub(super) enum BisectionStep {
    /// With another collection.
    Goes(Bisection, BisectionRequest),
    /// It is over, and these cases need not wait any longer.
    Ends {
        /// The cases.
        freed: Vec<usize>,
        /// Whether the suspect ended well alone, so that something else broke the collection.
        was_misled: bool,
    },
}

impl Bisection {
    /// Begins to search among the cases of a collection that did not end well. `named` is one of them.
    pub(super) fn begin(
        broke: (u32, u32),
        cases: Vec<usize>,
        named: Option<usize>,
    ) -> Option<(Self, BisectionRequest)> {
        match named {
            Some(suspect) => {
                let rest = cases.into_iter().filter(|case| *case != suspect).collect();
                let inquiry = Self { broke, stage: BisectionStage::Suspect { rest }, innocent: Vec::new() };
                Some((inquiry, BisectionRequest { run: vec![suspect], is_eliminated: false }))
            }
            None if cases.is_empty() => None,
            None => Some(Self::halve(broke, cases, Vec::new())),
        }
    }

    fn halve(broke: (u32, u32), mut suspects: Vec<usize>, innocent: Vec<usize>) -> (Self, BisectionRequest) {
        let is_last = suspects.len() == 1;
        let others = suspects.split_off(suspects.len().div_ceil(2));
        let stage = if is_last {
            BisectionStage::Suspect { rest: Vec::new() }
        } else {
            BisectionStage::Half { others }
        };
        let is_eliminated = suspects.len() == 1;
        (Self { broke, stage, innocent }, BisectionRequest { run: suspects, is_eliminated })
    }

    /// What follows from the end of the collection that the last step asked for: the cases of it that did not end
    /// well, whether it broke, and whether it held but one case.
    pub(super) fn after(self, open: Vec<usize>, broke: bool, was_alone: bool) -> BisectionStep {
        let mut innocent = self.innocent;
        match self.stage {
            BisectionStage::Suspect { rest } => {
                innocent.extend(rest);
                BisectionStep::Ends { freed: innocent, was_misled: !broke }
            }
            BisectionStage::Half { others } if broke && was_alone => {
                innocent.extend(others);
                BisectionStep::Ends { freed: innocent, was_misled: false }
            }
            BisectionStage::Half { others } => {
                let suspects = if broke {
                    innocent.extend(others);
                    open
                } else {
                    others
                };
                if suspects.is_empty() {
                    return BisectionStep::Ends { freed: innocent, was_misled: false };
                }
                let (inquiry, step) = Self::halve(self.broke, suspects, innocent);
                BisectionStep::Goes(inquiry, step)
            }
        }
    }

    /// The cases that wait for the search.
    pub(super) fn into_waiting(self) -> Vec<usize> {
        let Self {
            mut innocent,
            stage: BisectionStage::Suspect { rest: others } | BisectionStage::Half { others },
            ..
        } = self;
        innocent.extend(others);
        innocent
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whoever is guilty, and wherever, the search ends at that case, within its bound, and every other case
        /// ends well or goes free.
        #[test]
        fn a_search_finds_the_guilty_case(count in 1_usize..600, at in 0.0..1.0_f64) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "an index")]
            let guilty = (at * count as f64) as usize;
            let (mut inquiry, mut step) =
                Bisection::begin((0, 1), (0..count).collect(), None).expect("there are cases");
            let mut settled = vec![false; count];
            let mut collections = 0;
            loop {
                collections += 1;
                let broke = step.run.contains(&guilty);
                let alone = step.run.len() == 1 && broke;
                if !broke {
                    step.run.iter().for_each(|case| settled[*case] = true);
                }
                let open = if broke { step.run.clone() } else { Vec::new() };
                match inquiry.after(open, broke, step.run.len() == 1) {
                    BisectionStep::Goes(goes, next) => (inquiry, step) = (goes, next),
                    BisectionStep::Ends { freed, was_misled } => {
                        freed.iter().for_each(|case| settled[*case] = true);
                        prop_assert!(alone && !was_misled);
                        break;
                    }
                }
            }
            let bound = count.next_power_of_two().trailing_zeros() + 1;
            prop_assert!(collections <= bound, "{collections} collections for {count}");
            prop_assert!(settled.iter().enumerate().all(|(case, settled)| *settled == (case != guilty)));
        }
    }

    #[test]
    fn a_named_suspect_runs_alone_and_the_others_go_free_once_it_has_ended() {
        let (inquiry, step) = Bisection::begin((0, 1), vec![3, 4, 5], Some(4)).expect("there are cases");
        assert_eq!((step.run, step.is_eliminated), (vec![4], false));
        let BisectionStep::Ends { freed, was_misled } = inquiry.after(vec![4], true, true) else {
            panic!("it goes on")
        };
        assert_eq!((freed, was_misled), (vec![3, 5], false));
    }
}
