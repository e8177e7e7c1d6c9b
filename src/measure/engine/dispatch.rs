//! The dispatcher: passes reports, device readings, timers and stop requests to the scheduler, carries out its actions,
//! stores results in the ledger, writes rows and emits events.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::time::{self, Instant};

use super::{
    EngineError, Result, RunOutcome,
    collect::{CollectionResult, DiskFailures, LaneReport},
    host_monitor::{DeviceSnapshot, HostMonitor, device_reading},
    run::{DispatcherInbox, LaneContext, WriteWait, commit},
    write_back::{EqualCallOutcomes, WriteBack},
};
use crate::{
    base::exit::ExitStatus,
    database::{
        Database, DatabaseError, WriteBackReport,
        ledger::{DeviceReading, Ledger, LedgerError, NewCollection},
    },
    kernel::{
        Attempt, CaseId, CaseOutcome, Cause, CollectionPurpose, IdentifiedCase, KernelName, Nanos, Verdict,
        timestamp::Timestamp,
    },
    measure::{
        events::RunEvent,
        evidence::LedgerComparison,
        sched::{
            CaseResult, CollectionExit, CollectionFinished, KernelCounts, RunForecast, SchedAction,
            SchedEvent, SchedulerState, Seconds, StartCollection,
        },
    },
};

mod rounds;

const TICK: Duration = Duration::from_millis(500);
/// Interval at which rows of kernels with open cases are written, so that a user sees results during a long run.
const WRITE_INTERVAL: Duration = Duration::from_secs(60);

pub(super) struct RunStore<'a> {
    pub(super) database: &'a Database,
    pub(super) ledger: &'a mut Ledger,
    pub(super) rows: WriteBack,
    pub(super) predecided: Vec<(IdentifiedCase, CaseOutcome)>,
    pub(super) production: BTreeMap<CaseId, Nanos>,
    /// True if rows of the database cannot be read or their table is missing, so that they are not measured.
    pub(super) has_lost_rows: bool,
}

pub(super) struct Dispatcher<'a> {
    store: RunStore<'a>,
    inbox: DispatcherInbox,
    emit: &'a mut dyn FnMut(&RunEvent),
    context: Arc<LaneContext>,
    devices: Vec<u32>,
    lanes: Box<dyn Fn(StartCollection) + 'a>,
    state: SchedulerState,
    host_monitor: HostMonitor,
    disk_failures: DiskFailures,
    ledger_keys: BTreeMap<u32, i64>,
    released_at: BTreeMap<u32, std::time::Instant>,
    outcomes: Vec<Option<CaseOutcome>>,
    equal_calls: EqualCallOutcomes,
    /// Kernels with rows that keep an earlier measurement, each reported once.
    kept: BTreeSet<KernelName>,
    has_written_rows: bool,
    unwritten: BTreeMap<KernelName, String>,
    lacks_space: bool,
    rows_written_at: Instant,
    started: Instant,
    timer_at: Option<Seconds>,
    /// Number of the round: all cases are measured in the first, cases with wide intervals in further ones.
    round: u32,
    measured_before: BTreeSet<usize>,
    failed_again: BTreeSet<usize>,
    stopped_again: BTreeSet<usize>,
    throttled_again: BTreeSet<usize>,
    has_round_ended: bool,
    is_finished: bool,
}

impl<'a> Dispatcher<'a> {
    pub(super) fn new(
        context: Arc<LaneContext>,
        devices: Vec<u32>,
        lanes: Box<dyn Fn(StartCollection) + 'a>,
        state: SchedulerState,
        store: RunStore<'a>,
        inbox: DispatcherInbox,
        emit: &'a mut dyn FnMut(&RunEvent),
    ) -> Self {
        Self {
            host_monitor: HostMonitor::new(store.database, &context.settings, devices.clone()),
            disk_failures: DiskFailures::default(),
            store,
            inbox,
            emit,
            outcomes: vec![None; context.cases.len()],
            equal_calls: EqualCallOutcomes::default(),
            context,
            devices,
            lanes,
            state,
            ledger_keys: BTreeMap::new(),
            released_at: BTreeMap::new(),
            kept: BTreeSet::new(),
            has_written_rows: false,
            unwritten: BTreeMap::new(),
            lacks_space: false,
            rows_written_at: Instant::now(),
            started: Instant::now(),
            timer_at: None,
            round: 1,
            measured_before: BTreeSet::new(),
            failed_again: BTreeSet::new(),
            stopped_again: BTreeSet::new(),
            throttled_again: BTreeSet::new(),
            has_round_ended: false,
            is_finished: false,
        }
    }

    fn elapsed(&self) -> Seconds {
        self.started.elapsed().as_secs_f64()
    }

    async fn commit<T>(&mut self, write: impl FnMut(&mut Ledger) -> Result<T, LedgerError>) -> Result<T> {
        let (stop, running) = (&self.context.stop, self.ledger_keys.len());
        let wait = WriteWait { stop, inbox: &mut self.inbox, running, emit: &mut *self.emit };
        let (value, has_lacked_space) = commit(self.store.ledger, wait, write).await?;
        if has_lacked_space {
            self.host_monitor.report_full_disk();
        }
        Ok(value)
    }

    pub(super) async fn run_to_end(&mut self) -> Result<RunOutcome> {
        self.judge_earlier_clocks().await?;
        let predecided = self.store.predecided.clone();
        self.finish_without_launch(&predecided).await?;
        self.poll_host().await?;
        self.on_event(SchedEvent::Started).await?;
        let mut ticks = time::interval(TICK);
        ticks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        while !self.is_finished {
            if std::mem::take(&mut self.has_round_ended) {
                self.start_next_round().await?;
                continue;
            }
            // A request that arrived while a transaction waited has been reported already.
            if self.inbox.stops.take_unhandled() {
                self.on_event(SchedEvent::StopRequested).await?;
                continue;
            }
            tokio::select! {
                Some(report) = self.inbox.reports.recv() => self.on_report(report).await?,
                Some(snapshot) = self.inbox.snapshots.recv() => self.on_device_snapshot(&snapshot).await?,
                at_once = self.inbox.stops.next() => self.report_stop_request(at_once),
                _ = ticks.tick() => self.on_tick().await?,
            }
        }
        self.finish_run().await
    }

    pub(super) async fn on_device_snapshot(&mut self, snapshot: &DeviceSnapshot) -> Result<()> {
        let DeviceSnapshot { info, queried_at } = snapshot;
        let chips = info.chips.iter().filter(|chip| self.devices.contains(&chip.physical_id));
        let readings: Vec<DeviceReading> = chips.map(device_reading).collect();
        let context = Arc::clone(&self.context);
        self.commit(|ledger| ledger.add_readings(&context.settings.run, &readings)).await?;
        for reading in readings {
            (self.emit)(&RunEvent::DeviceRead {
                device: reading.device,
                health: reading.health,
                temperature_c: reading.temperature,
                power_w: reading.power,
                memory_used_mb: reading.memory_used_mb,
            });
        }
        // Processes of a collection that has ended since the query are in its output, too.
        let mut busy = self.state.busy_devices();
        busy.extend(self.released_at.iter().filter(|(_, at)| *at >= queried_at).map(|(device, _)| *device));
        self.host_monitor.update_devices(info, &busy);
        Ok(())
    }

    async fn on_tick(&mut self) -> Result<()> {
        self.poll_host().await?;
        if self.rows_written_at.elapsed() >= WRITE_INTERVAL {
            self.write_pending_rows()?;
        }
        if self.timer_at.is_some_and(|at| at <= self.elapsed()) {
            self.timer_at = None;
            self.on_event(SchedEvent::TimerFired).await?;
        }
        Ok(())
    }

    async fn poll_host(&mut self) -> Result<()> {
        let running = self.state.running_collections();
        let changes = self.host_monitor.poll_changes(running, &self.context.leases);
        changes.run_events.iter().for_each(|event| (self.emit)(event));
        let has_changed = !changes.sched_events.is_empty();
        for event in changes.sched_events {
            self.on_event(event).await?;
        }
        if has_changed {
            self.emit_progress();
        }
        Ok(())
    }

    fn emit_progress(&mut self) {
        let RunForecast { open, in_time, seconds } = self.state.forecast(self.elapsed());
        (self.emit)(&RunEvent::Progress { open, in_time, seconds });
    }

    async fn finish_without_launch(&mut self, cases: &[(IdentifiedCase, CaseOutcome)]) -> Result<()> {
        self.set_verdicts(&verdicts_of(cases)).await?;
        for (case, outcome) in cases {
            self.store.rows.finish_case(&case.kernel, case.id(), outcome);
            (self.emit)(&case_finished(case, outcome));
        }
        Ok(())
    }

    async fn set_verdicts(&mut self, verdicts: &[(CaseId, CaseOutcome)]) -> Result<()> {
        let context = Arc::clone(&self.context);
        self.commit(|ledger| ledger.set_verdicts(&context.settings.run, Timestamp::now().0, verdicts)).await
    }

    async fn on_report(&mut self, report: LaneReport) -> Result<()> {
        let LaneReport { start, seconds, result } = report;
        let now = std::time::Instant::now();
        self.released_at.extend(start.devices.iter().map(|&device| (device, now)));
        let mut result = match result {
            Ok(result) => result,
            // An error of one device or one folder ends that collection, not the run.
            Err(error @ (EngineError::Io { .. } | EngineError::Process(_) | EngineError::System { .. })) => {
                if error.is_disk_full() {
                    self.host_monitor.report_full_disk();
                }
                self.failed_to_start(&start, &error)
            }
            Err(error) => return Err(error),
        };
        // The disk may be full since the last tick; no collection is started before there is space.
        self.poll_host().await?;
        if self.host_monitor.was_full_within(Duration::try_from_secs_f64(seconds).unwrap_or_default()) {
            self.disk_failures.excuse(&start.cases, &mut result);
        }
        let mut attempts = std::mem::take(&mut result.attempts);
        let message = &result.end.message;
        if let Some(key) = self.ledger_keys.remove(&start.collection) {
            // Control collections test the device; their cases have samples already.
            let stored =
                if start.purpose == CollectionPurpose::Control { &mut [] } else { attempts.as_mut_slice() };
            self.commit(|ledger| {
                ledger.set_controls(key, &result.controls)?;
                // Before the results: results without the digest of their evidence could never be compared with it.
                result.archive.as_ref().map_or(Ok(()), |digest| ledger.set_archive(key, digest))?;
                ledger.finish_collection(key, Timestamp::now().0, message, &result.software, stored)
            })
            .await?;
            self.judge_clocks(key, stored).await?;
            for Attempt { case, outcome, .. } in stored.iter().flat_map(Attempt::with_equal_calls) {
                (self.emit)(&RunEvent::CaseAttempted {
                    case: case.clone(),
                    collection: start.collection,
                    outcome: outcome.clone(),
                });
            }
            self.equal_calls.add_attempts(stored, &mut self.store.rows);
        }
        let mut verdicts: BTreeMap<Verdict, usize> = BTreeMap::new();
        attempts.iter().for_each(|attempt| *verdicts.entry(attempt.outcome.verdict).or_default() += 1);
        tracing::info!(collection = start.collection, %message, ?verdicts, "collection stored");
        (self.emit)(&RunEvent::CollectionFinished {
            collection: start.collection,
            devices: start.devices,
            purpose: start.purpose,
            outcome: message.clone(),
            seconds,
        });
        let results = start.cases.into_iter().zip(attempts).zip(result.seconds);
        let results =
            results.map(|((case, attempt), seconds)| CaseResult { case, outcome: attempt.outcome, seconds });
        let end = CollectionFinished { results: results.collect(), total: seconds, ..result.end };
        self.on_event(SchedEvent::Finished(end)).await?;
        self.emit_progress();
        Ok(())
    }

    fn failed_to_start(&self, start: &StartCollection, error: &EngineError) -> CollectionResult {
        let outcome = CaseOutcome::new(Verdict::NotRun, Cause::NotStarted { message: error.to_string() });
        let attempts = start.cases.iter().map(|&case| {
            Attempt::without_launches(self.context.cases[case].case.id().clone(), 0, outcome.clone())
        });
        CollectionResult {
            attempts: attempts.collect(),
            seconds: vec![None; start.cases.len()],
            end: CollectionFinished {
                collection: start.collection,
                exit: CollectionExit::NothingLaunched,
                message: error.to_string(),
                ..CollectionFinished::default()
            },
            software: self.context.settings.host_software.read_fingerprint(),
            controls: Vec::new(),
            archive: None,
        }
    }

    /// Stops new collections at the first request, and ends running ones at the second.
    fn report_stop_request(&mut self, at_once: bool) {
        if at_once {
            self.context.stop.store(true, Ordering::Relaxed);
        }
        (self.emit)(&RunEvent::StopRequested { running: self.state.running_collections(), at_once });
    }

    async fn on_event(&mut self, event: SchedEvent) -> Result<()> {
        let now = self.elapsed();
        tracing::debug!(now, ?event, "scheduler");
        let actions = self.state.on_event(now, event);
        actions.iter().for_each(|action| tracing::info!(now, ?action, "scheduler"));
        let mut concluded = Vec::new();
        for action in &actions {
            if let SchedAction::Conclude { case, outcome } = action {
                concluded.push(self.conclude_case(*case, outcome));
            }
        }
        let verdicts = verdicts_of(concluded.iter().flatten());
        if !verdicts.is_empty() {
            self.set_verdicts(&verdicts).await?;
        }
        let mut concluded = concluded.into_iter();
        for action in actions {
            match action {
                SchedAction::Start(start) => self.start_collection(start).await?,
                SchedAction::Conclude { .. } => {
                    self.report_concluded(concluded.next().unwrap_or_default())?;
                }
                SchedAction::Pause { device, reason, until } => {
                    let retry_in_s = until.map(|until| until - self.elapsed());
                    (self.emit)(&RunEvent::DevicePaused { device, reason, retry_in_s });
                }
                SchedAction::Readmit { device } => (self.emit)(&RunEvent::DeviceReadmitted { device }),
                SchedAction::SetTimer(at) => self.timer_at = Some(at),
                SchedAction::Finish => self.has_round_ended = true,
            }
        }
        Ok(())
    }

    async fn start_collection(&mut self, start: StartCollection) -> Result<()> {
        let context = Arc::clone(&self.context);
        let new = NewCollection {
            cache: self.context.settings.options.cache,
            run: &context.settings.run,
            number: start.collection,
            devices: &start.devices,
            purpose: start.purpose,
            predicted: start.predicted,
            started: Timestamp::now().0,
        };
        let key = self.commit(|ledger| ledger.begin_collection(&new)).await?;
        self.ledger_keys.insert(start.collection, key);
        let case = match start.cases.as_slice() {
            [case] => Some(self.context.cases[*case].case.id().clone()),
            _ => None,
        };
        let kernels = start.cases.iter().map(|case| &self.context.cases[*case].case.kernel);
        let kernels: BTreeSet<&KernelName> = kernels.collect();
        (self.emit)(&RunEvent::CollectionStarted {
            collection: start.collection,
            devices: start.devices.clone(),
            cases: start.cases.len(),
            case,
            kernels: kernels.into_iter().cloned().collect(),
            purpose: start.purpose,
            predicted_s: start.predicted,
        });
        (self.lanes)(start);
        Ok(())
    }

    /// Sets the outcome of a planned case; returns the new outcomes of it and its equal cases, without it if it keeps an earlier verdict.
    fn conclude_case(&mut self, index: usize, outcome: &CaseOutcome) -> Vec<(IdentifiedCase, CaseOutcome)> {
        let is_kept = self.keeps_verdict(index, outcome);
        let planned = &self.context.cases[index];
        let mut cases = self.equal_calls.outcomes_of(planned, outcome);
        if is_kept {
            cases.retain(|(case, _)| self.equal_calls.reopened.contains(case.id()));
        } else {
            cases.insert(0, (planned.case.clone(), outcome.clone()));
            self.outcomes[index] = Some(outcome.clone());
        }
        cases
    }

    fn report_concluded(&mut self, cases: Vec<(IdentifiedCase, CaseOutcome)>) -> Result<()> {
        for (case, outcome) in cases {
            self.equal_calls.reopened.remove(case.id());
            (self.emit)(&case_finished(&case, &outcome));
            if self.store.rows.finish_case(&case.kernel, case.id(), &outcome) {
                self.write_rows(&case.kernel)?;
            }
        }
        Ok(())
    }

    /// A table that cannot be written does not end the run: its results are in the ledger, and it is tried again later.
    fn write_rows(&mut self, kernel: &KernelName) -> Result<()> {
        let RunStore { database, ledger, rows, .. } = &mut self.store;
        let path = database.kernel_path(kernel);
        let report = match rows.write_kernel(kernel, database, ledger) {
            Ok(report) => report,
            Err(error) if is_temporary(&error) => {
                self.lacks_space |= error.is_disk_full();
                self.report_unwritten(kernel, path, error.to_string());
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let WriteBackReport { changed: rows, kept, missing } = report;
        tracing::info!(%kernel, rows, kept, missing, "rows written");
        self.has_written_rows |= rows > 0;
        if rows > 0 || (kept > 0 && self.kept.insert(kernel.clone())) {
            (self.emit)(&RunEvent::RowsWritten { kernel: kernel.clone(), rows, kept, path: path.clone() });
        }
        if missing > 0 {
            let problem = format!("`{}` has no row of {missing} of the cases", path.display());
            self.report_unwritten(kernel, path, format!("{problem} that the run measured"));
        } else {
            self.unwritten.remove(kernel);
        }
        Ok(())
    }

    fn report_unwritten(&mut self, kernel: &KernelName, path: PathBuf, problem: String) {
        if self.unwritten.get(kernel) != Some(&problem) {
            self.unwritten.insert(kernel.clone(), problem.clone());
            (self.emit)(&RunEvent::RowsNotWritten { kernel: kernel.clone(), path, problem });
        }
    }

    fn write_pending_rows(&mut self) -> Result<()> {
        self.rows_written_at = Instant::now();
        self.lacks_space = false;
        self.store.rows.pending_kernels().iter().try_for_each(|kernel| self.write_rows(kernel))
    }

    async fn write_last_rows(&mut self) -> Result<()> {
        loop {
            self.write_pending_rows()?;
            if !self.lacks_space {
                return Ok(());
            }
            let (stop, inbox) = (&self.context.stop, &mut self.inbox);
            let mut wait = WriteWait { stop, inbox, running: 0, emit: &mut *self.emit };
            if !wait.wait_for_retry().await {
                return Ok(());
            }
        }
    }

    async fn finish_run(&mut self) -> Result<RunOutcome> {
        self.write_last_rows().await?;
        // A second pass has the estimates of all collections, and finds tables that were replaced, damaged or deleted since
        // their rows were written.
        let (database, cache) = (self.store.database, self.context.settings.options.cache);
        let ledger = self.commit(|ledger| LedgerComparison::read(ledger, database, cache)).await?;
        let settled = self.settle_row_verdicts(&ledger).await?;
        let imprecise = self.report_precision(&ledger.rows.estimates);
        self.store.rows.reopen_written(ledger);
        let (cases, open) = self.store.rows.add_outdated(self.store.database);
        if cases > 0 {
            (self.emit)(&RunEvent::EarlierResultsSuspicious { cases, open, cache });
        }
        self.write_last_rows().await?;
        for (device, KernelCounts { right, wrong }) in self.state.wrong_kernel_devices() {
            (self.emit)(&RunEvent::DeviceRunsOtherKernels { device, wrong, right });
        }
        let planned = self.context.cases.iter().zip(std::mem::take(&mut self.outcomes));
        let mut outcomes: Vec<(IdentifiedCase, CaseOutcome)> = Vec::new();
        // Settled cases, such as those that an interrupted run measured, are no evidence that the host can measure now.
        let mut has_measured = false;
        for (index, (planned, outcome)) in planned.enumerate() {
            let outcome = outcome.unwrap_or_else(|| CaseOutcome::new(Verdict::NotRun, Cause::RunEnded));
            let mut of_call = self.equal_calls.outcomes_of(planned, &outcome);
            of_call.insert(0, (planned.case.clone(), outcome));
            let mut verdicts = of_call.iter().map(|(_, outcome)| outcome.verdict);
            has_measured |= !self.measured_before.contains(&index)
                && verdicts.any(|verdict| verdict.is_recorded() || verdict.is_done());
            outcomes.extend(of_call);
        }
        outcomes.extend(std::mem::take(&mut self.store.predecided));
        let mut counts: BTreeMap<Verdict, usize> = BTreeMap::new();
        for (case, outcome) in &mut outcomes {
            if let Some(judged) = settled.get(case.id()) {
                *outcome = judged.clone();
            }
            *counts.entry(outcome.verdict).or_default() += 1;
        }
        let context = Arc::clone(&self.context);
        let settings = &context.settings;
        // Cases that are not planned: the kernels as which planned calls ran.
        let unplanned = self.commit(|ledger| ledger.unplanned_verdicts(&settings.run)).await?;
        let mut verdicts = counts.keys().chain(&unplanned);
        let has_failed = verdicts.any(|verdict| settings.options.failing.contains(*verdict));
        let not_run = counts.get(&Verdict::NotRun).copied().unwrap_or_default();
        let open = not_run + imprecise + self.stopped_again.len();
        let exit = if self.inbox.stops.has_any() && open > 0 {
            ExitStatus::Interrupted
        } else if self.state.gave_up() && !has_measured {
            ExitStatus::CannotMeasure
        } else if has_failed || self.store.has_lost_rows || !self.unwritten.is_empty() {
            ExitStatus::SomeNotOk
        } else {
            ExitStatus::Done
        };
        self.commit(|ledger| ledger.end_run(&settings.run, Timestamp::now().0, exit.code())).await?;
        let seconds = self.started.elapsed().as_secs_f64();
        (self.emit)(&RunEvent::RunFinished {
            run: settings.run.clone(),
            verdicts: counts.into_iter().collect(),
            seconds,
            folder: settings.folder.clone(),
        });
        Ok(RunOutcome {
            outcomes,
            exit,
            is_stopped: self.inbox.stops.has_any(),
            has_written_rows: self.has_written_rows,
            unwritten: std::mem::take(&mut self.unwritten).into_keys().collect(),
        })
    }
}

impl Drop for Dispatcher<'_> {
    fn drop(&mut self) {
        self.context.stop.store(true, Ordering::Relaxed);
    }
}

fn is_temporary(error: &EngineError) -> bool {
    match error {
        EngineError::Database(DatabaseError::Ledger(error)) | EngineError::Ledger(error) => {
            error.is_temporary()
        }
        EngineError::Database(_) => true,
        _ => false,
    }
}

fn verdicts_of<'a>(
    cases: impl IntoIterator<Item = &'a (IdentifiedCase, CaseOutcome)>,
) -> Vec<(CaseId, CaseOutcome)> {
    cases.into_iter().map(|(case, outcome)| (case.id().clone(), outcome.clone())).collect()
}

fn case_finished(case: &IdentifiedCase, outcome: &CaseOutcome) -> RunEvent {
    RunEvent::CaseFinished {
        case: case.id().clone(),
        kernel: case.kernel.clone(),
        shapes: case.shapes(),
        outcome: outcome.clone(),
    }
}

#[cfg(test)]
mod tests;
