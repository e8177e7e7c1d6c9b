//! Batch scripts of Slurm.

use std::path::Path;

use serde_json::json;

use super::{RenderError, collect::shell_quoted, replay::render};
use crate::config::AssetFiles;

/// Values of the scripts that measure the shards of a plan and merge them.
#[derive(Clone, Debug)]
pub(crate) struct SlurmScripts<'a> {
    /// Id of the plan.
    pub(crate) plan: &'a str,
    /// Number of all shards of the plan.
    pub(crate) count: usize,
    /// Tasks of the array, such as `1-3,7%2`.
    pub(crate) array: &'a str,
    /// Generic resource with its number, such as `npu:8`; `None` where the options of `run` name the devices.
    pub(crate) gres: Option<&'a str>,
    pub(crate) partition: Option<&'a str>,
    pub(crate) time: Option<&'a str>,
    /// Time between the signal and the time limit in seconds.
    pub(crate) warning_seconds: u32,
    /// Number of times that a shard at its time limit is queued again.
    pub(crate) requeues: u32,
    /// Further options of sbatch.
    pub(crate) options: &'a [String],
    /// Path of npubench on the nodes.
    pub(crate) npubench: &'a Path,
    pub(crate) db: &'a Path,
    /// Folder of the logs.
    pub(crate) logs: &'a Path,
    /// Options of `npubench run`.
    pub(crate) run_options: &'a [String],
    /// Options of `npubench db merge`.
    pub(crate) merge_options: &'a [String],
}

impl SlurmScripts<'_> {
    /// Renders the script of the array of shards.
    pub(crate) fn array_script(&self, assets: &AssetFiles) -> Result<String, RenderError> {
        render(assets, "slurm_array.sh.hbs", &self.context())
    }

    /// Renders the script of the merge.
    pub(crate) fn merge_script(&self, assets: &AssetFiles) -> Result<String, RenderError> {
        render(assets, "slurm_merge.sh.hbs", &self.context())
    }

    fn context(&self) -> serde_json::Value {
        let path = |path: &Path| shell_quoted(&path.to_string_lossy());
        let quoted = |options: &[String]| options.iter().map(|word| shell_quoted(word)).collect::<Vec<_>>();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "plan": self.plan,
            "count": self.count,
            "array": self.array,
            "gres": self.gres,
            "resource": self.gres.map(|gres| shell_quoted(gres_name(gres))),
            "partition": self.partition,
            "time": self.time,
            "warning_seconds": self.warning_seconds,
            "requeues": self.requeues,
            "options": self.options,
            "npubench": path(self.npubench),
            "db": path(self.db),
            // Inside quotes of Slurm; the paths of databases have no quotes.
            "logs": self.logs.to_string_lossy(),
            "run_options": quoted(self.run_options),
            "merge_options": quoted(self.merge_options),
        })
    }
}

/// Returns the name of a generic resource, such as `npu` of `npu:a3:8`.
fn gres_name(gres: &str) -> &str {
    let gres = gres.strip_prefix("gres/").or_else(|| gres.strip_prefix("gres:")).unwrap_or(gres);
    gres.split(':').next().unwrap_or_default()
}
