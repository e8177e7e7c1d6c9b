//! Arguments of `FusedInferAttentionScore`. Its time depends on the lengths of the sequences, which are values of its
//! inputs, and on arguments such as the layout, which no profile contains. Both are attributes; arguments implied by
//! the shapes are derived here and never stored as attributes.

mod call;
mod sequences;

pub use call::AttentionCall;
pub(crate) use call::{best_shape_matches, common_attributes};
pub(crate) use sequences::{SequenceLengths, lengths_from_ends};

use super::{Case, CaseAttributes, Dims, RUNTIME, Slot, attributes::AVG_SEQ_LEN};

/// Names of the attributes that make a case complete.
pub(crate) mod attention_attribute {
    /// Lengths of the queries, cumulative if the layout packs them (`TND`).
    pub(crate) const QUERY_LENGTHS: &str = "Runtime actual_seq_lengths_values";
    /// Lengths of keys and values: of each sequence if they are paged, else in the form of the queries' lengths.
    pub(crate) const KV_LENGTHS: &str = "Runtime actual_seq_lengths_kv_values";
    /// Mean length of keys and values.
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
    /// Lengths of a prefix that all sequences share.
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

/// Slots of the kernel's 31 inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttentionSlot {
    Query = 0,
    /// Keys, in blocks if the call has a block table.
    Key = 1,
    Value = 2,
    Mask = 4,
    QueryLengths = 5,
    KvLengths = 6,
    BlockTable = 14,
    /// The rotary part of the queries (MLA).
    QueryRope = 24,
    /// The rotary part of the keys (MLA).
    KeyRope = 25,
}

/// Returns attributes without the mean and the numbers of blocks, where they follow from the recorded lengths of keys. Others
/// contradict the lengths and distinguish the case.
pub(super) fn without_derived_values(case: &Case, attributes: CaseAttributes) -> CaseAttributes {
    let view = AttentionCase::new(case);
    let Some(lengths) = view.recorded_key_lengths() else { return attributes };
    let mut deciding = attributes;
    if deciding.has_mean_of(&lengths) {
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

    /// Returns the shape of an input; `None` if it is omitted.
    pub(crate) fn dims(&self, slot: AttentionSlot) -> Option<&'a [u64]> {
        let tensor = self.case.inputs.get(slot as usize).and_then(Slot::as_ref)?;
        (!tensor.is_scalar()).then_some(tensor.dims.as_slice())
    }

    /// Returns true if keys and values are stored in blocks.
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
            [_, size, _] | [_, _, size, _] | [_, _, _, size, _] => Some(size),
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
        let block_size = match key {
            _ if !paged => Some(0),
            Some(&[_, size, _] | &[_, _, size, _]) => Some(size),
            _ => None,
        };
        set(name::BLOCK_SIZE, block_size);
        set(name::SPARSE_MODE, Some(if self.dims(AttentionSlot::Mask).is_some() { 3 } else { 0 }));
        match (query.map(<[u64]>::len), self.dims(AttentionSlot::QueryRope)) {
            (Some(3), _) => implied.set(name::LAYOUT, "TND"),
            (Some(4), Some(_)) => implied.set(name::LAYOUT, "BNSD_NBSD"),
            _ => {}
        }
        implied
    }

    /// Returns the attributes that distinguish the case from others with the same shapes: without those that the
    /// shapes imply, and without means and counts that follow from known lengths.
    pub(super) fn identifying_attributes(&self) -> CaseAttributes {
        let deciding = self.case.attributes.without(&self.implied_attributes());
        without_derived_values(self.case, deciding)
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

    /// Returns the attributes that an exact replay needs and the case lacks.
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
}
