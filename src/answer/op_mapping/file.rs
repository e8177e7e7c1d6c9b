//! The keys of `op_mapping.yaml` as they stand in the file. The conversion checks how they fit together.

use indexmap::IndexMap;
use serde::{Deserialize, de::IgnoredAny};

use super::decomposer_options::DecomposerOptions;
use crate::base::yaml::{Spanned, YamlMap};

/// The whole file. Keys that only document the data are read and not kept.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MappingFile {
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
    pub(super) communication_data_ref: Option<String>,
    /// Model of a collective that the tables do not answer. Lookups never use one: they answer with a miss.
    #[serde(rename = "communication_fallback")]
    _communication_fallback: Option<IgnoredAny>,
    #[serde(default)]
    pub(super) latency_policy: KernelOverrides<LatencyFields>,
    #[serde(default)]
    pub(super) query_selection_policy: KernelOverrides<SelectionFields>,
    #[serde(default)]
    pub(super) interpolation_policy: KernelOverrides<InterpolationFields>,
    pub(super) operator_mappings: YamlMap<OperatorFields>,
    #[serde(rename = "torch_npu_reference")]
    _torch_npu_reference: Option<IgnoredAny>,
}

/// Policies by kernel.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, bound = "T: Deserialize<'de>")]
pub(super) struct KernelOverrides<T> {
    #[serde(default)]
    pub(super) kernel_overrides: YamlMap<T>,
}

impl<T> Default for KernelOverrides<T> {
    fn default() -> Self {
        Self { kernel_overrides: YamlMap::default() }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LatencyFields {
    #[serde(default)]
    pub(super) prefer_profiling_rows: bool,
    pub(super) profiling_core_envelope_fallback: Option<EnvelopeFields>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EnvelopeFields {
    pub(super) max_duration_to_core_ratio: Spanned<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SelectionFields {
    #[serde(default)]
    pub(super) require_semantic_unique: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InterpolationFields {
    pub(super) max_interpolation_dim: Option<Spanned<u8>>,
    pub(super) generic_compute: Option<GenericComputeFields>,
    pub(super) axis_transform: Option<AxisTransform>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GenericComputeFields {
    pub(super) axis: GenericAxis,
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
    /// No transformation.
    #[default]
    Linear,
    /// Square root of the sequence length.
    SqrtSeq,
}

/// One entry of `operator_mappings`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OperatorFields {
    pub(super) kernel_type: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) alternate_kernel_types: Vec<Spanned<String>>,
    pub(super) category: Option<OperatorCategory>,
    pub(super) query_mode: Option<Spanned<QueryMode>>,
    pub(super) mtp_projection_kernel_type: Option<Spanned<String>>,
    pub(super) zero_cost: Option<Spanned<bool>>,
    pub(super) accepted_miss: Option<AcceptedMiss>,
    pub(super) composite: Option<Spanned<bool>>,
    pub(super) sub_kernels: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) decomposer: Option<Spanned<bool>>,
    pub(super) decomposer_options: Option<Spanned<DecomposerOptions>>,
    #[serde(default)]
    pub(super) require_all_sub_kernels: bool,
    pub(super) primary_kernel_type: Option<Spanned<String>>,
    pub(super) tc_input_count: Option<Spanned<usize>>,
    pub(super) expected_input_formats: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) compute_subcategory: Option<Spanned<ComputeSubcategory>>,
    #[serde(default)]
    pub(super) project_full_shape: bool,
    #[serde(default)]
    pub(super) embedded_compute: Vec<EmbeddedCompute>,
    pub(super) embedded_communication: Option<CommunicationRule>,
    pub(super) tp_linear_projection: Option<Spanned<TpLinearProjection>>,
    #[serde(default)]
    pub(super) kernel_types_by_input_rank: IndexMap<usize, Vec<Spanned<String>>>,
    pub(super) degenerate_bmm_kernel_type: Option<Spanned<String>>,
    pub(super) runtime_comm_variants: Option<RuntimeCommVariants>,
    #[serde(rename = "notes")]
    _notes: Option<IgnoredAny>,
}

/// `accepted_miss: true`, or the reason.
#[derive(Clone, Debug)]
pub(super) struct AcceptedMiss(pub(super) bool);

impl<'de> Deserialize<'de> for AcceptedMiss {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Ok(Self(!matches!(text.as_str(), "false" | "")))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OperatorCategory {
    Compute,
    Communication,
}

/// Special way of looking up an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum QueryMode {
    /// By query shape, heads, layout and lengths of the keys.
    AttentionSpecial,
    /// By output shape, or by the number of elements that are read and written.
    Elementwise,
    /// By the shapes of a fused mixture of experts and the number of ranks that share the experts.
    MoeFused,
    /// As a plain product where a projection halves its input, else as a quantized one.
    MtpProjection,
    /// By the phase and the lengths of the keys of an indexer.
    AttentionLightningIndexer,
    /// By the update of a cache.
    ScatterNdUpdateMla,
}

/// Kind of a kernel for matching and interpolation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ComputeSubcategory {
    /// A product of quantized operands.
    QuantizedMatmul,
    /// A kernel that computes scales.
    ComputeScale,
}

/// Kernel that runs within a fused one and is looked up apart.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmbeddedCompute {
    /// The kernel.
    pub kernel_type: String,
    /// Rule by which its inputs follow from those of the fused kernel.
    pub input_projection: InputProjection,
    /// Element type of its output, if it is not that of its input.
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
    /// The collective.
    pub kernel_type: String,
    /// Rule for the size of the message.
    #[serde(default)]
    pub message_bytes_mode: MessageBytes,
    /// Group of ranks; by default that of the operator.
    pub group_type: Option<RankGroup>,
    /// Interpolation between measured sizes.
    #[serde(default)]
    pub interpolation_method: MessageInterpolation,
}

/// Rule for the size of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageBytes {
    /// The whole output.
    #[default]
    FullOutput,
    /// The part of the output that a rank keeps.
    PerRankOutput,
    /// The input once for each expert that a token is sent to.
    RoutedInput,
}

/// Group of ranks of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankGroup {
    /// The ranks that share a layer's matrices.
    TensorParallel,
    /// The ranks that share the experts.
    ExpertParallel,
}

/// Interpolation between measured message sizes.
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
    /// The dimension that ranks share.
    pub shard_axis: ShardAxis,
    /// Its lengths that are those of all ranks; any other one is that of a rank already.
    pub logical_global_dims: Vec<u64>,
    otherwise: Option<ProjectionDefault>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ProjectionDefault {
    PhysicalLocal,
}

/// Dimension of a product that ranks share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShardAxis {
    /// The contracted one.
    Input,
    /// That of the output.
    Output,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuntimeCommVariants {
    pub(super) sequence_parallel: Option<CommunicationRule>,
}
