//! Software that a rehearsal host pretends to have: files of CANN, driver and firmware as their installers write them,
//! and the versions of the Python packages. A fault plan sets the versions.

use std::path::{Path, PathBuf};

use crate::{kernel::device::DeviceProfile, rehearsal::fault_plan::StandInSoftware};

const VERSION_IN_SOURCE: &str = "0+rehearsal";
const SOC_IN_SOURCE: &str = "SoC of the rehearsal host";

/// Folder of a rehearsal host that corresponds to `/usr/local/Ascend`.
pub(crate) fn ascend_root(host: &Path) -> PathBuf {
    host.join("Ascend")
}

pub(super) fn cann_home(host: &Path) -> PathBuf {
    ascend_root(host).join("ascend-toolkit").join("latest")
}

pub(super) fn soc_name(profile: &DeviceProfile) -> &str {
    profile.first_soc().unwrap_or("Ascend910")
}

/// Returns path and text of the files of CANN, driver and firmware, and of the metadata of an installed vllm_ascend.
/// The values of the chip are taken from the device profile.
pub(super) fn software_files(
    host: &Path,
    python: &Path,
    software: &StandInSoftware,
    profile: &DeviceProfile,
) -> Vec<(PathBuf, String)> {
    let StandInSoftware { cann, driver, firmware, torch: _, torch_npu: _, vllm_ascend } = software;
    let architecture = std::env::consts::ARCH;
    let toolkit = format!(
        "package_name=Ascend-cann-toolkit\nversion={cann}\narch={architecture}\nos=linux\n\
         path=/usr/local/Ascend/ascend-toolkit/{cann}/{architecture}-linux\n"
    );
    let folder = cann_home(host).join(format!("{architecture}-linux"));
    let mut files = vec![(folder.join("ascend_toolkit_install.info"), toolkit)];
    // Cores and clock in the format of CANN 8.1, for the values that npubench reads.
    let platform = format!(
        "# [Platform Info configuration begin]\n#***\n#\n[version]\nSoC_version={soc}\n\n[SoCInfo]\nai_core_cnt={cube}\n\
         cube_core_cnt={cube}\nvector_core_cnt={vector}\nmemory_type=\nmemory_size={memory}\nl2_type=0\n\
         l2_size={l2}\n\n[AICoreSpec]\ncube_freq={clock}\n",
        soc = soc_name(profile),
        cube = profile.cube_cores,
        vector = profile.vector_cores,
        memory = profile.hbm_bytes(),
        l2 = profile.l2_mib << 20,
        clock = profile.clock_mhz,
    );
    let platform_config = folder.join("data").join("platform_config");
    files.push((platform_config.join(format!("{}.ini", soc_name(profile))), platform));
    for (package, version) in [("driver", driver), ("firmware", firmware)] {
        let text = format!("Version={version}\npackage_version={version}\n");
        files.push((ascend_root(host).join(package).join("version.info"), text));
    }
    files.extend(vllm_ascend.as_ref().map(|version| {
        let metadata = format!("Metadata-Version: 2.1\nName: vllm_ascend\nVersion: {version}\n");
        (python.join(format!("vllm_ascend-{version}.dist-info")).join("METADATA"), metadata)
    }));
    files
}

pub(super) fn python_source(
    path: &Path,
    source: &str,
    software: &StandInSoftware,
    profile: &DeviceProfile,
) -> String {
    let version = if path.starts_with("torch_npu") { &software.torch_npu } else { &software.torch };
    source.replace(VERSION_IN_SOURCE, version).replace(SOC_IN_SOURCE, soc_name(profile))
}
