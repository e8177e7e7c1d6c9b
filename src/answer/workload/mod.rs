//! Workloads: the kernels and operators that a model runs, each with its number of invocations and their time, from
//! profiles, inventories and traces of simulators, plain lists, or the sizes of a language model.

mod chrome_trace;
mod decoder_step;
mod forward_pass;
mod inventory;
mod load;
mod plain;
mod profile_records;
mod question;

pub use chrome_trace::{PredictedTime, read_predicted_time};
pub use decoder_step::{DecoderStep, DecoderStepError, StepPhase, decoder_step};
pub use forward_pass::{
    FORWARD_ANCHOR, ForwardPass, ForwardPasses, read_forward_passes, read_passes_of_kernels,
};
pub use load::{WorkloadError, load_workload, parse_weighted_path};
pub(crate) use question::tensor_bytes;
pub use question::{DurationKind, QuestionDefaults, UnreadableReason, Workload, WorkloadQuestion};
