//! Recorded runs of models for `timeline`, `modules` and `compare`: which runs are read, and what is known of them beyond
//! their times: the peak of the device, utilisation by module, and durations of the kernels alone.

use std::{
    collections::{BTreeSet, HashSet},
    path::{Path, PathBuf},
};

use crate::{
    answer::coverage::InModelKernels,
    base::{command_error::CommandError, count_text::format_count},
    kernel::{Nanos, catalogue::Catalogue, device::DeviceProfile},
    profile::{
        device_of_profile,
        timeline::{
            LaunchedTask, MissingPart, ModuleRow, ModuleTable, PeakRate, RunFlops, RunMemory, RunSums,
            RunTimeline, StepTimes, TimeSpan, Utilisation, read_runs, step_times, sum_lengths,
        },
    },
};

const DAY: i64 = 86_400_000_000_000;
/// Length of a run beyond which a recorded time must be wrong: no profile is that long.
const MAX_RUN: i64 = 2 * DAY;
const LISTED_STEPS: usize = 20;

/// Reads the runs of all paths, each once. Returns notes on what was left out, too.
pub(crate) fn read_all_runs(paths: &[PathBuf]) -> Result<(Vec<RunTimeline>, Vec<String>), CommandError> {
    let mut runs = Vec::new();
    let mut seen = HashSet::new();
    for path in paths {
        let mut found = read_runs(path)?;
        // A folder and a profile in it have the same run.
        found.retain(|run| {
            run.files
                .first()
                .is_none_or(|file| seen.insert(file.canonicalize().unwrap_or_else(|_| file.clone())))
        });
        runs.append(&mut found);
    }
    let notes = runs.iter().flat_map(notes_on_run).collect();
    Ok((runs, notes))
}

fn notes_on_run(run: &RunTimeline) -> Vec<String> {
    let file = run.files.first().map(|file| file.display().to_string()).unwrap_or_default();
    let counts = [
        (run.untimed, "without a valid time, left out"),
        (run.repeated, "of a collective that repeats another on another stream, not counted"),
        (
            run.without_row,
            "of trace_view.json that is not in the table of kernels, which may be cut: counted without type and shapes",
        ),
        (run.unfinished_ranges, "of a range of mstx without an end behind its start, left out"),
        (run.unnamed, "of a process without a `process_name`, left out"),
    ];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    let mut notes: Vec<String> =
        counts.map(|(count, text)| format!("`{file}`: {} {text}", format_count(count, "record"))).collect();
    if run.scheduling > 0 {
        notes.push(format!(
            "`{file}`: {} inside a task of the scheduler, which takes {:.3} us more in total; the times of kernels do not contain it",
            format_count(run.mixed_kernels, "kernel"),
            Nanos(run.scheduling).micros()
        ));
    }
    notes.extend(run.unknown_schema.as_ref().map(|version| {
        format!(
            "`{file}`: SCHEMA_VERSION `{version}` is not known (known: 1.0 to 1.2); compare the times with the vendor's"
        )
    }));
    let length = run.hull().map_or(0, TimeSpan::length);
    if length > MAX_RUN {
        notes.push(format!(
            "`{file}`: the times of kernels and collectives span {} days, so that at least one is wrong",
            length / DAY
        ));
    }
    notes
}

pub(crate) fn nothing_on_device() -> CommandError {
    CommandError::bad_input(
        "the profiles have neither a kernel nor a collective with a time",
        "check that the profiled range ran on a device, and that the profile was analysed",
    )
}

/// Refuses steps that are not among the times of the profiles, which `subject` names with their verb.
pub(crate) fn require_steps(wanted: &[u64], times: &[StepTimes], subject: &str) -> Result<(), CommandError> {
    let recorded: BTreeSet<u64> = times.iter().filter_map(|own| own.step).collect();
    let Some(unknown) = wanted.iter().find(|step| !recorded.contains(step)) else { return Ok(()) };
    let recorded = match &*recorded.iter().map(u64::to_string).collect::<Vec<_>>() {
        [] => "no steps are recorded; leave out `--step`".to_owned(),
        steps if steps.len() <= LISTED_STEPS => format!("the recorded steps are {}", steps.join(", ")),
        [first, .., last] => format!("{} steps from {first} to {last} are recorded", recorded.len()),
        [step] => format!("step {step} is recorded"),
    };
    Err(CommandError::bad_input(format!("{subject} no step {unknown}"), recorded))
}

/// Returns the given peak, else the peak of the given device profile, else the peak of the device on which the profile
/// was recorded.
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
    // The table behind a trace has the blocks and cycles of the kernels.
    let evidence = device_of_profile(run.files.last()?);
    let mut sources = evidence.sources.clone();
    sources.extend(evidence.are_cores_inferred.then_some("number of cores by the blocks of kernels"));
    sources.extend(
        evidence.is_clock_inferred.then_some("the highest clock that ran, the rated one may be higher"),
    );
    PeakRate::of_facts(&evidence.facts, &sources)
}

#[derive(Debug)]
pub(crate) struct ModuleLine<'a> {
    pub(crate) row: &'a ModuleRow,
    pub(crate) is_outside: bool,
    pub(crate) utilisation: Option<Utilisation>,
    /// Time that its kernels took more than alone, and the time of those with a duration alone, in nanoseconds.
    pub(crate) excess: Option<(f64, i64)>,
}

#[derive(Debug)]
pub(crate) struct RunModules<'a> {
    pub(crate) run: &'a RunTimeline,
    pub(crate) table: &'a ModuleTable,
    pub(crate) lines: Vec<ModuleLine<'a>>,
    /// Peak rate of the matrix units, or the reason why it is unknown.
    pub(crate) peak: String,
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
                    excess = Some((sum + own, sum_lengths([time, task.span.length()])));
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

#[derive(Debug)]
pub(crate) struct ComparedRun {
    pub(crate) run: RunTimeline,
    memory: Option<RunMemory>,
}

impl ComparedRun {
    /// Reads two profiles. If they have several ranks, `rank` is read, by default the lowest that both have.
    /// Returns notes on what was left out, too.
    pub(crate) fn read_pair(
        base: &Path,
        other: &Path,
        rank: Option<u32>,
    ) -> Result<([Self; 2], Vec<String>), CommandError> {
        let (base_runs, mut notes) = read_all_runs(&[base.to_owned()])?;
        let (other_runs, other_notes) = read_all_runs(&[other.to_owned()])?;
        notes.extend(other_notes);
        let common = base_runs
            .iter()
            .filter_map(|run| run.rank)
            .find(|rank| other_runs.iter().any(|other| other.rank == Some(*rank)));
        let wanted = |runs, path| Self::of_rank(runs, path, rank, rank.or(common));
        Ok(([wanted(base_runs, base)?, wanted(other_runs, other)?], notes))
    }

    /// Returns the run of a rank, or the only one, unless it is of another rank than the `given` one.
    fn of_rank(
        mut runs: Vec<RunTimeline>,
        path: &Path,
        given: Option<u32>,
        rank: Option<u32>,
    ) -> Result<Self, CommandError> {
        let ranks: Vec<String> = runs.iter().filter_map(|run| Some(run.rank?.to_string())).collect();
        let found = runs.iter().position(|run| run.rank.is_some() && run.rank == rank);
        let is_only = runs.len() == 1 && (given.is_none() || runs.iter().all(|run| run.rank.is_none()));
        let at = found.or(is_only.then_some(0)).ok_or_else(|| {
            let (path, count) = (path.display(), runs.len());
            let (problem, hint) = match given {
                Some(given) => (format!("`{path}` has no run of rank {given}"), "give one of its ranks"),
                None => {
                    let problem =
                        format!("`{path}` has the runs of {count} ranks, none of which is in both profiles");
                    (problem, "give the folder of one rank, or `--rank N`")
                }
            };
            CommandError::bad_input(problem, format!("{hint}; ranks: {}", ranks.join(", ")))
        })?;
        let run = runs.swap_remove(at);
        let memory = RunMemory::read(&run)?;
        Ok(Self { run, memory })
    }

    pub(crate) fn sum_up(&self, steps: &[u64], domain: &str) -> Result<RunSums, CommandError> {
        let mut times = step_times(0, &self.run);
        let file = self.run.files.first().map(|file| file.display().to_string()).unwrap_or_default();
        if self.run.missing.contains(&MissingPart::Kernels) {
            let hint = match self.run.collectives.is_empty() {
                true => "check that the profiled range ran on a device",
                false => {
                    "its collectives are shown by `npubench timeline`; check that the profiler recorded the activity NPU and \
                     that the profile was exported completely"
                }
            };
            return Err(CommandError::bad_input(format!("`{file}` has no kernels to compare"), hint));
        }
        require_steps(steps, &times, &format!("`{file}` has"))?;
        if !steps.is_empty() {
            times.retain(|own| own.step.is_some_and(|step| steps.contains(&step)));
        }
        Ok(RunSums::new(&self.run, &times, steps, self.memory.as_ref(), domain))
    }
}
