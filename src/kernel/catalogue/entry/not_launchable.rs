//! Files of kernels that no call launches alone: `op_replay/<Kernel>.yaml` with `not_launchable:`, the reason.

use std::path::Path;

use serde::Deserialize;

use super::build::parse_kernel;
use crate::{
    base::{yaml, yaml::YamlError},
    kernel::KernelName,
};

/// A kernel that cannot be replayed, and why.
pub(crate) struct UnlaunchableKernel {
    pub(crate) kernel: KernelName,
    /// Reason, for messages: a part of a sentence.
    pub(crate) reason: String,
    /// Other names of kernels of the same kind, such as the collectives of one library.
    pub(crate) also_named: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawUnlaunchableKernel {
    kernel: String,
    not_launchable: String,
    #[serde(default)]
    also_named: Vec<String>,
}

impl UnlaunchableKernel {
    /// Parses a file with `not_launchable:`; `None` for any other file.
    pub(crate) fn parse(file: &Path, text: &str) -> Result<Option<Self>, YamlError> {
        if !text.lines().any(|line| line.starts_with("not_launchable:")) {
            return Ok(None);
        }
        let raw: RawUnlaunchableKernel = yaml::parse(file, text)?;
        let kernel = parse_kernel(&raw.kernel, file, text)?;
        let reason = raw.not_launchable.trim().to_owned();
        if reason.is_empty() {
            let position = yaml::find_value(text, &["not_launchable"]);
            let hint = "state why no call launches the kernel alone";
            return Err(YamlError::at(file, position, "the reason is empty", hint));
        }
        Ok(Some(Self { kernel, reason, also_named: raw.also_named }))
    }

    /// Returns the names under which the profiler may show the kernel.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.kernel.as_str()).chain(self.also_named.iter().map(String::as_str))
    }
}
