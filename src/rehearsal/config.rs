//! Settings of a rehearsal host, and their file, which the stand-ins read.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    str::FromStr,
};

use serde::{Deserialize, Serialize};

use super::HostError;
use crate::{
    base::{assets::AssetFiles, stats::hash_numbers},
    kernel::{LogicalDeviceId, Nanos, device::DeviceProfile},
    rehearsal::fault_plan::{FaultPlan, HostDefect, RehearsedContainer},
};

/// Model of simulated durations, defined in `timing`.
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

impl FromStr for NoiseModel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "lifelike" => Ok(Self::Lifelike),
            "steady" => Ok(Self::Steady),
            other => Err(format!("`{other}` is neither `lifelike` nor `steady`")),
        }
    }
}

/// A rehearsal host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostConfig {
    /// Model of durations.
    pub model: NoiseModel,
    /// Seed of every simulated duration.
    pub seed: u64,
    /// Number of earlier runs of the database. With it, the lifelike durations of a run are not those of an earlier
    /// run with the same seed.
    #[serde(default)]
    pub earlier_runs: u64,
    /// Name of the device profile whose rates bound the simulated durations.
    pub device_profile: String,
    /// Devices of the host, numbered from 0.
    pub devices: u32,
    /// The folder given with `--assets`, so that the stand-ins read the same catalogue.
    pub assets: Option<PathBuf>,
    /// Recorded medians of cases with a cold cache, in nanoseconds by case id, in place of the model of durations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub recorded_medians: BTreeMap<String, i64>,
    /// Faults and the speed of simulated time.
    #[serde(default, skip_serializing_if = "FaultPlan::is_empty")]
    pub faults: FaultPlan,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self {
            model: NoiseModel::default(),
            seed: 0,
            earlier_runs: 0,
            device_profile: DeviceProfile::default_name().to_owned(),
            devices: 16,
            assets: None,
            recorded_medians: BTreeMap::new(),
            faults: FaultPlan::default(),
        }
    }
}

impl HostConfig {
    /// Seed of simulated durations. Those of the steady model are the same in every run.
    pub(super) fn noise_seed(&self) -> u64 {
        match (self.model, self.earlier_runs) {
            (NoiseModel::Lifelike, 1..) => hash_numbers(&[self.seed, self.earlier_runs]),
            _ => self.seed,
        }
    }

    /// Converts simulated seconds to real ones. npubench's own clock is the real one.
    pub(super) fn real_seconds(&self, simulated: f64) -> f64 {
        simulated / self.faults.speed
    }

    /// Time by which the clock of the devices is ahead of that of the system.
    #[expect(clippy::cast_possible_truncation, reason = "the plan limits it")]
    pub(super) fn clock_ahead(&self) -> Nanos {
        let seconds = self.faults.host.as_ref().map_or(0.0, |host| host.clock_ahead);
        Nanos((seconds * 1e9) as i64)
    }

    /// Time by which the clock of a device, by torch's number, is ahead of those of the others.
    #[expect(clippy::cast_possible_truncation, reason = "the plan limits it")]
    pub(super) fn device_clock_ahead(&self, device: u32) -> Nanos {
        let number = self.physical_id(LogicalDeviceId(device));
        let clocks = self.faults.host.as_ref().map(|host| &host.device_clocks);
        let microseconds = clocks.and_then(|clocks| clocks.get(&number)).copied().unwrap_or_default();
        Nanos((microseconds * 1e3) as i64)
    }

    /// Number of devices that torch counts.
    pub(super) fn device_count(&self) -> u32 {
        self.faults.container.as_ref().map_or(self.devices, RehearsedContainer::device_count)
    }

    /// Returns the host's number of a device that torch counts as `device`.
    pub(super) fn physical_id(&self, device: LogicalDeviceId) -> u32 {
        let container = self.faults.container.as_ref();
        container.and_then(|container| container.physical_id(device)).unwrap_or(device.0)
    }

    /// Returns true if the host's programs see a device.
    pub(super) fn is_visible(&self, physical_id: u32) -> bool {
        self.faults.container.as_ref().is_none_or(|container| container.visible.contains(&physical_id))
    }

    /// Returns true if the host has a defect.
    pub(super) fn has_defect(&self, defect: HostDefect) -> bool {
        self.faults.defects.contains(&defect)
    }

    /// Reads the file that [`super::install`] wrote.
    pub(super) fn read(file: &Path) -> Result<Self, HostError> {
        let text = fs::read_to_string(file).map_err(HostError::io("read", file))?;
        serde_json::from_str(&text).map_err(|source| HostError::Config { file: file.to_owned(), source })
    }

    /// Returns the files of the catalogue and of device profiles.
    pub(super) fn assets(&self) -> Result<AssetFiles, HostError> {
        Ok(self.assets.as_deref().map(AssetFiles::overlaid).transpose()?.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_models_parse_back() {
        for model in [NoiseModel::Lifelike, NoiseModel::Steady] {
            assert_eq!(model.to_string().parse(), Ok(model));
            assert_eq!(serde_json::to_string(&model).expect("a word"), format!("\"{model}\""));
        }
        assert!("Steady".parse::<NoiseModel>().is_err());
    }

    #[test]
    fn error_contains_the_unreadable_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("host.json");
        assert!(HostConfig::read(&file).expect_err("not there").to_string().contains("host.json"));
        fs::write(&file, r#"{"model":"steady","seed":1,"device_profile":"x","devices":1,"disks":3}"#)
            .expect("written");
        assert!(HostConfig::read(&file).expect_err("an unknown key").to_string().contains("disks"));
    }
}
