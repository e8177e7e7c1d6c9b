//! `npubench run`: measures what a database lacks.

use std::{collections::BTreeSet, fs, path::PathBuf, process};

use clap::{Args, ValueEnum};
use serde_json::json;

use super::{
    Failure,
    options::{AssetOptions, DeviceList, Format, KindWord, kernels, parse_devices},
};
use crate::{
    device::{self, Fingerprint, search_path},
    engine::{self, Settings},
    events::Event,
    exit::Exit,
    model::{Kind, Nanos},
    plan::{Costs, Plan, Selection, Update, select},
    process::find_program,
    profile::npu_smi::{Chip, NpuSmiInfo},
    rehearsal,
    report::{Human, JsonLines, Sink, closing_table, print_data, print_note},
    spec::{Catalogue, DeviceProfile},
    store::{Database, Ledger, ledger::DeviceReading},
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
    /// `json` prints every event as a line of JSON
    #[arg(long, value_enum, default_value = "plain")]
    format: Format,
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
    find_python(options)?;
    // Nothing has been written so far; the host is asked in a folder of its own.
    let scratch = tempfile::tempdir().map_err(|error| {
        Failure::bad_input(
            format!("cannot make a temporary folder: {error}"),
            "check TMPDIR and its free space",
        )
    })?;
    let environment = host_environment(options, kind, scratch.path(), &database)?;
    let info = device::discover(&environment, scratch.path())?;
    let chips = device::choose(&info, options.devices.as_ref().map(|list| list.0.as_slice()))?;

    let _lock = database.lock()?;
    let mut ledger = database.ledger()?;
    let measured: BTreeSet<_> = ledger.measured_cases()?.into_keys().collect();
    let update = match options.update {
        UpdateWord::Missing => Update::Missing,
        UpdateWord::All => Update::All,
    };
    let selection = Selection { update, kernels: &kernels, measured: &measured };
    let plan = select(&database, &catalogue, &device, &selection)?;
    for line in &plan.unreadable {
        print_note(&format!("left out: {line}"));
    }

    let run = run_id(kind);
    let folder = database.run_folder(&run);
    let environment = host_environment(options, kind, &folder.join("host"), &database)?;
    let costs = Costs { case: 0.02, launch: 50e-6, launches: options.warm_up + options.launches };
    let settings = Settings {
        run,
        kind,
        folder,
        seed: options.seed,
        warm_up: options.warm_up,
        measured: options.launches,
        python: options.python.clone(),
        environment,
        costs,
        catalogue,
        assets,
    };
    measure(options, &database, &mut ledger, settings, plan, &info, &chips)
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
    let mut sink: Box<dyn Sink> = match options.format {
        Format::Plain => Box::new(Human::for_stderr()),
        Format::Json => Box::new(JsonLines),
    };
    let folder = settings.folder.clone();
    let run = engine::Run {
        database,
        ledger,
        plan,
        devices: chips.iter().map(|chip| chip.device).collect(),
        options: json!({
            "update": format!("{:?}", options.update).to_lowercase(),
            "kernels": options.kernels,
            "warm_up": options.warm_up,
            "launches": options.launches,
            "seed": options.seed,
            "rehearsal_model": format!("{:?}", options.rehearsal_model).to_lowercase(),
        })
        .to_string(),
        host: serde_json::to_string(&Fingerprint::take(info, chips)).unwrap_or_default(),
        readings: chips.iter().map(reading).collect(),
        settings,
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

fn find_python(options: &Options) -> Result<(), Failure> {
    match find_program(&options.python, &search_path(&[])) {
        Some(_) => Ok(()),
        None => Err(Failure::bad_input(
            format!("there is no program `{}`, which runs the replay scripts", options.python),
            "install Python 3.8 or later, or name it with `--python PROGRAM`",
        )),
    }
}

/// Variables that the host's programs need; on the rehearsal host they are written into `folder`.
fn host_environment(
    options: &Options,
    kind: Kind,
    folder: &std::path::Path,
    database: &Database,
) -> Result<Vec<(String, String)>, Failure> {
    if kind == Kind::Npu {
        return Ok(Vec::new());
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
        assets: options.assets.assets.clone(),
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
    let mark = if kind == Kind::Rehearsal { "rehearsal-" } else { "" };
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
