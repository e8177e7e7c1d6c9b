//! Queries of a Python installation: versions, operator schemas and package folders.

use std::{collections::BTreeMap, fmt, path::PathBuf, sync::atomic::AtomicBool};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::json;

use super::{not_run, unusable_python};
use crate::{
    base::{
        command_error::CommandError,
        files::ScratchFolder,
        print::print_note,
        process::{self, CommandSpec, ExitKind, Question, last_line},
    },
    kernel::LogicalDeviceId,
};

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct CheckSoftware {
    pub torch: String,
    pub torch_npu: String,
    #[serde(default)]
    pub further: BTreeMap<String, String>,
}

/// `torch 2.9.0, torch_npu 2.9.0.post9`.
impl fmt::Display for CheckSoftware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "torch {}, torch_npu {}", self.torch, self.torch_npu)?;
        self.further.iter().try_for_each(|(name, version)| write!(f, ", {name} {version}"))
    }
}

/// Start of a script that is killed when the thread that started it ends, such as with a killed npubench: importing torch
/// takes seconds, in which nothing else can end it. 1 is `PR_SET_PDEATHSIG` of prctl(2), 9 is SIGKILL.
pub(super) const END_WITH_PARENT: &str =
    "try:\n    import ctypes\n    ctypes.CDLL(None).prctl(1, 9)\nexcept Exception:\n    pass\n";

/// Script that prints the versions without importing the packages, which would take seconds.
const VERSIONS_SCRIPT: &str = "
import json
from importlib.metadata import PackageNotFoundError, version
def optional(name):
    try: return {name: version(name)}
    except PackageNotFoundError: return {}
versions = {name: version(name) for name in ('torch', 'torch_npu')}
print(json.dumps(dict(versions, further=optional('vllm_ascend'))))";

/// Returns the versions of torch, torch_npu and packages with further operators. Fails if torch or
/// torch_npu is missing.
pub(crate) fn installed_software(python: &str) -> Result<CheckSoftware, CommandError> {
    query_python(python, VERSIONS_SCRIPT, &[], Question::Simple)
}

pub(crate) fn installed_torch(python: &str) -> Result<String, CommandError> {
    let script = "import json\nfrom importlib.metadata import version\nprint(json.dumps(version('torch')))";
    query_python(python, script, &[], Question::Simple)
}

const SCHEMAS_SCRIPT: &str = "import json, sys, torch, torch_npu\n\
    schemas = torch._C._jit_get_all_schemas()\n\
    print(json.dumps([str(s) for s in schemas if s.name.split('::')[-1] == NAME]))";

/// Returns the schemas of the operators of a name, as PyTorch prints them. Importing torch_npu takes seconds.
pub(crate) fn operator_schemas(python: &str, function: &str) -> Result<Vec<String>, CommandError> {
    let script = format!("NAME = {}\n{SCHEMAS_SCRIPT}", json!(function));
    query_python(python, &script, &[], Question::Import)
}

/// Returns the folders of an installed Python package; none if it is not installed. Prints a note if that cannot be found
/// out.
pub(crate) fn package_folders(python: &str, package: &str) -> Vec<PathBuf> {
    let script = format!(
        "import importlib.util, json\nspec = importlib.util.find_spec({})\n\
         print(json.dumps(list(spec.submodule_search_locations or []) if spec else []))",
        json!(package)
    );
    query_python(python, &script, &[], Question::Simple).unwrap_or_else(|error| {
        print_note(&format!("custom operators of {package} are not looked for: {}", error.message));
        Vec::new()
    })
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct TorchDevices {
    pub(crate) count: u32,
    /// The first of the given devices that can be used, or the last line of the error of the last one.
    pub(crate) usable: Result<Option<LogicalDeviceId>, String>,
}

const DEVICES_SCRIPT: &str = "import json, torch, torch_npu
usable = {'Ok': None}
for index in INDICES:
    try:
        torch.npu.set_device(index)
        torch.npu.synchronize()
        usable = {'Ok': index}
        break
    except Exception as error:
        usable = {'Err': ' '.join((str(error) or repr(error)).split())[:400]}
print(json.dumps({'count': torch.npu.device_count(), 'usable': usable}))";

/// Returns the number of devices that torch counts in this environment, and the first of some devices that it can use.
/// Importing torch_npu takes seconds.
pub(crate) fn torch_devices(
    python: &str,
    environment: &[(String, String)],
    devices: &[LogicalDeviceId],
) -> Result<TorchDevices, CommandError> {
    let script = format!("INDICES = {}\n{DEVICES_SCRIPT}", json!(devices));
    query_python(python, &script, environment, Question::Import)
}

/// Imports torch.distributed with gloo; the error names the Python and the reason.
pub(crate) fn require_gloo(python: &str) -> Result<(), CommandError> {
    let script =
        "import json, torch.distributed as d; print(json.dumps(d.is_available() and d.is_gloo_available()))";
    match query_python(python, script, &[], Question::Import)? {
        true => Ok(()),
        false => Err(unusable_python(python, "its torch has no gloo")),
    }
}

/// Returns the SoC name of the first device by torch_npu, such as `Ascend910_9391`. Importing torch_npu takes seconds.
pub(crate) fn first_device_soc(
    python: &str,
    environment: &[(String, String)],
) -> Result<String, CommandError> {
    let script = "import json, torch, torch_npu; print(json.dumps(torch.npu.get_device_name(0)))";
    query_python(python, script, environment, Question::Import)
}

/// Runs a Python script with variables in addition to the environment of this process, except for `PATH`, and parses the
/// last line that is JSON of this form: torch_npu may print warnings when it is finalised.
fn query_python<T: DeserializeOwned>(
    python: &str,
    script: &str,
    variables: &[(String, String)],
    question: Question,
) -> Result<T, CommandError> {
    let folder = ScratchFolder::create()
        .map_err(|error| unusable_python(python, &format!("cannot create a temporary folder: {error}")))?;
    let log = folder.path().join("log");
    let mut environment: Vec<(String, String)> =
        variables.iter().filter(|(name, _)| name != "PATH").cloned().collect();
    environment.push(("TORCH_DEVICE_BACKEND_AUTOLOAD".to_owned(), "0".to_owned()));
    let job = CommandSpec {
        environment: &environment,
        ..CommandSpec::query(
            vec![python.into(), "-c".into(), format!("{END_WITH_PARENT}{script}").into()],
            folder.path(),
            &log,
            question,
        )
    };
    let (exit, output) =
        process::read_query(&job, &AtomicBool::new(false)).map_err(|error| not_run(&error))?;
    let found = output.lines().rev().find_map(|line| serde_json::from_str(line).ok());
    found.filter(|_| exit == ExitKind::Exited(0)).ok_or_else(|| match question {
        Question::Import if exit.is_hung() => {
            unusable_python(python, &format!("the import of torch_npu {}", exit.problem(&job)))
        }
        _ if exit.is_hung() => unusable_python(python, &format!("it {}", exit.problem(&job))),
        _ => unusable_python(python, last_line(&output)),
    })
}
