//! Properties of a device that a profile or a host states.

use std::fmt;

/// Known properties of a device; `None` is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceFacts {
    /// SoC name such as `Ascend910B3`, or the name of a family, see [`is_of_soc`].
    pub soc: Option<String>,
    /// Matrix cores.
    pub cube_cores: Option<u32>,
    /// Vector cores.
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

/// Returns true if a stated name is that of a SoC, or of its family. The SoC may end in `*` for any rest.
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
    /// Returns true if nothing is known.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Format: `Ascend910B, 24 cube cores, 48 vector cores, 1800 MHz`.
impl fmt::Display for DeviceFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { soc, cube_cores, vector_cores, clock_mhz } = self;
        let numbers = [(cube_cores, "cube cores"), (vector_cores, "vector cores"), (clock_mhz, "MHz")];
        let numbers = numbers.into_iter().filter_map(|(number, unit)| Some(format!("{} {unit}", (*number)?)));
        let parts: Vec<String> = soc.clone().into_iter().chain(numbers).collect();
        f.write_str(if parts.is_empty() { "unknown device" } else { "" })?;
        f.write_str(&parts.join(", "))
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
}
