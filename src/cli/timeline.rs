//! `npubench timeline`: computing, communication and free time of the steps of a recorded run.

use super::prelude::*;
use crate::{
    answer::recorded_runs::{nothing_on_device, require_steps},
    profile::timeline::{
        RunTimeline, StepTimes, VendorSteps, collective_arrivals, repeated_rank, step_times,
    },
    show::{
        run_timeline::{StepTimesReport, step_times_records, step_times_text},
        step_lanes::step_lanes,
    },
};

/// Shows where the time of a recorded model goes: computing, communication, their overlap, and free time with its causes
///
/// Each rank is read once, from its ascend_pytorch_profiler_*.db, else from trace_view.json and kernel_details.csv, else
/// from one of both. With several ranks, the rank that arrived last at each collective is shown. docs/timeline.md has
/// the definitions.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench timeline profiles/worker0_ascend_pt
  npubench timeline profiles/ --step 50 --gaps 20
  npubench timeline profiles/ --trace lanes.json     # for https://ui.perfetto.dev
  npubench timeline profiles/ --trace lanes.json --domain Module")]
pub(super) struct TimelineOptions {
    /// Profiles: folders of one rank or of several, databases, traces or kernel tables
    #[arg(value_name = "PROFILE", required = true)]
    profiles: Vec<PathBuf>,
    /// Only this step; several are separated by commas
    #[arg(long = "step", value_name = "N", value_delimiter = ',')]
    steps: Vec<u64>,
    /// Number of the longest gaps to show
    #[arg(long, value_name = "N", default_value_t = 10)]
    gaps: usize,
    /// Writes a trace for Perfetto with lanes of computing, communication and free time
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Domain of mstx whose ranges and marks the trace has; by default all domains and the modules of torch
    #[arg(long, value_name = "NAME", requires = "trace")]
    domain: Option<String>,
    #[command(flatten)]
    output: JsonOutput,
}

pub(super) fn run(options: &TimelineOptions) -> Result<ExitStatus, CommandError> {
    let trace = options.trace.as_ref().map(|path| ResultFile::new(path, None, "json")).transpose()?;
    let (runs, notes) = read_all_runs(&options.profiles)?;
    notes.iter().for_each(|note| print_note(note));
    let inputs = || runs.iter().flat_map(|run| &run.files).map(PathBuf::as_path);
    let trace = trace.map(|file| file.apart_from(inputs())).transpose()?;
    let mut times: Vec<StepTimes> =
        runs.iter().enumerate().flat_map(|(number, run)| step_times(number, run)).collect();
    let is_chosen = |step: Option<u64>| {
        options.steps.is_empty() || step.is_some_and(|step| options.steps.contains(&step))
    };
    if !times.is_empty() {
        require_steps(&options.steps, &times, "the profiles have")?;
    }
    times.retain(|own| is_chosen(own.step));
    if times.is_empty() {
        return Err(nothing_on_device());
    }
    let mut vendor = Vec::new();
    for (number, run) in runs.iter().enumerate() {
        let own: Vec<&StepTimes> = times.iter().filter(|own| own.run == number).collect();
        let Some(file) = run.files.first() else { continue };
        match VendorSteps::beside(file, &own) {
            Ok(found) => vendor.extend(found),
            // The vendor's table is compared only, and a damaged one does not change our times.
            Err(error) => print_note(&format!("the vendor's table of steps is not compared: {error}")),
        }
    }
    if let Some(rank) = repeated_rank(&runs) {
        print_note(&format!(
            "rank {rank} has several profiles, which are of different runs: late ranks are not shown; give the profiles of \
             one run"
        ));
    }
    let mut arrivals = collective_arrivals(&runs);
    arrivals.retain(|arrival| is_chosen(arrival.step));
    let report = StepTimesReport {
        runs: &runs,
        times: &times,
        arrivals: &arrivals,
        vendor: &vendor,
        gaps: options.gaps,
    };
    if let Some(trace) = trace {
        let domain = options.domain.as_deref();
        let recorded: BTreeSet<&str> = runs.iter().flat_map(RunTimeline::domains).collect();
        if let Some(domain) = domain.filter(|domain| !recorded.contains(domain)) {
            let others = joined(recorded.iter().map(|domain| format!("`{domain}`")), ", ");
            let others = or_empty((!others.is_empty()).then(|| format!("; there are {others}")));
            print_note(&format!("no range or mark of mstx is recorded in the domain `{domain}`{others}"));
        }
        trace.write(step_lanes(&report, domain))?;
        print_note(&format!("wrote `{}`: open it in https://ui.perfetto.dev", trace.path.display()));
    }
    options.output.emit(step_times_records(&report), |width| step_times_text(&report, width));
    Ok(ExitStatus::Done)
}
