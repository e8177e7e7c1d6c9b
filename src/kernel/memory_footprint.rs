//! Device memory that a case needs, including what the allocator and the layouts add: blocks of FRACTAL_NZ are filled
//! up, each tensor starts at a multiple of 512 bytes, inputs and outputs are counted twice, and the kernel has a
//! workspace of a fixed size plus the size of its outputs.

use super::{Case, Slot, Tensor};

const ALIGNMENT: u64 = 512;
const BLOCK_ROWS: u64 = 16;
const BLOCK_BYTES: u64 = 32;
/// Copies of each input and output. The replay builds tensors from chunks, without temporary tensors of their size; the
/// second copy stands for the row-major tensor that is converted to a blocked format, for the results of a call that
/// are allocated before the results of the previous call are freed, and for memory that the allocator cannot use
/// because of gaps.
const COPIES: u64 = 2;
const FIXED_WORKSPACE: u64 = 32 << 20;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryFootprint {
    inputs: u64,
    outputs: u64,
}

impl MemoryFootprint {
    pub fn from_case(case: &Case) -> Self {
        let size = |Tensor { dims, dtype, format }: &Tensor| {
            padded(dims, dtype.bytes().unwrap_or(2), format.private().is_some())
        };
        let sum = |slots: &[Slot]| slots.iter().flatten().map(size).fold(0, u64::saturating_add);
        Self { inputs: sum(&case.inputs), outputs: sum(&case.outputs) }
    }

    pub const fn bytes(&self) -> u64 {
        let tensors = self.inputs.saturating_add(self.outputs).saturating_mul(COPIES);
        tensors.saturating_add(self.outputs).saturating_add(FIXED_WORKSPACE)
    }
}

/// Returns the part of a device's memory that cases may need: 15/16, because firmware and runtime keep the rest.
pub const fn default_memory_budget(hbm_bytes: u64) -> u64 {
    hbm_bytes / 16 * 15
}

fn padded(dims: &[u64], element: u64, is_blocked: bool) -> u64 {
    let columns = BLOCK_BYTES / element.clamp(1, BLOCK_BYTES);
    let product = |dims: &[u64]| dims.iter().fold(1_u64, |product, dim| product.saturating_mul(*dim));
    let elements = match dims {
        // The dimensions already count blocks.
        [.., rows, width] if is_blocked && dims.len() >= 4 && (*rows, *width) == (BLOCK_ROWS, columns) => {
            product(dims)
        }
        // The profiler records the logical shape of a blocked matrix for some kernels.
        [batch @ .., rows, width] if is_blocked => {
            let whole = |dim: u64, block: u64| dim.checked_next_multiple_of(block).unwrap_or(u64::MAX);
            let blocks = whole(*rows, BLOCK_ROWS).saturating_mul(whole(*width, columns));
            product(batch).saturating_mul(blocks)
        }
        dims => product(dims),
    };
    let bytes = elements.saturating_mul(element);
    bytes.checked_next_multiple_of(ALIGNMENT).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_alignment_are_padded() {
        assert_eq!(padded(&[1], 2, false), 512);
        assert_eq!(padded(&[], 4, false), 512);
        assert_eq!(padded(&[256], 2, false), 512);
        assert_eq!(padded(&[257], 2, false), 1024);
        // 17 x 33 in INT8: two blocks of 16 rows, two of 32 columns.
        assert_eq!(padded(&[17, 33], 1, true), 32 * 64);
        assert_eq!(padded(&[2, 17, 33], 2, true), 2 * 32 * 48 * 2);
        assert_eq!(padded(&[2, 2, 16, 32], 1, true), 2 * 2 * 16 * 32);
    }

    #[test]
    fn footprint_includes_copies_and_workspace() {
        let [inputs, outputs] = [2, 4].map(|element| padded(&[1 << 20], element, false));
        let footprint = MemoryFootprint { inputs, outputs };
        assert_eq!(footprint.bytes(), 2 * (6 << 20) + (4 << 20) + (32 << 20));
    }

    #[test]
    fn footprint_saturates_on_overflow() {
        let footprint = MemoryFootprint { inputs: padded(&[u64::MAX, 3], 8, true), outputs: 0 };
        assert_eq!(footprint.bytes(), u64::MAX);
    }
}
