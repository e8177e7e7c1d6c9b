//! Filling of gaps: the preview of the cases that close them, rows for these cases, the runs that measure them, and further
//! collections of the rows that workloads use until the deadline.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use signal_hook::consts;

use crate::{
    answer::{
        coverage::{
            AnswerClass, CoverageAnalyzer, CoverageGap, FillCase, FillCases, WorkloadCoverage, coverage_gaps,
            coverage_metrics,
        },
        lookup::LatencyColumn,
        workload::Workload,
    },
    base::{
        assets::AssetFiles, command_error::CommandError, count_text::format_count, deadline::Deadline,
        exit::ExitStatus, files::FolderLock, print::print_note, shell_argument::quoted_path,
    },
    cases::plan::{InitialCosts, PlannedCase, planned_case},
    database::{Database, add_absent_rows, row_cases},
    kernel::{
        CaseId, CaseOutcome, Cause, DataKind, IdentifiedCase, KernelName, catalogue::Catalogue,
        device::DeviceProfile,
    },
    measure::{
        engine::{PlanPreview, dry_run},
        events::RunScreen,
        run_context::{EndedRun, RunContext, new_run_id},
        run_options::RunOptions,
        verify::JointEstimates,
    },
};

/// Share of the weighted widths of all rows that rows measured further have together: beyond it, a collection is better spent
/// on one of them again.
const REPEATED_SHARE: f64 = 0.9;
/// Minimum number of rows that are measured further together: with fewer, collections are mostly start and export.
const MIN_REPEATED: usize = 20;
/// Maximum number of times that gaps are looked for again after measurements.
const MAX_PASSES: usize = 4;
/// Relative half width, and number of collections, with which the first run ends if the options state none.
const DEFAULT_PRECISION: f64 = 0.01;
const MIN_COLLECTIONS: usize = 8;
/// Number of times that the precision is halved: the last one needs a thousand times the collections.
const MAX_HALVINGS: u32 = 5;
const UNKNOWN_WIDTH: f64 = 0.05;

#[derive(Debug)]
pub(crate) struct FillSession {
    pub(crate) db: PathBuf,
    pub(crate) kind: DataKind,
    pub(crate) assets: AssetFiles,
    pub(crate) options: RunOptions,
    pub(crate) deadline: Option<Deadline>,
    pub(crate) screen: &'static dyn RunScreen,
    pub(crate) stop: Arc<AtomicBool>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct FillOutcome {
    pub(crate) exit: ExitStatus,
    pub(crate) added: usize,
    pub(crate) further_runs: usize,
    pub(crate) is_stopped: bool,
}

impl FillSession {
    /// Adds rows for the cases and measures them, the most valuable first, then those for gaps that are left: an interpolation may
    /// not answer where CANN chooses another kernel between two rows. With time left until the deadline, measures what
    /// interpolations answer, then the rows that the workloads use in further collections. `state` reads the database again.
    pub(crate) fn measure(
        &self,
        first: &FillCases,
        state: impl Fn() -> Result<FillState, CommandError>,
    ) -> Result<FillOutcome, CommandError> {
        let mut runs = self.start()?;
        let ended = runs.measure_gaps(first, state);
        runs.end(ended)
    }

    /// Checks that the host can measure, locks the database, and registers the signals that stop the command.
    pub(crate) fn start(&self) -> Result<FillRuns<'_>, CommandError> {
        let context = self.context()?;
        context.require_host(&self.options)?;
        let lock = context.database.lock()?;
        for signal in [consts::SIGINT, consts::SIGTERM, consts::SIGHUP] {
            // If there is no handler, the signal ends the program; the added rows stay, and the same command continues
            // the work.
            let _ = signal_hook::flag::register(signal, Arc::clone(&self.stop));
        }
        let outcome = FillOutcome { exit: ExitStatus::Done, added: 0, further_runs: 0, is_stopped: false };
        Ok(FillRuns { session: self, lock, outcome })
    }

    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn context(&self) -> Result<RunContext, CommandError> {
        let mut context =
            RunContext::find(&self.db, self.kind, self.assets.clone(), &self.options, self.screen)?;
        context.stop = Some(Arc::clone(&self.stop));
        Ok(context)
    }

    /// Returns the cases that can be launched on this host, as they are planned. The preview has the reasons of the others.
    fn launchable<'f>(context: &RunContext, cases: &[&'f FillCase]) -> Vec<(&'f FillCase, PlannedCase)> {
        let plan =
            |case| plan_fill_case(&context.catalogue, &context.profile, case, context.chips.len()).ok();
        cases.iter().filter_map(|case| Some((*case, plan(case)?))).collect()
    }

    pub(crate) fn has_time_for(&self, cases: &[&FillCase]) -> Result<bool, CommandError> {
        let context = self.context()?;
        let devices: Vec<u32> = context.chips.iter().map(|chip| chip.physical_id).collect();
        let planned: Vec<PlannedCase> =
            Self::launchable(&context, cases).into_iter().map(|(_, planned)| planned).collect();
        let costs = InitialCosts::new(self.options.warm_up, self.options.launches);
        let preview = dry_run(self.kind, &costs, &planned, &devices, self.deadline.map(Deadline::rest));
        Ok(preview.cases.iter().any(Result::is_ok))
    }

    /// Returns the rows whose further collections narrow the intervals of the workloads most, weighted by their time and the
    /// width of their intervals.
    fn rows_to_repeat(&self, used: &[UsedRowTime]) -> Result<Vec<FillCase>, CommandError> {
        let database = Database::open(&self.db)?;
        let Some(ledger) = database.existing_ledger()? else { return Ok(Vec::new()) };
        let estimates = JointEstimates::from_ledger(&ledger, self.options.cache)?;
        let cases = cases_of_rows(&database, used)?;
        let weighted = |(case, time): (IdentifiedCase, f64)| {
            let width = estimates.of_case(case.id()).map(|median| median.estimate.half_width);
            let width = width.filter(|width| width.is_finite()).unwrap_or(UNKNOWN_WIDTH);
            FillCase { value: time * width, case, is_refinement: false }
        };
        let measured = cases.into_iter().filter(|(case, _)| estimates.collection_count(case.id()) > 0);
        let mut weighted: Vec<FillCase> = measured.map(weighted).collect();
        weighted.sort_by(|one, other| other.value.total_cmp(&one.value));
        let all: f64 = weighted.iter().map(|case| case.value).sum();
        let mut sum = 0.0;
        let count = weighted.iter().take_while(|case| {
            let is_within = sum < REPEATED_SHARE * all;
            sum += case.value;
            is_within
        });
        let count = count.count().max(MIN_REPEATED);
        weighted.truncate(count);
        Ok(weighted)
    }
}

#[derive(Debug)]
pub(crate) struct FillRuns<'s> {
    pub(crate) session: &'s FillSession,
    lock: FolderLock,
    pub(crate) outcome: FillOutcome,
}

impl FillRuns<'_> {
    /// Returns the result of the command. A signal may have ended programs of the host as well: then their errors are a
    /// consequence of the stop.
    pub(crate) fn end(self, ended: Result<(), CommandError>) -> Result<FillOutcome, CommandError> {
        let mut outcome = self.outcome;
        outcome.is_stopped |= self.session.is_stopping();
        match ended {
            Err(error) if outcome.is_stopped => print_note(&error.message),
            ended => ended?,
        }
        Ok(outcome)
    }

    fn measure_gaps(
        &mut self,
        first: &FillCases,
        state: impl Fn() -> Result<FillState, CommandError>,
    ) -> Result<(), CommandError> {
        let mut attempted: BTreeSet<CaseId> = BTreeSet::new();
        let mut fill = first.clone();
        for pass in 0..MAX_PASSES {
            let cases: Vec<&FillCase> =
                fill.needed().filter(|case| !attempted.contains(case.case.id())).collect();
            if cases.is_empty()
                || !self.outcome.may_go_on()
                || pass > 0 && !self.session.has_time_for(&cases)?
            {
                break;
            }
            attempted.extend(cases.iter().map(|case| case.case.id().clone()));
            let launchable = FillSession::launchable(&self.session.context()?, &cases);
            let cases: Vec<&FillCase> = launchable.iter().map(|(case, _)| *case).collect();
            if pass > 0 && !cases.is_empty() {
                print_note(&format!("{} left to measure", format_count(cases.len(), "case")));
            }
            self.measure_cases(&cases)?;
            fill = state()?.fill;
        }
        if self.session.deadline.is_none() {
            return Ok(());
        }
        let refinements = first.cases.iter().filter(|case| case.is_refinement);
        let refinements: Vec<&FillCase> =
            refinements.filter(|case| !attempted.contains(case.case.id())).collect();
        if self.outcome.may_go_on() && !refinements.is_empty() && self.session.has_time_for(&refinements)? {
            print_note("time is left: the cases between brackets are measured as well");
            self.measure_cases(&refinements)?;
        }
        self.measure_further(state)
    }

    /// Measures the rows of the workloads with ever higher precision until the deadline, or until further collections cannot
    /// narrow their intervals.
    fn measure_further(
        &mut self,
        state: impl Fn() -> Result<FillState, CommandError>,
    ) -> Result<(), CommandError> {
        let mut precision = self.session.options.precision.unwrap_or(DEFAULT_PRECISION);
        let mut max_collections = self.session.options.max_collections.max(MIN_COLLECTIONS);
        for _ in 0..MAX_HALVINGS {
            // Half the width needs four times the collections.
            (precision, max_collections) = (precision / 2.0, max_collections * 4);
            let rows = self.session.rows_to_repeat(&state()?.used)?;
            let rows: Vec<&FillCase> = rows.iter().collect();
            if rows.is_empty() || !self.outcome.may_go_on() || !self.session.has_time_for(&rows)? {
                break;
            }
            let options =
                RunOptions { precision: Some(precision), max_collections, ..self.session.options.clone() };
            if self.run(&rows, options)? {
                self.outcome.further_runs += 1;
            }
        }
        Ok(())
    }

    pub(crate) fn measure_cases(&mut self, cases: &[&FillCase]) -> Result<(), CommandError> {
        if cases.is_empty() {
            return Ok(());
        }
        self.add_rows(cases)?;
        self.run(cases, self.session.options.clone())?;
        Ok(())
    }

    /// Adds rows without results for those cases that have none, table by table until a stop.
    fn add_rows(&mut self, cases: &[&FillCase]) -> Result<(), CommandError> {
        let RunContext { database, catalogue, .. } = &self.session.context()?;
        database.initialise(&mut self.lock)?;
        let mut by_kernel: BTreeMap<&KernelName, Vec<&IdentifiedCase>> = BTreeMap::new();
        for case in cases {
            by_kernel.entry(&case.case.kernel).or_default().push(&case.case);
        }
        for (kernel, mut cases) in by_kernel {
            if self.session.is_stopping() {
                break;
            }
            let present = database.case_ids(kernel)?;
            cases.retain(|case| !present.contains(case.id()));
            if !cases.is_empty() {
                let recorded_inputs = catalogue.entry(kernel).map_or(0, |entry| entry.recorded_inputs);
                add_absent_rows(database, kernel, &cases, recorded_inputs, &BTreeMap::new())?;
                self.outcome.added += cases.len();
            }
        }
        Ok(())
    }

    /// Measures cases that have rows in one run. Returns false without a run if nothing is to be measured.
    fn run(&mut self, cases: &[&FillCase], options: RunOptions) -> Result<bool, CommandError> {
        let options = RunOptions {
            cases: cases.iter().map(|case| case.case.id().as_str().to_owned()).collect(),
            case_weights: cases.iter().map(|case| (case.case.id().as_str().to_owned(), case.value)).collect(),
            ..options
        };
        let context = self.session.context()?;
        let plan = context.plan(&options, &[])?;
        self.outcome.is_stopped |= self.session.is_stopping();
        if self.outcome.is_stopped || plan.cases.is_empty() && plan.not_launched.is_empty() {
            return Ok(false);
        }
        context.database.initialise(&mut self.lock)?;
        let run = new_run_id(&context.database, options.cache);
        let EndedRun { exit, is_stopped } =
            context.measure(&run, options, plan, None, self.session.deadline)?;
        if exit != ExitStatus::Done {
            self.outcome.exit = exit;
        }
        self.outcome.is_stopped |= is_stopped;
        Ok(true)
    }
}

impl FillOutcome {
    /// Returns what a stopped command has saved, and the commands that go on; `None` if it was not stopped.
    pub(crate) fn stop_note(&self, command: &str, db: &Path) -> Option<String> {
        let rows = format_count(self.added, "new row");
        let resumes = match self.exit {
            ExitStatus::Interrupted => {
                format!("`npubench resume --db {}` continues the last run; ", quoted_path(db))
            }
            _ => String::new(),
        };
        self.is_stopped.then(|| {
            format!(
                "stopped: {rows} and all results so far are saved; {resumes}`npubench {command}` with the same options measures what \
                 is left"
            )
        })
    }

    pub(crate) fn may_go_on(&self) -> bool {
        !self.is_stopped && matches!(self.exit, ExitStatus::Done | ExitStatus::SomeNotOk)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct FillState {
    pub(crate) fill: FillCases,
    pub(crate) used: Vec<UsedRowTime>,
    /// M5 of all workloads together; `None` without times.
    pub(crate) share: Option<f64>,
}

impl FillState {
    pub(crate) fn new(
        analyzer: &CoverageAnalyzer<'_>,
        workloads: &[Workload],
        folder: &Path,
    ) -> Result<Self, CommandError> {
        let coverages = analyzer.answer_workloads(workloads)?;
        let gaps = coverage_gaps(analyzer, &coverages);
        Ok(Self {
            fill: fill_cases(analyzer, &coverages, &gaps, folder)?,
            used: UsedRowTime::of_coverages(&coverages),
            share: coverage_metrics(&coverages).time.value(),
        })
    }
}

#[derive(Debug)]
pub(crate) struct PredictedHost<'a> {
    pub(crate) kind: DataKind,
    pub(crate) profile: &'a DeviceProfile,
    pub(crate) devices: &'a [u32],
    pub(crate) costs: InitialCosts,
    /// Seconds until the deadline; `None` without one.
    pub(crate) budget: Option<f64>,
}

#[derive(Debug)]
pub(crate) struct FillPreview<'w> {
    pub(crate) gaps: Vec<CoverageGap<'w>>,
    pub(crate) fill: FillCases,
    /// Predicted seconds until the end of the first measurement of each case, in the order of [`FillCases::needed`].
    pub(crate) ends: Vec<Result<f64, NotMeasured>>,
    pub(crate) seconds: f64,
    pub(crate) share_before: Option<f64>,
    /// M5 if all cases with an end are measured.
    pub(crate) share_forecast: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotMeasured {
    pub(crate) reason: String,
    /// True if it would end after the deadline, false if it cannot be launched.
    is_late: bool,
}

impl<'w> FillPreview<'w> {
    pub(crate) fn new(
        analyzer: &CoverageAnalyzer<'_>,
        workloads: &'w [Workload],
        host: &PredictedHost<'_>,
        folder: &Path,
    ) -> Result<Self, CommandError> {
        let coverages = analyzer.answer_workloads(workloads)?;
        let gaps = coverage_gaps(analyzer, &coverages);
        let fill = fill_cases(analyzer, &coverages, &gaps, folder)?;
        let plan = |case| plan_fill_case(analyzer.catalogue, host.profile, case, host.devices.len());
        let planned: Vec<Result<PlannedCase, String>> = fill.needed().map(plan).collect();
        let cases: Vec<PlannedCase> = planned.iter().flatten().cloned().collect();
        let PlanPreview { cases: scheduled, duration, .. } =
            dry_run(host.kind, &host.costs, &cases, host.devices, host.budget);
        let mut scheduled = scheduled.into_iter();
        let mut end = |planned: Result<PlannedCase, String>| {
            planned.map_err(|reason| NotMeasured { reason, is_late: false })?;
            let slot = scheduled.next().unwrap_or(Err(Cause::NotReached));
            slot.map(|slot| slot.ends_at)
                .map_err(|cause| NotMeasured { reason: cause.to_string(), is_late: true })
        };
        let ends: Vec<_> = planned.into_iter().map(&mut end).collect();
        let in_time: BTreeSet<&CaseId> =
            fill.needed().zip(&ends).filter(|(_, end)| end.is_ok()).map(|(case, _)| case.case.id()).collect();
        let share_before = coverage_metrics(&coverages).time.value();
        let share_forecast = share_before.map(|share| share + fill.closed_share(&gaps, &in_time));
        Ok(Self { ends, seconds: duration, share_before, share_forecast, gaps, fill })
    }

    /// Returns true if every case that can be launched is measured in time. Cases that cannot, and gaps without a case, are
    /// reported, and no measurement fails by them.
    pub(crate) fn measures_all(&self) -> bool {
        !self.ends.iter().any(|end| end.as_ref().is_err_and(|end| end.is_late))
    }
}

/// Plans a case that may have no row yet; the error is the reason why it cannot be launched.
pub(crate) fn plan_fill_case(
    catalogue: &Catalogue,
    profile: &DeviceProfile,
    case: &FillCase,
    devices: usize,
) -> Result<PlannedCase, String> {
    let planned = planned_case(catalogue, profile, case.case.clone())
        .map_err(|(_, CaseOutcome { verdict, reason })| format!("{verdict}: {reason}"))?;
    match planned.devices {
        needed if needed > devices => {
            Err(format!("it needs {needed} devices of one host at once, the run has {devices}"))
        }
        _ => Ok(PlannedCase { value: case.value, ..planned }),
    }
}

/// Chooses cases for gaps, and those of the rows that answer workloads by durations of production profiles, of kernels that can be
/// measured, with the times that they stand for.
fn fill_cases(
    analyzer: &CoverageAnalyzer<'_>,
    coverages: &[WorkloadCoverage<'_>],
    gaps: &[CoverageGap<'_>],
    folder: &Path,
) -> Result<FillCases, CommandError> {
    let mut used = UsedRowTime::of_coverages(coverages);
    used.retain(|row| !row.is_measured && analyzer.catalogue.entry(&row.kernel).is_some());
    let unmeasured =
        if used.is_empty() { Vec::new() } else { cases_of_rows(&Database::open(folder)?, &used)? };
    Ok(FillCases::of_gaps(gaps).with_unmeasured_rows(unmeasured))
}

#[derive(Clone, Debug)]
pub(crate) struct UsedRowTime {
    kernel: KernelName,
    line: u64,
    /// Nanoseconds, multiplied by the weight of the workload and divided among the rows of an answer.
    time: f64,
    /// False if the row answers by a duration of production profiles.
    is_measured: bool,
}

impl UsedRowTime {
    pub(crate) fn of_coverages(coverages: &[WorkloadCoverage<'_>]) -> Vec<Self> {
        let mut used = Vec::new();
        for coverage in coverages {
            for answered in coverage.answers.iter().filter(|answer| answer.class != AnswerClass::Missing) {
                let Some(answer) = &answered.answer else { continue };
                let rows = answer.all_rows();
                let time = answered.question.time.map_or(1.0, |time| time.0 as f64);
                let time = coverage.workload.weight * time / rows.len().max(1) as f64;
                used.extend(rows.into_iter().map(|row| Self {
                    kernel: row.kernel.clone(),
                    line: u64::from(row.line),
                    time,
                    is_measured: row.column == LatencyColumn::Replay,
                }));
            }
        }
        used
    }
}

fn cases_of_rows(
    database: &Database,
    used: &[UsedRowTime],
) -> Result<Vec<(IdentifiedCase, f64)>, CommandError> {
    let mut times: BTreeMap<&KernelName, BTreeMap<u64, f64>> = BTreeMap::new();
    // Collectives are measured by sweeps.
    for row in used.iter().filter(|row| !row.kernel.is_collective()) {
        *times.entry(&row.kernel).or_default().entry(row.line).or_default() += row.time;
    }
    let mut cases: BTreeMap<CaseId, (IdentifiedCase, f64)> = BTreeMap::new();
    for (kernel, lines) in times {
        for row in row_cases(kernel, &database.kernel_csv(kernel)?)? {
            let (Some(time), Ok(case)) = (lines.get(&row.line), row.case) else { continue };
            let case = IdentifiedCase::new(case);
            cases.entry(case.id().clone()).or_insert_with(|| (case, 0.0)).1 += time;
        }
    }
    Ok(cases.into_values().collect())
}

impl Database {
    pub(super) fn case_ids(&self, kernel: &KernelName) -> Result<BTreeSet<CaseId>, CommandError> {
        if !self.has_table(kernel)? {
            return Ok(BTreeSet::new());
        }
        let rows = row_cases(kernel, &self.kernel_csv(kernel)?)?;
        Ok(rows.into_iter().filter_map(|row| Some(row.case.ok()?.id())).collect())
    }
}
