//! `npubench reparse`: the collections of the ledger, assessed again from their artefacts.

use std::collections::BTreeMap;

use rayon::iter::{IntoParallelRefIterator as _, ParallelIterator as _};

use super::CommandError;
use crate::{
    catalogue::Catalogue,
    config::{AssetFiles, DeviceProfile},
    database::Database,
    domain::{CacheState, CaseId, CaseOutcome, ControlReading, IdentifiedCase, KernelName},
    engine::{AssessmentRules, ChangedCase, ReassessedCollection, find_changes, rewrite_rows},
    files::ScratchFolder,
    ledger::{AttemptChange, AttemptedCollection, Ledger},
    report::{AttemptDifference, LeftEvidence, ReparseReport, WrittenRows},
    verify::{LowClocks, Withdrawal},
};

/// Number of collections whose assessments are in memory at once.
const AT_ONCE: usize = 64;

/// Compares the attempts of a run, or of all runs, with their artefacts by the rules of this version. If it `writes`,
/// it replaces those that differ and writes the rows that follow from the ledger; else it writes nothing. The caller
/// holds the lock of the database.
pub(crate) fn reparse_runs(
    database: &Database,
    ledger: &mut Ledger,
    assets: &AssetFiles,
    run: Option<&str>,
    writes: bool,
) -> Result<ReparseReport, CommandError> {
    let catalogue = Catalogue::load(assets)?;
    let device = DeviceProfile::load(assets, database.device())?;
    let rules = AssessmentRules { catalogue: &catalogue, device: &device };
    let scratch = ScratchFolder::create().map_err(CommandError::no_temporary_folder)?;
    let mut report = ReparseReport::default();
    let mut changed = BTreeMap::new();
    let collections = ledger.attempted_collections(run)?;
    for collections in collections.chunks(AT_ONCE) {
        let assessed: Vec<Option<Result<ReassessedCollection, String>>> = collections
            .par_iter()
            .map(|collection| reassess(rules, database, collection, &scratch))
            .collect();
        for (collection, assessed) in collections.iter().zip(assessed) {
            let changes = match assessed {
                None => {
                    report.not_launched += 1;
                    continue;
                }
                Some(Ok(assessed)) => {
                    compare_controls(&mut report, ledger, collection, &assessed.controls, writes)?;
                    add_assessed(&mut report, ledger, collection, assessed)?
                }
                Some(Err(problem)) => {
                    report.left.push(left(collection, None, problem));
                    continue;
                }
            };
            if writes && !changes.is_empty() {
                ledger.replace_attempts(collection, &changes)?;
                for AttemptChange { case, kernel, new_case, .. } in changes {
                    add_changed(&mut changed, (case, collection.cache), &kernel, new_case)?;
                }
            }
        }
    }
    if writes {
        report.written = Some(write_rows(database, ledger, &catalogue, changed)?);
    }
    Ok(report)
}

/// Assesses a collection; `None` if it launched nothing, so that it may have no evidence.
fn reassess(
    rules: AssessmentRules<'_>,
    database: &Database,
    collection: &AttemptedCollection,
    scratch: &ScratchFolder,
) -> Option<Result<ReassessedCollection, String>> {
    let AttemptedCollection { collection: key, run, number, cache, archive, has_launches } = collection;
    let Some(digest) = archive else {
        let problem =
            "the ledger has no SHA-256 of its evidence, which was not written or is of an earlier version";
        return has_launches.then(|| Err(problem.to_owned()));
    };
    let unpacked = scratch.path().join(key.to_string());
    let assessed = rules.reassess(&database.collection_folder(run, *number), digest, *cache, &unpacked);
    // The scratch folder is removed in any case.
    let _ = std::fs::remove_dir_all(&unpacked);
    Some(assessed)
}

fn left(collection: &AttemptedCollection, case: Option<CaseId>, problem: String) -> LeftEvidence {
    LeftEvidence { run: collection.run.clone(), collection: collection.number, case, problem }
}

/// Counts a collection whose control kernels have other readings in the ledger, and replaces them if it `writes`.
fn compare_controls(
    report: &mut ReparseReport,
    ledger: &mut Ledger,
    collection: &AttemptedCollection,
    assessed: &[ControlReading],
    writes: bool,
) -> Result<(), CommandError> {
    let key = |reading: &ControlReading| (reading.device, reading.control, reading.end);
    let mut stored = ledger.controls(collection.collection)?;
    let mut assessed = assessed.to_vec();
    stored.sort_by_key(key);
    assessed.sort_by_key(key);
    if stored != assessed {
        report.other_controls += 1;
        if writes {
            ledger.set_controls(collection.collection, &assessed)?;
        }
    }
    Ok(())
}

/// Adds the differences of an assessment to the report; returns the changes of the ledger.
fn add_assessed(
    report: &mut ReparseReport,
    ledger: &Ledger,
    collection: &AttemptedCollection,
    assessed: ReassessedCollection,
) -> Result<Vec<AttemptChange>, CommandError> {
    let stored = ledger.collection_attempts(collection.collection)?;
    report.collections += 1;
    report.attempts += stored.len();
    let ReassessedCollection { attempts, left: cases, .. } = assessed;
    let changes = find_changes(stored, &attempts, cases.is_empty());
    report.left.extend(cases.into_iter().map(|(case, problem)| left(collection, Some(case), problem)));
    let AttemptedCollection { run, number, .. } = collection;
    report.differences.extend(changes.iter().map(|change| AttemptDifference::new(run, *number, change)));
    Ok(changes)
}

/// Cases whose attempts in a state of the cache changed, each with its kernel, and itself if it may have no row.
type ChangedCases = BTreeMap<(CaseId, CacheState), (KernelName, Option<IdentifiedCase>)>;

fn add_changed(
    changed: &mut ChangedCases,
    case: (CaseId, CacheState),
    kernel: &str,
    new_case: Option<IdentifiedCase>,
) -> Result<(), CommandError> {
    let kernel = KernelName::new(kernel)?;
    let known = changed.entry(case).or_insert((kernel, None));
    known.1 = known.1.take().or(new_case);
    Ok(())
}

/// Compares the clocks of all collections if attempts changed, as the next run would, and writes the rows.
fn write_rows(
    database: &Database,
    ledger: &mut Ledger,
    catalogue: &Catalogue,
    mut changed: ChangedCases,
) -> Result<WrittenRows, CommandError> {
    let mut withdrawn = 0;
    if !changed.is_empty() {
        for &cache in CacheState::ALL {
            let withdrawals = LowClocks::from_ledger(ledger, cache)?.withdrawals(ledger, catalogue)?;
            withdrawn += withdrawals.len();
            let outcomes: Vec<(i64, CaseOutcome)> = withdrawals
                .iter()
                .map(|withdrawal| (withdrawal.attempt, withdrawal.outcome.clone()))
                .collect();
            if !outcomes.is_empty() {
                ledger.withdraw_attempts(&outcomes)?;
            }
            for Withdrawal { case, .. } in withdrawals {
                if let Some(kernel) = ledger.case_kernel(&case)? {
                    add_changed(&mut changed, (case, cache), &kernel, None)?;
                }
            }
        }
    }
    let mut cases = Vec::new();
    for ((case, cache), (kernel, new_case)) in changed {
        let verdicts = ledger.planned_verdicts(&case)?.into_iter().filter(|planned| planned.cache == cache);
        let verdict = verdicts.rev().find_map(|planned| Some((planned.run, planned.outcome?)));
        cases.push(ChangedCase { kernel, case, cache, verdict, new_case });
    }
    let written = rewrite_rows(database, ledger, &cases)?;
    let unwritten = written.unwritten.into_iter();
    let unwritten = unwritten.map(|(kernel, problem)| (kernel.as_str().to_owned(), problem)).collect();
    Ok(WrittenRows { rows: written.rows, withdrawn, unwritten })
}
