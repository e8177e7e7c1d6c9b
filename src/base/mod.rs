//! What every folder uses and what knows nothing of kernels: exit codes, statistics, files and locks, CSV, YAML with
//! positions, processes, texts.

pub mod assets;
pub mod command_error;
pub(crate) mod count_text;
pub(crate) mod deadline;
pub mod exit;
pub(crate) mod files;
pub(crate) mod ini_file;
pub(crate) mod json_error;
pub(crate) mod live_text;
pub(crate) mod print;
pub(crate) mod printable;
pub mod process;
pub(crate) mod result_file;
pub(crate) mod shared_work;
pub(crate) mod shell_argument;
pub(crate) mod sqlite;
pub mod stats;
pub(crate) mod suggest;
pub(crate) mod table;
pub(crate) mod worker_thread;
pub mod yaml;
