//! The rehearsal host: stand-ins for msprof, npu-smi, torch and torch_npu on which the very scripts of
//! a real collection run, unchanged, on a machine without an NPU.
//!
//! Layer 5: imports `stats`, `domain`, `config`, `catalogue`, `profile` and `render`.
//!
//! It owns the programs and packages in such a host's `PATH` and `PYTHONPATH`, a simulated NPU that compares every
//! call with the manifest, the stated model of durations ([`timing`]), and profile folders with the layout of the real
//! msprof. Its output is always marked: every `Op Name` starts with [`crate::profile::REHEARSAL_PREFIX`], and
//! `info.json` contains `rehearsal`.
//!
//! Flow: `collect.sh` finds `bin/msprof` (a wrapper of `npubench stand-in msprof`),
//! which opens a Unix socket, starts `python3 replay.py` as its child, and exports the records when the
//! child has ended. For a gang the child is the stand-in of torchrun, which starts a process
//! per device; each has a session of its own with the NPU, and a profile. The stand-in of torch
//! forwards each call, one line of JSON, to that socket and has nothing but handles; calls are compared in Rust, in
//! `npu`.
//!
//! Not modelled: the choice of CANN between several kernels for one call (the kernel of the case is recorded), transfers between host and device, collectives (a
//! rank of a gang takes as long as if it were alone), several streams. Errors that arrive late, lost
//! records and similar errors occur as a fault plan ([`crate::rehearsal::fault_plan`]) defines.

mod config;
pub mod fault_plan;
mod faults;
mod host;
mod msprof;
mod npu;
pub mod npu_smi;
mod shim_env;
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

/// Environment variables by which the stand-ins and the scripts find each other.
pub mod variables {
    /// The file with the host's [`super::HostConfig`]; set for whole collections.
    pub const HOST: &str = "NPUBENCH_REHEARSAL";
    /// The socket of the simulated NPU; set by the stand-in of msprof for the program it starts.
    pub const SOCKET: &str = "NPUBENCH_REHEARSAL_SOCKET";
}
