//! Faults at random instants of a run: killed children, and tables that are damaged, deleted or replaced. Every other
//! row is written, and one command ends in the bytes of an undisturbed run.
//!
//! Variables raise the number of faults: `NPUBENCH_CHILD_KILLS`, `NPUBENCH_TABLE_FAULTS`.

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
