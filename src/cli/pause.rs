//! `npubench pause` and `npubench unpause`: reserve devices for other users, and release them.

use super::{prelude::*, status::live_run};
use crate::{
    measure::{
        engine::PausedDevices,
        run_state::{DeviceStatus, RunStatusFile},
    },
    show::run_lines::{device_list, device_ranges},
};

/// Reserves devices for other users: a run starts no new collection on them
///
/// Running collections may end. If no run is active, the reservation applies to the next one.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench pause --db a3 --devices 3")]
pub(super) struct PauseOptions {
    #[command(flatten)]
    selection: DeviceSelection,
}

/// Releases paused devices: a run uses them again
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench unpause --db a3 --devices 3")]
pub(super) struct UnpauseOptions {
    #[command(flatten)]
    selection: DeviceSelection,
}

#[derive(Debug, Args)]
struct DeviceSelection {
    #[command(flatten)]
    database: DatabaseFolder,
    /// Devices, by the numbers of `npu-smi info`, such as `0-3,8`; by default all
    #[arg(long, value_name = "LIST", value_parser = parse_devices)]
    devices: Option<DeviceList>,
}

impl DeviceSelection {
    fn named(&self) -> Option<&[u32]> {
        self.devices.as_ref().map(|list| list.0.as_slice())
    }

    fn without(&self, is_known: impl Fn(u32) -> bool) -> Vec<u32> {
        self.named().unwrap_or_default().iter().copied().filter(|device| !is_known(*device)).collect()
    }
}

pub(super) fn pause(PauseOptions { selection }: &PauseOptions) -> Result<ExitStatus, CommandError> {
    let database = Database::open(&selection.database.db)?;
    let (_, paused) = PausedDevices::modify(&database, |paused| paused.pause(selection.named()))?;
    let (_, runs) = past_runs(&database)?;
    let mut text = format!("{}\n", pause_message(&paused));
    match live_run(&runs).and_then(|live| live.last_status.as_ref()) {
        None => text.push_str("no run is active: this applies to the next one\n"),
        Some(RunStatusFile { state, .. }) => {
            let lines = state.devices.iter().filter(|line| paused.contains(line.device));
            lines.for_each(|line| text.push_str(&expected_free_at(line, Timestamp::now())));
            let others = selection.without(|device| state.devices.iter().any(|line| line.device == device));
            if !others.is_empty() {
                text.push_str(&format!("{} not part of run {}\n", devices_are(&others), state.run));
            }
        }
    }
    print_data(&text);
    Ok(ExitStatus::Done)
}

pub(super) fn unpause(UnpauseOptions { selection }: &UnpauseOptions) -> Result<ExitStatus, CommandError> {
    let database = Database::open(&selection.database.db)?;
    let (before, after) = PausedDevices::modify(&database, |paused| paused.unpause(selection.named()))?;
    let idle = selection.without(|device| before.contains(device));
    if !idle.is_empty() {
        print_data(&format!("{} not paused\n", devices_are(&idle)));
    }
    if selection.devices.is_none() && before.is_empty() {
        print_data("no device was paused\n");
    } else {
        print_data(&format!("{}\n", pause_message(&after)));
    }
    Ok(ExitStatus::Done)
}

pub(super) fn pause_message(paused: &PausedDevices) -> String {
    let except: Vec<u32> = paused.except.iter().copied().collect();
    match (paused.all, except.as_slice()) {
        (true, []) => "all devices are paused".to_owned(),
        (true, except) => format!("all devices but {} are paused", device_ranges(except)),
        (false, _) if paused.devices.is_empty() => "no device is paused".to_owned(),
        (false, _) => {
            let devices: Vec<u32> = paused.devices.iter().copied().collect();
            format!("{} paused", devices_are(&devices))
        }
    }
}

fn devices_are(devices: &[u32]) -> String {
    format!("{} {}", device_list(devices), if devices.len() == 1 { "is" } else { "are" })
}

fn expected_free_at(line: &DeviceStatus, now: Timestamp) -> String {
    match &line.collection {
        None => format!("device {}: no collection is running\n", line.device),
        Some(current) => {
            let left = current.predicted_end.seconds_since(now).max(0.0);
            let (number, end) = (current.number, current.predicted_end.local_time());
            format!(
                "device {}: collection {number} is predicted to end at {end}, in {left:.0} s\n",
                line.device
            )
        }
    }
}
