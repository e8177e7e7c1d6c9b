//! Coverage of workloads by the rows before and after a run.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use crate::{
    answer::{
        coverage::{AnswerClass, CoverageAnalyzer},
        lookup_database::LookupDatabase,
        workload::Workload,
    },
    base::{
        assets::AssetFiles,
        command_error::CommandError,
        files::{ScratchFolder, entries},
    },
    database::{
        Database, DatabaseError, collective_rows, columns,
        ledger::{CaseRecord, Ledger, RunRecord},
    },
    kernel::{CaseId, catalogue::Catalogue},
};

#[derive(Clone, Debug)]
pub(crate) struct CoverageChange {
    pub(crate) workload: String,
    /// Class of answers, and its part of the time in percent before and after.
    pub(crate) classes: Vec<(String, Option<f64>, Option<f64>)>,
}

/// Returns the coverage of the workloads that `load` loads with and without the cases that this run was the first to
/// measure. The database is read only; without these rows it is a copy.
pub(crate) fn coverage_changes(
    database: &Database,
    ledger: &Ledger,
    record: &RunRecord,
    assets: &AssetFiles,
    load: impl Fn(&LookupDatabase, &CoverageAnalyzer<'_>) -> Result<Vec<Workload>, CommandError>,
) -> Result<Vec<CoverageChange>, CommandError> {
    let scratch = ScratchFolder::create().map_err(CommandError::no_temporary_folder)?;
    let before = scratch.path().join("before");
    copy_without(database, &first_measured(ledger, record)?, &before)?;
    let catalogue = Catalogue::load(assets)?;
    let [before, after] = [before.as_path(), database.folder()].map(|folder| -> Result<_, CommandError> {
        let database = LookupDatabase::open(folder, None)?;
        let analyzer = CoverageAnalyzer { engine: &database.engine, catalogue: &catalogue };
        let workloads = load(&database, &analyzer)?;
        let coverages = analyzer.answer_workloads(&workloads)?;
        let shares = coverages.iter().map(|coverage| {
            let totals = coverage.totals();
            let share = |class| totals.time_share(class).or_else(|| totals.count_share(class));
            (coverage.workload.name.clone(), AnswerClass::ALL.map(|class| Some(100.0 * share(class)?)))
        });
        Ok(shares.collect::<BTreeMap<String, [Option<f64>; 3]>>())
    });
    let (before, after) = (before?, after?);
    let changes = after.into_iter().map(|(workload, after)| {
        let before = before.get(&workload).copied().unwrap_or_default();
        let shares = AnswerClass::ALL.iter().zip(before).zip(after);
        let classes = shares.map(|((class, before), after)| (class.to_string(), before, after)).collect();
        CoverageChange { classes, workload }
    });
    Ok(changes.collect())
}

fn first_measured(ledger: &Ledger, record: &RunRecord) -> Result<BTreeSet<CaseId>, CommandError> {
    let measured_in = |run: &RunRecord| -> Result<BTreeSet<CaseId>, CommandError> {
        let is_measured =
            |case: &CaseRecord| case.attempts.iter().any(|attempt| attempt.outcome.verdict.has_samples());
        Ok(ledger.run_cases(&run.run)?.into_iter().filter(is_measured).map(|case| case.case).collect())
    };
    let mut first = measured_in(record)?;
    for run in ledger.list_runs()?.iter().filter(|run| run.started < record.started) {
        let known = measured_in(run)?;
        first.retain(|case| !known.contains(case));
    }
    Ok(first)
}

fn copy_without(database: &Database, cases: &BTreeSet<CaseId>, folder: &Path) -> Result<(), CommandError> {
    fs::create_dir_all(folder).map_err(DatabaseError::io("create", folder))?;
    let entries = entries(database.folder()).map_err(DatabaseError::io("list", database.folder()))?;
    for path in entries.into_iter().filter(|path| path.is_file()) {
        let copy = folder.join(path.file_name().unwrap_or_default());
        fs::copy(&path, copy).map_err(DatabaseError::io("copy", &path))?;
    }
    let copy = Database::open(folder)?;
    for kernel in copy.kernels_and_collectives()? {
        let Ok(mut table) = copy.kernel_csv(&kernel) else { continue };
        let mut numbers = table.column_names().to_vec();
        numbers.retain(|name| {
            name.starts_with("MicroBench ") || name == columns::AVERAGE || name == collective_rows::DURATION
        });
        let empty: Vec<(&str, String)> = numbers.iter().map(|name| (name.as_str(), String::new())).collect();
        for row in 0..table.len() {
            let case = table.cell_text(row, columns::CASE);
            if case.is_some_and(|case| cases.contains(&CaseId::from_stored(case.trim()))) {
                table.update_row(row, &empty)?;
            }
        }
        if table.is_changed() {
            table.save()?;
        }
    }
    Ok(())
}
