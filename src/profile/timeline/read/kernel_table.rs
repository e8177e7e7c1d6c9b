//! Kernels and collectives of `kernel_details.csv` or `op_summary_*.csv`.

use crate::{
    kernel::KernelName,
    profile::{Column, KernelRow, NeededColumns, RecordReader, is_recorded, timeline::prelude::*},
};

const COMMUNICATION: [&[u8]; 2] = [b"HCCL", b"COMMUNICATION"];

pub(super) fn add_kernel_tables(run: &mut RunTimeline, files: &[PathBuf]) -> Result<(), ProfileError> {
    // A collective may have a row for each of its streams.
    let mut seen: HashSet<(NameId, Option<u32>, TimeSpan)> = HashSet::new();
    for file in files {
        run.files.push(file.clone());
        let mut reader = RecordReader::open_with(file, NeededColumns::Times)?;
        while let Some(row) = reader.read_record()? {
            let Some(span) = row.start_and_duration()?.and_then(TimeSpan::of_start) else {
                run.untimed += 1;
                continue;
            };
            let name = run.names.insert_bytes(name_of(&row));
            if !is_collective(&row) {
                let task = task_of_row(&row, name, span, run);
                run.tasks.push(task);
            } else if seen.insert((name, row.device(), span)) {
                let kind =
                    if is_recorded(row.kernel()) { row.kernel() } else { collective_kind(name_of(&row)) };
                let kind = run.names.insert_bytes(kind);
                run.collectives.push(Collective {
                    device: row.device(),
                    step: row.number(Column::Step),
                    span,
                    name,
                    kind,
                    ..Collective::default()
                });
            } else {
                run.repeated += 1;
            }
        }
    }
    Ok(())
}

/// Returns the name of the operator, or the type of the kernel in a table without names.
fn name_of<'a>(row: &KernelRow<'a>) -> &'a [u8] {
    match row.name().trim_ascii() {
        b"" => row.kernel(),
        name => name,
    }
}

/// Returns true for a collective. At profiler level 0 all units are `N/A`, so that its name decides, too; kernels that
/// carry out a collective may have its name with another end.
fn is_collective(row: &KernelRow<'_>) -> bool {
    let by_name = |name: &str| KernelName::is_collective_name(name) && !is_collective_kernel(name);
    COMMUNICATION.contains(&row.core()) || std::str::from_utf8(name_of(row)).is_ok_and(by_name)
}

fn task_of_row(row: &KernelRow<'_>, name: NameId, span: TimeSpan, run: &mut RunTimeline) -> DeviceTask {
    let kind = run.names.insert_bytes(row.kernel());
    let cells = row.signature_cells().map(|cell| run.names.insert_bytes(cell));
    let is_collective = [kind, name].iter().any(|id| is_collective_kernel(run.names.text(*id)));
    DeviceTask {
        device: row.device(),
        stream: row.number(Column::Stream),
        core: run.names.insert_bytes(row.core()),
        signature: run.insert_signature(cells),
        uses_cube: row.uses_cube(),
        step: row.number(Column::Step),
        span,
        name,
        kind,
        role: if is_collective { TaskRole::CollectiveKernel } else { TaskRole::Kernel },
        ..DeviceTask::default()
    }
}

/// Returns the type of a collective by its name: `hcom_allReduce_` of `hcom_allReduce__534_6_1`.
pub(super) fn collective_kind(name: &[u8]) -> &[u8] {
    match name.windows(2).position(|pair| pair == b"__") {
        Some(at) => &name[..=at],
        None => name,
    }
}
