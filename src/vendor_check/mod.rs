//! Holds every case against the vendor's own torch_npu, without a device: meta tensors, or FakeTensorMode
//! where an operator has no Meta kernel.
//!
//! Layer 4: imports everything below. A few Python processes judge many cases each, by the very script that a
//! device runs. It never launches anything and never says that a case is measured.

mod batch;
mod python;

use std::{
    collections::VecDeque,
    path::PathBuf,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
};

pub use crate::vendor_check::python::{CheckSoftware, package_folders, schemas, software};
use crate::{
    catalogue::Catalogue,
    config::AssetFiles,
    domain::{CheckOutcome, Slot},
    plan::PlannedCase,
    process::ProcessError,
    render::RenderError,
};

/// Why checking cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The Python has no torch_npu that can be used; nothing can be said about any case.
    #[error("`{python}` cannot check anything: {why}")]
    Python {
        /// The program.
        python: String,
        /// What it said.
        why: String,
    },
    /// The scripts cannot be rendered.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// A program cannot be run.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A file of the check's own folder cannot be written or read.
    #[error("cannot use `{}`: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
}

impl CheckError {
    /// What to do about it.
    #[must_use]
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Python { .. } => {
                "name a Python with torch and torch_npu by `--python`; no NPU is needed, CANN's libraries may be"
            }
            Self::Render(error) => error.hint(),
            Self::Process(_) => "check the program given with `--python`",
            Self::Io { .. } => "check free space and permissions of the temporary folder",
        }
    }
}

/// How cases are checked.
#[derive(Clone, Debug)]
pub struct CheckSettings {
    /// The Python that has the vendor's torch_npu.
    pub python: String,
    /// Python processes at a time.
    pub processes: usize,
    /// What entries there are.
    pub catalogue: Catalogue,
    /// Where the script's template is.
    pub assets: AssetFiles,
}

/// Cases of one process: enough that starting it does not count, few enough that all processes have some.
const LARGEST_BATCH: usize = 20_000;

/// Checks cases and gives each outcome as it comes to `tell`, with the case's place in `cases`. Ends early
/// where `stop` is set.
///
/// # Errors
/// [`CheckError`]; what was told before stays true.
pub fn check_cases(
    settings: &CheckSettings,
    cases: &[PlannedCase],
    stop: &AtomicBool,
    tell: &mut dyn FnMut(usize, CheckOutcome),
) -> Result<(), CheckError> {
    let size = cases.len().div_ceil(settings.processes.max(1)).clamp(1, LARGEST_BATCH);
    let places: Vec<usize> = (0..cases.len()).collect();
    let batches: Mutex<VecDeque<Vec<usize>>> =
        Mutex::new(places.chunks(size).map(<[usize]>::to_vec).collect());
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..settings.processes.max(1))
            .map(|_| {
                let (sender, batches) = (sender.clone(), &batches);
                scope.spawn(move || {
                    let next = || batches.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                    while let Some(batch) = next().filter(|_| !stop.load(Ordering::Relaxed)) {
                        if let Err(error) = batch::check(settings, cases, batch, stop, &sender) {
                            // The others stop at their next batch.
                            batches.lock().unwrap_or_else(PoisonError::into_inner).clear();
                            return Err(error);
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        drop(sender);
        for (place, outcome) in receiver {
            tell(place, outcome);
        }
        let ended = workers.into_iter().map(|worker| match worker.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ended.collect::<Result<Vec<()>, CheckError>>().map(drop)
    })
}

/// What tells one call from another: what the script makes of it, and the case. A check holds as long as it
/// stays the same.
#[must_use]
pub fn digest(planned: &PlannedCase, settings_of: &Catalogue) -> String {
    crate::render::call_digest(&planned.case, &planned.call, settings_of.entry(&planned.case.kernel))
}

/// Slots as they are shown, with nothing for one that is left out.
#[must_use]
pub fn shown(slots: &[Slot]) -> Vec<String> {
    slots.iter().map(|slot| slot.as_ref().map_or_else(String::new, ToString::to_string)).collect()
}
