//! The entry of the stand-ins, `npubench stand-in msprof …` and `npubench stand-in npu-smi …`, which print as the real
//! programs do, and the readings of the devices with their faults.

use std::{ffi::OsString, path::Path};

use super::{
    HostConfig,
    device_activity::processes_of_device,
    faults::{ActiveFaults, FaultyDeviceState},
    msprof, npu_smi,
    shim_env::{FAILED, host_of_process, print_line},
};
use crate::base::command_error::Failure;
use crate::rehearsal::fault_plan::{HostDefect, ShownProcessIds};

/// Device memory of a replay, in MB.
const PROCESS_MB: u64 = 1_024;

/// Runs the stand-in of the program that the first argument names, and returns the exit code.
pub fn stand_in(arguments: &[OsString]) -> u8 {
    let Some((program, rest)) = arguments.split_first() else {
        print_line("stand-in: name a program, `msprof` or `npu-smi`");
        return FAILED;
    };
    let rest: Vec<String> = rest.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    match program.to_string_lossy().as_ref() {
        "msprof" => msprof::run(&rest),
        "npu-smi" => npu_smi_run(&rest),
        other => {
            print_line(&format!("stand-in: `{other}` has no stand-in, `msprof` and `npu-smi` have"));
            FAILED
        }
    }
}

fn npu_smi_run(arguments: &[String]) -> u8 {
    let (config, folder) = match host_of_process() {
        Ok(host) => host,
        Err(error) => {
            print_line(&format!("rehearsal: {error}\nhint: {}", error.hint()));
            return 1;
        }
    };
    let faults = ActiveFaults::new(&config, Some(&folder), None);
    let readings: Vec<npu_smi::SimulatedReading> =
        (0..config.devices).map(|device| host_reading(&config, &faults, &folder, device)).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["info"] => {
            let columns = match config.faults.container.as_ref().map(|container| container.process_ids) {
                None => npu_smi::ProcessIdColumns::Plain,
                Some(ShownProcessIds::Host) => npu_smi::ProcessIdColumns::Host,
                Some(ShownProcessIds::Container) => npu_smi::ProcessIdColumns::HostAndContainer,
            };
            print_line(npu_smi::info_table_with(config.devices, &readings, columns).trim_end());
            0
        }
        ["info", "-l"] => {
            print_line(npu_smi::list(config.devices, &readings).trim_end_matches('\n'));
            0
        }
        ["info", "-m"] => match logic_ids(&config, &readings) {
            Some(logic_ids) => {
                print_line(npu_smi::chip_map(&logic_ids).trim_end());
                0
            }
            None => {
                print_line("This device does not support querying mapping.");
                1
            }
        },
        _ => {
            print_line(
                "rehearsal: the stand-in of npu-smi answers `npu-smi info` with no option, `-l` or `-m` only",
            );
            1
        }
    }
}

/// Returns the listed devices with their logic ids; `None` where the host refuses `npu-smi info -m`.
fn logic_ids(config: &HostConfig, readings: &[npu_smi::SimulatedReading]) -> Option<Vec<(u32, u32)>> {
    let container = config.faults.container.as_ref();
    let listed = (0..).zip(readings).filter(|(_, reading)| !reading.is_lost).map(|(device, _)| device);
    listed
        .map(|device| {
            let logic_id = container.map_or(Some(device), |container| container.shown_logic_id(device));
            Some((device, logic_id?))
        })
        .collect()
}

/// Returns the readings of an idle device, which differ a little between devices.
fn idle(device: u32) -> npu_smi::SimulatedReading {
    npu_smi::SimulatedReading {
        temperature_c: 41 + i64::from(device * 7 % 9),
        power_w: 158.2 + f64::from(device * 5 % 11) / 2.0,
        hbm_used_mb: 2_880 + u64::from(device * 3 % 8),
        aicore_percent: 0,
        processes: Vec::new(),
        is_lost: false,
    }
}

/// Returns the readings of a device; one that the container does not see is not listed.
fn host_reading(
    config: &HostConfig,
    faults: &ActiveFaults,
    folder: &Path,
    device: u32,
) -> npu_smi::SimulatedReading {
    let mut reading = reading(device, &faults.device_state(device));
    let shown = if config.has_defect(HostDefect::SwappedDevices) { device ^ 1 } else { device };
    for process in processes_of_device(folder, shown) {
        reading.aicore_percent = reading.aicore_percent.max(process.aicore_percent);
        reading.hbm_used_mb += PROCESS_MB;
        reading.processes.push((process.pid, "python3".to_owned(), PROCESS_MB));
    }
    reading.is_lost |= !config.is_visible(device);
    reading
}

fn reading(device: u32, state: &FaultyDeviceState) -> npu_smi::SimulatedReading {
    let mut reading = npu_smi::SimulatedReading { is_lost: state.is_lost, ..idle(device) };
    if let Some(throttling) = &state.throttling {
        reading.temperature_c = throttling.temperature;
        reading.power_w += 150.0;
    }
    if let Some(process) = &state.leftover_process {
        let held = npu_smi::HBM_TOTAL_MB.saturating_sub(reading.hbm_used_mb + process.free_mb);
        reading.hbm_used_mb += held;
        reading.processes.push((process.pid, process.name.clone(), held));
    }
    reading
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::device::npu_smi::parse_info;

    #[test]
    fn programs_without_a_stand_in_are_refused() {
        assert_eq!(stand_in(&[]), FAILED);
        assert_eq!(stand_in(&["rm".into(), "-r".into()]), FAILED);
    }

    #[test]
    fn readings_of_sixteen_devices_parse_and_differ() {
        let readings: Vec<npu_smi::SimulatedReading> = (0..16).map(idle).collect();
        let info = parse_info(npu_smi::info_table(16, &readings).trim_end()).expect("the table");
        assert!(info.chips.iter().any(|chip| chip.temperature_c != info.chips[0].temperature_c));
        assert!(info.chips.iter().all(|chip| chip.temperature_c.is_some_and(|t| (35..60).contains(&t))));
    }
}
