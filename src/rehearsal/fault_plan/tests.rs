//! Valid fault plans, and the errors of invalid ones.

use std::path::Path;

use super::{
    kinds::{DeviceThrottling, ProcessCrash},
    *,
};

const KNOWN: ValidNames<'_> = ValidNames { kernels: &["RmsNorm", "MatMulV3"], devices: 4 };

fn parse(text: &str) -> Result<FaultPlan, YamlError> {
    FaultPlan::parse(Path::new("faults.yaml"), text, &KNOWN)
}

#[test]
fn faults_without_parameters_have_documented_defaults() {
    let plan =
        parse("faults:\n- crash:\n- throttling: {factor: 2}\n  where: {devices: 1}\n").expect("a plan");
    assert_eq!(plan.faults[0].crash, Some(ProcessCrash::default()));
    let hot = DeviceThrottling { factor: 2.0, temperature: 98 };
    assert_eq!(
        (plan.faults[1].throttling.clone(), plan.faults[1].target.devices.as_slice()),
        (Some(hot), &[1][..])
    );
    assert_eq!((plan.speed, plan.costs), (1.0, SimulatedDelays::default()));
}

#[test]
fn empty_plan_has_no_effect() {
    assert!(parse("{}").expect("a plan").is_empty());
    assert!(!parse("speed: 2").expect("a plan").is_empty());
}

#[test]
fn containers_see_devices_of_the_host() {
    for (wrong, problem) in [
        ("{visible: []}", "`visible`: expected devices of the host, 0 to 3, in ascending order"),
        ("{visible: [3, 1]}", "`visible`: expected devices of the host, 0 to 3, in ascending order"),
        ("{visible: [1, 4]}", "`visible`: expected devices of the host, 0 to 3, in ascending order"),
        ("{visible: [1], torch_order: [1, 1]}", "`torch_order`: expected devices of the host, each once"),
        ("{visible: [1], torch_order: [9]}", "`torch_order`: expected devices of the host, each once"),
    ] {
        let error = parse(&format!("container: {wrong}")).expect_err(wrong).to_string();
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn plan_survives_json() {
    let text = "seed: 3\nspeed: 50\ncosts: {start: 8, launch: 0.001}\nfaults:\n\
                - hang: {grandchild: own_session}\n  where: {case: ab, ordinal: [1, 2], probability: 0.5}\n\
                - device_lost:\n  when: {from: 5, until: 6.5}\n\
                - lost_records: {tail: 2}\n  times_each: 1\n";
    let plan = parse(text).expect("a plan");
    let json = serde_json::to_string(&plan).expect("JSON");
    assert_eq!(serde_json::from_str::<FaultPlan>(&json).expect("a plan"), plan);
}

#[test]
fn invalid_plans_are_reported_with_position_and_hint() {
    let wrong = [
        "faults:\n- crsh: {}\n",
        "faults:\n- crash: {signal: SIGSEGF}\n",
        "faults:\n- crash: {exit: 3, signal: SIGKILL}\n",
        "faults:\n- where: {kernel: RmsNorm}\n",
        "faults:\n- crash:\n  hang:\n",
        "faults:\n- hang:\n  where: {kernels: RmsNorm}\n",
        "faults:\n- hang:\n  where: {kernel: RmsNrom}\n",
        "faults:\n- hang:\n  where: {case: 12}\n",
        "faults:\n- hang:\n  where: {devices: [0, 4]}\n",
        "faults:\n- lost_records:\n",
        "faults:\n- truncated_csv: {keeps: 50}\n",
        "faults:\n- missing_output: {folder: false}\n",
        "faults:\n- device_error: {code: 12}\n",
        "faults:\n- device_lost:\n  times: 1\n",
        "faults:\n- device_lost:\n  where: {kernel: RmsNorm}\n",
        "faults:\n- crash:\n  where: {probability: 2}\n",
        "faults:\n- crash:\n  times: 0\n",
        "faults:\n- crash:\n  when: {from: 9, until: 3}\n",
        "faults:\n- crash\n",
        "speed: 0\n",
        "costs: {strat: 3}\n",
        "costs:\n  start: 3\n  export: -1\n",
        "noise: {launch: [0.05, 0.002]}\n",
        "noise: {launch: [0.1, 0.1, 0.1]}\n",
        "noise:\n  shared: 2\n",
        "faults:\n- coarse_timer: {step: 0}\n",
        "faults:\n- neighbour: {share: 2}\n",
        "faults:\n- renamed_kernel: {name: \"\"}\n",
        "faults: [\n",
    ];
    let messages: Vec<String> = wrong
        .iter()
        .map(|text| {
            let error = parse(text).expect_err(text);
            format!("{}\n  hint: {}", error, error.hint)
        })
        .collect();
    insta::assert_snapshot!(messages.join("\n"));
}
