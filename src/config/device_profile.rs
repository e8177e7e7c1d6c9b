//! Device profiles: peak rates and memory of a device, and the roofline bound, the shortest possible time of a kernel.

use std::{collections::BTreeMap, path::Path};

use serde::{Deserialize, Serialize};

use super::{AssetFiles, YamlError, yaml};
use crate::domain::{Dtype, Nanos};

/// The unit of the device that bounds a kernel's arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ComputeUnit {
    /// Matrix unit.
    Cube,
    /// Vector unit.
    Vector,
    /// Data movement only.
    Mte,
}

/// The least work of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelWork {
    pub(crate) flops: f64,
    /// Bytes that must be read and written once.
    pub(crate) bytes: f64,
    pub(crate) unit: ComputeUnit,
    pub(crate) dtype: Dtype,
}

/// Peak rates of one device, from `grids/devices/<NAME>.yaml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceProfile {
    /// Name, as performance models use it.
    pub(crate) device: String,
    /// SoC names of the chips with these values, as `torch.npu.get_device_name()` returns them.
    pub(crate) soc: Vec<String>,
    /// Peak of the matrix unit in tera-operations per second, by type.
    pub(crate) cube_tflops: BTreeMap<String, f64>,
    /// Peak of the vector unit in tera-operations per second, by type.
    pub(crate) vector_tflops: BTreeMap<String, f64>,
    pub(crate) hbm_gib: u64,
    /// Bandwidth of device memory in TiB/s.
    pub(crate) hbm_tib_per_s: f64,
    /// Cache shared by all cores, in MiB.
    pub(crate) l2_mib: u64,
    /// Upper bound of the bandwidth of that cache in TB/s, for plausibility checks only.
    pub(crate) l2_ceiling_tb_per_s: f64,
    /// Matrix cores.
    pub(crate) cube_cores: u32,
    /// Vector cores.
    pub vector_cores: u32,
    pub(crate) clock_mhz: u32,
}

impl DeviceProfile {
    /// Returns the name of the default profile.
    pub const fn default_name() -> &'static str {
        "ATLAS_800_A3_752T_128G_DIE"
    }

    /// Loads a profile by name. The error for an unknown name lists the existing ones.
    pub fn load(assets: &AssetFiles, name: &str) -> Result<Self, YamlError> {
        let files = assets.device_profiles()?;
        let Some(asset) = files.get(&format!("{name}.yaml")) else {
            let names: Vec<&str> = files.keys().map(|file| file.trim_end_matches(".yaml")).collect();
            let problem = format!("the device profile `{name}` does not exist");
            let hint = format!("known profiles: {}", names.join(", "));
            return Err(YamlError::of_file(Path::new(""), problem, hint));
        };
        yaml::parse(&asset.path, &asset.text)
    }

    /// Returns the device memory in bytes.
    pub const fn hbm_bytes(&self) -> u64 {
        self.hbm_gib << 30
    }

    /// Returns the shortest possible time of the work, which no recorded duration is below: arithmetic at peak rate, all
    /// traffic at the bound of the cache, only the bytes beyond the cache's size at the bandwidth of device memory.
    pub(crate) fn fastest(&self, work: &KernelWork) -> Nanos {
        let (rates, fallback) = match work.unit {
            ComputeUnit::Cube => (&self.cube_tflops, self.cube_tflops.values().copied().fold(0.0, f64::max)),
            ComputeUnit::Vector | ComputeUnit::Mte => {
                (&self.vector_tflops, self.vector_tflops.values().copied().fold(0.0, f64::max))
            }
        };
        let peak = rates.get(work.dtype.as_str()).copied().unwrap_or(fallback) * 1e12;
        let compute = if peak > 0.0 { work.flops / peak } else { 0.0 };
        #[expect(clippy::cast_precision_loss, reason = "a few hundred MiB")]
        let l2_bytes = (self.l2_mib << 20) as f64;
        let cached = work.bytes / (self.l2_ceiling_tb_per_s * 1e12);
        let hbm = (work.bytes - l2_bytes).max(0.0) / self.hbm_bytes_per_second();
        Nanos::from_seconds(compute.max(cached).max(hbm))
    }

    pub(crate) fn hbm_bytes_per_second(&self) -> f64 {
        self.hbm_tib_per_s * 1024_f64.powi(4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> DeviceProfile {
        DeviceProfile::load(&AssetFiles::embedded(), DeviceProfile::default_name())
            .expect("the default profile")
    }

    fn work(flops: f64, bytes: f64, unit: ComputeUnit) -> KernelWork {
        KernelWork { flops, bytes, unit, dtype: Dtype::Bf16 }
    }

    #[test]
    fn arithmetic_bounds_large_matmuls() {
        // 4096 x 4096 x 4096 in bf16 at 353.9 TFLOPS.
        let fastest = profile().fastest(&work(2.0 * 4096_f64.powi(3), 1e8, ComputeUnit::Cube));
        assert_eq!(fastest, Nanos::from_seconds(2.0 * 4096_f64.powi(3) / 353.9e12));
    }

    #[test]
    fn only_traffic_beyond_the_cache_needs_device_memory() {
        let profile = profile();
        let small = profile.fastest(&work(0.0, 50e6, ComputeUnit::Mte));
        let large = profile.fastest(&work(0.0, 2e9, ComputeUnit::Mte));
        assert!(small.seconds() < 50e6 / profile.hbm_bytes_per_second());
        let beyond = 2e9 - f64::from(192 << 20);
        assert_eq!(large, Nanos::from_seconds(beyond / profile.hbm_bytes_per_second()));
    }

    #[test]
    fn a_wrong_name_lists_the_right_ones() {
        let error = DeviceProfile::load(&AssetFiles::embedded(), "ATLAS").expect_err("no such profile");
        assert!(error.hint.contains(DeviceProfile::default_name()), "{}", error.hint);
    }
}
