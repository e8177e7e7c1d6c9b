//! Filters of cases for a database: names of its tables, evidence of its ledger, and the cases of runs.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    base::command_error::CommandError,
    cases::plan::{FilterEvidence, FilteredTable, RowFilter},
    database::{
        Database,
        ledger::{CaseRecord, KnownCase, RunRecord},
        row_cases,
    },
    kernel::{
        CacheState, Case, CaseAttributes, CaseId, KernelName,
        case_filter::{CaseFilter, CaseValues, FilterNames},
        case_of_signature,
        catalogue::Catalogue,
        timestamp::Timestamp,
    },
    measure::{case_numbers::RunNumbers, evidence::MeasuredSide, run_options::RunOptions},
};

pub(crate) fn row_filter(
    text: Option<&str>,
    database: &Database,
    catalogue: &Catalogue,
    cache: CacheState,
) -> Result<Option<RowFilter>, CommandError> {
    let Some(text) = text else { return Ok(None) };
    let filter = CaseFilter::parse(text)?;
    let mut names = FilterNames::default();
    for kernel in database.kernels_and_collectives()? {
        names.add_columns(database.kernel_csv(&kernel)?.column_names().iter().map(String::as_str));
        catalogue.entry(&kernel).into_iter().for_each(|entry| names.add_dimensions(entry));
    }
    if filter.check_names(&names).is_err() {
        // A dimension of kernels that this database does not have. Parsing all entries takes time.
        let mut all = names.clone();
        catalogue.entries().for_each(|entry| all.add_dimensions(entry));
        filter.check_names(&all)?;
    }
    let mut evidence = FilterEvidence { now: Timestamp::now().0, ..FilterEvidence::default() };
    if let Some(ledger) = database.existing_ledger()? {
        evidence.starts = ledger.list_runs()?.into_iter().map(|run| (run.run, run.started)).collect();
        evidence.hosts = ledger.run_hosts()?;
        evidence.devices = ledger.measuring_devices(cache)?;
        if filter.used_names().contains("cause") {
            let verdicts = ledger.newest_row_verdicts(cache)?.into_iter();
            evidence.causes =
                verdicts.map(|(case, (_, outcome))| (case, outcome.reason.cause.name())).collect();
        }
    }
    Ok(Some(RowFilter { filter, evidence, cache }))
}

pub(crate) fn candidate_filter(
    text: Option<&str>,
    catalogue: &Catalogue,
) -> Result<Option<CaseFilter>, CommandError> {
    let Some(text) = text else { return Ok(None) };
    let filter = CaseFilter::parse(text)?;
    let mut names = FilterNames::default();
    let columns: Vec<String> = CaseAttributes::grid_columns().collect();
    names.add_columns(columns.iter().map(String::as_str));
    catalogue.entries().for_each(|entry| names.add_dimensions(entry));
    filter.check_names(&names)?;
    Ok(Some(filter))
}

pub(crate) fn run_cache(run: &RunRecord) -> Result<CacheState, CommandError> {
    Ok(RunOptions::of_run(run)?.cache)
}

/// Keeps the cases of a run that a filter selects. Their verdict, reason, devices, age and durations are those of the run.
pub(crate) fn filter_run_cases(
    text: &str,
    database: &Database,
    catalogue: &Catalogue,
    run: &RunRecord,
    (cases, numbers): (&mut Vec<CaseRecord>, &RunNumbers),
) -> Result<(), CommandError> {
    let Some(filter) = row_filter(Some(text), database, catalogue, run_cache(run)?)? else { return Ok(()) };
    let records: BTreeMap<&CaseId, &CaseRecord> = cases.iter().map(|case| (&case.case, case)).collect();
    let set_values_of_run = |id: &CaseId, values: &mut CaseValues<'_>| {
        let Some(record) = records.get(id) else { return };
        let outcome = record.outcome.as_ref();
        values.verdict = outcome.map(|outcome| outcome.verdict.as_str().to_owned());
        values.reason = outcome.map(|outcome| outcome.reason.to_string());
        values.cause = outcome.map(|outcome| outcome.reason.cause.name());
        let of_run = numbers.of_case(id);
        (values.median, values.mean) = (of_run.median_us, of_run.average_us);
        let measured = record.attempts.iter().filter(|attempt| attempt.outcome.verdict.has_samples());
        values.devices = measured.map(|attempt| attempt.device).collect();
        filter.set_run(values, &run.run);
    };
    let ledger_cases = cases.iter();
    let ledger_cases =
        ledger_cases.map(|record| (&record.case, record.kernel.clone(), record.signature.as_str()));
    let selected = filter_ledger_cases(&filter, database, catalogue, ledger_cases, &set_values_of_run)?;
    cases.retain(|case| selected.contains(&case.case));
    Ok(())
}

pub(crate) fn filter_sides(
    text: &str,
    database: &Database,
    catalogue: &Catalogue,
    cache: CacheState,
    [first, second]: [&mut MeasuredSide; 2],
) -> Result<(), CommandError> {
    let Some(filter) = row_filter(Some(text), database, catalogue, cache)? else { return Ok(()) };
    let known: BTreeMap<&CaseId, &KnownCase> = first.cases.iter().chain(&second.cases).collect();
    let cases = known.values().filter_map(|known| {
        Some((&known.case, KernelName::new(&known.kernel).ok()?, known.signature.as_str()))
    });
    let selected = filter_ledger_cases(&filter, database, catalogue, cases, &|_, _| ())?;
    [first, second].into_iter().for_each(|side| side.keep_cases(&selected));
    Ok(())
}

/// Cases have the values of their rows, changed by `adjust`; one without a row has those of its signature only.
fn filter_ledger_cases<'a>(
    filter: &RowFilter,
    database: &Database,
    catalogue: &Catalogue,
    cases: impl IntoIterator<Item = (&'a CaseId, KernelName, &'a str)>,
    adjust: &dyn Fn(&CaseId, &mut CaseValues<'_>),
) -> Result<BTreeSet<CaseId>, CommandError> {
    let mut selected = BTreeSet::new();
    let mut open: BTreeMap<KernelName, BTreeMap<&CaseId, &str>> = BTreeMap::new();
    for (id, kernel, signature) in cases {
        open.entry(kernel).or_default().insert(id, signature);
    }
    let tables = database.kernels_and_collectives()?;
    for (kernel, mut cases) in open {
        let entry = catalogue.entry(&kernel);
        if tables.contains(&kernel) {
            let table = database.kernel_csv(&kernel)?;
            let filtered = FilteredTable::new(filter, &table, entry);
            for row in row_cases(&kernel, &table)? {
                let Ok(case) = &row.case else { continue };
                let id = case.id();
                if cases.remove(&id).is_none() {
                    continue;
                }
                let mut values =
                    filtered.values(case, &id, (row.row, row.cells(filter.cache), row.production));
                adjust(&id, &mut values);
                if filtered.matches(&values) {
                    selected.insert(id.clone());
                }
            }
        }
        for (id, signature) in cases {
            let case = case_of_signature(&kernel, signature).unwrap_or_else(|| Case {
                kernel: kernel.clone(),
                inputs: Vec::new(),
                outputs: Vec::new(),
                attributes: CaseAttributes::default(),
            });
            let devices = filter.evidence.devices.get(id).cloned().unwrap_or_default();
            let mut values =
                CaseValues { case: Some(&case), id: Some(id), entry, devices, ..CaseValues::default() };
            adjust(id, &mut values);
            if filter.filter.matches(&values) {
                selected.insert(id.clone());
            }
        }
    }
    Ok(selected)
}
