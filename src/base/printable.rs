//! Text of other programs and people in the output: what a terminal, a browser or a spreadsheet would execute or hide is escaped.

use std::{borrow::Cow, fmt::Write as _};

/// Characters of a quotation, of a line and of a whole message that are shown.
pub(crate) const MAX_QUOTED: usize = 200;
const MAX_LINE: usize = 4_000;
const MAX_MESSAGE: usize = 20_000;

/// Control characters but line break and tab, which move the cursor of a terminal or hide text; marks that change the direction of
/// text; and characters that are not seen.
pub(crate) const fn is_harmful(c: char) -> bool {
    !matches!(c, '\n' | '\t') && is_harmful_in_cell(c)
}

pub(crate) const fn is_harmful_in_cell(c: char) -> bool {
    matches!(c, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}')
}

/// Returns a text in which harmful characters are written as `\x1b` and `\u{202e}`.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, is_harmful, push_escape)
}

/// Returns the text of a cell or a name: line breaks and tabs are escaped as well.
pub(crate) fn printable_cell(text: &str) -> Cow<'_, str> {
    escaped(text, is_harmful_in_cell, push_escape)
}

/// Returns JSON in which harmful characters, which are in strings alone, are written as `\u202e`.
pub(crate) fn printable_json(json: &str) -> Cow<'_, str> {
    escaped(json, is_harmful, |json, c| {
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(json, "\\u{unit:04x}");
        }
    })
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool, push: impl Fn(&mut String, char)) -> Cow<'_, str> {
    let Some(first) = text.find(&is_escaped) else { return text.into() };
    let mut shown = text[..first].to_owned();
    for c in text[first..].chars() {
        if is_escaped(c) { push(&mut shown, c) } else { shown.push(c) }
    }
    shown.into()
}

fn push_escape(text: &mut String, c: char) {
    let _ = match c {
        '\n' => write!(text, "\\n"),
        '\t' => write!(text, "\\t"),
        '\r' => write!(text, "\\r"),
        '\0'..='\u{ff}' => write!(text, "\\x{:02x}", u32::from(c)),
        _ => write!(text, "\\u{{{:x}}}", u32::from(c)),
    };
}

/// Returns a message without the middle of long quotations, which stand between backticks, and of long lines. It ends after
/// [`MAX_MESSAGE`] characters.
pub(crate) fn short_message(message: &str, max_quoted: usize) -> Cow<'_, str> {
    if message.len() <= max_quoted && !message.contains('\n') {
        return message.into();
    }
    let parts = message.split('`').enumerate();
    let parts = parts.map(|(index, part)| match index % 2 {
        // A line break would let the quotation look like a message of its own.
        1 => printable_cell(&without_middle(part, max_quoted)).into_owned(),
        _ => part.to_owned(),
    });
    let text = parts.collect::<Vec<_>>().join("`");
    let lines: Vec<_> = text.split('\n').map(|line| without_middle(line, MAX_LINE)).collect();
    let text = lines.join("\n");
    match text.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

fn without_middle(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max || text.chars().nth(max).is_none() {
        return text.into();
    }
    let start = text.char_indices().nth(max / 2).map_or(text.len(), |(start, _)| start);
    let end = text.char_indices().nth_back(max - max / 2 - 1).map_or(0, |(end, _)| end);
    format!("{}…{}", &text[..start], &text[end..]).into()
}

/// Returns a cell of an export for people: an apostrophe is put before a text that a spreadsheet would take for a formula.
pub(crate) fn spreadsheet_cell(cell: &str) -> Cow<'_, str> {
    let is_formula = cell.len() > 1 && cell.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']);
    let shown = printable(cell);
    match is_formula && !cell.parse::<f64>().is_ok_and(f64::is_finite) {
        true => format!("'{shown}").into(),
        false => shown,
    }
}

/// Returns the text of a cell of a table in Markdown.
pub(crate) fn markdown_cell(text: &str) -> String {
    let mut cell = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '\n' | '\t' => cell.push(' '),
            '|' | '\\' | '`' | '*' | '[' | ']' | '<' | '>' | '&' => cell.extend(['\\', c]),
            _ => cell.push(c),
        }
    }
    cell
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn harmful_characters_are_visible() {
        assert_eq!(printable("\u{1b}]0;title\u{7}\t\u{9b}µ 中\r\n"), "\\x1b]0;title\\x07\t\\x9bµ 中\\r\n");
        assert_eq!(printable("a\u{202e}b\u{feff}\u{2028}"), "a\\u{202e}b\\u{feff}\\u{2028}");
        assert_eq!(printable_cell("a\tb\nc"), "a\\tb\\nc");
        assert_eq!(printable_json("{\"a\":\"\u{202e}\u{9b}x\"}"), "{\"a\":\"\\u202e\\u009bx\"}");
        assert_eq!(markdown_cell("<b>|`x`\n[a](b)"), "\\<b\\>\\|\\`x\\` \\[a\\](b)");
    }

    #[test]
    fn long_quotations_and_lines_have_no_middle() {
        let long = "x".repeat(1_000_000);
        let half = "x".repeat(100);
        let message = short_message(&format!("`{long}` is no name in `short`"), MAX_QUOTED).into_owned();
        assert_eq!(message, format!("`{half}…{half}` is no name in `short`"));
        assert_eq!(short_message(&long, MAX_QUOTED).chars().count(), MAX_LINE + 1);
        assert_eq!(short_message(&"µ\n".repeat(MAX_MESSAGE), MAX_QUOTED).chars().count(), MAX_MESSAGE + 1);
        assert_eq!(without_middle("µabcµ", 3), "µ…cµ");
    }

    #[test]
    fn formulas_become_texts_and_numbers_stay() {
        let cells = ["=1+1", "@sum", "-0.5", "+3", "-", "-x", "a=b", "\t=1"].map(spreadsheet_cell);
        assert_eq!(cells, ["'=1+1", "'@sum", "-0.5", "+3", "-", "'-x", "a=b", "'\t=1"]);
    }

    proptest! {
        #[test]
        fn nothing_harmful_is_printed(text in "[\\PC\\x00-\\x1f\\x7f-\\x9f\u{202a}-\u{202e}\u{2066}\u{e0001}`=]{0,40}") {
            let shown = [printable(&text), spreadsheet_cell(&text), markdown_cell(&text).into()];
            prop_assert!(shown.iter().all(|shown| !shown.contains(is_harmful)));
            prop_assert!(!printable_cell(&text).contains(is_harmful_in_cell));
            let record = serde_json::json!({ "text": text }).to_string();
            let json = printable_json(&record);
            prop_assert!(!json.contains(is_harmful));
            prop_assert_eq!(&serde_json::from_str::<serde_json::Value>(&json).expect("JSON")["text"], text.as_str());
        }
    }
}
