//! The rehearsal host: stand-ins for msprof, npu-smi, torch and torch_npu, with which the scripts of a real collection
//! run unchanged on a machine without an NPU.
//!
//! The programs and packages are found by `PATH` and `PYTHONPATH`. A simulated NPU compares every call with the
//! manifest; `timing` states the model of durations; profile folders have the layout of the real msprof. The output
//! is always marked: every `Op Name` starts with [`crate::profile::REHEARSAL_PREFIX`], and `info.json` contains
//! `rehearsal`.
//!
//! `collect.sh` starts `bin/msprof` (a wrapper of `npubench stand-in msprof`), which opens a Unix socket, starts
//! `python3 replay.py`, and exports the records when it has ended. For a gang it starts the stand-in of torchrun, which
//! starts a process per device, each with its own session and profile. The stand-in of torch sends each call as a line
//! of JSON to that socket and has only handles; `npu` compares the calls.
//!
//! Not modelled: the choice of CANN between several kernels for one call, transfers between host and device,
//! kernels that communicate (a rank of a gang takes as long as alone; collectives of a sweep wait for all ranks and exchange
//! data), several streams. Late errors and lost records occur as a
//! [`crate::rehearsal::fault_plan`] defines.

mod config;
mod device_activity;
pub mod fault_plan;
mod faults;
mod host;
pub(crate) mod load;
mod msprof;
mod npu;
pub mod npu_smi;
mod shim_env;
mod shims;
mod simulated_memory;
mod software;
mod timing;

pub use config::{HostConfig, NoiseModel};
use host::TRUTH;
pub use host::{HostError, install};
pub use shims::stand_in;
pub(crate) use software::ascend_root;

/// Latest time of the simulated clock, in the year 2250: tables of profiles have nanoseconds of 64 bits.
const LATEST: i64 = 8_800_000_000_000_000_000;

/// Nanoseconds since the epoch.
fn now() -> crate::kernel::Nanos {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    crate::kernel::Nanos(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX).min(LATEST))
}

/// Environment variables by which the stand-ins and the scripts find each other.
pub mod variables {
    /// The file with the host's [`super::HostConfig`]; set for whole collections.
    pub const HOST: &str = "NPUBENCH_REHEARSAL";
    /// The socket of the simulated NPU; set by the stand-in of msprof for the program it starts.
    pub const SOCKET: &str = "NPUBENCH_REHEARSAL_SOCKET";
}
