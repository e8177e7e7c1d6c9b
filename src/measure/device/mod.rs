//! Devices of a host: discovery by `npu-smi`, selection, leases, software fingerprint, checks of `doctor`.

mod checked_versions;
pub(crate) mod diagnosis;
mod lease;
pub mod npu_smi;
mod numbering;
mod software;

use std::{
    collections::BTreeMap,
    io, iter,
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};

pub(crate) use checked_versions::check_versions;
pub(crate) use diagnosis::{CheckStatus, DoctorCheck, MIN_CANN, MIN_EXPORT_PYTHON, check_installation};
pub(crate) use lease::{DeviceLeases, LeaseFolder};
pub(crate) use numbering::DeviceNumbering;
use serde::Serialize;
pub(crate) use software::{
    CustomOperators, HostSoftware, PlatformConfig, SoftwareLocations, custom_operators, operator_environment,
};

use crate::base::command_error::Failure;
use crate::base::exit::ExitStatus;
use crate::{
    base::process::{self, CommandSpec, ExitKind, ProcessError, Question},
    kernel::SoftwareFingerprint,
    measure::device::npu_smi::{NpuChip, NpuSmiError, NpuSmiInfo, parse_chip_map, parse_info},
};

const NPU_SMI_LOG: &str = "npu-smi.txt";

/// Error of device discovery, selection or leasing.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    #[error("the devices of this host are not known: {0}")]
    Process(#[from] ProcessError),
    #[error("`{program}` {problem}")]
    Failed { program: String, problem: String },
    #[error("`npu-smi info` cannot be read: {0}")]
    Unreadable(#[from] NpuSmiError),
    #[error("no device can be used: {0}")]
    Unhealthy(String),
    #[error("no device is free: {0}")]
    Busy(String),
    #[error("`{VISIBLE}={value}` renumbers the devices for torch, but not for the profiler")]
    Renumbered { value: String },
    #[error("device {device} is in use by another run of npubench; `{}` is locked", .lease.display())]
    InUse {
        device: u32,
        /// The file whose lock its processes hold.
        lease: PathBuf,
    },
    #[error("the folder of leases `{}` cannot be used: {problem}", .folder.display())]
    LeaseFolder { folder: PathBuf, problem: String },
    #[error("cannot lock `{}`: {source}", .lease.display())]
    Lease { lease: PathBuf, source: io::Error },
    #[error("`npu-smi` lists {listed} devices with gaps in their logic ids, and torch counts {counted}")]
    Miscounted { counted: u32, listed: u32 },
    #[error("this host has no device {device}; it has {known}")]
    Unknown { device: u32, known: String },
}

impl Failure for DeviceError {
    fn hint(&self) -> String {
        let advice = match self {
            Self::Renumbered { .. } => {
                "unset it, and select devices with `--devices` and the numbers of `npu-smi info`"
            }
            Self::Unknown { .. } => {
                "select from these with `--devices`; they are numbered as in `npu-smi info`"
            }
            Self::Busy(_) => "wait for them with `--busy wait`, or name others with `--devices`",
            Self::Unhealthy(_) => "see `npu-smi info`; reset or replace the device",
            Self::InUse { .. } => "`fuser` on that file names the processes; wait for them or end them",
            Self::Lease { .. } => "check permissions and free space there",
            Self::LeaseFolder { .. } => {
                "give a folder of your own, or one that containers share, with `--leases`"
            }
            Self::Miscounted { .. } => {
                "compare `npu-smi info -m` with `torch.npu.device_count()`; map the same devices for both"
            }
            _ => {
                "measure on a host with the NPU driver, or rehearse: `npubench db copy DIR NEW --kind rehearsal`, then \
                 `npubench run --db NEW --host rehearsal`"
            }
        };
        advice.to_owned()
    }

    fn exit_status(&self) -> ExitStatus {
        match self {
            Self::Unknown { .. } => ExitStatus::BadInput,
            _ => ExitStatus::CannotMeasure,
        }
    }
}

/// Variable that renumbers devices for programs. The runtime numbers the devices of its list from 0 for
/// `set_device`, and reports the number before that to the profiler (`MsprofNotifySetDevice` has the driver's number),
/// so that a record's `Device_id` is not the number of torch.
const VISIBLE: &str = "ASCEND_RT_VISIBLE_DEVICES";

pub(crate) fn check_environment() -> Result<(), DeviceError> {
    match std::env::var(VISIBLE) {
        Err(std::env::VarError::NotPresent) => Ok(()),
        value => Err(DeviceError::Renumbered { value: value.unwrap_or_default() }),
    }
}

/// Runs `npu-smi info` until `stop` is set; its output is written to the folder `scratch`. The logical numbers of the chips are their
/// positions in the table.
pub(crate) fn query_npu_smi(
    environment: &[(String, String)],
    scratch: &Path,
    stop: &AtomicBool,
) -> Result<NpuSmiInfo, DeviceError> {
    let text = run_host_program("npu-smi", &["info"], environment, &scratch.join(NPU_SMI_LOG), stop)?;
    Ok(parse_info(&text)?)
}

#[derive(Debug)]
pub(crate) struct HostDevices {
    pub(crate) info: NpuSmiInfo,
    /// Reason why `npu-smi info -m` gives no logical numbers; `None` if it does.
    pub(crate) without_chip_map: Option<String>,
}

/// Runs `npu-smi info` and `npu-smi info -m`. Without a usable answer of the second, the positions of the chips in the
/// table are their logical numbers.
pub(crate) fn query_host_devices(
    environment: &[(String, String)],
    scratch: &Path,
) -> Result<HostDevices, DeviceError> {
    let stop = AtomicBool::new(false);
    let mut info = query_npu_smi(environment, scratch, &stop)?;
    let mut apply = || {
        let log = scratch.join(NPU_SMI_LOG);
        let text = run_host_program("npu-smi", &["info", "-m"], environment, &log, &stop)?;
        Ok::<_, DeviceError>(info.apply_chip_map(&parse_chip_map(&text)?)?)
    };
    let without_chip_map = apply().err().map(|error| match error {
        DeviceError::Unreadable(error) => error.to_string(),
        other => other.to_string(),
    });
    Ok(HostDevices { info, without_chip_map })
}

/// Runs a program that prints a short text until it ends or `stop` is set, and returns its output, which is written to a
/// log in an existing folder, too.
pub(crate) fn run_host_program(
    name: &str,
    arguments: &[&str],
    environment: &[(String, String)],
    log: &Path,
    stop: &AtomicBool,
) -> Result<String, DeviceError> {
    // The PATH of the collection scripts comes before our own.
    let path = search_path(environment);
    let program = process::find_program(name, &path);
    let program = program.ok_or_else(|| ProcessError::NotFound { program: name.to_owned() })?;
    let mut environment = environment.to_vec();
    environment.retain(|(name, _)| name != "PATH");
    environment.push(("PATH".to_owned(), path));
    let job = CommandSpec {
        environment: &environment,
        ..CommandSpec::query(
            iter::once(program.into_os_string()).chain(arguments.iter().map(Into::into)).collect(),
            log.parent().expect("a log is in a folder"),
            log,
            Question::Simple,
        )
    };
    let failed = |problem: String| DeviceError::Failed { program: name.to_owned(), problem };
    match process::read_query(&job, stop)? {
        (ExitKind::Exited(0), text) => Ok(text),
        (end, _) if end.is_hung() => Err(failed(end.problem(&job))),
        (end, text) => Err(failed(format!("{}: {}", end.problem(&job), process::last_line(&text)))),
    }
}

/// Returns the PATH of programs: the one in `environment`, followed by our own.
pub(crate) fn search_path(environment: &[(String, String)]) -> String {
    let own = std::env::var("PATH").unwrap_or_default();
    let front = environment.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_str());
    front.map_or_else(|| own.clone(), |front| format!("{front}:{own}"))
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SelectedDevices {
    pub(crate) chips: Vec<NpuChip>,
    pub(crate) left_out: Vec<String>,
}

pub(crate) fn select_devices(
    info: &NpuSmiInfo,
    wanted: Option<&[u32]>,
) -> Result<SelectedDevices, DeviceError> {
    let devices: Vec<u32> = info.chips.iter().map(|chip| chip.physical_id).collect();
    if let Some(&device) = wanted.unwrap_or_default().iter().find(|device| !devices.contains(device)) {
        let known: Vec<String> = devices.iter().map(u32::to_string).collect();
        return Err(DeviceError::Unknown { device, known: known.join(", ") });
    }
    let mut chips = info.chips.clone();
    chips.retain(|chip| wanted.is_none_or(|wanted| wanted.contains(&chip.physical_id)));
    chips.sort_by_key(|chip| chip.physical_id);
    let unhealthy = |chip: &NpuChip| (chip.health != "OK").then(|| describe_health(chip));
    leave_out(SelectedDevices { chips, left_out: Vec::new() }, unhealthy, DeviceError::Unhealthy)
}

fn describe_health(chip: &NpuChip) -> String {
    format!("the health of device {} is `{}`", chip.physical_id, chip.health)
}

pub(crate) fn leave_out_busy(
    info: &NpuSmiInfo,
    chosen: SelectedDevices,
) -> Result<SelectedDevices, DeviceError> {
    let user = |chip: &NpuChip| {
        let process = info.processes_on(chip).next()?;
        Some(format!("device {} is used by process {} ({})", chip.physical_id, process.pid, process.name))
    };
    leave_out(chosen, user, DeviceError::Busy)
}

fn leave_out(
    mut chosen: SelectedDevices,
    reason: impl Fn(&NpuChip) -> Option<String>,
    none_left: fn(String) -> DeviceError,
) -> Result<SelectedDevices, DeviceError> {
    let SelectedDevices { chips, left_out } = &mut chosen;
    left_out.extend(chips.iter().filter_map(&reason));
    chips.retain(|chip| reason(chip).is_none());
    if chips.is_empty() { Err(none_left(left_out.join(", "))) } else { Ok(chosen) }
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct HostFingerprint {
    pub(crate) host: String,
    npu_smi: String,
    chips: BTreeMap<u32, String>,
    environment: BTreeMap<String, String>,
    software: SoftwareFingerprint,
    npubench: &'static str,
}

/// Environment variables that affect measurements and that collections do not set themselves.
const FINGERPRINT_VARIABLES: [&str; 3] = ["ASCEND_HOME_PATH", "ASCEND_OPP_PATH", "ASCEND_CUSTOM_OPP_PATH"];

impl HostFingerprint {
    pub(crate) fn to_text(&self) -> String {
        serde_json::to_string(self).expect("texts and numbers are JSON")
    }

    pub(crate) fn of_host(info: &NpuSmiInfo, chips: &[NpuChip], software: SoftwareFingerprint) -> Self {
        let host = nix::unistd::gethostname().unwrap_or_default();
        Self {
            host: host.to_string_lossy().into_owned(),
            npu_smi: info.version.clone(),
            chips: chips.iter().map(|chip| (chip.physical_id, chip.name.clone())).collect(),
            environment: FINGERPRINT_VARIABLES
                .into_iter()
                .filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)))
                .collect(),
            software,
            npubench: env!("CARGO_PKG_VERSION"),
        }
    }
}
