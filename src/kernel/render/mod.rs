//! Renders what a collection runs: the replay script, its manifest, the script that starts msprof; and the scripts of Slurm.
//!
//! Handlebars runs in strict mode, so that a missing name in a template is an error with its line. Cases travel as data
//! in the manifest; only the catalogue's own words and paths become code.

mod collect;
mod manifest;
mod pinned_environment;
mod replay;
mod slurm;
mod template;

pub(crate) use collect::{
    CollectScript, GangLaunch, GangRendezvous, collect_script, script_templates, shell_quoted,
};
#[cfg(test)]
pub(crate) use manifest::{ControlCall, ExpectedRecord};
pub(crate) use manifest::{ControlLaunches, GangHost, HostNumbers, RecordedTensor, SentinelLengths};
pub use manifest::{Manifest, ManifestCase};
pub use pinned_environment::PinnedEnvironment;
pub(crate) use pinned_environment::overridden_variables;
pub(crate) use replay::{ScriptCommunication, call_digest, replay_script, selftest_script};
pub(crate) use slurm::{SlurmJob, SlurmShardScripts, slurm_sweep_script};
pub use template::RenderError;
pub(crate) use template::{render_page, render_template};

/// File names inside the folder of a collection.
pub(crate) mod files {
    pub(crate) const REPLAY: &str = "replay.py";
    /// Launches of the script.
    pub(crate) const MANIFEST: &str = "manifest.json";
    /// Journal of the script, a line per case.
    pub(crate) const JOURNAL: &str = "launched.jsonl";

    /// The journal of a process among several.
    pub(crate) fn journal(rank: usize) -> String {
        if rank == 0 { JOURNAL.to_owned() } else { format!("launched.{rank}.jsonl") }
    }

    /// Folder with the files of another host of a gang, by its place.
    pub(crate) fn host_folder(host: usize) -> String {
        format!("host{host}")
    }

    /// Starts msprof; can be run again by hand.
    pub(crate) const COLLECT: &str = "collect.sh";
    /// Parent of msprof's `PROF_*` folders.
    pub(crate) const PROFILE: &str = "profile";
    /// Durations of the fastest and the slowest rank of each launch of a gang.
    pub(crate) const RANKS: &str = "ranks.jsonl";
    /// End and software of the collection and its cases as planned, with which it can be assessed again.
    pub(crate) const CONDITIONS: &str = "conditions.json";
    /// Output of msprof and of the script.
    pub(crate) const LOG: &str = "collect.log";
    /// Compressed evidence: all files of the folder but the profiler's binary data.
    pub(crate) const EVIDENCE: &str = "evidence.tar.gz";
    /// Output of a second export.
    pub(crate) const EXPORT_LOG: &str = "export.log";
}
