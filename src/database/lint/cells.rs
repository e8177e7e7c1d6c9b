//! Checks of cells: signatures, numbers, keys.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use csv::{ByteRecord, StringRecord};

use super::{FileIssues, LintIssueKind, join_list};
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
        collective_rows::{
            BANDWIDTH, CONTRACT_COLUMNS, CollectiveKey, CollectiveKeyColumns, DTYPE, DURATION, KEY_COLUMNS,
        },
        columns::{self, MeasureKind},
        row_cases::{RowColumns, RowProblem},
        zero_placeholders::ZeroFilled,
    },
    kernel::{
        CacheState, Case, CaseId, CaseMap, Dtype, KernelName, Tensor, TensorFormat, Verdict,
        parse_kernel_micros,
    },
};

pub(crate) struct KernelRows<'a> {
    header: &'a [String],
    kernel: Option<KernelName>,
    columns: Option<RowColumns>,
    measures: Vec<(usize, MeasureKind)>,
    verdicts: Vec<usize>,
    zeros: ZeroFilled,
    /// Line of the first row with zeros in place of missing measurements, and the numbers of these rows and zeros.
    zero_cells: Option<(u64, usize, usize)>,
    unknown_names: UnknownNames,
    seen: CaseMap<(u64, Range<usize>)>,
}

impl<'a> KernelRows<'a> {
    pub(crate) fn new(kernel: Option<&KernelName>, header: &'a [String]) -> Self {
        let verdicts =
            CacheState::ALL.iter().filter_map(|cache| columns::result_column(*cache, columns::VERDICT));
        let find = |name: &str| header.iter().position(|column| column == name);
        let measures = header.iter().enumerate();
        Self {
            header,
            // Rows of a file with an invalid name are compared as well.
            kernel: kernel.cloned().or_else(|| KernelName::new("unnamed").ok()),
            columns: RowColumns::find_columns(header).ok(),
            measures: measures.filter_map(|(at, name)| Some((at, columns::measured_kind(name)?))).collect(),
            verdicts: verdicts.filter_map(find).collect(),
            zeros: ZeroFilled::from_header(header),
            zero_cells: None,
            unknown_names: UnknownNames::default(),
            seen: CaseMap::default(),
        }
    }

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
                Err(problem) => {
                    let kind = match problem {
                        RowProblem::NoShapes => LintIssueKind::NoShapes,
                        RowProblem::Invalid(_) => LintIssueKind::Signature,
                    };
                    remarks.add_issue(place.line, kind, truncate_problem(&problem.to_string()));
                }
            }
        }
        let Ok(cells) = StringRecord::from_byte_record(record.clone()) else { return };
        let zeros = self.zeros.find_zeros(&cells);
        if !zeros.is_empty() {
            let (_, rows, count) = self.zero_cells.get_or_insert((place.line, 0, 0));
            *rows += 1;
            *count += zeros.len();
        }
        for &(index, measure) in &self.measures {
            if let Err(problem) = check_number(&cells[index], measure, zeros.contains(&index)) {
                let text = format!("`{}` {problem}", quote_cell(&self.header[index]));
                remarks.add_issue(place.line, LintIssueKind::Number, text);
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
            let differs = join_list(differs.into_iter());
            format!("the same signature as line {line}; different columns: {differs}")
        };
        remarks.add_issue(place.line, LintIssueKind::Duplicate, text);
    }

    pub(crate) fn report_rows_together(self, remarks: &mut FileIssues) {
        self.unknown_names.report(remarks);
        if let Some((first_line, rows, cells)) = self.zero_cells {
            let has = if rows == 1 { "has" } else { "have" };
            let text = format!(
                "{} from here on {has} 0 in place of measurements that do not exist ({}); `npubench db normalize` empties them",
                format_count(rows, "row"),
                format_count(cells, "cell")
            );
            remarks.add_issue(first_line, LintIssueKind::Zeros, text);
        }
    }
}

/// Types and formats that CANN does not have, each with its column, the line of its first row and the number of its rows.
#[derive(Debug, Default)]
struct UnknownNames(BTreeMap<(&'static str, String), (u64, usize)>);

impl UnknownNames {
    fn add_case(&mut self, case: &Case, line: u64) {
        let [_, input_dtypes, input_formats, _, output_dtypes, output_formats] = columns::SIGNATURE;
        let mut names = BTreeSet::new();
        for (slots, dtypes, formats) in
            [(&case.inputs, input_dtypes, input_formats), (&case.outputs, output_dtypes, output_formats)]
        {
            for Tensor { dtype, format, .. } in slots.iter().flatten() {
                if !dtype.is_of_cann() && !dtype.is_undefined() {
                    names.insert((dtypes, dtype.as_str().to_owned()));
                }
                if !format.is_of_cann() {
                    names.insert((formats, format.as_str().to_owned()));
                }
            }
        }
        for name in names {
            self.0.entry(name).or_insert((line, 0)).1 += 1;
        }
    }

    fn report(self, remarks: &mut FileIssues) {
        for ((column, name), (line, rows)) in self.0 {
            let is_dtype = [columns::SIGNATURE[1], columns::SIGNATURE[4]].contains(&column);
            let noun = if is_dtype { "type" } else { "format" };
            let otherwise = || format!("CANN has no such {noun}");
            let hint = match is_dtype {
                true => did_you_mean_or(&name, Dtype::cann_names(), otherwise),
                false => did_you_mean_or(&name, TensorFormat::cann_names(), otherwise),
            };
            let text = format!(
                "`{column}`: `{}` is not a known {noun}, {} from here on; {hint}",
                quote_cell(&name),
                format_count(rows, "row")
            );
            remarks.add_issue(line, LintIssueKind::UnknownName, text);
        }
    }
}

fn truncate_problem(problem: &str) -> String {
    const MAX_LENGTH: usize = 200;
    let text: String = problem.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    text.char_indices().nth(MAX_LENGTH).map_or(text.clone(), |(at, _)| format!("{}…", &text[..at]))
}

/// Greatest number of a counter that profiles have.
const MAX_NUMBER: f64 = 1e12;

fn check_number(cell: &str, measure: MeasureKind, may_be_zero: bool) -> Result<(), String> {
    let cell = cell.trim();
    if is_unmeasured(cell) {
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
        MeasureKind::Duration if value == 0.0 && may_be_zero => Ok(()),
        MeasureKind::Duration => match parse_kernel_micros(cell.as_bytes()) {
            Ok(_) => Ok(()),
            Err(problem) => Err(format!(
                "is `{}`, which {problem}; a cell that was not measured is empty",
                quote_cell(cell)
            )),
        },
        MeasureKind::Deviation | MeasureKind::Counter if value > MAX_NUMBER => {
            Err(format!("is `{}`, which is more than {MAX_NUMBER:e}", quote_cell(cell)))
        }
        _ => Ok(()),
    }
}

fn is_unmeasured(cell: &str) -> bool {
    matches!(cell.trim(), "" | "N/A" | "NA")
}

/// Number of the columns of [`CONTRACT_COLUMNS`] that belong to the key of a collective.
const KEY: usize = 4;

pub(crate) struct CollectiveRows<'a> {
    header: &'a [String],
    keys: CollectiveKeyColumns,
    seen: BTreeMap<CollectiveKey, u64>,
}

impl<'a> CollectiveRows<'a> {
    pub(crate) fn new(header: &'a [String]) -> Self {
        Self { header, keys: CollectiveKeyColumns::find(header), seen: BTreeMap::new() }
    }

    pub(crate) fn check_row(&mut self, record: &ByteRecord, line: u64, remarks: &mut FileIssues) {
        let Ok(cells) = StringRecord::from_byte_record(record.clone()) else { return };
        let cell = |name: &str| {
            let index = self.header.iter().position(|column| column == name)?;
            cells.get(index).map(str::trim)
        };
        let is_filled = |name: &str| cell(name).is_some_and(|cell| !is_unmeasured(cell));
        // Rows of production profiles, and of cases without an accepted measurement, have no numbers of their own.
        let may_be_unmeasured = !is_filled(DURATION)
            && !is_filled(BANDWIDTH)
            && (is_filled(columns::PROFILING[1]) || is_filled(columns::VERDICT));
        for name in CONTRACT_COLUMNS {
            let Some(cell) = cell(name) else { continue };
            let problem = match name {
                DURATION | BANDWIDTH if may_be_unmeasured => continue,
                _ if is_unmeasured(cell) => Err("is empty".to_owned()),
                DTYPE => Ok(()),
                DURATION => check_number(cell, MeasureKind::Duration, false),
                BANDWIDTH => check_number(cell, MeasureKind::Counter, false),
                _ => check_number(cell, MeasureKind::Count, false),
            };
            if let Err(problem) = problem {
                remarks.add_issue(line, LintIssueKind::Number, format!("`{name}` {problem}"));
            }
        }
        let Ok(key) = self.keys.key(record) else { return };
        if let Some(first) = self.seen.get(&key) {
            let columns = CONTRACT_COLUMNS[..KEY].join(", ");
            let values: Vec<&str> =
                KEY_COLUMNS.iter().filter_map(|name| cell(name)).filter(|cell| !cell.is_empty()).collect();
            let text = format!("the same {columns} as line {first}: {}", values.join(", "));
            remarks.add_issue(line, LintIssueKind::Duplicate, truncate_problem(&text));
        } else {
            self.seen.insert(key, line);
        }
    }
}
