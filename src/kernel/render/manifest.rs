//! The manifest: every launch of a collection as data, written by npubench and read by the script.

use std::{collections::BTreeMap, ops::Range};

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use super::PinnedEnvironment;
use crate::kernel::{
    CacheState, CaseId, CollectionEnd, ControlKernel, DataKind, Dtype, IdentifiedCase, LogicalDeviceId,
    ProfilerSettings, Tensor, TensorFormat,
    catalogue::{CallArgument, ResolvedCall, group_size},
    is_run_id,
};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    #[serde(deserialize_with = "read_run_id")]
    pub(crate) run: String,
    pub(crate) collection: u32,
    pub(crate) kind: DataKind,
    pub device: LogicalDeviceId,
    /// The devices of the processes that torchrun starts, by rank; `device` is the first. Empty without torchrun.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) gang: Vec<LogicalDeviceId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) hosts: Vec<GangHost>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) host: usize,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) host_numbers: HostNumbers,
    pub(crate) seed: u64,
    pub(crate) warm_up: u32,
    pub(crate) measured: u32,
    /// Size of a tensor that is read before each launch to empty the cache; `None` for launches with a warm cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) flush_bytes: Option<u64>,
    /// Skew of tokens over experts: the n-th expert has a share of n^-skew; 0 is even.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) expert_skew: f64,
    #[serde(default)]
    pub(crate) profiler: ProfilerSettings,
    #[serde(default)]
    pub(crate) environment: PinnedEnvironment,
    pub(crate) sentinels: SentinelLengths,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) controls: Option<ControlLaunches>,
    pub cases: Vec<ManifestCase>,
}

impl Manifest {
    pub(crate) fn without_cases(run: &str, collection: u32, kind: DataKind) -> Self {
        Self {
            run: run.to_owned(),
            collection,
            kind,
            device: LogicalDeviceId::default(),
            gang: Vec::new(),
            hosts: Vec::new(),
            host: 0,
            host_numbers: HostNumbers::default(),
            seed: 0,
            warm_up: 0,
            measured: 0,
            flush_bytes: None,
            expert_skew: 0.0,
            profiler: ProfilerSettings::default(),
            environment: PinnedEnvironment::default(),
            sentinels: SentinelLengths::default(),
            controls: None,
            cases: Vec::new(),
        }
    }

    pub(crate) fn devices(&self) -> &[LogicalDeviceId] {
        if self.gang.is_empty() { std::slice::from_ref(&self.device) } else { &self.gang }
    }

    pub(crate) fn host_of_rank(&self, rank: usize) -> usize {
        (0..self.hosts.len()).find(|host| self.ranks_of_host(*host).contains(&rank)).unwrap_or_default()
    }

    pub(crate) fn ranks_of_host(&self, host: usize) -> Range<usize> {
        let Some(of_host) = self.hosts.get(host) else { return 0..self.devices().len() };
        let first = self.hosts[..host].iter().map(|before| before.ranks).sum::<usize>();
        first..first + of_host.ranks
    }

    pub(crate) const fn spans_hosts(&self) -> bool {
        self.hosts.len() > 1
    }

    pub(crate) fn set_gang(&mut self, devices: &[LogicalDeviceId]) {
        if self.group_size().is_some() {
            self.gang = devices.to_vec();
        }
    }

    /// Sets the least size of the tensor that is read before each launch. It gets a shape that no case reads, so that
    /// the records of flushes are known by kernel and shape, also beside a case of the same kernel.
    pub(crate) fn set_flush(&mut self, bytes: Option<u64>) {
        self.flush_bytes = bytes;
        let inputs = || self.cases.iter().flat_map(|case| &case.record.inputs).flatten();
        while let Some(dims) = self.flush_dims().filter(|dims| inputs().any(|tensor| tensor.dims == dims)) {
            self.flush_bytes = Some(dims[0] * (dims[1] + 1) * 4);
        }
    }

    pub(crate) const fn cache(&self) -> CacheState {
        if self.flush_bytes.is_some() { CacheState::Cold } else { CacheState::Hot }
    }

    /// Returns the dimensions of the int32 tensor that is read before each launch: two, unlike those of sentinels.
    pub(crate) fn flush_dims(&self) -> Option<[u64; 2]> {
        self.flush_bytes.map(|bytes| [2, bytes / 8])
    }

    /// Returns the ordinal in the lengths of the sentinels around a control kernel, by its place among them. Ordinals
    /// of controls follow those of the cases, so that their records are never between the sentinels of a case.
    pub(crate) fn control_ordinal(&self, end: CollectionEnd, place: usize) -> u32 {
        let before = match (end, &self.controls) {
            (CollectionEnd::End, Some(controls)) => controls.kernels.len(),
            _ => 0,
        };
        u32::try_from(self.cases.len() + before + place).unwrap_or(u32::MAX)
    }

    pub(crate) fn group_size(&self) -> Option<i64> {
        self.cases.iter().filter_map(|case| group_size(&case.arguments)).max()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HostNumbers {
    pub(crate) devices: Vec<u32>,
    pub(crate) listed: u32,
    /// True if torch must count exactly the listed devices; else it may count more.
    pub(crate) is_exact: bool,
}

fn read_run_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let run = String::deserialize(deserializer)?;
    if is_run_id(&run) { Ok(run) } else { Err(D::Error::custom("`run` is no id of a run of npubench")) }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ControlLaunches {
    pub(crate) warm_up: u32,
    pub(crate) measured: u32,
    pub(crate) kernels: Vec<ControlCall>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) settling: Option<ClockSettling>,
}

/// Launches of a product before a case until the clock of the device has settled, because it falls while the device
/// waits for the host. Their time is read by events of the device: the profiler's records exist only after the
/// collection. A reading is the median of four launches between events. They are queued behind another launch, so that
/// it does not contain their time on the host.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ClockSettling {
    /// Relative difference from the median of the last settled readings up to which a reading is settled.
    pub(crate) tolerance: f64,
    /// Device time in milliseconds over which readings that do not fall count as settled at another clock.
    pub(crate) steady_ms: f64,
    /// Greatest device time in milliseconds; a launch counts at least 0.1 ms.
    pub(crate) most_ms: f64,
    /// Device time in milliseconds of the first readings of a collection, which find a clock that rises late.
    #[serde(default)]
    pub(crate) first_ms: f64,
    /// Relative difference from the fastest readings of the collection above which readings are not settled.
    #[serde(default)]
    pub(crate) excess: f64,
}

impl Default for ClockSettling {
    /// One reading, which takes five launches of 0.5 ms, at the clock of the case before; four readings at another
    /// clock. If launches vary by 1 %, readings vary by 0.6 %: the excess is seven times as much.
    fn default() -> Self {
        Self { tolerance: 0.02, steady_ms: 10.0, most_ms: 50.0, first_ms: 100.0, excess: 0.04 }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ControlCall {
    pub(crate) control: ControlKernel,
    pub(crate) api: String,
    pub(crate) tensors: Vec<Vec<u64>>,
    pub(crate) dtype: String,
}

impl Default for ControlLaunches {
    /// A product of about 0.5 ms, a copy of 64 MiB and a kernel of a few microseconds. With eight readings of kernels
    /// that vary by 1 %, a change of 4 % between the ends is significant. All devices have half precision, but not
    /// all have bfloat16.
    fn default() -> Self {
        let call = |control, api: &str, tensors: &[&[u64]]| ControlCall {
            control,
            api: api.to_owned(),
            tensors: tensors.iter().map(|dims| dims.to_vec()).collect(),
            dtype: "float16".to_owned(),
        };
        let kernels = vec![
            call(ControlKernel::Matmul, "torch.mm", &[&[4096, 4096], &[4096, 4096]]),
            call(ControlKernel::Copy, "torch.Tensor.copy_", &[&[4096, 8192], &[4096, 8192]]),
            call(ControlKernel::Vector, "torch.abs", &[&[64, 4096]]),
        ];
        Self { warm_up: 3, measured: 8, kernels, settling: Some(ClockSettling::default()) }
    }
}

impl ControlLaunches {
    pub(crate) fn launch_count(&self) -> u32 {
        let kernels = u32::try_from(self.kernels.len()).unwrap_or_default();
        2 * kernels * (self.warm_up + self.measured + 2)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GangHost {
    pub(crate) name: String,
    pub(crate) ranks: usize,
}

/// Launches of `torch.neg` on an int32 vector whose length is the position in the manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SentinelLengths {
    pub(crate) kernel: String,
    /// Launches of length 1 at both ends, which a profiler that drops the first or last records may lose.
    pub(crate) padding: u32,
}

impl Default for SentinelLengths {
    fn default() -> Self {
        Self { kernel: "Neg".to_owned(), padding: 16 }
    }
}

impl SentinelLengths {
    pub(crate) fn opening(&self, ordinal: u32) -> u64 {
        2 * u64::from(ordinal) + 2
    }

    pub(crate) fn closing_length(&self, ordinal: u32) -> u64 {
        2 * u64::from(ordinal) + 3
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ManifestCase {
    pub(crate) ordinal: u32,
    pub case: CaseId,
    pub(crate) seed: u64,
    pub(crate) kernel: String,
    #[serde(default)]
    pub(crate) shapes: String,
    pub(crate) form: String,
    pub(crate) api: String,
    pub(crate) arguments: Vec<CallArgument>,
    pub(crate) returns: Vec<Vec<u64>>,
    /// Switches of torch_npu whose values for this case differ from those of the environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) switches: BTreeMap<String, bool>,
    pub(crate) record: ExpectedRecord,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) measured: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExpectedRecord {
    pub(crate) inputs: Vec<Option<RecordedTensor>>,
    pub(crate) outputs: Vec<RecordedTensor>,
    pub(crate) flops: f64,
    pub(crate) bytes: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordedTensor {
    pub(crate) dims: Vec<u64>,
    pub(crate) dtype: String,
    pub(crate) format: String,
}

impl From<&Tensor> for RecordedTensor {
    fn from(tensor: &Tensor) -> Self {
        let Tensor { dims, dtype, format } = tensor;
        Self { dims: dims.clone(), dtype: dtype.as_str().to_owned(), format: format.as_str().to_owned() }
    }
}

impl RecordedTensor {
    pub(crate) fn tensor(&self) -> Option<Tensor> {
        let (dtype, format) = (Dtype::parse(&self.dtype)?, TensorFormat::parse(&self.format)?);
        Some(Tensor { dims: self.dims.clone(), dtype, format })
    }
}

impl ManifestCase {
    pub(crate) fn new(ordinal: u32, case: &IdentifiedCase, call: &ResolvedCall, run_seed: u64) -> Self {
        Self {
            ordinal,
            // Torch accepts seeds of 63 bits.
            seed: (run_seed ^ case.id().seed()) >> 1,
            case: case.id().clone(),
            kernel: case.kernel.as_str().to_owned(),
            shapes: case.shapes(),
            form: call.form.clone(),
            api: call.api.clone(),
            arguments: call.arguments.clone(),
            returns: call.returns.clone(),
            switches: call.switches.clone(),
            record: ExpectedRecord {
                inputs: case.inputs.iter().map(|slot| slot.as_ref().map(RecordedTensor::from)).collect(),
                outputs: call.outputs.iter().map(RecordedTensor::from).collect(),
                flops: call.work.flops,
                bytes: call.work.bytes,
            },
            measured: None,
        }
    }
}
