//! How a collection measures: settings of msprof, kind of the numbers, state of the cache, purpose.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantArray, VariantNames};

use crate::base::stats::{CycleRate, median_of_sorted};

/// Group of counters that msprof reads from the cores, by the names of its option `--aic-metrics`.
///
/// One group can be read per collection. The names are the ones that `msprof --help` prints on A2 and A3.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Display, EnumString, VariantNames,
)]
pub enum AicMetrics {
    #[default]
    PipeUtilization,
    ArithmeticUtilization,
    Memory,
    MemoryL0,
    #[serde(rename = "MemoryUB")]
    #[strum(serialize = "MemoryUB")]
    MemoryUb,
    L2Cache,
    ResourceConflictRatio,
    MemoryAccess,
    #[serde(rename = "none")]
    #[strum(serialize = "none")]
    Disabled,
}

/// Settings of msprof that a run chooses. They are stored with its options and in each manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProfilerSettings {
    /// Value of `--task-time`. Only `l1` records types and shapes.
    pub task_time: String,
    pub aic_metrics: AicMetrics,
}

impl Default for ProfilerSettings {
    fn default() -> Self {
        Self { task_time: "l1".to_owned(), aic_metrics: AicMetrics::default() }
    }
}

impl ProfilerSettings {
    pub(crate) fn options(&self) -> Vec<String> {
        let mut options = vec![format!("--task-time={}", self.task_time)];
        match self.aic_metrics {
            AicMetrics::Disabled => options.push("--ai-core=off".to_owned()),
            metrics => options.extend(["--ai-core=on".to_owned(), format!("--aic-metrics={metrics}")]),
        }
        options
    }
}

/// Returns true for an id of a run as npubench creates them, which is safe in paths and scripts. The longest has 60 characters.
pub(crate) fn is_run_id(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Kind of a database, a run and their numbers, which never changes; no command mixes the two.
#[derive(Serialize, Deserialize, Display, EnumString, IntoStaticStr, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DataKind {
    /// Measured on a real device, or recorded in production.
    #[value(help = "Measured on devices")]
    Npu,
    #[value(help = "Simulated by the rehearsal host")]
    Rehearsal,
}

impl DataKind {
    pub(crate) fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the text behind names and headings of its numbers: empty for measurements.
    pub(crate) fn mark(self) -> &'static str {
        if self == Self::Rehearsal { " (rehearsal: simulated durations)" } else { "" }
    }

    /// Returns the option, with a space before it, that a command needs to measure for a database of this kind.
    pub(crate) const fn host_option(self) -> &'static str {
        if matches!(self, Self::Rehearsal) { " --host rehearsal" } else { "" }
    }
}

/// State of the cache before each launch of a collection. Samples of different states are never pooled or compared.
#[derive(Serialize, Deserialize, Display, EnumString, IntoStaticStr, VariantArray, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CacheState {
    /// The launches before used the same tensors.
    #[default]
    Hot,
    /// A kernel that moves more than the cache holds precedes each launch.
    Cold,
}

impl CacheState {
    pub(crate) const ALL: &'static [Self] = <Self as VariantArray>::VARIANTS;

    pub(crate) fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns true for the state of runs without the option, which their options in the ledger do not name.
    pub(crate) fn is_hot(&self) -> bool {
        *self == Self::Hot
    }
}

#[derive(Serialize, Deserialize, Display, EnumString, IntoStaticStr, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectionPurpose {
    Measure,
    /// A single case that may have broken an earlier collection.
    Alone,
    /// Bisection for the case that broke a collection.
    Search,
    /// Test of the device: its cases have their verdicts, and its samples are not stored.
    Control,
}

/// Kernels at both ends of each collection, by which devices and nights are compared; no duration is ever scaled by them.
#[derive(Serialize, Deserialize, Display, EnumString)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ControlKernel {
    Matmul,
    Copy,
    Vector,
}

#[derive(Serialize, Deserialize, Display, EnumString)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum CollectionEnd {
    Begin,
    End,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ControlReading {
    pub(crate) control: ControlKernel,
    pub(crate) end: CollectionEnd,
    /// Device as the host numbers it.
    pub(crate) device: u32,
    pub(crate) kernel: String,
    /// Durations of the launches after the warm-up in nanoseconds, in launch order.
    pub(crate) durations: Vec<i64>,
    pub(crate) cycle_rate: Option<CycleRate>,
}

impl ControlReading {
    pub(crate) fn median(&self) -> Option<f64> {
        let mut sorted = self.durations.clone();
        sorted.sort_unstable();
        median_of_sorted(&sorted)
    }
}

#[cfg(test)]
mod tests {
    use strum::VariantNames as _;

    use super::*;

    #[test]
    fn names_of_metrics_are_those_of_msprof_and_parse_back() {
        for name in AicMetrics::VARIANTS {
            let metrics: AicMetrics = name.parse().expect("a name");
            assert_eq!(metrics.to_string(), *name);
            assert_eq!(serde_json::to_string(&metrics).expect("a word"), format!("\"{name}\""));
        }
        let settings = |aic_metrics| ProfilerSettings { aic_metrics, ..ProfilerSettings::default() };
        assert_eq!(
            settings(AicMetrics::MemoryUb).options(),
            ["--task-time=l1", "--ai-core=on", "--aic-metrics=MemoryUB"]
        );
        assert_eq!(settings(AicMetrics::Disabled).options(), ["--task-time=l1", "--ai-core=off"]);
    }
}
