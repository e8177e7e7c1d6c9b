//! Errors as a person reads them.

use std::fmt;

use crate::{
    config::{AssetsError, SpecError},
    database::StoreError,
    device::DeviceError,
    domain::KernelNameError,
    engine::EngineError,
    exit::Exit,
    grid::GrowthError,
    plan::PlanError,
    profile::ProfileError,
    rehearsal::HostError,
    render::RenderError,
    report::TimelineError,
    vendor_check::CheckError,
};

/// What went wrong, what to do, and how the program ends.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) message: String,
    pub(crate) hint: String,
    pub(crate) exit: Exit,
}

impl Failure {
    pub(crate) fn bad_input(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into(), exit: Exit::BadInput }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}\nhint: {}", self.message, self.hint)
    }
}

macro_rules! bad_input {
    ($($error:ty),+) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::bad_input(error.to_string(), error.hint())
            }
        })+
    };
}

bad_input!(GrowthError, ProfileError, StoreError, PlanError, RenderError, TimelineError);

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        Self { message: error.to_string(), hint: error.hint(), exit: error.exit() }
    }
}

impl From<CheckError> for Failure {
    fn from(error: CheckError) -> Self {
        let exit = match error {
            CheckError::Python { .. } => Exit::CannotMeasure,
            _ => Exit::BadInput,
        };
        Self { message: error.to_string(), hint: error.hint().to_owned(), exit }
    }
}

impl From<SpecError> for Failure {
    fn from(error: SpecError) -> Self {
        Self::bad_input(error.to_string(), error.hint.clone())
    }
}

impl From<AssetsError> for Failure {
    fn from(error: AssetsError) -> Self {
        Self::bad_input(format!("{error}: {}", error.source), "check the folder given with `--assets`")
    }
}

impl From<KernelNameError> for Failure {
    fn from(error: KernelNameError) -> Self {
        Self::bad_input(
            error.to_string(),
            "give a kernel's name as the profiler shows it, such as `MatMulV2`",
        )
    }
}

impl From<HostError> for Failure {
    fn from(error: HostError) -> Self {
        Self::bad_input(error.to_string(), "check free space and permissions")
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        let exit = match error {
            DeviceError::Unknown { .. } => Exit::BadInput,
            _ => Exit::CannotMeasure,
        };
        Self { message: error.to_string(), hint: error.hint().to_owned(), exit }
    }
}
