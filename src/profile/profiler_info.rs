//! `profiler_info*.json` of torch_npu in the folder of a profile.

use super::prelude::*;
use crate::kernel::SoftwareVersions;

#[derive(Default, Deserialize)]
#[serde(default)]
struct ProfilerInfo {
    rank_id: Value,
    cann_version: Option<String>,
    torch_npu_version: Option<String>,
}

impl ProfilerInfo {
    fn in_folder(folder: &Path) -> Option<Self> {
        let files = named_entries(folder, "profiler_info", ".json").ok()?;
        files.iter().find_map(|path| serde_json::from_slice(&read_regular(path, MAX_DOCUMENT).ok()?).ok())
    }
}

/// Returns the software versions of a profile's file; unknown if no `profiler_info*.json` is in its folder or in one
/// of the two above, or if it does not contain them.
pub fn stack_of_profile(file: &Path) -> SoftwareVersions {
    let info = file.ancestors().skip(1).take(3).find_map(ProfilerInfo::in_folder).unwrap_or_default();
    SoftwareVersions { cann: info.cann_version, torch_npu: info.torch_npu_version }
}

/// Returns the rank of a profile's table, which is a number or text. `None` without one, and for -1.
pub(super) fn rank_of_profile(file: &Path) -> Option<String> {
    let info = ProfilerInfo::in_folder(file.parent()?.parent()?)?;
    let rank = info.rank_id.to_string();
    let rank = rank.trim_matches('"');
    (rank != "-1" && rank != "null" && !rank.is_empty()).then(|| format!("rank {rank}"))
}

#[cfg(test)]
mod tests {
    use std::fs;

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
