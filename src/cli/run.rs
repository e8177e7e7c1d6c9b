//! `npubench run`: measures what a database lacks.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process,
};

use clap::{Args, ValueEnum};
use serde_json::json;

use super::{
    Failure,
    options::{
        AssetOptions, DeviceList, Format, KindWord, kernels, parse_devices, parse_skew, python_program,
    },
};
use crate::{
    check::{package_folders, software},
    device::{self, Fingerprint, custom_operators, environment_of},
    engine::{self, Settings},
    events::Event,
    exit::Exit,
    model::{CaseId, CheckVerdict, Kind, Nanos},
    plan::{Costs, Plan, Selection, Update, select},
    profile::npu_smi::{Chip, NpuSmiInfo},
    rehearsal,
    report::{Human, JsonLines, Recorded, Sink, closing_table, print_data, print_note},
    spec::{Catalogue, DeviceProfile},
    store::{
        Database, Ledger, REHEARSAL_RUN,
        ledger::{Check, DeviceReading},
    },
};

/// Launches of a case before its samples.
pub(super) const WARM_UP: u32 = 5;
/// Samples of a case in one collection.
pub(super) const LAUNCHES: u32 = 20;

/// Measures the cases of a database and writes their rows
///
/// Cases are divided into collections, each one msprof run on one device. Every launch and verdict is in
/// the ledger before anything is said about it. Ctrl-C once lets running collections end, twice ends
/// them at once; the same command goes on from there.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Database folder
    #[arg(long, value_name = "DIR")]
    db: PathBuf,
    /// Only these kernels, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    kernels: Vec<String>,
    /// Devices to use, such as `0-3,8`; all where not given
    #[arg(long, value_name = "LIST", value_parser = parse_devices)]
    devices: Option<DeviceList>,
    /// Which rows are measured
    #[arg(long, value_enum, default_value = "missing")]
    update: UpdateWord,
    /// Where the launches run
    #[arg(long, value_enum, default_value = "npu")]
    host: KindWord,
    /// How the rehearsal host makes durations
    #[arg(long, value_enum, default_value = "lifelike")]
    rehearsal_model: ModelWord,
    /// Seed of values and of the rehearsal host's durations
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Samples per case and collection
    #[arg(long, default_value_t = LAUNCHES, value_parser = clap::value_parser!(u32).range(6..=10_000))]
    launches: u32,
    /// Launches of a case before its samples
    #[arg(long, default_value_t = WARM_UP, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    warm_up: u32,
    /// Python that has torch and torch_npu
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: String,
    /// Launches also what `npubench check` found rejected by the vendor's code
    #[arg(long)]
    ignore_check: bool,
    /// `json` prints every event as a line of JSON
    #[arg(long, value_enum, default_value = "plain")]
    format: Format,
    /// How unevenly tokens go to experts: the n-th has a share of n^-S; 0 is even
    #[arg(long, value_name = "S", default_value_t = 0.0, value_parser = parse_skew)]
    expert_skew: f64,
    #[command(flatten)]
    assets: AssetOptions,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum UpdateWord {
    /// Those without an accepted result
    Missing,
    /// All; new samples join those there are
    All,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ModelWord {
    /// With noise, offsets between collections and slow first launches
    Lifelike,
    /// Depending on seed, case and the launch's number alone
    Steady,
}

pub(super) fn run(options: &Options) -> Result<Exit, Failure> {
    let kind = Kind::from(options.host);
    let assets = options.assets.load()?;
    let catalogue = Catalogue::load(&assets)?;
    let database = Database::open_as(&options.db, kind)?;
    let device = DeviceProfile::load(&assets, database.device())?;
    let kernels = kernels(&options.kernels)?;
    let python = python_program(&options.python)?;
    check_skew(&database, options.expert_skew)?;
    if let Some(problem) = path_problem(database.folder(), kind) {
        return Err(Failure::bad_input(
            format!("`{}` {problem}", database.folder().display()),
            "rename the folder, or link to it from elsewhere and give the link's target a plain name",
        ));
    }
    if kind == Kind::Npu {
        device::check_environment()?;
    }
    // Nothing has been written so far; the host is asked in a folder of its own.
    let scratch = tempfile::tempdir().map_err(|error| {
        Failure::bad_input(
            format!("cannot make a temporary folder: {error}"),
            "check TMPDIR and its free space",
        )
    })?;
    let environment = host_environment(options, &python, kind, scratch.path(), &database)?;
    let info = device::discover(&environment, scratch.path())?;
    let device::Chosen { chips, left_out } =
        device::choose(&info, options.devices.as_ref().map(|list| list.0.as_slice()))?;
    for line in left_out {
        print_note(&format!("left out: {line}"));
    }

    let mut lock = database.lock()?;
    let measured: BTreeSet<_> = match database.existing_ledger()? {
        Some(ledger) => ledger.measured_cases()?.into_keys().collect(),
        None => BTreeSet::new(),
    };
    let update = match options.update {
        UpdateWord::Missing => Update::Missing,
        UpdateWord::All => Update::All,
    };
    let rejected = match database.existing_ledger()? {
        Some(ledger) if !options.ignore_check => rejected_calls(&ledger, &python)?,
        _ => BTreeMap::new(),
    };
    let selection = Selection { update, kernels: &kernels, measured: &measured, rejected: Some(&rejected) };
    let mut plan = select(&database, &catalogue, &device, &selection)?;
    plan.note_skew(options.expert_skew);
    // From here on there is something to keep.
    database.adopt(&mut lock)?;
    let mut ledger = database.ledger()?;
    let run = run_id(kind);
    let folder = database.run_folder(&run);
    let environment = host_environment(options, &python, kind, &folder.join("host"), &database)?;
    let costs = Costs { case: 0.02, launch: 50e-6, launches: options.warm_up + options.launches };
    let settings = Settings {
        run,
        kind,
        folder,
        seed: options.seed,
        warm_up: options.warm_up,
        measured: options.launches,
        python,
        leases: leases(kind, &database),
        environment,
        expert_skew: options.expert_skew,
        costs,
        catalogue,
        assets,
    };
    measure(options, &database, &mut ledger, settings, plan, &info, &chips)
}

/// Calls that the vendor's code rejected when it was asked, with what it said. Another torch_npu than the one
/// that will run has no say; the rehearsal host has none of its own.
fn rejected_calls(ledger: &Ledger, python: &str) -> Result<BTreeMap<CaseId, (String, String)>, Failure> {
    let checks = ledger.checks()?;
    if checks.is_empty() {
        return Ok(BTreeMap::new());
    }
    let here = software(python).ok().map(|software| software.to_string());
    let counts = |check: &Check| {
        check.outcome.verdict == CheckVerdict::Rejected
            && here.as_ref().is_none_or(|here| *here == check.software)
    };
    let rejected = checks.into_iter().filter(|(_, check)| counts(check));
    let said = |check: Check| {
        (
            check.digest,
            format!("rejected by {} when it was checked: {}", check.software, check.outcome.message),
        )
    };
    Ok(rejected.map(|(case, check)| (case, said(check))).collect())
}

/// One skew of routing for all that a database has measured: samples of different ones are not of one case.
fn check_skew(database: &Database, skew: f64) -> Result<(), Failure> {
    let Some(ledger) = database.existing_ledger()? else { return Ok(()) };
    let other = ledger.run_options()?.into_iter().find_map(|(run, options)| {
        let options: serde_json::Value = serde_json::from_str(&options).ok()?;
        let earlier = options["expert_skew"].as_f64().unwrap_or(0.0);
        (earlier != skew).then_some((run, earlier))
    });
    match other {
        None => Ok(()),
        Some((run, earlier)) => Err(Failure::bad_input(
            format!("run {run} of this database named experts with a skew of {earlier}, not {skew}"),
            "measure another skew in a copy: `npubench db copy DIR NEW --kind KIND`",
        )),
    }
}

/// Carries the plan out and prints the closing table.
fn measure(
    options: &Options,
    database: &Database,
    ledger: &mut Ledger,
    settings: Settings,
    plan: Plan,
    info: &NpuSmiInfo,
    chips: &[Chip],
) -> Result<Exit, Failure> {
    let screen: Box<dyn Sink> = match options.format {
        Format::Plain => Box::new(Human::for_stderr()),
        Format::Json => Box::new(JsonLines),
    };
    let folder = settings.folder.clone();
    let mut sink = Recorded::new(screen, &folder, &[]);
    let run = engine::Run {
        database,
        ledger,
        plan,
        devices: chips.iter().map(|chip| chip.device).collect(),
        options: json!({
            "update": format!("{:?}", options.update).to_lowercase(),
            "kernels": options.kernels,
            "devices": chips.iter().map(|chip| chip.device).collect::<Vec<_>>(),
            "python": settings.python,
            "assets": options.assets.assets,
            "warm_up": options.warm_up,
            "launches": options.launches,
            "seed": options.seed,
            "expert_skew": options.expert_skew,
            "rehearsal_model": format!("{:?}", options.rehearsal_model).to_lowercase(),
        })
        .to_string(),
        host: serde_json::to_string(&Fingerprint::take(info, chips)).unwrap_or_default(),
        readings: chips.iter().map(reading).collect(),
        settings,
        budget: None,
        resumed: None,
    };
    let outcome = engine::run(run, &mut |event: &Event| sink.on_event(event))?;
    if options.format == Format::Plain {
        if !outcome.findings.is_empty() {
            print_data(&closing_table(&outcome.findings));
        }
        let marked =
            if database.kind() == Kind::Rehearsal { " (rehearsal: simulated durations)" } else { "" };
        print_note(&format!("rows are in {}{marked}", database.folder().display()));
        print_note(&format!("scripts, logs and raw output are in {}", folder.display()));
    }
    Ok(outcome.exit)
}

/// Why scripts and profiles cannot be kept below a folder: msprof refuses some characters in paths.
fn path_problem(folder: &Path, kind: Kind) -> Option<String> {
    const REFUSED: &str = "'\"\\%><|&$;`";
    let path = folder.to_string_lossy();
    let refused = |c: char| c.is_control() || REFUSED.contains(c) || (kind == Kind::Rehearsal && c == ':');
    let found = path.chars().find(|c| refused(*c))?;
    Some(format!("has a {found:?} in its path, which msprof does not take"))
}

/// Real devices belong to the host, whatever the database; rehearsed ones to their database.
fn leases(kind: Kind, database: &Database) -> PathBuf {
    match kind {
        Kind::Npu => std::env::temp_dir().join(format!("npubench-leases-{}", nix::unistd::getuid())),
        Kind::Rehearsal => database.state_folder().join("leases"),
    }
}

/// Variables that the host's programs need; on the rehearsal host they are written into `folder`.
fn host_environment(
    options: &Options,
    python: &str,
    kind: Kind,
    folder: &Path,
    database: &Database,
) -> Result<Vec<(String, String)>, Failure> {
    if kind == Kind::Npu {
        // Operators that a Python package brings are not found by themselves.
        let variable = |name: &str| std::env::var(name).ok();
        let packages = custom_operators(variable, &package_folders(python, "vllm_ascend"));
        return Ok(environment_of(&packages, variable));
    }
    let io = |error: std::io::Error| {
        Failure::bad_input(
            format!("cannot create `{}`: {error}", folder.display()),
            "the folder must be writable; check its owner, mode and mount",
        )
    };
    fs::create_dir_all(folder).map_err(io)?;
    let config = rehearsal::Config {
        model: match options.rehearsal_model {
            ModelWord::Lifelike => rehearsal::Model::Lifelike,
            ModelWord::Steady => rehearsal::Model::Steady,
        },
        seed: options.seed,
        device_profile: database.device().to_owned(),
        devices: REHEARSED_DEVICES,
        assets: options.assets.assets.as_ref().and_then(|folder| folder.canonicalize().ok()),
    };
    Ok(rehearsal::install(folder, &config)?)
}

/// Dies of an Atlas 800 A3.
const REHEARSED_DEVICES: u32 = 16;

fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}

/// Sorts by time, tells two runs of one second apart, and marks rows whose durations are simulated.
fn run_id(kind: Kind) -> String {
    let mark = if kind == Kind::Rehearsal { REHEARSAL_RUN } else { "" };
    format!("{mark}{}-{:05}", now().strftime("%Y%m%d-%H%M%S"), process::id() % 100_000)
}

fn reading(chip: &Chip) -> DeviceReading {
    DeviceReading {
        device: chip.device,
        at: Nanos(i64::try_from(now().as_nanosecond()).unwrap_or_default()),
        health: chip.health.clone(),
        temperature: chip.temperature_c,
        power: chip.power_w,
        memory_used_mb: chip.memory_used_mb,
    }
}
