//! Rows with verdict `ok` and a wrong number, under faults of the device and of the profiler.

use std::collections::BTreeMap;

use crate::{context::Context, kill_resume::ingested};

/// Largest relative deviation of a median from the true one that is not wrong.
const TOLERANCE: f64 = 0.03;

/// A fault, and the greatest share of the rows that may be wrong with verdict `ok`.
struct WrongNumberFault {
    name: &'static str,
    fault: &'static str,
    limit: f64,
}

const fn fault(name: &'static str, fault: &'static str, limit: f64) -> WrongNumberFault {
    WrongNumberFault { name, fault, limit }
}

/// The first ones are tried by default.
const FAULTS: [WrongNumberFault; 14] = [
    fault("one device 10 % slow", "slow_kernels: {factor: 1.1}\n  where: {devices: 0}", 0.01),
    fault("drift of 20 %", "unsteady_kernel: {pattern: drift, factor: 1.2, launch: 25}", 0.01),
    fault("no fault", "slow_device: {factor: 1}", 0.01),
    fault("one device 4 % slow", "slow_kernels: {factor: 1.04}\n  where: {devices: 0}", 0.01),
    fault("one device 30 % slow", "slow_kernels: {factor: 1.3}\n  where: {devices: 0}", 0.01),
    fault("one device throttled", "throttling: {factor: 1.4}\n  where: {devices: 0}", 0.01),
    fault("all slow after 1.5 s", "slow_kernels: {factor: 1.4}\n  when: {from: 1.5}", 0.01),
    fault("drift of 8 %", "unsteady_kernel: {pattern: drift, factor: 1.08, launch: 25}", 0.01),
    fault("step of 40 %", "unsteady_kernel: {pattern: step, factor: 1.4, launch: 15}", 0.01),
    fault("modes of 15 %", "unsteady_kernel: {pattern: two_modes, factor: 1.15}", 0.01),
    fault("microseconds as nanoseconds", "wrong_unit: {factor: 1000}", 0.0),
    fault("AI CPU", "ai_cpu_fallback: {}", 0.0),
    fault("no device", "no_device_id: {}", 0.0),
    fault("records twice", "repeated_records: {}", 0.0),
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

/// True medians of the rehearsal host in microseconds, by case.
fn true_medians(context: &Context) -> BTreeMap<String, f64> {
    let files = context.snapshot("db/.npubench/runs").into_iter();
    let texts = files.filter(|(path, _)| path.ends_with("host/truth.csv"));
    let texts: Vec<String> = texts.map(|(_, text)| String::from_utf8(text).expect("text")).collect();
    let lines = texts.iter().flat_map(|text| text.lines());
    let cells = lines.map(|line| line.split(',').collect::<Vec<_>>());
    cells.filter_map(|cells| Some((cells[0].to_owned(), cells[2].parse().ok()?))).collect()
}

/// Rows of a run, those with verdict `ok`, and those of them with a wrong median.
#[expect(clippy::print_stdout, reason = "wrong rows of a campaign")]
fn count_rows(fault: &WrongNumberFault, seed: u32) -> [usize; 3] {
    const KERNELS: [&str; 10] = [
        "Add",
        "GatherV2",
        "MatMulV2",
        "MatMulV3",
        "Mul",
        "RmsNorm",
        "Slice",
        "Sort",
        "SwiGlu",
        "TensorMove",
    ];
    let context = ingested();
    context.write("faults.yaml", &format!("faults:\n- {}\n", fault.fault));
    let mut command = context.command(&["run", "--db", "db", "--host", "rehearsal", "--devices", "0-3"]);
    command.args(["--rehearsal-faults", "faults.yaml", "--seed", &seed.to_string()]);
    command.env_remove("NPUBENCH_MAX_COLLECTIONS").env_remove("NPUBENCH_LAUNCHES");
    let ran = context.ran(&command.output().expect("it runs"));
    assert!(matches!(ran.code, 0 | 1 | 4), "{}: {}", fault.name, ran.stderr);
    let truth = true_medians(&context);
    let mut counts = [0; 3];
    for row in KERNELS.into_iter().flat_map(|kernel| context.rows("db", kernel)) {
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
        assert!(share <= fault.limit, "{}: {wrong} of {rows} rows are wrong and ok", fault.name);
    }
}
