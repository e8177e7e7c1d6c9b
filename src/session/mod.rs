//! Preparation of a run: its options, its plan, the environment of its programs, and what an interrupted run leaves
//! open; kernels that the catalogue lacks, and first entries of them; errors of all commands with hint and exit status.
//!
//! Layer 5: imports `exit`, `stats`, `domain`, `files`, `config`, `events`, `process`, `catalogue`, `case_filter`, `llm`,
//! `profile`, `render`, `ledger`, `database`, `op_mapping`, `lookup`, `workload`, `timeline`, `grid`, `fault_plan`, `device`,
//! `collective`, `plan`, `verify`, `evidence`, `coverage`, `adaptive`, `nodes`, `rehearsal`, `engine`, `vendor_check`, `report`, `case_report`, `coverage_report`, `night_report` and
//! `selftest`.

mod adapt;
mod audit_fill;
mod case_filter;
mod check;
mod context;
mod coverage_change;
mod device_choice;
mod entry_scaffold;
mod environment;
mod error;
mod fault_plan;
mod fill;
mod fill_preview;
mod generations;
mod kernel_gaps;
mod lookup_database;
mod measured_sweeps;
mod network;
mod nodes;
mod options;
mod plan;
mod production_collectives;
mod profile_records;
mod rebuild;
mod reparse;
mod result_file;
mod resume;
mod run_id;
mod selftest;
mod step_cases;
mod sweep;
mod sweep_database;
mod sweep_parts;
mod sweep_rounds;
mod used_rows;

pub(crate) use adapt::{AdaptSession, AdaptSettings, KernelDesign};
pub(crate) use audit_fill::AuditFill;
pub(crate) use case_filter::{candidate_filter, filter_run_cases, filter_sides, row_filter, run_cache};
pub(crate) use check::DatabaseCheck;
pub(crate) use context::{EndedRun, RunContext};
pub(crate) use coverage_change::coverage_changes;
pub(crate) use device_choice::{
    CORRECT_DEVICE, DeviceChoice, check_profile_device, chip_of_host, choose_device, host_chips,
    soc_contradiction,
};
pub(crate) use entry_scaffold::scaffold_entry;
pub(crate) use environment::{REHEARSED_DEVICES, check_path, lease_free_devices};
pub(crate) use error::CommandError;
pub(crate) use fault_plan::load_fault_plan;
pub(crate) use fill::{FillOutcome, FillSession, FillState};
pub(crate) use fill_preview::{FillPreview, PredictedHost, coverage_of};
pub(crate) use kernel_gaps::{find_kernel_gaps, gaps_of_groups};
pub(crate) use lookup_database::{
    LookupDatabase, WorkloadDefaults, WorkloadSelection, prepare_workloads, step_of_model,
};
pub(crate) use measured_sweeps::{DatabaseSweeps, parse_collective};
pub(crate) use network::network_of_profile;
pub(crate) use nodes::{NodePlace, SweepFollower, first_slurm_host, resume_on_all_nodes};
pub(crate) use options::{BusyArg, DeadlineOptions, NoiseModelArg, RunOptions};
pub(crate) use plan::{check_expert_skew, expert_skew_of, plan_of_database, run_with_other_skew};
pub(crate) use production_collectives::PlacedCollectives;
pub(crate) use profile_records::{BadProfile, divide_readable, left_out_files, read_records};
pub(crate) use rebuild::{LostRows, add_lost_rows, rebuild_database};
pub(crate) use reparse::{check_evidence, reparse_runs};
pub(crate) use result_file::ResultFile;
pub(crate) use resume::ResumeState;
pub(crate) use run_id::new_run_id;
pub(crate) use selftest::{SelftestRequest, WITHOUT_SELFTEST, run_selftest, selftest_report};
pub(crate) use step_cases::StepSelection;
pub(crate) use sweep::{CollectiveSweep, SweepPart, WantedGroups, current_hccl_environment};
pub(crate) use sweep_database::SweepDatabase;
pub(crate) use sweep_rounds::SweepRounds;
