//! How many events a second the scheduler handles: a night of 16 devices, ten hours and 100,000 cases, of which
//! 2 of 100 crash, in virtual time.
//!
//! `cargo bench --bench sched`; 2,000 cases with `NPUBENCH_BENCH_SMALL=1`.

mod size;

use std::time::Instant;

use npubench::{
    kernel::{CaseOutcome, Cause, CollectionPurpose, Verdict},
    measure::sched::{
        CaseResult, CollectionExit, CollectionFinished, SchedAction, SchedCase, SchedLimits, SchedulerState,
        Seconds, SimulatedHost, StartCollection, simulate,
    },
};

const DEVICES: u32 = 16;

/// Every fiftieth case crashes; starts take 12 s and exports 3 s.
struct Night {
    busy: Seconds,
    collections: u64,
    verdicts: u64,
    case_ends: u64,
}

fn is_poison(case: usize) -> bool {
    case % 50 == 17
}

impl SimulatedHost for Night {
    fn finish_collection(&mut self, _now: Seconds, start: &StartCollection) -> CollectionFinished {
        let mut total = 15.0;
        let mut broken = false;
        let results = start.cases.iter().map(|&case| {
            self.case_ends += 1;
            let (verdict, seconds) = if broken {
                (Verdict::NotRun, None)
            } else if is_poison(case) && start.purpose != CollectionPurpose::Control {
                broken = true;
                (Verdict::Crashed, None)
            } else {
                let seconds = seconds_of(case) * 1.4;
                total += seconds;
                (Verdict::Ok, Some(seconds))
            };
            CaseResult { case, outcome: CaseOutcome::new(verdict, Cause::EveryLaunchRecorded), seconds }
        });
        let mut results: Vec<CaseResult> = results.collect();
        if broken {
            // A process that crashes leaves no records.
            let complete = results.iter_mut().filter(|result| result.outcome.verdict == Verdict::Ok);
            complete
                .for_each(|result| result.outcome = CaseOutcome::new(Verdict::LostRecords, Cause::NoRecords));
        }
        self.collections += 1;
        self.busy += total;
        let end = if broken { CollectionExit::Broken } else { CollectionExit::Completed };
        CollectionFinished {
            collection: start.collection,
            results,
            exit: end,
            has_readable_profile: true,
            startup: Some(12.0),
            total,
            failed_devices: Vec::new(),
            message: String::new(),
        }
    }

    fn on_action(&mut self, _now: Seconds, action: &SchedAction) {
        self.verdicts += u64::from(matches!(action, SchedAction::Conclude { .. }));
    }
}

fn seconds_of(case: usize) -> Seconds {
    0.5 + f64::from(u32::try_from(case % 97).unwrap_or(0)) * 0.1
}

#[expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
fn main() {
    let cases = size::full_or_small(100_000, 2_000);
    let jobs: Vec<SchedCase> = (0..cases)
        .map(|case| SchedCase {
            device_groups: std::sync::Arc::default(),
            kernel: case % 60,
            seconds: seconds_of(case),
            records: 25,
            equal_cases: 0,
            value: f64::from(u32::try_from(case * 7919 % 1000).unwrap_or(0)),
            devices: 1,
            memory: 1 << 20,
        })
        .collect();
    let devices: Vec<u32> = (0..DEVICES).collect();
    for budget in [None, Some(36_000.0)] {
        let limits = SchedLimits { deadline: budget, ..SchedLimits::default() };
        let mut night = Night { busy: 0.0, collections: 0, verdicts: 0, case_ends: 0 };
        let begun = Instant::now();
        let mut state = SchedulerState::new(jobs.clone(), &devices, limits, 0);
        let (ended, events) = simulate(&mut state, &mut night, Vec::new());
        let seconds = begun.elapsed().as_secs_f64();
        assert_eq!(usize::try_from(night.verdicts), Ok(cases), "each case has one verdict");
        #[expect(clippy::cast_precision_loss, reason = "counts")]
        let (each, all) = ((night.case_ends + events) as f64, night.collections as f64);
        let share = night.busy / (f64::from(DEVICES) * ended);
        println!(
            "{}: {cases} cases, {} verdicts in {ended:.0} virtual s, devices busy {:.1} % of the time",
            budget.map_or("no deadline".to_owned(), |budget| format!("{budget} s")),
            night.verdicts,
            100.0 * share,
        );
        println!(
            "  {all} collections and {} ends of cases in {:.0} ms: {:.0} events a second, {:.0} us a collection",
            night.case_ends,
            1e3 * seconds,
            each / seconds,
            1e6 * seconds / all,
        );
    }
}
