//! `op_mapping.yaml`: the kernels that run for an operator of a framework, and how they are looked up.

mod convert;
mod decomposer_options;
mod file;
mod model;
#[cfg(test)]
mod tests;

pub use convert::MAPPING_FILE;
pub use decomposer_options::{
    DecomposerOptions, DsaCpLayout, InvisibleKernelQuery, KvCacheMode, KvCacheQuery, OpaqueKernel,
    OpaqueQueryMode, PrefillTailTranspose, TokenPartition, VisibleKernelRegime,
};
pub use file::{
    AxisTransform, CommunicationRule, ComputeSubcategory, EmbeddedCompute, GenericAxis, InputProjection,
    MessageBytes, MessageInterpolation, QueryMode, RankGroup, ShardAxis, TpLinearProjection,
};
pub use model::{
    CompositePart, DecomposedOperator, DecomposedRule, KernelPolicy, MappedKernel, MappedOperator,
    MoeFusedRule, OpMapping, OperatorRoute,
};
