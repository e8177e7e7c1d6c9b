//! Checks of one table: format, header and row lengths.

use std::collections::HashMap;

use csv::ByteRecord;

use super::{
    FileIssues, LintIssueKind, TableContent,
    cells::{CollectiveRows, KernelRows},
    join_list,
};
use crate::{
    base::{
        count_text::format_count,
        table::{
            format::{encoding_problem, quote_cell, separator_problem},
            raw_records::{BOM, LFS, RawRecords, describe_raggedness, has_uniform_endings, line_ending},
        },
    },
    database::{
        REHEARSAL_RUN,
        collective_rows::{CONTRACT_COLUMNS, is_own_column},
        columns::{self, COMPUTE_COLUMNS},
        kernel_csv::{CUT_HEADER, is_cut_header},
    },
    kernel::DataKind,
};

const EMPTY: &str = "the file is empty, expected a header: restore it, or remove it, so that `npubench db rebuild` writes its measured rows";

pub(crate) fn check_table(
    content: &TableContent,
    stem: &str,
    kind: Option<DataKind>,
    bytes: &[u8],
    remarks: &mut FileIssues,
) {
    check_name(content, stem, remarks);
    if let Some((kind, text)) = find_format_issue(bytes) {
        remarks.add_issue(1, kind, text);
        return;
    }
    if bytes.starts_with(BOM) {
        let text = "starts with a byte-order mark, which hides the first column from some readers";
        remarks.add_issue(1, LintIssueKind::ByteOrderMark, text);
    }
    let mut records = RawRecords::new(bytes);
    let mut record = ByteRecord::new();
    let Some(place) = records.read_record(&mut record) else {
        remarks.add_issue(1, LintIssueKind::Empty, EMPTY);
        return;
    };
    if let Some(text) = separator_problem(&record) {
        // The rows were written with another separator.
        remarks.add_issue(place.line, LintIssueKind::NotCsv, text);
        return;
    }
    let newline = line_ending(&bytes[place.range.clone()]);
    let mut mixed = (!has_uniform_endings(&bytes[place.range.clone()], newline)).then_some(place.line);
    let header = check_header(content, &record, place.line, remarks);
    if is_cut_header(bytes, &place.range) {
        let text = format!("{CUT_HEADER}; restore the file from version control, or end the line");
        remarks.add_issue(place.line, LintIssueKind::CutHeader, text);
    }
    let mut rows = match content {
        TableContent::Collective => TableRows::Collectives(CollectiveRows::new(&header)),
        TableContent::Kernel(kernel) => {
            TableRows::Kernel(Box::new(KernelRows::new(kernel.as_ref(), &header)))
        }
    };
    let mut rehearsed: Option<(u64, usize)> = None;
    let run_id = memchr::memmem::Finder::new(REHEARSAL_RUN);
    let mut last = place;
    while let Some(place) = records.read_record(&mut record) {
        let raw = &bytes[place.range.clone()];
        if mixed.is_none() && !has_uniform_endings(raw, newline) {
            mixed = Some(place.line);
        }
        if run_id.find(raw).is_some() && record.iter().any(|cell| cell.starts_with(REHEARSAL_RUN.as_bytes()))
        {
            rehearsed.get_or_insert((place.line, 0)).1 += 1;
        }
        if let Some(problem) = describe_raggedness(record.len(), &header) {
            remarks.add_issue(place.line, LintIssueKind::Ragged, problem);
        } else if std::str::from_utf8(raw).is_err()
            && let Some(column) = record.iter().position(|cell| std::str::from_utf8(cell).is_err())
        {
            let name = quote_cell(&header[column]);
            let text = format!("`{name}` (column {}) is not UTF-8", column + 1);
            remarks.add_issue(place.line, LintIssueKind::NotUtf8, text);
        } else {
            match &mut rows {
                TableRows::Kernel(rows) => rows.check_row(bytes, &record, &place, remarks),
                TableRows::Collectives(rows) => rows.check_row(&record, place.line, remarks),
            }
        }
        last = place;
    }
    if mixed.is_none() && !has_uniform_endings(&bytes[last.range.end..], newline) {
        mixed = Some(last.line);
    }
    if is_open(&bytes[last.range.clone()]) {
        let text = "a quote in this row is not closed before the file ends";
        remarks.add_issue(last.line, LintIssueKind::OpenQuote, text);
    }
    if let Some(line) = mixed {
        let text = format!("the header ends in {newline:?}, this line does not");
        remarks.add_issue(line, LintIssueKind::LineEndings, text);
    }
    if let Some((line, count)) = rehearsed.filter(|_| kind == Some(DataKind::Npu)) {
        let text =
            format!("a rehearsed run wrote it ({}), in a folder of kind `npu`", format_count(count, "row"));
        remarks.add_issue(line, LintIssueKind::Rehearsed, text);
    }
    if let TableRows::Kernel(rows) = rows {
        rows.report_rows_together(remarks);
    }
}

enum TableRows<'a> {
    Kernel(Box<KernelRows<'a>>),
    Collectives(CollectiveRows<'a>),
}

/// Returns true if text after a record would belong to it, because a quote is open.
fn is_open(last: &[u8]) -> bool {
    let longer = [last, b"\nx"].concat();
    let mut records = RawRecords::new(&longer);
    let mut record = ByteRecord::new();
    records.read_record(&mut record).is_some() && records.read_record(&mut record).is_none()
}

fn check_name(content: &TableContent, stem: &str, remarks: &mut FileIssues) {
    let TableContent::Kernel(kernel) = content else { return };
    let Some(kernel) = kernel else {
        let text = format!(
            "`{}` is not a kernel name: control characters are not allowed, and `%` must precede two hexadecimal digits",
            quote_cell(stem)
        );
        remarks.add_issue(1, LintIssueKind::FileName, text);
        return;
    };
    if !kernel.may_have_file_stem(stem) {
        let (name, expected) = (quote_cell(kernel.as_str()), kernel.file_stem());
        let text = format!("is read as kernel `{name}`, whose file is `{expected}.csv`");
        remarks.add_issue(1, LintIssueKind::FileName, text);
    }
}

fn find_format_issue(bytes: &[u8]) -> Option<(LintIssueKind, String)> {
    if bytes.starts_with(LFS) {
        let text = "a Git LFS pointer, not the data; `git lfs pull` fetches it";
        return Some((LintIssueKind::LfsPointer, text.to_owned()));
    }
    if let Some(problem) = encoding_problem(bytes) {
        return Some((LintIssueKind::NotCsv, problem.to_owned()));
    }
    let at = memchr::memchr(0, bytes)?;
    let line = 1 + bytes[..at].iter().filter(|byte| **byte == b'\n').count();
    Some((LintIssueKind::NotCsv, format!("is not text: a NUL byte in line {line}")))
}

fn check_header(
    content: &TableContent,
    record: &ByteRecord,
    line: u64,
    remarks: &mut FileIssues,
) -> Vec<String> {
    let header: Vec<String> =
        record.iter().map(|name| String::from_utf8_lossy(name).trim().to_owned()).collect();
    if let Some(column) = record.iter().position(|name| std::str::from_utf8(name).is_err()) {
        let text = format!("the name of column {} is not UTF-8", column + 1);
        remarks.add_issue(line, LintIssueKind::NotUtf8, text);
    }
    let mut columns: HashMap<&str, usize> = HashMap::new();
    for (column, name) in header.iter().enumerate() {
        let first = *columns.entry(name).or_insert(column);
        if first < column {
            let text =
                format!("`{}` is the name of columns {} and {}", quote_cell(name), first + 1, column + 1);
            remarks.add_issue(line, LintIssueKind::DoubleColumn, text);
        }
    }
    let has = |name: &str| header.iter().any(|column| column == name);
    let needed: &[&str] = match content {
        TableContent::Kernel(_) => &columns::SIGNATURE,
        TableContent::Collective => &CONTRACT_COLUMNS,
    };
    let missing: Vec<&str> = needed.iter().copied().filter(|name| !has(name)).collect();
    if !missing.is_empty() {
        let text = format!("the header lacks {}", join_list(missing.into_iter()));
        remarks.add_issue(line, LintIssueKind::NoColumn, text);
    }
    let is_old = |name: &str| name == columns::OLD_AVERAGE && !has(columns::AVERAGE);
    if matches!(content, TableContent::Kernel(_)) {
        if header.iter().any(|name| is_old(name)) {
            let text = format!("`{}` is now called `{}`", columns::OLD_AVERAGE, columns::AVERAGE);
            remarks.add_issue(line, LintIssueKind::OldColumn, text);
        }
        let absent = COMPUTE_COLUMNS.iter().map(String::as_str);
        let absent: Vec<&str> = absent.filter(|name| !needed.contains(name) && !has(name)).collect();
        if !absent.is_empty() {
            let (count, names) = (absent.len(), join_list(absent.into_iter()));
            let text = format!("{count} of the 62 columns are missing: {names}");
            remarks.add_issue(line, LintIssueKind::MissingColumns, text);
        }
    }
    let is_own = |name: &str| match content {
        TableContent::Kernel(_) => !columns::is_contract_column(name) && !is_old(name),
        TableContent::Collective => !needed.contains(&name) && !is_own_column(name),
    };
    let own: Vec<&str> = header.iter().map(String::as_str).filter(|name| is_own(name)).collect();
    if !own.is_empty() {
        let text = format!("not in the contract, kept as they are: {}", join_list(own.into_iter()));
        remarks.add_issue(line, LintIssueKind::OwnColumn, text);
    }
    header
}
