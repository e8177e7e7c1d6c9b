//! Records of kernels as all readers give them to [`RecordGroups`](super::RecordGroups), and exact sums of counters.

use super::{REHEARSAL_PREFIX, prelude::*};

/// Names of the columns of the kernel's type, of the six cells of its signature, and of its duration in a reader's source.
pub(super) type RecordNames = [&'static str; 8];

#[derive(Clone, Copy, Debug)]
pub(super) struct KernelRecord<'r> {
    pub(super) file: &'r Path,
    pub(super) place: RecordPosition,
    pub(super) names: &'static RecordNames,
    pub(super) name: &'r [u8],
    pub(super) kernel: &'r [u8],
    pub(super) cells: [&'r [u8]; 6],
    /// `dynamic` or `static`, empty if not recorded.
    pub(super) state: &'r [u8],
    /// `AI_CORE`, `AI_VECTOR_CORE` …
    pub(super) core: &'r [u8],
}

impl KernelRecord<'_> {
    pub(super) fn bad_cell(&self, column: usize, cell: &[u8], problem: String) -> ProfileError {
        ProfileError::bad_cell(self.file, self.place, self.names[column], cell, problem)
    }
}

pub(super) fn check_rehearsed(
    name: &[u8],
    accept_rehearsed: bool,
    file: &Path,
    place: RecordPosition,
) -> Result<bool, ProfileError> {
    let is_rehearsed = name.starts_with(REHEARSAL_PREFIX.as_bytes());
    match is_rehearsed && !accept_rehearsed {
        true => Err(ProfileError::Rehearsed { file: file.to_owned(), place }),
        false => Ok(is_rehearsed),
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CounterSums([(i128, u64); COUNTERS.len()]);

impl CounterSums {
    pub(super) fn add_value(&mut self, counter: usize, millionths: i64) {
        let (sum, count) = &mut self.0[counter];
        *sum += i128::from(millionths);
        *count += 1;
    }

    pub(super) fn merge_sums(&mut self, other: &Self) {
        for ((sum, count), (more, more_values)) in self.0.iter_mut().zip(other.0) {
            *sum += more;
            *count += more_values;
        }
    }

    pub(super) fn counter_means(&self) -> Vec<Option<f64>> {
        let mean = |(sum, count): &(i128, u64)| (*count > 0).then(|| *sum as f64 / (*count as f64 * 1e6));
        self.0.iter().map(mean).collect()
    }
}
