//! Patterns of the dimensions of an input slot, such as `*B,D` or `2048,2048`.

use super::{
    ExprValue,
    mismatch::{FormMismatch, RuleMatch},
};
use crate::kernel::expression::{BinaryOperator, ExprNumber};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PatternTerm {
    Name(String),
    Number(i64),
    Rest(String),
}

impl PatternTerm {
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Self::Name(name) | Self::Rest(name) => Some(name),
            Self::Number(_) => None,
        }
    }
}

/// Parses the pattern of a slot; `None` for `-`, a slot that must be empty. `rule` is quoted in errors.
pub(super) fn input_terms(slot: &str, rule: &str) -> Result<Option<Vec<PatternTerm>>, String> {
    let slot = slot.trim();
    if slot == "-" {
        return Ok(None);
    }
    if slot.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let terms = slot.split(',').map(str::trim).map(|term| {
        let (name, is_rest) = term.strip_prefix('*').map_or((term, false), |name| (name, true));
        let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        match (is_name, is_rest, name.parse()) {
            (true, true, _) => Ok(PatternTerm::Rest(name.to_owned())),
            (true, false, _) => Ok(PatternTerm::Name(name.to_owned())),
            (false, false, Ok(number)) => Ok(PatternTerm::Number(number)),
            _ => Err(format!("`{term}` in `{rule}` is not a name, a number or `*NAME`")),
        }
    });
    let terms: Vec<PatternTerm> = terms.collect::<Result<_, _>>()?;
    if terms.iter().filter(|term| matches!(term, PatternTerm::Rest(_))).count() > 1 {
        return Err(format!("slot `{slot}` has more than one `*NAME`, so that their lengths are ambiguous"));
    }
    Ok(Some(terms))
}

/// Returns each term of a pattern with its dimensions: one, or any number for `*NAME`. Fails if the pattern has another rank.
fn with_dims<'a, N>(
    terms: &'a [PatternTerm],
    mut dims: &'a [N],
) -> Result<impl Iterator<Item = (&'a PatternTerm, &'a [N])>, String> {
    let has_rest = terms.iter().any(|term| matches!(term, PatternTerm::Rest(_)));
    let (rank, fixed) = (dims.len(), terms.len() - usize::from(has_rest));
    if rank < fixed || (!has_rest && rank != fixed) {
        let least = if has_rest { "at least " } else { "" };
        return Err(format!("{rank} dimensions, the rule has {least}{fixed}"));
    }
    Ok(terms.iter().map(move |term| {
        let length = if matches!(term, PatternTerm::Rest(_)) { rank - fixed } else { 1 };
        let (taken, left) = dims.split_at(length);
        dims = left;
        (term, taken)
    }))
}

/// Checks the rank, and the dimensions for which the pattern has a number.
pub(super) fn check_dimensions<N: ExprNumber>(terms: &[PatternTerm], dims: &[N]) -> Result<(), String> {
    for (term, dims) in with_dims(terms, dims)? {
        if let PatternTerm::Number(number) = term
            && dims[0].constant().is_some_and(|dim| dim != *number)
        {
            return Err(format!("dimension {} must be {number}", dims[0]));
        }
    }
    Ok(())
}

impl<N: ExprNumber> RuleMatch<N> {
    /// Binds the names of a pattern to the dimensions of a slot, and checks or collects the conditions on its numbers.
    pub(super) fn bind_slot(&mut self, terms: &[PatternTerm], dims: &[N]) -> Result<(), FormMismatch> {
        with_dims(terms, dims)?.try_for_each(|(term, dims)| self.bind_term(term, dims))
    }

    /// Does the same, and returns the number of terms with another value than their name or number has; without the right
    /// number of dimensions, all of them.
    pub(super) fn count_conflicts(&mut self, terms: &[PatternTerm], dims: &[N]) -> usize {
        let Ok(pairs) = with_dims(terms, dims) else { return terms.len() };
        pairs.filter(|(term, dims)| self.bind_term(term, dims).is_err()).count()
    }

    fn bind_term(&mut self, term: &PatternTerm, dims: &[N]) -> Result<(), FormMismatch> {
        match term {
            PatternTerm::Rest(name) => self.unify(name, ExprValue::List(dims.to_vec())),
            PatternTerm::Name(name) => self.unify(name, ExprValue::Number(dims[0].clone())),
            PatternTerm::Number(number) => self.compare(&dims[0], BinaryOperator::Equal, *number, || {
                format!("dimension {} must be {number}", dims[0])
            }),
        }
    }
}
