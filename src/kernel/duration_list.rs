//! Durations of the launches of an attempt, in two bytes each where they differ by less than 65.5 µs.

/// Durations in nanoseconds, in launch order, as offsets from the shortest. A ledger of 100,000 cases has 5,700,000 durations,
/// which commands keep in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DurationList {
    shortest: i64,
    offsets: DurationOffsets,
}

/// Offsets from the shortest duration. Equal lists have the same variant, so that derived equality holds.
#[derive(Clone, Debug, PartialEq, Eq)]
enum DurationOffsets {
    TwoBytes(Box<[u16]>),
    EightBytes(Box<[u64]>),
}

impl Default for DurationOffsets {
    fn default() -> Self {
        Self::TwoBytes(Box::default())
    }
}

impl DurationList {
    pub(crate) const fn len(&self) -> usize {
        match &self.offsets {
            DurationOffsets::TwoBytes(offsets) => offsets.len(),
            DurationOffsets::EightBytes(offsets) => offsets.len(),
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the durations in nanoseconds, in launch order.
    pub(crate) fn to_vec(&self) -> Vec<i64> {
        match &self.offsets {
            DurationOffsets::TwoBytes(offsets) => {
                offsets.iter().map(|offset| self.shortest.wrapping_add(i64::from(*offset))).collect()
            }
            DurationOffsets::EightBytes(offsets) => {
                offsets.iter().map(|offset| self.shortest.wrapping_add_unsigned(*offset)).collect()
            }
        }
    }
}

impl From<&[i64]> for DurationList {
    fn from(durations: &[i64]) -> Self {
        let shortest = durations.iter().copied().min().unwrap_or_default();
        let offset = |duration: &i64| duration.abs_diff(shortest);
        let two_bytes: Option<Box<[u16]>> =
            durations.iter().map(|duration| u16::try_from(offset(duration)).ok()).collect();
        let offsets = match two_bytes {
            Some(offsets) => DurationOffsets::TwoBytes(offsets),
            None => DurationOffsets::EightBytes(durations.iter().map(offset).collect()),
        };
        Self { shortest, offsets }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_durations_are_kept(durations in prop::collection::vec(any::<i64>(), 0..20), far in any::<i64>()) {
            let list = DurationList::from(durations.as_slice());
            prop_assert_eq!(list.to_vec(), durations.clone());
            prop_assert_eq!(list.len(), durations.len());
            let near: Vec<i64> = durations.iter().map(|duration| (far / 2) + duration % 30_000).collect();
            let list = DurationList::from(near.as_slice());
            prop_assert!(matches!(list.offsets, DurationOffsets::TwoBytes(_)));
            prop_assert_eq!(list.to_vec(), near);
        }
    }
}
