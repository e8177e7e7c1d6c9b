//! Bytes of unchanged rows, inserted and changed rows, and damaged tables.

use std::fs;

use csv::ReaderBuilder;

use proptest::prelude::*;

use super::*;
use crate::base::files::atomic::faults;

fn table(text: &str) -> KernelCsv {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("K.csv");
    fs::write(&path, text).expect("written");
    KernelCsv::load(&path).expect("a table")
}

fn printed(table: &KernelCsv) -> String {
    let mut bytes = Vec::new();
    table.write_to(&mut bytes).expect("memory");
    String::from_utf8(bytes).expect("UTF-8")
}

#[test]
fn unchanged_rows_keep_their_bytes() {
    let text = "\u{feff}A,\"B\",C\r\n\"\"\"1,2\"\"\",x,\r\n\"a\",\"multi\nline\",3\r\n1,2,3";
    let mut table = table(text);
    assert_eq!(table.len(), 3);
    assert_eq!(&table.row_cells(0).expect("UTF-8")[0], "\"1,2\"");
    assert!(table.update_row(2, &[("B", "9,9".to_owned())]).expect("UTF-8"));
    assert_eq!(printed(&table), text.replace("1,2,3", "1,\"9,9\",3\r\n"));
}

#[test]
fn appended_column_adds_empty_cells_to_other_rows() {
    let mut table = table("A,B\n1,2\n3,4\n");
    table.update_row(1, &[("New", "x".to_owned())]).expect("UTF-8");
    assert_eq!(printed(&table), "A,B,New\n1,2,\n3,4,x\n");
    table.update_row(1, &[("Other", "y".to_owned())]).expect("UTF-8");
    assert_eq!(printed(&table), "A,B,New,Other\n1,2,,\n3,4,x,y\n");
}

#[test]
fn rows_are_inserted_between_those_of_the_file() {
    for ending in ["", "\n"] {
        let mut table = table(&format!("a,b\n1,x\n 2 ,y\n3,z{ending}"));
        table.set_cells(1, vec!["2".to_owned(), "y".to_owned()]);
        let cells = |text: &str| vec![("b", text.to_owned())];
        let new = vec![(0, cells("first")), (1, cells("second")), (1, cells("third")), (3, cells("last"))];
        assert_eq!(table.insert_rows(&new), [0, 2, 3, 6]);
        assert_eq!(printed(&table), "a,b\n,first\n1,x\n,second\n,third\n2,y\n3,z\n,last\n");
        let mut seen = Vec::new();
        table.for_each_row(|row, cells| seen.push((row, cells.get(1).unwrap_or_default().to_vec())));
        let texts = ["first", "x", "second", "third", "y", "z", "last"];
        let expected: Vec<_> = texts.iter().map(|text| text.as_bytes().to_vec()).enumerate().collect();
        assert_eq!(seen, expected);
    }
}

#[test]
fn update_with_equal_cells_changes_nothing() {
    let mut table = table("A,B\n1,2\n");
    assert!(!table.update_row(0, &[("A", "1".to_owned())]).expect("UTF-8"));
    assert!(!table.save().expect("nothing to write"));
}

#[test]
fn ragged_and_doubled_files_are_refused_with_their_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("K.csv");
    for (text, expected) in [
        ("A,B\n1,2\n1\n", ":3: 1 field, the header has 2"),
        ("A,A\n1,2\n", ":1: a column name stands twice"),
        ("", ":1: the file is empty"),
        ("version https://git-lfs.github.com/spec/v1\noid x\n", "Git LFS pointer"),
    ] {
        fs::write(&path, text).expect("written");
        let error = KernelCsv::load(&path).expect_err("refused").to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn failed_system_call_leaves_each_of_several_tables_complete() {
    let folder = tempfile::tempdir().expect("a folder");
    let paths = ["A", "B", "C"].map(|name| folder.path().join(format!("{name}.csv")));
    let (old, new) = ("K,V\n1,2\n3,4\n", "K,V,W\n1,2,\n3,5,6\n");
    let save = |path: &Path| {
        let mut table = KernelCsv::load(path)?;
        table.update_row(1, &[("V", "5".to_owned()), ("W", "6".to_owned())])?;
        table.save()
    };
    let mut failures = 0;
    loop {
        paths.iter().for_each(|path| fs::write(path, old).expect("written"));
        faults::fail_after(failures);
        let result = paths.iter().try_for_each(|path| save(path).map(drop));
        let failed = faults::happened();
        assert_eq!(result.is_err(), failed);
        let contents = paths.each_ref().map(|path| fs::read_to_string(path).expect("it is there"));
        assert!(contents.iter().all(|content| content == old || content == new), "{contents:?}");
        assert!(contents.is_sorted_by_key(|content| content == old), "in their order: {contents:?}");
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), paths.len(), "a draft is left");
        // Saving again ends as if nothing had happened.
        assert!(paths.iter().all(|path| save(path).is_ok()));
        assert!(paths.iter().all(|path| fs::read_to_string(path).expect("there") == new));
        if !failed {
            break;
        }
        failures += 1;
    }
    assert_eq!(failures, 18, "six calls for each table");
}

proptest! {
    #[test]
    fn loading_and_printing_keep_every_byte(rows in proptest::collection::vec(("[a-z\",; ]{0,6}", "[a-z\",\n]{0,6}"), 0..8), crlf: bool) {
        let mut writer = WriterBuilder::new()
            .terminator(if crlf { Terminator::CRLF } else { Terminator::Any(b'\n') })
            .from_writer(Vec::new());
        writer.write_record(["A", "B"]).expect("memory");
        for (a, b) in &rows {
            writer.write_record([a, b]).expect("memory");
        }
        let text = String::from_utf8(writer.into_inner().expect("memory")).expect("UTF-8");
        let table = table(&text);
        prop_assert_eq!(table.len(), rows.len());
        prop_assert_eq!(printed(&table), text);
        for (index, (a, b)) in rows.iter().enumerate() {
            let cells = table.row_cells(index).expect("UTF-8");
            prop_assert_eq!((&cells[0], &cells[1]), (a.as_str(), b.as_str()));
        }
    }
}

proptest! {
    /// The parser of single rows agrees with the parser of whole tables.
    #[test]
    fn one_row_is_parsed_as_within_its_table(
        cells in proptest::collection::vec("[a-z,\"\n\r é]{0,6}", 2..6), newline in "\n|\r\n|\r", blank in "\n{0,2}"
    ) {
        let mut writer = WriterBuilder::new().from_writer(Vec::new());
        writer.write_record(&cells).expect("memory");
        let row = String::from_utf8(writer.into_inner().expect("memory")).expect("UTF-8");
        let row = row.strip_suffix('\n').expect("a line ending");
        for text in [format!("{blank}{row}{newline}"), format!("{blank}{row}")] {
            let mut reader = ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
            let mut expected = ByteRecord::new();
            reader.read_byte_record(&mut expected).expect("a row");
            prop_assert_eq!(parse_row(text.as_bytes()), expected);
        }
    }
}
