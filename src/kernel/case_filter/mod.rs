//! Filters of cases, as users type them after `--filter`: an expression whose names stand for values of a case.

mod evaluate;
mod names;

use std::{collections::BTreeSet, ops::Range};

pub(crate) use evaluate::CaseValues;
pub(crate) use names::FilterNames;

use super::expression::{Expr, ExprKind, ExprNode, SyntaxError};
use crate::base::command_error::CommandError;

#[derive(Clone, Debug)]
pub struct CaseFilter(Expr);

impl CaseFilter {
    pub(crate) fn parse(text: &str) -> Result<Self, CommandError> {
        Expr::parse_any(text).map(Self).map_err(usage_error)
    }

    pub(crate) fn check_names(&self, names: &FilterNames) -> Result<(), CommandError> {
        names.check(&self.0).map_err(usage_error)
    }

    /// Returns true if the filter selects a case. Comparisons with missing values are false.
    pub(crate) fn matches(&self, case: &CaseValues<'_>) -> bool {
        evaluate::is_true(&self.0, &self.0.root, case).unwrap_or(false)
    }

    pub(crate) fn as_str(&self) -> &str {
        self.0.as_str()
    }

    pub(crate) fn used_names(&self) -> BTreeSet<&str> {
        self.0.root.nodes().filter_map(word).collect()
    }
}

/// Returns the name that a node may be; a name with blanks or signs is in quotes.
fn word(node: &ExprNode) -> Option<&str> {
    match &node.kind {
        ExprKind::Name(word) | ExprKind::Text(word) => Some(word),
        _ => None,
    }
}

/// Returns the text of a value: without its quotes, or as it stands in the filter.
fn text_of<'a>(expr: &'a Expr, node: &'a ExprNode) -> &'a str {
    match &node.kind {
        ExprKind::Text(text) => text,
        _ => expr.as_str().get(node.place.clone()).unwrap_or_default(),
    }
}

const SHOWN_BEFORE: usize = 60;
const SHOWN_FROM: usize = 60;
const LEFT_OUT: &str = "...";

/// Returns the error of the command line: the problem, the filter in one line, and a line with carets below the place. A long
/// filter is cut around the place.
fn usage_error(SyntaxError { text, place, problem, hint }: SyntaxError) -> CommandError {
    let count = |range: Range<usize>| text.get(range).map_or(0, |text| text.chars().count());
    let (before, marked) = (count(0..place.start), count(place.clone()).max(1));
    let all = text.chars().count();
    let (skipped, end) = match all <= SHOWN_BEFORE + SHOWN_FROM {
        true => (0, all),
        false => (before.saturating_sub(SHOWN_BEFORE), all.min(before + SHOWN_FROM)),
    };
    // A line break or another control character would move the carets.
    let part = text.chars().skip(skipped).take(end - skipped);
    let part: String = part.map(|c| if c.is_control() { ' ' } else { c }).collect();
    let start = if skipped > 0 { LEFT_OUT } else { "" };
    let rest = if end < all { LEFT_OUT } else { "" };
    let at_end = if place.is_empty() { " at the end" } else { "" };
    let blanks = " ".repeat(start.len() + before - skipped);
    let carets = "^".repeat(marked.min((end - before).max(1)));
    let message = format!("--filter: {problem}{at_end}\n  {start}{part}{rest}\n  {blanks}{carets}");
    CommandError::usage(message, hint)
}

#[cfg(test)]
mod tests;
