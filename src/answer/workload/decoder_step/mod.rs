//! The kernels of one step of a language model on one device, from the sizes of its layers.
//!
//! Shapes follow the recorded profiles that the grids and the catalogue describe. Kernels that an engine runs besides,
//! such as those of its scheduler, are no part of it; docs/models.md lists the kernels, and the sources of their order.

mod attention;
mod experts;

use experts::ExpertTokens;

use super::{DurationKind, Workload, WorkloadQuestion};
use crate::{
    answer::{attention_call::calls, lookup::LookupEngine},
    base::command_error::CommandError,
    cases::llm::{
        DeviceShare, LlmModel, ParallelLayout, ProductKernel, QuantisationScheme, WeightProduct,
        WeightProductRole,
    },
    kernel::{Case, CaseAttributes, Dtype},
};

/// Rows and columns of a block in FRACTAL_NZ for INT8.
const INT8_BLOCK: (u64, u64) = (16, 32);
/// Limits of the tokens of a prefill, of the keys of a decode step, and of the sequences of both, whose lengths
/// attention lists one by one. With sizes of models up to 2^24, products of two of them do not overflow; those of more
/// are checked.
const MAX_TOKENS: u64 = 1 << 24;
const MAX_KEYS: u64 = 1 << 36;
const MAX_SEQUENCES: u64 = 1 << 16;

/// Phase of inference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, clap::ValueEnum)]
#[strum(serialize_all = "snake_case")]
pub enum StepPhase {
    /// All tokens of new sequences.
    Prefill,
    /// One token of each sequence.
    Decode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecoderStep {
    pub layout: ParallelLayout,
    pub phase: StepPhase,
    /// Sequences of one group of `tp` devices.
    pub batch: u64,
    /// Length of each sequence: of the prompt in prefill, of all keys in decode.
    pub context: u64,
    pub quantisation: QuantisationScheme,
}

fn wrong_number(problem: impl Into<String>) -> CommandError {
    CommandError::bad_input(problem, "give smaller numbers of sequences and tokens")
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

    fn check(&self) -> Result<(), CommandError> {
        if self.batch == 0 || self.context == 0 {
            return Err(wrong_number("a step has at least one sequence of one token"));
        }
        if self.batch > MAX_SEQUENCES {
            return Err(wrong_number(format!("{} sequences are more than {MAX_SEQUENCES}", self.batch)));
        }
        // Blocks of caches are counted for keys, rows of products for tokens.
        let limit = if self.is_decode() { MAX_KEYS } else { MAX_TOKENS };
        if self.batch.checked_mul(self.context).is_none_or(|length| length > limit) {
            let (batch, context) = (self.batch, self.context);
            let problem = format!("{batch} sequences of {context} tokens are more than {limit} tokens");
            return Err(wrong_number(problem));
        }
        match self.quantisation {
            QuantisationScheme::Bf16 | QuantisationScheme::W8a8 => Ok(()),
            other => Err(CommandError::bad_input(
                format!("steps are derived in bf16 and w8a8, not in {}", other.as_str()),
                "give `--dtype bf16` or `--dtype w8a8`",
            )),
        }
    }
}

/// Derives the kernels of one step of a model on one device, with their counts.
pub fn decoder_step(model: &LlmModel, step: &DecoderStep) -> Result<Workload, CommandError> {
    step.check()?;
    let failed = |problem: String| {
        let problem = format!("{} does not run with {}: {problem}", model.model, step.layout);
        CommandError::bad_input(problem, "`npubench models` lists the parallel degrees of each model")
    };
    let share = model.share(step.layout).map_err(failed)?;
    let products = model.gemms(step.layout, step.quantisation).map_err(failed)?;
    let experts = match &model.experts {
        Some(experts) => Some((experts.clone(), ExpertTokens::of_step(step, experts)?)),
        None => None,
    };
    let mut builder = StepBuilder { model, step, share, count: 1, calls: Vec::new() };
    builder.add_embedding();
    builder.add_norms();
    builder.add_attention(&products);
    builder.add_feed_forward(&products, experts.as_ref());
    builder.add_output(&products);
    let DecoderStep { layout, phase, batch, context, quantisation } = step;
    let name =
        format!("{} {layout} {phase} batch {batch} context {context} {}", model.model, quantisation.as_str());
    let questions = builder.calls.into_iter().map(KernelCall::into_question).collect();
    let mut workload = Workload::new(name, DurationKind::Unknown, questions);
    workload.notes.extend(model.left_open.iter().map(|note| format!("{}: {note}", model.model)));
    Ok(workload)
}

#[derive(Clone, Debug)]
struct KernelCall {
    count: u64,
    cases: Vec<Case>,
    ranks: Option<u64>,
}

impl From<String> for KernelCall {
    fn from(text: String) -> Self {
        Self::of_cases(calls(&text))
    }
}

impl KernelCall {
    const fn of_cases(cases: Vec<Case>) -> Self {
        Self { count: 0, cases, ranks: None }
    }

    fn or(mut self, other: impl Into<Self>) -> Self {
        self.cases.extend(other.into().cases);
        self
    }

    fn with_attributes(mut self, attributes: CaseAttributes) -> Self {
        self.cases[0].attributes = attributes;
        self
    }

    fn into_question(self) -> WorkloadQuestion {
        let mut queries = self.cases.iter().map(LookupEngine::query_of_case).map(|mut query| {
            query.ranks = self.ranks;
            query
        });
        let first = queries.next().unwrap_or_default();
        let alternates = queries.collect();
        let case = self.cases.into_iter().next().filter(|case| !case.kernel.is_collective());
        WorkloadQuestion { alternates, case, ..WorkloadQuestion::new(first, self.count) }
    }
}

struct StepBuilder<'m> {
    model: &'m LlmModel,
    step: &'m DecoderStep,
    share: DeviceShare,
    /// Number of times that the calls run which are added next, such as the number of layers.
    count: u64,
    calls: Vec<KernelCall>,
}

impl StepBuilder<'_> {
    fn add(&mut self, call: impl Into<KernelCall>) {
        if self.count > 0 {
            self.calls.push(KernelCall { count: self.count, ..call.into() });
        }
    }

    /// Adds a collective of BF16 tensors, unless a rank is alone.
    fn add_collective(&mut self, kernel: &str, [rows, width]: [u64; 2], ranks: u64) {
        self.add_message(format!("{kernel}: BF16[{rows},{width}]"), ranks);
    }

    fn add_message(&mut self, call: String, ranks: u64) {
        if ranks > 1 {
            self.add(KernelCall { ranks: Some(ranks), ..KernelCall::from(call) });
        }
    }

    fn is_quantised(&self) -> bool {
        self.step.quantisation == QuantisationScheme::W8a8
    }

    fn add_embedding(&mut self) {
        let (t, hidden, vocab) = (self.step.tokens(), self.model.hidden_size, self.share.vocab_size);
        self.add(format!(
            "GatherV2|GatherV3: BF16[{vocab},{hidden}] INT64[{t}] INT64[1] -> BF16[{t},{hidden}]"
        ));
        self.add_all_reduce();
    }

    /// Adds the norms of hidden states: the first has no residual, the others add one; the last is behind the layers.
    fn add_norms(&mut self) {
        let (t, hidden) = (self.step.tokens(), self.model.hidden_size);
        self.add(rms_norm(&t.to_string(), hidden));
        self.count = 2 * self.model.layers;
        let inputs = format!("BF16[{t},{hidden}] BF16[{t},{hidden}] BF16[{hidden}]");
        let outputs = format!("BF16[{t},{hidden}] FLOAT[{t},1] BF16[{t},{hidden}]");
        let with_bias = KernelCall::from(format!("AddRmsNormBias: {inputs} BF16[{hidden}] -> {outputs}"));
        self.add(with_bias.or(format!("AddRmsNorm: {inputs} -> {outputs}")));
    }

    fn add_product(&mut self, rows: u64, product: &WeightProduct) {
        let (n, k) = (product.n, product.k);
        if product.activations != Dtype::Int8 {
            let tensors = format!("BF16[{rows},{k}] BF16[{n},{k}] -> BF16[{rows},{n}]");
            self.add(format!("MatMulV2|MatMulV3|MatMulCommon: {tensors}"));
            return;
        }
        let fixed = format!("AscendQuantV2: BF16[{rows},{k}] BF16[{k}] BF16[{k}] -> INT8[{rows},{k}]");
        self.add(KernelCall::from(dynamic_quantisation(rows, k)).or(fixed));
        let (height, width) = INT8_BLOCK;
        let weight = match n % width == 0 && k % height == 0 {
            true => format!("NZ:INT8[{},{},{height},{width}]", n / width, k / height),
            false => format!("INT8[{k},{n}]"),
        };
        let tensors = format!("INT8[{rows},{k}] {weight} FLOAT[{n}] INT32[{n}] -> BF16[{rows},{n}]");
        self.add(format!("QuantBatchMatmulV3: {tensors}"));
    }

    fn add_swiglu(&mut self, rows: u64, width: u64) {
        self.add(format!("SwiGlu: BF16[{rows},{}] -> BF16[{rows},{width}]", 2 * width));
    }

    fn add_all_reduce(&mut self) {
        let dims = [self.step.tokens(), self.model.hidden_size];
        self.add_collective("hcom_allReduce_", dims, self.step.layout.tp);
    }

    fn add_output(&mut self, products: &[WeightProduct]) {
        self.count = 1;
        let batch = self.step.batch;
        self.add_role(products, WeightProductRole::LmHead, batch);
        self.add_collective("hcom_allGather_", [batch, self.share.vocab_size], self.step.layout.tp);
        self.add(format!("ArgMaxV2: FLOAT[{batch},{}] INT64[] -> INT32[{batch}]", self.model.vocab_size));
    }

    /// Adds the products of attention, and of single matrices in general, of one role.
    fn add_role(&mut self, products: &[WeightProduct], role: WeightProductRole, rows: u64) {
        for product in products.iter().filter(|product| product.role == role) {
            if product.role.product() == ProductKernel::Single {
                self.add_product(rows, product);
            }
        }
    }
}

/// Returns the norm of rows of this width; `outer` are the other dimensions.
fn rms_norm(outer: &str, width: u64) -> String {
    format!("RmsNorm: BF16[{outer},{width}] BF16[{width}] -> BF16[{outer},{width}] FLOAT[{outer},1]")
}

fn dynamic_quantisation(rows: u64, width: u64) -> String {
    format!("DynamicQuant: BF16[{rows},{width}] -> INT8[{rows},{width}] FLOAT[{rows}]")
}
