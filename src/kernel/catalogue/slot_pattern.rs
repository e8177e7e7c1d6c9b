//! Patterns of the dimensions of an input slot, such as `*B,D` or `2048,2048`.

use super::{
    Bindings, ExprValue,
    rule_error::{RuleError, RuleMismatch, require},
};
use crate::kernel::expression::{BinaryOperator, ExprErrorKind, ExprNumber, equal_values};

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
pub(crate) fn input_terms(slot: &str, rule: &str) -> Result<Option<Vec<PatternTerm>>, RuleError> {
    let slot = slot.trim();
    if slot == "-" {
        return Ok(None);
    }
    if slot.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let terms = slot.split(',').map(str::trim).map(|term| {
        let (name, sequence) = term.strip_prefix('*').map_or((term, false), |name| (name, true));
        let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        match (is_name, sequence, name.parse()) {
            (true, true, _) => Ok(PatternTerm::Rest(name.to_owned())),
            (true, false, _) => Ok(PatternTerm::Name(name.to_owned())),
            (false, false, Ok(number)) => Ok(PatternTerm::Number(number)),
            _ => Err(RuleError::Term { term: term.to_owned(), rule: rule.to_owned() }),
        }
    });
    let terms: Vec<PatternTerm> = terms.collect::<Result<_, _>>()?;
    if terms.iter().filter(|term| matches!(term, PatternTerm::Rest(_))).count() > 1 {
        return Err(RuleError::TwoSequences(slot.to_owned()));
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
        let (taken, left) =
            dims.split_at(if matches!(term, PatternTerm::Rest(_)) { rank - fixed } else { 1 });
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

/// Binds the names of a pattern to the dimensions of a slot, and checks or collects the conditions on its numbers.
pub(super) fn bind_slot<N: ExprNumber>(
    terms: &[PatternTerm],
    dims: &[N],
    bindings: &mut Bindings<N>,
    conditions: &mut Vec<N>,
) -> Result<(), RuleMismatch> {
    for (term, dims) in with_dims(terms, dims)? {
        match term {
            PatternTerm::Rest(name) => unify(name, ExprValue::List(dims.to_vec()), bindings, conditions)?,
            PatternTerm::Name(name) => {
                unify(name, ExprValue::Number(dims[0].clone()), bindings, conditions)?;
            }
            PatternTerm::Number(number) => {
                let is_equal = N::apply(BinaryOperator::Equal, dims[0].clone(), N::from(*number));
                require(is_equal.map_err(ExprErrorKind::from)?, conditions, || {
                    format!("dimension {} must be {number}", dims[0])
                })?;
            }
        }
    }
    Ok(())
}

/// Binds the names of a pattern and returns the number of terms with another value than their name or number has; without
/// the right number of dimensions, all of them.
pub(super) fn count_conflicts(terms: &[PatternTerm], dims: &[i64], bindings: &mut Bindings) -> usize {
    let Ok(terms_with_dims) = with_dims(terms, dims) else { return terms.len() };
    let conflicts = terms_with_dims.filter(|(term, dims)| {
        let (name, value) = match term {
            PatternTerm::Rest(name) => (name, ExprValue::List(dims.to_vec())),
            PatternTerm::Name(name) => (name, ExprValue::Number(dims[0])),
            PatternTerm::Number(number) => return dims[0] != *number,
        };
        match bindings.get(name) {
            Some(known) => *known != value,
            None => {
                bindings.set(name, value);
                false
            }
        }
    });
    conflicts.count()
}

/// Binds a name; a name that is bound must have the same value.
fn unify<N: ExprNumber>(
    name: &str,
    value: ExprValue<N>,
    bindings: &mut Bindings<N>,
    conditions: &mut Vec<N>,
) -> Result<(), RuleMismatch> {
    match bindings.get(name) {
        Some(known) => {
            let is_equal = equal_values(known, &value).map_err(ExprErrorKind::from)?;
            require(is_equal, conditions, || format!("{name} is both {known} and {value}"))
        }
        None => {
            bindings.set(name, value);
            Ok(())
        }
    }
}
