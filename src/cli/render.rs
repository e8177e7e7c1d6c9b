//! `npubench render`: prints the script or the manifest of a kernel as a run would write them.

use super::prelude::*;
use crate::{
    cases::plan::DEFAULT_LAUNCHES,
    database::row_cases,
    kernel::{
        IdentifiedCase, LogicalDeviceId, ProfilerSettings,
        render::{
            ControlLaunches, HostNumbers, Manifest, ManifestCase, PinnedEnvironment, ScriptCommunication,
            SentinelLengths, replay_script,
        },
    },
};

/// Prints the replay script of a kernel, or the manifest of its cases
///
/// Both go to standard output: the script by default, the manifest with `--manifest`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench render MatMulV2 --db a3 > replay.py")]
pub(super) struct RenderOptions {
    /// Name of the kernel
    #[arg(value_name = "KERNEL", required_unless_present = "kernels")]
    listed: Option<String>,
    /// The same as KERNEL, as other commands name it
    #[arg(long, value_name = "NAME", conflicts_with = "listed")]
    kernels: Option<String>,
    #[command(flatten)]
    database: DatabaseFolder,
    /// Only the case with this id, or whose id begins with it
    #[arg(long, value_name = "ID", value_parser = parse_case_prefix)]
    case: Option<String>,
    /// Print the manifest instead of the script
    #[arg(long)]
    manifest: bool,
    /// Seed of input values
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    skew: SkewOption,
    #[command(flatten)]
    assets: AssetOptions,
}

pub(super) fn run(options: &RenderOptions) -> Result<ExitStatus, CommandError> {
    let (assets, catalogue) = options.assets.load_catalogue()?;
    let database = Database::open(&options.database.db)?;
    let name = options.listed.as_ref().or(options.kernels.as_ref());
    let kernel = KernelName::new(name.map_or("", String::as_str))?;
    let entry = catalogue.entry(&kernel).ok_or_else(|| {
        if let Some(reason) = catalogue.not_launchable_reason(kernel.as_str()) {
            let hint = "an entry of that name below `--assets` replaces the reason";
            return CommandError::bad_input(format!("no call launches `{kernel}` alone: {reason}"), hint);
        }
        let known: Vec<&str> = catalogue.entries().map(|entry| entry.kernel.as_str()).collect();
        let hint = did_you_mean_or(
            kernel.as_str(),
            known.iter().copied(),
            || "`npubench kernels` lists the entries; docs/adding-a-kernel.md explains how to add one",
        );
        CommandError::bad_input(format!("the catalogue has no entry for `{kernel}`"), hint)
    })?;
    let script = || replay_script(&assets, ScriptCommunication::Kernels, [(&kernel, entry)]);
    if !options.manifest && options.case.is_none() {
        print_data(&script()?);
        return Ok(ExitStatus::Done);
    }
    let table = database.kernel_csv(&kernel)?;
    let mut cases = Vec::new();
    for row in row_cases(&kernel, &table)? {
        let Ok(case) = row.case.map(IdentifiedCase::new) else { continue };
        if options.case.as_ref().is_some_and(|wanted| !case.id().as_str().starts_with(wanted)) {
            continue;
        }
        match entry.resolve_call(&case) {
            Ok(reading) => {
                let ordinal = u32::try_from(cases.len()).unwrap_or(u32::MAX);
                cases.push(ManifestCase::new(ordinal, &case, &reading, options.seed));
            }
            Err(refusal) => print_note(&format!("{}:{}: {refusal}", table.path().display(), row.line)),
        }
    }
    if cases.is_empty() {
        return Err(CommandError::bad_input(
            format!(
                "`{}` has no such case of `{kernel}` that can be replayed",
                options.database.db.display()
            ),
            "the column `MicroBench Case` and the output of `run` show the ids",
        ));
    }
    if !options.manifest {
        print_data(&script()?);
        return Ok(ExitStatus::Done);
    }
    let mut manifest = Manifest {
        run: "by hand".to_owned(),
        collection: 0,
        kind: database.kind(),
        device: LogicalDeviceId(0),
        gang: Vec::new(),
        hosts: Vec::new(),
        host: 0,
        host_numbers: HostNumbers::default(),
        seed: options.seed,
        warm_up: WARM_UP,
        measured: DEFAULT_LAUNCHES,
        flush_bytes: None,
        expert_skew: options.skew.expert_skew,
        profiler: ProfilerSettings::default(),
        environment: PinnedEnvironment::default(),
        sentinels: SentinelLengths::default(),
        controls: Some(ControlLaunches::default()),
        cases,
    };
    let ranks = manifest.group_size().and_then(|ranks| u32::try_from(ranks).ok()).unwrap_or_default();
    manifest.set_gang(&(0..ranks).map(LogicalDeviceId).collect::<Vec<_>>());
    let text = serde_json::to_string_pretty(&manifest).map_err(|error| {
        CommandError::bad_input(format!("the manifest cannot be written: {error}"), "report this as a bug")
    })?;
    print_data(&(printable_json(&text).into_owned() + "\n"));
    Ok(ExitStatus::Done)
}
