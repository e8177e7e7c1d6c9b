//! Fault plans as they are written.

use std::{fmt, marker::PhantomData, path::Path};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, SeqAccess, Visitor, value},
};

use super::{
    FaultPlan, FaultTarget, PlannedFault, SimulatedDelays, TimeWindow, ValidNames,
    kinds::{
        ClockJump, DeviceThrottling, DiskFull, FaultKind, FaultScope, LeftoverProcess, LostRecords,
        MissingOutput, NoParameters, OutOfMemory, ProcessCrash, ProcessHang, RaggedCsv, RuntimeDeviceError,
        SlowDevice, TruncatedCsv, WrongDevice,
    },
};
use crate::{
    config::{YamlError, locate::YamlPath, yaml},
    domain::did_you_mean_or,
};

/// Kernels may be slower by this factor at most; what is beyond is a typing error.
const LARGEST: f64 = 1e6;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFaultPlan {
    seed: Option<u64>,
    #[serde(default = "one")]
    speed: f64,
    #[serde(default)]
    costs: SimulatedDelays,
    #[serde(default)]
    faults: Vec<FaultItem>,
}

const fn one() -> f64 {
    1.0
}

/// A fault as it is written: exactly one of the first fields is given.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct RawFault {
    #[serde(deserialize_with = "given")]
    crash: Option<ProcessCrash>,
    #[serde(deserialize_with = "given")]
    hang: Option<ProcessHang>,
    #[serde(deserialize_with = "given")]
    out_of_memory: Option<OutOfMemory>,
    #[serde(deserialize_with = "given")]
    device_error: Option<RuntimeDeviceError>,
    #[serde(deserialize_with = "given")]
    clock_jump: Option<ClockJump>,
    #[serde(deserialize_with = "given")]
    lost_records: Option<LostRecords>,
    #[serde(deserialize_with = "given")]
    truncated_csv: Option<TruncatedCsv>,
    #[serde(deserialize_with = "given")]
    ragged_csv: Option<RaggedCsv>,
    #[serde(deserialize_with = "given")]
    missing_output: Option<MissingOutput>,
    #[serde(deserialize_with = "given")]
    wrong_device_id: Option<WrongDevice>,
    #[serde(deserialize_with = "given")]
    disk_full: Option<DiskFull>,
    #[serde(deserialize_with = "given")]
    slow_device: Option<SlowDevice>,
    #[serde(deserialize_with = "given")]
    throttling: Option<DeviceThrottling>,
    #[serde(deserialize_with = "given")]
    device_lost: Option<NoParameters>,
    #[serde(deserialize_with = "given")]
    leftover_process: Option<LeftoverProcess>,
    #[serde(rename = "where")]
    place: FaultTarget,
    times: Option<u32>,
    times_each: Option<u32>,
    when: TimeWindow,
}

/// A fault's word may stand without parameters.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<Option<T>, D::Error> {
    Option::<T>::deserialize(from).map(|found| Some(found.unwrap_or_default()))
}

impl RawFault {
    fn kinds(self) -> Vec<FaultKind> {
        let kinds = [
            self.crash.map(FaultKind::Crash),
            self.hang.map(FaultKind::Hang),
            self.out_of_memory.map(FaultKind::OutOfMemory),
            self.device_error.map(FaultKind::DeviceError),
            self.clock_jump.map(FaultKind::ClockJump),
            self.lost_records.map(FaultKind::LostRecords),
            self.truncated_csv.map(FaultKind::TruncatedCsv),
            self.ragged_csv.map(FaultKind::RaggedCsv),
            self.missing_output.map(FaultKind::MissingOutput),
            self.wrong_device_id.map(FaultKind::WrongDeviceId),
            self.disk_full.map(FaultKind::DiskFull),
            self.slow_device.map(FaultKind::SlowDevice),
            self.throttling.map(FaultKind::Throttling),
            self.device_lost.map(FaultKind::DeviceLost),
            self.leftover_process.map(FaultKind::LeftoverProcess),
        ];
        kinds.into_iter().flatten().collect()
    }

    fn checked(mut self) -> Result<PlannedFault, String> {
        let place = std::mem::take(&mut self.place);
        let (times, times_each, when) = (self.times, self.times_each, self.when);
        let mut kinds = self.kinds();
        let (Some(kind), None) = (kinds.pop(), kinds.pop()) else {
            return Err("expected one fault in each item of the list, such as `- crash:`".to_owned());
        };
        check_kind(&kind)?;
        check_place(&kind, &place)?;
        if kind.scope() == FaultScope::Device && (times.is_some() || times_each.is_some()) {
            return Err("a fault of a device is not counted; say `when` it begins and ends".to_owned());
        }
        if times == Some(0) || times_each == Some(0) {
            return Err("expected at least 1 time; leave the fault out where it is not to strike".to_owned());
        }
        let until = when.until.unwrap_or(f64::MAX);
        if !(when.from >= 0.0 && until > when.from) {
            return Err("`when`: expected seconds with `until` after `from`".to_owned());
        }
        Ok(PlannedFault { kind, place, times, times_each, when })
    }
}

fn check_kind(kind: &FaultKind) -> Result<(), String> {
    let part = |name: &str, part: f64| {
        if (0.0..=1.0).contains(&part) { Ok(()) } else { Err(format!("`{name}` is a part, from 0 to 1")) }
    };
    let factor = |factor: f64| {
        let fits = (1.0..=LARGEST).contains(&factor);
        if fits { Ok(()) } else { Err(format!("`factor`: expected a number from 1 to {LARGEST}")) }
    };
    match kind {
        FaultKind::Crash(ProcessCrash { exit: Some(_), signal: Some(_), .. }) => {
            Err("a crash has an `exit` code or a `signal`, not both".to_owned())
        }
        FaultKind::Crash(ProcessCrash { launch: 0, .. })
        | FaultKind::Hang(ProcessHang { launch: 0, .. })
        | FaultKind::ClockJump(ClockJump { launch: 0, .. }) => Err("`launch` counts from 1".to_owned()),
        FaultKind::DeviceError(RuntimeDeviceError { code }) if !matches!(code / 1000, 107 | 507) => {
            Err(format!("`code`: {code} is none of the runtime's, which are 107xxx and 507xxx"))
        }
        FaultKind::ClockJump(ClockJump { seconds, .. }) if !(seconds.abs() <= 1e9 && *seconds != 0.0) => {
            Err("`seconds`: expected a number of seconds that is not 0".to_owned())
        }
        FaultKind::LostRecords(LostRecords { head: 0, tail: 0 }) => {
            Err("`lost_records` needs `head`, `tail` or both: how many records are lost".to_owned())
        }
        FaultKind::RaggedCsv(RaggedCsv { rows: 0 }) => Err("`rows`: expected at least 1".to_owned()),
        FaultKind::TruncatedCsv(TruncatedCsv { keeps }) | FaultKind::DiskFull(DiskFull { keeps, .. }) => {
            part("keeps", *keeps)
        }
        FaultKind::MissingOutput(MissingOutput { folder: false, second_export: true }) => {
            Err("without a `folder` there is no `second_export`; say `second_export: false`".to_owned())
        }
        FaultKind::SlowDevice(SlowDevice { factor: by })
        | FaultKind::Throttling(DeviceThrottling { factor: by, .. }) => factor(*by),
        FaultKind::Hang(ProcessHang { seconds: Some(seconds), .. })
        | FaultKind::LeftoverProcess(LeftoverProcess { seconds: Some(seconds), .. }) => {
            positive("seconds", *seconds)
        }
        _ => Ok(()),
    }
}

fn positive(name: &str, seconds: f64) -> Result<(), String> {
    let fits = seconds > 0.0 && seconds <= 1e9;
    if fits { Ok(()) } else { Err(format!("`{name}`: expected a number of seconds above 0")) }
}

fn check_place(kind: &FaultKind, place: &FaultTarget) -> Result<(), String> {
    let FaultTarget { kernel, case, shapes, collections, ordinal, every, probability, .. } = place;
    let says_more = !(kernel.is_empty()
        && case.is_empty()
        && shapes.is_empty()
        && collections.is_empty()
        && ordinal.is_empty()
        && every.is_none());
    if kind.scope() == FaultScope::Device && says_more {
        return Err("a fault of a device strikes by `devices` and `probability` alone".to_owned());
    }
    if *every == Some(0) {
        return Err("`every`: expected 1 or more".to_owned());
    }
    if probability.is_some_and(|likely| !(0.0..=1.0).contains(&likely)) {
        return Err("`probability` is from 0 to 1".to_owned());
    }
    Ok(())
}

/// A fault of the list. It is checked while the parser still knows where it stands.
struct FaultItem(PlannedFault);

impl<'de> Deserialize<'de> for FaultItem {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct CheckedFault;
        impl<'de> Visitor<'de> for CheckedFault {
            type Value = FaultItem;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a fault, such as `crash: {signal: SIGKILL}`")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<FaultItem, A::Error> {
                let raw = RawFault::deserialize(value::MapAccessDeserializer::new(map))?;
                raw.checked().map(FaultItem).map_err(A::Error::custom)
            }
        }
        from.deserialize_map(CheckedFault)
    }
}

/// A value, or a list of them.
pub(super) fn one_or_many<'de, D, T>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: SingleValue + Deserialize<'de>,
{
    struct OneOrMany<T>(PhantomData<T>);
    impl<'de, T: SingleValue + Deserialize<'de>> Visitor<'de> for OneOrMany<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(T::EXPECTED)
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Vec<T>, E> {
            let of = || E::invalid_type(serde::de::Unexpected::Str(text), &self);
            T::from_text(text).map(|value| vec![value]).ok_or_else(of)
        }

        fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Vec<T>, E> {
            let of = || E::invalid_type(serde::de::Unexpected::Unsigned(number), &self);
            T::from_number(number).map(|value| vec![value]).ok_or_else(of)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
            let mut values = Vec::new();
            while let Some(value) = items.next_element()? {
                values.push(value);
            }
            Ok(values)
        }
    }
    from.deserialize_any(OneOrMany(PhantomData))
}

/// What may stand alone in the place of a list.
pub(super) trait SingleValue: Sized {
    /// What is expected, in words.
    const EXPECTED: &'static str;

    fn from_text(_text: &str) -> Option<Self> {
        None
    }

    fn from_number(_number: u64) -> Option<Self> {
        None
    }
}

impl SingleValue for String {
    const EXPECTED: &'static str =
        "a text or a list of texts (put quotes around one that looks like a number)";

    fn from_text(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
}

impl SingleValue for u32 {
    const EXPECTED: &'static str = "a number or a list of numbers, such as [0, 1]";

    fn from_number(number: u64) -> Option<Self> {
        Self::try_from(number).ok()
    }
}

/// Reads a file's text.
pub(super) fn parse(file: &Path, text: &str, known: &ValidNames<'_>) -> Result<FaultPlan, YamlError> {
    let RawFaultPlan { seed, speed, costs, faults } = yaml::parse_with_column(file, text)?;
    let plan = FaultPlan { seed, speed, costs, faults: faults.into_iter().map(|item| item.0).collect() };
    let source = YamlPath { file, text };
    if !(1e-3..=1e6).contains(&speed) {
        let problem = format!("`speed` is {speed}, expected pretended seconds in one, from 0.001 to 1000000");
        return Err(source.error(&["speed"], "", &problem, "1 is as fast as time passes"));
    }
    let SimulatedDelays { start, init, case, launch, export } = costs;
    let named = [("start", start), ("init", init), ("case", case), ("launch", launch), ("export", export)];
    if let Some((name, seconds)) = named.into_iter().find(|(_, seconds)| !(0.0..=1e6).contains(seconds)) {
        let problem = format!("`{name}` is {seconds}, expected pretended seconds from 0 to 1000000");
        return Err(source.error(&["costs", name], "", &problem, "0 pretends nothing"));
    }
    for place in plan.faults.iter().map(|fault| &fault.place) {
        check_known(&source, place, known)?;
    }
    Ok(plan)
}

/// Kernels and devices that are not there would never be struck.
fn check_known(source: &YamlPath<'_>, place: &FaultTarget, known: &ValidNames<'_>) -> Result<(), YamlError> {
    if let Some(kernel) = place.kernel.iter().find(|kernel| !known.kernels.contains(&kernel.as_str())) {
        let hint = did_you_mean_or(kernel, known.kernels.iter().copied(), || {
            "`npubench kernels` lists them".to_owned()
        });
        let problem = format!("the catalogue has no kernel `{kernel}`");
        return Err(source.error(&["faults"], kernel, &problem, &hint));
    }
    if let Some(device) = place.devices.iter().find(|device| **device >= known.devices) {
        let problem = format!("the rehearsal host has no device {device}");
        let hint = format!("its devices are 0 to {}", known.devices.saturating_sub(1));
        return Err(source.error(&["faults", "devices"], &device.to_string(), &problem, &hint));
    }
    Ok(())
}
