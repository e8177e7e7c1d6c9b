//! Runs over several hosts: merge of their databases.
//!
//! Layer 5: imports `domain`, `files`, `config`, `catalogue`, `ledger`, `database`, `evidence`, `engine`, `report` and
//! `session`.

mod evidence_files;
mod merge;

pub(crate) use merge::{MergeRequest, merge_databases};
