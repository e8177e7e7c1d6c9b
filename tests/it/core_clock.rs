//! Clock of the cores: the rule on a recorded profile, and runs of the rehearsal host with slow devices.

use std::{collections::HashMap, path::Path};

use npubench::base::stats::{CycleRate, CycleReading, find_clock_deficits};

use crate::prelude::*;

/// Signature, number of blocks, cycles and duration of each record of a profile with counters, in the order of their starts.
fn recorded_launches(table: &Path) -> Vec<(String, u32, f64, i64)> {
    let mut reader = csv::Reader::from_path(table).expect("a table");
    let header = reader.headers().expect("a header").clone();
    let column = |name: &str| header.iter().position(|cell| cell == name).unwrap_or_else(|| panic!("{name}"));
    let signature =
        ["Type", "Input Shapes", "Input Data Types", "Input Formats", "Output Shapes", "Accelerator Core"];
    let signature = signature.map(column);
    let [start, duration, blocks, cube, vector] =
        ["Start Time(us)", "Duration(us)", "Block Dim", "aic_total_cycles", "aiv_total_cycles"].map(column);
    let mut launches = Vec::new();
    for row in reader.records() {
        let row = row.expect("a row");
        let number = |column: usize| row[column].trim().parse::<f64>().ok();
        let (Some(start), Some(micros), Some(blocks)) = (number(start), number(duration), number(blocks))
        else {
            continue;
        };
        let (Some(cube), Some(vector)) = (number(cube), number(vector)) else { continue };
        if cube + vector > 0.0 && blocks > 0.0 {
            let name = signature.map(|column| row[column].to_owned()).join("|");
            launches.push((start, (name, blocks as u32, cube + vector, (micros * 1e3).round() as i64)));
        }
    }
    launches.sort_by(|one, other| one.0.total_cmp(&other.0));
    launches.into_iter().map(|(_, launch)| launch).collect()
}

/// Readings of both halves of a profile; durations of the second half are multiplied by `factor`.
fn readings_of_halves(launches: &[(String, u32, f64, i64)], factor: f64) -> Vec<CycleReading> {
    let mut cases = HashMap::new();
    let mut readings = Vec::new();
    let middle = launches.len() / 2;
    for (collection, half) in [&launches[..middle], &launches[middle..]].into_iter().enumerate() {
        let factor = if collection == 1 { factor } else { 1.0 };
        let mut order = Vec::new();
        let mut of_case: HashMap<(&str, u32), Vec<(f64, i64)>> = HashMap::new();
        for (name, blocks, cycles, nanos) in half {
            let samples = of_case.entry((name, *blocks)).or_insert_with(|| {
                order.push((name.as_str(), *blocks));
                Vec::new()
            });
            samples.push((*cycles, (*nanos as f64 * factor).round() as i64));
        }
        for key in order {
            let next = cases.len();
            let case = *cases.entry(key).or_insert(next);
            let rate = CycleRate::from_launches(&of_case[&key], key.1).expect("launches");
            readings.push(CycleReading {
                case,
                collection,
                run: 0,
                device: 0,
                rate,
                cycles: None,
                is_control: false,
            });
        }
    }
    readings
}

/// A step of 810 ms at one clock: no row is accused. With durations of its second half 3 % longer and the same cycles, the rows
/// of that half are.
#[test]
fn recorded_step_is_healthy_and_its_stretched_half_is_not() {
    let Some(table) = shared("real/llm_step_rank0/ASCEND_PROFILER_OUTPUT/kernel_details.csv") else { return };
    let launches = recorded_launches(&table);
    assert!(launches.len() > 2_000, "{}", launches.len());
    assert!(find_clock_deficits(&readings_of_halves(&launches, 1.0), &[]).iter().all(Option::is_none));
    let readings = readings_of_halves(&launches, 1.03);
    let found = find_clock_deficits(&readings, &[]);
    let accused = |collection: usize| {
        let of_half =
            readings.iter().zip(&found).filter(move |(reading, _)| reading.collection == collection);
        (of_half.clone().filter(|(_, found)| found.is_some()).count(), of_half.count())
    };
    let (slow, all) = accused(1);
    assert_eq!(accused(0).0, 0);
    assert!(slow * 100 >= all * 95, "{slow} of {all}");
}

/// Measures on three devices, of which some have a factor of the time for the same cycles. Returns what the run printed, the
/// number of accepted attempts of the second one, and that of those with a verdict and a cause.
fn run_with_factor(devices: &str, factor: f64, verdict: &str, cause: &str) -> (String, [i64; 2]) {
    let context = Context::of_layer();
    let plan =
        format!("faults:\n  - slow_kernels: {{factor: {factor}}}\n    where: {{devices: {devices}}}\n");
    context.write("plan.yaml", &plan);
    let arguments = "run --db db --host rehearsal --devices 0-2 --max-collections 3";
    let ran = context.run(&(arguments, "--rehearsal-faults plan.yaml"));
    // A case whose attempts came before a majority of devices was known ends as `throttled`, with exit code 1.
    assert!(ran.code <= 1, "{}", ran.stderr);
    let ledger = ledger(&context).expect("a ledger");
    let count = |condition: &str| -> i64 {
        let sql = format!(
            "SELECT count(*) FROM attempts a JOIN collections c USING (collection) WHERE c.device = 1 AND {condition}"
        );
        ledger.query_row(&sql, [], |row| row.get(0)).expect("a count")
    };
    let accepted = count("a.verdict IN ('ok', 'noisy')");
    (ran.stderr, [accepted, count(&format!("a.verdict = '{verdict}' AND a.cause ->> 'cause' = '{cause}'"))])
}

/// A device whose clock is higher than that of the two others, which agree, is the one that deviates.
#[test]
fn results_of_a_device_with_a_high_clock_are_measured_elsewhere() {
    let (printed, [accepted, rejected]) = run_with_factor("[0, 2]", 1.1, "throttled", "clock");
    assert!(accepted == 0 && rejected > 0, "{accepted}, {rejected}: {printed}");
    assert!(printed.contains("% higher than that of most devices, in"), "{printed}");
}

/// No core works longer than its kernel takes: this shows a timer that is too fast without any other device.
#[test]
fn device_whose_cores_work_longer_than_its_launches_take_is_paused() {
    let cause = "control_core_time";
    let (printed, [accepted, rejected]) = run_with_factor("1", 0.9, "implausible", cause);
    assert!(accepted == 0 && rejected > 0, "{accepted}, {rejected}: {printed}");
    assert!(
        printed.contains("device 1 is paused: cases that succeeded elsewhere fail on it: the durations"),
        "{printed}"
    );
}
