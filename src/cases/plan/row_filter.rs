//! Filters of the rows of a database.

use std::collections::BTreeMap;

use crate::{
    database::{KernelCsv, RowCells, columns},
    kernel::{
        CacheState, Case, CaseId, Nanos,
        case_filter::{CaseFilter, CaseValues},
        catalogue::CatalogueEntry,
    },
};

#[derive(Clone, Debug, Default)]
pub(crate) struct FilterEvidence {
    pub(crate) starts: BTreeMap<String, Nanos>,
    pub(crate) hosts: BTreeMap<String, String>,
    pub(crate) devices: BTreeMap<CaseId, Vec<u32>>,
    /// Names of the causes of the newest verdicts; empty if the filter does not compare them.
    pub(crate) causes: BTreeMap<CaseId, &'static str>,
    pub(crate) now: Nanos,
}

#[derive(Clone, Debug)]
pub(crate) struct RowFilter {
    pub(crate) filter: CaseFilter,
    pub(crate) evidence: FilterEvidence,
    pub(crate) cache: CacheState,
}

impl RowFilter {
    pub(crate) fn set_run(&self, values: &mut CaseValues<'_>, run: &str) {
        values.run = Some(run.to_owned());
        values.host = self.evidence.hosts.get(run).cloned();
        let start = self.evidence.starts.get(run);
        values.age = start.map(|start| self.evidence.now.0.saturating_sub(start.0) as f64 / 1e9);
    }
}

#[derive(Debug)]
pub(crate) struct FilteredTable<'a> {
    filter: &'a RowFilter,
    table: &'a KernelCsv,
    entry: Option<&'a CatalogueEntry>,
    columns: Vec<(&'a str, usize)>,
    verdict: Option<usize>,
    reason: Option<usize>,
}

impl<'a> FilteredTable<'a> {
    pub(crate) fn new(
        filter: &'a RowFilter,
        table: &'a KernelCsv,
        entry: Option<&'a CatalogueEntry>,
    ) -> Self {
        let names = filter.filter.used_names().into_iter();
        let index = |column| table.column_index(columns::result_column(filter.cache, column)?);
        Self {
            columns: names.filter_map(|name| Some((name, table.column_index(name)?))).collect(),
            verdict: index(columns::VERDICT),
            reason: index(columns::REASON),
            filter,
            table,
            entry,
        }
    }

    /// Returns the values of a row: its index, its cells, and the median in production.
    pub(crate) fn values<'c>(
        &self,
        case: &'c Case,
        id: &'c CaseId,
        (row, shown, production): (usize, &RowCells, Option<Nanos>),
    ) -> CaseValues<'c>
    where
        'a: 'c,
    {
        let cells = self.table.row_byte_cells(row);
        let text = |index: usize| {
            let cell = cells.get(index).and_then(|cell| std::str::from_utf8(cell).ok());
            cell.map(|cell| cell.trim().to_owned()).filter(|cell| !cell.is_empty())
        };
        let shown_verdict = shown.shown.as_ref().map(|shown| shown.verdict.as_str().to_owned());
        let mut values = CaseValues {
            case: Some(case),
            id: Some(id),
            entry: self.entry,
            verdict: self.verdict.and_then(text).or(shown_verdict),
            reason: self.reason.and_then(text),
            cause: self.filter.evidence.causes.get(id).copied(),
            devices: self.filter.evidence.devices.get(id).cloned().unwrap_or_default(),
            median: shown.median,
            mean: shown.average,
            production: production.map(|median| median.0 as f64 / 1e3),
            collections: shown.collections,
            cells: self
                .columns
                .iter()
                .filter_map(|(name, index)| Some(((*name).to_owned(), text(*index)?)))
                .collect(),
            ..CaseValues::default()
        };
        if let Some(run) = &shown.run {
            self.filter.set_run(&mut values, run);
        }
        values
    }

    pub(crate) fn matches(&self, values: &CaseValues<'_>) -> bool {
        self.filter.filter.matches(values)
    }
}
