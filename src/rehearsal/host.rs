//! Installs a rehearsal host into a folder: programs for `PATH`, packages for `PYTHONPATH`, settings.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use include_dir::{Dir, include_dir};
use serde::Serialize;

use super::{
    DEVICES, HOST_VARIABLE, HostConfig,
    fault_plan::HostDefect,
    software::{cann_home, python_source, software_files},
};
use crate::{
    base::command_error::CommandError,
    kernel::{catalogue::Catalogue, device::DeviceProfile, render::shell_quoted},
};

static PYTHON: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/src/rehearsal/python");
/// Programs, and the modules of the package `rehearsal` that they run.
const PROGRAMS: [(&str, &str); 2] = [("msprof", "msprof"), ("npu-smi", "npu_smi")];
const SETTINGS: &str = "host.json";
/// Path of the interpreter that the first of the stand-ins ran on.
const INTERPRETER: &str = "interpreter";
/// File with a text while npu-smi runs, on a host whose kernels are slower then.
const QUERIED: &str = "queried";
/// File of the true medians of the model of durations: case, kernel, microseconds. Nothing that measures reads it.
const TRUTH: &str = "truth.csv";

/// Folder of the faults that have fired, and its file with the start time of the host.
const FAULTS: &str = "faults";
const STARTED: &str = "started";
/// Runs a module of the folder that is the first argument, without the packages and variables of other programs.
const RUN_MODULE: &str =
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from rehearsal.MODULE import main; sys.exit(main())";

#[derive(Serialize)]
struct Settings<'a> {
    #[serde(flatten)]
    config: &'a HostConfig,
    devices: u32,
    profile: &'a DeviceProfile,
    /// npubench, which knows the catalogue.
    program: &'a str,
    version: &'a str,
}

pub(super) fn io_error(action: &str, path: &Path) -> impl FnOnce(io::Error) -> CommandError + use<> {
    CommandError::io(action, path, "check the folder's permissions and the disk")
}

/// Returns a variable with a path that can stand in search paths.
fn variable(name: &str, path: &Path) -> Result<(String, String), CommandError> {
    let text = path.to_str().filter(|text| !text.contains(':')).ok_or_else(|| {
        CommandError::bad_input(
            format!("`{}` cannot stand in `PATH`: it has a `:` or is not UTF-8", path.display()),
            "choose a folder whose path has no `:`",
        )
    })?;
    Ok((name.to_owned(), text.to_owned()))
}

/// Writes the host into a folder, which is created if necessary. Returns the environment variables of a collection on
/// it; its `PATH` precedes the present one.
pub(crate) fn install(folder: &Path, config: &HostConfig) -> Result<Vec<(String, String)>, CommandError> {
    let program = std::env::current_exe().map_err(io_error("find", Path::new("npubench")))?;
    let profile = DeviceProfile::load(&config.assets()?, &config.device_profile)?;
    fs::create_dir_all(folder).map_err(io_error("create", folder))?;
    let folder = folder.canonicalize().map_err(io_error("find", folder))?;
    let (bin, python) = (folder.join("bin"), folder.join("python"));
    let variables = vec![
        variable("PATH", &bin)?,
        variable("PYTHONPATH", &python)?,
        variable(HOST_VARIABLE, &folder.join(SETTINGS))?,
        variable("ASCEND_HOME_PATH", &cann_home(&folder))?,
        // The packages of the host are compiled once.
        ("PYTHONDONTWRITEBYTECODE".to_owned(), String::new()),
    ];
    let program = &*program.to_string_lossy();
    for (name, module) in PROGRAMS {
        let run = shell_quoted(&RUN_MODULE.replace("MODULE", module));
        let packages = shell_quoted(&variables[1].1);
        let linked = shell_quoted(&folder.join(INTERPRETER).display().to_string());
        let is_noted = name == "npu-smi" && config.faults.defects.contains(&HostDefect::SlowWhileQueried);
        let noted = shell_quoted(&folder.join(QUERIED).display().to_string());
        let note = if is_noted { format!("echo running >{noted}\n") } else { String::new() };
        let script = format!(
            "#!/bin/sh\n# Part of a rehearsal host.\n{note}python=\n[ ! -r {linked} ] || read -r python <{linked}\n\
             [ -x \"$python\" ] || python=python3\n\
             exec \"$python\" -I -S -c {run} {packages} \"$@\"\n"
        );
        write(&bin.join(name), &script, 0o755)?;
    }
    for source in python_files(&PYTHON) {
        let text = source.contents_utf8().expect("sources are UTF-8");
        let text = python_source(source.path(), text, &config.faults.software, &profile);
        write(&python.join(source.path()), &text, 0o644)?;
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
    let version = env!("CARGO_PKG_VERSION");
    let settings = Settings { config, devices: DEVICES, profile: &profile, program, version };
    let text = serde_json::to_string_pretty(&settings).expect("settings have texts as keys");
    write(&file, &text, 0o644)?;
    // A host installed again in its folder keeps its first start time.
    let started = folder.join(FAULTS).join(STARTED);
    if !started.exists() {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        write(&started, &since.as_nanos().to_string(), 0o644)?;
    }
    Ok(variables)
}

fn python_files(folder: &'static Dir<'static>) -> Vec<&'static include_dir::File<'static>> {
    let below = folder.dirs().flat_map(python_files);
    let files =
        folder.files().filter(|file| file.path().extension().is_some_and(|extension| extension == "py"));
    files.chain(below).collect()
}

fn write_module(python: &Path, module: &str, function: Option<&str>) -> Result<(), CommandError> {
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

fn write(path: &Path, text: &str, mode: u32) -> Result<(), CommandError> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(io_error("create", folder))?;
    }
    fs::write(path, text).map_err(io_error("write", path))?;
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(io_error("set the mode of", path))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn wrappers_pass_all_arguments() {
        let folder = tempfile::tempdir().expect("a folder");
        // A program that prints its arguments stands for Python; its path needs quoting.
        let python = folder.path().join("it's python");
        write(&python, "#!/bin/sh\nshift 5\nprintf '%s|' \"$@\"\n", 0o755).expect("written");
        let host = folder.path().join("host");
        let config = HostConfig::default();
        let variables = install(&host, &config).expect("installed");
        fs::write(host.join(INTERPRETER), format!("{}\n", python.display())).expect("written");
        let (name, bin) = &variables[0];
        assert_eq!(name, "PATH");
        let printed = Command::new(Path::new(bin).join("msprof")).args(["--output=a b", "$x"]).output();
        let printed = printed.expect("the wrapper runs").stdout;
        assert_eq!(String::from_utf8_lossy(&printed), "--output=a b|$x|");
        install(&host, &config).expect("installing twice is fine");
    }

    #[test]
    fn invalid_hosts_are_refused_at_installation() {
        let folder = tempfile::tempdir().expect("a folder");
        let colon = folder.path().join("a:b");
        let error = install(&colon, &HostConfig::default()).expect_err("a colon");
        assert!(error.to_string().contains("a:b"), "{error}");
        let config = HostConfig { device_profile: "ATLAS".to_owned(), ..HostConfig::default() };
        let error = install(folder.path(), &config).expect_err("no such profile");
        assert!(error.hint.contains("ATLAS_800_A3"), "{}", error.hint);
    }
}
