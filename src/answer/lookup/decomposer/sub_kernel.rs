//! One kernel of a composite.

use crate::{
    answer::{
        lookup::{attention_work::AttentionWork, cache_rows::CacheQuery, query::QueryTensor},
        op_mapping::MappedKernel,
    },
    kernel::{Dtype, KernelName},
};

/// Inputs by which a kernel of a composite is looked up.
#[derive(Clone, Debug)]
pub(crate) enum SubKernelQuery {
    /// By its leading inputs.
    Inputs(Vec<QueryTensor>),
    /// By the work of its call.
    Attention(Box<AttentionWork>),
    /// By its leading inputs, whatever the capacity of its caches.
    Cache(CacheQuery),
}

/// Kernel of a composite.
#[derive(Clone, Debug)]
pub(crate) struct SubKernel {
    /// Kernels of which one runs, in the order of preference.
    pub(crate) kernels: Vec<MappedKernel>,
    pub(crate) query: SubKernelQuery,
}

impl SubKernel {
    pub(crate) fn new(names: &[&str], query: SubKernelQuery) -> Self {
        let kernels = names.iter().filter_map(|name| KernelName::new(name).ok());
        Self { kernels: kernels.map(|name| MappedKernel { name, line: 0 }).collect(), query }
    }

    /// Creates a kernel that is looked up by its leading inputs.
    pub(crate) fn of_inputs(names: &[&str], inputs: &[(&[u64], &Dtype)]) -> Self {
        Self::new(names, SubKernelQuery::Inputs(tensors(inputs)))
    }

    /// Creates a kernel that writes caches. Types that are `None` are not compared.
    pub(crate) fn of_cache(names: &[&str], inputs: &[(&[u64], Option<&Dtype>)]) -> Self {
        let tensor = |(dims, dtype): &(&[u64], Option<&Dtype>)| QueryTensor {
            dims: dims.to_vec(),
            dtype: dtype.cloned(),
            format: None,
        };
        let inputs = inputs.iter().map(tensor).collect();
        Self::new(names, SubKernelQuery::Cache(CacheQuery { inputs, attributes: Vec::new() }))
    }
}

fn tensors(inputs: &[(&[u64], &Dtype)]) -> Vec<QueryTensor> {
    let tensor = |(dims, dtype): &(&[u64], &Dtype)| QueryTensor {
        dims: dims.to_vec(),
        dtype: Some((*dtype).clone()),
        format: None,
    };
    inputs.iter().map(tensor).collect()
}
