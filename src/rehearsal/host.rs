//! Installs a rehearsal host into a folder: programs for `PATH`, packages for `PYTHONPATH`, settings.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use super::{
    HostConfig,
    faults::FireCounter,
    software::{cann_home, python_source, software_files},
    variables,
};
use crate::base::command_error::Failure;
use crate::{
    base::{assets::AssetError, yaml::YamlError},
    kernel::{catalogue::Catalogue, device::DeviceProfile, render::shell_quoted},
};

/// The Python packages, by their place below `python/`.
const PYTHON: [(&str, &str); 6] = [
    ("torch/__init__.py", include_str!("python/torch/__init__.py")),
    ("torch/_rehearsal.py", include_str!("python/torch/_rehearsal.py")),
    ("torch/distributed/__init__.py", include_str!("python/torch/distributed/__init__.py")),
    ("torch/distributed/run.py", include_str!("python/torch/distributed/run.py")),
    ("torch_npu/__init__.py", include_str!("python/torch_npu/__init__.py")),
    ("torch_npu/dynamo.py", include_str!("python/torch_npu/dynamo.py")),
];
const PROGRAMS: [&str; 2] = ["msprof", "npu-smi"];
const SETTINGS: &str = "host.json";
/// File of the true medians of the model of durations: case, kernel, microseconds. Nothing that measures reads it.
pub(super) const TRUTH: &str = "truth.csv";

/// Error of installing a rehearsal host, or of starting a stand-in.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The system refused.
    #[error("cannot {action} `{}`: {source}", .path.display())]
    Io {
        /// The operation, as a verb.
        action: &'static str,
        /// File or folder.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// A path that search paths cannot hold.
    #[error("`{}` cannot stand in `PATH`: it has a `:` or is not UTF-8", .0.display())]
    Path(PathBuf),
    /// A stand-in was started without its host.
    #[error("`{}` is not set, so there is no rehearsal host here", variables::HOST)]
    NoHost,
    /// The settings are damaged.
    #[error("`{}` is not a rehearsal host's file: {source}", .file.display())]
    Config {
        /// The file.
        file: PathBuf,
        /// The parser's message.
        #[source]
        source: serde_json::Error,
    },
    /// Catalogue or device profile are wrong.
    #[error(transparent)]
    Spec(#[from] YamlError),
    /// The folder of assets cannot be read.
    #[error(transparent)]
    Assets(#[from] AssetError),
}

impl HostError {
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

impl Failure for HostError {
    fn hint(&self) -> String {
        let hint = match self {
            Self::Io { .. } => "check the folder's permissions and the disk",
            Self::Path(_) => "choose a folder whose path has no `:`",
            Self::NoHost => "start it through the `collect.sh` of a run with `--host rehearsal`",
            Self::Config { .. } => "remove the folder, `npubench run --host rehearsal` makes it anew",
            Self::Spec(error) => &error.hint,
            Self::Assets(error) => return error.hint(),
        };
        hint.to_owned()
    }
}

/// Writes the host into a folder, which is created if necessary. Returns the environment variables of a collection on
/// it; its `PATH` precedes the present one.
pub fn install(folder: &Path, config: &HostConfig) -> Result<Vec<(String, String)>, HostError> {
    let program = std::env::current_exe().map_err(HostError::io("find", Path::new("npubench")))?;
    install_with(&program, folder, config)
}

/// As [`install`], with the program that the wrappers start.
pub(super) fn install_with(
    program: &Path,
    folder: &Path,
    config: &HostConfig,
) -> Result<Vec<(String, String)>, HostError> {
    let profile = DeviceProfile::load(&config.assets()?, &config.device_profile)?;
    fs::create_dir_all(folder).map_err(HostError::io("create", folder))?;
    let folder = folder.canonicalize().map_err(HostError::io("find", folder))?;
    let variable = |name: &str, path: &Path| match path.to_str().filter(|text| !text.contains(':')) {
        Some(text) => Ok((name.to_owned(), text.to_owned())),
        None => Err(HostError::Path(path.to_owned())),
    };
    let (bin, python) = (folder.join("bin"), folder.join("python"));
    let variables = vec![
        variable("PATH", &bin)?,
        variable("PYTHONPATH", &python)?,
        variable(variables::HOST, &folder.join(SETTINGS))?,
        variable("ASCEND_HOME_PATH", &cann_home(&folder))?,
        // Importing the packages must not write into them.
        ("PYTHONDONTWRITEBYTECODE".to_owned(), "1".to_owned()),
    ];
    let program = program.to_str().ok_or_else(|| HostError::Path(program.to_owned()))?;
    let quoted = shell_quoted(program);
    for name in PROGRAMS {
        let script =
            format!("#!/bin/sh\n# Part of a rehearsal host.\nexec {quoted} stand-in {name} \"$@\"\n");
        write(&bin.join(name), &script, 0o755)?;
    }
    for (name, text) in PYTHON {
        write(&python.join(name), &python_source(name, text, &config.faults.software, &profile), 0o644)?;
    }
    for (path, text) in software_files(&folder, &python, &config.faults.software, &profile) {
        write(&path, &text, 0o644)?;
    }
    // Modules that register operators on a device are empty here.
    let catalogue = Catalogue::load(&config.assets()?)?;
    for module in catalogue.entries_with_key("modules").flat_map(|entry| &entry.needs.modules) {
        let call = module.strip_suffix("()").and_then(|call| call.rsplit_once('.'));
        let (module, function) = call.map_or((module.as_str(), None), |(module, name)| (module, Some(name)));
        write_module(&python, module, function)?;
    }
    // Collections append to it; a resumed run has the lines of its first part.
    let truth = folder.join(TRUTH);
    if !truth.exists() {
        write(&truth, "case,kernel,median_us\n", 0o644)?;
    }
    let file = folder.join(SETTINGS);
    let settings = serde_json::to_string_pretty(config)
        .map_err(|source| HostError::Config { file: file.clone(), source })?;
    write(&file, &settings, 0o644)?;
    FireCounter::of_host(&folder)
        .record_start(super::now())
        .map_err(HostError::io("write below", &folder))?;
    Ok(variables)
}

/// Writes an empty module with its packages, and an empty function where the name ends in one.
fn write_module(python: &Path, module: &str, function: Option<&str>) -> Result<(), HostError> {
    let mut folder = python.to_owned();
    for part in module.split('.') {
        folder.push(part);
        let file = folder.join("__init__.py");
        if !file.exists() {
            write(&file, "", 0o644)?;
        }
    }
    let Some(function) = function else { return Ok(()) };
    write(&folder.join("__init__.py"), &format!("def {function}():\n    pass\n"), 0o644)
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), HostError> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(HostError::io("create", folder))?;
    }
    fs::write(path, text).map_err(HostError::io("write", path))?;
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(HostError::io("set the mode of", path))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn wrappers_pass_all_arguments() {
        let folder = tempfile::tempdir().expect("a folder");
        // A program that prints its arguments stands for npubench; its path needs quoting.
        let program = folder.path().join("it's npubench");
        write(&program, "#!/bin/sh\nprintf '%s|' \"$@\"\n", 0o755).expect("written");
        let host = folder.path().join("host");
        let variables = install_with(&program, &host, &HostConfig::default()).expect("installed");
        let (name, bin) = &variables[0];
        assert_eq!(name, "PATH");
        let printed = Command::new(Path::new(bin).join("msprof")).args(["--output=a b", "$x"]).output();
        let printed = printed.expect("the wrapper runs").stdout;
        assert_eq!(String::from_utf8_lossy(&printed), "stand-in|msprof|--output=a b|$x|");
    }

    #[test]
    fn settings_parse_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = HostConfig { seed: u64::MAX, devices: 3, ..HostConfig::default() };
        let variables = install_with(Path::new("/x"), folder.path(), &config).expect("installed");
        let file = variables.iter().find(|(name, _)| name == variables::HOST).expect("is set");
        assert_eq!(HostConfig::read(Path::new(&file.1)).expect("readable"), config);
        install_with(Path::new("/x"), folder.path(), &config).expect("installing twice is fine");
    }

    #[test]
    fn invalid_hosts_are_refused_at_installation() {
        let folder = tempfile::tempdir().expect("a folder");
        let colon = folder.path().join("a:b");
        let error = install_with(Path::new("/x"), &colon, &HostConfig::default()).expect_err("a colon");
        assert!(error.to_string().contains("a:b"), "{error}");
        let config = HostConfig { device_profile: "ATLAS".to_owned(), ..HostConfig::default() };
        let error = install_with(Path::new("/x"), folder.path(), &config).expect_err("no such profile");
        assert!(error.hint().contains("ATLAS_800_A3"), "{}", error.hint());
    }
}
