//! A call of fused attention as the host saw it, and whether a recorded kernel can be it.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::{AttentionCase, AttentionSlot, Case, CaseAttributes, Dims};

/// What the host passed to the kernel, by the kernel's slots.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttentionCall {
    shapes: BTreeMap<usize, Vec<u64>>,
}

/// How well a kernel's shapes agree with a call's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShapeMatch {
    /// Every tensor has the same dimensions.
    Exact,
    /// The paged cache has other dimensions and as many elements: the kernel got it in another view.
    Reshaped,
}

/// Slots of the cache, which is passed in several views.
const CACHE: [AttentionSlot; 3] = [AttentionSlot::Key, AttentionSlot::Value, AttentionSlot::KeyRope];

/// Slots whose tensors are compared: those that hold much or decide how much is read.
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
    /// Slots of the kernel.
    pub const SLOTS: usize = 31;

    /// Says the shape of the tensor in a slot; an empty shape is no tensor.
    pub fn set(&mut self, slot: usize, dims: Vec<u64>) {
        if slot < Self::SLOTS && !dims.is_empty() {
            self.shapes.insert(slot, dims);
        }
    }

    /// The shape of the tensor in a slot.
    #[must_use]
    pub fn dims(&self, slot: AttentionSlot) -> Option<&[u64]> {
        self.shapes.get(&(slot as usize)).map(Vec::as_slice)
    }

    /// Whether there are queries, keys and values.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        [AttentionSlot::Query, AttentionSlot::Key, AttentionSlot::Value]
            .into_iter()
            .all(|slot| self.dims(slot).is_some())
    }

    /// Whether a recorded kernel can be this call, and how well it agrees.
    #[must_use]
    pub fn fit(&self, case: &Case) -> Option<ShapeMatch> {
        let kernel = AttentionCase::new(case);
        let mut fit = ShapeMatch::Exact;
        // On the host the lengths are lists. Packed tokens have one shape however many sequences they are of.
        for slot in [AttentionSlot::QueryLengths, AttentionSlot::KvLengths] {
            if self.dims(slot).is_some_and(|dims| kernel.dims(slot).map(elements) != Some(elements(dims))) {
                return None;
            }
        }
        for slot in COMPARED {
            match (self.dims(slot), kernel.dims(slot)) {
                (None, None) => {}
                (Some(call), Some(kernel)) if call == kernel => {}
                (Some(call), Some(shown))
                    if CACHE.contains(&slot) && kernel.is_paged() && elements(call) == elements(shown) =>
                {
                    fit = ShapeMatch::Reshaped;
                }
                _ => return None,
            }
        }
        Some(fit)
    }

    /// The shapes as a cell of 31 slots. The lengths are lists on the host and tensors of the kernel, so their
    /// shapes are the kernel's.
    #[must_use]
    pub fn cell(&self, case: &Case) -> String {
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

fn elements(dims: &[u64]) -> Option<u64> {
    dims.iter().try_fold(1_u64, |product, &dim| product.checked_mul(dim))
}

/// The calls that fit a kernel best: all exact ones, or if there are none, all that had another view.
#[must_use]
pub fn best_shape_matches<T>(
    case: &Case,
    calls: impl IntoIterator<Item = T>,
    call_of: impl Fn(&T) -> &AttentionCall,
) -> Vec<T> {
    let fits: Vec<(ShapeMatch, T)> =
        calls.into_iter().filter_map(|call| Some((call_of(&call).fit(case)?, call))).collect();
    let best = fits.iter().map(|(fit, _)| *fit).min();
    fits.into_iter().filter(|(fit, _)| Some(*fit) == best).map(|(_, call)| call).collect()
}

/// What several sets of attributes have in common.
#[must_use]
pub fn common_attributes<'a>(variants: impl IntoIterator<Item = &'a CaseAttributes>) -> CaseAttributes {
    let mut variants = variants.into_iter();
    let Some(first) = variants.next() else { return CaseAttributes::default() };
    let mut disputed = BTreeSet::new();
    for other in variants {
        for (name, value) in first.iter() {
            if other.get(name) != Some(value) {
                disputed.insert(name);
            }
        }
    }
    let mut common = first.clone();
    for name in disputed {
        common.remove(name);
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{KernelName, SignatureCells};

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
            call.set(slot, dims.to_vec());
        }
        call
    }

    #[test]
    fn views_fit_and_other_sizes_do_not() {
        let kernel = case("128,4,128", "12307,128,128", "128,512");
        let same = call(&[128, 4, 128], &[12307, 128, 128], &[128, 512]);
        let viewed = call(&[128, 4, 128], &[12307, 128, 1, 128], &[128, 512]);
        assert_eq!(same.fit(&kernel), Some(ShapeMatch::Exact));
        assert_eq!(viewed.fit(&kernel), Some(ShapeMatch::Reshaped));
        assert_eq!(
            call(&[64, 8, 128], &[12307, 128, 128], &[128, 512]).fit(&kernel),
            None,
            "as many elements"
        );
        assert_eq!(call(&[64, 4, 128], &[12307, 128, 128], &[128, 512]).fit(&kernel), None);
        assert_eq!(call(&[128, 4, 128], &[12307, 128, 128], &[]).fit(&kernel), None, "not paged");
        let both = [same.clone(), viewed.clone()];
        assert_eq!(best_shape_matches(&kernel, &both, |call| call), [&same]);
        assert_eq!(best_shape_matches(&kernel, &both[1..], |call| call), [&viewed]);
    }

    #[test]
    fn packed_tokens_of_other_sequences_are_another_call() {
        let mut kernel = case("24624,4,128", "24624,1,128", "");
        let lengths = |count: u64| {
            let mut call = call(&[24624, 4, 128], &[24624, 1, 128], &[]);
            call.set(AttentionSlot::KvLengths as usize, vec![count]);
            call
        };
        kernel.inputs[6] =
            kernel.inputs[0].clone().map(|tensor| crate::domain::Tensor { dims: vec![7], ..tensor });
        assert_eq!(lengths(7).fit(&kernel), Some(ShapeMatch::Exact));
        assert_eq!(lengths(2).fit(&kernel), None);
        assert_eq!(
            call(&[24624, 4, 128], &[24624, 1, 128], &[]).fit(&kernel),
            Some(ShapeMatch::Exact),
            "not told"
        );
    }

    #[test]
    fn the_cell_has_every_slot() {
        let kernel = case("4,2,8", "9,16,16", "4,3");
        let cell = call(&[4, 2, 8], &[9, 16, 2, 8], &[4, 3]).cell(&kernel);
        assert_eq!(cell, "4,2,8;9,16,2,8;9,16,2,8;;;;;;;;;;;;4,3;;;;;;;;;;;;;;;;");
    }

    #[test]
    fn what_differs_is_not_agreed() {
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
