//! Domain types of npubench: kernels, tensors, cases, results, verdicts, kinds, time.

mod attention;
mod attributes;
mod case;
pub(crate) mod case_filter;
pub mod catalogue;
pub mod cause;
mod collection;
pub mod collective;
pub mod device;
pub(crate) mod entry_scaffold;
pub mod expression;
mod kernel_name;
pub mod operator_schema;
pub mod render;
mod results;
mod signature;
mod software;
mod tensor;
mod time;
pub(crate) mod timestamp;
mod verdict;

pub use attention::AttentionCall;
pub(crate) use attention::{
    AttentionCase, AttentionSlot, SequenceLengths, attention_attribute, best_shape_matches,
    common_attributes, element_count, lengths_from_ends,
};
pub use attributes::CaseAttributes;
pub(crate) use attributes::{
    ALLOW_HF32, EP_SIZE, RUNTIME, SHAPE_LABELS, WORLD_SIZE, ingest_option, is_mean, normalize_cell,
};
pub use case::{Case, CaseId, IdentifiedCase, MemoryFootprint, default_memory_budget};
pub(crate) use case::{CaseMap, CaseSet, short_hash};
pub use cause::{Cause, Reason};
pub use collection::{AicMetrics, CacheState, CollectionPurpose, DataKind, ProfilerSettings};
pub(crate) use collection::{CollectionEnd, ControlKernel, ControlReading, is_run_id};
pub use collective::{CollectiveCase, CollectiveKind, PartWeights};
pub(crate) use collective::{
    CommandSizes, SweepCommand, earlier_hccl_environment, hccl_environment, hccl_variables,
    is_in_hccl_environment, unset_hccl_variables,
};
pub(crate) use device::{DeviceDeviation, HostDevice, soc_of_chip};
pub use device::{DeviceFacts, LogicalDeviceId};
pub use kernel_name::{KernelName, KernelNameError};
pub use results::{Attempt, AttemptSamples, EqualCallAttempt, Launch, RecordedTask, RowResult};
pub(crate) use results::{
    CONFIRMING_COLLECTIONS, CollectionSamples, IntervalMethod, Measurement, MedianInterval,
    PRODUCTION_FACTOR, ShownResult, WithdrawnAttempts, production_contradiction,
};
pub use signature::SignatureCells;
pub(crate) use signature::{
    case_of_signature, is_vendor_name, signature_mismatch, signature_parts, split_signature_dims,
};
pub(crate) use software::version_numbers;
pub use software::{IdentifiedSoftware, ImportedVersions, SoftwareFingerprint, SoftwareVersions};
pub(crate) use tensor::Dims;
pub use tensor::{Dtype, Slot, Tensor, TensorFormat};
pub use time::{DurationList, Nanos, NanosError};
pub(crate) use time::{NoKernelDuration, is_kernel_micros, parse_kernel_micros};
pub use verdict::{CaseOutcome, CheckMethod, CheckOutcome, Verdict};
pub(crate) use verdict::{CheckVerdict, FailingVerdicts};
