//! What most files of this folder use.

pub(super) use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    path::{Path, PathBuf},
};

pub(super) use rusqlite::types::ValueRef;
pub(super) use serde::Deserialize;
pub(super) use serde_json::Value;

pub(super) use super::{
    COUNTERS, ProfileError, ProfileFile, RecordGroups, RecordPosition, columns::NeededColumns,
    kernel_record::KernelRecord, sqlite,
};

pub(super) use crate::{
    base::files::{MAX_DOCUMENT, MAX_SETTINGS, named_entries, open_regular, read_regular},
    kernel::{Dtype, KernelName, Nanos},
};
