//! Files that are named like a table and are none: other encodings and separators.

use csv::ByteRecord;

const MAX_LENGTH: usize = 60;

pub(crate) fn quote_cell(text: &str) -> String {
    let mut shown = String::new();
    for (index, character) in text.chars().enumerate() {
        if index == MAX_LENGTH {
            shown.push('…');
            break;
        }
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

pub(crate) fn encoding_problem(bytes: &[u8]) -> Option<&'static str> {
    let is_utf16 = bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff");
    is_utf16.then_some("is UTF-16, expected UTF-8")
}

pub(crate) fn separator_problem(header: &ByteRecord) -> Option<String> {
    let only = header.get(0).filter(|_| header.len() == 1)?;
    let only = String::from_utf8_lossy(only);
    let separator = [';', '\t'].into_iter().find(|separator| only.contains(*separator))?;
    Some(format!("`{}` has no comma; is the table separated by {separator:?}?", quote_cell(only.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_encodings_and_separators_are_named() {
        assert_eq!(encoding_problem(b"\xff\xfeA\0"), Some("is UTF-16, expected UTF-8"));
        assert_eq!(encoding_problem("A,µ\n".as_bytes()), None);
        let separator = |cells: &[&str]| separator_problem(&ByteRecord::from(cells.to_vec()));
        assert_eq!(
            separator(&["A;B"]).as_deref(),
            Some("`A;B` has no comma; is the table separated by ';'?")
        );
        assert_eq!([separator(&["A;B", "C"]), separator(&["A"])], [None, None]);
    }
}
