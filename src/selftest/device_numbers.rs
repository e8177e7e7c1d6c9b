//! Experiment 1: torch's number of a device, the profiler's `Device_id` and the row of npu-smi are one to one.
//!
//! In a container, torch counts the visible devices from 0, while npu-smi shows the numbers of the host. One device at
//! a time is kept busy under msprof; npu-smi must show the process, or use of the cores, on exactly one device.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    evidence::{ScriptRequest, SelftestContext},
    finding::{EvidenceError, ExperimentFinding},
    record_loss::mark_length,
};
use crate::{
    device::query_npu_smi,
    domain::LogicalDeviceId,
    profile::npu_smi::{NpuChip, NpuSmiInfo},
    render::files,
};

/// Length of the marked launches, whose number is that of the device plus one.
const MARK_LENGTH: u64 = 2;
/// Longest time for which a device is kept busy, in seconds.
const BUSY_SECONDS: f64 = 60.0;
/// Longest time until the script keeps its device busy.
const START_LIMIT: Duration = Duration::from_secs(240);
/// Number of readings of npu-smi before a device counts as not shown.
const READINGS: usize = 8;
/// Use of the cores, in percent, above which a device counts as busy.
const BUSY_PERCENT: u32 = 50;
/// Interval at which the journal of the script is read.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const EXPECTED: &str = "each torch device busy on exactly one row of npu-smi, recorded under its own Device_id, and as \
     many rows as torch counts devices";

/// Runs the experiment.
pub(super) fn run(context: &SelftestContext, folder: &Path) -> Result<ExperimentFinding, EvidenceError> {
    let mut observations = Vec::new();
    for &device in &context.devices {
        observations.push(observe_device(context, &folder.join(format!("device-{device}")), device)?);
    }
    let rows = read_npu_smi(context, folder)?.chips.len();
    let problems = mapping_problems(&observations, rows);
    let pairs = observations.iter().filter_map(|seen| {
        let [row] = seen.rows.as_slice() else { return None };
        Some(format!("{}={row}", seen.logical_id))
    });
    let seen = format!("torch={{npu-smi}}: {}", pairs.collect::<Vec<_>>().join(" "));
    Ok(ExperimentFinding::from_problems(EXPECTED, seen, &problems))
}

/// Evidence for one device.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DeviceObservation {
    /// Number of the device for torch, as the mapping has it.
    logical_id: LogicalDeviceId,
    /// Number of its row, as the mapping has it.
    physical_id: u32,
    /// Rows on which npu-smi shows the process, by their physical numbers.
    rows: Vec<u32>,
    /// Values of `Device_id` in the records.
    recorded: BTreeSet<Option<LogicalDeviceId>>,
    /// Number of recorded marks.
    marks: u64,
    /// Number of devices that torch counts.
    torch_devices: Option<u64>,
}

/// Keeps a device busy and reads npu-smi meanwhile.
fn observe_device(
    context: &SelftestContext,
    folder: &Path,
    device: u32,
) -> Result<DeviceObservation, EvidenceError> {
    let devices = [device];
    let parameters = json!({ "marks": device + 1, "seconds": BUSY_SECONDS });
    let request = ScriptRequest { function: "busy", parameters, devices: &devices };
    context.prepare_script(folder, &request)?;
    let before = read_npu_smi(context, folder)?;
    let (exit, rows) = thread::scope(|scope| {
        let script = scope.spawn(|| context.run_script(folder, &devices, None, files::LOG));
        let rows = read_busy_rows(context, folder, &before, || script.is_finished());
        // The script ends when the file exists.
        let release = folder.join("release");
        let released = fs::write(&release, "").map_err(EvidenceError::io(&release));
        let exit = script.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        released.and(exit).map(|exit| (exit, rows))
    })?;
    let evidence = context.read_evidence(folder, exit)?;
    evidence.require_completed()?;
    let records = evidence.readable_records()?;
    let is_mark = |length: &u64| *length == MARK_LENGTH;
    Ok(DeviceObservation {
        logical_id: context.numbering.logical_id(device),
        physical_id: device,
        rows: rows?,
        recorded: records.iter().map(|record| record.device).collect(),
        marks: records.iter().filter_map(mark_length).filter(is_mark).count() as u64,
        torch_devices: evidence.journal_value("device_count").and_then(Value::as_u64),
    })
}

/// Reads npu-smi until it shows the script's process, or the readings are used up.
fn read_busy_rows(
    context: &SelftestContext,
    folder: &Path,
    before: &NpuSmiInfo,
    has_ended: impl Fn() -> bool,
) -> Result<Vec<u32>, EvidenceError> {
    let Some(pid) = wait_for_process(&folder.join(files::JOURNAL), has_ended) else { return Ok(Vec::new()) };
    for _ in 0..READINGS {
        let rows = busy_rows(before, &read_npu_smi(context, folder)?, pid);
        if !rows.is_empty() {
            return Ok(rows);
        }
    }
    Ok(Vec::new())
}

/// Waits until the script keeps its device busy, and returns its process id; `None` if it ended before.
fn wait_for_process(journal: &Path, has_ended: impl Fn() -> bool) -> Option<u32> {
    let started = Instant::now();
    loop {
        let text = fs::read_to_string(journal).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        if let Some(pid) = lines.into_iter().find_map(|line| line.get("pid")?.as_u64()) {
            return u32::try_from(pid).ok();
        }
        if has_ended() || started.elapsed() > START_LIMIT {
            return None;
        }
        thread::sleep(POLL_INTERVAL);
    }
}

fn read_npu_smi(context: &SelftestContext, folder: &Path) -> Result<NpuSmiInfo, EvidenceError> {
    fs::create_dir_all(folder).map_err(EvidenceError::io(folder))?;
    query_npu_smi(&context.environment, folder).map_err(|error| EvidenceError::Missing(error.to_string()))
}

/// Returns the devices on which a process is: by its id, else (in a container, whose npu-smi shows the ids of the host)
/// those whose cores are busy and were not before.
fn busy_rows(before: &NpuSmiInfo, now: &NpuSmiInfo, pid: u32) -> Vec<u32> {
    let has_process = |chip: &&NpuChip| now.processes_on(chip).any(|process| process.pid == pid);
    let by_process: Vec<u32> = now.chips.iter().filter(has_process).map(|chip| chip.physical_id).collect();
    if !by_process.is_empty() {
        return by_process;
    }
    let is_busy = |chip: &NpuChip| chip.aicore_percent.is_some_and(|percent| percent > BUSY_PERCENT);
    let was_busy: BTreeSet<u32> =
        before.chips.iter().filter(|chip| is_busy(chip)).map(|chip| chip.physical_id).collect();
    let is_new = |chip: &&NpuChip| is_busy(chip) && !was_busy.contains(&chip.physical_id);
    now.chips.iter().filter(is_new).map(|chip| chip.physical_id).collect()
}

/// Returns the contradictions to a one-to-one mapping; `rows` is the number of devices that npu-smi lists.
fn mapping_problems(observations: &[DeviceObservation], rows: usize) -> Vec<String> {
    let mut problems = Vec::new();
    let mut taken = BTreeSet::new();
    for seen in observations {
        let DeviceObservation { logical_id, physical_id, rows: busy, recorded, marks, torch_devices } = seen;
        let device = format!("torch device {logical_id}");
        match busy.as_slice() {
            [] => problems.push(format!("npu-smi shows neither the process nor busy cores for {device}")),
            [row] if row != physical_id => {
                problems.push(format!("{device} is busy on device {row} of npu-smi, expected {physical_id}"));
            }
            [row] if !taken.insert(*row) => {
                problems.push(format!("device {row} of npu-smi was busy for two devices of torch"));
            }
            [_] => {}
            several => problems.push(format!("{device} is busy on devices {several:?} of npu-smi")),
        }
        if *recorded != BTreeSet::from([Some(*logical_id)]) {
            let recorded: Vec<String> =
                recorded.iter().map(|id| id.map_or_else(|| "none".to_owned(), |id| id.to_string())).collect();
            problems.push(format!("{device} is recorded as Device_id {}", recorded.join(", ")));
        }
        let launched = u64::from(*physical_id) + 1;
        if *marks != launched {
            problems.push(format!("{marks} of {launched} marks are recorded of {device}"));
        }
        if let Some(count) = torch_devices.filter(|count| *count < rows as u64) {
            problems.push(format!("torch counts {count} devices, npu-smi lists {rows}"));
        }
    }
    problems.dedup();
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::npu_smi::parse_info;
    use crate::rehearsal::npu_smi::{SimulatedReading, info_table};

    fn observation(device: u32) -> DeviceObservation {
        DeviceObservation {
            // As in a container that sees the devices from 4 on.
            logical_id: LogicalDeviceId(device),
            physical_id: device + 4,
            rows: vec![device + 4],
            recorded: BTreeSet::from([Some(LogicalDeviceId(device))]),
            marks: u64::from(device) + 5,
            torch_devices: Some(4),
        }
    }

    #[test]
    fn contradictions_of_the_mapping_are_reported() {
        let good: Vec<DeviceObservation> = (0..4).map(observation).collect();
        assert_eq!(mapping_problems(&good, 4), [""; 0]);
        assert!(mapping_problems(&good, 8)[0].contains("torch counts 4 devices, npu-smi lists 8"));
        let problem = |change: fn(&mut DeviceObservation)| {
            let mut changed = good.clone();
            change(&mut changed[2]);
            mapping_problems(&changed, 4).join("; ")
        };
        assert!(problem(|seen| seen.rows = vec![7]).contains("torch device 2 is busy on device 7"));
        assert!(problem(|seen| seen.rows = vec![]).contains("neither the process"));
        assert!(problem(|seen| seen.rows = vec![6, 7]).contains("[6, 7]"));
        assert!(
            problem(|seen| seen.recorded = BTreeSet::from([Some(LogicalDeviceId(6))]))
                .contains("Device_id 6")
        );
        assert!(problem(|seen| seen.marks = 9).contains("9 of 7 marks"));
    }

    #[test]
    fn busy_devices_are_found_by_process_or_by_new_use_of_the_cores() {
        let info = |busy: &[u32], pid: Option<u32>| {
            let readings: Vec<SimulatedReading> = (0..4)
                .map(|device| SimulatedReading {
                    aicore_percent: if busy.contains(&device) { 97 } else { 0 },
                    processes: pid
                        .filter(|_| busy.contains(&device))
                        .map(|pid| (pid, "python3".to_owned(), 900))
                        .into_iter()
                        .collect(),
                    ..SimulatedReading::default()
                })
                .collect();
            parse_info(info_table(4, &readings).trim_end()).expect("a table")
        };
        assert_eq!(busy_rows(&info(&[], None), &info(&[2], Some(77)), 77), [2]);
        assert_eq!(busy_rows(&info(&[1], None), &info(&[1, 3], Some(5)), 77), [3], "ids of the host");
        assert_eq!(busy_rows(&info(&[1], None), &info(&[1], None), 77), [0_u32; 0]);
    }
}
