//! Software versions of a profile, from the `profiler_info*.json` beside it.

use std::{fs, path::Path};

use serde::Deserialize;

use crate::{base::files::read_regular, kernel::SoftwareVersions};

/// Returns the software versions of a profile's file; unknown if no `profiler_info*.json` is in its folder or in one
/// of the two above, or if it does not contain them.
pub fn stack_of_profile(file: &Path) -> SoftwareVersions {
    file.ancestors().skip(1).take(3).find_map(in_folder).unwrap_or_default()
}

fn in_folder(folder: &Path) -> Option<SoftwareVersions> {
    #[derive(Deserialize)]
    struct ProfileInfo {
        cann_version: Option<String>,
        torch_npu_version: Option<String>,
    }
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let mut names: Vec<_> = fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    names.sort();
    names.iter().find_map(|path| {
        let name = path.file_name()?.to_string_lossy();
        let is_info = name.starts_with("profiler_info") && name.ends_with(".json");
        let info: ProfileInfo = is_info.then(|| serde_json::from_slice(&read_regular(path).ok()?).ok())??;
        Some(SoftwareVersions { cann: info.cann_version, torch_npu: info.torch_npu_version })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_versions_are_found_beside_or_above_profile() {
        let folder = tempfile::tempdir().expect("a folder");
        let output = folder.path().join("x_ascend_pt/ASCEND_PROFILER_OUTPUT");
        fs::create_dir_all(&output).expect("created");
        let info = folder.path().join("x_ascend_pt/profiler_info_0.json");
        fs::write(&info, r#"{"rank_id": 0, "cann_version": "8.3.RC1", "torch_npu_version": "2.7.1"}"#)
            .expect("written");
        assert_eq!(
            stack_of_profile(&output.join("kernel_details.csv")).to_string(),
            "CANN 8.3.RC1, torch_npu 2.7.1"
        );
        fs::write(&info, "{").expect("written");
        assert!(stack_of_profile(&output.join("kernel_details.csv")).is_unknown());
    }
}
