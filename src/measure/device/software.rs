//! Software of a host that is read from files: CANN, driver, firmware, packages of operators that are not part of CANN, and what
//! CANN states of a chip.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

use crate::{
    base::{
        files::{file_digest, named_entries},
        ini_file::IniFile,
    },
    kernel::{SoftwareFingerprint, device::DeviceProfile},
};

/// Folder that contains `driver` and `firmware` unless the installer has recorded another folder.
const ASCEND_ROOT: &str = "/usr/local/Ascend";
/// File in which the driver's installer records its folder, as `Driver_Install_Path_Param=/usr/local/Ascend`.
const DRIVER_INSTALLATION: &str = "/etc/ascend_install.info";
const MAX_FILES: usize = 100_000;

/// Software of a host's collections. It is read again for each collection: CANN or a package may be replaced meanwhile.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostSoftware {
    pub(crate) locations: SoftwareLocations,
    pub(crate) packages: Vec<CustomOperators>,
    /// Options of msprof and pinned variables, which are the same for all collections.
    pub(crate) settings: SoftwareFingerprint,
}

impl HostSoftware {
    pub(crate) fn read_fingerprint(&self) -> SoftwareFingerprint {
        let SoftwareFingerprint { profiler, environment, .. } = self.settings.clone();
        SoftwareFingerprint { profiler, environment, ..self.locations.read_software(&self.packages) }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct SoftwareLocations {
    /// `ASCEND_HOME_PATH`: the folder of a CANN version, mostly a link named `latest`.
    pub(crate) cann: Option<PathBuf>,
    pub(crate) driver_root: PathBuf,
}

impl SoftwareLocations {
    pub(crate) fn of_host(variable: impl Fn(&str) -> Option<String>) -> Self {
        let recorded = IniFile::read(Path::new(DRIVER_INSTALLATION));
        let recorded = recorded.as_ref().and_then(|file| file.value("", "Driver_Install_Path_Param"));
        Self {
            cann: variable("ASCEND_HOME_PATH").map(PathBuf::from),
            driver_root: recorded.unwrap_or(ASCEND_ROOT).into(),
        }
    }

    pub(crate) fn read_software(&self, packages: &[CustomOperators]) -> SoftwareFingerprint {
        let cann = self.cann.as_deref();
        let toolkit = cann.and_then(|home| read_below(home, "ascend_toolkit_install.info"));
        let toolkit = |key: &str| Some(toolkit.as_ref()?.value("", key)?.to_owned());
        let mut custom_operators: Vec<String> = packages.iter().map(package_fingerprint).collect();
        custom_operators.sort();
        SoftwareFingerprint {
            cann: toolkit("version").or_else(|| configured_version(cann?)),
            cann_build: toolkit("innerversion"),
            cann_operators: cann.and_then(operators_version),
            driver: package_version(&self.driver_root.join("driver")),
            firmware: package_version(&self.driver_root.join("firmware")),
            custom_operators,
            ..SoftwareFingerprint::default()
        }
    }
}

/// Reads a file of a CANN folder. It is in the folder of an architecture, such as `aarch64-linux`.
fn read_below(home: &Path, name: &str) -> Option<IniFile> {
    let architecture = format!("{}-linux", std::env::consts::ARCH);
    let folders =
        [home.join(architecture), home.join("aarch64-linux"), home.join("x86_64-linux"), home.into()];
    folders.iter().find_map(|folder| IniFile::read(&folder.join(name)))
}

/// Reads `version.cfg`: `toolkit_running_version=[7.7.0.1.238:8.1.RC1]` is version 8.1.RC1.
fn configured_version(home: &Path) -> Option<String> {
    let file = IniFile::read(&home.join("version.cfg"))?;
    let value = ["toolkit", "runtime", "compiler"]
        .iter()
        .find_map(|package| file.value("", &format!("{package}_running_version")))?;
    let version = value.trim_matches(['[', ']']);
    Some(version.rsplit_once(':').map_or(version, |(_, version)| version).to_owned())
}

/// Reads the version of CANN's operators, which are a package of their own: `ascend_ops_install.info` since 8.5, before
/// `opp_kernel/version.info`.
fn operators_version(home: &Path) -> Option<String> {
    let recent = read_below(home, "ascend_ops_install.info");
    if let Some(version) = recent.as_ref().and_then(|file| file.value("", "version")) {
        return Some(version.to_owned());
    }
    let older = IniFile::read(&home.join("opp_kernel").join("version.info"))?;
    Some(older.value("", "Version")?.to_owned())
}

/// Reads the `version.info` of driver or firmware. For the firmware, `Version` is the version of its image, and
/// `package_version` the version of the package with which it was installed; old packages have only `Version`.
fn package_version(folder: &Path) -> Option<String> {
    let file = IniFile::read(&folder.join("version.info"))?;
    Some(file.value("", "Version").or_else(|| file.value("", "package_version"))?.to_owned())
}

/// Returns name and digest of a package of custom operators. The digest covers the names and sizes of its files and the
/// bytes of its `op_api` libraries, but not its place.
fn package_fingerprint(package: &CustomOperators) -> String {
    let name = package.folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut files = Vec::new();
    let digest = list_files(&package.folder, &mut files).and_then(|()| digest_files(&package.folder, files));
    digest.map_or_else(|_| format!("{name} (unreadable)"), |digest| format!("{name} {digest}"))
}

fn list_files(folder: &Path, files: &mut Vec<(PathBuf, u64)>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            list_files(&entry.path(), files)?;
        } else if files.len() < MAX_FILES {
            files.push((entry.path(), fs::metadata(entry.path()).map_or(0, |metadata| metadata.len())));
        }
    }
    Ok(())
}

fn digest_files(folder: &Path, mut files: Vec<(PathBuf, u64)>) -> io::Result<String> {
    files.sort();
    let mut digest = Sha256::new();
    for (path, size) in files {
        let place = path.strip_prefix(folder).unwrap_or(&path);
        digest.update(format!("{}\n{size}\n", place.to_string_lossy()));
        let is_library = path.extension().is_some_and(|extension| extension == "so");
        if is_library && place.starts_with("op_api") {
            digest.update(file_digest(&path)?);
        }
    }
    Ok(digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect())
}

const OPP: &str = "ASCEND_CUSTOM_OPP_PATH";
const LIBRARIES: &str = "LD_LIBRARY_PATH";

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CustomOperators {
    pub(crate) folder: PathBuf,
    /// True if CANN finds it without further variables.
    pub(crate) is_set: bool,
}

/// Finds packages named by the environment, packages in the `vendors` folder of CANN, which CANN finds by itself, and
/// packages in `_cann_ops_custom/vendors` of Python packages. `variable` returns the value of a variable.
pub(crate) fn custom_operators(
    variable: impl Fn(&str) -> Option<String>,
    python_packages: &[PathBuf],
) -> Vec<CustomOperators> {
    let mut found: Vec<CustomOperators> = Vec::new();
    let mut add = |folder: PathBuf, is_set: bool| {
        let is_new = !found.iter().any(|known| known.folder == folder);
        if is_new && folder.join("op_api").is_dir() {
            found.push(CustomOperators { folder, is_set });
        }
    };
    for folder in variable(OPP).unwrap_or_default().split(':').filter(|folder| !folder.is_empty()) {
        add(PathBuf::from(folder), true);
    }
    if let Some(opp) = variable("ASCEND_OPP_PATH") {
        vendor_folders(&Path::new(&opp).join("vendors")).into_iter().for_each(|folder| add(folder, true));
    }
    for package in python_packages {
        let folder = package.join("_cann_ops_custom").join("vendors");
        vendor_folders(&folder).into_iter().for_each(|folder| add(folder, false));
    }
    found
}

fn vendor_folders(folder: &Path) -> Vec<PathBuf> {
    named_entries(folder, "", "").unwrap_or_default().into_iter().filter(|path| path.is_dir()).collect()
}

/// Returns the variables for packages that the environment does not name; existing values are kept after them.
pub(crate) fn operator_environment(
    packages: &[CustomOperators],
    variable: impl Fn(&str) -> Option<String>,
) -> Vec<(String, String)> {
    let unset: Vec<&Path> =
        packages.iter().filter(|package| !package.is_set).map(|package| package.folder.as_path()).collect();
    if unset.is_empty() {
        return Vec::new();
    }
    let joined = |name: &str, folders: Vec<PathBuf>| {
        let own = variable(name).unwrap_or_default();
        let folders = folders.into_iter().map(|folder| folder.to_string_lossy().into_owned());
        let all: Vec<String> = folders.chain([own]).filter(|folder| !folder.is_empty()).collect();
        (name.to_owned(), all.join(":"))
    };
    vec![
        joined(OPP, unset.iter().map(|folder| folder.to_path_buf()).collect()),
        joined(LIBRARIES, unset.iter().map(|folder| folder.join("op_api").join("lib")).collect()),
    ]
}

/// Cores, clock and cache of a chip in `data/platform_config/<SoC>.ini` of an installed CANN.
///
/// Keys as of CANN 8.1: `[SoCInfo]` has `ai_core_cnt`, `cube_core_cnt` (not for chips whose AI cores have both units),
/// `vector_core_cnt`, `l2_size` and `memory_size` in bytes; `[AICoreSpec]` has `cube_freq` in MHz. Memory is not read: for some chips with 64 GiB the file has 32.
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
        let folders = named_entries(cann, "", "").unwrap_or_default().into_iter().chain([cann.to_owned()]);
        let files = folders.into_iter().find_map(|folder| {
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

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().expect("a parent")).expect("created");
        fs::write(path, text).expect("written");
    }

    fn software(root: &Path) -> SoftwareFingerprint {
        let locations = SoftwareLocations { cann: Some(root.join("latest")), driver_root: root.to_owned() };
        locations.read_software(&[])
    }

    #[test]
    fn versions_are_read_from_the_files_of_an_installation() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        assert!(software(root).is_unknown());
        write(
            &root.join("latest/version.cfg"),
            "# version: 1.0\nruntime_running_version=[7.7.0.1.9:8.2.RC9]\ntoolkit_running_version=[7.7.0.1.9:8.2.RC9]\n",
        );
        assert_eq!(software(root).cann.as_deref(), Some("8.2.RC9"));
        let installed =
            "package_name=Ascend-cann-toolkit\nversion=8.2.RC1\ninnerversion=V100R001C22SPC001B9\n";
        write(&root.join("latest/aarch64-linux/ascend_toolkit_install.info"), installed);
        write(&root.join("latest/opp_kernel/version.info"), "Version=7.7.0.1.9\nversion_dir=8.2.RC1\n");
        write(&root.join("driver/version.info"), "Version=25.0.rc9\nascendhal_version=7.35.23\n");
        write(&root.join("firmware/version.info"), "Version=7.7.0.1.9\nfirmware_version=1.0\n");
        let known = |text: &str| Some(text.to_owned());
        let expected = SoftwareFingerprint {
            cann: known("8.2.RC1"),
            cann_build: known("V100R001C22SPC001B9"),
            cann_operators: known("7.7.0.1.9"),
            driver: known("25.0.rc9"),
            firmware: known("7.7.0.1.9"),
            ..SoftwareFingerprint::default()
        };
        assert_eq!(software(root), expected);
        write(&root.join("latest/aarch64-linux/ascend_ops_install.info"), "version=8.5.0\n");
        assert_eq!(software(root).cann_operators.as_deref(), Some("8.5.0"));
    }

    #[test]
    fn custom_operators_are_identified_by_content_and_not_by_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let package = |place: &str, library: &str| {
            let package = folder.path().join(place).join("vendors/customize");
            write(&package.join("op_api/lib/libcust_opapi.so"), library);
            write(&package.join("op_impl/ai_core/kernel.o"), "code");
            package_fingerprint(&CustomOperators { folder: package, is_set: true })
        };
        let first = package("a", "one");
        assert!(first.starts_with("customize ") && first.len() == "customize ".len() + 16, "{first}");
        assert_eq!(package("b", "one"), first);
        assert_ne!(package("c", "two"), first, "a library of the same size");
        let gone = CustomOperators { folder: folder.path().join("gone"), is_set: true };
        assert_eq!(package_fingerprint(&gone), "gone (unreadable)");
    }
}

#[cfg(test)]
mod operator_tests {
    use super::*;

    #[test]
    fn each_package_is_found_and_named_once() {
        let root = tempfile::tempdir().expect("a folder");
        let package = |name: &str| {
            let folder = root.path().join(name);
            fs::create_dir_all(folder.join("op_api").join("lib")).expect("made");
            folder
        };
        let set = package("set");
        let vendor = package("opp/vendors/customize");
        let in_package = package("vllm_ascend/_cann_ops_custom/vendors/vllm-ascend");
        fs::create_dir_all(root.path().join("opp/vendors/empty")).expect("made");
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let variable = |name: &str| match name {
            "ASCEND_CUSTOM_OPP_PATH" => Some(format!("{}:/no/such/folder", text(&set))),
            "ASCEND_OPP_PATH" => Some(text(&root.path().join("opp"))),
            "LD_LIBRARY_PATH" => Some("/usr/lib".to_owned()),
            _ => None,
        };
        let found = custom_operators(variable, &[root.path().join("vllm_ascend")]);
        let of = |folder: &PathBuf, is_set| CustomOperators { folder: folder.clone(), is_set };
        assert_eq!(found, [of(&set, true), of(&vendor, true), of(&in_package, false)]);
        let environment = operator_environment(&found, variable);
        assert_eq!(environment[0].1, format!("{}:{}:/no/such/folder", text(&in_package), text(&set)));
        assert_eq!(environment[1].1, format!("{}/op_api/lib:/usr/lib", text(&in_package)));
        assert!(operator_environment(&found[..2], variable).is_empty(), "no package is missing");
    }
}

#[cfg(test)]
mod platform_tests {
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
