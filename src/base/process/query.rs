//! Time limits of programs that answer a question, such as `npu-smi info`.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::CommandSpec;
use crate::base::deadline::parse_limit;

/// Limit of all questions, such as `2m` for a host on which the import of torch_npu takes long.
const VARIABLE: &str = "NPUBENCH_QUERY_LIMIT";

/// What a program does for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// It takes a second; on a busy host with many devices `npu-smi` takes some.
    Simple,
    /// It asks the controller of a cluster.
    Cluster,
    /// It imports torch_npu, which takes 5 to 20 s, more from a slow network file system.
    Import,
}

/// True for a command that asks many programs, and goes on without the answer of one that hangs.
static HAS_SHORT_LIMITS: AtomicBool = AtomicBool::new(false);
static HUNG: Mutex<BTreeSet<OsString>> = Mutex::new(BTreeSet::new());

/// Sets short limits for this process. A program that hung once is not started again.
pub(crate) fn use_short_limits() {
    HAS_SHORT_LIMITS.store(true, Ordering::Relaxed);
}

impl Question {
    pub(crate) fn limit(self) -> Duration {
        let given = std::env::var(VARIABLE).ok().and_then(|text| parse_limit(&text).ok());
        given.unwrap_or(Duration::from_secs(match (self, HAS_SHORT_LIMITS.load(Ordering::Relaxed)) {
            (Self::Simple | Self::Cluster, true) => 15,
            (Self::Import, true) => 25,
            (Self::Simple, false) => 60,
            (Self::Cluster, false) => 120,
            (Self::Import, false) => 180,
        }))
    }
}

fn hung() -> std::sync::MutexGuard<'static, BTreeSet<OsString>> {
    HUNG.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn was_hung(job: &CommandSpec<'_>) -> bool {
    HAS_SHORT_LIMITS.load(Ordering::Relaxed)
        && job.command.first().is_some_and(|program| hung().contains(program))
}

pub(super) fn set_hung(job: &CommandSpec<'_>) {
    hung().extend(job.command.first().cloned());
}
