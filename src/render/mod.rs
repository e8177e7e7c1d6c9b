//! Renders what a collection runs: the replay script, its manifest, the script that starts msprof.
//!
//! Layer 2: imports `model` and `spec`. Handlebars in strict mode, so that a name a template lacks is
//! an error with its line. Cases travel as data in the manifest; only the catalogue's own words and
//! paths become code. It runs nothing.

mod collect;
mod manifest;
mod replay;

pub use collect::{CollectScript, collect_script, shell_quoted};
pub use manifest::{ExpectedRecord, Manifest, ManifestCase, RecordedTensor, SentinelLengths};
pub use replay::{RenderError, call_digest, replay_script};

/// File names inside the folder of a collection.
pub mod files {
    /// The replay script.
    pub const REPLAY: &str = "replay.py";
    /// What it launches.
    pub const MANIFEST: &str = "manifest.json";
    /// What it says it launched, a line a case.
    pub const JOURNAL: &str = "launched.jsonl";

    /// The journal of a process among several.
    #[must_use]
    pub fn journal(rank: usize) -> String {
        if rank == 0 { JOURNAL.to_owned() } else { format!("launched.{rank}.jsonl") }
    }

    /// Starts msprof; can be run again by hand.
    pub const COLLECT: &str = "collect.sh";
    /// Where msprof leaves its `PROF_*` folders.
    pub const PROFILE: &str = "profile";
    /// What msprof and the script print.
    pub const LOG: &str = "collect.log";
    /// What the second export said, where there was one.
    pub const EXPORT_LOG: &str = "export.log";
}
