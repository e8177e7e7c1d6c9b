//! `npubench timeline`: computing, communication and free time of the steps of a recorded run.

use std::path::PathBuf;

use clap::Args;

use super::coverage::JsonOutput;
use crate::{
    exit::ExitStatus,
    report::{print_data, print_note},
    run_analysis::{StepTimesReport, read_all_runs, step_lanes, step_times_json, step_times_text},
    session::{CommandError, ResultFile},
    timeline::{VendorSteps, collective_arrivals, step_times},
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
  npubench timeline profiles/ --trace lanes.json     open it in https://ui.perfetto.dev")]
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
    #[command(flatten)]
    output: JsonOutput,
}

pub(super) fn run(options: &TimelineOptions) -> Result<ExitStatus, CommandError> {
    let trace = options.trace.as_ref().map(|path| ResultFile::new(path, None, "json")).transpose()?;
    let runs = read_all_runs(&options.profiles)?;
    let mut times = Vec::new();
    let mut vendor = Vec::new();
    for run in &runs {
        let own = step_times(run);
        if let Some(file) = run.files.first() {
            vendor.extend(VendorSteps::beside(file, &own)?);
        }
        times.extend(own);
    }
    if !options.steps.is_empty() {
        let found: Vec<String> = times.iter().filter_map(|own| Some(own.step?.to_string())).collect();
        let chosen = |step: Option<u64>| step.is_some_and(|step| options.steps.contains(&step));
        times.retain(|own| chosen(own.step));
        vendor.iter_mut().for_each(|own| own.differences.retain(|difference| chosen(difference.step)));
        if times.is_empty() {
            return Err(CommandError::bad_input(
                "the profiles have none of the steps of `--step`",
                format!("the recorded steps are {}", found.join(", ")),
            ));
        }
    }
    if times.is_empty() {
        return Err(CommandError::bad_input(
            "the profiles have neither a kernel nor a collective with a time",
            "check that the profiled range ran on a device, and that the profile was analysed",
        ));
    }
    let arrivals = collective_arrivals(&runs);
    let report = StepTimesReport {
        runs: &runs,
        times: &times,
        arrivals: &arrivals,
        vendor: &vendor,
        gaps: options.gaps,
    };
    if let Some(trace) = trace {
        trace.write(&step_lanes(&report))?;
        print_note(&format!("wrote `{}`: open it in https://ui.perfetto.dev", trace.path.display()));
    }
    print_data(&if options.output.is_json() { step_times_json(&report) } else { step_times_text(&report) });
    Ok(ExitStatus::Done)
}
