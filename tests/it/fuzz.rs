//! Damaged files: whatever stands in them, a reader gives records or an error, in bounded time and memory.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::Duration,
};

use npubench::base::command_error::Failure;
use npubench::{
    database::{Database, KernelCsv, database_file::DatabaseFile, lint_database, normalize_database},
    kernel::{DataKind, SoftwareVersions},
    profile::{COUNTERS, RecordGroups, add_table, stack_of_profile},
};

use proptest::{prelude::*, sample::Index};
use tempfile::TempDir;

use crate::prelude::*;

/// One thing that happens to a file.
#[derive(Clone, Debug)]
pub(crate) enum Damage {
    Byte(Index, u8),
    Bit(Index, u8),
    Cut(Index),
    Gone(Index, usize),
    Twice(Index, usize),
    Inserted(Index, &'static str),
    /// The next number, or the next word, has another text.
    Number(Index, &'static str),
    Word(Index, &'static str),
    /// A bracket without end.
    Nested(Index, &'static str, usize),
    /// A part that is repeated.
    Repeated(Index, usize, usize),
}

/// Divided by spaces.
const SNIPPETS: &str = "\" \"\" \"\"\" \n \r \r\n\r\n \0 , ,,,, ; 99999999999999999999999999 -1 1e308 0.0000000000000000000001 \u{feff} \
                        \u{fffe} N/A \t ../../ &a[*a,*a]:{";

const NUMBERS: &str =
    "-1 0 1e308 -1e308 NaN inf 18446744073709551616 9223372036854775807 0x7f 1e-320 00 \u{663}";
const WORDS: &str = "null true ~ ../../../x \u{1b}[31m =1+1 \u{202e}x $(x) * a,b;c {} [] 2262-04-11";

pub(crate) fn damage() -> impl Strategy<Value = Vec<Damage>> {
    let at = any::<Index>;
    let one = prop_oneof![
        2 => (at(), any::<u8>()).prop_map(|(at, byte)| Damage::Byte(at, byte)),
        2 => (at(), 0_u8..8).prop_map(|(at, bit)| Damage::Bit(at, bit)),
        1 => at().prop_map(Damage::Cut),
        1 => (at(), 1_usize..300).prop_map(|(at, length)| Damage::Gone(at, length)),
        1 => (at(), 1_usize..300).prop_map(|(at, length)| Damage::Twice(at, length)),
        4 => (at(), prop::sample::select(SNIPPETS.split(' ').collect::<Vec<_>>())).prop_map(|(at, text)| Damage::Inserted(at, text)),
        2 => (at(), prop::sample::select(NUMBERS.split(' ').collect::<Vec<_>>())).prop_map(|(at, text)| Damage::Number(at, text)),
        2 => (at(), prop::sample::select(WORDS.split(' ').collect::<Vec<_>>())).prop_map(|(at, text)| Damage::Word(at, text)),
        1 => (at(), prop::sample::select(vec!["[", "{", "{\"a\":", "- ", "(", "\""]), 1_usize..100_000)
            .prop_map(|(at, text, times)| Damage::Nested(at, text, times)),
        1 => (at(), 1_usize..3_000, 2_usize..500).prop_map(|(at, length, times)| Damage::Repeated(at, length, times)),
    ];
    prop::collection::vec(one, 1..5)
}

pub(crate) fn damaged(whole: &[u8], damages: &[Damage]) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    for damage in damages {
        let (Damage::Byte(at, _)
        | Damage::Bit(at, _)
        | Damage::Cut(at)
        | Damage::Gone(at, _)
        | Damage::Twice(at, _)
        | Damage::Inserted(at, _)
        | Damage::Number(at, _)
        | Damage::Word(at, _)
        | Damage::Nested(at, ..)
        | Damage::Repeated(at, ..)) = damage;
        let at = at.index(bytes.len().max(1)).min(bytes.len());
        let until = |length: &usize| (at + length).min(bytes.len());
        match damage {
            Damage::Byte(_, byte) => bytes.iter_mut().skip(at).take(1).for_each(|old| *old = *byte),
            Damage::Bit(_, bit) => bytes.iter_mut().skip(at).take(1).for_each(|old| *old ^= 1 << bit),
            Damage::Cut(_) => bytes.truncate(at),
            Damage::Gone(_, length) => drop(bytes.drain(at..until(length))),
            Damage::Twice(_, length) => {
                let again = bytes[at..until(length)].to_vec();
                bytes.splice(at..at, again);
            }
            Damage::Inserted(_, text) => drop(bytes.splice(at..at, text.bytes())),
            Damage::Number(_, text) => {
                replace_next(&mut bytes, at, text, |byte| byte.is_ascii_digit() || *byte == b'.');
            }
            Damage::Word(_, text) => replace_next(&mut bytes, at, text, u8::is_ascii_alphabetic),
            Damage::Nested(_, text, times) => drop(bytes.splice(at..at, text.repeat(*times).into_bytes())),
            Damage::Repeated(_, length, times) => {
                let again = bytes[at..until(length)].repeat(*times);
                bytes.splice(at..at, again);
            }
        }
    }
    bytes
}

/// Replaces the next run of such bytes.
fn replace_next(bytes: &mut Vec<u8>, at: usize, text: &str, is_part: impl Fn(&u8) -> bool) {
    let Some(start) = bytes[at..].iter().position(&is_part).map(|start| at + start) else { return };
    let length = bytes[start..].iter().take_while(|byte| is_part(byte)).count();
    bytes.splice(start..start + length, text.bytes());
}

/// Does something that must end; a reader in a loop fails the test instead of holding it up.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    let worker = thread::spawn(move || drop(sender.send(work())));
    match receiver.recv_timeout(Duration::from_secs(60)) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it does not end"),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(worker.join().expect_err("it sends unless it panics"))
        }
    }
}

fn written(name: &str, bytes: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(name);
    fs::write(&path, bytes).expect("written");
    (folder, path)
}

/// A table with counters: `rows` records of three kernels.
fn table(rows: usize, newline: &str) -> Vec<u8> {
    let mut text = format!("{HEADER},{}{newline}", COUNTERS.join(","));
    let in_place = "ApplyAdamWV2,9.000,\"\"\"8;;8\"\"\",FLOAT;FLOAT;FLOAT,ND;ND;ND,N/A,N/A,N/A";
    for (row, record) in [SWIGLU, ADD, in_place].into_iter().cycle().take(rows).enumerate() {
        let mut parts = record.splitn(3, ',');
        let [kernel, duration, cells] = [(); 3].map(|()| parts.next().expect("three parts"));
        let counters: Vec<String> = (0..COUNTERS.len()).map(|column| format!("{row}.{column:03}")).collect();
        text.push_str(&format!(
            "50,0,4294967295,{row},2,aclnn_{kernel},{kernel},dynamic,AI_VECTOR_CORE,1764246877073{row:03}.640\t,\
             {duration},11.5,40,0,NO,{cells},N/A,{}{newline}",
            counters.join(",")
        ));
    }
    text.into_bytes()
}

/// Totals of each kernel in a table: records, the sum of their durations, and of their counters.
type Sums = BTreeMap<String, (usize, f64, f64)>;

fn by_groups(path: &Path) -> Result<(u64, Sums), String> {
    let mut groups = RecordGroups::default();
    add_table(&mut groups, path, 0, true).map_err(|error| {
        assert!(!error.hint().is_empty());
        error.to_string()
    })?;
    let records = groups.records;
    let mut sums = Sums::new();
    for (kernel, groups) in groups.into_kernels() {
        let sum = sums.entry(kernel.as_str().to_owned()).or_default();
        for group in groups {
            let count = group.record_count();
            let statistics = group.into_statistics();
            sum.0 += count;
            sum.1 += statistics.durations.expect("a group has records").mean * count as f64;
            sum.2 += statistics.counters.iter().flatten().sum::<f64>();
        }
    }
    Ok((records, sums))
}

/// A table is read or refused in time.
fn assert_ends(bytes: &[u8]) -> Result<(), TestCaseError> {
    let (_folder, path) = written("kernel_details.csv", bytes);
    let first = in_time({
        let path = path.clone();
        move || by_groups(&path)
    });
    prop_assert_eq!(first, by_groups(&path));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_tables_give_same_records_or_error_in_any_number_of_threads(damages in damage(), crlf: bool) {
        assert_ends(&damaged(&table(9, if crlf { "\r\n" } else { "\n" }), &damages))?;
    }

    #[test]
    fn damaged_profiler_info_never_panics(damages in damage()) {
        let info = br#"{"config": {"common_config": {"_activities": ["CPU", "NPU"]}}, "start_info": {"freq": 100},
            "rank_id": 0, "cann_version": "8.3.RC1", "torch_npu_version": "2.7.1"}"#;
        let (folder, _) = written("profiler_info_0.json", &damaged(info, &damages));
        let _: SoftwareVersions = in_time(move || stack_of_profile(&folder.path().join("kernel_details.csv")));
    }

    #[test]
    fn damaged_database_yaml_is_parsed_or_refused(damages in damage()) {
        let whole = DatabaseFile {
            profiled_on: SoftwareVersions { cann: Some("8.3.RC1".to_owned()), torch_npu: Some("2.7.1".to_owned()) },
            ..DatabaseFile::new(DataKind::Npu)
        };
        let bytes = damaged(whole.print().as_bytes(), &damages);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let path = Path::new("database.yaml");
        let (parsed, again) = in_time(move || {
            let parsed = DatabaseFile::parse(path, &text).ok();
            let again = parsed.as_ref().and_then(|file| DatabaseFile::parse(path, &file.print()).ok());
            (parsed, again)
        });
        prop_assert_eq!(parsed, again, "what is read is written so that it is read again");
    }

    #[test]
    fn damaged_kernel_csv_is_loaded_or_refused(damages in damage()) {
        let text = "OP State,Accelerator Core,Input Shapes,Input Data Types,Input Formats,Output Shapes,\
            Output Data Types,Output Formats,Average Duration(us),MicroBench Verdict,mine\r\n\
            dynamic,AI_CORE,\"\"\"8,8;8,8\"\"\",FLOAT;FLOAT,ND;ND,\"\"\"8,8\"\"\",FLOAT,ND,1.5,ok,\"a \"\"b\"\"\r\nc\"\r\n\
            dynamic,AI_CORE,\"\"\"8,8;8,8\"\"\",FLOAT;FLOAT,ND;ND,\"\"\"8,8\"\"\",FLOAT,ND,,,\r\n\
            dynamic,AI_CORE,\"\"\"16;16\"\"\",FLOAT;FLOAT,ND;ND,16,FLOAT,ND,0,,x\r\n";
        let bytes = damaged(text.as_bytes(), &damages);
        let (folder, path) = written("Mul.csv", &bytes);
        let copy = folder.path().join("copy");
        let copied = in_time(move || {
            lint_database(folder.path()).expect("a folder with a table");
            let database = Database::open(folder.path()).expect("a folder with a table");
            normalize_database(&database, true).expect("nothing is written");
            let table = KernelCsv::load(&path).ok()?;
            table.save_as(&copy).expect("written");
            let again = KernelCsv::load(&copy).expect("what was written can be read");
            Some((table.len(), again.len(), fs::read(&copy).expect("there")))
        });
        if let Some((rows, again, copy)) = copied {
            prop_assert_eq!(rows, again);
            prop_assert!(copy.starts_with(&bytes[..bytes.len().min(copy.len())]), "rows that are not touched keep their bytes");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3, failure_persistence: None, ..ProptestConfig::default() })]

    /// Several blocks, so that threads do share the work.
    #[test]
    fn damaged_tables_of_several_blocks_give_same_records(damages in damage()) {
        assert_ends(&damaged(&table(6_000, "\n"), &damages))?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    /// The program ends with 0 and a sound database, or with 3 and none.
    #[test]
    fn damaged_profile_leaves_valid_database_or_none(damages in damage()) {
        let context = Context::new();
        fs::write(context.path("kernel_details.csv"), damaged(&table(9, "\n"), &damages)).expect("written");
        let ran = context.run("ingest kernel_details.csv --db db --kind rehearsal");
        if ran.code == 0 {
            let checked = context.run("db check db");
            prop_assert_eq!(checked.stdout.lines().find(|line| line.contains(": error: ")), None);
        } else {
            prop_assert_eq!((ran.code, ran.stdout.as_str()), (3, ""), "{}", ran.stderr);
            prop_assert!(ran.stderr.lines().any(|line| line.starts_with("error: ")), "{}", ran.stderr);
            prop_assert!(ran.stderr.contains("\nhint: "), "{}", ran.stderr);
            prop_assert!(!context.path("db").exists());
        }
    }
}

/// A database whose tables have several pages and an index.
pub(crate) fn profiler_database() -> Vec<u8> {
    let (_folder, path) = written("msprof_1.db", b"");
    fs::remove_file(&path).expect("removed");
    let connection = rusqlite::Connection::open(&path).expect("created");
    connection
        .execute_batch(
            "PRAGMA page_size = 512;
             CREATE TABLE STRING_IDS (id INTEGER PRIMARY KEY, value TEXT);
             CREATE TABLE TASK (startNs INTEGER, endNs INTEGER, globalTaskId INTEGER);
             CREATE INDEX TaskIndex ON TASK (globalTaskId);
             CREATE TABLE COMPUTE_TASK_INFO (globalTaskId INTEGER PRIMARY KEY, opType, inputShapes, inputDataTypes,
                inputFormats, outputShapes, outputDataTypes, outputFormats);
             CREATE TABLE TASK_PMU_INFO (globalTaskId INTEGER, name INTEGER, value NUMERIC);
             CREATE TABLE COMMUNICATION_OP (opName INTEGER, opType INTEGER, opId INTEGER);
             INSERT INTO STRING_IDS VALUES (1, 'Mul'), (2, '\"8,8\"'), (3, 'FLOAT'), (4, 'ND'), (5, 'aiv_total_time');
             WITH RECURSIVE n(i) AS (SELECT 10 UNION ALL SELECT i + 1 FROM n WHERE i < 200)
                INSERT INTO STRING_IDS SELECT i, hex(zeroblob(i % 90)) FROM n;
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200)
                INSERT INTO TASK SELECT i * 1000, i * 1000 + 100 + i, i FROM n;
             INSERT INTO COMPUTE_TASK_INFO SELECT globalTaskId, 1, 2, 3, 4, 2, 3, 4 FROM TASK;
             INSERT INTO TASK_PMU_INFO SELECT globalTaskId, 5, globalTaskId * 1.5 FROM TASK;
             INSERT INTO COMMUNICATION_OP SELECT 1, 1, globalTaskId FROM TASK WHERE globalTaskId < 50;",
        )
        .expect("valid");
    connection.close().expect("closed");
    fs::read(&path).expect("there")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Pages in the place of others make trees that are no trees, such as ones with circles in them.
    #[test]
    fn databases_with_misplaced_pages_are_read_or_refused(
        moves in prop::collection::vec((any::<Index>(), any::<Index>()), 1..4),
        bytes in prop::collection::vec((any::<Index>(), 0_usize..24, any::<u8>()), 0..6),
    ) {
        const PAGE: usize = 512;
        thread_local!(static WHOLE: Vec<u8> = profiler_database());
        let mut database = WHOLE.with(Clone::clone);
        let pages = database.len() / PAGE;
        for (from, to) in moves {
            let from = (1 + from.index(pages - 1)) * PAGE;
            database.copy_within(from..from + PAGE, (1 + to.index(pages - 1)) * PAGE);
        }
        // The header of a page and its first pointers.
        for (page, at, byte) in bytes {
            database[(1 + page.index(pages - 1)) * PAGE + at] = byte;
        }
        let (_folder, path) = written("msprof_1.db", &database);
        match in_time(move || by_groups(&path)) {
            Ok((records, _)) => prop_assert!(records < 100_000),
            Err(error) => prop_assert!(error.contains("msprof_1.db")),
        }
    }
}

#[test]
fn undamaged_fuzz_database_is_read() {
    let (_folder, path) = written("msprof_1.db", &profiler_database());
    let (records, sums) = by_groups(&path).expect("whole");
    assert_eq!((records, sums["Mul"].0), (249, 200), "200 kernels and 49 collectives");
}
