//! Tests of the dispatcher with prepared results in place of lanes, in virtual time.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fs,
    sync::atomic::AtomicBool,
};

use tempfile::TempDir;
use tokio::{runtime, sync::mpsc};

use super::*;
use crate::{
    base::{assets::AssetFiles, process::ProcessError, stats::PrecisionAim},
    cases::plan::{
        CaseSelection, EqualCallEvidence, InitialCosts, LaunchCount, PlannedCase, RunPlan, UpdateMode,
        select_cases,
    },
    database::{database_file::DatabaseFile, ledger::NewRun},
    kernel::{
        CacheState, CaseId, DataKind, Launch, Nanos, RecordedTask, SoftwareFingerprint, catalogue::Catalogue,
        device::DeviceProfile,
    },
    measure::{
        device::{DeviceLeases, DeviceNumbering, HostSoftware, LeaseFolder},
        engine::{
            CollectionSettings, PausedDevices, ResumedRun,
            dry_run::{scheduler_cases, scheduler_limits},
            run::{StopRequests, StopSource},
        },
        run_options::RunOptions,
    },
};

mod failures;
mod low_clock;
mod rounds;

const RUN: &str = "rehearsal-1";

/// A rehearsal database with rows of one kernel.
struct Fixture {
    folder: TempDir,
    database: Database,
    catalogue: Catalogue,
    predecided: Vec<(IdentifiedCase, CaseOutcome)>,
    /// Planned cases that an interrupted run has measured.
    measured_before: BTreeMap<CaseId, CaseOutcome>,
    aim: Option<PrecisionAim>,
    update: UpdateMode,
}

/// Results of a run, and everything observed meanwhile.
struct Observed {
    outcome: Result<RunOutcome, EngineError>,
    events: Vec<(Seconds, RunEvent)>,
    started: Vec<(Seconds, StartCollection)>,
}

/// The profile of a collection has a limited number of records, and each flush of the cache has one.
#[test]
fn launches_with_a_flushed_cache_have_two_records() {
    let fixture = Fixture::new(1);
    let plan = fixture.plan(&BTreeSet::new());
    let costs = InitialCosts::new(5, LaunchCount::Fixed(20));
    let profile = DeviceProfile::load(&AssetFiles::embedded(), DeviceProfile::default_name());
    let cold = costs.with_cache(CacheState::Cold, &profile.expect("built in"));
    let records = [costs, cold].map(|costs| scheduler_cases(&costs, &plan.cases)[0].records);
    // With the five launches that settle the clock.
    assert_eq!(records, [30, 55]);
}

type PreparedResult = (Seconds, Result<CollectionResult, EngineError>);

/// Sends a prepared result for each collection, after a delay in virtual time.
struct FakeLanes<'a> {
    context: Arc<LaneContext>,
    reports: mpsc::UnboundedSender<LaneReport>,
    respond: &'a dyn Fn(&LaneContext, Seconds, &StartCollection) -> PreparedResult,
    started: &'a RefCell<Vec<(Seconds, StartCollection)>>,
    epoch: Instant,
}

impl FakeLanes<'_> {
    fn start_collection(&self, start: StartCollection) {
        let now = self.epoch.elapsed().as_secs_f64();
        self.started.borrow_mut().push((now, start.clone()));
        let (seconds, result) = (self.respond)(&self.context, now, &start);
        let reports = self.reports.clone();
        tokio::spawn(async move {
            time::sleep(Duration::from_secs_f64(seconds)).await;
            let _ = reports.send(LaneReport { start, seconds, result });
        });
    }
}

impl Fixture {
    fn new(rows: usize) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = DatabaseFile::new(DataKind::Rehearsal).print();
        fs::write(folder.path().join("database.yaml"), file).expect("database.yaml is written");
        let header =
            "Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats\n";
        let row = |row: usize| {
            let length = 16 * (row + 1);
            format!("\"{length};{length}\",FLOAT;FLOAT,ND;ND,{length},FLOAT,ND\n")
        };
        let text = header.to_owned() + &(0..rows).map(row).collect::<String>();
        fs::write(folder.path().join("Add.csv"), text).expect("Add.csv is written");
        let database = Database::open(folder.path()).expect("a database");
        database.make_state_folder().expect("a state folder");
        let catalogue = Catalogue::load(&AssetFiles::embedded()).expect("the catalogue");
        Self {
            folder,
            database,
            catalogue,
            predecided: Vec::new(),
            measured_before: BTreeMap::new(),
            aim: None,
            update: UpdateMode::Missing,
        }
    }

    fn plan(&self, measured: &BTreeSet<CaseId>) -> RunPlan {
        let assets = AssetFiles::embedded();
        let device = DeviceProfile::load(&assets, self.database.device()).expect("a device profile");
        let selection = CaseSelection {
            cache: CacheState::Hot,
            update: self.update,
            kernels: &[],
            cases: &[],
            filter: None,
            measured,
            withdrawn: &BTreeMap::new(),
            imprecise: &BTreeSet::new(),
            refused_calls: None,
            equal_calls: &EqualCallEvidence::default(),
            weight_column: None,
            case_weights: &BTreeMap::new(),
        };
        select_cases(&self.database, &self.catalogue, &device, &selection).expect("a plan")
    }

    fn csv(&self) -> String {
        fs::read_to_string(self.folder.path().join("Add.csv")).expect("Add.csv")
    }

    /// Returns the cases of a plan and those with an outcome.
    fn known_cases(&self, plan: &RunPlan) -> Vec<IdentifiedCase> {
        let predecided = self.predecided.iter().map(|(case, _)| case);
        plan.cases.iter().flat_map(PlannedCase::cases).chain(predecided).cloned().collect()
    }

    fn settings(&self, run: &str, costs: InitialCosts) -> CollectionSettings {
        CollectionSettings {
            run: run.to_owned(),
            nodes: None,
            kind: DataKind::Rehearsal,
            folder: self.folder.path().join("run"),
            options: RunOptions {
                precision: self.aim.map(|aim| aim.half_width),
                max_collections: self.aim.map_or(0, |aim| aim.max_collections),
                ..RunOptions::default()
            },
            environment: Vec::new(),
            software: SoftwareFingerprint::default(),
            host_software: HostSoftware::default(),
            leases: LeaseFolder::of_database(self.folder.path().join("leases")),
            sees_host_processes: true,
            numbering: DeviceNumbering::default(),
            processes: self.folder.path().join("processes"),
            costs,
            catalogue: self.catalogue.clone(),
            assets: AssetFiles::embedded(),
        }
    }

    /// Runs a plan on fake lanes; `stops` are the virtual times of stop requests in seconds, `observe` is called with
    /// each event.
    fn run(
        &self,
        plan: RunPlan,
        devices: &[u32],
        deadline: Option<Seconds>,
        stops: &[Seconds],
        respond: &dyn Fn(&LaneContext, Seconds, &StartCollection) -> PreparedResult,
        observe: &dyn Fn(&LaneContext, &RunEvent),
    ) -> Observed {
        let mut ledger = self.database.ledger().expect("a ledger");
        let run = format!("{RUN}-{}", ledger.list_runs().expect("runs").len());
        let all = self.known_cases(&plan);
        let new = NewRun {
            run: &run,
            kind: DataKind::Rehearsal,
            seed: 1,
            options: "{}",
            host: "{}",
            started: Timestamp::now().0,
        };
        ledger.begin_run(&new, &all).expect("the plan is stored");
        let costs = InitialCosts::new(0, LaunchCount::Fixed(10));
        let rows = WriteBack::for_plan(&run, CacheState::Hot, &plan);
        let settings = self.settings(&run, costs);
        let mut state = SchedulerState::new(
            scheduler_cases(&costs, &plan.cases),
            devices,
            scheduler_limits(DataKind::Rehearsal, deadline),
            0,
        );
        let resumed = ResumedRun { measured: self.measured_before.clone(), ..ResumedRun::default() };
        let measured = resumed.measured_indices(&plan.cases);
        state.set_concluded(&measured);
        let context = Arc::new(LaneContext {
            settings,
            cases: plan.cases,
            leases: DeviceLeases::acquire(
                &LeaseFolder::of_database(self.folder.path().join("leases")),
                devices,
                Duration::ZERO,
            )
            .expect("free"),
            stop: AtomicBool::new(false),
        });
        let (events, started) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
        let runtime = runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let outcome = runtime.expect("a runtime").block_on(async {
            let epoch = Instant::now();
            let (report_sender, reports) = mpsc::unbounded_channel();
            let (_snapshot_sender, snapshots) = mpsc::unbounded_channel();
            let (stop_sender, stop_requests) = mpsc::unbounded_channel();
            for &at in stops {
                let stop_sender = stop_sender.clone();
                tokio::spawn(async move {
                    time::sleep(Duration::from_secs_f64(at)).await;
                    let _ = stop_sender.send(StopSource::Signal);
                });
            }
            let lanes = FakeLanes {
                context: Arc::clone(&context),
                reports: report_sender,
                respond,
                started: &started,
                epoch,
            };
            let store = RunStore {
                production: BTreeMap::new(),
                database: &self.database,
                ledger: &mut ledger,
                rows,
                predecided: self.predecided.clone(),
                has_lost_rows: !plan.unreadable_rows.is_empty(),
            };
            let mut emit = |event: &RunEvent| {
                observe(&context, event);
                events.borrow_mut().push((epoch.elapsed().as_secs_f64(), event.clone()));
            };
            let inbox = DispatcherInbox { reports, snapshots, stops: StopRequests::new(stop_requests) };
            let mut dispatcher = Dispatcher::new(
                Arc::clone(&context),
                devices.to_vec(),
                Box::new(move |start| lanes.start_collection(start)),
                state,
                store,
                inbox,
                &mut emit,
            );
            dispatcher.resume_measured(&measured, &resumed.measured).await?;
            dispatcher.run_to_end().await
        });
        Observed { outcome, events: events.into_inner(), started: started.into_inner() }
    }

    fn run_all(
        &self,
        devices: &[u32],
        respond: &dyn Fn(&LaneContext, Seconds, &StartCollection) -> PreparedResult,
    ) -> Observed {
        self.run(self.plan(&BTreeSet::new()), devices, None, &[], respond, &|_, _| {})
    }
}

impl Observed {
    fn verdicts(&self) -> BTreeMap<Verdict, usize> {
        let mut counts = BTreeMap::new();
        for (_, outcome) in &self.outcome.as_ref().expect("the run ended").outcomes {
            *counts.entry(outcome.verdict).or_default() += 1;
        }
        counts
    }

    fn assert_end(&self, exit: ExitStatus, verdicts: &[(Verdict, usize)]) {
        assert_eq!((self.exit(), self.verdicts()), (exit, verdicts.iter().copied().collect()));
    }

    fn exit(&self) -> ExitStatus {
        self.outcome.as_ref().expect("the run ended").exit
    }

    fn reasons(&self) -> BTreeSet<String> {
        let outcomes = &self.outcome.as_ref().expect("the run ended").outcomes;
        outcomes.iter().map(|(_, outcome)| outcome.reason.to_string()).collect()
    }
}

/// A result in which all cases of a collection end with this verdict.
fn collection_result(
    context: &LaneContext,
    start: &StartCollection,
    verdict: Verdict,
    exit: CollectionExit,
) -> CollectionResult {
    let is_ok = verdict == Verdict::Ok;
    let launch = |number: u32| Launch {
        number,
        is_measured: true,
        is_accepted: true,
        start: Nanos(i64::from(number) * 10_000),
        duration: Nanos(5_000),
    };
    let attempt = |&case: &usize| Attempt {
        case: context.cases[case].case.id().clone(),
        launched: if is_ok { 10 } else { 0 },
        launches: (0..10).filter(|_| is_ok).map(launch).collect(),
        fastest_ranks: Vec::new(),
        counters: Vec::new(),
        task: RecordedTask::default(),
        cycle_rate: None,
        outcome: CaseOutcome::new(verdict, format!("prepared {verdict}")),
        of_equal_calls: Vec::new(),
    };
    CollectionResult {
        attempts: start.cases.iter().map(attempt).collect(),
        seconds: vec![Some(0.1).filter(|_| is_ok); start.cases.len()],
        end: CollectionFinished {
            collection: start.collection,
            exit,
            has_readable_profile: verdict != Verdict::LostRecords,
            startup: Some(0.5),
            message: format!("prepared {verdict}"),
            ..CollectionFinished::default()
        },
        software: context.settings.software.clone(),
        controls: Vec::new(),
        archive: None,
    }
}

fn success(context: &LaneContext, start: &StartCollection) -> Result<CollectionResult, EngineError> {
    Ok(collection_result(context, start, Verdict::Ok, CollectionExit::Completed))
}

fn missing_program() -> Result<CollectionResult, EngineError> {
    Err(EngineError::Process(ProcessError::NotFound { program: "sh".to_owned() }))
}

#[test]
fn ledger_holds_every_result_before_its_event_is_emitted() {
    let fixture = Fixture::new(12);
    let seen = RefCell::new(BTreeMap::<&str, usize>::new());
    let observe = |context: &LaneContext, event: &RunEvent| {
        let ledger = Ledger::open(&fixture.database.ledger_path()).expect("a second connection");
        let run = &context.settings.run;
        let record = |case: &CaseId| {
            let records = ledger.run_cases(run).expect("cases").into_iter();
            records.into_iter().find(|record| record.case == *case).expect("the case is planned")
        };
        let name = match event {
            RunEvent::CollectionStarted { collection, .. } => {
                let stored = ledger.run_collections(run).expect("collections");
                let stored = stored.iter().find(|stored| stored.number == *collection).expect("it is stored");
                assert_eq!(stored.ended, None);
                "started"
            }
            RunEvent::CaseAttempted { case, collection, outcome } => {
                let attempts = record(case).attempts;
                let last = attempts.last().expect("an attempt is stored");
                assert_eq!((last.collection, &last.outcome), (*collection, outcome));
                "attempted"
            }
            RunEvent::CollectionFinished { collection, .. } => {
                let stored = ledger.run_collections(run).expect("collections");
                assert!(stored.iter().any(|stored| stored.number == *collection && stored.ended.is_some()));
                "finished"
            }
            RunEvent::CaseFinished { case, outcome, .. } => {
                assert_eq!(record(case).outcome.as_ref(), Some(outcome));
                "verdict"
            }
            RunEvent::RowsWritten { rows, .. } => {
                assert_eq!(fixture.csv().matches(",ok,").count(), *rows);
                "rows"
            }
            RunEvent::RunFinished { .. } => {
                let runs = ledger.list_runs().expect("runs");
                let record = runs.iter().find(|record| record.run == *run).expect("the run is stored");
                assert_eq!(record.exit, Some(0));
                "run"
            }
            _ => return,
        };
        *seen.borrow_mut().entry(name).or_default() += 1;
    };
    let plan = fixture.plan(&BTreeSet::new());
    let observed =
        fixture.run(plan, &[0, 1], None, &[], &|context, _, start| (2.0, success(context, start)), &observe);
    observed.assert_end(ExitStatus::Done, &[(Verdict::Ok, 12)]);
    let seen = seen.into_inner();
    assert_eq!((seen["attempted"], seen["verdict"], seen["rows"], seen["run"]), (12, 12, 1, 1));
    assert_eq!((seen["started"], seen["finished"]), (observed.started.len(), observed.started.len()));
}

/// Reservations of several devices that are known at the start precede the first collection.
#[test]
fn no_collection_starts_on_devices_that_are_paused_before_the_run() {
    let fixture = Fixture::new(12);
    PausedDevices::modify(&fixture.database, |paused| paused.all = true).expect("stored");
    let plan = fixture.plan(&BTreeSet::new());
    let respond = |context: &LaneContext, _, start: &StartCollection| (1.0, success(context, start));
    let observed = fixture.run(plan, &[0, 1, 2, 3], None, &[20.0], &respond, &|_, _| {});
    assert_eq!(observed.exit(), ExitStatus::Interrupted);
    assert!(observed.started.is_empty(), "{:?}", observed.started);
}

/// A lease that another process holds reserves its device until it is free; the others are used meanwhile.
#[test]
fn device_with_a_foreign_lease_is_used_once_the_lease_is_free() {
    let fixture = Fixture::new(40);
    let leases = LeaseFolder::of_database(fixture.folder.path().join("leases"));
    leases.prepare().expect("created");
    let foreign = RefCell::new(leases.acquire(1, Duration::ZERO).ok());
    let plan = fixture.plan(&BTreeSet::new());
    let respond = |context: &LaneContext, _, start: &StartCollection| (30.0, success(context, start));
    let observed = fixture.run(plan, &[0, 1], None, &[], &respond, &|_, event| {
        if matches!(event, RunEvent::CollectionFinished { .. }) {
            foreign.borrow_mut().take();
        }
    });
    assert_eq!(observed.verdicts(), BTreeMap::from([(Verdict::Ok, 40)]));
    let reserved = observed.events.iter().find_map(|(at, event)| match event {
        RunEvent::DeviceReserved { device: 1, reason } => Some((*at, reason.as_str())),
        _ => None,
    });
    let (at, reason) = reserved.expect("device 1 is reserved");
    assert!(at < 1.0 && reason.contains("in use by another run of npubench"), "{at}: {reason}");
    let on_device = |device: u32| observed.started.iter().filter(move |(_, start)| start.devices == [device]);
    assert!(on_device(0).next().is_some_and(|(at, _)| *at < 1.0));
    assert!(on_device(1).next().is_some_and(|(at, _)| *at >= 30.0), "{:?}", observed.started);
}

#[test]
fn first_stop_request_lets_running_collections_end() {
    let fixture = Fixture::new(40);
    let observe = |context: &LaneContext, event: &RunEvent| {
        if matches!(event, RunEvent::StopRequested { .. }) {
            assert!(!context.stop.load(Ordering::Relaxed));
        }
    };
    let plan = fixture.plan(&BTreeSet::new());
    // The second request follows within the debounce time and counts as the same.
    let stops = [1.0, 1.02];
    let observed =
        fixture.run(plan, &[0], None, &stops, &|context, _, start| (10.0, success(context, start)), &observe);
    assert_eq!(observed.exit(), ExitStatus::Interrupted);
    let [(_, only)] = observed.started.as_slice() else { panic!("{:?}", observed.started) };
    let (measured, left) = (only.cases.len(), 40 - only.cases.len());
    assert_eq!(observed.verdicts(), BTreeMap::from([(Verdict::Ok, measured), (Verdict::NotRun, left)]));
    let requests =
        observed.events.iter().filter(|(_, event)| matches!(event, RunEvent::StopRequested { .. }));
    assert_eq!(requests.count(), 1);
}

#[test]
fn second_stop_request_ends_running_collections() {
    let fixture = Fixture::new(40);
    let requests = RefCell::new(Vec::new());
    let observe = |context: &LaneContext, event: &RunEvent| {
        if let RunEvent::StopRequested { running, at_once } = event {
            requests.borrow_mut().push((*running, *at_once, context.stop.load(Ordering::Relaxed)));
        }
    };
    let plan = fixture.plan(&BTreeSet::new());
    let respond = |context: &LaneContext, _, start: &StartCollection| {
        (10.0, Ok(collection_result(context, start, Verdict::NotRun, CollectionExit::Stopped)))
    };
    let observed = fixture.run(plan, &[0], None, &[1.0, 2.0], &respond, &observe);
    assert_eq!(requests.into_inner(), [(1, false, false), (1, true, true)]);
    observed.assert_end(ExitStatus::Interrupted, &[(Verdict::NotRun, 40)]);
}

/// A scheduler of a cluster signals all processes of a job, so that a collection may break because of the request.
#[test]
fn collection_that_breaks_after_a_stop_request_leaves_its_cases_to_resume() {
    let fixture = Fixture::new(40);
    for verdict in [Verdict::Crashed, Verdict::LostRecords] {
        let plan = fixture.plan(&BTreeSet::new());
        let respond = |context: &LaneContext, _, start: &StartCollection| {
            (10.0, Ok(collection_result(context, start, verdict, CollectionExit::Broken)))
        };
        let observed = fixture.run(plan, &[0], None, &[1.0], &respond, &|_, _| {});
        observed.assert_end(ExitStatus::Interrupted, &[(Verdict::NotRun, 40)]);
    }
}

#[test]
fn no_collection_is_started_that_would_end_after_the_deadline() {
    let fixture = Fixture::new(64);
    let plan = fixture.plan(&BTreeSet::new());
    let respond = |context: &LaneContext, _, start: &StartCollection| {
        assert!(start.limit <= 50.0);
        (12.0, success(context, start))
    };
    let observed = fixture.run(plan, &[0], Some(60.0), &[], &respond, &|_, _| {});
    assert_eq!(observed.exit(), ExitStatus::SomeNotOk);
    let (end, _) = observed.events.last().expect("events");
    assert!(*end <= 60.0, "{end}");
    let verdicts = observed.verdicts();
    assert!(verdicts[&Verdict::Ok] >= 8 && verdicts[&Verdict::NotRun] >= 8, "{verdicts:?}");
    assert!(observed.reasons().iter().any(|reason| reason.contains("deadline")), "{:?}", observed.reasons());
}

#[test]
fn deleted_rows_are_reported_and_rows_are_written_during_a_long_run() {
    let fixture = Fixture::new(40);
    let table = fixture.folder.path().join("Add.csv");
    let seen = RefCell::new(Vec::new());
    let observe = |_: &LaneContext, event: &RunEvent| {
        if let RunEvent::RowsWritten { rows, .. } = event {
            seen.borrow_mut().push(*rows);
            // The first ten rows are removed once some are written.
            let text = fs::read_to_string(&table).expect("a table");
            let lines = text.lines().enumerate().filter(|(line, _)| !(1..=10).contains(line));
            let kept: Vec<&str> = lines.map(|(_, text)| text).collect();
            fs::write(&table, kept.join("\n") + "\n").expect("written");
        }
    };
    let plan = fixture.plan(&BTreeSet::new());
    let respond =
        |context: &LaneContext, _: Seconds, start: &StartCollection| (50.0, success(context, start));
    let observed = fixture.run(plan, &[0], None, &[], &respond, &observe);
    assert!(seen.borrow().len() > 1, "{seen:?}");
    observed.assert_end(ExitStatus::SomeNotOk, &[(Verdict::Ok, 40)]);
    let problems: Vec<&str> = observed
        .events
        .iter()
        .filter_map(|(_, event)| match event {
            RunEvent::RowsNotWritten { problem, .. } => Some(problem.as_str()),
            _ => None,
        })
        .collect();
    assert!(problems.iter().any(|problem| problem.contains("that the run measured")), "{problems:?}");
}

#[test]
fn damaged_table_does_not_end_the_run_and_the_next_run_writes_its_rows() {
    let fixture = Fixture::new(4);
    let before = fixture.csv();
    let table = fixture.folder.path().join("Add.csv");
    let observe = |_: &LaneContext, event: &RunEvent| {
        // The table is replaced while the run goes on, such as by an editor that saves an empty file.
        if matches!(event, RunEvent::CollectionStarted { .. }) {
            fs::write(&table, "").expect("emptied");
        }
    };
    let plan = fixture.plan(&BTreeSet::new());
    let respond = |context: &LaneContext, _, start: &StartCollection| (1.0, success(context, start));
    let observed = fixture.run(plan, &[0], None, &[], &respond, &observe);
    fs::write(&table, &before).expect("restored");
    assert_eq!(observed.exit(), ExitStatus::SomeNotOk);
    let unwritten = &observed.outcome.as_ref().expect("the run ended").unwritten;
    assert_eq!(unwritten.iter().map(KernelName::as_str).collect::<Vec<_>>(), ["Add"]);
    assert_eq!(fixture.csv(), before);
    let ledger = fixture.database.ledger().expect("a ledger");
    let run = format!("{RUN}-0");
    let is_ok =
        |outcome: &Option<CaseOutcome>| outcome.as_ref().is_some_and(|one| one.verdict == Verdict::Ok);
    let cases = ledger.run_cases(&run).expect("cases");
    assert!(cases.len() == 4 && cases.iter().all(|case| is_ok(&case.outcome)), "{cases:?}");
    let measured = ledger.measured_cases(CacheState::Hot).expect("cases");
    let plan = fixture.plan(&measured);
    assert_eq!((plan.cases.len(), plan.already_measured), (0, 4));
    let respond =
        |_: &LaneContext, _: Seconds, _: &StartCollection| -> PreparedResult { panic!("no case is left") };
    let observed = fixture.run(plan, &[0], None, &[], &respond, &|_, _| {});
    assert_eq!(observed.exit(), ExitStatus::Done);
    assert_eq!(fixture.csv().matches(",ok,").count(), 4);
}
