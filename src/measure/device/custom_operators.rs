//! Packages of operators that are not part of CANN, and the environment variables with which programs find them.

use std::{
    fs,
    path::{Path, PathBuf},
};

const OPP: &str = "ASCEND_CUSTOM_OPP_PATH";
const LIBRARIES: &str = "LD_LIBRARY_PATH";

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CustomOperators {
    /// Folder that contains `op_api`.
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
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
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

#[cfg(test)]
mod tests {
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
