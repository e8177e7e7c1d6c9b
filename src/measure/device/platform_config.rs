//! `data/platform_config/<SoC>.ini` of an installed CANN: cores, clock and cache of a chip.
//!
//! Keys as of CANN 8.1: `[SoCInfo]` has `ai_core_cnt`, `cube_core_cnt` (not for chips whose AI cores have both units),
//! `vector_core_cnt`, `l2_size` and `memory_size` in bytes; `[AICoreSpec]` has `cube_freq` in MHz.

use std::{fs, path::Path};

use crate::{base::ini_file::IniFile, kernel::device::DeviceProfile};

/// Values of a chip. Memory is not read: for some chips with 64 GiB the file has 32.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlatformConfig {
    pub(crate) soc: String,
    pub(crate) cube_cores: Option<u32>,
    pub(crate) vector_cores: Option<u32>,
    pub(crate) clock_mhz: Option<u32>,
    pub(crate) l2_mib: Option<u64>,
}

impl PlatformConfig {
    pub(crate) fn read(cann: &Path, soc: &str) -> Option<Self> {
        let architectures = fs::read_dir(cann).ok()?.flatten().map(|entry| entry.path());
        let mut folders: Vec<_> = architectures.filter(|path| path.join("data").is_dir()).collect();
        folders.sort();
        let files = folders.iter().chain([&cann.to_owned()]).find_map(|folder| {
            IniFile::read(&folder.join("data").join("platform_config").join(format!("{soc}.ini")))
        });
        files.map(|file| Self::from_file(soc, &file))
    }

    fn from_file(soc: &str, file: &IniFile) -> Self {
        let number = |section: &str, key: &str| -> Option<u64> { file.value(section, key)?.parse().ok() };
        let small =
            |section: &str, key: &str| u32::try_from(number(section, key)?).ok().filter(|value| *value > 0);
        Self {
            soc: soc.to_owned(),
            cube_cores: small("SoCInfo", "cube_core_cnt").or_else(|| small("SoCInfo", "ai_core_cnt")),
            vector_cores: small("SoCInfo", "vector_core_cnt"),
            clock_mhz: small("AICoreSpec", "cube_freq"),
            l2_mib: number("SoCInfo", "l2_size").map(|bytes| bytes >> 20).filter(|mib| *mib > 0),
        }
    }

    /// Sets the values of the host in a profile, whose rates follow cores and clock. Returns a note for each value that
    /// was different.
    pub(crate) fn apply_to(&self, profile: &mut DeviceProfile) -> Vec<String> {
        let mut notes = Vec::new();
        let mut note = |what: &str, host: u64, known: u64| {
            notes.push(format!(
                "{what}: {host} by CANN's platform_config/{}.ini, {known} by the device profile; {host} is used",
                self.soc
            ));
        };
        let (cores, clock) = (profile.cube_cores, profile.clock_mhz);
        if let Some(host) = self.cube_cores.filter(|host| *host != cores) {
            note("matrix cores", host.into(), cores.into());
        }
        if let Some(host) = self.clock_mhz.filter(|host| *host != clock) {
            note("MHz", host.into(), clock.into());
        }
        if let Some(host) = self.l2_mib.filter(|host| *host != profile.l2_mib) {
            note("MiB of L2 cache", host, profile.l2_mib);
            profile.l2_mib = host;
        }
        profile.scale_rates(self.cube_cores.unwrap_or(cores), self.clock_mhz.unwrap_or(clock));
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::assets::AssetFiles;

    /// A file in the format of CANN 8.1, with other values.
    const FILE: &str = "# [Platform Info configuration begin]\n#****\n#\n[version]\nSoC_version=Ascend910X1\n\
        Short_SoC_version=Ascend910X\nAIC_version=AIC-C-999\n\n[SoCInfo]\nai_core_cnt=10\ncube_core_cnt=10\n\
        vector_core_cnt=20\nai_cpu_cnt=2\nmemory_type=\nmemory_size=17179869184\nl2_type=0\nl2_size=134217728\n\n\
        [AICoreSpec]\ncube_freq=900\ncube_m_size=16\nvec_calc_size=128\n\n[AICoreMemoryRates]\nl2_read_rate=110\n";

    fn profile() -> DeviceProfile {
        DeviceProfile::load(&AssetFiles::embedded(), "ATLAS_800_A2_313T_64G").expect("built in")
    }

    #[test]
    fn values_of_the_host_replace_those_of_the_profile() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(PlatformConfig::read(folder.path(), "Ascend910X1"), None);
        let files = folder.path().join("aarch64-linux/data/platform_config");
        fs::create_dir_all(&files).expect("created");
        fs::write(files.join("Ascend910X1.ini"), FILE).expect("written");
        let config = PlatformConfig::read(folder.path(), "Ascend910X1").expect("the file");
        let expected = PlatformConfig {
            soc: "Ascend910X1".to_owned(),
            cube_cores: Some(10),
            vector_cores: Some(20),
            clock_mhz: Some(900),
            l2_mib: Some(128),
        };
        assert_eq!(config, expected);
        let (before, mut after) = (profile(), profile());
        let notes = config.apply_to(&mut after);
        assert_eq!(notes.len(), 3, "{notes:?}");
        let text =
            "MHz: 900 by CANN's platform_config/Ascend910X1.ini, 1800 by the device profile; 900 is used";
        assert_eq!(notes[1], text);
        assert_eq!((after.cube_cores, after.vector_cores, after.clock_mhz, after.l2_mib), (10, 20, 900, 128));
        // Half the cores at half the clock.
        assert!((after.cube_tflops["DT_BF16"] - before.cube_tflops["DT_BF16"] / 4.0).abs() < 1e-9);
        assert!((after.l2_ceiling_tb_per_s - before.l2_ceiling_tb_per_s / 4.0).abs() < 1e-9);
    }

    #[test]
    fn equal_values_change_nothing() {
        let text = FILE.replace("cnt=10", "cnt=20").replace("vector_core_cnt=20", "vector_core_cnt=40");
        let text = text.replace("=900", "=1800").replace("=134217728", "=201326592");
        let config = PlatformConfig::from_file("Ascend910B3", &IniFile::parse(&text));
        let mut unchanged = profile();
        assert_eq!(config.apply_to(&mut unchanged), Vec::<String>::new());
        assert_eq!(unchanged.cube_tflops, profile().cube_tflops);
        // A file without values changes nothing either.
        let empty = PlatformConfig::from_file("Ascend910B3", &IniFile::parse("[SoCInfo]\nl2_size=\n"));
        assert_eq!(empty.apply_to(&mut unchanged), Vec::<String>::new());
    }
}
