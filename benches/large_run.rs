//! Time and memory of `show`, `report` and `db check` for a run of 100,000 cases with all their launches.
//!
//! `cargo bench --bench large_run [-- CASES]`; 500 cases with `NPUBENCH_BENCH_SMALL=1`. Each case has the launches of a
//! rehearsed one, 57 of which are measured, so that 100,000 cases have 5,700,000 samples.

#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]

mod size;

use std::{error::Error, fs, path::Path, process::Command, time::Instant};

use nix::sys::resource::{UsageWho, getrusage};
use sha2::{Digest as _, Sha256};

/// Seconds that each command may take.
const LIMIT: f64 = 2.0;
/// MiB that each command may take.
const MEMORY: i64 = 200;
/// Shapes of the case that is rehearsed; the others differ in the number of tokens.
const SHAPES: [&str; 2] = ["512,6144", "512,3072"];

fn main() -> Result<(), Box<dyn Error>> {
    let cases = std::env::args().filter_map(|word| word.parse::<u32>().ok()).next();
    let cases =
        cases.unwrap_or_else(|| u32::try_from(size::full_or_small(100_000, 500)).expect("a small number"));
    let folder = tempfile::tempdir()?;
    rehearse_one_case(folder.path())?;
    multiply_cases(&folder.path().join("db"), cases)?;
    println!("a run of {cases} cases");
    for arguments in [&["show"][..], &["report", "--output", "page.html"], &["db", "check"]] {
        let started = Instant::now();
        let (code, output) = run(folder.path(), arguments)?;
        let seconds = started.elapsed().as_secs_f64();
        // A command that found nothing would be fast.
        assert_eq!(code, Some(0), "{arguments:?}: {output}");
        let memory = getrusage(UsageWho::RUSAGE_CHILDREN)?.max_rss() / 1024;
        let judged = size::judged(seconds <= LIMIT && memory <= MEMORY);
        println!(
            "{}: {seconds:.2} s, limit {LIMIT:.2} s; at most {memory} MiB until now, limit {MEMORY} MiB: {judged}",
            arguments.join(" ")
        );
    }
    let page = fs::metadata(folder.path().join("page.html"))?.len();
    println!("the page has {:.2} MB", page as f64 / 1e6);
    assert!(page < 5_000_000, "{page} bytes");
    Ok(())
}

/// Runs npubench on the database `db` and returns its exit code and messages.
fn run(folder: &Path, arguments: &[&str]) -> Result<(Option<i32>, String), Box<dyn Error>> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_npubench"));
    command.args(arguments).current_dir(folder).env("NPUBENCH_DB", "db").env("COLUMNS", "120");
    command.env("NPUBENCH_DEVICE", "ATLAS_800_A3_752T_128G_DIE").env("XDG_CONFIG_HOME", folder);
    let output = command.output()?;
    Ok((output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned()))
}

fn rehearse_one_case(folder: &Path) -> Result<(), Box<dyn Error>> {
    let header = "Type,Duration(us),Accelerator Core,Input Shapes,Input Data Types,Input Formats,Output Shapes,\
        Output Data Types,Output Formats";
    let [input, output] = SHAPES;
    let row = format!(
        "SwiGlu,59.730,AI_VECTOR_CORE,\"\"\"{input}\"\"\",DT_BF16,ND,\"\"\"{output}\"\"\",DT_BF16,ND"
    );
    fs::write(folder.join("kernel_details.csv"), format!("{header}\n{row}\n"))?;
    for arguments in [
        &["ingest", "kernel_details.csv", "--kind", "rehearsal"][..],
        &["run", "--host", "rehearsal", "--devices", "0", "--max-collections", "1"],
    ] {
        let (code, output) = run(folder, arguments)?;
        assert_eq!(code, Some(0), "{arguments:?}: {output}");
    }
    Ok(())
}

/// Adds cases to the run, with rows, attempts and launches like those of its case.
fn multiply_cases(database: &Path, count: u32) -> Result<(), Box<dyn Error>> {
    let path = database.join("SwiGlu.csv");
    let text = fs::read_to_string(&path)?;
    let row = text.trim_end().rsplit('\n').next().unwrap_or_default();
    let mut connection = rusqlite::Connection::open(database.join(".npubench/ledger.db"))?;
    let sql = "SELECT case_id, signature FROM cases WHERE case_id IN (SELECT case_id FROM planned)";
    let (case, signature): (String, String) =
        connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut table = text.clone();
    let transaction = connection.transaction()?;
    for index in 1..count {
        let with_tokens = |text: &str| {
            let tokens = (1000 + index).to_string();
            SHAPES
                .iter()
                .fold(text.to_owned(), |text, shape| text.replace(shape, &shape.replacen("512", &tokens, 1)))
        };
        let signature = with_tokens(&signature);
        let digest = Sha256::digest(signature.as_bytes());
        let new: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        table += &with_tokens(row).replace(&case, &new);
        table.push('\n');
        for sql in [
            "INSERT INTO cases SELECT ?1, kernel, ?2 FROM cases WHERE case_id = ?3",
            "INSERT INTO planned SELECT run, ordinal + ?4, ?1 FROM planned WHERE run = (SELECT run FROM runs) AND case_id = ?3",
            "INSERT INTO verdicts SELECT run, ?1, verdict, cause, remarks, at_ns FROM verdicts WHERE run = (SELECT run FROM runs) AND case_id = ?3",
            "INSERT INTO attempts (collection, case_id, launched, verdict, cause, remarks, counters)
             SELECT collection, ?1, launched, verdict, cause, remarks, counters FROM attempts WHERE case_id = ?3",
            "INSERT INTO launch_lists
             SELECT (SELECT max(attempt) FROM attempts), states, start_ns, offsets_ns, durations_ns
             FROM launch_lists WHERE attempt = (SELECT min(attempt) FROM attempts)",
        ] {
            // Every statement uses some of the parameters, and all are given.
            let mut statement = transaction.prepare_cached(&format!("{sql} AND ?1 || ?2 || ?4 <> ''"))?;
            let added = statement.execute(rusqlite::params![new, signature, case, index])?;
            assert!(added > 0, "{sql}");
        }
    }
    transaction.commit()?;
    fs::write(path, table)?;
    Ok(())
}
