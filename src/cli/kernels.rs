//! `npubench kernels`: lists the kernels that can be replayed, or those of profiles that cannot.

use super::prelude::*;
use crate::{
    answer::kernel_gaps::find_kernel_gaps,
    show::{
        kernel_gaps::{gap_records, gaps_table},
        kernels::{KernelRecord, kernels_table},
    },
};

/// Lists the kernels that can be replayed, or those of profiles that cannot
///
/// For each kernel: the function that launches it, its requirements besides torch_npu, the method that checks its calls
/// without a device, and support by the rehearsal host.
///
/// With `--missing`, the kernels of profiles that cannot be replayed, by device time: their records, total time, share of
/// the time on AI cores, and the reason. Kernels on AI CPUs and collectives are listed apart.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench kernels
  npubench kernels --missing kernel_details.csv")]
pub(super) struct KernelsOptions {
    /// Read these profiles (kernel_details.csv, op_summary_*.csv, profiler databases, or folders) and list what the
    /// catalogue lacks
    #[arg(long, value_name = "PATH", num_args = 1..)]
    missing: Vec<PathBuf>,
    #[command(flatten)]
    common: CommonOptions<TableOptions>,
}

pub(super) fn run(options: &KernelsOptions) -> Result<ExitStatus, CommandError> {
    let catalogue = Catalogue::load(&options.common.assets.load()?)?;
    if !options.missing.is_empty() {
        return list_missing(options, &catalogue);
    }
    let kernels: Vec<_> = catalogue.entries().map(KernelRecord::new).collect();
    options.common.output.emit(&kernels, |width| kernels_table(&kernels, width));
    Ok(ExitStatus::Done)
}

fn list_missing(options: &KernelsOptions, catalogue: &Catalogue) -> Result<ExitStatus, CommandError> {
    let (gaps, notes) = find_kernel_gaps(&options.missing, catalogue)?;
    notes.iter().for_each(|note| print_note(note));
    options.common.output.emit(gap_records(&gaps), |width| gaps_table(&gaps, width));
    Ok(ExitStatus::Done)
}
