//! Experiment 1: torch's number of a device, the profiler's `Device_id` and the row of npu-smi are one to one.
//!
//! In a container, torch counts the visible devices from 0, while npu-smi shows the numbers of the host. One device at
//! a time is kept busy under msprof; npu-smi must show the process, or use of the cores, on exactly one device.

use std::{
    collections::BTreeSet,
    fs,
    panic::resume_unwind,
    path::Path,
    sync::atomic::AtomicBool,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    evidence::{SelftestContext, SelftestScript, journal_lines},
    experiment::{EvidenceError, Experiment, Finding},
    marked_launches::count_marks,
};
use crate::{
    base::{process::sees_host_processes, shared_work::share_work},
    kernel::{DataKind, LogicalDeviceId, render::files},
    measure::device::{
        npu_smi::{NpuChip, NpuProcess, NpuSmiInfo},
        query_npu_smi,
    },
};

pub(super) const EXPERIMENT: Experiment = Experiment {
    number: 1,
    name: "device-numbers",
    assumption: "torch's number of a device, the profiler's Device_id and the row of npu-smi belong to one chip",
    expected: "each torch device busy on exactly one row of npu-smi, recorded under its own Device_id, and as many rows as \
               torch counts devices",
    fix: "compare `npu-smi info -m` with docs/devices.md; choose devices whose numbers agree with `--devices`",
    run,
};

/// Length of the marked launches. There are as many of them as the number of the device plus one.
const MARK_LENGTH: u64 = 2;
const BUSY_SECONDS: f64 = 60.0;
const START_LIMIT: Duration = Duration::from_secs(240);
const READINGS: usize = 8;
const BUSY_PERCENT: u32 = 50;
const POLL_INTERVAL: Duration = Duration::from_millis(50);

fn run(context: &SelftestContext, folder: &Path) -> Result<Finding, EvidenceError> {
    let observe = |device: u32, others_are_busy: bool| {
        observe_device(context, &folder.join(format!("device-{device}")), device, others_are_busy)
    };
    let mut observations = vec![observe(context.devices[0], false)?];
    // Several devices can be busy at once if npu-smi lists their processes.
    let together = observations[0].is_found_by_process;
    let others = &context.devices[1..];
    let threads = vec![(); if together { others.len() } else { 1 }];
    observations.extend(share_work(&threads, others.to_vec(), |(), device| observe(device, together))?);
    let rows = read_npu_smi(context, folder)?.chips.len();
    let problems = mapping_problems(&observations, rows);
    let pairs = observations.iter().filter_map(|seen| {
        let [row] = seen.rows.as_slice() else { return None };
        Some(format!("{}={row}", seen.logical_id))
    });
    let seen = format!("torch={{npu-smi}}: {}", pairs.collect::<Vec<_>>().join(" "));
    Ok(Finding::new(seen, problems))
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct DeviceObservation {
    logical_id: LogicalDeviceId,
    physical_id: u32,
    /// Rows on which npu-smi shows the process, by their physical numbers.
    rows: Vec<u32>,
    /// True if the rows show the process's id, and not only use of the cores.
    is_found_by_process: bool,
    recorded: BTreeSet<Option<LogicalDeviceId>>,
    marks: u64,
    torch_devices: Option<u64>,
}

fn observe_device(
    context: &SelftestContext,
    folder: &Path,
    device: u32,
    others_are_busy: bool,
) -> Result<DeviceObservation, EvidenceError> {
    let parameters = json!({ "marks": device + 1, "seconds": BUSY_SECONDS });
    let script = SelftestScript { devices: &[device], ..context.script(folder, "busy", parameters) };
    script.prepare()?;
    let before = read_npu_smi(context, folder)?;
    let (evidence, found) = thread::scope(|scope| {
        let running = scope.spawn(|| script.run());
        let found = read_busy_rows(context, folder, &before, others_are_busy, || running.is_finished());
        // The script ends when the file exists.
        let release = folder.join("release");
        let released = fs::write(&release, "").map_err(EvidenceError::io(&release));
        let evidence = running.join().unwrap_or_else(|panic| resume_unwind(panic));
        released.and(evidence).map(|evidence| (evidence, found))
    })?;
    let evidence = evidence.completed()?;
    let records = evidence.readable_records()?;
    let (rows, is_found_by_process) = found?;
    Ok(DeviceObservation {
        logical_id: context.host.numbering.logical_id(device),
        physical_id: device,
        rows,
        is_found_by_process,
        recorded: records.iter().map(|record| record.device).collect(),
        marks: count_marks(records, MARK_LENGTH..=MARK_LENGTH) as u64,
        torch_devices: evidence.journal_value("device_count").and_then(Value::as_u64),
    })
}

fn read_busy_rows(
    context: &SelftestContext,
    folder: &Path,
    before: &NpuSmiInfo,
    others_are_busy: bool,
    has_ended: impl Fn() -> bool,
) -> Result<(Vec<u32>, bool), EvidenceError> {
    let Some(pid) = wait_for_process(&folder.join(files::JOURNAL), has_ended) else {
        return Ok(Default::default());
    };
    // npu-smi of the rehearsal host shows ids of this namespace, unless a fault plan has others.
    let sees_host_processes = context.host.database.kind() == DataKind::Rehearsal || sees_host_processes();
    for _ in 0..READINGS {
        let now = read_npu_smi(context, folder)?;
        let (rows, is_found_by_process) = find_busy_rows(pid, sees_host_processes, before, &now);
        // Use of the cores does not distinguish devices that are busy at the same time.
        if !rows.is_empty() && (is_found_by_process || !others_are_busy) {
            return Ok((rows, is_found_by_process));
        }
    }
    Ok(Default::default())
}

fn wait_for_process(journal: &Path, has_ended: impl Fn() -> bool) -> Option<u32> {
    let started = Instant::now();
    loop {
        if let Some(pid) = journal_lines(journal).iter().find_map(|line| line.get("pid")?.as_u64()) {
            return u32::try_from(pid).ok();
        }
        if has_ended() || started.elapsed() > START_LIMIT {
            return None;
        }
        thread::sleep(POLL_INTERVAL);
    }
}

fn read_npu_smi(context: &SelftestContext, folder: &Path) -> Result<NpuSmiInfo, EvidenceError> {
    Ok(query_npu_smi(&context.environment, folder, &AtomicBool::new(false))?)
}

/// Returns the devices on which the script's process is, by its id (inside the container, if there is one), with true; else,
/// inside a container whose npu-smi lists only ids of the host, those whose cores are busy and were not before.
/// `sees_host_processes` is true if npu-smi lists process ids of this process namespace; an id of the host can equal
/// one of the container.
fn find_busy_rows(
    pid: u32,
    sees_host_processes: bool,
    before: &NpuSmiInfo,
    now: &NpuSmiInfo,
) -> (Vec<u32>, bool) {
    let rows_with = |info: &NpuSmiInfo, is_shown: &dyn Fn(&NpuChip) -> bool| -> Vec<u32> {
        info.chips.iter().filter(|chip| is_shown(chip)).map(|chip| chip.physical_id).collect()
    };
    let is_own = |process: &NpuProcess| match process.container_pid {
        Some(inner) => inner == pid,
        None => sees_host_processes && process.pid == pid,
    };
    let by_process = rows_with(now, &|chip| now.processes_on(chip).any(is_own));
    if !by_process.is_empty() {
        return (by_process, true);
    }
    let is_busy = |chip: &NpuChip| chip.aicore_percent.is_some_and(|percent| percent > BUSY_PERCENT);
    let was_busy = rows_with(before, &is_busy);
    (rows_with(now, &|chip| is_busy(chip) && !was_busy.contains(&chip.physical_id)), false)
}

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
            find_busy_rows(77, sees_host_processes, before, now)
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
