//! The one way in which a command prints its answer: a list of records, as JSON lines or as a text made from them.

use serde_json::value::to_raw_value;

use super::prelude::*;
use crate::{base::printable::spreadsheet_cell, show::terminal::print_paged};

/// Form of a command's output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OutputFormat {
    /// Text and tables for reading
    #[default]
    Plain,
    /// JSON Lines: one object per line
    Json,
}

/// Declares a record that is printed as JSON: each key with its type and its value, after what the values have in common.
macro_rules! record {
    ($(#[$attribute:meta])* $visible:vis $name:ident$(<$lifetime:lifetime>)?($($input:ident: $of:ty),*)
    $(with { $($common:tt)* })? { $($(#[$of_key:meta])* $open:vis $key:ident: $type:ty = $value:expr,)* }) => {
        $(#[$attribute])*
        #[derive(serde::Serialize)]
        $visible struct $name $(<$lifetime>)? { $($(#[$of_key])* $open $key: $type,)* }

        impl $(<$lifetime>)? $name $(<$lifetime>)? {
            $visible fn new($($input: $of),*) -> Self {
                $($($common)*)?
                Self { $($key: $value,)* }
            }
        }
    };
}
pub(crate) use record;

/// Returns a record as JSON, for a list of records of several types. Panics if a key of a map is no text.
pub(crate) fn json_record(record: &impl Serialize) -> Box<RawValue> {
    to_raw_value(record).expect("records have texts as keys")
}

pub(crate) fn emit<R: Serialize>(
    format: OutputFormat,
    records: impl IntoIterator<Item = R>,
    text: impl FnOnce() -> String,
) {
    match format {
        OutputFormat::Json => print_data(&json_lines(records)),
        OutputFormat::Plain => print_data(&text()),
    }
}

pub(crate) fn emit_paged<R: Serialize>(
    format: OutputFormat,
    records: impl IntoIterator<Item = R>,
    text: impl FnOnce() -> String,
) {
    match format {
        OutputFormat::Json => emit(format, records, text),
        OutputFormat::Plain => print_paged(&text()),
    }
}

pub(crate) fn json_lines<R: Serialize>(records: impl IntoIterator<Item = R>) -> String {
    records.into_iter().map(|record| printable_json(json_record(&record).get()).into_owned() + "\n").collect()
}

pub(crate) fn note_simulated(kind: DataKind) {
    if kind == DataKind::Rehearsal {
        print_note("the durations of this database are simulated");
    }
}

/// Returns records as CSV for people: a spreadsheet shows each text as it is. Panics if they have different numbers of cells.
pub(crate) fn csv_text<R: AsRef<[String]>>(records: impl IntoIterator<Item = R>) -> String {
    let mut csv = csv::Writer::from_writer(Vec::new());
    for record in records {
        let cells = record.as_ref().iter().map(|cell| spreadsheet_cell(cell).into_owned());
        csv.write_record(cells).expect("records have the same number of cells");
    }
    let bytes = csv.into_inner().expect("memory can be written");
    String::from_utf8(bytes).expect("cells are texts")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        base::printable::is_harmful,
        kernel::render::html_text,
        show::{junit::escaped, table::rank},
    };

    proptest! {
        /// Names of others in each form of output: nothing of them controls a terminal, a page or a spreadsheet.
        #[test]
        fn hostile_names_are_shown_in_all_forms(
            name in "[=+@-]?(\\PC|[\\x00-\\x1f\\x7f-\\x9f<>&\"'|`]|\u{1b}\\[31m|\u{202e}|\u{200b}|\u{2028}){0,20}",
        ) {
            let table = Table::new([&name]).text(name.clone(), rank(0), |name| format!("{name} ")).print(None);
            prop_assert_eq!(table.lines().count(), 2);
            let mut plot = Plot::of_file(10.0, 10.0);
            plot.text((0.0, 0.0), "", &name);
            plot.upward_text((0.0, 0.0), &name);
            let json = json_lines([BTreeMap::from([(&name, &name)])]);
            let csv = csv_text([[name.clone(), "end".to_owned()]]);
            let svg = plot.finish();
            for shown in [&table, &json, &csv, &svg, &html_text(&name), &escaped(&name)] {
                prop_assert!(!shown.contains(is_harmful), "{shown:?}");
            }
            prop_assert!(!html_text(&name).contains(['<', '"']) && !escaped(&name).contains(['<', '"']));
            let back: BTreeMap<String, String> = serde_json::from_str(&json).expect("JSON");
            prop_assert_eq!(back.get(&name), Some(&name));
            let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(csv.as_bytes());
            let cell = reader.records().next().expect("a record").expect("readable")[0].to_owned();
            let is_number = cell.parse::<f64>().is_ok();
            prop_assert!(is_number || cell.len() < 2 || !cell.starts_with(['=', '+', '-', '@', '\t']), "{cell:?}");
        }
    }
}
