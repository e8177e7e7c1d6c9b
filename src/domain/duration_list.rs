//! Durations of the launches of an attempt in a quarter of the memory of a list of integers.

/// Durations in nanoseconds, in launch order. Those of most attempts differ by less than 65.5 µs, so that two bytes each are
/// enough above the shortest: a ledger of 100,000 cases has 5,700,000 of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DurationList {
    shortest: i64,
    above: AboveShortest,
}

/// Differences from the shortest duration, the same ones always in the same form.
#[derive(Clone, Debug, PartialEq, Eq)]
enum AboveShortest {
    Near(Box<[u16]>),
    Far(Box<[u64]>),
}

impl Default for AboveShortest {
    fn default() -> Self {
        Self::Near(Box::default())
    }
}

impl DurationList {
    pub(crate) const fn len(&self) -> usize {
        match &self.above {
            AboveShortest::Near(above) => above.len(),
            AboveShortest::Far(above) => above.len(),
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the durations in nanoseconds, in launch order.
    pub(crate) fn to_vec(&self) -> Vec<i64> {
        match &self.above {
            AboveShortest::Near(above) => {
                above.iter().map(|above| self.shortest.wrapping_add(i64::from(*above))).collect()
            }
            AboveShortest::Far(above) => {
                above.iter().map(|above| self.shortest.wrapping_add_unsigned(*above)).collect()
            }
        }
    }
}

impl From<&[i64]> for DurationList {
    fn from(durations: &[i64]) -> Self {
        let shortest = durations.iter().copied().min().unwrap_or_default();
        let above = |duration: &i64| duration.abs_diff(shortest);
        let near: Option<Box<[u16]>> =
            durations.iter().map(|duration| u16::try_from(above(duration)).ok()).collect();
        let above = match near {
            Some(near) => AboveShortest::Near(near),
            None => AboveShortest::Far(durations.iter().map(above).collect()),
        };
        Self { shortest, above }
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
            prop_assert!(matches!(list.above, AboveShortest::Near(_)));
            prop_assert_eq!(list.to_vec(), near);
        }
    }
}
