//! Errors of filters, which point at the place.

use crate::base::command_error::Failure;
use crate::base::exit::ExitStatus;
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
}

impl std::error::Error for FilterError {}

impl Failure for FilterError {
    fn hint(&self) -> String {
        self.fault.hint.clone()
    }

    fn exit_status(&self) -> ExitStatus {
        ExitStatus::Usage
    }
}

/// Greatest number of characters that are shown before the place of a fault, and from it on.
const SHOWN_BEFORE: usize = 60;
const SHOWN_FROM: usize = 60;
/// Text in place of what is left out.
const LEFT_OUT: &str = "...";

/// The problem, the filter in one line, and a line with carets below the place. Of a long filter, the part around the place.
impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FilterFault { place, problem, .. } = &self.fault;
        let count = |range: Range<usize>| self.text.get(range).map_or(0, |text| text.chars().count());
        let (before, marked) = (count(0..place.start), count(place.clone()).max(1));
        let all = self.text.chars().count();
        let (skipped, end) = match all <= SHOWN_BEFORE + SHOWN_FROM {
            true => (0, all),
            false => (before.saturating_sub(SHOWN_BEFORE), all.min(before + SHOWN_FROM)),
        };
        // A line break or another control character would move the carets.
        let part = self.text.chars().skip(skipped).take(end - skipped);
        let part: String = part.map(|c| if c.is_control() { ' ' } else { c }).collect();
        let start = if skipped > 0 { LEFT_OUT } else { "" };
        let rest = if end < all { LEFT_OUT } else { "" };
        let (blanks, carets) = (start.len() + before - skipped, marked.min((end - before).max(1)));
        write!(
            f,
            "--filter: {problem}\n  {start}{part}{rest}\n  {}{}",
            " ".repeat(blanks),
            "^".repeat(carets)
        )
    }
}
