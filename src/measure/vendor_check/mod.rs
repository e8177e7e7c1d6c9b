//! Checks every case by the vendor's own torch_npu, without a device: on meta tensors, or under FakeTensorMode if an
//! operator has no Meta kernel.
//!
//! A few Python processes check many cases each, by the same script that a device runs. Nothing is launched, and no
//! case counts as measured.

mod batch;
mod python;

use std::{
    panic::resume_unwind,
    path::PathBuf,
    sync::{atomic::AtomicBool, mpsc},
    thread,
};

use crate::{
    base::{
        assets::AssetFiles, command_error::Failure, exit::ExitStatus, process::ProcessError,
        shared_work::share_work,
    },
    cases::plan::PlannedCase,
    kernel::{
        CheckOutcome, Slot,
        catalogue::Catalogue,
        render::{RenderError, call_digest},
    },
};
pub(crate) use python::{
    CheckSoftware, first_device_soc, installed_software, installed_torch, operator_schemas, package_folders,
    require_gloo, torch_devices,
};

#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckError {
    #[error("`{python}` cannot be used for checks: {reason}")]
    Python { python: String, reason: String },
    #[error(transparent)]
    Render(#[from] RenderError),
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error("cannot use `{}`: {source}", .path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

impl Failure for CheckError {
    fn hint(&self) -> String {
        let hint = match self {
            Self::Python { .. } => {
                "give a Python with torch and torch_npu by `--python`; it needs no NPU, but may need the libraries of CANN"
            }
            Self::Render(error) => return error.hint(),
            Self::Process(_) => "check the program given with `--python`",
            Self::Io { .. } => "check free space and permissions of the temporary folder",
        };
        hint.to_owned()
    }

    fn exit_status(&self) -> ExitStatus {
        match self {
            Self::Python { .. } => ExitStatus::CannotMeasure,
            _ => ExitStatus::BadInput,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct CheckSettings {
    /// Python program with the vendor's torch_npu.
    pub python: String,
    /// Number of concurrent Python processes.
    pub processes: usize,
    pub catalogue: Catalogue,
    pub assets: AssetFiles,
}

/// Maximum number of cases of one process: large compared with its start, small enough to occupy all processes.
const MAX_BATCH: usize = 20_000;

/// Checks cases and passes each outcome to `report` as it arrives, with the index of the case in `cases`. Ends early if
/// `stop` is set. Fails with [`CheckError`]; outcomes reported before remain valid.
pub(crate) fn check_cases(
    settings: &CheckSettings,
    cases: &[PlannedCase],
    stop: &AtomicBool,
    report: &mut dyn FnMut(usize, CheckOutcome),
) -> Result<(), CheckError> {
    let processes = settings.processes.max(1);
    let size = cases.len().div_ceil(processes).clamp(1, MAX_BATCH);
    let indices: Vec<usize> = (0..cases.len()).collect();
    let batches: Vec<Vec<usize>> = indices.chunks(size).map(<[usize]>::to_vec).collect();
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        let check = scope.spawn(move || {
            share_work(&vec![sender; processes], batches, |sender, batch| {
                batch::check_batch(settings, cases, batch, stop, sender)
            })
        });
        for (index, outcome) in receiver {
            report(index, outcome);
        }
        check.join().unwrap_or_else(|panic| resume_unwind(panic)).map(drop)
    })
}

/// Returns the digest of a rendered call. A stored check result is valid while it is unchanged.
pub(crate) fn planned_call_digest(planned: &PlannedCase, catalogue: &Catalogue) -> String {
    call_digest(&planned.case, &planned.call, catalogue.entry(&planned.case.kernel))
}

/// Returns the text of each slot; empty for an omitted optional tensor.
pub(crate) fn slot_texts(slots: &[Slot]) -> Vec<String> {
    slots.iter().map(|slot| slot.as_ref().map_or_else(String::new, ToString::to_string)).collect()
}
