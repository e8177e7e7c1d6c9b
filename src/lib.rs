//! npubench measures the kernels of Ascend NPUs and writes verified per-kernel CSV databases.
//!
//! The folder list is the data flow; `docs/design/README.md` draws it. Modules are layered, and
//! a module imports only from layers below its own (`tests/it/layers.rs` keeps that true):
//!
//! | layer | modules |
//! |---|---|
//! | 0 | [`exit`], [`stats`], [`domain`] |
//! | 1 | [`files`], [`table`], [`config`], [`events`] |
//! | 2 | [`process`], [`catalogue`], [`llm`], [`profile`] |
//! | 3 | [`render`], [`ledger`], [`database`], [`grid`] |
//! | 4 | [`device`], [`plan`], [`sched`], [`verify`] |
//! | 5 | [`rehearsal`], [`engine`], [`vendor_check`], [`report`], [`session`] |
//! | 6 | [`cli`] |

pub mod catalogue;
pub mod cli;
pub mod config;
pub mod database;
pub mod device;
pub mod domain;
pub mod engine;
pub mod events;
pub mod exit;
pub mod files;
pub mod grid;
pub mod ledger;
pub mod llm;
pub mod plan;
pub mod process;
pub mod profile;
pub mod rehearsal;
pub mod render;
pub mod report;
pub mod sched;
pub mod session;
pub mod stats;
pub mod table;
pub mod vendor_check;
pub mod verify;
