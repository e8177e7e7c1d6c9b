//! The rehearsal host: stand-ins for msprof, npu-smi, torch and torch_npu on which the very scripts of
//! a real collection run, unchanged, on a machine without an NPU.
//!
//! Layer 4: imports `model`, `spec`, `profile` and `render`. It owns what such a host has in its
//! `PATH` and `PYTHONPATH`, a pretend NPU that judges every call by the catalogue, the stated model
//! of durations ([`timing`]), and profile folders laid out as the real msprof leaves them. It never
//! reaches into the engine and never passes for a device: every `Op Name` that it writes starts with
//! [`crate::profile::REHEARSAL_PREFIX`], and `info.json` says `rehearsal`.
//!
//! How it hangs together: `collect.sh` finds `bin/msprof` (a wrapper of `npubench stand-in msprof`),
//! which opens a Unix socket, starts `python3 replay.py` as its child, and exports what was recorded
//! when the child has ended. For a gang the child is the stand-in of torchrun, which starts a process
//! per device; each has a session of its own with the NPU, and a profile. The stand-in of torch
//! forwards each call, one line of JSON, to that socket and holds nothing but handles; all judging is
//! in Rust, in `npu`.
//!
//! What it does not model: which of several kernels CANN picks for one call (the current case's is
//! played back where it is among the candidates), transfers between host and device, collectives (a
//! rank of a gang takes as long as if it were alone), several streams. Errors that arrive late, lost
//! records and the like happen where a fault plan ([`crate::rehearsal::fault_plan`]) says so.

mod config;
pub mod fault_plan;
mod faults;
mod host;
mod msprof;
mod npu;
pub mod npu_smi;
mod shims;
pub mod timing;

pub use config::{HostConfig, NoiseModel};
pub use host::{HostError, install};
pub use shims::stand_in;

/// Nanoseconds since the epoch.
fn now() -> crate::domain::Nanos {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    crate::domain::Nanos(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

/// Variables that the stand-ins and the scripts below them find each other by.
pub mod variables {
    /// The file with the host's [`super::HostConfig`]; set for whole collections.
    pub const HOST: &str = "NPUBENCH_REHEARSAL";
    /// The socket of the pretend NPU; set by the stand-in of msprof for the program it starts.
    pub const SOCKET: &str = "NPUBENCH_REHEARSAL_SOCKET";
}
