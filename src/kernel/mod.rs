//! Domain types of npubench: kernels, tensors, cases, results, verdicts, kinds, time.

mod attention;
mod attributes;
mod cache_state;
mod case;
pub(crate) mod case_filter;
pub mod catalogue;
mod collection_purpose;
mod collective;
mod collective_case;
pub mod comm_network;
mod controls;
mod data_kind;
mod device_deviation;
mod device_facts;
pub mod device_profile;
mod dtype;
mod duration_list;
pub(crate) mod entry_scaffold;
mod format;
mod hccl_environment;
mod kernel;
mod logical_device;
mod memory_footprint;
pub mod operator_schema;
mod part_weights;
mod production;
mod profiler_settings;
pub mod render;
mod results;
mod signature;
mod signature_cells;
mod signature_mismatch;
mod software_fingerprint;
mod software_versions;
mod sweep_command;
mod tensor;
mod time;
pub(crate) mod timestamp;
mod vendor_check;
mod verdict;

pub use attention::AttentionCall;
pub(crate) use attention::{
    AttentionCase, AttentionSlot, SequenceLengths, attention_attribute, best_shape_matches,
    common_attributes, lengths_from_ends,
};
pub use attributes::CaseAttributes;
pub(crate) use attributes::{EP_SIZE, RUNTIME, WORLD_SIZE, ingest_option, is_mean, normalize_cell};
pub use cache_state::CacheState;
pub use case::{Case, CaseId, IdentifiedCase};
pub(crate) use case::{CaseMap, CaseSet, short_hash};
pub use collection_purpose::CollectionPurpose;
pub use collective::CollectiveKind;
pub use collective_case::CollectiveCase;
pub(crate) use controls::{CollectionEnd, ControlKernel, ControlReading};
pub use data_kind::DataKind;
pub(crate) use device_deviation::{DeviceDeviation, HostDevice};
pub use device_facts::DeviceFacts;
pub(crate) use device_facts::{is_of_soc, soc_of_chip};
pub use dtype::Dtype;
pub use duration_list::DurationList;
pub use format::TensorFormat;
pub(crate) use hccl_environment::{HCCL_VARIABLES, hccl_environment, hccl_variables};
pub use kernel::{KernelName, KernelNameError};
pub use logical_device::LogicalDeviceId;
pub use memory_footprint::{MemoryFootprint, default_memory_budget};
pub use part_weights::PartWeights;
pub(crate) use production::{PRODUCTION_FACTOR, production_contradiction};
pub use profiler_settings::{AicMetrics, ProfilerSettings};
pub use results::{Attempt, AttemptSamples, EqualCallAttempt, Launch, RecordedTask, RowResult};
pub(crate) use results::{
    CONFIRMING_COLLECTIONS, CollectionSamples, IntervalMethod, Measurement, MedianInterval, ShownResult,
    WithdrawnAttempts,
};
pub(crate) use signature::{
    case_of_signature, keeps_input_shapes, signature_attributes, split_signature, split_signature_dims,
};
pub use signature_cells::{CellsError, SignatureCells};
pub(crate) use signature_mismatch::signature_mismatch;
pub use software_fingerprint::{IdentifiedSoftware, ImportedVersions, SoftwareFingerprint};
pub use software_versions::SoftwareVersions;
pub(crate) use software_versions::version_numbers;
pub(crate) use sweep_command::{CommandSizes, SweepCommand};
pub(crate) use tensor::Dims;
pub use tensor::{Slot, Tensor};
pub use time::{Nanos, NanosError};
pub(crate) use vendor_check::CheckVerdict;
pub use vendor_check::{CheckMethod, CheckOutcome};
pub(crate) use verdict::FailingVerdicts;
pub(crate) use verdict::{CLAUSE_SEPARATOR, find_clause, reason_cause, reason_remarks};
pub use verdict::{CaseOutcome, Verdict};
