//! Environment variables and settings of torch_npu that change the results of a collection. Each has one value, which
//! does not depend on the shell that starts the run.

use std::{collections::BTreeMap, iter};

use serde::{Deserialize, Serialize};

use crate::kernel::unset_hccl_variables;

/// Name, value and reason. A switch has the name of its attribute below `torch.npu`, or of the argument of `set_compile_mode`, and
/// the value `true` or `false`; a variable without a value must not be set.
type PinnedSetting = (&'static str, Option<&'static str>, &'static str);

/// Variables of torch_npu, of CANN's runtime and of HCCL. Names, defaults and effects are those of the vendor's
/// references of environment variables; docs/runs.md has the same table.
pub(crate) const PINNED_VARIABLES: [PinnedSetting; 11] = [
    (
        "TASK_QUEUE_ENABLE",
        Some("1"),
        "the default; with 2, errors of a call and its workspace memory arise in another thread, and the error \
         is raised at the next synchronize",
    ),
    (
        "TORCH_NPU_COMPACT_ERROR_OUTPUT",
        Some("0"),
        "the default; with 1, error messages have no error code, which distinguishes faults of the device from \
         wrong calls",
    ),
    (
        "HCCL_BUFFSIZE",
        Some("200"),
        "the default, in MB; kernels that communicate exchange data in this buffer",
    ),
    ("AUTO_USE_UC_MEMORY", Some("1"), "the default; with 0, all moves of data pass the L2 cache"),
    ("CLOSE_MATMUL_K_SHIFT", None, "with 1, products have another tiling"),
    ("COMBINED_ENABLE", None, "pairs of copies of views run as other kernels"),
    ("TORCH_NPU_USE_COMPATIBLE_IMPL", None, "GELU, matmul and max-pooling run as other operators"),
    ("TORCH_NPU_LEGACY_IMPL_LIST", None, "random numbers come from earlier operators"),
    ("PER_STREAM_QUEUE", None, "a task queue for each stream changes the gaps between launches"),
    ("TORCH_NPU_LAZY_FUSION", None, "fuses adjacent small operators, also the sentinels, into other kernels"),
    (
        "ASCEND_LAUNCH_BLOCKING",
        None,
        "waits after each launch and disables the task queue, which changes the gaps between launches",
    ),
];

/// Switches of torch_npu, which the replay script sets after it has opened its device. The values are its defaults,
/// with which inference engines run.
pub(crate) const PINNED_SWITCHES: [PinnedSetting; 3] = [
    ("matmul.allow_hf32", Some("false"), "the default; products of FLOAT in HF32 take half the time"),
    ("conv.allow_hf32", Some("true"), "the default; convolutions of FLOAT in HF32 take half the time"),
    (
        "jit_compile",
        Some("false"),
        "kernels of the installed binaries, instead of kernels compiled for each shape",
    ),
];

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedEnvironment {
    pub(crate) variables: BTreeMap<String, Option<String>>,
    pub(crate) switches: BTreeMap<String, bool>,
}

impl Default for PinnedEnvironment {
    fn default() -> Self {
        let variable = |(name, value, _): PinnedSetting| (name.to_owned(), value.map(str::to_owned));
        Self {
            variables: PINNED_VARIABLES.map(variable).into(),
            switches: PINNED_SWITCHES.map(|(name, value, _)| (name.to_owned(), value == Some("true"))).into(),
        }
    }
}

impl PinnedEnvironment {
    pub(crate) fn values(&self) -> BTreeMap<String, String> {
        let variables =
            self.variables.iter().filter_map(|(name, value)| Some((name.clone(), value.clone()?)));
        let switches = self.switches.iter().map(|(name, value)| (name.clone(), value.to_string()));
        variables.chain(switches).collect()
    }

    pub(super) fn shell_lines(&self) -> Vec<String> {
        let line = |(name, value): (&String, &Option<String>)| match value {
            Some(value) => format!("export {name}={}", super::shell_quoted(value)),
            None => format!("unset {name}"),
        };
        iter::once(unset_hccl_variables()).chain(self.variables.iter().map(line)).collect()
    }
}

/// Returns a sentence for each variable of the user's environment that differs from its pinned value.
pub(crate) fn overridden_variables(variable: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let overridden = PINNED_VARIABLES.into_iter().filter_map(|(name, value, reason)| {
        let own = variable(name)?;
        let is_same = match value {
            Some(value) => own == value,
            // The values with which these variables have no effect.
            None => own.is_empty() || own == "0" || own.eq_ignore_ascii_case("false"),
        };
        let used = value.map_or_else(|| "it is unset".to_owned(), |value| format!("it is {value}"));
        (!is_same).then(|| format!("{name}={own} of your environment is not used, {used}: {reason}"))
    });
    overridden.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_variables_with_another_effect_are_reported() {
        let variable = |name: &str| match name {
            "TASK_QUEUE_ENABLE" => Some("2".to_owned()),
            "TORCH_NPU_COMPACT_ERROR_OUTPUT" => Some("0".to_owned()),
            "TORCH_NPU_LAZY_FUSION" => Some("False".to_owned()),
            "ASCEND_LAUNCH_BLOCKING" => Some("1".to_owned()),
            _ => None,
        };
        let found = overridden_variables(variable);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("TASK_QUEUE_ENABLE=2 of your environment is not used, it is 1:"));
        assert!(
            found[1].starts_with("ASCEND_LAUNCH_BLOCKING=1 of your environment is not used, it is unset:")
        );
    }

    /// The table in docs/runs.md has a line for each variable and switch, with its value.
    #[test]
    fn documentation_lists_every_pinned_setting() {
        let text = include_str!("../../../docs/runs.md");
        for (name, value, reason) in PINNED_VARIABLES.iter().chain(&PINNED_SWITCHES) {
            let line = format!("| `{name}` | {} | {reason} |", value.unwrap_or("not set"));
            assert!(text.contains(&line), "docs/runs.md lacks `{line}`");
        }
    }
}
