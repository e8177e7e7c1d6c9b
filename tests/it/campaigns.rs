//! Faults at random instants of a run: killed children, and tables that are damaged, deleted or replaced. Every other
//! row is written, and one command ends in the bytes of an undisturbed run. Launches that meet errors, whose cases are
//! measured again.
//!
//! Variables raise the number of faults: `NPUBENCH_CHILD_KILLS`, `NPUBENCH_TABLE_FAULTS`, `NPUBENCH_ERROR_ROWS`.

use std::{
    fs,
    process::Child,
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::prelude::*;

/// Number of faults: the value of a variable, or a small one.
fn fault_count(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// The n-th of a sequence that covers the interval from 0 to 1 evenly: multiples of the golden ratio.
fn fraction(n: u64) -> f64 {
    (f64::from(u32::try_from(n).expect("few")) * 0.618_033_988_75).fract()
}

/// Starts the run and waits until it has started a collection.
fn start_run(context: &Context) -> Child {
    let mut child = context.start(&STEADY_RUN);
    let has_collection = || {
        ledger(context).is_some_and(|ledger| {
            let count = ledger.query_row("SELECT count(*) FROM collections", [], |row| row.get::<_, i64>(0));
            count.is_ok_and(|count| count > 0)
        })
    };
    while !has_collection() {
        assert!(child.try_wait().expect("a status").is_none(), "the run ended before its first collection");
        thread::sleep(Duration::from_millis(2));
    }
    child
}

/// Returns an undisturbed database and the time from the first collection to the end of its run.
fn undisturbed() -> (Context, Duration) {
    let context = Context::of_layer();
    let mut child = start_run(&context);
    let started = Instant::now();
    assert_eq!(child.wait().expect("reaped").code(), Some(0));
    (context, started.elapsed())
}

/// Waits for child processes of a run and returns their ids; none if the run has ended. Between two collections a run
/// has no children.
fn running_children(context: &Context, run: &mut Child) -> Vec<String> {
    loop {
        let mut children = processes_in(&context.path("db"));
        if !children.is_empty() || run.try_wait().expect("a status").is_some() {
            children.sort();
            return children;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn killed_children_cost_no_row() {
    let (undisturbed, takes) = undisturbed();
    let expected = tables(&undisturbed);
    let mut killed = 0;
    for n in 0..fault_count("NPUBENCH_CHILD_KILLS", 1) {
        let context = Context::of_layer();
        let mut child = start_run(&context);
        thread::sleep(takes.mul_f64(fraction(n)));
        let children = running_children(&context, &mut child);
        if !children.is_empty() {
            let chosen = &children[usize::try_from(n).expect("small") % children.len()];
            let pid = Pid::from_raw(chosen.parse().expect("a process id"));
            killed += u32::from(kill(pid, Signal::SIGKILL).is_ok());
        }
        let code = child.wait().expect("reaped").code();
        assert_eq!(code, Some(0), "kill {n}: {}", context.run("show --db db").stdout);
        assert_eq!(tables(&context), expected, "kill {n}");
        assert_eq!(processes_in(&context.path("db")), Vec::<String>::new(), "kill {n}");
        let open = "SELECT count(*) FROM collections WHERE ended_ns IS NULL";
        assert_eq!(number(&ledger(&context).expect("it ran"), open), 0, "kill {n}");
    }
    assert!(killed > 0, "every run ended before one of its children was killed");
}

/// A fault of a table.
#[derive(Clone, Copy, Debug)]
enum TableFault {
    Emptied,
    CutInRow,
    Semicolons,
    Deleted,
    /// A folder of the same name, as a file that another program keeps locked cannot be replaced either.
    Irreplaceable,
}

#[test]
fn faulty_table_costs_no_other_row() {
    use TableFault::{CutInRow, Deleted, Emptied, Irreplaceable, Semicolons};
    let (undisturbed, takes) = undisturbed();
    let expected = tables(&undisturbed);
    for n in 0..fault_count("NPUBENCH_TABLE_FAULTS", 3) {
        let context = Context::of_layer();
        let before = tables(&context);
        let index = usize::try_from(n).expect("small");
        let (name, _) = &before[index % before.len()];
        let fault = [Emptied, CutInRow, Semicolons, Deleted, Irreplaceable][index % 5];
        let table = context.path("db").join(name);
        let original = fs::read(&table).expect("a table");
        let mut child = start_run(&context);
        thread::sleep(takes.mul_f64(fraction(n)));
        match fault {
            Emptied => fs::write(&table, "").expect("written"),
            CutInRow => fs::write(&table, &original[..original.len() - 9]).expect("written"),
            Semicolons => {
                let text = String::from_utf8_lossy(&original).replace(',', ";");
                fs::write(&table, text).expect("written");
            }
            Deleted => fs::remove_file(&table).expect("deleted"),
            Irreplaceable => {
                fs::remove_file(&table).expect("deleted");
                fs::create_dir(&table).expect("created");
            }
        }
        let code = child.wait().expect("reaped").code();
        assert!(matches!(code, Some(0 | 1 | 3 | 5)), "{fault:?} of {name}: {code:?}");
        let others = |tables: Vec<(String, String)>| -> Vec<(String, String)> {
            tables.into_iter().filter(|(other, _)| other != name).collect()
        };
        if table.is_dir() {
            fs::remove_dir(&table).expect("an empty folder");
        }
        assert_eq!(others(tables(&context)), others(expected.clone()), "{fault:?} of {name} at {n}");
        fs::write(&table, original).expect("restored");
        context.done(&STEADY_RUN);
        assert_eq!(tables(&context), expected, "{fault:?} of {name} at {n}");
    }
}

/// Errors that are not of the call, in the wordings of torch_npu and CANN, and where they are raised.
const ERRORS: [(&str, &str); 8] = [
    (
        "synchronize",
        "The Inner error is reported as above. The process exits for this inner error, and the current working \
                     operator name is aclnnX. [ERROR] ERR00100 PTA call acl api failed",
    ),
    ("synchronize", "NPU function error: AclrtSynchronizeStream(stream()), error code is 507011"),
    (
        "synchronize",
        "The Inner error is reported as above. ERR00100 PTA call acl api failed. (EL0004): Failed to allocate memory.",
    ),
    ("synchronize", "ACL stream synchronize failed. EI9999: Inner Error! fftsplus task timeout"),
    ("synchronize", "HBM MULTI BIT ECC ERROR."),
    ("launch", "call aclnnX failed. EZ9999: Inner Error!"),
    (
        "launch",
        "EI0020: Failed to enable listening for the NPU network adapter socket. Reason: the port is in use",
    ),
    ("launch", "an error that nobody knows"),
];

/// Returns a fault plan with these errors: in a part of the launches of a case on a device, or once for each case of a kernel.
fn error_plan<'a>(errors: impl IntoIterator<Item = (&'a str, &'a str, String)>) -> String {
    let fault = |(at, text, criteria): (&str, &str, String)| {
        let text = serde_json::to_string(text).expect("JSON");
        format!("  - error_text: {{at: {at}, text: {text}}}\n    {criteria}\n")
    };
    "faults:\n".to_owned() + &errors.into_iter().map(fault).collect::<String>()
}

/// Each case ends `ok`, or failed twice for the errors that it met. The number of rows is that of a grid of all kernels; 5 % of
/// their launches meet an error. Without it a small database meets more.
#[test]
fn launches_that_meet_errors_cost_no_row() {
    let context = Context::of_layer();
    let rows = fault_count("NPUBENCH_ERROR_ROWS", 0);
    let part = if rows > 0 { 0.05 } else { 0.15 };
    if rows > 0 {
        context.done(&["grid", "--db", "db", "--rows", &rows.to_string()]);
    }
    let each = format!("where: {{probability: {}}}", part / 8.0);
    context.write("plan.yaml", &error_plan(ERRORS.map(|(at, text)| (at, text, each.clone()))));
    let run =
        "run --db db --host rehearsal --devices 0-3 --rehearsal-model steady --rehearsal-faults plan.yaml";
    let ran = context.run(run);
    assert!(matches!(ran.code, 0 | 1), "{}: {}", ran.code, ran.stderr);
    let ledger = ledger(&context).expect("it ran");
    let texts = ERRORS.map(|(_, text)| format!("cause LIKE '%{}%'", &text[..24])).join(" OR ");
    let met = number(&ledger, &format!("SELECT count(*) FROM attempts WHERE {texts}"));
    assert!(met > 0, "no launch met an error");
    let attempts = "(SELECT count(*) FROM attempts a WHERE a.case_id = v.case_id AND a.verdict <> 'not_run')";
    // A case that runs out of memory alone is not repeated.
    let twice = format!(
        "SELECT count(*) FROM verdicts v WHERE verdict NOT IN ('ok', 'ran_as_other') AND ({texts}) AND ({attempts} > 1 \
         OR verdict = 'oom')"
    );
    let not_launched =
        "SELECT count(*) FROM verdicts WHERE verdict IN ('unsupported', 'invalid_args', 'no_entry')";
    let [twice, not_launched, ok, all] = [
        &twice,
        not_launched,
        "SELECT count(*) FROM verdicts WHERE verdict IN ('ok', 'ran_as_other')",
        "SELECT count(*) FROM planned",
    ]
    .map(|sql| number(&ledger, sql));
    let counts =
        format!("{all} cases, {ok} ok, {twice} failed twice, {not_launched} not launched, {met} errors");
    assert_eq!(ok + twice + not_launched, all, "{counts}: {}{}", ran.stdout, ran.stderr);
    assert!(twice <= all / 20 + 4, "{counts}");
}

/// Texts that users met, each once for each case of a kernel, and one in all ranks of a collective.
#[test]
fn texts_of_users_cost_no_row() {
    let Some(path) = shared("reports/errors/texts.jsonl") else { return };
    let text = fs::read_to_string(path).expect("readable");
    let texts: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let (of_ranks, late): (Vec<_>, Vec<_>) =
        texts.iter().partition(|one| one["raised"].text().contains("all ranks of a collective"));
    assert!(late.iter().all(|one| one["raised"] == "raised at the synchronisation"), "{late:?}");
    let context = Context::of_layer();
    let of_kernel = |(one, kernel): (&&serde_json::Value, &&str)| {
        let once = format!("where: {{kernel: {kernel}}}\n    times_each: 1");
        ("synchronize", one["text"].text().to_owned(), once)
    };
    let faults: Vec<_> = late.iter().zip(&DECODER_KERNELS).map(of_kernel).collect();
    let faults = faults.iter().map(|(at, text, once)| (*at, text.as_str(), once.clone()));
    context.write("plan.yaml", &error_plan(faults));
    let ran = context.run(&(STEADY_RUN, "--rehearsal-faults plan.yaml"));
    // A case that runs out of memory alone is not repeated.
    let other = "SELECT count(*) FROM verdicts WHERE verdict NOT IN ('ok', 'oom')";
    assert_eq!(number(&ledger(&context).expect("it ran"), other), 0, "{}{}", ran.stdout, ran.stderr);
    let ledger_of_run = ledger(&context).expect("it ran");
    for (one, kernel) in late.iter().zip(&DECODER_KERNELS) {
        let expected = match one["expected"].text() {
            "oom" => "'oom'",
            expected if expected.contains("not the fault of the call for certain") => "'crashed', 'rejected'",
            _ => "'crashed'",
        };
        let first = format!(
            "SELECT count(*) FROM cases c WHERE kernel = '{kernel}' AND NOT EXISTS (SELECT 1 FROM attempts a \
             WHERE a.case_id = c.case_id AND a.verdict IN ({expected}))"
        );
        assert_eq!(number(&ledger_of_run, &first), 0, "{kernel}: {one}");
    }
    for one in of_ranks {
        let context = Context::new();
        let first = "where: {collections: [1]}".to_owned();
        context.write("plan.yaml", &error_plan([("launch", one["text"].text(), first)]));
        let sweep = "0-1 --ranks 2 --ops all_reduce --sizes 1024,4096 --rehearsal-faults plan.yaml";
        context.done(&(crate::comm_run::SWEEP, sweep));
        let verdicts: Vec<String> = context
            .rows("db", "hcom_allReduce_")
            .iter()
            .map(|row| row["MicroBench Verdict"].clone())
            .collect();
        assert_eq!(verdicts, ["ok", "ok"], "{one}");
        let crashed = "SELECT count(*) FROM attempts WHERE verdict = 'crashed'";
        assert!(number(&ledger(&context).expect("it ran"), crashed) > 0, "{one}");
    }
}
