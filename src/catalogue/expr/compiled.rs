//! Expressions compiled for speed: names become places in a slice of whole numbers, lists of known length
//! become their terms, and nothing is allocated when one is evaluated.
//!
//! It means what [`Expr`] means. What it cannot say (functions over lists of unknown length, or backwards from
//! an output) is refused when it is compiled, never when it runs.

use super::{Expr, Function, Node, Operator};

/// A compiled expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Formula {
    source: String,
    pub(crate) term: Term,
    is_truth: bool,
}

/// Why an expression has no value for some numbers: an inexact division, an overflow, a misfit of dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoValue;

/// Why an expression cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormulaError {
    /// A name that stands for nothing.
    Unknown(String),
    /// Something that only [`Expr`] evaluates.
    NotNumeric(String),
}

/// A term of whole numbers; truth values are 0 and 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Term {
    Number(i64),
    Place(usize),
    Not(Box<Term>),
    Negative(Box<Term>),
    Binary(Operator, Box<Term>, Box<Term>),
    Min(Box<Term>, Box<Term>),
    Max(Box<Term>, Box<Term>),
    Align(Box<Term>, Box<Term>),
    /// One dimension of an element-wise result.
    Broadcast(Box<Term>, Box<Term>),
}

/// What a name stands for, or an expression comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    Number(Term),
    List(Vec<Term>),
    Truth(Term),
}

impl Formula {
    /// Compiles an expression over numbers; `place` says where the number of a name is.
    ///
    /// # Errors
    /// [`FormulaError`].
    pub fn compile(expr: &Expr, place: &dyn Fn(&str) -> Option<Place>) -> Result<Self, FormulaError> {
        let meaning = |name: &str| {
            place(name).map(|place| {
                Meaning::Number(match place {
                    Place::At(index) => Term::Place(index),
                    Place::Is(number) => Term::Number(number),
                })
            })
        };
        let (term, is_truth) = match meaning_of(&expr.root, &meaning)? {
            Meaning::Number(term) => (term, false),
            Meaning::Truth(term) => (term, true),
            Meaning::List(_) => return Err(FormulaError::NotNumeric(expr.to_string())),
        };
        Ok(Self { source: expr.to_string(), term, is_truth })
    }

    /// Whether it is a comparison.
    #[must_use]
    pub const fn is_truth(&self) -> bool {
        self.is_truth
    }

    /// As it was written.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The value; 1 for what is true.
    ///
    /// # Errors
    /// [`NoValue`].
    pub fn value(&self, numbers: &[i64]) -> Result<i64, NoValue> {
        self.term.value(numbers)
    }
}

/// Where the number of a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the slice.
    At(usize),
    /// It is always that one.
    Is(i64),
}

impl Term {
    pub(crate) fn value(&self, numbers: &[i64]) -> Result<i64, NoValue> {
        let value = match self {
            Self::Number(number) => Some(*number),
            Self::Place(index) => Some(numbers[*index]),
            Self::Not(inner) => Some(i64::from(inner.value(numbers)? == 0)),
            Self::Negative(inner) => inner.value(numbers)?.checked_neg(),
            Self::Binary(operator, left, right) => return binary(*operator, left, right, numbers),
            Self::Min(left, right) => Some(left.value(numbers)?.min(right.value(numbers)?)),
            Self::Max(left, right) => Some(left.value(numbers)?.max(right.value(numbers)?)),
            Self::Align(value, step) => {
                let (value, step) = (value.value(numbers)?, step.value(numbers)?);
                if step <= 0 {
                    return Err(NoValue);
                }
                value.checked_add((step - value.rem_euclid(step)) % step)
            }
            Self::Broadcast(left, right) => match (left.value(numbers)?, right.value(numbers)?) {
                (l, r) if l == r || r == 1 => Some(l),
                (1, r) => Some(r),
                _ => None,
            },
        };
        value.ok_or(NoValue)
    }

    pub(crate) fn times(self, other: Self) -> Self {
        match (self, other) {
            (Self::Number(1), other) => other,
            (term, Self::Number(1)) => term,
            (Self::Number(l), Self::Number(r)) if l.checked_mul(r).is_some() => Self::Number(l * r),
            (left, right) => Self::Binary(Operator::Multiply, Box::new(left), Box::new(right)),
        }
    }

    pub(crate) fn compared(self, operator: Operator, other: Self) -> Self {
        Self::Binary(operator, Box::new(self), Box::new(other))
    }

    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Number(1), other) => other,
            (term, Self::Number(1)) => term,
            (left, right) => Self::Binary(Operator::And, Box::new(left), Box::new(right)),
        }
    }

    /// Whether both are equal, known at once where they are the same term.
    pub(crate) fn equal(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Number(l), Self::Number(r)) => Self::Number(i64::from(l == r)),
            // A term without a value is found where it is evaluated as a dimension.
            (l, r) if l == r => Self::Number(1),
            _ => self.compared(Operator::Equal, other),
        }
    }
}

fn binary(operator: Operator, left: &Term, right: &Term, numbers: &[i64]) -> Result<i64, NoValue> {
    let left = left.value(numbers)?;
    match operator {
        Operator::Or if left != 0 => return Ok(1),
        Operator::And if left == 0 => return Ok(0),
        _ => {}
    }
    let right = right.value(numbers)?;
    let value = match operator {
        Operator::Or | Operator::And => Some(right),
        Operator::Equal => Some(i64::from(left == right)),
        Operator::NotEqual => Some(i64::from(left != right)),
        Operator::Less => Some(i64::from(left < right)),
        Operator::LessEqual => Some(i64::from(left <= right)),
        Operator::Greater => Some(i64::from(left > right)),
        Operator::GreaterEqual => Some(i64::from(left >= right)),
        Operator::Add => left.checked_add(right),
        Operator::Subtract => left.checked_sub(right),
        Operator::Multiply => left.checked_mul(right),
        Operator::Divide => left.checked_rem(right).filter(|rest| *rest == 0).map(|_| left / right),
        Operator::Remainder => left.checked_rem_euclid(right),
    };
    value.ok_or(NoValue)
}

/// The product of dimensions, as a list counts where a number is wanted.
pub(crate) fn product(terms: &[Term]) -> Term {
    terms.iter().cloned().fold(Term::Number(1), Term::times)
}

fn number(meaning: Meaning) -> Result<Term, FormulaError> {
    match meaning {
        Meaning::Number(term) => Ok(term),
        Meaning::List(terms) => Ok(product(&terms)),
        Meaning::Truth(_) => {
            Err(FormulaError::NotNumeric("a comparison where a number is wanted".to_owned()))
        }
    }
}

fn truth(meaning: Meaning) -> Result<Term, FormulaError> {
    match meaning {
        Meaning::Truth(term) => Ok(term),
        _ => Err(FormulaError::NotNumeric("a number where a comparison is wanted".to_owned())),
    }
}

fn list(meaning: Meaning) -> Result<Vec<Term>, FormulaError> {
    match meaning {
        Meaning::List(terms) => Ok(terms),
        _ => Err(FormulaError::NotNumeric("a number where a list is wanted".to_owned())),
    }
}

/// What an expression comes to where its names have meanings.
pub(crate) fn meaning_of(
    node: &Node,
    names: &dyn Fn(&str) -> Option<Meaning>,
) -> Result<Meaning, FormulaError> {
    Ok(match node {
        Node::Number(number) => Meaning::Number(Term::Number(*number)),
        Node::Name(name) => names(name).ok_or_else(|| FormulaError::Unknown(name.clone()))?,
        Node::Not(inner) => Meaning::Truth(Term::Not(Box::new(truth(meaning_of(inner, names)?)?))),
        Node::Negative(inner) => {
            Meaning::Number(Term::Negative(Box::new(number(meaning_of(inner, names)?)?)))
        }
        Node::Binary(operator, left, right) => {
            comparison_or_sum(*operator, meaning_of(left, names)?, meaning_of(right, names)?)?
        }
        Node::Call(function, arguments) => {
            let meanings = arguments.iter().map(|argument| meaning_of(argument, names));
            call(*function, meanings.collect::<Result<_, _>>()?)?
        }
    })
}

fn comparison_or_sum(operator: Operator, left: Meaning, right: Meaning) -> Result<Meaning, FormulaError> {
    Ok(match operator {
        Operator::Or | Operator::And => Meaning::Truth(truth(left)?.compared(operator, truth(right)?)),
        Operator::Equal | Operator::NotEqual => {
            let same = match (left, right) {
                (Meaning::List(left), Meaning::List(right)) if left.len() == right.len() => {
                    let pairs = left.into_iter().zip(right);
                    pairs.map(|(l, r)| l.equal(r)).fold(Term::Number(1), Term::and)
                }
                (Meaning::Number(left), Meaning::Number(right)) => left.equal(right),
                (Meaning::Truth(left), Meaning::Truth(right)) => left.compared(Operator::Equal, right),
                _ => Term::Number(0),
            };
            Meaning::Truth(if operator == Operator::Equal { same } else { Term::Not(Box::new(same)) })
        }
        Operator::Less | Operator::LessEqual | Operator::Greater | Operator::GreaterEqual => {
            Meaning::Truth(number(left)?.compared(operator, number(right)?))
        }
        _ => Meaning::Number(number(left)?.compared(operator, number(right)?)),
    })
}

fn call(function: Function, values: Vec<Meaning>) -> Result<Meaning, FormulaError> {
    let mut values = values.into_iter();
    // The parser has counted the arguments.
    let mut next = || values.next().unwrap_or(Meaning::Number(Term::Number(0)));
    Ok(match function {
        Function::Min => Meaning::Number(Term::Min(Box::new(number(next())?), Box::new(number(next())?))),
        Function::Max => Meaning::Number(Term::Max(Box::new(number(next())?), Box::new(number(next())?))),
        Function::Align => Meaning::Number(Term::Align(Box::new(number(next())?), Box::new(number(next())?))),
        Function::Rank => {
            Meaning::Number(Term::Number(i64::try_from(list(next())?.len()).unwrap_or(i64::MAX)))
        }
        Function::Numel => Meaning::Number(product(&list(next())?)),
        Function::Broadcast => {
            let (left, right) = (list(next())?, list(next())?);
            let rank = left.len().max(right.len());
            let dim = |dims: &[Term], index: usize| {
                (index + dims.len()).checked_sub(rank).map_or(Term::Number(1), |at| dims[at].clone())
            };
            let dims = (0..rank).map(|index| match (dim(&left, index), dim(&right, index)) {
                (l, r) if l == r || r == Term::Number(1) => l,
                (l, r) => Term::Broadcast(Box::new(l), Box::new(r)),
            });
            Meaning::List(dims.collect())
        }
        Function::Within => {
            let (small, large) = (list(next())?, list(next())?);
            let fits = small.len() == large.len();
            let pairs = small.into_iter().zip(large).filter(|(s, l)| s != l);
            let within = pairs.map(|(s, l)| s.compared(Operator::LessEqual, l));
            Meaning::Truth(within.fold(Term::Number(i64::from(fits)), Term::and))
        }
        other => return Err(FormulaError::NotNumeric(format!("{other:?}").to_lowercase())),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::catalogue::{Bindings, Value};

    const NAMES: [&str; 3] = ["a", "b", "c"];

    fn compiled(source: &str) -> Result<Formula, FormulaError> {
        let expr = Expr::parse(source).expect("an expression");
        Formula::compile(&expr, &|name| NAMES.iter().position(|known| *known == name).map(Place::At))
    }

    fn slow(source: &str, numbers: [i64; 3]) -> Option<i64> {
        let mut bindings = Bindings::default();
        for (name, number) in NAMES.into_iter().zip(numbers) {
            bindings.set(name, Value::Number(number));
        }
        match Expr::parse(source).expect("an expression").value(&bindings).ok()? {
            Value::Number(number) => Some(number),
            Value::Truth(truth) => Some(i64::from(truth)),
            Value::List(_) => None,
        }
    }

    #[test]
    fn what_it_cannot_say_is_refused_at_once() {
        assert_eq!(compiled("x + 1"), Err(FormulaError::Unknown("x".to_owned())));
        assert!(matches!(compiled("sum(a)"), Err(FormulaError::NotNumeric(_))));
        assert!(matches!(compiled("(a < b) + 1"), Err(FormulaError::NotNumeric(_))));
        assert!(compiled("a < b").expect("compiles").is_truth());
    }

    proptest! {
        /// Both ways to evaluate an expression agree, also on where there is no value.
        #[test]
        fn it_means_what_the_expression_means(
            source in "[abc1-9]( ?[-+*/%<]| ==| !=| <=| >=)? ?(max\\(a, b\\)|align\\(b, c\\)|min\\(a, 7\\)|[abc]|[0-9]{1,3})( [-+*%] [abc])?",
            numbers in proptest::array::uniform3(-9_i64..9),
        ) {
            if let Ok(expr) = Expr::parse(&source) {
                let place = |name: &str| NAMES.iter().position(|known| *known == name).map(Place::At);
                if let Ok(formula) = Formula::compile(&expr, &place) {
                    prop_assert_eq!(formula.value(&numbers).ok(), slow(&source, numbers), "{}", source);
                }
            }
        }
    }
}
