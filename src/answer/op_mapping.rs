//! `op_mapping.yaml`: the kernels that run for an operator of a framework, and how they are looked up.
//!
//! The key `version` is read and not used: a file of a newer tool needs changes only if it has new keys. Then
//! `lookup/engine.rs` chooses the way of a route, `lookup/compute.rs`, `lookup/decomposer.rs` and `lookup/composite.rs` are
//! the ways, `lookup/rules.rs` lists the rules, `coverage/gaps.rs` states which row closes the gap of a route, and
//! docs/lookup.md lists the keys.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use indexmap::IndexMap;
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny},
};

use crate::{
    base::{
        files::{MAX_DOCUMENT, read_regular_text},
        yaml::{Location, Spanned, YamlError, YamlMap, find_value, parse},
    },
    kernel::KernelName,
};

pub const MAPPING_FILE: &str = "op_mapping.yaml";

const SEE_KEYS: &str = "docs/lookup.md lists the keys of an operator";
/// Maximum number of operators in a composite, with the parts of its parts.
const MAX_PARTS: u64 = 10_000;
/// Maximum number of composites that are parts of each other.
const MAX_LEVELS: usize = 100;

/// The whole file. Keys that only document the data are read and not kept.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MappingFile {
    #[serde(rename = "version")]
    _version: Option<IgnoredAny>,
    #[serde(rename = "device")]
    _device: Option<IgnoredAny>,
    #[serde(rename = "cann_version")]
    _cann_version: Option<IgnoredAny>,
    #[serde(rename = "pytorch_version")]
    _pytorch_version: Option<IgnoredAny>,
    #[serde(rename = "op_plugin_version")]
    _op_plugin_version: Option<IgnoredAny>,
    #[serde(rename = "collection_date")]
    _collection_date: Option<IgnoredAny>,
    communication_data_ref: Option<PathBuf>,
    /// Model of a collective that the tables do not answer. Lookups never use one: they answer with a miss.
    #[serde(rename = "communication_fallback")]
    _communication_fallback: Option<IgnoredAny>,
    latency_policy: Option<KernelOverrides<LatencyFields>>,
    query_selection_policy: Option<KernelOverrides<SelectionFields>>,
    interpolation_policy: Option<KernelOverrides<InterpolationFields>>,
    operator_mappings: YamlMap<MappedOperator>,
    #[serde(rename = "torch_npu_reference")]
    _torch_npu_reference: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, bound = "T: Deserialize<'de>")]
struct KernelOverrides<T> {
    #[serde(default)]
    kernel_overrides: IndexMap<String, T>,
}

fn overrides<T>(policies: Option<&KernelOverrides<T>>) -> impl Iterator<Item = (&String, &T)> {
    policies.into_iter().flat_map(|policies| &policies.kernel_overrides)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LatencyFields {
    #[serde(default)]
    prefer_profiling_rows: bool,
    profiling_core_envelope_fallback: Option<EnvelopeFields>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EnvelopeFields {
    max_duration_to_core_ratio: Spanned<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SelectionFields {
    #[serde(default)]
    require_semantic_unique: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct InterpolationFields {
    max_interpolation_dim: Option<Spanned<u8>>,
    generic_compute: Option<GenericComputeFields>,
    axis_transform: Option<AxisTransform>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GenericComputeFields {
    axis: GenericAxis,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KernelPolicy {
    /// True if values of production profiles are preferred to values of replays.
    pub prefers_profiling: bool,
    /// Maximum ratio of a production duration to the time of the cores; a longer duration is replaced by the latter.
    pub max_core_ratio: Option<f64>,
    /// True if rows that fit equally well must agree.
    pub requires_unique: bool,
    /// Limit of interpolated dimensions, from 0 to 3.
    pub max_interpolation_dim: Option<u8>,
    pub generic_axis: GenericAxis,
    pub axis_transform: AxisTransform,
}

/// Axis along which kernels without a rule of their own are interpolated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum GenericAxis {
    /// First dimension of the first input.
    #[default]
    #[serde(rename = "axis0")]
    FirstDimension,
    /// Number of elements of the output.
    #[serde(rename = "output_numel")]
    OutputElements,
}

/// Transformation of the sequence length before interpolation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AxisTransform {
    #[default]
    Linear,
    SqrtSeq,
}

/// Kernel named by the mapping, with its place in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedKernel {
    pub name: KernelName,
    /// Line of the mapping, from 1; 0 without a file.
    pub line: u64,
}

impl<'de> Deserialize<'de> for MappedKernel {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::new(&Spanned::deserialize(from)?).map_err(D::Error::custom)
    }
}

impl MappedKernel {
    fn new(text: &Spanned<String>) -> Result<Self, String> {
        let name = KernelName::new(&text.value)
            .map_err(|error| format!("`{}`: {error}, expected one such as `MatMulV2`", text.value))?;
        let line = if text.defined == Location::UNKNOWN { 0 } else { text.defined.line() };
        Ok(Self { name, line })
    }

    /// Returns a kernel that no mapping names.
    pub(super) const fn unmapped(name: KernelName) -> Self {
        Self { name, line: 0 }
    }
}

/// Entry of `operator_mappings`: the keys of the file, and what follows from them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MappedOperator {
    #[serde(skip)]
    pub route: OperatorRoute,
    /// The kernel and its alternates, each once.
    #[serde(skip)]
    pub kernels: Vec<MappedKernel>,
    kernel_type: Option<MappedKernel>,
    #[serde(default)]
    alternate_kernel_types: Vec<MappedKernel>,
    category: Option<OperatorCategory>,
    query_mode: Option<OperatorRoute>,
    /// Kernel of a projection that halves its input.
    pub mtp_projection_kernel_type: Option<MappedKernel>,
    zero_cost: Option<bool>,
    #[serde(default, deserialize_with = "is_accepted")]
    accepted_miss: bool,
    composite: Option<bool>,
    sub_kernels: Option<Vec<Spanned<String>>>,
    decomposer: Option<bool>,
    pub decomposer_options: Option<DecomposerOptions>,
    /// True if an answer needs all kernels of a shape-dependent composite.
    #[serde(default)]
    pub require_all_sub_kernels: bool,
    /// The kernel of a shape-dependent composite for which those of the operator are alternatives.
    pub primary_kernel_type: Option<MappedKernel>,
    /// Number of leading inputs that are compared; all if `None`.
    #[serde(rename = "tc_input_count")]
    pub input_count: Option<usize>,
    /// Formats of the leading inputs of a row.
    #[serde(rename = "expected_input_formats", default)]
    pub formats: Vec<String>,
    #[serde(rename = "compute_subcategory")]
    pub subcategory: Option<ComputeSubcategory>,
    /// True if all inputs of a fused mixture of experts follow from the operator's arguments.
    #[serde(default)]
    pub project_full_shape: bool,
    #[serde(default)]
    pub embedded_compute: Vec<EmbeddedCompute>,
    pub embedded_communication: Option<CommunicationRule>,
    #[serde(rename = "tp_linear_projection")]
    pub tp_projection: Option<TpLinearProjection>,
    /// Kernels that precede the others for a first input of this rank.
    #[serde(rename = "kernel_types_by_input_rank", default)]
    pub kernels_by_rank: IndexMap<usize, Vec<MappedKernel>>,
    /// Kernel of products whose contracted dimension is 1.
    #[serde(rename = "degenerate_bmm_kernel_type")]
    pub degenerate_bmm_kernel: Option<MappedKernel>,
    runtime_comm_variants: Option<RuntimeCommVariants>,
    #[serde(rename = "notes")]
    _notes: Option<IgnoredAny>,
}

/// Reads `accepted_miss: true`, or the reason.
fn is_accepted<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    Ok(!matches!(String::deserialize(from)?.as_str(), "false" | ""))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OperatorCategory {
    Compute,
    Communication,
}

/// Way of looking up an operator; those with a name in the file are values of `query_mode`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperatorRoute {
    #[default]
    #[serde(skip)]
    Compute,
    /// Lookup by output shape, or by the number of elements that are read and written.
    Elementwise,
    /// Lookup by query shape, heads, layout and lengths of the keys.
    #[serde(rename = "attention_special")]
    Attention,
    /// Lookup by the shapes of a fused mixture of experts and the number of ranks that share the experts.
    MoeFused,
    /// Lookup as a plain product if a projection halves its input, else as [`Self::Compute`].
    MtpProjection,
    /// Lookup by the phase and the lengths of the keys of an indexer.
    #[serde(rename = "attention_lightning_indexer")]
    KeyScores,
    #[serde(rename = "scatter_nd_update_mla")]
    CacheUpdate,
    #[serde(skip)]
    Communication,
    #[serde(skip)]
    ZeroCost,
    /// A kernel without rows, which counts as 0.
    #[serde(skip)]
    AcceptedMiss,
    /// Sum of kernels, in the order of their runs.
    #[serde(skip)]
    StaticComposite(Vec<CompositePart>),
    /// Sum of kernels that follow from the shapes; `None` for operators without a known expansion.
    #[serde(skip)]
    Decomposed(Option<DecomposedOperator>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompositePart {
    Kernel(MappedKernel),
    Operator(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ComputeSubcategory {
    QuantizedMatmul,
    ComputeScale,
}

/// Kernel that runs within a fused one and is looked up apart.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmbeddedCompute {
    pub kernel_type: MappedKernel,
    pub input_projection: InputProjection,
    /// Element type of its output where its input has another one.
    pub output_dtype: Option<String>,
}

/// Rule by which the inputs of an embedded kernel follow from those of the fused kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputProjection {
    /// Normalisation of the activation with its residual.
    ResidualNormFromActivation,
    /// Cast of the routing weights.
    RoutingWeightCast,
}

/// Lookup of a collective that belongs to another operator.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommunicationRule {
    /// The collective that is replaced; none for an additional one.
    pub source_kernel_type: Option<String>,
    pub kernel_type: MappedKernel,
    #[serde(default)]
    pub message_bytes_mode: MessageBytes,
    /// Group of ranks; by default the group of the operator.
    pub group_type: Option<RankGroup>,
    #[serde(default)]
    pub interpolation_method: MessageInterpolation,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageBytes {
    #[default]
    FullOutput,
    /// The part of the output that a rank keeps.
    PerRankOutput,
    /// The input once for each expert that a token is sent to.
    RoutedInput,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankGroup {
    /// The ranks that share a layer's matrices.
    TensorParallel,
    /// The ranks that share the experts.
    ExpertParallel,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageInterpolation {
    /// Start-up time and bandwidth fitted to all sizes, limited to the durations of the neighbouring sizes.
    #[default]
    AlphaBeta,
    /// A straight line between the neighbouring sizes.
    BracketLinear,
}

/// Rewriting of the dimensions that a framework shows for all ranks together.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TpLinearProjection {
    pub shard_axis: ShardAxis,
    /// Lengths of this dimension that all ranks have together; any other length is already the length on one rank.
    pub logical_global_dims: Vec<u64>,
    otherwise: Option<OtherDims>,
}

/// Dimension of a product that ranks share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ShardAxis {
    /// The contracted dimension.
    Input,
    Output,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OtherDims {
    PhysicalLocal,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CacheMode {
    /// The number of blocks of a cache is ignored.
    PoolDim0Agnostic,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OtherRegime {
    OpaqueKernelQuery,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OpaqueQueryMode {
    MlapoPreprocess,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuntimeCommVariants {
    sequence_parallel: Option<CommunicationRule>,
}

/// Operators whose kernels follow from the shapes, under the names of the framework.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString)]
pub enum DecomposedOperator {
    #[strum(serialize = "multihead_latent_attention")]
    LatentAttention,
    #[strum(serialize = "multihead_latent_attention_quant")]
    QuantizedLatentAttention,
    /// Latent attention over selected keys.
    #[strum(serialize = "mla_sparse_attention")]
    SparseLatentAttention,
    #[strum(serialize = "mla_sparse_attention_quant")]
    QuantizedSparseLatentAttention,
    /// Projections, norms and positions in front of latent attention.
    #[strum(serialize = "mlapo")]
    LatentPreprocess,
    #[strum(serialize = "mlapo_quant")]
    QuantizedLatentPreprocess,
    #[strum(serialize = "dsa_indexer")]
    KeyIndexer,
}

impl DecomposedOperator {
    /// Returns true for operators with quantized products.
    pub const fn is_quantized(self) -> bool {
        matches!(
            self,
            Self::QuantizedLatentAttention
                | Self::QuantizedSparseLatentAttention
                | Self::QuantizedLatentPreprocess
        )
    }
}

/// Options of a shape-dependent expansion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecomposerOptions {
    /// Rule for the pools of caches, whose size is not part of a query.
    pub kv_cache_query: Option<KvCacheQuery>,
    pub visible_kernel_regime: Option<VisibleKernelRegime>,
    pub projection_token_partition: Option<TokenPartition>,
    /// True if the query counts the heads of one rank.
    pub reconstruct_q_heads_by_tp: Option<bool>,
    pub opaque_kernel: Option<OpaqueKernel>,
    pub dsa_cp_layout: Option<DsaCpLayout>,
    pub prefill_tail_transpose: Option<PrefillTailTranspose>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KvCacheQuery {
    mode: CacheMode,
    pub block_size: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VisibleKernelRegime {
    pub requires_sequence_parallel: bool,
    otherwise: OtherRegime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenPartition {
    /// The tensor-parallel ranks.
    Tp,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpaqueKernel {
    pub kernel_type: String,
    query_mode: OpaqueQueryMode,
    pub block_size: u64,
    pub cache_mode: String,
    pub quant_mode: String,
    pub enable_inner_out: bool,
    pub weight_quantized: bool,
    pub weight_format: String,
}

/// Layout of attention whose context is shared among ranks.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DsaCpLayout {
    /// True if the query counts the heads of all ranks.
    pub attention_heads_already_global: bool,
    pub tail_width_partition: Option<TokenPartition>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrefillTailTranspose {
    pub requires_sequence_parallel: bool,
    pub kernel_type: String,
}

#[derive(Clone, Debug, Default)]
pub struct OpMapping {
    /// Path of the file; empty without one.
    pub(super) file: PathBuf,
    communication_data: Option<PathBuf>,
    policies: IndexMap<String, KernelPolicy>,
    operators: IndexMap<String, MappedOperator>,
}

impl OpMapping {
    pub fn load(path: &Path) -> Result<Self, YamlError> {
        let text = read_regular_text(path, MAX_DOCUMENT).map_err(|error| {
            let hint = "give the path of an `op_mapping.yaml` with `--mapping FILE`";
            YamlError::of_file(path, format!("cannot be read: {error}"), hint)
        })?;
        Self::parse(path, &text)
    }

    pub fn parse(path: &Path, text: &str) -> Result<Self, YamlError> {
        let file: MappingFile = parse(path, text)?;
        let places = Places { path, text };
        let names: BTreeSet<String> = file.operator_mappings.keys().map(|name| name.value.clone()).collect();
        let policies = kernel_policies(path, &file)?;
        let mut operators = IndexMap::with_capacity(names.len());
        for (name, mut operator) in file.operator_mappings {
            operator.complete(&name, &places, &names)?;
            operators.insert(name.value, operator);
        }
        let communication_data = file.communication_data_ref;
        let mapping = Self { file: path.to_owned(), communication_data, policies, operators };
        mapping.refuse_cycles(&places)?;
        Ok(mapping)
    }

    /// Returns the operator of this name, with or without `torch.ops.` in front.
    pub fn operator(&self, name: &str) -> Option<&MappedOperator> {
        self.operators.get(name.strip_prefix("torch.ops.").unwrap_or(name))
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.operators.keys().map(String::as_str)
    }

    pub fn policy(&self, kernel: &str) -> KernelPolicy {
        self.policies.get(kernel).copied().unwrap_or_default()
    }

    /// Returns the folder of the tables of collectives, if the mapping names one.
    pub fn communication_folder(&self) -> Option<PathBuf> {
        let folder = self.communication_data.as_ref()?;
        Some(self.file.parent().unwrap_or(Path::new("")).join(folder))
    }

    /// Refuses composites that contain themselves, or more operators than a framework has in a step: each lookup answers all.
    fn refuse_cycles(&self, places: &Places<'_>) -> Result<(), YamlError> {
        let mut sizes = BTreeMap::new();
        for name in self.operators.keys() {
            let (owner, part, problem) = match self.composite_size(name, &mut Vec::new(), &mut sizes) {
                Ok(size) if size <= MAX_PARTS => continue,
                Ok(size) => {
                    let is_operator = |part: &CompositePart| matches!(part, CompositePart::Operator(_));
                    let first = self.operators[name].parts().iter().position(is_operator).unwrap_or(0);
                    let problem = format!("`{name}` contains {size} operators, the limit is {MAX_PARTS}");
                    (name.as_str(), first, problem)
                }
                Err(refused) => refused,
            };
            let at = places.find(owner, &["sub_kernels", &part.to_string()]);
            return Err(places.error(at, &problem, "list the kernels that run, in place of the operator"));
        }
        Ok(())
    }

    /// Returns the number of operators that an operator contains, with itself; `sizes` has the known numbers. The error is a circle
    /// or too many levels, with the operator and the place of the part.
    fn composite_size<'m>(
        &'m self,
        name: &'m str,
        path: &mut Vec<&'m str>,
        sizes: &mut BTreeMap<&'m str, u64>,
    ) -> Result<u64, (&'m str, usize, String)> {
        if let Some(size) = sizes.get(name) {
            return Ok(*size);
        }
        path.push(name);
        let mut size = 1_u64;
        for (at, part) in self.operators[name].parts().iter().enumerate() {
            let CompositePart::Operator(other) = part else { continue };
            if let Some(start) = path.iter().position(|seen| seen == other) {
                let circle = path[start..].iter().chain([&other.as_str()]).copied().collect::<Vec<_>>();
                return Err((name, at, format!("a composite contains itself: {}", circle.join(" -> "))));
            }
            if path.len() == MAX_LEVELS {
                return Err((name, at, format!("composites of more than {MAX_LEVELS} levels")));
            }
            size = size.saturating_add(self.composite_size(other, path, sizes)?);
        }
        path.pop();
        sizes.insert(name, size);
        Ok(size)
    }
}

/// Text of a mapping, in which the places of errors are looked up.
struct Places<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Places<'_> {
    fn find(&self, operator: &str, keys: &[&str]) -> Location {
        find_value(self.text, &[&["operator_mappings", operator], keys].concat())
    }

    fn error(&self, position: Location, problem: &str, hint: &str) -> YamlError {
        YamlError::at(self.path, position, problem, hint)
    }
}

impl MappedOperator {
    /// Returns the parts of a static composite; none for other operators.
    pub fn parts(&self) -> &[CompositePart] {
        if let OperatorRoute::StaticComposite(parts) = &self.route { parts } else { &[] }
    }

    /// Returns the replacement of a composite's collective under sequence parallelism.
    pub fn sequence_parallel(&self) -> Option<&CommunicationRule> {
        self.runtime_comm_variants.as_ref()?.sequence_parallel.as_ref()
    }

    /// Returns true if no kernel runs, or one without rows that counts as 0.
    pub const fn is_free(&self) -> bool {
        matches!(self.route, OperatorRoute::ZeroCost | OperatorRoute::AcceptedMiss)
    }

    /// Checks the keys that belong together, and sets what follows from them. `names` are those of all operators.
    fn complete(
        &mut self,
        name: &Spanned<String>,
        places: &Places<'_>,
        names: &BTreeSet<String>,
    ) -> Result<(), YamlError> {
        let wrong = |key: &str, problem: &str, hint: &str| {
            Err(places.error(places.find(&name.value, &[key]), problem, hint))
        };
        for kernel in self.kernel_type.iter().chain(&self.alternate_kernel_types) {
            if self.kernels.iter().all(|other| other.name != kernel.name) {
                self.kernels.push(kernel.clone());
            }
        }
        self.route = self.find_route(name, places, names)?;
        if self.input_count.is_some() && self.query_mode == Some(OperatorRoute::Elementwise) {
            let problem = "`tc_input_count` beside `query_mode: elementwise`, which compares outputs";
            return wrong("tc_input_count", problem, "remove one of the two keys");
        }
        if self.input_count == Some(0) {
            let problem = "`tc_input_count` is 0, so that no input would be compared";
            return wrong("tc_input_count", problem, "give the number of inputs to compare");
        }
        let formats = self.formats.len();
        if self.subcategory == Some(ComputeSubcategory::QuantizedMatmul) && self.input_count != Some(formats)
        {
            let count = self.input_count.map_or("no".to_owned(), |count| count.to_string());
            let problem = format!(
                "a `quantized_matmul` needs as many `expected_input_formats` as `tc_input_count`, found {formats} formats \
                 and {count} inputs"
            );
            let hint = "such as `tc_input_count: 2` and `[ND, FRACTAL_NZ]`";
            return wrong("compute_subcategory", &problem, hint);
        }
        let dims = self.tp_projection.as_ref().map(|rule| &rule.logical_global_dims);
        if dims.is_some_and(|dims| dims.is_empty() || dims.contains(&0)) {
            let problem = "`logical_global_dims` needs lengths above 0";
            return wrong("tp_linear_projection", problem, "list the lengths that all ranks have together");
        }
        Ok(())
    }

    /// Decides the way of looking up, in the order in which the superseded tool tries them.
    fn find_route(
        &self,
        name: &Spanned<String>,
        places: &Places<'_>,
        names: &BTreeSet<String>,
    ) -> Result<OperatorRoute, YamlError> {
        let at = |key: &str| places.find(&name.value, &[key]);
        if self.composite == Some(true) {
            if self.decomposer == Some(true) {
                // The name has parts, such as `tensor_cast.mlapo.default`.
                return Ok(OperatorRoute::Decomposed(
                    name.value.split('.').find_map(|part| part.parse().ok()),
                ));
            }
            let Some(listed) = self.sub_kernels.as_ref().filter(|list| !list.is_empty()) else {
                let problem =
                    format!("the composite `{}` has neither `sub_kernels` nor `decomposer`", name.value);
                return Err(places.error(at("composite"), &problem, "list its kernels in `sub_kernels`"));
            };
            let part = |text: &Spanned<String>| match names.contains(&text.value) {
                true => Ok(CompositePart::Operator(text.value.clone())),
                false => MappedKernel::new(text)
                    .map(CompositePart::Kernel)
                    .map_err(|problem| places.error(text.defined, &problem, SEE_KEYS)),
            };
            return Ok(OperatorRoute::StaticComposite(listed.iter().map(part).collect::<Result<_, _>>()?));
        }
        for (key, is_given) in [
            ("sub_kernels", self.sub_kernels.is_some()),
            ("decomposer", self.decomposer.is_some()),
            ("decomposer_options", self.decomposer_options.is_some()),
        ] {
            if is_given {
                let problem = format!("`{key}` of `{}` without `composite: true`", name.value);
                return Err(places.error(at(key), &problem, SEE_KEYS));
            }
        }
        let is_zero_cost = self.zero_cost == Some(true);
        if self.kernel_type.is_none() && !is_zero_cost && !self.accepted_miss {
            let problem = format!("`{}` has no `kernel_type`", name.value);
            let hint = "name its kernel, or state `zero_cost: true` or `composite: true`";
            return Err(places.error(name.defined, &problem, hint));
        }
        if self.category == Some(OperatorCategory::Communication) {
            return Ok(OperatorRoute::Communication);
        }
        Ok(match &self.query_mode {
            Some(mode) => mode.clone(),
            None if is_zero_cost => OperatorRoute::ZeroCost,
            None if self.accepted_miss => OperatorRoute::AcceptedMiss,
            None => OperatorRoute::Compute,
        })
    }
}

fn kernel_policies(path: &Path, file: &MappingFile) -> Result<IndexMap<String, KernelPolicy>, YamlError> {
    let mut policies: IndexMap<String, KernelPolicy> = IndexMap::new();
    for (kernel, fields) in overrides(file.latency_policy.as_ref()) {
        let policy = policies.entry(kernel.clone()).or_default();
        policy.prefers_profiling = fields.prefer_profiling_rows;
        if let Some(EnvelopeFields { max_duration_to_core_ratio: ratio }) =
            &fields.profiling_core_envelope_fallback
        {
            if !(ratio.value.is_finite() && ratio.value >= 1.0) {
                let problem = format!("the ratio is {}, expected a number of at least 1", ratio.value);
                let hint = "a kernel is never shorter than its cores work";
                return Err(YamlError::at(path, ratio.defined, &problem, hint));
            }
            policy.max_core_ratio = Some(ratio.value);
        }
    }
    for (kernel, fields) in overrides(file.query_selection_policy.as_ref()) {
        policies.entry(kernel.clone()).or_default().requires_unique = fields.require_semantic_unique;
    }
    for (kernel, fields) in overrides(file.interpolation_policy.as_ref()) {
        let policy = policies.entry(kernel.clone()).or_default();
        if let Some(limit) = &fields.max_interpolation_dim {
            if limit.value > 3 {
                let problem = format!("found `{}`, expected a number of dimensions from 0 to 3", limit.value);
                return Err(YamlError::at(path, limit.defined, &problem, "0 disables interpolation"));
            }
            policy.max_interpolation_dim = Some(limit.value);
        }
        policy.generic_axis = fields.generic_compute.as_ref().map(|g| g.axis).unwrap_or_default();
        policy.axis_transform = fields.axis_transform.unwrap_or_default();
    }
    Ok(policies)
}
