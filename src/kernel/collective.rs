//! Collectives of HCCL: their names in profiles and tables, and what their sizes mean.
//!
//! A new one also needs its launch and check in `templates/replay.py.hbs` (`Collective`), its models in
//! `measure/collective/analytic.rs` and `scaling.rs`, its name in the help of `cli/comm/message_options.rs`, the stand-ins
//! `rehearsal/collectives.py` and `torch/distributed/__init__.py`, a catalogue entry in `op_replay` if it has a kernel on AI
//! CPUs, and a line in docs/collectives.md.
//!
//! `message_bytes` is the size by which existing readers of the tables search. It is a size per rank, but not the same one for
//! each collective. Bandwidths follow the convention of nccl-tests (doc/PERFORMANCE.md): the algorithm bandwidth is S / t, the
//! bus bandwidth S / t times a factor that makes it comparable with the peak of a link.

use std::{collections::BTreeMap, fmt, iter, path::Path, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, VariantArray};

use super::{Case, CaseAttributes, DataKind, Dims, Dtype, KernelName, Nanos, Slot, Tensor};
use crate::base::{
    shell_argument::quoted_argument,
    yaml::{self, YamlError},
};

#[derive(Serialize, Deserialize, Display, EnumString, VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CollectiveKind {
    AllReduce,
    AllGather,
    ReduceScatter,
    AllToAll,
    AllToAllV,
    Broadcast,
    SendReceive,
}

impl Dtype {
    pub(crate) const fn is_of_messages(&self) -> bool {
        use Dtype::{Bf16, Float, Float16, Int8, Int32, Int64, Uint8};
        matches!(self, Bf16 | Float16 | Float | Int8 | Uint8 | Int32 | Int64)
    }
}

impl CollectiveKind {
    /// Returns the types with which the profiler records launches of the collective, on any rank.
    pub(crate) fn record_types(self) -> Vec<&'static str> {
        match self {
            Self::SendReceive => vec![self.kernel_name(), "hcom_receive_"],
            _ => vec![self.kernel_name()],
        }
    }

    pub(crate) const ALL: &'static [Self] = <Self as VariantArray>::VARIANTS;

    /// Returns the type of the profiler's records, which is also the name of the table, the function of `torch.distributed` that
    /// launches it, and the meaning of `message_bytes`. The type of a transfer is the sender's.
    const fn names(self) -> [&'static str; 3] {
        match self {
            Self::AllReduce => ["hcom_allReduce_", "all_reduce", "buffer of one rank"],
            Self::AllGather => ["hcom_allGather_", "all_gather_into_tensor", "input of one rank"],
            Self::ReduceScatter => ["hcom_reduceScatter_", "reduce_scatter_tensor", "output of one rank"],
            Self::AllToAll => {
                ["hcom_alltoall_", "all_to_all_single", "input of one rank, its own part included"]
            }
            Self::AllToAllV => [
                "hcom_alltoallv_",
                "all_to_all_single",
                "input of the rank that sends most, its own part included",
            ],
            Self::Broadcast => ["hcom_broadcast_", "broadcast", "buffer of the root"],
            Self::SendReceive => ["hcom_send_", "send", "bytes in one direction"],
        }
    }

    pub const fn kernel_name(self) -> &'static str {
        self.names()[0]
    }

    pub(crate) fn api(self) -> String {
        format!("torch.distributed.{}", self.names()[1])
    }

    pub const fn size_semantics(self) -> &'static str {
        self.names()[2]
    }

    pub fn of_kernel(kernel: &KernelName) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.kernel_name() == kernel.as_str())
    }

    /// Returns true if each rank needs data of all others, so that all kernels end together. The root of a broadcast and the
    /// sender of a transfer may end before the others, and so may a rank that receives less than the others.
    pub(crate) const fn ends_together(self) -> bool {
        matches!(self, Self::AllReduce | Self::AllGather | Self::ReduceScatter | Self::AllToAll)
    }

    /// Returns the message size in bytes of a call with this number of elements as HCCL counts them for the profiler: of
    /// `all_to_all` those for one rank, else those of `message_bytes` (`ReportHcclOpInfo` in HCCL's sources). `None` above
    /// 2^64, and for `all_to_all_v`, whose parts are not recorded.
    pub fn message_of_count(self, count: u64, element_bytes: u64, ranks: u64) -> Option<u64> {
        let bytes = count.checked_mul(element_bytes)?;
        match self {
            Self::AllToAll => bytes.checked_mul(ranks),
            Self::AllToAllV => None,
            _ => Some(bytes),
        }
    }

    /// Returns the number of bytes of which each message size is a multiple.
    pub(crate) const fn size_granularity(self, element_bytes: u64, ranks: u64) -> u64 {
        match self {
            Self::AllToAll | Self::AllToAllV => element_bytes.saturating_mul(ranks),
            _ => element_bytes,
        }
    }

    pub fn send_bytes(self, message: u64, ranks: u64) -> Option<u64> {
        match self {
            Self::ReduceScatter => message.checked_mul(ranks),
            _ => Some(message),
        }
    }

    /// Returns the size in bytes of the output of the rank that receives most; `None` above 2^64.
    pub fn receive_bytes(self, message: u64, ranks: u64, parts: &PartWeights) -> Option<u64> {
        match self {
            Self::AllGather => message.checked_mul(ranks),
            Self::AllToAllV => Some(parts.busiest_sizes(message, ranks).received),
            _ => Some(message),
        }
    }

    /// Returns S, the size from which bandwidths are computed, in bytes; for gathers and scatters, the size of all
    /// ranks together. `None` above 2^64.
    pub fn bandwidth_bytes(self, message: u64, ranks: u64) -> Option<u64> {
        match self {
            Self::AllGather | Self::ReduceScatter => message.checked_mul(ranks),
            _ => Some(message),
        }
    }

    /// Returns the factor from the algorithm bandwidth to the bus bandwidth: of `all_to_all_v` the largest transfer of a rank
    /// with others by the size of the message, see [`PartWeights`]. It is 0 for collectives of one rank, which use no link.
    pub fn bus_factor(self, ranks: u64, parts: &PartWeights) -> f64 {
        /// Message of which rounding is no part of the factor.
        const LONG: u64 = 1 << 52;
        let others = ranks.saturating_sub(1) as f64 / ranks.max(1) as f64;
        match self {
            Self::AllReduce => 2.0 * others,
            Self::AllToAllV if *parts != PartWeights::Equal => {
                parts.busiest_sizes(LONG, ranks).with_others as f64 / LONG as f64
            }
            Self::AllGather | Self::ReduceScatter | Self::AllToAll | Self::AllToAllV => others,
            Self::Broadcast | Self::SendReceive => 1.0,
        }
    }
}

pub(super) const RANKS: &str = "HCCL Ranks";
pub(super) const TIER: &str = "HCCL Topology Tier";
pub(super) const ENVIRONMENT: &str = "HCCL Environment";
pub(super) const PARTS: &str = "HCCL Part Weights";

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CollectiveCase {
    pub kind: CollectiveKind,
    /// Message size in bytes, see [`CollectiveKind::size_semantics`].
    pub message: u64,
    pub ranks: u64,
    /// Tier of the topology that the group spans, 0 for the outermost.
    pub tier: u64,
    pub dtype: Dtype,
    /// Variables of HCCL that are set, as `NAME=value` with `;` between them.
    pub environment: String,
    pub parts: PartWeights,
}

impl CollectiveCase {
    /// Returns the case. The error is the reason why there is no such call.
    pub fn case(&self) -> Result<Case, String> {
        let Self { kind, message, ranks, dtype, parts, .. } = self;
        let size = dtype.bytes().ok_or_else(|| format!("the size of an element of {dtype} is not known"))?;
        let (elements, has_equal_parts) = (message / size, *parts == PartWeights::Equal);
        let is_divided = matches!(kind, CollectiveKind::AllToAll | CollectiveKind::AllToAllV);
        if *message == 0 || *ranks < 2 {
            return Err(format!("a message of {message} bytes over {ranks} ranks is no transfer"));
        }
        if !message.is_multiple_of(size) {
            let whole = format!("a whole number of elements of {dtype}, {size} bytes each");
            return Err(format!("{message} bytes are not {whole}"));
        }
        if is_divided && has_equal_parts && !elements.is_multiple_of(*ranks) {
            let elements =
                format!("{elements} elements of {dtype}, which {ranks} ranks cannot share equally");
            return Err(format!("{message} bytes are {elements}"));
        }
        if !has_equal_parts && *kind != CollectiveKind::AllToAllV {
            return Err("only the parts of an all_to_all_v may differ".to_owned());
        }
        parts.check_ranks(*ranks)?;
        if *kind == CollectiveKind::SendReceive && *ranks != 2 {
            return Err(format!("a transfer has 2 ranks, not {ranks}"));
        }
        // Parts are whole elements.
        let received = kind.receive_bytes(elements, *ranks, parts);
        let received = received.and_then(|elements| elements.checked_mul(size));
        let flat = |bytes: Option<u64>| -> Result<Vec<Slot>, String> {
            let bytes =
                bytes.ok_or_else(|| format!("{message} bytes for each of {ranks} ranks exceed 2^64"))?;
            Ok(vec![Some(Tensor::new([bytes / size], dtype.clone()))])
        };
        let mut attributes = CaseAttributes::default();
        attributes.set(RANKS, &ranks.to_string());
        attributes.set(TIER, &self.tier.to_string());
        attributes.set(ENVIRONMENT, &self.environment);
        // Equal parts have no attribute, so that their cases have the same ids as cases without this attribute.
        if !has_equal_parts {
            attributes.set(PARTS, &parts.to_string());
        }
        Ok(Case {
            kernel: KernelName::new(kind.kernel_name()).map_err(|error| error.to_string())?,
            inputs: flat(kind.send_bytes(*message, *ranks))?,
            outputs: flat(received)?,
            attributes,
        })
    }

    pub fn of_case(case: &Case) -> Option<Self> {
        let kind = CollectiveKind::of_kernel(&case.kernel)?;
        let number = |name: &str| case.attributes.get(name)?.parse::<u64>().ok();
        let (ranks, tier) = (number(RANKS)?, number(TIER)?);
        let send = case.inputs.first()?.as_ref()?;
        let message = match kind {
            CollectiveKind::ReduceScatter => send.bytes().checked_div(ranks)?,
            _ => send.bytes(),
        };
        let environment = case.attributes.get(ENVIRONMENT).unwrap_or_default().to_owned();
        let parts = case.attributes.get(PARTS).unwrap_or_default().parse().ok()?;
        Some(Self { kind, message, ranks, tier, dtype: send.dtype.clone(), environment, parts })
    }
}

const MAX_DEVICES: u64 = 1 << 20;

/// Grid of devices with its links, the key `comm` of a device profile.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommNetwork {
    /// Size of each dimension, outermost first. The digits of a device's number are its coordinates.
    pub(crate) grid: Vec<u64>,
    /// Links of each dimension; tier n connects devices that differ in dimension n and in none before it.
    pub(crate) tiers: Vec<CommTier>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommTier {
    pub(crate) kind: LinkKind,
    /// Peak bandwidth of a device in one direction, in 10⁹ bytes per second.
    pub(crate) gb_per_s: f64,
    /// Latency of one step in µs.
    pub(crate) latency_us: f64,
    /// Part of the peak that transfers reach, above 0 and at most 1.
    pub(crate) efficiency: f64,
}

/// How the devices of a tier are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub(crate) enum LinkKind {
    /// By switches: every pair of devices has the full bandwidth.
    Clos,
    /// Each device by a link to every other one: a small group uses only some of a device's links.
    FullMesh,
}

impl CommNetwork {
    pub(super) fn check(&self, file: &Path, text: &str) -> Result<(), YamlError> {
        let error = |path: &[&str], problem: String, hint: &str| {
            let steps = [&["comm"], path].concat();
            Err(YamlError::at(file, yaml::find_value(text, &steps), &problem, hint))
        };
        let (grid, tiers) = (&self.grid, &self.tiers);
        if grid.is_empty() {
            let hint = "give its sizes, such as `grid: [48, 8, 2]`";
            return error(&["grid"], "the grid has no dimension".to_owned(), hint);
        }
        if let Some((index, size)) = grid.iter().enumerate().find(|(_, size)| **size < 2) {
            let problem = format!("dimension {index} of the grid has size {size}, expected at least 2");
            return error(&["grid", &index.to_string()], problem, "remove dimensions of one device");
        }
        let devices = grid.iter().try_fold(1_u64, |product, size| product.checked_mul(*size));
        if devices.is_none_or(|devices| devices > MAX_DEVICES) {
            let problem = format!("the grid has more than {MAX_DEVICES} devices");
            return error(&["grid"], problem, "correct its sizes");
        }
        if tiers.len() != grid.len() {
            let problem = format!("the grid has {} dimensions, `tiers` has {}", grid.len(), tiers.len());
            return error(&["tiers"], problem, "give one tier for each dimension, outermost first");
        }
        for (index, tier) in tiers.iter().enumerate() {
            let CommTier { gb_per_s, latency_us, efficiency, .. } = *tier;
            let is_share = efficiency > 0.0 && efficiency <= 1.0;
            let values = [
                ("gb_per_s", gb_per_s, gb_per_s > 0.0, "above 0"),
                (
                    "latency_us",
                    latency_us,
                    (0.0..=Nanos::MAX_KERNEL.micros()).contains(&latency_us),
                    "from 0 to an hour",
                ),
                ("efficiency", efficiency, is_share, "above 0 and at most 1"),
            ];
            let mut faulty =
                values.into_iter().filter(|(_, value, is_valid, _)| !is_valid || !value.is_finite());
            if let Some((key, value, _, expected)) = faulty.next() {
                let problem = format!("`{key}` is {value}, expected a number {expected}");
                let hint = "correct the file and try again";
                return error(&["tiers", &index.to_string(), key], problem, hint);
            }
        }
        Ok(())
    }
}

/// Variables of HCCL without effect on the duration of a collective that succeeds. All others are part of a collective's key.
///
/// Source of each: hicann/hccl, docs/zh/user_guide/hccl_env/NAME.md, commit 09300b70. Not in this list: `HCCL_RDMA_TIMEOUT` and
/// `HCCL_RDMA_RETRY_CNT` repeat lost packets of collectives that succeed; `HCCL_SOCKET_FAMILY` also selects the protocol of the
/// devices' network cards; `HCCL_DFS_CONFIG`, `HCCL_DIAGNOSE_ENABLE`, `HCCL_ENTRY_LOG_ENABLE` and `HCCL_DEBUG_CONFIG` record
/// each call or task. `HCCL_EVENT_TIMEOUT` is of torch_npu: Ascend/pytorch,
/// docs/zh/api/environment_variable/collective_communication, commit 9e73e708.
const VARIABLES_WITHOUT_EFFECT: [&str; 11] = [
    // Limits of waits, after which a collective fails.
    "HCCL_CONNECT_TIMEOUT",
    "HCCL_EVENT_TIMEOUT",
    "HCCL_EXEC_TIMEOUT",
    // Repetitions of a failed collective, with `HCCL_OP_RETRY_ENABLE`, which is part of the key.
    "HCCL_OP_RETRY_PARAMS",
    // Addresses, ports and permissions of the connections over which the group is created.
    "HCCL_HOST_SOCKET_PORT_RANGE",
    "HCCL_IF_BASE_PORT",
    "HCCL_IF_IP",
    "HCCL_NPU_SOCKET_PORT_RANGE",
    "HCCL_SOCKET_IFNAME",
    "HCCL_WHITELIST_DISABLE",
    "HCCL_WHITELIST_FILE",
];
/// Variables that were part of the key when rows of earlier keys were measured.
const VARIABLES_OF_EARLIER_KEYS: &str = "HCCL_ALGO HCCL_BUFFSIZE HCCL_DETERMINISTIC HCCL_INTER_HCCS_DISABLE \
     HCCL_INTRA_PCIE_ENABLE HCCL_INTRA_ROCE_ENABLE HCCL_OP_EXPANSION_MODE HCCL_RDMA_PCIE_DIRECT_POST_NOSTRICT \
     HCCL_RDMA_QPS_PER_CONNECTION HCCL_MULTI_QP_THRESHOLD";
/// Variables of torch_npu for its groups of HCCL: the buffers of a sender and a receiver, and exchanges without a buffer
/// (Ascend/pytorch, torch_npu/csrc/distributed/ProcessGroupHCCL.cpp, commit 9e73e708).
const VARIABLES_OF_TORCH_NPU: [&str; 2] = ["P2P_HCCL_BUFFSIZE", "TORCH_HCCL_ZERO_COPY"];
/// Buffer sizes without the variables, in MB.
const DEFAULT_BUFFERS: [(&str, &str); 2] = [("HCCL_BUFFSIZE", "200"), ("P2P_HCCL_BUFFSIZE", "20")];

/// Returns true if a variable of the environment is part of a collective's key.
pub(crate) fn is_in_hccl_environment(name: &str) -> bool {
    let is_name = |byte: u8| byte == b'_' || byte.is_ascii_uppercase() || byte.is_ascii_digit();
    let rest = name.strip_prefix("HCCL_").or_else(|| name.strip_prefix("HCOMM_"));
    VARIABLES_OF_TORCH_NPU.contains(&name)
        || rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(is_name))
            && !VARIABLES_WITHOUT_EFFECT.contains(&name)
}

/// Returns a line for `sh` that unsets all variables of a collective's key.
pub(crate) fn unset_hccl_variables() -> String {
    format!(
        "for name in $(env | sed -n 's/^\\([A-Z0-9_]*\\)=.*/\\1/p'); do case $name in {}) ;; HCCL_?*|HCOMM_?*|{}) unset \"$name\" ;; esac; done",
        VARIABLES_WITHOUT_EFFECT.join("|"),
        VARIABLES_OF_TORCH_NPU.join("|")
    )
}

/// Returns the key of an environment: the set variables of HCCL that can change durations in the order of their names, as
/// `NAME=value` with `;` between them, without the default size of buffers.
pub(crate) fn hccl_environment(variables: &BTreeMap<String, String>) -> String {
    let counts = |(name, value): &(&String, &String)| {
        is_in_hccl_environment(name)
            && !value.trim().is_empty()
            && !DEFAULT_BUFFERS.contains(&(name.as_str(), value.trim()))
    };
    let set = variables.iter().filter(counts).map(|(name, value)| format!("{name}={}", value.trim()));
    set.collect::<Vec<_>>().join(";")
}

/// Inverse of [`hccl_environment`]. Parts without the name of a variable belong to the value before them.
pub(crate) fn hccl_variables(environment: &str) -> BTreeMap<String, String> {
    let mut variables: Vec<(String, String)> = Vec::new();
    for part in environment.split(';') {
        match part.split_once('=').filter(|(name, _)| is_in_hccl_environment(name)) {
            Some((name, value)) => variables.push((name.to_owned(), value.to_owned())),
            // `;` is also part of values, such as `level0:ring;level1:H-D_R`.
            None => variables.last_mut().into_iter().for_each(|(_, value)| value.extend([";", part])),
        }
    }
    variables.into_iter().collect()
}

/// Returns the key that rows of an environment had earlier, and the variables that it left out; `None` for the same key.
pub(crate) fn earlier_hccl_environment(environment: &str) -> Option<(String, Vec<String>)> {
    let is_earlier =
        |name: &String, _: &mut String| VARIABLES_OF_EARLIER_KEYS.split(' ').any(|own| own == name);
    let mut left_out = hccl_variables(environment);
    let earlier: BTreeMap<String, String> = left_out.extract_if(.., is_earlier).collect();
    (!left_out.is_empty()).then(|| (hccl_environment(&earlier), left_out.into_keys().collect()))
}

/// Relative sizes of the parts between all pairs of ranks.
///
/// As text, they are empty for equal parts, `hot:4`, or a matrix with one row for each sender, such as
/// `1,2/3,0`. There is no `;`: a cell with numbers between `,` and `;` would be one list.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum PartWeights {
    #[default]
    Equal,
    /// Each rank sends this many times as much to rank 0 as to each other rank, itself included: one expert has the most tokens.
    Hot(u64),
    Matrix(Vec<Vec<u64>>),
}

/// Limit of weights and factors: sums over all ranks stay far below 2^64.
const MAX_WEIGHT: u64 = 1 << 32;

impl PartWeights {
    pub(crate) fn check_ranks(&self, ranks: u64) -> Result<(), String> {
        match self {
            Self::Matrix(rows) if rows.len() as u64 != ranks => {
                Err(format!("the matrix of parts is of {} ranks, not of {ranks}", rows.len()))
            }
            _ => Ok(()),
        }
    }

    fn sent_by(&self, sender: u64, ranks: u64) -> Vec<u64> {
        let place = usize::try_from(sender).unwrap_or(usize::MAX);
        let first = match self {
            Self::Equal => 1,
            Self::Hot(factor) => *factor,
            Self::Matrix(rows) => return rows.get(place).cloned().unwrap_or_default(),
        };
        let others = usize::try_from(ranks.saturating_sub(1)).unwrap_or_default();
        iter::once(first).chain(iter::repeat_n(1, others)).collect()
    }

    /// Returns the sizes of all parts, by sender and receiver, if the rank that sends most sends `message` elements. They
    /// are rounded so that the sizes of that rank add up to the message.
    pub(crate) fn part_sizes(&self, message: u64, ranks: u64) -> Vec<Vec<u64>> {
        let weights: Vec<Vec<u64>> = (0..ranks).map(|sender| self.sent_by(sender, ranks)).collect();
        let sum = |row: &Vec<u64>| row.iter().map(|weight| u128::from(*weight)).sum::<u128>();
        let most = weights.iter().map(sum).max().unwrap_or_default().max(1);
        // Differences of rounded sums, not rounded parts.
        let until = |weight: u128| u64::try_from(u128::from(message) * weight / most).unwrap_or(u64::MAX);
        let sizes = |row: &Vec<u64>| -> Vec<u64> {
            let mut weight = 0;
            let parts = row.iter().map(|part| {
                let first = until(weight);
                weight += u128::from(*part);
                until(weight) - first
            });
            parts.collect()
        };
        weights.iter().map(sizes).collect()
    }

    /// Returns the sizes of the busiest ranks if the rank that sends most sends `message`.
    pub(crate) fn busiest_sizes(&self, message: u64, ranks: u64) -> BusiestSizes {
        if *self == Self::Equal {
            let own = message / ranks.max(1);
            return BusiestSizes { received: message, with_others: message - own };
        }
        let parts = self.part_sizes(message, ranks);
        let (mut received, mut with_others) = (0, 0);
        for (rank, sent) in parts.iter().enumerate() {
            let own = sent.get(rank).copied().unwrap_or_default();
            let output: u64 = parts.iter().filter_map(|row| row.get(rank)).sum();
            received = received.max(output);
            with_others = with_others.max(sent.iter().sum::<u64>() - own).max(output - own);
        }
        BusiestSizes { received, with_others }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BusiestSizes {
    pub(crate) received: u64,
    /// Sent to others or received from others, without the rank's own part.
    pub(crate) with_others: u64,
}

impl fmt::Display for PartWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Equal => Ok(()),
            Self::Hot(factor) => write!(f, "hot:{factor}"),
            Self::Matrix(rows) => {
                let rows: Vec<String> = rows.iter().map(|row| Dims(row).to_string()).collect();
                f.write_str(&rows.join("/"))
            }
        }
    }
}

impl FromStr for PartWeights {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if matches!(text, "" | "equal") {
            return Ok(Self::Equal);
        }
        let whole = |cell: &str| cell.trim().parse::<u64>().ok().filter(|weight| *weight <= MAX_WEIGHT);
        if let Some(factor) = text.strip_prefix("hot:") {
            let factor =
                whole(factor).ok_or_else(|| format!("`{text}`: expected `hot:` and a factor up to 2^32"))?;
            return Ok(if factor == 1 { Self::Equal } else { Self::Hot(factor) });
        }
        let weight = |cell: &str| {
            let problem = "is no weight of a part; expected a whole number up to 2^32";
            whole(cell).ok_or_else(|| format!("`{}` {problem}", cell.trim()))
        };
        let row = |row: &str| row.split(',').map(weight).collect();
        let rows: Vec<Vec<u64>> = text.split('/').map(row).collect::<Result<_, _>>()?;
        if let Some((number, row)) = rows.iter().enumerate().find(|(_, row)| row.len() != rows.len()) {
            let (number, weights, count) = (number + 1, row.len(), rows.len());
            return Err(format!(
                "row {number} of the parts has {weights} weights, but there are {count} rows; expected one row for each sender, one \
                 weight for each receiver"
            ));
        }
        let sends = |(sender, row): (usize, &Vec<u64>)| {
            row.iter().enumerate().any(|(receiver, weight)| receiver != sender && *weight > 0)
        };
        if !rows.iter().enumerate().any(sends) {
            return Err("no rank sends a part to another one".to_owned());
        }
        Ok(Self::Matrix(rows))
    }
}

impl TryFrom<String> for PartWeights {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<PartWeights> for String {
    fn from(weights: PartWeights) -> Self {
        weights.to_string()
    }
}

const LADDER_START: u64 = 1024;
const DEFAULT_LADDER_END: u64 = 512 << 20;

/// `npubench comm run` for one collective, which a shell accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SweepCommand<'c> {
    pub(crate) database: &'c Path,
    pub(crate) data_kind: DataKind,
    pub(crate) collective: CollectiveKind,
    pub(crate) ranks: u64,
    pub(crate) tier: Option<u64>,
    pub(crate) dtype: Option<&'c Dtype>,
    pub(crate) environment: &'c str,
    pub(crate) parts: &'c PartWeights,
    pub(crate) sizes: CommandSizes,
    pub(crate) measures_again: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CommandSizes {
    Default,
    Listed(Vec<u64>),
    Ladder(u64, u64),
}

impl CommandSizes {
    /// Returns the size itself if it is a multiple of `granularity`, else the multiples beside it.
    pub(crate) fn around(bytes: u64, granularity: u64) -> Self {
        let below = bytes - bytes % granularity.max(1);
        let above = below.checked_add(granularity).filter(|_| below < bytes);
        Self::Listed([below].into_iter().filter(|size| *size > 0).chain(above).collect())
    }

    /// Returns doubled sizes, multiples of `granularity`, on both sides of a size; `None` above 2^64.
    pub(crate) fn ladder_to(bytes: u64, granularity: u64) -> Option<Self> {
        let doubled = |from: u64| iter::successors(Some(from), |size: &u64| size.checked_mul(2));
        let first = granularity.max(1);
        let from = doubled(first).take_while(|size| *size <= bytes.min(LADDER_START)).last().unwrap_or(first);
        doubled(from).find(|size| *size >= bytes).map(|to| Self::Ladder(from, to))
    }

    pub(crate) fn default_of(granularity: u64) -> Self {
        if LADDER_START.is_multiple_of(granularity.max(1)) {
            return Self::Default;
        }
        Self::ladder_to(DEFAULT_LADDER_END, granularity).unwrap_or(Self::Default)
    }
}

impl fmt::Display for SweepCommand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let variables = hccl_variables(self.environment);
        if !variables.is_empty() {
            f.write_str("env ")?;
        }
        for (name, value) in variables {
            write!(f, "{} ", quoted_argument(&format!("{name}={value}")))?;
        }
        let folder = quoted_argument(&self.database.to_string_lossy());
        let host = self.data_kind.host_option();
        write!(f, "npubench comm run --db {folder}{host} --ops {} --ranks {}", self.collective, self.ranks)?;
        if let Some(tier) = self.tier {
            write!(f, " --tiers {tier}")?;
        }
        if let Some(name) = self.dtype.and_then(Dtype::torch_name) {
            write!(f, " --dtypes {name}")?;
        }
        if *self.parts != PartWeights::Equal {
            write!(f, " --parts {}", quoted_argument(&self.parts.to_string()))?;
        }
        match &self.sizes {
            CommandSizes::Default => {}
            CommandSizes::Listed(sizes) => write!(f, " --sizes {}", Dims(sizes))?,
            CommandSizes::Ladder(from, to) => write!(f, " --from {from} --to {to}")?,
        }
        f.write_str(if self.measures_again { " --update all" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{base::assets::AssetFiles, kernel::device::DeviceProfile};

    /// Factors of nccl-tests, and of the bus bandwidths of chunks of m bytes: (n - 1) m / t.
    #[test]
    fn bandwidths_follow_the_convention_of_nccl_tests() {
        let bus_bytes = |kind: CollectiveKind, message: u64, ranks: u64| {
            kind.bandwidth_bytes(message, ranks).expect("below 2^64") as f64
                * kind.bus_factor(ranks, &PartWeights::Equal)
        };
        assert!((bus_bytes(CollectiveKind::AllReduce, 1 << 20, 16) - 1_966_080.0).abs() < 1e-6);
        for kind in [CollectiveKind::AllGather, CollectiveKind::ReduceScatter] {
            assert!((bus_bytes(kind, 1 << 20, 16) - 15.0 * 1_048_576.0).abs() < 1e-6);
        }
        assert!((bus_bytes(CollectiveKind::AllToAll, 1 << 20, 4) - 786_432.0).abs() < 1e-6);
        assert!((bus_bytes(CollectiveKind::SendReceive, 1 << 20, 2) - 1_048_576.0).abs() < 1e-6);
        assert_eq!(CollectiveKind::AllGather.bandwidth_bytes(u64::MAX, 2), None);
        // nccl-tests have no unequal parts: the busiest rank receives 3 of 4 parts of 4/7 of a message.
        let hot = CollectiveKind::AllToAllV.bus_factor(4, &PartWeights::Hot(4));
        assert!((hot - 12.0 / 7.0).abs() < 1e-9, "{hot}");
    }

    #[test]
    fn tables_and_options_name_each_collective() {
        for &kind in CollectiveKind::ALL {
            let kernel = KernelName::new(kind.kernel_name()).expect("a name");
            assert_eq!(CollectiveKind::of_kernel(&kernel), Some(kind));
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert_eq!("all_to_all_v".parse(), Ok(CollectiveKind::AllToAllV));
    }

    fn collective(kind: CollectiveKind, message: u64, ranks: u64) -> CollectiveCase {
        let environment = "HCCL_ALGO=level0:ring;level1:H-D_R;HCCL_BUFFSIZE=400".to_owned();
        let parts = PartWeights::Equal;
        CollectiveCase { kind, message, ranks, tier: 1, dtype: Dtype::Bf16, environment, parts }
    }

    #[test]
    fn a_case_has_the_buffers_of_one_rank_and_the_group() {
        for &kind in CollectiveKind::ALL {
            let ranks = if kind == CollectiveKind::SendReceive { 2 } else { 16 };
            let wanted = collective(kind, 1024, ranks);
            let case = wanted.case().expect("a call");
            assert_eq!(CollectiveCase::of_case(&case), Some(wanted));
        }
        let bytes = |kind| {
            let case = collective(kind, 1024, 16).case().expect("a call");
            [&case.inputs, &case.outputs].map(|side| side[0].as_ref().map(Tensor::bytes))
        };
        assert_eq!(bytes(CollectiveKind::AllGather), [Some(1024), Some(16384)]);
        assert_eq!(bytes(CollectiveKind::ReduceScatter), [Some(16384), Some(1024)]);
        let parts = PartWeights::Hot(4);
        let hot = CollectiveCase { parts, ..collective(CollectiveKind::AllToAllV, 1024, 4) };
        let case = hot.case().expect("a call");
        assert_eq!(CollectiveCase::of_case(&case), Some(hot));
        // Each rank has 512 elements and sends 292 of them to rank 0.
        assert_eq!(case.outputs[0].as_ref().map(Tensor::bytes), Some(4 * 292 * 2));
    }

    #[test]
    fn sizes_without_a_call_are_errors() {
        let error = |kind, message, ranks| collective(kind, message, ranks).case().expect_err("no call");
        let odd = error(CollectiveKind::AllReduce, 1023, 4);
        assert_eq!(odd, "1023 bytes are not a whole number of elements of DT_BF16, 2 bytes each");
        let rest = error(CollectiveKind::AllToAll, 1028, 4);
        assert_eq!(rest, "1028 bytes are 514 elements of DT_BF16, which 4 ranks cannot share equally");
        assert!(error(CollectiveKind::AllGather, u64::MAX - 1, 4).contains("exceed 2^64"));
        assert!(error(CollectiveKind::SendReceive, 1024, 4).contains("2 ranks"));
        assert!(error(CollectiveKind::AllReduce, 1024, 1).contains("no transfer"));
    }

    #[test]
    fn ids_depend_on_group_tier_and_environment() {
        let base = collective(CollectiveKind::AllReduce, 1024, 16);
        let ids = [
            base.clone(),
            CollectiveCase { ranks: 8, ..base.clone() },
            CollectiveCase { tier: 2, ..base.clone() },
            CollectiveCase { environment: String::new(), ..base.clone() },
            CollectiveCase { kind: CollectiveKind::AllToAllV, ..base.clone() },
            CollectiveCase { kind: CollectiveKind::AllToAllV, parts: PartWeights::Hot(3), ..base.clone() },
            CollectiveCase { dtype: Dtype::Float16, ..base },
        ];
        let mut ids: Vec<_> = ids.map(|case| case.case().expect("a call").id()).to_vec();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 7);
    }

    const TIERS: &str = "  tiers:\n  - {kind: clos, gb_per_s: 25, latency_us: 1.5, efficiency: 0.7}\n  - {kind: full_mesh, gb_per_s: 196, latency_us: 0.5, efficiency: 0.7}\n";

    /// Error of a device profile with this text as its last key, with the line from that key on.
    fn error(comm: &str) -> String {
        let start = "device: A\ncube_tflops: {}\nvector_tflops: {}\nhbm_gib: 1\nhbm_tib_per_s: 1\nl2_mib: 1\n\
                     l2_ceiling_tb_per_s: 1\ncube_cores: 1\nvector_cores: 1\nclock_mhz: 1\n";
        let text = format!("{start}comm:\n{comm}");
        match DeviceProfile::parse(Path::new("A.yaml"), &text) {
            Ok(_) => String::new(),
            Err(error) => {
                format!(
                    "{}:{}: {}",
                    error.line.map_or(0, |line| line.saturating_sub(11)),
                    error.column.unwrap_or(0),
                    error.problem
                )
            }
        }
    }

    #[test]
    fn a_network_is_checked_with_positions() {
        assert_eq!(error(&format!("  grid: [128, 8]\n{TIERS}")), "");
        for (grid, expected) in [
            ("[]", "1:9: the grid has no dimension"),
            ("[128, 1]", "1:15: dimension 1 of the grid has size 1, expected at least 2"),
            ("[4294967296, 4294967296]", "1:9: the grid has more than 1048576 devices"),
            ("[2, 8, 2]", "3:5: the grid has 3 dimensions, `tiers` has 2"),
            ("[-1, 8]", "1:10: found `-1`, expected a whole number of at least 0"),
        ] {
            assert_eq!(error(&format!("  grid: {grid}\n{TIERS}")), expected, "{grid}");
        }
        for (old, new, expected) in [
            ("gb_per_s: 25", "gb_per_s: 0", "3:28: `gb_per_s` is 0, expected a number above 0"),
            ("gb_per_s: 25", "gb_per_s: -.inf", "0:0: `gb_per_s` is -inf, expected a number above 0"),
            (
                "latency_us: 1.5",
                "latency_us: -1",
                "3:44: `latency_us` is -1, expected a number from 0 to an hour",
            ),
            (
                "efficiency: 0.7}\n  - {kind: full",
                "efficiency: 70}\n  - {kind: full",
                "3:61: `efficiency` is 70",
            ),
            ("kind: clos", "kind: mesh", "3:12: unknown value `mesh`, expected one of `clos`, `full_mesh`"),
        ] {
            let found = error(&format!("  grid: [128, 8]\n{}", TIERS.replacen(old, new, 1)));
            assert!(found.starts_with(expected), "{found}\n{expected}");
        }
    }

    /// The table of the vendor's performance models.
    #[test]
    fn built_in_networks_are_those_of_the_vendors_models() {
        let profiles = DeviceProfile::load_all(&AssetFiles::embedded()).expect("the built-in profiles");
        for profile in &profiles {
            let network = profile.comm.as_ref();
            let name = profile.device.as_str();
            let a3 = (vec![48, 8, 2], vec![(196e9, 5.5), (196e9, 0.5), (224e9, 0.2)]);
            let expected = match name {
                name if name.contains("_A3_") => Some(a3),
                name if name.ends_with("_PCIE") => Some((vec![8], vec![(64e9, 0.2)])),
                name if name.contains("_A2_") => Some((vec![128, 8], vec![(25e9, 1.5), (196e9, 0.5)])),
                _ => None,
            };
            let found = network.map(|network| {
                let tiers = network.tiers.iter().map(|tier| (tier.gb_per_s * 1e9, tier.latency_us));
                (network.grid.clone(), tiers.collect::<Vec<_>>())
            });
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn variables_of_an_environment_are_read_back() {
        let all = [
            ("HCCL_ALGO", "level0:ring;level1:H-D_R"),
            ("HCCL_BUFFSIZE", "200"),
            ("HCCL_CONNECT_TIMEOUT", "600"),
            ("HCCL_OP_EXPANSION_MODE", "AIV"),
        ];
        let all: BTreeMap<String, String> =
            all.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let key = hccl_environment(&all);
        assert_eq!(key, "HCCL_ALGO=level0:ring;level1:H-D_R;HCCL_OP_EXPANSION_MODE=AIV");
        let read = hccl_variables(&key);
        assert_eq!(read["HCCL_ALGO"], "level0:ring;level1:H-D_R");
        assert_eq!(read.len(), 2);
        assert!(hccl_variables("").is_empty());
        assert_eq!(earlier_hccl_environment(&key), None);
    }

    #[test]
    fn variables_that_change_durations_are_part_of_the_key() {
        let set = [
            ("HCCL_ALG_MULTIPLE_DIMENSION_SPLIT_RATIO", "0.7"),
            ("HCCL_IF_IP", "10.0.0.1"),
            ("HCCL_LOGIC_SUPERPOD_ID", "pod_a"),
            ("HCCL_OF_A_LATER_VERSION", "1"),
            ("HCCL_OP_EXPANSION_MODE", "AIV"),
            ("HCCL_OP_RETRY_ENABLE", "L1:1,L2:1"),
            ("HCCL_OP_RETRY_PARAMS", "MaxCnt:3"),
            ("HCCL_RDMA_TC", "132"),
            ("PATH", "/bin"),
        ];
        let set: BTreeMap<String, String> =
            set.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let key = hccl_environment(&set);
        assert_eq!(
            key,
            "HCCL_ALG_MULTIPLE_DIMENSION_SPLIT_RATIO=0.7;HCCL_LOGIC_SUPERPOD_ID=pod_a;HCCL_OF_A_LATER_VERSION=1;\
             HCCL_OP_EXPANSION_MODE=AIV;HCCL_OP_RETRY_ENABLE=L1:1,L2:1;HCCL_RDMA_TC=132"
        );
        assert_eq!(hccl_environment(&hccl_variables(&key)), key);
        let (earlier, left_out) = earlier_hccl_environment(&key).expect("it had fewer variables");
        assert_eq!((earlier.as_str(), left_out.len()), ("HCCL_OP_EXPANSION_MODE=AIV", 5));
        // A part that only looks like a variable belongs to the value before it.
        assert_eq!(hccl_variables("HCCL_ALGO=a;HCCL_=b;HCCL_x=c").len(), 1);
    }

    use proptest::prelude::*;

    fn weights(text: &str) -> PartWeights {
        text.parse().expect("weights")
    }

    #[test]
    fn sizes_of_the_busiest_ranks() {
        // Rank 0 receives 4/7 of each of 4 inputs, one of them its own: 3 * 400 bytes from others.
        let hot = weights("hot:4").busiest_sizes(700, 4);
        assert_eq!(hot, BusiestSizes { received: 1600, with_others: 1200 });
        assert_eq!(weights("").busiest_sizes(700, 4), BusiestSizes { received: 700, with_others: 525 });
        // Rank 1 sends most: 300 to rank 0 and 100 to itself.
        let matrix = weights("0,2/3,1");
        assert_eq!(matrix.part_sizes(400, 2), [[0, 200], [300, 100]]);
        assert_eq!(matrix.busiest_sizes(400, 2), BusiestSizes { received: 300, with_others: 300 });
        assert_eq!(weights("hot:1"), PartWeights::Equal);
    }

    #[test]
    fn wrong_texts_are_errors_that_name_the_place() {
        let error = |text: &str| text.parse::<PartWeights>().expect_err(text);
        assert!(error("1,2/3").starts_with("row 2 of the parts has 1 weights, but there are 2 rows"));
        assert!(error("1,x/3,4").starts_with("`x` is no weight of a part"));
        assert!(error("hot:-1").contains("a factor up to 2^32"));
        assert!(error("hot:99999999999").contains("a factor up to 2^32"));
        assert_eq!(error("5,0/0,7"), "no rank sends a part to another one");
        assert!(weights("1,2/3,4").check_ranks(4).expect_err("2 ranks").contains("of 2 ranks, not of 4"));
    }

    proptest! {
        #[test]
        fn parts_of_the_busiest_sender_add_up_to_the_message(
            rows in (2_usize..6).prop_flat_map(|ranks| {
                prop::collection::vec(prop::collection::vec(0_u64..9, ranks), ranks)
            }),
            message in 1_u64..1 << 40,
        ) {
            let ranks = rows.len() as u64;
            let text = PartWeights::Matrix(rows.clone()).to_string();
            let Ok(parsed) = text.parse::<PartWeights>() else { return Ok(()) };
            prop_assert_eq!(&parsed, &PartWeights::Matrix(rows.clone()));
            let parts = parsed.part_sizes(message, ranks);
            let sums: Vec<u64> = parts.iter().map(|row| row.iter().sum()).collect();
            prop_assert_eq!(sums.iter().max(), Some(&message));
            let most: u64 = rows.iter().map(|row| row.iter().sum()).max().unwrap_or_default();
            for (part, weight) in parts.iter().flatten().zip(rows.iter().flatten()) {
                let exact = message as f64 * *weight as f64 / most as f64;
                prop_assert!((*part as f64 - exact).abs() <= 1.0 + exact * 1e-12);
                prop_assert!(*weight > 0 || *part == 0);
            }
        }
    }

    #[test]
    fn sizes_are_such_as_the_ranks_can_share() {
        use CommandSizes::{Default, Ladder, Listed};
        assert_eq!(CommandSizes::around(4096, 2), Listed(vec![4096]));
        for (ranks, expected) in [(3, vec![996, 1002]), (6, vec![996, 1008]), (12, vec![984, 1008])] {
            let granularity = CollectiveKind::AllToAll.size_granularity(2, ranks);
            assert_eq!(CommandSizes::around(1000, granularity), Listed(expected), "{ranks} ranks");
            let Some(Ladder(from, to)) = CommandSizes::ladder_to(50_000, granularity) else {
                panic!("a ladder of {ranks} ranks")
            };
            assert_eq!((from, to), (768, 98_304), "{ranks} ranks");
            assert_eq!(CommandSizes::default_of(granularity), Ladder(768, 768 << 20), "{ranks} ranks");
        }
        assert_eq!(CommandSizes::around(3, 32), Listed(vec![32]));
        assert_eq!(CommandSizes::around(u64::MAX, 4), Listed(vec![u64::MAX - 3]));
        assert_eq!(CommandSizes::ladder_to(655_360, 2), Some(Ladder(1024, 1 << 20)));
        assert_eq!(CommandSizes::ladder_to(128, 2), Some(Ladder(128, 128)));
        assert_eq!(CommandSizes::ladder_to(u64::MAX, 2), None);
        assert_eq!(CommandSizes::default_of(32), Default);
    }

    #[test]
    fn a_command_has_the_key_of_its_rows_for_a_shell() {
        let command = SweepCommand {
            database: Path::new("my db"),
            data_kind: DataKind::Rehearsal,
            collective: CollectiveKind::AllGather,
            ranks: 8,
            tier: Some(1),
            dtype: Some(&Dtype::Float),
            environment: "HCCL_ALGO=level0:ring;level1:H-D_R;HCCL_BUFFSIZE=400",
            parts: &PartWeights::Equal,
            sizes: CommandSizes::Listed(vec![1024, 1536]),
            measures_again: true,
        };
        assert_eq!(
            command.to_string(),
            "env 'HCCL_ALGO=level0:ring;level1:H-D_R' HCCL_BUFFSIZE=400 npubench comm run --db 'my db' --host rehearsal \
             --ops all_gather --ranks 8 --tiers 1 --dtypes float32 --sizes 1024,1536 --update all"
        );
        let parts: PartWeights = "0,2/3,1".parse().expect("weights");
        let unequal =
            SweepCommand { collective: CollectiveKind::AllToAllV, ranks: 2, parts: &parts, ..command };
        assert!(unequal.to_string().contains(" --parts 0,2/3,1 --sizes"), "{unequal}");
    }
}
