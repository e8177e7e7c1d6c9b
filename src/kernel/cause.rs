//! Causes of verdicts as data: why a case has its verdict, and remarks on its call, its host and its collections.
//!
//! Code that decides compares causes and their parameters. Their sentences are made when they are printed or written into a table;
//! no code reads these. A message of another program is a parameter, unchanged.

use std::{
    borrow::Cow,
    fmt::{self, Display, Formatter},
};

use serde::{Deserialize, Deserializer, Serialize};

use super::{Nanos, Verdict};

/// Why a case has its verdict, or a remark beside that. Its JSON form has the name of the variant as `cause`; percentages are
/// numbers such as 2.5, times end with their unit. Displayed as a sentence.
#[derive(thiserror::Error, strum::IntoStaticStr, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cause", rename_all = "snake_case")]
pub enum Cause {
    // Measured.
    #[error("every launch recorded")]
    EveryLaunchRecorded,
    // The collections are steady together, though one of them is not.
    #[error("every launch recorded, steady over all collections together")]
    SteadyTogether,

    // Ends of collections and runs.
    #[error("the collection ended before its turn")]
    CollectionEnded,
    #[error("the run was stopped while it ran")]
    StoppedWhileRunning,
    #[error("the script could not use its device; see its log")]
    DeviceUnusable,
    #[error("the collection did not end within its time limit while it ran")]
    TimeLimit,
    // npubench ended it before its log filled the disk.
    #[error("the collection printed too much while it ran; see its log")]
    TooMuchOutput,
    #[error("the process ended while it ran")]
    ProcessEnded,
    #[error("the collection was ended before its records were exported")]
    EndedBeforeExport,
    #[error("the run was stopped before its records were exported")]
    StoppedBeforeExport,
    #[error("the run ended before its turn")]
    RunEnded,
    #[error("the run was stopped before its turn")]
    RunStopped,
    #[error("the deadline came before its turn")]
    DeadlineReached,
    #[error("it would not have ended before the deadline")]
    TooLateForDeadline,
    #[error("no working device was left")]
    NoWorkingDevice,
    #[error("it needs more devices than the run has")]
    MoreDevicesThanRun,
    #[error("it is not reached")]
    NotReached,
    // Several collections in a row failed on each device; the message comes from the last one.
    #[error("{collections} collections in a row {failure} on each device: {}", plain(.message))]
    CollectionsFailed { collections: u32, failure: CollectionFailure, message: String },
    // The collection could not be started.
    #[error("{}", plain(.message))]
    NotStarted { message: String },
    #[error("the run was stopped before it was tried again; the last attempt was {verdict}: {last}")]
    StoppedBeforeRetry { verdict: Verdict, last: Box<Reason> },
    #[error("the disk was full: {failure}")]
    DiskFull { failure: Box<Reason> },
    // A later assessment shows that the collection did not launch the kernel of the case.
    #[error("assessed again: the launches of its collection are not those of this case")]
    NotItsLaunches,
    #[error("{verdict}: {last}; on {}", joined(.collections, " and "))]
    Quarantined { verdict: Verdict, last: Box<Reason>, collections: Vec<BrokenCollection> },

    // Exceptions of the call.
    #[error("{class}: {}", plain(.message))]
    Oom { class: String, message: String },
    #[error("{class}: {}", plain(.message))]
    DeviceFault { class: String, message: String },
    #[error("{class}: {}", plain(.message))]
    Refused { class: String, message: String },
    // The text does not tell whether the call, the device, a link or the host is at fault.
    #[error("{class}: {}", plain(.message))]
    Unclear { class: String, message: String },
    // A link between devices or hosts failed, or the other end of it.
    #[error("{class}: {}", plain(.message))]
    LinkFault { class: String, message: String },
    // The host lacks something, such as memory, a port or a permission.
    #[error("{class}: {}", plain(.message))]
    HostFault { class: String, message: String },
    // The call could not write to a full disk.
    #[error("{class}: {}", plain(.message))]
    NoSpace { class: String, message: String },
    #[error("{class}: {}", plain(.message))]
    OtherRankFailed { class: String, message: String },
    #[error("{}", plain(.message))]
    InstallationMismatch { message: String },
    #[error("{}", plain(.message))]
    WrongResult { message: String },

    // Records of the profiler.
    #[error("msprof left no records")]
    NoRecords,
    #[error("the script ended in another case or after the last one, before its records were written")]
    EndedBeforeRecords,
    #[error("{launched} launches, but their sentinels are not in the profile")]
    NoSentinels { launched: u32 },
    #[error("the profile cannot be read: {}", plain(.message))]
    UnreadableProfile { message: String },
    // The message is the problem of the first of them.
    #[error("{}: {}", unreadable_rows(*.rows), plain(.message))]
    UnreadableRows { rows: usize, message: String },
    #[error("the exporter reports lost data: {}", plain(.line))]
    LossOfExporter { line: String },
    #[error("launched on {device}, recorded on device {recorded_device}")]
    OtherDevice { device: String, recorded_device: u32 },
    #[error("launched on {device}, but {records} of {all} records name no device")]
    RecordsWithoutDevice { device: String, records: usize, all: usize },
    #[error(
        "launched on {device}, but the profile has no column for the device, and not one folder `device_N` that replaces it"
    )]
    NoDeviceColumn { device: String },
    #[error("the call ran as {}, not as {expected}", .kernels.join(", "))]
    OtherKernels { kernels: Vec<String>, expected: String },
    #[error("{launches} launches, {records} records")]
    RecordCount { launches: u32, records: usize },
    #[error("no record of a flush of the cache before launch {launch}")]
    NoFlush { launch: usize },
    #[error("recorded with {recorded} {side}s, the case has {expected}")]
    SlotCount { side: TensorSide, recorded: usize, expected: usize },
    #[error("{side} {slot} was recorded as {}, the case has {}", or_nothing(.recorded), or_nothing(.expected))]
    OtherSlot { side: TensorSide, slot: usize, recorded: Option<String>, expected: Option<String> },
    #[error("its launches ran {} HF32, unlike the row", if *.is_hf32 { "in" } else { "without" })]
    OtherFloatMode { is_hf32: bool },
    // Each operator with its state.
    #[error("its launches ran as different operators: {}", joined(.operators.iter().map(|(operator, state)| format!("{operator} ({state})")), ", "))]
    SeveralOperators { operators: Vec<(String, String)> },
    #[error(
        "the kernel ran on an AI CPU, not on the AI cores: the installation lacks its binary for this call"
    )]
    AiCpu,
    #[error("one launch is recorded twice, as launches {launch} and {}", .launch + 1)]
    RecordedTwice { launch: usize },
    #[error("its launches ran on different units: {}", .units.join(", "))]
    SeveralUnits { units: Vec<String> },
    #[error("its launches used different numbers of blocks: {}", joined(.blocks, ", "))]
    SeveralBlockCounts { blocks: Vec<u32> },
    #[error("its launches ran on different streams: {}", joined(.streams, ", "))]
    SeveralStreams { streams: Vec<u32> },
    #[error("launch {launch} took {took_ns} us, less than a step of the device's timer, {step_ns} us")]
    BelowTimerStep { launch: usize, took_ns: Nanos, step_ns: Nanos },
    #[error(
        "all times of the collection are multiples of {step_ns} us, more than {percent} % of the median, {median_ns} us"
    )]
    CoarseTimer { step_ns: Nanos, percent: i64, median_ns: Nanos },
    #[error("launch {launch} took {took_ns} us, the roofline allows no less than {bound_ns} us")]
    BelowRoofline { launch: usize, took_ns: Nanos, bound_ns: Nanos },
    #[error("{0}")]
    Overlap(Overlap),
    #[error("{}", core_time(.ratio))]
    CoreTime { ratio: Decimal<3> },
    #[error("its launches took {seconds} s, {factor} times longer than the case by the host's clock")]
    LongerThanCase { seconds: Decimal<6>, factor: Decimal<1> },
    #[error("launch {launch} took {took_ns} us, longer than any kernel may")]
    TooLong { launch: usize, took_ns: Nanos },
    #[error("its launches ran as {} and as {}", .kernels[0], .kernels[1])]
    RanAsSeveral { kernels: [String; 2] },

    // Ranks of a gang.
    #[error("rank {rank} ({device}): {failure}")]
    OnRank { rank: usize, device: String, failure: Box<Reason> },
    #[error("the ranks launched it {} times", joined(.launches, ", "))]
    LaunchesOfRanks { launches: Vec<u32> },
    #[error("the ranks ran it as different kernels")]
    KernelsOfRanks,
    #[error(
        "the hosts have imported different software: {} on {}, {} on {}",
        .software[0], .hosts[0], .software[1], .hosts[1]
    )]
    SoftwareOfHosts { software: [String; 2], hosts: [String; 2] },
    #[error("the fastest rank takes {fastest_us} us, the slowest {slowest_us} us")]
    RankSpread { fastest_us: Decimal<3>, slowest_us: Decimal<3> },
    #[error(
        "by their clocks the ranks end {apart_us} us apart, which clocks that differ explain: the time is that of the rank \
         that waited least; by the clocks it would be {by_clocks_us} us"
    )]
    ClocksMayDiffer { apart_us: Decimal<3>, by_clocks_us: Decimal<3> },
    #[error(
        "the ranks need not end together, so that their clocks cannot be compared: by the clocks the time is {by_clocks_us} us; \
         it is not less than the {shortest_us} us of the shortest rank"
    )]
    RanksMayEndApart { by_clocks_us: Decimal<3>, shortest_us: Decimal<3> },
    #[error(
        "rank {rank} ({device}) starts {delay_us} us after the others, for which their kernels wait; the time does not contain it"
    )]
    LateRank { rank: usize, device: String, delay_us: Decimal<3> },

    // Samples.
    #[error("the durations {} % over the launches", rose_or_fell(*.percent))]
    Trend { percent: Decimal<1> },
    #[error("the durations changed by {percent:+} % after {before} of {samples} launches")]
    Step { percent: Decimal<1>, before: usize, samples: usize },
    #[error(
        "the durations have two modes: {low_us} us, and {high_us} us in {upper_percent} % of the launches"
    )]
    TwoModes { low_us: Decimal<3>, high_us: Decimal<3>, upper_percent: Decimal<0> },
    #[error("{samples} samples are too few for an interval")]
    FewSamples { samples: usize },
    #[error("{percent} % of the samples are severe outliers")]
    ManyOutliers { percent: Decimal<0> },
    #[error("median known to {percent} %, target {target_percent} %{}", if *.devices_differ { " where devices differ" } else { "" })]
    WideInterval { percent: Decimal<1>, target_percent: Decimal<0>, devices_differ: bool },
    #[error("the medians differ by {percent} %, so that the error of their mean is {error_percent} %")]
    MediansDiffer { percent: Decimal<1>, error_percent: Decimal<1> },
    #[error("{samples} severe outlier{} left out", if *.samples == 1 { "" } else { "s" })]
    Outliers { samples: usize },

    // Contradictions of the median.
    #[error(
        "the median is {times} times the roofline bound and {launch_ns} us for the launch, {explained_ns} us together"
    )]
    FarAboveRoofline { times: Decimal<0>, launch_ns: Nanos, explained_ns: Nanos },
    #[error("it ran on one block, although its tensors have {mib} MiB")]
    OneBlock { mib: u64 },
    #[error("the median is {ratio} times that of production, {median_ns} us")]
    Production { ratio: Decimal<2>, median_ns: Nanos },
    #[error("the median is {ratio} times that with earlier software, {median_ns} us")]
    History { ratio: Decimal<2>, median_ns: Nanos },
    #[error("the median is {ratio} times that expected from {cases} cases of other sizes, {expected_ns} us")]
    Neighbours { ratio: Decimal<2>, cases: usize, expected_ns: Nanos },
    // The collections of a row ran different binaries; each value with its number of collections.
    #[error("its collections {property}: {}", joined(.collections.iter().map(|(value, count)| format!("{value} in {count}")), ", "))]
    Variants { property: TaskProperty, collections: Vec<(String, usize)> },
    // The contradiction or pattern of some collections of a row; `of` is the number of all, if the others do not have it.
    #[error("{finding}, {}", scope_text(*.scope, *.collections, *.of))]
    InCollections { finding: Box<Self>, collections: usize, of: Option<usize>, scope: CollectionScope },

    // Clock and control kernels.
    #[error(
        "{low} of {launches} launches ran at a lower clock than the {set_mhz} MHz for which the device is set, down to {lowest_mhz} MHz"
    )]
    LowClockLaunches { low: usize, launches: usize, set_mhz: Decimal<0>, lowest_mhz: Decimal<0> },
    // The clock deviated by the cycles of kernels that were launched beside the case.
    #[error(
        "the clock of device {device} was {percent} % {}, by the cycles of {kernels} kernels launched beside it",
        if *.is_higher { "higher than that of most devices" } else { "lower than that of other collections" }
    )]
    ClockBeside { device: u32, percent: Decimal<1>, is_higher: bool, kernels: usize },
    // The clock deviated from the clock of another collection of the case.
    #[error("{0}")]
    Clock(ClockDifference),
    #[error(
        "undecided: no majority of devices or earlier runs shows which clock is right, the highest counts"
    )]
    UndecidedClock,
    #[error(
        "the clock had not risen before its launches: a matrix product took {percent} % longer than its fastest in the collection"
    )]
    ClockNotRisen { percent: Decimal<1> },
    #[error("the clock was not settled before each case: {}", summary(.class, .message))]
    NotSettled { class: String, message: String },
    #[error("without control kernels: {}", summary(.class, .message))]
    NoControls { class: String, message: String },
    #[error("{0}")]
    ControlChange(ControlDifference),
    #[error(
        "the durations of the collection contradict their starts: {overlap}, of the control kernel {control}"
    )]
    ControlOverlap { control: String, overlap: Overlap },
    #[error(
        "the durations of the collection contradict the time of the cores: {}, in the control kernel {control}",
        core_time(.ratio)
    )]
    ControlCoreTime { control: String, ratio: Decimal<3> },

    // Other kernels with the same call.
    // Measured as a case of the kernel that ran.
    #[error("ran as {}; measured there{}", .0.kernel, result_there(.0))]
    MeasuredAs(OtherKernel),
    #[error("ran as {kernel}")]
    RanAs { kernel: String },
    #[error("a later attempt with {software}{}", later_finding(.finding))]
    LaterAttempt { software: SoftwareRelation, finding: Box<Self> },
    #[error("the call also launched {}", .kernels.join(", "))]
    AlsoLaunched { kernels: Vec<String> },

    // Software and host.
    #[error("the software of the host changed while the collection ran: {}", plain(.differences))]
    SoftwareChanged { differences: String },
    #[error(
        "the software of the host changed during the run, and no selftest has checked the new one: {}",
        plain(.differences)
    )]
    UncheckedSoftware { differences: String },
    #[error("measured on a host without a passed selftest")]
    WithoutSelftest,

    // The call.
    #[error("read as {form}; the shapes also fit {}", .others.join(", "))]
    SeveralForms { form: String, others: Vec<String> },
    #[error(
        "scalar `{argument}` read as a {}",
        if *.is_number { "Python number" } else { "tensor without dimensions" }
    )]
    Scalar { argument: String, is_number: bool },
    // Assumption of a form, as the catalogue states it.
    #[error("{}", plain(.text))]
    Assumption { text: String },
    #[error("expert indices have a skew of {}", .skew.value())]
    ExpertSkew { skew: Decimal<6> },

    // Cases that are not launched.
    #[error("the catalogue has no entry for this kernel")]
    NoEntry,
    #[error("no call launches this kernel alone: {}", plain(.explanation))]
    NotLaunchedAlone { explanation: String },
    #[error("npubench launches no collective `{kernel}`")]
    NoCollective { kernel: String },
    // The shapes or attributes fit no form of the catalogue entry; `form` is the nearest if the problem is its own.
    #[error("{}", plain(.problem))]
    NoForm { kernel: String, form: String, problem: String },
    #[error(
        "an input may be an empty tensor: the profiler ends a shape at its first 0, so that (2,0,64) is `2` and (0,64) is empty"
    )]
    MayBeEmpty,
    #[error("needs {gib} GiB, {device} has {device_gib}")]
    NotEnoughMemory { gib: u64, device: String, device_gib: u64 },
    #[error("torch has no type {dtype}")]
    NoTorchType { dtype: String },
    #[error("it needs {needed} devices of one host at once, the run has {devices}")]
    MoreDevicesThanHost { needed: usize, devices: usize },
    #[error("it communicates with other devices, and no argument of its entry is a `process_group`")]
    NoProcessGroup,
    // Experiment 4 of the selftest launched the smallest case of the entry.
    #[error("experiment 4 of the selftest found that the kernel's entry does not fit this host: {}", plain(.message))]
    EntryMismatch { message: String },
    // The vendor check refused the call.
    #[error("{verdict} by {software} when it was checked: {}", plain(.message))]
    Checked { verdict: String, software: String, message: String },

    // Text of a table, or of a result without a ledger.
    #[error("{}", plain(.text))]
    Recorded { text: String },
}

impl Cause {
    /// Returns true if the error may not be that of the call, so that the call is tried once more.
    pub(crate) fn is_unclear(&self) -> bool {
        match self {
            Self::Unclear { .. } | Self::HostFault { .. } => true,
            Self::OnRank { failure, .. } => failure.cause.is_unclear(),
            _ => false,
        }
    }
}

const MAX_SUMMARY: usize = 160;

/// Escapes control characters, which a message may quote from a damaged file: a CSV with a NUL byte is not a text file.
fn plain(text: &str) -> Cow<'_, str> {
    let is_raw = |c: char| c.is_ascii_control() && c != '\n';
    if !text.contains(is_raw) {
        return text.into();
    }
    let escaped = |c: char| if is_raw(c) { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escaped).collect::<String>().into()
}

fn summary(class: &str, message: &str) -> String {
    format!("{class}: {}", plain(message)).chars().take(MAX_SUMMARY).collect()
}

fn joined<T: Display>(items: impl IntoIterator<Item = T>, separator: &str) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(separator)
}

fn unreadable_rows(rows: usize) -> String {
    match rows {
        1 => "a row of the profile cannot be read".to_owned(),
        rows => format!("{rows} rows of the profile cannot be read, the first"),
    }
}

fn or_nothing(slot: &Option<String>) -> &str {
    slot.as_deref().unwrap_or("nothing")
}

fn core_time(ratio: &impl Display) -> String {
    format!(
        "the cores worked {ratio} times as long as the launches took, at the rated clock, so that the durations are too short or the \
         clock is above its rating"
    )
}

fn rose_or_fell(percent: Decimal<1>) -> String {
    let direction = if percent.value() > 0.0 { "rose" } else { "fell" };
    format!("{direction} by {:.1}", percent.value().abs())
}

fn scope_text(scope: CollectionScope, collections: usize, of: Option<usize>) -> String {
    let preposition = if scope == CollectionScope::Over { "over" } else { "in" };
    let all = of.map_or_else(String::new, |all| format!(" of {all}"));
    let together = if scope == CollectionScope::Together { " together" } else { "" };
    format!("{preposition} {collections}{all} collections{together}")
}

fn result_there(other: &OtherKernel) -> String {
    other.result.as_ref().map_or_else(String::new, |(verdict, cause)| format!(", {verdict}: {cause}"))
}

fn later_finding(finding: &Cause) -> String {
    match finding {
        Cause::MeasuredAs(OtherKernel { kernel, .. }) => format!(" ran as {kernel}"),
        finding => format!(": {finding}"),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
pub enum CollectionFailure {
    #[strum(to_string = "launched nothing")]
    NothingLaunched,
    #[strum(to_string = "left no readable profile")]
    NoReadableProfile,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum TensorSide {
    Input,
    Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
pub enum TaskProperty {
    #[strum(to_string = "ran as different operators")]
    Operator,
    #[strum(to_string = "ran with different `OP State`")]
    State,
    #[strum(to_string = "ran on different units")]
    Unit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CollectionScope {
    Each,
    Together,
    /// In the pooled samples of the row.
    Over,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error(
    "the control kernel {control} of device {device} took {percent:+} % at the end of the collection, {end_us} instead of \
     {begin_us} us{clock}"
)]
pub struct ControlDifference {
    pub(crate) control: String,
    pub(crate) device: u32,
    pub(crate) percent: Decimal<1>,
    pub(crate) end_us: Decimal<2>,
    pub(crate) begin_us: Decimal<2>,
    pub(crate) clock: ControlClock,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
pub enum ControlClock {
    #[strum(to_string = "")]
    Unchanged,
    #[strum(to_string = ", and its cycles per time fell with it")]
    Fell,
    /// They fell in a part of the launches, such as those that waited for another process.
    #[strum(
        to_string = ", and cycles per time fell in a part of its launches: another process may use the device"
    )]
    FellInPart,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
pub enum SoftwareRelation {
    #[strum(to_string = "the same software")]
    Same,
    #[strum(to_string = "other software")]
    Other,
    /// At least one of them was not recorded.
    #[strum(to_string = "software that is not known to be the same")]
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherKernel {
    pub(crate) kernel: String,
    /// Verdict and cause of the measurement if it is not `ok`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<(Verdict, Box<Cause>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("launch {launch} took {took_ns} us, but the next one started {next_after_ns} us after it")]
pub struct Overlap {
    pub(crate) launch: usize,
    pub(crate) took_ns: Nanos,
    pub(crate) next_after_ns: Nanos,
}

/// Clock of a collection compared with the clock of another one, in cycles per block and microsecond.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockDifference {
    pub(crate) device: u32,
    pub(crate) percent: Decimal<1>,
    pub(crate) is_higher: bool,
    pub(crate) other_device: u32,
    pub(crate) other_collection: u32,
    pub(crate) other_run: Option<String>,
    pub(crate) cycles: Decimal<0>,
    pub(crate) expected_cycles: Decimal<0>,
    /// Cycles of the other collection if they were corrected for its own lower clock.
    pub(crate) uncorrected_cycles: Option<Decimal<0>>,
}

impl Display for ClockDifference {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let direction =
            if self.is_higher { "higher than that of most devices, such as" } else { "lower than that of" };
        write!(
            f,
            "the clock of device {} was {} % {direction} device {} in collection {}",
            self.device, self.percent, self.other_device, self.other_collection
        )?;
        self.other_run.iter().try_for_each(|run| write!(f, " of run {run}"))?;
        write!(f, ": {} instead of {} cycles per block and us", self.cycles, self.expected_cycles)?;
        self.uncorrected_cycles.iter().try_for_each(|cycles| {
            write!(f, ", the {cycles} of that collection corrected for its own lower clock")
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("device {device} (collection {collection})")]
pub struct BrokenCollection {
    pub(crate) device: u32,
    pub(crate) collection: u32,
}

impl Cause {
    pub(crate) fn names() -> impl Iterator<Item = &'static str> + Clone {
        let is_finding = |name: &&str| !matches!(*name, "on_rank" | "in_collections");
        <Self as strum::VariantNames>::VARIANTS.iter().copied().filter(is_finding)
    }

    /// Returns the name of the cause, as in JSON. A finding of ranks or collections has the name of what was found.
    pub fn name(&self) -> &'static str {
        match self {
            Self::OnRank { failure, .. } => failure.cause.name(),
            Self::InCollections { finding, .. } => finding.name(),
            cause => cause.into(),
        }
    }

    /// Returns what groups causes in summaries: the name, and what distinguishes exceptions and forms.
    pub(crate) fn group(&self) -> [&str; 3] {
        match self {
            Self::NoForm { kernel, form, .. } => [self.name(), kernel, form],
            Self::NotLaunchedAlone { explanation } => [self.name(), explanation, ""],
            Self::Refused { class, message }
            | Self::DeviceFault { class, message }
            | Self::NoSpace { class, message }
            | Self::OtherRankFailed { class, message } => [self.name(), class, message],
            Self::InstallationMismatch { message }
            | Self::WrongResult { message }
            | Self::NotStarted { message }
            | Self::UnreadableProfile { message } => [self.name(), message, ""],
            Self::Checked { verdict, message, .. } => [self.name(), verdict, message],
            Self::OnRank { failure, .. } => failure.cause.group(),
            Self::InCollections { finding, .. } => finding.group(),
            cause => [cause.name(), "", ""],
        }
    }

    /// Returns this finding in a number of the collections of a row; without a number if there is only one.
    pub(crate) fn in_collections(self, collections: usize, all: usize) -> Self {
        match all {
            1 => self,
            all => self.within(collections, Some(all), CollectionScope::Each),
        }
    }

    pub(crate) fn within(self, collections: usize, of: Option<usize>, scope: CollectionScope) -> Self {
        Self::InCollections { finding: Box::new(self), collections, of, scope }
    }

    /// Returns true for the same finding; messages of exceptions in it may differ in details.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::NoControls { class: one, .. }, Self::NoControls { class: other, .. })
            | (Self::NotSettled { class: one, .. }, Self::NotSettled { class: other, .. }) => one == other,
            _ => self == other,
        }
    }
}

/// A number with this many decimals: causes that show the same numbers are equal, and JSON keeps them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Decimal<const PLACES: usize>(f64);

impl<const PLACES: usize> Decimal<PLACES> {
    pub(crate) const fn value(self) -> f64 {
        self.0
    }
}

impl<const PLACES: usize> From<f64> for Decimal<PLACES> {
    fn from(number: f64) -> Self {
        Self(format!("{number:.PLACES$}").parse().ok().filter(|n: &f64| !n.is_nan()).unwrap_or(f64::INFINITY))
    }
}

impl<const PLACES: usize> Eq for Decimal<PLACES> {}

/// JSON has no infinity: it is null.
impl<'de, const PLACES: usize> Deserialize<'de> for Decimal<PLACES> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(Option::deserialize(deserializer)?.unwrap_or(f64::INFINITY)))
    }
}

impl<const PLACES: usize> Display for Decimal<PLACES> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if f.sign_plus() { write!(f, "{:+.PLACES$}", self.0) } else { write!(f, "{:.PLACES$}", self.0) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    pub(crate) cause: Cause,
    pub(crate) remarks: Vec<Cause>,
}

impl Display for Reason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        #[cfg(test)]
        if in_tests::REPLACED.get() {
            return f.write_str(&joined(self.all().map(|cause| format!("x {}", cause.name())), "; "));
        }
        f.write_str(&joined(self.all(), "; "))
    }
}

impl From<Cause> for Reason {
    fn from(cause: Cause) -> Self {
        Self { cause, remarks: Vec::new() }
    }
}

impl Reason {
    pub(crate) fn new(cause: Cause, remarks: impl IntoIterator<Item = Cause>) -> Self {
        let mut reason = Self::from(cause);
        remarks.into_iter().for_each(|remark| reason.add(remark));
        reason
    }

    pub(crate) fn add(&mut self, remark: Cause) {
        if !self.has(&remark) {
            self.remarks.push(remark);
        }
    }

    pub(crate) fn has(&self, finding: &Cause) -> bool {
        self.all().any(|known| known.is_same(finding))
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Cause> {
        std::iter::once(&self.cause).chain(&self.remarks)
    }

    pub(crate) fn to_json(&self) -> [String; 2] {
        const WRITABLE: &str = "causes have text keys and finite numbers";
        let cause = serde_json::to_string(&self.cause).expect(WRITABLE);
        [cause, serde_json::to_string(&self.remarks).expect(WRITABLE)]
    }

    pub(crate) fn from_json(cause: &str, remarks: &str) -> serde_json::Result<Self> {
        Ok(Self { cause: serde_json::from_str(cause)?, remarks: serde_json::from_str(remarks)? })
    }
}

#[cfg(test)]
pub(crate) mod in_tests {
    //! Tests compare sentences, and replace them to show that no decision reads one.

    use super::{Cause, Reason};
    use crate::kernel::{CaseOutcome, Verdict};

    thread_local! {
        pub(super) static REPLACED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }

    /// Runs a function while the text of each cause is `x` and its name.
    pub(crate) fn with_replaced_texts<T>(run: impl FnOnce() -> T) -> T {
        REPLACED.set(true);
        let result = run();
        REPLACED.set(false);
        result
    }

    impl From<&str> for Cause {
        fn from(text: &str) -> Self {
            Self::Recorded { text: text.to_owned() }
        }
    }

    impl From<&str> for Reason {
        fn from(text: &str) -> Self {
            Cause::from(text).into()
        }
    }

    impl From<String> for Reason {
        fn from(text: String) -> Self {
            Cause::Recorded { text }.into()
        }
    }

    #[expect(clippy::cmp_owned, reason = "the text is made for the comparison")]
    impl PartialEq<&str> for Reason {
        fn eq(&self, text: &&str) -> bool {
            self.to_string() == *text
        }
    }

    impl PartialEq<(Verdict, &str)> for CaseOutcome {
        fn eq(&self, (verdict, text): &(Verdict, &str)) -> bool {
            self.verdict == *verdict && self.reason == *text
        }
    }

    impl Reason {
        pub(crate) fn starts_with(&self, text: &str) -> bool {
            self.to_string().starts_with(text)
        }

        pub(crate) fn ends_with(&self, text: &str) -> bool {
            self.to_string().ends_with(text)
        }

        pub(crate) fn contains(&self, text: &str) -> bool {
            self.to_string().contains(text)
        }
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_messages_are_escaped() {
        let text = |text: &str| Cause::from(text).to_string();
        assert_eq!(text("`a\0\u{1b}[31mé`"), r"`a\u{0}\u{1b}[31mé`");
        assert_eq!(text("5 µs\nnext"), "5 µs\nnext");
    }

    #[test]
    fn numbers_keep_their_decimals_in_json() {
        for number in [0.05, 1.245, 123_456.789_012, -0.04, f64::INFINITY, 1e-9] {
            let decimal = Decimal::<3>::from(number);
            let json = serde_json::to_string(&decimal).expect("a number");
            assert_eq!(serde_json::from_str::<Decimal<3>>(&json).expect("a number"), decimal, "{json}");
            assert_eq!(decimal.to_string(), format!("{number:.3}"));
        }
        assert_eq!(format!("{:+}", Decimal::<1>::from(3.12)), "+3.1");
    }
}
