//! Values that an earlier commit wrote, in `fixtures/same-values`: the current program writes the same CSVs from the same
//! profile, grids and seeds.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

use crate::prelude::*;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/decoder-layer");

fn run(context: &Context, arguments: &(impl Words + ?Sized)) {
    context.done(arguments);
}

fn ingest(context: &Context, database: &str) {
    run(context, &["ingest", EXAMPLE, "--db", database, "--kind", "rehearsal"]);
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures/same-values").join(name)
}

fn csv_files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let paths = fs::read_dir(folder).expect("the folder exists").map(|entry| entry.expect("readable").path());
    paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "csv"))
        .map(|path| {
            let name = path.file_name().expect("an entry has a name").to_string_lossy().into_owned();
            (name, fs::read(&path).expect("the file is readable"))
        })
        .collect()
}

#[test]
fn ingest_writes_the_same_bytes() {
    let context = Context::new();
    ingest(&context, "new");
    let expected = csv_files(&fixture("ingested"));
    assert_eq!(expected.len(), 10);
    let new = csv_files(&context.path("new"));
    assert!(new.keys().eq(expected.keys()));
    for (name, old) in &expected {
        assert_extends(name, old, &new[name]);
    }
    ingest(&context, "new");
    assert!(csv_files(&context.path("new")) == new, "a second time changes nothing");
}

/// Fails unless a table has the lines of the earlier commit, which sorted them by signature, each followed by the cells of
/// the columns that were added: records, ranks and profiles.
fn assert_extends(name: &str, old: &[u8], new: &[u8]) {
    let (old, new) = (String::from_utf8_lossy(old), String::from_utf8_lossy(new));
    assert_eq!(old.lines().count(), new.lines().count(), "{name}");
    let sorted = |text: &str| -> Vec<String> {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines[1..].sort();
        lines
    };
    for (number, (old, new)) in sorted(&old).iter().zip(sorted(&new)).enumerate() {
        let more = new.strip_prefix(old).unwrap_or_else(|| panic!("{name}:{}: {new}", number + 1));
        if number == 0 {
            assert_eq!(more, ",Profiling Records,Profiling Ranks,Profiling Profiles", "{name}");
        } else {
            let counts: Vec<u32> =
                more.split(',').skip(1).map(|count| count.parse().expect("a count")).collect();
            assert!(matches!(counts.as_slice(), [records, 1, 1] if *records > 0), "{name}: {more}");
        }
    }
}

#[test]
fn grids_and_mutations_write_the_same_bytes() {
    let context = Context::new();
    let commands: [(&str, &[&str]); 3] = [
        ("grid-of-a-model", &["--models", "Qwen3-32B"]),
        ("grid-of-ladders", &[]),
        ("mutants", &["--mutate", "--from", EXAMPLE]),
    ];
    let mut written = BTreeMap::new();
    for (folder, options) in commands {
        let grid = ["grid", "--db", folder, "--kind", "rehearsal", "--seed", "7", "--rows", "30"];
        run(&context, &(&grid[..], options));
        for (name, bytes) in csv_files(&context.path(folder)) {
            let digest = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            written.insert(format!("{folder}/{name}"), digest);
        }
    }
    let listed = fs::read_to_string(fixture("csv.sha256")).expect("UTF-8");
    let expected: BTreeMap<String, String> = listed
        .lines()
        .map(|line| line.split_once("  ").expect("a digest, two spaces and a path"))
        .map(|(digest, path)| (path.to_owned(), digest.to_owned()))
        .collect();
    assert_eq!(expected.len(), 160);
    // Products have more forms since, of which mutants are made. Products are rows of one kernel since, and those with a
    // batch are not rows of its name in graphs; the layers of 6144 have a pattern of their own; rows of attention and of its
    // caches have all recorded slots. Kernels without a grid in the earlier commit have no digest.
    let changed = [
        "MatMulV3.csv",
        "BatchMatMulV2.csv",
        "BatchMatMulNd.csv",
        "DispatchFFNCombine.csv",
        "FusedInferAttentionScore.csv",
        "KvRmsNormRopeCache.csv",
    ];
    let is_kept = |name: &&String| {
        let is_changed = |folder: &str, file: &str| {
            let mutated = ["MatMulV2.csv", "MatMulV3.csv"];
            if folder == "mutants" { mutated.contains(&file) } else { changed.contains(&file) }
        };
        name.split_once('/').is_none_or(|(folder, file)| !is_changed(folder, file))
    };
    let names = expected.keys().filter(is_kept);
    let wrong: Vec<_> = names.filter(|name| expected.get(*name) != written.get(*name)).collect();
    assert!(wrong.is_empty(), "{} of {} CSVs differ: {wrong:?}", wrong.len(), expected.len());
}
