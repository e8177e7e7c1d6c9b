//! The words of npubench as types: kernels, tensors, cases, verdicts, kinds, time.
//!
//! Layer 0: imports nothing of this crate and does no IO.

mod attention;
mod attributes;
mod case;
mod collection_purpose;
mod data_kind;
mod dtype;
mod format;
mod kernel;
mod signature;
mod signature_cells;
mod software_versions;
mod suggest;
mod tensor;
mod time;
mod vendor_check;
mod verdict;

pub(crate) use attention::joined;
pub use attention::{
    Attention, AttentionCall, AttentionSlot, Fit, Sequences, agreed, attention_attribute, best_fits,
};
pub use attributes::{Attributes, EP_SIZE, RUNTIME};
pub use case::{Case, CaseId};
pub use collection_purpose::Purpose;
pub use data_kind::Kind;
pub use dtype::Dtype;
pub use format::Format;
pub use kernel::{KernelName, KernelNameError};
pub use signature::keeps_input_shapes;
pub use signature_cells::{Cells, CellsError};
pub use software_versions::Stack;
pub use suggest::{meant, nearest, shortened};
pub use tensor::{Slot, Tensor};
pub use time::{Nanos, NanosError};
pub use vendor_check::{CheckOutcome, CheckVerdict, CheckedBy, UnknownOutcome};
pub use verdict::{Finding, Verdict};
