//! Where in a file something stands, for messages about what is found after parsing.

use std::path::Path;

use super::SpecError;

/// A place on the way into a file: below these keys, at this text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    pub(super) file: &'a Path,
    pub(super) text: &'a str,
}

impl Source<'_> {
    /// An error below the keys, at the first line and column that has `needle` there; at the last key found
    /// where it does not stand there.
    pub(super) fn error(&self, keys: &[&str], needle: &str, problem: String, hint: &str) -> SpecError {
        let (line, column) = self.find(keys, needle).unzip();
        SpecError { file: self.file.to_owned(), line, column, problem, hint: hint.to_owned() }
    }

    fn find(&self, keys: &[&str], needle: &str) -> Option<(usize, usize)> {
        let mut at = 0;
        let mut found = None;
        for key in keys {
            if let Some(start) = key_at(self.text, at, key) {
                found = Some(start);
                at = start + key.len();
            }
        }
        let needle = needle.trim();
        let start = self.text[at..].find(needle).filter(|_| !needle.is_empty()).map(|place| at + place);
        start.or(found).map(|at| line_and_column(self.text, at))
    }
}

/// Where a key of a mapping stands behind a place: alone in its line's beginning, or inside braces.
fn key_at(text: &str, from: usize, key: &str) -> Option<usize> {
    text[from..].match_indices(key).map(|(place, _)| from + place).find(|place| {
        let before = text[..*place].trim_end_matches([' ', '"', '\'']);
        let after = text[place + key.len()..].trim_start_matches(['"', '\'']);
        (before.is_empty() || before.ends_with(['\n', '{', ',', '-'])) && after.starts_with(':')
    })
}

fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = &text[..at];
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    (before.matches('\n').count() + 1, text[line_start..at].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_lead_to_the_right_one_of_equal_texts() {
        let text = "patterns:\n  one:\n    axes: {m: M}\n  two:\n    axes: {m: M, \"n,k\": Z}\n";
        let source = Source { file: Path::new("a.yaml"), text };
        let place = |keys: &[&str], needle: &str| source.find(keys, needle);
        assert_eq!(place(&["patterns", "two", "axes", "m"], "M"), Some((5, 15)));
        assert_eq!(place(&["patterns", "two", "axes", "n,k"], "Z"), Some((5, 25)));
        assert_eq!(place(&["patterns", "one"], "nowhere"), Some((2, 3)));
        assert_eq!(place(&[], "nowhere"), None);
    }
}
