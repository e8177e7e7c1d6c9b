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
    /// `YES`, `NO` or `N/A`, empty if not recorded.
    pub(super) hf32: &'r [u8],
}

impl KernelRecord<'_> {
    /// Returns true for a product of FLOAT in HF32. `YES` is the mode with which the kernel was launched (hicann/opbase aa3cd74,
    /// src/nnopbase/composite_op/aclnn_engine/op_dfx.cpp); other types than FLOAT have none, whatever a custom operator states.
    /// Convolutions run in HF32 by default, as those of a replay would (Ascend/pytorch 9e73e708, LazyInitAclops.cpp).
    pub(super) fn is_hf32_product(&self) -> bool {
        let is_float = || self.cells[1].trim_ascii().split(|byte| *byte == b';').next() == Some(b"FLOAT");
        self.hf32.trim_ascii() == b"YES" && is_float() && !self.kernel.windows(4).any(|part| part == b"Conv")
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_products_of_float_have_a_mode() {
        let is_hf32 = |kernel: &str, dtypes: &str, hf32: &str| {
            let mut cells = [&b""[..]; 6];
            cells[1] = dtypes.as_bytes();
            let record = KernelRecord {
                file: Path::new("k.csv"),
                place: RecordPosition::Line(2),
                names: &["Type", "", "", "", "", "", "", ""],
                name: b"",
                kernel: kernel.as_bytes(),
                cells,
                state: b"",
                core: b"",
                hf32: hf32.as_bytes(),
            };
            record.is_hf32_product()
        };
        assert!(
            is_hf32("MatMulV2", "FLOAT;FLOAT", "YES") && is_hf32("BatchMatMulV3", "FLOAT;FLOAT", " YES\t")
        );
        // A custom operator of 16 bits in a recorded profile states it, too.
        for (kernel, dtypes, hf32) in [
            ("matmul_bias_activation_kernel", "FLOAT16;FLOAT16;FLOAT16", "YES"),
            ("MatMulV2", "FLOAT;FLOAT", "NO"),
            ("MatMulV2", "FLOAT;FLOAT", "N/A"),
            ("Conv2D", "FLOAT;FLOAT", "YES"),
            ("DepthwiseConv2D", "FLOAT;FLOAT", "YES"),
        ] {
            assert!(!is_hf32(kernel, dtypes, hf32), "{kernel} {dtypes} {hf32}");
        }
    }
}
