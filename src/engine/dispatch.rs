//! The dispatcher: hears lanes and signals, asks the scheduler, keeps results, tells what happened.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicBool, atomic::Ordering},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use tokio::{
    runtime,
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc::{self, UnboundedReceiver},
};

use super::{
    EngineError, Settings,
    collect::Collected,
    lane::{Lane, Order, Report, Shared},
    write_back::WriteBack,
};
use crate::{
    device::Lease,
    events::Event,
    exit::Exit,
    model::{Case, Finding, KernelName, Nanos, Verdict},
    plan::{Plan, Planned, chunks},
    sched::{self, Action, State},
    store::{
        Database, Ledger, Written,
        ledger::{Attempt, DeviceReading, NewRun},
    },
};

/// Everything a run needs.
#[derive(Debug)]
pub struct Run<'a> {
    /// The database; its lock is held.
    pub database: &'a Database,
    /// Its ledger.
    pub ledger: &'a mut Ledger,
    /// What all collections share.
    pub settings: Settings,
    /// What to measure.
    pub plan: Plan,
    /// The devices to use.
    pub devices: Vec<u32>,
    /// The options in force, as JSON.
    pub options: String,
    /// Fingerprint of host and software, as JSON.
    pub host: String,
    /// What the devices said before the run.
    pub readings: Vec<DeviceReading>,
}

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// Every case with its verdict: those measured in the order of the plan, then those refused.
    pub findings: Vec<(Case, Finding)>,
    /// The exit code that says so.
    pub exit: Exit,
}

/// Carries out a run. `tell` hears every event, after the ledger has it.
///
/// # Errors
/// [`EngineError`] where the ledger or the database fails; what was committed before is kept.
pub fn run(run: Run<'_>, tell: &mut dyn FnMut(&Event)) -> Result<Outcome, EngineError> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| EngineError::System { what: "an event loop", source })?;
    runtime.block_on(async {
        let system = |source| EngineError::System { what: "signals", source };
        let signals = Signals {
            interrupt: signal(SignalKind::interrupt()).map_err(system)?,
            terminate: signal(SignalKind::terminate()).map_err(system)?,
            hang_up: signal(SignalKind::hangup()).map_err(system)?,
        };
        let (mut dispatcher, reports) = Dispatcher::begin(run, tell)?;
        dispatcher.work(reports, signals).await
    })
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// The terminal has gone away, as a lost ssh does.
    hang_up: Signal,
}

impl Signals {
    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}

struct Dispatcher<'a> {
    database: &'a Database,
    ledger: &'a mut Ledger,
    tell: &'a mut dyn FnMut(&Event),
    shared: Arc<Shared>,
    lanes: BTreeMap<u32, Lane>,
    state: State,
    rows: WriteBack,
    /// Ledger keys of running collections, by their number.
    keys: BTreeMap<u32, i64>,
    findings: Vec<Option<Finding>>,
    refused: Vec<(Case, Finding)>,
    begun: Instant,
    stop_requests: u32,
    last_stop_request: Option<Instant>,
    /// Rows that are no case.
    unreadable: usize,
    ended: bool,
}

/// Signals closer together than this are one request to stop; nobody presses Ctrl-C twice so fast.
const ONE_REQUEST: Duration = Duration::from_millis(50);
/// An orphan of a killed run may take this long to end.
const LEASE_PATIENCE: Duration = Duration::from_secs(60);

/// Nanoseconds since the epoch.
fn now() -> Nanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Nanos(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

impl<'a> Dispatcher<'a> {
    /// Keeps the plan, then starts a lane per device.
    fn begin(
        run: Run<'a>,
        tell: &'a mut dyn FnMut(&Event),
    ) -> Result<(Self, UnboundedReceiver<Report>), EngineError> {
        let Run { database, ledger, settings, plan, devices, options, host, readings } = run;
        let all: Vec<Case> = plan
            .cases
            .iter()
            .map(|p| p.case.clone())
            .chain(plan.refused.iter().map(|(c, _)| c.clone()))
            .collect();
        for place in &plan.unreadable {
            tell(&Event::RowUnreadable { place: place.clone() });
        }
        let unreadable = plan.unreadable.len();
        let new = NewRun {
            run: &settings.run,
            kind: settings.kind,
            seed: settings.seed,
            options: &options,
            host: &host,
            started: now(),
        };
        ledger.begin_run(&new, &all)?;
        ledger.add_readings(&settings.run, &readings)?;

        let mut rows = WriteBack::new(&settings.run);
        for planned in &plan.cases {
            rows.expect(&planned.case.kernel, planned.case.id());
        }
        for (kernel, cases) in &plan.unwritten {
            cases.iter().for_each(|case| rows.show(kernel, case.clone()));
        }
        let seconds: Vec<f64> =
            plan.cases.iter().map(|planned| settings.costs.seconds(planned.fastest)).collect();
        let chunks = chunks(&seconds, devices.len());
        let started = Event::RunStarted {
            run: settings.run.clone(),
            kind: settings.kind,
            cases: plan.cases.len(),
            refused: plan.refused.len(),
            already: plan.already,
            devices: devices.clone(),
            collections: chunks.len(),
        };
        tell(&started);
        let state = State::new(plan.cases.len(), chunks, &devices);
        let findings = vec![None; plan.cases.len()];
        let shared = Arc::new(Shared { settings, cases: plan.cases, stop: AtomicBool::new(false) });
        let (sender, reports) = mpsc::unbounded_channel();
        let lanes = devices
            .iter()
            .map(|&device| {
                let lease = Lease::take(&shared.settings.leases, device, LEASE_PATIENCE)?;
                Ok((device, Lane::start(device, lease, &shared, &sender)?))
            })
            .collect::<Result<_, EngineError>>()?;
        let mut dispatcher = Self {
            database,
            ledger,
            tell,
            shared,
            lanes,
            state,
            rows,
            keys: BTreeMap::new(),
            findings,
            refused: plan.refused,
            begun: Instant::now(),
            stop_requests: 0,
            last_stop_request: None,
            unreadable,
            ended: false,
        };
        dispatcher.conclude_refused()?;
        Ok((dispatcher, reports))
    }

    async fn work(
        &mut self,
        mut reports: UnboundedReceiver<Report>,
        mut signals: Signals,
    ) -> Result<Outcome, EngineError> {
        self.on_event(sched::Event::Started)?;
        while !self.ended {
            tokio::select! {
                Some(report) = reports.recv() => self.on_report(report)?,
                () = signals.next() => self.on_signal()?,
            }
        }
        self.finish()
    }

    /// Cases that end without a launch have their verdict before anything runs.
    fn conclude_refused(&mut self) -> Result<(), EngineError> {
        let verdicts: Vec<_> =
            self.refused.iter().map(|(case, finding)| (case.id(), finding.clone())).collect();
        self.ledger.set_verdicts(&self.shared.settings.run, now(), &verdicts)?;
        for (case, finding) in &self.refused {
            self.rows.conclude(&case.kernel, &case.id(), finding);
            (self.tell)(&case_finished(case, finding));
        }
        Ok(())
    }

    fn on_report(&mut self, report: Report) -> Result<(), EngineError> {
        let collected = match report.result {
            Ok(collected) => collected,
            // What a device or a folder of one collection does wrong is that collection's end, not the run's.
            Err(error @ (EngineError::Io { .. } | EngineError::Process(_) | EngineError::System { .. })) => {
                self.not_begun(&report.cases, &error)
            }
            Err(error) => return Err(error),
        };
        if let Some(key) = self.keys.remove(&report.collection) {
            self.ledger.finish_collection(key, now(), &collected.outcome, &collected.attempts)?;
        }
        let Collected { attempts, launched, outcome } = collected;
        (self.tell)(&Event::CollectionFinished {
            collection: report.collection,
            device: report.device,
            outcome: outcome.clone(),
            seconds: report.seconds,
        });
        let findings = attempts.into_iter().map(|attempt| attempt.finding);
        let results = report.cases.into_iter().zip(findings).collect();
        self.on_event(sched::Event::Finished { device: report.device, results, launched, outcome })
    }

    /// The attempts of a collection that did not come about.
    fn not_begun(&self, cases: &[usize], error: &EngineError) -> Collected {
        let finding = Finding::new(Verdict::NotRun, error.to_string());
        let attempts = cases.iter().map(|&case| Attempt {
            case: self.shared.cases[case].case.id(),
            launched: 0,
            launches: Vec::new(),
            counters: Vec::new(),
            finding: finding.clone(),
        });
        Collected { attempts: attempts.collect(), launched: false, outcome: error.to_string() }
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
        (self.tell)(&Event::StopRequested { running: self.state.running(), at_once });
        self.on_event(sched::Event::StopRequested)
    }

    fn on_event(&mut self, event: sched::Event) -> Result<(), EngineError> {
        let actions = self.state.on_event(event);
        let verdicts: Vec<_> = actions
            .iter()
            .filter_map(|action| match action {
                Action::Conclude { case, finding } => {
                    Some((self.shared.cases[*case].case.id(), finding.clone()))
                }
                _ => None,
            })
            .collect();
        if !verdicts.is_empty() {
            self.ledger.set_verdicts(&self.shared.settings.run, now(), &verdicts)?;
        }
        for action in actions {
            match action {
                Action::Start { device, collection, cases, is_retry } => {
                    self.start(device, collection, cases, is_retry)?;
                }
                Action::Conclude { case, finding } => self.conclude(case, finding)?,
                Action::End => self.ended = true,
            }
        }
        Ok(())
    }

    fn start(
        &mut self,
        device: u32,
        collection: u32,
        cases: Vec<usize>,
        is_retry: bool,
    ) -> Result<(), EngineError> {
        let key = self.ledger.begin_collection(&self.shared.settings.run, collection, device, now())?;
        self.keys.insert(collection, key);
        (self.tell)(&Event::CollectionStarted { collection, device, cases: cases.len(), is_retry });
        if let Some(lane) = self.lanes.get(&device) {
            lane.send(Order { collection, cases });
        }
        Ok(())
    }

    fn conclude(&mut self, index: usize, finding: Finding) -> Result<(), EngineError> {
        let case = self.shared.cases[index].case.clone();
        (self.tell)(&case_finished(&case, &finding));
        let is_last = self.rows.conclude(&case.kernel, &case.id(), &finding);
        self.findings[index] = Some(finding);
        if is_last { self.write_rows(&case.kernel) } else { Ok(()) }
    }

    fn write_rows(&mut self, kernel: &KernelName) -> Result<(), EngineError> {
        let written = self.rows.write(kernel, self.database, self.ledger)?;
        if written != Written::default() {
            let path = self.database.kernel_path(kernel);
            let Written { changed: rows, kept } = written;
            (self.tell)(&Event::RowsWritten { kernel: kernel.clone(), rows, kept, path });
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<Outcome, EngineError> {
        for kernel in self.rows.pending() {
            self.write_rows(&kernel)?;
        }
        let measured = self.shared.cases.iter().zip(std::mem::take(&mut self.findings));
        let findings: Vec<(Case, Finding)> = measured
            .map(|(Planned { case, .. }, finding)| {
                let open = || Finding::new(Verdict::NotRun, "the run ended before its turn");
                (case.clone(), finding.unwrap_or_else(open))
            })
            .chain(std::mem::take(&mut self.refused))
            .collect();
        let count =
            |verdict: Verdict| findings.iter().filter(|(_, finding)| finding.verdict == verdict).count();
        let exit = if self.stop_requests > 0 && count(Verdict::NotRun) > 0 {
            Exit::Interrupted
        } else if self.state.gave_up() {
            Exit::CannotMeasure
        } else if count(Verdict::Ok) == findings.len() && self.unreadable == 0 {
            Exit::Done
        } else {
            Exit::SomeNotOk
        };
        let settings = &self.shared.settings;
        self.ledger.end_run(&settings.run, now(), exit.code())?;
        let verdicts = Verdict::ALL.iter().map(|&verdict| (verdict, count(verdict)));
        (self.tell)(&Event::RunFinished {
            run: settings.run.clone(),
            verdicts: verdicts.filter(|(_, count)| *count > 0).collect(),
            seconds: self.begun.elapsed().as_secs_f64(),
            folder: settings.folder.clone(),
        });
        Ok(Outcome { findings, exit })
    }
}

impl Drop for Dispatcher<'_> {
    /// Where the run fails, collections that are still running must not keep it waiting.
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

fn case_finished(case: &Case, finding: &Finding) -> Event {
    Event::CaseFinished {
        case: case.id(),
        kernel: case.kernel.clone(),
        shapes: case.shapes(),
        finding: finding.clone(),
    }
}
