//! Ledger: one SQLite file with every run, attempt and launch of a database.
//!
//! Layer 3: imports `stats`, `domain` and `files`.
//!
//! A result exists when its transaction is committed; CSVs, screens and reports are derived from it. The journal is a
//! rollback journal, which works on NFS; there is one writer, which holds the lock.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, ErrorCode, OpenFlags, Params, Row, Transaction, TransactionBehavior, params};

use crate::domain::{
    Attempt, CacheState, CaseId, CaseOutcome, CollectionPurpose, CollectionSamples, DataKind,
    EqualCallAttempt, IdentifiedCase, Launch, Nanos, SoftwareFingerprint,
};

mod checks;
mod clock;
mod controls;
mod error;
mod evidence;
mod reassess;
pub(crate) mod runs;
mod software;

pub(crate) use checks::{NewCheck, StoredCheck};
pub(crate) use clock::{EqualAttempt, StoredCycleRate};
pub(crate) use controls::StoredControl;
pub(crate) use error::LedgerError;
pub(crate) use evidence::{CaseAttempt, FailedAttempt, KnownCase, PlannedVerdict, StoredArchive};
pub(crate) use reassess::{AttemptChange, AttemptState, AttemptedCollection, StoredAttempt};
pub(crate) use runs::{CaseRecord, CollectionRecord, RunRecord};
pub(crate) use software::{OtherKernelAttempt, SoftwareGeneration};

const LAYOUT: i64 = 10;
const SCHEMA: &str = include_str!("ledger.sql");
/// Difference of layout 2 from layout 1.
const CHECKS: &str = include_str!("ledger_checks.sql");
/// Difference of layout 3 from layout 2.
const COLLECTIONS: &str = include_str!("ledger_collections.sql");
/// Difference of layout 4 from layout 3.
const SOFTWARE: &str = include_str!("ledger_software.sql");
/// Difference of layout 5 from layout 4.
const TASKS: &str = include_str!("ledger_tasks.sql");
/// Difference of layout 6 from layout 5.
const CLOCK: &str = include_str!("ledger_clock.sql");
/// Difference of layout 7 from layout 6.
const ARCHIVES: &str = include_str!("ledger_archives.sql");
/// Difference of layout 8 from layout 7.
const READINGS: &str = include_str!("ledger_readings.sql");
/// Difference of layout 9 from layout 8.
const CONTROLS: &str = include_str!("ledger_controls.sql");
/// Difference of layout 10 from layout 9.
const CACHE: &str = include_str!("ledger_cache.sql");

#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    connection: Connection,
}

/// A run at its start.
#[derive(Clone, Debug)]
pub struct NewRun<'a> {
    pub run: &'a str,
    pub kind: DataKind,
    pub seed: u64,
    /// Effective options, as JSON.
    pub options: &'a str,
    /// Fingerprint of host and software, as JSON.
    pub host: &'a str,
    pub started: Nanos,
}

/// A collection at its start.
#[derive(Clone, Copy, Debug)]
pub struct NewCollection<'a> {
    pub run: &'a str,
    pub number: u32,
    pub devices: &'a [u32],
    pub purpose: CollectionPurpose,
    pub(crate) cache: CacheState,
    /// Predicted duration in seconds.
    pub predicted: f64,
    pub started: Nanos,
}

/// Health and sensor values of one device.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceReading {
    pub device: u32,
    pub at: Nanos,
    /// `OK`, or the problem.
    pub health: String,
    /// Degrees Celsius.
    pub temperature: Option<i64>,
    /// Watt.
    pub power: Option<f64>,
    /// Device memory in use, MiB.
    pub memory_used_mb: Option<u64>,
}

/// Updates an older or empty file to the current layout. Another process may do the same concurrently, so the layout
/// is read again within the transaction.
fn migrate_layout(connection: &Connection) -> rusqlite::Result<()> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    let layout: i64 = transaction.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let steps = [SCHEMA, CHECKS, COLLECTIONS, SOFTWARE, TASKS, CLOCK, ARCHIVES, READINGS, CONTROLS, CACHE];
    let done = usize::try_from(layout).unwrap_or_default().min(steps.len());
    for step in &steps[done..] {
        transaction.execute_batch(step)?;
    }
    if done < steps.len() {
        transaction.execute_batch(&format!("PRAGMA user_version = {LAYOUT}"))?;
    }
    transaction.commit()
}

/// Opens an existing ledger for reading. A transaction that a kill interrupted is rolled back first, which a connection for
/// reading cannot do; committed content does not change.
fn open_read_only(path: &Path) -> rusqlite::Result<Connection> {
    let open = |access: OpenFlags| {
        let connection = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        connection.query_row("PRAGMA user_version", [], |_| Ok(()))?;
        Ok(connection)
    };
    match open(OpenFlags::SQLITE_OPEN_READ_ONLY) {
        Err(rusqlite::Error::SqliteFailure(error, _)) if error.code == ErrorCode::ReadOnly => {
            open(OpenFlags::SQLITE_OPEN_READ_WRITE)?;
            open(OpenFlags::SQLITE_OPEN_READ_ONLY)
        }
        opened => opened,
    }
}

impl Ledger {
    /// Opens the ledger; creates a missing one.
    pub fn open(path: &Path) -> Result<Self, LedgerError> {
        let fail = |source| LedgerError::from_sqlite(path, source);
        // Opening a pipe would wait for its other end.
        if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Err(LedgerError::NotAFile { path: path.to_owned() });
        }
        let connection = Connection::open(path).map_err(fail)?;
        // Temporary tables in memory: a read needs no disk space.
        let pragmas = "PRAGMA journal_mode = DELETE; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; \
                       PRAGMA temp_store = MEMORY;";
        connection.execute_batch(pragmas).map_err(fail)?;
        let layout: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(fail)?;
        if layout > LAYOUT {
            return Err(LedgerError::NewerLayout { path: path.to_owned(), found: layout, supported: LAYOUT });
        }
        if layout < LAYOUT {
            migrate_layout(&connection).map_err(fail)?;
        }
        Ok(Self { path: path.to_owned(), connection })
    }

    /// Opens an existing ledger without changing it. `None` if it has the layout of an earlier version, which only
    /// [`Self::open`] updates.
    pub(crate) fn open_unchanged(path: &Path) -> Result<Option<Self>, LedgerError> {
        let fail = |source| LedgerError::from_sqlite(path, source);
        let connection = open_read_only(path).map_err(fail)?;
        connection.execute_batch("PRAGMA temp_store = MEMORY").map_err(fail)?;
        let layout: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(fail)?;
        if layout > LAYOUT {
            return Err(LedgerError::NewerLayout { path: path.to_owned(), found: layout, supported: LAYOUT });
        }
        Ok((layout == LAYOUT).then(|| Self { path: path.to_owned(), connection }))
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn sqlite_error(&self) -> impl Fn(rusqlite::Error) -> LedgerError + use<> {
        let path = self.path.clone();
        move |source| LedgerError::from_sqlite(&path, source)
    }

    /// Checks the structure of a ledger, if there is one, without changing it; returns the first problems that SQLite
    /// finds. Fails with [`LedgerError`] if it cannot be read at all.
    pub(crate) fn find_damage(path: &Path) -> Result<Option<String>, LedgerError> {
        let fail = |source| LedgerError::from_sqlite(path, source);
        if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Err(LedgerError::NotAFile { path: path.to_owned() });
        }
        if !path.exists() {
            return Ok(None);
        }
        let connection = open_read_only(path).map_err(fail)?;
        let check = |pragma: &str| -> rusqlite::Result<Vec<String>> {
            let mut statement = connection.prepare(pragma)?;
            statement.query_map([], |row| row.get::<_, String>(0))?.collect()
        };
        let problems: Vec<String> = check("PRAGMA integrity_check(5)").map_err(fail)?;
        let is_intact = problems.iter().all(|problem| problem == "ok");
        Ok((!is_intact).then(|| problems.join("; ")))
    }

    /// Returns the rows of a query, each read by `read`.
    fn read_rows<T, C: FromIterator<T>>(
        &self,
        sql: &str,
        parameters: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<C, LedgerError> {
        let rows = || -> rusqlite::Result<C> {
            let mut statement = self.connection.prepare_cached(sql)?;
            statement.query_map(parameters, read)?.collect()
        };
        rows().map_err(self.sqlite_error())
    }

    fn in_transaction<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, LedgerError> {
        let error = self.sqlite_error();
        let transaction = self.connection.transaction().map_err(&error)?;
        let value = work(&transaction).map_err(&error)?;
        transaction.commit().map_err(&error)?;
        Ok(value)
    }

    /// Returns every run with its options, as JSON.
    pub fn run_options(&self) -> Result<Vec<(String, String)>, LedgerError> {
        let sql = "SELECT run, options FROM runs ORDER BY started_ns";
        self.read_rows(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
    }

    /// Stores a run and its plan, in order.
    pub fn begin_run(&mut self, run: &NewRun<'_>, plan: &[IdentifiedCase]) -> Result<(), LedgerError> {
        self.in_transaction(|tx| {
            let NewRun { run, kind, seed, options, host, started } = *run;
            tx.execute(
                "INSERT INTO runs (run, kind, seed, options, host, started_ns) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![run, kind.as_str(), seed.cast_signed(), options, host, started.0],
            )?;
            let mut planned = tx.prepare("INSERT INTO planned (run, ordinal, case_id) VALUES (?1, ?2, ?3)")?;
            for (ordinal, entry) in plan.iter().enumerate() {
                insert_case(tx, entry)?;
                planned.execute(params![run, i64::try_from(ordinal).unwrap_or(i64::MAX), entry.id().as_str()])?;
            }
            Ok(())
        })
    }

    pub fn end_run(&mut self, run: &str, ended: Nanos, exit: u8) -> Result<(), LedgerError> {
        self.in_transaction(|tx| {
            tx.execute(
                "UPDATE runs SET ended_ns = ?2, exit_code = ?3 WHERE run = ?1",
                params![run, ended.0, exit],
            )
        })?;
        Ok(())
    }

    /// Stores the start of a collection; returns its key.
    pub fn begin_collection(&mut self, new: &NewCollection<'_>) -> Result<i64, LedgerError> {
        let NewCollection { run, number, devices, purpose, cache, predicted, started } = *new;
        let gang = (devices.len() > 1).then(|| serde_json::to_string(devices).unwrap_or_default());
        let first = devices.first().copied().unwrap_or_default();
        self.in_transaction(|tx| {
            tx.execute(
                "INSERT INTO collections (run, number, device, gang, purpose, predicted_s, started_ns, cache)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                params![run, number, first, gang, purpose.as_str(), predicted, started.0, cache.as_str()],
            )?;
            Ok(tx.last_insert_rowid())
        })
    }

    /// Stores all results of a collection in one transaction, with the software that it used. Results of other cases with
    /// the same calls are stored under their cases, which need not be planned.
    pub fn finish_collection(
        &mut self,
        collection: i64,
        ended: Nanos,
        outcome: &str,
        software: &SoftwareFingerprint,
        attempts: &[Attempt],
    ) -> Result<(), LedgerError> {
        self.in_transaction(|tx| {
            let software = software::store_software(tx, software)?;
            tx.execute(
                "UPDATE collections SET ended_ns = ?2, outcome = ?3, software = ?4 WHERE collection = ?1",
                params![collection, ended.0, outcome, software],
            )?;
            for attempt in attempts {
                insert_attempt(tx, collection, attempt)?;
            }
            for EqualCallAttempt { case, attempt } in attempts.iter().flat_map(|own| &own.of_equal_calls) {
                insert_case(tx, case)?;
                insert_attempt(tx, collection, attempt)?;
            }
            Ok(())
        })
    }

    /// Stores the SHA-256 of the compressed evidence of a collection.
    pub(crate) fn set_archive(&mut self, collection: i64, digest: &str) -> Result<(), LedgerError> {
        self.in_transaction(|tx| {
            tx.execute(
                "UPDATE collections SET archive = ?2 WHERE collection = ?1",
                params![collection, digest],
            )
        })?;
        Ok(())
    }

    /// Stores the final verdicts of cases in a run.
    pub fn set_verdicts(
        &mut self,
        run: &str,
        at: Nanos,
        verdicts: &[(CaseId, CaseOutcome)],
    ) -> Result<(), LedgerError> {
        self.in_transaction(|tx| {
            let mut insert = tx.prepare(
                "INSERT INTO verdicts (run, case_id, verdict, reason, at_ns) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (run, case_id) DO UPDATE
                 SET verdict = excluded.verdict, reason = excluded.reason, at_ns = excluded.at_ns",
            )?;
            for (case, CaseOutcome { verdict, reason }) in verdicts {
                insert.execute(params![run, case.as_str(), verdict.as_str(), reason, at.0])?;
            }
            Ok(())
        })
    }

    pub fn add_readings(&mut self, run: &str, readings: &[DeviceReading]) -> Result<(), LedgerError> {
        self.in_transaction(|tx| {
            let mut insert = tx.prepare(
                "INSERT INTO device_readings (run, device, at_ns, health, temperature_c, power_w, memory_used_mb)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?;
            for DeviceReading { device, at, health, temperature, power, memory_used_mb } in readings {
                let memory = memory_used_mb.map(u64::cast_signed);
                insert.execute(params![run, device, at.0, health, temperature, power, memory])?;
            }
            Ok(())
        })
    }

    /// Passes the accepted samples of every attempt with a measurement in one state of the cache to `read`, oldest
    /// first.
    pub(crate) fn for_each_measurement(
        &self,
        cache: CacheState,
        mut read: impl FnMut(&CollectionSamples),
    ) -> Result<(), LedgerError> {
        let sql = "SELECT a.attempt, a.case_id, a.collection, c.software, l.duration_ns, c.device
                   FROM attempts a JOIN collections c USING (collection) JOIN samples l USING (attempt)
                   WHERE c.cache = ?1 AND a.verdict IN ('ok', 'noisy', 'suspicious') AND l.is_accepted
                   ORDER BY a.attempt, l.number";
        let mut read_all = || -> rusqlite::Result<()> {
            let mut statement = self.connection.prepare_cached(sql)?;
            let mut rows = statement.query([cache.as_str()])?;
            let mut current: Option<(i64, CollectionSamples)> = None;
            while let Some(row) = rows.next()? {
                let (attempt, duration) = (row.get(0)?, row.get(4)?);
                if let Some((key, measured)) = &mut current
                    && *key == attempt
                {
                    measured.samples.push(duration);
                    continue;
                }
                let next = CollectionSamples {
                    case: CaseId::from_stored(row.get::<_, String>(1)?),
                    collection: row.get(2)?,
                    software: row.get(3)?,
                    samples: vec![duration],
                    device: row.get(5)?,
                };
                if let Some((_, complete)) = current.replace((attempt, next)) {
                    read(&complete);
                }
            }
            current.iter().for_each(|(_, complete)| read(complete));
            Ok(())
        };
        read_all().map_err(self.sqlite_error())
    }

    /// Returns the kind of the runs in the ledger; `None` without runs.
    pub fn run_kind(&self) -> Result<Option<DataKind>, LedgerError> {
        let words: Vec<String> = self.read_rows("SELECT kind FROM runs LIMIT 1", [], |row| row.get(0))?;
        Ok(words.first().and_then(|word| word.parse().ok()))
    }
}

/// Stores a case unless it is stored.
fn insert_case(tx: &Transaction<'_>, case: &IdentifiedCase) -> rusqlite::Result<()> {
    let sql = "INSERT INTO cases (case_id, kernel, signature) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
    let mut insert = tx.prepare_cached(sql)?;
    insert.execute(params![case.id().as_str(), case.kernel.as_str(), case.signature()])?;
    Ok(())
}

/// Stores an attempt; a second one for a case of the same collection is left out.
fn insert_attempt(tx: &Transaction<'_>, collection: i64, attempt: &Attempt) -> rusqlite::Result<()> {
    let Attempt { case, launched, launches, counters, task, cycle_rate, outcome, .. } = attempt;
    let CaseOutcome { verdict, reason } = outcome;
    let counters = serde_json::to_string(counters).unwrap_or_default();
    let inserted = tx
        .prepare_cached(
            "INSERT INTO attempts (collection, case_id, launched, verdict, reason, counters, op_state, core,
                                   cycle_rate, cycle_rate_error)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT (collection, case_id) DO NOTHING",
        )?
        .execute(params![
            collection,
            case.as_str(),
            launched,
            verdict.as_str(),
            reason,
            counters,
            task.state,
            task.core,
            cycle_rate.map(|rate| rate.per_microsecond),
            cycle_rate.map(|rate| rate.error),
        ])?;
    if inserted == 0 {
        return Ok(());
    }
    insert_launches(tx, tx.last_insert_rowid(), launches)
}

/// Stores the launches of the attempt with this key.
fn insert_launches(tx: &Transaction<'_>, attempt: i64, launches: &[Launch]) -> rusqlite::Result<()> {
    let mut insert = tx.prepare_cached(
        "INSERT INTO launches (attempt, number, is_measured, is_accepted, start_ns, duration_ns)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    for Launch { number, is_measured, is_accepted, start, duration } in launches {
        insert.execute(params![attempt, number, is_measured, is_accepted, start.0, duration.0])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, slice};

    use super::*;
    use crate::domain::{Case, CaseAttributes, Dtype, KernelName, RecordedTask, Tensor, Verdict};

    const fn collection_on(device: u32) -> NewCollection<'static> {
        let devices: &[u32] = match device {
            3 => &[3],
            _ => &[0],
        };
        let purpose = CollectionPurpose::Measure;
        let cache = CacheState::Hot;
        NewCollection { run: "r1", number: 1, devices, purpose, cache, predicted: 1.5, started: Nanos(2) }
    }

    #[test]
    fn several_processes_may_open_a_new_ledger_at_once() {
        for _ in 0..20 {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("ledger.db");
            std::thread::scope(|scope| {
                for opened in [0; 4].map(|_| scope.spawn(|| Ledger::open(&path).map(drop))) {
                    opened.join().expect("no panic").expect("each finds it complete");
                }
            });
        }
    }

    fn case(rows: u64) -> IdentifiedCase {
        let tensor = Some(Tensor::new(vec![rows, 8], Dtype::Float));
        IdentifiedCase::new(Case {
            kernel: KernelName::new("Add").expect("a name"),
            inputs: vec![tensor.clone(), tensor.clone()],
            outputs: vec![tensor],
            attributes: CaseAttributes::default(),
        })
    }

    fn attempt(case: &IdentifiedCase, verdict: Verdict, durations: &[i64]) -> Attempt {
        let launches = durations.iter().zip(0..).map(|(&duration, number)| Launch {
            number,
            is_measured: number > 0,
            is_accepted: number > 0 && duration < 1000,
            start: Nanos(i64::from(number) * 2000),
            duration: Nanos(duration),
        });
        Attempt {
            case: case.id().clone(),
            launched: u32::try_from(durations.len()).expect("few"),
            launches: launches.collect(),
            fastest_ranks: Vec::new(),
            counters: vec![Some(1.5), None],
            task: RecordedTask { state: "dynamic".to_owned(), core: "AI_CORE".to_owned() },
            cycle_rate: None,
            outcome: CaseOutcome::new(verdict, "because"),
            of_equal_calls: Vec::new(),
        }
    }

    fn run(id: &str) -> NewRun<'_> {
        NewRun {
            run: id,
            kind: DataKind::Rehearsal,
            seed: u64::MAX,
            options: "{}",
            host: "{}",
            started: Nanos(1),
        }
    }

    #[test]
    fn committed_results_survive_reopening() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ledger.db");
        let (first, second) = (case(1), case(2));
        {
            let mut ledger = Ledger::open(&path).expect("created");
            ledger.begin_run(&run("r1"), &[first.clone(), second.clone()]).expect("started");
            let collection = ledger.begin_collection(&collection_on(3)).expect("started");
            let attempts = [
                attempt(&first, Verdict::Ok, &[9, 10, 11, 5000]),
                attempt(&second, Verdict::LostRecords, &[9]),
            ];
            ledger
                .finish_collection(collection, Nanos(3), "done", &SoftwareFingerprint::default(), &attempts)
                .expect("finished");
            ledger
                .set_verdicts("r1", Nanos(4), &[(first.id().clone(), CaseOutcome::new(Verdict::Ok, "fine"))])
                .expect("set");
        }
        let ledger = Ledger::open(&path).expect("there");
        assert_eq!(ledger.run_kind().expect("read"), Some(DataKind::Rehearsal));
        let evidence = ledger.attempt_samples(first.id(), CacheState::Hot).expect("read");
        assert_eq!(evidence.len(), 1);
        assert_eq!(evidence[0].samples, [10, 11], "warm-up and outlier are not samples");
        assert_eq!(evidence[0].outliers, 1);
        assert_eq!(evidence[0].counters, [Some(1.5), None]);
        assert_eq!(evidence[0].task.core, "AI_CORE");
        assert!(
            ledger.attempt_samples(second.id(), CacheState::Hot).expect("read").is_empty(),
            "no measurement, no evidence"
        );
        let mut measurements = Vec::new();
        ledger
            .for_each_measurement(CacheState::Hot, |measured| measurements.push(measured.clone()))
            .expect("read");
        let expected = CollectionSamples {
            case: first.id().clone(),
            collection: 1,
            software: None,
            samples: vec![10, 11],
            device: 3,
        };
        assert_eq!(measurements, [expected]);
        let cases = ledger.run_cases("r1").expect("read");
        assert_eq!(cases[0].outcome, Some(CaseOutcome::new(Verdict::Ok, "fine")));
        assert_eq!((&cases[1].case, &cases[1].outcome), (second.id(), &None));
        assert_eq!(ledger.measured_cases(CacheState::Hot).expect("read").len(), 1);
    }

    /// A case of another kernel as which planned calls ran may have been noisy first.
    #[test]
    fn unplanned_verdicts_are_those_of_the_newest_attempts() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut ledger = Ledger::open(&folder.path().join("ledger.db")).expect("created");
        let (planned, repeated, noisy) = (case(1), case(2), case(3));
        let attempts = [
            ("r1", 1, vec![(&repeated, Verdict::Noisy), (&noisy, Verdict::Ok)]),
            ("r1", 2, vec![(&repeated, Verdict::Ok), (&noisy, Verdict::Noisy)]),
            ("r2", 1, vec![(&repeated, Verdict::Implausible)]),
        ];
        for id in ["r1", "r2"] {
            ledger.begin_run(&run(id), slice::from_ref(&planned)).expect("started");
        }
        for (run, number, unplanned) in attempts {
            let new = NewCollection { run, number, ..collection_on(0) };
            let collection = ledger.begin_collection(&new).expect("started");
            let of_equal_calls = unplanned.into_iter().map(|(case, verdict)| EqualCallAttempt {
                case: case.clone(),
                attempt: attempt(case, verdict, &[9, 10]),
            });
            let of_equal_calls = of_equal_calls.collect();
            let attempt = Attempt { of_equal_calls, ..attempt(&planned, Verdict::Throttled, &[9, 10]) };
            let software = SoftwareFingerprint::default();
            ledger.finish_collection(collection, Nanos(3), "done", &software, &[attempt]).expect("finished");
        }
        let verdicts = |run| ledger.unplanned_verdicts(run).expect("read");
        assert_eq!(verdicts("r1"), BTreeSet::from([Verdict::Ok, Verdict::Noisy]));
        assert_eq!(verdicts("r2"), BTreeSet::from([Verdict::Implausible]));
    }

    /// Each collection of each case on the page of a number reads them, and a night has thousands of readings.
    #[test]
    fn readings_of_a_collection_are_found_by_an_index_also_in_older_ledgers() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ledger.db");
        let older = "DROP INDEX readings_by_device; DROP INDEX withdrawn_attempts; DROP TABLE controls; \
                     ALTER TABLE collections DROP COLUMN cache; PRAGMA user_version = 7";
        Ledger::open(&path).expect("created").connection.execute_batch(older).expect("the layout before");
        let ledger = Ledger::open(&path).expect("updated");
        for (sql, index) in [
            (evidence::READINGS_DURING, "readings_by_device"),
            ("SELECT case_id FROM attempts WHERE is_withdrawn", "withdrawn_attempts"),
        ] {
            let steps: Vec<String> = ledger
                .connection
                .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
                .and_then(|mut plan| plan.raw_query().mapped(|row| row.get("detail")).collect())
                .expect("a plan");
            let is_used = |step: &String| step.contains(index) || !step.starts_with("SCAN");
            assert!(steps.iter().all(is_used), "{steps:?}");
        }
    }

    /// A ledger of layout 9 has measured with a hot cache. Each query reads the attempts of one state.
    #[test]
    fn states_of_the_cache_are_apart_and_earlier_collections_are_hot() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ledger.db");
        let measured = case(1);
        {
            let mut ledger = Ledger::open(&path).expect("created");
            ledger.begin_run(&run("r1"), slice::from_ref(&measured)).expect("started");
        }
        let earlier = "ALTER TABLE collections DROP COLUMN cache; PRAGMA user_version = 9;
                       INSERT INTO collections (run, number, device, started_ns, outcome) VALUES ('r1', 7, 5, 1, 'done')";
        let opened = Connection::open(&path).expect("opened");
        opened.execute_batch(earlier).expect("the layout before");
        let insert =
            "INSERT INTO attempts (collection, case_id, launched, verdict, reason, counters, cycle_rate,
                      cycle_rate_error) VALUES (1, ?1, 2, 'ok', '', '[]', 1700.0, 0.001)";
        opened.execute(insert, [measured.id().as_str()]).expect("an attempt");
        opened.execute_batch("INSERT INTO launches VALUES (1, 0, 1, 1, 0, 100)").expect("a launch");
        drop(opened);
        let mut ledger = Ledger::open(&path).expect("updated");
        let states = |ledger: &Ledger| {
            [CacheState::Hot, CacheState::Cold].map(|cache| {
                let mut samples = Vec::new();
                let read = |one: &CollectionSamples| samples.extend(one.samples.clone());
                ledger.for_each_measurement(cache, read).expect("read");
                let of_case = ledger.attempt_samples(measured.id(), cache).expect("read");
                assert!(of_case.iter().all(|attempt| attempt.cache == cache));
                let of_all = ledger.all_attempt_samples(cache).expect("read").remove(measured.id());
                assert_eq!(of_all.unwrap_or_default(), of_case);
                let of_case: Vec<i64> = of_case.into_iter().flat_map(|attempt| attempt.samples).collect();
                assert_eq!(of_case, samples);
                let devices = ledger.measuring_devices(cache).expect("read").remove(measured.id());
                let is_measured = [
                    ledger.measured_cases(cache).expect("read").contains(measured.id()),
                    ledger.cases_with_samples(cache).expect("read").contains(measured.id()),
                    ledger.has_measurement(measured.id(), cache).expect("read"),
                ];
                let rates = ledger.cycle_rates(cache).expect("read").len();
                (samples, devices.unwrap_or_default(), is_measured, rates)
            })
        };
        let none = (vec![], vec![], [false; 3], 0);
        let hot = (vec![100], vec![5], [true; 3], 1);
        assert_eq!(states(&ledger), [hot.clone(), none]);
        let new = NewCollection { cache: CacheState::Cold, ..collection_on(3) };
        let collection = ledger.begin_collection(&new).expect("started");
        let software = SoftwareFingerprint::default();
        let cold = attempt(&measured, Verdict::Ok, &[1, 900, 901]);
        ledger.finish_collection(collection, Nanos(3), "done", &software, &[cold]).expect("finished");
        assert_eq!(states(&ledger), [hot, (vec![900, 901], vec![3], [true; 3], 0)]);
        let unknown = "UPDATE collections SET cache = 'warm'";
        ledger.connection.execute_batch(unknown).expect_err("no such state");
    }

    #[test]
    fn ledger_of_newer_layout_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ledger.db");
        Ledger::open(&path)
            .expect("created")
            .connection
            .execute_batch("PRAGMA user_version = 99")
            .expect("set");
        assert!(matches!(Ledger::open(&path), Err(LedgerError::NewerLayout { found: 99, .. })));
    }

    #[test]
    fn failed_transaction_stores_no_attempt() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut ledger = Ledger::open(&folder.path().join("ledger.db")).expect("created");
        ledger.begin_run(&run("r1"), &[case(1)]).expect("started");
        let collection = ledger.begin_collection(&collection_on(0)).expect("started");
        let unknown = attempt(&case(7), Verdict::Ok, &[1, 2]);
        let good = attempt(&case(1), Verdict::Ok, &[1, 2]);
        let software = SoftwareFingerprint::default();
        let stored = ledger.finish_collection(collection, Nanos(3), "done", &software, &[good, unknown]);
        stored.expect_err("no such case");
        assert!(ledger.attempt_samples(case(1).id(), CacheState::Hot).expect("read").is_empty());
    }
}
