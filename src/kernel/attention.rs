//! Arguments of `FusedInferAttentionScore`. Its time depends on the lengths of the sequences, which are values of its
//! inputs, and on arguments such as the layout, which no profile contains. Both are attributes; arguments implied by
//! the shapes are derived here and never stored as attributes.

use std::collections::BTreeMap;

use strum::VariantArray;

use super::{
    Case, CaseAttributes, Dims, RUNTIME, Slot,
    attributes::{AVG_SEQ_LEN, is_mean},
};

pub(crate) mod attention_attribute {
    /// Lengths of the queries, cumulative if the layout packs them (`TND`).
    pub(crate) const QUERY_LENGTHS: &str = "Runtime actual_seq_lengths_values";
    /// Lengths of keys and values: of each sequence if they are paged, else in the form of the queries' lengths.
    pub(crate) const KV_LENGTHS: &str = "Runtime actual_seq_lengths_kv_values";
    pub(crate) const AVG_SEQ_LEN: &str = super::AVG_SEQ_LEN;
    pub(crate) const VALID_BLOCKS: &str = "Runtime block_table_valid_blocks";
    pub(crate) const HEADS: &str = "Runtime num_heads";
    pub(crate) const KV_HEADS: &str = "Runtime num_key_value_heads";
    /// Use of the mask: 0 complete or none, 3 causal from the lower right.
    pub(crate) const SPARSE_MODE: &str = "Runtime sparse_mode";
    /// Order of the dimensions, such as `TND`, `BSH`, `BNSD`.
    pub(crate) const LAYOUT: &str = "Runtime input_layout";
    /// Limit of the number of preceding tokens that a token attends to.
    pub(crate) const PRE_TOKENS: &str = "Runtime pre_tokens";
    /// Limit of the number of following tokens that a token attends to.
    pub(crate) const NEXT_TOKENS: &str = "Runtime next_tokens";
    pub(crate) const SHARED_PREFIX: &str = "Runtime actual_shared_prefix_len";
    /// Tokens in a block of the paged keys and values; 0 if they are not paged.
    pub(crate) const BLOCK_SIZE: &str = "Runtime block_size";
    pub(crate) const ALL: [&str; 12] = [
        QUERY_LENGTHS,
        KV_LENGTHS,
        AVG_SEQ_LEN,
        VALID_BLOCKS,
        HEADS,
        KV_HEADS,
        SPARSE_MODE,
        LAYOUT,
        PRE_TOKENS,
        NEXT_TOKENS,
        SHARED_PREFIX,
        BLOCK_SIZE,
    ];
}
use attention_attribute as name;

#[derive(Clone, Copy, Debug, PartialEq, Eq, VariantArray)]
pub(crate) enum AttentionSlot {
    Query = 0,
    Key = 1,
    Value = 2,
    Mask = 4,
    QueryLengths = 5,
    KvLengths = 6,
    BlockTable = 14,
    QueryRope = 24,
    KeyRope = 25,
}

/// Returns attributes without means and numbers of blocks that follow from the recorded lengths of keys.
pub(super) fn without_derived_values(case: &Case, attributes: CaseAttributes) -> CaseAttributes {
    let view = AttentionCase::new(case);
    let Some(lengths) = view.recorded_key_lengths() else { return attributes };
    let mut deciding = attributes;
    let mean = lengths.iter().map(|length| *length as f64).sum::<f64>() / lengths.len().max(1) as f64;
    if deciding.get(name::AVG_SEQ_LEN).is_some_and(|recorded| is_mean(recorded, mean)) {
        deciding.remove(name::AVG_SEQ_LEN);
    }
    let block = view.recorded_block_size().filter(|size| *size > 0);
    let counts = block.map(|size| lengths.iter().map(|length| length.div_ceil(size)).collect::<Vec<_>>());
    if counts.is_some_and(|counts| deciding.get(name::VALID_BLOCKS) == Some(&*Dims(&counts).to_string())) {
        deciding.remove(name::VALID_BLOCKS);
    }
    deciding
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct AttentionCase<'a> {
    pub(super) case: &'a Case,
}

impl<'a> AttentionCase<'a> {
    pub(crate) const KERNEL: &'static str = "FusedInferAttentionScore";

    pub(crate) const fn new(case: &'a Case) -> Self {
        Self { case }
    }

    pub(crate) fn dims(&self, slot: AttentionSlot) -> Option<&'a [u64]> {
        let tensor = self.case.inputs.get(slot as usize).and_then(Slot::as_ref)?;
        (!tensor.is_scalar()).then_some(tensor.dims.as_slice())
    }

    pub(crate) fn is_paged(&self) -> bool {
        self.dims(AttentionSlot::BlockTable).is_some()
    }

    /// Returns the recorded number of keys of each sequence. Packed keys that are not in blocks are recorded by their ends.
    fn recorded_key_lengths(&self) -> Option<Vec<u64>> {
        let lengths = self.case.attributes.numbers(name::KV_LENGTHS)?;
        let implied = self.implied_attributes();
        let layout = self.case.attributes.get(name::LAYOUT).or_else(|| implied.get(name::LAYOUT));
        let has_ends = self.is_fused_attention()
            && !self.is_paged()
            && layout.is_some_and(|layout| layout.starts_with('T'));
        if has_ends { lengths_from_ends(&lengths) } else { Some(lengths) }
    }

    /// Returns the number of tokens in a block of the keys by the shape of these. The kernels of sparse attention, which are
    /// not fused, have the heads behind the tokens.
    fn recorded_block_size(&self) -> Option<u64> {
        match *self.dims(AttentionSlot::Key)? {
            [_, size, _, _] if !self.is_fused_attention() => Some(size),
            // Keys in blocks of 16 or 32 columns have the tokens in front of these.
            [_, _, _, size, _] => Some(size),
            _ => self.block_size(),
        }
    }

    fn block_size(&self) -> Option<u64> {
        match *self.dims(AttentionSlot::Key)? {
            [_, size, _] | [_, _, size, _] => Some(size),
            _ => None,
        }
    }

    fn is_fused_attention(&self) -> bool {
        self.case.kernel.as_str() == Self::KERNEL
    }

    /// Returns the arguments that follow from the shapes, by the rules with which such databases have been replayed.
    pub(crate) fn implied_attributes(&self) -> CaseAttributes {
        let mut implied = CaseAttributes::default();
        let mut set = |name: &str, value: Option<u64>| {
            if let Some(value) = value {
                implied.set(name, &value.to_string());
            }
        };
        let (query, key) = (self.dims(AttentionSlot::Query), self.dims(AttentionSlot::Key));
        let paged = self.is_paged();
        set(name::HEADS, query.filter(|dims| dims.len() >= 3).map(|dims| dims[1]));
        let head = query.and_then(|dims| dims.last().copied()).filter(|&head| head > 0);
        let kv_heads = match key {
            Some(&[_, heads, _]) if !paged => Some(heads),
            Some(&[_, heads, _, _]) => Some(heads),
            // Blocks of complete rows contain all heads.
            Some(&[_, _, row]) => head.filter(|head| row % head == 0).map(|head| row / head),
            _ => None,
        };
        set(name::KV_HEADS, kv_heads);
        let block_size = if paged { self.block_size() } else { Some(0) };
        set(name::BLOCK_SIZE, block_size);
        set(name::SPARSE_MODE, Some(if self.dims(AttentionSlot::Mask).is_some() { 3 } else { 0 }));
        match (query.map(<[u64]>::len), self.dims(AttentionSlot::QueryRope)) {
            (Some(3), _) => implied.set(name::LAYOUT, "TND"),
            (Some(4), Some(_)) => implied.set(name::LAYOUT, "BNSD_NBSD"),
            _ => {}
        }
        implied
    }

    /// Returns `complete`, or the attributes that an exact replay needs and the case lacks.
    pub(crate) fn completeness(&self) -> String {
        let missing = self.missing_attributes();
        if missing.is_empty() {
            return "complete".to_owned();
        }
        let names: Vec<&str> =
            missing.iter().map(|name| name.strip_prefix(RUNTIME).unwrap_or(name)).collect();
        format!("partial: no {}", names.join(", "))
    }

    pub(crate) fn missing_attributes(&self) -> Vec<&'static str> {
        let has = |slot| self.dims(slot).is_some();
        let paged = self.is_paged();
        let needed = [
            (name::LAYOUT, true),
            (name::HEADS, true),
            (name::KV_HEADS, true),
            (name::SPARSE_MODE, true),
            (name::BLOCK_SIZE, paged),
            (name::QUERY_LENGTHS, has(AttentionSlot::QueryLengths)),
            (name::KV_LENGTHS, paged || has(AttentionSlot::KvLengths)),
        ];
        let missing = needed.into_iter().filter(|(_, is_needed)| *is_needed).map(|(name, _)| name);
        missing.filter(|name| self.case.attributes.get(name).is_none()).collect()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttentionCall {
    shapes: BTreeMap<usize, Vec<u64>>,
}

const CACHE: [AttentionSlot; 3] = [AttentionSlot::Key, AttentionSlot::Value, AttentionSlot::KeyRope];

/// Lists of lengths, which the host passes. Packed tokens have one shape for any number of sequences.
const LENGTHS: [AttentionSlot; 2] = [AttentionSlot::QueryLengths, AttentionSlot::KvLengths];

impl AttentionCall {
    pub(crate) const SLOTS: usize = 31;

    pub(crate) fn set_shape(&mut self, slot: usize, dims: Vec<u64>) {
        if slot < Self::SLOTS && !dims.is_empty() {
            self.shapes.insert(slot, dims);
        }
    }

    pub(crate) fn dims(&self, slot: AttentionSlot) -> Option<&[u64]> {
        self.shapes.get(&(slot as usize)).map(Vec::as_slice)
    }

    pub(crate) fn is_complete(&self) -> bool {
        let slots = [AttentionSlot::Query, AttentionSlot::Key, AttentionSlot::Value];
        slots.into_iter().all(|slot| self.dims(slot).is_some())
    }

    /// Returns true if dimensions of the paged cache differ from those of the case, with the same number of elements: the kernel
    /// got another view of it. `None` if the shapes do not match.
    fn match_shapes(&self, case: &Case) -> Option<bool> {
        let kernel = AttentionCase::new(case);
        let mut is_reshaped = false;
        for slot in LENGTHS {
            if let Some(dims) = self.dims(slot) {
                kernel.dims(slot).filter(|shown| element_count(shown) == element_count(dims))?;
            }
        }
        for slot in AttentionSlot::VARIANTS.iter().copied().filter(|slot| !LENGTHS.contains(slot)) {
            match (self.dims(slot), kernel.dims(slot)) {
                (None, None) => {}
                (Some(call), Some(kernel)) if call == kernel => {}
                (Some(call), Some(shown))
                    if CACHE.contains(&slot)
                        && kernel.is_paged()
                        && element_count(call) == element_count(shown) =>
                {
                    is_reshaped = true;
                }
                _ => return None,
            }
        }
        Some(is_reshaped)
    }

    /// Formats a cell of 31 slots. Lengths are lists on the host, so their shapes are the kernel's.
    pub(crate) fn shapes_cell(&self, case: &Case) -> String {
        let kernel = AttentionCase::new(case);
        let slots = (0..Self::SLOTS).map(|index| {
            let lengths = LENGTHS.into_iter().find(|slot| *slot as usize == index);
            let shown = lengths.and_then(|slot| kernel.dims(slot));
            let dims = shown.or(self.shapes.get(&index).map(Vec::as_slice));
            dims.map_or_else(String::new, |dims| Dims(dims).to_string())
        });
        slots.collect::<Vec<_>>().join(";")
    }
}

pub(crate) fn element_count(dims: &[u64]) -> Option<u64> {
    dims.iter().try_fold(1_u64, |product, &dim| product.checked_mul(dim))
}

/// Returns the calls that match a kernel best: all exact matches, or without any, all with another view of the cache.
pub(crate) fn best_shape_matches<T>(
    case: &Case,
    calls: impl IntoIterator<Item = T>,
    call_of: impl Fn(&T) -> &AttentionCall,
) -> Vec<T> {
    let fits: Vec<(bool, T)> =
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SequenceLengths {
    pub(crate) queries: Vec<u64>,
    pub(crate) keys: Vec<u64>,
    pub(crate) block: Option<u64>,
    pub(crate) packed: bool,
}

impl AttentionCase<'_> {
    pub(crate) fn sequences(&self) -> Option<SequenceLengths> {
        let attributes = &self.case.attributes;
        let packed = attributes.get(name::LAYOUT)?.starts_with('T');
        let lengths = |column: &str, cumulative: bool| {
            let numbers = attributes.numbers(column).filter(|numbers| !numbers.is_empty())?;
            if cumulative { lengths_from_ends(&numbers) } else { Some(numbers) }
        };
        let queries = lengths(name::QUERY_LENGTHS, packed)?;
        let keys = lengths(name::KV_LENGTHS, packed && !self.is_paged())?;
        let block = if self.is_paged() { Some(self.block_size()?) } else { None };
        (queries.len() == keys.len()).then_some(SequenceLengths { queries, keys, block, packed })
    }
}

impl SequenceLengths {
    pub(crate) fn equal(batch: u64, [queries, keys]: [u64; 2], block: Option<u64>) -> Self {
        let repeated = |length: u64| (0..batch).map(|_| length).collect();
        Self { queries: repeated(queries), keys: repeated(keys), block, packed: true }
    }

    pub(crate) fn of_batch(&self, batch: usize) -> Self {
        let repeated = |lengths: &[u64]| lengths.iter().copied().cycle().take(batch).collect();
        Self { queries: repeated(&self.queries), keys: repeated(&self.keys), ..self.clone() }
    }

    /// Returns sequences with other numbers of keys. A sequence with as many queries as keys keeps one query for each
    /// key; others keep their queries, at most as many as keys.
    pub(crate) fn with_keys(&self, length: impl Fn(u64) -> u64) -> Self {
        let mut changed = self.clone();
        for (query, key) in changed.queries.iter_mut().zip(&mut changed.keys) {
            let other = length(*key).max(1);
            *query = if query == key { other } else { (*query).min(other) };
            *key = other;
        }
        changed
    }

    pub(crate) fn block_counts(&self) -> Vec<u64> {
        let block = self.block.unwrap_or(1).max(1);
        self.keys.iter().map(|keys| keys.div_ceil(block)).collect()
    }

    pub(crate) fn block_table_size(&self) -> (u64, u64) {
        let blocks = self.block_counts();
        (saturating_sum(&blocks), blocks.into_iter().max().unwrap_or(1))
    }

    pub(crate) fn to_attributes(&self, attributes: &CaseAttributes) -> CaseAttributes {
        let mut updated = attributes.clone();
        let mut set = |name: &str, lengths: &[u64]| {
            updated.set(name, &Dims(lengths).to_string());
        };
        let as_written = |lengths: &[u64], cumulative: bool| {
            if cumulative { cumulative_ends(lengths) } else { lengths.to_vec() }
        };
        set(name::QUERY_LENGTHS, &as_written(&self.queries, self.packed));
        set(name::KV_LENGTHS, &as_written(&self.keys, self.packed && self.block.is_none()));
        if attributes.get(name::VALID_BLOCKS).is_some() {
            set(name::VALID_BLOCKS, &self.block_counts());
        }
        if attributes.get(name::AVG_SEQ_LEN).is_some() {
            let mean = saturating_sum(&self.keys) as f64 / self.keys.len().max(1) as f64;
            updated.set(name::AVG_SEQ_LEN, &format!("{mean:.6}"));
        }
        updated
    }
}

pub(crate) fn lengths_from_ends(ends: &[u64]) -> Option<Vec<u64>> {
    let starts = std::iter::once(&0).chain(ends);
    starts.zip(ends).map(|(start, end)| end.checked_sub(*start)).collect()
}

fn saturating_sum(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |total, number| total.saturating_add(*number))
}

fn cumulative_ends(lengths: &[u64]) -> Vec<u64> {
    let mut end = 0_u64;
    let ends = lengths.iter().map(|length| {
        end = end.saturating_add(*length);
        end
    });
    ends.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{KernelName, SignatureCells};

    /// A case from the shapes of slots by number.
    fn case(slots: &[(AttentionSlot, &str)]) -> Case {
        let mut shapes = vec![""; 31];
        for (slot, shape) in slots {
            shapes[*slot as usize] = shape;
        }
        let dtypes: Vec<&str> =
            shapes.iter().map(|shape| if shape.is_empty() { "DT_UNDEFINED" } else { "DT_BF16" }).collect();
        let cells = SignatureCells { shapes: &shapes.join(";"), dtypes: &dtypes.join(";"), formats: "" };
        Case {
            kernel: KernelName::new(AttentionCase::KERNEL).expect("a name"),
            inputs: cells.parse().expect("cells"),
            outputs: Vec::new(),
            attributes: CaseAttributes::default(),
        }
    }

    fn decode() -> Case {
        case(&[
            (AttentionSlot::Query, "128,4,128"),
            (AttentionSlot::Key, "12307,128,128"),
            (AttentionSlot::Value, "12307,128,128"),
            (AttentionSlot::Mask, "2048,2048"),
            (AttentionSlot::QueryLengths, "128"),
            (AttentionSlot::KvLengths, "128"),
            (AttentionSlot::BlockTable, "128,512"),
        ])
    }

    fn implied(case: &Case) -> String {
        let mut text = String::new();
        AttentionCase::new(case).implied_attributes().append_to(&mut text);
        text.replace("Runtime ", "")
    }

    #[test]
    fn attention_arguments_are_implied_by_shapes() {
        assert_eq!(
            implied(&decode()),
            "|block_size=128;input_layout=TND;num_heads=4;num_key_value_heads=1;sparse_mode=3"
        );
        let prefill = case(&[
            (AttentionSlot::Query, "24624,4,128"),
            (AttentionSlot::Key, "24624,1,128"),
            (AttentionSlot::Value, "24624,1,128"),
            (AttentionSlot::Mask, "2048,2048"),
        ]);
        assert_eq!(
            implied(&prefill),
            "|block_size=0;input_layout=TND;num_heads=4;num_key_value_heads=1;sparse_mode=3"
        );
        let mla = case(&[
            (AttentionSlot::Query, "4,16,1,512"),
            (AttentionSlot::Key, "1135,1,128,512"),
            (AttentionSlot::Value, "1135,1,128,512"),
            (AttentionSlot::BlockTable, "4,1135"),
            (AttentionSlot::QueryRope, "4,16,1,64"),
            (AttentionSlot::KeyRope, "1135,1,128,64"),
        ]);
        assert_eq!(
            implied(&mla),
            "|block_size=128;input_layout=BNSD_NBSD;num_heads=16;num_key_value_heads=1;sparse_mode=0"
        );
    }

    #[test]
    fn attention_signature_has_lengths_without_implied_attributes() {
        let bare = decode();
        let mut with_lengths = bare.clone();
        for (name, value) in AttentionCase::new(&bare).implied_attributes().iter() {
            with_lengths.attributes.set(name, value);
        }
        assert_eq!(with_lengths.signature(), bare.signature());
        with_lengths.attributes.set(name::AVG_SEQ_LEN, "4096.0");
        assert_ne!(with_lengths.signature(), bare.signature(), "as recorded in tables without the lengths");
        let mut lengths = bare.clone();
        lengths.attributes.set(name::KV_LENGTHS, "4096,4096");
        let short = lengths.signature();
        lengths.attributes.set(name::AVG_SEQ_LEN, "4096");
        lengths.attributes.set(name::VALID_BLOCKS, "32,32");
        assert_eq!(lengths.signature(), short, "they follow from the lengths");
        for (column, cell) in [(name::AVG_SEQ_LEN, "4095"), (name::VALID_BLOCKS, "32,33")] {
            let mut contradicting = lengths.clone();
            contradicting.attributes.set(column, cell);
            assert_ne!(contradicting.signature(), short, "{column} contradicts the lengths");
        }
        lengths.attributes.set(name::SPARSE_MODE, "0");
        assert_ne!(lengths.signature(), short);
    }

    #[test]
    fn implied_attributes_are_still_missing() {
        let mut case = decode();
        assert_eq!(AttentionCase::new(&case).missing_attributes().len(), 7);
        case.attributes.set(name::LAYOUT, "TND");
        assert!(!AttentionCase::new(&case).missing_attributes().contains(&name::LAYOUT));
    }

    fn call_case(query: &str, key: &str, table: &str) -> Case {
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
        let kernel = call_case("128,4,128", "12307,128,128", "128,512");
        let same = call(&[128, 4, 128], &[12307, 128, 128], &[128, 512]);
        let viewed = call(&[128, 4, 128], &[12307, 128, 1, 128], &[128, 512]);
        assert_eq!(same.match_shapes(&kernel), Some(false));
        assert_eq!(viewed.match_shapes(&kernel), Some(true));
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
        let mut kernel = call_case("24624,4,128", "24624,1,128", "");
        let lengths = |count: u64| {
            let mut call = call(&[24624, 4, 128], &[24624, 1, 128], &[]);
            call.set_shape(AttentionSlot::KvLengths as usize, vec![count]);
            call
        };
        kernel.inputs[6] =
            kernel.inputs[0].clone().map(|tensor| crate::kernel::Tensor { dims: vec![7], ..tensor });
        assert_eq!(lengths(7).match_shapes(&kernel), Some(false));
        assert_eq!(lengths(2).match_shapes(&kernel), None);
        assert_eq!(
            call(&[24624, 4, 128], &[24624, 1, 128], &[]).match_shapes(&kernel),
            Some(false),
            "not told"
        );
    }

    #[test]
    fn attention_call_cell_has_31_slots() {
        let kernel = call_case("4,2,8", "9,16,16", "4,3");
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

    fn sequence_case(key: &str, table: &str, updated: &[(&str, &str)]) -> Case {
        let mut shapes = vec![""; 31];
        (shapes[0], shapes[1], shapes[2], shapes[14]) = ("7,4,128", key, key, table);
        let dtypes = vec!["DT_BF16"; 31].join(";");
        let cells = SignatureCells { shapes: &shapes.join(";"), dtypes: &dtypes, formats: "" };
        let mut attributes = CaseAttributes::default();
        updated.iter().for_each(|(column, cell)| attributes.set(column, cell));
        Case {
            kernel: KernelName::new(AttentionCase::KERNEL).expect("a name"),
            inputs: cells.parse().expect("cells"),
            outputs: Vec::new(),
            attributes,
        }
    }

    #[test]
    fn packed_lengths_are_cumulative_and_paged_keys_are_not() {
        let updated = [
            (name::LAYOUT, "TND"),
            (name::QUERY_LENGTHS, "2,7"),
            (name::KV_LENGTHS, "2,300"),
            (name::AVG_SEQ_LEN, "151"),
            (name::VALID_BLOCKS, "1,3"),
        ];
        let paged = sequence_case("9,128,128", "2,3", &updated);
        let sequences = AttentionCase::new(&paged).sequences().expect("lengths");
        assert_eq!((&sequences.queries[..], &sequences.keys[..]), (&[2, 5][..], &[2, 300][..]));
        assert_eq!(sequences.to_attributes(&paged.attributes), paged.attributes);
        let longer = sequences.with_keys(|keys| keys * 2).of_batch(3);
        assert_eq!((&longer.queries[..], &longer.keys[..]), (&[4, 5, 4][..], &[4, 600, 4][..]));
        let updated = longer.to_attributes(&paged.attributes);
        assert_eq!(updated.get(name::QUERY_LENGTHS), Some("4,9,13"));
        assert_eq!(updated.get(name::KV_LENGTHS), Some("4,600,4"));
        assert_eq!(updated.get(name::VALID_BLOCKS), Some("1,5,1"));
        assert_eq!(updated.get(name::AVG_SEQ_LEN), Some("202.666667"));
        let whole = sequence_case(
            "302,4,128",
            "",
            &[(name::LAYOUT, "TND"), (name::QUERY_LENGTHS, "2,7"), (name::KV_LENGTHS, "2,302")],
        );
        let sequences = AttentionCase::new(&whole).sequences().expect("lengths");
        assert_eq!((&sequences.keys[..], sequences.block), (&[2, 300][..], None));
        assert_eq!(sequences.to_attributes(&whole.attributes).get(name::KV_LENGTHS), Some("2,302"));
    }

    #[test]
    fn invalid_sequence_lengths_are_none() {
        let sequences = |queries: &str, keys: &str| {
            let updated = [(name::LAYOUT, "TND"), (name::QUERY_LENGTHS, queries), (name::KV_LENGTHS, keys)];
            AttentionCase::new(&sequence_case("9,128,128", "2,3", &updated)).sequences()
        };
        assert_eq!(sequences("7,2", "1,1"), None, "they go down");
        assert_eq!(sequences("2,7", "1"), None, "of another number");
        assert_eq!(sequences("", "1"), None);
    }
}
