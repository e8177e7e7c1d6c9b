//! The fault plan of the rehearsal host, a YAML file: what goes wrong there, where, how often and when; how long
//! the host pretends that things take, and how much faster its time passes than ours.
//!
//! Owns the plan's words and what may stand together. What a fault does is the business of the rehearsal host.
//! All seconds of a plan are pretended ones.

mod kinds;
mod raw;
#[cfg(test)]
mod tests;

use std::{fs, path::Path};

pub use kinds::{
    ClockJump, CrashAt, CrashSignal, DeviceThrottling, DiskFull, FaultKind, FaultScope, GrandchildLocation,
    HeldResource, LeftoverProcess, LostRecords, MemoryAt, MissingOutput, NoParameters, OutOfMemory,
    ProcessCrash, ProcessHang, RaggedCsv, RecordsKept, RuntimeDeviceError, SlowDevice, TruncatedCsv,
    WrongDevice,
};
use serde::{Deserialize, Serialize};

use crate::config::YamlError;

/// Everything that a fault plan says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultPlan {
    /// Seed of the faults that strike by chance; the run's where none is given.
    pub seed: Option<u64>,
    /// Pretended seconds that pass in one second.
    pub speed: f64,
    /// How long the host pretends that things take.
    pub costs: SimulatedDelays,
    /// What goes wrong.
    pub faults: Vec<PlannedFault>,
}

impl Default for FaultPlan {
    /// Nothing goes wrong, nothing is slower than it is.
    fn default() -> Self {
        Self { seed: None, speed: 1.0, costs: SimulatedDelays::default(), faults: Vec::new() }
    }
}

/// Pretended seconds on top of what the stand-ins really take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SimulatedDelays {
    /// Of a collection, before the script's first call: Python and the import of torch and torch_npu.
    pub start: f64,
    /// Of a collection: taking the device into use.
    pub init: f64,
    /// Of a case: building its tensors.
    pub case: f64,
    /// Of a launch, on the host.
    pub launch: f64,
    /// Of a collection: msprof's parsing and exporting.
    pub export: f64,
}

/// One thing that goes wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedFault {
    /// What.
    pub kind: FaultKind,
    /// Where.
    pub place: FaultTarget,
    /// How often in all; always where nothing is said.
    pub times: Option<u32>,
    /// How often for each case (or, where a whole collection is struck, for each set of cases).
    pub times_each: Option<u32>,
    /// When.
    pub when: TimeWindow,
}

/// Where a fault strikes: where all that is said holds. Lists say "any of these"; empty ones say nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FaultTarget {
    /// Kernels.
    #[serde(deserialize_with = "raw::one_or_many")]
    pub kernel: Vec<String>,
    /// Ids of cases, or how they begin.
    #[serde(deserialize_with = "raw::one_or_many")]
    pub case: Vec<String>,
    /// Input shapes of a case as a row has them, or one of its slots.
    #[serde(deserialize_with = "raw::one_or_many")]
    pub shapes: Vec<String>,
    /// Devices.
    #[serde(deserialize_with = "raw::one_or_many")]
    pub devices: Vec<u32>,
    /// Numbers of collections.
    #[serde(deserialize_with = "raw::one_or_many")]
    pub collections: Vec<u32>,
    /// Places in a collection, from 0.
    #[serde(deserialize_with = "raw::one_or_many")]
    pub ordinal: Vec<u32>,
    /// Every so-many-th case of a collection; every so-many-th collection where a whole one is struck.
    pub every: Option<u32>,
    /// How likely it is, from 0 to 1.
    pub probability: Option<f64>,
    /// What decides about that, besides the seed.
    pub drawn_by: RandomKey,
}

/// What a draw depends on, besides the seed and the fault's place in the file. Never on the collection's number:
/// the same cases are struck in whatever order they are measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RandomKey {
    /// The case (or the cases of a collection) and the device: elsewhere, the case may be well.
    #[default]
    CaseAndDevice,
    /// The case alone: it fails on every device.
    Case,
    /// The device alone.
    Device,
}

/// When a fault may strike, in pretended seconds since the run's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TimeWindow {
    /// From here on.
    pub from: f64,
    /// Up to here; for good where nothing is said.
    pub until: Option<f64>,
}

impl TimeWindow {
    /// Whether a moment is in it.
    #[must_use]
    pub fn holds(&self, seconds: f64) -> bool {
        seconds >= self.from && self.until.is_none_or(|until| seconds < until)
    }
}

/// What a plan's names are held against.
#[derive(Clone, Copy, Debug)]
pub struct ValidNames<'a> {
    /// Kernels of the catalogue, with their other names.
    pub kernels: &'a [&'a str],
    /// Devices of the host, numbered from 0.
    pub devices: u32,
}

impl FaultPlan {
    /// Reads a file.
    ///
    /// # Errors
    /// [`YamlError`] where it cannot be read, is wrong, or names a kernel or a device that is not there.
    pub fn load(file: &Path, known: &ValidNames<'_>) -> Result<Self, YamlError> {
        let text = fs::read_to_string(file).map_err(|error| {
            let hint = "give the path of a fault plan; docs/rehearsal.md contains an example";
            YamlError::of_file(file, format!("cannot be read: {error}"), hint)
        })?;
        Self::parse(file, &text, known)
    }

    /// Reads a file's text.
    ///
    /// # Errors
    /// [`YamlError`], as [`FaultPlan::load`].
    pub fn parse(file: &Path, text: &str, known: &ValidNames<'_>) -> Result<Self, YamlError> {
        raw::parse(file, text, known)
    }

    /// Whether it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
