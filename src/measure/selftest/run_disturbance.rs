//! Experiment 12: what a run does beside a measurement does not change durations: readings by npu-smi, and exports of other
//! devices.

use std::{panic::resume_unwind, path::Path, thread};

use super::{
    evidence::{CollectedEvidence, SelftestContext, SelftestScript},
    experiment::{EvidenceError, Experiment, Finding},
    kernel_steps::{LaunchStep, StepSettings, WARM_UP, median_of, step_durations},
    repeated_collections::{KERNELS, MEASURED},
};
use crate::{
    base::{
        process::ExitKind,
        stats::{BlockEffect, block_effects},
    },
    kernel::render::files,
    measure::device::query_npu_smi,
};

pub(super) const EXPERIMENT: Experiment = Experiment {
    number: 12,
    name: "run-disturbance",
    assumption: "durations do not depend on npu-smi and on exports that run at the same time",
    expected: "medians of a product, a copy and a normalisation move by less than 1 %, or by less than collections alone \
               explain, while npu-smi is queried without a pause and while the profile of another device is exported",
    fix: "of exports: run on fewer devices at once with `--devices`. Of npu-smi: a run asks it every 30 s only, so that few launches \
          are affected",
    run,
};

/// Rounds of a collection for each of `BESIDE`.
const ROUNDS: usize = 4;
/// Least effect that counts, in percent: a fifth of the width from which on a row is `noisy`.
const LEAST: f64 = 1.0;
/// Probability that a host without effects fails, shared equally by all comparisons.
const FALSE_ALARM: f64 = 0.01;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Nothing,
    NpuSmi,
    Export,
}

const BESIDE: [(&str, Beside); 3] =
    [("alone", Beside::Nothing), ("npu-smi", Beside::NpuSmi), ("export", Beside::Export)];

/// Runs the experiment. Each round has another order, so that none of `BESIDE` always follows the same one.
fn run(context: &SelftestContext, folder: &Path) -> Result<Finding, EvidenceError> {
    let steps = KERNELS.map(|(_, kernel)| LaunchStep::hot(kernel, WARM_UP + MEASURED));
    let script =
        |name: &str| context.script(folder.join(name), "steps", StepSettings::default().parameters(&steps));
    // Without a second device, that of the measurement: an export takes place on the host.
    let other = context.devices.get(1).unwrap_or(&context.devices[0]);
    let exported =
        SelftestScript { devices: std::slice::from_ref(other), ..script("exported") }.complete()?.folder;
    let mut medians = [const { Vec::new() }; KERNELS.len()];
    let mut repeats = [0; BESIDE.len()];
    for round in 0..ROUNDS {
        medians.iter_mut().for_each(|kernel| kernel.push(vec![0.0; BESIDE.len()]));
        for place in 0..BESIDE.len() {
            let treatment = (round + place) % BESIDE.len();
            let (name, beside) = BESIDE[treatment];
            let number = (round * BESIDE.len() + place + 2) as u32;
            let script = SelftestScript { number, ..script(&format!("{name}-{}", round + 1)) };
            let (evidence, count) = collect_beside(&script, || match beside {
                Beside::Nothing => Ok(()),
                Beside::NpuSmi => Ok(query_npu_smi(&context.environment, folder, &context.stop).map(|_| ())?),
                Beside::Export => export(context, &exported, *other),
            })?;
            if beside != Beside::Nothing && count < 2 {
                let problem = format!("{name} did not end before the collection beside it");
                return Err(EvidenceError::Missing(problem));
            }
            repeats[treatment] += count;
            let records = evidence.readable_records()?;
            for ((step, kernel), n) in steps.iter().zip(&mut medians).zip(0_u64..) {
                kernel[round][treatment] = median_of(&step_durations(records, n, step)?).ln();
            }
        }
    }
    let finding = compare(&medians);
    let [_, queries, exports] = repeats;
    let seen = format!("{} ({queries} queries, {exports} exports)", finding.seen);
    Ok(Finding { seen, ..finding })
}

/// Collects the script, and repeats the other work until the collection has ended. Returns how often it was started.
fn collect_beside(
    script: &SelftestScript<'_>,
    work: impl Fn() -> Result<(), EvidenceError>,
) -> Result<(CollectedEvidence, u32), EvidenceError> {
    // The folder and its files exist before the work starts.
    script.prepare()?;
    thread::scope(|scope| {
        let running = scope.spawn(|| script.run()?.completed());
        let (mut count, mut worked) = (0, Ok(()));
        while worked.is_ok() && !running.is_finished() {
            worked = work();
            count += 1;
        }
        let evidence = running.join().unwrap_or_else(|panic| resume_unwind(panic));
        worked.and(evidence).map(|evidence| (evidence, count))
    })
}

fn export(context: &SelftestContext, folder: &Path, device: u32) -> Result<(), EvidenceError> {
    match context.run_script(folder, &[device], Some("export"), files::EXPORT_LOG)? {
        ExitKind::Exited(0) => Ok(()),
        exit => Err(EvidenceError::Missing(format!("the export of `{}`: {exit:?}", folder.display()))),
    }
}

/// Compares logarithms of medians by kernel, round and `BESIDE`.
fn compare(kernels: &[Vec<Vec<f64>>]) -> Finding {
    let (mut seen, mut problems) = (Vec::new(), Vec::new());
    let error = FALSE_ALARM / (kernels.len() * (BESIDE.len() - 1)) as f64;
    for ((kernel, _), rounds) in KERNELS.iter().zip(kernels) {
        for ((beside, _), effect) in BESIDE[1..].iter().zip(block_effects(rounds, error)) {
            let BlockEffect { difference, half_width } = effect;
            let [percent, uncertainty] = [difference, half_width].map(|log| 100.0 * log.exp_m1());
            seen.push(format!("{kernel} {percent:+.2} ± {uncertainty:.2} % with {beside}"));
            if percent.abs() >= LEAST && difference.abs() > half_width {
                problems.push(format!(
                    "{kernel} takes {percent:.2} ± {uncertainty:.2} % longer with {beside} beside it than alone"
                ));
            }
        }
    }
    Finding::new(seen.join(", "), problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Logarithms of medians whose collections differ by this spread.
    fn rounds(effects: [f64; 3], spread: f64) -> Vec<Vec<f64>> {
        let deviation = |round: usize, place: usize| spread * [1.0, -0.5, -0.5][(round + place) % 3];
        let round =
            |round| (0..3).map(|place| 5.0 + effects[place] + deviation(round, place)).collect::<Vec<_>>();
        (0..ROUNDS).map(round).collect()
    }

    #[test]
    fn effect_counts_if_collections_do_not_explain_it() {
        let problems = |kernel: Vec<Vec<f64>>| compare(&[kernel]).problems;
        assert_eq!(problems(rounds([0.0, 0.004, -0.004], 1e-4)), [""; 0], "too small to count");
        assert_eq!(problems(rounds([0.0, 0.03, 0.0], 0.03)), [""; 0], "collections differ as much");
        let found = problems(rounds([0.0, 0.03, 0.0], 0.001));
        let [problem] = &found[..] else { panic!("{found:?}") };
        assert!(problem.starts_with("mm takes 3.0") && problem.contains("with npu-smi beside"), "{problem}");
        let seen = compare(&[rounds([0.0, 0.0, 0.0], 0.0)]).seen;
        assert_eq!(seen, "mm +0.00 ± 0.00 % with npu-smi, mm +0.00 ± 0.00 % with export");
    }
}
