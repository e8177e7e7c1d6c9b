//! Causes of verdicts as data: why a case has its verdict, and remarks on its call, its host and its collections.
//!
//! Code that decides compares causes and their parameters. `text.rs` is the only place that makes sentences of them, when they
//! are printed or written into a table; no code reads these sentences. A message of another program is a parameter, unchanged.

#![expect(missing_docs, reason = "text.rs has a sentence for each cause with its parameters")]

mod decimal;
mod text;

use serde::{Deserialize, Serialize};

use super::{Nanos, Verdict};
pub(crate) use decimal::Decimal;
#[cfg(test)]
pub(crate) use text::with_replaced_texts;

/// Why a case has its verdict, or a remark beside that. Its JSON form has the name of the variant as `cause`; percentages are
/// numbers such as 2.5, times end with their unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr, strum::VariantNames)]
#[serde(tag = "cause", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Cause {
    // Measured.
    EveryLaunchRecorded,
    // The collections are steady together, though one of them is not.
    SteadyTogether,

    // Ends of collections and runs.
    CollectionEnded,
    StoppedWhileRunning,
    DeviceUnusable,
    TimeLimit,
    ProcessEnded,
    EndedBeforeExport,
    StoppedBeforeExport,
    RunEnded,
    RunStopped,
    DeadlineReached,
    TooLateForDeadline,
    NoWorkingDevice,
    MoreDevicesThanRun,
    NotReached,
    // Several collections in a row failed on each device; the message comes from the last one.
    CollectionsFailed { collections: u32, failure: CollectionFailure, message: String },
    // The collection could not be started.
    NotStarted { message: String },
    StoppedBeforeRetry { verdict: Verdict, last: Box<Reason> },
    DiskFull { failure: Box<Reason> },
    // A later assessment shows that the collection did not launch the kernel of the case.
    NotItsLaunches,
    Quarantined { verdict: Verdict, last: Box<Reason>, collections: Vec<BrokenCollection> },

    // Exceptions of the call.
    Oom { class: String, message: String },
    DeviceFault { class: String, message: String },
    Refused { class: String, message: String },
    // The call could not write to a full disk.
    NoSpace { class: String, message: String },
    OtherRankFailed { class: String, message: String },
    InstallationMismatch { message: String },
    WrongResult { message: String },

    // Records of the profiler.
    NoRecords,
    NoSentinels { launched: u32 },
    UnreadableProfile { message: String },
    // The message is the problem of the first of them.
    UnreadableRows { rows: usize, message: String },
    OtherDevice { device: String, recorded_device: u32 },
    RecordsWithoutDevice { device: String, records: usize, all: usize },
    NoDeviceColumn { device: String },
    OtherKernels { kernels: Vec<String>, expected: String },
    RecordCount { launches: u32, records: usize },
    NoFlush { launch: usize },
    SlotCount { side: TensorSide, recorded: usize, expected: usize },
    OtherSlot { side: TensorSide, slot: usize, recorded: Option<String>, expected: Option<String> },
    // Each operator with its state.
    SeveralOperators { operators: Vec<(String, String)> },
    AiCpu,
    RecordedTwice { launch: usize },
    SeveralUnits { units: Vec<String> },
    SeveralBlockCounts { blocks: Vec<u32> },
    SeveralStreams { streams: Vec<u32> },
    BelowTimerStep { launch: usize, took_ns: Nanos, step_ns: Nanos },
    CoarseTimer { step_ns: Nanos, percent: i64, median_ns: Nanos },
    BelowRoofline { launch: usize, took_ns: Nanos, bound_ns: Nanos },
    Overlap(Overlap),
    CoreTime { ratio: Decimal<3> },
    LongerThanCase { seconds: Decimal<6>, factor: Decimal<1> },
    TooLong { launch: usize, took_ns: Nanos },
    RanAsSeveral { kernels: [String; 2] },

    // Ranks of a gang.
    OnRank { rank: usize, device: String, failure: Box<Reason> },
    LaunchesOfRanks { launches: Vec<u32> },
    KernelsOfRanks,
    SoftwareOfHosts { software: [String; 2], hosts: [String; 2] },
    RankSpread { fastest_us: Decimal<3>, slowest_us: Decimal<3> },
    ClocksMayDiffer { apart_us: Decimal<3>, by_clocks_us: Decimal<3> },
    RanksMayEndApart { by_clocks_us: Decimal<3>, shortest_us: Decimal<3> },
    LateRank { rank: usize, device: String, delay_us: Decimal<3> },

    // Samples.
    Trend { percent: Decimal<1> },
    Step { percent: Decimal<1>, before: usize, samples: usize },
    TwoModes { low_us: Decimal<3>, high_us: Decimal<3>, upper_percent: Decimal<0> },
    FewSamples { samples: usize },
    ManyOutliers { percent: Decimal<0> },
    WideInterval { percent: Decimal<1>, target_percent: Decimal<0>, devices_differ: bool },
    MediansDiffer { percent: Decimal<1>, error_percent: Decimal<1> },
    Outliers { samples: usize },

    // Contradictions of the median.
    FarAboveRoofline { times: Decimal<0>, launch_ns: Nanos, explained_ns: Nanos },
    OneBlock { mib: u64 },
    Production { ratio: Decimal<2>, median_ns: Nanos },
    History { ratio: Decimal<2>, median_ns: Nanos },
    Neighbours { ratio: Decimal<2>, cases: usize, expected_ns: Nanos },
    // The collections of a row ran different binaries; each value with its number of collections.
    Variants { property: TaskProperty, collections: Vec<(String, usize)> },
    // The contradiction or pattern of some collections of a row; `of` is the number of all, if the others do not have it.
    InCollections { finding: Box<Self>, collections: usize, of: Option<usize>, scope: CollectionScope },

    // Clock and control kernels.
    LowClockLaunches { low: usize, launches: usize, set_mhz: Decimal<0>, lowest_mhz: Decimal<0> },
    // The clock deviated by the cycles of kernels that were launched beside the case.
    ClockBeside { device: u32, percent: Decimal<1>, is_higher: bool, kernels: usize },
    // The clock deviated from the clock of another collection of the case.
    Clock(ClockDifference),
    UndecidedClock,
    ClockNotRisen { percent: Decimal<1> },
    NotSettled { class: String, message: String },
    NoControls { class: String, message: String },
    ControlChange(ControlDifference),
    ControlOverlap { control: String, overlap: Overlap },
    ControlCoreTime { control: String, ratio: Decimal<3> },

    // Other kernels with the same call.
    // Measured as a case of the kernel that ran.
    MeasuredAs(OtherKernel),
    RanAs { kernel: String },
    LaterAttempt { software: SoftwareRelation, finding: Box<Self> },
    AlsoLaunched { kernels: Vec<String> },

    // Software and host.
    SoftwareChanged { differences: String },
    UncheckedSoftware { differences: String },
    WithoutSelftest,

    // The call.
    SeveralForms { form: String, others: Vec<String> },
    Scalar { argument: String, is_number: bool },
    // Assumption of a form, as the catalogue states it.
    Assumption { text: String },
    ExpertSkew { skew: Decimal<6> },

    // Cases that are not launched.
    NoEntry,
    NotLaunchedAlone { explanation: String },
    NoCollective { kernel: String },
    // The shapes or attributes fit no form of the catalogue entry; `form` is the nearest if the problem is its own.
    NoForm { kernel: String, form: String, problem: String },
    NotEnoughMemory { gib: u64, device: String, device_gib: u64 },
    NoTorchType { dtype: String },
    MoreDevicesThanHost { needed: usize, devices: usize },
    NoProcessGroup,
    // The vendor check refused the call.
    Checked { verdict: String, software: String, message: String },

    // Text of a table, or of a result without a ledger.
    Recorded { text: String },
}

/// End of the collections after which a run gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CollectionFailure {
    NothingLaunched,
    NoReadableProfile,
}

/// Part of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum TensorSide {
    Input,
    Output,
}

/// Property of a kernel's task in which binaries differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskProperty {
    Operator,
    State,
    Unit,
}

/// How a finding concerns collections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CollectionScope {
    /// In each of them.
    Each,
    /// In their samples together.
    Together,
    /// In the pooled samples of the row.
    Over,
}

/// Durations of a control kernel at the ends of a collection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlDifference {
    pub(crate) control: String,
    pub(crate) device: u32,
    pub(crate) percent: Decimal<1>,
    pub(crate) end_us: Decimal<2>,
    pub(crate) begin_us: Decimal<2>,
    pub(crate) clock: ControlClock,
}

/// Clock during a change of a control kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlClock {
    Unchanged,
    /// The cycles per time fell as much as the kernel slowed down.
    Fell,
    /// They fell in a part of the launches, such as those that waited for another process.
    FellInPart,
}

/// Relation of the software of an attempt to the software of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SoftwareRelation {
    Same,
    Other,
    /// At least one of them was not recorded.
    Unknown,
}

/// Kernel as which a call ran and was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherKernel {
    pub(crate) kernel: String,
    /// Verdict and cause of the measurement if it is not `ok`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<(Verdict, Box<Cause>)>,
}

/// A launch that lasted beyond the start of the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overlap {
    pub(crate) launch: usize,
    pub(crate) took_ns: Nanos,
    /// Time from its start to the start of the next launch.
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
    /// Run of the other collection if it is another one.
    pub(crate) other_run: Option<String>,
    pub(crate) cycles: Decimal<0>,
    pub(crate) expected_cycles: Decimal<0>,
    /// Cycles of the other collection if they were corrected for its own lower clock.
    pub(crate) uncorrected_cycles: Option<Decimal<0>>,
}

/// A collection that a case broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokenCollection {
    pub(crate) device: u32,
    pub(crate) collection: u32,
}

impl Cause {
    /// Returns all results of [`Self::name`].
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

    /// Returns what groups causes in summaries: the name, for exceptions their class and message, and for cases that fit no
    /// form the kernel and the nearest form.
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

/// Cause of a verdict with distinct remarks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// Cause that the user can remove.
    pub(crate) cause: Cause,
    /// Properties of the call, the host and the collections.
    pub(crate) remarks: Vec<Cause>,
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
mod in_tests {
    //! Tests compare sentences.

    use super::{Cause, Reason};
    use crate::kernel::{CaseOutcome, Verdict};

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
