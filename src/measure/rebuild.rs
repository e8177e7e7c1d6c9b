//! `npubench db rebuild`: a damaged ledger from its copy and the evidence, and the rows that tables have lost from the ledger alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    base::{
        assets::AssetFiles,
        command_error::CommandError,
        files::{ScratchFolder, file_digest, write_atomic_by},
    },
    database::{
        Database, DatabaseError,
        ledger::{
            Ledger, LedgerCopy, LedgerError, NewCollection, copy_path, copy_with_journal, journal_path,
        },
    },
    kernel::{
        CaseId, CollectionPurpose, IdentifiedCase, SoftwareFingerprint, case_of_signature,
        catalogue::Catalogue,
        render::{Manifest, files},
        timestamp::Timestamp,
    },
    measure::{
        engine::WrittenRows,
        evidence::missing_rows,
        recorder::EVENTS,
        reparse::{MissingKernelRows, compare_with_evidence, rebuild_rows, write_rows},
    },
};

/// Result of `npubench db rebuild`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RebuildReport {
    /// `None` for an intact ledger.
    pub(crate) restored: Option<RestoredLedger>,
    /// Cases with results in the ledger that had no row, by kernel.
    #[serde(rename = "missing_rows")]
    pub(crate) missing: Vec<MissingKernelRows>,
    /// `None` if nothing is written.
    pub(crate) written: Option<WrittenRows>,
}

/// Restoration of a damaged or lost ledger.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RestoredLedger {
    /// The damage, by SQLite.
    pub(crate) problem: String,
    /// Path of the damaged file after the rebuild; `None` if there was no file.
    pub(crate) kept: Option<PathBuf>,
    /// Runs with a folder that the copy lacks: they were killed before the ledger was copied, and their results are lost.
    pub(crate) lost_runs: Vec<String>,
    /// Number of collections that the copy lacked, and that the folders of their runs have.
    pub(crate) added_collections: usize,
    /// Number of collections that were compared with their evidence.
    pub(crate) compared_collections: usize,
    /// Number of attempts that were read from it, because the copy lacked them or had other values.
    pub(crate) changed_attempts: usize,
    /// Number of collections, or of their cases, whose evidence cannot be used.
    pub(crate) without_evidence: usize,
}

impl RebuildReport {
    /// Returns true if no row or table was lost, or remains so.
    pub(crate) fn is_complete(&self) -> bool {
        self.restored
            .as_ref()
            .is_none_or(|restored| restored.without_evidence == 0 && restored.lost_runs.is_empty())
            && self.missing.iter().all(|missing| missing.rebuilt == missing.cases)
            && self.written.as_ref().is_none_or(|written| written.unwritten.is_empty())
    }
}

/// Restores a damaged or lost ledger from its copy and the evidence, and adds the rows that the tables lack, with the ledger's
/// results. If it does not `write`, it works on copies and reports what it would do. The caller holds the lock of the database.
///
/// Fails if there is neither a ledger nor a copy, and if a damaged ledger has no intact copy; it is left as it is.
pub(crate) fn rebuild_database(
    database: &Database,
    assets: &AssetFiles,
    writes: bool,
) -> Result<RebuildReport, CommandError> {
    let path = database.ledger_path();
    let scratch = ScratchFolder::create().map_err(CommandError::no_temporary_folder)?;
    let catalogue = Catalogue::load(assets)?;
    let (mut restored, mut used) = (None, path.clone());
    if let Some(problem) = problem_of_ledger(database)? {
        let file = scratch.path().join("restored.db");
        let report = restore_ledger(database, problem, &file, (&catalogue, assets))?;
        if writes {
            replace_ledger(&path, &file, report.kept.as_deref())?;
        } else {
            used = file;
        }
        restored = Some(report);
    }
    let mut ledger = if writes { Ledger::open(&used)? } else { Ledger::open_to_read(&used)? };
    let order = ledger.planned_order()?;
    let lost = add_lost_rows(database, &ledger, &catalogue, &order, writes)?;
    let mut written = None;
    if writes {
        written = Some(write_rows(database, &mut ledger, &catalogue, &lost.insertable)?);
        ledger.write_copy()?;
    }
    Ok(RebuildReport { restored, missing: lost.missing, written })
}

/// Returns the damage of the ledger; `None` for an intact one. Fails for a database that never had a ledger.
fn problem_of_ledger(database: &Database) -> Result<Option<String>, CommandError> {
    let path = database.ledger_path();
    match Ledger::find_damage(&path) {
        Ok(None) if path.exists() => Ok(None),
        Ok(None) if copy_path(&path).exists() => Ok(Some("the file is missing".to_owned())),
        Ok(None) => Err(CommandError::bad_input(
            format!("`{}` has no ledger, from which its rows could be rebuilt", database.folder().display()),
            "a ledger is written by `npubench run`; rows of production profiles are read again by `npubench ingest PROFILE`",
        )),
        Ok(Some(problem)) | Err(LedgerError::Damaged { problem, .. }) => Ok(Some(problem)),
        Err(error) => Err(error.into()),
    }
}

/// Cases with results in the ledger that had no row.
#[derive(Debug)]
pub(crate) struct LostRows {
    pub(crate) missing: Vec<MissingKernelRows>,
    /// Cases that get their rows with their results: collectives, and those that no run planned.
    pub(crate) insertable: Vec<IdentifiedCase>,
}

/// Adds rows without results for the planned cases of the ledger that have none, if it `writes`, in the `order` of cases.
pub(crate) fn add_lost_rows(
    database: &Database,
    ledger: &Ledger,
    catalogue: &Catalogue,
    order: &BTreeMap<CaseId, usize>,
    writes: bool,
) -> Result<LostRows, CommandError> {
    let missing = missing_rows(database, ledger)?;
    let known = ledger.cases_with_prefix("")?.into_iter();
    let signatures: BTreeMap<CaseId, String> = known.map(|known| (known.case, known.signature)).collect();
    let mut lost = LostRows { missing: Vec::new(), insertable: Vec::new() };
    for rows in &missing {
        let found: BTreeMap<CaseId, IdentifiedCase> = rows
            .cases
            .iter()
            .filter_map(|id| {
                let case = IdentifiedCase::new(case_of_signature(&rows.kernel, signatures.get(id)?)?);
                (case.id() == id).then(|| (id.clone(), case))
            })
            .collect();
        let rebuilt =
            if writes { rebuild_rows(database, catalogue, rows, &found, order)? } else { found.len() };
        lost.missing.push(MissingKernelRows::new(rows, rebuilt));
        let is_inserted =
            |case: &&IdentifiedCase| case.kernel.is_collective() || !order.contains_key(case.id());
        lost.insertable.extend(found.values().filter(is_inserted).cloned());
    }
    Ok(lost)
}

/// Writes the ledger's copy into `file`, adds the collections that the folders of its runs have, and compares all collections with
/// their evidence.
fn restore_ledger(
    database: &Database,
    problem: String,
    file: &Path,
    (catalogue, assets): (&Catalogue, &AssetFiles),
) -> Result<RestoredLedger, CommandError> {
    let path = database.ledger_path();
    let copy = copy_path(&path);
    let checked = match copy.exists() {
        true => LedgerCopy::create(&copy, file).err().map(|error| error.to_string()),
        false => Some(format!("there is no copy `{}`", copy.display())),
    };
    if let Some(problem_of_copy) = checked {
        return Err(CommandError::bad_input(
            format!("the ledger `{}` is damaged: {problem}; and {problem_of_copy}", path.display()),
            format!(
                "keep it under another name: `mv '{0}' '{0}.damaged'`; the CSVs keep their results, and `npubench run` measures what \
                 is missing",
                path.display()
            ),
        ));
    }
    let mut ledger = Ledger::open(file)?;
    let lost_runs = runs_without_record(database, &ledger)?;
    let added_collections = add_recorded_collections(database, &mut ledger)?;
    let archived = ledger.archived_collections()?;
    let nothing_lost = BTreeSet::new();
    let evidence = (&archived[..], &nothing_lost);
    let compared = compare_with_evidence(database, &mut ledger, catalogue, assets, evidence, true)?.report;
    let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
    Ok(RestoredLedger {
        problem,
        kept: path.exists().then(|| path.with_added_extension(format!("damaged-{time}"))),
        lost_runs,
        added_collections,
        compared_collections: compared.collections,
        changed_attempts: compared.differences.len(),
        without_evidence: compared.left.len(),
    })
}

/// A line of a run's `events.jsonl` about a collection.
#[derive(Deserialize)]
struct CollectionEvent {
    at: Timestamp,
    event: String,
    collection: u32,
    devices: Vec<u32>,
    purpose: CollectionPurpose,
    predicted_s: Option<f64>,
    outcome: Option<String>,
}

/// Returns the runs that have a folder with events, and no record in a ledger.
fn runs_without_record(database: &Database, ledger: &Ledger) -> Result<Vec<String>, CommandError> {
    let recorded: BTreeSet<String> = ledger.list_runs()?.into_iter().map(|run| run.run).collect();
    let folder = database.state_folder().join("runs");
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => {
            read.and_then(Iterator::collect::<io::Result<Vec<_>>>).map_err(file_error("read", &folder))?
        }
    };
    let has_events = entries.iter().filter(|entry| entry.path().join(EVENTS).exists());
    let names = has_events.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut lost: Vec<String> = names.filter(|run| !recorded.contains(run)).collect();
    lost.sort();
    Ok(lost)
}

/// Adds the collections of known runs that a copy of the ledger lacks, as the files of the runs describe them; returns their number.
/// One without evidence, which a kill or a full disk left, has no attempts, so that its cases are measured again.
fn add_recorded_collections(database: &Database, ledger: &mut Ledger) -> Result<usize, CommandError> {
    let mut added = 0;
    for run in ledger.list_runs()? {
        let run = run.run;
        let known: BTreeSet<u32> =
            ledger.run_collections(&run)?.iter().map(|collection| collection.number).collect();
        let file = database.run_folder(&run).join(EVENTS);
        let events = match fs::read(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            read => read.map_err(file_error("read", &file))?,
        };
        let events = String::from_utf8_lossy(&events);
        let mut keys: BTreeMap<u32, i64> = BTreeMap::new();
        // Other events have other keys, and the last line may be cut off.
        for event in events.lines().filter_map(|line| serde_json::from_str::<CollectionEvent>(line).ok()) {
            let (number, Timestamp(at)) = (event.collection, event.at);
            let folder = database.collection_folder(&run, number);
            match (event.event.as_str(), keys.get(&number)) {
                ("collection_started", None) if !known.contains(&number) => {
                    let manifest = fs::read(folder.join(files::MANIFEST)).ok();
                    let manifest = manifest.and_then(|text| serde_json::from_slice::<Manifest>(&text).ok());
                    let Some(manifest) = manifest else { continue };
                    let key = ledger.begin_collection(&NewCollection {
                        run: &run,
                        number,
                        devices: &event.devices,
                        purpose: event.purpose,
                        cache: manifest.cache(),
                        predicted: event.predicted_s.unwrap_or_default(),
                        started: at,
                    })?;
                    keys.insert(number, key);
                    added += 1;
                }
                ("collection_finished", Some(&key)) => {
                    let outcome = event.outcome.unwrap_or_else(|| "done".to_owned());
                    ledger.finish_collection(key, at, &outcome, &SoftwareFingerprint::default(), &[])?;
                    if let Ok(digest) = file_digest(&folder.join(files::EVIDENCE)) {
                        ledger.set_archive(key, &digest)?;
                    }
                }
                _ => {}
            }
        }
    }
    Ok(added)
}

/// Replaces a damaged ledger, which is kept under another name with its journal.
fn replace_ledger(path: &Path, new: &Path, kept: Option<&Path>) -> Result<(), CommandError> {
    if let Some(kept) = kept {
        copy_with_journal(path, kept)
            .and_then(|_| fs::File::open(kept)?.sync_all())
            .map_err(file_error("keep", path))?;
    }
    let mut new = fs::File::open(new).map_err(file_error("read", new))?;
    // The journal of the damaged file must not be applied to the new one.
    match fs::remove_file(journal_path(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(file_error("remove the journal of", path)(error));
        }
        _ => {}
    }
    Ok(write_atomic_by(path, |out| io::copy(&mut new, out).map(|_| ())).map_err(DatabaseError::from)?)
}

fn file_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CommandError + use<> {
    let place = path.display().to_string();
    move |error| {
        CommandError::bad_input(
            format!("cannot {action} `{place}`: {error}"),
            "check free space and permissions; no content of the ledger was changed",
        )
    }
}
