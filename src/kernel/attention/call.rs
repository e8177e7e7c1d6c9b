//! Calls of fused attention by the host, and their comparison with recorded kernels.

use std::collections::BTreeMap;

use crate::kernel::{AttentionCase, AttentionSlot, Case, CaseAttributes, Dims};

/// Shapes that the host passed to the kernel, by slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttentionCall {
    shapes: BTreeMap<usize, Vec<u64>>,
}

/// Agreement of a kernel's shapes with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ShapeMatch {
    Exact,
    /// Other dimensions of the paged cache with the same number of elements: the kernel got another view of it.
    Reshaped,
}

/// Slots of the cache, which may be passed in several views.
const CACHE: [AttentionSlot; 3] = [AttentionSlot::Key, AttentionSlot::Value, AttentionSlot::KeyRope];

/// Slots of compared tensors, which are large or determine the amount of read data.
const COMPARED: [AttentionSlot; 7] = [
    AttentionSlot::Query,
    AttentionSlot::Key,
    AttentionSlot::Value,
    AttentionSlot::Mask,
    AttentionSlot::BlockTable,
    AttentionSlot::QueryRope,
    AttentionSlot::KeyRope,
];

impl AttentionCall {
    pub(crate) const SLOTS: usize = 31;

    /// Sets the shape of the tensor in a slot; an empty shape stands for no tensor.
    pub(crate) fn set_shape(&mut self, slot: usize, dims: Vec<u64>) {
        if slot < Self::SLOTS && !dims.is_empty() {
            self.shapes.insert(slot, dims);
        }
    }

    pub(crate) fn dims(&self, slot: AttentionSlot) -> Option<&[u64]> {
        self.shapes.get(&(slot as usize)).map(Vec::as_slice)
    }

    pub(crate) fn is_complete(&self) -> bool {
        [AttentionSlot::Query, AttentionSlot::Key, AttentionSlot::Value]
            .into_iter()
            .all(|slot| self.dims(slot).is_some())
    }

    /// Compares the shapes with a recorded kernel; `None` if they contradict each other.
    pub(crate) fn match_shapes(&self, case: &Case) -> Option<ShapeMatch> {
        let kernel = AttentionCase::new(case);
        let mut fit = ShapeMatch::Exact;
        // The host passes lists of lengths. Packed tokens have one shape for any number of sequences.
        for slot in [AttentionSlot::QueryLengths, AttentionSlot::KvLengths] {
            if let Some(dims) = self.dims(slot) {
                kernel.dims(slot).filter(|shown| element_count(shown) == element_count(dims))?;
            }
        }
        for slot in COMPARED {
            match (self.dims(slot), kernel.dims(slot)) {
                (None, None) => {}
                (Some(call), Some(kernel)) if call == kernel => {}
                (Some(call), Some(shown))
                    if CACHE.contains(&slot)
                        && kernel.is_paged()
                        && element_count(call) == element_count(shown) =>
                {
                    fit = ShapeMatch::Reshaped;
                }
                _ => return None,
            }
        }
        Some(fit)
    }

    /// Formats a cell of 31 slots. Lengths are lists on the host, so their shapes are the kernel's.
    pub(crate) fn shapes_cell(&self, case: &Case) -> String {
        let kernel = AttentionCase::new(case);
        let slots = (0..Self::SLOTS).map(|index| {
            let lengths = [AttentionSlot::QueryLengths, AttentionSlot::KvLengths]
                .into_iter()
                .find(|slot| *slot as usize == index)
                .and_then(|slot| kernel.dims(slot));
            lengths
                .or(self.shapes.get(&index).map(Vec::as_slice))
                .map_or_else(String::new, |dims| Dims(dims).to_string())
        });
        slots.collect::<Vec<_>>().join(";")
    }
}

fn element_count(dims: &[u64]) -> Option<u64> {
    dims.iter().try_fold(1_u64, |product, &dim| product.checked_mul(dim))
}

/// Returns the calls that match a kernel best: all exact matches, or without any, all with another view of the cache.
pub(crate) fn best_shape_matches<T>(
    case: &Case,
    calls: impl IntoIterator<Item = T>,
    call_of: impl Fn(&T) -> &AttentionCall,
) -> Vec<T> {
    let fits: Vec<(ShapeMatch, T)> =
        calls.into_iter().filter_map(|call| Some((call_of(&call).match_shapes(case)?, call))).collect();
    let best = fits.iter().map(|(fit, _)| *fit).min();
    fits.into_iter().filter(|(fit, _)| Some(*fit) == best).map(|(_, call)| call).collect()
}

pub(crate) fn common_attributes<'a>(
    variants: impl IntoIterator<Item = &'a CaseAttributes>,
) -> CaseAttributes {
    let mut variants = variants.into_iter();
    let first = variants.next().cloned().unwrap_or_default();
    variants.fold(first, |mut common, other| {
        common.retain(|name, value| other.get(name) == Some(value));
        common
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{KernelName, SignatureCells};

    fn case(query: &str, key: &str, table: &str) -> Case {
        let mut shapes = vec![""; 31];
        (shapes[0], shapes[1], shapes[2], shapes[14]) = (query, key, key, table);
        let dtypes = vec!["DT_BF16"; 31].join(";");
        let cells = SignatureCells { shapes: &shapes.join(";"), dtypes: &dtypes, formats: "" };
        Case {
            kernel: KernelName::new(AttentionCase::KERNEL).expect("a name"),
            inputs: cells.parse().expect("cells"),
            outputs: Vec::new(),
            attributes: CaseAttributes::default(),
        }
    }

    fn call(query: &[u64], key: &[u64], table: &[u64]) -> AttentionCall {
        let mut call = AttentionCall::default();
        for (slot, dims) in [(0, query), (1, key), (2, key), (14, table)] {
            call.set_shape(slot, dims.to_vec());
        }
        call
    }

    #[test]
    fn cache_views_match_and_other_sizes_do_not() {
        let kernel = case("128,4,128", "12307,128,128", "128,512");
        let same = call(&[128, 4, 128], &[12307, 128, 128], &[128, 512]);
        let viewed = call(&[128, 4, 128], &[12307, 128, 1, 128], &[128, 512]);
        assert_eq!(same.match_shapes(&kernel), Some(ShapeMatch::Exact));
        assert_eq!(viewed.match_shapes(&kernel), Some(ShapeMatch::Reshaped));
        assert_eq!(
            call(&[64, 8, 128], &[12307, 128, 128], &[128, 512]).match_shapes(&kernel),
            None,
            "as many elements"
        );
        assert_eq!(call(&[64, 4, 128], &[12307, 128, 128], &[128, 512]).match_shapes(&kernel), None);
        assert_eq!(call(&[128, 4, 128], &[12307, 128, 128], &[]).match_shapes(&kernel), None, "not paged");
        let both = [same.clone(), viewed.clone()];
        assert_eq!(best_shape_matches(&kernel, &both, |call| call), [&same]);
        assert_eq!(best_shape_matches(&kernel, &both[1..], |call| call), [&viewed]);
    }

    #[test]
    fn packed_tokens_of_other_sequences_are_another_call() {
        let mut kernel = case("24624,4,128", "24624,1,128", "");
        let lengths = |count: u64| {
            let mut call = call(&[24624, 4, 128], &[24624, 1, 128], &[]);
            call.set_shape(AttentionSlot::KvLengths as usize, vec![count]);
            call
        };
        kernel.inputs[6] =
            kernel.inputs[0].clone().map(|tensor| crate::kernel::Tensor { dims: vec![7], ..tensor });
        assert_eq!(lengths(7).match_shapes(&kernel), Some(ShapeMatch::Exact));
        assert_eq!(lengths(2).match_shapes(&kernel), None);
        assert_eq!(
            call(&[24624, 4, 128], &[24624, 1, 128], &[]).match_shapes(&kernel),
            Some(ShapeMatch::Exact),
            "not told"
        );
    }

    #[test]
    fn attention_call_cell_has_31_slots() {
        let kernel = case("4,2,8", "9,16,16", "4,3");
        let cell = call(&[4, 2, 8], &[9, 16, 2, 8], &[4, 3]).shapes_cell(&kernel);
        assert_eq!(cell, "4,2,8;9,16,2,8;9,16,2,8;;;;;;;;;;;;4,3;;;;;;;;;;;;;;;;");
    }

    #[test]
    fn differing_attributes_are_not_common() {
        let attributes = |lengths: &str| {
            let mut attributes = CaseAttributes::default();
            attributes.set("Runtime num_heads", "4");
            attributes.set("Runtime actual_seq_lengths_kv_values", lengths);
            attributes
        };
        let agreed = common_attributes(&[attributes("1,2"), attributes("1,3")]);
        assert_eq!(agreed.iter().collect::<Vec<_>>(), [("Runtime num_heads", "4")]);
    }
}
