//! How long it takes to merge a profile of 1,000 signatures into a database of 1,000,000 rows.
//!
//! `cargo bench --bench merge [-- ROWS]`; 10,000 rows with `NPUBENCH_BENCH_SMALL=1`.

#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]

mod size;

use std::{error::Error, fmt::Write as _, fs, path::Path, time::Instant};

use npubench::{
    database::{COMPUTE_COLUMNS, Database, database_file::DatabaseFile, merge_groups},
    kernel::{DataKind, KernelName},
    profile::{ProfileRanks, RecordGroups, add_table},
};

const CHANGED: usize = 1000;
/// Records of each signature: the rows show a deviation, which a profile with one record would not replace.
const RECORDS: usize = 2;
/// Seconds that a million rows may take.
const LIMIT: f64 = 3.0;

fn main() {
    let rows = std::env::args().filter_map(|word| word.parse::<usize>().ok()).next();
    let rows = rows.unwrap_or_else(|| size::full_or_small(1_000_000, 10_000));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("db");
    Database::create(&path, &DatabaseFile::new(DataKind::Npu), |draft| {
        fs::write(draft.join("SwiGlu.csv"), table(rows)).expect("written");
        Ok::<(), Box<dyn Error>>(())
    })
    .expect("made");
    let profile = folder.path().join("kernel_details.csv");
    fs::write(&profile, changes(rows)).expect("written");
    let database = Database::open(&path).expect("there");
    let size = fs::metadata(path.join("SwiGlu.csv")).expect("there").len() >> 20;
    let kernel = KernelName::new("SwiGlu").expect("a name");

    let begun = Instant::now();
    let mut groups = RecordGroups::default();
    add_table(&mut groups, &profile, 0, false).expect("a profile");
    let groups = groups.into_kernels().remove(&kernel).expect("its groups");
    let mut table = database.kernel_csv(&kernel).expect("its table");
    let loaded = begun.elapsed().as_secs_f64();
    let merged = merge_groups(&kernel, &mut table, groups, &ProfileRanks::default(), false).expect("merged");
    let done = begun.elapsed().as_secs_f64();
    table.save().expect("saved");
    let saved = begun.elapsed().as_secs_f64();
    assert_eq!((merged.added, merged.updated), (0, CHANGED));
    println!("{rows} rows, {size} MB, {CHANGED} of them changed");
    println!("loaded at {loaded:.2} s, merged at {done:.2} s");
    let judged = size::judged(saved <= LIMIT);
    println!("saved at {saved:.2} s, limit {LIMIT:.2} s with 1000000 rows: {judged}");
    copy_for_scale(&path, folder.path());
}

/// What the disk alone takes to write the same bytes durably.
fn copy_for_scale(database: &Path, folder: &Path) {
    let bytes = fs::read(database.join("SwiGlu.csv")).expect("there");
    let begun = Instant::now();
    let target = folder.join("copy");
    fs::write(&target, bytes).expect("written");
    fs::File::open(&target).and_then(|file| file.sync_all()).expect("synced");
    println!("for scale, writing and syncing as many bytes: {:.2} s", begun.elapsed().as_secs_f64());
}

fn shapes(row: usize) -> (usize, usize) {
    (1 + row % 40_000, 128 * (1 + row / 40_000))
}

fn table(rows: usize) -> String {
    let mut text = COMPUTE_COLUMNS.join(",") + "\n";
    for row in 0..rows {
        let (tokens, width) = shapes(row);
        let _ = write!(
            text,
            "dynamic,AI_VECTOR_CORE,\"\"\"{tokens},{}\"\"\",DT_BF16,ND,\"\"\"{tokens},{width}\"\"\",DT_BF16,ND,12.345678,\
             59.730000,59.700000,1.059566",
            2 * width
        );
        text.push_str(&",1.234567,2.345678".repeat(25));
        text.push('\n');
    }
    text
}

/// A profile that replaces what the rows show: it has several records and a counter, as they do.
fn changes(rows: usize) -> String {
    let mut text =
        "Type,Duration(us),Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,\
                    Output Formats,aiv_time(us)\n"
            .to_owned();
    for index in 0..CHANGED {
        let (tokens, width) = shapes(index * (rows / CHANGED));
        for record in 0..RECORDS {
            let _ = writeln!(
                text,
                "SwiGlu,{}.5,\"\"\"{tokens},{}\"\"\",DT_BF16,ND,\"\"\"{tokens},{width}\"\"\",DT_BF16,ND,6.25",
                7 + record,
                2 * width
            );
        }
    }
    text
}
