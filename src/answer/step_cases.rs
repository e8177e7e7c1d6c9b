//! Cases of the steps of models, for rows: the kernels of each step and no others, and those that an audit misses.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use clap::{Args, value_parser};

use crate::{
    answer::{
        coverage::{CoverageAnalyzer, add_equal_calls, audit_questions},
        lookup_database::{LookupDatabase, load_workloads},
        workload::{
            DecoderStep, DurationKind, QuestionDefaults, StepPhase, Workload, WorkloadQuestion, decoder_step,
        },
    },
    base::{
        assets::AssetFiles, command_error::CommandError, count_text::format_count, print::print_note,
        suggest::did_you_mean_one_of,
    },
    cases::{
        grid::{GridAuditor, ListedCase, ListedCases, definition::DensityFile},
        llm::{LlmModel, ParallelDegrees, ParallelLayout, QuantisationScheme},
    },
    database::Database,
    kernel::{KernelName, catalogue::Catalogue},
};

const DECODE_BATCHES: [u64; 9] = [1, 2, 4, 8, 16, 32, 48, 64, 128];
const PREFILL_BATCHES: [u64; 4] = [1, 2, 4, 8];
const DECODE_CONTEXTS: [u64; 6] = [1024, 2048, 4096, 8192, 16384, 32768];
const PREFILL_CONTEXTS: [u64; 5] = [512, 1024, 2048, 4096, 8192];

const STEPS: &str = "Steps of models (instead of grids: exactly the kernels of the steps of --models)";

/// Steps of models. An empty list stands for the degrees and formats of the model, both phases, and usual numbers of
/// sequences and lengths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[group(id = "steps", multiple = true, requires = "models", conflicts_with_all = ["grids", "plot", "mutate"])]
pub(crate) struct StepSelection {
    /// Tensor parallel degrees; by default those of each model
    #[arg(long, help_heading = STEPS, value_name = "N,N", value_delimiter = ',', value_parser = value_parser!(u64).range(1..=65536))]
    tp: Vec<u64>,
    /// Expert parallel degrees; by default those of each model
    #[arg(long, help_heading = STEPS, value_name = "N,N", value_delimiter = ',', value_parser = value_parser!(u64).range(1..=65536))]
    ep: Vec<u64>,
    /// Data parallel degrees; by default those of each model
    #[arg(long, help_heading = STEPS, value_name = "N,N", value_delimiter = ',', value_parser = value_parser!(u64).range(1..=65536))]
    dp: Vec<u64>,
    /// Phases; by default both
    #[arg(long, help_heading = STEPS, value_enum, value_delimiter = ',')]
    phase: Vec<StepPhase>,
    /// Sequences of a step; by default 1 to 128 in decode, 1 to 8 in prefill
    #[arg(long, help_heading = STEPS, value_name = "N,N", value_delimiter = ',', value_parser = value_parser!(u64).range(1..=1_000_000))]
    batch: Vec<u64>,
    /// Lengths of the sequences; by default 1024 to 32768 in decode, 512 to 8192 in prefill
    #[arg(long, help_heading = STEPS, value_name = "TOKENS,TOKENS", value_delimiter = ',',
        value_parser = value_parser!(u64).range(1..=16_777_216))]
    context: Vec<u64>,
    /// Number formats of the products; by default those of each model
    #[arg(long, help_heading = STEPS, value_enum, value_delimiter = ',')]
    dtype: Vec<QuantisationScheme>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct StepCases {
    pub(crate) cases: ListedCases,
    pub(crate) questions: Vec<WorkloadQuestion>,
    pub(crate) collectives: BTreeSet<String>,
    pub(crate) notes: BTreeSet<String>,
}

impl StepSelection {
    /// Derives the cases of the steps of models by name, with notes on what is left out. Of these kernels, or of all if
    /// none is named; a kernel that no step has is an error.
    pub(crate) fn derive_rows(
        &self,
        assets: &AssetFiles,
        models: &[String],
        wanted: &[KernelName],
    ) -> Result<ListedCases, CommandError> {
        let mut steps = self.derive_named(assets, models)?;
        if let Some(missing) = wanted.iter().find(|kernel| !steps.cases.contains_key(*kernel)) {
            let known = steps.cases.keys().map(KernelName::as_str);
            let hint = did_you_mean_one_of(missing.as_str(), known, "the steps have");
            return Err(CommandError::bad_input(format!("no step of the models has `{missing}`"), hint));
        }
        if !steps.collectives.is_empty() {
            let names: Vec<&str> = steps.collectives.iter().map(String::as_str).collect();
            print_note(&format!("no rows for collectives: {}", names.join(", ")));
        }
        steps.cases.retain(|kernel, _| wanted.is_empty() || wanted.contains(kernel));
        Ok(steps.cases)
    }

    pub(crate) fn derive_named(
        &self,
        assets: &AssetFiles,
        models: &[String],
    ) -> Result<StepCases, CommandError> {
        let models = models.iter().map(|name| LlmModel::load(assets, name));
        let steps = self.derive_cases(&models.collect::<Result<Vec<_>, _>>()?)?;
        steps.notes.iter().for_each(|note| print_note(note));
        Ok(steps)
    }

    /// Derives the cases of all steps. Of kernels that may run for the same call, the first one has the case.
    fn derive_cases(&self, models: &[LlmModel]) -> Result<StepCases, CommandError> {
        let mut found = StepCases::default();
        let mut known: BTreeSet<String> = BTreeSet::new();
        for model in models {
            for layout in self.layouts(model)? {
                for step in self.steps(model, layout) {
                    let derived = decoder_step(model, &step)?;
                    found.notes.extend(derived.notes);
                    let origin = format!("grid step: {} {layout} {}", model.model, step.phase);
                    for question in derived.questions {
                        let Some(case) = question.case.clone() else {
                            found.collectives.insert(question.query.op.clone());
                            continue;
                        };
                        if known.insert(case.signature()) {
                            found.questions.push(question);
                            let listed = ListedCase { case, origin: origin.clone() };
                            found.cases.entry(listed.case.kernel.clone()).or_default().push(listed);
                        }
                    }
                }
            }
        }
        Ok(found)
    }

    /// Returns the layouts of a model that have the given degrees; a degree without a layout is an error.
    fn layouts(&self, model: &LlmModel) -> Result<Vec<ParallelLayout>, CommandError> {
        let own = &model.layouts;
        let degrees = ParallelDegrees {
            tp: given_or(&self.tp, &own.tp),
            ep: given_or(&self.ep, &own.ep),
            dp: given_or(&self.dp, &own.dp),
        };
        let layouts = degrees.usable(model);
        let lost = |given: &[u64], degree: fn(&ParallelLayout) -> u64| {
            given.iter().copied().find(|given| layouts.iter().all(|layout| degree(layout) != *given))
        };
        let (tp, ep) = (lost(&self.tp, |layout| layout.tp), lost(&self.ep, |layout| layout.ep));
        let dp = lost(&self.dp, |layout| layout.dp);
        if [tp, ep, dp].iter().all(Option::is_none) && !layouts.is_empty() {
            return Ok(layouts);
        }
        let or_first = |lost: Option<u64>, degrees: &[u64]| lost.or(degrees.first().copied()).unwrap_or(1);
        let (tp, ep) = (or_first(tp, &degrees.tp), or_first(ep, &degrees.ep));
        let layout = ParallelLayout { tp, ep, dp: dp.unwrap_or(1) };
        let reason = model.share(layout).err().map_or_else(String::new, |reason| format!(": {reason}"));
        Err(CommandError::bad_input(
            format!("{} does not run with {layout}{reason}", model.model),
            "`npubench models` lists the parallel degrees of each model",
        ))
    }

    fn steps(&self, model: &LlmModel, layout: ParallelLayout) -> Vec<DecoderStep> {
        let phases = given_or(&self.phase, &[StepPhase::Prefill, StepPhase::Decode]);
        // The formats of the model in which steps are derived; BF16 if it has none of them.
        let mut own = vec![QuantisationScheme::Bf16, QuantisationScheme::W8a8];
        own.retain(|format| model.quantisation.contains(format));
        let formats = given_or(&given_or(&self.dtype, &own), &[QuantisationScheme::Bf16]);
        let mut steps = Vec::new();
        for phase in phases {
            let (batches, contexts) = match phase {
                StepPhase::Prefill => (&PREFILL_BATCHES[..], &PREFILL_CONTEXTS[..]),
                StepPhase::Decode => (&DECODE_BATCHES[..], &DECODE_CONTEXTS[..]),
            };
            for &quantisation in &formats {
                for batch in given_or(&self.batch, batches) {
                    for context in given_or(&self.context, contexts) {
                        steps.push(DecoderStep { layout, phase, batch, context, quantisation });
                    }
                }
            }
        }
        steps
    }
}

fn given_or<T: Clone>(given: &[T], usual: &[T]) -> Vec<T> {
    if given.is_empty() { usual.to_vec() } else { given.to_vec() }
}

const ORIGIN: &str = "grid audit";

/// Returns the cases that rows do not answer as the density standard requires, of the questions of workloads and of the
/// steps of models, with notes on questions without one. The cases belong to the `wanted` kernels, or to all kernels if
/// none is named.
pub(crate) fn missing_cases(
    folder: &Path,
    workload_files: &[(PathBuf, f64)],
    models: &[String],
    steps: &StepSelection,
    wanted: &[KernelName],
    assets: &AssetFiles,
    catalogue: &Catalogue,
) -> Result<ListedCases, CommandError> {
    if workload_files.is_empty() && models.is_empty() {
        let hint =
            "give `--workload FILE` or `--models NAME`, with `--tp` and `--batch` for some of its steps";
        return Err(CommandError::bad_input("`--fill-audit` needs workloads or models", hint));
    }
    let lookup = LookupDatabase::open(folder, None)?;
    let mut workloads = load_workloads(workload_files, &QuestionDefaults::default())?;
    if !models.is_empty() {
        let questions = steps.derive_named(assets, models)?.questions;
        workloads.push(Workload::new("steps of models".to_owned(), DurationKind::Unknown, questions));
    }
    for workload in &mut workloads {
        add_equal_calls(workload, catalogue);
        workload.notes.iter().for_each(|note| print_note(note));
    }
    let analyzer = CoverageAnalyzer { engine: &lookup.engine, catalogue };
    let coverages = analyzer.answer_workloads(&workloads)?;
    let density = DensityFile::load(assets, catalogue)?;
    let auditor = GridAuditor { catalogue, density: &density };
    let audited = audit_questions(&analyzer, auditor, &Database::open(folder)?, &coverages)?;
    let [mut planned, mut impossible] = [0_usize; 2];
    let mut cases = ListedCases::new();
    for row in audited.into_iter().filter(|row| !row.is_answered()) {
        match row.case {
            Some(case) if wanted.is_empty() || wanted.contains(&case.kernel) => {
                let listed = ListedCase { case, origin: ORIGIN.to_owned() };
                cases.entry(listed.case.kernel.clone()).or_default().push(listed);
            }
            Some(_) => {}
            None if row.is_planned => planned += 1,
            None => impossible += 1,
        }
    }
    for (count, text) in [(planned, "the row has no latency"), (impossible, "no row is possible")] {
        if count > 0 {
            print_note(&format!("{} without an answer: {text}", format_count(count, "question")));
        }
    }
    Ok(cases)
}
