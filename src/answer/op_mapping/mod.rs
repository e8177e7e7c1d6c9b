//! `op_mapping.yaml`: the kernels that run for an operator of a framework, and how they are looked up.

mod convert;
mod decomposer_options;
mod file;
mod model;
#[cfg(test)]
mod tests;

pub use convert::MAPPING_FILE;
pub(crate) use decomposer_options::{DecomposerOptions, OpaqueKernel, OpaqueQueryMode, TokenPartition};
pub use file::QueryMode;
pub(crate) use file::{
    AxisTransform, CommunicationRule, ComputeSubcategory, EmbeddedCompute, GenericAxis, InputProjection,
    MessageBytes, MessageInterpolation, RankGroup, ShardAxis, TpLinearProjection,
};
pub use model::OpMapping;
pub(crate) use model::{
    CompositePart, DecomposedOperator, DecomposedRule, KernelPolicy, MappedKernel, MappedOperator,
    MoeFusedRule, OperatorRoute,
};
