//! The `PROF_*` folder of a collection.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use jiff::{Timestamp, Zoned, tz::TimeZone};
use serde_json::json;

use super::{op_summary, options::RecordContent};
use crate::{
    base::stats::pick_number,
    kernel::{AicMetrics, Nanos, device::DeviceProfile},
    rehearsal::npu::LoggedLaunch,
};

/// A folder or file that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write `{}`: {source}", .path.display())]
pub(super) struct ExportError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// The launches of a program.
#[derive(Debug)]
pub(super) struct ProgramRecords {
    /// Devices that it used.
    pub(super) devices: Vec<u32>,
    pub(super) launches: Vec<LoggedLaunch>,
    pub(super) started: Nanos,
    pub(super) ended: Nanos,
}

/// `PROF_<count>_<time, 17 digits>_<16 capitals>`.
pub(super) fn folder_name(started: Nanos, seed: u64) -> String {
    let zoned = zoned(started);
    let letter = |index: u64| {
        let numbers = [seed, started.0.unsigned_abs(), u64::from(std::process::id()), index];
        let picked = pick_number(&numbers, 26);
        char::from(b'A' + u8::try_from(picked).unwrap_or_default())
    };
    let letters: String = (0..16).map(letter).collect();
    format!("PROF_000001_{}{:03}_{letters}", stamp(&zoned), zoned.millisecond())
}

/// A table by the first part of its file's name.
pub(super) type ExportedTable = (&'static str, String);

/// Returns the tables of the launches; none without launches.
pub(super) fn tables(
    profile: &DeviceProfile,
    launches: &[LoggedLaunch],
    content: RecordContent,
) -> Vec<ExportedTable> {
    if launches.is_empty() {
        return Vec::new();
    }
    // Without types there are no groups to sum up.
    let statistic = content.has_types.then(|| ("op_statistic", op_summary::op_statistic(launches)));
    let others = [
        ("task_time", op_summary::task_time(launches)),
        (OP_SUMMARY, op_summary::op_summary(profile, launches, content)),
    ];
    statistic.into_iter().chain(others).collect()
}

/// Writes a folder without an export below `parent`, and returns its path.
pub(super) fn write(
    parent: &Path,
    name: &str,
    profile: &DeviceProfile,
    collected: &ProgramRecords,
    content: RecordContent,
) -> Result<PathBuf, ExportError> {
    let root = parent.join(name);
    create_folder(&root)?;
    let root = root.canonicalize().map_err(|source| ExportError { path: root.clone(), source })?;
    let span = |file: &Path, at: Nanos| {
        let time = json!({ "collectionTimeBegin": at.micros(), "time": stamp(&zoned(at)) });
        write_text(file, &time.to_string())
    };

    let host = root.join("host");
    create_folder(&host.join("data"))?;
    create_folder(&host.join("sqlite"))?;
    write_text(&host.join("info.json"), &info(profile, collected, None))?;
    write_text(&host.join("sample.json"), &sample(content))?;
    span(&host.join("start_info"), collected.started)?;
    span(&host.join("end_info"), collected.ended)?;
    write_text(&host.join("host_start.log"), "[Host]\nrehearsal: the device's clock is the host's\n")?;
    for &device in &collected.devices {
        let folder = root.join(format!("device_{device}"));
        create_folder(&folder.join("data"))?;
        create_folder(&folder.join("sqlite"))?;
        let numbered = |name: &str| folder.join(format!("{name}.{device}"));
        write_text(&numbered("info.json"), &info(profile, collected, Some(device)))?;
        write_text(&folder.join("sample.json"), &sample(content))?;
        span(&numbered("start_info"), collected.started)?;
        span(&numbered("end_info"), collected.ended)?;
    }
    create_folder(&root.join("mindstudio_profiler_log"))?;
    Ok(root)
}

/// Exports the tables into a folder of [`write`], under names with that time.
pub(super) fn export(root: &Path, tables: &[ExportedTable], at: Nanos) -> Result<(), ExportError> {
    let output = root.join(OUTPUT);
    create_folder(&output)?;
    let readme = "Written by npubench's rehearsal host. No number in this folder was measured.\n";
    write_text(&output.join("README.txt"), readme)?;
    let stamp = stamp(&zoned(at));
    for (name, table) in tables {
        let file = output.join(format!("{name}_{stamp}.csv"));
        write_text(&file, table)?;
        // The raw data stays in the folder: a second export does not depend on the tables of the first.
        let raw = raw_file(root, name);
        if !raw.exists() {
            fs::hard_link(&file, &raw).map_err(|source| ExportError { path: raw.clone(), source })?;
        }
    }
    Ok(())
}

/// Writes a trace beside exported tables; nothing without an export.
pub(super) fn write_trace(root: &Path, trace: &str, at: Nanos) -> Result<(), ExportError> {
    let output = root.join(OUTPUT);
    if !output.is_dir() {
        return Ok(());
    }
    write_text(&output.join(format!("msprof_{}.json", stamp(&zoned(at)))), trace)
}

/// Stores the tables for a later export, in place of an export.
pub(super) fn store_tables(root: &Path, tables: &[ExportedTable]) -> Result<(), ExportError> {
    tables.iter().try_for_each(|(name, table)| write_text(&raw_file(root, name), table))
}

/// Stores a mark with which a later export fails.
pub(super) fn mark_not_exportable(root: &Path) -> Result<(), ExportError> {
    write_text(&raw_file(root, NOT_EXPORTABLE), "")
}

/// Exports again, as `msprof --export=on`: beside an older export, under another time. Returns false without
/// anything to export.
pub(super) fn export_again(root: &Path, at: Nanos) -> Result<bool, ExportError> {
    let mut tables = Vec::new();
    if raw_file(root, NOT_EXPORTABLE).exists() {
        return Ok(false);
    }
    for name in ["op_statistic", "task_time", OP_SUMMARY] {
        let found = [Some(raw_file(root, name)), newest(&root.join(OUTPUT), name)];
        if let Some(table) = found.into_iter().flatten().find_map(|file| fs::read_to_string(file).ok()) {
            tables.push((name, table));
        }
    }
    export(root, &tables, at)?;
    Ok(!tables.is_empty())
}

fn raw_file(root: &Path, name: &str) -> PathBuf {
    // Readers do not take this file for a table.
    root.join("host/data").join(format!("rehearsal.{name}"))
}

fn newest(folder: &Path, name: &str) -> Option<PathBuf> {
    let files = fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let is_table = |file: &PathBuf| {
        file.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&format!("{name}_")))
    };
    files.filter(is_table).max()
}

/// Name of the table that readers use.
pub(super) const OP_SUMMARY: &str = "op_summary";
/// Written in place of a table where none can be exported.
const NOT_EXPORTABLE: &str = "not_exportable";
const OUTPUT: &str = "mindstudio_profiler_output";

/// Settings of the collection; without counters there is no group.
fn sample(content: RecordContent) -> String {
    let RecordContent { metrics, has_types } = content;
    let group = if metrics == AicMetrics::Disabled { "" } else { metrics.as_str() };
    let level = if has_types { "l1" } else { "l0" };
    json!({ "ai_core_metrics": group, "ai_core_profiling_mode": "task-based", "taskTime": level }).to_string()
}

/// Readers take the numbers of cores and clocks from here; the real one writes clocks as text.
fn info(profile: &DeviceProfile, collected: &ProgramRecords, device: Option<u32>) -> String {
    let clock = profile.clock_mhz.to_string();
    let describe = |device: u32| {
        json!({
            "id": device,
            "env_type": 3,
            "ai_core_num": profile.cube_cores,
            "aiv_num": profile.vector_cores,
            "aic_frequency": clock,
            "aiv_frequency": clock,
            "hwts_frequency": "50.000000",
        })
    };
    let devices: Vec<String> = collected.devices.iter().map(ToString::to_string).collect();
    json!({
        "platform_version": "rehearsal",
        "hostname": "rehearsal",
        "version": env!("CARGO_PKG_VERSION"),
        "devices": device.map_or_else(|| devices.join(","), |device| device.to_string()),
        "rank_id": -1,
        "pid": std::process::id().to_string(),
        "DeviceInfo": device.map(describe).into_iter().collect::<Vec<_>>(),
    })
    .to_string()
}

fn zoned(at: Nanos) -> Zoned {
    Timestamp::from_nanosecond(i128::from(at.0)).unwrap_or_default().to_zoned(TimeZone::system())
}

/// `yyyymmddHHMMSS`, as everywhere in local time.
fn stamp(at: &Zoned) -> String {
    at.strftime("%Y%m%d%H%M%S").to_string()
}

fn create_folder(folder: &Path) -> Result<(), ExportError> {
    fs::create_dir_all(folder).map_err(|source| ExportError { path: folder.to_owned(), source })
}

fn write_text(file: &Path, content: &str) -> Result<(), ExportError> {
    fs::write(file, content).map_err(|source| ExportError { path: file.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        base::assets::AssetFiles,
        kernel::{
            Dtype, Tensor,
            device::{ComputeUnit, DeviceProfile, KernelWork},
        },
        profile::{RecordReader, collection_summaries},
        rehearsal::npu::{LaunchedOperation, TaskEngine},
    };

    const START: Nanos = Nanos(1_764_246_877_073_569_640);

    fn launch(device: u32, number: u64, task: TaskEngine) -> LoggedLaunch {
        let tensor = Tensor::new([64, 1 + number], Dtype::Float16);
        let work = KernelWork { flops: 1.0, bytes: 1.0, unit: ComputeUnit::Vector, dtype: Dtype::Float16 };
        let outputs = vec![tensor.clone()];
        let kernel = format!("Kernel{number}");
        let operation = LaunchedOperation {
            name: format!("aclnnX_{kernel}"),
            kernel,
            task,
            inputs: vec![Some(tensor)],
            outputs,
            work,
        };
        let start = Nanos(START.0 + i64::try_from(number).expect("small") * 1_000_020);
        LoggedLaunch {
            device,
            task_id: number,
            variation: number,
            start,
            duration: Nanos(12_340),
            slowdown: 1.0,
            shown_slowdown: 1.0,
            is_on_one_core: false,
            operation,
        }
    }

    fn exported(launches: Vec<LoggedLaunch>) -> (tempfile::TempDir, PathBuf) {
        let parent = tempfile::tempdir().expect("a folder");
        let profile =
            DeviceProfile::load(&AssetFiles::embedded(), DeviceProfile::default_name()).expect("built in");
        let collected = ProgramRecords { devices: vec![3], launches, started: START, ended: START };
        let name = folder_name(START, 7);
        let content = RecordContent::default();
        let root = write(parent.path(), &name, &profile, &collected, content).expect("written");
        export(&root, &tables(&profile, &collected.launches, content), START).expect("exported");
        (parent, root)
    }

    #[test]
    fn profile_folder_parses_back_to_its_launches() {
        let tasks = [TaskEngine::Cube, TaskEngine::Vector, TaskEngine::Random, TaskEngine::Vector];
        let launches: Vec<LoggedLaunch> =
            (0..).zip(tasks).map(|(number, task)| launch(3, number, task)).collect();
        let (parent, _) = exported(launches.clone());
        let tables = collection_summaries(parent.path()).expect("listed");
        assert_eq!(tables.len(), 1);
        let mut reader = RecordReader::open(&tables[0].0).expect("a table");
        for expected in &launches {
            let operation = &expected.operation;
            let record = reader.read_record().expect("readable").expect("a record");
            assert_eq!(record.kernel(), operation.kernel.as_bytes());
            assert!(record.is_rehearsed());
            assert_eq!(record.start().expect("a time"), Some(expected.start));
            assert_eq!(record.duration().expect("a time"), Some(expected.duration));
            assert_eq!(record.device(), Some(3));
            let slots = |tensors: &[Tensor]| tensors.iter().cloned().map(Some).collect::<Vec<_>>();
            let shown =
                if operation.task == TaskEngine::Random { Vec::new() } else { operation.inputs.clone() };
            assert_eq!(record.input_cells().expect("text").parse().expect("cells"), shown);
            assert_eq!(
                record.output_cells().expect("text").parse().expect("cells"),
                slots(&operation.outputs)
            );
            let filled: Vec<bool> = record.counters().map(|counter| counter.is_some()).collect();
            assert_eq!(filled, [operation.task != TaskEngine::Random; 25]);
            let time = |index: usize| record.counters().nth(index).flatten().unwrap_or_default();
            assert_eq!(
                (time(0) > 0.0, time(13) > 0.0),
                (operation.task == TaskEngine::Cube, operation.task == TaskEngine::Vector)
            );
        }
        assert!(reader.read_record().expect("readable").is_none());
    }

    #[test]
    fn folder_and_file_names_equal_the_real_ones() {
        let (_parent, root) = exported(vec![launch(3, 0, TaskEngine::Cube)]);
        let name = root.file_name().expect("a name").to_string_lossy().into_owned();
        let parts: Vec<&str> = name.split('_').collect();
        assert_eq!((parts[0], parts[1], parts[2].len(), parts[3].len()), ("PROF", "000001", 17, 16));
        assert!(
            parts[2].bytes().all(|byte| byte.is_ascii_digit())
                && parts[3].bytes().all(|b| b.is_ascii_uppercase())
        );
        let info = fs::read_to_string(root.join("device_3/info.json.3")).expect("is there");
        let info: serde_json::Value = serde_json::from_str(&info).expect("JSON");
        assert_eq!(info["DeviceInfo"][0]["aic_frequency"], "1850");
        assert_eq!(
            (&info["hostname"], &info["platform_version"]),
            (&"rehearsal".into(), &"rehearsal".into())
        );
        for file in ["host/start_info", "host/end_info", "device_3/end_info.3", "device_3/sample.json"] {
            assert!(root.join(file).is_file(), "{file}");
        }
        assert!(root.join("mindstudio_profiler_log").is_dir());
    }

    #[test]
    fn second_export_keeps_the_first() {
        let (parent, root) = exported(vec![launch(3, 0, TaskEngine::Cube)]);
        let later = Nanos(START.0 + 5_000_000_000);
        assert!(export_again(&root, later).expect("exported"));
        let files = fs::read_dir(root.join(OUTPUT)).expect("listed").count();
        assert_eq!(files, 2 * 3 + 1, "two of each table, and the note");
        assert_eq!(collection_summaries(parent.path()).expect("listed").len(), 1, "the newer counts");
    }

    #[test]
    fn device_without_launches_has_no_table() {
        let (parent, root) = exported(Vec::new());
        assert!(root.join("mindstudio_profiler_output").is_dir());
        assert_eq!(collection_summaries(parent.path()).expect("listed"), Vec::new());
    }
}
