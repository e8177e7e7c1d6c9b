//! Adaptive grids: batches of cases where lookups are worst, their measurement, and the published estimates of the
//! error.

use std::path::PathBuf;

use crate::{
    answer::{
        adaptive::{AdaptiveDesign, AdaptiveOptions, ChosenCandidate, GridCandidate},
        coverage::FillCase,
        fill::{FillOutcome, FillRuns, FillSession},
        lookup::{AnswerSource, LookupEngine, OpQuery, Padding},
        lookup_database::LookupDatabase,
    },
    base::{command_error::CommandError, exit::ExitStatus, print::print_note},
    database::{InterpolationErrors, KernelInterpolationError},
    kernel::{IdentifiedCase, KernelName, timestamp::Timestamp},
};

#[derive(Debug)]
pub(crate) struct KernelDesign {
    pub(crate) kernel: KernelName,
    pub(crate) design: AdaptiveDesign,
    cases: Vec<IdentifiedCase>,
    pending: Vec<ChosenCandidate>,
    has_failed: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct AdaptSettings {
    pub(crate) options: AdaptiveOptions,
    pub(crate) max_cases: Option<usize>,
    pub(crate) models: Vec<String>,
    pub(crate) folder: PathBuf,
}

#[derive(Debug)]
pub(crate) struct AdaptSession {
    pub(crate) settings: AdaptSettings,
    pub(crate) kernels: Vec<KernelDesign>,
    chosen: usize,
}

pub(crate) type ChosenCase = (IdentifiedCase, ChosenCandidate);

impl KernelDesign {
    /// Creates a design of a kernel's candidates, with their measured rows, and the published hold-outs of an earlier
    /// design of the same candidates.
    pub(crate) fn new(
        kernel: KernelName,
        candidates: Vec<GridCandidate>,
        settings: &AdaptSettings,
        database: &LookupDatabase,
    ) -> Result<Self, CommandError> {
        let (cases, candidates): (Vec<IdentifiedCase>, Vec<_>) =
            candidates.into_iter().map(|found| (found.case, found.candidate)).unzip();
        let mut design = AdaptiveDesign::new(candidates, settings.options);
        let known = database.database()?.case_ids(&kernel)?;
        for (index, case) in cases.iter().enumerate() {
            if known.contains(case.id())
                && let Some(latency) = measured_latency(&database.engine, &design.candidates[index].query)?
            {
                design.record(index, Some(latency));
            }
        }
        let published = InterpolationErrors::load(&database.database()?)?.kernels.remove(kernel.as_str());
        let is_same = |published: &KernelInterpolationError| {
            published.candidates == cases.len()
                && published.models == settings.models
                && published.rows <= design.measured()
        };
        if let Some(published) = published.filter(is_same) {
            let log = |error: &Option<f64>| error.map_or(f64::INFINITY, f64::ln_1p);
            design.add_hold_outs(&published.hold_outs.iter().map(log).collect::<Vec<_>>());
        }
        Ok(Self { kernel, design, cases, pending: Vec::new(), has_failed: false })
    }

    fn record_results(&mut self, engine: &LookupEngine) -> Result<(), CommandError> {
        let pending = std::mem::take(&mut self.pending);
        self.has_failed = !pending.is_empty();
        for chosen in pending {
            let latency = measured_latency(engine, &self.design.candidates[chosen.candidate].query)?;
            self.has_failed &= latency.is_none();
            self.design.record(chosen.candidate, latency);
        }
        Ok(())
    }

    fn is_open(&self) -> bool {
        !self.design.is_met() && !self.has_failed
    }

    fn published(&self, settings: &AdaptSettings) -> Option<KernelInterpolationError> {
        let hold_outs = self.design.hold_out_errors();
        if hold_outs.is_empty() {
            return None;
        }
        let relative = |log: f64| log.is_finite().then(|| rounded(log.exp_m1()));
        let estimate = self.design.estimate();
        Some(KernelInterpolationError {
            p50: estimate.and_then(|estimate| relative(estimate.p50)),
            p90: estimate.and_then(|estimate| relative(estimate.p90)),
            max: estimate.and_then(|estimate| relative(estimate.max)),
            target: rounded(settings.options.target.exp_m1()),
            hold_outs: hold_outs.into_iter().map(relative).collect(),
            rows: self.design.measured(),
            candidates: self.cases.len(),
            models: settings.models.clone(),
            seed: settings.options.seed,
            date: Timestamp::now().to_string(),
        })
    }
}

fn rounded(number: f64) -> f64 {
    (number * 1e5).round() / 1e5
}

/// Returns the latency of the row that has exactly the case of a question.
fn measured_latency(engine: &LookupEngine, query: &OpQuery) -> Result<Option<f64>, CommandError> {
    let answer = engine.lookup(query)?;
    let is_exact = answer.source == AnswerSource::Measured
        && answer.rule.is_some_and(|rule| rule.padding == Padding::None && !rule.has_relaxed_dtype);
    Ok(answer.latency.filter(|_| is_exact).map(|latency| latency.0))
}

impl AdaptSession {
    pub(crate) const fn new(settings: AdaptSettings, kernels: Vec<KernelDesign>) -> Self {
        Self { settings, kernels, chosen: 0 }
    }

    pub(crate) fn is_met(&self) -> bool {
        self.kernels.iter().all(|kernel| kernel.design.is_met())
    }

    /// Chooses the next batch of each kernel that has not ended, at most as many cases as are left.
    pub(crate) fn choose(&mut self, engine: &mut LookupEngine) -> Result<Vec<ChosenCase>, CommandError> {
        let mut batch = Vec::new();
        for kernel in self.kernels.iter_mut().filter(|kernel| kernel.is_open()) {
            let left = self.settings.max_cases.map_or(usize::MAX, |most| most.saturating_sub(self.chosen));
            if left == 0 {
                break;
            }
            let mut chosen = kernel.design.next_batch(engine)?;
            chosen.truncate(left);
            self.chosen += chosen.len();
            batch.extend(chosen.iter().map(|chosen| (kernel.cases[chosen.candidate].clone(), *chosen)));
            kernel.pending = chosen;
        }
        Ok(batch)
    }

    /// Measures batch after batch until all targets are met, no candidate is left, or time or cases are spent. `on_batch` gets
    /// the state of each kernel before each batch.
    pub(crate) fn measure(
        &mut self,
        fill: &FillSession,
        on_batch: impl Fn(&KernelDesign),
    ) -> Result<FillOutcome, CommandError> {
        let mut runs = fill.start()?;
        let ended = self.measure_batches(&mut runs, &on_batch);
        let mut outcome = runs.end(ended)?;
        if outcome.exit == ExitStatus::Done && !self.is_met() {
            outcome.exit = ExitStatus::SomeNotOk;
        }
        Ok(outcome)
    }

    fn measure_batches(
        &mut self,
        runs: &mut FillRuns<'_>,
        on_batch: &impl Fn(&KernelDesign),
    ) -> Result<(), CommandError> {
        loop {
            let mut database = LookupDatabase::open(&self.settings.folder, None)?;
            for kernel in &mut self.kernels {
                kernel.record_results(&database.engine)?;
            }
            self.publish(&database)?;
            for kernel in &self.kernels {
                on_batch(kernel);
                if kernel.has_failed && runs.outcome.may_go_on() {
                    print_note(&format!(
                        "{}: no case of the last batch has a latency; the table above has their verdicts",
                        kernel.kernel
                    ));
                }
            }
            if !runs.outcome.may_go_on() {
                break;
            }
            let batch = self.choose(&mut database.engine)?;
            if batch.is_empty() {
                break;
            }
            drop(database);
            let fill_case = |(case, _): ChosenCase| FillCase { case, value: 1.0, is_refinement: false };
            let cases: Vec<FillCase> = batch.into_iter().map(fill_case).collect();
            let cases: Vec<&FillCase> = cases.iter().collect();
            if !runs.session.has_time_for(&cases)? {
                print_note("no time is left for a further batch");
                break;
            }
            runs.measure_cases(&cases)?;
        }
        Ok(())
    }

    fn publish(&self, database: &LookupDatabase) -> Result<(), CommandError> {
        let database = database.database()?;
        let mut errors = InterpolationErrors::load(&database)?;
        let before = errors.clone();
        for kernel in &self.kernels {
            if let Some(error) = kernel.published(&self.settings) {
                let known = errors.kernels.get(kernel.kernel.as_str());
                // An estimate that did not change keeps its date.
                if known.is_none_or(|known| {
                    KernelInterpolationError { date: error.date.clone(), ..known.clone() } != error
                }) {
                    errors.kernels.insert(kernel.kernel.to_string(), error);
                }
            }
        }
        if errors != before {
            errors.save(&database)?;
        }
        Ok(())
    }
}
