//! Launches of a gang of devices.

use super::*;

/// Output of a gang of devices 3 and 6; durations on the second device are `longer` nanoseconds more.
fn gang(longer: i64) -> (Collection, Vec<LaunchJournal>) {
    let mut collection = Collection::without_faults();
    collection.manifest.gang = vec![LogicalDeviceId(3), LogicalDeviceId(6)];
    let others = collection.records.iter().cloned().map(|record| RawRecord {
        device: Some(LogicalDeviceId(6)),
        duration: Nanos(record.duration.0 + longer),
        ..record
    });
    let others: Vec<RawRecord> = others.collect();
    // Records of both processes, sorted by start time.
    collection.records = collection.records.drain(..).zip(others).flat_map(<[_; 2]>::from).collect();
    collection.restamp();
    let journals = vec![collection.journal.clone(); 2];
    (collection, journals)
}

#[test]
fn sample_of_a_gang_is_the_slowest_rank() {
    let (mut collection, journals) = gang(0);
    // In the third launch the first rank is the slower one, in all others the second.
    let mut launches = [0; 7];
    for record in collection.records.iter_mut().filter(|record| record.kernel == "AddAiCore") {
        let device = record.device.expect("a line");
        let device = device.0 as usize;
        launches[device] += 1;
        record.duration = Nanos(match (device, launches[device]) {
            (3, 3) => 1060,
            (3, _) => 1000,
            _ => 1020,
        });
    }
    let attempts = assessed(&collection, &journals);
    assert_eq!(attempts[0].outcome.verdict, Verdict::Ok, "{:?}", attempts[0].outcome);
    let durations: Vec<i64> = attempts[0].launches.iter().map(|launch| launch.duration.0).collect();
    assert_eq!(durations, [1020, 1020, 1060, 1020, 1020, 1020, 1020, 1020, 1020, 1020]);
    assert_eq!(attempts[0].launched, 10);
}

#[test]
fn durations_of_the_fastest_rank_are_kept_and_a_large_difference_is_named() {
    for (longer, reason) in [
        (20, "every launch recorded"),
        (300, "every launch recorded; the fastest rank takes 1.000 us, the slowest 1.300 us"),
    ] {
        let (mut collection, journals) = gang(0);
        for record in collection.records.iter_mut().filter(|record| record.kernel == "AddAiCore") {
            let is_second = record.device == Some(LogicalDeviceId(6));
            record.duration = Nanos(if is_second { 1000 + longer } else { 1000 });
        }
        let attempt = assessed(&collection, &journals).remove(0);
        assert_eq!(attempt.outcome, (Verdict::Ok, reason));
        assert_eq!(attempt.fastest_ranks, [Nanos(1000); 10]);
        assert!(attempt.launches.iter().all(|launch| launch.duration == Nanos(1000 + longer)));
    }
    assert!(Collection::without_faults().attempts()[0].fastest_ranks.is_empty());
}

#[test]
fn launches_of_every_rank_must_be_recorded() {
    let outcomes = |change: &dyn Fn(&mut Collection, &mut Vec<LaunchJournal>)| {
        let (mut collection, mut journals) = gang(20);
        change(&mut collection, &mut journals);
        let attempts = assessed(&collection, &journals);
        let outcome_text = |CaseOutcome { verdict, reason }: CaseOutcome| format!("{verdict} ({reason})");
        attempts.into_iter().map(|attempt| outcome_text(attempt.outcome)).collect::<Vec<_>>()
    };
    let ok = "ok (every launch recorded)";
    assert_eq!(outcomes(&|_, _| {}), [ok, ok]);
    let lost = outcomes(&|collection, _| {
        let last = collection
            .records
            .iter()
            .rposition(|r| r.device == Some(LogicalDeviceId(6)) && r.kernel == "AddAiCore");
        collection.records.remove(last.expect("a line"));
    });
    assert_eq!(lost, [ok, "lost_records (rank 1 (device 6): 10 launches, 9 records)"]);
    let elsewhere = outcomes(&|collection, _| {
        collection
            .records
            .iter_mut()
            .filter(|r| r.device == Some(LogicalDeviceId(6)))
            .for_each(|r| r.device = Some(LogicalDeviceId(9)));
    });
    assert!(
        elsewhere[0].contains("rank 1 (device 6): launched on device 6, recorded on device 9"),
        "{elsewhere:?}"
    );
    let fewer = outcomes(&|collection, journals| {
        journals[1].lines.get_mut(&1).expect("a line").launched = 9;
        let last = collection
            .records
            .iter()
            .rposition(|r| r.device == Some(LogicalDeviceId(6)) && r.kernel == "AddAiCore");
        collection.records.remove(last.expect("a line"));
    });
    assert_eq!(fewer, [ok, "lost_records (the ranks launched it 10, 9 times)"]);
    let crashed = outcomes(&|_, journals| {
        for journal in journals.iter_mut() {
            journal.is_done = false;
        }
        journals[1].lines.clear();
    });
    assert_eq!(crashed[0], "crashed (rank 1 (device 6): the process ended while it ran)");
    assert!(crashed[1].starts_with("not_run"), "only the first case is suspected: {crashed:?}");
    let all = outcomes(&|_, journals| journals.iter_mut().for_each(|journal| journal.lines.clear()));
    assert_eq!(all[0], "crashed (the process ended while it ran)", "torchrun ends all when one fails");
    let other = |class: &str, message: &str| {
        Some(PythonException { class: class.to_owned(), message: message.to_owned() })
    };
    let fault = outcomes(&|_, journals| {
        journals[0].lines.clear();
        journals[1].lines.remove(&1);
        journals[1].lines.get_mut(&0).expect("a line").error =
            other("RuntimeError", "NPU function error, error code is 507015");
    });
    assert!(fault[0].starts_with("crashed (rank 1 (device 6): RuntimeError: NPU function"), "{fault:?}");
    let link = "EI0006: Getting socket times out.";
    let of_both = |first: &'static str, second: &'static str| {
        outcomes(&|_, journals| {
            for (journal, text) in journals.iter_mut().zip([first, second]) {
                journal.lines.get_mut(&0).expect("a line").error = other("RuntimeError", text);
            }
        })
    };
    let fault = "error code is 507015";
    for (first, second, expected) in [
        (link, link, "crashed (RuntimeError: EI0006"),
        (link, fault, "crashed (rank 1 (device 6): RuntimeError: error code is 507015"),
        ("?", link, "crashed (rank 1 (device 6): RuntimeError: EI0006"),
        ("?", "EZ1001: the shape", "rejected (rank 1 (device 6): RuntimeError: EZ1001"),
        ("?", "!", "rejected (rank 0 (device 3): RuntimeError: ?"),
    ] {
        let outcome = &of_both(first, second)[0];
        assert!(outcome.starts_with(expected), "{first}, {second}: {outcome}");
    }
    let stopped = outcomes(&|collection, journals| {
        collection.end = CollectionTermination::Stopped;
        journals[0].lines.remove(&1);
        journals[0].lines.get_mut(&0).expect("a line").error = other("RuntimeError", "a peer is gone");
        journals[1].lines.clear();
    });
    assert_eq!(
        stopped[0], "not_run (the run was stopped while it ran)",
        "an error that follows from the end"
    );
    let starved = outcomes(&|_, journals| {
        journals[0].lines.get_mut(&0).expect("a line").error = other("OutOfMemoryError", "NPU out of memory");
        journals[1].lines.clear();
    });
    assert!(starved[0].starts_with("oom (rank 0 (device 3): "), "{starved:?}");
    let oom = outcomes(&|_, journals| {
        journals[0].lines.get_mut(&0).expect("a line").error =
            other("OtherRank", "rank 1 has not launched it");
        journals[1].lines.get_mut(&0).expect("a line").error = other("OutOfMemoryError", "NPU out of memory");
    });
    assert_eq!(oom, ["oom (rank 1 (device 6): OutOfMemoryError: NPU out of memory)", ok]);
}

/// An all_reduce of two ranks, of which the second starts `late` nanoseconds after the first, on a device whose clock is `ahead`.
fn collective(late: i64, ahead: i64) -> Attempt {
    collective_of("hcom_allReduce_", late, ahead)
}

/// Does the same as [`collective`] for a kernel.
fn collective_of(kernel: &str, late: i64, ahead: i64) -> Attempt {
    let (mut collection, journals) = gang(0);
    let kernel = KernelName::new(kernel).expect("a name");
    for (case, listed) in collection.cases.iter_mut().zip(&mut collection.manifest.cases) {
        case.kernel = kernel.clone();
        listed.kernel = kernel.as_str().to_owned();
    }
    let mut time = 0;
    for record in &mut collection.records {
        let is_second = record.device == Some(LogicalDeviceId(6));
        time += if is_second { 0 } else { 100_060 };
        record.start = Nanos(time + if is_second { ahead } else { 0 });
        if record.kernel == "AddAiCore" {
            record.kernel = kernel.as_str().to_owned();
            (record.inputs, record.outputs) = (Vec::new(), Vec::new());
            let wait = if is_second { late } else { 0 };
            record.start = Nanos(record.start.0 + wait);
            record.duration = Nanos(10_020 + late - wait);
        }
    }
    collection.records.sort_by_key(|record| record.start);
    let expected: Vec<ExpectedLaunches<'_>> =
        collection.cases.iter().map(|case| expected_of(case, vec![kernel.as_str()])).collect();
    let (records, end) = (&collection.records, collection.end);
    assess_collection(&collection.manifest, &expected, &journals, records, end, &SoftwareChange::None)
        .remove(0)
}

#[test]
fn time_of_a_collective_does_not_contain_the_wait_for_a_late_rank() {
    for (late, ahead, overlap) in [(0, 0, 1.0), (400, 0, 1.0), (400, 3_000_000_000, 0.0)] {
        let attempt = collective(late, ahead);
        assert_eq!(attempt.outcome.reason, "every launch recorded", "{late} {ahead}");
        assert!(attempt.launches.iter().all(|launch| launch.duration == Nanos(10_020)), "{late} {ahead}");
        let longest = f64::from(u32::try_from(10_020 + late).expect("small"));
        assert_eq!((attempt.counters[0], attempt.counters[2]), (Some(10_020.0), Some(longest)));
        assert_eq!(attempt.counters[5], Some(overlap), "clocks that differ by seconds do not overlap");
    }
    let doubtful = collective(6_000, -3_000);
    assert!(doubtful.launches.iter().all(|launch| launch.duration == Nanos(10_020)));
    assert_eq!(doubtful.counters[5], Some(0.0));
    let reason = "every launch recorded; by their clocks the ranks end 3.000 us apart, which clocks that differ explain: the time \
                  is that of the rank that waited least; by the clocks it would be 13.020 us; rank 1 (device 6) starts 6.000 us after \
                  the others, for which their kernels wait; the time does not contain it";
    assert_eq!(doubtful.outcome.reason, reason);
    let late = collective(20_000, 0);
    assert_eq!(late.counters[4], Some(1.0));
    let reason = "every launch recorded; rank 1 (device 6) starts 20.000 us after the others, for which their kernels wait; the \
                  time does not contain it";
    assert_eq!(late.outcome.reason, reason);
}

/// Ranks of a broadcast may end apart, so that a difference of their ends is none of their clocks.
#[test]
fn time_of_a_broadcast_is_that_by_the_clocks_with_its_lower_bound() {
    let together = collective_of("hcom_broadcast_", 400, 0);
    assert_eq!(together.outcome.reason, "every launch recorded");
    let apart = collective_of("hcom_broadcast_", 6_000, -3_000);
    let reason = "every launch recorded; the ranks need not end together, so that their clocks cannot be compared: by the clocks the \
                  time is 13.020 us; it is not less than the 10.020 us of the shortest rank";
    assert_eq!(apart.outcome.reason, reason);
    assert!(apart.launches.iter().all(|launch| launch.duration == Nanos(13_020)), "{:?}", apart.launches);
}
