//! Rows with verdict `ok` and a wrong number, under faults of the device and of the profiler.

use crate::{
    context::{Context, DECODER_KERNELS},
    kill_resume::ingested,
};

/// Largest relative deviation of a median from the true one that is not wrong.
const TOLERANCE: f64 = 0.03;

/// A fault, and the greatest share of the rows that may be wrong with verdict `ok`.
struct WrongNumberFault {
    name: &'static str,
    fault: &'static str,
    limit: f64,
    /// True if rows may be `ok`: cases on other devices or in other collections, and numbers that are right.
    may_be_ok: bool,
}

const fn fault(name: &'static str, fault: &'static str, limit: f64) -> WrongNumberFault {
    WrongNumberFault { name, fault, limit, may_be_ok: true }
}

/// A fault under which nothing proves that the records are those of the case.
const fn unproven(name: &'static str, fault: &'static str) -> WrongNumberFault {
    WrongNumberFault { name, fault, limit: 0.0, may_be_ok: false }
}

/// The first ones are tried by default.
const FAULTS: &[WrongNumberFault] = &[
    fault("one device 10 % slow", "slow_kernels: {factor: 1.1}\n  where: {devices: 0}", 0.01),
    fault("drift of 20 %", "unsteady_kernel: {pattern: drift, factor: 1.2, launch: 25}", 0.01),
    fault("coarse timer", "coarse_timer: {step: 1000}", 0.01),
    fault("no fault", "slow_device: {factor: 1}", 0.01),
    fault("one device 4 % slow", "slow_kernels: {factor: 1.04}\n  where: {devices: 0}", 0.01),
    fault("one device 30 % slow", "slow_kernels: {factor: 1.3}\n  where: {devices: 0}", 0.01),
    fault("one device throttled by 4 %", "throttling: {factor: 1.04}\n  where: {devices: 0}", 0.01),
    fault("one device throttled by 10 %", "throttling: {factor: 1.1}\n  where: {devices: 0}", 0.01),
    fault("one device throttled by 40 %", "throttling: {factor: 1.4}\n  where: {devices: 0}", 0.01),
    fault("one device 10 % fast", "slow_kernels: {factor: 0.9}\n  where: {devices: 0}", 0.01),
    fault("two devices 10 % fast", "slow_kernels: {factor: 0.9}\n  where: {devices: [0, 1]}", 0.01),
    fault(
        "one device 6 % fast after 20 s",
        "slow_kernels: {factor: 0.94}\n  where: {devices: [0]}\n  when: {from: 20}\nspeed: 10\ncosts: {start: 4, init: 2, export: 6}",
        0.01,
    ),
    fault("all slow after 1.5 s", "slow_kernels: {factor: 1.4}\n  when: {from: 1.5}", 0.01),
    // Only the production profile shows these.
    fault("all 1.5 times as slow", "slow_kernels: {factor: 1.5}", 0.01),
    fault("all in 0.6 of the time", "slow_kernels: {factor: 0.6}", 0.01),
    fault("all throttled after 1.5 s", "throttling: {factor: 1.4}\n  when: {from: 1.5}", 0.01),
    fault("drift of 8 %", "unsteady_kernel: {pattern: drift, factor: 1.08, launch: 25}", 0.01),
    fault("step of 4 %", "unsteady_kernel: {pattern: step, factor: 1.04, launch: 15}", 0.01),
    fault("step of 40 %", "unsteady_kernel: {pattern: step, factor: 1.4, launch: 15}", 0.01),
    fault("modes of 6 %", "unsteady_kernel: {pattern: two_modes, factor: 1.06}", 0.01),
    fault("modes of 15 %", "unsteady_kernel: {pattern: two_modes, factor: 1.15}", 0.01),
    fault("burst of 10 %", "unsteady_kernel: {pattern: burst, factor: 1.1, launch: 10}", 0.01),
    fault(
        "all 6 % slow after the start",
        "slow_kernels: {factor: 1.06}\n  when: {from: 60}\nspeed: 60",
        0.01,
    ),
    // Kernels that need more cycles there, such as with another placement of memory: no clock differs.
    fault(
        "two of four devices 5 % slow",
        "unsteady_kernel: {pattern: step, factor: 1.05, launch: 1}\n  where: {devices: [0, 1]}",
        0.01,
    ),
    fault(
        "three of four devices 10 % slow",
        "unsteady_kernel: {pattern: step, factor: 1.1, launch: 1}\n  where: {devices: [0, 1, 2]}",
        0.01,
    ),
    fault(
        "more cycles on one device",
        "unsteady_kernel: {pattern: step, factor: 1.3, launch: 1}\n  where: {devices: 0}",
        0.01,
    ),
    fault("neighbour", "neighbour: {factor: 1.3, share: 0.3}\n  where: {devices: 0}", 0.01),
    // The cores work longer than such launches took.
    unproven("durations 0.6 times as long as they were", "wrong_unit: {factor: 0.6}"),
    unproven("durations 0.8 times as long as they were", "wrong_unit: {factor: 0.8}"),
    fault("microseconds as nanoseconds", "wrong_unit: {factor: 1000}", 0.01),
    unproven("durations 1.3 times as long as they were", "wrong_unit: {factor: 1.3}"),
    unproven("AI CPU", "ai_cpu_fallback: {}"),
    // Without a production profile, tensors below 4 MiB and products on one block are not found.
    fault("one core", "one_core: {}", 0.0),
    unproven("no device", "no_device_id: {}"),
    // A call that launches two kernels in turn has no series of equal records.
    fault("records twice", "repeated_records: {}", 0.0),
    unproven("another kernel", "renamed_kernel: {}"),
    unproven("another kernel from launch 12", "renamed_kernel: {launch: 12}"),
    fault("lost records", "lost_records: {head: 300}", 0.0),
    unproven("another binary from launch 12", "renamed_kernel: {launch: 12, operator_only: true}"),
    // A case that is not measured on the first device has no reference.
    fault(
        "another binary on three of four devices, 5 % slower",
        "renamed_kernel: {operator_only: true}\n  where: {devices: [1, 2, 3]}\n\
         - unsteady_kernel: {pattern: step, factor: 1.05, launch: 1}\n  where: {devices: [1, 2, 3]}",
        0.0,
    ),
    fault("cut table", "truncated_csv: {keeps: 0.5}", 0.0),
    unproven("another device", "wrong_device_id: {}"),
];

/// Number of runs of each fault: `NPUBENCH_FAULT_RUNS` for all faults, or for those with `NPUBENCH_FAULT` in their names; else
/// one of the first two.
fn campaign() -> (u32, Vec<&'static WrongNumberFault>) {
    let number = std::env::var("NPUBENCH_FAULT_RUNS").ok().and_then(|text| text.parse().ok());
    let name = std::env::var("NPUBENCH_FAULT").unwrap_or_default();
    match number {
        Some(runs) => (runs, FAULTS.iter().filter(|fault| fault.name.contains(&name)).collect()),
        None => (1, FAULTS[..2].iter().collect()),
    }
}

/// Measures the decoder layer on four devices with a fault plan.
fn measured(plan: &str, seed: u32) -> Context {
    let context = ingested();
    context.write("faults.yaml", plan);
    let mut command = context.command(&["run", "--db", "db", "--host", "rehearsal", "--devices", "0-3"]);
    command.args(["--rehearsal-faults", "faults.yaml", "--seed", &seed.to_string()]);
    command.env_remove("NPUBENCH_MAX_COLLECTIONS").env_remove("NPUBENCH_LAUNCHES");
    let ran = context.ran(&command.output().expect("it runs"));
    assert!(matches!(ran.code, 0 | 1 | 4), "{plan}: {}", ran.stderr);
    context
}

/// Rows of a run, those with verdict `ok`, and those of them with a wrong median.
#[expect(clippy::print_stdout, reason = "wrong rows of a campaign")]
fn count_rows(fault: &WrongNumberFault, seed: u32) -> [usize; 3] {
    let context = measured(&format!("faults:\n- {}\n", fault.fault), seed);
    let truth = context.true_medians_by_case();
    let mut counts = [0; 3];
    for row in DECODER_KERNELS.into_iter().flat_map(|kernel| context.rows("db", kernel)) {
        counts[0] += 1;
        if row["MicroBench Verdict"] != "ok" {
            continue;
        }
        counts[1] += 1;
        let median: f64 = row["MicroBench Median Duration(us)"].parse().expect("a median");
        let deviation = (median / truth[&row["MicroBench Case"]] - 1.0).abs();
        if deviation > TOLERANCE {
            counts[2] += 1;
            let cell = |column: &str| &row[column];
            println!(
                "{}, seed {seed}: {} of {}, {median} us, {:.1} % off, {} samples in {} collections, {}",
                fault.name,
                cell("MicroBench Case"),
                cell("Input Shapes"),
                deviation * 100.0,
                cell("MicroBench Samples"),
                cell("MicroBench Collections"),
                cell("MicroBench Reason")
            );
        }
    }
    counts
}

#[test]
fn wrong_medians_are_not_ok() {
    let (runs, faults) = campaign();
    for fault in faults {
        let mut all = [0; 3];
        for seed in 1..=runs {
            let counts = count_rows(fault, seed);
            all.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        let [rows, ok, wrong] = all;
        println!("{:30} {rows} rows, {ok} ok, {wrong} of them wrong", fault.name);
        assert!(rows >= 20, "{}", fault.name);
        #[expect(clippy::cast_precision_loss, reason = "counts of rows")]
        let share = wrong as f64 / rows as f64;
        assert!(fault.may_be_ok || ok == 0, "{}: {ok} of {rows} rows are ok", fault.name);
        assert!(share <= fault.limit, "{}: {wrong} of {rows} rows are wrong and ok", fault.name);
    }
}

/// Launch noise of 0.2 to 5 % and offsets of collections as large: of the healthy cases, at most one of 500 has a verdict
/// other than `ok` and `noisy`, and at most 2 % of the measurements are caused by suspicion. The run has the verdicts of the rows.
/// A run of 20 cases by default, `NPUBENCH_FAULT_RUNS` of them otherwise.
#[test]
fn healthy_cases_are_not_suspicious() {
    let (runs, _) = campaign();
    let (mut rows, mut ok, mut accused, mut attempts, mut suspected) = (0_u32, 0_u32, 0_u32, 0_u32, 0_u32);
    for seed in 1..=runs {
        let context = measured("noise: {launch: [0.002, 0.05], offset: 1}\n", seed);
        let ledger = rusqlite::Connection::open(context.path("db/.npubench/ledger.db")).expect("the ledger");
        let verdict_of = |case: &str| -> String {
            let sql = "SELECT verdict FROM verdicts WHERE case_id = ?1";
            ledger.query_row(sql, [case], |row| row.get(0)).expect("a verdict")
        };
        for row in DECODER_KERNELS.into_iter().flat_map(|kernel| context.rows("db", kernel)) {
            rows += 1;
            assert_eq!(verdict_of(&row["MicroBench Case"]), row["MicroBench Verdict"], "seed {seed}");
            match row["MicroBench Verdict"].as_str() {
                "ok" => ok += 1,
                "noisy" => {}
                other => {
                    println!(
                        "seed {seed}: {} is {other}: {}",
                        row["MicroBench Case"], row["MicroBench Reason"]
                    );
                    accused += 1;
                }
            }
        }
        let number =
            |query: &str| -> u32 { ledger.query_row(query, [], |row| row.get(0)).expect("a number") };
        attempts += number("SELECT count(*) FROM attempts");
        // Measurements that are repeated because of their records, and those of cases that have a pattern in a collection.
        suspected += number("SELECT count(*) FROM attempts WHERE verdict NOT IN ('ok', 'noisy')")
            + number(
                "SELECT count(*) FROM attempts WHERE cause ->> 'cause' IN ('trend', 'step', 'two_modes')",
            );
    }
    println!(
        "{rows} rows, {ok} ok, {accused} accused; {attempts} measurements, {suspected} with a suspicion"
    );
    assert!(rows >= 20 && accused * 500 <= rows.max(500), "{accused} of {rows} rows are accused");
    // Three standard deviations above 2 %.
    let expected = f64::from(attempts) * 0.02;
    assert!(f64::from(suspected) <= expected + 3.0 * expected.sqrt(), "{suspected} of {attempts}");
}
