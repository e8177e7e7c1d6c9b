//! Messages of parsers in the words of the documentation.

/// Returns the message of serde for a wrong value in plain words, without the position that it ends with. Other messages are
/// returned as they are.
pub(crate) fn plain_words(message: &str) -> String {
    let message = message.split(" at line ").next().unwrap_or_default();
    let of_key = |prefix: &str| message.strip_prefix(prefix).and_then(|rest| rest.split('`').nth(1));
    if let Some((found, expected)) = ["invalid type: ", "invalid value: "]
        .iter()
        .find_map(|prefix| message.strip_prefix(prefix)?.rsplit_once(", expected "))
    {
        return format!("found {}, expected {}", found_value(found), expected_value(expected));
    }
    if let Some((found, expected)) =
        message.strip_prefix("invalid length ").and_then(|rest| rest.split_once(", expected "))
    {
        return format!("found a list of {found}, expected {}", expected_value(expected));
    }
    if let Some(key) = of_key("missing field ") {
        return format!("the key `{key}` is missing");
    }
    if let Some(key) = of_key("duplicate field ") {
        return format!("a second key `{key}`");
    }
    if let Some(rest) = message.strip_prefix("unknown field ") {
        return format!("unknown key {rest}");
    }
    if let Some(rest) = message.strip_prefix("unknown variant ") {
        return format!("unknown value {rest}");
    }
    if let Some(rest) = message.strip_prefix("EOF while parsing ") {
        return format!("the text ends within {}", expected_value(rest));
    }
    message.to_owned()
}

/// A value as serde names it: ``integer `5` `` or `string "a"`.
fn found_value(text: &str) -> String {
    let quoted = text.split_once('`').and_then(|(_, rest)| rest.strip_suffix('`'));
    let string = text.strip_prefix("string ").map(|rest| rest.trim_matches('"'));
    match (text, quoted.or(string)) {
        (_, Some(value)) => format!("`{value}`"),
        ("null" | "unit value", _) => "nothing".to_owned(),
        ("sequence", _) => "a list".to_owned(),
        ("map", _) => "a mapping".to_owned(),
        (other, _) => other.to_owned(),
    }
}

/// A Rust type or a word of serde.
fn expected_value(text: &str) -> &str {
    match text {
        "u8" => "a whole number from 0 to 255",
        "u16" | "u32" | "u64" | "usize" => "a whole number of at least 0",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a string" | "string" | "str" | "a borrowed string" => "a text",
        "a boolean" | "bool" => "`true` or `false`",
        "a sequence" => "a list",
        "a map" | "an object" => "a mapping",
        other if other.starts_with("struct ") => "a mapping",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_types_are_named_as_in_the_documentation() {
        for (message, expected) in [
            (
                "invalid value: integer `-1`, expected u64 at line 1 column 9",
                "found `-1`, expected a whole number of at least 0",
            ),
            (
                "invalid type: string \"a, expected b\", expected f64",
                "found `a, expected b`, expected a number",
            ),
            ("invalid type: integer `3`, expected struct ShapeVariant", "found `3`, expected a mapping"),
            (
                "invalid type: map, expected shapes such as `8,64`",
                "found a mapping, expected shapes such as `8,64`",
            ),
            ("invalid type: null, expected a string", "found nothing, expected a text"),
            (
                "invalid value: integer `300`, expected u8",
                "found `300`, expected a whole number from 0 to 255",
            ),
            ("missing field `count` at line 1 column 20", "the key `count` is missing"),
            ("unknown field `x`, expected one of `a`, `b`", "unknown key `x`, expected one of `a`, `b`"),
            ("EOF while parsing an object at line 1 column 5", "the text ends within a mapping"),
            ("expected value at line 1 column 1", "expected value"),
        ] {
            assert_eq!(plain_words(message), expected);
        }
    }
}
