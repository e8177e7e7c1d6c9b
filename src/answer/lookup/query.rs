//! Queries, and the forms in which a row may show their inputs.

use super::{KernelTraits, MAX_RANK, RuleKind, SlotDims, mean};
use crate::kernel::{Dtype, Tensor, TensorFormat};

/// Tensor of a query. An element type or a format that is not given is not compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryTensor {
    /// Dimensions as the framework has them.
    pub dims: Vec<u64>,
    pub dtype: Option<Dtype>,
    pub format: Option<TensorFormat>,
}

impl QueryTensor {
    /// Returns a recorded tensor; a type that the record lacks is not compared.
    pub(crate) fn from_tensor(tensor: &Tensor) -> Self {
        let dtype = Some(tensor.dtype.clone()).filter(|dtype| !dtype.is_undefined());
        Self { dims: tensor.dims.clone(), dtype, format: Some(tensor.format.clone()) }
    }

    pub(crate) const fn is_index(&self) -> bool {
        matches!(self.dtype, Some(Dtype::Int32 | Dtype::Int64))
    }

    pub(crate) const fn is_absent(&self) -> bool {
        self.dims.is_empty() && self.dtype.is_none()
    }

    /// Returns the dimensions; for a matrix that a profiler records in blocks, the dimensions of the matrix. Blocks
    /// have 16 rows; other shapes of that format come from a framework.
    fn logical_dims(&self) -> SlotDims {
        let is_nz = self.format.as_ref().is_some_and(|format| format.private() == Some("FRACTAL_NZ"));
        match self.dims.as_slice() {
            [.., _, _, 16, 8 | 16 | 32 | 64] if is_nz => SlotDims::from_blocked(&self.dims),
            dims => SlotDims::new(dims),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpQuery {
    /// Operator of the framework, or a kernel.
    pub op: String,
    /// Input tensors; scalars are ignored.
    pub inputs: Vec<QueryTensor>,
    pub outputs: Vec<QueryTensor>,
    pub tp_size: Option<u64>,
    pub ep_size: Option<u64>,
    pub ranks: Option<u64>,
    /// Tier of the topology that the ranks of a collective span.
    pub tier: Option<u64>,
    /// True for products of FLOAT in HF32.
    pub is_hf32: bool,
    /// True under sequence parallelism.
    pub is_sequence_parallel: bool,
    pub attention: AttentionParameters,
}

/// Parameters of attention that shapes do not contain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttentionParameters {
    /// Mean length of the keys; not needed beside [`Self::kv_lengths`].
    pub kv_length: Option<f64>,
    /// Keys of each sequence; empty if they are unknown.
    pub kv_lengths: Vec<u64>,
    /// Queries of each sequence; empty if they are unknown.
    pub query_lengths: Vec<u64>,
    pub batch: Option<u64>,
    /// Heads of the keys; by default the last but one dimension of the second input.
    pub kv_heads: Option<u64>,
    /// Use of the mask, by default 3.
    pub sparse_mode: Option<String>,
    /// Order of dimensions; by default the one that fits the shapes, of a framework's query of three dimensions `TND`, of one with one
    /// token for each sequence `BNSD_NBSD`, or `BSND` for a token in front of the heads.
    pub layout: Option<String>,
    /// Keys that are selected at most for a query of sparse attention.
    pub topk: Option<u64>,
    pub block_size: Option<u64>,
    /// Phase of the batch, where its lengths do not determine it.
    pub phase: Option<BatchPhase>,
}

/// Phase of a batch of sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum BatchPhase {
    Prefill,
    Decode,
    Mixed,
}

impl AttentionParameters {
    pub(crate) fn mean_kv_length(&self) -> Option<f64> {
        let mean = if self.kv_lengths.is_empty() { self.kv_length } else { Some(mean(&self.kv_lengths)) };
        mean.filter(|length| length.is_finite() && *length > 0.0)
    }

    /// Returns the lengths of the sequences. Those of the queries follow from the keys if there is one query of each
    /// sequence, one sequence, or as many queries as keys.
    pub(crate) fn batch_lengths(&self, tokens: u64) -> Option<BatchLengths> {
        let keys = match (self.kv_lengths.as_slice(), self.batch, self.kv_length) {
            ([], Some(1), Some(length)) if length.fract() == 0.0 && (1.0..1e15).contains(&length) => {
                vec![length as u64]
            }
            ([], ..) => return None,
            (lengths, ..) => lengths.to_vec(),
        };
        let sum = |lengths: &[u64]| lengths.iter().fold(0_u64, |sum, length| sum.saturating_add(*length));
        let queries = if !self.query_lengths.is_empty() {
            self.query_lengths.clone()
        } else if keys.len() as u64 == tokens {
            vec![1; keys.len()]
        } else if sum(&keys) == tokens {
            keys.clone()
        } else {
            vec![tokens]
        };
        (queries.len() == keys.len() && sum(&queries) == tokens).then_some(BatchLengths { queries, keys })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BatchLengths {
    pub(crate) queries: Vec<u64>,
    pub(crate) keys: Vec<u64>,
}

impl BatchLengths {
    /// Returns the phase; sequences without queries do not count.
    pub(crate) fn phase(&self) -> BatchPhase {
        let mut active = self.queries.iter().zip(&self.keys).filter(|(queries, _)| **queries > 0);
        if active.clone().all(|(queries, keys)| queries == keys) {
            BatchPhase::Prefill
        } else if active.all(|(queries, _)| *queries == 1) {
            BatchPhase::Decode
        } else {
            BatchPhase::Mixed
        }
    }

    pub(crate) fn keys_per_query(&self) -> f64 {
        let pairs = self.queries.iter().zip(&self.keys);
        let total: f64 = pairs.map(|(queries, keys)| *queries as f64 * *keys as f64).sum();
        total / self.queries.iter().map(|queries| *queries as f64).sum::<f64>().max(1.0)
    }
}

impl OpQuery {
    pub(crate) fn replace_dtype(&mut self, from: &Dtype, to: &Dtype) {
        for tensor in self.inputs.iter_mut().chain(&mut self.outputs) {
            if tensor.dtype.as_ref() == Some(from) {
                tensor.dtype = Some(to.clone());
            }
        }
    }

    /// Checks the limits of tensors and lengths. The error is the problem.
    pub fn check(&self) -> Result<(), String> {
        for (side, tensors) in [("input", &self.inputs), ("output", &self.outputs)] {
            if let Some(at) = tensors.iter().position(|tensor| tensor.dims.len() > MAX_RANK) {
                let (number, rank) = (at + 1, tensors[at].dims.len());
                return Err(format!("{side} {number} has {rank} dimensions, the limit is {MAX_RANK}"));
            }
        }
        let [queries, keys] = [&self.attention.query_lengths, &self.attention.kv_lengths].map(Vec::len);
        match queries > 0 && queries != keys {
            true => Err(format!("the lengths of {queries} queries are given beside those of {keys} keys")),
            false => Ok(()),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct InputSlot<'q> {
    pub(crate) dims: SlotDims,
    pub(crate) dtype: Option<&'q Dtype>,
    pub(crate) format: Option<&'q TensorFormat>,
}

#[derive(Clone, Debug)]
pub(crate) struct InputVariant<'q> {
    pub(crate) kind: RuleKind,
    pub(crate) slots: Vec<InputSlot<'q>>,
}

/// Returns the tensors of a query that are compared: those with dimensions, or scalars if there are no others.
pub(crate) fn compared_tensors(tensors: &[QueryTensor]) -> impl Iterator<Item = &QueryTensor> {
    let only_scalars = tensors.iter().all(|tensor| tensor.dims.is_empty());
    tensors.iter().filter(move |tensor| only_scalars || !tensor.dims.is_empty())
}

pub(crate) fn input_slots(inputs: &[QueryTensor]) -> Vec<InputSlot<'_>> {
    compared_tensors(inputs)
        .map(|tensor| InputSlot {
            dims: tensor.logical_dims(),
            dtype: tensor.dtype.as_ref(),
            format: tensor.format.as_ref(),
        })
        .collect()
}

/// Returns the inputs as the profiler records those of an operator with this kernel, where frameworks arrange them in
/// another way.
pub(crate) fn recorded_inputs<'q>(
    traits: KernelTraits,
    inputs: &[InputSlot<'q>],
) -> Option<Vec<InputSlot<'q>>> {
    match inputs {
        [gate, up] if traits.is_swiglu => concatenated(gate, up).map(|slot| vec![slot]),
        [query, key, rest @ ..] if traits.is_rope => {
            let heads_last = |slot: &InputSlot<'q>| match slot.dims.as_slice() {
                &[batch, heads, length, dim] => slot.with_dims(&[batch, length, heads, dim]),
                _ => slot.clone(),
            };
            let with_head = |slot: &InputSlot<'q>| match slot.dims.as_slice() {
                &[batch, length, dim] => slot.with_dims(&[batch, length, 1, dim]),
                _ => slot.clone(),
            };
            let mut slots = vec![heads_last(key), heads_last(query)];
            match rest {
                [cosine, sine, ..] => slots.extend([with_head(cosine), with_head(sine)]),
                _ => slots.extend(rest.iter().cloned()),
            }
            Some(slots)
        }
        [key, value, cache, mapping] if traits.writes_cache => {
            let with_head = |slot: &InputSlot<'q>| match slot.dims.as_slice() {
                &[tokens, dim] => Some(slot.with_dims(&[tokens, 1, dim])),
                _ => None,
            };
            let one_cache = match cache.dims.as_slice() {
                [2, blocks @ ..] if !blocks.is_empty() => cache.with_dims(blocks),
                _ => return None,
            };
            Some(vec![with_head(key)?, with_head(value)?, one_cache.clone(), one_cache, mapping.clone()])
        }
        _ => None,
    }
}

impl InputSlot<'_> {
    pub(crate) fn to_tensor(&self) -> QueryTensor {
        QueryTensor {
            dims: self.dims.as_slice().to_vec(),
            dtype: self.dtype.cloned(),
            format: self.format.cloned(),
        }
    }

    fn with_dims(&self, dims: &[u64]) -> Self {
        Self { dims: SlotDims::new(dims), ..self.clone() }
    }
}

fn concatenated<'q>(gate: &InputSlot<'q>, up: &InputSlot<'q>) -> Option<InputSlot<'q>> {
    let (one, other) = (gate.dims.without_leading_ones(2), up.dims.without_leading_ones(2));
    match (one.as_slice(), other.as_slice()) {
        ([outer @ .., width], [same @ .., more]) if outer == same && gate.dtype == up.dtype => {
            let mut dims = SlotDims::new(outer);
            dims.push(width.saturating_add(*more));
            Some(InputSlot { dims, ..gate.clone() })
        }
        _ => None,
    }
}

pub(crate) fn input_variants<'q>(traits: KernelTraits, slots: Vec<InputSlot<'q>>) -> Vec<InputVariant<'q>> {
    let reshaped = |kind: RuleKind, reshape: fn(u64, u64, u64) -> [u64; 2]| {
        let has_three = slots.iter().any(|slot| slot.dims.as_slice().len() == 3);
        let slot = |slot: &InputSlot<'q>| match slot.dims.as_slice() {
            &[one, two, three] => slot.with_dims(&reshape(one, two, three)),
            _ => slot.clone(),
        };
        has_three.then(|| InputVariant { kind, slots: slots.iter().map(slot).collect() })
    };
    let flat = reshaped(RuleKind::FlattenThreeDims, |b, s, d| [b.saturating_mul(s), d]);
    let merged = reshaped(RuleKind::MergeLastDims, |t, h, d| [t, h.saturating_mul(d)]);
    let mut variants = vec![InputVariant { kind: RuleKind::Identity, slots }];
    variants.extend(flat.filter(|_| traits.flattens_batch));
    variants.extend(merged.filter(|_| traits.merges_last_dims));
    variants
}

/// Returns the bytes of an element, also of types that torch_npu lacks.
pub(crate) fn element_bytes(dtype: &Dtype) -> Option<u64> {
    let of_name = |name: &str| name.contains("FLOAT8").then_some(1);
    dtype.bytes().or_else(|| of_name(dtype.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::KernelName;

    fn recorded(kernel: &str, inputs: &[&[u64]]) -> Option<Vec<Vec<u64>>> {
        let tensor = |dims: &&[u64]| QueryTensor { dims: dims.to_vec(), dtype: None, format: None };
        let tensors: Vec<QueryTensor> = inputs.iter().map(tensor).collect();
        let traits = KernelTraits::of_kernel(&KernelName::new(kernel).expect("a name"));
        let recorded = recorded_inputs(traits, &input_slots(&tensors))?;
        Some(recorded.iter().map(|slot| slot.dims.as_slice().to_vec()).collect())
    }

    #[test]
    fn inputs_are_arranged_as_kernels_record_them() {
        assert_eq!(recorded("SwiGlu", &[&[1, 7, 64], &[7, 64]]), Some(vec![vec![7, 128]]));
        assert_eq!(recorded("SwiGlu", &[&[7, 64], &[8, 64]]), None);
        assert_eq!(recorded("SwiGlu", &[&[7, 128]]), None);
        assert_eq!(
            recorded(
                "_triton_rope",
                &[&[1, 64, 136, 128], &[1, 8, 136, 128], &[1, 136, 128], &[1, 136, 128]]
            ),
            Some(vec![
                vec![1, 136, 8, 128],
                vec![1, 136, 64, 128],
                vec![1, 136, 1, 128],
                vec![1, 136, 1, 128]
            ])
        );
        assert_eq!(
            recorded("ApplyRotaryPosEmb", &[&[1, 64, 136, 128], &[1, 8, 136, 128]]),
            Some(vec![vec![1, 136, 8, 128], vec![1, 136, 64, 128]])
        );
        let cache: [&[u64]; 4] = [&[9, 128], &[9, 128], &[2, 100, 128, 1, 128], &[9]];
        assert_eq!(
            recorded("reshape_and_cache_200000000", &cache),
            Some(vec![
                vec![9, 1, 128],
                vec![9, 1, 128],
                vec![100, 128, 1, 128],
                vec![100, 128, 1, 128],
                vec![9]
            ])
        );
        assert_eq!(recorded("ReshapeAndCacheNdKernel", &[&[9, 128], &[9, 128], &[100, 128], &[9]]), None);
        assert_eq!(recorded("Add", &[&[9, 128], &[9, 128]]), None);
    }
}
