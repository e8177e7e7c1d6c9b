//! Batch scripts of Slurm.

use std::path::{Path, PathBuf};

use clap::builder::NonEmptyStringValueParser;
use serde_json::{Value, json};

use super::{RenderError, render_template};
use crate::base::{assets::AssetFiles, deadline::parse_limit};

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Slurm")]
pub(crate) struct SlurmJob {
    /// Devices on a node as a generic resource of Slurm; without it, give `--devices` behind `--`
    #[arg(long, value_name = "NAME:N", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) gres: Option<String>,
    /// Partition; by default that of the cluster
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) partition: Option<String>,
    /// Time limit of a job, as sbatch reads it, such as 8:00:00; by default that of the partition
    #[arg(long, value_name = "TIME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) time: Option<String>,
    /// Time before the time limit at which no collection is started any more; a collection takes up to five minutes
    #[arg(long = "grace", value_name = "TIME", default_value = "6m", value_parser = parse_grace)]
    pub(crate) warning_seconds: u32,
    /// Number of times that a job at its time limit is queued again
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) requeues: u32,
    /// Further option of sbatch, such as `--sbatch=--account=team`; can be repeated
    #[arg(long = "sbatch", value_name = "OPTION", allow_hyphen_values = true)]
    pub(crate) options: Vec<String>,
    /// Path of npubench on the nodes; by default that of this program
    #[arg(long, value_name = "PATH")]
    pub(crate) npubench: Option<PathBuf>,
}

/// Parses the time before a limit, of which Slurm takes up to 65535 s.
fn parse_grace(text: &str) -> Result<u32, String> {
    let grace = parse_limit(text)?;
    let seconds = u32::try_from(grace.as_secs()).ok().filter(|seconds| (1..=65_535).contains(seconds));
    seconds.ok_or_else(|| format!("`{text}` is not between 1 s and 65535 s"))
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
        "npubench": job.npubench.as_ref().map(|path| path.to_string_lossy()),
    });
    if let (Some(values), Value::Object(own)) = (values.as_object_mut(), own) {
        values.extend(own);
    }
    values
}

impl SlurmShardScripts<'_> {
    /// Renders the script of the array (`slurm_array.sh.hbs`) or of the merge behind it (`slurm_merge.sh.hbs`).
    pub(crate) fn render(&self, assets: &AssetFiles, template: &'static str) -> Result<String, RenderError> {
        let own = json!({
            "plan": self.plan,
            "count": self.count,
            "array": self.array,
            "db": self.db.to_string_lossy(),
            // Inside quotes of Slurm; the paths of databases have no quotes.
            "logs": self.logs.to_string_lossy(),
            "run_options": self.run_options,
            "merge_options": self.merge_options,
        });
        render_template(assets, template, &script_values(self.job, own))
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SlurmSweep<'a> {
    pub(crate) nodes: u16,
    /// True if the arguments or the environment state how the nodes exchange messages.
    pub(crate) has_meeting: bool,
    pub(crate) arguments: &'a [String],
}

pub(crate) fn slurm_sweep_script(
    assets: &AssetFiles,
    job: &SlurmJob,
    sweep: &SlurmSweep<'_>,
) -> Result<String, RenderError> {
    let own = json!({ "nodes": sweep.nodes, "has_meeting": sweep.has_meeting, "arguments": sweep.arguments });
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
            npubench: Some(PathBuf::from("/opt/npu bench/npubench")),
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
                shards.render(&assets, "slurm_array.sh.hbs").expect("rendered"),
                shards.render(&assets, "slurm_merge.sh.hbs").expect("rendered"),
                slurm_sweep_script(
                    &assets,
                    &job,
                    &SlurmSweep { nodes: 2, has_meeting: true, arguments: &words },
                )
                .expect("rendered"),
            ];
            for script in &scripts {
                let checked = std::process::Command::new("sh").args(["-n", "-c", script]).output();
                let checked = checked.expect("sh runs");
                assert!(checked.status.success(), "{script}{checked:?}");
                assert!(script.contains("#SBATCH --account=team\n"), "{script}");
                assert!(!script.contains("--partition"), "{script}");
            }
            let words = r"--filter 'kernel ~ MatMul & m <= 64' 'it'\''s' &";
            assert!(scripts[0].contains(words) && scripts[2].contains(words), "{scripts:?}");
            assert_eq!(scripts[0].contains("--devices"), job.gres.is_some());
        }
    }
}
