//! The kernel tables of a profile: `op_summary`, `op_statistic`, `task_time`, formatted as by the real exporter, which
//! joins raw strings by commas: shapes contain their own quotes, start times end in a tab, rows are sorted as text.

use std::collections::BTreeMap;

use super::{counters, options::RecordContent};
use crate::{
    kernel::{Dims, Nanos, Slot, Tensor, device::DeviceProfile},
    profile::REHEARSAL_PREFIX,
    rehearsal::npu::{LaunchedOperation, LoggedLaunch, TaskEngine},
};

/// The columns in front of the counters.
const COLUMNS: &str = "Device_id,Model ID,Task ID,Stream ID,Op Name,OP Type,OP State,Task Type,Task Start Time(us),\
    Task Duration(us),Task Wait Time(us),Block Num,Mix Block Num,HF32 Eligible,Input Shapes,Input Data Types,\
    Input Formats,Output Shapes,Output Data Types,Output Formats,Context ID";
/// The model of what runs operator by operator.
const SINGLE_OPERATOR: u32 = u32::MAX;
const STREAM: u32 = 2;
/// Cell of a value that is not recorded.
const ABSENT: &str = "N/A";
/// Numbers of input slots of kernels whose records show all of them, with those of absent tensors at the end. Not read from
/// `recorded_inputs:` of the entries, so that a record does not follow from the catalogue that it is compared with; a test
/// compares both.
const RECORDED_INPUTS: [(&str, usize); 2] = [("FusedInferAttentionScore", 31), ("KvRmsNormRopeCache", 12)];

/// `op_summary`: every launch with its duration; at `--task-time=l0` without type, shapes and blocks.
pub(super) fn op_summary(
    profile: &DeviceProfile,
    launches: &[LoggedLaunch],
    content: RecordContent,
) -> String {
    let RecordContent { metrics, has_types } = content;
    let mut text = format!("{COLUMNS}{}\n", counters::header(metrics));
    let mut previous_end = None;
    for launch in sorted(launches) {
        let operation = &launch.operation;
        // The gap to the previous row, whatever stream or device that belongs to.
        let wait = previous_end.map_or_else(
            || "0".to_owned(),
            |end: Nanos| {
                let wait = (launch.start.0 - end.0).max(0);
                format!("{}.{:03}000", wait / 1_000, wait % 1_000)
            },
        );
        previous_end = Some(Nanos(launch.start.0 + launch.duration.0));
        let inputs = recorded_inputs(operation);
        let outputs: Vec<Slot> = operation.outputs.iter().cloned().map(Some).collect();
        let (kernel, task, blocks, inputs, outputs) = if has_types {
            let blocks = counters::blocks(profile, launch);
            let task = task_type(operation.task);
            (operation.kernel.as_str(), task, blocks, signature(&inputs), signature(&outputs))
        } else {
            (ABSENT, ABSENT, 0, signature(&[]), signature(&[]))
        };
        text.push_str(&format!(
            "{},{SINGLE_OPERATOR},{},{STREAM},{REHEARSAL_PREFIX}{},{},dynamic,{},{}\t,{},{wait},{},0,NO,{inputs},{},N/A{}\n",
            launch.device,
            launch.task_id,
            operation.name,
            kernel,
            task,
            launch.start,
            launch.duration,
            blocks,
            outputs,
            counters::cells(profile, launch, metrics),
        ));
    }
    text
}

/// By device, then start, both as text: device 10 precedes device 2.
fn sorted(launches: &[LoggedLaunch]) -> Vec<&LoggedLaunch> {
    let mut rows: Vec<&LoggedLaunch> = launches.iter().collect();
    rows.sort_by_cached_key(|launch| (launch.device.to_string(), launch.start.to_string()));
    rows
}

const fn task_type(task: TaskEngine) -> &'static str {
    match task {
        TaskEngine::Cube => "AI_CORE",
        TaskEngine::Vector => "AI_VECTOR_CORE",
        TaskEngine::Random => "DSA_SQE",
        TaskEngine::AiCpu => "AI_CPU",
        TaskEngine::Communication => "COMMUNICATION",
    }
}

/// Returns the input slots of a launch's record.
fn recorded_inputs(operation: &LaunchedOperation) -> Vec<Slot> {
    if operation.task == TaskEngine::Random {
        return Vec::new();
    }
    let mut inputs = operation.inputs.clone();
    let recorded = RECORDED_INPUTS.iter().find(|(kernel, _)| operation.kernel.as_str() == *kernel);
    let recorded = recorded.map_or(0, |(_, recorded)| *recorded);
    inputs.resize(inputs.len().max(recorded), None);
    inputs
}

/// Shapes, types and formats of inputs or outputs.
fn signature(slots: &[Slot]) -> String {
    if slots.is_empty() {
        return "N/A,N/A,N/A".to_owned();
    }
    let joined = |absent: &str, cell: fn(&Tensor) -> String| {
        let cells = slots.iter().map(|slot| slot.as_ref().map_or_else(|| absent.to_owned(), cell));
        cells.collect::<Vec<_>>().join(";")
    };
    let shapes = joined("", |tensor| Dims(&tensor.dims).to_string());
    let dtypes = joined("DT_UNDEFINED", |tensor| tensor.dtype.to_string());
    let formats = joined("NULL", |tensor| tensor.format.to_string());
    format!("\"\"\"{shapes}\"\"\",{dtypes},{formats}")
}

/// `op_statistic`: time by device, type and core, most first.
pub(super) fn op_statistic(launches: &[LoggedLaunch]) -> String {
    let mut groups: BTreeMap<(u32, &str, &str), Vec<i64>> = BTreeMap::new();
    let mut totals: BTreeMap<u32, i64> = BTreeMap::new();
    for launch in launches {
        let key = (launch.device, launch.operation.kernel.as_str(), task_type(launch.operation.task));
        groups.entry(key).or_default().push(launch.duration.0);
        *totals.entry(launch.device).or_default() += launch.duration.0;
    }
    let mut rows: Vec<_> =
        groups.into_iter().map(|(key, times)| (times.iter().sum::<i64>(), key, times)).collect();
    rows.sort_by_key(|(total, (device, ..), _)| (*device, -total));
    let header =
        "Device_id,OP Type,Core Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)";
    let mut text = format!("{header}\n");
    for (total, (device, kernel, core), times) in rows {
        let bound = |found: Option<&i64>| Nanos(found.copied().unwrap_or_default());
        let average = Nanos(total / i64::try_from(times.len()).unwrap_or(i64::MAX).max(1));
        let ratio = 100.0 * total as f64 / totals.get(&device).copied().unwrap_or(1).max(1) as f64;
        text.push_str(&format!(
            "{device},{kernel},{core},{},{},{},{average},{},{ratio:.3}\n",
            times.len(),
            Nanos(total),
            bound(times.iter().min()),
            bound(times.iter().max()),
        ));
    }
    text
}

/// `task_time`: every task with its start and stop.
pub(super) fn task_time(launches: &[LoggedLaunch]) -> String {
    let header =
        "Device_id,kernel_name,kernel_type,stream_id,task_id,task_time(us),task_start(us),task_stop(us)";
    let mut text = format!("{header}\n");
    for launch in sorted(launches) {
        let LoggedLaunch { device, task_id, start, duration, operation, .. } = launch;
        let stop = Nanos(start.0 + duration.0);
        text.push_str(&format!(
            "{device},{REHEARSAL_PREFIX}{},{},{STREAM},{task_id},{duration},{start}\t,{stop}\t\n",
            operation.name,
            task_type(operation.task),
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        base::assets::AssetFiles,
        kernel::{
            AicMetrics, Dtype, TensorFormat,
            catalogue::Catalogue,
            device::{ComputeUnit, KernelWork},
        },
        rehearsal::npu::LaunchedOperation,
    };

    fn launch(device: u32, start: i64, task: TaskEngine) -> LoggedLaunch {
        let tensor =
            Tensor { format: TensorFormat::Base("NCL".to_owned()), ..Tensor::new([4, 1, 8], Dtype::Bf16) };
        let inputs = vec![Some(tensor), Some(Tensor::new([], Dtype::Bf16))];
        let outputs = vec![Tensor::new([4, 1, 8], Dtype::Bf16)];
        let work = KernelWork { flops: 0.0, bytes: 0.0, unit: ComputeUnit::Vector, dtype: Dtype::Bf16 };
        let operation = LaunchedOperation {
            name: "aclnnMuls_Mul_Mul".to_owned(),
            kernel: "Mul".to_owned(),
            task,
            inputs,
            outputs,
            work,
        };
        LoggedLaunch {
            device,
            task_id: 3,
            variation: 3,
            start: Nanos(start),
            duration: Nanos(2_460),
            slowdown: 1.0,
            shown_slowdown: 1.0,
            is_on_one_core: false,
            operation,
        }
    }

    fn lines(launches: &[LoggedLaunch]) -> Vec<String> {
        let profile =
            DeviceProfile::load(&AssetFiles::embedded(), DeviceProfile::default_name()).expect("built in");
        op_summary(&profile, launches, RecordContent::default()).lines().map(str::to_owned).collect()
    }

    #[test]
    fn header_equals_the_real_one() {
        let header = lines(&[]).remove(0);
        let names: Vec<&str> = header.split(',').collect();
        assert_eq!(names.len(), 46);
        assert_eq!((names[11], names[12], names[45]), ("Block Num", "Mix Block Num", "cube_utilization(%)"));
    }

    #[test]
    fn records_have_the_input_slots_of_the_catalogue() {
        let catalogue = Catalogue::load(&AssetFiles::embedded()).expect("valid");
        let entries = catalogue.entries().filter(|entry| entry.recorded_inputs > 0);
        let of_entries: Vec<_> =
            entries.map(|entry| (entry.kernel.as_str(), entry.recorded_inputs)).collect();
        assert_eq!(of_entries, RECORDED_INPUTS);
    }

    #[test]
    fn cells_are_formatted_as_the_real_ones() {
        let start = 1_764_246_877_073_569_640;
        let found =
            lines(&[launch(0, start, TaskEngine::Vector), launch(0, start + 7_460, TaskEngine::Random)]);
        let first = "0,4294967295,3,2,rehearsal_aclnnMuls_Mul_Mul,Mul,dynamic,AI_VECTOR_CORE,\
                     1764246877073569.640\t,2.460,0,1,0,NO,\"\"\"4,1,8;\"\"\",DT_BF16;DT_BF16,NCL;ND,\
                     \"\"\"4,1,8\"\"\",DT_BF16,ND,N/A,0.0,0,";
        assert!(found[1].starts_with(first), "{}", found[1]);
        assert!(found[1].ends_with(",0.000"), "{}", found[1]);
        assert!(found[2].contains("\t,2.460,5.000000,0,0,NO,N/A,N/A,N/A,\"\"\"4,1,8\"\"\""), "{}", found[2]);
        assert!(found[2].ends_with(&",N/A".repeat(26)), "{}", found[2]);
    }

    #[test]
    fn level_0_records_times_without_types_and_counters() {
        let profile =
            DeviceProfile::load(&AssetFiles::embedded(), DeviceProfile::default_name()).expect("built in");
        let content = RecordContent { metrics: AicMetrics::Disabled, has_types: false };
        let text = op_summary(&profile, &[launch(0, 5_000_000, TaskEngine::Vector)], content);
        let row = text.lines().nth(1).expect("a row");
        let expected = "0,4294967295,3,2,rehearsal_aclnnMuls_Mul_Mul,N/A,dynamic,N/A,5000.000\t,2.460,0,0,0,NO,\
                        N/A,N/A,N/A,N/A,N/A,N/A,N/A";
        assert_eq!(row, expected);
    }

    #[test]
    fn rows_are_sorted_as_text_and_wait_times_span_devices() {
        let found = lines(&[launch(2, 5_000_000, TaskEngine::Cube), launch(10, 9_000_000, TaskEngine::Cube)]);
        let columns = |line: &str| {
            let cells: Vec<&str> = line.split(',').collect();
            (cells[0].to_owned(), cells[10].to_owned())
        };
        assert_eq!(columns(&found[1]), ("10".to_owned(), "0".to_owned()));
        assert_eq!(columns(&found[2]), ("2".to_owned(), "0.000000".to_owned()));
    }

    #[test]
    fn op_statistic_sums_by_kernel_and_core() {
        let text = op_statistic(&[
            launch(0, 0, TaskEngine::Cube),
            launch(0, 9, TaskEngine::Cube),
            launch(0, 20, TaskEngine::Vector),
        ]);
        let rows: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(rows[0], "0,Mul,AI_CORE,2,4.920,2.460,2.460,2.460,66.667");
        assert_eq!(rows.len(), 2);
    }
}
