//! Errors as a person reads them.

use std::fmt;

use crate::{
    config::{AssetError, YamlError},
    database::StoreError,
    device::DeviceError,
    domain::KernelNameError,
    engine::EngineError,
    exit::ExitStatus,
    grid::MutationCasesError,
    plan::PlanError,
    profile::ProfileError,
    rehearsal::HostError,
    render::RenderError,
    report::TimelineError,
    vendor_check::CheckError,
};

/// What went wrong, what to do, and how the program ends.
#[derive(Debug)]
pub(crate) struct CommandError {
    pub(crate) message: String,
    pub(crate) hint: String,
    pub(crate) exit: ExitStatus,
}

impl CommandError {
    pub(crate) fn bad_input(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into(), exit: ExitStatus::BadInput }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}\nhint: {}", self.message, self.hint)
    }
}

macro_rules! bad_input {
    ($($error:ty),+) => {
        $(impl From<$error> for CommandError {
            fn from(error: $error) -> Self {
                Self::bad_input(error.to_string(), error.hint())
            }
        })+
    };
}

bad_input!(MutationCasesError, ProfileError, StoreError, PlanError, RenderError, TimelineError);

impl From<EngineError> for CommandError {
    fn from(error: EngineError) -> Self {
        Self { message: error.to_string(), hint: error.hint(), exit: error.exit() }
    }
}

impl From<CheckError> for CommandError {
    fn from(error: CheckError) -> Self {
        let exit = match error {
            CheckError::Python { .. } => ExitStatus::CannotMeasure,
            _ => ExitStatus::BadInput,
        };
        Self { message: error.to_string(), hint: error.hint().to_owned(), exit }
    }
}

impl From<YamlError> for CommandError {
    fn from(error: YamlError) -> Self {
        Self::bad_input(error.to_string(), error.hint.clone())
    }
}

impl From<AssetError> for CommandError {
    fn from(error: AssetError) -> Self {
        Self::bad_input(format!("{error}: {}", error.source), "check the folder given with `--assets`")
    }
}

impl From<KernelNameError> for CommandError {
    fn from(error: KernelNameError) -> Self {
        Self::bad_input(
            error.to_string(),
            "give a kernel's name as the profiler shows it, such as `MatMulV2`",
        )
    }
}

impl From<HostError> for CommandError {
    fn from(error: HostError) -> Self {
        Self::bad_input(error.to_string(), "check free space and permissions")
    }
}

impl From<DeviceError> for CommandError {
    fn from(error: DeviceError) -> Self {
        let exit = match error {
            DeviceError::Unknown { .. } => ExitStatus::BadInput,
            _ => ExitStatus::CannotMeasure,
        };
        Self { message: error.to_string(), hint: error.hint().to_owned(), exit }
    }
}
