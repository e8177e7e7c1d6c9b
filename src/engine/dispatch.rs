//! The dispatcher: hears lanes and signals, asks the scheduler, keeps results, tells what happened.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use tokio::{sync::mpsc::UnboundedSender, time};

use super::{
    EngineError,
    collect::CollectionResult,
    device_monitor::DeviceMonitor,
    host_monitor::{HostChange, HostMonitor},
    lane::{DeviceLane, LaneContext, LaneReport},
    run::{DispatcherInbox, RunOutcome, now},
    write_back::WriteBack,
};
use crate::{
    database::{Database, WriteBackReport},
    domain::{Attempt, CaseOutcome, CollectionPurpose, IdentifiedCase, KernelName, Verdict},
    events::RunEvent,
    exit::ExitStatus,
    ledger::{DeviceReading, Ledger, NewCollection},
    plan::PlannedCase,
    profile::npu_smi::{NpuChip, NpuSmiInfo},
    sched::{
        self, CaseResult, CollectionExit, CollectionFinished, SchedAction, SchedulerState, Seconds,
        StartCollection,
    },
};

/// Signals closer together than this are one request to stop; nobody presses Ctrl-C twice so fast.
const ONE_REQUEST: Duration = Duration::from_millis(50);
/// How often the dispatcher looks whether the disk is full or a device is asked for.
const TICK: Duration = Duration::from_millis(500);

/// What a run writes into, and what it has to write.
pub(super) struct RunStore<'a> {
    pub(super) database: &'a Database,
    pub(super) ledger: &'a mut Ledger,
    pub(super) rows: WriteBack,
    /// Cases that have their verdict without another launch.
    pub(super) settled: Vec<(IdentifiedCase, CaseOutcome)>,
    /// Rows that are no case.
    pub(super) unreadable: usize,
}

pub(super) struct Dispatcher<'a> {
    keeper: RunStore<'a>,
    tell: &'a mut dyn FnMut(&RunEvent),
    shared: Arc<LaneContext>,
    lanes: BTreeMap<u32, DeviceLane>,
    state: SchedulerState,
    watch: HostMonitor,
    /// Ledger keys of running collections, by their number.
    keys: BTreeMap<u32, i64>,
    findings: Vec<Option<CaseOutcome>>,
    begun: Instant,
    wakes_at: Option<Seconds>,
    stop_requests: u32,
    last_stop_request: Option<Instant>,
    ended: bool,
}

impl<'a> Dispatcher<'a> {
    pub(super) fn new(
        shared: Arc<LaneContext>,
        lanes: BTreeMap<u32, DeviceLane>,
        state: SchedulerState,
        keeper: RunStore<'a>,
        tell: &'a mut dyn FnMut(&RunEvent),
    ) -> Self {
        let devices = lanes.keys().copied().collect();
        Self {
            watch: HostMonitor::new(keeper.database, &shared.settings, devices),
            keeper,
            tell,
            findings: vec![None; shared.cases.len()],
            shared,
            lanes,
            state,
            keys: BTreeMap::new(),
            begun: Instant::now(),
            wakes_at: None,
            stop_requests: 0,
            last_stop_request: None,
            ended: false,
        }
    }

    /// Seconds since the run began.
    fn now(&self) -> Seconds {
        self.begun.elapsed().as_secs_f64()
    }

    pub(super) async fn work(&mut self, inbox: DispatcherInbox) -> Result<RunOutcome, EngineError> {
        let DispatcherInbox { mut reports, mut sights, mut signals } = inbox;
        self.poll_host()?;
        self.on_event(sched::SchedEvent::Started)?;
        let mut ticks = time::interval(TICK);
        ticks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        while !self.ended {
            tokio::select! {
                Some(report) = reports.recv() => self.on_report(report)?,
                Some(info) = sights.recv() => self.on_device_snapshot(&info)?,
                () = signals.next() => self.on_signal()?,
                _ = ticks.tick() => self.on_tick()?,
            }
        }
        self.finish()
    }

    /// Has the host's devices looked at while the run goes on.
    pub(super) fn post_sentry(
        &self,
        sights: UnboundedSender<NpuSmiInfo>,
    ) -> Result<DeviceMonitor, EngineError> {
        DeviceMonitor::start(&self.shared, sights)
    }

    /// Keeps what the devices say of themselves, and looks who uses them.
    pub(super) fn on_device_snapshot(&mut self, info: &NpuSmiInfo) -> Result<(), EngineError> {
        let chips = info.chips.iter().filter(|chip| self.lanes.contains_key(&chip.device));
        let readings: Vec<DeviceReading> = chips.map(reading).collect();
        self.keeper.ledger.add_readings(&self.shared.settings.run, &readings)?;
        for reading in readings {
            (self.tell)(&RunEvent::DeviceRead {
                device: reading.device,
                health: reading.health,
                temperature_c: reading.temperature,
                power_w: reading.power,
                memory_used_mb: reading.memory_used_mb,
            });
        }
        let busy = self.state.busy_devices();
        self.watch.update(info, &busy);
        Ok(())
    }

    fn on_tick(&mut self) -> Result<(), EngineError> {
        self.poll_host()?;
        if self.wakes_at.is_some_and(|at| at <= self.now()) {
            self.wakes_at = None;
            self.on_event(sched::SchedEvent::Woke)?;
        }
        Ok(())
    }

    /// Tells the scheduler what others have done to the disk and the devices.
    fn poll_host(&mut self) -> Result<(), EngineError> {
        for change in self.watch.poll(self.state.running()) {
            let HostChange { event, said } = change;
            (self.tell)(&said);
            self.on_event(event)?;
        }
        Ok(())
    }

    /// Cases that end without another launch have their verdict before anything runs.
    pub(super) fn finish_predecided(&mut self) -> Result<(), EngineError> {
        let settled = &self.keeper.settled;
        let verdicts: Vec<_> =
            settled.iter().map(|(case, finding)| (case.id().clone(), finding.clone())).collect();
        self.keeper.ledger.set_verdicts(&self.shared.settings.run, now(), &verdicts)?;
        for (case, finding) in settled {
            self.keeper.rows.conclude(&case.kernel, case.id(), finding);
            (self.tell)(&case_finished(case, finding));
        }
        Ok(())
    }

    fn on_report(&mut self, report: LaneReport) -> Result<(), EngineError> {
        let LaneReport { start, seconds, result } = report;
        let collected = match result {
            Ok(collected) => collected,
            // What a device or a folder of one collection does wrong is that collection's end, not the run's.
            Err(error @ (EngineError::Io { .. } | EngineError::Process(_) | EngineError::System { .. })) => {
                self.failed_to_start(&start.cases, &error)
            }
            Err(error) => return Err(error),
        };
        let CollectionResult { attempts, seconds: each, start: until_started, end, outcome } = collected;
        if let Some(key) = self.keys.remove(&start.collection) {
            // Controls say something of the device; their cases have their samples already.
            let kept = if start.purpose == CollectionPurpose::Control { &[] } else { attempts.as_slice() };
            self.keeper.ledger.finish_collection(key, now(), &outcome, kept)?;
            for Attempt { case, finding, .. } in kept {
                (self.tell)(&RunEvent::CaseAttempted {
                    case: case.clone(),
                    collection: start.collection,
                    finding: finding.clone(),
                });
            }
        }
        (self.tell)(&RunEvent::CollectionFinished {
            collection: start.collection,
            devices: start.devices,
            purpose: start.purpose,
            outcome: outcome.clone(),
            seconds,
        });
        let results = start.cases.into_iter().zip(attempts).zip(each);
        let results =
            results.map(|((case, attempt), seconds)| CaseResult { case, finding: attempt.finding, seconds });
        self.on_event(sched::SchedEvent::Finished(CollectionFinished {
            collection: start.collection,
            results: results.collect(),
            end,
            start: until_started,
            total: seconds,
            outcome,
        }))?;
        let sched::RunForecast { open, in_time, seconds } = self.state.forecast(self.now());
        (self.tell)(&RunEvent::Progress { open, in_time, seconds });
        Ok(())
    }

    /// The attempts of a collection that did not come about.
    fn failed_to_start(&self, cases: &[usize], error: &EngineError) -> CollectionResult {
        let finding = CaseOutcome::new(Verdict::NotRun, error.to_string());
        let attempts = cases.iter().map(|&case| Attempt {
            case: self.shared.cases[case].case.id().clone(),
            launched: 0,
            launches: Vec::new(),
            counters: Vec::new(),
            finding: finding.clone(),
        });
        CollectionResult {
            attempts: attempts.collect(),
            seconds: vec![None; cases.len()],
            start: None,
            end: CollectionExit::NothingLaunched,
            outcome: error.to_string(),
        }
    }

    fn on_signal(&mut self) -> Result<(), EngineError> {
        // `timeout` and some terminals signal the process and its group: that is one request.
        let before = self.last_stop_request.replace(Instant::now());
        if before.is_some_and(|before| before.elapsed() < ONE_REQUEST) {
            return Ok(());
        }
        self.stop_requests += 1;
        let at_once = self.stop_requests > 1;
        if at_once {
            self.shared.stop.store(true, Ordering::Relaxed);
        }
        (self.tell)(&RunEvent::StopRequested { running: self.state.running(), at_once });
        self.on_event(sched::SchedEvent::StopRequested)
    }

    fn on_event(&mut self, event: sched::SchedEvent) -> Result<(), EngineError> {
        let actions = self.state.on_event(self.now(), event);
        let verdicts = actions.iter().filter_map(|action| match action {
            SchedAction::Conclude { case, finding } => {
                Some((self.shared.cases[*case].case.id().clone(), finding.clone()))
            }
            _ => None,
        });
        let verdicts: Vec<_> = verdicts.collect();
        if !verdicts.is_empty() {
            self.keeper.ledger.set_verdicts(&self.shared.settings.run, now(), &verdicts)?;
        }
        for action in actions {
            match action {
                SchedAction::Start(start) => self.start(start)?,
                SchedAction::Conclude { case, finding } => self.conclude(case, finding)?,
                SchedAction::Quarantine { device, reason, until } => {
                    let again_in = until.map(|until| until - self.now());
                    (self.tell)(&RunEvent::DeviceSetAside { device, reason, again_in });
                }
                SchedAction::Readmit { device } => (self.tell)(&RunEvent::DeviceTakenBack { device }),
                SchedAction::WakeAt(at) => self.wakes_at = Some(at),
                SchedAction::End => self.ended = true,
            }
        }
        Ok(())
    }

    fn start(&mut self, start: StartCollection) -> Result<(), EngineError> {
        let new = NewCollection {
            run: &self.shared.settings.run,
            number: start.collection,
            devices: &start.devices,
            purpose: start.purpose,
            predicted: start.predicted,
            started: now(),
        };
        let key = self.keeper.ledger.begin_collection(&new)?;
        self.keys.insert(start.collection, key);
        let case = match start.cases.as_slice() {
            [case] => Some(self.shared.cases[*case].case.id().clone()),
            _ => None,
        };
        let kernels = start.cases.iter().map(|case| &self.shared.cases[*case].case.kernel);
        let kernels: BTreeSet<&KernelName> = kernels.collect();
        (self.tell)(&RunEvent::CollectionStarted {
            collection: start.collection,
            devices: start.devices.clone(),
            cases: start.cases.len(),
            case,
            kernels: kernels.into_iter().cloned().collect(),
            purpose: start.purpose,
            predicted: start.predicted,
        });
        let lane = start.devices.first().and_then(|device| self.lanes.get(device));
        if let Some(lane) = lane {
            lane.send(start);
        }
        Ok(())
    }

    fn conclude(&mut self, index: usize, finding: CaseOutcome) -> Result<(), EngineError> {
        let case = self.shared.cases[index].case.clone();
        (self.tell)(&case_finished(&case, &finding));
        let is_last = self.keeper.rows.conclude(&case.kernel, case.id(), &finding);
        self.findings[index] = Some(finding);
        if is_last { self.write_rows(&case.kernel) } else { Ok(()) }
    }

    fn write_rows(&mut self, kernel: &KernelName) -> Result<(), EngineError> {
        let RunStore { database, ledger, rows, .. } = &mut self.keeper;
        let written = rows.write(kernel, database, ledger)?;
        if written != WriteBackReport::default() {
            let path = database.kernel_path(kernel);
            let WriteBackReport { changed: rows, kept } = written;
            (self.tell)(&RunEvent::RowsWritten { kernel: kernel.clone(), rows, kept, path });
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<RunOutcome, EngineError> {
        for kernel in self.keeper.rows.pending() {
            self.write_rows(&kernel)?;
        }
        let measured = self.shared.cases.iter().zip(std::mem::take(&mut self.findings));
        let findings: Vec<(IdentifiedCase, CaseOutcome)> = measured
            .map(|(PlannedCase { case, .. }, finding)| {
                let open = || CaseOutcome::new(Verdict::NotRun, "the run ended before its turn");
                (case.clone(), finding.unwrap_or_else(open))
            })
            .chain(std::mem::take(&mut self.keeper.settled))
            .collect();
        let count =
            |verdict: Verdict| findings.iter().filter(|(_, finding)| finding.verdict == verdict).count();
        let exit = if self.stop_requests > 0 && count(Verdict::NotRun) > 0 {
            ExitStatus::Interrupted
        } else if self.state.gave_up() {
            ExitStatus::CannotMeasure
        } else if count(Verdict::Ok) == findings.len() && self.keeper.unreadable == 0 {
            ExitStatus::Done
        } else {
            ExitStatus::SomeNotOk
        };
        let settings = &self.shared.settings;
        self.keeper.ledger.end_run(&settings.run, now(), exit.code())?;
        let verdicts = Verdict::ALL.iter().map(|&verdict| (verdict, count(verdict)));
        (self.tell)(&RunEvent::RunFinished {
            run: settings.run.clone(),
            verdicts: verdicts.filter(|(_, count)| *count > 0).collect(),
            seconds: self.begun.elapsed().as_secs_f64(),
            folder: settings.folder.clone(),
        });
        Ok(RunOutcome { findings, exit })
    }
}

impl Drop for Dispatcher<'_> {
    /// Where the run fails, collections that are still running must not keep it waiting.
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

fn reading(chip: &NpuChip) -> DeviceReading {
    DeviceReading {
        device: chip.device,
        at: now(),
        health: chip.health.clone(),
        temperature: chip.temperature_c,
        power: chip.power_w,
        memory_used_mb: chip.memory_used_mb,
    }
}

fn case_finished(case: &IdentifiedCase, finding: &CaseOutcome) -> RunEvent {
    RunEvent::CaseFinished {
        case: case.id().clone(),
        kernel: case.kernel.clone(),
        shapes: case.shapes(),
        finding: finding.clone(),
    }
}
