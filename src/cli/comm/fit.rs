//! `npubench comm fit`: latency, bandwidth and changes of the algorithm of sweeps.

use super::super::prelude::*;
use crate::{
    kernel::CollectiveKind,
    measure::collective::{SweepFit, compare_group_sizes, read_sweeps},
    show::collectives::{FitReport, bandwidth_plot, fit_records, fit_text},
};

/// Fits latency and bandwidth to sweeps, and finds the sizes where the algorithm changes
///
/// Prints a table of each sweep as nccl-tests does, its lines with 95 % intervals, the changes with sizes that would locate them,
/// and the algorithm that fits the latencies and bandwidths of several group sizes. See docs/collectives.md.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench comm fit --db comm --svg images")]
pub(in crate::cli) struct FitOptions {
    /// Collectives, such as all_reduce or hcom_allReduce_; by default all of the database
    #[arg(value_name = "COLLECTIVE")]
    collectives: Vec<String>,
    #[command(flatten)]
    database: DatabaseFolder,
    /// Device profile whose link peaks are shown, by default that of the database
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Write an image of each collective to a file of its name in this existing folder
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    common: CommonOptions<TableOptions>,
}

pub(super) fn run(options: &FitOptions) -> Result<ExitStatus, CommandError> {
    let database = Database::open(&options.database.db)?;
    let assets = options.common.assets.load()?;
    let network = match &options.device {
        Some(name) => Some(network_of_profile(&assets, name)?),
        None => DeviceProfile::load(&assets, database.device())?.comm,
    };
    let (sweeps, notes) = read_sweeps(&database, &options.collectives)?;
    let kinds: Vec<CollectiveKind> = CollectiveKind::ALL
        .iter()
        .copied()
        .filter(|kind| sweeps.iter().any(|sweep| sweep.kind == *kind))
        .collect();
    // A folder that cannot be written is an error before anything is printed.
    let images = options.svg.as_ref().map(|folder| {
        let file = |kind: &CollectiveKind| {
            let path = folder.join(format!("{}.svg", kind.kernel_name()));
            Ok((*kind, ResultFile::new(&path, Some(&options.database.db), "svg")?))
        };
        kinds.iter().map(file).collect::<Result<Vec<_>, CommandError>>()
    });
    let images = images.transpose()?.unwrap_or_default();
    let fits: Vec<SweepFit> = sweeps.into_iter().map(SweepFit::from_sweep).collect();
    let scaling = compare_group_sizes(&fits);
    let report = FitReport {
        fits: &fits,
        scaling: &scaling,
        database: &options.database.db,
        kind: database.kind(),
        network: network.as_ref(),
    };
    for (kind, file) in images {
        if let Some(image) = bandwidth_plot(&fits, network.as_ref(), (kind, database.kind())) {
            file.write(&image)?;
        }
    }
    options.common.output.emit(fit_records(&report), |width| fit_text(&report, width));
    note_simulated(database.kind());
    notes.iter().for_each(|note| print_note(note));
    Ok(ExitStatus::Done)
}
