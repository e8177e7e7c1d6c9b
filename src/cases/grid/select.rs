//! Selection of the candidates of one kernel that become rows: candidates of grid patterns, mutants of cases and listed
//! cases pass the same filters, are counted by the same reasons and end up in one result.

use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    Candidates, ExistingCases,
    definition::{CandidateSpace, SlotTemplate},
    mutate::{CaseMutator, MutantStrata, SizedMutant, sample_mutants},
    sample::{self, CandidateStratum},
};
use crate::base::suggest::truncate_for_message;
use crate::kernel::{
    Case, KernelName, MemoryFootprint,
    case_filter::{CaseFilter, CaseValues},
    catalogue::{CatalogueEntry, CompiledRule},
    device::DeviceProfile,
    expression::CompiledExpr,
};

#[derive(Clone, Debug)]
pub enum CandidateSource<'a> {
    Grid(Vec<&'a CandidateSpace>),
    /// Mutants of cases, of this kernel or of those whose work it does in INT8.
    Mutation {
        mutator: CaseMutator<'a>,
        cases: Vec<&'a Case>,
    },
    Listed(Vec<&'a ListedCase>),
}

#[derive(Clone, Debug)]
pub struct ListedCase {
    pub case: Case,
    /// Origin of the row: its provenance without the seed, which starts with `grid `.
    pub origin: String,
}

#[derive(Clone, Copy, Debug)]
pub struct SelectionRequest<'a> {
    /// Catalogue entry of the kernel; without one every candidate is rejected.
    pub entry: Option<&'a CatalogueEntry>,
    pub budget: u64,
    /// Rows wanted of this source, earlier rows of it included; `None` for all valid candidates.
    pub rows: Option<usize>,
    pub seed: u64,
    pub filter: Option<&'a CaseFilter>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct AxisRange {
    pub(crate) greatest: i64,
    pub(crate) least: i64,
    pub(crate) values: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MutationCount {
    pub(crate) candidates: u64,
    pub rows: u64,
}

#[derive(Debug)]
pub struct SelectedRows<'a> {
    pub(crate) kernel: &'a KernelName,
    pub(crate) source: CandidateSource<'a>,
    pub candidates: u64,
    /// Rejected candidates by reason: one item for each space of a grid, or one for all mutants.
    pub(crate) rejected_by_part: Vec<BTreeMap<RejectReason, RejectCount>>,
    /// Selected candidates, ascending: one item for each space of a grid, or one for all mutants.
    pub selected: Vec<Vec<u64>>,
    /// Cases that the catalogue cannot read, so that they have no mutants, and the first refusal.
    pub unread: RejectCount,
    /// Seconds that one launch of each row takes at least, if computed.
    pub(crate) fastest: Option<f64>,
    mutation_counts: Vec<MutationCount>,
    seed: u64,
}

#[derive(Debug)]
pub struct SelectedRow<'r> {
    pub case: &'r Case,
    pub provenance: &'r str,
    /// The candidate of a grid; `None` for other cases.
    candidate: Option<&'r Candidates<'r>>,
}

/// Selects rows among all candidates of a source. Rows that this source added earlier count among those wanted, so that
/// the same request a second time adds nothing; rows of other sources, as of other models, do not count.
#[expect(clippy::needless_pass_by_value, reason = "a source is made for one selection")]
pub fn select_rows<'a>(
    kernel: &'a KernelName,
    source: CandidateSource<'a>,
    request: &SelectionRequest<'_>,
    existing: &ExistingCases,
) -> SelectedRows<'a> {
    let mut result = SelectedRows {
        kernel,
        source: source.clone(),
        candidates: 0,
        rejected_by_part: Vec::new(),
        selected: Vec::new(),
        unread: RejectCount::default(),
        fastest: None,
        mutation_counts: Vec::new(),
        seed: request.seed,
    };
    let filter = CandidateFilter { request, existing, accepted: ExistingCases::default() };
    let valid = match &source {
        CandidateSource::Grid(spaces) => result.select_candidates(spaces, filter),
        CandidateSource::Mutation { mutator, cases } => result.select_mutants(mutator, cases, filter),
        CandidateSource::Listed(cases) => result.select_listed(cases, filter),
    };
    for ((valid, selected), rejected) in valid.iter().zip(&result.selected).zip(&mut result.rejected_by_part)
    {
        let count = (valid - selected.len()) as u64;
        if count > 0 {
            rejected.insert(RejectReason::NotSelected, RejectCount { count, example: None });
        }
    }
    result
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, thiserror::Error)]
#[strum(serialize_all = "snake_case")]
pub enum RejectReason {
    #[error("`{}` does not hold", truncate_for_message(.0))]
    Constraint(String),
    /// A derived number or a constraint of the grid has no whole value: an inexact division or an overflow.
    #[error("`{}` has no whole value", truncate_for_message(.0))]
    NoValue(String),
    #[error("`{}` is not a dimension of at least 1", truncate_for_message(.0))]
    Dimension(String),
    #[error("needs more memory than the device has")]
    Memory,
    #[error("the kernel has no catalogue entry")]
    NoEntry,
    #[error("rejected by the shape rule")]
    ShapeRule,
    #[error("does not match the filter")]
    Filter,
    #[error("a row exists")]
    Existing,
    #[error("the same case as another candidate")]
    Duplicate,
    #[error("not part of the sample")]
    NotSelected,
}

impl RejectReason {
    pub(crate) fn label(&self) -> &'static str {
        self.into()
    }

    pub(crate) fn expression(&self) -> Option<&str> {
        match self {
            Self::Constraint(source) | Self::NoValue(source) | Self::Dimension(source) => Some(source),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RejectCount {
    pub count: u64,
    /// Message of the shape rule for the first one; otherwise its axis values or, for a mutant, its origin.
    pub(crate) example: Option<String>,
}

impl RejectCount {
    pub(crate) fn add(&mut self, example: impl FnOnce() -> String) {
        self.count += 1;
        if self.count == 1 {
            self.example = Some(example());
        }
    }

    pub(crate) fn join(&mut self, other: &Self) {
        self.count += other.count;
        if self.example.is_none() {
            self.example.clone_from(&other.example);
        }
    }
}

struct CandidateFilter<'a> {
    request: &'a SelectionRequest<'a>,
    existing: &'a ExistingCases,
    accepted: ExistingCases,
}

impl<'a> CandidateFilter<'a> {
    /// Accepts a candidate if it passes; `read` returns its case, or the message of the shape rule.
    fn check<'c>(
        &mut self,
        footprint: MemoryFootprint,
        read: impl FnOnce(&'a CatalogueEntry) -> Result<&'c Case, String>,
    ) -> Result<(), (RejectReason, Option<String>)> {
        if footprint.bytes() > self.request.budget {
            return Err((RejectReason::Memory, None));
        }
        let entry = self.request.entry.ok_or((RejectReason::NoEntry, None))?;
        let case = read(entry).map_err(|message| (RejectReason::ShapeRule, Some(message)))?;
        if let Some(filter) = self.request.filter
            && !filter.matches(&CaseValues { case: Some(case), entry: Some(entry), ..CaseValues::default() })
        {
            return Err((RejectReason::Filter, None));
        }
        let key = ExistingCases::key(case);
        if self.existing.signatures.contains(&key) {
            return Err((RejectReason::Existing, None));
        }
        if self.accepted.signatures.insert(key) { Ok(()) } else { Err((RejectReason::Duplicate, None)) }
    }

    fn valid_candidates(
        &mut self,
        space: &CandidateSpace,
        rejected: &mut BTreeMap<RejectReason, RejectCount>,
    ) -> Vec<u64> {
        let mut candidates = Candidates::new(space);
        // Compiled where it agreed with the complete rule, else the complete one decides. `agreed` is true for a form once the
        // complete rule has accepted a candidate that the compiled rule accepts: checks that only the complete rule makes
        // depend on types, which all candidates share.
        let compiled = self.request.entry.and_then(|entry| space.compile_rule(entry));
        let mut agreed = vec![false; compiled.as_ref().map_or(0, |rule| rule.forms.len())];
        let mut valid = Vec::new();
        while let Some(index) = candidates.advance() {
            let checked = match candidates.check() {
                Err(reason) => Err((reason, None)),
                Ok(footprint) => self.check(footprint, |entry| {
                    let form = compiled.as_ref().and_then(|rule| rule.matching_form(candidates.numbers()));
                    if !form.is_some_and(|form| agreed[form]) {
                        let resolved = candidates
                            .case()
                            .and_then(|case| entry.resolve_call(case).map_err(|refusal| refusal.to_string()));
                        form.into_iter().for_each(|form| agreed[form] = resolved.is_ok());
                        resolved?;
                    }
                    Ok(candidates.filled())
                }),
            };
            match checked {
                Ok(()) => valid.push(index),
                Err((reason, message)) => {
                    let axes = || space.axes.iter().flat_map(|axis| &axis.names).zip(candidates.numbers());
                    let values =
                        || axes().map(|(name, number)| format!("{name} {number}")).collect::<Vec<_>>();
                    rejected
                        .entry(reason)
                        .or_default()
                        .add(|| message.unwrap_or_else(|| values().join(", ")));
                }
            }
        }
        valid
    }
}

struct CaseSampler<'a> {
    filter: CandidateFilter<'a>,
    valid: Vec<u64>,
    sizes: Vec<SizedMutant>,
    rejected: BTreeMap<RejectReason, RejectCount>,
}

impl<'a> CaseSampler<'a> {
    fn new(filter: CandidateFilter<'a>) -> Self {
        Self { filter, valid: Vec::new(), sizes: Vec::new(), rejected: BTreeMap::new() }
    }

    fn add(
        &mut self,
        index: u64,
        stratum: usize,
        case: Result<&Case, &String>,
        example: impl FnOnce() -> String,
    ) -> bool {
        let checked =
            case.map_err(|message| (RejectReason::ShapeRule, Some(message.clone()))).and_then(|case| {
                self.filter.check(MemoryFootprint::from_case(case), |entry| {
                    entry.resolve_call(case).map(|_| case).map_err(|refusal| refusal.to_string())
                })?;
                Ok(case.bytes())
            });
        match checked {
            Ok(bytes) => {
                self.valid.push(index);
                self.sizes.push(SizedMutant { stratum, bytes });
                true
            }
            Err((reason, message)) => {
                self.rejected.entry(reason).or_default().add(|| message.unwrap_or_else(example));
                false
            }
        }
    }

    fn sample(&self, existing: &[usize]) -> Vec<usize> {
        sample_mutants(&self.sizes, existing, self.filter.request.rows, self.filter.request.seed)
    }
}

/// Cases are built again when rows are visited, and each step succeeded when they were selected.
const WAS_VALID: &str = "selected candidates were valid";

/// Bits of a mutant's index that hold its number among the mutants of its case; the others hold the case's position.
const MUTANT_BITS: u32 = 32;

impl<'a> SelectedRows<'a> {
    fn select_candidates(
        &mut self,
        spaces: &[&'a CandidateSpace],
        mut filter: CandidateFilter<'_>,
    ) -> Vec<usize> {
        let mut valid = Vec::with_capacity(spaces.len());
        for space in spaces {
            let mut rejected = BTreeMap::new();
            valid.push(filter.valid_candidates(space, &mut rejected));
            self.rejected_by_part.push(rejected);
            self.candidates += space.candidates();
        }
        let strata = spaces.iter().zip(&valid).zip(&self.rejected_by_part);
        let strata = strata.map(|((space, valid), rejected)| CandidateStratum {
            space,
            valid,
            added: filter.existing.rows.get(&space.origin()).copied().unwrap_or_default(),
            existing: rejected.get(&RejectReason::Existing).map_or(0, |rejected| rejected.count),
        });
        let strata: Vec<CandidateStratum<'_>> = strata.collect();
        self.selected = sample::sample_candidates(&strata, filter.request.rows, filter.request.seed);
        valid.iter().map(Vec::len).collect()
    }

    fn select_mutants(
        &mut self,
        mutator: &CaseMutator<'_>,
        cases: &[&Case],
        filter: CandidateFilter<'_>,
    ) -> Vec<usize> {
        self.mutation_counts = vec![MutationCount::default(); mutator.mutations.len()];
        let mut strata = MutantStrata::default();
        let mut mutants = CaseSampler::new(filter);
        let mut of_mutation: Vec<usize> = Vec::new();
        for (source, position) in cases.iter().zip(0_u64..) {
            let mut index = position << MUTANT_BITS;
            let visited = mutator.for_each(source, self.kernel, |mutant| {
                self.candidates += 1;
                self.mutation_counts[mutant.mutation].candidates += 1;
                let is_valid = mutants.add(index, strata.number(&mutant), mutant.case.as_ref(), || {
                    let mutation = mutator.mutations[mutant.mutation];
                    format!("{} of case {}", mutation.origin(&mutant.what, &mutant.change), source.id())
                });
                of_mutation.extend(is_valid.then_some(mutant.mutation));
                index += 1;
            });
            if let Err(refusal) = visited {
                self.unread.add(|| refusal.to_string());
            }
        }
        let existing = strata.existing_rows(mutator.mutations, mutants.filter.existing);
        let places = mutants.sample(&existing);
        places.iter().for_each(|place| self.mutation_counts[of_mutation[*place]].rows += 1);
        self.set_sampled(mutants, &places)
    }

    fn set_sampled(&mut self, sampler: CaseSampler<'_>, places: &[usize]) -> Vec<usize> {
        self.selected = vec![places.iter().map(|place| sampler.valid[*place]).collect()];
        self.rejected_by_part = vec![sampler.rejected];
        vec![sampler.valid.len()]
    }

    /// Selects listed cases; returns the number of valid ones. Origins have equal shares, small and large cases too.
    fn select_listed(&mut self, cases: &[&ListedCase], filter: CandidateFilter<'_>) -> Vec<usize> {
        let origins: BTreeSet<&str> = cases.iter().map(|listed| listed.origin.as_str()).collect();
        let origins: Vec<&str> = origins.into_iter().collect();
        let mut listed = CaseSampler::new(filter);
        for (ListedCase { case, origin }, index) in cases.iter().zip(0_u64..) {
            self.candidates += 1;
            let stratum = origins.binary_search(&origin.as_str()).unwrap_or_default();
            listed.add(index, stratum, Ok(case), || case.shapes());
        }
        let rows_of = |origin: &&str| listed.filter.existing.rows.get(*origin).copied().unwrap_or_default();
        let existing: Vec<usize> = origins.iter().map(rows_of).collect();
        let places = listed.sample(&existing);
        self.set_sampled(listed, &places)
    }

    pub fn rejected(&self) -> BTreeMap<&RejectReason, RejectCount> {
        let mut all: BTreeMap<&RejectReason, RejectCount> = BTreeMap::new();
        for (reason, count) in self.rejected_by_part.iter().flatten() {
            all.entry(reason).or_default().join(count);
        }
        all
    }

    /// Returns the spaces without selected or existing rows, with the reasons, if the kernel has a catalogue entry.
    pub(crate) fn empty_spaces(&self) -> Vec<(&'a CandidateSpace, &BTreeMap<RejectReason, RejectCount>)> {
        const MAY_HAVE_ROWS: [RejectReason; 4] = [
            RejectReason::Existing,
            RejectReason::Duplicate,
            RejectReason::NoEntry,
            RejectReason::NotSelected,
        ];
        let CandidateSource::Grid(spaces) = &self.source else { return Vec::new() };
        let parts = spaces.iter().copied().zip(&self.rejected_by_part).zip(&self.selected);
        let empty = parts.filter(|((_, rejected), selected)| {
            selected.is_empty() && !MAY_HAVE_ROWS.iter().any(|reason| rejected.contains_key(reason))
        });
        empty.map(|(part, _)| part).collect()
    }

    pub fn mutations(&self) -> impl Iterator<Item = (&'a str, MutationCount)> {
        let mutations = match &self.source {
            CandidateSource::Grid(_) | CandidateSource::Listed(_) => &[],
            CandidateSource::Mutation { mutator, .. } => mutator.mutations,
        };
        let counts = mutations.iter().zip(&self.mutation_counts);
        counts
            .map(|(mutation, count)| (mutation.name.as_str(), *count))
            .filter(|(_, count)| count.candidates > 0)
    }

    pub fn rows(&self) -> usize {
        self.selected.iter().map(Vec::len).sum()
    }

    /// Visits the rows in order. Cases are built again, because only their indexes are kept.
    pub fn for_each(&self, mut visit: impl FnMut(&SelectedRow<'_>)) {
        match &self.source {
            CandidateSource::Grid(spaces) => {
                for (space, selected) in spaces.iter().zip(&self.selected) {
                    self.for_each_candidate(space, selected, &mut visit);
                }
            }
            CandidateSource::Mutation { mutator, cases } => self.for_each_mutant(mutator, cases, visit),
            CandidateSource::Listed(cases) => {
                let indexes = self.selected.iter().flatten().filter_map(|index| usize::try_from(*index).ok());
                for ListedCase { case, origin } in indexes.filter_map(|index| cases.get(index)) {
                    let provenance = CandidateSpace::with_seed(origin, self.seed);
                    visit(&SelectedRow { case, provenance: &provenance, candidate: None });
                }
            }
        }
    }

    fn for_each_candidate(
        &self,
        space: &CandidateSpace,
        selected: &[u64],
        visit: &mut impl FnMut(&SelectedRow<'_>),
    ) {
        let mut candidates = Candidates::new(space);
        let provenance = CandidateSpace::with_seed(&space.origin(), self.seed);
        for index in selected {
            candidates.go_to(*index);
            candidates.check().expect(WAS_VALID);
            candidates.case().expect(WAS_VALID);
            let (case, candidate) = (candidates.filled(), Some(&candidates));
            visit(&SelectedRow { case, provenance: &provenance, candidate });
        }
    }

    fn for_each_mutant(
        &self,
        mutator: &CaseMutator<'_>,
        cases: &[&Case],
        mut visit: impl FnMut(&SelectedRow<'_>),
    ) {
        let mut selected = self.selected.iter().flatten().copied().peekable();
        for (&source, position) in cases.iter().zip(0_u64..) {
            if selected.peek().is_none_or(|next| next >> MUTANT_BITS != position) {
                continue;
            }
            let mut index = position << MUTANT_BITS;
            let kernel: &str =
                if source.kernel == *self.kernel { "" } else { &format!("{} ", source.kernel) };
            let from = format!("{kernel}case {}", source.id());
            let visited = mutator.for_each(source, self.kernel, |mutant| {
                if selected.next_if_eq(&index).is_some()
                    && let Ok(case) = &mutant.case
                {
                    let mutation = mutator.mutations[mutant.mutation];
                    let provenance = mutation.provenance(&mutant.what, &mutant.change, &from, self.seed);
                    visit(&SelectedRow { case, provenance: &provenance, candidate: None });
                }
                index += 1;
            });
            visited.expect(WAS_VALID);
        }
    }

    pub(crate) fn total_fastest(&self, entry: &CatalogueEntry, device: &DeviceProfile) -> f64 {
        let mut sum = 0.0;
        self.for_each(|row| {
            if let Ok(work) = entry.resolve_work(row.case) {
                sum += device.fastest(&work).seconds();
            }
        });
        sum
    }

    /// Returns the range of each axis over the rows, in the order of the spaces' axes; empty for mutants.
    pub(crate) fn ranges(&self) -> Vec<(String, AxisRange)> {
        let mut ranges: IndexMap<String, BTreeSet<i64>> = IndexMap::new();
        if let CandidateSource::Grid(spaces) = &self.source {
            for (space, selected) in spaces.iter().zip(&self.selected).filter(|(_, rows)| !rows.is_empty()) {
                let mut candidates = Candidates::new(space);
                let mut values = vec![BTreeSet::new(); candidates.axes().0.len()];
                for index in selected {
                    candidates.go_to(*index);
                    let numbers = values.iter_mut().zip(candidates.axes().1);
                    numbers.for_each(|(values, number)| _ = values.insert(*number));
                }
                for (name, values) in candidates.axes().0.iter().zip(values) {
                    ranges.entry(name.clone()).or_default().extend(values);
                }
            }
        }
        let range = |values: BTreeSet<i64>| {
            Some(AxisRange { least: *values.first()?, greatest: *values.last()?, values: values.len() })
        };
        ranges.into_iter().filter_map(|(name, values)| Some((name, range(values)?))).collect()
    }
}

impl<'r> SelectedRow<'r> {
    /// Axes of a grid's candidate and their values; empty for other cases.
    pub(crate) fn axes(&self) -> impl Iterator<Item = (&'r str, i64)> {
        let (names, numbers) = self.candidate.map_or((&[][..], &[][..]), Candidates::axes);
        names.iter().map(String::as_str).zip(numbers.iter().copied())
    }

    /// Columns and cells of the attributes, labels included.
    pub(crate) fn attributes(&self) -> Vec<(&'r str, String)> {
        let of_case =
            || self.case.attributes.iter().map(|(column, text)| (column, text.to_owned())).collect();
        self.candidate.map_or_else(of_case, |candidate| candidate.cells().expect(WAS_VALID))
    }
}

impl CandidateSpace {
    /// Compiles the entry's forms for the candidates of this space; `None` if that is not possible.
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
