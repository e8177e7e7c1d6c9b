//! Errors of filters, which point at the place.

use std::{fmt, ops::Range};

/// A fault of a filter at a place in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FilterFault {
    pub(super) place: Range<usize>,
    pub(super) problem: String,
    pub(super) hint: String,
}

impl FilterFault {
    pub(super) fn new(place: Range<usize>, problem: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { place, problem: problem.into(), hint: hint.into() }
    }
}

/// A fault of a filter with its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilterError {
    text: String,
    fault: FilterFault,
}

impl FilterError {
    pub(super) fn new(text: &str, fault: FilterFault) -> Self {
        Self { text: text.to_owned(), fault }
    }

    /// Returns what to do.
    pub(crate) fn hint(&self) -> String {
        self.fault.hint.clone()
    }
}

/// The problem, the filter in one line, and a line with carets below the place.
impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FilterFault { place, problem, .. } = &self.fault;
        let count = |range: Range<usize>| self.text.get(range).map_or(0, |text| text.chars().count());
        let (before, marked) = (count(0..place.start), count(place.clone()).max(1));
        // A line break or another control character would move the carets.
        let shown: String = self.text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        write!(f, "--filter: {problem}\n  {shown}\n  {}{}", " ".repeat(before), "^".repeat(marked))
    }
}
