//! How long a fleet needs for a plan that is cut into shards, and how much of its time is lost: the scheduler of each run in virtual
//! time, on hosts of different speed that may be lost, with a queue of shards as that of a cluster.
//!
//! `cargo bench --bench fleet_simulation [-- CASES]`: 64 hosts of 16 devices and 5,000,000 cases; 4 hosts and 4,000 cases with
//! `NPUBENCH_BENCH_SMALL=1`. docs/design/fleet.md has the figures.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![expect(clippy::cast_precision_loss, reason = "counts")]

mod size;

use std::{collections::VecDeque, sync::Arc, time::Instant};

use npubench::{
    base::stats::SplitMix64,
    kernel::{CaseOutcome, Cause, CollectionPurpose, Verdict},
    measure::sched::{
        CaseResult, CollectionExit, CollectionFinished, SchedCase, SchedLimits, SchedulerState, Seconds,
        SimulatedHost, StartCollection, simulate,
    },
};

/// Devices of a host.
const DEVICES: u32 = 16;
/// Median and logarithmic standard deviation of the device seconds of a case.
const CASE: (Seconds, f64) = (1.2, 0.8);
/// Logarithmic standard deviation of a prediction from the truth.
const PREDICTION_ERROR: f64 = 0.3;
/// Logarithmic standard deviation of the speed of hosts.
const HOST_SPEED: f64 = 0.02;
/// Range of the seconds that a collection needs before its script uses the device.
const STARTUP: (Seconds, Seconds) = (20.0, 40.0);
const EXPORT: Seconds = 5.0;
/// One of so many cases crashes, and with it its collection.
const CRASHES: u64 = 500;
/// Mean time between two losses of a host, and the time until it is back.
const LOSSES: Seconds = 100.0 * 3600.0;
const REPAIR: Seconds = 3600.0;
/// Time from the end of one shard to the start of the next one on a host: the cluster's scheduler, and the start of npubench.
const BETWEEN_SHARDS: Seconds = 5.0;

/// Deviates of the distributions of the model.
#[derive(Clone)]
struct RandomNumbers(SplitMix64);

impl RandomNumbers {
    fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number between 0 and 1, both excluded.
    fn uniform(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// A normal deviate (Box and Muller, 1958).
    fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.uniform().ln()
    }
}

/// A case of the plan.
#[derive(Clone)]
struct FleetCase {
    /// Device seconds on a host of speed 1.
    seconds: Seconds,
    predicted: Seconds,
    kernel: usize,
    crashes: bool,
}

fn planned_cases(count: usize) -> Vec<FleetCase> {
    let mut random = RandomNumbers::new(1);
    let case = |_| {
        let seconds = CASE.0 * (CASE.1 * random.normal()).exp();
        FleetCase {
            seconds,
            predicted: seconds * (PREDICTION_ERROR * random.normal()).exp(),
            kernel: (random.next() % 60) as usize,
            crashes: random.next().is_multiple_of(CRASHES),
        }
    };
    (0..count).map(case).collect()
}

/// One run of a shard on a host.
struct ShardRun<'f> {
    cases: &'f [FleetCase],
    random: RandomNumbers,
    /// Factor of the time of a case.
    slowness: f64,
    /// Start, end and cases with a result of each collection, in seconds from the start of the run.
    collections: Vec<(Seconds, Seconds, Vec<usize>)>,
}

impl SimulatedHost for ShardRun<'_> {
    fn finish_collection(&mut self, now: Seconds, start: &StartCollection) -> CollectionFinished {
        let startup = STARTUP.0 + (STARTUP.1 - STARTUP.0) * self.random.uniform();
        let (mut total, mut is_broken) = (startup, false);
        let mut measured = Vec::new();
        let is_control = start.purpose == CollectionPurpose::Control;
        let results = start.cases.iter().map(|&case| {
            let FleetCase { seconds, crashes, .. } = self.cases[case];
            let (verdict, seconds) = if is_broken {
                (Verdict::NotRun, None)
            } else if crashes && !is_control {
                is_broken = true;
                (Verdict::Crashed, None)
            } else {
                let seconds = seconds * self.slowness;
                total += seconds;
                (Verdict::Ok, Some(seconds))
            };
            if verdict != Verdict::NotRun {
                measured.push(case);
            }
            CaseResult { case, outcome: CaseOutcome::new(verdict, Cause::EveryLaunchRecorded), seconds }
        });
        let results: Vec<CaseResult> = results.collect();
        total += EXPORT + 1e-3 * 25.0 * results.len() as f64;
        self.collections.push((now, now + total, measured));
        CollectionFinished {
            collection: start.collection,
            results,
            exit: if is_broken { CollectionExit::Broken } else { CollectionExit::Completed },
            has_readable_profile: true,
            startup: Some(startup),
            total,
            failed_devices: Vec::new(),
            message: String::new(),
        }
    }
}

fn scheduler_cases(cases: &[FleetCase]) -> Vec<SchedCase> {
    let case = |case: &FleetCase| SchedCase {
        device_groups: Arc::default(),
        kernel: case.kernel,
        seconds: case.predicted,
        records: 25,
        equal_cases: 0,
        value: 0.0,
        devices: 1,
        memory: 1 << 20,
    };
    cases.iter().map(case).collect()
}

/// A host of the fleet.
struct FleetHost {
    slowness: f64,
    free_at: Seconds,
    lost_at: Seconds,
    /// End of its last shard.
    ended_at: Seconds,
}

/// Figures of a fleet's work.
#[derive(Default)]
struct FleetFigures {
    shards: usize,
    end: Seconds,
    /// Device seconds of collections, also of those that were lost, of the cases in them, and of those that were lost.
    collections: Seconds,
    cases: Seconds,
    lost: Seconds,
    losses: usize,
    /// Number of cases with a result.
    measured: usize,
    /// Device seconds between start and end of shards.
    shard_time: Seconds,
    /// Time at which the first host had no shard left.
    first_end: Seconds,
}

/// Works on shards of `minutes` until all cases are done; a shard goes to the host that is free first.
fn simulate_fleet(cases: &[FleetCase], hosts: u32, minutes: f64) -> FleetFigures {
    let mut random = RandomNumbers::new(2);
    let mut fleet: Vec<FleetHost> = (0..hosts)
        .map(|_| FleetHost {
            slowness: (HOST_SPEED * random.normal()).exp(),
            free_at: 0.0,
            lost_at: random.exponential(LOSSES),
            ended_at: 0.0,
        })
        .collect();
    let predicted: Seconds = cases.iter().map(|case| case.predicted).sum();
    let shards = (predicted / (60.0 * minutes * f64::from(DEVICES))).ceil().max(1.0) as usize;
    let mut queue: VecDeque<Vec<FleetCase>> = divided(cases, predicted, shards).into();
    let mut figures = FleetFigures { shards: queue.len(), ..FleetFigures::default() };
    while let Some(shard) = queue.pop_front() {
        let host = fleet
            .iter_mut()
            .min_by(|one, other| one.free_at.total_cmp(&other.free_at))
            .expect("a fleet has hosts");
        let begin = host.free_at + BETWEEN_SHARDS;
        let mut run = ShardRun {
            cases: &shard,
            random: RandomNumbers::new(random.next()),
            slowness: host.slowness,
            collections: Vec::new(),
        };
        let devices: Vec<u32> = (0..DEVICES).collect();
        let mut state = SchedulerState::new(scheduler_cases(&shard), &devices, SchedLimits::default(), 0);
        let (duration, _) = simulate(&mut state, &mut run, Vec::new());
        let end = begin + duration;
        let stop = if host.lost_at < end { host.lost_at } else { end };
        let mut is_measured = vec![false; shard.len()];
        for (start, ended, measured) in &run.collections {
            let (start, ended) = (begin + start, begin + ended);
            figures.collections += (ended.min(stop) - start).max(0.0);
            if ended > stop {
                figures.lost += (stop - start).max(0.0);
                continue;
            }
            for &case in measured {
                figures.cases += shard[case].seconds * host.slowness;
                is_measured[case] = true;
            }
        }
        figures.measured += is_measured.iter().filter(|is_measured| **is_measured).count();
        figures.shard_time += (stop - begin).max(0.0) * f64::from(DEVICES);
        (host.free_at, host.ended_at) = (stop, stop);
        if stop < end {
            figures.losses += 1;
            host.free_at = stop + REPAIR;
            host.lost_at = host.free_at + random.exponential(LOSSES);
            let open = shard.iter().zip(&is_measured).filter(|(_, is_measured)| !**is_measured);
            let open: Vec<FleetCase> = open.map(|(case, _)| case.clone()).collect();
            if !open.is_empty() {
                queue.push_front(open);
            }
        }
    }
    let ends = || fleet.iter().map(|host| host.ended_at);
    figures.end = ends().fold(0.0, f64::max);
    figures.first_end = ends().fold(f64::INFINITY, f64::min);
    figures
}

/// Cuts cases, which are in random order, into shards of about equal predicted time.
fn divided(cases: &[FleetCase], predicted: Seconds, shards: usize) -> Vec<Vec<FleetCase>> {
    let mut all: Vec<Vec<FleetCase>> = vec![Vec::new(); shards];
    let mut before = 0.0;
    for case in cases {
        let shard = ((before + case.predicted / 2.0) / predicted * shards as f64) as usize;
        all[shard.min(shards - 1)].push(case.clone());
        before += case.predicted;
    }
    all.retain(|shard| !shard.is_empty());
    all
}

fn main() {
    let count = std::env::args().filter_map(|word| word.parse::<usize>().ok()).next();
    let count = count.unwrap_or_else(|| size::full_or_small(5_000_000, 4_000));
    let hosts = size::full_or_small(64, 4);
    let cases = planned_cases(count);
    let of_cases: Seconds = cases.iter().map(|case| case.seconds).sum();
    let devices = f64::from(hosts * DEVICES);
    println!(
        "{hosts} hosts of {DEVICES} devices, {count} cases of {of_cases:.0} device s: {:.2} h if nothing else took time",
        of_cases / devices / 3600.0
    );
    println!(
        "minutes  shards   end h  cases %  start, export %  idle in shards %  outside %  lost %  losses  last host min"
    );
    let per_host = of_cases / devices / 60.0;
    for minutes in [5.0, 10.0, 20.0, 40.0, (per_host / 2.0).max(1.0)] {
        let begun = Instant::now();
        let figures = simulate_fleet(&cases, hosts, minutes);
        assert_eq!(figures.measured, count, "each case has a result");
        let all = devices * figures.end;
        let percent = |seconds: Seconds| 100.0 * seconds / all;
        println!(
            "{minutes:7.0}  {:6}  {:6.3}  {:7.2}  {:15.2}  {:16.2}  {:9.2}  {:6.3}  {:6}  {:13.1}   ({:.1} s of computing)",
            figures.shards,
            figures.end / 3600.0,
            percent(figures.cases),
            percent(figures.collections - figures.lost - figures.cases),
            percent(figures.shard_time - figures.collections),
            percent(all - figures.shard_time),
            percent(figures.lost),
            figures.losses,
            (figures.end - figures.first_end) / 60.0,
            begun.elapsed().as_secs_f64(),
        );
    }
}
