//! Checks of cells: signatures, numbers, keys.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Range,
};

use csv::{ByteRecord, StringRecord};

use super::{FileIssues, LintIssueKind, join_list, row_count_text};
use crate::{
    base::{
        count_text::format_count,
        suggest::did_you_mean_or,
        table::{
            format::quote_cell,
            raw_records::{CsvPosition, RawRecords},
        },
    },
    database::{
        collective_rows,
        columns::{self, MeasureKind},
        row_cases::{NO_SHAPES, RowColumns},
        zero_placeholders::ZeroFilled,
    },
    kernel::{CacheState, Case, CaseId, CaseMap, Dtype, KernelName, Slot, TensorFormat, Verdict},
};

pub(crate) struct KernelRows<'a> {
    header: &'a [String],
    kernel: Option<KernelName>,
    /// `None` if a column of the signature is missing.
    columns: Option<RowColumns>,
    measures: Vec<(usize, MeasureKind)>,
    /// Columns of the verdicts.
    verdicts: Vec<usize>,
    zeros: ZeroFilled,
    zero_cells: ZeroCells,
    unknown_names: UnknownNames,
    seen: CaseMap<(u64, Range<usize>)>,
}

impl<'a> KernelRows<'a> {
    pub(crate) fn new(kernel: Option<&KernelName>, header: &'a [String]) -> Self {
        let find = |name: &str| header.iter().position(|column| column == name);
        let verdicts =
            CacheState::ALL.iter().filter_map(|cache| columns::result_column(*cache, columns::VERDICT));
        let measures = header.iter().enumerate();
        let measures =
            measures.filter_map(|(index, name)| Some((index, columns::measured_kind(name)?))).collect();
        Self {
            header,
            // Rows of a file with an invalid name are compared as well.
            kernel: kernel.cloned().or_else(|| KernelName::new("unnamed").ok()),
            columns: RowColumns::find_columns(header).ok(),
            measures,
            verdicts: verdicts.filter_map(find).collect(),
            zeros: ZeroFilled::from_header(header),
            zero_cells: ZeroCells::default(),
            unknown_names: UnknownNames::default(),
            seen: CaseMap::default(),
        }
    }

    /// Checks a row that is UTF-8 and has as many cells as the header.
    pub(crate) fn check_row(
        &mut self,
        bytes: &[u8],
        record: &ByteRecord,
        place: &CsvPosition,
        remarks: &mut FileIssues,
    ) {
        if let (Some(columns), Some(kernel)) = (&self.columns, &self.kernel) {
            match columns.parse_case(kernel, record) {
                Ok(case) => {
                    self.unknown_names.add_case(&case, place.line);
                    self.check_duplicate(case.id(), bytes, record, place, remarks);
                }
                Err(problem) if problem == NO_SHAPES => {
                    remarks.add_issue(place.line, LintIssueKind::NoShapes, problem);
                }
                Err(problem) => {
                    remarks.add_issue(place.line, LintIssueKind::Signature, truncate_problem(&problem));
                }
            }
        }
        let Ok(cells) = StringRecord::from_byte_record(record.clone()) else { return };
        let zeros = self.zeros.find_zeros(&cells);
        self.zero_cells.add_row(place.line, zeros.len());
        for &(index, measure) in &self.measures {
            if let Err(problem) = check_number(&cells[index], measure, zeros.contains(&index)) {
                remarks.add_issue(
                    place.line,
                    LintIssueKind::Number,
                    format!("`{}` {problem}", quote_cell(&self.header[index])),
                );
            }
        }
        for &index in &self.verdicts {
            let word = cells[index].trim();
            if !word.is_empty() && word.parse::<Verdict>().is_err() {
                let column = &self.header[index];
                let text = format!("`{column}` is `{}`, which is not a verdict", quote_cell(word));
                remarks.add_issue(place.line, LintIssueKind::Number, text);
            }
        }
    }

    fn check_duplicate(
        &mut self,
        case: CaseId,
        bytes: &[u8],
        record: &ByteRecord,
        place: &CsvPosition,
        remarks: &mut FileIssues,
    ) {
        let Some((line, range)) = self.seen.get(&case) else {
            self.seen.insert(case, (place.line, place.range.clone()));
            return;
        };
        let mut first = ByteRecord::new();
        RawRecords::new(&bytes[range.clone()]).read_record(&mut first);
        let columns = self.header.iter().zip(first.iter().zip(record));
        let differs: Vec<&str> =
            columns.filter(|(_, (one, other))| one != other).map(|(name, _)| name.as_str()).collect();
        let text = if differs.is_empty() {
            format!("the same row as line {line}")
        } else {
            format!(
                "the same signature as line {line}; different columns: {}",
                join_list(differs.into_iter())
            )
        };
        remarks.add_issue(place.line, LintIssueKind::Duplicate, text);
    }

    /// Adds the issues that rows of the table share: unknown types and formats, and zeros.
    pub(crate) fn report_rows_together(self, remarks: &mut FileIssues) {
        self.unknown_names.report(remarks);
        let ZeroCells { first_line, rows, cells } = self.zero_cells;
        if rows > 0 {
            let has = if rows == 1 { "has" } else { "have" };
            let text = format!(
                "{} from here on {has} 0 in place of measurements that do not exist ({}); `npubench db normalize` empties them",
                row_count_text(rows),
                format_count(cells, "cell")
            );
            remarks.add_issue(first_line, LintIssueKind::Zeros, text);
        }
    }
}

/// Zeros of a table in place of missing measurements.
#[derive(Debug, Default)]
struct ZeroCells {
    /// Line of the first row with such zeros.
    first_line: u64,
    rows: usize,
    cells: usize,
}

impl ZeroCells {
    fn add_row(&mut self, line: u64, cells: usize) {
        if cells == 0 {
            return;
        }
        if self.rows == 0 {
            self.first_line = line;
        }
        self.rows += 1;
        self.cells += cells;
    }
}

/// Types and formats that CANN does not have, each with its column, the line of its first row and the number of its rows.
#[derive(Debug, Default)]
struct UnknownNames(BTreeMap<(&'static str, String), (u64, usize)>);

impl UnknownNames {
    fn add_case(&mut self, case: &Case, line: u64) {
        let [_, input_dtypes, input_formats, _, output_dtypes, output_formats] = columns::SIGNATURE;
        let mut names = BTreeSet::new();
        add_unknown_names(&case.inputs, (input_dtypes, input_formats), &mut names);
        add_unknown_names(&case.outputs, (output_dtypes, output_formats), &mut names);
        for name in names {
            self.0.entry(name).or_insert((line, 0)).1 += 1;
        }
    }

    fn report(self, remarks: &mut FileIssues) {
        let is_dtype = |column| [columns::SIGNATURE[1], columns::SIGNATURE[4]].contains(&column);
        for ((column, name), (line, rows)) in self.0 {
            let (noun, hint) = if is_dtype(column) {
                ("type", did_you_mean_or(&name, Dtype::cann_names(), || "CANN has no such type".to_owned()))
            } else {
                let otherwise = || "CANN has no such format".to_owned();
                ("format", did_you_mean_or(&name, TensorFormat::cann_names(), otherwise))
            };
            let text = format!(
                "`{column}`: `{}` is not a known {noun}, {} from here on; {hint}",
                quote_cell(&name),
                row_count_text(rows)
            );
            remarks.add_issue(line, LintIssueKind::UnknownName, text);
        }
    }
}

/// Adds the types and formats of slots that CANN does not have, with their columns.
fn add_unknown_names(
    slots: &[Slot],
    (dtypes, formats): (&'static str, &'static str),
    found: &mut BTreeSet<(&'static str, String)>,
) {
    for tensor in slots.iter().flatten() {
        if !tensor.dtype.is_of_cann() && !tensor.dtype.is_undefined() {
            found.insert((dtypes, tensor.dtype.as_str().to_owned()));
        }
        if !tensor.format.is_of_cann() {
            found.insert((formats, tensor.format.as_str().to_owned()));
        }
    }
}

/// Truncates a message of the parser, which contains complete cells.
fn truncate_problem(problem: &str) -> String {
    const LONGEST: usize = 200;
    let text: String = problem.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    text.char_indices().nth(LONGEST).map_or(text.clone(), |(at, _)| format!("{}…", &text[..at]))
}

/// Returns true for digits with at most one point that are a positive number: most cells are, and parsing takes longer.
fn is_plain_positive(cell: &str, measure: MeasureKind) -> bool {
    const LONGEST: usize = 18;
    let mut points = 0;
    let mut is_positive = false;
    for byte in cell.bytes() {
        match byte {
            b'0' => {}
            b'1'..=b'9' => is_positive = true,
            b'.' => points += 1,
            _ => return false,
        }
    }
    is_positive && points <= usize::from(measure != MeasureKind::Count) && cell.len() <= LONGEST
}

/// Checks a measured cell. Cells without a measurement are empty or `N/A`.
fn check_number(cell: &str, measure: MeasureKind, may_be_zero: bool) -> Result<(), String> {
    let cell = cell.trim();
    if matches!(cell, "" | "N/A" | "NA") || is_plain_positive(cell, measure) {
        return Ok(());
    }
    let value: f64 = cell.parse().map_err(|_| format!("is `{}`, which is not a number", quote_cell(cell)))?;
    if !value.is_finite() {
        return Err(format!("is `{}`, which is not finite", quote_cell(cell)));
    }
    if value < 0.0 {
        return Err(format!("is `{}`, which is negative", quote_cell(cell)));
    }
    match measure {
        MeasureKind::Count if cell.parse::<u64>().is_err() => {
            Err(format!("is `{}`, which is not a whole number", quote_cell(cell)))
        }
        MeasureKind::Duration if value == 0.0 && !may_be_zero => {
            Err("is 0, which is not a duration; a cell that was not measured is empty".to_owned())
        }
        _ => Ok(()),
    }
}

pub(crate) struct CollectiveRows<'a> {
    header: &'a [String],
    /// Columns in the order of [`Self::COLUMNS`].
    columns: [Option<usize>; 6],
    seen: HashMap<Vec<String>, u64>,
}

impl<'a> CollectiveRows<'a> {
    /// Columns of the key, then the measured ones.
    pub(crate) const COLUMNS: [&'static str; 6] = collective_rows::CONTRACT_COLUMNS;
    /// Number of columns of the key that every table has.
    const KEY: usize = 4;

    pub(crate) fn new(header: &'a [String]) -> Self {
        let find = |name: &str| header.iter().position(|column| column == name);
        Self { header, columns: Self::COLUMNS.map(find), seen: HashMap::new() }
    }

    pub(crate) fn check_row(&mut self, record: &ByteRecord, line: u64, remarks: &mut FileIssues) {
        let Ok(cells) = StringRecord::from_byte_record(record.clone()) else { return };
        let is_filled = |name: &str| {
            let index = self.header.iter().position(|column| column == name);
            index
                .and_then(|index| cells.get(index))
                .is_some_and(|cell| !matches!(cell.trim(), "" | "N/A" | "NA"))
        };
        let [duration, bandwidth] = [collective_rows::DURATION, collective_rows::BANDWIDTH];
        // Rows of production profiles, and of cases without an accepted measurement, have no numbers of their own.
        let may_be_unmeasured = !is_filled(duration)
            && !is_filled(bandwidth)
            && (is_filled(columns::PROFILING[1]) || is_filled(columns::VERDICT));
        for (name, index) in Self::COLUMNS.into_iter().zip(self.columns) {
            let Some(cell) = index.map(|index| cells[index].trim()) else { continue };
            if may_be_unmeasured && (name == duration || name == bandwidth) {
                continue;
            }
            let problem = match name {
                _ if matches!(cell, "" | "N/A" | "NA") => Err("is empty".to_owned()),
                "dtype" => Ok(()),
                "Duration(us)" => check_number(cell, MeasureKind::Duration, false),
                "bandwidth_gbps" => check_number(cell, MeasureKind::Counter, false),
                _ => check_number(cell, MeasureKind::Count, false),
            };
            if let Err(problem) = problem {
                remarks.add_issue(line, LintIssueKind::Number, format!("`{name}` {problem}"));
            }
        }
        let Some(key) = Self::row_key(self.header, &cells) else { return };
        match self.seen.get(&key) {
            Some(first) => {
                let text = format!(
                    "the same {} as line {first}: {}",
                    Self::COLUMNS[..Self::KEY].join(", "),
                    key.join(", ")
                );
                remarks.add_issue(line, LintIssueKind::Duplicate, truncate_problem(&text));
            }
            None => {
                self.seen.insert(key, line);
            }
        }
    }

    /// Returns the key of a row; `None` if a column of the key is missing.
    pub(crate) fn row_key(header: &[String], cells: &StringRecord) -> Option<Vec<String>> {
        let cell = |name: &&str| {
            let index = header.iter().position(|column| column == name)?;
            Some(cells.get(index)?.trim().to_owned())
        };
        let mut key: Vec<String> = Self::COLUMNS[..Self::KEY].iter().map(cell).collect::<Option<_>>()?;
        for column in [collective_rows::ENVIRONMENT, collective_rows::PART_WEIGHTS] {
            key.extend(cell(&column).filter(|cell| !cell.is_empty()));
        }
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Cells that are not parsed are those whose parsing finds no problem.
        #[test]
        fn plain_positive_cells_are_numbers_of_their_kind(cell in "[0-9]{0,4}[.eE+ -]?[0-9]{0,20}[.]?") {
            for measure in [MeasureKind::Duration, MeasureKind::Deviation, MeasureKind::Counter, MeasureKind::Count] {
                if is_plain_positive(&cell, measure) {
                    prop_assert!(cell.parse::<f64>().is_ok_and(|value| value.is_finite() && value > 0.0), "{cell}");
                    prop_assert!(measure != MeasureKind::Count || cell.parse::<u64>().is_ok(), "{cell}");
                }
            }
        }
    }
}
