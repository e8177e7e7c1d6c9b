//! What most commands use.

pub(super) use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    time::Duration,
};

pub(super) use clap::{ArgGroup, Args, Command, Subcommand, ValueEnum};
pub(super) use schemars::JsonSchema;
pub(super) use serde::Serialize;

pub(super) use super::{
    TopCommand,
    comm::network_of_profile,
    measurement_options::{MeasurementOptions, WARM_UP},
    option_values::*,
    options::*,
    question_options::QuestionOptions,
    runs::{find_run, no_run, past_runs, run_command},
    step_options::{ModelStepOptions, NAMED_MODEL, StepOptions},
};

pub(super) use crate::{
    answer::{
        coverage::CoverageAnalyzer,
        lookup_database::{LookupDatabase, WorkloadSelection},
        recorded_runs::read_all_runs,
        workload::QuestionDefaults,
    },
    base::{
        assets::AssetFiles,
        command_error::{CommandError, Failure},
        count_text::format_count,
        deadline::{Deadline, parse_limit},
        exit::ExitStatus,
        files::ScratchFolder,
        print::{print_data, print_hint, print_note, print_warning},
        printable::printable_json,
        result_file::ResultFile,
        shell_argument::quoted_path,
        suggest::{did_you_mean_one_of, did_you_mean_or},
    },
    cases::{
        grid::definition::GridModels,
        plan::{InitialCosts, LaunchCount, UpdateMode},
    },
    database::{Database, TargetDatabase, ledger::Ledger},
    kernel::{
        CacheState, CaseId, DataKind, Dtype, KernelName, Verdict, catalogue::Catalogue,
        default_memory_budget, device::DeviceProfile, timestamp::Timestamp,
    },
    measure::{
        device_choice::CORRECT_DEVICE, filtered_cases::run_cache, fleet::ShardPlan, run_context::RunContext,
        run_options::RunOptions,
    },
    show::{
        cells::{counted, joined, or_empty, with_counts},
        emit::{emit, emit_paged, json_lines, note_simulated, record},
        run_lines::run_screen,
    },
};
