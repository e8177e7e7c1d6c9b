//! A database with a mapping, ready for lookups.

use crate::{
    answer::{
        lookup::{
            answer::{AnswerSource, LookupAnswer},
            attention_work::parameters_of_case,
            index::{DatabaseIndex, LookupError},
            kernel_index::KernelIndex,
            match_rows::RowMatch,
            query::{OpQuery, QueryTensor},
            row_choice::choose_row,
            rules::LookupRules,
            slot_dims::SlotDims,
        },
        op_mapping::{MappedKernel, OpMapping},
    },
    database::{Database, DatabaseError},
    kernel::{AttentionCase, Case, EP_SIZE, KernelName, Slot, WORLD_SIZE},
};

/// Lookups in a database.
#[derive(Debug)]
pub struct LookupEngine {
    pub(super) mapping: OpMapping,
    pub(super) index: DatabaseIndex,
    pub(super) rules: LookupRules,
}

impl LookupEngine {
    /// Creates an engine. Tables are read when a lookup first needs them.
    pub fn new(database: Database, mapping: Option<OpMapping>) -> Result<Self, DatabaseError> {
        Self::with_rules(database, mapping, LookupRules::Current)
    }

    /// Creates an engine that answers by these rules.
    pub fn with_rules(
        database: Database,
        mapping: Option<OpMapping>,
        rules: LookupRules,
    ) -> Result<Self, DatabaseError> {
        let index = DatabaseIndex::new(database, rules)?;
        Ok(Self { mapping: mapping.unwrap_or_default(), index, rules })
    }

    /// Returns the rules of the answers.
    pub const fn rules(&self) -> LookupRules {
        self.rules
    }

    /// Reads all tables; returns the number of rows.
    pub fn load_all(&self) -> Result<usize, LookupError> {
        let mut rows = 0;
        for kernel in self.index.kernels() {
            rows += self.index.kernel(kernel, &self.mapping)?.map_or(0, |index| index.rows.rows.len());
        }
        Ok(rows)
    }

    /// Returns true if the mapping has the operator, or the database a table of the name.
    pub fn knows(&self, op: &str) -> bool {
        self.mapping.operator(op).is_some() || self.index.kernels().any(|kernel| kernel.as_str() == op)
    }

    /// Returns the mapping.
    pub const fn mapping(&self) -> &OpMapping {
        &self.mapping
    }

    /// Returns the query of a recorded case: the kernel by its own name.
    pub fn query_of_case(case: &Case) -> OpQuery {
        let tensors = |slots: &[Slot]| slots.iter().flatten().map(QueryTensor::from_tensor).collect();
        let inputs = match case.kernel.as_str() {
            // Block tables, lengths and rotary parts are known by their slots.
            AttentionCase::KERNEL => {
                let count = case.inputs.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
                let slots = case.inputs.iter().take(count);
                slots
                    .map(|slot| slot.as_ref().map_or_else(QueryTensor::absent, QueryTensor::from_tensor))
                    .collect()
            }
            _ => tensors(&case.inputs),
        };
        OpQuery {
            op: case.kernel.as_str().to_owned(),
            inputs,
            outputs: tensors(&case.outputs),
            ep_size: case.attributes.get(EP_SIZE).and_then(|text| text.parse().ok()),
            ranks: case.attributes.get(WORLD_SIZE).and_then(|text| text.parse().ok()),
            attention: parameters_of_case(case),
            ..OpQuery::default()
        }
    }

    /// Returns the names that a query can have.
    pub fn known_names(&self) -> impl Iterator<Item = &str> {
        let operators = self.mapping.operators().map(|(name, _)| name);
        operators.chain(self.index.kernels().map(KernelName::as_str))
    }

    pub(super) fn candidates(&self, kernels: &[MappedKernel]) -> Result<CandidateKernels<'_>, LookupError> {
        let mut found = CandidateKernels { indices: Vec::new(), missing: Vec::new() };
        for kernel in kernels {
            match self.index.kernel(&kernel.name, &self.mapping)? {
                Some(index) => found.indices.push(index),
                None => found.missing.push(self.place_of(kernel)),
            }
        }
        Ok(found)
    }

    pub(super) fn choose(
        &self,
        index: &KernelIndex,
        matches: &[RowMatch],
        has_dtypes: bool,
        output: Option<&SlotDims>,
    ) -> LookupAnswer {
        let policy = self.mapping.policy(index.rows.kernel.as_str());
        choose_row(index, matches, policy, has_dtypes, output).unwrap_or_else(LookupAnswer::missed)
    }

    /// Returns the name of a kernel with its place in the mapping.
    pub(super) fn place_of(&self, kernel: &MappedKernel) -> String {
        match kernel.line {
            0 => kernel.name.as_str().to_owned(),
            line => format!("{} ({}:{line})", kernel.name.as_str(), self.mapping.file().display()),
        }
    }
}

/// Returns the best of several answers, the first one of equal ones; of misses the first. The superseded tool takes the
/// first answer.
pub(super) fn best_of(
    answers: impl Iterator<Item = LookupAnswer>,
    rules: LookupRules,
) -> Option<LookupAnswer> {
    let results: Result<_, std::convert::Infallible> = try_best_of(answers.map(Ok), rules);
    results.unwrap_or_else(|never| match never {})
}

/// Returns the best of several answers, as [`best_of`], or the first error.
pub(super) fn try_best_of<E>(
    answers: impl Iterator<Item = Result<LookupAnswer, E>>,
    rules: LookupRules,
) -> Result<Option<LookupAnswer>, E> {
    let mut best: Option<LookupAnswer> = None;
    for answer in answers {
        let answer = answer?;
        let is_final = match rules {
            LookupRules::Current => answer.source == AnswerSource::Measured,
            LookupRules::Superseded => answer.source != AnswerSource::Miss,
        };
        if best.as_ref().is_none_or(|best| answer.source < best.source) {
            best = Some(answer);
        }
        if is_final {
            break;
        }
    }
    Ok(best)
}

/// Kernels of a lookup in the order of preference.
pub(super) struct CandidateKernels<'e> {
    pub(super) indices: Vec<&'e KernelIndex>,
    pub(super) missing: Vec<String>,
}

/// Returns a kernel that no mapping names.
pub(super) const fn unmapped(name: KernelName) -> MappedKernel {
    MappedKernel { name, line: 0 }
}
