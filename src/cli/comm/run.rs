//! `npubench comm run`: measures collectives over message sizes.

use clap::Args;

use super::super::{
    measurement_options::MeasurementOptions,
    options::{DatabaseFolder, DeviceList, OutputOptions, parse_devices},
};
use crate::{
    config::{DatabaseFile, DeviceProfile},
    database::{Database, DatabaseError},
    domain::{CollectiveKind, DataKind},
    exit::ExitStatus,
    plan::UpdateMode,
    render::ScriptCommunication,
    report::{print_data, print_note},
    session::{
        CollectiveSweep, CommandError, DeadlineOptions, RunContext, RunOptions, WantedGroups,
        current_hccl_environment, new_run_id,
    },
};

/// Measures collectives over message sizes, numbers of ranks, tiers and types
///
/// A collective of one size is a case as that of a kernel: `status`, `resume`, `why`, `show` and `reparse` work for it, too. The
/// results are written into `hcom_*.csv`; docs/collectives.md describes their columns. Sizes are bytes, and K, M and G are powers
/// of 1024, as in nccl-tests.
#[derive(Debug, Args)]
pub(in crate::cli) struct CommRunOptions {
    #[command(flatten)]
    database: DatabaseFolder,
    /// Collectives, separated by commas: `all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all`, `all_to_all_v`, `broadcast`,
    /// `send_receive`
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = parse_kind,
          default_value = "all_reduce,all_gather,reduce_scatter,all_to_all")]
    ops: Vec<CollectiveKind>,
    /// Numbers of ranks, separated by commas; by default (`all`) the powers of two that the devices allow
    #[arg(long, value_name = "LIST|all", default_value = "all", value_parser = parse_ranks)]
    ranks: RankList,
    /// Tiers of the network that the groups span, separated by commas; 0 is the outermost; by default all
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    tiers: Vec<usize>,
    /// Element types, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = parse_dtype, default_value = "bf16")]
    dtypes: Vec<String>,
    /// Smallest message
    #[arg(long, value_name = "SIZE", default_value = "1K", value_parser = parse_size)]
    from: u64,
    /// Largest message
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = parse_size)]
    to: u64,
    /// Ratio of successive messages
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(2..=1024))]
    factor: u64,
    /// Messages, separated by commas, instead of `--from`, `--to` and `--factor`
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = parse_size,
          conflicts_with_all = ["from", "to", "factor"])]
    sizes: Vec<u64>,
    /// Devices to use, by the numbers of `npu-smi info`, such as `0-15`; by default all of this host
    #[arg(long, value_name = "LIST", value_parser = parse_devices)]
    devices: Option<DeviceList>,
    #[command(flatten)]
    deadline: DeadlineOptions,
    /// Rows to measure
    #[arg(long, value_enum, default_value = "missing")]
    update: UpdateMode,
    /// Device profile of a database that does not exist yet
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Backend of torch.distributed; `gloo` runs on the CPU of this host with the torch of `--python`, and its times, by the
    /// host's clock, are only for databases of the rehearsal host
    #[arg(long, value_enum, default_value = "hccl")]
    backend: BackendArg,
    /// Print groups, sizes and the predicted time; nothing is launched and nothing is written
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    measurement: MeasurementOptions,
    #[command(flatten)]
    output: OutputOptions,
}

/// Backend of torch.distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum BackendArg {
    Hccl,
    Gloo,
}

/// Numbers of ranks; empty for all.
#[derive(Clone, Debug)]
struct RankList(Vec<usize>);

fn parse_ranks(text: &str) -> Result<RankList, String> {
    if text == "all" {
        return Ok(RankList(Vec::new()));
    }
    let number = |part: &str| part.trim().parse::<usize>().ok().filter(|ranks| *ranks >= 2);
    let numbers: Option<Vec<usize>> = text.split(',').map(number).collect();
    numbers.map(RankList).ok_or_else(|| {
        format!("`{text}` is neither `all` nor numbers of 2 or more ranks, such as `2,4,8,16`")
    })
}

fn parse_kind(text: &str) -> Result<CollectiveKind, String> {
    let names: Vec<String> = CollectiveKind::ALL.iter().map(ToString::to_string).collect();
    text.trim().parse().map_err(|_| format!("`{text}` is no collective; known are {}", names.join(", ")))
}

/// Parses a type by torch's name or a short one; returns torch's name.
fn parse_dtype(text: &str) -> Result<String, String> {
    const SHORT: [(&str, &str); 3] = [("bf16", "bfloat16"), ("fp16", "float16"), ("fp32", "float32")];
    const KNOWN: [&str; 7] = ["bfloat16", "float16", "float32", "int8", "uint8", "int32", "int64"];
    let text = text.trim();
    let name = SHORT.iter().find(|(short, _)| *short == text).map_or(text, |(_, name)| name);
    KNOWN.contains(&name).then(|| name.to_owned()).ok_or_else(|| {
        format!("`{text}` is no type of a message; known are bf16, fp16, fp32, int8, uint8, int32, int64")
    })
}

/// Parses a number of bytes: `4096`, `1K`, `512M`, `4G`.
fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => Some(0),
        "K" | "KB" | "KIB" => Some(10),
        "M" | "MB" | "MIB" => Some(20),
        "G" | "GB" | "GIB" => Some(30),
        _ => None,
    };
    let bytes =
        shift.zip(digits.parse::<u64>().ok()).and_then(|(shift, number)| number.checked_mul(1 << shift));
    bytes
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| format!("`{text}` is no size; write bytes, or a number with K, M or G, such as 512M"))
}

/// Returns the sizes from the smallest to the largest by a constant ratio.
fn ladder(from: u64, to: u64, factor: u64) -> Result<Vec<u64>, CommandError> {
    if from > to {
        return Err(CommandError {
            message: format!("`--from` is {from} bytes, more than `--to`, {to} bytes"),
            hint: "exchange them".to_owned(),
            exit: ExitStatus::Usage,
        });
    }
    let sizes =
        std::iter::successors(Some(from), |size| size.checked_mul(factor)).take_while(|size| *size <= to);
    Ok(sizes.collect())
}

pub(super) fn run(options: &CommRunOptions) -> Result<ExitStatus, CommandError> {
    let kind = options.measurement.kind();
    let communication = match options.backend {
        BackendArg::Hccl => ScriptCommunication::Hccl,
        BackendArg::Gloo if kind == DataKind::Npu => {
            return Err(CommandError {
                message:
                    "times of gloo are those of the CPU, and are for databases of the rehearsal host only"
                        .to_owned(),
                hint: "add `--host rehearsal` with a database of its own, or remove `--backend gloo`"
                    .to_owned(),
                exit: ExitStatus::Usage,
            });
        }
        BackendArg::Gloo => ScriptCommunication::Gloo,
    };
    let mut sizes = match options.sizes.is_empty() {
        true => ladder(options.from, options.to, options.factor)?,
        false => options.sizes.clone(),
    };
    sizes.sort_unstable();
    sizes.dedup();
    let assets = options.measurement.assets.load()?;
    let base = RunOptions {
        update: options.update,
        chosen_devices: options.devices.as_ref().map(|list| list.0.clone()),
        ..options.measurement.options_of_one_collection(&assets)?
    };
    options.measurement.print_notes();
    let folder = &options.database.db;
    let wanted = WantedGroups { ranks: options.ranks.0.clone(), tiers: options.tiers.clone() };
    let sweep = CollectiveSweep {
        kinds: options.ops.clone(),
        dtypes: options.dtypes.clone(),
        sizes,
        groups: Vec::new(),
        environment: current_hccl_environment(),
        communication,
    };
    if Database::is_new(folder)? {
        let name = options.device.as_deref().unwrap_or(DeviceProfile::default_name());
        let profile = DeviceProfile::load(&assets, name)?;
        if options.dry_run {
            return Err(CommandError::bad_input(
                format!("`{}` is no database", folder.display()),
                "a sweep without `--dry-run` creates it",
            ));
        }
        // Before the folder exists: a database is not created for a sweep that cannot be.
        if let Some(devices) = &base.chosen_devices {
            CollectiveSweep { groups: wanted.find(&profile, devices)?, ..sweep.clone() }.cases()?;
        }
        let file = DatabaseFile { device: name.to_owned(), ..DatabaseFile::new(kind) };
        Database::create(folder, &file, |_| Ok::<(), DatabaseError>(()))?;
        print_note(&format!("created the database `{}` for {name}", folder.display()));
    }
    let context = RunContext::find(folder, kind, assets, &base)?;
    let groups = context.find_groups(&wanted)?;
    let run_options = RunOptions { sweep: Some(CollectiveSweep { groups, ..sweep }), ..base };
    let preview = context.preview_sweep(&run_options, options.deadline.seconds())?;
    if options.dry_run {
        print_data(&preview.print(options.output.format));
        return Ok(ExitStatus::Done);
    }
    print_note(&preview.summary());
    context.require_host(&run_options)?;
    let mut lock = context.database.lock()?;
    let plan = context.plan(&run_options, &[])?;
    context.database.initialise(&mut lock)?;
    let run = new_run_id(&context.database, run_options.cache);
    let ended =
        context.measure(&run, run_options, plan, None, options.deadline.seconds(), options.output.format);
    drop(lock);
    Ok(ended?.exit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_suffixes_of_nccl_tests() {
        let sizes = ["128", "1K", "512M", "4G", "3k"].map(|text| parse_size(text).expect(text));
        assert_eq!(sizes, [128, 1024, 512 << 20, 4 << 30, 3 << 10]);
        for wrong in ["0", "", "K", "1T", "-1", "1.5M", "99999999999G"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
        assert_eq!(ladder(128, 512 << 20, 2).expect("a ladder").len(), 23);
        assert_eq!(ladder(1000, 9000, 3).expect("a ladder"), [1000, 3000, 9000]);
        assert!(ladder(2, 1, 2).is_err());
    }

    #[test]
    fn ranks_are_numbers_or_all() {
        assert!(parse_ranks("all").expect("all").0.is_empty());
        assert_eq!(parse_ranks("2, 16").expect("numbers").0, [2, 16]);
        assert!(parse_ranks("1").is_err() && parse_ranks("two").is_err());
    }
}
