//! The tree of a filter, and its text.

use std::{fmt, ops::Range};

use strum::{Display, VariantArray};

/// A word of a filter with its place in bytes. Equal words at other places are equal.
#[derive(Clone, Debug)]
pub(super) struct FilterWord {
    pub(super) text: String,
    pub(super) place: Range<usize>,
}

impl PartialEq for FilterWord {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// Operators between a name and a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, VariantArray)]
pub(super) enum FilterOperator {
    #[strum(to_string = "=")]
    Equal,
    #[strum(to_string = "!=")]
    NotEqual,
    #[strum(to_string = "<")]
    Less,
    #[strum(to_string = "<=")]
    LessOrEqual,
    #[strum(to_string = ">")]
    Greater,
    #[strum(to_string = ">=")]
    GreaterOrEqual,
    #[strum(to_string = "~")]
    Contains,
    #[strum(to_string = "!~")]
    NotContains,
}

impl FilterOperator {
    /// Returns true for operators that need numbers.
    pub(super) const fn is_order(self) -> bool {
        matches!(self, Self::Less | Self::LessOrEqual | Self::Greater | Self::GreaterOrEqual)
    }

    /// Returns true for operators that look for a part of a text.
    pub(super) const fn is_search(self) -> bool {
        matches!(self, Self::Contains | Self::NotContains)
    }
}

/// A filter.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum FilterExpr {
    Comparison {
        name: FilterWord,
        operator: FilterOperator,
        value: FilterWord,
    },
    /// True for cases that have a value of this name.
    Has(FilterWord),
    Not(Box<Self>),
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
}

impl FilterExpr {
    /// Calls `visit` with each name, from left to right.
    pub(super) fn visit_names<'a>(&'a self, visit: &mut impl FnMut(&'a str)) {
        match self {
            Self::Comparison { name, .. } | Self::Has(name) => visit(&name.text),
            Self::Not(inner) => inner.visit_names(visit),
            Self::And(left, right) | Self::Or(left, right) => {
                left.visit_names(visit);
                right.visit_names(visit);
            }
        }
    }

    /// Strength of the binding: a part that binds less is written in parentheses.
    const fn strength(&self) -> u8 {
        match self {
            Self::Or(..) => 0,
            Self::And(..) => 1,
            Self::Not(_) | Self::Comparison { .. } | Self::Has(_) => 2,
        }
    }
}

/// Characters that end a word without quotes.
pub(super) const SPECIAL: &str = "=!<>~&|()\"'";
/// The operator that is true for cases with a value.
pub(super) const HAS: &str = "has";

/// Writes a word, in quotes if it is not one without them.
fn write_word(f: &mut fmt::Formatter<'_>, word: &str) -> fmt::Result {
    let is_special = |c: char| c.is_whitespace() || SPECIAL.contains(c);
    if !word.is_empty() && word != HAS && !word.contains(is_special) {
        return f.write_str(word);
    }
    write!(f, "\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
}

fn write_part(f: &mut fmt::Formatter<'_>, part: &FilterExpr, least: u8) -> fmt::Result {
    if part.strength() < least { write!(f, "({part})") } else { write!(f, "{part}") }
}

impl fmt::Display for FilterExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Comparison { name, operator, value } => {
                write_word(f, &name.text)?;
                write!(f, " {operator} ")?;
                write_word(f, &value.text)
            }
            Self::Has(name) => {
                f.write_str("has ")?;
                write_word(f, &name.text)
            }
            Self::Not(inner) => {
                f.write_str("!")?;
                write_part(f, inner, 2)
            }
            // Both operators group from the left.
            Self::And(left, right) => {
                write_part(f, left, 1)?;
                f.write_str(" & ")?;
                write_part(f, right, 2)
            }
            Self::Or(left, right) => {
                write_part(f, left, 0)?;
                f.write_str(" | ")?;
                write_part(f, right, 1)
            }
        }
    }
}
