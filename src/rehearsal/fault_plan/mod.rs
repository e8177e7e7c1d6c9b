//! The fault plan of the rehearsal host, a YAML file: faults with their target, number and time; simulated delays; and
//! the ratio of simulated to real time. All seconds of a plan are simulated ones.
//!
//! The rehearsal host applies a plan; this module reads it, and computes the noise that it describes.

mod collectives;
mod container;
mod defects;
mod host;
mod kinds;
mod lifelike_noise;
mod noise;
mod raw;
#[cfg(test)]
mod tests;

use std::path::Path;

pub(crate) use collectives::RehearsedCollectives;
pub(crate) use container::{RehearsedContainer, ShownProcessIds};
pub(crate) use defects::HostDefect;
pub(crate) use host::RehearsedHost;
pub(crate) use kinds::{
    CoarseTimer, CrashAt, CrashSignal, DeviceThrottling, DiskFull, FaultKind, FaultScope, GrandchildLocation,
    HeldResource, IdleClock, LeftoverProcess, MemoryAt, MissingOutput, NeighbourProgram, ProcessCrash,
    RecordsKept, RenamedKernel, UnsteadyKernel, UnsteadyPattern, WrongUnit,
};
pub(crate) use lifelike_noise::NoisyLaunch;
pub(crate) use noise::RehearsedNoise;
use serde::{Deserialize, Serialize};

use crate::base::{files::read_regular_text, yaml::YamlError};

/// A fault plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultPlan {
    /// Seed of the random faults; by default the seed of the run.
    pub(crate) seed: Option<u64>,
    /// Simulated seconds per real second.
    pub(crate) speed: f64,
    pub(crate) costs: SimulatedDelays,
    /// Noise of the lifelike model.
    #[serde(default)]
    pub(crate) noise: RehearsedNoise,
    /// Durations of collectives.
    #[serde(default)]
    pub(crate) collectives: RehearsedCollectives,
    /// The container in which the programs run; none by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) container: Option<RehearsedContainer>,
    /// Name and clock of the host among several nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) host: Option<RehearsedHost>,
    /// Versions of the software that the host pretends to have.
    #[serde(default)]
    pub(crate) software: StandInSoftware,
    /// Schemas of the installation that differ from those of the catalogue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) schemas: Vec<String>,
    /// Properties in which the host differs from the vendor's sources.
    #[serde(default)]
    pub(crate) defects: Vec<HostDefect>,
    pub(crate) faults: Vec<PlannedFault>,
}

impl Default for FaultPlan {
    fn default() -> Self {
        Self {
            seed: None,
            speed: 1.0,
            costs: SimulatedDelays::default(),
            noise: RehearsedNoise::default(),
            collectives: RehearsedCollectives::default(),
            container: None,
            host: None,
            software: StandInSoftware::default(),
            schemas: Vec::new(),
            defects: Vec::new(),
            faults: Vec::new(),
        }
    }
}

/// Versions of the stand-ins. A change between two runs is an upgrade of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StandInSoftware {
    pub(crate) cann: String,
    pub(crate) driver: String,
    pub(crate) firmware: String,
    pub(crate) torch: String,
    pub(crate) torch_npu: String,
    /// Version of the installed package; not installed by default.
    pub(crate) vllm_ascend: Option<String>,
}

impl Default for StandInSoftware {
    fn default() -> Self {
        let rehearsed = || "0+rehearsal".to_owned();
        Self {
            cann: rehearsed(),
            driver: rehearsed(),
            firmware: rehearsed(),
            torch: rehearsed(),
            torch_npu: rehearsed(),
            vllm_ascend: None,
        }
    }
}

impl StandInSoftware {
    /// Names and versions.
    fn versions(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let Self { cann, driver, firmware, torch, torch_npu, vllm_ascend } = self;
        [
            ("cann", Some(cann)),
            ("driver", Some(driver)),
            ("firmware", Some(firmware)),
            ("torch", Some(torch)),
            ("torch_npu", Some(torch_npu)),
            ("vllm_ascend", vllm_ascend.as_ref()),
        ]
        .into_iter()
        .filter_map(|(name, version)| Some((name, version?.as_str())))
    }

    /// Returns the first name whose version has other characters than those of versions, and the version.
    pub(crate) fn first_invalid(&self) -> Option<(&'static str, &str)> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".+-_".contains(&byte);
        self.versions().find(|(_, version)| version.is_empty() || !version.bytes().all(is_allowed))
    }
}

/// Simulated seconds added to the real time of the stand-ins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SimulatedDelays {
    /// Of a collection, before the script's first call: Python and the import of torch and torch_npu.
    pub(crate) start: f64,
    /// Of a collection: taking the device into use.
    pub(crate) init: f64,
    /// Of a case: building its tensors.
    pub(crate) case: f64,
    /// Of a launch, on the host.
    pub(crate) launch: f64,
    /// Of a collection: msprof's parsing and exporting.
    pub(crate) export: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PlannedFault {
    pub(crate) kind: FaultKind,
    #[serde(alias = "place")]
    pub(crate) target: FaultTarget,
    /// Limit of occurrences in total; none by default.
    pub(crate) times: Option<u32>,
    /// Limit of occurrences for each case; for faults of a collection, for each set of cases.
    pub(crate) times_each: Option<u32>,
    pub(crate) when: TimeWindow,
}

/// Target of a fault: all given conditions must hold. A list matches any of its values; an empty list matches all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct FaultTarget {
    #[serde(deserialize_with = "raw::one_or_many")]
    pub(crate) kernel: Vec<String>,
    /// Ids of cases, or their prefixes.
    #[serde(deserialize_with = "raw::one_or_many")]
    pub(crate) case: Vec<String>,
    /// Input shapes of a case as a row has them, or one of its slots.
    #[serde(deserialize_with = "raw::one_or_many")]
    pub(crate) shapes: Vec<String>,
    #[serde(deserialize_with = "raw::one_or_many")]
    pub(crate) devices: Vec<u32>,
    #[serde(deserialize_with = "raw::one_or_many")]
    pub(crate) collections: Vec<u32>,
    /// Positions in a collection, from 0.
    #[serde(deserialize_with = "raw::one_or_many")]
    pub(crate) ordinal: Vec<u32>,
    /// Every n-th case of a collection; for faults of a collection, every n-th collection.
    pub(crate) every: Option<u32>,
    /// From 0 to 1.
    pub(crate) probability: Option<f64>,
    pub(crate) drawn_by: RandomKey,
}

/// Key of a random draw, besides the seed and the fault's position in the file. The collection's number is never part
/// of it, so that the affected cases do not depend on the order of measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RandomKey {
    /// The case (or the cases of a collection) and the device: the case may work on another device.
    #[default]
    CaseAndDevice,
    /// The case alone: it fails on every device.
    Case,
    Device,
}

/// Time window of a fault, in simulated seconds since the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TimeWindow {
    pub(crate) from: f64,
    pub(crate) until: Option<f64>,
}

impl TimeWindow {
    pub(crate) fn holds(&self, seconds: f64) -> bool {
        seconds >= self.from && self.until.is_none_or(|until| seconds < until)
    }
}

/// Valid names for a plan.
#[derive(Clone, Copy, Debug)]
pub struct ValidNames<'a> {
    /// Kernels of the catalogue, including alternative names.
    pub kernels: &'a [&'a str],
    /// Devices of the host, numbered from 0.
    pub devices: u32,
}

impl FaultPlan {
    /// Reads a file; refuses a plan with a kernel or a device that does not exist.
    pub(crate) fn load(file: &Path, known: &ValidNames<'_>) -> Result<Self, YamlError> {
        let text = read_regular_text(file).map_err(|error| {
            let hint = "give the path of a fault plan; docs/rehearsal.md contains an example";
            YamlError::of_file(file, format!("cannot be read: {error}"), hint)
        })?;
        Self::parse(file, &text, known)
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
