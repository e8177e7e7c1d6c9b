//! Errors of the command line, in which the standard library describes numbers.

/// Descriptions of values that are not numbers, and what users can understand.
const DESCRIPTIONS: [(&str, &str); 6] = [
    ("invalid digit found in string", "not a whole number"),
    ("cannot parse integer from empty string", "not a whole number"),
    ("number too large to fit in target type", "too large"),
    ("number would be zero for non-zero type", "must not be 0"),
    ("invalid float literal", "not a number"),
    ("cannot parse float from empty string", "not a number"),
];
/// Words in front of a range, such as `1..=10`.
const RANGE: &str = " is not in ";

/// Returns the text of an error with understandable descriptions of numbers.
pub(super) fn usage_error_text(text: &str) -> String {
    let described = |text: String, (from, to): &(&str, &str)| text.replace(from, to);
    let text = DESCRIPTIONS.iter().fold(text.to_owned(), described);
    let lines = text.lines().map(|line| readable_range(line).unwrap_or_else(|| line.to_owned()) + "\n");
    lines.collect()
}

/// Returns a line that ends with a range of Rust, with its least and greatest number.
fn readable_range(line: &str) -> Option<String> {
    let (start, range) = line.rsplit_once(RANGE)?;
    let (least, most) = range.split_once("..")?;
    least.parse::<i64>().ok()?;
    let Some(most) = most.strip_prefix('=') else {
        return most.is_empty().then(|| format!("{start} is less than {least}"));
    };
    most.parse::<u64>().ok()?;
    Some(format!("{start} is not between {least} and {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_described_without_words_of_the_compiler() {
        for (from, to) in [
            ("error: invalid value '0' for '--max <N>': 0 is not in 1..=100", "0 is not between 1 and 100"),
            ("error: invalid value '0' for '--max <N>': 0 is not in 1..", "0 is less than 1"),
            ("error: invalid value 'x' for '--max <N>': invalid digit found in string", "not a whole number"),
            ("error: a is not in b..=c", "a is not in b..=c"),
        ] {
            let text = usage_error_text(&format!("{from}\n\nFor more information\n"));
            assert!(text.contains(&format!("{to}\n\nFor more information\n")), "{text}");
        }
    }
}
