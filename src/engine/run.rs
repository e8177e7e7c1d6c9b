//! A run from its plan to its outcome: what it needs, how it begins, how it goes on with an interrupted one.

use std::{
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::{
    runtime,
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
};

use super::{
    CollectionSettings, EngineError,
    dispatch::{Dispatcher, RunStore},
    lane::{DeviceLane, LaneContext},
    write_back::WriteBack,
};
use crate::{
    database::Database,
    device::DeviceLease,
    domain::{CaseId, CaseOutcome, DataKind, IdentifiedCase, KernelName, MemoryFootprint, Nanos},
    events::RunEvent,
    exit::ExitStatus,
    ledger::{Ledger, NewRun},
    plan::{InitialCosts, PlannedCase, RunPlan},
    process::end_orphans,
    profile::npu_smi::NpuSmiInfo,
    sched::{PriorCosts, SchedCase, SchedLimits, SchedulerState, Seconds},
};

/// Everything a run needs.
#[derive(Debug)]
pub struct RunRequest<'a> {
    /// The database; its lock is held.
    pub database: &'a Database,
    /// Its ledger.
    pub ledger: &'a mut Ledger,
    /// What all collections share.
    pub settings: CollectionSettings,
    /// What to measure.
    pub plan: RunPlan,
    /// The devices to use.
    pub devices: Vec<u32>,
    /// The options in force, as JSON.
    pub options: String,
    /// Fingerprint of host and software, as JSON.
    pub host: String,
    /// What `npu-smi` said before the run.
    pub info: NpuSmiInfo,
    /// Seconds after which everything must have ended.
    pub budget: Option<Seconds>,
    /// What an interrupted run has done already; `None` for a new one.
    pub resumed: Option<ResumedRun>,
}

/// What an interrupted run has done already.
#[derive(Debug, Default)]
pub struct ResumedRun {
    /// The number of its last collection.
    pub collections: u32,
    /// Cases that have their verdict, or an attempt that ends in one.
    pub findings: Vec<(IdentifiedCase, CaseOutcome)>,
    /// Cases without a verdict that were tried, each with the numbers of its collections.
    pub tried: Vec<(CaseId, u32)>,
}

/// How a run ended.
#[derive(Debug)]
pub struct RunOutcome {
    /// Every case with its verdict: those measured in the order of the plan, then those refused.
    pub findings: Vec<(IdentifiedCase, CaseOutcome)>,
    /// The exit code that says so.
    pub exit: ExitStatus,
}

/// An orphan of a killed run may take this long to end.
const LEASE_PATIENCE: Duration = Duration::from_secs(60);

/// What a collection of stand-ins takes, on a machine that does other things besides.
const REHEARSED: PriorCosts = PriorCosts { start: 0.3, export: 0.2, export_launch: 1e-4, patience: 10.0 };

/// Carries out a run. `tell` hears every event, after the ledger has it.
///
/// # Errors
/// [`EngineError`] where the ledger or the database fails; what was committed before is kept.
pub fn run(run: RunRequest<'_>, tell: &mut dyn FnMut(&RunEvent)) -> Result<RunOutcome, EngineError> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| EngineError::System { what: "an event loop", source })?;
    runtime.block_on(async {
        let signals = StopSignals::listen()?;
        let (sender, reports) = mpsc::unbounded_channel();
        let (sights_sender, sights) = mpsc::unbounded_channel();
        let mut dispatcher = begin(run, tell, &sender)?;
        let _sentry = dispatcher.post_sentry(sights_sender)?;
        dispatcher.work(DispatcherInbox { reports, sights, signals }).await
    })
}

/// All that a dispatcher hears.
pub(super) struct DispatcherInbox {
    pub(super) reports: mpsc::UnboundedReceiver<super::lane::LaneReport>,
    pub(super) sights: mpsc::UnboundedReceiver<NpuSmiInfo>,
    pub(super) signals: StopSignals,
}

/// What asks a run to stop.
pub(super) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    /// The terminal has gone away, as a lost ssh does.
    hang_up: Signal,
}

impl StopSignals {
    fn listen() -> Result<Self, EngineError> {
        let system = |source| EngineError::System { what: "signals", source };
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(system)?,
            terminate: signal(SignalKind::terminate()).map_err(system)?,
            hang_up: signal(SignalKind::hangup()).map_err(system)?,
        })
    }

    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}

/// Nanoseconds since the epoch.
pub(super) fn now() -> Nanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Nanos(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

/// Keeps the plan, then starts a lane per device.
fn begin<'a>(
    run: RunRequest<'a>,
    tell: &'a mut dyn FnMut(&RunEvent),
    sender: &mpsc::UnboundedSender<super::lane::LaneReport>,
) -> Result<Dispatcher<'a>, EngineError> {
    keep_plan(run.ledger, &run.settings, &run.plan, &run.options, &run.host, run.resumed.is_some())?;
    let RunRequest { database, ledger, settings, plan, devices, info, budget, resumed, .. } = run;
    for place in &plan.unreadable_rows {
        tell(&RunEvent::RowUnreadable { place: place.clone() });
    }
    let is_resumed = resumed.is_some();
    let resumed = resumed.unwrap_or_default();
    let rows = rows_to_write(&settings.run, &plan);
    let started = RunEvent::RunStarted {
        run: settings.run.clone(),
        kind: settings.kind,
        cases: plan.cases.len(),
        refused: plan.rejected.len(),
        already: plan.already_measured + resumed.findings.len(),
        devices: devices.clone(),
        is_resumed,
        budget,
    };
    tell(&started);
    let jobs = jobs(&settings.costs, &plan.cases);
    let state = SchedulerState::new(jobs, &devices, limits(settings.kind, budget), resumed.collections);
    let mut settled = resumed.findings;
    settled.extend(plan.rejected);
    let unreadable = plan.unreadable_rows.len();
    // What a killed run left is ended before its devices are used.
    let orphans = end_orphans(&settings.processes);
    if orphans > 0 {
        tell(&RunEvent::OrphansEnded { programs: orphans });
    }
    let leases = devices
        .iter()
        .map(|&device| Ok((device, DeviceLease::take(&settings.leases, device, LEASE_PATIENCE)?)))
        .collect::<Result<_, EngineError>>()?;
    let shared = Arc::new(LaneContext { settings, cases: plan.cases, leases, stop: AtomicBool::new(false) });
    let lanes = devices
        .iter()
        .map(|&device| Ok((device, DeviceLane::start(device, &shared, sender)?)))
        .collect::<Result<_, EngineError>>()?;
    let keeper = RunStore { database, ledger, rows, settled, unreadable };
    let mut dispatcher = Dispatcher::new(shared, lanes, state, keeper, tell);
    dispatcher.on_device_snapshot(&info)?;
    dispatcher.finish_predecided()?;
    Ok(dispatcher)
}

fn keep_plan(
    ledger: &mut Ledger,
    settings: &CollectionSettings,
    plan: &RunPlan,
    options: &str,
    host: &str,
    is_resumed: bool,
) -> Result<(), EngineError> {
    if is_resumed {
        ledger.resume_run(&settings.run, now())?;
        return Ok(());
    }
    let refused = plan.rejected.iter().map(|(case, _)| case);
    let all: Vec<IdentifiedCase> =
        plan.cases.iter().map(|planned| &planned.case).chain(refused).cloned().collect();
    let new = NewRun {
        run: &settings.run,
        kind: settings.kind,
        seed: settings.seed,
        options,
        host,
        started: now(),
    };
    Ok(ledger.begin_run(&new, &all)?)
}

fn rows_to_write(run: &str, plan: &RunPlan) -> WriteBack {
    let mut rows = WriteBack::new(run);
    for planned in &plan.cases {
        rows.expect(&planned.case.kernel, planned.case.id().clone());
    }
    for (kernel, cases) in &plan.missing_in_csv {
        cases.iter().for_each(|case| rows.show(kernel, case.clone()));
    }
    rows
}

/// What bounds the collections of a host.
pub(super) fn limits(kind: DataKind, deadline: Option<Seconds>) -> SchedLimits {
    let prior = if kind == DataKind::Rehearsal { REHEARSED } else { PriorCosts::default() };
    SchedLimits { deadline, prior, ..SchedLimits::default() }
}

/// The cases as the scheduler knows them.
pub(super) fn jobs(costs: &InitialCosts, cases: &[PlannedCase]) -> Vec<SchedCase> {
    let mut kernels: Vec<&KernelName> = cases.iter().map(|planned| &planned.case.kernel).collect();
    kernels.sort();
    kernels.dedup();
    let job = |planned: &PlannedCase| SchedCase {
        kernel: kernels.binary_search(&&planned.case.kernel).unwrap_or_default(),
        seconds: costs.seconds(planned.fastest),
        launches: costs.launches,
        value: planned.value,
        devices: planned.devices,
        memory: MemoryFootprint::from_case(&planned.case).bytes(),
    };
    cases.iter().map(job).collect()
}

/// Where a run keeps what others may read while it goes on.
#[must_use]
pub fn pause_file(database: &Database) -> PathBuf {
    database.state_folder().join("paused.json")
}
