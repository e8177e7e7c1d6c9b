//! Faults of devices and of the host: pauses, quarantines, and the end of a run that cannot measure.

use super::*;

#[test]
fn dead_device_is_quarantined_and_readmitted_when_it_works_again() {
    let mut host =
        FaultyHost::new((0..20_000).map(|case| job(case % 7, 0.4)).collect(), vec![CaseFault::No; 20_000]);
    host.device_faults.insert(2, DeviceFault::Dead(60.0, 500.0));
    host.run(4);
    assert_eq!(host.count(Verdict::Ok), 20_000);
    assert!(host.quarantined.len() > 2 && host.quarantined.iter().all(|device| *device == 2));
    assert_eq!(host.readmitted, [2]);
}

#[test]
fn device_that_breaks_faultless_cases_is_quarantined_and_no_case_is() {
    let mut host = FaultyHost::healthy(3000);
    host.device_faults.insert(1, DeviceFault::Breaks);
    host.run(4);
    assert_eq!(host.count(Verdict::Ok), 3000);
    assert!(!host.quarantined.is_empty() && host.quarantined.iter().all(|device| *device == 1));
}

#[test]
fn run_gives_up_on_a_host_without_a_launch() {
    let mut host = FaultyHost::healthy(100);
    for device in 0..4 {
        host.device_faults.insert(device, DeviceFault::Dead(0.0, f64::INFINITY));
    }
    let ended = host.run(4);
    assert_eq!(host.count(Verdict::NotRun), 100);
    assert!(ended < 60.0, "after {ended} s");
}

/// Devices that fail quickly at the start do not end the run before the first good collection has ended.
#[test]
fn unusable_devices_do_not_end_the_run_of_the_others() {
    for (faulty, until) in [(3, f64::INFINITY), (15, f64::INFINITY), (16, 20.0)] {
        let mut host = FaultyHost::healthy(5000);
        for device in 0..faulty {
            host.device_faults.insert(device, DeviceFault::Dead(0.0, until));
        }
        host.run(16);
        assert_eq!(host.count(Verdict::Ok), 5000, "{faulty} devices until {until}");
    }
}

/// Unreadable profiles are the fault of the host if no profile of the run was ever read: each device is tried three
/// times, with and without a deadline.
#[test]
fn run_ends_if_every_profile_is_unreadable() {
    for deadline in [None, Some(8.0 * 3600.0)] {
        let mut host = FaultyHost::healthy(20_000);
        host.deadline = deadline;
        for device in 0..4 {
            host.device_faults.insert(device, DeviceFault::UnreadableProfiles(0.0, f64::INFINITY));
        }
        host.run(4);
        assert_eq!(host.collections.len(), 12, "{:?}", host.collections);
        let attempted = host.attempts.iter().filter(|attempts| **attempts > 0).count();
        assert_eq!(host.count(Verdict::LostRecords), attempted);
        assert_eq!(host.count(Verdict::NotRun), 20_000 - attempted);
        let last = &host.concluded[&19_999].reason;
        assert!(
            last.starts_with("3 collections in a row left no readable profile on each device: "),
            "{last}"
        );
    }
}

/// Profiles that are unreadable at the start or on some devices cost pauses, and no case.
#[test]
fn unreadable_profiles_of_some_devices_do_not_end_the_run() {
    for (faulty, from, until) in
        [(3, 0.0, f64::INFINITY), (4, 0.0, 30.0), (4, 300.0, 900.0), (2, 300.0, f64::INFINITY)]
    {
        let mut host = FaultyHost::healthy(20_000);
        for device in 0..faulty {
            host.device_faults.insert(device, DeviceFault::UnreadableProfiles(from, until));
        }
        host.run(4);
        assert_eq!(host.count(Verdict::Ok), 20_000, "{faulty} devices from {from} until {until}");
    }
}

/// A device that recovers after hours is used again in a run with a deadline.
#[test]
fn device_is_tried_again_until_the_deadline() {
    let cases = 40_000;
    let mut host =
        FaultyHost::new((0..cases).map(|case| job(case % 7, 1.0)).collect(), vec![CaseFault::No; cases]);
    host.device_faults.insert(0, DeviceFault::Dead(0.0, 4.0 * 3600.0));
    host.device_faults.insert(1, DeviceFault::Dead(60.0, 5.0 * 3600.0));
    host.deadline = Some(8.0 * 3600.0);
    host.run(2);
    assert_eq!(host.readmitted.iter().collect::<BTreeSet<_>>(), BTreeSet::from([&0, &1]));
}

/// Only the devices of the ranks that failed are paused.
#[test]
fn failed_rank_of_a_gang_leaves_the_other_devices_usable() {
    let jobs = vec![SchedCase { devices: 4, ..job(0, 1.0) }, job(1, 1.0)];
    let mut state = SchedulerState::new(jobs, &[0, 1, 2, 3], SchedLimits::default(), 0);
    let actions = state.on_event(0.0, SchedEvent::Started);
    let Some(SchedAction::Start(start)) = actions.first() else { panic!("{actions:?}") };
    let not_run = CaseOutcome::new(Verdict::NotRun, "rank 2 failed");
    let ended = CollectionFinished {
        collection: start.collection,
        results: start
            .cases
            .iter()
            .map(|&case| CaseResult { case, outcome: not_run.clone(), seconds: None })
            .collect(),
        exit: CollectionExit::NothingLaunched,
        has_readable_profile: false,
        failed_devices: vec![2],
        startup: None,
        total: 1.0,
        message: "rank 2 failed".to_owned(),
    };
    let actions = state.on_event(1.0, SchedEvent::Finished(ended));
    let paused: Vec<u32> = actions
        .iter()
        .filter_map(|action| match action {
            SchedAction::Pause { device, .. } => Some(*device),
            _ => None,
        })
        .collect();
    assert_eq!(paused, [2]);
    assert!(
        actions.iter().any(|action| matches!(action, SchedAction::Start(start) if start.devices == [0])),
        "{actions:?}"
    );
}

/// Cases whose kernels do not run on half of the devices are measured on the others, and these devices are named.
#[test]
fn cases_of_devices_without_kernels_are_measured_on_others() {
    for (cases, devices, faulty) in [(20, 4, 2), (500, 4, 2), (500, 8, 1), (12, 2, 1)] {
        let mut host = FaultyHost::healthy(cases);
        for device in 0..faulty {
            host.device_faults.insert(device, DeviceFault::OtherKernels);
        }
        host.run(devices);
        assert_eq!(host.count(Verdict::Ok), cases, "{cases} {devices}");
        assert_eq!(host.wrong_kernel_devices, (0..faulty).collect::<Vec<u32>>());
        assert!(host.attempts.iter().all(|attempts| *attempts <= 3 + 2), "with control collections");
        assert!(host.quarantined.iter().all(|device| *device < faulty), "{:?}", host.quarantined);
    }
}

/// A call that launches another kernel on every device is tried on two of them, and names no device. One device tries once.
#[test]
fn wrong_kernels_of_all_devices_are_tried_on_two() {
    for (devices, attempts) in [(1, 1), (2, 2), (4, 2)] {
        let mut host = FaultyHost::healthy(200);
        (0..200).step_by(10).for_each(|case| host.case_faults[case] = CaseFault::OtherKernel);
        host.run(devices);
        assert_eq!((host.count(Verdict::Ok), host.count(Verdict::WrongKernel)), (180, 20));
        let tried: BTreeSet<u32> = (0..200).step_by(10).map(|case| host.attempts[case]).collect();
        assert_eq!(tried, BTreeSet::from([attempts]), "{devices}");
        assert!(host.wrong_kernel_devices.is_empty() && host.quarantined.is_empty());
    }
}
