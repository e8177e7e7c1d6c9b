//! `npubench check`: every case against the vendor's own code, without a device.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io::{IsTerminal as _, stderr},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::consts;

use super::options::{AssetOptions, OutputFormat, kernels, python_program};
use crate::{
    catalogue::Catalogue,
    config::DeviceProfile,
    database::Database,
    domain::{Case, CaseId, CheckOutcome, CheckVerdict, IdentifiedCase, Nanos},
    exit::ExitStatus,
    ledger::{Ledger, NewCheck, StoredCheck},
    plan::{CaseSelection, NO_ENTRY, PlannedCase, UpdateMode, select_cases},
    report::{print_data, print_note},
    session::CommandError,
    vendor_check::{self as check, CheckSettings, digest, shown, software},
};

/// Holds every case against the vendor's own torch_npu, without a device
///
/// The calls that a run would make are made on meta tensors, in a few Python processes, so that names, types
/// and shapes are judged by the code that will run. What the catalogue refuses by itself is said too. Outcomes
/// are in the ledger as they come: the same command goes on where it was stopped, and `run` leaves out what was
/// rejected. Ends with 1 where a case is rejected.
#[derive(Debug, Args)]
pub(super) struct CheckOptions {
    /// Database folder
    #[arg(long, value_name = "DIR")]
    db: PathBuf,
    /// Only these kernels, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    kernels: Vec<String>,
    /// Python that has torch and torch_npu; it needs no NPU
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: String,
    /// Python processes at a time; a quarter of the cores where not given, at most 8
    #[arg(long, value_name = "N")]
    processes: Option<usize>,
    /// Checks again what was checked before
    #[arg(long)]
    again: bool,
    /// `json` prints an object per case
    #[arg(long, value_enum, default_value = "plain")]
    format: OutputFormat,
    #[command(flatten)]
    assets: AssetOptions,
}

/// Outcomes that are kept in one transaction.
const KEPT_AT_ONCE: usize = 256;
/// None waits longer to be kept and told.
const KEPT_EVERY: Duration = Duration::from_secs(1);

pub(super) fn run(options: &CheckOptions) -> Result<ExitStatus, CommandError> {
    let assets = options.assets.load()?;
    let catalogue = Catalogue::load(&assets)?;
    let database = Database::open(&options.db)?;
    let device = DeviceProfile::load(&assets, database.device())?;
    let kernels = kernels(&options.kernels)?;
    let python = python_program(&options.python)?;
    let versions = software(&python)?.to_string();

    let mut lock = database.lock()?;
    let measured = BTreeSet::new();
    let selection = CaseSelection {
        update: UpdateMode::All,
        kernels: &kernels,
        measured: &measured,
        rejected: None,
        weight_column: None,
    };
    let plan = select_cases(&database, &catalogue, &device, &selection)?;
    database.initialise(&mut lock)?;
    let mut ledger = database.ledger()?;
    let known = if options.again { HashMap::new() } else { ledger.stored_checks()? };
    let digests: Vec<String> = plan.cases.iter().map(|planned| digest(planned, &catalogue)).collect();
    let is_known = |place: usize| known_outcome(&known, &plan.cases[place], &digests[place], &versions);
    let (done, open): (Vec<usize>, Vec<usize>) =
        (0..plan.cases.len()).partition(|&place| is_known(place).is_some());
    let mut told = CheckReporter::new(options.format, plan.cases.len() + plan.rejected.len());
    let refused: Vec<(&IdentifiedCase, CheckOutcome)> =
        plan.rejected.iter().map(|(case, finding)| (case, CheckOutcome::by_rule(&*finding.reason))).collect();
    let checks: Vec<NewCheck<'_>> = refused
        .iter()
        .map(|(case, outcome)| NewCheck { case: case.id().clone(), digest: "", outcome })
        .collect();
    ledger.add_checks(&versions, now(), &checks)?;
    for (case, outcome) in &refused {
        told.report_case(case, outcome);
    }
    for place in done {
        if let Some(outcome) = is_known(place) {
            told.report_case(&plan.cases[place].case, outcome);
        }
    }
    let cases: Vec<PlannedCase> = open.iter().map(|&place| plan.cases[place].clone()).collect();
    let digests: Vec<&str> = open.iter().map(|&place| digests[place].as_str()).collect();
    let settings = CheckSettings {
        python,
        processes: options.processes.unwrap_or_else(processes).max(1),
        catalogue,
        assets,
    };
    let is_stopped = check_open(&settings, &cases, &digests, &versions, &mut ledger, &mut told)?;
    for problem in &plan.unreadable_rows {
        print_note(&format!("{problem}: not checked"));
    }
    told.close(&versions);
    Ok(match () {
        () if is_stopped => ExitStatus::Interrupted,
        () if told.counts.keys().any(|(verdict, _)| *verdict == CheckVerdict::Rejected)
            || !plan.unreadable_rows.is_empty() =>
        {
            ExitStatus::SomeNotOk
        }
        () => ExitStatus::Done,
    })
}

fn processes() -> usize {
    thread::available_parallelism().map_or(1, usize::from).div_ceil(4).clamp(1, 8)
}

fn known_outcome<'a>(
    known: &'a HashMap<CaseId, StoredCheck>,
    planned: &PlannedCase,
    digest: &str,
    versions: &str,
) -> Option<&'a CheckOutcome> {
    let check = known.get(planned.case.id())?;
    (check.digest == digest && check.software == versions).then_some(&check.outcome)
}

/// Checks what is open; every outcome is in the ledger before it is told. Says whether it was stopped.
fn check_open(
    settings: &CheckSettings,
    cases: &[PlannedCase],
    digests: &[&str],
    versions: &str,
    ledger: &mut Ledger,
    told: &mut CheckReporter,
) -> Result<bool, CommandError> {
    if cases.is_empty() {
        return Ok(false);
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [consts::SIGINT, consts::SIGTERM, consts::SIGHUP] {
        // Without it, a signal ends the program where it is, and loses only what is not yet in the ledger.
        let _ = signal_hook::flag::register(signal, Arc::clone(&stop));
    }
    let mut waiting: Vec<(usize, CheckOutcome)> = Vec::new();
    let mut failure = None;
    let mut keep = |waiting: &mut Vec<(usize, CheckOutcome)>, told: &mut CheckReporter| {
        let checks: Vec<NewCheck<'_>> = waiting
            .iter()
            .map(|(place, outcome)| NewCheck {
                case: cases[*place].case.id().clone(),
                digest: digests[*place],
                outcome,
            })
            .collect();
        match ledger.add_checks(versions, now(), &checks) {
            Ok(()) => {
                waiting.drain(..).for_each(|(place, outcome)| told.report_case(&cases[place].case, &outcome));
            }
            Err(error) => {
                failure.get_or_insert(error);
                stop.store(true, Ordering::Relaxed);
                waiting.clear();
            }
        }
    };
    let mut kept = Instant::now();
    let checked = check::check_cases(settings, cases, &stop, &mut |place, outcome| {
        waiting.push((place, outcome));
        if waiting.len() >= KEPT_AT_ONCE || kept.elapsed() >= KEPT_EVERY {
            keep(&mut waiting, told);
            kept = Instant::now();
        }
    });
    keep(&mut waiting, told);
    if let Some(error) = failure {
        return Err(error.into());
    }
    checked?;
    Ok(stop.load(Ordering::Relaxed))
}

fn now() -> Nanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Nanos(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

/// What was told so far.
struct CheckReporter {
    format: OutputFormat,
    bar: Option<ProgressBar>,
    counts: BTreeMap<(CheckVerdict, String), usize>,
    rejected: BTreeMap<(String, String), (usize, Case)>,
    /// Kernels that the catalogue does not have.
    unknown: BTreeMap<String, usize>,
    total: usize,
}

impl CheckReporter {
    fn new(format: OutputFormat, total: usize) -> Self {
        let bar = stderr().is_terminal().then(|| {
            let bar =
                ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::stderr_with_hz(4));
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len} cases, {per_sec}, {eta} left");
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Self {
            format,
            bar,
            counts: BTreeMap::new(),
            rejected: BTreeMap::new(),
            unknown: BTreeMap::new(),
            total,
        }
    }

    fn report_case(&mut self, case: &IdentifiedCase, outcome: &CheckOutcome) {
        let kernel = case.kernel.as_str().to_owned();
        *self.counts.entry((outcome.verdict, kernel.clone())).or_default() += 1;
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
        if self.format == OutputFormat::Json {
            let object = serde_json::json!({
                "case": case.id().as_str(), "kernel": kernel, "inputs": shown(&case.inputs),
                "outputs": shown(&case.outputs),
                "verdict": outcome.verdict.as_str(), "by": outcome.by.as_str(), "message": outcome.message,
            });
            print_data(&format!("{object}\n"));
        } else if outcome.message == NO_ENTRY {
            *self.unknown.entry(kernel).or_default() += 1;
        } else if outcome.verdict != CheckVerdict::Accepted {
            let why = format!("{} by {}: {}", outcome.verdict, outcome.by.as_str(), outcome.message);
            self.rejected.entry((kernel, why)).or_insert_with(|| (0, Case::clone(case))).0 += 1;
        }
    }

    fn close(&self, versions: &str) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if self.format == OutputFormat::Json {
            return;
        }
        let mut text = String::new();
        for ((kernel, why), (count, first)) in &self.rejected {
            let more = if *count > 1 { format!(" and {} more", count - 1) } else { String::new() };
            text.push_str(&format!("{kernel} {}{more}: {why}\n", first.shapes()));
        }
        if !self.unknown.is_empty() {
            let unknown: Vec<String> =
                self.unknown.iter().map(|(kernel, count)| format!("{kernel} {count}")).collect();
            text.push_str(&format!("rejected by rule: {NO_ENTRY}: {}\n", unknown.join(", ")));
        }
        let count = |verdict| {
            let of_verdict = self.counts.iter().filter(|((other, _), _)| *other == verdict);
            of_verdict.map(|(_, count)| count).sum::<usize>()
        };
        let counts = CheckVerdict::ALL.iter().map(|&verdict| (verdict, count(verdict)));
        let counts: Vec<String> = counts
            .filter(|(_, count)| *count > 0)
            .map(|(verdict, count)| format!("{count} {verdict}"))
            .collect();
        text.push_str(&format!("{} cases: {}; by {versions}\n", self.total, counts.join(", ")));
        print_data(&text);
    }
}
