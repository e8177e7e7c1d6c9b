use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use proptest::prelude::*;
use rusqlite::Connection;
use tempfile::TempDir;

use crate::base::command_error::Failure;
use crate::{
    kernel::Nanos,
    profile::{
        COUNTERS, GroupStatistics, ProfileError, RecordGroup, RecordGroups, RecordPosition, add_table,
    },
};

const TABLES: &str = "
    CREATE TABLE STRING_IDS (id INTEGER PRIMARY KEY, value TEXT);
    CREATE TABLE TASK (startNs INTEGER, endNs INTEGER, deviceId INTEGER, globalTaskId INTEGER, depth INTEGER);
    CREATE TABLE COMPUTE_TASK_INFO (name INTEGER, globalTaskId INTEGER PRIMARY KEY, blockDim INTEGER,
        taskType INTEGER, opType INTEGER, inputFormats INTEGER, inputDataTypes INTEGER, inputShapes INTEGER,
        outputFormats INTEGER, outputDataTypes INTEGER, outputShapes INTEGER, waitNs INTEGER);
    CREATE TABLE TASK_PMU_INFO (globalTaskId INTEGER, name INTEGER, value NUMERIC);
    INSERT INTO STRING_IDS VALUES (1, 'aclnnAdd_Add'), (2, 'AI_VECTOR_CORE'), (3, 'Add'), (4, 'ND;ND'),
        (5, 'FLOAT;FLOAT'), (6, '\"8,4;4\"'), (7, 'ND'), (8, 'FLOAT'), (9, '\"8,4\"'), (10, 'N/A'),
        (11, 'aiv_total_time'), (12, 'aiv_vec_ratio'), (13, 'aiv_mac_time');";

/// Three runs of one kernel, the first by time with the last id, and a helper without shapes.
const RECORDS: &str = "
    INSERT INTO COMPUTE_TASK_INFO VALUES (1, 20, 8, 2, 3, 4, 5, 6, 7, 8, 9, 0), (1, 21, 8, 2, 3, 4, 5, 6, 7, 8, 9, 0),
        (1, 22, 8, 2, 3, 4, 5, 6, 7, 8, 9, 0), (1, 23, 8, 2, 3, 10, 10, 10, 10, 10, 10, 0);
    INSERT INTO TASK VALUES (1736410576375316000, 1736410576375317000, 0, 20, 0),
        (1736410576375318000, 1736410576375320000, 0, 21, 0), (1736410576375310000, 1736410576375316000, 0, 22, 0),
        (1736410576375330000, 1736410576375331000, 0, 23, 0), (1736410576375330000, 1736410576375331000, 0, 99, 0);
    INSERT INTO TASK_PMU_INFO VALUES (20, 11, 800.5), (22, 11, 5000), (20, 12, 0.25), (20, 13, 7), (77, 11, 1);";

struct ProfilerDatabase {
    folder: TempDir,
    path: PathBuf,
}

fn create_database(sql: &[&str]) -> ProfilerDatabase {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("msprof_20250109161616.db");
    let connection = Connection::open(&path).expect("created");
    for batch in sql {
        connection.execute_batch(batch).expect("valid");
    }
    connection.close().expect("closed");
    ProfilerDatabase { folder, path }
}

fn read_as(database: &ProfilerDatabase, accept_rehearsed: bool) -> Result<RecordGroups, ProfileError> {
    let mut groups = RecordGroups::default();
    add_table(&mut groups, &database.path, 0, accept_rehearsed).map(|()| groups)
}

fn read(database: &ProfilerDatabase) -> Result<RecordGroups, ProfileError> {
    read_as(database, false)
}

/// The only group of `Add`, which must be the only kernel.
fn add(groups: RecordGroups) -> RecordGroup {
    let mut kernels: Vec<_> = groups.into_kernels().into_values().flatten().collect();
    assert_eq!(kernels.len(), 1);
    kernels.remove(0)
}

fn counters(statistics: &GroupStatistics) -> BTreeMap<&'static str, f64> {
    COUNTERS
        .into_iter()
        .zip(&statistics.counters)
        .filter_map(|(name, value)| Some((name, (*value)?)))
        .collect()
}

fn error(database: &ProfilerDatabase) -> String {
    let error = read(database).expect_err("refused");
    assert!(!error.hint().is_empty());
    error.to_string().replace(&*database.folder.path().to_string_lossy(), "DIR")
}

/// Returns the number of records without shapes, by kernel.
fn shapeless_counts(groups: &RecordGroups) -> Vec<(String, u64)> {
    groups.without_shapes.iter().map(|(kernel, records)| (kernel.clone(), records.count)).collect()
}

#[test]
fn kernels_have_their_times_names_and_counters() {
    let groups = read(&create_database(&[TABLES, RECORDS])).expect("read");
    assert_eq!(groups.records, 4);
    assert_eq!(shapeless_counts(&groups), [("Add".to_owned(), 1)]);
    let group = add(groups);
    assert_eq!(group.record_count(), 3);
    assert_eq!(group.cells, ["\"8,4;4\"", "FLOAT;FLOAT", "ND;ND", "\"8,4\"", "FLOAT", "ND"]);
    assert_eq!((group.state.as_str(), group.core.as_str()), ("", "AI_VECTOR_CORE"));
    let statistics = group.into_statistics();
    let durations = statistics.durations.as_ref().expect("some");
    assert_eq!(durations.mean, 3000.0);
    // Times are nanoseconds in the database; records without a value are left out.
    assert_eq!(counters(&statistics), BTreeMap::from([("aiv_time(us)", 2.90025), ("aiv_vec_ratio", 0.25)]));
}

#[test]
fn times_may_be_text_and_columns_may_be_renamed() {
    let text = TABLES.replace("startNs INTEGER, endNs INTEGER", "start_ns TEXT, endNs TEXT");
    let text = text.replace("globalTaskId INTEGER, depth", "globalTaskId TEXT, depth");
    let text = text.replace("blockDim INTEGER", "block_num INTEGER");
    let group = add(read(&create_database(&[&text, RECORDS])).expect("read"));
    assert_eq!(group.record_count(), 3);
    assert_eq!(group.into_statistics().durations.expect("some").mean, 3000.0);
}

#[test]
fn group_state_is_that_of_earliest_record() {
    let states = "INSERT INTO STRING_IDS VALUES (30, 'dynamic'), (31, 'static');
        ALTER TABLE COMPUTE_TASK_INFO ADD COLUMN opState INTEGER DEFAULT 30;";
    let group = add(read(&create_database(&[
        TABLES,
        RECORDS,
        states,
        "UPDATE COMPUTE_TASK_INFO SET opState = 31 WHERE globalTaskId = 22",
    ]))
    .expect("read"));
    assert_eq!(group.state, "static");
}

#[test]
fn one_id_may_run_several_times() {
    let again = "INSERT INTO TASK VALUES (1736410576375326000, 1736410576375330000, 0, 20, 0);
        INSERT INTO TASK_PMU_INFO VALUES (20, 11, 2199.5);";
    let group = add(read(&create_database(&[TABLES, RECORDS, again])).expect("read"));
    assert_eq!(group.record_count(), 4);
    let statistics = group.into_statistics();
    assert_eq!(statistics.durations.as_ref().expect("some").mean, 3250.0);
    assert_eq!(counters(&statistics)["aiv_time(us)"], 8.0 / 3.0);
}

const COLLECTIVES: &str = "
    INSERT INTO STRING_IDS VALUES (40, 'hcom_allReduce__210_0_1'), (41, 'hcom_allReduce_'), (42, 'hcom_broadcast__210_1_1');
    CREATE TABLE COMMUNICATION_OP (opName INTEGER, startNs INTEGER, endNs INTEGER, opId INTEGER PRIMARY KEY, opType INTEGER);
    INSERT INTO COMMUNICATION_OP VALUES (40, 1, 2, 0, 41), (40, 3, 4, 1, 41), (42, 5, 6, 2, 77);";

#[test]
fn collectives_are_counted_as_in_a_csv() {
    let counted = |change: &str| {
        let groups = read(&create_database(&[TABLES, RECORDS, COLLECTIVES, change])).expect("read");
        assert_eq!(groups.records, 7);
        let counts = shapeless_counts(&groups);
        assert_eq!(add(groups).record_count(), 3, "kernels are read beside them");
        counts.into_iter().filter(|(kernel, _)| kernel != "Add").collect::<Vec<_>>()
    };
    let both = [("hcom_allReduce_".to_owned(), 2), ("hcom_broadcast_".to_owned(), 1)];
    assert_eq!(counted(""), both, "a type that is not among the names is that of the operation's name");
    assert_eq!(counted("ALTER TABLE COMMUNICATION_OP DROP COLUMN opType"), both);
    assert_eq!(counted("ALTER TABLE COMMUNICATION_OP RENAME COLUMN opType TO op_type"), both);
    let nameless = counted(
        "ALTER TABLE COMMUNICATION_OP DROP COLUMN opType; ALTER TABLE COMMUNICATION_OP DROP COLUMN opName",
    );
    assert_eq!(nameless, [("N/A".to_owned(), 3)]);
    let groups = read(&create_database(&[TABLES, RECORDS, COLLECTIVES])).expect("read");
    let reduced = &groups.without_shapes["hcom_allReduce_"];
    assert_eq!((reduced.duration, reduced.core.as_str()), (Nanos(2), "COMMUNICATION"));
    let rehearsed = "UPDATE STRING_IDS SET value = 'rehearsal_hcom' WHERE id = 42";
    let message = error(&create_database(&[TABLES, RECORDS, COLLECTIVES, rehearsed]));
    assert!(message.contains("(COMMUNICATION_OP, opId 2): a record of the rehearsal host"), "{message}");
}

#[test]
fn database_without_kernels_reports_its_content() {
    let alone = error(&create_database(&[TABLES, COLLECTIVES, "DROP TABLE COMPUTE_TASK_INFO"]));
    assert!(alone.contains("`COMPUTE_TASK_INFO`: it holds collectives and no other kernel"), "{alone}");
    let analysis = error(&create_database(&["CREATE TABLE StepTraceTime (step, computing)"]));
    assert!(analysis.contains("`TASK`: it holds an analysis of steps and communication"), "{analysis}");
}

#[test]
fn missing_optional_tables_and_names_are_tolerated() {
    let without_counters =
        add(read(&create_database(&[TABLES, RECORDS, "DROP TABLE TASK_PMU_INFO"])).expect("read"));
    assert!(counters(&without_counters.into_statistics()).is_empty());
    let dangling =
        read(&create_database(&[TABLES, RECORDS, "DELETE FROM STRING_IDS WHERE id = 6"])).expect("read");
    assert_eq!(shapeless_counts(&dangling), [("Add".to_owned(), 4)]);
    let unrun =
        read(&create_database(&[TABLES, RECORDS, "DELETE FROM TASK WHERE globalTaskId = 21"])).expect("read");
    assert_eq!(unrun.without_duration, BTreeMap::from([("Add".to_owned(), 1)]));
    let open = read(&create_database(&[TABLES, RECORDS, "UPDATE TASK SET endNs = NULL"])).expect("read");
    assert_eq!(open.without_duration, BTreeMap::from([("Add".to_owned(), 3)]));
}

#[test]
fn invalid_cells_are_reported_with_column() {
    for (change, expected) in [
        ("DROP TABLE TASK", "`DIR/msprof_20250109161616.db` has no table `TASK`"),
        (
            "DROP TABLE COMPUTE_TASK_INFO",
            "has no table `COMPUTE_TASK_INFO`: it was taken at profiler level 0",
        ),
        ("DROP TABLE STRING_IDS", "has no table `STRING_IDS`"),
        ("ALTER TABLE TASK RENAME COLUMN endNs TO x", "table `TASK` lacks `endNs`"),
        ("ALTER TABLE COMPUTE_TASK_INFO DROP COLUMN outputShapes", "lacks `outputShapes`"),
        (
            "UPDATE TASK SET endNs = 'soon' WHERE globalTaskId = 21",
            "(globalTaskId 21): `soon` in column `endNs`",
        ),
        ("UPDATE TASK SET startNs = 1.5", "is a floating point number"),
        (
            "UPDATE TASK SET endNs = startNs - 5 WHERE globalTaskId = 20",
            "`-0.005` in column `endNs - startNs`",
        ),
        ("UPDATE TASK SET startNs = -9223372036854775807", "is out of range"),
        ("UPDATE STRING_IDS SET value = '\"8,x\"' WHERE id = 6", "in column `inputShapes` cannot be read"),
        ("UPDATE STRING_IDS SET value = CAST(x'ff' AS TEXT) WHERE id = 9", "`outputShapes` is not UTF-8"),
        ("UPDATE STRING_IDS SET value = hex(zeroblob(1000000)) WHERE id = 6", "a text of 2000000 bytes"),
        (
            "UPDATE STRING_IDS SET value = 'rehearsal_Add' WHERE id = 1",
            "(globalTaskId 20): a record of the rehearsal",
        ),
    ] {
        let message = error(&create_database(&[TABLES, RECORDS, change]));
        assert!(message.contains(expected), "{change}: {message}");
    }
    let shapeless = TABLES.replace("Formats INTEGER", "A INTEGER");
    let shapeless =
        shapeless.replace("DataTypes INTEGER", "B INTEGER").replace("Shapes INTEGER", "C INTEGER");
    assert!(error(&create_database(&[&shapeless])).contains("taken at profiler level 0"));
}

#[test]
fn rehearsed_records_need_permission() {
    let database =
        create_database(&[TABLES, RECORDS, "UPDATE STRING_IDS SET value = 'rehearsal_Add' WHERE id = 1"]);
    assert!(matches!(read(&database), Err(ProfileError::Rehearsed { place: RecordPosition::Task(20), .. })));
    assert_eq!(add(read_as(&database, true).expect("read")).record_count(), 3);
}

#[test]
fn invalid_database_files_are_classified() {
    let whole = create_database(&[TABLES, RECORDS]);
    let bytes = fs::read(&whole.path).expect("there");
    for (content, expected) in [
        (&b""[..], "is empty"),
        (b"version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer"),
        (b"Type,Duration(us)\n", "is not an SQLite database"),
        (&bytes[..50], "is truncated: 50 of 512 bytes"),
        (&bytes[..bytes.len() - 1], "is truncated: "),
    ] {
        fs::write(&whole.path, content).expect("written");
        let message = error(&whole);
        assert!(message.contains(expected), "{message}");
    }
    let mut garbage = bytes.clone();
    garbage[100..].fill(0xA5);
    fs::write(&whole.path, &garbage).expect("written");
    assert!(error(&whole).contains("cannot read the database"), "{}", error(&whole));
    fs::remove_file(&whole.path).expect("removed");
    assert!(error(&whole).contains("No such file"));
}

/// MindStudio Insight leaves them in WAL mode, and profiles are often mounted read-only.
#[test]
fn database_in_wal_mode_is_read_without_new_files() {
    let wal = create_database(&["PRAGMA journal_mode=WAL", TABLES, RECORDS]);
    let odd = wal.folder.path().join("a?b#c%41 d/e;f&g=h");
    fs::create_dir_all(&odd).expect("created");
    let path = odd.join("msprof_1.db");
    fs::rename(&wal.path, &path).expect("moved");
    let bytes = fs::read(&path).expect("there");
    assert_eq!(bytes[18..20], [2, 2], "WAL mode");
    fs::set_permissions(&odd, fs::Permissions::from_mode(0o555)).expect("read-only");
    let wal = ProfilerDatabase { folder: wal.folder, path };
    assert_eq!(add(read(&wal).expect("read")).record_count(), 3);
    assert_eq!(fs::read_dir(&odd).expect("listed").count(), 1, "nothing beside it");
    assert_eq!(fs::read(&wal.path).expect("there"), bytes);
    fs::set_permissions(&odd, fs::Permissions::from_mode(0o755)).expect("writable");
    fs::write(odd.join("msprof_1.db-wal"), b"7\x7f\x06\x82").expect("written");
    assert!(error(&wal).contains("was not closed"), "changes that are only in the log are not passed over");
    fs::write(odd.join("msprof_1.db-wal"), b"").expect("written");
    assert!(read(&wal).is_ok(), "an empty log holds none");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Damage is an error or other records, never a panic, and never a trace beside the file.
    #[test]
    fn damaged_databases_are_records_or_errors(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..30),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        thread_local! {
            static WHOLE: Vec<u8> = fs::read(create_database(&[TABLES, RECORDS]).path).expect("there");
        }
        let mut bytes = WHOLE.with(Clone::clone);
        // Most of a small database is unused, and damage there changes nothing.
        let used: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
        for (at, byte) in changes {
            bytes[used[at.index(used.len())]] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.db");
        fs::write(&path, &bytes).expect("written");
        let database = ProfilerDatabase { folder, path };
        match read(&database) {
            Ok(groups) => {
                let groups = groups.into_kernels().into_values().flatten();
                groups.for_each(|group| drop(group.into_statistics()));
            }
            Err(error) => prop_assert!(error.to_string().contains("x.db")),
        }
        prop_assert_eq!(fs::read_dir(database.folder.path()).expect("listed").count(), 1);
    }
}
