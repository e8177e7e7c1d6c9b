//! What a Python has: asked without importing it, which takes seconds.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
    time::Duration,
};

use serde::Deserialize;

use super::CheckError;
use crate::process::{self, CommandSpec, ExitKind};

/// Versions that a check was made with.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct CheckSoftware {
    /// Of torch.
    pub torch: String,
    /// Of torch_npu.
    pub torch_npu: String,
    /// Of packages that bring further operators, where they are there.
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

const ASK: &str = "
import json
from importlib.metadata import PackageNotFoundError, version
def there(name):
    try: return {name: version(name)}
    except PackageNotFoundError: return {}
told = {name: version(name) for name in ('torch', 'torch_npu')}
print(json.dumps(dict(told, further=there('vllm_ascend'))))";

/// Asks a Python for the versions of torch and torch_npu.
///
/// # Errors
/// [`CheckError::Python`] where one of them is missing.
pub fn software(python: &str) -> Result<CheckSoftware, CheckError> {
    let said = run_python(python, ASK)?;
    serde_json::from_str(&said).map_err(|_| CheckError::Python { python: python.to_owned(), why: said })
}

const ASK_SCHEMAS: &str = "import json, sys, torch, torch_npu\n\
    schemas = torch._C._jit_get_all_schemas()\n\
    print(json.dumps([str(s) for s in schemas if s.name.split('::')[-1] == NAME]))";

/// The schemas of the operators of that name, as PyTorch prints them. Takes the seconds that importing
/// torch_npu takes.
///
/// # Errors
/// [`CheckError::Python`].
pub fn schemas(python: &str, function: &str) -> Result<Vec<String>, CheckError> {
    let name = serde_json::to_string(function).unwrap_or_default();
    let said = run_python(python, &format!("NAME = {name}\n{ASK_SCHEMAS}"))?;
    serde_json::from_str(&said).map_err(|_| CheckError::Python { python: python.to_owned(), why: said })
}

/// Where a package of Python is installed; nowhere if it is not there.
#[must_use]
pub fn package_folders(python: &str, package: &str) -> Vec<PathBuf> {
    let name = serde_json::to_string(package).unwrap_or_default();
    let script = format!(
        "import importlib.util, json\nspec = importlib.util.find_spec({name})\n\
         print(json.dumps(list(spec.submodule_search_locations or []) if spec else []))"
    );
    let said = run_python(python, &script).unwrap_or_default();
    serde_json::from_str(&said).unwrap_or_default()
}

/// Runs a few lines of Python; returns the last line that they print.
fn run_python(python: &str, script: &str) -> Result<String, CheckError> {
    let unusable = |why: String| CheckError::Python { python: python.to_owned(), why };
    let folder =
        tempfile::tempdir().map_err(|error| unusable(format!("there is no temporary folder: {error}")))?;
    let log = folder.path().join("log");
    let environment = [("TORCH_DEVICE_BACKEND_AUTOLOAD".to_owned(), "0".to_owned())];
    let job = CommandSpec {
        command: vec![python.into(), "-c".into(), script.into()],
        folder: folder.path(),
        environment: &environment,
        log: &log,
        limit: Duration::from_secs(180),
        cut_off: None,
        stdin: None,
        record: None,
    };
    let ended = process::run(&job, &AtomicBool::new(false))?;
    let last = last_line(&log);
    if ended == ExitKind::Exited(0) { Ok(last) } else { Err(unusable(last)) }
}

/// The last line of a log that says something, for messages.
pub(super) fn last_line(log: &Path) -> String {
    let said =
        std::fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it says nothing").trim().to_owned()
}
