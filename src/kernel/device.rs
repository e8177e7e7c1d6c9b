//! Devices: what a profile or a host states of them, the profiles of `grids/devices`, and how they are numbered.
//!
//! A new profile needs its file and a row in docs/device-profiles.md. A new family of chips is also added to `FAMILIES` here and
//! to `PLATFORMS` in `profile/device_evidence.rs`; if npu-smi prints one name for all its chips, `find_soc` in
//! `measure/device_choice.rs` asks torch_npu for the SoC.

use std::{collections::BTreeMap, fmt, path::Path};

use serde::{Deserialize, Serialize};

use crate::{
    base::{
        assets::AssetFiles,
        yaml::{self, YamlError},
    },
    kernel::{Dtype, Nanos, collective::CommNetwork},
};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceFacts {
    /// SoC name such as `Ascend910B3`, or the name of a family, see [`is_of_soc`].
    pub soc: Option<String>,
    pub cube_cores: Option<u32>,
    pub vector_cores: Option<u32>,
    /// Highest recorded clock of the cores, in MHz. A device may be set to a lower one than its rated clock.
    pub clock_mhz: Option<u32>,
}

/// Names that stand for several SoCs, with the first letters of those. `Ascend910B` is the name that msprof writes for
/// every A2 and A3; `Ascend910` is the name that npu-smi prints for every A3.
const FAMILIES: [(&str, &[&str]); 4] = [
    ("Ascend910B", &["Ascend910B", "Ascend910_93"]),
    ("Ascend910", &["Ascend910_93"]),
    ("Ascend310P", &["Ascend310P"]),
    ("Ascend950", &["Ascend950", "Ascend910_95"]),
];

/// Returns true if a stated name is the name of a SoC or of its family. The SoC may end in `*` for any rest.
pub(crate) fn is_of_soc(stated: &str, soc: &str) -> bool {
    let soc_start = soc.strip_suffix('*');
    let is_same = soc_start.map_or(stated == soc, |start| stated.starts_with(start));
    let family = FAMILIES.iter().find(|(family, _)| *family == stated);
    is_same || family.is_some_and(|(_, starts)| starts.iter().any(|start| soc.starts_with(start)))
}

/// Returns the SoC name of a chip in the table of npu-smi: `910B3` is `Ascend910B3`.
pub(crate) fn soc_of_chip(chip: &str) -> String {
    if chip.starts_with("Ascend") { chip.to_owned() } else { format!("Ascend{chip}") }
}

impl DeviceFacts {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for DeviceFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { soc, cube_cores, vector_cores, clock_mhz } = self;
        let numbers = [(cube_cores, "cube cores"), (vector_cores, "vector cores"), (clock_mhz, "MHz")];
        let numbers = numbers.into_iter().filter_map(|(number, unit)| Some(format!("{} {unit}", (*number)?)));
        let parts: Vec<String> = soc.clone().into_iter().chain(numbers).collect();
        f.write_str(&if parts.is_empty() { "unknown device".to_owned() } else { parts.join(", ") })
    }
}

/// Bounds of the recorded clock in relation to the rated one. Devices with a rated clock of 1800 MHz are known at 1650.
const MIN_CLOCK: f64 = 0.85;
const MAX_CLOCK: f64 = 1.01;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ComputeUnit {
    Cube,
    Vector,
    Mte,
}

#[derive(Clone, Debug, PartialEq)]
pub struct KernelWork {
    pub(crate) flops: f64,
    /// Bytes that must be read and written once.
    pub(crate) bytes: f64,
    pub(crate) unit: ComputeUnit,
    pub(crate) dtype: Dtype,
}

/// Peak rates of one device, from `grids/devices/<NAME>.yaml`; docs/device-profiles.md describes the format and the sources.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceProfile {
    pub(crate) device: String,
    /// SoC names of the chips with these values, as `torch.npu.get_device_name()` returns them; a name may end in `*`.
    /// If there are no names, the device is compared with no host.
    #[serde(default)]
    pub(crate) soc: Vec<String>,
    pub(crate) cube_tflops: BTreeMap<String, f64>,
    pub(crate) vector_tflops: BTreeMap<String, f64>,
    pub(crate) hbm_gib: u64,
    pub(crate) hbm_tib_per_s: f64,
    pub(crate) l2_mib: u64,
    /// Upper bound of the bandwidth of that cache in TB/s, for plausibility checks only.
    pub(crate) l2_ceiling_tb_per_s: f64,
    pub(crate) cube_cores: u32,
    pub vector_cores: u32,
    pub(crate) clock_mhz: u32,
    #[serde(default, skip_serializing)]
    pub(crate) comm: Option<CommNetwork>,
}

impl DeviceProfile {
    pub const fn default_name() -> &'static str {
        "ATLAS_800_A3_752T_128G_DIE"
    }

    pub fn load(assets: &AssetFiles, name: &str) -> Result<Self, YamlError> {
        let files = assets.device_profiles()?;
        let Some(asset) = files.get(&format!("{name}.yaml")) else {
            let names: Vec<&str> = files.keys().map(|file| file.trim_end_matches(".yaml")).collect();
            let problem = format!("the device profile `{name}` does not exist");
            let hint = format!("known profiles: {}", names.join(", "));
            return Err(YamlError::of_file(Path::new(""), problem, hint));
        };
        Self::parse(&asset.path, &asset.text)
    }

    pub(crate) fn load_all(assets: &AssetFiles) -> Result<Vec<Self>, YamlError> {
        let files = assets.device_profiles()?;
        files.values().map(|asset| Self::parse(&asset.path, &asset.text)).collect()
    }

    pub(super) fn parse(file: &Path, text: &str) -> Result<Self, YamlError> {
        let profile: Self = yaml::parse(file, text)?;
        profile.comm.as_ref().map_or(Ok(()), |network| network.check(file, text))?;
        Ok(profile)
    }

    pub(crate) fn first_soc(&self) -> Option<&str> {
        self.soc.first().map(|soc| soc.trim_end_matches('*'))
    }

    pub(crate) fn is_of_soc(&self, stated: &str) -> bool {
        self.soc.is_empty() || self.soc.iter().any(|soc| is_of_soc(stated, soc))
    }

    /// Returns true if nothing that is known of a device contradicts the profile.
    pub(crate) fn fits(&self, facts: &DeviceFacts) -> bool {
        let is_equal = |known: Option<u32>, own: u32| known.is_none_or(|known| known == own);
        let own_clock = f64::from(self.clock_mhz);
        let is_clock = |clock: u32| (MIN_CLOCK..=MAX_CLOCK).contains(&(f64::from(clock) / own_clock));
        facts.soc.as_ref().is_none_or(|soc| self.is_of_soc(soc))
            && is_equal(facts.cube_cores, self.cube_cores)
            && is_equal(facts.vector_cores, self.vector_cores)
            && facts.clock_mhz.is_none_or(is_clock)
    }

    pub(crate) fn is_exceeded_by(&self, shown: &DeviceFacts) -> bool {
        let clock = shown.clock_mhz.map_or(0.0, f64::from);
        shown.cube_cores > Some(self.cube_cores)
            || shown.vector_cores > Some(self.vector_cores)
            || clock > f64::from(self.clock_mhz) * MAX_CLOCK
    }

    /// Sets other numbers of matrix cores and another clock; rates and the bound of the cache are proportional to them.
    pub(crate) fn scale_rates(&mut self, cube_cores: u32, clock_mhz: u32) {
        let cores = f64::from(cube_cores) / f64::from(self.cube_cores.max(1));
        let factor = cores * f64::from(clock_mhz) / f64::from(self.clock_mhz.max(1));
        if factor == 1.0 {
            return;
        }
        self.cube_tflops.values_mut().chain(self.vector_tflops.values_mut()).for_each(|rate| *rate *= factor);
        self.l2_ceiling_tb_per_s *= factor;
        self.vector_cores = (f64::from(self.vector_cores) * cores).round() as u32;
        (self.cube_cores, self.clock_mhz) = (cube_cores, clock_mhz);
    }

    pub const fn hbm_bytes(&self) -> u64 {
        self.hbm_gib << 30
    }

    /// Returns the shortest possible time of the work, which no recorded duration is below: arithmetic at peak rate, all
    /// traffic at the bound of the cache, only the bytes beyond the cache's size at the bandwidth of device memory.
    pub(crate) fn fastest(&self, work: &KernelWork) -> Nanos {
        let rates = match work.unit {
            ComputeUnit::Cube => &self.cube_tflops,
            ComputeUnit::Vector | ComputeUnit::Mte => &self.vector_tflops,
        };
        let fallback = rates.values().copied().fold(0.0, f64::max);
        let peak = rate_of(rates, &work.dtype).unwrap_or(fallback) * 1e12;
        let compute = if peak > 0.0 { work.flops / peak } else { 0.0 };
        let l2_bytes = (self.l2_mib << 20) as f64;
        let cached = work.bytes / (self.l2_ceiling_tb_per_s * 1e12);
        let hbm = (work.bytes - l2_bytes).max(0.0) / self.hbm_bytes_per_second();
        Nanos::from_seconds(compute.max(cached).max(hbm))
    }

    pub(crate) fn hbm_bytes_per_second(&self) -> f64 {
        self.hbm_tib_per_s * 1024_f64.powi(4)
    }
}

/// Returns the rate of a type. The profiler writes names with or without `DT_`.
pub(crate) fn rate_of(rates: &BTreeMap<String, f64>, dtype: &Dtype) -> Option<f64> {
    let name = dtype.as_str();
    rates.get(name).or_else(|| rates.get(name.strip_prefix("DT_")?)).copied()
}

/// Device of a host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
pub(crate) struct HostDevice {
    /// Name of the host; empty if hosts cannot be separated from runs.
    pub(crate) host: String,
    /// Device as the host numbers it.
    pub(crate) device: u32,
}

/// Deviation of the durations of all cases on a device from the mean of devices.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub(crate) struct DeviceDeviation {
    #[serde(flatten)]
    pub(crate) place: HostDevice,
    /// Relative to the mean, above 0 for longer durations.
    pub(crate) deviation: f64,
}

/// Number of a device for `torch.npu.set_device`, HCCL and the profiler's `Device_id`. The runtime counts the devices
/// that it sees from 0, so that the number differs from the physical one (`u32` elsewhere) in a container that sees a
/// part of the host's devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LogicalDeviceId(pub u32);

impl fmt::Display for LogicalDeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_families_match_their_chips() {
        assert!(is_of_soc("Ascend910B3", "Ascend910B3"));
        assert!(!is_of_soc("Ascend910B3", "Ascend910B4"));
        assert!(!is_of_soc("Ascend910B4", "Ascend910B4-1") && !is_of_soc("Ascend910B4-1", "Ascend910B4"));
        assert!(is_of_soc("Ascend910B", "Ascend910B3") && is_of_soc("Ascend910B", "Ascend910_9391"));
        assert!(is_of_soc("Ascend910", "Ascend910_9391"));
        assert!(!is_of_soc("Ascend910", "Ascend910B3") && !is_of_soc("Ascend910", "Ascend910_95*"));
        assert!(
            is_of_soc("Ascend910_9589", "Ascend910_95*") && !is_of_soc("Ascend910_9391", "Ascend910_95*")
        );
        assert!(is_of_soc("Ascend950", "Ascend950*") && is_of_soc("Ascend950PR_9589", "Ascend950*"));
        assert!(!is_of_soc("Ascend910A", "Ascend910B1"));
    }

    #[test]
    fn chips_of_npu_smi_have_soc_names() {
        assert_eq!(soc_of_chip("910B3"), "Ascend910B3");
        assert_eq!(soc_of_chip("310P3"), "Ascend310P3");
        assert_eq!(soc_of_chip("Ascend910"), "Ascend910");
    }

    fn profile() -> DeviceProfile {
        DeviceProfile::load(&AssetFiles::embedded(), DeviceProfile::default_name())
            .expect("the default profile")
    }

    fn work(flops: f64, bytes: f64, unit: ComputeUnit) -> KernelWork {
        KernelWork { flops, bytes, unit, dtype: Dtype::Bf16 }
    }

    #[test]
    fn arithmetic_bounds_large_matmuls() {
        // 4096 x 4096 x 4096 in bf16 at 363.7 TFLOPS.
        let fastest = profile().fastest(&work(2.0 * 4096_f64.powi(3), 1e8, ComputeUnit::Cube));
        assert_eq!(fastest, Nanos::from_seconds(2.0 * 4096_f64.powi(3) / 363.7e12));
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

    /// The formulas of docs/device-profiles.md: operations per cycle and core by type, and 110 bytes per cycle and core
    /// from the cache with a margin of 1.5.
    #[test]
    fn rates_follow_cores_and_clock() {
        let profiles = DeviceProfile::load_all(&AssetFiles::embedded()).expect("the built-in profiles");
        assert_eq!(profiles.len(), 11);
        let mut socs: Vec<&String> = profiles.iter().flat_map(|profile| &profile.soc).collect();
        socs.sort();
        socs.dedup();
        assert_eq!(
            socs.len(),
            profiles.iter().map(|profile| profile.soc.len()).sum::<usize>(),
            "a SoC is in two"
        );
        for profile in &profiles {
            let assert_near = |value: f64, expected: f64, name: &str| {
                let device = &profile.device;
                assert!(
                    (value / expected - 1.0).abs() < 0.002,
                    "{device} {name}: {value} instead of {expected}"
                );
            };
            let rate = |cores: u32, operations: f64| {
                f64::from(cores) * operations * f64::from(profile.clock_mhz) * 1e-6
            };
            let operations = [
                ("FLOAT", 4096.0),
                ("DT_BF16", 8192.0),
                ("FLOAT16", 8192.0),
                ("INT8", 16384.0),
                ("INT4", 32768.0),
            ];
            // Types of an Ascend 950: the announced peaks are 16 % above twice and four times the rate of 16 bits.
            for (name, factor) in [("DT_FLOAT8_E4M3FN", 2.0), ("HIFLOAT8", 2.0), ("DT_FLOAT4_E2M1", 4.0)] {
                let peak = rate_of(&profile.cube_tflops, &Dtype::parse(name).expect("a type"));
                assert_eq!(peak.is_some(), profile.device.contains("_950"), "{} {name}", profile.device);
                let ratio = peak.map_or(1.156, |peak| peak / factor / profile.cube_tflops["FLOAT16"]);
                assert!((ratio - 1.156).abs() < 0.001, "{} {name}: {ratio}", profile.device);
            }
            for (dtype, operations) in operations {
                if let Some(value) = profile.cube_tflops.get(dtype) {
                    assert_near(*value, rate(profile.cube_cores, operations), dtype);
                }
            }
            assert!(profile.cube_tflops.contains_key("FLOAT16"));
            if profile.device.starts_with("ATLAS_800") {
                assert_near(profile.vector_tflops["DT_BF16"], rate(profile.vector_cores, 256.0), "vector");
                assert_near(
                    profile.vector_tflops["FLOAT"],
                    rate(profile.vector_cores, 128.0),
                    "vector FLOAT",
                );
                assert_near(profile.l2_ceiling_tb_per_s, rate(profile.cube_cores, 110.0 * 1.5), "cache");
                assert_eq!(profile.vector_cores, 2 * profile.cube_cores);
            }
        }
    }

    #[test]
    fn facts_about_a_device_select_profiles() {
        let profiles = DeviceProfile::load_all(&AssetFiles::embedded()).expect("the built-in profiles");
        let fitting = |soc: &str, cores: u32, clock: u32| {
            let facts = DeviceFacts {
                soc: Some(soc.to_owned()),
                cube_cores: Some(cores),
                vector_cores: Some(2 * cores),
                clock_mhz: Some(clock),
            };
            let fitting = profiles.iter().filter(|profile| profile.fits(&facts));
            fitting.map(|profile| profile.device.as_str()).collect::<Vec<_>>()
        };
        let large = ["ATLAS_800_A2_376T_64G", "ATLAS_800_A2_910B1_64G", "ATLAS_800_A3_752T_128G_DIE"];
        assert_eq!(fitting("Ascend910B", 24, 1800), large);
        assert_eq!(fitting("Ascend910B", 20, 1650), ["ATLAS_800_A2_313T_64G", "ATLAS_800_A3_910_9372_DIE"]);
        assert_eq!(fitting("Ascend910", 24, 1850), ["ATLAS_800_A3_752T_128G_DIE"]);
        assert_eq!(fitting("Ascend910B3", 20, 1800), ["ATLAS_800_A2_313T_64G"]);
        assert_eq!(fitting("Ascend910B3", 24, 1800), [""; 0]);
        assert_eq!(fitting("Ascend950", 32, 1650), ["ASCEND_950DT", "ASCEND_950PR"]);
        assert_eq!(fitting("Ascend950DT_9582", 32, 1650), ["ASCEND_950DT"]);
        assert_eq!(fitting("Ascend950PR", 32, 1650), ["ASCEND_950PR"]);
    }

    #[test]
    fn a_wrong_name_lists_the_right_ones() {
        let error = DeviceProfile::load(&AssetFiles::embedded(), "ATLAS").expect_err("no such profile");
        assert!(error.hint.contains(DeviceProfile::default_name()), "{}", error.hint);
    }
}
