//! Experiment 11: gangs of two devices, also two at once: a profile for each rank with its own `Device_id`, no clash of
//! the ports of the gangs, and the minimum and maximum of durations over the ranks.

use std::{
    collections::BTreeSet,
    fs,
    panic::resume_unwind,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    evidence::{CaseReplay, CollectedEvidence, SelftestContext, SelftestScript, journal_lines},
    experiment::{EvidenceError, Experiment, Finding},
    kernel_steps::median_of,
    marked_launches::count_marks,
};
use crate::{
    kernel::{Attempt, IdentifiedCase, KernelName, LogicalDeviceId, Nanos, Verdict, render::files},
    measure::verify::read_records,
};

pub(super) const EXPERIMENT: Experiment = Experiment {
    number: 11,
    name: "gangs",
    assumption: "each rank of a gang has a profile with its own Device_id, and several gangs run at once",
    expected: "two gangs of two ranks at once, each rank with a profile of its own that has its Device_id and its launches; \
               minimum and maximum over the ranks",
    fix: "see collect.log of the gang; HCCL may need HCCL_IF_IP, HCCL_BUFFSIZE or /etc/hccn.conf in the container",
    run,
};

const GANG_KERNEL: &str = "DispatchFFNCombine";
const ELEMENTS: u64 = 1 << 20;
const LAUNCHES: u32 = 8;
const KERNEL_LAUNCHES: (u32, u32) = (3, 8);
/// Length of the vectors of the marked launches, of which rank r has r + 1.
const MARK_LENGTH: u64 = 2;
const ALL_REDUCE: &str = "hcom_allReduce_";
const FORM_SECONDS: f64 = 240.0;
const POLL_INTERVAL: Duration = Duration::from_millis(20);

fn run(context: &SelftestContext, folder: &Path) -> Result<Finding, EvidenceError> {
    let pairs = gang_pairs(&context.devices);
    let Some(first) = pairs.first() else {
        let devices = &context.devices;
        return Err(EvidenceError::Missing(format!(
            "a gang needs two devices, this selftest has {devices:?}"
        )));
    };
    let gangs = run_together(context, folder, pairs.get(..2).unwrap_or(&pairs[..1]))?;
    let mut problems: Vec<String> = gangs.iter().flat_map(gang_problems).collect();
    let mut seen = vec![match gangs.len() {
        1 => "one gang, because two at once need four devices".to_owned(),
        count => format!("{count} gangs at once"),
    }];
    seen.push(match rank_extremes(&gangs[0].sums_by_rank()) {
        Some(extremes) => format!("all_reduce {extremes}"),
        None => "the profiler does not record all_reduce".to_owned(),
    });
    problems.extend(gangs.iter().filter_map(|gang| missing_sums(&gang.sums_by_rank())));
    match kernel_of_gang(context, &folder.join(GANG_KERNEL), first)? {
        Ok(text) => seen.push(format!("{GANG_KERNEL} {text}")),
        Err(problem) => problems.push(format!("{GANG_KERNEL}: {problem}")),
    }
    Ok(Finding::new(seen.join("; "), problems))
}

/// Returns pairs of devices: first the pairs of one card (2k and 2k+1), then pairs of the remaining devices in their
/// order.
fn gang_pairs(devices: &[u32]) -> Vec<[u32; 2]> {
    let mut left: BTreeSet<u32> = devices.iter().copied().collect();
    let mut pairs = Vec::new();
    for device in devices.iter().copied().filter(|device| device.is_multiple_of(2)) {
        if left.contains(&device) && left.contains(&(device + 1)) {
            left.retain(|other| *other != device && *other != device + 1);
            pairs.push([device, device + 1]);
        }
    }
    let left: Vec<u32> = left.into_iter().collect();
    pairs.extend(left.chunks_exact(2).map(|pair| [pair[0], pair[1]]));
    pairs
}

/// Runs a gang on each pair. All wait for each other between their sums and their end, so that they exist at once.
fn run_together(
    context: &SelftestContext,
    folder: &Path,
    pairs: &[[u32; 2]],
) -> Result<Vec<GangObservation>, EvidenceError> {
    let folders: Vec<PathBuf> =
        pairs.iter().map(|[one, other]| folder.join(format!("devices-{one}-{other}"))).collect();
    let collected: Vec<Result<CollectedEvidence, EvidenceError>> = thread::scope(|scope| {
        let start = |(devices, folder)| {
            let parameters = json!({ "elements": ELEMENTS, "launches": LAUNCHES, "wait": FORM_SECONDS });
            let script = context.script(folder, "collective", parameters);
            scope.spawn(move || SelftestScript { devices, ..script }.collect())
        };
        let scripts: Vec<_> = pairs.iter().map(|pair| &pair[..]).zip(&folders).map(start).collect();
        let started = Instant::now();
        // A rank writes its number when its group exists.
        let has_formed = |folder: &PathBuf| {
            journal_lines(&folder.join(files::JOURNAL)).iter().any(|line| line.get("rank").is_some())
        };
        let have_formed = || {
            scripts.iter().zip(&folders).all(|(script, folder)| script.is_finished() || has_formed(folder))
        };
        while !have_formed() && started.elapsed().as_secs_f64() < FORM_SECONDS {
            thread::sleep(POLL_INTERVAL);
        }
        for folder in &folders {
            // A gang without the file ends after its waiting time.
            let _ = fs::write(folder.join("release"), "");
        }
        let ended =
            scripts.into_iter().map(|script| script.join().unwrap_or_else(|panic| resume_unwind(panic)));
        ended.collect()
    });
    let observed = collected.into_iter().zip(pairs);
    observed.map(|(evidence, pair)| Ok(GangObservation::read(context, pair, &evidence?))).collect()
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct RankProfile {
    recorded: BTreeSet<Option<LogicalDeviceId>>,
    marks: usize,
    /// Durations of the sums over the ranks, in their order.
    sums: Vec<Nanos>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct GangObservation {
    devices: Vec<u32>,
    logical_ids: Vec<LogicalDeviceId>,
    sizes: Vec<Option<u64>>,
    failure: Option<String>,
    profiles: Result<Vec<RankProfile>, String>,
}

impl GangObservation {
    fn read(context: &SelftestContext, devices: &[u32], evidence: &CollectedEvidence) -> Self {
        let journal = |rank| journal_lines(&evidence.folder.join(files::journal(rank)));
        let journals: Vec<Vec<Value>> = (0..devices.len()).map(journal).collect();
        let value = |journal: &[Value], key: &str| journal.iter().find_map(|line| line.get(key).cloned());
        let has_finished = journals.iter().all(|journal| value(journal, "done").is_some());
        let profiles = evidence.profile_folders();
        let profiles = profiles.iter().map(|profile| {
            let records = read_records(profile).map_err(|error| error.to_string())?.into_complete()?;
            let sums = records.iter().filter(|record| record.kernel.starts_with(ALL_REDUCE));
            Ok(RankProfile {
                recorded: records.iter().map(|record| record.device).collect(),
                marks: count_marks(&records, MARK_LENGTH..=MARK_LENGTH),
                sums: sums.map(|record| record.duration).collect(),
            })
        });
        Self {
            devices: devices.to_vec(),
            logical_ids: context.logical_ids(devices),
            sizes: journals.iter().map(|journal| value(journal, "size")?.as_u64()).collect(),
            failure: (!has_finished).then(|| evidence.last_line()),
            profiles: profiles.collect(),
        }
    }

    fn sums_by_rank(&self) -> Vec<Vec<Nanos>> {
        let profiles = self.profiles.as_deref().unwrap_or_default();
        let of = |device: &LogicalDeviceId| {
            let own = profiles.iter().find(|profile| profile.is_of(*device));
            own.map(|profile| profile.sums.clone()).unwrap_or_default()
        };
        self.logical_ids.iter().map(of).collect()
    }
}

impl RankProfile {
    fn is_of(&self, device: LogicalDeviceId) -> bool {
        self.recorded == BTreeSet::from([Some(device)])
    }
}

fn gang_problems(gang: &GangObservation) -> Vec<String> {
    let name = format!("gang of devices {:?}", gang.devices);
    if let Some(failure) = &gang.failure {
        return vec![format!("{name} did not finish: {failure}")];
    }
    let profiles = match &gang.profiles {
        Ok(profiles) => profiles,
        Err(problem) => return vec![format!("{name}: a profile cannot be read: {problem}")],
    };
    let ranks = gang.devices.len();
    let mut problems = Vec::new();
    if profiles.len() != ranks {
        problems.push(format!("{name} left {} profiles of {ranks} ranks", profiles.len()));
    }
    if gang.sizes.iter().any(|size| *size != Some(ranks as u64)) {
        problems.push(format!("{name}: the ranks see groups of {:?} ranks", gang.sizes));
    }
    for (rank, device) in gang.logical_ids.iter().enumerate() {
        let own: Vec<&RankProfile> = profiles.iter().filter(|profile| profile.is_of(*device)).collect();
        match own.as_slice() {
            [one] if one.marks == rank + 1 => {}
            [one] => {
                problems.push(format!(
                    "{name}: {} of {} marks of rank {rank} are recorded",
                    one.marks,
                    rank + 1
                ));
            }
            several => problems.push(format!(
                "{name}: {} profiles have the records of rank {rank} under Device_id {device}",
                several.len()
            )),
        }
    }
    problems
}

/// Returns the numbers of recorded sums by rank if sums are missing. A profiler that records none has no such records.
fn missing_sums(by_rank: &[Vec<Nanos>]) -> Option<String> {
    let counts: Vec<usize> = by_rank.iter().map(Vec::len).collect();
    let is_expected = |count: usize| counts.iter().all(|own| *own == count);
    (!is_expected(0) && !is_expected(LAUNCHES as usize)).then(|| {
        let counts: Vec<String> = counts.iter().map(usize::to_string).collect();
        format!("{LAUNCHES} sums were launched by each rank, {} are recorded", counts.join(" and "))
    })
}

/// Returns the minimum and the maximum over the ranks, as medians over the launches; `None` if a rank has no records or
/// the ranks have different numbers of them.
fn rank_extremes(by_rank: &[Vec<Nanos>]) -> Option<String> {
    let launches = by_rank.first().map(Vec::len).filter(|launches| *launches > 0)?;
    if by_rank.iter().any(|rank| rank.len() != launches) {
        return None;
    }
    let of_launch = |launch: usize| by_rank.iter().map(move |rank| rank[launch].0);
    let fastest: Vec<i64> = (0..launches).filter_map(|launch| of_launch(launch).min()).collect();
    let slowest: Vec<i64> = (0..launches).filter_map(|launch| of_launch(launch).max()).collect();
    let [low, high] = [fastest, slowest].map(|nanos| median_of(&nanos) / 1e3);
    Some(format!("{low:.2} us on the fastest rank, {high:.2} us on the slowest"))
}

/// Measures the example of the kernel on a gang. The first error is one of the selftest; the second is the reason why the
/// records are not as expected.
fn kernel_of_gang(
    context: &SelftestContext,
    folder: &Path,
    devices: &[u32],
) -> Result<Result<String, String>, EvidenceError> {
    let kernel = KernelName::new(GANG_KERNEL).ok();
    let example = kernel.and_then(|kernel| context.host.catalogue.entry(&kernel)?.example.clone());
    let Some(example) = example else { return Ok(Ok("left out: it has no example".to_owned())) };
    let planned = match context.planned_case(IdentifiedCase::new(example)) {
        Ok(planned) => planned,
        Err(reason) => return Ok(Err(reason)),
    };
    let (warm_up, measured) = KERNEL_LAUNCHES;
    let replay = CaseReplay { cases: &[&planned], devices, warm_up, measured, flush_bytes: None };
    let attempts = context.replay_cases(folder, &replay)?;
    Ok(kernel_result(&attempts[0]))
}

fn kernel_result(attempt: &Attempt) -> Result<String, String> {
    let reason = &attempt.outcome.reason;
    match attempt.outcome.verdict {
        verdict if verdict.is_recorded() => {
            let slowest: Vec<Nanos> = attempt.launches.iter().map(|launch| launch.duration).collect();
            let measured = attempt.launches.iter().position(|launch| launch.is_measured).unwrap_or(0);
            let samples = [&slowest, &attempt.fastest_ranks]
                .map(|durations| durations.get(measured..).map(<[Nanos]>::to_vec).unwrap_or_default());
            rank_extremes(&samples).ok_or_else(|| "a rank has no records".to_owned())
        }
        Verdict::Unsupported => Ok(format!("left out: {reason}")),
        verdict => Err(format!("{verdict}: {reason}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{CaseId, CaseOutcome, Launch, RecordedTask};

    fn gang() -> GangObservation {
        let profile = |device: u32, marks: usize, sum: i64| RankProfile {
            recorded: BTreeSet::from([Some(LogicalDeviceId(device))]),
            marks,
            sums: vec![Nanos(sum), Nanos(sum + 1_000)],
        };
        GangObservation {
            devices: vec![6, 7],
            logical_ids: vec![LogicalDeviceId(2), LogicalDeviceId(3)],
            sizes: vec![Some(2); 2],
            failure: None,
            profiles: Ok(vec![profile(3, 2, 21_000), profile(2, 1, 20_000)]),
        }
    }

    #[test]
    fn pairs_of_one_card_precede_other_pairs() {
        assert_eq!(gang_pairs(&[0, 1, 2, 3]), [[0, 1], [2, 3]]);
        assert_eq!(gang_pairs(&[1, 2, 3, 5, 6]), [[2, 3], [1, 5]]);
        assert_eq!(gang_pairs(&[1, 2]), [[1, 2]]);
        assert!(gang_pairs(&[4]).is_empty());
    }

    #[test]
    fn gangs_without_a_profile_of_each_rank_are_reported() {
        assert_eq!(gang_problems(&gang()), [""; 0]);
        let problem = |change: fn(&mut GangObservation)| {
            let mut changed = gang();
            change(&mut changed);
            gang_problems(&changed).join("; ")
        };
        let profiles = |gang: &mut GangObservation, change: fn(&mut Vec<RankProfile>)| {
            gang.profiles.iter_mut().for_each(change);
        };
        let one = problem(|gang| gang.profiles = gang.profiles.clone().map(|all| all[..1].to_vec()));
        assert!(one.contains("1 profiles of 2 ranks") && one.contains("rank 0 under Device_id 2"), "{one}");
        let mut lost = gang();
        profiles(&mut lost, |all| all[0].marks = 1);
        assert!(gang_problems(&lost)[0].contains("1 of 2 marks of rank 1"));
        let port = problem(|gang| gang.failure = Some("EADDRINUSE".to_owned()));
        assert_eq!(port, "gang of devices [6, 7] did not finish: EADDRINUSE");
        assert!(problem(|gang| gang.sizes[1] = Some(1)).contains("groups of"));
    }

    #[test]
    fn extremes_are_taken_over_the_ranks_of_each_launch() {
        let text = rank_extremes(&gang().sums_by_rank()).expect("records of both ranks");
        assert_eq!(text, "20.50 us on the fastest rank, 21.50 us on the slowest");
        assert_eq!(rank_extremes(&[vec![], vec![]]), None);
        assert_eq!(rank_extremes(&[vec![Nanos(1)], vec![]]), None);
    }

    #[test]
    fn kernels_that_are_not_installed_are_left_out() {
        let attempt = |verdict, reason: &str| Attempt {
            case: CaseId::from_stored("00000000000000ff"),
            launched: 1,
            launches: vec![Launch {
                number: 0,
                is_measured: true,
                is_accepted: true,
                start: Nanos(0),
                duration: Nanos(9_000),
            }],
            fastest_ranks: vec![Nanos(8_000)],
            counters: Vec::new(),
            task: RecordedTask::default(),
            cycle_rate: None,
            outcome: CaseOutcome::new(verdict, reason),
            of_equal_calls: Vec::new(),
        };
        let measured = kernel_result(&attempt(Verdict::Noisy, "few samples")).expect("durations");
        assert_eq!(measured, "8.00 us on the fastest rank, 9.00 us on the slowest");
        let missing = kernel_result(&attempt(Verdict::Unsupported, "no module vllm_ascend"));
        assert_eq!(missing.as_deref(), Ok("left out: no module vllm_ascend"));
        let lost = kernel_result(&attempt(Verdict::LostRecords, "8 launches, 7 records"));
        assert!(lost.is_err_and(|problem| problem.contains("lost_records")));
    }
}
