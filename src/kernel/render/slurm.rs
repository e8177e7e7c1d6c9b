//! Batch scripts of Slurm.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{RenderError, collect::shell_quoted, render_template};
use crate::base::assets::AssetFiles;

#[derive(Clone, Debug)]
pub(crate) struct SlurmJob {
    /// Generic resource of each node with its number, such as `npu:8`; `None` where the options of npubench name the devices.
    pub(crate) gres: Option<String>,
    pub(crate) partition: Option<String>,
    pub(crate) time: Option<String>,
    pub(crate) warning_seconds: u32,
    pub(crate) requeues: u32,
    pub(crate) options: Vec<String>,
    pub(crate) npubench: PathBuf,
}

#[derive(Clone, Debug)]
pub(crate) struct SlurmShardScripts<'a> {
    pub(crate) job: &'a SlurmJob,
    pub(crate) plan: &'a str,
    pub(crate) count: usize,
    pub(crate) array: &'a str,
    pub(crate) db: &'a Path,
    pub(crate) logs: &'a Path,
    pub(crate) run_options: &'a [String],
    pub(crate) merge_options: &'a [String],
}

impl SlurmJob {
    /// Returns the values that are written into scripts as they are.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &String> {
        let Self { gres, partition, time, options, warning_seconds: _, requeues: _, npubench: _ } = self;
        [gres, partition, time].into_iter().flatten().chain(options)
    }
}

fn script_values(job: &SlurmJob, own: Value) -> Value {
    let mut values = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "gres": job.gres,
        "resource": job.gres.as_deref().map(gres_name),
        "partition": job.partition,
        "time": job.time,
        "warning_seconds": job.warning_seconds,
        "requeues": job.requeues,
        "options": job.options,
        "npubench": shell_quoted(&job.npubench.to_string_lossy()),
    });
    if let (Some(values), Value::Object(own)) = (values.as_object_mut(), own) {
        values.extend(own);
    }
    values
}

fn quoted_words(words: &[String]) -> Vec<String> {
    words.iter().map(|word| shell_quoted(word)).collect()
}

impl SlurmShardScripts<'_> {
    pub(crate) fn array_script(&self, assets: &AssetFiles) -> Result<String, RenderError> {
        render_template(assets, "slurm_array.sh.hbs", &self.values())
    }

    pub(crate) fn merge_script(&self, assets: &AssetFiles) -> Result<String, RenderError> {
        render_template(assets, "slurm_merge.sh.hbs", &self.values())
    }

    fn values(&self) -> Value {
        let own = json!({
            "plan": self.plan,
            "count": self.count,
            "array": self.array,
            "db": shell_quoted(&self.db.to_string_lossy()),
            // Inside quotes of Slurm; the paths of databases have no quotes.
            "logs": self.logs.to_string_lossy(),
            "run_options": quoted_words(self.run_options),
            "merge_options": quoted_words(self.merge_options),
        });
        script_values(self.job, own)
    }
}

pub(crate) fn slurm_sweep_script(
    assets: &AssetFiles,
    job: &SlurmJob,
    nodes: u16,
    arguments: &[String],
) -> Result<String, RenderError> {
    let own = json!({ "nodes": nodes, "arguments": quoted_words(arguments) });
    render_template(assets, "slurm_comm.sh.hbs", &script_values(job, own))
}

/// Returns the name of a generic resource, such as `npu` of `npu:a3:8`. Slurm accepts letters, digits, `_` and `-` only, so that it
/// needs no quotes.
fn gres_name(gres: &str) -> &str {
    let gres = gres.strip_prefix("gres/").or_else(|| gres.strip_prefix("gres:")).unwrap_or(gres);
    let end = gres.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-').unwrap_or(gres.len());
    &gres[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> SlurmJob {
        SlurmJob {
            gres: Some("npu:a3:8".to_owned()),
            partition: None,
            time: None,
            warning_seconds: 360,
            requeues: 10,
            options: vec!["--account=team".to_owned()],
            npubench: PathBuf::from("/opt/npu bench/npubench"),
        }
    }

    #[test]
    fn names_of_resources_are_words_of_a_shell() {
        let names = ["npu:8", "gres:npu:8", "gres/npu:a3:8", "npu", "npu'; reboot"].map(gres_name);
        assert_eq!(names, ["npu"; 5]);
    }

    /// A script of which the shell reads another word than was given would measure something else.
    #[test]
    fn scripts_are_valid_for_the_shell_and_keep_the_words_of_options() {
        let assets = AssetFiles::embedded();
        let words = ["--filter".to_owned(), "kernel ~ MatMul & m <= 64".to_owned(), "it's".to_owned()];
        let no_devices = SlurmJob { gres: None, ..job() };
        for job in [job(), no_devices] {
            let shards = SlurmShardScripts {
                job: &job,
                plan: "0f",
                count: 12,
                array: "1-12",
                db: Path::new("/data/my db"),
                logs: Path::new("/data/my db/logs"),
                run_options: &words,
                merge_options: &[],
            };
            let scripts = [
                shards.array_script(&assets).expect("rendered"),
                shards.merge_script(&assets).expect("rendered"),
                slurm_sweep_script(&assets, &job, 2, &words).expect("rendered"),
            ];
            for script in &scripts {
                let checked = std::process::Command::new("sh").args(["-n", "-c", script]).output();
                let checked = checked.expect("sh runs");
                assert!(checked.status.success(), "{script}{checked:?}");
                assert!(script.contains("#SBATCH --account=team\n"), "{script}");
                assert!(!script.contains("--partition"), "{script}");
            }
            let words = r"'--filter' 'kernel ~ MatMul & m <= 64' 'it'\''s' &";
            assert!(scripts[0].contains(words) && scripts[2].contains(words), "{scripts:?}");
            assert_eq!(scripts[0].contains("--devices"), job.gres.is_some());
        }
    }
}
