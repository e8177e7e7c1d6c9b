//! How long it takes to merge 100 ledgers with 1,000,000 samples, and to merge them again.
//!
//! `cargo bench --bench fleet [-- LEDGERS]`; 4 ledgers of 200 samples with `NPUBENCH_BENCH_SMALL=1`. A rehearsed run makes the
//! first ledger, and SQL the others: each is of a host of its own, and has cases of its own.

#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]

mod size;

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use npubench::{
    database::COMPUTE_COLUMNS,
    kernel::{Case, CaseAttributes, Dtype, KernelName, Tensor, TensorFormat},
};
use rusqlite::{Connection, params};

/// Samples of an attempt.
const SAMPLES: usize = 20;
/// Cases of a collection.
const OF_COLLECTION: usize = 50;
/// Seconds that 100 ledgers with 1,000,000 samples may take.
const LIMIT: f64 = 30.0;

fn main() {
    let ledgers = std::env::args().filter_map(|word| word.parse::<usize>().ok()).next();
    let ledgers = ledgers.unwrap_or_else(|| size::full_or_small(100, 4));
    let cases = size::full_or_small(500, 10);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = folder.path();
    fs::create_dir(place.join("into")).expect("created");
    fs::write(place.join("into/Add.csv"), table(ledgers * cases)).expect("written");
    let database = "npubench_database: 1\nkind: rehearsal\ndevice: ATLAS_800_A3_752T_128G_DIE\n";
    fs::write(place.join("into/database.yaml"), database).expect("written");
    let first = first_ledger(place);
    for host in 0..ledgers {
        let shard = place.join(host.to_string());
        fs::create_dir_all(shard.join(".npubench")).expect("created");
        fs::write(shard.join("database.yaml"), database).expect("written");
        fill(&first, &shard.join(".npubench/ledger.db"), host, cases);
    }
    let forward: Vec<String> = (0..ledgers).map(|host| host.to_string()).collect();
    let samples = ledgers * cases * SAMPLES;
    let begun = Instant::now();
    let report = merge(place, &forward);
    let merged = begun.elapsed().as_secs_f64();
    assert_eq!(report["after"]["samples"], samples, "{report}");
    assert_eq!(report["written"]["rows"], ledgers * cases, "{report}");
    assert_eq!(report["missing_rows"].as_array().map(Vec::len), Some(0), "{report}");
    let ledger = place.join("into/.npubench/ledger.db");
    let bytes = fs::read(&ledger).expect("there");
    println!("{ledgers} ledgers, {samples} samples, {} rows, {} MB", ledgers * cases, bytes.len() >> 20);
    let judged = size::judged(merged <= LIMIT);
    println!("merged in {merged:.2} s, limit {LIMIT:.0} s with 100 ledgers of 10000 samples: {judged}");
    let shuffled: Vec<String> = forward.iter().rev().cloned().collect();
    let begun = Instant::now();
    let report = merge(place, &shuffled);
    println!("merged again in another order in {:.2} s", begun.elapsed().as_secs_f64());
    assert_eq!(report["is_unchanged"], true, "{report}");
    assert!(fs::read(&ledger).expect("there") == bytes, "the order changed a byte");
}

fn npubench(place: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_npubench"));
    let output = command.args(arguments).current_dir(place).output().expect("npubench runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn merge(place: &Path, from: &[String]) -> serde_json::Value {
    let mut arguments = vec!["db", "merge", "into", "--format", "json"];
    arguments.extend(from.iter().map(String::as_str));
    serde_json::from_str(&npubench(place, &arguments)).expect("JSON")
}

/// Rehearses one case, and returns the path of the ledger.
fn first_ledger(place: &Path) -> PathBuf {
    fs::create_dir(place.join("first")).expect("created");
    fs::copy(place.join("into/database.yaml"), place.join("first/database.yaml")).expect("copied");
    fs::write(place.join("first/Add.csv"), table(1)).expect("written");
    npubench(
        place,
        &[
            "run",
            "--db",
            "first",
            "--host",
            "rehearsal",
            "--rehearsal-model",
            "steady",
            "--devices",
            "0",
            "--max-collections",
            "1",
            "--launches",
            "20",
        ],
    );
    place.join("first/.npubench/ledger.db")
}

fn case_of(number: usize) -> Case {
    let tensor =
        Some(Tensor { dims: vec![1 + number as u64, 128], dtype: Dtype::Float, format: TensorFormat::nd() });
    Case {
        kernel: KernelName::new("Add").expect("a name"),
        inputs: vec![tensor.clone(), tensor.clone()],
        outputs: vec![tensor],
        attributes: CaseAttributes::default(),
    }
}

/// Makes the ledger of a host: a run of its own, with the launches of the first ledger for cases of its own.
fn fill(first: &Path, ledger: &Path, host: usize, cases: usize) {
    fs::copy(first, ledger).expect("copied");
    let mut connection = Connection::open(ledger).expect("a ledger");
    let tx = connection.transaction().expect("begun");
    tx.execute_batch(&format!(
        "PRAGMA defer_foreign_keys = ON;
         UPDATE planned SET run = run || '-{host}'; UPDATE collections SET run = run || '-{host}', archive = NULL;
         UPDATE verdicts SET run = run || '-{host}'; UPDATE device_readings SET run = run || '-{host}';
         UPDATE runs SET run = run || '-{host}', host = json_set(host, '$.host', 'node{host}');
         CREATE TEMP TABLE model AS SELECT * FROM attempts LIMIT 1;
         CREATE TEMP TABLE recorded AS SELECT * FROM launch_lists WHERE attempt = (SELECT attempt FROM model);
         DELETE FROM launch_lists; DELETE FROM attempts; DELETE FROM verdicts; DELETE FROM planned; DELETE FROM cases;"
    ))
    .expect("a run of the host");
    for number in 0..cases {
        let case = case_of(host * cases + number);
        let (id, signature) = (case.id().to_string(), case.signature());
        let of_collection = number / OF_COLLECTION;
        let keys = [100 + of_collection, 1_000 + number, of_collection % 8, number, number % 7];
        let [collection, attempt, device, ordinal, longer] = keys.map(|key| i64::try_from(key).expect("few"));
        if number % OF_COLLECTION == 0 {
            let sql = "INSERT INTO collections (collection, run, number, device, started_ns, ended_ns, outcome, purpose,
                                                predicted_s, software, cache)
                       SELECT ?1, run, ?1, ?2, started_ns + ?1, ended_ns + ?1, outcome, purpose, predicted_s, software, cache
                       FROM collections ORDER BY number LIMIT 1";
            tx.execute(sql, params![collection, device]).expect("a collection");
            let sql = "INSERT INTO controls SELECT ?1, device, control, position, kernel, durations_ns, cycle_rate,
                              cycle_rate_error FROM controls WHERE collection = (SELECT min(collection) FROM controls)";
            tx.execute(sql, params![collection]).expect("controls");
        }
        tx.execute("INSERT INTO cases VALUES (?1, 'Add', ?2)", params![id, signature]).expect("a case");
        tx.execute("INSERT INTO planned SELECT run, ?2, ?1 FROM runs", params![id, ordinal]).expect("a plan");
        let sql = "INSERT INTO attempts (attempt, collection, case_id, launched, verdict, cause, remarks, counters, op_state, core,
                                         cycle_rate, cycle_rate_error, is_withdrawn, operator)
                   SELECT ?1, ?2, ?3, launched, verdict, cause, remarks, counters, op_state, core, NULL, NULL, 0, operator FROM model";
        tx.execute(sql, params![attempt, collection, id]).expect("an attempt");
        let sql = "INSERT INTO launch_lists SELECT ?1, states, start_ns, offsets_ns,
                          (SELECT json_group_array(value + ?2) FROM json_each(durations_ns)) FROM recorded";
        tx.execute(sql, params![attempt, longer]).expect("launches");
        tx.execute("INSERT INTO verdicts SELECT run, ?1, 'ok', '{\"cause\":\"every_launch_recorded\"}', '[]', ended_ns FROM runs", params![id])
            .expect("a verdict");
    }
    tx.commit().expect("committed");
}

/// A table with the rows of the first cases, without results.
fn table(rows: usize) -> String {
    let mut text = COMPUTE_COLUMNS.join(",") + "\n";
    for row in 1..=rows {
        let shape = format!("{row},128");
        let _ = write!(
            text,
            "dynamic,AI_VECTOR_CORE,\"\"\"{shape};{shape}\"\"\",FLOAT;FLOAT,ND;ND,\"\"\"{shape}\"\"\",FLOAT,ND"
        );
        text.push_str(&",".repeat(COMPUTE_COLUMNS.len() - 8));
        text.push('\n');
    }
    text
}
