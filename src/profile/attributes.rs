//! Attributes of a profile's groups that are not in the records.

use std::{collections::BTreeMap, num::NonZeroU32};

use super::{
    ProfileError, ProfileFile, RecordGroup,
    host_calls::{HostCalls, describe_attention},
};
use crate::domain::{AttentionCase, EP_SIZE, KernelName};

/// Kernels whose time depends on the number of ranks that share their experts, which no profile records.
const DISPATCH: [&str; 2] = ["DispatchFFNCombine", "DispatchFFNCombineBF16"];

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
    let dispatch: Vec<_> = DISPATCH.into_iter().filter_map(groups_of).collect();
    match ep_size {
        None => notes.extend(
            (dispatch.iter())
                .map(|(kernel, _)| format!("{kernel}: `{EP_SIZE}` is unknown; `--ep-size N` sets it")),
        ),
        Some(_) if dispatch.is_empty() => {
            notes.push(format!("`--ep-size` is not used: the profile has no {}", DISPATCH[0]));
        }
        Some(_) => {}
    }
    if let Some((kernel, mut groups)) = attention {
        let mut calls = HostCalls::default();
        for file in files {
            calls.0.extend(HostCalls::of_profile(&file.0)?.0);
        }
        groups.iter_mut().for_each(|group| describe_attention(group, &calls));
        kernels.insert(kernel, groups);
    }
    for (kernel, mut groups) in dispatch {
        if let Some(size) = ep_size {
            groups.iter_mut().for_each(|group| group.set_attribute(EP_SIZE, &size.to_string()));
        }
        kernels.insert(kernel, groups);
    }
    Ok(notes)
}
