//! Fault plans as they are written.

use std::path::Path;

use serde::{Deserialize, Deserializer};

use super::{
    FaultPlan, FaultTarget, HostDefect, PlannedFault, RehearsedCollectives, RehearsedContainer,
    RehearsedHost, RehearsedNoise, SimulatedDelays, StandInSoftware, TimeWindow, ValidNames,
    kinds::{
        ClockJump, CoarseTimer, DeviceThrottling, DiskFull, FaultKind, FaultScope, IdleClock, LateRank,
        LeftoverProcess, LostRecords, MissingOutput, NeighbourProgram, NoDeviceId, NoParameters, OutOfMemory,
        ProcessCrash, ProcessHang, RaggedCsv, RenamedKernel, RuntimeDeviceError, SlowDevice, SlowKernels,
        TruncatedCsv, UnsteadyKernel, WrongData, WrongDevice, WrongUnit,
    },
};
use crate::{
    base::{suggest::did_you_mean_or, yaml, yaml::YamlError},
    kernel::{KernelName, catalogue::OperatorSchema},
};

/// Limit of factors by which kernels or devices are slower.
const MAX_FACTOR: f64 = 1e6;
const MAX_SECONDS: f64 = 1e9;
const HINT: &str = "docs/rehearsal.md lists the faults and their parameters";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFaultPlan {
    seed: Option<u64>,
    #[serde(default = "one")]
    speed: f64,
    #[serde(default)]
    costs: SimulatedDelays,
    #[serde(default)]
    noise: RehearsedNoise,
    #[serde(default)]
    collectives: RehearsedCollectives,
    #[serde(default)]
    container: Option<RehearsedContainer>,
    #[serde(default)]
    host: Option<RehearsedHost>,
    #[serde(default)]
    software: StandInSoftware,
    #[serde(default)]
    schemas: Vec<String>,
    #[serde(default)]
    defects: Vec<HostDefect>,
    #[serde(default)]
    faults: Vec<RawFault>,
}

const fn one() -> f64 {
    1.0
}

/// A fault as it is written: exactly one of the kinds is given.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct RawFault {
    #[serde(deserialize_with = "default_if_null")]
    crash: Option<ProcessCrash>,
    #[serde(deserialize_with = "default_if_null")]
    hang: Option<ProcessHang>,
    #[serde(deserialize_with = "default_if_null")]
    out_of_memory: Option<OutOfMemory>,
    #[serde(deserialize_with = "default_if_null")]
    device_error: Option<RuntimeDeviceError>,
    #[serde(deserialize_with = "default_if_null")]
    clock_jump: Option<ClockJump>,
    #[serde(deserialize_with = "default_if_null")]
    lost_records: Option<LostRecords>,
    #[serde(deserialize_with = "default_if_null")]
    repeated_records: Option<NoParameters>,
    #[serde(deserialize_with = "default_if_null")]
    truncated_csv: Option<TruncatedCsv>,
    #[serde(deserialize_with = "default_if_null")]
    ragged_csv: Option<RaggedCsv>,
    #[serde(deserialize_with = "default_if_null")]
    missing_output: Option<MissingOutput>,
    #[serde(deserialize_with = "default_if_null")]
    wrong_device_id: Option<WrongDevice>,
    #[serde(deserialize_with = "default_if_null")]
    wrong_unit: Option<WrongUnit>,
    #[serde(deserialize_with = "default_if_null")]
    ai_cpu_fallback: Option<NoParameters>,
    #[serde(deserialize_with = "default_if_null")]
    unsteady_kernel: Option<UnsteadyKernel>,
    #[serde(deserialize_with = "default_if_null")]
    late_rank: Option<LateRank>,
    #[serde(deserialize_with = "default_if_null")]
    wrong_result: Option<WrongData>,
    #[serde(deserialize_with = "default_if_null")]
    renamed_kernel: Option<RenamedKernel>,
    #[serde(deserialize_with = "default_if_null")]
    one_core: Option<NoParameters>,
    #[serde(deserialize_with = "default_if_null")]
    coarse_timer: Option<CoarseTimer>,
    #[serde(deserialize_with = "default_if_null")]
    no_device_id: Option<NoDeviceId>,
    #[serde(deserialize_with = "default_if_null")]
    disk_full: Option<DiskFull>,
    #[serde(deserialize_with = "default_if_null")]
    slow_device: Option<SlowDevice>,
    #[serde(deserialize_with = "default_if_null")]
    slow_kernels: Option<SlowKernels>,
    #[serde(deserialize_with = "default_if_null")]
    idle_clock: Option<IdleClock>,
    #[serde(deserialize_with = "default_if_null")]
    neighbour: Option<NeighbourProgram>,
    #[serde(deserialize_with = "default_if_null")]
    throttling: Option<DeviceThrottling>,
    #[serde(deserialize_with = "default_if_null")]
    device_lost: Option<NoParameters>,
    #[serde(deserialize_with = "default_if_null")]
    leftover_process: Option<LeftoverProcess>,
    #[serde(rename = "where")]
    target: FaultTarget,
    times: Option<u32>,
    times_each: Option<u32>,
    when: TimeWindow,
}

/// Reads a fault without parameters as one with default parameters.
fn default_if_null<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    from: D,
) -> Result<Option<T>, D::Error> {
    Option::<T>::deserialize(from).map(|parameters| Some(parameters.unwrap_or_default()))
}

/// Keys below a fault, and the problem of their value.
type FaultError = (Vec<&'static str>, String);

fn invalid<T>(keys: &[&'static str], problem: impl Into<String>) -> Result<T, FaultError> {
    Err((keys.to_vec(), problem.into()))
}

impl RawFault {
    fn check(self) -> Result<PlannedFault, FaultError> {
        let Self { target, times, times_each, when, .. } = self;
        let kinds = [
            ("crash", self.crash.map(FaultKind::Crash)),
            ("hang", self.hang.map(FaultKind::Hang)),
            ("out_of_memory", self.out_of_memory.map(FaultKind::OutOfMemory)),
            ("device_error", self.device_error.map(FaultKind::DeviceError)),
            ("clock_jump", self.clock_jump.map(FaultKind::ClockJump)),
            ("lost_records", self.lost_records.map(FaultKind::LostRecords)),
            ("repeated_records", self.repeated_records.map(FaultKind::RepeatedRecords)),
            ("truncated_csv", self.truncated_csv.map(FaultKind::TruncatedCsv)),
            ("ragged_csv", self.ragged_csv.map(FaultKind::RaggedCsv)),
            ("missing_output", self.missing_output.map(FaultKind::MissingOutput)),
            ("wrong_device_id", self.wrong_device_id.map(FaultKind::WrongDeviceId)),
            ("wrong_unit", self.wrong_unit.map(FaultKind::WrongUnit)),
            ("ai_cpu_fallback", self.ai_cpu_fallback.map(FaultKind::AiCpuFallback)),
            ("unsteady_kernel", self.unsteady_kernel.map(FaultKind::UnsteadyKernel)),
            ("late_rank", self.late_rank.map(FaultKind::LateRank)),
            ("wrong_result", self.wrong_result.map(FaultKind::WrongResult)),
            ("renamed_kernel", self.renamed_kernel.map(FaultKind::RenamedKernel)),
            ("one_core", self.one_core.map(FaultKind::OneCore)),
            ("coarse_timer", self.coarse_timer.map(FaultKind::CoarseTimer)),
            ("no_device_id", self.no_device_id.map(FaultKind::NoDeviceId)),
            ("disk_full", self.disk_full.map(FaultKind::DiskFull)),
            ("slow_device", self.slow_device.map(FaultKind::SlowDevice)),
            ("slow_kernels", self.slow_kernels.map(FaultKind::SlowKernels)),
            ("idle_clock", self.idle_clock.map(FaultKind::IdleClock)),
            ("neighbour", self.neighbour.map(FaultKind::Neighbour)),
            ("throttling", self.throttling.map(FaultKind::Throttling)),
            ("device_lost", self.device_lost.map(FaultKind::DeviceLost)),
            ("leftover_process", self.leftover_process.map(FaultKind::LeftoverProcess)),
        ];
        let mut kinds = kinds.into_iter().filter_map(|(key, kind)| Some((key, kind?)));
        let (Some((key, kind)), None) = (kinds.next(), kinds.next()) else {
            return invalid(&[], "expected one fault in each item of the list, such as `- crash:`");
        };
        check_kind(key, &kind)?;
        check_target(&kind, &target)?;
        for (key, count) in [("times", times), ("times_each", times_each)] {
            match count {
                Some(_) if kind.scope() == FaultScope::Device => {
                    let problem = format!("`{key}` does not apply to a fault of a device; use `when`");
                    return invalid(&[key], problem);
                }
                Some(0) => {
                    return invalid(&[key], format!("`{key}`: expected at least 1; or remove the fault"));
                }
                _ => {}
            }
        }
        if when.from < 0.0 || when.from.is_nan() {
            return invalid(&["when", "from"], "`from`: expected seconds from 0");
        }
        if when.until.is_some_and(|until| until.is_nan() || until <= when.from) {
            return invalid(&["when", "until"], "`until`: expected seconds greater than `from`");
        }
        Ok(PlannedFault { kind, target, times, times_each, when })
    }
}

fn check_kind(key: &'static str, kind: &FaultKind) -> Result<(), FaultError> {
    let require = |is_valid: bool, parameter: &'static str, problem: &str| {
        if is_valid { Ok(()) } else { invalid(&[key, parameter], format!("`{parameter}`: {problem}")) }
    };
    match kind {
        FaultKind::Crash(ProcessCrash { exit: Some(_), signal: Some(_), .. }) => {
            invalid(&[key, "signal"], "a crash has an `exit` code or a `signal`, not both")
        }
        FaultKind::Crash(ProcessCrash { launch: 0, .. })
        | FaultKind::Hang(ProcessHang { launch: 0, .. })
        | FaultKind::ClockJump(ClockJump { launch: 0, .. })
        | FaultKind::RenamedKernel(RenamedKernel { launch: 0, .. })
        | FaultKind::UnsteadyKernel(UnsteadyKernel { launch: 0, .. }) => {
            require(false, "launch", "counts from 1")
        }
        FaultKind::UnsteadyKernel(UnsteadyKernel { share, .. })
        | FaultKind::Neighbour(NeighbourProgram { share, .. })
            if !(0.0..=1.0).contains(share) =>
        {
            require(false, "share", "expected a number from 0 to 1")
        }
        FaultKind::DeviceError(RuntimeDeviceError { code }) => {
            let problem = format!("{code} is not an error code of the runtime, which are 107xxx and 507xxx");
            require(matches!(code / 1000, 107 | 507), "code", &problem)
        }
        FaultKind::ClockJump(ClockJump { seconds, .. }) => {
            let is_valid = seconds.abs() <= MAX_SECONDS && *seconds != 0.0;
            require(is_valid, "seconds", "expected a number of seconds that is not 0")
        }
        FaultKind::LostRecords(LostRecords { head: 0, tail: 0 }) => {
            invalid(&[key], "`lost_records` needs `head`, `tail` or both: the number of records lost")
        }
        FaultKind::RaggedCsv(RaggedCsv { rows }) => require(*rows > 0, "rows", "expected at least 1"),
        FaultKind::TruncatedCsv(TruncatedCsv { keeps }) | FaultKind::DiskFull(DiskFull { keeps, .. }) => {
            require((0.0..=1.0).contains(keeps), "keeps", "expected a share from 0 to 1")
        }
        FaultKind::MissingOutput(MissingOutput { folder: false, second_export: true }) => {
            let problem = "without a `folder` nothing can be exported later; give `second_export: false`";
            invalid(&[key, "folder"], problem)
        }
        FaultKind::RenamedKernel(RenamedKernel { name, .. }) => {
            let is_valid = KernelName::new(name).is_ok();
            require(is_valid, "name", "expected the name of a kernel, such as MatMulV9")
        }
        FaultKind::CoarseTimer(CoarseTimer { step }) => {
            require((1..=1_000_000).contains(step), "step", "expected nanoseconds from 1 to 1000000")
        }
        FaultKind::SlowDevice(SlowDevice { factor })
        | FaultKind::IdleClock(IdleClock { factor, .. })
        | FaultKind::Neighbour(NeighbourProgram { factor, .. })
        | FaultKind::UnsteadyKernel(UnsteadyKernel { factor, .. })
        | FaultKind::Throttling(DeviceThrottling { factor, .. }) => {
            let problem = format!("expected a number from 1 to {MAX_FACTOR}");
            require((1.0..=MAX_FACTOR).contains(factor), "factor", &problem)
        }
        FaultKind::WrongUnit(WrongUnit { factor }) | FaultKind::SlowKernels(SlowKernels { factor }) => {
            let problem = format!("expected a number above 0, up to {MAX_FACTOR}");
            require(*factor > 0.0 && *factor <= MAX_FACTOR, "factor", &problem)
        }
        FaultKind::Hang(ProcessHang { seconds: Some(seconds), .. })
        | FaultKind::LeftoverProcess(LeftoverProcess { seconds: Some(seconds), .. }) => {
            let is_valid = *seconds > 0.0 && *seconds <= MAX_SECONDS;
            require(is_valid, "seconds", "expected a number of seconds above 0")
        }
        _ => Ok(()),
    }
}

fn check_target(kind: &FaultKind, target: &FaultTarget) -> Result<(), FaultError> {
    let FaultTarget { kernel, case, shapes, collections, ordinal, every, probability, .. } = target;
    let given = [
        ("kernel", !kernel.is_empty()),
        ("case", !case.is_empty()),
        ("shapes", !shapes.is_empty()),
        ("collections", !collections.is_empty()),
        ("ordinal", !ordinal.is_empty()),
        ("every", every.is_some()),
    ];
    let given = given.into_iter().find(|(_, is_given)| *is_given);
    if let Some((key, _)) = given.filter(|_| kind.scope() == FaultScope::Device) {
        let problem =
            format!("`{key}` does not apply to a fault of a device; use `devices` and `probability`");
        return invalid(&["where", key], problem);
    }
    if *every == Some(0) {
        return invalid(&["where", "every"], "`every`: expected at least 1");
    }
    if probability.is_some_and(|probability| !(0.0..=1.0).contains(&probability)) {
        return invalid(&["where", "probability"], "`probability`: expected a number from 0 to 1");
    }
    Ok(())
}

/// Reads a value or a list of values.
pub(super) fn one_or_many<'de, D, T>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "expected a value or a list of values of the right type; quote texts that look like numbers"
    )]
    enum OneOrMany<T> {
        Many(Vec<T>),
        One(T),
    }
    OneOrMany::deserialize(from).map(|values| match values {
        OneOrMany::Many(values) => values,
        OneOrMany::One(value) => vec![value],
    })
}

impl FaultPlan {
    /// Parses a file's text, as [`FaultPlan::load`].
    pub fn parse(file: &Path, text: &str, known: &ValidNames<'_>) -> Result<Self, YamlError> {
        let RawFaultPlan {
            seed,
            speed,
            costs,
            noise,
            collectives,
            host,
            container,
            software,
            schemas,
            defects,
            faults,
        } = yaml::parse(file, text)?;
        let error = |keys: &[&str], problem: &str, hint: &str| {
            YamlError::at(file, yaml::find_value(text, keys), problem, hint)
        };
        if !(1e-3..=1e6).contains(&speed) {
            let problem =
                format!("`speed` is {speed}, expected simulated seconds per second, from 0.001 to 1000000");
            return Err(error(&["speed"], &problem, "1 is real time"));
        }
        let SimulatedDelays { start, init, case, launch, export } = costs;
        let named =
            [("start", start), ("init", init), ("case", case), ("launch", launch), ("export", export)];
        if let Some((name, seconds)) = named.into_iter().find(|(_, seconds)| !(0.0..=1e6).contains(seconds)) {
            let problem = format!("`{name}` is {seconds}, expected simulated seconds from 0 to 1000000");
            return Err(error(&["costs", name], &problem, "0 adds no delay"));
        }
        let clock = host.as_ref().map_or(0.0, |host| host.clock_ahead);
        if clock.is_nan() || clock.abs() > RehearsedHost::MOST {
            let problem = format!("`clock_ahead` is {clock}, expected seconds from -1000000 to 1000000");
            return Err(error(&["host", "clock_ahead"], &problem, "0 is the clock of the system"));
        }
        if let Some((device, clock)) = host.as_ref().and_then(RehearsedHost::first_invalid_clock) {
            let problem = format!(
                "`device_clocks`: the clock of device {device} is {clock}, expected microseconds from -1e9 to 1e9"
            );
            return Err(error(&["host", "device_clocks"], &problem, "0 is the clock of the other devices"));
        }
        if !collectives.is_valid() {
            let expected = "`collectives`: expected regimes in the order of their sizes, each with a positive `start_us` and \
                            `gigabytes_per_second`, all but the last with `up_to`";
            return Err(error(&["collectives"], expected, "docs/rehearsal.md has an example"));
        }
        if let Some((key, expected)) = noise.first_invalid() {
            let hint = "docs/rehearsal.md describes the model";
            return Err(error(&["noise", key], &format!("`{key}`: {expected}"), hint));
        }
        if let Some((key, problem)) =
            container.as_ref().and_then(|container| container.problem(known.devices))
        {
            return Err(error(&["container", key], &format!("`{key}`: {problem}"), HINT));
        }
        if let Some((name, version)) = software.first_invalid() {
            let problem = format!("`{name}` is {version:?}, expected a version such as 8.5.0");
            return Err(error(&["software", name], &problem, "letters, digits and `.`, `+`, `-`, `_`"));
        }
        for (index, schema) in schemas.iter().enumerate() {
            if let Err(problem) = OperatorSchema::parse(schema) {
                let keys = ["schemas", &index.to_string()];
                let hint = "write it as torch does: name(Tensor x, int n, *, float e=1) -> Tensor";
                return Err(error(&keys, &format!("not a schema: {problem}"), hint));
            }
        }
        let faults = faults.into_iter().enumerate().map(|(index, raw)| {
            let index = index.to_string();
            let below = |keys: &[&str], problem: &str, hint: &str| {
                error(&[&["faults", &index], keys].concat(), problem, hint)
            };
            let fault = raw.check().map_err(|(keys, problem)| below(&keys, &problem, HINT))?;
            check_known(&fault.target, known, below)?;
            Ok(fault)
        });
        Ok(Self {
            seed,
            speed,
            costs,
            noise,
            collectives,
            host,
            container,
            software,
            schemas,
            defects,
            faults: faults.collect::<Result<_, YamlError>>()?,
        })
    }
}

/// Checks that kernels and devices exist: a fault of others would never occur.
fn check_known(
    target: &FaultTarget,
    known: &ValidNames<'_>,
    error: impl Fn(&[&str], &str, &str) -> YamlError,
) -> Result<(), YamlError> {
    for (index, kernel) in target.kernel.iter().enumerate() {
        if !known.kernels.contains(&kernel.as_str()) {
            let hint = did_you_mean_or(kernel, known.kernels.iter().copied(), || {
                "`npubench kernels` lists them".to_owned()
            });
            let problem = format!("the catalogue has no kernel `{kernel}`");
            return Err(error(&["where", "kernel", &index.to_string()], &problem, &hint));
        }
    }
    for (index, device) in target.devices.iter().enumerate() {
        if *device >= known.devices {
            let problem = format!("the rehearsal host has no device {device}");
            let hint = format!("its devices are 0 to {}", known.devices.saturating_sub(1));
            return Err(error(&["where", "devices", &index.to_string()], &problem, &hint));
        }
    }
    Ok(())
}
