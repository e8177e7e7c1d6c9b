//! Settings of msprof that decide which counters a profile has and how long a recorded task takes.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantNames};

/// Group of counters that msprof reads from the cores, by the names of its option `--aic-metrics`.
///
/// One group can be read per collection. The names are those of `msprof --help` on A2 and A3.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    IntoStaticStr,
    VariantNames,
)]
pub enum AicMetrics {
    /// Time and share of each pipe; msprof's default, and the only group with columns in the database.
    #[default]
    PipeUtilization,
    /// Share of the arithmetic units by data type.
    ArithmeticUtilization,
    /// Bandwidth of L1, L2 and device memory.
    Memory,
    /// Bandwidth of the L0 buffers.
    MemoryL0,
    /// Bandwidth of the unified buffer.
    #[serde(rename = "MemoryUB")]
    #[strum(serialize = "MemoryUB")]
    MemoryUb,
    /// Hits and misses of the L2 cache.
    L2Cache,
    /// Conflicts of the vector unit.
    ResourceConflictRatio,
    /// Amount of data moved between memories.
    MemoryAccess,
    /// No counters: `--ai-core=off`.
    #[serde(rename = "none")]
    #[strum(serialize = "none")]
    Disabled,
}

impl AicMetrics {
    pub(crate) fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Settings of msprof that a run chooses. They are stored with its options and in each manifest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct ProfilerSettings {
    /// Value of `--task-time`. Only `l1` records types and shapes.
    pub task_time: String,
    /// Value of `--aic-metrics`.
    pub aic_metrics: AicMetrics,
}

impl Default for ProfilerSettings {
    fn default() -> Self {
        Self { task_time: "l1".to_owned(), aic_metrics: AicMetrics::default() }
    }
}

impl ProfilerSettings {
    /// Returns the options on the command line of msprof.
    pub(crate) fn options(&self) -> Vec<String> {
        let mut options = vec![format!("--task-time={}", self.task_time)];
        match self.aic_metrics {
            AicMetrics::Disabled => options.push("--ai-core=off".to_owned()),
            metrics => options.extend(["--ai-core=on".to_owned(), format!("--aic-metrics={metrics}")]),
        }
        options
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
            assert_eq!(metrics.as_str(), *name);
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
