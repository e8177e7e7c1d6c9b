//! `npubench comm import`: results of hccl_test and nccl-tests as rows.

use super::super::prelude::*;
use crate::{
    database::{DatabaseError, ImportedDuration, MergeReport, import_durations},
    kernel::{CollectiveCase, PartWeights, hccl_environment, hccl_variables},
    measure::collective::{no_tier, parse_collective, tier_of_group},
    profile::{CollectiveBenchmark, parse_element_type},
};

/// Writes results of hccl_test and nccl-tests into the tables of collectives
///
/// The collective, the devices and, for hccl_test, the element type are not part of the output and must be given. Rows have the
/// benchmark's average as duration, its name and the file; a row that was measured keeps its measurement. Sizes with wrong
/// results are left out. See docs/collectives.md.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench comm import gather.txt --db comm --collective all_gather --devices 0-7 --dtype bf16")]
pub(in crate::cli) struct ImportOptions {
    /// Printed text, one run per file
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    database: DatabaseFolder,
    /// Collective of all files, such as all_reduce
    #[arg(long, value_name = "COLLECTIVE")]
    collective: String,
    /// Devices of the group, such as `0-7`, from which the number of ranks and the tier follow
    #[arg(long, value_name = "LIST", value_parser = parse_devices, required_unless_present = "tier")]
    devices: Option<DeviceList>,
    /// Tier that the group spans
    #[arg(long, value_name = "N", conflicts_with = "devices")]
    tier: Option<u64>,
    /// Number of ranks; by default that of the devices, or that the output lists
    #[arg(long, value_name = "N", conflicts_with = "devices")]
    ranks: Option<u64>,
    /// Element type, such as FLOAT or bfloat16, if the output has none
    #[arg(long, value_name = "TYPE")]
    dtype: Option<String>,
    /// Variables of HCCL that were set, such as `HCCL_ALGO=level0:ring`
    #[arg(long, value_name = "VARIABLES", default_value = "", hide_default_value = true, value_parser = parse_environment)]
    environment: String,
    /// Device profile of a new database
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    #[command(flatten)]
    common: CommonOptions<OutputOptions>,
}

pub(super) fn run(options: &ImportOptions) -> Result<ExitStatus, CommandError> {
    let assets = options.common.assets.load()?;
    let kind = parse_collective(&options.collective)?;
    let dtype = options.dtype.as_deref().map(parse_dtype).transpose()?;
    let target = open_target(options, &assets)?;
    let device = &target.file.device;
    let (mut imported, mut notes) = (Vec::new(), Vec::new());
    for file in &options.files {
        let benchmark = CollectiveBenchmark::read(file)?;
        let (ranks, tier) = group_of(options, &assets, device, benchmark.ranks)?;
        if let Some((announced, last)) = benchmark.missing_end() {
            notes.push(format!(
                "`{}` ends at {last} bytes, although its header announces {announced}: it may be cut",
                file.display()
            ));
        }
        let durations = benchmark.durations(kind, ranks, dtype.as_ref())?;
        let failed = &benchmark.failed;
        if !failed.is_empty() {
            let sizes = joined(failed, ", ");
            notes.push(format!("`{}`: wrong results left out: {sizes} bytes", file.display()));
        }
        for duration in durations {
            let collective = CollectiveCase {
                kind,
                message: duration.message,
                ranks,
                tier,
                dtype: duration.dtype,
                environment: options.environment.clone(),
                parts: PartWeights::Equal,
            };
            // A size that no call has shows that an option is wrong.
            collective.case().map_err(|problem| {
                CommandError::bad_input(
                    format!("`{}`: {problem}", file.display()),
                    "correct `--collective`, `--dtype`, `--devices` or `--ranks`",
                )
            })?;
            let tool = benchmark.tool;
            imported.push(ImportedDuration {
                collective,
                micros: duration.micros,
                method: format!("{tool} average"),
                check: if duration.is_checked { format!("ok by {tool}") } else { String::new() },
                source: file.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            });
        }
    }
    if imported.is_empty() {
        notes.iter().for_each(|note| print_note(note));
        return Err(CommandError::bad_input(
            "no size has a usable duration, so that nothing is imported",
            "correct the benchmark's run; its results were wrong at every size",
        ));
    }
    let kernel = KernelName::new(kind.kernel_name())?;
    let report = target.write(false, |database| {
        let mut table = database.kernel_csv(&kernel)?;
        let report = import_durations(&mut table, &imported)?;
        Ok::<_, DatabaseError>((vec![table], report))
    })?;
    let MergeReport { added, updated, same, kept } = report;
    emit(options.common.output.format, [report], || {
        let added = format_count(added, "row");
        format!("{added} added, {updated} updated, {same} unchanged, {kept} keep their own measurement\n")
    });
    notes.iter().for_each(|note| print_note(note));
    Ok(ExitStatus::Done)
}

fn parse_environment(text: &str) -> Result<String, String> {
    let is_name = |name: &str| {
        !name.is_empty()
            && name.bytes().all(|byte| byte == b'_' || byte.is_ascii_uppercase() || byte.is_ascii_digit())
    };
    let variables = hccl_variables(text);
    let mut names = text.split(';').filter_map(|part| Some(part.split_once('=')?.0));
    match names.find(|name| is_name(name) && !variables.contains_key(*name)) {
        Some(name) => Err(format!(
            "`{name}` is no variable of HCCL that belongs to the key of a row; docs/collectives.md lists them"
        )),
        None if variables.is_empty() && !text.trim().is_empty() => {
            Err(format!("`{text}` has no variable, expected NAME=value with `;` between them"))
        }
        None => Ok(hccl_environment(&variables)),
    }
}

fn parse_dtype(name: &str) -> Result<Dtype, CommandError> {
    parse_element_type(name).ok_or_else(|| {
        CommandError::bad_input(
            format!("`{name}` is no element type of a collective"),
            "give a type such as FLOAT, FLOAT16, DT_BF16 or INT8",
        )
    })
}

fn open_target<'o>(
    options: &'o ImportOptions,
    assets: &AssetFiles,
) -> Result<TargetDatabase<'o>, CommandError> {
    let mut target = TargetDatabase::open(&options.database.db, None)?;
    let (folder, device) = (target.folder.display(), target.file.device.as_str());
    let given = options.device.as_deref();
    let (problem, hint) = match (given, &target.existing) {
        (None, None) => (
            format!("the device of the new database `{folder}` is unknown"),
            "give its device profile with `--device`",
        ),
        (Some(given), None) => {
            target.file.device = DeviceProfile::load(assets, given)?.device;
            return Ok(target);
        }
        (_, Some(database)) if database.kind() == DataKind::Rehearsal => (
            format!("`{folder}` is of kind `rehearsal`, its numbers are simulated"),
            "import measured results into a database of kind `npu`",
        ),
        (Some(given), Some(_)) if given != device => (
            format!("the device of `{folder}` is `{device}`"),
            "leave `--device` out, or keep one database per device",
        ),
        _ => return Ok(target),
    };
    Err(CommandError::bad_input(problem, hint))
}

fn group_of(
    options: &ImportOptions,
    assets: &AssetFiles,
    device: &str,
    listed: Option<u64>,
) -> Result<(u64, u64), CommandError> {
    let (ranks, tier) = match &options.devices {
        Some(DeviceList(devices)) => {
            let network = network_of_profile(assets, device)?;
            (Some(devices.len() as u64), tier_of_group(&network.grid, devices)? as u64)
        }
        None => (options.ranks.or(listed), options.tier.unwrap_or_default()),
    };
    let network = DeviceProfile::load(assets, device)?.comm;
    if let Some(network) = network.filter(|network| tier >= network.grid.len() as u64) {
        return Err(no_tier(usize::try_from(tier).unwrap_or(usize::MAX), &network.grid));
    }
    let Some(ranks) = ranks else {
        return Err(CommandError::bad_input(
            "the number of ranks is unknown: hccl_test does not print it",
            "give `--ranks`, or the devices with `--devices`",
        ));
    };
    if listed.is_some_and(|listed| listed != ranks) {
        return Err(CommandError::bad_input(
            format!("the output lists {} ranks, not {ranks}", listed.unwrap_or_default()),
            "correct `--devices` or `--ranks`",
        ));
    }
    Ok((ranks, tier))
}
