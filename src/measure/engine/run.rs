//! Executes a run: stores its plan, ends orphans of a killed run, leases the devices, starts lanes and dispatcher.

use std::{
    fs::File,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    runtime,
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
};

use super::{
    CollectionSettings, EngineError, RunOutcome, RunRequest, SweepNodes,
    collect::{DeviceLanes, LaneReport},
    dispatch::{Dispatcher, RunStore},
    dry_run::{scheduler_cases, scheduler_limits, shuffle_cases},
    host_monitor::{DeviceMonitor, DeviceSnapshot},
    ledger_writer::{DispatcherInbox, StopRequests, StopSource, WriteWait, commit},
    request::LaneContext,
    write_back::WriteBack,
};
use crate::{
    base::{deadline::Deadline, print::print_warning, process::end_orphans},
    cases::plan::{PlannedCase, RunPlan},
    database::ledger::{Ledger, NewRun},
    kernel::{IdentifiedCase, timestamp::Timestamp},
    measure::{device::DeviceLeases, events::RunEvent, sched::SchedulerState},
};

const LEASE_TIMEOUT: Duration = Duration::from_secs(10);

/// Executes a run. `emit` receives every event after the ledger has stored what it reports. Fails with [`EngineError`]
/// if the ledger or the database fails; results committed before are kept.
pub(crate) fn execute_run(
    request: RunRequest<'_>,
    emit: &mut dyn FnMut(&RunEvent),
) -> Result<RunOutcome, EngineError> {
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

/// Interval at which nodes that want to stop, or were lost, are noticed.
const NODE_INTERVAL: Duration = Duration::from_millis(100);

/// Registers handlers of the signals that stop a run; each signal becomes a message, also one that has set `stop` before, and
/// the first node that wants to stop.
fn forward_signals(
    stop: Option<&AtomicBool>,
    nodes: Option<SweepNodes>,
) -> Result<UnboundedReceiver<StopSource>, EngineError> {
    let register = |kind| signal(kind).map_err(EngineError::system("signal handlers"));
    let mut interrupt: Signal = register(SignalKind::interrupt())?;
    let mut terminate = register(SignalKind::terminate())?;
    // Sent when the terminal closes, such as by a lost ssh connection.
    let mut hang_up = register(SignalKind::hangup())?;
    let (sender, receiver) = mpsc::unbounded_channel();
    // A signal that both have seen counts once.
    if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
        let _ = sender.send(StopSource::Signal);
    }
    let node_sender = sender.clone();
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hang_up.recv() => {}
            }
            if sender.send(StopSource::Signal).is_err() {
                break;
            }
        }
    });
    if let Some(nodes) = nodes {
        tokio::spawn(async move {
            while !nodes.cluster.wants_stop() {
                tokio::time::sleep(NODE_INTERVAL).await;
            }
            let _ = node_sender.send(StopSource::Node);
        });
    }
    Ok(receiver)
}

async fn start_dispatcher<'a>(
    request: RunRequest<'a>,
    mut inbox: DispatcherInbox,
    emit: &'a mut dyn FnMut(&RunEvent),
    reports: &UnboundedSender<LaneReport>,
) -> Result<(Arc<LaneContext>, Dispatcher<'a>), EngineError> {
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
    // Orphans of a killed run are ended before their devices are used.
    let orphans = end_orphans(&settings.processes);
    if orphans > 0 {
        emit(&RunEvent::OrphansEnded { programs: orphans });
    }
    // Orphans release their devices within an instant. A device that another process holds is reserved until then.
    let timeout = if orphans > 0 { LEASE_TIMEOUT } else { Duration::ZERO };
    let leases = DeviceLeases::acquire(&settings.leases, &devices, timeout)?;
    let context = Arc::new(LaneContext { settings, cases: plan.cases, leases, stop });
    let lanes = Box::new(DeviceLanes::spawn(&devices, &context, reports)?);
    let has_lost_rows = !plan.unreadable_rows.is_empty() || !plan.missing_tables.is_empty();
    let store = RunStore { database, ledger, rows, predecided, production: plan.production, has_lost_rows };
    let mut dispatcher = Dispatcher::new(Arc::clone(&context), devices, lanes, state, store, inbox, emit);
    dispatcher.on_device_snapshot(&DeviceSnapshot { info, queried_at: std::time::Instant::now() }).await?;
    dispatcher.resume_measured(&measured, &resumed.measured).await?;
    Ok((context, dispatcher))
}

/// Stores the run and its plan in the ledger; a resumed run is already stored.
async fn store_plan(
    ledger: &mut Ledger,
    wait: WriteWait<'_>,
    settings: &CollectionSettings,
    plan: &RunPlan,
    host: &str,
    is_resumed: bool,
) -> Result<(), EngineError> {
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
    // With the plan in the copy, the collections of this run can be restored from their evidence. A failed copy keeps the earlier
    // one.
    if let Err(error) = ledger.write_copy() {
        print_warning(&format!("a damaged ledger could not be restored with this run: {error}"));
    }
    Ok(())
}
