//! Settings of a rehearsal host.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    base::{assets::AssetFiles, command_error::CommandError},
    kernel::device::DeviceProfile,
    rehearsal::fault_plan::FaultPlan,
};

#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum, strum::Display,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum NoiseModel {
    /// With noise, offsets between collections and slow first launches
    #[default]
    Lifelike,
    /// Depending on seed, case and number of the launch alone
    Steady,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostConfig {
    pub model: NoiseModel,
    pub seed: u64,
    /// Number of earlier runs of the database, so that lifelike durations differ between runs with the same seed.
    pub earlier_runs: u64,
    /// Name of the device profile whose rates bound the simulated durations.
    pub device_profile: String,
    pub assets: Option<PathBuf>,
    /// Recorded medians of cases with a cold cache, in nanoseconds by case id. They replace the model of durations.
    pub recorded_medians: BTreeMap<String, i64>,
    pub faults: FaultPlan,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self {
            model: NoiseModel::default(),
            seed: 0,
            earlier_runs: 0,
            device_profile: DeviceProfile::default_name().to_owned(),
            assets: None,
            recorded_medians: BTreeMap::new(),
            faults: FaultPlan::default(),
        }
    }
}

impl HostConfig {
    pub(super) fn assets(&self) -> Result<AssetFiles, CommandError> {
        Ok(self.assets.as_deref().map(AssetFiles::overlaid).transpose()?.unwrap_or_default())
    }
}
