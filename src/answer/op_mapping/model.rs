//! The mapping after all checks.

use std::path::{Path, PathBuf};

use indexmap::IndexMap;

use super::{
    decomposer_options::DecomposerOptions,
    file::{
        AxisTransform, CommunicationRule, ComputeSubcategory, EmbeddedCompute, GenericAxis, QueryMode,
        TpLinearProjection,
    },
};
use crate::kernel::KernelName;

/// Operators of a framework with their kernels.
#[derive(Clone, Debug, Default)]
pub struct OpMapping {
    pub(super) file: PathBuf,
    /// Folder of the tables of collectives, relative to the mapping.
    pub(super) communication_data: Option<PathBuf>,
    pub(super) policies: IndexMap<String, KernelPolicy>,
    pub(super) operators: IndexMap<String, MappedOperator>,
}

/// Rules for the rows of one kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KernelPolicy {
    /// True if values of production profiles precede those of replays.
    pub prefers_profiling: bool,
    /// Greatest ratio of a production duration to the time of the cores; a longer duration is replaced by the latter.
    pub max_core_ratio: Option<f64>,
    /// True if rows that fit equally well must agree.
    pub requires_unique: bool,
    /// Limit of interpolated dimensions.
    pub max_interpolation_dim: Option<u8>,
    /// Axis of interpolation of kernels without a rule of their own.
    pub generic_axis: GenericAxis,
    pub axis_transform: AxisTransform,
}

/// Kernel named by the mapping, with its place in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedKernel {
    pub name: KernelName,
    /// Line of the mapping, from 1; 0 without a file.
    pub line: u64,
}

#[derive(Clone, Debug)]
pub struct MappedOperator {
    /// Line of the mapping, from 1.
    pub line: u64,
    /// The way of looking it up.
    pub route: OperatorRoute,
    pub kernels: Vec<MappedKernel>,
    /// Kernels that precede the others for a first input of this rank.
    pub kernels_by_rank: IndexMap<usize, Vec<MappedKernel>>,
    /// Kernel of products whose contracted dimension is 1.
    pub degenerate_bmm_kernel: Option<MappedKernel>,
    /// Number of leading inputs that are compared; all if `None`.
    pub input_count: Option<usize>,
    /// Formats of the leading inputs of a row.
    pub formats: Vec<String>,
    pub subcategory: Option<ComputeSubcategory>,
    /// Rewriting of dimensions under tensor parallelism.
    pub tp_projection: Option<TpLinearProjection>,
}

/// Way of looking up an operator.
#[derive(Clone, Debug, PartialEq)]
pub enum OperatorRoute {
    Compute,
    /// By the shape of the output, or the number of elements.
    Elementwise,
    Attention,
    /// By the shapes of a fused mixture of experts.
    MoeFused(Box<MoeFusedRule>),
    /// As a plain product of this kernel if the shapes are those of such a projection, else as [`Self::Compute`].
    MtpProjection(Option<MappedKernel>),
    KeyScores,
    CacheUpdate,
    Communication,
    ZeroCost,
    /// A kernel without rows, which counts as 0.
    AcceptedMiss,
    /// Sum of kernels, in the order of their runs.
    StaticComposite {
        parts: Vec<CompositePart>,
        /// Replacement of a collective under sequence parallelism.
        sequence_parallel: Option<CommunicationRule>,
    },
    /// Sum of kernels that follow from the shapes.
    Decomposed(Box<DecomposedRule>),
}

impl OperatorRoute {
    /// Returns the name of the way as mappings have it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Elementwise => QueryMode::Elementwise.into(),
            Self::Attention => QueryMode::AttentionSpecial.into(),
            Self::MoeFused(_) => QueryMode::MoeFused.into(),
            Self::MtpProjection(_) => QueryMode::MtpProjection.into(),
            Self::KeyScores => QueryMode::AttentionLightningIndexer.into(),
            Self::CacheUpdate => QueryMode::ScatterNdUpdateMla.into(),
            Self::Communication => "communication",
            Self::ZeroCost => "zero_cost",
            Self::AcceptedMiss => "accepted_miss",
            Self::StaticComposite { .. } => "composite",
            Self::Decomposed(_) => "decomposer",
        }
    }
}

/// Part of a static composite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompositePart {
    Kernel(MappedKernel),
    Operator(String),
}

/// Rules of a fused mixture of experts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MoeFusedRule {
    /// True if all inputs of the kernel follow from the operator's arguments.
    pub projects_full_shape: bool,
    /// Kernels that run beside it.
    pub embedded_compute: Vec<EmbeddedCompute>,
    /// Collective that runs beside it.
    pub embedded_communication: Option<CommunicationRule>,
}

/// Operators whose kernels follow from the shapes. The names are those of the framework.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString)]
pub enum DecomposedOperator {
    #[strum(serialize = "multihead_latent_attention")]
    LatentAttention,
    #[strum(serialize = "multihead_latent_attention_quant")]
    QuantizedLatentAttention,
    /// Latent attention over selected keys.
    #[strum(serialize = "mla_sparse_attention")]
    SparseLatentAttention,
    /// Latent attention over selected keys with quantized products.
    #[strum(serialize = "mla_sparse_attention_quant")]
    QuantizedSparseLatentAttention,
    /// Projections, norms and positions in front of latent attention.
    #[strum(serialize = "mlapo")]
    LatentPreprocess,
    /// The same with quantized products.
    #[strum(serialize = "mlapo_quant")]
    QuantizedLatentPreprocess,
    #[strum(serialize = "dsa_indexer")]
    KeyIndexer,
}

impl DecomposedOperator {
    /// Returns the operator of a name such as `tensor_cast.mlapo.default`; `None` for others.
    pub fn from_name(name: &str) -> Option<Self> {
        name.split('.').find_map(|part| part.parse().ok())
    }

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

/// Rules of a shape-dependent expansion.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DecomposedRule {
    /// The operator; `None` for names without a known expansion.
    pub operator: Option<DecomposedOperator>,
    pub options: DecomposerOptions,
    /// True if an answer needs all kernels.
    pub requires_all: bool,
    /// The kernel for which those of the operator are alternatives.
    pub primary_kernel: Option<MappedKernel>,
}

impl OpMapping {
    /// Returns the path of the file; empty without one.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Returns the operator of this name, with or without `torch.ops.` in front.
    pub fn operator(&self, name: &str) -> Option<&MappedOperator> {
        self.operators.get(name.strip_prefix("torch.ops.").unwrap_or(name))
    }

    /// Returns all operators in the order of the file.
    pub fn operators(&self) -> impl Iterator<Item = (&str, &MappedOperator)> {
        self.operators.iter().map(|(name, operator)| (name.as_str(), operator))
    }

    /// Returns the rules for the rows of a kernel.
    pub fn policy(&self, kernel: &str) -> KernelPolicy {
        self.policies.get(kernel).copied().unwrap_or_default()
    }

    /// Returns the folder of the tables of collectives, if the mapping names one.
    pub fn communication_folder(&self) -> Option<PathBuf> {
        let folder = self.communication_data.as_ref()?;
        Some(self.file.parent().unwrap_or(Path::new("")).join(folder))
    }
}
