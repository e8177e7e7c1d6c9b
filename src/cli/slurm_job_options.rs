//! Options of all jobs of Slurm.
//! They get into the scripts by `SlurmJob` in `kernel/render/slurm.rs` and the templates `slurm_*.sh.hbs`. Options that only
//! `submit` has are in `slurm.rs`, and their effect is in `measure/fleet/slurm_jobs.rs`. docs/fleet.md lists them.

use clap::{Parser as _, builder::NonEmptyStringValueParser};

use super::{CommandLine, prelude::*};
use crate::{
    base::process::find_program,
    kernel::render::SlurmJob,
    measure::{device::search_path, fleet::own_program},
};

#[derive(Debug, Args)]
#[command(next_help_heading = "Slurm")]
pub(super) struct SlurmJobOptions {
    /// Devices on a node as a generic resource of Slurm; without it, give `--devices` behind `--`
    #[arg(long, value_name = "NAME:N", value_parser = NonEmptyStringValueParser::new())]
    gres: Option<String>,
    /// Partition; by default that of the cluster
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    partition: Option<String>,
    /// Time limit of a job, as sbatch reads it, such as 8:00:00; by default that of the partition
    #[arg(long, value_name = "TIME", value_parser = NonEmptyStringValueParser::new())]
    time: Option<String>,
    /// Time before the time limit at which no collection is started any more; a collection takes up to five minutes
    #[arg(long, value_name = "TIME", default_value = "6m", value_parser = parse_grace)]
    grace: Duration,
    /// Number of times that a job at its time limit is queued again
    #[arg(long, value_name = "N", default_value_t = 10)]
    requeues: u32,
    /// Further option of sbatch, such as `--sbatch=--account=team`; can be repeated
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    sbatch: Vec<String>,
    /// Path of npubench on the nodes; by default that of this program
    #[arg(long, value_name = "PATH")]
    npubench: Option<PathBuf>,
}

/// Parses the time before a limit, of which Slurm takes up to 65535 s.
fn parse_grace(text: &str) -> Result<Duration, String> {
    let grace = parse_limit(text)?;
    let is_valid = (1..=65_535).contains(&grace.as_secs());
    is_valid.then_some(grace).ok_or_else(|| format!("`{text}` is not between 1 s and 65535 s"))
}

/// Returns a time limit of sbatch in seconds: `MINUTES`, `MINUTES:SECONDS`, `HOURS:MINUTES:SECONDS`, `DAYS-HOURS`,
/// `DAYS-HOURS:MINUTES` or `DAYS-HOURS:MINUTES:SECONDS`; `None` for other texts, which sbatch judges. 0 is no limit.
fn limit_seconds(text: &str) -> Option<u64> {
    let (days, rest) = text.split_once('-').unwrap_or(("0", text));
    let number = |text: &str| text.parse::<u32>().ok().map(u64::from);
    let parts = rest.split(':').map(number).collect::<Option<Vec<u64>>>()?;
    let [hours, minutes, seconds] = match (text.contains('-'), &parts[..]) {
        (true, [hours]) => [*hours, 0, 0],
        (true, [hours, minutes]) => [*hours, *minutes, 0],
        (false, [minutes]) => [0, *minutes, 0],
        (false, [minutes, seconds]) => [0, *minutes, *seconds],
        (_, [hours, minutes, seconds]) => [*hours, *minutes, *seconds],
        _ => return None,
    };
    Some(((number(days)? * 24 + hours) * 60 + minutes) * 60 + seconds)
}

/// Warns if a program does not exist on this host: it may exist on the nodes only.
fn note_missing_program(path: &Path) {
    if find_program(&path.to_string_lossy(), &search_path(&[])).is_none() {
        let shown = quoted_path(path);
        print_warning(&format!(
            "this host has no program `{}`, and jobs fail on nodes without it: `srun --nodes=1 {shown} --version`, with the \
             partition of the jobs, checks a node",
            path.display()
        ));
    }
}

impl SlurmJobOptions {
    pub(super) fn job(&self) -> Result<SlurmJob, CommandError> {
        let npubench = match &self.npubench {
            Some(path) => {
                note_missing_program(path);
                path.clone()
            }
            None => own_program()?,
        };
        if let Some(limit) = self.time.as_deref().and_then(limit_seconds)
            && limit > 0
            && limit <= self.grace.as_secs()
        {
            return Err(CommandError::usage(
                format!(
                    "the time limit of {limit} s is not longer than the {} s of `--grace`",
                    self.grace.as_secs()
                ),
                "give a longer `--time`, or a shorter `--grace`: no collection is started in that time before the limit",
            ));
        }
        Ok(SlurmJob {
            gres: self.gres.clone(),
            partition: self.partition.clone(),
            time: self.time.clone(),
            warning_seconds: u32::try_from(self.grace.as_secs()).unwrap_or(u32::MAX),
            requeues: self.requeues,
            options: self.sbatch.clone(),
            npubench,
        })
    }

    /// Parses the command of a job, so that a wrong option is reported before the job waits in the queue. With a resource, the job adds the
    /// devices.
    pub(super) fn parse_command(
        &self,
        start: &[&str],
        options: &[String],
    ) -> Result<TopCommand, CommandError> {
        let name =
            start.iter().take_while(|word| !word.starts_with('-')).copied().collect::<Vec<_>>().join(" ");
        let devices = self.gres.is_some().then_some(["--devices", "0"]).into_iter().flatten();
        let words = ["npubench"].into_iter().chain(start.iter().copied()).chain(devices);
        let parsed = CommandLine::try_parse_from(words.chain(options.iter().map(String::as_str)));
        parsed.map(|parsed| parsed.command).map_err(|error| {
            CommandError::usage(
                format!("options of `npubench {name}`:\n{error}"),
                format!(
                    "`npubench {name} --help` lists them; devices are given by `--gres` or by `-- --devices LIST`"
                ),
            )
        })
    }

    pub(super) fn require_devices(&self, are_given: bool) -> Result<(), CommandError> {
        if self.gres.is_some() || are_given {
            return Ok(());
        }
        Err(CommandError::usage(
            "the devices of the jobs are not given",
            "give the resource of Slurm with `--gres npu:8`, or devices of whole nodes: `--sbatch=--exclusive -- --devices 0-7`",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_limits_have_the_forms_of_sbatch() {
        let forms = [
            "30",
            "30:10",
            "8:00:00",
            "1-2",
            "1-2:30",
            "1-2:30:10",
            "0",
            "infinite",
            "1:2:3:4",
            "999999999999999999-0",
        ];
        let day = 24 * 3600;
        let expected = [1800, 1810, 8 * 3600, day + 7200, day + 9000, day + 9010, 0]
            .map(Some)
            .into_iter()
            .chain([None; 3]);
        assert_eq!(forms.map(limit_seconds).to_vec(), expected.collect::<Vec<_>>());
    }
}
