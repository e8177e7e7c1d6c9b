//! Commands that are killed at any instant: the same command again ends their programs, takes every lock, and ends as if
//! nothing had happened. `NPUBENCH_KILLS` raises the number of kills over all commands that write.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{attention, prelude::*};

const LISTS: [(&str, &str); 3] = [
    (
        "list.yaml",
        "questions:\n  - {op: SwiGlu, inputs: \"77,4096\", dtypes: bf16, count: 1, duration_us: 9}\n",
    ),
    (
        "norms.yaml",
        "summary: norms\npatterns:\n  norm:\n    summary: norms\n    kernels: [RmsNorm]\n    axes: {t: [1..64 ratio 8]}\n    \
         inputs: {shapes: \"t,1024; 1024\", dtypes: DT_BF16}\n    outputs: {shapes: \"t,1024; t,1\", dtypes: \"DT_BF16; \
         FLOAT\"}\n",
    ),
    (
        "gather.txt",
        "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n\
         1048576        262144     float     sum      -1    52.43   20.00   35.00      0    52.43   20.00   35.00      0\n",
    ),
];

/// Commands that write, those of the default number first; true for those that need a measured database.
const COMMANDS: [(&str, bool); 17] = [
    ("selftest --db db --host rehearsal --devices 0,1 --experiments 4 --rehearsal-faults hang.yaml", false),
    ("ingest k.csv --db new --kind rehearsal", false),
    (
        "comm run --db comm --host rehearsal --rehearsal-model steady --warm-up 2 --launches 8 --devices 0-1 --ranks 2 \
      --ops all_reduce --sizes 1024,4096",
        false,
    ),
    ("db copy db new --kind rehearsal", true),
    ("run --db db --host rehearsal --devices 0-3 --rehearsal-model steady", false),
    ("run --db db --host rehearsal --devices 0-3 --rehearsal-model steady --update all", true),
    ("fill --db db --workload list.yaml --host rehearsal --devices 0-3 --rehearsal-model steady", true),
    (
        "adapt RmsNorm --db db --grids norms.yaml --host rehearsal --devices 0-3 --rehearsal-model steady",
        false,
    ),
    ("grid --db db --rows 40", false),
    ("shard --db db --shards 3", false),
    ("db merge db other", true),
    ("db normalize db", true),
    ("db rebuild db", true),
    ("reparse --db db --write", true),
    ("fia-backfill --db db --dump calls.jsonl", false),
    (
        "comm import gather.txt --db comm --collective all_reduce --devices 0-7 --device ATLAS_800_A2_376T_64G",
        false,
    ),
    ("selftest --db db --host rehearsal --devices 0,1 --experiments 0-3", false),
];

fn prepared(arguments: &str, is_measured: bool) -> Context {
    let context = if is_measured { Context::of_measured_layer() } else { Context::of_layer() };
    LISTS.iter().for_each(|(name, text)| drop(context.write(name, text)));
    context.write("k.csv", &profile(&[SWIGLU, ADD]));
    context.write("calls.jsonl", &attention::call(2, "1000,129"));
    if arguments.starts_with("fia-backfill") {
        context.write("attention.csv", &profile(&[&attention::decode(2, "50")]));
        context.done("ingest attention.csv --db db");
    }
    context.write("hang.yaml", "faults: [{hang: {ignores_sigterm: true}}]\n");
    for (path, bytes) in context.snapshot("db") {
        let target = context.path("other").join(path.strip_prefix("db").expect("below"));
        fs::create_dir_all(target.parent().expect("a folder")).expect("created");
        fs::write(target, bytes).expect("written");
    }
    fs::create_dir(context.path("tmp")).expect("created");
    context
}

fn command(context: &Context, arguments: &str) -> Command {
    let mut command = context.command(arguments);
    command.env("TMPDIR", context.path("tmp"));
    command
}

/// Tables of all databases without the ids of runs.
fn all_tables(context: &Context) -> BTreeMap<String, Vec<(String, String)>> {
    let databases = ["db", "new", "comm"].into_iter().filter(|name| context.path(name).is_dir());
    databases.map(|name| (name.to_owned(), tables_of(context, name))).collect()
}

/// Temporary files and folders, and records of programs, of all databases.
fn drafts(context: &Context) -> Vec<String> {
    let names = |folder: &Path| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path().display().to_string()).collect::<Vec<_>>()
    };
    let mut all = names(&context.path("."));
    for database in ["db", "new", "comm"].map(|name| context.path(name)) {
        all.extend(names(&database));
        all.extend(names(&database.join(".npubench")));
    }
    let is_draft = |path: &String| path.contains("/.npubench-");
    let mut left: Vec<String> = all.into_iter().filter(is_draft).collect();
    left.extend(
        ["db", "comm"].iter().flat_map(|name| names(&context.path(name).join(".npubench/processes"))),
    );
    left
}

struct Undisturbed {
    takes: Duration,
    codes: Vec<i32>,
    tables: BTreeMap<String, Vec<(String, String)>>,
}

fn undisturbed(arguments: &str, is_measured: bool) -> Undisturbed {
    let context = prepared(arguments, is_measured);
    let started = Instant::now();
    let first = context.ran(&command(&context, arguments).output().expect("it runs"));
    let takes = started.elapsed();
    let tables = all_tables(&context);
    let again = context.ran(&command(&context, arguments).output().expect("it runs"));
    assert!(![2, 70, 101].contains(&first.code), "{arguments}: {first:?}");
    Undisturbed { takes, codes: vec![first.code, again.code], tables }
}

#[test]
fn killed_commands_leave_nothing_that_the_next_one_does_not_clear() {
    let all = kills(3);
    let mut known: BTreeMap<usize, Undisturbed> = BTreeMap::new();
    let (mut problems, mut killed) = (Vec::new(), 0);
    for kill in 0..usize::try_from(all).expect("small") {
        let index = kill % COMMANDS.len();
        let (arguments, is_measured) = COMMANDS[index];
        // A selftest whose programs hang has no end of its own.
        let (hangs, again) = match arguments.split_once(" 4 --rehearsal-faults") {
            Some((without, _)) => (true, format!("{without} 1")),
            None => (false, arguments.to_owned()),
        };
        let reference = known.entry(index).or_insert_with(|| undisturbed(&again, is_measured));
        let context = prepared(arguments, is_measured);
        let before = all_tables(&context);
        let mut child = command(&context, arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it runs");
        let part = (kill as f64 * 0.618_033_988_75).fract();
        if hangs {
            while processes_in(&context.path("db")).is_empty() {
                assert!(child.try_wait().expect("a status").is_none(), "{arguments}: it ended");
                thread::sleep(Duration::from_millis(5));
            }
        } else {
            thread::sleep(reference.takes.mul_f64(part));
        }
        killed += u32::from(child.try_wait().expect("asked").is_none());
        child.kill().expect("killed");
        child.wait().expect("reaped");
        let cut = all_tables(&context).into_values().flatten();
        let cut: Vec<String> = cut.filter(|(_, text)| !text.ends_with('\n')).map(|(name, _)| name).collect();
        let ran = context.ran(&command(&context, &again).output().expect("it runs"));
        let left = processes_in(&context.path("."));
        let mut problem = |text: String| {
            problems.push(format!("kill {kill} at {part:.3} of {:?}: {arguments}: {text}", reference.takes));
        };
        if !cut.is_empty() {
            problem(format!("tables are cut: {cut:?}"));
        }
        if !reference.codes.contains(&ran.code) {
            problem(format!("{} in place of {:?}: {}{}", ran.code, reference.codes, ran.stdout, ran.stderr));
        }
        if !left.is_empty() {
            problem(format!("programs are left: {left:?}"));
        }
        if !drafts(&context).is_empty() {
            problem(format!("drafts are left: {:?}", drafts(&context)));
        }
        // Rounds of these depend on what was measured before.
        let has_rounds = ["fill", "adapt", "--update all"].iter().any(|word| arguments.contains(word));
        let now = all_tables(&context);
        if !has_rounds && now != reference.tables {
            let names: Vec<&String> = now.keys().collect();
            problem(format!("other tables in {names:?}; as before: {}", now == before));
        }
    }
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
    assert!(killed > 0, "every command ended before it was killed");
}
