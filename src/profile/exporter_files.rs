//! What msprof's exporter writes beside `op_summary`: counts of the launches and tasks, and its log.
//!
//! Sources: Ascend/msprof 9ba1ac7. A launch whose record is lost on the host or on the device has no row in `op_summary`, without a
//! message. `api_statistic` counts the launches on the host as `node`, `launch`; `task_time` has each task of the device
//! (csrc/application/summary/api_statistic_assembler.cpp, task_time_assembler.cpp). The exit status of a damaged export is 0; its log has the reason.

use std::io::{BufRead as _, BufReader, Read as _};

use super::{
    discover::is_of_msprof,
    newest_exports,
    prelude::*,
    records::{RecordTable, TableRows},
};

const LOGS: &str = "mindstudio_profiler_log";
/// Messages about raw data that the exporter dropped. It also logs errors that lose nothing, on every host.
const LOSSES: [&str; 3] = [
    // msparser/interface/data_parser.py
    "Some data may be lost",
    // csrc/domain/services/parser/log/stars_soc_parser.cpp, msparser/stars/stars_log_parser.py
    "chunks have invalid magic number",
    // csrc/domain/services/parser/host/base_parser.h, cann/compact_info_parser.cpp
    "Read Chunk failed",
];
/// Types of tasks of kernels: of a task without a name, or without a record of its kernel, that of the device or the runtime.
const KERNEL_TASKS: [&str; 6] = ["AI_CORE", "AI_VECTOR_CORE", "AI_CPU", "MIX_AIC", "MIX_AIV", "AIV_SQE"];

/// A line of the exporter's log about lost data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LossOfExporter {
    pub(crate) log: PathBuf,
    pub(crate) line: String,
}

/// Launches without a row in the `op_summary` of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MissingRows {
    pub(crate) folder: PathBuf,
    pub(crate) missing: u64,
    pub(crate) rows: u64,
    /// Launches by `api_statistic`.
    pub(crate) launches: u64,
    /// Kernels by `task_time`.
    pub(crate) tasks: u64,
}

/// Returns the first line about lost data in the logs of a `PROF_*` folder.
pub(crate) fn exporter_loss(profile: &Path) -> Option<LossOfExporter> {
    named_entries(&profile.join(LOGS), "", ".log").unwrap_or_default().into_iter().find_map(|log| {
        let mut reader = BufReader::new(open_regular(&log).ok()?);
        let mut line = Vec::new();
        // What of a line is longer than a MiB is another line.
        while (&mut reader).take(MAX_SETTINGS).read_until(b'\n', &mut line).ok()? > 0 {
            let text = String::from_utf8_lossy(&line);
            if text.contains("[ERROR]") && LOSSES.iter().any(|loss| text.contains(loss)) {
                return Some(LossOfExporter { line: text.trim().to_owned(), log });
            }
            line.clear();
        }
        None
    })
}

/// Returns the first line about lost data in the log of the export that wrote a table, or whose data torch_npu put into it.
pub(crate) fn log_of_table(table: &Path) -> Option<LossOfExporter> {
    let around = table.ancestors().skip(1).take(2);
    let own = around.clone().find(|folder| is_of_msprof(folder) || folder.join(LOGS).is_dir());
    let beside = || {
        around
            .flat_map(|folder| named_entries(folder, "PROF_", "").unwrap_or_default())
            .find_map(|prof| exporter_loss(&prof))
    };
    own.map_or_else(beside, exporter_loss)
}

/// Compares the rows of each folder's `op_summary` tables with the tables beside them.
pub(crate) fn launches_without_row(files: &[ProfileFile]) -> Vec<MissingRows> {
    let is_summary = |file: &&ProfileFile| {
        file.0.file_name().is_some_and(|name| name.to_string_lossy().starts_with("op_summary"))
    };
    let mut folders: BTreeMap<PathBuf, u64> = BTreeMap::new();
    for file in files.iter().filter(is_summary) {
        let rows = folders.entry(file.0.parent().unwrap_or(Path::new("")).to_owned()).or_default();
        *rows += count_rows(&file.0, &[], |_| 1);
    }
    let missing = folders.into_iter().map(|(folder, rows)| {
        let sum = |table: &str, columns: &[&str], count: fn(&[&str]) -> u64| {
            let files =
                newest_exports(named_entries(&folder, table, ".csv").unwrap_or_default()).unwrap_or_default();
            files.iter().map(|file| count_rows(file, columns, count)).sum::<u64>()
        };
        let launches = sum("api_statistic", &["Level", "API Name", "Count"], |cells| match cells {
            ["node", "launch", count] => count.parse().unwrap_or_default(),
            _ => 0,
        });
        let tasks = sum("task_time", &["kernel_type"], |cells| {
            u64::from(KERNEL_TASKS.contains(&cells[0]) || cells[0].starts_with("KERNEL_"))
        });
        let missing = launches.max(tasks).saturating_sub(rows);
        MissingRows { folder, missing, rows, launches, tasks }
    });
    missing.filter(|found| found.missing > 0).collect()
}

/// Adds up a count over the rows of a table by their cells in some columns; 0 for a table without these columns.
fn count_rows(file: &Path, columns: &[&str], count: impl Fn(&[&str]) -> u64) -> u64 {
    let Ok(table) = RecordTable::open(file, NeededColumns::None) else { return 0 };
    let place = |name: &&str| table.header.iter().position(|cell| cell.trim_ascii() == name.as_bytes());
    let Some(places) = columns.iter().map(place).collect::<Option<Vec<_>>>() else { return 0 };
    let Ok(mut rows) = table.open_rows().map(|input| TableRows::new(input, 0)) else { return 0 };
    let mut sum = 0_u64;
    while let Ok(Some((row, _))) = rows.next_row(file) {
        let cells =
            places.iter().map(|place| row.get(*place).and_then(|cell| std::str::from_utf8(cell).ok()));
        let cells: Vec<&str> = cells.map(|cell| cell.unwrap_or_default().trim()).collect();
        sum = sum.saturating_add(count(&cells));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of the exporter's Python part of a whole collection, and of one that lost 20 bytes of its tensors.
    const HEALTHY: &str = "2026-11-28 10:44:18 [ERROR] [common.py:247] - invalid item -1\n\
        2026-11-28 10:44:18 [ERROR] [ms_time_parser.py:157] - time_sync message check integer value failed\n";
    const LOST: &str = "2026-11-28 10:44:18 [ERROR] [tensor_add_info_parser.py:120] - An exception occurred when parsing the \
        format data. Some data may be lost.";

    #[test]
    fn lost_data_is_found_in_the_log_and_harmless_errors_are_not() {
        let root = tempfile::tempdir().expect("a folder");
        let prof = root.path().join("a_ascend_pt/PROF_1");
        let log = prof.join(LOGS).join("collection_host.log");
        fs::create_dir_all(prof.join(LOGS)).expect("created");
        fs::write(prof.join(LOGS).join("msprof_analysis_1.log"), b"\xff\n").expect("written");
        fs::write(&log, HEALTHY).expect("written");
        let tables = [
            prof.join("mindstudio_profiler_output/op_summary_1.csv"),
            prof.join("msprof_1.db"),
            root.path().join("a_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv"),
        ];
        assert_eq!(tables.each_ref().map(|table| log_of_table(table)), [None, None, None]);
        fs::write(&log, format!("{HEALTHY}{LOST}\n")).expect("written");
        let found = LossOfExporter { log, line: LOST.to_owned() };
        assert_eq!(tables.map(|table| log_of_table(&table)), [(); 3].map(|()| Some(found.clone())));
    }

    #[test]
    fn launches_and_tasks_without_a_row_are_counted_over_all_slices() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).expect("written");
            ProfileFile(path)
        };
        let files = ["0", "1"].map(|slice| {
            write(&format!("op_summary_slice_{slice}_20260101000000.csv"), "Op Name,OP Type\na,Add\nb,Add\n")
        });
        assert_eq!(launches_without_row(&files), [], "no table beside them");
        write(
            "task_time_20260101000000.csv",
            "kernel_name,kernel_type\na,AI_CORE\nN/A,AIV_SQE\n,EVENT_WAIT\n",
        );
        write("api_statistic_20250101000000.csv", "Device_id,Level,API Name,Count\nhost,node,launch,90\n");
        let newest =
            "Device_id,Level,API Name,Count\nhost,runtime,KernelLaunch,9\n0,node,launch,4\n0,node,launch,3\n";
        write("api_statistic_20260101000000.csv", newest);
        let found = launches_without_row(&files);
        let counts: Vec<[u64; 4]> =
            found.iter().map(|found| [found.missing, found.rows, found.launches, found.tasks]).collect();
        assert_eq!(counts, [[3, 4, 7, 2]]);
    }
}
