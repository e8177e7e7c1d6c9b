//! What `run` and `resume` share: a host, a plan and a ledger become a run.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use clap::Args;
use serde::{Deserialize, Serialize};

use super::CommandError;
use crate::{
    catalogue::Catalogue,
    cli::options::OutputFormat,
    config::{AssetFiles, DeviceProfile},
    database::Database,
    device::{self, HostFingerprint, custom_operators, operator_environment},
    domain::{CaseId, CheckVerdict, DataKind, KernelName},
    engine::{self, CollectionSettings, ResumedRun},
    events::RunEvent,
    exit::ExitStatus,
    ledger::{Ledger, StoredCheck},
    plan::{CaseSelection, InitialCosts, RunPlan, UpdateMode, select_cases},
    profile::npu_smi::{NpuChip, NpuSmiInfo},
    rehearsal,
    rehearsal::fault_plan,
    report::{EventSink, JsonLines, RunRecorder, TextReporter, closing_table, print_data, print_note},
    vendor_check::{package_folders, software},
};

/// Dies of an Atlas 800 A3.
pub(crate) const REHEARSED_DEVICES: u32 = 16;

/// When a run must have ended.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct DeadlineOptions {
    /// Ends by this time of the host's clock, such as 07:30; nothing is begun that would not end in time
    #[arg(long, value_name = "HH:MM", value_parser = parse_clock)]
    until: Option<jiff::civil::Time>,
    /// Ends within this time, such as 8h or 1h30m
    #[arg(long, value_name = "TIME", value_parser = parse_budget)]
    budget: Option<f64>,
}

fn parse_clock(text: &str) -> Result<jiff::civil::Time, String> {
    let time = jiff::civil::Time::strptime("%H:%M", text);
    time.map_err(|_| format!("`{text}` is no time of day; write hours and minutes, such as 07:30"))
}

fn parse_budget(text: &str) -> Result<f64, String> {
    let span: Result<jiff::SignedDuration, _> = text.parse();
    let seconds = span.map(|span| span.as_secs_f64());
    let seconds =
        seconds.map_err(|_| format!("`{text}` is no length of time; write such as 8h, 90m or 1h30m"))?;
    if seconds < 60.0 {
        return Err(format!("`{text}` is less than a minute, in which no collection ends"));
    }
    Ok(seconds)
}

impl DeadlineOptions {
    /// Seconds from now on.
    pub(crate) fn seconds(&self) -> Option<f64> {
        let Some(until) = self.until else { return self.budget };
        let now = jiff::Zoned::now();
        let today = now.with().time(until).build().ok()?;
        // A time that has passed today is tomorrow's.
        let then =
            if today > now { today } else { today.tomorrow().ok()?.with().time(until).build().ok()? };
        Some(now.duration_until(&then).as_secs_f64())
    }
}

/// What decides the results of a run. It stands in the ledger, so that the run can go on as it began.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RunOptions {
    pub(crate) update: UpdateArg,
    pub(crate) kernels: Vec<String>,
    #[serde(default)]
    pub(crate) chosen_devices: Option<Vec<u32>>,
    pub(crate) devices: Vec<u32>,
    pub(crate) python: String,
    pub(crate) assets: Option<PathBuf>,
    pub(crate) warm_up: u32,
    pub(crate) launches: u32,
    pub(crate) seed: u64,
    #[serde(default)]
    pub(crate) expert_skew: f64,
    pub(crate) rehearsal_model: NoiseModelArg,
    #[serde(default)]
    pub(crate) ignore_check: bool,
    #[serde(default)]
    pub(crate) weight_column: Option<String>,
    #[serde(default)]
    pub(crate) busy: BusyArg,
    /// What goes wrong on the rehearsal host.
    #[serde(default, skip_serializing_if = "fault_plan::FaultPlan::is_empty")]
    pub(crate) faults: fault_plan::FaultPlan,
}

/// Which rows are measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UpdateArg {
    #[default]
    /// Those without an accepted result
    Missing,
    /// All; new samples join those there are
    All,
}

/// How the rehearsal host makes durations.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NoiseModelArg {
    #[default]
    /// With noise, offsets between collections and slow first launches
    Lifelike,
    /// Depending on seed, case and the launch's number alone
    Steady,
}

/// What is done about a device that somebody else uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BusyArg {
    /// Nothing begins on it until it is free
    #[default]
    Wait,
    /// It is left out of the run
    Skip,
}

/// A host that can measure a database, before anything is written.
pub(crate) struct RunContext {
    pub(crate) database: Database,
    pub(crate) assets: AssetFiles,
    pub(crate) catalogue: Catalogue,
    pub(crate) profile: DeviceProfile,
    pub(crate) info: NpuSmiInfo,
    pub(crate) chips: Vec<NpuChip>,
}

impl RunContext {
    /// Looks at the database and asks the host for its devices.
    pub(crate) fn find(
        db: &Path,
        kind: DataKind,
        assets: AssetFiles,
        recipe: &RunOptions,
    ) -> Result<Self, CommandError> {
        let catalogue = Catalogue::load(&assets)?;
        let database = Database::open_as(db, kind)?;
        let profile = DeviceProfile::load(&assets, database.device())?;
        check_skew(&database, recipe.expert_skew)?;
        if let Some(problem) = path_problem(database.folder(), kind) {
            return Err(CommandError::bad_input(
                format!("`{}` {problem}", database.folder().display()),
                "rename the folder, or link to it from elsewhere and give the link's target a plain name",
            ));
        }
        if kind == DataKind::Npu {
            device::check_environment()?;
        }
        // Nothing has been written so far; the host is asked in a folder of its own.
        let scratch = tempfile::tempdir().map_err(|error| {
            CommandError::bad_input(
                format!("cannot make a temporary folder: {error}"),
                "check TMPDIR and its free space",
            )
        })?;
        let environment = environment(recipe, scratch.path(), &database)?;
        let info = device::query_npu_smi(&environment, scratch.path())?;
        let mut chosen = device::select_devices(&info, recipe.chosen_devices.as_deref())?;
        if recipe.busy == BusyArg::Skip {
            chosen = device::leave_out_busy(&info, chosen)?;
        }
        let device::SelectedDevices { chips, left_out } = chosen;
        for line in left_out {
            print_note(&format!("left out: {line}"));
        }
        Ok(Self { database, assets, catalogue, profile, info, chips })
    }

    /// The plan for the rows of the database.
    pub(crate) fn plan(&self, recipe: &RunOptions, kernels: &[KernelName]) -> Result<RunPlan, CommandError> {
        let mut plan = plan_of(&self.database, &self.catalogue, &self.profile, recipe, kernels)?;
        plan.refuse_larger_gangs(self.chips.len());
        Ok(plan)
    }

    /// Carries a plan out and prints the closing table.
    pub(crate) fn measure(
        self,
        run: String,
        mut recipe: RunOptions,
        plan: RunPlan,
        resumed: Option<ResumedRun>,
        end: &DeadlineOptions,
        format: OutputFormat,
    ) -> Result<ExitStatus, CommandError> {
        let Self { database, assets, catalogue, info, chips, .. } = self;
        let folder = database.run_folder(&run);
        let mut ledger = database.ledger()?;
        recipe.devices = chips.iter().map(|chip| chip.device).collect();
        let settings = CollectionSettings {
            kind: database.kind(),
            environment: environment(&recipe, &folder.join("host"), &database)?,
            run,
            folder: folder.clone(),
            seed: recipe.seed,
            warm_up: recipe.warm_up,
            measured: recipe.launches,
            python: recipe.python.clone(),
            leases: leases(database.kind(), &database),
            processes: database.state_folder().join("processes"),
            expert_skew: recipe.expert_skew,
            costs: InitialCosts::new(recipe.warm_up + recipe.launches),
            catalogue,
            assets,
        };
        let tried = resumed.as_ref().map(|resumed| resumed.attempted.clone()).unwrap_or_default();
        let run = engine::RunRequest {
            database: &database,
            ledger: &mut ledger,
            plan,
            devices: recipe.devices.clone(),
            options: serde_json::to_string(&recipe).unwrap_or_default(),
            host: serde_json::to_string(&HostFingerprint::of_host(&info, &chips)).unwrap_or_default(),
            info,
            settings,
            budget: end.seconds(),
            resumed,
        };
        let screen: Box<dyn EventSink> = match format {
            OutputFormat::Plain => Box::new(TextReporter::for_stderr()),
            OutputFormat::Json => Box::new(JsonLines),
        };
        let mut sink = RunRecorder::new(screen, &folder, &tried);
        let outcome = engine::execute_run(run, &mut |event: &RunEvent| sink.on_event(event))?;
        if format == OutputFormat::Plain {
            if !outcome.outcomes.is_empty() {
                print_data(&closing_table(&outcome.outcomes));
            }
            let marked =
                if database.kind() == DataKind::Rehearsal { " (rehearsal: simulated durations)" } else { "" };
            print_note(&format!("rows are in {}{marked}", database.folder().display()));
            print_note(&format!("scripts, logs and raw output are in {}", folder.display()));
            if outcome.exit == ExitStatus::Interrupted {
                print_note(&format!("`npubench resume --db {}` goes on", database.folder().display()));
            }
        }
        Ok(outcome.exit)
    }
}

/// The plan for the rows of a database. What the ledger has counts as measured where only what is missing is wanted.
pub(crate) fn plan_of(
    database: &Database,
    catalogue: &Catalogue,
    profile: &DeviceProfile,
    recipe: &RunOptions,
    kernels: &[KernelName],
) -> Result<RunPlan, CommandError> {
    let existing = database.existing_ledger()?;
    let measured: BTreeSet<_> = match &existing {
        Some(ledger) => ledger.measured_cases()?.into_keys().collect(),
        None => BTreeSet::new(),
    };
    let update = match recipe.update {
        UpdateArg::Missing => UpdateMode::Missing,
        UpdateArg::All => UpdateMode::All,
    };
    let rejected = match &existing {
        Some(ledger) if !recipe.ignore_check => rejected_calls(ledger, &recipe.python)?,
        _ => BTreeMap::new(),
    };
    let weight_column = recipe.weight_column.as_deref();
    let selection =
        CaseSelection { update, kernels, measured: &measured, rejected: Some(&rejected), weight_column };
    let mut plan = select_cases(database, catalogue, profile, &selection)?;
    plan.note_skew(recipe.expert_skew);
    Ok(plan)
}

/// Calls that the vendor's code rejected when it was asked, with what it said. Another torch_npu than the one
/// that will run has no say; the rehearsal host has none of its own.
fn rejected_calls(ledger: &Ledger, python: &str) -> Result<BTreeMap<CaseId, (String, String)>, CommandError> {
    let checks = ledger.checks()?;
    if checks.is_empty() {
        return Ok(BTreeMap::new());
    }
    let here = software(python).ok().map(|software| software.to_string());
    let counts = |check: &StoredCheck| {
        check.outcome.verdict == CheckVerdict::Rejected
            && here.as_ref().is_none_or(|here| *here == check.software)
    };
    let rejected = checks.into_iter().filter(|(_, check)| counts(check));
    let said = |check: StoredCheck| {
        (
            check.digest,
            format!("rejected by {} when it was checked: {}", check.software, check.outcome.message),
        )
    };
    Ok(rejected.map(|(case, check)| (case, said(check))).collect())
}

/// One skew of routing for all that a database has measured: samples of different ones are not of one case.
fn check_skew(database: &Database, skew: f64) -> Result<(), CommandError> {
    let Some(ledger) = database.existing_ledger()? else { return Ok(()) };
    let other = ledger.run_options()?.into_iter().find_map(|(run, options)| {
        let options: serde_json::Value = serde_json::from_str(&options).ok()?;
        let earlier = options["expert_skew"].as_f64().unwrap_or(0.0);
        (earlier != skew).then_some((run, earlier))
    });
    match other {
        None => Ok(()),
        Some((run, earlier)) => Err(CommandError::bad_input(
            format!("run {run} of this database named experts with a skew of {earlier}, not {skew}"),
            "measure another skew in a copy: `npubench db copy DIR NEW --kind KIND`",
        )),
    }
}

/// Why scripts and profiles cannot be kept below a folder: msprof refuses some characters in paths.
fn path_problem(folder: &Path, kind: DataKind) -> Option<String> {
    const REFUSED: &str = "'\"\\%><|&$;`";
    let path = folder.to_string_lossy();
    let refused =
        |c: char| c.is_control() || REFUSED.contains(c) || (kind == DataKind::Rehearsal && c == ':');
    let found = path.chars().find(|c| refused(*c))?;
    Some(format!("has a {found:?} in its path, which msprof does not take"))
}

/// Real devices belong to the host, whatever the database; rehearsed ones to their database.
fn leases(kind: DataKind, database: &Database) -> PathBuf {
    match kind {
        DataKind::Npu => std::env::temp_dir().join(format!("npubench-leases-{}", nix::unistd::getuid())),
        DataKind::Rehearsal => database.state_folder().join("leases"),
    }
}

/// Variables that the host's programs need; on the rehearsal host they are written into `folder`.
fn environment(
    recipe: &RunOptions,
    folder: &Path,
    database: &Database,
) -> Result<Vec<(String, String)>, CommandError> {
    if database.kind() == DataKind::Npu {
        // Operators that a Python package brings are not found by themselves.
        let variable = |name: &str| std::env::var(name).ok();
        let packages = custom_operators(variable, &package_folders(&recipe.python, "vllm_ascend"));
        return Ok(operator_environment(&packages, variable));
    }
    let io = |error: std::io::Error| {
        CommandError::bad_input(
            format!("cannot create `{}`: {error}", folder.display()),
            "the folder must be writable; check its owner, mode and mount",
        )
    };
    fs::create_dir_all(folder).map_err(io)?;
    let config = rehearsal::HostConfig {
        model: match recipe.rehearsal_model {
            NoiseModelArg::Lifelike => rehearsal::NoiseModel::Lifelike,
            NoiseModelArg::Steady => rehearsal::NoiseModel::Steady,
        },
        seed: recipe.seed,
        device_profile: database.device().to_owned(),
        devices: REHEARSED_DEVICES,
        assets: recipe.assets.as_ref().and_then(|folder| folder.canonicalize().ok()),
        faults: recipe.faults.clone(),
    };
    Ok(rehearsal::install(folder, &config)?)
}

pub(crate) fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}
