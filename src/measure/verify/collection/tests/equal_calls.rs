use super::*;
use crate::kernel::EqualCallAttempt;

/// Assesses the first case, whose call may also run as `AddV2`, with a row of each of these kernels.
fn assessed_with_equal_kernel(collection: &Collection, rows: &[&str]) -> Attempt {
    assessed_with_software(collection, "Add", rows, &SoftwareChange::None)
}

/// The same, with the name of the planned row and a change of the host's software.
fn assessed_with_software(
    collection: &Collection,
    planned: &str,
    rows: &[&str],
    software: &SoftwareChange,
) -> Attempt {
    let case = &Case { kernel: KernelName::new(planned).expect("a name"), ..collection.cases[0].clone() };
    let of_kernel = |kernel: &str| Case { kernel: KernelName::new(kernel).expect("a name"), ..case.clone() };
    let equal_cases: Vec<IdentifiedCase> =
        rows.iter().map(|kernel| IdentifiedCase::new(of_kernel(kernel))).collect();
    let other = KernelName::new("AddV2").expect("a name");
    let expected = [case, &collection.cases[1]].map(|case| ExpectedLaunches {
        case,
        names: vec!["Add", "AddAiCore"],
        equal_kernels: vec![EqualKernel { kernel: &other, names: vec!["AddV2", "AddV2AiCore"] }],
        equal_cases: &equal_cases,
        fastest: FASTEST,
        ..ExpectedLaunches::without_rules(case)
    });
    let journals = std::slice::from_ref(&collection.journal);
    let (records, end) = (&collection.records, collection.end);
    let attempts = assess_collection(&collection.manifest, &expected, journals, records, end, software);
    attempts.into_iter().next().expect("the first case")
}

fn shared_outcomes(attempt: &Attempt) -> Vec<(String, Verdict, usize)> {
    let shared = attempt.of_equal_calls.iter();
    shared
        .map(|EqualCallAttempt { case, attempt }| {
            assert_eq!(attempt.case, *case.id());
            (case.kernel.to_string(), attempt.outcome.verdict, attempt.launches.len())
        })
        .collect()
}

#[test]
fn launches_of_an_equal_kernel_are_its_measurement() {
    let mut collection = Collection::without_faults();
    let own = assessed_with_equal_kernel(&collection, &["AddAiCore", "AddV2"]);
    assert_eq!((own.outcome.verdict, own.launches.len()), (Verdict::Ok, 10));
    let expected = [("AddAiCore".to_owned(), Verdict::Ok, 10), ("AddV2".to_owned(), Verdict::RanAsOther, 0)];
    assert_eq!(shared_outcomes(&own), expected);

    collection.own(0).for_each(|record| record.kernel = "AddV2".to_owned());
    for rows in [&[][..], &["AddV2"]] {
        let other = assessed_with_equal_kernel(&collection, rows);
        assert_eq!(other.outcome, (Verdict::RanAsOther, "ran as AddV2; measured there"));
        assert_eq!((other.launches.len(), other.launched), (0, 10));
        assert_eq!(shared_outcomes(&other), [("AddV2".to_owned(), Verdict::Ok, 10)], "{rows:?}");
    }
    let named = assessed_with_equal_kernel(&collection, &["AddV2AiCore", "AddAiCore"]);
    let expected = [
        ("AddV2AiCore".to_owned(), Verdict::Ok, 10),
        ("AddAiCore".to_owned(), Verdict::RanAsOther, 0),
        ("AddV2".to_owned(), Verdict::Ok, 10),
    ];
    assert_eq!(shared_outcomes(&named), expected, "the kernel that ran gets a case of its own");
}

#[test]
fn incomplete_and_wrong_launches_of_an_equal_kernel_are_no_measurement() {
    let outcome = |change: fn(&mut Collection)| {
        let mut collection = Collection::without_faults();
        collection.own(0).for_each(|record| record.kernel = "AddV2".to_owned());
        change(&mut collection);
        let attempt = assessed_with_equal_kernel(&collection, &["AddV2"]);
        assert_eq!((attempt.launches.len(), attempt.of_equal_calls.len()), (0, 0));
        attempt.outcome.verdict
    };
    assert_eq!(outcome(|c| c.own(0).for_each(|record| record.duration = Nanos(10))), Verdict::Implausible);
    assert_eq!(outcome(|c| c.own(0).for_each(|record| record.outputs[0] = None)), Verdict::WrongKernel);
    assert_eq!(
        outcome(|c| c.own(0).for_each(|record| record.task.core = RecordedTask::AI_CPU.to_owned())),
        Verdict::WrongKernel
    );
    assert_eq!(
        outcome(|c| c.own(0).for_each(|record| record.kernel = "Sub".to_owned())),
        Verdict::WrongKernel
    );
    let lost = outcome(|c| {
        let at = c.records.iter().position(|record| record.kernel == "AddV2").expect("a launch");
        c.records.remove(at);
    });
    assert_eq!(lost, Verdict::LostRecords);
    // Half of the launches ran as the case's own kernel.
    let mixed = outcome(|c| c.own(0).take(5).for_each(|record| record.kernel = "Add".to_owned()));
    assert_eq!(mixed, Verdict::WrongKernel);
}

/// A row may have a name that only profiles of graphs show; reasons name the kernel's type.
#[test]
fn reasons_name_the_type_of_the_kernel_that_ran() {
    let collection = Collection::without_faults();
    let own = assessed_with_software(&collection, "AddAiCore", &["AddV2"], &SoftwareChange::None);
    assert_eq!(own.outcome.verdict, Verdict::Ok);
    let [EqualCallAttempt { attempt, .. }] = own.of_equal_calls.as_slice() else { panic!("{own:?}") };
    assert_eq!(attempt.outcome, (Verdict::RanAsOther, "ran as Add; measured there"));
}

/// The judgement of the software concerns the samples of whatever kernel ran.
#[test]
fn samples_of_an_equal_kernel_are_of_known_software() {
    let mut collection = Collection::without_faults();
    collection.own(0).for_each(|record| record.kernel = "AddV2".to_owned());
    let assessed = |change: &SoftwareChange| assessed_with_software(&collection, "Add", &["AddV2"], change);
    let during = assessed(&SoftwareChange::DuringCollection("CANN 2, not 1".to_owned()));
    assert_eq!(during.outcome.verdict, Verdict::Implausible);
    assert!(during.outcome.reason.contains("CANN 2, not 1; ran as AddV2"), "{}", during.outcome.reason);
    assert!(during.launches.is_empty() && during.of_equal_calls.is_empty());
    let before = assessed(&SoftwareChange::BeforeCollection("CANN 2, not 1".to_owned()));
    let [EqualCallAttempt { attempt, .. }] = before.of_equal_calls.as_slice() else { panic!("{before:?}") };
    assert_eq!((attempt.outcome.verdict, attempt.launches.len()), (Verdict::Ok, 10));
    assert!(attempt.outcome.reason.ends_with("CANN 2, not 1"), "{}", attempt.outcome.reason);
}
