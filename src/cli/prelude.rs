//! What most commands use.

pub(super) use std::path::{Path, PathBuf};

pub(super) use clap::{Args, Subcommand, ValueEnum};
pub(super) use schemars::JsonSchema;
pub(super) use serde::Serialize;

pub(super) use super::options::{
    AssetOptions, CacheOption, DATABASE_VARIABLE, DatabaseFolder, DeadlineOptions, DeviceList, FilterOption,
    KernelArguments, KernelFilter, LeaseOption, OutputFormat, OutputOptions, PythonOption, ResourceOptions,
    TableOptions, WideOption, parse_devices,
};
pub(super) use crate::{
    base::{
        assets::AssetFiles,
        command_error::{CommandError, Failure},
        count_text::format_count,
        exit::ExitStatus,
        files::ScratchFolder,
        print::{print_data, print_hint, print_note, print_warning},
        result_file::ResultFile,
        shell_argument::quoted_path,
        suggest::did_you_mean_or,
    },
    database::Database,
    kernel::{DataKind, KernelName, catalogue::Catalogue, device::DeviceProfile, timestamp::Timestamp},
    measure::run_options::RunOptions,
    show::{
        cells::{counted, joined, or_empty, with_counts},
        emit::{emit, emit_paged, json_lines, note_simulated, record},
        run_lines::run_screen,
    },
};
