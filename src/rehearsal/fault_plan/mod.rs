//! The fault plan of the rehearsal host, a YAML file: faults with their target, number and time; simulated delays; and
//! the ratio of simulated to real time. All seconds of a plan are simulated ones.
//!
//! The stand-ins read the plan as JSON, in the form in which it is written.

macro_rules! parameters {
    ($($(#[$doc:meta])* $vis:vis $name:ident { $($(#[$meta:meta])* $field:ident: $type:ty = $default:expr,)* })*) => { $(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        $vis struct $name { $($(#[$meta])* pub(crate) $field: $type,)* }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }
    )* };
}

/// Defines values of parameters that only the stand-ins read, the default one first.
macro_rules! words {
    ($($vis:vis $name:ident { $first:ident $(, $word:ident)* $(,)? })*) => { $(
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        $vis enum $name { #[default] $first, $($word,)* }
    )* };
}

mod check;
mod durations;
mod host;
mod kinds;
#[cfg(test)]
mod tests;

use std::path::Path;

use durations::{RehearsedCollectives, RehearsedNoise};
pub(super) use host::HostDefect;
pub(crate) use host::StandInSoftware;
use host::{RehearsedContainer, RehearsedHost};
use kinds::PlannedFault;
use serde::{Deserialize, Deserializer, Serialize};

use super::DEVICES;
use crate::{
    base::{
        assets::AssetFiles,
        command_error::CommandError,
        files::{MAX_DOCUMENT, read_regular_text},
        yaml::YamlError,
    },
    kernel::{CollectiveKind, DataKind, catalogue::Catalogue},
};

parameters! {
    pub FaultPlan {
        /// Seed of the random faults; by default the seed of the run.
        seed: Option<u64> = None,
        /// Simulated seconds per real second.
        speed: f64 = 1.0,
        costs: SimulatedDelays = SimulatedDelays::default(),
        noise: RehearsedNoise = RehearsedNoise::default(),
        collectives: RehearsedCollectives = RehearsedCollectives::default(),
        /// The container in which the programs run; none by default.
        container: Option<RehearsedContainer> = None,
        /// Name and clock of the host among several nodes.
        host: Option<RehearsedHost> = None,
        software: StandInSoftware = StandInSoftware::default(),
        schemas: Vec<String> = Vec::new(),
        defects: Vec<HostDefect> = Vec::new(),
        faults: Vec<PlannedFault> = Vec::new(),
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SimulatedDelays {
    pub(crate) start: f64,
    pub(crate) init: f64,
    pub(crate) case: f64,
    pub(crate) launch: f64,
    pub(crate) export: f64,
}

/// Target of a fault: all given conditions must hold. A list matches any of its values; an empty list matches all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct FaultTarget {
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) kernel: Vec<String>,
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) case: Vec<String>,
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) shapes: Vec<String>,
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) devices: Vec<u32>,
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) collections: Vec<u32>,
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) ordinal: Vec<u32>,
    /// Every n-th case of a collection; for faults of a collection, every n-th collection.
    pub(crate) every: Option<u32>,
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

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TimeWindow {
    pub(crate) from: f64,
    pub(crate) until: Option<f64>,
}

fn one_or_many<'de, D, T>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "expected a value or a list of values of the right type; quote texts that look like numbers"
    )]
    enum OneOrMany<T> {
        Many(Vec<T>),
        One(T),
    }
    OneOrMany::deserialize(from).map(|values| match values {
        OneOrMany::Many(values) => values,
        OneOrMany::One(value) => vec![value],
    })
}

#[derive(Clone, Copy, Debug)]
pub struct ValidNames<'a> {
    pub kernels: &'a [&'a str],
    pub devices: u32,
}

impl FaultPlan {
    /// Loads the file that a command names; without one the plan is empty. Refuses a plan with a kernel or a device that does not
    /// exist, and every plan for another host.
    pub(crate) fn load(
        file: Option<&Path>,
        kind: DataKind,
        assets: &AssetFiles,
    ) -> Result<Self, CommandError> {
        let Some(file) = file else { return Ok(Self::default()) };
        if kind == DataKind::Npu {
            return Err(CommandError::usage(
                format!("`{}` is a fault plan, which only the rehearsal host supports", file.display()),
                "add `--host rehearsal`, or remove `--rehearsal-faults`",
            ));
        }
        let catalogue = Catalogue::load(assets)?;
        let collectives = CollectiveKind::ALL.iter().map(|kind| kind.kernel_name());
        let kernels: Vec<&str> = catalogue.kernel_names().chain(collectives).collect();
        let text = read_regular_text(file, MAX_DOCUMENT).map_err(|error| {
            let hint = "give the path of a fault plan; docs/rehearsal.md contains an example";
            YamlError::of_file(file, format!("cannot be read: {error}"), hint)
        })?;
        Ok(Self::parse(file, &text, &ValidNames { kernels: &kernels, devices: DEVICES })?)
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
