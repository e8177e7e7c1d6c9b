//! Cores and clock of a device as the profiler states them.

use std::{fs, path::PathBuf};

use serde_json::Value;

use super::evidence::CollectedEvidence;

/// Cores and clock of the device, from the `info.json` of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProfiledChip {
    pub(super) cube_cores: u32,
    pub(super) vector_cores: u32,
    /// Clock for which the device is set, which may be below that of the chip.
    pub(super) clock_mhz: u32,
}

impl ProfiledChip {
    /// Reads the first device of a collection; `None` without the file or one of the values.
    pub(super) fn read(evidence: &CollectedEvidence) -> Option<Self> {
        let profile = evidence.profile_folders().into_iter().next()?;
        let entries = fs::read_dir(profile).ok()?.flatten().map(|entry| entry.path());
        let is_device = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("device_"))
        };
        let device = entries.into_iter().find(is_device)?;
        let number = device.file_name()?.to_string_lossy().strip_prefix("device_")?.to_owned();
        Self::parse(&fs::read_to_string(device.join(format!("info.json.{number}"))).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let info: Value = serde_json::from_str(text).ok()?;
        let device = info.get("DeviceInfo")?.get(0)?;
        // The real files have the clocks as text.
        let number = |key: &str| {
            let value = device.get(key)?;
            value.as_f64().or_else(|| value.as_str()?.parse().ok()).map(|number| number as u32)
        };
        Some(Self {
            cube_cores: number("ai_core_num")?,
            vector_cores: number("aiv_num")?,
            clock_mhz: number("aic_frequency")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_information_is_parsed() {
        let text = r#"{"DeviceInfo":[{"ai_core_num":24,"aiv_num":48,"aic_frequency":"1850"}]}"#;
        let chip = ProfiledChip { cube_cores: 24, vector_cores: 48, clock_mhz: 1850 };
        assert_eq!(ProfiledChip::parse(text), Some(chip));
        assert_eq!(ProfiledChip::parse("{}"), None);
    }
}
