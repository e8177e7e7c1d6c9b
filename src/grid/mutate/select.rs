//! From cases to the mutants that become rows of one kernel, with a count for every reason.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    CaseMutator, Mutant,
    sample::{MutantChoice, spread},
};
use crate::{
    catalogue::CatalogueEntry,
    domain::{Case, KernelName},
    grid::{
        ExistingCases, MemoryFootprint, RejectCount, RejectReason,
        definition::{Mutation, MutationChange},
    },
};

/// What is asked of a kernel's mutants.
#[derive(Clone, Copy, Debug)]
pub struct MutationOrder<'a> {
    /// What is done to cases.
    pub mutator: CaseMutator<'a>,
    /// Bytes of device memory.
    pub budget: u64,
    /// How many rows are wanted of these mutations, those of earlier growths included; all where `None`.
    pub rows: Option<usize>,
    /// Decides the sample.
    pub seed: u64,
}

/// What one mutation gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MutationCount {
    /// Mutants.
    pub candidates: u64,
    /// Of these, rows.
    pub rows: u64,
}

/// What became of the mutants of a kernel.
#[derive(Debug)]
pub struct SelectedMutants<'a> {
    order: MutationOrder<'a>,
    pub(crate) kernel: &'a KernelName,
    pub(crate) sources: Vec<&'a Case>,
    /// Cases that the catalogue cannot read, which have no mutants.
    pub unread: usize,
    /// What it said of the first one.
    pub unread_example: Option<String>,
    /// All mutants.
    pub candidates: u64,
    /// Those that become no row, by reason.
    pub refused: BTreeMap<RejectReason, RejectCount>,
    /// By mutation, in their order.
    pub tried: Vec<MutationCount>,
    /// Places of cases and of their mutants that become rows, ascending.
    taken: Vec<(usize, usize)>,
}

/// The kernels that mutants of some kernels' cases are of: themselves, and those that do their work in INT8 where a
/// mutation asks for that.
#[must_use]
pub fn targets(
    mutator: &CaseMutator<'_>,
    kernels: &BTreeSet<KernelName>,
) -> BTreeMap<KernelName, Vec<KernelName>> {
    let mut targets: BTreeMap<KernelName, Vec<KernelName>> =
        kernels.iter().map(|kernel| (kernel.clone(), vec![kernel.clone()])).collect();
    if !mutator.mutations.iter().any(|mutation| mutation.change == MutationChange::Quantised) {
        return targets;
    }
    for entry in mutator.catalogue.entries() {
        for kernel in kernels {
            let Some(source) = mutator.catalogue.entry(kernel) else { continue };
            let quantises = entry.forms.iter().any(|form| form.quantises.contains(&source.kernel));
            if quantises && entry.kernel != source.kernel {
                targets.entry(entry.kernel.clone()).or_default().push(kernel.clone());
            }
        }
    }
    targets
}

/// What is changed: which of the mutations, and in them a dimension, an argument, a form. Rows are spread over these.
#[derive(Debug, Default)]
struct MutantStrata(BTreeMap<(usize, String), usize>);

impl MutantStrata {
    fn number(&mut self, mutant: &Mutant) -> usize {
        let next = self.0.len();
        *self.0.entry((mutant.mutation, mutant.what.clone())).or_insert(next)
    }

    /// How many rows of each are there; the last number is of those that are tried no more.
    fn rows_there(&self, mutations: &[&Mutation], known: &ExistingCases) -> Vec<usize> {
        let mut there = vec![0; self.0.len() + 1];
        for (origin, rows) in known.rows() {
            let changed = |place: usize| mutations.get(place).and_then(|one| one.changed_in(origin));
            let Some((mutation, changed)) =
                (0..mutations.len()).find_map(|place| Some((place, changed(place)?)))
            else {
                continue;
            };
            let is_of = |what: &str| {
                changed.strip_prefix(what).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
            };
            let of_it = self.0.range((mutation, String::new())..(mutation + 1, String::new()));
            let stratum = of_it.filter(|((_, what), _)| is_of(what)).max_by_key(|((_, what), _)| what.len());
            there[stratum.map_or(self.0.len(), |(_, number)| *number)] += rows;
        }
        there
    }
}

/// Tries all mutations of cases, against what is known of the kernel that the mutants are of. Rows that these
/// mutations made earlier count among those that are wanted, so that mutating twice adds nothing.
#[must_use]
pub fn select_mutants<'a>(
    kernel: &'a KernelName,
    sources: Vec<&'a Case>,
    order: MutationOrder<'a>,
    known: &ExistingCases,
) -> SelectedMutants<'a> {
    let mutations = order.mutator.mutations;
    let mut result = SelectedMutants {
        order,
        kernel,
        sources: Vec::new(),
        unread: 0,
        unread_example: None,
        candidates: 0,
        refused: BTreeMap::new(),
        tried: vec![MutationCount::default(); mutations.len()],
        taken: Vec::new(),
    };
    let mut judge = MutantValidator {
        order,
        entry: order.mutator.catalogue.entry(kernel),
        known,
        seen: ExistingCases::default(),
    };
    let mut strata = MutantStrata::default();
    let mut valid: Vec<(usize, usize, usize)> = Vec::new();
    let mut choices: Vec<MutantChoice> = Vec::new();
    for (place, source) in sources.iter().enumerate() {
        let mut number = 0;
        let visited = order.mutator.for_each(source, kernel, |mutant| {
            let (candidate, mutation) = (number, mutant.mutation);
            number += 1;
            result.candidates += 1;
            result.tried[mutation].candidates += 1;
            let stratum = strata.number(&mutant);
            match judge.bytes(&mutant) {
                Ok(bytes) => {
                    valid.push((place, candidate, mutation));
                    choices.push(MutantChoice { stratum, bytes });
                }
                Err((reason, said)) => {
                    let origin = || {
                        let origin = mutations[mutation].origin(&mutant.what, &mutant.change);
                        format!("{origin} of case {}", source.id())
                    };
                    result.refused.entry(reason).or_default().add(|| said.unwrap_or_else(origin));
                }
            }
        });
        if let Err(refusal) = visited {
            result.unread += 1;
            result.unread_example.get_or_insert_with(|| refusal.to_string());
        }
    }
    let there = strata.rows_there(mutations, known);
    for place in spread(&choices, &there, order.rows, order.seed) {
        let (source, number, mutation) = valid[place];
        result.taken.push((source, number));
        result.tried[mutation].rows += 1;
    }
    let left = (valid.len() - result.taken.len()) as u64;
    if left > 0 {
        result.refused.insert(RejectReason::NotTaken, RejectCount { count: left, example: None });
    }
    result.sources = sources;
    result
}

/// Whether mutants may become rows.
struct MutantValidator<'a> {
    order: MutationOrder<'a>,
    entry: Option<&'a CatalogueEntry>,
    known: &'a ExistingCases,
    seen: ExistingCases,
}

impl MutantValidator<'_> {
    /// The bytes of its case; or why it may not, and what was said of it.
    fn bytes(&mut self, mutant: &Mutant) -> Result<u64, (RejectReason, Option<String>)> {
        let case = mutant.case.as_ref().map_err(|why| (RejectReason::Rule, Some(why.clone())))?;
        if MemoryFootprint::from_case(case).bytes() > self.order.budget {
            return Err((RejectReason::Memory, None));
        }
        if let Some(refusal) = self.entry.and_then(|entry| entry.resolve_call(case).err()) {
            return Err((RejectReason::Rule, Some(refusal.to_string())));
        }
        if self.known.contains(case) {
            return Err((RejectReason::Known, None));
        }
        if self.seen.insert(case) { Ok(case.bytes()) } else { Err((RejectReason::Twice, None)) }
    }
}

impl<'a> SelectedMutants<'a> {
    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.taken.len()
    }

    /// The mutations with what each gave, without those that do not apply.
    pub fn mutations(&self) -> impl Iterator<Item = (&'a str, MutationCount)> {
        let tried = self.order.mutator.mutations.iter().zip(&self.tried);
        tried
            .map(|(mutation, tried)| (mutation.name.as_str(), *tried))
            .filter(|(_, tried)| tried.candidates > 0)
    }

    /// Goes through the rows in order: the case, and where it is from in words.
    ///
    /// # Errors
    /// The first of `visit`.
    pub fn for_each<E>(&self, mut visit: impl FnMut(&Case, &str) -> Result<(), E>) -> Result<(), E> {
        let mut taken = self.taken.iter().peekable();
        for (place, source) in self.sources.iter().enumerate() {
            if taken.peek().is_none_or(|(next, _)| *next != place) {
                continue;
            }
            let (mut number, mut result) = (0, Ok(()));
            // It was read before.
            let _ = self.order.mutator.for_each(source, self.kernel, |mutant| {
                if result.is_ok() && taken.next_if_eq(&&(place, number)).is_some() {
                    let provenance = self.provenance(source, &mutant);
                    if let Ok(case) = &mutant.case {
                        result = visit(case, &provenance);
                    }
                }
                number += 1;
            });
            result?;
        }
        Ok(())
    }

    fn provenance(&self, source: &Case, mutant: &Mutant) -> String {
        let kernel =
            if source.kernel == *self.kernel { String::new() } else { format!("{} ", source.kernel) };
        let case = format!("{kernel}case {}", source.id());
        let mutation = self.order.mutator.mutations[mutant.mutation];
        mutation.provenance(&mutant.what, &mutant.change, &case, self.order.seed)
    }

    /// Seconds that one launch of each row takes at the least.
    #[must_use]
    pub fn fastest(&self) -> f64 {
        let CaseMutator { catalogue, device, .. } = self.order.mutator;
        let mut sum = 0.0;
        let entry = catalogue.entry(self.kernel);
        let _ = self.for_each(|case, _| {
            if let Some(Ok(reading)) = entry.map(|entry| entry.resolve_call(case)) {
                sum += device.fastest(&reading.work).seconds();
            }
            Ok::<(), std::convert::Infallible>(())
        });
        sum
    }
}
