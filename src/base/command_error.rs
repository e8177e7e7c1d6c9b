//! Errors of commands, with hint and exit status.

use std::fmt;

use crate::base::result_file::ResultFileError;
use crate::{
    answer::{lookup::LookupError, workload::WorkloadError},
    base::{assets::AssetError, exit::ExitStatus, files::FileError, yaml::YamlError},
    cases::{grid::MutationCasesError, plan::PlanError},
    database::{DatabaseError, ledger::LedgerError},
    kernel::{KernelNameError, render::RenderError},
    measure::{
        collective::TopologyError, device::DeviceError, engine::EngineError, evidence::CaseLookupError,
        vendor_check::CheckError,
    },
    profile::{BenchmarkError, ProfileError, timeline::RunReadError},
    rehearsal::HostError,
    show::{night_report::ReportError, report::TimelineError},
};

/// Error of a command: message, hint, and exit status of the program.
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

    #[expect(clippy::needless_pass_by_value, reason = "the function is passed to `map_err`")]
    pub(crate) fn no_temporary_folder(error: std::io::Error) -> Self {
        Self::bad_input(
            format!("cannot create a temporary folder: {error}"),
            "check TMPDIR and its free space",
        )
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

bad_input!(
    FileError,
    MutationCasesError,
    ResultFileError,
    WorkloadError,
    LedgerError,
    LookupError,
    PlanError,
    ProfileError,
    RenderError,
    ReportError,
    TimelineError,
    RunReadError,
    CaseLookupError,
    TopologyError,
    BenchmarkError
);

impl From<DatabaseError> for CommandError {
    fn from(error: DatabaseError) -> Self {
        let exit = match error {
            DatabaseError::PartlyWritten { .. } => ExitStatus::Interrupted,
            _ => ExitStatus::BadInput,
        };
        Self { message: error.to_string(), hint: error.hint(), exit }
    }
}

impl From<EngineError> for CommandError {
    fn from(error: EngineError) -> Self {
        Self { message: error.to_string(), hint: error.hint(), exit: error.exit_status() }
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
            "give the kernel's name as the profiler shows it, such as `MatMulV2`",
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
        Self { message: error.to_string(), hint: error.hint(), exit }
    }
}
