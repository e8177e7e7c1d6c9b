//! Executes a run: stores its plan, leases the devices, starts lanes and dispatcher. Stop requests of
//! a run, and its transactions in the ledger: while the disk is full, or another program holds the ledger, a transaction waits and
//! is tried again, until the run is stopped.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
    time::{self, Instant},
};

use super::{
    Result, SweepNodes,
    collect::{LaneReport, spawn_lanes},
    dispatch::{Dispatcher, RunStore},
    dry_run::{scheduler_cases, scheduler_limits, shuffle_cases},
    host_monitor::{DeviceMonitor, DeviceSnapshot},
    write_back::WriteBack,
};
use crate::{
    base::{
        assets::AssetFiles, command_error::Failure, deadline::Deadline, exit::ExitStatus, files::disk_space,
        print::print_warning, process::ProcessError,
    },
    cases::plan::{InitialCosts, PlannedCase, RunPlan},
    database::{
        Database, DatabaseError,
        ledger::{Ledger, LedgerError, NewRun},
    },
    kernel::{
        CaseId, CaseOutcome, DataKind, IdentifiedCase, KernelName, SoftwareFingerprint, catalogue::Catalogue,
        render::RenderError, timestamp::Timestamp,
    },
    measure::{
        device::{
            DeviceError, DeviceLeases, DeviceNumbering, HostSoftware, LeaseFolder, npu_smi::NpuSmiInfo,
        },
        events::RunEvent,
        nodes::NodeError,
        run_options::RunOptions,
        sched::SchedulerState,
    },
};

pub(crate) struct RunRequest<'a> {
    pub database: &'a Database,
    pub ledger: &'a mut Ledger,
    pub settings: CollectionSettings,
    pub plan: RunPlan,
    /// Fingerprint of host and software as JSON.
    pub host: String,
    pub info: NpuSmiInfo,
    pub deadline: Option<Deadline>,
    pub resumed: Option<ResumedRun>,
    /// Set by signals that came before the run had handlers of its own; `None` where these end the program.
    pub stop: Option<Arc<AtomicBool>>,
}

#[derive(Debug, Default)]
pub(crate) struct ResumedRun {
    pub collections: u32,
    /// Cases that have a verdict, or an attempt that settles it, and are not planned again.
    pub outcomes: Vec<(IdentifiedCase, CaseOutcome)>,
    pub measured: BTreeMap<CaseId, CaseOutcome>,
    /// Attempted cases without a verdict, each with the number of a collection; one entry per attempt.
    pub attempted: Vec<(CaseId, u32)>,
}

impl ResumedRun {
    pub(super) fn measured_indices(&self, planned: &[PlannedCase]) -> BTreeSet<usize> {
        let is_measured = |one: &PlannedCase| one.cases().all(|case| self.measured.contains_key(case.id()));
        (0..planned.len()).filter(|&index| is_measured(&planned[index])).collect()
    }
}

#[derive(Debug)]
pub(crate) struct RunOutcome {
    /// Verdict of every case: measured cases in the order of the plan, then cases that were not launched.
    pub outcomes: Vec<(IdentifiedCase, CaseOutcome)>,
    pub exit: ExitStatus,
    pub(crate) is_stopped: bool,
    pub(crate) has_written_rows: bool,
    pub unwritten: Vec<KernelName>,
}

#[derive(Clone, Debug)]
pub(crate) struct CollectionSettings {
    pub run: String,
    pub kind: DataKind,
    pub folder: PathBuf,
    pub(crate) options: RunOptions,
    pub environment: Vec<(String, String)>,
    pub software: SoftwareFingerprint,
    /// Software of the host, which is read again for each collection.
    pub host_software: HostSoftware,
    pub leases: LeaseFolder,
    /// True if `npu-smi` lists processes by the ids that this program sees; false inside a container with ids of its
    /// own and on the rehearsal host, which invents processes.
    pub sees_host_processes: bool,
    pub numbering: DeviceNumbering,
    pub processes: PathBuf,
    pub costs: InitialCosts,
    pub(crate) nodes: Option<SweepNodes>,
    pub catalogue: Catalogue,
    pub assets: AssetFiles,
}

#[derive(Debug)]
pub(super) struct LaneContext {
    pub(super) settings: CollectionSettings,
    pub(super) cases: Vec<PlannedCase>,
    pub(super) leases: DeviceLeases,
    pub(super) stop: AtomicBool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum EngineError {
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Render(#[from] RenderError),
    #[error("cannot write `{}`: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Node(#[from] NodeError),
    #[error("the lane of device {device} panicked; this is a defect of npubench")]
    Panicked { device: u32 },
    #[error("the run was stopped before its last results could be stored: {source}")]
    StoppedWaiting { source: LedgerError },
    #[error("the system refused {what}: {source}")]
    System { what: &'static str, source: io::Error },
}

impl EngineError {
    pub(super) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }

    pub(crate) fn is_disk_full(&self) -> bool {
        match self {
            Self::Io { source, .. }
            | Self::System { source, .. }
            | Self::Process(ProcessError::Io { source, .. }) => disk_space::is_disk_full(source),
            Self::Database(DatabaseError::File(error)) => error.is_disk_full(),
            _ => false,
        }
    }
}

impl Failure for EngineError {
    fn hint(&self) -> String {
        match self {
            Self::Database(error) => error.hint(),
            Self::Ledger(error) => error.hint(),
            Self::Render(error) => error.hint(),
            Self::Io { .. } => "check free space and permissions; committed results are kept".to_owned(),
            Self::Device(error) => error.hint(),
            Self::Node(error) => error.hint(),
            Self::Panicked { .. } => "report it with the lines above; committed results are kept".to_owned(),
            Self::Process(_) => "committed results are kept; `npubench resume` continues the run".to_owned(),
            Self::StoppedWaiting { .. } => {
                "free disk space, then `npubench resume` continues the run; committed results are kept".to_owned()
            }
            Self::System { .. } => {
                "raise the limits of open files (`ulimit -n`) and processes (`ulimit -u`); committed results are kept"
                    .to_owned()
            }
        }
    }

    /// Bad templates and a damaged ledger are bad input; after most other errors the run can be resumed.
    fn exit_status(&self) -> ExitStatus {
        match self {
            Self::Render(_)
            | Self::Ledger(LedgerError::Damaged { .. })
            | Self::Database(DatabaseError::Ledger(LedgerError::Damaged { .. })) => ExitStatus::BadInput,
            Self::Device(_) | Self::System { .. } => ExitStatus::CannotMeasure,
            Self::Panicked { .. } => ExitStatus::Bug,
            _ => ExitStatus::Interrupted,
        }
    }
}

/// Executes a run. `emit` receives every event after the ledger has stored what it reports. Fails with [`EngineError`]
/// if the ledger or the database fails; results committed before are kept.
pub(crate) fn execute_run(request: RunRequest<'_>, emit: &mut dyn FnMut(&RunEvent)) -> Result<RunOutcome> {
    let build = || {
        // Tokio panics if it cannot open the descriptors that it handles signals with.
        let spare: io::Result<Vec<File>> = (0..8).map(|_| File::open("/dev/null")).collect();
        drop(spare?);
        runtime::Builder::new_current_thread().enable_all().build()
    };
    let runtime = build().map_err(EngineError::system("an event loop"))?;
    runtime.block_on(async {
        let nodes = request.settings.nodes.clone();
        let stops = StopRequests::new(forward_signals(request.stop.as_deref(), nodes)?);
        let (report_sender, reports) = mpsc::unbounded_channel();
        let (snapshot_sender, snapshots) = mpsc::unbounded_channel();
        let inbox = DispatcherInbox { reports, snapshots, stops };
        let (context, mut dispatcher) = start_dispatcher(request, inbox, emit, &report_sender).await?;
        let _monitor = DeviceMonitor::spawn(&context, snapshot_sender)?;
        dispatcher.run_to_end().await
    })
}

const NODE_INTERVAL: Duration = Duration::from_millis(100);

fn forward_signals(
    stop: Option<&AtomicBool>,
    nodes: Option<SweepNodes>,
) -> Result<UnboundedReceiver<StopSource>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    // The last one is sent when the terminal closes, such as by a lost ssh connection.
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
        let mut signals = signal(kind).map_err(EngineError::system("signal handlers"))?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() && sender.send(StopSource::Signal).is_ok() {}
        });
    }
    // A signal that both have seen counts once.
    if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
        let _ = sender.send(StopSource::Signal);
    }
    if let Some(nodes) = nodes {
        tokio::spawn(async move {
            while !nodes.cluster.wants_stop() {
                time::sleep(NODE_INTERVAL).await;
            }
            let _ = sender.send(StopSource::Node);
        });
    }
    Ok(receiver)
}

async fn start_dispatcher<'a>(
    request: RunRequest<'a>,
    mut inbox: DispatcherInbox,
    emit: &'a mut dyn FnMut(&RunEvent),
    reports: &UnboundedSender<LaneReport>,
) -> Result<(Arc<LaneContext>, Dispatcher<'a>)> {
    let RunRequest { database, ledger, settings, plan, host, info, deadline, resumed, .. } = request;
    let devices = settings.options.devices.clone();
    let stop = AtomicBool::new(false);
    let wait = WriteWait { stop: &stop, inbox: &mut inbox, running: 0, emit: &mut *emit };
    store_plan(ledger, wait, &settings, &plan, &host, resumed.is_some()).await?;
    for place in &plan.unreadable_rows {
        emit(&RunEvent::RowUnreadable { place: place.clone() });
    }
    for table in &plan.missing_tables {
        let (kernel, problem) = (table.kernel.clone(), table.to_string());
        emit(&RunEvent::TableMissing { kernel, cases: table.cases, problem });
    }
    // The run's clock starts here.
    let budget = deadline.map(Deadline::rest);
    let is_resumed = resumed.is_some();
    let resumed = resumed.unwrap_or_default();
    let measured = resumed.measured_indices(&plan.cases);
    let measured_cases = measured.iter().flat_map(|&case| plan.cases[case].cases()).count();
    emit(&RunEvent::RunStarted {
        run: settings.run.clone(),
        kind: settings.kind,
        cases: plan.cases.iter().flat_map(PlannedCase::cases).count() - measured_cases,
        not_launched: plan.not_launched.len(),
        already_measured: plan.already_measured + resumed.outcomes.len() + measured_cases,
        devices: devices.clone(),
        resumed: is_resumed,
        budget_s: budget,
    });
    let measuring_devices = ledger.measuring_devices(settings.options.cache)?;
    let mut cases = scheduler_cases(&settings.costs, &plan.cases);
    let is_measured = |case: usize| measuring_devices.contains_key(plan.cases[case].case.id());
    let measurements = measuring_devices.values().map(Vec::len).sum::<usize>();
    let all_devices =
        settings.nodes.as_ref().map_or_else(|| devices.clone(), |nodes| nodes.layout.all_devices(&devices));
    let device_seconds = budget.map_or(f64::INFINITY, |budget| budget * devices.len() as f64);
    shuffle_cases(&mut cases, is_measured, measurements as u64, device_seconds);
    let limits = scheduler_limits(settings.kind, budget);
    let mut state = SchedulerState::new(cases, &all_devices, limits, resumed.collections);
    for (case, planned) in plan.cases.iter().enumerate() {
        if let Some(devices) = measuring_devices.get(planned.case.id()) {
            state.set_measured_on(case, devices);
        }
    }
    state.set_concluded(&measured);
    let rows = WriteBack::for_plan(&settings.run, settings.options.cache, &plan);
    let mut predecided = resumed.outcomes;
    predecided.extend(plan.not_launched);
    let leases = DeviceLeases::acquire(&settings.leases, &devices, Duration::ZERO)?;
    let context = Arc::new(LaneContext { settings, cases: plan.cases, leases, stop });
    let lanes = Box::new(spawn_lanes(&devices, &context, reports)?);
    let has_lost_rows = !plan.unreadable_rows.is_empty() || !plan.missing_tables.is_empty();
    let store = RunStore { database, ledger, rows, predecided, production: plan.production, has_lost_rows };
    let mut dispatcher = Dispatcher::new(Arc::clone(&context), devices, lanes, state, store, inbox, emit);
    dispatcher.on_device_snapshot(&DeviceSnapshot { info, queried_at: std::time::Instant::now() }).await?;
    dispatcher.resume_measured(&measured, &resumed.measured).await?;
    Ok((context, dispatcher))
}

async fn store_plan(
    ledger: &mut Ledger,
    wait: WriteWait<'_>,
    settings: &CollectionSettings,
    plan: &RunPlan,
    host: &str,
    is_resumed: bool,
) -> Result<()> {
    if is_resumed {
        let resume = |ledger: &mut Ledger| ledger.resume_run(&settings.run, Timestamp::now().0);
        commit(ledger, wait, resume).await?;
        return Ok(());
    }
    let not_launched = plan.not_launched.iter().map(|(case, _)| case);
    let all: Vec<IdentifiedCase> =
        plan.cases.iter().flat_map(PlannedCase::cases).chain(not_launched).cloned().collect();
    let new = NewRun {
        run: &settings.run,
        kind: settings.kind,
        seed: settings.options.seed,
        options: &serde_json::to_string(&settings.options).expect("options are JSON"),
        host,
        started: Timestamp::now().0,
    };
    commit(ledger, wait, |ledger| ledger.begin_run(&new, &all)).await?;
    // With the plan in the copy, the collections of this run can be restored from their evidence.
    if let Err(error) = ledger.write_copy() {
        print_warning(&format!("a damaged ledger could not be restored with this run: {error}"));
    }
    Ok(())
}

const RETRY_INTERVAL: Duration = Duration::from_millis(500);

pub(super) struct DispatcherInbox {
    pub(super) reports: UnboundedReceiver<LaneReport>,
    pub(super) snapshots: UnboundedReceiver<DeviceSnapshot>,
    pub(super) stops: StopRequests,
}

pub(super) struct WriteWait<'w> {
    pub(super) stop: &'w AtomicBool,
    pub(super) inbox: &'w mut DispatcherInbox,
    /// Number of collections that run or whose report was not received.
    pub(super) running: usize,
    pub(super) emit: &'w mut dyn FnMut(&RunEvent),
}

impl WriteWait<'_> {
    /// Returns false if the run is to end: after the second stop request, and after the first one as soon as no collection runs.
    pub(super) async fn wait_for_retry(&mut self) -> bool {
        let retry_at = Instant::now() + RETRY_INTERVAL;
        loop {
            let running = self.running.saturating_sub(self.inbox.reports.len());
            if self.inbox.stops.has_any() && running == 0 {
                return false;
            }
            tokio::select! {
                at_once = self.inbox.stops.next() => {
                    (self.emit)(&RunEvent::StopRequested { running, at_once });
                    if at_once {
                        self.stop.store(true, Ordering::Relaxed);
                        return false;
                    }
                }
                () = time::sleep_until(retry_at) => return true,
            }
        }
    }
}

/// Executes a transaction; returns true with its result if it failed at first for lack of disk space.
pub(super) async fn commit<T>(
    ledger: &mut Ledger,
    mut wait: WriteWait<'_>,
    mut write: impl FnMut(&mut Ledger) -> Result<T, LedgerError>,
) -> Result<(T, bool)> {
    let mut waiting_since: Option<Instant> = None;
    let mut has_lacked_space = false;
    loop {
        match write(ledger) {
            Ok(value) => {
                if let Some(since) = waiting_since {
                    let seconds = since.elapsed().as_secs_f64();
                    (wait.emit)(&RunEvent::LedgerWritable { ledger: ledger.path.clone(), seconds });
                }
                return Ok((value, has_lacked_space));
            }
            Err(error) if error.is_temporary() => {
                has_lacked_space |= error.is_disk_full();
                if waiting_since.is_none() {
                    waiting_since = Some(Instant::now());
                    let (ledger, problem) = (ledger.path.clone(), error.to_string());
                    (wait.emit)(&RunEvent::LedgerWaiting { ledger, problem });
                }
                if !wait.wait_for_retry().await {
                    return Err(EngineError::StoppedWaiting { source: error });
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Stop requests closer together than this count as one; no user presses Ctrl-C twice so fast.
pub(super) const STOP_DEBOUNCE: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopSource {
    Signal,
    Node,
}

pub(super) struct StopRequests {
    signals: UnboundedReceiver<StopSource>,
    count: u32,
    last: Option<Instant>,
    /// True if the scheduler has not received the last request.
    is_unhandled: bool,
}

impl StopRequests {
    pub(super) const fn new(signals: UnboundedReceiver<StopSource>) -> Self {
        Self { signals, count: 0, last: None, is_unhandled: false }
    }

    pub(super) async fn next(&mut self) -> bool {
        loop {
            let Some(source) = self.signals.recv().await else {
                // If there is no sender, there are no further requests.
                std::future::pending::<()>().await;
                continue;
            };
            if source == StopSource::Node && self.count > 0 {
                continue;
            }
            // `timeout` and some terminals signal both the process and its group: that is one request.
            let previous = self.last.replace(Instant::now());
            if previous.is_none_or(|previous| previous.elapsed() >= STOP_DEBOUNCE) {
                self.count += 1;
                self.is_unhandled = true;
                return self.count > 1;
            }
        }
    }

    pub(super) const fn has_any(&self) -> bool {
        self.count > 0
    }

    pub(super) const fn take_unhandled(&mut self) -> bool {
        std::mem::replace(&mut self.is_unhandled, false)
    }
}
