//! From the spaces of one kernel to the candidates that become rows, with a count for every reason.

use std::{
    collections::{BTreeMap, HashSet},
    hash::BuildHasher as _,
};

use foldhash::quality::FixedState;

use super::{
    Candidates, CaseBuilder, RejectCount, RejectReason,
    definition::{CandidateSpace, SlotTemplate},
    rejection::RejectTally,
    sample,
};
use crate::{
    catalogue::{CatalogueEntry, CompiledExpr, CompiledRule},
    config::DeviceProfile,
    domain::Case,
};

/// What is there of a kernel: its cases, and which spaces or mutations made how many of them.
///
/// Signatures are kept as hashes: of a million cases, two share one with a chance of 1 to 30 million, as ids do.
#[derive(Clone, Debug, Default)]
pub struct ExistingCases {
    signatures: HashSet<u64, FixedState>,
    grown: BTreeMap<String, usize>,
}

impl ExistingCases {
    /// Nothing but how many rows earlier growths made, by the [`CandidateSpace::origin`] or the
    /// [`Mutation::origin`](crate::grid::definition::Mutation::origin) of each.
    #[must_use]
    pub fn with_rows(grown: BTreeMap<String, usize>) -> Self {
        Self { grown, ..Self::default() }
    }

    /// Remembers a case; says whether it is new.
    pub fn insert(&mut self, case: &Case) -> bool {
        self.signatures.insert(Self::key(case))
    }

    /// Whether the case is there.
    #[must_use]
    pub fn contains(&self, case: &Case) -> bool {
        self.signatures.contains(&Self::key(case))
    }

    /// Rows that earlier growths of a space made.
    #[must_use]
    pub fn rows_of(&self, space: &CandidateSpace) -> usize {
        self.grown.get(&space.origin()).copied().unwrap_or_default()
    }

    /// Rows that earlier growths made, by their origin.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&str, usize)> {
        self.grown.iter().map(|(origin, rows)| (origin.as_str(), *rows))
    }

    fn key(case: &Case) -> u64 {
        FixedState::with_seed(0).hash_one(case.signature())
    }
}

/// What is asked of the spaces of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct SelectionRequest<'a> {
    /// The catalogue's entry; without one nothing can be replayed.
    pub entry: Option<&'a CatalogueEntry>,
    /// Bytes of device memory.
    pub budget: u64,
    /// How many rows are wanted of these spaces, those of earlier growths included; all where `None`.
    pub rows: Option<usize>,
    /// Decides the sample.
    pub seed: u64,
}

/// Least and greatest value of an axis among the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AxisRange {
    /// The least.
    pub least: i64,
    /// The greatest.
    pub greatest: i64,
    /// How many different values there are.
    pub values: usize,
}

/// What became of the candidates of a kernel.
#[derive(Debug)]
pub struct SelectedCandidates<'a> {
    /// The spaces that they are from.
    pub spaces: Vec<&'a CandidateSpace>,
    /// All candidates.
    pub candidates: u64,
    /// Those of each space that become no row, by reason.
    pub refused: Vec<BTreeMap<RejectReason, RejectCount>>,
    /// Numbers of the candidates of each space that become rows, ascending.
    pub taken: Vec<Vec<u64>>,
}

/// Expands the spaces of a kernel against what is known of it. Rows that earlier growths of these spaces made count
/// among those that are wanted, so that growing twice adds nothing; rows of other spaces, as of other models, do not.
#[must_use]
pub fn select_candidates<'a>(
    spaces: Vec<&'a CandidateSpace>,
    order: &SelectionRequest<'_>,
    known: &ExistingCases,
) -> SelectedCandidates<'a> {
    let mut seen = ExistingCases::default();
    let (mut valid, mut refused) = (Vec::with_capacity(spaces.len()), Vec::with_capacity(spaces.len()));
    for space in &spaces {
        let mut tally = RejectTally::new(space);
        valid.push(valid_of(space, order, known, &mut seen, &mut tally));
        refused.push(tally.finish());
    }
    let strata = spaces.iter().zip(&valid).zip(&refused);
    let strata = strata.map(|((space, valid), refused)| sample::CandidateStratum {
        space,
        valid,
        grown: known.rows_of(space),
        there: refused.get(&RejectReason::Known).map_or(0, |refusals| refusals.count),
    });
    let strata: Vec<sample::CandidateStratum<'_>> = strata.collect();
    let taken = sample::sample(&strata, order.rows, order.seed);
    for ((valid, taken), refused) in valid.iter().zip(&taken).zip(&mut refused) {
        let left = (valid.len() - taken.len()) as u64;
        if left > 0 {
            refused.insert(RejectReason::NotTaken, RejectCount { count: left, example: None });
        }
    }
    let candidates = spaces.iter().map(|space| space.candidates()).sum();
    SelectedCandidates { spaces, candidates, refused, taken }
}

fn valid_of(
    space: &CandidateSpace,
    order: &SelectionRequest<'_>,
    known: &ExistingCases,
    seen: &mut ExistingCases,
    tally: &mut RejectTally<'_>,
) -> Vec<u64> {
    let mut candidates = Candidates::new(space);
    let mut draft = CaseBuilder::new(space);
    let mut judge = order.entry.map(|entry| CandidateValidator::new(entry, space));
    let mut valid = Vec::new();
    while let Some(index) = candidates.advance() {
        let numbers = match candidates.check() {
            Ok(numbers) => numbers,
            Err(unfit) => {
                tally.unfit(unfit, candidates.numbers());
                continue;
            }
        };
        let mut said = None;
        let reason = match draft.fill(numbers) {
            Err(formula) => Some(RejectReason::Dimension(formula.source().to_owned())),
            Ok(footprint) if footprint.bytes() > order.budget => Some(RejectReason::Memory),
            Ok(_) => match judge.as_mut().map(|judge| judge.refusal(&mut draft, numbers)) {
                None => Some(RejectReason::NoEntry),
                Some(Some(refusal)) => {
                    said = Some(refusal);
                    Some(RejectReason::Rule)
                }
                Some(None) if known.contains(draft.filled()) => Some(RejectReason::Known),
                Some(None) => (!seen.insert(draft.filled())).then_some(RejectReason::Twice),
            },
        };
        match reason {
            Some(reason) => tally.add(reason, said, numbers),
            None => valid.push(index),
        }
    }
    valid
}

/// Whether the catalogue takes the candidates of a space: by the compiled rule where it has been seen to agree
/// with the whole one, else by that.
struct CandidateValidator<'a> {
    entry: &'a CatalogueEntry,
    compiled: Option<CompiledRule>,
    /// By form: whether the whole rule has taken a candidate that the compiled one takes. What is left to it
    /// depends on types alone, which are those of all candidates.
    agreed: Vec<bool>,
}

impl<'a> CandidateValidator<'a> {
    fn new(entry: &'a CatalogueEntry, space: &CandidateSpace) -> Self {
        let quick = space.compile_rule(entry);
        let agreed = vec![false; quick.as_ref().map_or(0, CompiledRule::form_count)];
        Self { entry, compiled: quick, agreed }
    }

    fn refusal(&mut self, draft: &mut CaseBuilder<'_>, numbers: &[i64]) -> Option<String> {
        let form = self.compiled.as_ref().and_then(|quick| quick.matching_form(numbers));
        if form.is_some_and(|form| self.agreed[form]) {
            return None;
        }
        let refusal = match draft.case(numbers) {
            Ok(case) => self.entry.resolve_call(case).err().map(|refusal| refusal.to_string()),
            Err(problem) => Some(problem),
        };
        if let Some(form) = form {
            self.agreed[form] = refusal.is_none();
        }
        refusal
    }
}

impl CandidateSpace {
    /// Compiles the entry's forms for the candidates of this space; `None` if that is not possible.
    #[must_use]
    pub fn compile_rule(&self, entry: &CatalogueEntry) -> Option<CompiledRule> {
        // Attributes are computed for each candidate.
        if !self.attributes.is_empty() {
            return None;
        }
        fn dims(slots: &[SlotTemplate]) -> Vec<Option<&[CompiledExpr]>> {
            slots.iter().map(|slot| slot.as_ref().map(|tensor| tensor.dims.as_slice())).collect()
        }
        entry.compile_rule(&self.blank(1), &dims(&self.inputs), &dims(&self.outputs))
    }
}

impl SelectedCandidates<'_> {
    /// The candidates of all spaces that become no row, by reason.
    #[must_use]
    pub fn refused(&self) -> BTreeMap<&RejectReason, RejectCount> {
        let mut all: BTreeMap<&RejectReason, RejectCount> = BTreeMap::new();
        for (reason, refusals) in self.refused.iter().flatten() {
            all.entry(reason).or_default().join(refusals);
        }
        all
    }

    /// The spaces of which not one candidate is a row, here or in the database, though the kernel has an entry; with
    /// the reasons.
    pub fn empty_spaces(
        &self,
    ) -> impl Iterator<Item = (&CandidateSpace, &BTreeMap<RejectReason, RejectCount>)> {
        let may_grow =
            [RejectReason::Known, RejectReason::Twice, RejectReason::NoEntry, RejectReason::NotTaken];
        let spaces = self.spaces.iter().zip(&self.refused).zip(&self.taken);
        let barren = spaces.filter(move |((_, refused), taken)| {
            taken.is_empty() && !may_grow.iter().any(|reason| refused.contains_key(reason))
        });
        barren.map(|((space, refused), _)| (*space, refused))
    }

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.taken.iter().map(Vec::len).sum()
    }

    /// Goes through the rows in order: the space, its numbers, and the draft filled in with them.
    pub fn for_each<E>(
        &self,
        mut visit: impl FnMut(&CandidateSpace, &[i64], &mut CaseBuilder<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        for (space, taken) in self.spaces.iter().zip(&self.taken) {
            let mut candidates = Candidates::new(space);
            let mut draft = CaseBuilder::new(space);
            for index in taken {
                candidates.go_to(*index);
                // They were valid before.
                let Ok(numbers) = candidates.check() else { continue };
                if draft.fill(numbers).is_ok() && draft.case(numbers).is_ok() {
                    visit(space, numbers, &mut draft)?;
                }
            }
        }
        Ok(())
    }

    /// Seconds that one launch of each row takes at the least.
    #[must_use]
    pub fn fastest(&self, entry: &CatalogueEntry, device: &DeviceProfile) -> f64 {
        let mut sum = 0.0;
        let _ = self.for_each(|_, _, draft| {
            if let Ok(reading) = entry.resolve_call(draft.filled()) {
                sum += device.fastest(&reading.work).seconds();
            }
            Ok::<(), std::convert::Infallible>(())
        });
        sum
    }

    /// The range of each name among the rows, in the order of the spaces' names.
    #[must_use]
    pub fn ranges(&self) -> Vec<(String, AxisRange)> {
        let mut values: Vec<(String, std::collections::BTreeSet<i64>)> = Vec::new();
        let _ = self.for_each(|space, numbers, _| {
            let axes = space.names.len() - space.derived.len();
            for (name, number) in space.names.iter().zip(numbers).take(axes) {
                match values.iter_mut().find(|(known, _)| known == name) {
                    Some((_, values)) => {
                        values.insert(*number);
                    }
                    None => values.push((name.clone(), [*number].into())),
                }
            }
            Ok::<(), std::convert::Infallible>(())
        });
        let range = |values: &std::collections::BTreeSet<i64>| {
            Some(AxisRange { least: *values.first()?, greatest: *values.last()?, values: values.len() })
        };
        values.iter().filter_map(|(name, values)| Some((name.clone(), range(values)?))).collect()
    }
}
