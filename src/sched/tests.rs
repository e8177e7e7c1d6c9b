use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// A host in miniature: carries actions out and checks what must hold at every step.
struct Host {
    state: State,
    running: BTreeMap<u32, Vec<usize>>,
    concluded: BTreeMap<usize, Finding>,
    launched: BTreeMap<usize, Vec<u32>>,
    numbers: BTreeSet<u32>,
    ended: bool,
}

impl Host {
    fn new(chunks: Vec<Vec<usize>>, devices: &[u32]) -> Self {
        let cases = chunks.iter().map(Vec::len).sum();
        Self {
            state: State::new(cases, chunks, devices),
            running: BTreeMap::new(),
            concluded: BTreeMap::new(),
            launched: BTreeMap::new(),
            numbers: BTreeSet::new(),
            ended: false,
        }
    }

    fn tell(&mut self, event: Event) {
        for action in self.state.on_event(event) {
            assert!(!self.ended, "nothing comes behind the end: {action:?}");
            match action {
                Action::Start { device, collection, cases, .. } => {
                    assert!(self.numbers.insert(collection), "collection {collection} twice");
                    for case in &cases {
                        assert!(!self.concluded.contains_key(case), "case {case} runs after its verdict");
                        self.launched.entry(*case).or_default().push(device);
                    }
                    assert_eq!(
                        self.running.insert(device, cases),
                        None,
                        "device {device} has two collections"
                    );
                }
                Action::Conclude { case, finding } => {
                    assert_eq!(self.concluded.insert(case, finding), None, "case {case} has two verdicts");
                }
                Action::End => self.ended = true,
            }
        }
    }

    fn finish(&mut self, device: u32, mut verdict: impl FnMut(usize) -> Verdict) {
        let cases = self.running.remove(&device).expect("it runs");
        let results =
            cases.into_iter().map(|case| (case, Finding::new(verdict(case), "said the test"))).collect();
        self.tell(Event::Finished { device, results, launched: true, outcome: "done".to_owned() });
    }
}

#[test]
fn a_failed_case_is_tried_again_alone_and_elsewhere() {
    let mut host = Host::new(vec![vec![0, 1, 2]], &[4, 5]);
    host.tell(Event::Started);
    host.finish(4, |case| if case == 1 { Verdict::LostRecords } else { Verdict::Ok });
    assert_eq!(host.running, BTreeMap::from([(5, vec![1])]));
    host.finish(5, |_| Verdict::LostRecords);
    assert_eq!(host.concluded[&1].verdict, Verdict::LostRecords);
    assert!(host.ended);
}

#[test]
fn bystanders_of_a_crash_stay_together() {
    let mut host = Host::new(vec![vec![0, 1, 2, 3]], &[0]);
    host.tell(Event::Started);
    host.finish(0, |case| match case {
        0 => Verdict::Ok,
        1 => Verdict::Crashed,
        _ => Verdict::NotRun,
    });
    assert_eq!(host.running, BTreeMap::from([(0, vec![2, 3])]), "first those that are not suspect");
    host.finish(0, |_| Verdict::Ok);
    assert_eq!(host.running, BTreeMap::from([(0, vec![1])]), "the suspect runs last and alone");
    host.finish(0, |_| Verdict::Crashed);
    assert!(host.ended);
}

#[test]
fn verdicts_that_another_try_would_not_change_are_final() {
    let mut host = Host::new(vec![vec![0, 1]], &[0]);
    host.tell(Event::Started);
    host.finish(0, |case| if case == 0 { Verdict::InvalidArgs } else { Verdict::WrongKernel });
    assert!(host.ended);
    assert_eq!(host.launched[&0].len(), 1);
}

#[test]
fn stopping_lets_running_collections_end() {
    let mut host = Host::new(vec![vec![0], vec![1], vec![2]], &[0]);
    host.tell(Event::Started);
    host.tell(Event::StopRequested);
    assert_eq!(host.concluded[&2].verdict, Verdict::NotRun);
    assert!(!host.ended);
    host.finish(0, |_| Verdict::Ok);
    assert!(host.ended);
    assert_eq!(host.concluded[&0].verdict, Verdict::Ok);
}

#[test]
fn bystanders_of_several_crashes_are_all_run() {
    let mut host = Host::new(vec![(0..10).collect()], &[0]);
    host.tell(Event::Started);
    // Cases 2 and 5 crash whenever they run, and what stands behind them is not reached.
    let crashes = |case: &usize| matches!(case, 2 | 5);
    while !host.ended {
        let reached = host.running[&0].iter().position(crashes).unwrap_or(usize::MAX);
        let order = host.running[&0].clone();
        host.finish(0, |case| match order.iter().position(|other| *other == case).cmp(&Some(reached)) {
            std::cmp::Ordering::Less => Verdict::Ok,
            std::cmp::Ordering::Equal => Verdict::Crashed,
            std::cmp::Ordering::Greater => Verdict::NotRun,
        });
    }
    for (case, finding) in &host.concluded {
        assert_eq!(
            finding.verdict,
            if crashes(case) { Verdict::Crashed } else { Verdict::Ok },
            "case {case}"
        );
    }
    assert_eq!(host.numbers.len(), 5, "one for all, one behind each crash, one for each suspect");
}

#[test]
fn a_host_that_launches_nothing_is_given_up() {
    let mut host = Host::new((0..50).map(|case| vec![case]).collect(), &[0, 1]);
    host.tell(Event::Started);
    for device in [0, 1, 0, 1] {
        let Some(cases) = host.running.remove(&device) else { continue };
        let results = cases.into_iter().map(|case| (case, Finding::new(Verdict::Crashed, "x"))).collect();
        host.tell(Event::Finished { device, results, launched: false, outcome: "no torch".to_owned() });
    }
    assert!(host.ended && host.state.gave_up());
    assert_eq!(host.concluded.len(), 50);
    assert_eq!(host.concluded[&49].reason, "3 collections in a row launched nothing: no torch");
}

#[test]
fn an_empty_plan_ends_at_once() {
    let mut host = Host::new(Vec::new(), &[0, 1]);
    host.tell(Event::Started);
    assert!(host.ended);
}

proptest! {
    /// Whatever collections find and in whatever order they end, every case gets one verdict.
    #[test]
    fn every_case_ends_once(
        sizes in proptest::collection::vec(1_usize..6, 0..12),
        devices in 1_u32..6,
        choices in proptest::collection::vec((any::<u8>(), any::<u8>()), 400),
        stop_at in proptest::option::of(0_usize..40),
    ) {
        let mut next = 0;
        let chunks: Vec<Vec<usize>> = sizes
            .iter()
            .map(|size| {
                next += size;
                (next - size..next).collect()
            })
            .collect();
        let devices: Vec<u32> = (0..devices).collect();
        let mut host = Host::new(chunks, &devices);
        host.tell(Event::Started);
        let mut choices = choices.into_iter().cycle();
        let mut step = 0;
        while !host.ended {
            if stop_at == Some(step) {
                host.tell(Event::StopRequested);
            }
            step += 1;
            prop_assert!(step < 1000, "it does not end");
            let (which, salt) = choices.next().expect("it cycles");
            let busy: Vec<u32> = host.running.keys().copied().collect();
            if busy.is_empty() {
                prop_assert!(host.ended, "nothing runs and it has not ended");
                break;
            }
            let device = busy[usize::from(which) % busy.len()];
            host.finish(device, |case| {
                Verdict::ALL[(usize::from(salt) * 7 + case * 3) % Verdict::ALL.len()]
            });
        }
        prop_assert_eq!(host.concluded.len(), next);
    }
}
