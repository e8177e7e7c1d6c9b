//! Experiment 0: versions of the host's software, and the chip against the device profile of the database.

use std::{fs, path::Path, time::Duration};

use serde_json::{Value, json};

use super::{
    evidence::{CollectedEvidence, ScriptRequest, SelftestContext},
    finding::{EvidenceError, ExperimentFinding},
};
use crate::{
    config::DeviceProfile,
    device::search_path,
    domain::version_numbers,
    process::{self, CommandSpec, find_program},
};

/// Oldest Python with which msprof exports.
const OLDEST_EXPORT_PYTHON: [u32; 3] = [3, 7, 5];
/// Time limit of a program that prints a version.
const PROGRAM_LIMIT: Duration = Duration::from_secs(60);
/// Oldest CANN whose msprof takes the options of `collect.sh`.
const OLDEST_CANN: [u32; 3] = [8, 0, 0];
const EXPECTED: &str = "CANN 8.0 or later, python3 3.7.5 or later for the export, torch_npu on the device, and a chip \
     with the cores and the clock of the database's device profile";

/// Runs the experiment.
pub(super) fn run(context: &SelftestContext, folder: &Path) -> Result<ExperimentFinding, EvidenceError> {
    fs::create_dir_all(folder).map_err(EvidenceError::io(folder))?;
    for (arguments, log) in [("info", "npu-smi-info.txt"), ("info -m", "npu-smi-map.txt")] {
        // The outputs are evidence for people; the devices have been read from them already.
        let _ = run_program(context, folder, "npu-smi", &arguments.split(' ').collect::<Vec<_>>(), log);
    }
    let python = run_program(context, folder, "python3", &["--version"], "python3.txt")?;
    let devices = [context.first_device()];
    let request = ScriptRequest { function: "host", parameters: json!({}), devices: &devices };
    let evidence = context.collect(&folder.join("import"), &request)?;
    let software = HostFacts {
        cann: context.cann_version.clone(),
        export_python: version_numbers(&python),
        torch: text_of(&evidence, "torch"),
        torch_npu: text_of(&evidence, "torch_npu"),
        chip: ProfiledChip::read(&evidence),
        last_line: evidence.last_line(),
    };
    let (seen, problems) = software.compare(&context.profile);
    Ok(ExperimentFinding::from_problems(EXPECTED, seen, &problems))
}

/// Runs a program with the environment of collections, and returns its output.
fn run_program(
    context: &SelftestContext,
    folder: &Path,
    name: &str,
    arguments: &[&str],
    log: &str,
) -> Result<String, EvidenceError> {
    let path = search_path(&context.environment);
    let program = find_program(name, &path)
        .ok_or_else(|| EvidenceError::Missing(format!("there is no program `{name}` in the PATH")))?;
    let mut environment = context.environment.clone();
    environment.retain(|(variable, _)| variable != "PATH");
    environment.push(("PATH".to_owned(), path));
    let log = folder.join(log);
    let words = arguments.iter().map(|word| (*word).into());
    let job = CommandSpec {
        command: std::iter::once(program.into_os_string()).chain(words).collect(),
        folder,
        environment: &environment,
        log: &log,
        limit: PROGRAM_LIMIT,
        cut_off: None,
        stdin: None,
        record: None,
    };
    process::run_command(&job, &context.stop)?;
    Ok(String::from_utf8_lossy(&fs::read(&log).map_err(EvidenceError::io(&log))?).into_owned())
}

fn text_of(evidence: &CollectedEvidence, key: &str) -> Option<String> {
    evidence.journal_value(key).and_then(Value::as_str).map(str::to_owned)
}

/// Cores and clock of the device, from the `info.json` of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProfiledChip {
    cube_cores: u32,
    vector_cores: u32,
    clock_mhz: u32,
}

impl ProfiledChip {
    fn read(evidence: &CollectedEvidence) -> Option<Self> {
        let profile = evidence.profile_folders().into_iter().next()?;
        let entries = fs::read_dir(profile).ok()?.flatten().map(|entry| entry.path());
        let is_device = |path: &std::path::PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("device_"))
        };
        let device = entries.into_iter().find(is_device)?;
        let number = device.file_name()?.to_string_lossy().strip_prefix("device_")?.to_owned();
        Self::parse(&fs::read_to_string(device.join(format!("info.json.{number}"))).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let info: Value = serde_json::from_str(text).ok()?;
        let device = info.get("DeviceInfo")?.get(0)?;
        // The real files have the clocks as text.
        let number = |key: &str| {
            let value = device.get(key)?;
            value.as_f64().or_else(|| value.as_str()?.parse().ok()).map(|number| number as u32)
        };
        Some(Self {
            cube_cores: number("ai_core_num")?,
            vector_cores: number("aiv_num")?,
            clock_mhz: number("aic_frequency")?,
        })
    }
}

/// Facts that the experiment compares.
#[derive(Clone, Debug)]
struct HostFacts {
    /// Version of CANN in the files of the installation.
    cann: Option<String>,
    export_python: Option<[u32; 3]>,
    torch: Option<String>,
    torch_npu: Option<String>,
    chip: Option<ProfiledChip>,
    /// Last line of the script's log, the reason if it failed.
    last_line: String,
}

impl HostFacts {
    /// Returns a description of the facts, and the problems.
    fn compare(&self, profile: &DeviceProfile) -> (String, Vec<String>) {
        let mut problems = Vec::new();
        let unknown = || "unknown".to_owned();
        let cann = self.cann.clone().unwrap_or_else(unknown);
        if version_numbers(&cann).is_some_and(|version| version < OLDEST_CANN) {
            problems.push(format!("CANN is {cann}, whose msprof has other options than that of 8.0"));
        }
        match self.export_python {
            Some(version) if version >= OLDEST_EXPORT_PYTHON => {}
            Some([major, minor, patch]) => {
                problems
                    .push(format!("python3 is {major}.{minor}.{patch}, msprof exports with 3.7.5 or later"));
            }
            None => problems.push("python3 does not print its version".to_owned()),
        }
        if self.torch.is_none() || self.torch_npu.is_none() {
            problems.push(format!("torch_npu could not use the device: {}", self.last_line));
        }
        let Some(ProfiledChip { cube_cores, vector_cores, clock_mhz }) = self.chip else {
            problems.push("the profile has no `info.json` with cores and clock of the device".to_owned());
            return (String::new(), problems);
        };
        let numbers = [
            ("cube cores", cube_cores, profile.cube_cores),
            ("vector cores", vector_cores, profile.vector_cores),
            ("MHz", clock_mhz, profile.clock_mhz),
        ];
        let differs = numbers.iter().filter(|(_, found, known)| found != known);
        problems.extend(differs.map(|(name, found, known)| {
            format!("the chip has {found} {name}, the device profile {} has {known}", profile.device)
        }));
        let seen = format!(
            "CANN {cann}, torch {}, torch_npu {}; {cube_cores} cube and {vector_cores} vector cores at {clock_mhz} MHz",
            self.torch.clone().unwrap_or_else(unknown),
            self.torch_npu.clone().unwrap_or_else(unknown)
        );
        (seen, problems)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AssetFiles;

    fn profile() -> DeviceProfile {
        DeviceProfile::load(&AssetFiles::embedded(), DeviceProfile::default_name()).expect("built in")
    }

    fn facts(profile: &DeviceProfile) -> HostFacts {
        let DeviceProfile { cube_cores, vector_cores, clock_mhz, .. } = *profile;
        HostFacts {
            cann: Some("8.3.RC1".to_owned()),
            export_python: Some([3, 11, 2]),
            torch: Some("2.9.0".to_owned()),
            torch_npu: Some("2.9.0.post1".to_owned()),
            chip: Some(ProfiledChip { cube_cores, vector_cores, clock_mhz }),
            last_line: "ImportError: libhccl.so".to_owned(),
        }
    }

    #[test]
    fn another_chip_or_old_software_is_a_problem() {
        let profile = profile();
        let good = facts(&profile);
        assert_eq!(good.compare(&profile).1, [""; 0]);
        let problems = |facts: HostFacts| facts.compare(&profile).1.join("; ");
        let chip = ProfiledChip { cube_cores: 20, vector_cores: 40, clock_mhz: profile.clock_mhz };
        let other = problems(HostFacts { chip: Some(chip), ..good.clone() });
        assert!(other.contains("20 cube cores") && other.contains(&profile.device), "{other}");
        let old = problems(HostFacts { cann: Some("7.0.RC1".to_owned()), ..good.clone() });
        assert!(old.contains("CANN is 7.0.RC1"), "{old}");
        let old = problems(HostFacts { export_python: Some([3, 7, 4]), ..good.clone() });
        assert!(old.contains("3.7.4"), "{old}");
        let without = problems(HostFacts { torch_npu: None, ..good });
        assert!(without.contains("libhccl.so"), "{without}");
    }

    #[test]
    fn device_information_is_parsed() {
        let text = r#"{"DeviceInfo":[{"ai_core_num":24,"aiv_num":48,"aic_frequency":"1850"}]}"#;
        let chip = ProfiledChip { cube_cores: 24, vector_cores: 48, clock_mhz: 1850 };
        assert_eq!(ProfiledChip::parse(text), Some(chip));
        assert_eq!(ProfiledChip::parse("{}"), None);
    }
}
