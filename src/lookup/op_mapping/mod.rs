//! `op_mapping.yaml`: the kernels that run for an operator of a framework, and how they are looked up.

mod convert;
mod file;
mod model;
#[cfg(test)]
mod tests;

pub use convert::MAPPING_FILE;
pub use file::{
    AxisTransform, CommunicationRule, ComputeSubcategory, DecomposerOptions, DsaCpLayout, EmbeddedCompute,
    GenericAxis, InputProjection, InvisibleKernelQuery, KvCacheMode, KvCacheQuery, MessageBytes,
    MessageInterpolation, OpaqueKernel, OpaqueQueryMode, PrefillTailTranspose, QueryMode, RankGroup,
    ShardAxis, TokenPartition, TpLinearProjection, VisibleKernelRegime,
};
pub use model::{
    CompositePart, DecomposedRule, KernelPolicy, MappedKernel, MappedOperator, MoeFusedRule, OpMapping,
    OperatorRoute,
};
