//! From cases to the mutants that become rows of one kernel, with a count for every reason.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Mutant, Mutator,
    spread::{Choice, spread},
};
use crate::{
    grid::{Footprint, Known, Refused},
    model::{Case, KernelName},
    spec::{Catalogue, DeviceProfile, grid::Change},
};

/// What is asked of a kernel's mutants.
#[derive(Clone, Copy, Debug)]
pub struct MutationOrder<'a> {
    /// What is done to cases.
    pub mutator: Mutator<'a>,
    /// Bytes of device memory.
    pub budget: u64,
    /// How many rows are wanted; all where `None`.
    pub rows: Option<usize>,
    /// Decides the sample.
    pub seed: u64,
}

/// What one mutation gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tried {
    /// Mutants.
    pub candidates: u64,
    /// Of these, rows.
    pub rows: u64,
}

/// What became of the mutants of a kernel.
#[derive(Debug)]
pub struct Mutated<'a> {
    order: MutationOrder<'a>,
    kernel: &'a KernelName,
    sources: Vec<&'a Case>,
    /// Cases that the catalogue cannot read, which have no mutants.
    pub unread: usize,
    /// What it said of the first one.
    pub unread_example: Option<String>,
    /// All mutants.
    pub candidates: u64,
    /// Those that become no row, by reason.
    pub refused: BTreeMap<Refused, u64>,
    /// What was said of the first mutant that could not be built or that the catalogue's rule refused.
    pub example: Option<String>,
    /// By mutation, in their order.
    pub tried: Vec<Tried>,
    /// Places of cases and of their mutants that become rows, ascending.
    taken: Vec<(usize, usize)>,
}

/// The kernels that mutants of some kernels' cases are of: themselves, and those that do their work in INT8 where a
/// mutation asks for that.
#[must_use]
pub fn targets(
    mutator: &Mutator<'_>,
    kernels: &BTreeSet<KernelName>,
) -> BTreeMap<KernelName, Vec<KernelName>> {
    let mut targets: BTreeMap<KernelName, Vec<KernelName>> =
        kernels.iter().map(|kernel| (kernel.clone(), vec![kernel.clone()])).collect();
    if !mutator.mutations.iter().any(|mutation| mutation.change == Change::Quantised) {
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

/// Tries all mutations of cases, against what is known of the kernel that the mutants are of. `mutated` says how many
/// of its rows are mutants already: they count among those that are wanted, so that mutating twice adds nothing.
#[must_use]
pub fn mutate<'a>(
    kernel: &'a KernelName,
    sources: Vec<&'a Case>,
    order: MutationOrder<'a>,
    known: &Known,
    mutated: usize,
) -> Mutated<'a> {
    let mut result = Mutated {
        order,
        kernel,
        sources: Vec::new(),
        unread: 0,
        unread_example: None,
        candidates: 0,
        refused: BTreeMap::new(),
        example: None,
        tried: vec![Tried::default(); order.mutator.mutations.len()],
        taken: Vec::new(),
    };
    let entry = order.mutator.catalogue.entry(kernel);
    let mut seen = Known::default();
    let mut strata: BTreeMap<(usize, String), usize> = BTreeMap::new();
    let mut valid: Vec<(usize, usize, usize)> = Vec::new();
    let mut choices: Vec<Choice> = Vec::new();
    for (place, source) in sources.iter().enumerate() {
        let mut number = 0;
        let visited = order.mutator.for_each(source, kernel, |mutant| {
            let (candidate, mutation) = (number, mutant.mutation);
            number += 1;
            result.candidates += 1;
            result.tried[mutation].candidates += 1;
            let mut refuse = |reason: Refused| *result.refused.entry(reason).or_default() += 1;
            let case = match &mutant.case {
                Ok(case) => case,
                Err(why) => {
                    refuse(Refused::Rule);
                    result.example.get_or_insert_with(|| why.clone());
                    return;
                }
            };
            let bytes = Footprint::of(case).bytes();
            if bytes > order.budget {
                return refuse(Refused::Memory);
            }
            if let Some(refusal) = entry.and_then(|entry| entry.read(case).err()) {
                refuse(Refused::Rule);
                result.example.get_or_insert_with(|| refusal.to_string());
                return;
            }
            if known.contains(case) {
                return refuse(Refused::Known);
            }
            if !seen.insert(case) {
                return refuse(Refused::Twice);
            }
            let next = strata.len();
            let stratum = *strata.entry((mutation, mutant.what)).or_insert(next);
            valid.push((place, candidate, mutation));
            choices.push(Choice { stratum, bytes: case.bytes() });
        });
        if let Err(refusal) = visited {
            result.unread += 1;
            result.unread_example.get_or_insert_with(|| refusal.to_string());
        }
    }
    let wanted = order.rows.map_or(usize::MAX, |rows| rows.saturating_sub(mutated));
    for place in spread(&choices, wanted, order.seed) {
        let (source, number, mutation) = valid[place];
        result.taken.push((source, number));
        result.tried[mutation].rows += 1;
    }
    let left = (valid.len() - result.taken.len()) as u64;
    if left > 0 {
        result.refused.insert(Refused::NotTaken, left);
    }
    result.sources = sources;
    result
}

impl<'a> Mutated<'a> {
    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.taken.len()
    }

    /// Number of cases that mutants were made of.
    #[must_use]
    pub fn sources(&self) -> usize {
        self.sources.len()
    }

    /// The mutations with what each gave, without those that do not apply.
    pub fn mutations(&self) -> impl Iterator<Item = (&'a str, Tried)> {
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
        let name = self.order.mutator.mutations.get(mutant.mutation).map_or("", |one| one.name.as_str());
        let change = if mutant.change.is_empty() { String::new() } else { format!(" {}", mutant.change) };
        let kernel =
            if source.kernel == *self.kernel { String::new() } else { format!("{} ", source.kernel) };
        let (what, id, seed) = (&mutant.what, source.id(), self.order.seed);
        format!("mutation {name}: {what}{change} of {kernel}case {id}, seed {seed}")
    }

    /// Seconds that one launch of each row takes at the least.
    #[must_use]
    pub fn fastest(&self, catalogue: &Catalogue, device: &DeviceProfile) -> f64 {
        let mut sum = 0.0;
        let entry = catalogue.entry(self.kernel);
        let _ = self.for_each(|case, _| {
            if let Some(Ok(reading)) = entry.map(|entry| entry.read(case)) {
                sum += device.fastest(&reading.work).seconds();
            }
            Ok::<(), std::convert::Infallible>(())
        });
        sum
    }
}
