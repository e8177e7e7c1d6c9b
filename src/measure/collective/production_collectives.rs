//! Rows for the collectives of production profiles.

use std::collections::BTreeMap;

use crate::{
    kernel::{CollectiveCase, CollectiveKind, KernelName, PartWeights},
    measure::collective::tier_of_group,
    profile::{CollectiveSignature, RecordedCollectives, RecordedDurations, RecordedGroup},
};

#[derive(Debug, Default)]
pub(crate) struct PlacedCollectives {
    pub(crate) tables: BTreeMap<KernelName, Vec<(CollectiveCase, RecordedDurations)>>,
    placed: BTreeMap<String, u64>,
    /// Reasons why other records have no row, with their numbers by the type of the records.
    reasons: BTreeMap<String, BTreeMap<String, u64>>,
}

impl PlacedCollectives {
    /// Finds the row of each collective: its message size, its ranks and the tier that they span in the grid of the network,
    /// where rank r of the run is device r of the grid. `grid` is `None` for a device profile without a network.
    pub(crate) fn new(collectives: RecordedCollectives, grid: Option<&[u64]>) -> Self {
        let mut all = Self::default();
        for (signature, durations) in collectives.by_signature {
            let count = durations.durations.len() as u64;
            match case_of_signature(&signature, grid) {
                Ok(case) => {
                    *all.placed.entry(signature.kernel).or_default() += count;
                    let kernel = KernelName::new(case.kind.kernel_name()).expect("the name of a table");
                    let table = all.tables.entry(kernel).or_default();
                    // Groups of other ranks with the same layout have one row.
                    match table.iter_mut().find(|(known, _)| *known == case) {
                        Some((_, known)) => known.merge(durations),
                        None => table.push((case, durations)),
                    }
                }
                Err(reason) => {
                    *all.reasons.entry(reason).or_default().entry(signature.kernel).or_default() += count;
                }
            }
        }
        for (kernel, count) in collectives.without_size {
            let reason = "without a size, an element type or a duration".to_owned();
            *all.reasons.entry(reason).or_default().entry(kernel).or_default() += count;
        }
        all
    }

    pub(crate) fn records_of(&self, kernel: &str) -> u64 {
        let left_out = self.reasons.values().filter_map(|kernels| kernels.get(kernel));
        left_out.chain(self.placed.get(kernel)).sum()
    }

    pub(crate) fn notes(&self) -> Vec<String> {
        let note = |(reason, kernels): (&String, &BTreeMap<String, u64>)| {
            let total: u64 = kernels.values().sum();
            let names: Vec<String> =
                kernels.iter().map(|(kernel, count)| format!("{kernel} {count}")).collect();
            let (noun, verb) = if total == 1 { ("collective", "is") } else { ("collectives", "are") };
            format!("{total} {noun} {reason} {verb} left out: {}", names.join(", "))
        };
        self.reasons.iter().map(note).collect()
    }
}

/// Returns the case of a collective. The error is a phrase with the reason why it has none.
fn case_of_signature(
    signature: &CollectiveSignature,
    grid: Option<&[u64]>,
) -> Result<CollectiveCase, String> {
    let CollectiveSignature { kernel, group, count, dtype, environment } = signature;
    let kind = KernelName::new(kernel).ok().and_then(|kernel| CollectiveKind::of_kernel(&kernel));
    let kind = kind.ok_or("of a type without a table")?;
    let RecordedGroup::Ranks(members) = group else {
        return Err("of a group whose ranks are not recorded (`--world-size N` gives their number if all ranks of the \
                    run are in it)"
            .to_owned());
    };
    let ranks = members.len() as u64;
    match kind {
        CollectiveKind::AllToAllV => return Err("whose parts are not recorded".to_owned()),
        CollectiveKind::SendReceive if ranks != 2 => {
            return Err("between two ranks of a larger group, which are not recorded,".to_owned());
        }
        _ if ranks < 2 => return Err("of a single rank".to_owned()),
        _ => {}
    }
    let bytes = dtype.bytes().ok_or("of an element type without a size")?;
    let message = kind.message_of_count(*count, bytes, ranks).ok_or("of more than 2^64 bytes")?;
    let grid = grid.ok_or("without a tier, because the device profile declares no network,")?;
    let devices: Result<Vec<u32>, _> = members.iter().map(|rank| u32::try_from(*rank)).collect();
    let tier = devices.ok().and_then(|devices| tier_of_group(grid, &devices).ok());
    let tier = tier.ok_or("of ranks outside of the network of the device profile")?;
    let (dtype, environment) = (dtype.clone(), environment.clone());
    let parts = PartWeights::Equal;
    Ok(CollectiveCase { kind, message, ranks, tier: tier as u64, dtype, environment, parts })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Dtype;

    fn placed(
        kernel: &str,
        members: &[u64],
        count: u64,
        grid: Option<&[u64]>,
    ) -> Result<CollectiveCase, String> {
        let group = RecordedGroup::Ranks(members.to_vec());
        let kernel = kernel.to_owned();
        let signature =
            CollectiveSignature { kernel, group, count, dtype: Dtype::Bf16, environment: String::new() };
        case_of_signature(&signature, grid)
    }

    #[test]
    fn rows_have_messages_and_tiers() {
        let grid = Some(&[48, 8, 2][..]);
        let key = |kernel, members: &[u64]| {
            placed(kernel, members, 100, grid).map(|case| (case.message, case.ranks, case.tier))
        };
        assert_eq!(key("hcom_allReduce_", &[0, 1]), Ok((200, 2, 2)));
        assert_eq!(key("hcom_allGather_", &[0, 2]), Ok((200, 2, 1)));
        assert_eq!(key("hcom_reduceScatter_", &[0, 1, 16, 17]), Ok((200, 4, 0)));
        assert_eq!(key("hcom_alltoall_", &[0, 1, 2, 3]), Ok((800, 4, 1)));
        assert_eq!(key("hcom_send_", &[0, 1]), Ok((200, 2, 2)));
    }

    #[test]
    fn groups_with_the_same_layout_have_one_row() {
        let mut collectives = RecordedCollectives::default();
        for (members, nanos, file) in [([0, 1], 10, 0), ([2, 3], 30, 1)] {
            let signature = CollectiveSignature {
                kernel: "hcom_allReduce_".to_owned(),
                group: RecordedGroup::Ranks(members.to_vec()),
                count: 100,
                dtype: Dtype::Bf16,
                environment: String::new(),
            };
            let durations = RecordedDurations {
                durations: vec![nanos],
                files: vec![file],
                ..RecordedDurations::default()
            };
            collectives.by_signature.insert(signature, durations);
        }
        let placed = PlacedCollectives::new(collectives, Some(&[48, 8, 2]));
        let [(_, durations)] = placed.tables.values().next().expect("a table").as_slice() else {
            panic!("one row")
        };
        assert_eq!((&durations.durations, &durations.files), (&vec![10, 30], &vec![0, 1]));
    }

    #[test]
    fn what_is_not_recorded_has_no_row() {
        let grid = Some(&[48, 8, 2][..]);
        let reason =
            |kernel, members: &[u64], count, grid| placed(kernel, members, count, grid).expect_err("no row");
        assert_eq!(reason("hcom_batchSendRecv_", &[0, 1], 1, grid), "of a type without a table");
        assert_eq!(reason("hcom_alltoallv_", &[0, 1], 1, grid), "whose parts are not recorded");
        assert!(reason("hcom_send_", &[0, 1, 2], 1, grid).starts_with("between two ranks"));
        assert_eq!(reason("hcom_allReduce_", &[0], 1, grid), "of a single rank");
        assert_eq!(
            reason("hcom_allReduce_", &[0, 768], 1, grid),
            "of ranks outside of the network of the device profile"
        );
        assert_eq!(
            reason("hcom_allReduce_", &[0, 0], 1, grid),
            "of ranks outside of the network of the device profile"
        );
        assert!(reason("hcom_allReduce_", &[0, 1], 1, None).contains("declares no network"));
        assert_eq!(reason("hcom_allReduce_", &[0, 1], u64::MAX, grid), "of more than 2^64 bytes");
    }
}
