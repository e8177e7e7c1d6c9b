//! A kernel of a step with its tensors, and the kernels that may run in its place.

use crate::kernel::{Case, CaseAttributes, Dtype, KernelName, Slot, Tensor, TensorFormat};

/// Calls of one kernel, or of one of several for the same purpose.
#[derive(Clone, Debug)]
pub(super) struct KernelCall {
    pub(super) count: u64,
    pub(super) cases: Vec<Case>,
    pub(super) ranks: Option<u64>,
}

impl KernelCall {
    /// Creates a call without tensors. Names are constants of this module.
    pub(super) fn new(kernel: &str) -> Self {
        let kernel = KernelName::new(kernel).expect("names of kernels are constants");
        let attributes = CaseAttributes::default();
        let case = Case { kernel, inputs: Vec::new(), outputs: Vec::new(), attributes };
        Self { count: 0, cases: vec![case], ranks: None }
    }

    fn slot(mut self, is_input: bool, slot: Slot) -> Self {
        if let Some(case) = self.cases.first_mut() {
            if is_input { &mut case.inputs } else { &mut case.outputs }.push(slot);
        }
        self
    }

    pub(super) fn input(self, dims: &[u64], dtype: Dtype) -> Self {
        self.slot(true, Some(Tensor::new(dims, dtype)))
    }

    pub(super) fn blocked_input(self, dims: &[u64], dtype: Dtype) -> Self {
        let format = TensorFormat::parse("FRACTAL_NZ").unwrap_or_else(TensorFormat::nd);
        self.slot(true, Some(Tensor { dims: dims.to_vec(), dtype, format }))
    }

    pub(super) fn omitted(mut self, count: usize) -> Self {
        for _ in 0..count {
            self = self.slot(true, None);
        }
        self
    }

    pub(super) fn output(self, dims: &[u64], dtype: Dtype) -> Self {
        self.slot(false, Some(Tensor::new(dims, dtype)))
    }

    pub(super) fn attribute(mut self, column: &str, value: &str) -> Self {
        if let Some(case) = self.cases.first_mut() {
            case.attributes.set(column, value);
        }
        self
    }

    /// Adds another kernel with the same tensors.
    pub(super) fn or(mut self, kernel: &str) -> Self {
        if let (Some(first), Ok(kernel)) = (self.cases.first().cloned(), KernelName::new(kernel)) {
            self.cases.push(Case { kernel, ..first });
        }
        self
    }

    /// Adds another call for the same purpose.
    pub(super) fn or_call(mut self, other: Self) -> Self {
        self.cases.extend(other.cases);
        self
    }

    pub(super) const fn among(mut self, ranks: u64) -> Self {
        self.ranks = Some(ranks);
        self
    }
}
