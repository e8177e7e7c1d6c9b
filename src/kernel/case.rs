//! Cases: one kernel with one signature, with an id that is the same on every machine and day.

use std::{
    collections::{HashMap, HashSet},
    fmt::{self, Write as _},
    ops::Deref,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{
    CaseAttributes, CollectiveCase, Dims, KernelName, PartWeights, Slot, Tensor,
    signature::canonical_signature,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Case {
    pub kernel: KernelName,
    /// Input slots in the profiler's order; `None` is an omitted optional input.
    pub inputs: Vec<Slot>,
    /// Output slots; empty for kernels that work in place, whose outputs the profiler does not show.
    pub outputs: Vec<Slot>,
    pub attributes: CaseAttributes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentifiedCase {
    case: Case,
    id: CaseId,
}

impl IdentifiedCase {
    pub(crate) fn new(case: Case) -> Self {
        let id = case.id();
        Self { case, id }
    }

    pub(crate) const fn id(&self) -> &CaseId {
        &self.id
    }
}

impl Deref for IdentifiedCase {
    type Target = Case;

    fn deref(&self) -> &Case {
        &self.case
    }
}

/// Map by case. Ids are digests already, so that a hash without protection against chosen keys suffices; a fixed one iterates
/// in the same order in each process.
pub(crate) type CaseMap<V> = HashMap<CaseId, V, foldhash::fast::FixedState>;
pub(crate) type CaseSet = HashSet<CaseId, foldhash::fast::FixedState>;

/// Id of a case: 16 hexadecimal digits of the SHA-256 of its canonical signature.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(with = "String")]
pub struct CaseId(Box<str>);

impl Case {
    /// Returns the canonical signature, equal for equal cases: kernel, slots as `dims:type:format`, attributes.
    pub fn signature(&self) -> String {
        canonical_signature(self)
    }

    /// Returns a key that orders the cases of a kernel by their dimensions, and those with equal ones by their signature.
    /// Collectives are ordered by environment, that without variables first, parts, equal ones first, group, type and size.
    pub(crate) fn sort_key(&self) -> (Vec<Vec<u64>>, String) {
        if let Some(collective) = CollectiveCase::of_case(self) {
            let CollectiveCase { kind: _, message, ranks, tier, dtype, environment, parts } = collective;
            let has_variables = u8::from(!environment.is_empty());
            let group = format!("{ranks:010}|{tier:04}|{dtype}|{message:020}");
            let has_weights = u8::from(parts != PartWeights::Equal);
            return (Vec::new(), format!("{has_variables}{environment}|{has_weights}{parts}|{group}"));
        }
        let slots = self.inputs.iter().chain(&self.outputs);
        let dims = slots.map(|slot| slot.as_ref().map(|tensor| tensor.dims.clone()).unwrap_or_default());
        (dims.collect(), self.signature())
    }

    pub fn id(&self) -> CaseId {
        CaseId(short_hash(self.signature().as_bytes()).into())
    }

    /// Returns true if the dimensions of an input are the first ones of another input. The C++ exporter writes an empty tensor so,
    /// because it ends a shape at its first 0 (Ascend/msprof 9ba1ac7,
    /// analysis/csrc/domain/services/persistence/host/cann_trace_db_dumper.cpp, AddTensorShapeInfo).
    pub(crate) fn may_have_empty_input(&self) -> bool {
        let tensors = || self.inputs.iter().flatten();
        let is_cut = |one: &Tensor| {
            tensors().any(|other| one.dims.len() < other.dims.len() && other.dims.starts_with(&one.dims))
        };
        tensors().any(is_cut)
    }

    pub(crate) fn input(&self, slot: usize) -> Option<&Tensor> {
        self.inputs.get(slot)?.as_ref()
    }

    pub(crate) fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.inputs.iter().chain(&self.outputs).flatten()
    }

    pub fn bytes(&self) -> u64 {
        self.tensors().fold(0, |sum, tensor| sum.saturating_add(tensor.bytes()))
    }

    /// Formats the shapes of inputs and outputs: `4096,1024;1024 -> 4096,1024`.
    pub fn shapes(&self) -> String {
        let shape =
            |slot: &Slot| slot.as_ref().map_or_else(String::new, |tensor| Dims(&tensor.dims).to_string());
        let side = |slots: &[Slot]| slots.iter().map(shape).collect::<Vec<_>>().join(";");
        format!("{} -> {}", side(&self.inputs), side(&self.outputs))
    }
}

impl CaseId {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn seed(&self) -> u64 {
        u64::from_str_radix(&self.0, 16).unwrap_or_default()
    }

    pub(crate) fn from_stored(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for CaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

pub(crate) fn short_hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(8).fold(String::with_capacity(16), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

const ALIGNMENT: u64 = 512;
const BLOCK_ROWS: u64 = 16;
const BLOCK_BYTES: u64 = 32;
/// Copies of each input and output. The replay builds tensors from chunks, without temporary tensors of their size; the
/// second copy stands for the row-major tensor that is converted to a blocked format, for the results of a call that
/// are allocated before the results of the previous call are freed, and for memory that the allocator cannot use
/// because of gaps.
const COPIES: u64 = 2;
const FIXED_WORKSPACE: u64 = 32 << 20;

/// Device memory of a case in bytes. Blocks of FRACTAL_NZ are filled up, and each tensor starts at a multiple of 512 bytes.
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
    use crate::kernel::{CaseAttributes, SignatureCells};

    impl IdentifiedCase {
        pub(crate) fn without_tensors(kernel: &str) -> Self {
            Self::new(Case {
                kernel: KernelName::new(kernel).expect("a name"),
                inputs: Vec::new(),
                outputs: Vec::new(),
                attributes: CaseAttributes::default(),
            })
        }
    }

    fn case(shapes: &str, dtypes: &str, formats: &str) -> Case {
        let inputs = SignatureCells { shapes, dtypes, formats }.parse().expect("readable cells");
        Case {
            kernel: KernelName::new("RmsNorm").expect("a name"),
            inputs,
            outputs: Vec::new(),
            attributes: CaseAttributes::default(),
        }
    }

    #[test]
    fn ids_do_not_change() {
        // Written into users' CSVs: a change here orphans their evidence.
        let id = case("\"4096,1,1024;1024\"", "DT_BF16;DT_BF16", "ND;ND").id();
        assert_eq!(id.as_str(), "7ac111b11286573d");
    }

    #[test]
    fn ids_of_kernels_with_rules_do_not_change() {
        let case =
            |kernel: &str, shapes: &str, formats: &str, output: &str, attribute: Option<(&str, &str)>| {
                // Slots behind the first one of these kernels are read from the host.
                let further = if ["Index", "Slice"].contains(&kernel) { "INT64" } else { "DT_BF16" };
                let dtypes = std::iter::once("DT_BF16").chain(shapes.matches(';').map(|_| further));
                let dtypes = dtypes.collect::<Vec<_>>().join(";");
                let mut attributes = CaseAttributes::default();
                if let Some((column, cell)) = attribute {
                    attributes.set(column, cell);
                }
                let side = |shapes, dtypes, formats| {
                    SignatureCells { shapes, dtypes, formats }.parse().expect("readable cells")
                };
                let kernel = KernelName::new(kernel).expect("a name");
                let (inputs, outputs) = (side(shapes, &dtypes, formats), side(output, "DT_BF16", "ND"));
                Case { kernel, inputs, outputs, attributes }.id().as_str().to_owned()
            };
        let lengths = ("Runtime actual_seq_lengths_kv_values", "[4096, 100]");
        let ids = [
            case("MatMulV2", "1,1024;64,160,16,16", "ND;FRACTAL_NZ", "1,2560", None),
            case("Index", "4096,128;1;2;77", "ND;ND;ND;ND", "77,128", None),
            case("Slice", "64,128;2;2", "NCHW;ND;ND", "64,32", None),
            case("Add", "4096;", "ND;ND", "4096", None),
            case("DispatchFFNCombine", "64,128", "ND", "64,128", Some(("EP Size", "16"))),
            case(
                "FusedInferAttentionScore",
                "2,4,128;9,128,128;9,128,128",
                "ND;ND;ND",
                "2,4,128",
                Some(lengths),
            ),
        ];
        insta::assert_debug_snapshot!(ids);
    }

    #[test]
    fn case_id_ignores_spelling() {
        let id = case("\"4096,1,1024;1024\"", "DT_BF16;DT_BF16", "ND;ND").id();
        assert_eq!(case("4096,1,1024;1024;;", "BF16;DT_BF16", "FORMAT_ND;ND").id(), id);
        assert_ne!(case("4096,1,1024;1024", "FLOAT;DT_BF16", "ND;ND").id(), id);
        assert_ne!(case("4096,1,1024;1024", "BF16;BF16", "ND;NCL").id(), id);
    }

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
