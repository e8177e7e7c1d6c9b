//! Why candidates become no rows: reasons, how often each holds, and an example of each.

use std::{collections::BTreeMap, fmt};

use super::{ConstraintViolation, definition::CandidateSpace};
use crate::domain::truncate_for_message;

/// Why a candidate becomes no row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RejectReason {
    /// A constraint of the grid does not hold.
    Constraint(String),
    /// What the grid derives, or a constraint, has no whole value: an inexact division or an overflow.
    NoValue(String),
    /// A dimension has no whole value from 1 on.
    Dimension(String),
    /// It needs more memory than there is.
    Memory,
    /// The catalogue has no entry.
    NoEntry,
    /// The catalogue's rule refuses it.
    Rule,
    /// A row of that signature is there.
    Known,
    /// Another candidate has the same signature.
    Twice,
    /// It is valid, and not among those that were taken.
    NotTaken,
}

impl RejectReason {
    /// A word for programs; it never changes.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Constraint(_) => "constraint",
            Self::NoValue(_) => "no_value",
            Self::Dimension(_) => "dimension",
            Self::Memory => "memory",
            Self::NoEntry => "no_entry",
            Self::Rule => "shape_rule",
            Self::Known => "there_already",
            Self::Twice => "same_as_another",
            Self::NotTaken => "not_taken",
        }
    }

    /// The expression of the grid that refuses, where one does.
    #[must_use]
    pub fn expression(&self) -> Option<&str> {
        match self {
            Self::Constraint(source) | Self::NoValue(source) | Self::Dimension(source) => Some(source),
            _ => None,
        }
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constraint(source) => write!(f, "`{}` does not hold", truncate_for_message(source)),
            Self::NoValue(source) => write!(f, "`{}` has no whole value", truncate_for_message(source)),
            Self::Dimension(source) => write!(f, "`{}` is no dimension", truncate_for_message(source)),
            Self::Memory => f.write_str("too large for the memory"),
            Self::NoEntry => f.write_str("the catalogue has no entry"),
            Self::Rule => f.write_str("refused by the shape rule"),
            Self::Known => f.write_str("there already"),
            Self::Twice => f.write_str("the same as another"),
            Self::NotTaken => f.write_str("not taken"),
        }
    }
}

/// How many candidates a reason refuses, and the first of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RejectCount {
    /// How many.
    pub count: u64,
    /// The first one's numbers or, of a mutant, its origin; or what the catalogue's rule said of it.
    pub example: Option<String>,
}

impl RejectCount {
    /// Counts one more.
    pub(crate) fn add(&mut self, example: impl FnOnce() -> String) {
        self.count += 1;
        if self.count == 1 {
            self.example = Some(example());
        }
    }

    /// With those of another space.
    pub(crate) fn join(&mut self, other: &Self) {
        self.count += other.count;
        if self.example.is_none() {
            self.example.clone_from(&other.example);
        }
    }
}

/// The refusals of one space, counted without looking anything up for expressions.
pub(crate) struct RejectTally<'a> {
    space: &'a CandidateSpace,
    /// By place: what is derived, then constraints; each that have no value, and that do not hold.
    expressions: Vec<[RejectCount; 2]>,
    others: BTreeMap<RejectReason, RejectCount>,
}

impl<'a> RejectTally<'a> {
    pub(crate) fn new(space: &'a CandidateSpace) -> Self {
        let expressions = vec![<[RejectCount; 2]>::default(); space.derived.len() + space.conditions.len()];
        Self { space, expressions, others: BTreeMap::new() }
    }

    /// A candidate that what is derived or a constraint refuses.
    pub(crate) fn unfit(&mut self, unfit: ConstraintViolation, numbers: &[i64]) {
        let space = self.space;
        self.expressions[unfit.place][usize::from(unfit.has_value)].add(|| in_words(space, numbers));
    }

    /// A candidate that anything else refuses.
    pub(crate) fn add(&mut self, reason: RejectReason, said: Option<String>, numbers: &[i64]) {
        let space = self.space;
        self.others.entry(reason).or_default().add(|| said.unwrap_or_else(|| in_words(space, numbers)));
    }

    /// All of them, by reason.
    pub(crate) fn finish(self) -> BTreeMap<RejectReason, RejectCount> {
        let mut all = self.others;
        let formulas = self.space.derived.iter().chain(&self.space.conditions);
        for (formula, [no_value, not_held]) in formulas.zip(self.expressions) {
            let source = || formula.source().to_owned();
            for (reason, refusals) in
                [(RejectReason::NoValue(source()), no_value), (RejectReason::Constraint(source()), not_held)]
            {
                if refusals.count > 0 {
                    all.entry(reason).or_default().join(&refusals);
                }
            }
        }
        all
    }
}

/// The values of the axes of a candidate.
fn in_words(space: &CandidateSpace, numbers: &[i64]) -> String {
    let axes = space.axes.iter().flat_map(|axis| &axis.names).zip(numbers);
    axes.map(|(name, number)| format!("{name} {number}")).collect::<Vec<_>>().join(", ")
}
