//! Effects of faults on the records of a collection and on their export.

use super::export::{ExportedTable, OP_SUMMARY, ProgramRecords};
use crate::{
    kernel::{Nanos, render::SentinelLengths},
    rehearsal::{
        fault_plan::{CoarseTimer, DiskFull, FaultKind, MissingOutput, RecordsKept, WrongUnit},
        npu::LoggedLaunch,
    },
};

/// Records lost by a crash, because the profiler was not finalised.
const UNFINALISED: Nanos = Nanos(1_000_000_000);

/// Outcome of an export.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ExportFault {
    None,
    /// Not even a folder is written.
    NoFolder,
    /// No table is written; a later export may succeed.
    Deferred {
        later: bool,
    },
    /// The disk is full.
    DiskFull(DiskFull),
}

impl ExportFault {
    pub(super) fn from_faults(faults: &[FaultKind]) -> Self {
        let export_fault = |kind: &FaultKind| match kind {
            FaultKind::MissingOutput(MissingOutput { folder: false, .. }) => Some(Self::NoFolder),
            FaultKind::MissingOutput(MissingOutput { second_export, .. }) => {
                Some(Self::Deferred { later: *second_export })
            }
            FaultKind::DiskFull(full) => Some(Self::DiskFull(full.clone())),
            _ => None,
        };
        faults.iter().find_map(export_fault).unwrap_or(Self::None)
    }
}

/// Removes lost records, and changes falsified fields.
pub(super) fn corrupt_records(
    collected: &mut ProgramRecords,
    faults: &[FaultKind],
    records: RecordsKept,
    devices: u32,
) {
    if records == RecordsKept::LastSecondLost {
        let end = collected.launches.iter().map(|launch| launch.start.0 + launch.duration.0).max();
        let last = end.unwrap_or_default().saturating_sub(UNFINALISED.0);
        collected.launches.retain(|launch| launch.start.0 + launch.duration.0 <= last);
    }
    for kind in faults {
        match kind {
            FaultKind::WrongUnit(WrongUnit { factor }) => {
                for launch in &mut collected.launches {
                    launch.duration = Nanos((launch.duration.0 as f64 * factor).round() as i64);
                    // The cores count the same cycles, from which the profiler computes their time.
                    launch.slowdown *= factor;
                }
            }
            FaultKind::CoarseTimer(CoarseTimer { step }) => {
                let step = i64::from(*step);
                for launch in &mut collected.launches {
                    let in_steps = |time: Nanos| Nanos((time.0 + step / 2) / step * step);
                    (launch.start, launch.duration) = (in_steps(launch.start), in_steps(launch.duration));
                }
            }
            FaultKind::LostRecords(lost) => {
                drop_records(collected, lost.head as usize, lost.tail as usize);
            }
            FaultKind::RepeatedRecords(_) => repeat_records(&mut collected.launches),
            FaultKind::WrongDeviceId(wrong) => {
                for launch in &mut collected.launches {
                    launch.device = wrong.shows.unwrap_or((launch.device + 1) % devices.max(2));
                }
            }
            _ => {}
        }
    }
}

/// Replaces one record of each series of equal launches by the one before it.
fn repeat_records(launches: &mut [LoggedLaunch]) {
    const SHORTEST_SERIES: usize = 5;
    let is_same = |one: &LoggedLaunch, other: &LoggedLaunch| {
        (one.device, &one.operation) == (other.device, &other.operation)
    };
    for series in launches.chunk_by_mut(is_same) {
        if series.len() >= SHORTEST_SERIES && series[0].operation.kernel != SentinelLengths::default().kernel
        {
            let middle = series.len() / 2;
            series[middle] = series[middle - 1].clone();
        }
    }
}

/// Removes numbers of first and of last records.
pub(super) fn drop_records(collected: &mut ProgramRecords, head: usize, tail: usize) {
    let length = collected.launches.len();
    let head = head.min(length);
    collected.launches.truncate(length - tail.min(length - head));
    collected.launches.drain(..head);
}

/// Damages the exported text itself.
pub(super) fn corrupt_tables(tables: &mut [ExportedTable], faults: &[FaultKind]) {
    let Some((_, table)) = tables.iter_mut().find(|(name, _)| *name == OP_SUMMARY) else { return };
    for kind in faults {
        match kind {
            FaultKind::TruncatedCsv(cut) => truncate_to_share(table, cut.keeps),
            FaultKind::NoDeviceId(missing) => *table = without_device_ids(table, missing.column),
            FaultKind::RaggedCsv(ragged) => *table = with_ragged_rows(table, ragged.rows as usize),
            _ => {}
        }
    }
}

/// Replaces the devices, the first column, by `N/A`, or removes the column.
fn without_device_ids(table: &str, keeps_column: bool) -> String {
    let lines = table.lines().enumerate().map(|(number, line)| {
        let rest = line.split_once(',').map_or("", |(_, rest)| rest);
        match (keeps_column, number) {
            (false, _) => format!("{rest}\n"),
            (true, 0) => format!("{line}\n"),
            (true, _) => format!("N/A,{rest}\n"),
        }
    });
    lines.collect()
}

/// Truncates a table to a share of its bytes.
pub(super) fn truncate_to_share(table: &mut String, part: f64) {
    let mut at = (table.len() as f64 * part) as usize;
    while !table.is_char_boundary(at) {
        at -= 1;
    }
    table.truncate(at);
}

/// Removes the last cell of `rows` rows, evenly over the table.
fn with_ragged_rows(table: &str, rows: usize) -> String {
    let count = table.lines().count().saturating_sub(1);
    let rows = rows.min(count);
    let is_ragged = |line: usize| line > 0 && (1..=rows).any(|row| line == row * count / rows);
    let mut ragged = String::with_capacity(table.len());
    for (number, line) in table.lines().enumerate() {
        let end = if is_ragged(number) { line.rfind(',').unwrap_or(line.len()) } else { line.len() };
        ragged.push_str(&line[..end]);
        ragged.push('\n');
    }
    ragged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_given_number_of_rows_lacks_a_cell() {
        let table = "a,b,c\n1,2,3\n4,5,6\n7,8,9\n";
        assert_eq!(with_ragged_rows(table, 1), "a,b,c\n1,2,3\n4,5,6\n7,8\n");
        assert_eq!(with_ragged_rows(table, 2), "a,b,c\n1,2\n4,5,6\n7,8\n");
        assert_eq!(with_ragged_rows(table, 9), "a,b,c\n1,2\n4,5\n7,8\n");
        assert_eq!(with_ragged_rows("a,b,c\n", 1), "a,b,c\n");
    }

    #[test]
    fn truncation_keeps_whole_characters() {
        let mut text = "aü".to_owned();
        truncate_to_share(&mut text, 0.7);
        assert_eq!(text, "a");
        truncate_to_share(&mut text, 0.0);
        assert_eq!(text, "");
    }
}
