//! What [`RecordGroups`](super::RecordGroups) asks of a record, whichever reader it comes from, and the exact sums of
//! its counters.

use super::{COUNTERS, KernelRow, ProfileError};
use crate::domain::Nanos;

/// A record as a reader has it: cells are borrowed, nothing is parsed before it is asked for.
pub(super) trait KernelRecord {
    /// The kernel's type.
    fn kernel(&self) -> &[u8];
    /// Shapes, types, formats of the inputs, then of the outputs.
    fn cells(&self) -> [&[u8]; 6];
    /// The first of them.
    fn input_shapes(&self) -> &[u8] {
        self.cells()[0]
    }
    /// The six cells as they stand in one piece, where they do: equal bytes are equal cells.
    fn raw_cells(&self) -> Option<&[u8]> {
        None
    }
    /// `dynamic` or `static`, empty where it is not recorded.
    fn state(&self) -> &[u8];
    /// `AI_CORE`, `AI_VECTOR_CORE` …
    fn core(&self) -> &[u8];
    /// The duration; `None` where it is not recorded.
    fn duration(&self) -> Result<Option<Nanos>, ProfileError>;
    /// Adds its counters.
    fn add_counters(&self, sums: &mut CounterSums);
    /// An error that points at a cell of this record; `column` is a name of `kernel_details.csv`.
    fn bad_cell(&self, column: &'static str, cell: &[u8], problem: String) -> ProfileError;
}

impl KernelRecord for KernelRow<'_> {
    fn kernel(&self) -> &[u8] {
        self.kernel()
    }

    fn cells(&self) -> [&[u8]; 6] {
        self.signature_cells()
    }

    fn input_shapes(&self) -> &[u8] {
        self.input_shapes()
    }

    fn raw_cells(&self) -> Option<&[u8]> {
        self.raw_signature()
    }

    fn state(&self) -> &[u8] {
        self.state()
    }

    fn core(&self) -> &[u8] {
        self.core()
    }

    fn duration(&self) -> Result<Option<Nanos>, ProfileError> {
        self.duration()
    }

    fn add_counters(&self, sums: &mut CounterSums) {
        for (sum, value) in sums.0.iter_mut().zip(self.counter_millionths()) {
            if let Some(value) = value {
                sum.add(value);
            }
        }
    }

    fn bad_cell(&self, column: &'static str, cell: &[u8], problem: String) -> ProfileError {
        self.bad_cell(column, cell, problem)
    }
}

/// Sums of whole millionths, which do not depend on their order.
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

/// A sum for each counter of [`COUNTERS`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CounterSums([CounterSum; COUNTERS.len()]);

impl CounterSums {
    /// Adds one value of a counter.
    pub(super) fn add(&mut self, counter: usize, millionths: i64) {
        if let Some(sum) = self.0.get_mut(counter) {
            sum.add(millionths);
        }
    }

    /// Adds what others have summed up.
    pub(super) fn absorb(&mut self, other: &Self) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            sum.millionths += more.millionths;
            sum.count += more.count;
        }
    }

    /// The mean of each counter, `None` where there was no value.
    pub(super) fn means(&self) -> Vec<Option<f64>> {
        #[expect(clippy::cast_precision_loss, reason = "a quotient of what was summed exactly")]
        let mean =
            |sum: &CounterSum| (sum.count > 0).then(|| sum.millionths as f64 / (sum.count as f64 * 1e6));
        self.0.iter().map(mean).collect()
    }
}
