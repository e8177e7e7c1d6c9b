//! Reading YAML into structs, with errors that give file, line, column and the likely word.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::model::nearest;

/// A YAML file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{problem}", place(.file, *.line, *.column))]
pub struct SpecError {
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

impl SpecError {
    /// An error found after parsing; the line is the first that holds `needle`.
    pub(super) fn at(file: &Path, text: &str, needle: &str, problem: String, hint: &str) -> Self {
        let line = text.lines().position(|line| !needle.is_empty() && line.contains(needle));
        let line = line.map(|index| index + 1);
        Self { file: file.to_owned(), line, column: None, problem, hint: hint.to_owned() }
    }
}

/// Whether a text is YAML, with a key once at most in each mapping.
///
/// # Errors
/// [`SpecError`] with the line.
pub fn check_yaml(file: &Path, text: &str) -> Result<(), SpecError> {
    parse::<serde_yaml::Value>(file, text).map(drop)
}

/// Parses a file's text.
pub(super) fn parse<T: DeserializeOwned>(file: &Path, text: &str) -> Result<T, SpecError> {
    // Where a field has a wrong name or type, the column is that of the mapping around it, or of its value.
    parse_with_column(file, text).map_err(|error| SpecError { column: None, ..error })
}

/// The same, with the column in errors.
pub(super) fn parse_with_column<T: DeserializeOwned>(file: &Path, text: &str) -> Result<T, SpecError> {
    serde_yaml::from_str(text).map_err(|error| {
        let message = error.to_string();
        let (line, column) = error.location().map(|location| (location.line(), location.column())).unzip();
        let hint = did_you_mean(&message).unwrap_or_else(|| "mend the file and try again".to_owned());
        // The location stands in front of the message already.
        let problem = message.split(" at line ").next().unwrap_or(&message).to_owned();
        SpecError { file: file.to_owned(), line, column, problem, hint }
    })
}

/// The text of a number or a string.
pub(super) fn scalar(value: &serde_yaml::Value) -> Option<String> {
    match value {
        serde_yaml::Value::String(text) => Some(text.clone()),
        serde_yaml::Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Prints a value as YAML.
pub(super) fn print<T: serde::Serialize>(value: &T) -> String {
    serde_yaml::to_string(value).unwrap_or_default()
}

/// For "unknown field `knd`, expected one of `kind`, `device`": the nearest of the expected words.
fn did_you_mean(message: &str) -> Option<String> {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let wrong = quoted.next().filter(|_| message.contains("unknown "))?;
    nearest(wrong, quoted).map(|near| format!("did you mean `{near}`?"))
}

/// Splits at commas that are not inside brackets or parentheses.
pub(super) fn split_outside_brackets(text: &str) -> Vec<&str> {
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
