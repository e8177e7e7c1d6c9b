//! `npubench shard`: cuts the plan of a run into shards.

use super::{plan::devices_of_host, prelude::*};
use crate::{
    cases::plan::PlannedCase,
    kernel::timestamp::format_duration,
    measure::{engine::dry_run, fleet::require_merged_shards, run_plan::plan_of_database},
};

/// Cuts the plan of a run into shards of about equal predicted time, for several hosts
///
/// `npubench run --shard K/N` measures one of them in a ledger of its own, and `npubench db merge DIR --shards` merges what was measured.
/// Cases are in the order of their ids, so the same database and options have the same shards. Nothing is launched.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench shard --db a3 --shards 12
  npubench shard --db a3 --minutes 20 --devices 0-7 --kernels MatMulV2")]
pub(super) struct ShardOptions {
    #[command(flatten)]
    database: DatabaseFolder,
    /// Number of shards
    #[arg(long, value_name = "N", required_unless_present = "minutes",
          value_parser = parse_shard_count)]
    shards: Option<usize>,
    /// As many shards as take about this long on the devices of one host; a collection takes 20 to 40 s to start
    #[arg(long, value_name = "MINUTES", conflicts_with = "shards",
          value_parser = |text: &str| parse_within(text, 1..=10_000_u32, "no number of minutes from 1 to 10000"))]
    minutes: Option<u32>,
    /// Devices of one host, for the prediction, such as `0-3,8`; by default all of this host
    #[arg(long, value_name = "LIST", value_parser = parse_devices)]
    devices: Option<DeviceList>,
    #[command(flatten)]
    rows: RowOptions,
    #[command(flatten)]
    cache: CacheOption,
    /// Replace the plan of earlier shards, whose results must be merged before
    #[arg(long)]
    replace: bool,
    /// Replace the plan also if results of its shards are not merged, or cannot be found because its file is damaged
    #[arg(long, requires = "replace")]
    discard_results: bool,
    #[command(flatten)]
    python: PythonOption,
    #[command(flatten)]
    common: CommonOptions<OutputOptions>,
}

/// Divides the rows without a result into `count` shards, as the command does without further options.
pub(super) fn divide_database(
    database: &Database,
    assets: &AssetOptions,
    count: usize,
) -> Result<ShardPlan, CommandError> {
    let assets = assets.load()?;
    let profile = DeviceProfile::load(&assets, database.device())?;
    let run_options = RunOptions { python: "python3".to_owned(), ..RunOptions::default() };
    let plan = plan_of_database(database, &Catalogue::load(&assets)?, &profile, &run_options, &[])?;
    for row in &plan.unreadable_rows {
        print_note(&format!("left out: {row}"));
    }
    let costs = InitialCosts::new(WARM_UP, LaunchCount::Adaptive).with_cache(run_options.cache, &profile);
    ShardPlan::new(database, &plan, &costs, run_options.cache, None, count)
}

/// Prints where the results of a replaced plan are, if one of its shards was started: they may not be merged yet.
fn note_replaced_plan(database: &Database, earlier: &ShardPlan) {
    let folders = (1..=earlier.shards.len()).map(|number| database.shard_folder(&earlier.identity(number)));
    let started: Vec<PathBuf> = folders.filter(|folder| folder.is_dir()).collect();
    let Some(folder) = started.first().and_then(|first| first.parent()) else { return };
    print_note(&format!(
        "results of {} of the replaced plan {} stay in {}: `npubench db merge NEW {}/*` takes them into a new database, and `npubench db \
         merge {} NEW` into this one",
        format_count(started.len(), "shard"),
        earlier.id(),
        folder.display(),
        quoted_path(folder),
        quoted_path(database.folder())
    ));
}

#[derive(Serialize)]
struct ShardRecord<'a> {
    plan: &'a str,
    /// From 1.
    shard: usize,
    shards: usize,
    cases: usize,
    /// Seconds that its cases take on one device.
    device_s: f64,
    /// Seconds that its run takes on the devices of one host.
    predicted_s: f64,
}

pub(super) fn run(options: &ShardOptions) -> Result<ExitStatus, CommandError> {
    let (assets, catalogue) = options.common.assets.load_catalogue()?;
    let database = Database::open(&options.database.db)?;
    let profile = DeviceProfile::load(&assets, database.device())?;
    let cache = options.cache.state;
    let base = RunOptions { cache, python: options.python.program()?, ..RunOptions::default() };
    let run_options = options.rows.add_to(base);
    let devices = devices_of_host(options.devices.as_ref(), database.kind())?;
    let mut lock = database.lock()?;
    let plan =
        plan_of_database(&database, &catalogue, &profile, &run_options, &options.rows.kernels.names()?)?;
    let costs = InitialCosts::new(WARM_UP, LaunchCount::Adaptive).with_cache(cache, &profile);
    let predict = |cases: &[PlannedCase]| dry_run(database.kind(), &costs, cases, &devices, None).duration;
    let count = match options.minutes {
        Some(minutes) => ((predict(&plan.cases) / (60.0 * f64::from(minutes))).ceil() as usize).max(1),
        None => options.shards.unwrap_or(1),
    };
    let shards = ShardPlan::new(&database, &plan, &costs, cache, run_options.weight_column, count)?;
    // A damaged plan is replaced.
    let earlier = ShardPlan::load(&database).ok().flatten();
    if options.replace && !options.discard_results && earlier.as_ref() != Some(&shards) {
        require_merged_shards(&database)?;
    }
    shards.store(&database, &mut lock, options.replace)?;
    if let Some(earlier) = earlier.filter(|earlier| options.discard_results && earlier.id() != shards.id()) {
        note_replaced_plan(&database, &earlier);
    }
    let (id, db) = (shards.id(), quoted_path(database.folder()));
    for (shard, number) in shards.shards.iter().zip(1..) {
        let is_of_shard = |planned: &&PlannedCase| shard.cases.binary_search(planned.case.id()).is_ok();
        let cases: Vec<PlannedCase> = plan.cases.iter().filter(is_of_shard).cloned().collect();
        let record = ShardRecord {
            plan: &id,
            shard: number,
            shards: count,
            cases: shard.cases.len(),
            device_s: shard.device_seconds,
            predicted_s: predict(&cases),
        };
        emit(options.common.output.format, [&record], || {
            let ShardRecord { cases, predicted_s, .. } = record;
            let (cases, devices) = (format_count(cases, "case"), format_count(devices.len(), "device"));
            format!("{number}/{count}: {cases}, {} on {devices}\n", format_duration(predicted_s))
        });
    }
    for row in &plan.unreadable_rows {
        print_note(&format!("left out: {row}"));
    }
    print_note(&format!(
        "plan {id}: `npubench run --db {db} --shard K/{count}` measures a shard, also after any interruption; `npubench db merge {db} \
         --shards` merges the results"
    ));
    Ok(ExitStatus::Done)
}
