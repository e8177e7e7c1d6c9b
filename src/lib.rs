//! npubench measures the kernels of Ascend NPUs and writes verified per-kernel CSV databases.
//!
//! The folder list is the data flow; `docs/design/README.md` draws it. Modules are layered, and
//! a module imports only from layers below its own (`tests/it/layers.rs` keeps that true):
//!
//! | layer | modules |
//! |---|---|
//! | 0 | `exit`, `stats`, `domain` |
//! | 1 | `files`, `table`, `config`, `events` |
//! | 2 | `process`, `catalogue`, `case_filter`, `llm`, `profile` |
//! | 3 | `render`, `ledger`, `database`, `op_mapping`, `op_query`, `lookup`, `workload`, `timeline`, `grid`, `fault_plan` |
//! | 4 | `device`, `collective`, `plan`, `sched`, `verify`, `evidence`, `coverage`, `adaptive`, `nodes` |
//! | 5 | `simulated_memory`, `rehearsal`, `engine`, `vendor_check`, `report`, `case_report`, `coverage_report`, `night_report`, `selftest`, `session`, `run_analysis`, `collect`, `fleet` |
//! | 6 | `cli` |

pub mod adaptive;
mod case_filter;
mod case_report;
pub mod catalogue;
pub mod cli;
mod collect;
mod collective;
pub mod config;
pub mod coverage;
mod coverage_report;
pub mod database;
pub mod device;
pub mod domain;
mod engine;
mod events;
mod evidence;
pub mod exit;
pub mod fault_plan;
mod files;
mod fleet;
pub mod grid;
mod ledger;
pub mod llm;
pub mod lookup;
mod night_report;
mod nodes;
pub mod op_mapping;
pub mod op_query;
mod plan;
pub mod process;
pub mod profile;
pub mod rehearsal;
pub mod render;
mod report;
mod run_analysis;
pub mod sched;
mod selftest;
mod session;
mod simulated_memory;
pub mod stats;
mod table;
mod timeline;
mod vendor_check;
pub mod verify;
pub mod workload;
