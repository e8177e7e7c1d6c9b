//! `npubench grid audit`: where values fall short of the density standard.

use std::path::PathBuf;

use clap::Args;

use super::{
    grid,
    options::{self, AssetOptions, OutputFormat},
};
use crate::{
    catalogue::Catalogue,
    config::DeviceProfile,
    database::Database,
    domain::{KernelName, did_you_mean_or},
    exit::ExitStatus,
    grid::{
        AxisAudit, GridAuditor, KernelAudit, default_budget,
        definition::{DensityFile, GridModels},
    },
    report::{AuditRow, audit_json, audit_table, print_data, print_note},
    session::CommandError,
};

/// Says where a database, or the grids themselves, fall short of the density standard
///
/// Each axis of each kernel is held against grids/density.yaml: its ends, the points that it requires, and how far
/// neighbours may lie apart. Only rows with a latency count; what others would add is listed as planned. Ends with 1
/// where something is missing.
#[derive(Debug, Args)]
pub(super) struct AuditOptions {
    /// Only these kernels; all where none is given
    #[arg(value_name = "KERNEL", value_delimiter = ',')]
    kernels: Vec<String>,
    /// Database folder; where none is given, the grids are audited as if all that they declare were measured
    #[arg(long, value_name = "DIR")]
    db: Option<PathBuf>,
    /// Only these grid files, in place of the built-in ones and those of `--assets`
    #[arg(long, value_name = "FILE,FILE", value_delimiter = ',', conflicts_with = "db")]
    grids: Vec<PathBuf>,
    /// Models whose layers the grids are to cover, such as Qwen3-32B,Qwen3-8B, or paths of a config.json
    #[arg(long, value_name = "ID,ID", value_delimiter = ',', conflicts_with = "db")]
    models: Vec<String>,
    #[command(flatten)]
    assets: AssetOptions,
    /// How the outcome is printed
    #[arg(long, value_enum, default_value = "plain")]
    format: OutputFormat,
}

pub(super) fn run(options: &AuditOptions) -> Result<ExitStatus, CommandError> {
    let assets = options.assets.load()?;
    let catalogue = Catalogue::load(&assets)?;
    let density = DensityFile::load(&assets, &catalogue)?;
    let wanted = options::parse_kernels(&options.kernels)?;
    let auditor = GridAuditor { catalogue: &catalogue, density: &density };
    let audits = match &options.db {
        Some(folder) => {
            let database = Database::open(folder)?;
            let kernels = audited_kernels(auditor, of_database(&database, &wanted)?, &wanted)?;
            auditor.database(&kernels, &database)?
        }
        None => {
            let grids = grid::load(&assets, &GridModels::load(&assets, &options.models)?, &options.grids)?;
            let kernels = audited_kernels(auditor, grid::select_kernels(&grids, &wanted, &assets)?, &wanted)?;
            let device = DeviceProfile::load(&assets, DeviceProfile::default_name())?;
            auditor.grids(&kernels, &grids, default_budget(device.hbm_bytes()))
        }
    };
    Ok(print_audits(options, &audits))
}

/// The kernels of a database, all or those that are wanted.
fn of_database(database: &Database, wanted: &[KernelName]) -> Result<Vec<KernelName>, CommandError> {
    let known = database.kernels()?;
    if let Some(missing) = wanted.iter().find(|kernel| !known.contains(kernel)) {
        let hint = did_you_mean_or(missing.as_str(), known.iter().map(KernelName::as_str), || {
            format!("`npubench grid {missing} --db DIR` makes rows for it")
        });
        let folder = database.folder().display();
        return Err(CommandError::bad_input(format!("`{folder}` has no rows of `{missing}`"), hint));
    }
    Ok(if wanted.is_empty() { known } else { wanted.to_vec() })
}

/// Those that the standard speaks of; it must of those that somebody asked for.
fn audited_kernels(
    auditor: GridAuditor<'_>,
    kernels: Vec<KernelName>,
    wanted: &[KernelName],
) -> Result<Vec<KernelName>, CommandError> {
    let (judged, others): (Vec<_>, Vec<_>) = kernels.into_iter().partition(|kernel| auditor.judges(kernel));
    if let Some(other) = others.iter().find(|kernel| wanted.contains(kernel)) {
        return Err(CommandError::bad_input(
            format!("the density standard does not speak of `{other}`"),
            "its axes are declared in grids/density.yaml; `--assets` puts another one in its place",
        ));
    }
    if !others.is_empty() {
        let names: Vec<&str> = others.iter().map(KernelName::as_str).collect();
        print_note(&format!("the standard does not speak of: {}", names.join(", ")));
    }
    Ok(judged)
}

fn print_audits(options: &AuditOptions, audits: &[(KernelName, KernelAudit<'_>)]) -> ExitStatus {
    let judged: Vec<(&KernelName, &KernelAudit<'_>, Vec<AxisAudit<'_>>)> =
        audits.iter().map(|(kernel, audit)| (kernel, audit, audit.axes())).collect();
    let audited: Vec<AuditRow<'_>> =
        judged.iter().map(|(kernel, audit, axes)| AuditRow { kernel, audit, axes }).collect();
    match options.format {
        OutputFormat::Json => print_data(&audit_json(&audited)),
        OutputFormat::Plain if audited.is_empty() => {}
        OutputFormat::Plain => print_data(&audit_table(&audited)),
    }
    for AuditRow { kernel, audit, .. } in audited.iter().filter(|kernel| kernel.audit.unread > 0) {
        print_note(&format!("{kernel}: {} rows that the catalogue does not read do not count", audit.unread));
    }
    let axes = || audited.iter().flat_map(|kernel| kernel.axes);
    let complete = axes().filter(|axis| axis.is_complete()).count();
    print_note(&format!("{complete} of {} axes are as dense as the standard asks", axes().count()));
    if complete == axes().count() { ExitStatus::Done } else { ExitStatus::SomeNotOk }
}
