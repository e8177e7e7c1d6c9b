//! The device of a profile, from what the profiler states and from what the records show.
//!
//! | source | content |
//! |---|---|
//! | `device_N/info.json*` of a `PROF_*` folder | numbers of cores, rated clock, number of the platform |
//! | table `NPU_INFO` of a database | name of the family, such as `Ascend910B` for every A2 and A3 |
//! | table `AICORE_FREQ` of a database | clocks while it was recorded |
//! | records | blocks of kernels that use all cores; cycles divided by time and blocks, which is the clock that ran, and no more than the rated one |

use std::fmt;

use super::{core_usage::CoreUsage, discover::is_of_msprof, prelude::*};
use crate::kernel::DeviceFacts;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceEvidence {
    pub facts: DeviceFacts,
    /// True if the numbers of cores follow from the records and are not stated by the profiler.
    pub are_cores_inferred: bool,
    /// True if the clock is that of the records, a lower bound of the rated one, and is not stated by the profiler.
    pub is_clock_inferred: bool,
    pub sources: Vec<&'static str>,
}

const DEVICE_FOLDER: &str = "device_";

/// Names of msprof for the numbers of platforms, as its exporter writes them into `NPU_INFO`.
const PLATFORMS: [(&str, &str); 7] = [
    ("0", "Ascend310"),
    ("1", "Ascend910A"),
    ("4", "Ascend310P"),
    ("5", "Ascend910B"),
    ("7", "Ascend310B"),
    // Which of both is the PR, and which the DT, no source says (Ascend/msprof, analysis/common_func/constant.py: CHIP_V6_1_0
    // and CHIP_V6_2_0).
    ("15", "Ascend950"),
    ("16", "Ascend950"),
];

pub fn device_of_profile(file: &Path) -> DeviceEvidence {
    let mut evidence = DeviceEvidence::default();
    if let Some(info) = prof_folders(file).iter().find_map(|prof| stated_facts(prof)) {
        evidence.add_facts("info.json", info);
    }
    for database in databases(file) {
        if let Some(name) = sqlite::device_name(&database) {
            evidence.add_facts("NPU_INFO", DeviceFacts { soc: Some(name), ..DeviceFacts::default() });
        }
        if let Some(clock) = sqlite::highest_clock(&database) {
            evidence
                .add_facts("AICORE_FREQ", DeviceFacts { clock_mhz: Some(clock), ..DeviceFacts::default() });
        }
    }
    let usage = match sqlite::is_database(file) {
        Ok(true) => sqlite::core_usage(file).unwrap_or_default(),
        // A trace has no cores.
        _ if file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json")) => {
            CoreUsage::default()
        }
        _ => CoreUsage::from_table(file),
    };
    let inferred = usage.inferred_facts();
    evidence.are_cores_inferred = evidence.facts.cube_cores.is_none() && inferred.cube_cores.is_some();
    evidence.is_clock_inferred = evidence.facts.clock_mhz.is_none() && inferred.clock_mhz.is_some();
    evidence.add_facts("the blocks and cycles of the records", inferred);
    evidence
}

impl fmt::Display for DeviceEvidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = |clock: Option<u32>| DeviceFacts { clock_mhz: clock, ..self.facts.clone() };
        match self.facts.clock_mhz.filter(|_| self.is_clock_inferred) {
            Some(clock) if known(None).is_empty() => write!(f, "a clock of at least {clock} MHz"),
            Some(clock) => write!(f, "{}, a clock of at least {clock} MHz", known(None)),
            None => self.facts.fmt(f),
        }
    }
}

impl DeviceEvidence {
    /// Returns what the device must have, without what is only a lower bound of it.
    pub(crate) fn exact_facts(&self) -> DeviceFacts {
        let clock_mhz = self.facts.clock_mhz.filter(|_| !self.is_clock_inferred);
        DeviceFacts { clock_mhz, ..self.facts.clone() }
    }

    fn add_facts(&mut self, source: &'static str, more: DeviceFacts) {
        let before = self.facts.clone();
        let DeviceFacts { soc, cube_cores, vector_cores, clock_mhz } = &mut self.facts;
        *soc = soc.take().or(more.soc);
        *cube_cores = cube_cores.or(more.cube_cores);
        *vector_cores = vector_cores.or(more.vector_cores);
        *clock_mhz = clock_mhz.or(more.clock_mhz);
        if self.facts != before && !self.sources.contains(&source) {
            self.sources.push(source);
        }
    }

    /// Merges the evidence of another table; facts that differ are an error: the two names or numbers.
    pub fn merge_evidence(&mut self, other: Self) -> Result<(), (String, String)> {
        let differ = |one: Option<String>, another: Option<String>| match (one, another) {
            (Some(one), Some(another)) if one != another => Err((one, another)),
            _ => Ok(()),
        };
        differ(self.facts.soc.clone(), other.facts.soc.clone())?;
        if !self.are_cores_inferred && !other.are_cores_inferred {
            let cores = |cores: Option<u32>| cores.map(|cores| format!("{cores} cube cores"));
            differ(cores(self.facts.cube_cores), cores(other.facts.cube_cores))?;
        }
        // Stated cores count more than inferred ones.
        let is_better =
            self.are_cores_inferred && !other.are_cores_inferred && other.facts.cube_cores.is_some();
        if is_better || self.facts.cube_cores.is_none() {
            self.are_cores_inferred = other.are_cores_inferred;
            self.facts.cube_cores = other.facts.cube_cores.or(self.facts.cube_cores);
            self.facts.vector_cores = other.facts.vector_cores.or(self.facts.vector_cores);
        }
        // A stated clock counts more than one that ran.
        let clocks = [(&self.facts, self.is_clock_inferred), (&other.facts, other.is_clock_inferred)];
        let best = clocks.map(|(facts, is_inferred)| facts.clock_mhz.map(|clock| (!is_inferred, clock)));
        let best = best.into_iter().max().flatten();
        self.is_clock_inferred = best.is_some_and(|(is_stated, _)| !is_stated);
        self.facts.clock_mhz = best.map(|(_, clock)| clock);
        self.facts.soc = self.facts.soc.take().or(other.facts.soc);
        for source in other.sources {
            if !self.sources.contains(&source) {
                self.sources.push(source);
            }
        }
        Ok(())
    }
}

/// Returns the `PROF_*` folders of a table: those above it, else those beside its folder.
fn prof_folders(file: &Path) -> Vec<PathBuf> {
    let Some(root) = file.ancestors().nth(2) else { return Vec::new() };
    if is_of_msprof(root) {
        vec![root.to_owned()]
    } else {
        named_entries(root, "PROF_", "").unwrap_or_default()
    }
}

/// Returns the number of the only device of a `PROF_*` folder, by its folder `device_N`; `None` if it has none or several.
pub(crate) fn only_device(prof: &Path) -> Option<u32> {
    let names =
        named_entries(prof, DEVICE_FOLDER, "").unwrap_or_default().into_iter().filter(|path| path.is_dir());
    let mut devices =
        names.filter_map(|path| path.file_name()?.to_str()?.strip_prefix(DEVICE_FOLDER)?.parse().ok());
    devices.next().filter(|_| devices.next().is_none())
}

/// Returns what msprof states about the first device of a `PROF_*` folder in `info.json`; `None` without such a file.
pub(crate) fn stated_facts(prof: &Path) -> Option<DeviceFacts> {
    let devices = named_entries(prof, DEVICE_FOLDER, "").unwrap_or_default().into_iter();
    let mut files = devices.flat_map(|device| named_entries(&device, "info.json", "").unwrap_or_default());
    files.find_map(|path| read_info(&path))
}

fn databases(file: &Path) -> Vec<PathBuf> {
    let own = file.extension().is_some_and(|extension| extension == "db").then(|| file.to_owned());
    let beside = named_entries(file.parent().unwrap_or(Path::new("")), "ascend_pytorch_profiler", ".db")
        .unwrap_or_default();
    let of_msprof = prof_folders(file)
        .into_iter()
        .flat_map(|prof| named_entries(&prof, "msprof_", ".db").unwrap_or_default());
    let mut found: Vec<PathBuf> = own.into_iter().chain(beside).chain(of_msprof).collect();
    found.dedup();
    found
}

fn read_info(path: &Path) -> Option<DeviceFacts> {
    #[derive(Deserialize)]
    struct ProfiledHost {
        #[serde(default)]
        platform_version: String,
        #[serde(rename = "DeviceInfo", default)]
        devices: Vec<ProfiledDevice>,
    }
    #[derive(Deserialize)]
    struct ProfiledDevice {
        ai_core_num: Option<u32>,
        aiv_num: Option<u32>,
        #[serde(default)]
        aic_frequency: String,
    }
    let host: ProfiledHost = serde_json::from_slice(&read_regular(path, MAX_DOCUMENT).ok()?).ok()?;
    let device = host.devices.first();
    let known = |number: Option<u32>| number.filter(|number| *number > 0);
    let platform = PLATFORMS.iter().find(|(number, _)| *number == host.platform_version);
    Some(DeviceFacts {
        soc: platform.map(|(_, name)| (*name).to_owned()),
        cube_cores: known(device.and_then(|device| device.ai_core_num)),
        vector_cores: known(device.and_then(|device| device.aiv_num)),
        clock_mhz: device.and_then(|device| device.aic_frequency.trim().parse().ok()),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn usage(cube: &[(u32, u32)], vector: &[(u32, u32)]) -> DeviceFacts {
        let mut usage = CoreUsage::default();
        cube.iter().for_each(|(blocks, records)| usage.count_blocks("AI_CORE", *blocks, *records));
        vector.iter().for_each(|(blocks, records)| usage.count_blocks("AI_VECTOR_CORE", *blocks, *records));
        usage.inferred_facts()
    }

    #[test]
    fn cores_are_inferred_from_kernels_that_use_all() {
        assert_eq!(usage(&[(24, 11), (16, 9)], &[(48, 54), (32, 40), (256, 1)]).cube_cores, Some(24));
        assert_eq!(usage(&[(20, 300), (19, 2)], &[(40, 900), (1, 500)]).vector_cores, Some(40));
        // Kernels that use a part of the cores are no evidence.
        assert_eq!(usage(&[(16, 9)], &[(48, 54)]).cube_cores, None);
        assert_eq!(usage(&[(20, 9), (24, 1)], &[(40, 54)]).cube_cores, None, "a device with 24 cores");
        assert_eq!(usage(&[(20, 9)], &[(48, 54), (40, 5)]).cube_cores, None, "vector kernels use more");
        assert_eq!(usage(&[], &[(48, 54)]), DeviceFacts::default());
    }

    #[test]
    fn information_of_the_profiler_is_found_above_and_beside_a_table() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("host_1_20260101_ascend_pt");
        let info = r#"{"platform_version":"5","DeviceInfo":[{"id":0,"ai_core_num":20,"aiv_num":40,"aic_frequency":"1650"}]}"#;
        let device = root.join("PROF_000001/device_0");
        fs::create_dir_all(&device).expect("created");
        fs::write(device.join("info.json.0"), info).expect("written");
        let expected = DeviceFacts {
            soc: Some("Ascend910B".to_owned()),
            cube_cores: Some(20),
            vector_cores: Some(40),
            clock_mhz: Some(1650),
        };
        for table in [
            "ASCEND_PROFILER_OUTPUT/kernel_details.csv",
            "PROF_000001/mindstudio_profiler_output/op_summary_1.csv",
        ] {
            let table = root.join(table);
            fs::create_dir_all(table.parent().expect("a parent")).expect("created");
            fs::write(&table, "Accelerator Core,Block Dim\nAI_CORE,24\n").expect("written");
            let found = device_of_profile(&table);
            assert_eq!(
                (found.facts, found.sources, found.are_cores_inferred),
                (expected.clone(), vec!["info.json"], false)
            );
        }
        assert!(device_of_profile(&folder.path().join("missing.csv")).facts.is_empty());
    }

    #[test]
    fn only_device_is_that_of_a_single_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let add = |name: &str| fs::create_dir(folder.path().join(name)).expect("created");
        assert_eq!(only_device(folder.path()), None);
        add("device_log");
        add("device_11");
        fs::write(folder.path().join("device_2"), "a file").expect("written");
        assert_eq!(only_device(folder.path()), Some(11));
        add("device_3");
        assert_eq!(only_device(folder.path()), None);
    }

    #[test]
    fn clock_is_cycles_by_time_and_blocks() {
        let folder = tempfile::tempdir().expect("a folder");
        let table = folder.path().join("kernel_details.csv");
        let row = |core: &str, time: &str, cycles: u32| format!("{core},20,{time},{cycles},0,0\n");
        let rows = row("AI_CORE", "10.0", 330_000).repeat(3)
            + &row("AI_CORE", "10.0", 360_000)
            + &row("AI_CORE", "1.0", 99_999);
        let header = "Task Type,Block Num,aicore_time(us),aic_total_cycles,aiv_time(us),aiv_total_cycles\n";
        fs::write(&table, format!("{header}{rows}")).expect("written");
        let mut found = device_of_profile(&table);
        assert_eq!((found.facts.clock_mhz, found.is_clock_inferred), (Some(1650), true));
        assert_eq!(
            (found.to_string(), found.exact_facts().clock_mhz),
            ("a clock of at least 1650 MHz".to_owned(), None)
        );
        let stated = DeviceFacts { clock_mhz: Some(1500), ..DeviceFacts::default() };
        found
            .merge_evidence(DeviceEvidence { facts: stated, ..DeviceEvidence::default() })
            .expect("one device");
        assert_eq!(
            (found.facts.clock_mhz, found.is_clock_inferred),
            (Some(1500), false),
            "a stated clock wins"
        );
    }

    #[test]
    fn tables_of_different_devices_contradict() {
        let evidence = |soc: Option<&str>, cores, are_cores_inferred| DeviceEvidence {
            facts: DeviceFacts { soc: soc.map(str::to_owned), cube_cores: cores, ..DeviceFacts::default() },
            are_cores_inferred,
            is_clock_inferred: false,
            sources: vec!["NPU_INFO"],
        };
        let mut all = evidence(Some("Ascend910B"), Some(20), true);
        all.merge_evidence(evidence(None, Some(24), false)).expect("stated cores replace inferred ones");
        assert_eq!((all.facts.cube_cores, all.are_cores_inferred), (Some(24), false));
        all.merge_evidence(evidence(None, Some(20), true)).expect("inferred cores are ignored");
        assert_eq!(all.facts.cube_cores, Some(24));
        let error = all.merge_evidence(evidence(None, Some(20), false)).expect_err("other cores");
        assert_eq!(error, ("24 cube cores".to_owned(), "20 cube cores".to_owned()));
        let error = all.merge_evidence(evidence(Some("Ascend310P"), None, false)).expect_err("another chip");
        assert_eq!(error.1, "Ascend310P");
    }
}
