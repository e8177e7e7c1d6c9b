//! Filling of gaps: rows for the cases that close them, the runs that measure these, and further collections of the rows that
//! workloads use until the deadline.

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
        coverage::{CoverageAnalyzer, FillCase, FillCases, coverage_gaps, coverage_metrics},
        fill_preview::{coverage_of, plan_fill_case},
        used_rows::{UsedRowTime, cases_of_rows, unmeasured_rows},
        workload::Workload,
    },
    base::{
        assets::AssetFiles, command_error::CommandError, count_text::format_count, deadline::Deadline,
        exit::ExitStatus, files::FolderLock, print::print_note, shell_argument::quoted_path,
    },
    cases::plan::{InitialCosts, PlannedCase},
    database::{AbsentRows, Database},
    kernel::{CaseId, DataKind, IdentifiedCase, KernelName, catalogue::Catalogue},
    measure::{
        engine::dry_run,
        run_context::{EndedRun, RunContext, new_run_id},
        run_options::RunOptions,
        run_screen::RunScreen,
        verify::JointEstimates,
    },
};

/// Share of the weighted widths of all rows that rows measured further have together: beyond it, a collection is better spent
/// on one of them again.
const REPEATED_SHARE: f64 = 0.9;
/// Least number of rows that are measured further together: with fewer, collections are mostly start and export.
const LEAST_REPEATED: usize = 20;
/// Most times that gaps are looked for again after measurements.
const MOST_PASSES: usize = 4;
/// Relative half width, and number of collections, with which the first run ends if the options state none.
const DEFAULT_PRECISION: f64 = 0.01;
const LEAST_COLLECTIONS: usize = 8;
/// Number of times that the precision is halved: the last one needs a thousand times the collections.
const MOST_HALVINGS: u32 = 5;
/// Relative half width of a row whose interval is unknown.
const UNKNOWN_WIDTH: f64 = 0.05;

#[derive(Debug)]
pub(crate) struct FillSession {
    pub(crate) db: PathBuf,
    pub(crate) kind: DataKind,
    pub(crate) assets: AssetFiles,
    pub(crate) options: RunOptions,
    pub(crate) deadline: Option<Deadline>,
    pub(crate) screen: &'static dyn RunScreen,
    /// Set by signals from the first write on.
    pub(crate) stop: Arc<AtomicBool>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct FillOutcome {
    pub(crate) exit: ExitStatus,
    pub(crate) added: usize,
    /// Number of runs that measured rows of the workloads further.
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
        let mut lock = self.start()?;
        let mut outcome = FillOutcome::new();
        let ended = self.measure_gaps(first, state, &mut lock, &mut outcome);
        self.end(ended, outcome)
    }

    fn measure_gaps(
        &self,
        first: &FillCases,
        state: impl Fn() -> Result<FillState, CommandError>,
        lock: &mut FolderLock,
        outcome: &mut FillOutcome,
    ) -> Result<(), CommandError> {
        let mut attempted: BTreeSet<CaseId> = BTreeSet::new();
        let mut fill = first.clone();
        for pass in 0..MOST_PASSES {
            let cases: Vec<&FillCase> =
                fill.needed().filter(|case| !attempted.contains(case.case.id())).collect();
            if cases.is_empty() || !outcome.may_go_on() || pass > 0 && !self.has_time_for(&cases)? {
                break;
            }
            attempted.extend(cases.iter().map(|case| case.case.id().clone()));
            let cases = self.launchable(&cases)?;
            if pass > 0 && !cases.is_empty() {
                print_note(&format!("{} left to measure", format_count(cases.len(), "case")));
            }
            self.measure_cases(&cases, lock, outcome)?;
            fill = state()?.fill;
        }
        if self.deadline.is_none() {
            return Ok(());
        }
        let refinements = first.cases.iter().filter(|case| case.is_refinement);
        let refinements: Vec<&FillCase> =
            refinements.filter(|case| !attempted.contains(case.case.id())).collect();
        if outcome.may_go_on() && !refinements.is_empty() && self.has_time_for(&refinements)? {
            print_note("time is left: the cases between brackets are measured as well");
            self.measure_cases(&refinements, lock, outcome)?;
        }
        self.measure_further(|| Ok(state()?.used), lock, outcome)
    }

    /// Checks that the host can measure, locks the database, and registers the signals that stop the command.
    pub(crate) fn start(&self) -> Result<FolderLock, CommandError> {
        let context = self.context()?;
        context.require_host(&self.options)?;
        let lock = context.database.lock()?;
        for signal in [consts::SIGINT, consts::SIGTERM, consts::SIGHUP] {
            // Without a handler the signal ends the program; the rows that were added stay, and the same command goes on.
            let _ = signal_hook::flag::register(signal, Arc::clone(&self.stop));
        }
        Ok(lock)
    }

    /// Returns the result of the command. A signal may have ended programs of the host as well: their errors are those of the stop.
    pub(crate) fn end(
        &self,
        ended: Result<(), CommandError>,
        mut outcome: FillOutcome,
    ) -> Result<FillOutcome, CommandError> {
        outcome.is_stopped |= self.is_stopping();
        match ended {
            Err(error) if outcome.is_stopped => print_note(&error.message),
            ended => ended?,
        }
        Ok(outcome)
    }

    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Measures the rows of the workloads with ever higher precision until the deadline, or until further collections cannot
    /// narrow their intervals.
    fn measure_further(
        &self,
        used_rows: impl Fn() -> Result<Vec<UsedRowTime>, CommandError>,
        lock: &mut FolderLock,
        outcome: &mut FillOutcome,
    ) -> Result<(), CommandError> {
        let mut precision = self.options.precision.unwrap_or(DEFAULT_PRECISION);
        let mut max_collections = self.options.max_collections.max(LEAST_COLLECTIONS);
        for _ in 0..MOST_HALVINGS {
            // Half the width needs four times the collections.
            (precision, max_collections) = (precision / 2.0, max_collections * 4);
            let rows = self.rows_to_repeat(&used_rows()?)?;
            let rows: Vec<&FillCase> = rows.iter().collect();
            if rows.is_empty() || !outcome.may_go_on() || !self.has_time_for(&rows)? {
                break;
            }
            let options = RunOptions { precision: Some(precision), max_collections, ..self.options.clone() };
            if self.run(&rows, options, lock, outcome)? {
                outcome.further_runs += 1;
            }
        }
        Ok(())
    }

    fn context(&self) -> Result<RunContext, CommandError> {
        let mut context =
            RunContext::find(&self.db, self.kind, self.assets.clone(), &self.options, self.screen)?;
        context.stop = Some(Arc::clone(&self.stop));
        Ok(context)
    }

    pub(crate) fn measure_cases(
        &self,
        cases: &[&FillCase],
        lock: &mut FolderLock,
        outcome: &mut FillOutcome,
    ) -> Result<(), CommandError> {
        if cases.is_empty() {
            return Ok(());
        }
        let context = self.context()?;
        context.database.initialise(lock)?;
        add_rows(&context.database, &context.catalogue, cases, &self.stop, &mut outcome.added)?;
        drop(context);
        self.run(cases, self.options.clone(), lock, outcome)?;
        Ok(())
    }

    /// Measures cases that have rows in one run. Returns false without a run if nothing is to be measured.
    fn run(
        &self,
        cases: &[&FillCase],
        options: RunOptions,
        lock: &mut FolderLock,
        outcome: &mut FillOutcome,
    ) -> Result<bool, CommandError> {
        let options = RunOptions {
            cases: cases.iter().map(|case| case.case.id().as_str().to_owned()).collect(),
            case_weights: cases.iter().map(|case| (case.case.id().as_str().to_owned(), case.value)).collect(),
            ..options
        };
        let context = self.context()?;
        let plan = context.plan(&options, &[])?;
        outcome.is_stopped |= self.is_stopping();
        if outcome.is_stopped || plan.cases.is_empty() && plan.not_launched.is_empty() {
            return Ok(false);
        }
        context.database.initialise(lock)?;
        let run = new_run_id(&context.database, options.cache);
        let EndedRun { exit, is_stopped } = context.measure(&run, options, plan, None, self.deadline)?;
        outcome.exit = if exit == ExitStatus::Done { outcome.exit } else { exit };
        outcome.is_stopped |= is_stopped;
        Ok(true)
    }

    /// Returns the cases that can be launched on this host. The preview has the reasons of the others.
    fn launchable<'f>(&self, cases: &[&'f FillCase]) -> Result<Vec<&'f FillCase>, CommandError> {
        let context = self.context()?;
        let devices = context.chips.len();
        let can_be_planned =
            |case: &&&FillCase| plan_fill_case(&context.catalogue, &context.profile, case, devices).is_ok();
        Ok(cases.iter().filter(can_be_planned).copied().collect())
    }

    /// Returns true if the first measurement of at least one of the cases is predicted to end before the deadline.
    pub(crate) fn has_time_for(&self, cases: &[&FillCase]) -> Result<bool, CommandError> {
        let context = self.context()?;
        let devices: Vec<u32> = context.chips.iter().map(|chip| chip.physical_id).collect();
        let planned = |case: &&&FillCase| {
            plan_fill_case(&context.catalogue, &context.profile, case, devices.len()).ok()
        };
        let planned: Vec<PlannedCase> = cases.iter().filter_map(|case| planned(&case)).collect();
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
        let weighted = cases.into_iter().filter(|(case, _)| estimates.collection_count(case.id()) > 0);
        let mut weighted: Vec<FillCase> = weighted
            .map(|(case, time)| {
                let width = estimates.of_case(case.id()).map(|median| median.estimate.half_width);
                let width = width.filter(|width| width.is_finite()).unwrap_or(UNKNOWN_WIDTH);
                FillCase { value: time * width, case, is_refinement: false }
            })
            .collect();
        weighted.sort_by(|one, other| other.value.total_cmp(&one.value));
        let all: f64 = weighted.iter().map(|case| case.value).sum();
        let mut sum = 0.0;
        let count = weighted.iter().take_while(|case| {
            let is_within = sum < REPEATED_SHARE * all;
            sum += case.value;
            is_within
        });
        let count = count.count().max(LEAST_REPEATED);
        weighted.truncate(count);
        Ok(weighted)
    }
}

impl FillOutcome {
    /// Returns what a stopped command has saved, and the commands that go on; `None` if it was not stopped.
    pub(crate) fn stop_note(&self, command: &str, db: &Path) -> Option<String> {
        let rows = match self.added {
            1 => "1 row was added".to_owned(),
            added => format!("{added} rows were added"),
        };
        let resumes = match self.exit {
            ExitStatus::Interrupted => {
                format!("`npubench resume --db {}` continues the last run; ", quoted_path(db))
            }
            _ => String::new(),
        };
        self.is_stopped.then(|| {
            format!(
                "stopped: {rows}, and all results so far are saved; {resumes}`npubench {command}` with the same options measures what \
                 is left"
            )
        })
    }

    pub(crate) const fn new() -> Self {
        Self { exit: ExitStatus::Done, added: 0, further_runs: 0, is_stopped: false }
    }

    pub(crate) fn may_go_on(&self) -> bool {
        !self.is_stopped && matches!(self.exit, ExitStatus::Done | ExitStatus::SomeNotOk)
    }
}

/// Adds rows without results for those cases that have none, table by table until a stop. `added` counts them.
fn add_rows(
    database: &Database,
    catalogue: &Catalogue,
    cases: &[&FillCase],
    stop: &AtomicBool,
    added: &mut usize,
) -> Result<(), CommandError> {
    let mut by_kernel: BTreeMap<&KernelName, Vec<&IdentifiedCase>> = BTreeMap::new();
    for case in cases {
        by_kernel.entry(&case.case.kernel).or_default().push(&case.case);
    }
    for (kernel, mut cases) in by_kernel {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let present = database.case_ids(kernel)?;
        cases.retain(|case| !present.contains(case.id()));
        if cases.is_empty() {
            continue;
        }
        let count = cases.len();
        let recorded_inputs = catalogue.entry(kernel).map_or(0, |entry| entry.recorded_inputs);
        AbsentRows { kernel, cases, recorded_inputs, order: &BTreeMap::new() }.add_to(database)?;
        *added += count;
    }
    Ok(())
}

/// Cases that a database lacks for workloads, and the rows that answer them.
#[derive(Clone, Debug)]
pub(crate) struct FillState {
    pub(crate) fill: FillCases,
    pub(crate) used: Vec<UsedRowTime>,
    /// M5 of all workloads together; `None` without times.
    pub(crate) share: Option<f64>,
}

impl FillState {
    /// Looks workloads up.
    pub(crate) fn new(
        analyzer: &CoverageAnalyzer<'_>,
        workloads: &[Workload],
        folder: &Path,
    ) -> Result<Self, CommandError> {
        let coverages = coverage_of(analyzer, workloads)?;
        let gaps = coverage_gaps(analyzer, &coverages);
        Ok(Self {
            fill: FillCases::of_gaps(&gaps)
                .with_unmeasured_rows(unmeasured_rows(analyzer, &coverages, folder)?),
            used: UsedRowTime::of_coverages(&coverages),
            share: coverage_metrics(&coverages).time.value(),
        })
    }
}
