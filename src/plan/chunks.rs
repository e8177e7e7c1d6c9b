//! Divides planned cases into collections of predictable length.

use crate::model::Nanos;

/// What launches and collections cost on a host, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// Building a case's tensors and freeing them.
    pub case: f64,
    /// One launch besides the kernel's own time.
    pub launch: f64,
    /// Launches per case, warm-up included.
    pub launches: u32,
}

/// msprof wants collections under five minutes; one that fails should cost less than that.
const LONGEST: f64 = 60.0;
/// More cases than this are not lost at once.
const MOST_CASES: usize = 64;

impl Costs {
    /// Predicted seconds of a case whose kernel takes at least `fastest`.
    #[must_use]
    pub fn seconds(&self, fastest: Nanos) -> f64 {
        // Kernels reach about half of what the roofline allows.
        self.case + f64::from(self.launches) * (self.launch + 2.0 * fastest.seconds())
    }
}

/// Divides cases, given by their predicted seconds, into collections for that many devices: about
/// equally long, none longer than a minute unless a single case is, the longest first. Every index
/// stands in exactly one.
#[must_use]
pub fn chunks(seconds: &[f64], devices: usize) -> Vec<Vec<usize>> {
    let total: f64 = seconds.iter().sum();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of minutes")]
    let by_time = (total / LONGEST).ceil() as usize;
    let count = by_time.max(seconds.len().div_ceil(MOST_CASES)).max(devices).min(seconds.len());
    // Longest case first, each to the collection that is shortest so far; ties go by index.
    let mut order: Vec<usize> = (0..seconds.len()).collect();
    order.sort_by(|&a, &b| seconds[b].total_cmp(&seconds[a]).then(a.cmp(&b)));
    let mut collections: Vec<(f64, Vec<usize>)> = vec![(0.0, Vec::new()); count];
    for index in order {
        let shortest = collections
            .iter_mut()
            .filter(|(_, cases)| cases.len() < MOST_CASES)
            .min_by(|left, right| left.0.total_cmp(&right.0));
        if let Some((length, cases)) = shortest {
            *length += seconds[index];
            cases.push(index);
        }
    }
    collections.sort_by(|left, right| right.0.total_cmp(&left.0).then(left.1.cmp(&right.1)));
    // Within a collection, cases run in the order of the plan.
    collections
        .into_iter()
        .map(|(_, mut cases)| {
            cases.sort_unstable();
            cases
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn few_cases_use_every_device() {
        assert_eq!(chunks(&[1.0; 8], 4).len(), 4);
        assert_eq!(chunks(&[1.0; 3], 16).len(), 3);
        assert!(chunks(&[], 4).is_empty());
    }

    proptest! {
        #[test]
        fn every_case_stands_in_exactly_one_collection(
            seconds in proptest::collection::vec(0.0_f64..100.0, 0..300),
            devices in 1_usize..17,
        ) {
            let chunks = chunks(&seconds, devices);
            let mut all: Vec<usize> = chunks.iter().flatten().copied().collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..seconds.len()).collect::<Vec<_>>());
            for chunk in &chunks {
                prop_assert!(!chunk.is_empty() && chunk.len() <= MOST_CASES);
                let length: f64 = chunk.iter().map(|&index| seconds[index]).sum();
                let longest = chunk.iter().map(|&index| seconds[index]).fold(0.0, f64::max);
                prop_assert!(length <= LONGEST + longest, "{} s", length);
            }
        }
    }
}
