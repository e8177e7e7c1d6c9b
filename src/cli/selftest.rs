//! `npubench selftest`: experiments that compare the assumptions of measurements with this host.

use super::prelude::*;
use crate::{
    measure::{
        run_options::BusyPolicy,
        selftest::{
            EXPERIMENTS, ExperimentReport, affected_kernels, command::run_selftest, markdown_report,
            report_line, status_counts, summary_table,
        },
    },
    rehearsal::{NoiseModel, fault_plan::FaultPlan},
};

/// Tests the assumptions of measurements on this host
///
/// Takes about a quarter of an hour on eight devices. Each experiment launches kernels under msprof as a run does, stores its
/// evidence in the database folder, and ends with pass, fail or unknown (the evidence could not be had). `run --host npu`
/// and `resume` require that experiments 0 to 4 passed with the present software, and experiment 1 for each device. Where
/// experiment 4 fails for single kernels that measurements do not need, runs leave out the cases of these kernels. Ends with
/// 0 if all passed, with 1 if one did not, with 5 if it was interrupted.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench selftest --db a3")]
pub(super) struct SelftestOptions {
    #[command(flatten)]
    database: DatabaseFolder,
    /// Devices to use, such as `0,1`; by default all that are free
    #[arg(long, value_name = "LIST", value_parser = parse_devices)]
    devices: Option<DeviceList>,
    /// Numbers of the experiments, such as `0-4`; by default all
    #[arg(long, value_name = "LIST", value_parser = parse_devices)]
    experiments: Option<DeviceList>,
    /// Only print the last results of this database as a Markdown table
    #[arg(long)]
    report: bool,
    /// Host of the launches
    #[arg(long, value_enum, default_value = "npu")]
    host: DataKind,
    /// Fault plan of the rehearsal host; see docs/rehearsal.md
    #[arg(long, value_name = "FILE")]
    rehearsal_faults: Option<PathBuf>,
    #[command(flatten)]
    leases: LeaseOption,
    #[command(flatten)]
    python: PythonOption,
    #[command(flatten)]
    common: CommonOptions<OutputOptions>,
}

pub(super) fn run(options: &SelftestOptions) -> Result<ExitStatus, CommandError> {
    if options.report {
        print_data(&markdown_report(&Database::open(&options.database.db)?)?);
        return Ok(ExitStatus::Done);
    }
    let kind = options.host;
    let assets = options.common.assets.load()?;
    let run_options = RunOptions {
        chosen_devices: options.devices.as_ref().map(|list| list.0.clone()),
        python: options.python.program()?,
        assets: options.common.assets.assets.clone(),
        seed: 1,
        rehearsal_model: NoiseModel::Lifelike,
        busy: BusyPolicy::Skip,
        leases: options.leases.folder(),
        faults: FaultPlan::load(options.rehearsal_faults.as_deref(), kind, &assets)?,
        ..RunOptions::default()
    };
    let experiments = selected_experiments(options.experiments.as_ref())?;
    let (db, format) = (&options.database.db, options.common.output.format);
    let on_report = |report: &ExperimentReport| match format {
        OutputFormat::Plain => print_note(report_line(report).trim_end()),
        OutputFormat::Json => print_data(&json_lines([report])),
    };
    let outcome = run_selftest(db, kind, assets, &run_options, &experiments, run_screen(format), on_report)?;
    if format == OutputFormat::Plain {
        print_data(&(summary_table(&outcome.reports) + &affected_kernels(&outcome.reports)));
        let mark = if kind == DataKind::Rehearsal { " (rehearsal: nothing was measured)" } else { "" };
        let counts = status_counts(&outcome.reports);
        print_note(&format!("{}{mark}", if counts.is_empty() { "no results" } else { &counts }));
        if outcome.exit == ExitStatus::Interrupted {
            let has_result = |number: &u32| outcome.reports.iter().any(|report| report.number == *number);
            let left = joined(experiments.iter().filter(|number| !has_result(number)), ",");
            print_note(&format!(
                "interrupted: no result of experiments {left}; `--experiments {left}` runs them"
            ));
        }
        print_note(&format!("scripts, logs and raw output are in {}", outcome.folder.display()));
    }
    Ok(outcome.exit)
}

fn selected_experiments(chosen: Option<&DeviceList>) -> Result<Vec<u32>, CommandError> {
    let known: Vec<u32> = EXPERIMENTS.iter().map(|experiment| experiment.number).collect();
    let Some(chosen) = chosen else { return Ok(known) };
    let Some(unknown) = chosen.0.iter().find(|number| !known.contains(number)) else {
        return Ok(chosen.0.clone());
    };
    let listed = EXPERIMENTS.iter().map(|experiment| format!("{} {}", experiment.number, experiment.name));
    Err(CommandError::usage(
        format!("there is no experiment {unknown}"),
        format!("the experiments are {}", joined(listed, ", ")),
    ))
}
