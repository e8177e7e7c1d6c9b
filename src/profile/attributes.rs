//! Attributes of a profile's groups that are not in the records.

use super::{
    RecordGroup,
    host_calls::{describe_attention, host_calls},
    prelude::*,
};
use crate::kernel::{AttentionCase, EP_SIZE, WORLD_SIZE, ingest_option};

#[derive(Clone, Copy, Debug, Default)]
pub struct RankCounts {
    pub ep_size: Option<u64>,
    pub world_size: Option<u64>,
}

const RANK_COLUMNS: [(&[&str], &str); 2] =
    [(&["DispatchFFNCombine", "DispatchFFNCombineBF16"], EP_SIZE), (&["MatmulAllReduce"], WORLD_SIZE)];

pub fn add_attributes(
    kernels: &mut BTreeMap<KernelName, Vec<RecordGroup>>,
    files: &[ProfileFile],
    ranks: RankCounts,
) -> Result<Vec<String>, ProfileError> {
    let mut notes = Vec::new();
    for ((names, column), count) in RANK_COLUMNS.into_iter().zip([ranks.ep_size, ranks.world_size]) {
        let option = ingest_option(column).unwrap_or_default();
        let mut is_found = false;
        for (kernel, groups) in kernels.iter_mut().filter(|(kernel, _)| names.contains(&kernel.as_str())) {
            is_found = true;
            match count.map(|count| count.to_string()) {
                Some(count) => groups.iter_mut().for_each(|group| group.set_attribute(column, &count)),
                None => notes.push(format!("{kernel}: `{column}` is unknown; `{option} N` sets it")),
            }
        }
        if !is_found && count.is_some() && column == EP_SIZE {
            notes.push(format!("`{option}` is not used: the profile has no {}", names[0]));
        }
    }
    let attention = kernels.keys().find(|kernel| kernel.as_str() == AttentionCase::KERNEL).cloned();
    if let Some(groups) = attention.and_then(|kernel| kernels.get_mut(&kernel)) {
        let mut calls = BTreeSet::new();
        for file in files {
            calls.append(&mut host_calls(&file.0)?);
        }
        groups.iter_mut().for_each(|group| describe_attention(group, &calls));
    }
    Ok(notes)
}
