//! Check of a database's cases by the vendor's code. Stored outcomes are reused, new ones are stored before they are reported.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use signal_hook::consts;

use crate::{
    base::{assets::AssetFiles, command_error::CommandError, files::FolderLock},
    cases::plan::{CaseSelection, EqualCallEvidence, PlannedCase, RunPlan, UpdateMode, select_cases},
    database::{
        Database,
        ledger::{Ledger, LedgerError, StoredCheck},
    },
    kernel::{
        CacheState, CaseId, CheckOutcome, IdentifiedCase, KernelName, catalogue::Catalogue,
        device::DeviceProfile, render::call_digest, timestamp::Timestamp,
    },
    measure::{
        filtered_cases::row_filter,
        vendor_check::{CheckSettings, check_cases, installed_software},
    },
};

const TRANSACTION_SIZE: usize = 256;
const TRANSACTION_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) type CheckSink<'a> = dyn FnMut(&IdentifiedCase, &CheckOutcome) + 'a;

pub(crate) struct DatabaseCheck {
    settings: CheckSettings,
    ledger: Ledger,
    pub(crate) plan: RunPlan,
    digests: Vec<String>,
    stored: HashMap<CaseId, StoredCheck>,
    pub(crate) versions: String,
    _lock: FolderLock,
}

impl DatabaseCheck {
    pub(crate) fn prepare(
        db: &Path,
        assets: AssetFiles,
        kernels: &[KernelName],
        filter: Option<&str>,
        python: String,
        processes: usize,
        recheck: bool,
    ) -> Result<Self, CommandError> {
        let catalogue = Catalogue::load(&assets)?;
        let database = Database::open(db)?;
        let device = DeviceProfile::load(&assets, database.device())?;
        let filter = row_filter(filter, &database, &catalogue, CacheState::Hot)?;
        let versions = installed_software(&python)?.to_string();
        let mut lock = database.lock()?;
        let none = BTreeSet::new();
        let selection = CaseSelection {
            withdrawn: &BTreeMap::new(),
            update: UpdateMode::All,
            cache: CacheState::Hot,
            kernels,
            cases: &[],
            filter: filter.as_ref(),
            measured: &none,
            imprecise: &none,
            refused_calls: None,
            equal_calls: &EqualCallEvidence::default(),
            weight_column: None,
            case_weights: &BTreeMap::new(),
        };
        let plan = select_cases(&database, &catalogue, &device, &selection)?;
        database.initialise(&mut lock)?;
        let ledger = database.ledger()?;
        let stored = if recheck { HashMap::new() } else { ledger.stored_checks()? };
        let digest = |PlannedCase { case, call, .. }: &PlannedCase| {
            call_digest(case, call, catalogue.entry(&case.kernel))
        };
        let digests = plan.cases.iter().map(digest).collect();
        let settings = CheckSettings { python, processes, catalogue, assets };
        Ok(Self { settings, ledger, plan, digests, stored, versions, _lock: lock })
    }

    pub(crate) fn total(&self) -> usize {
        self.plan.cases.len() + self.plan.not_launched.len()
    }

    /// The stored outcome of a call, if neither the call nor the software has changed since.
    fn valid_outcome(&self, planned: &PlannedCase, digest: &str) -> Option<&CheckOutcome> {
        let check = self.stored.get(planned.case.id())?;
        (check.digest == digest && check.software == self.versions).then_some(&check.outcome)
    }

    /// Reports every case, and checks those without a valid stored outcome. Returns true if a signal stopped it.
    pub(crate) fn run(&mut self, report: &mut CheckSink<'_>) -> Result<bool, CommandError> {
        let by_rule = self.plan.not_launched.iter();
        let by_rule: Vec<_> =
            by_rule.map(|(case, outcome)| (case, "", CheckOutcome::by_rule(outcome))).collect();
        store(&mut self.ledger, &self.versions, &by_rule)?;
        by_rule.iter().for_each(|(case, _, outcome)| report(case, outcome));
        let mut open = Vec::new();
        for (planned, digest) in self.plan.cases.iter().zip(&self.digests) {
            match self.valid_outcome(planned, digest) {
                Some(outcome) => report(&planned.case, outcome),
                None => open.push((planned.clone(), digest.as_str())),
            }
        }
        if open.is_empty() {
            return Ok(false);
        }
        let (cases, digests): (Vec<PlannedCase>, Vec<&str>) = open.into_iter().unzip();
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [consts::SIGINT, consts::SIGTERM, consts::SIGHUP] {
            // Without the handler, a signal ends the program, and outcomes that are not yet in the ledger are lost.
            let _ = signal_hook::flag::register(signal, Arc::clone(&stop));
        }
        let mut failure = None;
        let mut waiting = Vec::new();
        let mut last_transaction = Instant::now();
        let mut store_waiting = |waiting: &mut Vec<_>| match store(&mut self.ledger, &self.versions, waiting)
        {
            Ok(()) => waiting.drain(..).for_each(|(case, _, outcome)| report(case, &outcome)),
            Err(error) => {
                failure.get_or_insert(error);
                stop.store(true, Ordering::Relaxed);
                waiting.clear();
            }
        };
        let checked = check_cases(&self.settings, &cases, &stop, &mut |index, outcome| {
            waiting.push((&cases[index].case, digests[index], outcome));
            if waiting.len() >= TRANSACTION_SIZE || last_transaction.elapsed() >= TRANSACTION_INTERVAL {
                store_waiting(&mut waiting);
                last_transaction = Instant::now();
            }
        });
        store_waiting(&mut waiting);
        if let Some(error) = failure {
            return Err(error.into());
        }
        checked?;
        Ok(stop.load(Ordering::Relaxed))
    }
}

fn store(
    ledger: &mut Ledger,
    versions: &str,
    outcomes: &[(&IdentifiedCase, &str, CheckOutcome)],
) -> Result<(), LedgerError> {
    let checks = outcomes.iter().map(|(case, digest, outcome)| (case.id(), versions, *digest, outcome));
    ledger.add_checks(Timestamp::now().0, checks)
}
