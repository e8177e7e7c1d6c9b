//! The words of npubench as types: kernels, tensors, cases, verdicts, kinds, time.
//!
//! Layer 0: imports nothing of this crate and does no IO.

mod case;
mod cells;
mod dtype;
mod format;
mod kernel;
mod kind;
mod stack;
mod tensor;
mod time;
mod verdict;

pub use case::{Case, CaseId};
pub use cells::{Cells, CellsError};
pub use dtype::Dtype;
pub use format::Format;
pub use kernel::{KernelName, KernelNameError};
pub use kind::Kind;
pub use stack::Stack;
pub use tensor::{Slot, Tensor};
pub use time::{Nanos, NanosError};
pub use verdict::{Finding, Verdict};
