//! Software of a host that is read from files: CANN, driver, firmware and packages of custom operators.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

use super::CustomOperators;
use crate::{
    base::{files::read_regular, ini_file::IniFile},
    kernel::SoftwareFingerprint,
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

    /// Reads the versions. A version whose file is missing is unknown.
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

/// Lists the files below a folder with their sizes; links to folders are not followed.
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
            digest.update(read_regular(&path)?);
        }
    }
    Ok(digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect())
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
