//! Where in a file something stands, for messages about what is found after parsing.

use std::{ops::Range, path::Path};

use super::YamlError;
use crate::domain::truncate_for_message;

/// A place on the way into a file: below these keys, at this text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct YamlPath<'a> {
    pub(crate) file: &'a Path,
    pub(crate) text: &'a str,
}

impl YamlPath<'_> {
    /// An error below the keys, at the first line and column that has `needle` there; at the last key found
    /// where it does not stand there.
    pub(crate) fn error(&self, keys: &[&str], needle: &str, problem: &str, hint: &str) -> YamlError {
        let (line, column) = self.find(keys, needle).unzip();
        // An expression of a page says no more than its beginning does.
        let pieces: Vec<String> = problem.split('`').map(truncate_for_message).collect();
        let problem = pieces.join("`");
        YamlError { file: self.file.to_owned(), line, column, problem, hint: hint.to_owned() }
    }

    fn find(&self, keys: &[&str], needle: &str) -> Option<(usize, usize)> {
        let whole = 0..self.text.len();
        let mut blocks = Vec::from([whole]);
        for key in keys {
            let inside = blocks.last().cloned().unwrap_or_default();
            blocks.extend(key_at(self.text, inside, key).map(|start| start..block_end(self.text, start)));
        }
        let needle = needle.trim();
        // What stands in another key's block, as with what a variant leaves to the pattern, is found further out, but
        // not in another pattern.
        let place = blocks
            .iter()
            .skip(keys.len().min(2))
            .rev()
            .find_map(|block| word_at(self.text, block.clone(), needle));
        let found = blocks.last().filter(|_| blocks.len() > 1).map(|block| block.start);
        place.or(found).map(|at| line_and_column(self.text, at))
    }
}

/// Where a key of a mapping stands in a block: alone in its line's beginning, or inside braces. Of several the
/// outermost, which is the one that is furthest left.
fn key_at(text: &str, block: Range<usize>, key: &str) -> Option<usize> {
    let places = text[block.clone()].match_indices(key).map(|(place, _)| block.start + place);
    let keys = places.filter(|place| {
        let before = text[..*place].trim_end_matches([' ', '"', '\'']);
        let after = text[place + key.len()..].trim_start_matches(['"', '\'']);
        (before.is_empty() || before.ends_with(['\n', '{', ',', '-'])) && after.starts_with(':')
    });
    keys.min_by_key(|place| (line_and_column(text, *place).1, *place))
}

/// Where a key's value ends: at the next line that is indented no further, or for a key inside braces at the comma or
/// brace behind its value.
fn block_end(text: &str, key: usize) -> usize {
    let line_start = text[..key].rfind('\n').map_or(0, |end| end + 1);
    let before = text[line_start..key].trim_end_matches(['"', '\'']);
    if !before.trim().is_empty() {
        return value_end(text, key);
    }
    let mut at = text[key..].find('\n').map_or(text.len(), |end| key + end + 1);
    for line in text[at..].split_inclusive('\n') {
        let bare = line.trim_start();
        let indent = line.len() - bare.len();
        // The items of a list may stand below their key without being indented.
        let is_further = indent > before.len() || (indent == before.len() && bare.starts_with('-'));
        if !bare.trim().is_empty() && !bare.starts_with('#') && !is_further {
            break;
        }
        at += line.len();
    }
    at
}

fn value_end(text: &str, from: usize) -> usize {
    let (mut depth, mut quote) = (0_usize, None);
    // A quoted key has its first quote in front of it.
    let start = text[from..].find(':').map_or(from, |colon| from + colon);
    for (place, c) in text[start..].char_indices() {
        match (quote, c) {
            (Some(open), _) if open == c => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '{' | '[' | '(') => depth += 1,
            (None, '}' | ']' | ')' | ',') if depth == 0 => return start + place,
            (None, '}' | ']' | ')') => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

/// The first place of a text in a block; of a name, where it is a whole word.
fn word_at(text: &str, block: Range<usize>, needle: &str) -> Option<usize> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut places = text[block.clone()].match_indices(needle).filter(|_| !needle.is_empty());
    let place = places.find(|(place, _)| {
        let (before, after) = (&text[..block.start + place], &text[block.start + place + needle.len()..]);
        let joins_left = needle.starts_with(is_name) && before.ends_with(is_name);
        let joins_right = needle.ends_with(is_name) && after.starts_with(is_name);
        !joins_left && !joins_right
    });
    place.map(|(place, _)| block.start + place)
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
        let source = YamlPath { file: Path::new("a.yaml"), text };
        let place = |keys: &[&str], needle: &str| source.find(keys, needle);
        assert_eq!(place(&["patterns", "two", "axes", "m"], "M"), Some((5, 15)));
        assert_eq!(place(&["patterns", "two", "axes", "n,k"], "Z"), Some((5, 25)));
        assert_eq!(place(&["patterns", "one"], "nowhere"), Some((2, 3)));
        assert_eq!(place(&[], "nowhere"), None);
        // A key that is missing is not looked for in the next pattern.
        assert_eq!(place(&["patterns", "one", "inputs"], ""), Some((2, 3)));
        assert_eq!(place(&["patterns", "one", "axes", "n,k"], "Z"), Some((3, 5)));
    }

    #[test]
    fn keys_inside_braces_end_where_their_values_do() {
        let text =
            "patterns: {one: {text: {a: \"}\"}, let: {m: 1}}, two: {let: {m: 2, mm: 3}, where: [m > 2]}}\n";
        let source = YamlPath { file: Path::new("a.yaml"), text };
        let place = |keys: &[&str], needle: &str| source.find(keys, needle).map(|(_, column)| column);
        assert_eq!(
            place(&["patterns", "one", "let"], "2"),
            text.find("let").map(|at| at + 1),
            "not in the other"
        );
        assert_eq!(place(&["patterns", "two", "let"], "3"), text.find('3').map(|at| at + 1));
        assert_eq!(place(&["patterns", "two"], "m > 2"), text.find("m > 2").map(|at| at + 1));
    }
}
