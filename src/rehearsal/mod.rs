//! The rehearsal host: stand-ins for msprof, npu-smi, torchrun, torch and torch_npu, with which the scripts of a real
//! collection run unchanged on a machine without an NPU.
//!
//! The stand-ins are Python, in `python/`. This module reads the fault plan, and installs programs, packages and settings
//! in the folder of a run; the scripts find them by `PATH` and `PYTHONPATH`. The first collection that needs an entry of the
//! catalogue gets it as JSON by `npubench stand-in entries`.
//!
//! The simulated NPU (`python/rehearsal/npu.py`) is in the process that imports torch. It compares every call with the
//! manifest and writes its launches to a file, from which `python/rehearsal/msprof.py` makes a profile in the layout of the
//! real msprof. The output is always marked: every `Op Name` starts with [`crate::profile::REHEARSAL_PREFIX`], and `info.json`
//! contains `rehearsal`.

mod config;
mod entries;
pub mod fault_plan;
mod host;
mod software;

pub use config::{HostConfig, NoiseModel};
pub use entries::stand_in;
pub(crate) use host::install;
pub(crate) use software::ascend_root;

pub(crate) const DEVICES: u32 = 16;

/// Environment variable with the file of the host's settings; set for whole collections.
pub const HOST_VARIABLE: &str = "NPUBENCH_REHEARSAL";
