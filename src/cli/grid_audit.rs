//! `npubench grid audit`: where values fall short of the density standard.

use std::path::PathBuf;

use clap::Args;

use super::{
    Failure,
    grid::{chosen, in_parallel},
    options::{self, AssetOptions, Format},
};
use crate::{
    exit::Exit,
    grid::{Audit, AxisAudit, Known, Order, default_budget, grow},
    model::{KernelName, Kind, meant},
    report::{AuditedKernel, audit_json, audit_table, print_data, print_note},
    spec::{
        Catalogue, DatabaseFile, DeviceProfile,
        grid::{AuditedAxis, Density, Grids, Models},
    },
    store::{Database, StoreError, for_each_point},
};

/// Says where a database, or the grids themselves, fall short of the density standard
///
/// Each axis of each kernel is held against grids/density.yaml: its ends, the points that it requires, and how far
/// neighbours may lie apart. Only rows with a latency count; what others would add is listed as planned. Ends with 1
/// where something is missing.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Only these kernels; all where none is given
    #[arg(value_name = "KERNEL", value_delimiter = ',')]
    kernels: Vec<String>,
    /// Database folder; the grids are audited where none is given
    #[arg(long, value_name = "DIR")]
    db: Option<PathBuf>,
    /// Audit what the grids would give if all of it were measured
    #[arg(long, conflicts_with = "db")]
    grids: bool,
    /// Models whose layers the grids are to cover, such as Qwen3-32B, or paths of a config.json
    #[arg(long, value_name = "IDS", value_delimiter = ',', conflicts_with = "db")]
    models: Vec<String>,
    #[command(flatten)]
    assets: AssetOptions,
    /// How the outcome is printed
    #[arg(long, value_enum, default_value = "plain")]
    format: Format,
}

pub(super) fn run(options: &Options) -> Result<Exit, Failure> {
    let assets = options.assets.load()?;
    let catalogue = Catalogue::load(&assets)?;
    let density = Density::load(&assets, &catalogue)?;
    let wanted = options::kernels(&options.kernels)?;
    let auditor = Auditor { catalogue: &catalogue, density: &density };
    let (kernels, audits) = match &options.db {
        Some(folder) => {
            let database = Database::open(folder)?;
            let kernels = auditor.judged(of_database(&database, &wanted)?, &wanted)?;
            let audits = in_parallel(kernels.len(), |index| auditor.database(&kernels[index], &database));
            (kernels.clone(), audits.into_iter().collect::<Result<Vec<_>, StoreError>>()?)
        }
        None => {
            let grids = Grids::load(&assets, &Models::load(&assets, &options.models)?)?;
            let kernels = auditor.judged(chosen(&grids, &wanted)?, &wanted)?;
            let device = DeviceProfile::load(&assets, &DatabaseFile::new(Kind::Npu).device)?;
            let budget = default_budget(device.hbm_bytes());
            let audits = in_parallel(kernels.len(), |index| auditor.grids(&kernels[index], &grids, budget));
            (kernels.clone(), audits)
        }
    };
    tell(options, &kernels, &audits)
}

/// The kernels of a database, all or those that are wanted.
fn of_database(database: &Database, wanted: &[KernelName]) -> Result<Vec<KernelName>, Failure> {
    let known = database.kernels()?;
    if let Some(missing) = wanted.iter().find(|kernel| !known.contains(kernel)) {
        let hint = meant(missing.as_str(), known.iter().map(KernelName::as_str), || {
            format!("`npubench grid {missing} --db DIR` makes rows for it")
        });
        let folder = database.folder().display();
        return Err(Failure::bad_input(format!("`{folder}` has no rows of `{missing}`"), hint));
    }
    Ok(if wanted.is_empty() { known } else { wanted.to_vec() })
}

struct Auditor<'a> {
    catalogue: &'a Catalogue,
    density: &'a Density,
}

impl<'a> Auditor<'a> {
    fn axes(&self, kernel: &KernelName) -> &'a [AuditedAxis] {
        self.catalogue.entry(kernel).map_or(&[], |entry| self.density.axes(kernel, entry))
    }

    /// Those that the standard speaks of; it must of those that somebody asked for.
    fn judged(&self, kernels: Vec<KernelName>, wanted: &[KernelName]) -> Result<Vec<KernelName>, Failure> {
        let (judged, others): (Vec<_>, Vec<_>) =
            kernels.into_iter().partition(|kernel| !self.axes(kernel).is_empty());
        if let Some(other) = others.iter().find(|kernel| wanted.contains(kernel)) {
            return Err(Failure::bad_input(
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

    fn audit(&self, kernel: &KernelName) -> Option<Audit<'a>> {
        Some(Audit::new(self.catalogue.entry(kernel)?, self.axes(kernel)))
    }

    fn database(&self, kernel: &KernelName, database: &Database) -> Result<Option<Audit<'a>>, StoreError> {
        let Some(mut audit) = self.audit(kernel) else { return Ok(None) };
        let table = database.kernel_csv(kernel)?;
        if !table.is_empty() {
            let unread = for_each_point(kernel, &table, |case, is_measured| audit.add(case, is_measured))?;
            audit.unread += unread;
        }
        Ok(Some(audit))
    }

    /// All valid candidates of the grids, taken as measured.
    fn grids(&self, kernel: &KernelName, grids: &Grids, budget: u64) -> Option<Audit<'a>> {
        let mut audit = self.audit(kernel)?;
        let order = Order { entry: self.catalogue.entry(kernel), budget, rows: None, seed: 0 };
        let grown = grow(grids.of(kernel).collect(), &order, &Known::default(), 0);
        let Ok(()) = grown.for_each(|_, _, draft| {
            audit.add(draft.filled(), true);
            Ok::<(), std::convert::Infallible>(())
        });
        Some(audit)
    }
}

fn tell(options: &Options, kernels: &[KernelName], audits: &[Option<Audit<'_>>]) -> Result<Exit, Failure> {
    let audits = kernels.iter().zip(audits).filter_map(|(kernel, audit)| Some((kernel, audit.as_ref()?)));
    let judged: Vec<(&KernelName, &Audit<'_>, Vec<AxisAudit<'_>>)> =
        audits.map(|(kernel, audit)| (kernel, audit, audit.axes())).collect();
    let audited: Vec<AuditedKernel<'_>> =
        judged.iter().map(|(kernel, audit, axes)| AuditedKernel { kernel, audit, axes }).collect();
    match options.format {
        Format::Json => print_data(&audit_json(&audited)),
        Format::Plain if audited.is_empty() => {}
        Format::Plain => print_data(&audit_table(&audited)),
    }
    for AuditedKernel { kernel, audit, .. } in audited.iter().filter(|kernel| kernel.audit.unread > 0) {
        print_note(&format!("{kernel}: {} rows that the catalogue does not read do not count", audit.unread));
    }
    let axes = || audited.iter().flat_map(|kernel| kernel.axes);
    let complete = axes().filter(|axis| axis.is_complete()).count();
    print_note(&format!("{complete} of {} axes are as dense as the standard asks", axes().count()));
    Ok(if complete == axes().count() { Exit::Done } else { Exit::SomeNotOk })
}
