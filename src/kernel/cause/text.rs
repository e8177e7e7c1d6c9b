//! Sentences of causes: the only place that makes text of them.

use std::fmt::{self, Display, Formatter, Write};

use super::{
    Cause, ClockDifference, CollectionFailure, CollectionScope, ControlClock, ControlDifference, OtherKernel,
    Overlap, Reason, SoftwareRelation, TaskProperty,
};

/// Maximum number of characters of an exception in a remark.
const MAX_SUMMARY: usize = 160;

/// Sentence of a verdict: the cause, then its remarks.
impl Display for Reason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)?;
        self.remarks.iter().try_for_each(|remark| write!(f, "; {remark}"))
    }
}

/// Control characters, which a message may quote from a damaged file, are escaped: a CSV with a NUL byte is not a text file.
impl Display for Cause {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        #[cfg(test)]
        if REPLACED.get() {
            return write!(f, "x {}", self.name());
        }
        let text = sentence(self);
        if !text.bytes().any(is_raw) {
            return f.write_str(&text);
        }
        text.chars().try_for_each(|c| match u8::try_from(c).is_ok_and(is_raw) {
            true => write!(f, "{}", c.escape_default()),
            false => f.write_char(c),
        })
    }
}

fn is_raw(byte: u8) -> bool {
    byte.is_ascii_control() && byte != b'\n'
}

#[cfg(test)]
thread_local! {
    static REPLACED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Runs a function while the text of each cause is `x` and its name.
#[cfg(test)]
pub(crate) fn with_replaced_texts<T>(run: impl FnOnce() -> T) -> T {
    REPLACED.set(true);
    let result = run();
    REPLACED.set(false);
    result
}

#[expect(clippy::too_many_lines, reason = "a sentence for each cause")]
fn sentence(cause: &Cause) -> String {
    match cause {
        Cause::EveryLaunchRecorded => "every launch recorded".to_owned(),
        Cause::SteadyTogether => "every launch recorded, steady over all collections together".to_owned(),
        Cause::CollectionEnded => "the collection ended before its turn".to_owned(),
        Cause::StoppedWhileRunning => "the run was stopped while it ran".to_owned(),
        Cause::DeviceUnusable => "the script could not use its device; see its log".to_owned(),
        Cause::TimeLimit => "the collection did not end within its time limit while it ran".to_owned(),
        Cause::ProcessEnded => "the process ended while it ran".to_owned(),
        Cause::EndedBeforeExport => "the collection was ended before its records were exported".to_owned(),
        Cause::StoppedBeforeExport => "the run was stopped before its records were exported".to_owned(),
        Cause::RunEnded => "the run ended before its turn".to_owned(),
        Cause::RunStopped => "the run was stopped before its turn".to_owned(),
        Cause::DeadlineReached => "the deadline came before its turn".to_owned(),
        Cause::TooLateForDeadline => "it would not have ended before the deadline".to_owned(),
        Cause::NoWorkingDevice => "no working device was left".to_owned(),
        Cause::NotReached => "it is not reached".to_owned(),
        Cause::MoreDevicesThanRun => "it needs more devices than the run has".to_owned(),
        Cause::CollectionsFailed { collections, failure, message } => {
            let what = match failure {
                CollectionFailure::NothingLaunched => "launched nothing",
                CollectionFailure::NoReadableProfile => "left no readable profile",
            };
            format!("{collections} collections in a row {what} on each device: {message}")
        }
        Cause::NotStarted { message } | Cause::InstallationMismatch { message } | Cause::WrongResult { message } => {
            message.clone()
        }
        Cause::StoppedBeforeRetry { verdict, last } => format!(
            "the run was stopped before it was tried again; the last attempt was {verdict}: {last}"
        ),
        Cause::DiskFull { failure } => format!("the disk was full: {failure}"),
        Cause::NotItsLaunches => {
            "assessed again: the launches of its collection are not those of this case".to_owned()
        }
        Cause::Quarantined { verdict, last, collections } => {
            let places = collections
                .iter()
                .map(|broken| format!("device {} (collection {})", broken.device, broken.collection));
            format!("{verdict}: {last}; on {}", places.collect::<Vec<_>>().join(" and "))
        }
        Cause::Oom { class, message }
        | Cause::DeviceFault { class, message }
        | Cause::Refused { class, message }
        | Cause::NoSpace { class, message }
        | Cause::OtherRankFailed { class, message } => format!("{class}: {message}"),
        Cause::NoRecords => "msprof left no records".to_owned(),
        Cause::NoSentinels { launched } => {
            format!("{launched} launches, but their sentinels are not in the profile")
        }
        Cause::UnreadableProfile { message } => format!("the profile cannot be read: {message}"),
        Cause::UnreadableRows { rows: 1, message } => {
            format!("a row of the profile cannot be read: {message}")
        }
        Cause::UnreadableRows { rows, message } => {
            format!("{rows} rows of the profile cannot be read, the first: {message}")
        }
        Cause::OtherDevice { device, recorded_device } => {
            format!("launched on {device}, recorded on device {recorded_device}")
        }
        Cause::RecordsWithoutDevice { device, records, all } => {
            format!("launched on {device}, but {records} of {all} records name no device")
        }
        Cause::NoDeviceColumn { device } => format!(
            "launched on {device}, but the profile has no column for the device, and not one folder `device_N` that replaces it"
        ),
        Cause::OtherKernels { kernels, expected } => {
            format!("the call ran as {}, not as {expected}", kernels.join(", "))
        }
        Cause::RecordCount { launches, records } => format!("{launches} launches, {records} records"),
        Cause::NoFlush { launch } => format!("no record of a flush of the cache before launch {launch}"),
        Cause::SlotCount { side, recorded, expected } => {
            format!("recorded with {recorded} {side}s, the case has {expected}")
        }
        Cause::OtherSlot { side, slot, recorded, expected } => {
            let [recorded, expected] = [recorded, expected].map(|slot| slot.as_deref().unwrap_or("nothing"));
            format!("{side} {slot} was recorded as {recorded}, the case has {expected}")
        }
        Cause::SeveralOperators { operators } => {
            let operators = operators.iter().map(|(operator, state)| format!("{operator} ({state})"));
            format!("its launches ran as different operators: {}",
                operators.collect::<Vec<_>>().join(", ")
            )
        }
        Cause::AiCpu => "the kernel ran on an AI CPU, not on the AI cores: the installation lacks its binary for this call".to_owned(),
        Cause::RecordedTwice { launch } => {
            format!("one launch is recorded twice, as launches {launch} and {}", launch + 1)
        }
        Cause::SeveralUnits { units } => format!("its launches ran on different units: {}", units.join(", ")),
        Cause::SeveralBlockCounts { blocks } => {
            format!("its launches used different numbers of blocks: {}", list(blocks))
        }
        Cause::SeveralStreams { streams } => {
            format!("its launches ran on different streams: {}", list(streams))
        }
        Cause::BelowTimerStep { launch, took_ns, step_ns } => format!(
            "launch {launch} took {took_ns} us, less than a step of the device's timer, {step_ns} us"
        ),
        Cause::CoarseTimer { step_ns, percent, median_ns } => format!(
            "all times of the collection are multiples of {step_ns} us, more than {percent} % of the median, {median_ns} us"
        ),
        Cause::BelowRoofline { launch, took_ns, bound_ns } => {
            format!("launch {launch} took {took_ns} us, the roofline allows no less than {bound_ns} us")
        }
        Cause::Overlap(overlap) => overlap.to_string(),
        Cause::CoreTime { ratio } => core_time(ratio),
        Cause::LongerThanCase { seconds, factor } => format!(
            "its launches took {seconds} s, {factor} times longer than the case by the host's clock"
        ),
        Cause::TooLong { launch, took_ns } => {
            format!("launch {launch} took {took_ns} us, longer than any kernel may")
        }
        Cause::RanAsSeveral { kernels: [one, other] } => {
            format!("its launches ran as {one} and as {other}")
        }
        Cause::OnRank { rank, device, failure } => format!("rank {rank} ({device}): {failure}"),
        Cause::LaunchesOfRanks { launches } => format!("the ranks launched it {} times", list(launches)),
        Cause::KernelsOfRanks => "the ranks ran it as different kernels".to_owned(),
        Cause::SoftwareOfHosts { software: [one, other], hosts: [first, second] } => format!(
            "the hosts have imported different software: {one} on {first}, {other} on {second}"
        ),
        Cause::RankSpread { fastest_us, slowest_us } => {
            format!("the fastest rank takes {fastest_us} us, the slowest {slowest_us} us")
        }
        Cause::ClocksMayDiffer { apart_us, by_clocks_us } => format!(
            "by their clocks the ranks end {apart_us} us apart, which clocks that differ explain: the time is that of the rank that \
             waited least; by the clocks it would be {by_clocks_us} us"
        ),
        Cause::RanksMayEndApart { by_clocks_us, shortest_us } => format!(
            "the ranks need not end together, so that their clocks cannot be compared: by the clocks the time is {by_clocks_us} us; it is not \
             less than the {shortest_us} us of the shortest rank"
        ),
        Cause::LateRank { rank, device, delay_us } => format!(
            "rank {rank} ({device}) starts {delay_us} us after the others, for which their kernels wait; the time does not contain it"
        ),
        Cause::Trend { percent } => {
            let direction = if percent.value() > 0.0 { "rose" } else { "fell" };
            format!("the durations {direction} by {:.1} % over the launches", percent.value().abs())
        }
        Cause::Step { percent, before, samples } => {
            format!("the durations changed by {percent:+} % after {before} of {samples} launches")
        }
        Cause::TwoModes { low_us, high_us, upper_percent } => format!(
            "the durations have two modes: {low_us} us, and {high_us} us in {upper_percent} % of the launches"
        ),
        Cause::FewSamples { samples } => format!("{samples} samples are too few for an interval"),
        Cause::ManyOutliers { percent } => format!("{percent} % of the samples are severe outliers"),
        Cause::WideInterval { percent, target_percent, devices_differ } => {
            let place = if *devices_differ { " where devices differ" } else { "" };
            format!("median known to {percent} %, target {target_percent} %{place}")
        }
        Cause::MediansDiffer { percent, error_percent } => format!(
            "the medians differ by {percent} %, so that the error of their mean is {error_percent} %"
        ),
        Cause::Outliers { samples: 1 } => "1 severe outlier left out".to_owned(),
        Cause::Outliers { samples } => format!("{samples} severe outliers left out"),
        Cause::FarAboveRoofline { times, launch_ns, explained_ns } => format!(
            "the median is {times} times the roofline bound and {launch_ns} us for the launch, {explained_ns} us together"
        ),
        Cause::OneBlock { mib } => format!("it ran on one block, although its tensors have {mib} MiB"),
        Cause::Production { ratio, median_ns } => {
            format!("the median is {ratio} times that of production, {median_ns} us")
        }
        Cause::History { ratio, median_ns } => {
            format!("the median is {ratio} times that with earlier software, {median_ns} us")
        }
        Cause::Neighbours { ratio, cases, expected_ns } => format!(
            "the median is {ratio} times that expected from {cases} cases of other sizes, {expected_ns} us"
        ),
        Cause::Variants { property, collections } => {
            let values = collections.iter().map(|(value, count)| format!("{value} in {count}"));
            let what = match property {
                TaskProperty::Operator => "ran as different operators",
                TaskProperty::State => "ran with different `OP State`",
                TaskProperty::Unit => "ran on different units",
            };
            format!("its collections {what}: {}", values.collect::<Vec<_>>().join(", "))
        }
        Cause::InCollections { finding, collections, of, scope } => {
            let preposition = if *scope == CollectionScope::Over { "over" } else { "in" };
            let all = of.map_or_else(String::new, |all| format!(" of {all}"));
            let together = if *scope == CollectionScope::Together { " together" } else { "" };
            format!("{finding}, {preposition} {collections}{all} collections{together}")
        }
        Cause::LowClockLaunches { low, launches, set_mhz, lowest_mhz } => format!(
            "{low} of {launches} launches ran at a lower clock than the {set_mhz} MHz for which the device is set, down to {lowest_mhz} MHz"
        ),
        Cause::ClockBeside { device, percent, is_higher, kernels } => {
            let direction =
                if *is_higher { "higher than that of most devices" } else { "lower than that of other collections" };
            format!(
                "the clock of device {device} was {percent} % {direction}, by the cycles of {kernels} kernels launched beside it"
            )
        }
        Cause::Clock(difference) => difference.to_string(),
        Cause::UndecidedClock => "undecided: no majority of devices or earlier runs shows which clock is right, the highest counts".to_owned(),
        Cause::ClockNotRisen { percent } => format!(
            "the clock had not risen before its launches: a matrix product took {percent} % longer than its fastest in the collection"
        ),
        Cause::NotSettled { class, message } => {
            format!("the clock was not settled before each case: {}", summary(class, message))
        }
        Cause::NoControls { class, message } => {
            format!("without control kernels: {}", summary(class, message))
        }
        Cause::ControlChange(ControlDifference { control, device, percent, end_us, begin_us, clock }) => {
            let clock = match clock {
                ControlClock::Unchanged => "",
                ControlClock::Fell => ", and its cycles per time fell with it",
                ControlClock::FellInPart => {
                    ", and cycles per time fell in a part of its launches: another process may use the device"
                }
            };
            format!(
                "the control kernel {control} of device {device} took {percent:+} % at the end of the collection, {end_us} instead of \
                 {begin_us} us{clock}"
            )
        }
        Cause::ControlOverlap { control, overlap } => format!(
            "the durations of the collection contradict their starts: {overlap}, of the control kernel {control}"
        ),
        Cause::ControlCoreTime { control, ratio } => format!(
            "the durations of the collection contradict the time of the cores: {}, in the control kernel {control}",
            core_time(ratio)
        ),
        Cause::MeasuredAs(OtherKernel { kernel, result }) => {
            let result = result.as_ref().map(|(verdict, cause)| format!(", {verdict}: {cause}"));
            format!("ran as {kernel}; measured there{}", result.unwrap_or_default())
        }
        Cause::RanAs { kernel } => format!("ran as {kernel}"),
        Cause::LaterAttempt { software, finding } => {
            let software = match software {
                SoftwareRelation::Same => "the same software",
                SoftwareRelation::Other => "other software",
                SoftwareRelation::Unknown => "software that is not known to be the same",
            };
            match &**finding {
                Cause::MeasuredAs(OtherKernel { kernel, .. }) => {
                    format!("a later attempt with {software} ran as {kernel}")
                }
                finding => format!("a later attempt with {software}: {finding}"),
            }
        }
        Cause::AlsoLaunched { kernels } => format!("the call also launched {}", kernels.join(", ")),
        Cause::SoftwareChanged { differences } => {
            format!("the software of the host changed while the collection ran: {differences}")
        }
        Cause::UncheckedSoftware { differences } => format!(
            "the software of the host changed during the run, and no selftest has checked the new one: {differences}"
        ),
        Cause::WithoutSelftest => "measured on a host without a passed selftest".to_owned(),
        Cause::SeveralForms { form, others } => {
            format!("read as {form}; the shapes also fit {}", others.join(", "))
        }
        Cause::Scalar { argument, is_number } => {
            let read = if *is_number { "a Python number" } else { "a tensor without dimensions" };
            format!("scalar `{argument}` read as {read}")
        }
        Cause::ExpertSkew { skew } => format!("expert indices have a skew of {}", skew.value()),
        Cause::NoEntry => "the catalogue has no entry for this kernel".to_owned(),
        Cause::NotLaunchedAlone { explanation } => {
            format!("no call launches this kernel alone: {explanation}")
        }
        Cause::NoCollective { kernel } => format!("npubench launches no collective `{kernel}`"),
        Cause::NoForm { problem, .. } => problem.clone(),
        Cause::NotEnoughMemory { gib, device, device_gib } => {
            format!("needs {gib} GiB, {device} has {device_gib}")
        }
        Cause::NoTorchType { dtype } => format!("torch has no type {dtype}"),
        Cause::MoreDevicesThanHost { needed, devices } => {
            format!("it needs {needed} devices of one host at once, the run has {devices}")
        }
        Cause::NoProcessGroup => "it communicates with other devices, and no argument of its entry is a `process_group`".to_owned(),
        Cause::Checked { verdict, software, message } => {
            format!("{verdict} by {software} when it was checked: {message}")
        }
        Cause::Assumption { text } | Cause::Recorded { text } => text.clone(),
    }
}

/// Returns the beginning of an exception: of a long one, the details are in the log.
fn summary(class: &str, message: &str) -> String {
    format!("{class}: {message}").chars().take(MAX_SUMMARY).collect()
}

fn core_time(ratio: &impl Display) -> String {
    format!(
        "the cores worked {ratio} times as long as the launches took, at the rated clock, so that the durations are too short or the \
         clock is above its rating"
    )
}

fn list(numbers: &[u32]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl Display for Overlap {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { launch, took_ns, next_after_ns } = self;
        write!(f, "launch {launch} took {took_ns} us, but the next one started {next_after_ns} us after it")
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_messages_are_escaped() {
        let text = |text: &str| Cause::from(text).to_string();
        assert_eq!(text("`a\0\u{1b}[31mé`"), r"`a\u{0}\u{1b}[31mé`");
        assert_eq!(text("5 µs\nnext"), "5 µs\nnext");
    }
}
