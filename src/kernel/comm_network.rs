//! The network between devices as a device profile declares it: a grid of devices and the links of each of its dimensions.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::base::{yaml, yaml::YamlError};

/// Number of devices up to which grids are accepted.
const MOST_DEVICES: u64 = 1 << 20;

/// Grid of devices with its links, the key `comm` of a device profile.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommNetwork {
    /// Size of each dimension, outermost first. The digits of a device's number are its coordinates.
    pub(crate) grid: Vec<u64>,
    /// Links of each dimension; tier n connects devices that differ in dimension n and in none before it.
    pub(crate) tiers: Vec<CommTier>,
}

/// Links between the devices of one tier.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommTier {
    pub(crate) kind: LinkKind,
    /// Peak bandwidth of a device in one direction, in 10⁹ bytes per second.
    pub(crate) gb_per_s: f64,
    /// Latency of one step in µs.
    pub(crate) latency_us: f64,
    /// Part of the peak that transfers reach, above 0 and at most 1.
    pub(crate) efficiency: f64,
}

/// How the devices of a tier are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub(crate) enum LinkKind {
    /// By switches: every pair of devices has the full bandwidth.
    Clos,
    /// Each device by a link to every other one: a small group uses only some of a device's links.
    FullMesh,
}

impl CommNetwork {
    /// Checks the values of the key `comm` in the text of a device profile.
    pub(super) fn check(&self, file: &Path, text: &str) -> Result<(), YamlError> {
        let error = |path: &[&str], problem: &str, hint: &str| {
            let steps: Vec<&str> = std::iter::once("comm").chain(path.iter().copied()).collect();
            Err(YamlError::at(file, yaml::find_value(text, &steps), problem, hint))
        };
        if self.grid.is_empty() {
            return error(
                &["grid"],
                "the grid has no dimension",
                "give its sizes, such as `grid: [48, 8, 2]`",
            );
        }
        for (index, size) in self.grid.iter().enumerate() {
            if *size < 2 {
                let problem = format!("dimension {index} of the grid has size {size}, expected at least 2");
                return error(&["grid", &index.to_string()], &problem, "remove dimensions of one device");
            }
        }
        let devices = self.grid.iter().try_fold(1_u64, |product, size| product.checked_mul(*size));
        if devices.is_none_or(|devices| devices > MOST_DEVICES) {
            let problem = format!("the grid has more than {MOST_DEVICES} devices");
            return error(&["grid"], &problem, "correct its sizes");
        }
        if self.tiers.len() != self.grid.len() {
            let problem =
                format!("the grid has {} dimensions, `tiers` has {}", self.grid.len(), self.tiers.len());
            return error(&["tiers"], &problem, "give one tier for each dimension, outermost first");
        }
        for (index, tier) in self.tiers.iter().enumerate() {
            let index = index.to_string();
            let values = [
                ("gb_per_s", tier.gb_per_s, tier.gb_per_s > 0.0, "above 0"),
                ("latency_us", tier.latency_us, tier.latency_us >= 0.0, "at least 0"),
                (
                    "efficiency",
                    tier.efficiency,
                    tier.efficiency > 0.0 && tier.efficiency <= 1.0,
                    "above 0 and at most 1",
                ),
            ];
            for (key, value, is_valid, expected) in values {
                if !is_valid || !value.is_finite() {
                    let problem = format!("`{key}` is {value}, expected a number {expected}");
                    return error(&["tiers", &index, key], &problem, "correct the file and try again");
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::{base::assets::AssetFiles, kernel::device_profile::DeviceProfile};

    const TIERS: &str = "  tiers:\n  - {kind: clos, gb_per_s: 25, latency_us: 1.5, efficiency: 0.7}\n  - {kind: full_mesh, gb_per_s: 196, latency_us: 0.5, efficiency: 0.7}\n";

    /// Error of a device profile with this text as its last key, with the line from that key on.
    fn error(comm: &str) -> String {
        let start = "device: A\ncube_tflops: {}\nvector_tflops: {}\nhbm_gib: 1\nhbm_tib_per_s: 1\nl2_mib: 1\n\
                     l2_ceiling_tb_per_s: 1\ncube_cores: 1\nvector_cores: 1\nclock_mhz: 1\n";
        let text = format!("{start}comm:\n{comm}");
        match DeviceProfile::parse(std::path::Path::new("A.yaml"), &text) {
            Ok(_) => String::new(),
            Err(error) => {
                format!(
                    "{}:{}: {}",
                    error.line.map_or(0, |line| line.saturating_sub(11)),
                    error.column.unwrap_or(0),
                    error.problem
                )
            }
        }
    }

    #[test]
    fn a_network_is_checked_with_positions() {
        assert_eq!(error(&format!("  grid: [128, 8]\n{TIERS}")), "");
        for (grid, expected) in [
            ("[]", "1:9: the grid has no dimension"),
            ("[128, 1]", "1:15: dimension 1 of the grid has size 1, expected at least 2"),
            ("[4294967296, 4294967296]", "1:9: the grid has more than 1048576 devices"),
            ("[2, 8, 2]", "3:5: the grid has 3 dimensions, `tiers` has 2"),
            ("[-1, 8]", "1:10: found `-1`, expected a whole number of at least 0"),
        ] {
            assert_eq!(error(&format!("  grid: {grid}\n{TIERS}")), expected, "{grid}");
        }
        for (old, new, expected) in [
            ("gb_per_s: 25", "gb_per_s: 0", "3:28: `gb_per_s` is 0, expected a number above 0"),
            ("gb_per_s: 25", "gb_per_s: -.inf", "0:0: `gb_per_s` is -inf, expected a number above 0"),
            ("latency_us: 1.5", "latency_us: -1", "3:44: `latency_us` is -1, expected a number at least 0"),
            (
                "efficiency: 0.7}\n  - {kind: full",
                "efficiency: 70}\n  - {kind: full",
                "3:61: `efficiency` is 70",
            ),
            ("kind: clos", "kind: mesh", "3:12: unknown value `mesh`, expected one of `clos`, `full_mesh`"),
        ] {
            let found = error(&format!("  grid: [128, 8]\n{}", TIERS.replacen(old, new, 1)));
            assert!(found.starts_with(expected), "{found}\n{expected}");
        }
    }

    /// The table of the vendor's performance models.
    #[test]
    fn built_in_networks_are_those_of_the_vendors_models() {
        let profiles = DeviceProfile::load_all(&AssetFiles::embedded()).expect("the built-in profiles");
        for profile in &profiles {
            let network = profile.comm.as_ref();
            let name = profile.device.as_str();
            let a3 = (vec![48, 8, 2], vec![(196e9, 5.5), (196e9, 0.5), (224e9, 0.2)]);
            let expected = match name {
                name if name.contains("_A3_") => Some(a3),
                name if name.ends_with("_PCIE") => Some((vec![8], vec![(64e9, 0.2)])),
                name if name.contains("_A2_") => Some((vec![128, 8], vec![(25e9, 1.5), (196e9, 0.5)])),
                _ => None,
            };
            let found = network.map(|network| {
                let tiers = network.tiers.iter().map(|tier| (tier.gb_per_s * 1e9, tier.latency_us));
                (network.grid.clone(), tiers.collect::<Vec<_>>())
            });
            assert_eq!(found, expected, "{name}");
        }
    }
}
