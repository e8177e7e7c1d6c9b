//! Invariants under random faults of cases and devices.

use proptest::prelude::*;

use super::*;

fn any_case_fault() -> impl Strategy<Value = CaseFault> {
    prop_oneof![
        20 => Just(CaseFault::No),
        1 => Just(CaseFault::Crashes),
        1 => Just(CaseFault::CrashesUnnamed),
        1 => Just(CaseFault::Hangs),
        1 => Just(CaseFault::TooLarge),
        1 => Just(CaseFault::Crowded),
        1 => Just(CaseFault::LostOnce),
        1 => Just(CaseFault::AlwaysLost),
        1 => Just(CaseFault::Refused),
        1 => Just(CaseFault::Unclear),
        1 => Just(CaseFault::UnclearOnce),
        1 => Just(CaseFault::UnclearLate),
        1 => Just(CaseFault::FaultOnce),
        1 => Just(CaseFault::OtherKernel),
    ]
}

fn any_device_fault() -> impl Strategy<Value = DeviceFault> {
    prop_oneof![
        6 => Just(DeviceFault::No),
        1 => (0.0..500.0_f64, 0.0..3000.0_f64).prop_map(|(from, long)| DeviceFault::Dead(from, from + long)),
        1 => Just(DeviceFault::Breaks),
        1 => Just(DeviceFault::OtherKernels),
        2 => (0.0..500.0_f64, 0.0..1000.0_f64).prop_map(|(from, long)| DeviceFault::DiskFull(from, from + long)),
        1 => (0.0..500.0_f64, 0.0..1000.0_f64)
            .prop_map(|(from, long)| DeviceFault::UnreadableProfiles(from, from + long)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Each case has one verdict, no device has two collections, gangs are complete (the host asserts these), and only
    /// faulty cases are quarantined on faultless devices.
    #[test]
    fn every_case_has_one_verdict_under_random_faults(
        case_faults in prop::collection::vec((any_case_fault(), 0_usize..5, prop::sample::select(vec![1_usize, 1, 1, 1, 2, 4])), 1..300),
        device_faults in prop::collection::vec(any_device_fault(), 1..6),
        reservations in prop::collection::vec((0.0..2000.0_f64, 0_u32..6, 0.0..2000.0_f64), 0..3),
        deadline in prop::option::of(50.0..4000.0_f64),
        stop in prop::option::of(0.0..500.0_f64),
        slowdown in 0.3..4.0_f64,
    ) {
        let jobs: Vec<SchedCase> = case_faults.iter().map(|(_, kernel, devices)| SchedCase { devices: *devices, ..job(*kernel, 0.2) }).collect();
        let mut host = FaultyHost::new(jobs, case_faults.iter().map(|(fault, ..)| *fault).collect());
        host.slowdown = slowdown;
        host.deadline = deadline;
        let devices = u32::try_from(device_faults.len()).unwrap_or(1);
        host.device_faults = (0..).zip(device_faults.iter().copied()).collect();
        let mut others = Vec::new();
        for (at, device, long) in reservations {
            let reserved = SchedEvent::ReservationsChanged { reserved: vec![device], released: Vec::new() };
            let released = SchedEvent::ReservationsChanged { reserved: Vec::new(), released: vec![device] };
            others.extend([(at, reserved), (at + long, released)]);
        }
        others.extend(stop.map(|at| (at, SchedEvent::StopRequested)));
        let is_at_fault = |fault: &DeviceFault| {
            matches!(fault, DeviceFault::Dead(..) | DeviceFault::Breaks | DeviceFault::OtherKernels)
        };
        let is_faultless = !device_faults.iter().any(is_at_fault) && stop.is_none() && deadline.is_none();
        let loses_profiles = |fault: &DeviceFault| matches!(fault, DeviceFault::UnreadableProfiles(..));
        let is_readable = !device_faults.iter().any(loses_profiles);
        host.run_with(devices, others);
        for (case, outcome) in &host.concluded {
            let fault = host.case_faults[*case];
            if outcome.verdict == Verdict::Quarantined && is_faultless {
                prop_assert!(matches!(fault, CaseFault::Crashes | CaseFault::CrashesUnnamed | CaseFault::Hangs), "{fault:?}: {outcome:?}");
            }
            if is_faultless && is_readable && matches!(fault, CaseFault::No | CaseFault::Crowded | CaseFault::UnclearOnce | CaseFault::UnclearLate) && host.jobs[*case].devices <= device_faults.len() {
                prop_assert_eq!(outcome.verdict, Verdict::Ok, "{:?} {}", fault, outcome.reason);
            }
        }
    }


    #[test]
    fn same_events_give_the_same_actions(case_faults in prop::collection::vec(any_case_fault(), 1..200), devices in 1_u32..6) {
        let run = || {
            let jobs: Vec<SchedCase> = (0..case_faults.len()).map(|case| job(case % 3, 0.2)).collect();
            let mut host = FaultyHost::new(jobs, case_faults.clone());
            host.run(devices);
            (host.collections, host.concluded)
        };
        prop_assert_eq!(run(), run());
    }
}
