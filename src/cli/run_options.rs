//! Options of `run` that decide what it measures, stored in the ledger for `resume`, and its deadline.

use std::{collections::BTreeMap, path::PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::{
    base::{deadline::Deadline, stats::PrecisionAim},
    cases::plan::{LaunchCount, UpdateMode},
    kernel::{CacheState, FailingVerdicts, ProfilerSettings, render::PinnedEnvironment},
    measure::{collective::sweep_session::CollectiveSweep, run_log::LogLevel},
    rehearsal,
    rehearsal::fault_plan::FaultPlan,
};

/// Deadline of a run.
#[derive(Debug, Default, Args)]
#[group(multiple = false)]
pub(crate) struct DeadlineOptions {
    /// End by this local time, such as 07:30; no collection is started that would end later
    #[arg(long, value_name = "HH:MM", value_parser = parse_until)]
    until: Option<Deadline>,
    /// End within this time, such as 8h or 1h30m
    #[arg(long, value_name = "TIME", value_parser = |text: &str| parse_budget(text).map(Deadline::after))]
    budget: Option<Deadline>,
}

/// Parses a time of day; one that has passed is tomorrow's.
fn parse_until(text: &str) -> Result<Deadline, String> {
    let seconds = seconds_until(&jiff::Zoned::now(), parse_clock(text)?);
    seconds.map(Deadline::after).ok_or_else(|| format!("`{text}` is not a time of the calendar"))
}

fn parse_clock(text: &str) -> Result<jiff::civil::Time, String> {
    let time = jiff::civil::Time::strptime("%H:%M", text);
    time.map_err(|_| format!("`{text}` is not a time of day; write hours and minutes, such as 07:30"))
}

/// Parses a length of time and returns seconds.
fn parse_budget(text: &str) -> Result<f64, String> {
    let span: Result<jiff::SignedDuration, _> = text.parse();
    let seconds = span.map(|span| span.as_secs_f64());
    let seconds =
        seconds.map_err(|_| format!("`{text}` is not a length of time; write it as 8h, 90m or 1h30m"))?;
    if seconds < 1.0 {
        return Err(format!("`{text}` is less than a second"));
    }
    Ok(seconds)
}

impl DeadlineOptions {
    pub(crate) const fn deadline(&self) -> Option<Deadline> {
        if self.until.is_some() { self.until } else { self.budget }
    }
}

fn seconds_until(now: &jiff::Zoned, until: jiff::civil::Time) -> Option<f64> {
    let today = now.with().time(until).build().ok()?;
    let end = if today > *now { today } else { today.tomorrow().ok()?.with().time(until).build().ok()? };
    Some(now.duration_until(&end).as_secs_f64())
}

/// Options that decide the results of a run. They are stored in the ledger, so that `resume` uses the same ones.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RunOptions {
    pub(crate) update: UpdateMode,
    /// State of the cache that the run measures.
    #[serde(default, skip_serializing_if = "CacheState::is_hot")]
    pub(crate) cache: CacheState,
    pub(crate) kernels: Vec<String>,
    /// Detail of the log; a resumed run has the default.
    #[serde(skip)]
    pub(crate) log: LogLevel,
    /// Ids of cases, or their first digits; all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) cases: Vec<String>,
    /// Filter of the rows, as it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) filter: Option<String>,
    #[serde(default)]
    pub(crate) chosen_devices: Option<Vec<u32>>,
    pub(crate) devices: Vec<u32>,
    pub(crate) python: String,
    pub(crate) assets: Option<PathBuf>,
    pub(crate) warm_up: u32,
    pub(crate) launches: LaunchCount,
    pub(crate) seed: u64,
    #[serde(default)]
    pub(crate) expert_skew: f64,
    /// Relative half width of the 95 % interval for which cases are measured in further collections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) precision: Option<f64>,
    /// Maximum number of collections of a case.
    #[serde(default)]
    pub(crate) max_collections: usize,
    pub(crate) rehearsal_model: NoiseModelArg,
    #[serde(default)]
    pub(crate) ignore_check: bool,
    /// True if the run was allowed without a passed selftest of the host, which its rows state.
    #[serde(default)]
    pub(crate) without_selftest: bool,
    /// Verdicts that make the exit code 1.
    #[serde(default)]
    pub(crate) failing: FailingVerdicts,
    #[serde(default)]
    pub(crate) weight_column: Option<String>,
    /// Weights of cases by id, which precede those of rows.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) case_weights: BTreeMap<String, f64>,
    #[serde(default)]
    pub(crate) busy: BusyArg,
    /// Folder of leases that was given.
    #[serde(default)]
    pub(crate) leases: Option<PathBuf>,
    #[serde(default)]
    pub(crate) profiler: ProfilerSettings,
    /// Pinned variables and switches of the last start; `None` in runs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) environment: Option<PinnedEnvironment>,
    /// Collectives that the run measures instead of rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sweep: Option<CollectiveSweep>,
    /// Command of node 0 of a sweep over several nodes, which `resume` prints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) command: Option<String>,
    /// Faults of the rehearsal host.
    #[serde(default, skip_serializing_if = "FaultPlan::is_empty")]
    pub(crate) faults: FaultPlan,
}

impl RunOptions {
    /// Returns the variables and switches of all collections.
    pub(crate) fn pinned_environment(&self) -> PinnedEnvironment {
        self.sweep.as_ref().map_or_else(PinnedEnvironment::default, CollectiveSweep::pinned_environment)
    }

    pub(crate) fn precision_aim(&self) -> Option<PrecisionAim> {
        let max_collections = self.max_collections;
        self.precision.map(|half_width| PrecisionAim { half_width, max_collections })
    }
}

/// Model of the durations of the rehearsal host.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NoiseModelArg {
    #[default]
    /// With noise, offsets between collections and slow first launches
    Lifelike,
    /// Depending on seed, case and number of the launch alone
    Steady,
}

impl From<NoiseModelArg> for rehearsal::NoiseModel {
    fn from(model: NoiseModelArg) -> Self {
        match model {
            NoiseModelArg::Lifelike => Self::Lifelike,
            NoiseModelArg::Steady => Self::Steady,
        }
    }
}

/// Treatment of devices on which foreign processes run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BusyArg {
    /// Start no collection on the device until it is free
    #[default]
    Wait,
    /// Leave the device out of the run
    Skip,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_day_that_has_passed_is_tomorrows() {
        let now: jiff::Zoned = "2026-03-01T22:00:00+00:00[UTC]".parse().expect("a time");
        let seconds = |text| seconds_until(&now, parse_clock(text).expect("a time of day"));
        assert_eq!(seconds("22:30"), Some(1800.0));
        assert_eq!(seconds("07:30"), Some(9.5 * 3600.0));
        assert_eq!(seconds("22:00"), Some(86400.0));
        assert!(parse_clock("25:00").is_err());
        assert!(parse_clock("7").is_err());
    }

    #[test]
    fn a_budget_is_at_least_a_second() {
        assert_eq!(parse_budget("1h30m"), Ok(5400.0));
        assert_eq!(parse_budget("90m"), Ok(5400.0));
        assert_eq!(parse_budget("20s"), Ok(20.0));
        for wrong in ["0s", "900ms", "-1h", "8", "", "tomorrow"] {
            assert!(parse_budget(wrong).is_err(), "{wrong}");
        }
    }

    /// `resume` reads options that an earlier version stored.
    #[test]
    fn options_of_the_first_version_are_read() {
        let text = r#"{"update":"missing","kernels":[],"devices":[0],"python":"python3","assets":null,
            "warm_up":5,"launches":20,"seed":1,"rehearsal_model":"lifelike"}"#;
        let options: RunOptions = serde_json::from_str(text).expect("readable options");
        assert_eq!((options.busy, options.expert_skew), (BusyArg::Wait, 0.0));
        assert!(options.faults.is_empty() && options.weight_column.is_none());
    }
}
