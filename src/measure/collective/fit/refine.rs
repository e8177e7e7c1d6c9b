//! Further sizes around a change of the algorithm, with which the next sweep locates it.

/// Factors from the smaller size of a cell to new ones; neighbours differ by less than [`LOCATED_RATIO`].
const FACTORS: [(u64, u64); 4] = [(9, 8), (5, 4), (3, 2), (7, 4)];
/// Ratio of the sizes around a change from which it counts as located.
pub(crate) const LOCATED_RATIO: f64 = 1.25;

/// Returns message sizes inside the two cells around a change, and inside all cells where it may be, that are not among the
/// measured ones; none if it is located.
///
/// `sizes` ascend; the change is between `sizes[end - 1]` and `sizes[end]`, or at another end from `possible_ends`.
pub(crate) fn refining_sizes(
    sizes: &[u64],
    end: usize,
    possible_ends: (usize, usize),
    granularity: u64,
) -> Vec<u64> {
    if end == 0 || end >= sizes.len() || is_located(sizes, possible_ends) {
        return Vec::new();
    }
    let first = possible_ends.0.min(end - 1).max(1);
    let last = possible_ends.1.max(end).min(sizes.len() - 1);
    let mut found = Vec::new();
    for cell in first..=last {
        let (low, high) = (sizes[cell - 1], sizes[cell]);
        if is_narrow(low, high) {
            continue;
        }
        for (numerator, denominator) in FACTORS {
            let exact = u128::from(low) * u128::from(numerator) / u128::from(denominator);
            let Ok(size) = u64::try_from(exact) else { continue };
            let size = size / granularity.max(1) * granularity.max(1);
            if size > low && size < high && !found.contains(&size) {
                found.push(size);
            }
        }
    }
    found
}

#[expect(clippy::cast_precision_loss, reason = "a ratio")]
fn is_narrow(low: u64, high: u64) -> bool {
    high as f64 <= low as f64 * LOCATED_RATIO
}

/// Returns true if the sizes between which the change may be differ by at most [`LOCATED_RATIO`].
pub(crate) fn is_located(sizes: &[u64], (least, greatest): (usize, usize)) -> bool {
    match (least.checked_sub(1).and_then(|before| sizes.get(before)), sizes.get(greatest)) {
        (Some(low), Some(high)) => is_narrow(*low, *high),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::CollectiveKind;

    #[test]
    fn sizes_around_a_change_locate_it_within_a_quarter() {
        let sizes: Vec<u64> = (7..30).map(|bits| 1 << bits).collect();
        // Between 32 and 64 KiB.
        let more = refining_sizes(&sizes, 9, (9, 9), 2);
        let kib = |size: u64| size * 1024;
        let expected = [kib(18), kib(20), kib(24), kib(28), kib(36), kib(40), kib(48), kib(56)];
        assert_eq!(more, expected);
        let mut all = sizes.clone();
        all.extend(more);
        all.sort_unstable();
        for end in 1..all.len() {
            if all[end - 1] >= kib(16) && all[end] <= kib(64) {
                assert!(is_located(&all, (end, end)));
                assert_eq!(refining_sizes(&all, end, (end, end), 2), [0; 0]);
            }
        }
        // Where the change may be one size later, that cell has further sizes as well.
        assert!(refining_sizes(&sizes, 9, (9, 10), 2).contains(&kib(80)));
    }

    #[test]
    fn refining_sizes_can_be_divided_among_the_ranks() {
        let granularity = CollectiveKind::AllToAll.size_granularity(2, 16);
        assert_eq!(refining_sizes(&[128, 256, 512], 1, (1, 1), granularity), [160, 192, 224]);
        assert_eq!(refining_sizes(&[1, 2, 4], 1, (1, 1), 1), [0; 0], "no size is between 1 and 2");
        assert_eq!(refining_sizes(&[1024], 1, (1, 1), 1), [0; 0]);
        assert_eq!(refining_sizes(&[], 0, (0, 0), 1), [0; 0]);
    }
}
