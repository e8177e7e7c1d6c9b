//! Durations that contradict other known durations of their case.

use crate::prelude::*;

fn add_record(size: &u32) -> String {
    format!("Add,2.060,\"\"\"{size};{size}\"\"\",FLOAT;FLOAT,ND;ND,\"\"\"{size}\"\"\",FLOAT,ND")
}

/// Verdicts and reasons of all rows of the decoder layer.
fn rows(context: &Context) -> Vec<[String; 3]> {
    let rows = DECODER_KERNELS.into_iter().flat_map(|kernel| context.rows("db", kernel));
    let cells = ["MicroBench Verdict", "MicroBench Reason", "MicroBench Collections"];
    rows.map(|row| cells.map(|column| row[column].clone())).collect()
}

/// The example's profile is of the rehearsal host, so that production can be compared. All devices are slow alike, so that
/// neither clocks nor other collections show it.
#[test]
fn durations_far_from_production_are_suspicious_on_all_devices() {
    let context = Context::of_layer();
    context.write("faults.yaml", "faults:\n- slow_kernels: {factor: 1.6}\n");
    let arguments = "run --db db --host rehearsal --devices 0-3";
    let slow = "--rehearsal-faults faults.yaml --rehearsal-model lifelike";
    let ran = context.run_all_rounds(&(arguments, slow)).ended(1);
    let text = "20 suspicious results, `npubench why` explains each; the first is ";
    ran.err_has(text);
    for [verdict, reason, collections] in rows(&context) {
        assert_eq!(verdict, "suspicious", "{reason}");
        assert!(reason.starts_with("the median is 1."), "{reason}");
        assert!(reason.contains(" times that of production, "), "{reason}");
        assert!(collections.parse::<u32>().expect("a number") >= 2, "measured again elsewhere: {reason}");
    }
    context.done("db check db");
    let why = context.run("why SwiGlu.csv:2 --db db");
    let rule = why.stdout.lines().find(|line| line.contains("production")).expect("a line");
    why.out_has("verdict    suspicious: the median is 1.");
    assert!(rule.contains("production"), "{rule}");
    let broken = why.stdout.lines().find(|line| line.trim_start().starts_with("production          "));
    assert!(broken.is_some_and(|line| line.contains(" broken ")), "{}", why.stdout);
    // Two devices agree: measuring again would change nothing.
    let ran = context.run(arguments);
    ran.err_has(": 0 cases on devices 0-3; 20 already measured");
    let verdicts: Vec<String> = rows(&context).into_iter().map(|[verdict, ..]| verdict).collect();
    assert!(verdicts.iter().all(|verdict| verdict == "suspicious"), "{verdicts:?}");
}

/// Profiles of devices say nothing of simulated durations.
#[test]
fn rehearsals_are_not_compared_with_profiles_of_devices() {
    let context = Context::new();
    context.small_database("db");
    context.done("run --db db --host rehearsal --devices 0");
    let why = context.run("why SwiGlu.csv:2 --db db");
    why.out_has("rehearsed durations are not judged by profiles of devices");
}

/// One of eleven sizes takes four times as long as its neighbours in one collection.
#[test]
fn durations_far_from_cases_of_other_sizes_are_suspicious() {
    let context = Context::new();
    let sizes: Vec<u32> = (12..23).map(|power| 1 << power).collect();
    let records: Vec<String> = sizes.iter().map(add_record).collect();
    context.ingest_records("db", &records.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
    let fault =
        "unsteady_kernel: {pattern: step, factor: 4, launch: 1}\n  where: {shapes: \"131072;131072\"}";
    context.write("faults.yaml", &format!("faults:\n- {fault}\n"));
    let arguments = "run --db db --host rehearsal --devices 0,1";
    context.exits(1, &(arguments, "--rehearsal-faults faults.yaml"));
    let verdicts = || -> Vec<String> {
        context
            .rows("db", "Add")
            .into_iter()
            .map(|mut row| row.remove("MicroBench Verdict").expect("a cell"))
            .collect()
    };
    let expected = |verdict: &str| -> Vec<String> {
        sizes.iter().map(|size| if *size == 131_072 { verdict } else { "ok" }.to_owned()).collect()
    };
    assert_eq!(verdicts(), expected("suspicious"));
    // The next run confirms it, or not.
    let ran = context.run(arguments);
    ran.err_has(": 1 case on devices 0-1; 10 already measured");
    assert_eq!(verdicts(), expected("noisy"));
}
