//! The words of npubench as types: kernels, tensors, cases, verdicts, kinds, time.
//!
//! Layer 0: imports nothing of this crate and does no IO.

mod attention;
mod attention_call;
mod attention_sequences;
mod attributes;
mod case;
mod cells;
mod dtype;
mod format;
mod kernel;
mod kind;
mod purpose;
mod signature;
mod stack;
mod tensor;
mod time;
mod vendor_check;
mod verdict;
mod words;

pub use attention::{Attention, AttentionSlot, attention_attribute};
pub(crate) use attention_call::joined;
pub use attention_call::{AttentionCall, Fit, agreed, best_fits};
pub use attention_sequences::Sequences;
pub use attributes::{Attributes, EP_SIZE, RUNTIME};
pub use case::{Case, CaseId};
pub use cells::{Cells, CellsError};
pub use dtype::Dtype;
pub use format::Format;
pub use kernel::{KernelName, KernelNameError};
pub use kind::Kind;
pub use purpose::Purpose;
pub use signature::keeps_input_shapes;
pub use stack::Stack;
pub use tensor::{Slot, Tensor};
pub use time::{Nanos, NanosError};
pub use vendor_check::{CheckOutcome, CheckVerdict, CheckedBy, UnknownOutcome};
pub use verdict::{Finding, Verdict};
pub use words::{meant, nearest, shortened};
