//! Errors of JSON that is a part of a file.

/// Returns the message of an error without its place, which counts from the start of the part.
pub(crate) fn json_message(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&place).unwrap_or(&text).to_owned()
}
