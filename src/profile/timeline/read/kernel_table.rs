//! Kernels and collectives of `kernel_details.csv` or `op_summary_*.csv`.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use crate::{
    kernel::KernelName,
    profile::{
        ProfileError, TaskRow, for_each_task_row,
        timeline::{
            intervals::TimeSpan,
            names::{NameId, NameTable},
            run::{Collective, DeviceTask, RunTimeline, TaskRole, is_collective_kernel},
        },
    },
};

/// Units of collectives in the column `Accelerator Core`.
const COMMUNICATION: [&[u8]; 2] = [b"HCCL", b"COMMUNICATION"];

/// Collectives that were read: name, device and times.
type SeenCollectives = HashSet<(NameId, Option<u32>, TimeSpan)>;

/// Adds the rows of the tables of one run.
pub(super) fn add_kernel_tables(run: &mut RunTimeline, files: &[PathBuf]) -> Result<(), ProfileError> {
    let mut seen = SeenCollectives::new();
    files.iter().try_for_each(|file| add_kernel_table(run, file, &mut seen))
}

fn add_kernel_table(
    run: &mut RunTimeline,
    file: &Path,
    seen: &mut SeenCollectives,
) -> Result<(), ProfileError> {
    run.files.push(file.to_owned());
    for_each_task_row(file, &mut |row| {
        let times = row.start_and_duration()?;
        let span = times
            .and_then(|(start, duration)| TimeSpan::recorded(start.0, start.0.saturating_add(duration.0)));
        let Some(span) = span else {
            run.untimed += 1;
            return Ok(());
        };
        if is_collective(&row) {
            let collective = collective_of_row(&row, span, &mut run.names);
            // A collective may have a row for each of its streams.
            match seen.insert((collective.name, collective.device, span)) {
                true => run.collectives.push(collective),
                false => run.repeated += 1,
            }
        } else {
            let task = task_of_row(&row, span, run);
            run.tasks.push(task);
        }
        Ok(())
    })
}

/// Returns true for a collective. At profiler level 0 all units are `N/A`, so that its name decides, too; kernels that
/// carry out a collective may have its name with another end.
fn is_collective(row: &TaskRow<'_>) -> bool {
    let by_name = |name: &str| KernelName::is_collective_name(name) && !is_collective_kernel(name);
    COMMUNICATION.contains(&row.core()) || std::str::from_utf8(row.name()).is_ok_and(by_name)
}

fn task_of_row(row: &TaskRow<'_>, span: TimeSpan, run: &mut RunTimeline) -> DeviceTask {
    let name = run.names.insert_bytes(row.name());
    let kind = run.names.insert_bytes(row.kernel());
    let signature = row.signature_cells().and_then(|cells| {
        let cells = cells.map(|cell| run.names.insert_bytes(cell));
        run.insert_signature(cells)
    });
    let is_collective = [kind, name].iter().any(|id| is_collective_kernel(run.names.text(*id)));
    DeviceTask {
        span,
        device: row.device(),
        stream: row.stream(),
        name,
        kind,
        core: run.names.insert_bytes(row.core()),
        role: if is_collective { TaskRole::CollectiveKernel } else { TaskRole::Kernel },
        signature,
        uses_cube: row.uses_cube(),
        operator: None,
        launch: None,
        step: row.step(),
    }
}

fn collective_of_row(row: &TaskRow<'_>, span: TimeSpan, names: &mut NameTable) -> Collective {
    let kind = match row.kernel() {
        b"" => collective_kind(row.name()),
        kernel => kernel,
    };
    Collective {
        span,
        device: row.device(),
        name: names.insert_bytes(row.name()),
        kind: names.insert_bytes(kind),
        group: NameId::EMPTY,
        operator: None,
        launch: None,
        step: row.step(),
    }
}

/// Returns the type of a collective by its name: `hcom_allReduce_` of `hcom_allReduce__534_6_1`.
pub(super) fn collective_kind(name: &[u8]) -> &[u8] {
    match name.windows(2).position(|pair| pair == b"__") {
        Some(at) => &name[..=at],
        None => name,
    }
}
