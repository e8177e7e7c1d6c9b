//! Experiment 8: a recorded duration does not depend on the profiler's settings, and agrees with events of the stream.
//!
//! The same product is collected with the settings of runs (counters), without counters, and with `--task-time=l0`,
//! which records neither types nor shapes. The script's other kernels take less than a tenth of the product's time, so
//! that its launches are the longest tasks of every collection. Where `op_summary` cannot be read, as at l0 in some
//! versions, durations come from `task_time_*.csv`, which has every task and states times 2 to 3 us longer.

use std::path::Path;

use serde_json::Value;

use super::{
    evidence::{CollectedEvidence, SelftestContext, SelftestScript},
    experiment::{EvidenceError, Experiment, Finding},
    kernel_steps::{LaunchStep, StepKernel, StepSettings, median_of, percent},
};
use crate::{
    base::files::{MAX_TABLE, named_entries, read_regular_text},
    kernel::{AicMetrics, Nanos, ProfilerSettings},
    measure::verify::RawRecord,
};

pub(super) const EXPERIMENT: Experiment = Experiment {
    number: 8,
    name: "profiler-overhead",
    assumption: "a recorded duration does not depend on the profiler's settings and agrees with events",
    expected: "the median of a product of 8192 x 8192 matrices moves by less than 2 % without counters and with \
               --task-time=l0, and agrees with events of the stream",
    fix: "measure with `--aic-metrics none`; durations with counters contain the profiler's overhead",
    run,
};

const MEASURED: u32 = 20;
/// Product of about 3 ms, beside which the pause between two launches is small.
const PRODUCT: StepKernel = StepKernel::Matmul { rows: 8_192, inner: 8_192, columns: 8_192 };
/// First launches of the product, about 0.1 s.
const SETTLING: u32 = 30;
/// Limit of a difference from the settings of runs, in percent.
const LIMIT: f64 = 2.0;
/// Largest factor between the times of launches of the product.
const EQUAL: i64 = 3;

fn run(context: &SelftestContext, folder: &Path) -> Result<Finding, EvidenceError> {
    let runs = ProfilerSettings::default();
    let without_counters = ProfilerSettings { aic_metrics: AicMetrics::Disabled, ..runs.clone() };
    let level_0 = ProfilerSettings { task_time: "l0".to_owned(), ..without_counters.clone() };
    let (with_counters, _) = collect_product(context, &folder.join("counters"), 1, runs)?;
    let (without, _) = collect_product(context, &folder.join("no-counters"), 2, without_counters)?;
    let (level_0, event_mean) = collect_product(context, &folder.join("task-time-l0"), 3, level_0)?;
    // Events of the collection with the least overhead; they contain the pauses between launches.
    let others = [("without counters", without), ("with --task-time=l0", level_0), ("by events", event_mean)];
    Ok(compare_medians(with_counters, &others))
}

/// Returns the times of a launch of the product in nanoseconds: the median, and the mean by events before the first and
/// after the last measured launch.
fn collect_product(
    context: &SelftestContext,
    folder: &Path,
    number: u32,
    profiler: ProfilerSettings,
) -> Result<(f64, f64), EvidenceError> {
    let launches = SETTLING + MEASURED;
    // Other products would be among the longest tasks; the first launches settle the clock.
    let settings = StepSettings { preheat: 0, warm_up: SETTLING, events: true, ..StepSettings::default() };
    let parameters = settings.parameters(&[LaunchStep::hot(PRODUCT, launches)]);
    let script = context.script(folder, "steps", parameters);
    let evidence = SelftestScript { number, profiler, ..script }.complete()?;
    let mean = evidence.journal_value("event_ms").and_then(Value::as_f64);
    let mean = mean.ok_or_else(|| EvidenceError::missing("the journal has no time by events"))?;
    let durations = launches_of_product(&recorded_tasks(&evidence)?, launches)
        .map_err(|problem| EvidenceError::Missing(format!("{}: {problem}", folder.display())))?;
    Ok((median_of(&durations[SETTLING as usize..]), mean * 1e6))
}

type TaskTimes = (Nanos, Nanos);

/// Returns the tasks of `op_summary`; if it has none or cannot be read, the tasks of `task_time`.
fn recorded_tasks(evidence: &CollectedEvidence) -> Result<Vec<TaskTimes>, EvidenceError> {
    let times = |record: &RawRecord| (record.start, record.duration);
    let of_summary: Vec<TaskTimes> = evidence.records.iter().flatten().map(times).collect();
    if !of_summary.is_empty() {
        return Ok(of_summary);
    }
    let mut tasks = Vec::new();
    for profile in evidence.profile_folders() {
        for path in
            named_entries(&profile.join("mindstudio_profiler_output"), "task_time_", "").unwrap_or_default()
        {
            let text = read_regular_text(&path, MAX_TABLE).map_err(EvidenceError::io(&path))?;
            tasks.extend(parse_task_times(&text));
        }
    }
    tasks.sort_unstable();
    Ok(tasks)
}

/// Parses `task_time_*.csv`: columns `task_start(us)`, whose cells end in a tab, and `task_time(us)`.
fn parse_task_times(text: &str) -> Vec<TaskTimes> {
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap_or_default().split(',').map(str::trim).collect();
    let column = |name: &str| header.iter().position(|cell| *cell == name);
    let Some((start, duration)) = column("task_start(us)").zip(column("task_time(us)")) else {
        return Vec::new();
    };
    let task = |line: &str| {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        Some((cells.get(start)?.parse().ok()?, cells.get(duration)?.parse().ok()?))
    };
    lines.filter_map(task).collect()
}

/// Returns the durations of the longest tasks in the order of their starts; an error if there are too few of equal
/// length.
fn launches_of_product(tasks: &[TaskTimes], launches: u32) -> Result<Vec<i64>, String> {
    let mut longest = tasks.to_vec();
    longest.sort_unstable_by_key(|(_, duration)| std::cmp::Reverse(*duration));
    longest.truncate(launches as usize);
    let ends = longest.first().zip(longest.last()).map(|((_, most), (_, least))| (most.0, least.0));
    match ends {
        Some((most, least)) if longest.len() == launches as usize && most < EQUAL * least => {
            longest.sort_unstable();
            Ok(longest.into_iter().map(|(_, duration)| duration.0).collect())
        }
        _ => Err(format!("{launches} launches of a product are not recorded among {} tasks", tasks.len())),
    }
}

fn compare_medians(of_runs: f64, others: &[(&str, f64)]) -> Finding {
    let mut seen = vec![format!("{:.2} us with counters", of_runs / 1e3)];
    let mut problems = Vec::new();
    for (name, median) in others {
        let difference = percent(median - of_runs, of_runs);
        seen.push(format!("{difference:+.2} % {name}"));
        if difference.abs() >= LIMIT {
            problems.push(format!(
                "a product takes {:.2} us with counters, {:.2} us {name} ({difference:+.1} %)",
                of_runs / 1e3,
                median / 1e3
            ));
        }
    }
    Finding::new(seen.join(", "), problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_differences_pass_and_larger_ones_are_named() {
        let Finding { seen, problems, .. } =
            compare_medians(3e6, &[("without counters", 2.99e6), ("by events", 3.01e6)]);
        assert_eq!(problems, [""; 0]);
        assert_eq!(seen, "3000.00 us with counters, -0.33 % without counters, +0.33 % by events");
        let problems = compare_medians(3e6, &[("without counters", 2.85e6)]).problems;
        assert_eq!(
            problems,
            ["a product takes 3000.00 us with counters, 2850.00 us without counters (-5.0 %)"]
        );
    }

    #[test]
    fn longest_tasks_are_the_products() {
        let helper = |start: i64| (Nanos(start), Nanos(1_500));
        let product = |start: i64| (Nanos(start), Nanos(3_000_000 + start));
        let tasks = [helper(0), product(3), product(1), helper(2), product(2)];
        assert_eq!(launches_of_product(&tasks, 3), Ok(vec![3_000_001, 3_000_002, 3_000_003]));
        assert!(launches_of_product(&tasks, 4).is_err_and(|problem| problem.contains("among 5 tasks")));
        assert!(launches_of_product(&tasks[..2], 3).is_err());
        assert!(launches_of_product(&[], 0).is_err());
    }

    #[test]
    fn table_of_tasks_without_types_is_parsed() {
        let text = "Device_id,kernel_name,kernel_type,stream_id,task_id,task_time(us),task_start(us),task_stop(us)\n\
                    0,N/A,N/A,2,7,3001.240,1764246877073569.640\t,1764246877076570.880\t\n\
                    0,N/A,EVENT_RECORD,2,8,0.020,1764246877076571.000\t,1764246877076571.020\t\n";
        let first = (Nanos(1_764_246_877_073_569_640), Nanos(3_001_240));
        assert_eq!(parse_task_times(text), [first, (Nanos(1_764_246_877_076_571_000), Nanos(20))]);
        assert_eq!(parse_task_times("a,b\n1,2\n"), []);
    }
}
