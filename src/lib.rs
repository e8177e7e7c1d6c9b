//! npubench measures the kernels of Ascend NPUs and writes verified per-kernel CSV databases.
//!
//! The folders are the flow of data; each imports only from those before it:
//!
//! | folder | owns |
//! |---|---|
//! | `base` | exit codes, statistics, files and locks, CSV, YAML, processes |
//! | `kernel` | kernels, cases and their signature, verdicts, the catalogue, filters, rendered scripts |
//! | `profile` | readers of what the vendor's tools write, the time line of a recorded run |
//! | `database` | kernel CSVs and the ledger |
//! | `cases` | grids, models, plan |
//! | `measure` | devices, scheduler, engine, verdicts, selftest, collectives, several hosts |
//! | `answer` | lookups, coverage, adaptive grids, analysis of recorded runs |
//! | `show` | tables, pages, JSON, progress |
//! | `cli` | one file per command |
//! | `rehearsal` | stand-ins for an NPU host; imports `base`, `kernel` and `profile` only |

pub mod answer;
pub mod base;
pub mod cases;
pub mod cli;
pub mod database;
pub mod kernel;
pub mod measure;
pub mod profile;
pub mod rehearsal;
mod show;
