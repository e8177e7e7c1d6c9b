//! Recorded runs of models for `timeline`, `modules` and `compare`.

use std::path::PathBuf;

use super::CommandError;
use crate::{
    catalogue::Catalogue,
    config::DeviceProfile,
    coverage::InModelKernels,
    profile::device_of_profile,
    report::{ModuleLine, RunModules, print_note},
    timeline::{
        LaunchedTask, ModuleRow, ModuleTable, PeakRate, RunFlops, RunTimeline, Utilisation, read_runs,
    },
};

/// Reads the runs of all paths, and notes what was left out.
pub(crate) fn read_all_runs(paths: &[PathBuf]) -> Result<Vec<RunTimeline>, CommandError> {
    let mut runs = Vec::new();
    for path in paths {
        runs.extend(read_runs(path)?);
    }
    for run in &runs {
        let file = run.files.first().map(|file| file.display().to_string()).unwrap_or_default();
        for (count, what) in [
            (run.untimed, "records without a valid time are left out"),
            (run.repeated, "records of collectives repeat others on another stream and do not count"),
            (run.unfinished_ranges, "ranges of mstx have no end and are left out"),
        ] {
            if count > 0 {
                print_note(&format!("`{file}`: {count} {what}"));
            }
        }
    }
    Ok(runs)
}

/// Returns the peak that is given, that of a device profile, or that of the profile's device.
pub(crate) fn peak_of_run(
    run: &RunTimeline,
    given: Option<f64>,
    profile: Option<&DeviceProfile>,
) -> Option<PeakRate> {
    if let Some(tflops) = given {
        return Some(PeakRate::given(tflops));
    }
    if let Some(profile) = profile {
        return Some(PeakRate::of_profile(profile));
    }
    let evidence = device_of_profile(run.files.first()?);
    let mut sources = evidence.sources.clone();
    sources.extend(evidence.are_cores_inferred.then_some("number of cores by the blocks of kernels"));
    PeakRate::of_facts(&evidence.facts, &sources)
}

/// Returns the modules of a run with utilisation and time beyond that alone. `number` is its place among the runs of
/// `in_model`.
pub(crate) fn modules_of_run<'a>(
    number: usize,
    run: &'a RunTimeline,
    table: &'a ModuleTable,
    peak: Option<&'a PeakRate>,
    catalogue: &'a Catalogue,
    in_model: Option<&InModelKernels>,
) -> RunModules<'a> {
    let (calls, _) = run.operator_calls();
    let mut flops = peak.map(|peak| RunFlops::new(run, catalogue, peak, &calls));
    let mut line = |row: &'a ModuleRow, is_outside: bool| {
        let mut utilisation: Option<Utilisation> = None;
        let mut excess: Option<(f64, i64)> = None;
        for call in &row.calls {
            if let Some(own) = flops.as_mut().and_then(|flops| flops.utilisation(call)) {
                utilisation.get_or_insert_default().add(own);
            }
            for task in &call.tasks {
                let LaunchedTask::Kernel(at) = task else { continue };
                let Some(task) = run.tasks.get(*at as usize) else { continue };
                if let Some(own) = in_model.and_then(|in_model| in_model.excess_of_task(number, task)) {
                    let (sum, time) = excess.unwrap_or_default();
                    excess = Some((sum + own, time + task.span.length()));
                }
            }
        }
        ModuleLine { row, is_outside, utilisation, excess }
    };
    let mut lines: Vec<ModuleLine<'a>> = table.rows.iter().map(|row| line(row, false)).collect();
    lines.extend(table.outside.iter().map(|row| line(row, true)));
    let peak = peak.map_or_else(
        || "unknown: the profile has neither the number of cores nor their clock; give `--peak`".to_owned(),
        |peak| peak.source.clone(),
    );
    RunModules { run, table, lines, peak }
}
