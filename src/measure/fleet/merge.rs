//! `npubench db merge`: the results of several databases in one.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use schemars::JsonSchema;
use serde::Serialize;

use super::{
    ShardPlan,
    evidence_files::{Archives, copy_evidence_files},
    shard_plan::all_shards,
};
use crate::{
    base::{
        assets::AssetFiles,
        command_error::CommandError,
        files::{ScratchFolder, file_digest, write_atomic_by},
        shell_argument::quoted_path,
    },
    database::{
        Database, DatabaseError, ShardIdentity, check_new_folder,
        database_file::DatabaseFile,
        ledger::{Ledger, LedgerCopy, LedgerError, LedgerSize, check_not_lost, copy_path, merge_ledgers},
    },
    kernel::{
        CacheState, CaseId, DataKind, KernelName, Nanos, SoftwareFingerprint, case_of_signature,
        catalogue::Catalogue,
    },
    measure::{
        engine::{WrittenRows, rewrite_rows},
        evidence::{HostLevel, host_levels},
        reparse::{MissingKernelRows, add_lost_rows},
        run_plan::{expert_skew_of, run_with_other_skew},
    },
};

#[derive(Debug)]
pub(crate) struct MergeRequest<'a> {
    pub(crate) into: &'a Path,
    pub(crate) from: &'a [PathBuf],
    pub(crate) assets: &'a AssetFiles,
    pub(crate) writes: bool,
    pub(crate) skips_used: bool,
}

/// What a merge found and wrote.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct MergeReport {
    /// Folders whose ledgers were merged, with their sizes; the first is the target if it had a ledger.
    pub(crate) ledgers: Vec<MergedLedger>,
    pub(crate) without_ledger: Vec<PathBuf>,
    /// Databases that another npubench writes.
    pub(crate) in_use: Vec<DatabaseInUse>,
    pub(crate) before: LedgerSize,
    pub(crate) after: LedgerSize,
    /// True if the ledger of the target has the union already, byte by byte.
    pub(crate) is_unchanged: bool,
    /// Number of collections whose evidence was copied.
    #[serde(rename = "copied_collections")]
    pub(crate) copied: usize,
    /// Cases with results in the ledger that had no row, by kernel.
    #[serde(rename = "missing_rows")]
    pub(crate) missing: Vec<MissingKernelRows>,
    /// `None` if nothing is written.
    pub(crate) written: Option<WrittenRows>,
    pub(crate) hosts: Vec<HostsOfCache>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct MergedLedger {
    folder: PathBuf,
    size: LedgerSize,
}

/// Database that another npubench writes.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DatabaseInUse {
    pub(crate) folder: PathBuf,
    /// Process that writes it.
    pub(crate) owner: String,
}

/// Levels of the hosts with one state of the cache.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct HostsOfCache {
    #[schemars(with = "String")]
    pub(crate) cache: CacheState,
    pub(crate) levels: Vec<HostLevel>,
}

impl MergeReport {
    pub(crate) fn is_complete(&self) -> bool {
        self.in_use.is_empty()
            && self.without_ledger.is_empty()
            && self.missing.iter().all(|missing| missing.rebuilt == missing.cases)
            && self.written.as_ref().is_none_or(|written| written.unwritten.is_empty())
    }
}

struct MergeSource {
    database: Database,
    copy: LedgerCopy,
    size: LedgerSize,
    archives: Archives,
}

/// Merges the results of databases into one. Everything is checked before the first write; then the evidence is copied, then the
/// ledger is replaced, then rows are written. Each step can be repeated.
pub(crate) fn merge_databases(request: &MergeRequest<'_>) -> Result<MergeReport, CommandError> {
    let scratch = ScratchFolder::create().map_err(CommandError::no_temporary_folder)?;
    let target = match Database::is_new(request.into)? {
        true => {
            check_new_folder(request.into, DataKind::Npu)?;
            None
        }
        false => Some(Database::open(request.into)?),
    };
    let mut lock = target.as_ref().map(Database::lock).transpose()?;
    let mut report = MergeReport::default();
    let databases = open_sources(request, target.as_ref(), &mut report.in_use)?;
    check_alike(target.iter().chain(&databases))?;
    check_plans(target.as_ref(), &databases)?;
    let of_target =
        target.as_ref().map(|target| read_source(target, &scratch, "target")).transpose()?.flatten();
    report.before = of_target.as_ref().map_or_else(LedgerSize::default, |source| source.size);
    let mut sources = Vec::new();
    for (number, database) in databases.iter().enumerate() {
        check_not_lost(&database.ledger_path())?;
        let source = read_source(database, &scratch, &number.to_string())?;
        // A run may have started while the ledger was copied.
        if let Some(owner) = owner_of(database) {
            leave_out(request, database, owner, &mut report.in_use)?;
        } else if let Some(source) = source {
            sources.push(source);
        } else {
            report.without_ledger.push(database.folder().to_owned());
        }
    }
    if sources.is_empty() && report.in_use.is_empty() && !request.from.is_empty() {
        let from = request.from.iter().map(|folder| format!("`{}`", folder.display()));
        let (into, from) = (request.into.display(), from.collect::<Vec<_>>().join(", "));
        return Err(CommandError::bad_input(
            format!("no ledger to merge into `{into}`: {from}"),
            "give databases in which `npubench run` has measured, other than the target",
        ));
    }
    check_results(of_target.as_ref(), &sources)?;
    sources.splice(0..0, of_target);
    let sizes = sources.iter().map(|MergeSource { database, size, .. }| MergedLedger {
        folder: database.folder().to_owned(),
        size: *size,
    });
    report.ledgers = sizes.collect();
    let merged = scratch.path().join("merged.db");
    report.after = merge_sources(&sources, &scratch, &merged)?;
    let target = match target {
        Some(target) => target,
        None if request.writes => {
            let target = create_target(request.into, &databases)?;
            lock = Some(target.lock()?);
            target
        }
        None => {
            report.hosts = all_host_levels(&Ledger::open(&merged)?)?;
            return Ok(report);
        }
    };
    let path = target.ledger_path();
    let digests = (file_digest(&path), file_digest(&merged));
    report.is_unchanged = matches!(digests, (Ok(one), Ok(other)) if one == other);
    if request.writes {
        if let Some(lock) = &mut lock {
            target.initialise(lock)?;
        }
        report.copied = copy_evidence(&target, &sources, &Ledger::open(&merged)?.collection_archives()?)?;
        if !report.is_unchanged && !sources.is_empty() {
            replace_ledger(&path, &merged)?;
        }
        if !DatabaseError::is_missing(&path)? {
            write_rows(&target, request.assets, &mut report)?;
        }
    }
    report.hosts = all_host_levels(&Ledger::open(&merged)?)?;
    drop(lock);
    Ok(report)
}

/// Opens the databases, each once, without the target. Fails if a database is in use, unless such databases are left
/// out.
fn open_sources(
    request: &MergeRequest<'_>,
    target: Option<&Database>,
    in_use: &mut Vec<DatabaseInUse>,
) -> Result<Vec<Database>, CommandError> {
    let mut seen: BTreeSet<PathBuf> = target.iter().map(|target| target.folder().to_owned()).collect();
    let mut databases = Vec::new();
    for folder in request.from {
        let database = Database::open(folder)?;
        if seen.insert(database.folder().to_owned()) {
            match owner_of(&database) {
                Some(owner) => leave_out(request, &database, owner, in_use)?,
                None => databases.push(database),
            }
        }
    }
    Ok(databases)
}

pub(super) fn owner_of(database: &Database) -> Option<String> {
    let state = database.lock_state();
    let owner = || state.owner.map_or_else(|| "another npubench".to_owned(), |owner| owner.to_string());
    state.is_held.then(owner)
}

fn leave_out(
    request: &MergeRequest<'_>,
    database: &Database,
    owner: String,
    in_use: &mut Vec<DatabaseInUse>,
) -> Result<(), CommandError> {
    if !request.skips_used {
        return Err(CommandError::bad_input(
            format!("`{}` is in use by {owner}", database.folder().display()),
            format!(
                "merge it when its run has ended; `npubench status --db {}` shows the run",
                quoted_path(database.folder())
            ),
        ));
    }
    in_use.push(DatabaseInUse { folder: database.folder().to_owned(), owner });
    Ok(())
}

fn check_alike<'a>(mut databases: impl Iterator<Item = &'a Database>) -> Result<(), CommandError> {
    let Some(first) = databases.next() else { return Ok(()) };
    for database in databases {
        let (one, other) = (first.folder().display(), database.folder().display());
        if database.kind() != first.kind() {
            return Err(CommandError::bad_input(
                format!("`{one}` is of kind `{}`, and `{other}` of kind `{}`", first.kind(), database.kind()),
                "simulated and measured durations are never merged; give databases of one kind",
            ));
        }
        let (device, other_device) = (first.device(), database.device());
        if device != other_device {
            return Err(CommandError::bad_input(
                format!("the device of `{one}` is `{device}`, and that of `{other}` is `{other_device}`"),
                "results of different devices are databases of their own; if a name is wrong, correct `device:` in its \
                 `database.yaml`",
            ));
        }
    }
    Ok(())
}

/// Refuses shards of different plans, and shards of a plan that is not the plan of the target.
fn check_plans(target: Option<&Database>, databases: &[Database]) -> Result<(), CommandError> {
    let plan = target.map(ShardPlan::load).transpose()?.flatten();
    let mut expected = target.zip(plan.map(|plan| plan.id()));
    for database in databases {
        let Some(ShardIdentity { plan, shard }) = database.shard()? else { continue };
        let (other, known) = expected.get_or_insert_with(|| (database, plan.clone()));
        if *known != plan {
            let (folder, other) = (database.folder().display(), other.folder().display());
            return Err(CommandError::bad_input(
                format!("`{folder}` is shard {shard} of plan {plan}, and the plan of `{other}` is {known}"),
                "merge shards into the database that was divided, before its plan is replaced, or into a new folder",
            ));
        }
    }
    Ok(())
}

/// Returns the folders of the started shards of a database's plan, and the number of shards that were not started.
pub(crate) fn started_shards(database: &Database) -> Result<(Vec<PathBuf>, usize), CommandError> {
    let plan = ShardPlan::load_existing(database)?;
    let folders = (1..=plan.shards.len()).map(|number| database.shard_folder(&plan.identity(number)));
    let (mut started, mut open) = (Vec::new(), 0);
    for folder in folders {
        match DatabaseError::is_missing(&folder)? {
            true => open += 1,
            false => started.push(folder),
        }
    }
    Ok((started, open))
}

/// Refuses to replace the plan of a database while its shards have results that the database lacks, or are measured. If
/// the plan cannot be read, all shards in the folder count as its shards. The caller holds the lock of the database.
pub(crate) fn require_merged_shards(database: &Database) -> Result<(), CommandError> {
    let db = quoted_path(database.folder());
    let plan = ShardPlan::load(database);
    let (folders, hint) = match &plan {
        Ok(None) => return Ok(()),
        Ok(Some(_)) => (
            started_shards(database)?.0,
            format!("`npubench db merge {db} --shards` merges them; or give `--discard-results`"),
        ),
        Err(error) => (all_shards(database), format!("{}; or give `--discard-results`", error.hint)),
    };
    let scratch = ScratchFolder::create().map_err(CommandError::no_temporary_folder)?;
    let mut sources = Vec::new();
    for (number, folder) in folders.iter().enumerate() {
        let shard = Database::open(folder)?;
        if let Some(owner) = owner_of(&shard) {
            return Err(CommandError::bad_input(
                format!("`{}`, a shard of the plan, is in use by {owner}", folder.display()),
                format!("wait for its end, then merge it: {hint}"),
            ));
        }
        check_not_lost(&shard.ledger_path())?;
        sources.extend(read_source(&shard, &scratch, &number.to_string())?);
    }
    if sources.is_empty() {
        return Ok(());
    }
    let of_target = read_source(database, &scratch, "target")?;
    let before = of_target.as_ref().map_or_else(LedgerSize::default, |source| source.size);
    sources.splice(0..0, of_target);
    let after = merge_sources(&sources, &scratch, &scratch.path().join("merged.db"))?;
    if after == before {
        return Ok(());
    }
    Err(CommandError::bad_input(
        format!("shards of `{}` have results that are not merged", database.folder().display()),
        hint,
    ))
}

fn merge_sources(
    sources: &[MergeSource],
    scratch: &ScratchFolder,
    merged: &Path,
) -> Result<LedgerSize, CommandError> {
    let copies: Vec<&LedgerCopy> = sources.iter().map(|source| &source.copy).collect();
    Ok(merge_ledgers(&copies, &scratch.path().join("union.db"), merged)?)
}

/// Reads the ledger of a database from a copy with this name; `None` without one.
fn read_source(
    database: &Database,
    scratch: &ScratchFolder,
    name: &str,
) -> Result<Option<MergeSource>, CommandError> {
    let path = database.ledger_path();
    // A merge that was killed leaves a target that has runs without a ledger, and the same command completes it.
    if !DatabaseError::is_missing(&copy_path(&path))? {
        check_not_lost(&path)?;
    }
    if DatabaseError::is_missing(&path)? {
        return Ok(None);
    }
    let copy = LedgerCopy::create(&path, &scratch.path().join(format!("{name}.db")))?;
    let ledger = copy.open()?;
    if let Some(found) = ledger.run_kinds()?.into_iter().find(|kind| *kind != database.kind()) {
        let (path, stated) = (database.folder().to_owned(), database.kind());
        return Err(DatabaseError::LedgerKind { path, stated, found }.into());
    }
    let (size, archives) = (ledger.size()?, ledger.collection_archives()?);
    Ok(Some(MergeSource { database: database.clone(), copy, size, archives }))
}

/// Refuses results of different software, and of different skews of experts. The target may have results of other
/// software if all results of the sources are newer, as after an upgrade: the newest results of a case become its row.
fn check_results(target: Option<&MergeSource>, sources: &[MergeSource]) -> Result<(), CommandError> {
    // The source whose newest results are older than the newest results of all other sources: results of the target
    // must be older still.
    let mut earliest: Option<(&MergeSource, Nanos, SoftwareFingerprint)> = None;
    for source in sources {
        let Some((start, software)) = source.copy.open()?.newest_software()? else { continue };
        earliest = Some(match earliest {
            Some((first, _, known)) if known != software => {
                return Err(other_software((first, &known), (source, &software)));
            }
            Some((first, earlier, known)) if earlier <= start => (first, earlier, known),
            _ => (source, start, software),
        });
    }
    if let Some((target, (source, earliest, known))) = target.zip(earliest)
        && let Some((start, software)) = target.copy.open()?.newest_software()?
        && software != known
        && start >= earliest
    {
        return Err(other_software((target, &software), (source, &known)));
    }
    let mut skewed: Option<(&MergeSource, f64)> = None;
    for source in target.into_iter().chain(sources) {
        let runs = source.copy.open()?.run_options()?;
        let own = || runs.iter().find_map(|(_, options)| expert_skew_of(options));
        let Some((first, skew)) = skewed.or_else(|| Some((source, own()?))) else { continue };
        skewed = Some((first, skew));
        if let Some((run, other)) = run_with_other_skew(&runs, skew) {
            let (first, folder) = (first.database.folder().display(), source.database.folder().display());
            return Err(CommandError::bad_input(
                format!("`{first}` has the expert skew {skew}, and run {run} of `{folder}` has {other}"),
                "samples of different routings are not of one case; merge databases of one skew",
            ));
        }
    }
    Ok(())
}

fn other_software(
    (first, known): (&MergeSource, &SoftwareFingerprint),
    (other, software): (&MergeSource, &SoftwareFingerprint),
) -> CommandError {
    CommandError::bad_input(
        format!(
            "the newest results of `{}` and `{}` are of different software: {}",
            first.database.folder().display(),
            other.database.folder().display(),
            known.differences_from(software)
        ),
        "results of different versions are databases of their own; `npubench diff` compares them",
    )
}

fn create_target(folder: &Path, sources: &[Database]) -> Result<Database, CommandError> {
    let Some(first) = sources.first() else {
        return Err(CommandError::bad_input(
            format!("`{}` does not exist, and no database to merge is free", folder.display()),
            "merge again when a run has ended",
        ));
    };
    let file = DatabaseFile { device: first.device().to_owned(), ..DatabaseFile::new(first.kind()) };
    Database::create(folder, &file, |_| Ok::<(), DatabaseError>(()))?;
    Ok(Database::open(folder)?)
}

fn copy_evidence(
    target: &Database,
    sources: &[MergeSource],
    of_union: &Archives,
) -> Result<usize, CommandError> {
    let is_target = |source: &&MergeSource| source.database.folder() == target.folder();
    let none = Archives::new();
    let of_target = sources.iter().find(is_target).map_or(&none, |source| &source.archives);
    let mut copied = 0;
    for source in sources.iter().filter(|source| !is_target(source)) {
        copied += copy_evidence_files(&source.database, target, [&source.archives, of_target, of_union])?;
    }
    if copied > 0 {
        let synced = fs::File::open(target.folder()).and_then(|folder| Ok(nix::unistd::syncfs(folder)?));
        synced.map_err(write_error(target.folder()))?;
    }
    Ok(copied)
}

fn write_error(path: &Path) -> impl FnOnce(io::Error) -> CommandError + use<> {
    let hint = "check free space and permissions; the ledger was not changed, and the same command continues";
    CommandError::io("write", path, hint)
}

fn replace_ledger(path: &Path, merged: &Path) -> Result<(), CommandError> {
    if !DatabaseError::is_missing(path)? {
        // Ends an interrupted transaction: its journal must not be applied to the new file.
        drop(Ledger::open(path)?);
    }
    let mut merged = fs::File::open(merged).map_err(write_error(merged))?;
    Ok(write_atomic_by(path, |out| io::copy(&mut merged, out).map(|_| ())).map_err(DatabaseError::from)?)
}

fn write_rows(target: &Database, assets: &AssetFiles, report: &mut MergeReport) -> Result<(), CommandError> {
    let catalogue = Catalogue::load(assets)?;
    let ledger = target.ledger()?;
    let order = order_of_cases(&ledger)?;
    let (missing, insertable) = add_lost_rows(target, &ledger, (&catalogue, assets), &order, true)?;
    report.missing = missing;
    report.written = Some(rewrite_rows(target, &ledger, &insertable)?);
    Ok(ledger.write_copy()?)
}

/// Returns the places of planned cases in an order that does not depend on the runs that planned them, so that rows
/// have the same places whichever ledger is merged first.
fn order_of_cases(ledger: &Ledger) -> Result<BTreeMap<CaseId, usize>, LedgerError> {
    let planned = ledger.planned_cases()?;
    let mut cases: Vec<_> = ledger
        .cases_with_prefix("")?
        .into_iter()
        .filter(|known| planned.contains(&known.case))
        .map(|known| {
            let kernel = KernelName::new(&known.kernel).ok();
            let case = kernel.and_then(|kernel| case_of_signature(&kernel, &known.signature));
            (case.map(|case| case.sort_key()), known.case)
        })
        .collect();
    cases.sort();
    Ok(cases.into_iter().enumerate().map(|(place, (_, case))| (case, place)).collect())
}

fn all_host_levels(ledger: &Ledger) -> Result<Vec<HostsOfCache>, CommandError> {
    let levels =
        CacheState::ALL.iter().map(|&cache| Ok(HostsOfCache { cache, levels: host_levels(ledger, cache)? }));
    let mut levels = levels.collect::<Result<Vec<_>, LedgerError>>()?;
    levels.retain(|of_cache| !of_cache.levels.is_empty());
    Ok(levels)
}
