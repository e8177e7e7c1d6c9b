//! Adaptive grids: the next cases of a kernel to measure, where the interpolation that will answer is worst, and an
//! estimate of its error.
//!
//! Candidates form lines along the axis that lookups interpolate first. Both ends of a line are measured first, as
//! nothing is answered beyond them. Then brackets between neighbouring rows are divided, those with the most questions
//! and the greatest expected error first: rows at their ends are left out, and two interpolators are compared. Some
//! candidates of each batch are chosen at random, and all of a batch once the expected errors reach the target: the
//! estimate is from the errors of these hold-outs alone, of answers from before they were measured. Candidates that were
//! chosen for their errors would not represent the others.

mod candidates;
mod design;
#[cfg(test)]
mod tests;

pub use self::{candidates::*, design::*};
