//! Environment variables that change how torch_npu launches and how it reports errors.

use std::collections::BTreeMap;

use super::protocol::{PyError, PyErrorClass};

/// Behaviour of torch_npu by its environment variables. The default is that of torch_npu.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TorchNpuEnvironment {
    /// `TASK_QUEUE_ENABLE=2`: workspace memory is allocated in another thread, whose errors are raised at the next
    /// synchronize.
    pub(super) has_deferred_errors: bool,
    /// `TORCH_NPU_COMPACT_ERROR_OUTPUT=1`: errors of CANN have no code.
    pub(super) has_compact_errors: bool,
    /// `TORCH_NPU_LAZY_FUSION=True`: element-wise operators are fused into kernels of other names.
    pub(super) fuses_elementwise: bool,
}

impl TorchNpuEnvironment {
    pub(super) fn from_variables(variables: &BTreeMap<String, String>) -> Self {
        let value = |name: &str| variables.get(name).map(String::as_str);
        Self {
            has_deferred_errors: value("TASK_QUEUE_ENABLE") == Some("2"),
            has_compact_errors: value("TORCH_NPU_COMPACT_ERROR_OUTPUT") == Some("1"),
            fuses_elementwise: value("TORCH_NPU_LAZY_FUSION") == Some("True"),
        }
    }

    /// Returns an error as torch_npu raises it: with compact output, only the description of an error of CANN is left.
    pub(super) fn raised(self, error: PyError) -> PyError {
        let description = error.message.split_once("[Error]: ").map(|(_, rest)| rest);
        match description {
            Some(description) if self.has_compact_errors && error.class != PyErrorClass::OutOfMemoryError => {
                let text: Vec<&str> = description.split_whitespace().collect();
                PyError::new(error.class, format!("CANN error: {}", text.join(" ")))
            }
            _ => error,
        }
    }
}
