//! Interface of [`RecordGroups`](super::RecordGroups) to records of all readers, and exact sums of counters.

use super::{COUNTERS, ProfileError};
use crate::kernel::Nanos;

/// A record of a reader: cells are borrowed, and parsed only on access.
pub(super) trait KernelRecord {
    /// Returns the name of the operator in the model.
    fn name(&self) -> &[u8];
    /// Returns the kernel's type.
    fn kernel(&self) -> &[u8];
    /// Returns shapes, types, formats of the inputs, then of the outputs.
    fn cells(&self) -> [&[u8]; 6];
    fn input_shapes(&self) -> &[u8] {
        self.cells()[0]
    }
    /// Returns the six cells as one slice, if they are adjacent: equal bytes are equal cells.
    fn raw_cells(&self) -> Option<&[u8]> {
        None
    }
    /// Returns `dynamic` or `static`, empty if not recorded.
    fn state(&self) -> &[u8];
    /// Returns `AI_CORE`, `AI_VECTOR_CORE` …
    fn core(&self) -> &[u8];
    /// Returns the duration; `None` if not recorded.
    fn duration(&self) -> Result<Option<Nanos>, ProfileError>;
    fn add_counters(&self, sums: &mut CounterSums);
    /// Creates an error for a cell of this record; `column` is a name of `kernel_details.csv`.
    fn bad_cell(&self, column: &'static str, cell: &[u8], problem: String) -> ProfileError;
}

/// Sum of whole millionths, which does not depend on the order.
#[derive(Clone, Copy, Debug, Default)]
struct CounterSum {
    millionths: i128,
    count: u64,
}

impl CounterSum {
    fn add(&mut self, millionths: i64) {
        self.millionths += i128::from(millionths);
        self.count += 1;
    }
}

/// Sums of all counters of [`COUNTERS`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CounterSums([CounterSum; COUNTERS.len()]);

impl CounterSums {
    pub(super) fn add_value(&mut self, counter: usize, millionths: i64) {
        if let Some(sum) = self.0.get_mut(counter) {
            sum.add(millionths);
        }
    }

    pub(super) fn add_values(&mut self, values: impl Iterator<Item = Option<i64>>) {
        for (sum, value) in self.0.iter_mut().zip(values) {
            value.into_iter().for_each(|millionths| sum.add(millionths));
        }
    }

    pub(super) fn merge_sums(&mut self, other: &Self) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            sum.millionths += more.millionths;
            sum.count += more.count;
        }
    }

    /// Returns the mean of each counter; `None` without values.
    pub(super) fn counter_means(&self) -> Vec<Option<f64>> {
        #[expect(clippy::cast_precision_loss, reason = "a quotient of what was summed exactly")]
        let mean =
            |sum: &CounterSum| (sum.count > 0).then(|| sum.millionths as f64 / (sum.count as f64 * 1e6));
        self.0.iter().map(mean).collect()
    }
}
