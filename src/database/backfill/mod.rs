//! Merge of a dump of fused attention calls into the rows of its kernel.
//!
//! A row gets only the values on which all calls with its shapes agree. If the calls differ, as decoding steps do in
//! their lengths, the row keeps these values open, because its duration is a mean over unknown lengths; separate rows
//! can be added for these calls, to be measured. Cells with a value are not changed.

use std::collections::{BTreeMap, HashSet};

use schemars::JsonSchema;
use serde::Serialize;

use super::{
    Database, DatabaseError, KernelCsv, RowCase,
    columns::{self, COMPLETENESS, SOURCE},
    row_cases::row_cases,
};
use crate::{
    kernel::{
        AttentionCall, AttentionCase, CacheState, Case, CaseAttributes, KernelName, RUNTIME,
        attention_attribute, best_shape_matches, common_attributes,
    },
    profile::AttentionDump,
};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct FilledRow {
    /// Line of the row in the file before the merge.
    pub line: u64,
    pub filled: usize,
    /// Number of calls of the dump that match the row's shapes and attributes.
    pub calls: usize,
    /// `complete`, or the missing attributes.
    pub completeness: String,
    #[serde(skip)]
    pub(crate) is_complete: bool,
    /// Reason why attributes stay open or unchanged.
    pub remark: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BackfillReport {
    pub rows: Vec<FilledRow>,
    pub added: usize,
    pub unused: usize,
}

impl FilledRow {
    /// Returns true if the row was complete before and no call of the dump fits it.
    pub(crate) fn is_untouched(&self) -> bool {
        self.filled == 0 && self.calls == 0 && self.remark.is_none() && self.is_complete
    }
}

impl BackfillReport {
    pub(crate) fn complete_rows(&self) -> usize {
        self.rows.iter().filter(|row| row.is_complete).count()
    }
}

const DUMPED: &str = "dump of a serving process";

/// Merges a dump into a table, which is not saved; `add_variants` adds a row for each call whose values no row has.
pub(super) fn backfill_table(
    table: &mut KernelCsv,
    dump: &AttentionDump,
    add_variants: bool,
) -> Result<BackfillReport, DatabaseError> {
    let rows = row_cases(&attention_kernel(), table)?;
    let mut merge = DumpMerge {
        known: rows.iter().filter_map(|row| Some(row.case.as_ref().ok()?.signature())).collect(),
        used: HashSet::new(),
        firsts: BTreeMap::new(),
        dump,
        done: BackfillReport::default(),
    };
    for row in rows {
        match &row.case {
            Ok(case) => merge.merge_row(table, &row, case)?,
            Err(problem) => merge.done.rows.push(FilledRow {
                line: row.line,
                filled: 0,
                calls: 0,
                completeness: format!("unreadable: {problem}"),
                is_complete: false,
                remark: None,
            }),
        }
    }
    if add_variants {
        merge.add_variants(table)?;
    }
    merge.done.unused = dump.call_count() - merge.used.len();
    Ok(merge.done)
}

struct DumpMerge<'a> {
    known: HashSet<String>,
    used: HashSet<DumpedCall<'a>>,
    /// The first row of each set of shapes, the template of rows for its calls.
    firsts: BTreeMap<String, (usize, Case)>,
    dump: &'a AttentionDump,
    done: BackfillReport,
}

type DumpedCall<'a> = (&'a AttentionCall, &'a CaseAttributes);

impl<'a> DumpMerge<'a> {
    fn merge_row(&mut self, table: &mut KernelCsv, row: &RowCase, case: &Case) -> Result<(), DatabaseError> {
        let bare = Case { attributes: CaseAttributes::default(), ..case.clone() };
        self.firsts.entry(bare.signature()).or_insert_with(|| (row.row, case.clone()));
        let (fits, contradicted) = self.matching_calls(case);
        let common = common_attributes(fits.iter().copied());
        let filled = Case { attributes: case.attributes.merged_over(&common), ..case.clone() };
        let is_news = filled.attributes != case.attributes;
        let is_taken = filled.signature() != case.signature() && self.known.contains(&filled.signature());
        let refusal = if is_news && is_measured(table, row) {
            Some("measured before they were known")
        } else if is_taken {
            Some("another row has the values of the dump; remove the older one")
        } else if is_news
            && cell_value(table, row.row, COMPLETENESS).is_some_and(|cell| differing_calls(&cell).is_some())
        {
            Some("calls of an earlier dump differ")
        } else {
            None
        };
        let described = if refusal.is_some() { case } else { &filled };
        let kernel = AttentionCase::new(described);
        let missing = kernel.missing_attributes();
        let is_disputed = missing.iter().any(|name| fits.iter().any(|fit| fit.get(name).is_some()));
        let remark = match (refusal, contradicted) {
            (Some(refusal), _) => Some(refusal.to_owned()),
            (None, _) if is_disputed => Some(differ_text(fits.len())),
            (None, contradicted) => contradicted.map(|name| format!("other calls contradict its `{name}`")),
        };
        let (completeness, is_complete) = (kernel.completeness(), missing.is_empty());
        let mut filled_count = 0;
        if refusal.is_none() && !fits.is_empty() {
            self.known.insert(filled.signature());
            let cell = match &remark {
                Some(remark) if !is_complete => format!("{completeness} ({remark})"),
                _ => completeness.clone(),
            };
            filled_count = fill_row(table, row.row, &common, &cell)?;
        }
        let (line, calls, filled) = (row.line, fits.len(), filled_count);
        self.done.rows.push(FilledRow { line, filled, calls, completeness, is_complete, remark });
        Ok(())
    }

    /// Returns the attributes of the calls that match shapes and attributes of a case, and an attribute in which
    /// other calls with its shapes contradict it.
    fn matching_calls(&mut self, case: &Case) -> (Vec<&'a CaseAttributes>, Option<String>) {
        let mut contradicted = None;
        let mut fits = Vec::new();
        for (call, variants) in best_shape_matches(case, self.dump.0.iter(), |(call, _)| call) {
            for variant in variants {
                if let Some(name) = case.attributes.find_contradiction(variant) {
                    contradicted.get_or_insert_with(|| name.to_owned());
                } else {
                    self.used.insert((call, variant));
                    fits.push(variant);
                }
            }
        }
        (fits, contradicted)
    }

    fn add_variants(&mut self, table: &mut KernelCsv) -> Result<(), DatabaseError> {
        for (like, case) in std::mem::take(&mut self.firsts).into_values() {
            for (call, variants) in best_shape_matches(&case, self.dump.0.iter(), |(call, _)| call) {
                for variant in variants {
                    self.used.insert((call, variant));
                    let attributes = variant.merged_over(&case.attributes);
                    let variant = Case { attributes, ..case.clone() };
                    if self.known.insert(variant.signature()) {
                        append_variant(table, like, &variant)?;
                        self.done.added += 1;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Remark about calls with different values, which stands in parentheses at the end of a cell of [`COMPLETENESS`].
fn differ_text(calls: usize) -> String {
    format!("{calls} calls of the dump differ")
}

fn differing_calls(cell: &str) -> Option<usize> {
    let (_, remark) = cell.strip_suffix(')')?.rsplit_once(" (")?;
    let calls = remark.split_once(' ')?.0.parse().ok()?;
    (differ_text(calls) == remark).then_some(calls)
}

fn cell_value(table: &KernelCsv, row: usize, column: &str) -> Option<String> {
    table.cell_text(row, column).filter(|cell| CaseAttributes::has_value(cell))
}

fn is_measured(table: &KernelCsv, row: &RowCase) -> bool {
    CacheState::ALL.iter().any(|cache| row.cells(*cache).shown.is_some())
        || ["MicroBench Verdict", "MicroBench Cold Verdict", "MicroBench Case"]
            .iter()
            .any(|column| table.cell_text(row.row, column).is_some_and(|cell| !cell.trim().is_empty()))
}

fn attention_kernel() -> KernelName {
    KernelName::new(AttentionCase::KERNEL).unwrap_or_else(|_| unreachable!("a name"))
}

fn fill_row(
    table: &mut KernelCsv,
    row: usize,
    attributes: &CaseAttributes,
    completeness: &str,
) -> Result<usize, DatabaseError> {
    let cell = |column: &str| cell_value(table, row, column);
    // Tables of older tools have the mean length in `avg_seq_len`.
    let is_open = |name: &str| {
        cell(name).is_none() && (name != attention_attribute::AVG_SEQ_LEN || cell("avg_seq_len").is_none())
    };
    let news = attributes.iter().filter(|(name, _)| is_open(name));
    let mut cells: Vec<(&str, String)> = news.map(|(name, value)| (name, value.to_owned())).collect();
    let count = cells.len();
    match cell(SOURCE) {
        Some(source) if count > 0 && !source.contains(DUMPED) => {
            cells.push((SOURCE, format!("{source}; {DUMPED}")));
        }
        None if count > 0 => cells.push((SOURCE, DUMPED.to_owned())),
        _ => {}
    }
    // The text of another tool is kept.
    if cell(COMPLETENESS).is_none_or(|text| text == "complete" || text.starts_with("partial:")) {
        cells.push((COMPLETENESS, completeness.to_owned()));
    }
    table.update_row(row, &cells)?;
    Ok(count)
}

fn append_variant(table: &mut KernelCsv, like: usize, case: &Case) -> Result<(), DatabaseError> {
    let header = table.column_names().to_vec();
    let kept = |name: &str| {
        columns::SIGNATURE.contains(&name)
            || matches!(name, columns::STATE | columns::CORE)
            || (name.starts_with(RUNTIME)
                && CaseAttributes::name_of(name).is_none()
                && !matches!(name, SOURCE | COMPLETENESS))
    };
    let of_row = table.row_cells(like)?;
    let copied = header.iter().zip(of_row.iter()).filter(|(name, _)| kept(name));
    let mut cells: Vec<(&str, String)> =
        copied.map(|(name, cell)| (name.as_str(), cell.to_owned())).collect();
    cells.extend(case.attributes.iter().map(|(name, value)| (name, value.to_owned())));
    cells.push((SOURCE, DUMPED.to_owned()));
    cells.push((COMPLETENESS, AttentionCase::new(case).completeness()));
    table.append_row(&cells);
    Ok(())
}

pub(crate) fn backfill_database(
    database: &Database,
    dump: &AttentionDump,
    add_variants: bool,
) -> Result<BackfillReport, DatabaseError> {
    let kernel = attention_kernel();
    if !database.has_table(&kernel)? {
        return Err(DatabaseError::NoRowsOfKernel { path: database.folder().to_owned(), kernel });
    }
    let mut lock = database.lock()?;
    let mut table = database.kernel_csv(&kernel)?;
    let done = backfill_table(&mut table, dump, add_variants)?;
    if table.is_changed() {
        database.initialise(&mut lock)?;
        table.save()?;
    }
    Ok(done)
}

#[cfg(test)]
mod tests;
