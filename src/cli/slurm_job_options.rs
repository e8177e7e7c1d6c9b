//! Check of the options of all jobs of Slurm.
//! They are in `kernel/render/slurm.rs`, and get into the scripts by the templates `slurm_*.sh.hbs`. Options that only
//! `submit` has are in `slurm.rs`, and their effect is in `measure/fleet/slurm_jobs.rs`. docs/fleet.md lists them.

use clap::Parser as _;

use super::{CommandLine, prelude::*};
use crate::{
    base::process::find_program,
    kernel::render::SlurmJob,
    measure::{device::search_path, fleet::own_program},
};

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

impl SlurmJob {
    /// Returns the job with the program that it runs.
    pub(super) fn with_program(&self) -> Result<Self, CommandError> {
        let npubench = match &self.npubench {
            Some(path) => {
                note_missing_program(path);
                path.clone()
            }
            None => own_program()?,
        };
        let grace = self.warning_seconds;
        if let Some(limit) = self.time.as_deref().and_then(limit_seconds)
            && limit > 0
            && limit <= u64::from(grace)
        {
            return Err(CommandError::usage(
                format!("the time limit of {limit} s is not longer than the {grace} s of `--grace`"),
                "give a longer `--time`, or a shorter `--grace`: no collection is started in that time before the limit",
            ));
        }
        Ok(Self { npubench: Some(npubench), ..self.clone() })
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
