//! Tensors and slots of a kernel's signature.

use std::fmt;

use super::{Dtype, TensorFormat};

/// Slot of a signature: a tensor, or `None` for an omitted optional input.
pub type Slot = Option<Tensor>;

/// Shape, element type and memory format of one input or output.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tensor {
    /// Elements along each dimension, outermost first; empty for a scalar.
    pub dims: Vec<u64>,
    /// Element type.
    pub dtype: Dtype,
    /// Memory format.
    pub format: TensorFormat,
}

impl Tensor {
    /// Creates a row-major tensor.
    pub(crate) fn new(dims: impl Into<Vec<u64>>, dtype: Dtype) -> Self {
        Self { dims: dims.into(), dtype, format: TensorFormat::nd() }
    }

    /// Returns the number of elements; 1 for a scalar. Saturates at the largest `u64`.
    pub fn element_count(&self) -> u64 {
        self.dims.iter().fold(1, |product, &dim| product.saturating_mul(dim))
    }

    /// Returns the bytes of device memory; unknown types count two bytes per element.
    pub(crate) fn bytes(&self) -> u64 {
        self.element_count().saturating_mul(self.dtype.bytes().unwrap_or(2))
    }

    pub(crate) fn is_scalar(&self) -> bool {
        self.dims.is_empty()
    }
}

/// Dimensions or other numbers, displayed as the CSVs have them: `4096,1,1024`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dims<'a, T = u64>(pub &'a [T]);

impl<T: fmt::Display> fmt::Display for Dims<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, dim) in self.0.iter().enumerate() {
            write!(f, "{}{dim}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// Form in messages: `DT_BF16[4096,1024]`, followed by the format if it is not row-major.
impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.dtype, Dims(&self.dims))?;
        if let TensorFormat::Private(name) = &self.format {
            write!(f, " {name}")?;
        }
        Ok(())
    }
}
