//! `npubench m6`: predicted time of a forward pass against that of a recorded run.

use super::prelude::*;
use crate::{
    answer::{
        coverage::predicted_time,
        workload::{FORWARD_ANCHOR, MAX_TIME, PredictedTime, read_passes_of_kernels, read_predicted_time},
    },
    kernel::Nanos,
    profile::{DiscoveredProfiles, ProfileFile},
    show::m6::{ProfiledPass, m6_records, m6_text},
};

/// Compares the predicted time of a forward pass with that of a recorded run (M6)
///
/// M6 is the time that a performance model takes from a database, divided by the recorded time of kernels and
/// collectives. The prediction is a chrome trace of a simulator (`--predicted`), or a workload of one forward pass that
/// is looked up in a database (`--db` with `--workload` or `--model`). Forward passes are cut out of the recorded run
/// behind each anchor kernel; with `--kernels`, both sides are of these kernels alone; docs/coverage.md has the rules.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench m6 worker0_ascend_pt --predicted trace.json
  npubench m6 worker0_ascend_pt --db a3 --model Qwen3-32B --tp 4 --batch 64")]
pub(super) struct M6Options {
    /// Recorded runs: kernel_details.csv, op_summary_*.csv, or folders with them
    #[arg(value_name = "PROFILE", required = true)]
    profiles: Vec<PathBuf>,
    /// Chrome trace of a simulator, of one forward pass
    #[arg(long, value_name = "TRACE", conflicts_with_all = ["db", "workload", "model", "mapping", "kernels"])]
    predicted: Option<PathBuf>,
    /// Of the trace, count only durations of rows, none between rows
    #[arg(long, requires = "predicted")]
    measured_only: bool,
    /// Database that predicts the workload, by default that of NPUBENCH_DB
    #[arg(long, value_name = "DIR")]
    db: Option<PathBuf>,
    #[command(flatten)]
    kernels: KernelFilter,
    /// Workload of one forward pass
    #[arg(long, value_name = "FILE", conflicts_with = "model")]
    workload: Option<PathBuf>,
    /// Step of a model by name, as the workload
    #[arg(long, alias = "models", value_name = "MODEL", group = NAMED_MODEL)]
    model: Option<String>,
    #[command(flatten)]
    step: StepOptions,
    #[command(flatten)]
    defaults: QuestionDefaults,
    /// Operators with their kernels; by default `op_mapping.yaml` of the database, if it has one
    #[arg(long, value_name = "FILE")]
    mapping: Option<PathBuf>,
    /// Kernel that ends each forward pass
    #[arg(long, value_name = "KERNEL", default_value = FORWARD_ANCHOR)]
    anchor: String,
    /// Each table is one forward pass
    #[arg(long, conflicts_with = "anchor")]
    whole: bool,
    /// Only forward passes with this number of tokens, which is the first dimension of their first matrix product
    #[arg(long, value_name = "N")]
    tokens: Option<u64>,
    #[command(flatten)]
    common: CommonOptions<JsonOutput>,
}

impl M6Options {
    fn predict(&self, kernels: &[KernelName]) -> Result<PredictedTime, CommandError> {
        if let Some(trace) = &self.predicted {
            return read_predicted_time(trace, self.measured_only);
        }
        let folder = given_or_usual_folder(self.db.as_deref()).ok_or_else(|| CommandError::usage("nothing predicts the forward passes", "give a trace with `--predicted TRACE`, or a database with `--db DIR` and its workload with `--workload FILE` \
                   or `--model NAME`"
                ))?;
        let assets = self.common.assets.load()?;
        let database = LookupDatabase::open(&folder, self.mapping.as_deref())?;
        let catalogue = Catalogue::load(&assets)?;
        let file: Vec<(PathBuf, f64)> = self.workload.iter().map(|file| (file.clone(), 1.0)).collect();
        let model =
            self.model.as_deref().map(|model| (model, self.step.step(self.defaults.tp, self.defaults.ep)));
        let defaults = self.defaults.clone();
        let workloads = WorkloadSelection { files: &file, model, defaults }.load(&assets, &catalogue)?;
        let Some(workload) = workloads.first() else {
            return Err(CommandError::bad_input(
                "the kernels of a forward pass are not given",
                "give them as `--workload FILE` or `--model NAME`, or a trace with `--predicted`",
            ));
        };
        let analyzer = CoverageAnalyzer { engine: &database.engine, catalogue: &catalogue };
        note_simulated(database.kind);
        workload.notes.iter().for_each(|note| print_note(note));
        Ok(predicted_time(&analyzer.answer_workload(workload)?, kernels))
    }
}

pub(super) fn run(options: &M6Options) -> Result<ExitStatus, CommandError> {
    let kernels = options.kernels.names()?;
    let predicted = options.predict(&kernels)?;
    if predicted.compute.max(predicted.communication).0 > MAX_TIME {
        return Err(CommandError::bad_input(
            "the predicted times add up to more than ten years",
            "correct the counts of the workload, or the durations of the trace",
        ));
    }
    let DiscoveredProfiles { files, .. } = ProfileFile::find_all(&options.profiles)?;
    let anchor = (!options.whole).then_some(options.anchor.as_str());
    let mut passes = Vec::new();
    for ProfileFile(file) in &files {
        let found = read_passes_of_kernels(file, anchor, &kernels)?;
        let name = file.display().to_string();
        for (count, what) in
            [(found.left_out, "records behind the last anchor"), (found.untimed, "records without a time")]
        {
            if count > 0 {
                print_note(&format!("`{name}`: {count} {what} are left out"));
            }
        }
        passes.extend(found.passes.into_iter().map(|pass| ProfiledPass { file: name.clone(), pass }));
    }
    let chosen = |pass: &ProfiledPass| options.tokens.is_none_or(|tokens| pass.pass.tokens == Some(tokens));
    let all = passes.len();
    passes.retain(chosen);
    if passes.is_empty() || passes.iter().all(|pass| pass.pass.total() == Nanos(0)) {
        let (what, option) = match options.tokens {
            Some(_) => ("kernels and the wanted number of tokens", "--tokens"),
            None => ("the wanted kernels", "--kernels"),
        };
        return Err(CommandError::bad_input(
            format!("none of {all} forward passes has {what}"),
            format!("leave `{option}` out to list all of them"),
        ));
    }
    if passes.iter().all(|pass| !pass.pass.is_complete) {
        print_note(
            "no shown pass is certain to be complete: the first pass of a device may have begun before the recording",
        );
    }
    options.common.output.emit(m6_records(&predicted, &passes), |width| m6_text(&predicted, &passes, width));
    Ok(ExitStatus::Done)
}
