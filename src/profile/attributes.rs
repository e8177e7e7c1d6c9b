//! Attributes of a profile's groups that are not in the records.

use std::{collections::BTreeMap, num::NonZeroU32};

use super::{
    ProfileError, ProfileFile, RecordGroup,
    host_calls::{HostCalls, describe_attention},
};
use crate::domain::{AttentionCase, EP_SIZE, KernelName};

/// Kernel whose time depends on the number of ranks that share its experts, which no profile records.
const DISPATCH: &str = "DispatchFFNCombine";

/// Sets the known attributes of each group, and returns notes for the user.
pub fn add_attributes(
    kernels: &mut BTreeMap<KernelName, Vec<RecordGroup>>,
    files: &[ProfileFile],
    ep_size: Option<NonZeroU32>,
) -> Result<Vec<String>, ProfileError> {
    let mut notes = Vec::new();
    let mut groups_of = |name: &str| {
        let kernel = kernels.keys().find(|kernel| kernel.as_str() == name).cloned();
        kernel.and_then(|kernel| kernels.remove_entry(&kernel))
    };
    let attention = groups_of(AttentionCase::KERNEL);
    let dispatch = groups_of(DISPATCH);
    match (&dispatch, ep_size) {
        (Some(_), None) => notes.push(format!("{DISPATCH}: `{EP_SIZE}` is unknown; `--ep-size N` sets it")),
        (None, Some(_)) => notes.push(format!("`--ep-size` is not used: the profile has no {DISPATCH}")),
        _ => {}
    }
    if let Some((kernel, mut groups)) = attention {
        let mut calls = HostCalls::default();
        for file in files {
            calls.0.extend(HostCalls::of_profile(&file.0)?.0);
        }
        groups.iter_mut().for_each(|group| describe_attention(group, &calls));
        kernels.insert(kernel, groups);
    }
    if let Some((kernel, mut groups)) = dispatch {
        if let Some(size) = ep_size {
            groups.iter_mut().for_each(|group| group.set_attribute(EP_SIZE, &size.to_string()));
        }
        kernels.insert(kernel, groups);
    }
    Ok(notes)
}
