//! Calls of fused attention as vLLM for Ascend makes them: for complete prompts, whose keys are packed, and for decode steps,
//! whose keys are in blocks.

use crate::kernel::{
    AttentionCase, Case, CaseAttributes, Dtype, KernelName, SequenceLengths, Slot, Tensor, TensorFormat,
    attention_attribute as name,
};

pub(super) const MASK: u64 = 2048;
/// Keys in a block of a cache where nothing else is stated.
pub(super) const CACHE_BLOCK: u64 = 128;

/// Call with its attributes. Keys are in blocks if the lengths have a block.
pub(super) struct AttentionCall {
    pub(super) layout: &'static str,
    pub(super) sparse_mode: &'static str,
    pub(super) heads: u64,
    pub(super) kv_heads: u64,
    pub(super) lengths: SequenceLengths,
}

impl AttentionCall {
    pub(super) fn attributes(&self) -> CaseAttributes {
        let mut attributes = self.lengths.to_attributes(&CaseAttributes::default());
        let keys = &self.lengths.keys;
        let sum = keys.iter().fold(0_u64, |sum, length| sum.saturating_add(*length));
        let mean = sum as f64 / keys.len().max(1) as f64;
        for (column, cell) in [
            (name::LAYOUT, self.layout.to_owned()),
            (name::SPARSE_MODE, self.sparse_mode.to_owned()),
            (name::HEADS, self.heads.to_string()),
            (name::KV_HEADS, self.kv_heads.to_string()),
            (name::AVG_SEQ_LEN, mean.to_string()),
            (name::BLOCK_SIZE, self.lengths.block.unwrap_or(0).to_string()),
        ] {
            attributes.set(column, &cell);
        }
        if self.lengths.block.is_some() {
            let counts: Vec<String> = self.lengths.block_counts().iter().map(ToString::to_string).collect();
            attributes.set(name::VALID_BLOCKS, &counts.join(","));
        }
        attributes
    }

    /// Returns the call for packed tokens of heads with `dim` dimensions, and values with `v_dim`. A cache has at least
    /// `min_blocks` blocks, and as many for each sequence as the longest one needs.
    pub(super) fn packed_case(
        &self,
        dtype: &Dtype,
        tokens: u64,
        [dim, v_dim]: [u64; 2],
        min_blocks: u64,
    ) -> Case {
        let Self { heads, kv_heads, lengths, .. } = self;
        let batch = lengths.keys.len() as u64;
        let (_, blocks) = lengths.block_table_size();
        let (keys, table) = match lengths.block {
            Some(block) => {
                let pool = min_blocks.max(batch.saturating_mul(blocks));
                (format!("{pool},{kv_heads},{block}"), format!("-*7 INT32[{batch},{blocks}]"))
            }
            None => (format!("{tokens},{kv_heads}"), String::new()),
        };
        let mut case = calls(&format!(
            "{}: BF16[{tokens},{heads},{dim}] BF16[{keys},{dim}] BF16[{keys},{v_dim}] - INT8[{MASK},{MASK}] INT64[{batch}] \
             INT64[{batch}] {table} -> BF16[{tokens},{heads},{v_dim}]",
            AttentionCase::KERNEL
        ))
        .swap_remove(0);
        // The name of a type may be any text of a user, which is no part of the notation.
        let tensors = case.inputs.iter_mut().chain(&mut case.outputs).flatten();
        tensors.filter(|tensor| tensor.dtype == Dtype::Bf16).for_each(|tensor| tensor.dtype = dtype.clone());
        Case { attributes: self.attributes(), ..case }
    }
}

/// Returns the cases of a text such as `CastAiCore|Cast: BF16[8,64] -*2 NZ:INT8[64] -> FLOAT[8,64]`: one for each name in front, with
/// these inputs and outputs. `-` is an input that the call does not have, `-*2` two of them; `NZ:` stands in front of FRACTAL_NZ.
///
/// # Panics
///
/// If the text has another form: texts are constants of the program, with numbers in them.
pub(super) fn calls(text: &str) -> Vec<Case> {
    let (names, tensors) = text.split_once(": ").expect("names, then tensors");
    let (inputs, outputs) = tensors.split_once(" ->").unwrap_or((tensors, ""));
    let [inputs, outputs] = [inputs, outputs].map(|side| side.split_whitespace().flat_map(slots).collect());
    let names = names.split('|').map(|name| KernelName::new(name).expect("the name of a kernel"));
    let case = |kernel| {
        let (inputs, outputs): (&Vec<Slot>, &Vec<Slot>) = (&inputs, &outputs);
        let attributes = CaseAttributes::default();
        Case { kernel, inputs: inputs.clone(), outputs: outputs.clone(), attributes }
    };
    names.map(case).collect()
}

fn slots(text: &str) -> Vec<Slot> {
    if let Some(count) = text.strip_prefix('-') {
        let count = count.strip_prefix('*').unwrap_or("1").parse().expect("a number of inputs");
        return vec![None; count];
    }
    let (plain, format) = match text.strip_prefix("NZ:") {
        Some(plain) => (plain, TensorFormat::parse("FRACTAL_NZ").expect("a format")),
        None => (text, TensorFormat::nd()),
    };
    let (dtype, dims) = plain.strip_suffix(']').and_then(|text| text.split_once('[')).expect("a tensor");
    let dims = dims.split(',').filter(|dim| !dim.is_empty());
    let dims = dims.map(|dim| dim.parse().expect("a dimension")).collect();
    vec![Some(Tensor { dims, dtype: Dtype::parse(dtype).expect("a type"), format })]
}
