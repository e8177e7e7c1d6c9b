//! One tensor of a kernel's signature, and one slot that may hold one.

use std::fmt;

use super::{Dtype, TensorFormat};

/// What a slot of a signature holds: a tensor, or nothing (an optional input left out).
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
    /// A row-major tensor.
    #[must_use]
    pub fn new(dims: impl Into<Vec<u64>>, dtype: Dtype) -> Self {
        Self { dims: dims.into(), dtype, format: TensorFormat::nd() }
    }

    /// Number of elements; 1 for a scalar. Saturates at the largest `u64`.
    #[must_use]
    pub fn elements(&self) -> u64 {
        self.dims.iter().fold(1, |product, &dim| product.saturating_mul(dim))
    }

    /// Bytes of device memory; types that are not known count two bytes an element.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.elements().saturating_mul(self.dtype.bytes().unwrap_or(2))
    }

    /// Whether it has no dimensions.
    #[must_use]
    pub fn is_scalar(&self) -> bool {
        self.dims.is_empty()
    }
}

/// Dimensions or other numbers, displayed as the CSVs have them: `4096,1,1024`.
#[derive(Clone, Copy, Debug)]
pub struct Dims<'a, T = u64>(pub &'a [T]);

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
