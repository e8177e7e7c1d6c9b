//! Checks of a fault plan: values within their limits, kernels and devices that exist.

use std::{ops::RangeInclusive, path::Path};

use serde_json::Value;

use super::{
    FaultPlan, FaultTarget, TimeWindow, ValidNames,
    kinds::{FaultScope, PlannedFault},
};
use crate::{
    base::{suggest::did_you_mean_or, yaml, yaml::YamlError},
    kernel::{KernelName, catalogue::OperatorSchema},
};

const SECONDS: &str = "expected simulated seconds from 0 to 1000000";
const DEVIATION: &str = "expected a relative standard deviation from 0 to 0.2";
/// Limits of numbers of a section of the plan: the section, the key, its limits, what is expected.
const PLAN_LIMITS: [(&str, &str, RangeInclusive<f64>, &str); 11] = [
    ("costs", "start", 0.0..=1e6, SECONDS),
    ("costs", "init", 0.0..=1e6, SECONDS),
    ("costs", "case", 0.0..=1e6, SECONDS),
    ("costs", "launch", 0.0..=1e6, SECONDS),
    ("costs", "export", 0.0..=1e6, SECONDS),
    ("host", "clock_ahead", -1e6..=1e6, "expected seconds from -1000000 to 1000000"),
    ("noise", "collection", 0.0..=0.2, DEVIATION),
    ("noise", "offset", 0.0..=10.0, "expected a multiple of launch noise from 0 to 10"),
    ("noise", "shared", 0.0..=1.0, "expected a correlation from 0 to 1"),
    ("noise", "dependence", 0.0..=0.95, "expected a correlation from 0 to 0.95"),
    ("noise", "devices", 0.0..=0.2, DEVIATION),
];
/// Limits of parameters: the kinds of faults that have it, or none for all; the parameter; its limits; what is expected.
const LIMITS: [(&[&str], &str, RangeInclusive<f64>, &str); 9] = [
    (&[], "launch", 1.0..=f64::MAX, "counts from 1"),
    (&[], "share", 0.0..=1.0, "expected a number from 0 to 1"),
    (&[], "keeps", 0.0..=1.0, "expected a share from 0 to 1"),
    (
        &["slow_device", "idle_clock", "neighbour", "unsteady_kernel", "throttling"],
        "factor",
        1.0..=1e6,
        "expected a number from 1 to 1000000",
    ),
    (
        &["wrong_unit", "slow_kernels"],
        "factor",
        f64::MIN_POSITIVE..=1e6,
        "expected a number above 0, up to 1000000",
    ),
    (
        &["hang", "leftover_process"],
        "seconds",
        f64::MIN_POSITIVE..=1e9,
        "expected a number of seconds above 0",
    ),
    (&["clock_jump"], "seconds", -1e9..=1e9, "expected a number of seconds that is not 0"),
    (&[], "rows", 1.0..=f64::MAX, "expected at least 1"),
    (&[], "step", 1.0..=1e6, "expected nanoseconds from 1 to 1000000"),
];
const HINT: &str = "docs/rehearsal.md lists the faults and their parameters";

/// Returns true for a number within limits. JSON has no number that is not finite.
fn is_within(value: &Value, limits: &RangeInclusive<f64>) -> bool {
    value.as_f64().is_some_and(|number| limits.contains(&number))
}

impl FaultPlan {
    pub fn parse(file: &Path, text: &str, known: &ValidNames<'_>) -> Result<Self, YamlError> {
        let plan: Self = yaml::parse(file, text)?;
        let error = |keys: &[&str], problem: &str, hint: &str| {
            YamlError::at(file, yaml::find_value(text, keys), problem, hint)
        };
        plan.check_sections(known.devices, |keys, problem| Err(error(keys, &problem, HINT)))?;
        for (index, fault) in plan.faults.iter().enumerate() {
            let index = index.to_string();
            let below = |keys: &[&str], problem: &str, hint: &str| {
                error(&[&["faults", &index], keys].concat(), problem, hint)
            };
            check_fault(fault).map_err(|(keys, problem)| below(&keys, &problem, HINT))?;
            check_known(&fault.target, known, below)?;
        }
        Ok(plan)
    }

    /// Checks everything but the faults. `invalid` returns the error of the value with these keys.
    fn check_sections(
        &self,
        devices: u32,
        invalid: impl Fn(&[&str], String) -> Result<(), YamlError>,
    ) -> Result<(), YamlError> {
        let given = serde_json::to_value(self).expect("a plan has text keys");
        if !is_within(&given["speed"], &(1e-3..=1e6)) {
            let problem = "`speed`: expected simulated seconds per second, from 0.001 to 1000000";
            return invalid(&["speed"], problem.to_owned());
        }
        for (section, key, limits, expected) in PLAN_LIMITS {
            if given[section].get(key).is_some_and(|value| !is_within(value, &limits)) {
                return invalid(&[section, key], format!("`{key}`: {expected}"));
            }
        }
        let [least, most] = self.noise.launch;
        if !(0.0 < least && least <= most && most <= 0.2) {
            let problem = "`launch`: expected a relative standard deviation above 0, up to 0.2, or a range [least, most]";
            return invalid(&["noise", "launch"], problem.to_owned());
        }
        let clocks = self.host.iter().flat_map(|host| host.device_clocks.values());
        if !clocks.copied().all(|clock| (-1e9..=1e9).contains(&clock)) {
            let problem = "`device_clocks`: expected microseconds from -1e9 to 1e9";
            return invalid(&["host", "device_clocks"], problem.to_owned());
        }
        if !self.collectives.is_valid() {
            let problem = "`collectives`: expected regimes in the order of their sizes, each with a positive `start_us` and \
                           `gigabytes_per_second`, all but the last with `up_to`";
            return invalid(&["collectives"], problem.to_owned());
        }
        if let Some((key, problem)) = self.container.as_ref().and_then(|container| container.problem(devices))
        {
            return invalid(&["container", key], format!("`{key}`: {problem}"));
        }
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".+-_".contains(&byte);
        for (name, version) in given["software"].as_object().into_iter().flatten() {
            let Some(version) = version.as_str() else { continue };
            if version.is_empty() || !version.bytes().all(is_allowed) {
                let problem = format!("`{name}` is {version:?}, expected a version such as 8.5.0");
                return invalid(&["software", name], problem);
            }
        }
        for (index, schema) in self.schemas.iter().enumerate() {
            if let Err(problem) = OperatorSchema::parse(schema) {
                let expected = "expected torch's form, name(Tensor x, int n, *, float e=1) -> Tensor";
                return invalid(
                    &["schemas", &index.to_string()],
                    format!("not a schema: {problem}; {expected}"),
                );
            }
        }
        Ok(())
    }
}

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

type FaultError = (Vec<&'static str>, String);

fn invalid<T>(keys: &[&'static str], problem: impl Into<String>) -> Result<T, FaultError> {
    Err((keys.to_vec(), problem.into()))
}

fn check_fault(fault: &PlannedFault) -> Result<(), FaultError> {
    let [(key, scope)] = fault.given()[..] else {
        return invalid(&[], "expected one fault in each item of the list, such as `- crash:`");
    };
    check_parameters(key, fault)?;
    check_target(scope, &fault.target)?;
    for (key, count) in [("times", fault.times), ("times_each", fault.times_each)] {
        match count {
            Some(_) if scope == FaultScope::Device => {
                let problem = format!("`{key}` does not apply to a fault of a device; use `when`");
                return invalid(&[key], problem);
            }
            Some(0) => {
                return invalid(&[key], format!("`{key}`: expected at least 1; or remove the fault"));
            }
            _ => {}
        }
    }
    let TimeWindow { from, until } = fault.when;
    if from < 0.0 || from.is_nan() {
        return invalid(&["when", "from"], "`from`: expected seconds from 0");
    }
    if until.is_some_and(|until| until.is_nan() || until <= from) {
        return invalid(&["when", "until"], "`until`: expected seconds greater than `from`");
    }
    Ok(())
}

fn check_parameters(key: &'static str, fault: &PlannedFault) -> Result<(), FaultError> {
    if fault.crash.as_ref().is_some_and(|crash| crash.exit.is_some() && crash.signal.is_some()) {
        return invalid(&[key, "signal"], "a crash has an `exit` code or a `signal`, not both");
    }
    if fault.lost_records.as_ref().is_some_and(|lost| lost.head == 0 && lost.tail == 0) {
        return invalid(&[key], "`lost_records` needs `head`, `tail` or both: the number of records lost");
    }
    if fault.missing_output.as_ref().is_some_and(|missing| !missing.folder && missing.second_export) {
        let problem = "without a `folder` nothing can be exported later; give `second_export: false`";
        return invalid(&[key, "folder"], problem);
    }
    let given = serde_json::to_value(fault).expect("a fault has text keys");
    for (kinds, parameter, limits, expected) in LIMITS {
        let Some(value) = given[key].get(parameter) else { continue };
        // A fault without a number of seconds does not end.
        let is_checked =
            (kinds.is_empty() || kinds.contains(&key)) && !(value.is_null() && parameter == "seconds");
        if is_checked && !is_within(value, &limits) {
            return invalid(&[key, parameter], format!("`{parameter}`: {expected}"));
        }
    }
    if let Some(code) =
        fault.device_error.as_ref().map(|error| error.code).filter(|code| !matches!(code / 1000, 107 | 507))
    {
        let problem =
            format!("`code`: {code} is not an error code of the runtime, which are 107xxx and 507xxx");
        return invalid(&[key, "code"], problem);
    }
    if fault.error_text.as_ref().is_some_and(|error| error.text.trim().is_empty()) {
        return invalid(&[key], "`error_text` needs `text`: the text of the exception");
    }
    if fault.clock_jump.as_ref().is_some_and(|jump| jump.seconds == 0.0) {
        return invalid(&[key, "seconds"], "`seconds`: expected a number of seconds that is not 0");
    }
    if fault.renamed_kernel.as_ref().is_some_and(|renamed| KernelName::new(&renamed.name).is_err()) {
        return invalid(&[key, "name"], "`name`: expected the name of a kernel, such as MatMulV9");
    }
    Ok(())
}

fn check_target(scope: FaultScope, target: &FaultTarget) -> Result<(), FaultError> {
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
    if let Some((key, _)) = given.filter(|_| scope == FaultScope::Device) {
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
