//! Renders what a collection runs: the replay script, its manifest, the script that starts msprof; and the scripts of Slurm.
//!
//! Handlebars runs in strict mode, so that a missing name in a template is an error with its line. Cases travel as data
//! in the manifest; only the catalogue's own words and paths become code.

mod collect;
mod manifest;
mod pinned_environment;
mod replay;
mod slurm;

pub(crate) use collect::{
    CollectScript, GangLaunch, GangRendezvous, collect_script, script_templates, shell_quoted,
};
#[cfg(test)]
pub(crate) use manifest::{ControlCall, ExpectedRecord};
pub(crate) use manifest::{ControlLaunches, GangHost, HostNumbers, RecordedTensor, SentinelLengths};
pub use manifest::{Manifest, ManifestCase};
pub use pinned_environment::PinnedEnvironment;
pub(crate) use pinned_environment::{PINNED_SWITCHES, overridden_variables};
pub(crate) use replay::{ScriptCommunication, call_digest, replay_script, selftest_script};
pub(crate) use slurm::{SlurmJob, SlurmShardScripts, slurm_sweep_script};

use std::fmt::Display;

use handlebars::{Handlebars, html_escape, no_escape};
use serde::Serialize;

use crate::base::{assets::AssetFiles, command_error::Failure, printable::printable};

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RenderError(pub(crate) String);

impl Failure for RenderError {
    fn hint(&self) -> String {
        "the template comes from the folder given with `--assets`; compare it with the built-in one"
            .to_owned()
    }
}

/// Renders a template. A page in HTML is placed in the frame of all pages, and its values are escaped.
pub(crate) fn render_template(
    assets: &AssetFiles,
    template: &'static str,
    context: &impl Serialize,
) -> Result<String, RenderError> {
    let is_page = template.ends_with(".html.hbs");
    let mut handlebars = Handlebars::new();
    handlebars.set_strict_mode(true);
    handlebars.register_escape_fn(if is_page { html_text } else { no_escape });
    let failed = |problem: &dyn Display| RenderError(format!("template `{template}`: {problem}"));
    for (name, file) in [(template, template)].into_iter().chain(is_page.then_some(("page", "page.html.hbs")))
    {
        let text = assets.template(file).map_err(|error| RenderError(error.to_string()))?;
        handlebars.register_template_string(name, text).map_err(|error| failed(&error))?;
    }
    handlebars.render(template, context).map_err(|error| failed(&error))
}

/// Returns a text for pages and images.
pub(crate) fn html_text(text: &str) -> String {
    html_escape(&printable(text))
}

pub(crate) mod files {
    pub(crate) const REPLAY: &str = "replay.py";
    pub(crate) const MANIFEST: &str = "manifest.json";
    pub(crate) const JOURNAL: &str = "launched.jsonl";

    pub(crate) fn journal(rank: usize) -> String {
        if rank == 0 { JOURNAL.to_owned() } else { format!("launched.{rank}.jsonl") }
    }

    pub(crate) fn host_folder(host: usize) -> String {
        format!("host{host}")
    }

    pub(crate) const COLLECT: &str = "collect.sh";
    pub(crate) const PROFILE: &str = "profile";
    /// Durations of the fastest and the slowest rank of each launch of a gang.
    pub(crate) const RANKS: &str = "ranks.jsonl";
    /// End and software of the collection and its cases as planned, with which it can be assessed again.
    pub(crate) const CONDITIONS: &str = "conditions.json";
    pub(crate) const LOG: &str = "collect.log";
    /// Compressed evidence: all files of the folder but the profiler's binary data.
    pub(crate) const EVIDENCE: &str = "evidence.tar.gz";
    pub(crate) const EXPORT_LOG: &str = "export.log";
}
