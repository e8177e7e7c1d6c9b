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
    evidence::{ScriptRequest, SelftestContext, join_all},
    finding::{EvidenceError, ExperimentFinding},
    record_loss::mark_length,
};
use crate::{
    kernel::{LogicalDeviceId, render::files},
    measure::device::{
        npu_smi::{NpuChip, NpuProcess, NpuSmiInfo},
        query_npu_smi,
    },
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
    let observe = |device: u32, others_are_busy: bool| {
        observe_device(context, &folder.join(format!("device-{device}")), device, others_are_busy)
    };
    let mut observations = vec![observe(context.first_device(), false)?];
    let others = context.devices.get(1..).unwrap_or_default();
    if observations[0].is_found_by_process {
        // Several devices can be busy at once, because npu-smi lists their processes.
        observations.extend(thread::scope(|scope| {
            let running: Vec<_> =
                others.iter().map(|&device| scope.spawn(move || observe(device, true))).collect();
            join_all(running).into_iter().collect::<Result<Vec<_>, _>>()
        })?);
    } else {
        for &device in others {
            observations.push(observe(device, false)?);
        }
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
    /// True if the rows show the process's id, and not only use of the cores.
    is_found_by_process: bool,
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
    others_are_busy: bool,
) -> Result<DeviceObservation, EvidenceError> {
    let devices = [device];
    let parameters = json!({ "marks": device + 1, "seconds": BUSY_SECONDS });
    let request = ScriptRequest { function: "busy", parameters, devices: &devices };
    context.prepare_script(folder, &request)?;
    let before = read_npu_smi(context, folder)?;
    let (exit, rows) = thread::scope(|scope| {
        let script = scope.spawn(|| context.run_script(folder, &devices, None, files::LOG));
        let rows = read_busy_rows(context, folder, &before, others_are_busy, || script.is_finished());
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
    let BusyRows { rows, is_found_by_process } = rows?;
    Ok(DeviceObservation {
        logical_id: context.numbering.logical_id(device),
        physical_id: device,
        rows,
        is_found_by_process,
        recorded: records.iter().map(|record| record.device).collect(),
        marks: records.iter().filter_map(mark_length).filter(is_mark).count() as u64,
        torch_devices: evidence.journal_value("device_count").and_then(Value::as_u64),
    })
}

/// Rows of npu-smi on which a process is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct BusyRows {
    /// Physical numbers.
    rows: Vec<u32>,
    is_found_by_process: bool,
}

/// Reads npu-smi until it shows the script's process, or the readings are used up.
fn read_busy_rows(
    context: &SelftestContext,
    folder: &Path,
    before: &NpuSmiInfo,
    others_are_busy: bool,
    has_ended: impl Fn() -> bool,
) -> Result<BusyRows, EvidenceError> {
    let journal = folder.join(files::JOURNAL);
    let Some(pid) = wait_for_process(&journal, has_ended) else { return Ok(BusyRows::default()) };
    let own = OwnProcess { pid, sees_host_processes: context.sees_host_processes };
    for _ in 0..READINGS {
        let found = own.find_busy_rows(before, &read_npu_smi(context, folder)?);
        // Use of the cores does not distinguish devices that are busy at the same time.
        if !found.rows.is_empty() && (found.is_found_by_process || !others_are_busy) {
            return Ok(found);
        }
    }
    Ok(BusyRows::default())
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

/// The script's process.
#[derive(Clone, Copy, Debug)]
struct OwnProcess {
    /// Id inside the container, if there is one.
    pid: u32,
    /// True if npu-smi's ids are those of this process namespace.
    sees_host_processes: bool,
}

impl OwnProcess {
    /// Returns the devices on which the process is: by its id; else, inside a container whose npu-smi lists only ids of
    /// the host, those whose cores are busy and were not before.
    fn find_busy_rows(self, before: &NpuSmiInfo, now: &NpuSmiInfo) -> BusyRows {
        let has_process = |chip: &&NpuChip| now.processes_on(chip).any(|process| self.is_listed_as(process));
        let by_process: Vec<u32> =
            now.chips.iter().filter(has_process).map(|chip| chip.physical_id).collect();
        if !by_process.is_empty() {
            return BusyRows { rows: by_process, is_found_by_process: true };
        }
        let is_busy = |chip: &NpuChip| chip.aicore_percent.is_some_and(|percent| percent > BUSY_PERCENT);
        let was_busy: BTreeSet<u32> =
            before.chips.iter().filter(|chip| is_busy(chip)).map(|chip| chip.physical_id).collect();
        let is_new = |chip: &&NpuChip| is_busy(chip) && !was_busy.contains(&chip.physical_id);
        let rows = now.chips.iter().filter(is_new).map(|chip| chip.physical_id).collect();
        BusyRows { rows, is_found_by_process: false }
    }

    /// Returns true if npu-smi lists the process under this entry. An id of the host can equal one of the container.
    fn is_listed_as(self, process: &NpuProcess) -> bool {
        match process.container_pid {
            Some(inner) => inner == self.pid,
            None => self.sees_host_processes && process.pid == self.pid,
        }
    }
}

/// Returns the contradictions to a one-to-one mapping; `rows` is the number of devices that npu-smi lists.
fn mapping_problems(observations: &[DeviceObservation], rows: usize) -> Vec<String> {
    let mut problems = Vec::new();
    let mut taken = BTreeSet::new();
    for seen in observations {
        let DeviceObservation { logical_id, physical_id, rows: busy, recorded, marks, torch_devices, .. } =
            seen;
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
    use crate::measure::device::npu_smi::{LogicalIdSource, NpuChip, NpuProcess};

    fn observation(device: u32) -> DeviceObservation {
        DeviceObservation {
            // As in a container that sees the devices from 4 on.
            logical_id: LogicalDeviceId(device),
            physical_id: device + 4,
            rows: vec![device + 4],
            is_found_by_process: true,
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
            let chip = |device: u32| NpuChip {
                npu: device / 2,
                chip: device % 2,
                physical_id: device,
                logical_id: LogicalDeviceId(device),
                name: "Ascend910".to_owned(),
                health: "OK".to_owned(),
                power_w: None,
                temperature_c: Some(45),
                aicore_percent: Some(if busy.contains(&device) { 97 } else { 0 }),
                memory_used_mb: Some(2_892),
                memory_total_mb: Some(65_536),
                bus_id: None,
                host_id: None,
            };
            let process = |device: &u32| {
                pid.map(|pid| NpuProcess {
                    npu: device / 2,
                    chip: Some(device % 2),
                    pid,
                    container_pid: None,
                    name: "python3".to_owned(),
                    memory_mb: Some(900),
                })
            };
            NpuSmiInfo {
                version: "25.0.rc1".to_owned(),
                chips: (0..4).map(chip).collect(),
                logical_ids: LogicalIdSource::TablePosition,
                processes: busy.iter().filter_map(process).collect(),
            }
        };
        let find = |sees_host_processes: bool, before: &NpuSmiInfo, now: &NpuSmiInfo| {
            let found = OwnProcess { pid: 77, sees_host_processes }.find_busy_rows(before, now);
            (found.rows, found.is_found_by_process)
        };
        let idle = info(&[], None);
        assert_eq!(find(true, &idle, &info(&[2], Some(77))), (vec![2], true));
        assert_eq!(find(true, &info(&[1], None), &info(&[1, 3], Some(5))), (vec![3], false));
        assert_eq!(find(true, &info(&[1], None), &info(&[1], None)), (vec![], false));
        // Inside a container, another process of the host may have the same number.
        let mut inside = info(&[2, 3], Some(77));
        assert_eq!(find(false, &info(&[3], None), &inside), (vec![2], false));
        for process in &mut inside.processes {
            process.container_pid = Some(if process.npu == inside.chips[2].npu { 77 } else { 5 });
        }
        assert!(find(false, &idle, &inside).1);
    }
}
