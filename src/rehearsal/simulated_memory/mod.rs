//! Memory of the simulated NPU of a rehearsal host: tensors and their values, data that processes share, and the
//! protocol by which Python names them.

pub(crate) mod cache_model;
pub(crate) mod element_values;
pub(crate) mod group_link;
pub(crate) mod process_group;
pub(crate) mod protocol;
pub(crate) mod tensors;
