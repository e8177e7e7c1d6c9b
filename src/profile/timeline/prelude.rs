//! What most files of this folder use.

pub(super) use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    path::{Path, PathBuf},
};

pub(super) use indexmap::IndexSet;
pub(super) use serde::Deserialize;

pub(super) use super::{
    intervals::{TimeSet, TimeSpan, sum_lengths},
    modules::OperatorCall,
    names::{NameId, NameTable},
    nesting::OperatorNesting,
    run::{
        Collective, CollectiveId, CollectiveTask, DeviceTask, HostOperator, HostRange, LaunchedSpan,
        OperatorId, ProfileForm, RunTimeline, TaskRole, is_collective_kernel, is_copy,
    },
    step_times::StepTimes,
};

pub(super) use crate::{
    kernel::Nanos,
    profile::{ProfileDatabase, ProfileError, TraceEvent},
};
