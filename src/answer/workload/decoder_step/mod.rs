//! The kernels of one step of a language model on one device, from the sizes of its layers.
//!
//! Shapes follow the recorded profiles that the grids and the catalogue describe. Kernels that an engine runs besides,
//! such as those of its scheduler, are no part of it; docs/models.md lists the kernels, and the sources of their order.

mod attention;
mod experts;
mod kernel_call;

use experts::ExpertTokens;
use kernel_call::KernelCall;

use super::{DurationKind, Workload, WorkloadQuestion};
use crate::base::command_error::Failure;
use crate::{
    answer::lookup::LookupEngine,
    cases::llm::{
        DeviceShare, LayoutError, LlmModel, ParallelLayout, ProductKernel, QuantisationScheme, WeightProduct,
        WeightProductRole,
    },
    kernel::Dtype,
};

/// Rows and columns of a block in FRACTAL_NZ for INT8.
const INT8_BLOCK: (u64, u64) = (16, 32);
/// Tokens in a block of a cache.
const CACHE_BLOCK: u64 = 128;
/// Limits of the tokens of a prefill, of the keys of a decode step, and of the sequences of both, whose lengths
/// attention lists one by one. With sizes of models up to 2^24, products of two of them do not overflow; those of more
/// are checked.
const MOST_TOKENS: u64 = 1 << 24;
const MOST_KEYS: u64 = 1 << 36;
const MOST_SEQUENCES: u64 = 1 << 16;

/// Phase of inference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum StepPhase {
    /// All tokens of new sequences.
    Prefill,
    /// One token of each sequence.
    Decode,
}

/// A step of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecoderStep {
    /// Parallel degrees.
    pub layout: ParallelLayout,
    /// Phase.
    pub phase: StepPhase,
    /// Sequences of one group of `tp` devices.
    pub batch: u64,
    /// Length of each sequence: of the prompt in prefill, of all keys in decode.
    pub context: u64,
    /// Number format of the products.
    pub quantisation: QuantisationScheme,
}

/// A step that a model does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecoderStepError {
    /// Sizes that are not divisible.
    #[error("{model} does not run with {layout}: {problem}")]
    Layout {
        /// The model.
        model: String,
        /// The layout.
        layout: ParallelLayout,
        /// The size.
        problem: LayoutError,
    },
    /// A number out of range.
    #[error("{0}")]
    Number(String),
    /// Groups of tokens and groups of experts that do not divide each other.
    #[error("the tokens of dp {dp} groups cannot be dealt out evenly to ep {ep} groups of experts")]
    UnevenGroups {
        /// Groups of tokens.
        dp: u64,
        /// Groups of experts.
        ep: u64,
    },
    /// Products in other formats.
    #[error("steps are derived in bf16 and w8a8, not in {0}")]
    Quantisation(&'static str),
}

impl Failure for DecoderStepError {
    fn hint(&self) -> String {
        let hint = match self {
            Self::Layout { .. } => "`npubench models` lists the parallel degrees of each model",
            Self::UnevenGroups { .. } => "give degrees of which one divides the other",
            Self::Number(_) => "give smaller numbers of sequences and tokens",
            Self::Quantisation(_) => "give `--dtype bf16` or `--dtype w8a8`",
        };
        hint.to_owned()
    }
}

impl DecoderStep {
    const fn is_decode(&self) -> bool {
        matches!(self.phase, StepPhase::Decode)
    }

    const fn tokens(&self) -> u64 {
        match self.phase {
            StepPhase::Decode => self.batch,
            StepPhase::Prefill => self.batch * self.context,
        }
    }

    fn check(&self) -> Result<(), DecoderStepError> {
        let wrong = |problem: String| Err(DecoderStepError::Number(problem));
        if self.batch == 0 || self.context == 0 {
            return wrong("a step has at least one sequence of one token".to_owned());
        }
        if self.batch > MOST_SEQUENCES {
            return wrong(format!("{} sequences are more than {MOST_SEQUENCES}", self.batch));
        }
        // Blocks of caches are counted for keys, rows of products for tokens.
        let limit = if self.is_decode() { MOST_KEYS } else { MOST_TOKENS };
        if self.batch.checked_mul(self.context).is_none_or(|length| length > limit) {
            let (batch, context) = (self.batch, self.context);
            return wrong(format!("{batch} sequences of {context} tokens are more than {limit} tokens"));
        }
        match self.quantisation {
            QuantisationScheme::Bf16 | QuantisationScheme::W8a8 => Ok(()),
            other => Err(DecoderStepError::Quantisation(other.as_str())),
        }
    }
}

/// Derives the kernels of one step of a model on one device, with their counts.
pub fn decoder_step(model: &LlmModel, step: &DecoderStep) -> Result<Workload, DecoderStepError> {
    step.check()?;
    let failed =
        |problem| DecoderStepError::Layout { model: model.model.clone(), layout: step.layout, problem };
    let share = model.share(step.layout).map_err(failed)?;
    let products = model.gemms(step.layout, step.quantisation).map_err(failed)?;
    let experts = match &model.experts {
        Some(experts) => Some((experts.clone(), ExpertTokens::of_step(step, experts)?)),
        None => None,
    };
    let mut builder = StepBuilder { model, step, share, calls: Vec::new() };
    builder.add_embedding();
    builder.add_norms();
    builder.add_attention(&products);
    builder.add_feed_forward(&products, experts.as_ref());
    builder.add_output(&products);
    let mut workload = Workload::new(
        format!(
            "{} {} {} batch {} context {} {}",
            model.model,
            step.layout,
            step.phase,
            step.batch,
            step.context,
            step.quantisation.as_str()
        ),
        DurationKind::Unknown,
        builder.calls.into_iter().map(KernelCall::into_question).collect(),
    );
    workload.notes.extend(model.left_open.iter().map(|note| format!("{}: {note}", model.model)));
    Ok(workload)
}

/// Kernels of a step in the order of a layer.
struct StepBuilder<'m> {
    model: &'m LlmModel,
    step: &'m DecoderStep,
    share: DeviceShare,
    calls: Vec<KernelCall>,
}

impl StepBuilder<'_> {
    fn add(&mut self, count: u64, call: KernelCall) {
        if count > 0 {
            self.calls.push(KernelCall { count, ..call });
        }
    }

    fn is_quantised(&self) -> bool {
        self.step.quantisation == QuantisationScheme::W8a8
    }

    fn dense_layers(&self) -> u64 {
        self.model.experts.as_ref().map_or(self.model.layers, |experts| experts.dense_layers)
    }

    fn add_embedding(&mut self) {
        let (tokens, hidden) = (self.step.tokens(), self.model.hidden_size);
        let call = KernelCall::new("GatherV2")
            .input(&[self.share.vocab_size, hidden], Dtype::Bf16)
            .input(&[tokens], Dtype::Int64)
            .input(&[1], Dtype::Int64)
            .output(&[tokens, hidden], Dtype::Bf16);
        self.add(1, call.or("GatherV3"));
        self.add_all_reduce(1);
    }

    /// Adds the norms of hidden states: the first has no residual, the others add one; the last is behind the layers.
    fn add_norms(&mut self) {
        let (tokens, hidden) = (self.step.tokens(), self.model.hidden_size);
        self.add(1, rms_norm(&[tokens], hidden));
        let residual = |kernel: &str| {
            KernelCall::new(kernel)
                .input(&[tokens, hidden], Dtype::Bf16)
                .input(&[tokens, hidden], Dtype::Bf16)
                .input(&[hidden], Dtype::Bf16)
        };
        let outputs = |call: KernelCall| {
            call.output(&[tokens, hidden], Dtype::Bf16)
                .output(&[tokens, 1], Dtype::Float)
                .output(&[tokens, hidden], Dtype::Bf16)
        };
        let with_bias = outputs(residual("AddRmsNormBias").input(&[hidden], Dtype::Bf16));
        self.add(2 * self.model.layers, with_bias.or_call(outputs(residual("AddRmsNorm"))));
    }

    /// Adds a product of rows by a weight, with the quantisation of the rows.
    fn add_product(&mut self, count: u64, rows: u64, product: &WeightProduct) {
        let (n, k) = (product.n, product.k);
        if product.activations == Dtype::Int8 {
            self.add_quantisation(count, rows, k);
            let (height, width) = INT8_BLOCK;
            let call = KernelCall::new("QuantBatchMatmulV3").input(&[rows, k], Dtype::Int8);
            let call = match n % width == 0 && k % height == 0 {
                true => call.blocked_input(&[n / width, k / height, height, width], Dtype::Int8),
                false => call.input(&[k, n], Dtype::Int8),
            };
            let call =
                call.input(&[n], Dtype::Float).input(&[n], Dtype::Int32).output(&[rows, n], Dtype::Bf16);
            self.add(count, call);
            return;
        }
        let call = KernelCall::new("MatMulV2")
            .input(&[rows, k], Dtype::Bf16)
            .input(&[n, k], Dtype::Bf16)
            .output(&[rows, n], Dtype::Bf16);
        self.add(count, call.or("MatMulV3").or("MatMulCommon"));
    }

    fn add_quantisation(&mut self, count: u64, rows: u64, width: u64) {
        let fixed = KernelCall::new("AscendQuantV2")
            .input(&[rows, width], Dtype::Bf16)
            .input(&[width], Dtype::Bf16)
            .input(&[width], Dtype::Bf16)
            .output(&[rows, width], Dtype::Int8);
        self.add(count, dynamic_quantisation(rows, width).or_call(fixed));
    }

    fn add_swiglu(&mut self, count: u64, rows: u64, width: u64) {
        let call = KernelCall::new("SwiGlu")
            .input(&[rows, 2 * width], Dtype::Bf16)
            .output(&[rows, width], Dtype::Bf16);
        self.add(count, call);
    }

    /// Adds the sum of hidden states over the devices that share the matrices.
    fn add_all_reduce(&mut self, count: u64) {
        let ranks = self.step.layout.tp;
        if ranks > 1 {
            let call = KernelCall::new("hcom_allReduce_")
                .input(&[self.step.tokens(), self.model.hidden_size], Dtype::Bf16);
            self.add(count, call.among(ranks));
        }
    }

    fn add_output(&mut self, products: &[WeightProduct]) {
        let (batch, ranks) = (self.step.batch, self.step.layout.tp);
        for product in products.iter().filter(|product| product.role == WeightProductRole::LmHead) {
            self.add_product(1, batch, product);
        }
        if ranks > 1 {
            let part = KernelCall::new("hcom_allGather_").input(&[batch, self.share.vocab_size], Dtype::Bf16);
            self.add(1, part.among(ranks));
        }
        let call = KernelCall::new("ArgMaxV2")
            .input(&[batch, self.model.vocab_size], Dtype::Float)
            .input(&[], Dtype::Int64)
            .output(&[batch], Dtype::Int32);
        self.add(1, call);
    }

    /// Adds the products of attention, and of single matrices in general, of one role.
    fn add_role(&mut self, products: &[WeightProduct], role: WeightProductRole, count: u64, rows: u64) {
        for product in products.iter().filter(|product| product.role == role) {
            if product.role.product() == ProductKernel::Single {
                self.add_product(count, rows, product);
            }
        }
    }
}

fn rms_norm(outer: &[u64], width: u64) -> KernelCall {
    let (vectors, roots) = ([outer, &[width]].concat(), [outer, &[1]].concat());
    KernelCall::new("RmsNorm")
        .input(&vectors, Dtype::Bf16)
        .input(&[width], Dtype::Bf16)
        .output(&vectors, Dtype::Bf16)
        .output(&roots, Dtype::Float)
}

fn dynamic_quantisation(rows: u64, width: u64) -> KernelCall {
    KernelCall::new("DynamicQuant")
        .input(&[rows, width], Dtype::Bf16)
        .output(&[rows, width], Dtype::Int8)
        .output(&[rows], Dtype::Float)
}

impl KernelCall {
    fn into_question(self) -> WorkloadQuestion {
        let mut cases = self.cases.into_iter();
        let Some(case) = cases.next() else {
            return WorkloadQuestion::new(crate::answer::lookup::OpQuery::default(), 0);
        };
        let query_of_case = |case: &crate::kernel::Case| {
            let mut query = LookupEngine::query_of_case(case);
            query.ranks = self.ranks;
            query
        };
        WorkloadQuestion {
            alternates: cases.map(|case| query_of_case(&case)).collect(),
            case: Some(case.clone()).filter(|case| !case.kernel.is_collective()),
            ..WorkloadQuestion::new(query_of_case(&case), self.count)
        }
    }
}
