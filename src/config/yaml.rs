//! Reading YAML into structs, with errors that give file, line, column and the likely word.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::domain::nearest_name;

/// Bytes of the largest file that is read.
const LARGEST: usize = 1 << 20;
/// Deeper nesting than any file needs.
const DEEPEST: usize = 100;

/// A YAML file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{problem}", place(.file, *.line, *.column))]
pub struct YamlError {
    /// The file, or the name it has inside the program; empty where something is in no file.
    pub file: PathBuf,
    /// From 1, where known.
    pub line: Option<usize>,
    /// From 1, where known.
    pub column: Option<usize>,
    /// What is wrong and what was expected.
    pub problem: String,
    /// What to do.
    pub hint: String,
}

/// `file:line:column: `, as far as it is known.
fn place(file: &Path, line: Option<usize>, column: Option<usize>) -> String {
    if file.as_os_str().is_empty() {
        return String::new();
    }
    let behind_colon = |number: Option<usize>| number.map_or_else(String::new, |number| format!(":{number}"));
    format!("{}{}{}: ", file.display(), behind_colon(line), behind_colon(column))
}

impl YamlError {
    /// An error found after parsing; the line is the first that holds `needle`.
    pub(crate) fn at(file: &Path, text: &str, needle: &str, problem: String, hint: &str) -> Self {
        let line = text.lines().position(|line| !needle.is_empty() && line.contains(needle));
        let line = line.map(|index| index + 1);
        Self { file: file.to_owned(), line, column: None, problem, hint: hint.to_owned() }
    }
}

/// Whether a text is YAML, with a key once at most in each mapping.
///
/// # Errors
/// [`YamlError`] with the line.
pub fn check_yaml(file: &Path, text: &str) -> Result<(), YamlError> {
    parse::<serde_yaml::Value>(file, text).map(drop)
}

/// Parses a file's text.
pub(crate) fn parse<T: DeserializeOwned>(file: &Path, text: &str) -> Result<T, YamlError> {
    // Where a field has a wrong name or type, the column is that of the mapping around it, or of its value.
    parse_with_column(file, text).map_err(|error| YamlError { column: None, ..error })
}

/// The same, with the column in errors.
pub(crate) fn parse_with_column<T: DeserializeOwned>(file: &Path, text: &str) -> Result<T, YamlError> {
    // Some editors put a byte-order mark in front.
    let text = text.trim_start_matches('\u{feff}');
    check_size(file, text)?;
    serde_yaml::from_str(text).map_err(|error| {
        let message = error.to_string();
        let (line, column) = error.location().map(|location| (location.line(), location.column())).unzip();
        let hint = did_you_mean(&message).unwrap_or_else(|| "mend the file and try again".to_owned());
        // The location stands in front of the message already.
        let problem = message.split(" at line ").next().unwrap_or(&message);
        let second = line.and_then(|line| second_place(text, line, problem));
        let (line, column) = second.map_or((line, column), |(line, column)| (Some(line), Some(column)));
        YamlError { file: file.to_owned(), line, column, problem: rephrase(problem), hint }
    })
}

/// Refuses what would keep the parser busy for minutes.
fn check_size(file: &Path, text: &str) -> Result<(), YamlError> {
    let said = |problem: String, line| YamlError {
        file: file.to_owned(),
        line,
        column: None,
        problem,
        hint: "give a file that somebody wrote by hand".to_owned(),
    };
    if text.len() > LARGEST {
        return Err(said(format!("has {} bytes, at most {LARGEST} are read", text.len()), None));
    }
    let mut depth = 0_usize;
    for (index, line) in text.lines().enumerate() {
        let dashes = line.split_whitespace().take_while(|word| *word == "-").count();
        for byte in line.bytes() {
            match byte {
                b'[' | b'{' => depth += 1,
                b']' | b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        if depth.max(dashes) > DEEPEST {
            return Err(said("is nested too deeply".to_owned(), Some(index + 1)));
        }
    }
    Ok(())
}

/// What the YAML crate says, in words that are not those of its insides.
fn rephrase(problem: &str) -> String {
    if problem.contains("more than one document") {
        return "holds more than one document; remove what is behind `---`".to_owned();
    }
    let mut words = problem.to_owned();
    if let Some((before, behind)) = problem.split_once("expected struct ") {
        let rest = behind.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
        words = format!("{before}expected a mapping{rest}");
    }
    for (theirs, ours) in [
        ("invalid type: unit value", "nothing is given"),
        ("invalid type: sequence", "a list is given"),
        ("invalid type: map", "a mapping is given"),
        ("invalid type: ", "wrong type: "),
        ("expected a sequence", "expected a list"),
        ("expected u64", "expected a whole number"),
        ("expected i64", "expected a whole number"),
        ("duplicate field ", "a second "),
        ("duplicate entry with key ", "a second key "),
    ] {
        words = words.replace(theirs, ours);
    }
    words
}

/// Where a key that stands twice does so for the second time: the parser names the mapping around it.
fn second_place(text: &str, from: usize, problem: &str) -> Option<(usize, usize)> {
    let is_twice =
        ["duplicate field", "duplicate entry", "stands twice"].iter().any(|said| problem.contains(said));
    let mut quoted = problem.split(['`', '"']).skip(1).step_by(2);
    let key = quoted.next().filter(|_| is_twice)?;
    let columns = text.lines().enumerate().skip(from.saturating_sub(1)).filter_map(|(index, line)| {
        let bare = line.trim_start_matches([' ', '"', '\'']);
        let rest = bare.strip_prefix(key)?.trim_start_matches(['"', '\'']);
        rest.starts_with(':').then_some((index + 1, line.len() - line.trim_start().len() + 1))
    });
    let places: Vec<(usize, usize)> = columns.collect();
    let column = places.first()?.1;
    places.into_iter().filter(|place| place.1 == column).nth(1)
}

/// The text of a number or a string.
pub(crate) fn scalar(value: &serde_yaml::Value) -> Option<String> {
    match value {
        serde_yaml::Value::String(text) => Some(text.clone()),
        serde_yaml::Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Prints a value as YAML.
pub(crate) fn print<T: serde::Serialize>(value: &T) -> String {
    serde_yaml::to_string(value).unwrap_or_default()
}

/// For "unknown field `knd`, expected one of `kind`, `device`": the nearest of the expected words.
fn did_you_mean(message: &str) -> Option<String> {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let wrong = quoted.next().filter(|_| message.contains("unknown "))?;
    nearest_name(wrong, quoted).map(|near| format!("did you mean `{near}`?"))
}

/// Splits at commas that are not inside brackets or parentheses.
pub(crate) fn split_outside_brackets(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0_usize);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its field names matter")]
    struct Sample {
        kernel: String,
        schema: Option<String>,
    }

    #[test]
    fn unknown_keys_name_line_and_likely_word() {
        let error = parse::<Sample>(Path::new("a.yaml"), "kernel: Add\nshema: x\n").expect_err("a wrong key");
        assert_eq!((error.line, error.hint.as_str()), (Some(2), "did you mean `schema`?"));
        assert!(error.to_string().starts_with("a.yaml:2: unknown field `shema`"), "{error}");
    }

    #[test]
    fn text_that_is_no_yaml_has_a_line() {
        let error = parse::<Sample>(Path::new("a.yaml"), "kernel: [\n").expect_err("not closed");
        assert!(error.line.is_some(), "{error}");
    }
}
