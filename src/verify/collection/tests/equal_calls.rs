use super::*;
use crate::domain::EqualCallAttempt;

/// Assesses the first case, whose call may also run as `AddV2`, with a row of each of these kernels.
fn assessed_with_equal_kernel(collection: &Collection, rows: &[&str]) -> Attempt {
    let case = &collection.cases[0];
    let of_kernel = |kernel: &str| Case { kernel: KernelName::new(kernel).expect("a name"), ..case.clone() };
    let equal_cases: Vec<IdentifiedCase> =
        rows.iter().map(|kernel| IdentifiedCase::new(of_kernel(kernel))).collect();
    let other = KernelName::new("AddV2").expect("a name");
    let expected = collection.cases.iter().map(|case| ExpectedLaunches {
        case,
        names: vec!["Add", "AddAiCore"],
        equal_kernels: vec![EqualKernel { kernel: &other, names: vec!["AddV2", "AddV2AiCore"] }],
        equal_cases: &equal_cases,
        also_launched: &[],
        fastest: FASTEST,
        notes: &[],
        host_slots: Vec::new(),
        is_on_ai_cpu: false,
    });
    let expected: Vec<ExpectedLaunches<'_>> = expected.collect();
    let journals = std::slice::from_ref(&collection.journal);
    let attempts =
        assess_collection(&collection.manifest, &expected, journals, &collection.records, collection.end);
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
        assert_eq!(other.outcome, CaseOutcome::new(Verdict::RanAsOther, "ran as AddV2; measured there"));
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
