//! Experiment 0: versions of the host's software, and the chip against the device profile of the database.

use std::{fs, path::Path, time::Duration};

use serde_json::json;

use super::{
    evidence::{CollectedEvidence, ScriptRequest, SelftestContext},
    finding::{EvidenceError, ExperimentFinding},
};
use crate::{
    base::process::{self, CommandSpec, find_program},
    kernel::{DeviceFacts, ImportedVersions, SoftwareFingerprint, device::DeviceProfile, version_numbers},
    measure::device::search_path,
    profile::stated_facts,
};

/// Oldest Python with which msprof exports.
const OLDEST_EXPORT_PYTHON: [u32; 3] = [3, 7, 5];
/// Time limit of a program that prints a version.
const PROGRAM_LIMIT: Duration = Duration::from_secs(60);
/// Oldest CANN whose msprof takes the options of `collect.sh`.
const OLDEST_CANN: [u32; 3] = [8, 0, 0];
const EXPECTED: &str = "CANN 8.0 or later, python3 3.7.5 or later for the export, torch_npu on the device, and a chip \
     with the cores of the database's device profile and at most its clock";

/// Runs the experiment.
pub(super) fn run(context: &SelftestContext, folder: &Path) -> Result<ExperimentFinding, EvidenceError> {
    fs::create_dir_all(folder).map_err(EvidenceError::io(folder))?;
    let board = format!("info -t board -i {}", context.first_card);
    let queries =
        [("info", "npu-smi-info.txt"), ("info -m", "npu-smi-map.txt"), (&*board, "npu-smi-board.txt")];
    for (arguments, log) in queries {
        // The outputs are evidence for people; the devices have been read from them already.
        let _ = run_program(context, folder, "npu-smi", &arguments.split(' ').collect::<Vec<_>>(), log);
    }
    let python = run_program(context, folder, "python3", &["--version"], "python3.txt")?;
    let devices = [context.first_device()];
    let request = ScriptRequest { function: "host", parameters: json!({}), devices: &devices };
    let evidence = context.collect(&folder.join("import"), &request)?;
    let software = HostFacts {
        software: context.software.with_imported(imported_versions(&evidence)),
        export_python: version_numbers(&python),
        chip: evidence.profile_folders().first().and_then(|profile| stated_facts(profile)),
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
        environment: &environment,
        ..CommandSpec::new(
            std::iter::once(program.into_os_string()).chain(words).collect(),
            folder,
            &log,
            PROGRAM_LIMIT,
        )
    };
    process::run_command(&job, &context.stop)?;
    Ok(String::from_utf8_lossy(&fs::read(&log).map_err(EvidenceError::io(&log))?).into_owned())
}

/// Returns the versions that the script has written into its journal.
fn imported_versions(evidence: &CollectedEvidence) -> ImportedVersions {
    let line = evidence.journal.iter().find(|line| line.get("torch").is_some());
    line.and_then(|line| serde_json::from_value(line.clone()).ok()).unwrap_or_default()
}

/// Facts that the experiment compares.
#[derive(Clone, Debug)]
struct HostFacts {
    /// Versions in the files of the installation, and those that the script has imported.
    software: SoftwareFingerprint,
    export_python: Option<[u32; 3]>,
    /// Cores and clock that the profiler states.
    chip: Option<DeviceFacts>,
    /// Last line of the script's log, the reason if it failed.
    last_line: String,
}

impl HostFacts {
    /// Returns a description of the facts, and the problems.
    fn compare(&self, profile: &DeviceProfile) -> (String, Vec<String>) {
        let mut problems = Vec::new();
        let cann = self.software.cann.as_deref().unwrap_or("unknown");
        if version_numbers(cann).is_some_and(|version| version < OLDEST_CANN) {
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
        let ImportedVersions { torch, torch_npu, .. } = &self.software.imported;
        if torch.is_none() || torch_npu.is_none() {
            problems.push(format!("torch_npu could not use the device: {}", self.last_line));
        }
        let Some(DeviceFacts {
            cube_cores: Some(cube_cores),
            vector_cores: Some(vector_cores),
            clock_mhz: Some(clock_mhz),
            ..
        }) = self.chip
        else {
            problems.push("the profile has no `info.json` with cores and clock of the device".to_owned());
            return (String::new(), problems);
        };
        // A device may be set to a clock below that of its chip, as real steps of a 1800 MHz chip at 1650 MHz show.
        let numbers = [
            ("cube cores", cube_cores, profile.cube_cores, cube_cores == profile.cube_cores),
            ("vector cores", vector_cores, profile.vector_cores, vector_cores == profile.vector_cores),
            ("MHz", clock_mhz, profile.clock_mhz, clock_mhz <= profile.clock_mhz),
        ];
        let differs = numbers.iter().filter(|(.., fits)| !fits);
        problems.extend(differs.map(|(name, found, known, _)| {
            format!("the chip has {found} {name}, the device profile {} has {known}", profile.device)
        }));
        let rated = if clock_mhz == profile.clock_mhz {
            String::new()
        } else {
            format!(", rated {}: durations are those of the lower clock", profile.clock_mhz)
        };
        let seen = format!(
            "{}; {cube_cores} cube and {vector_cores} vector cores at {clock_mhz} MHz{rated}",
            self.versions()
        );
        (seen, problems)
    }

    /// Lists the versions.
    fn versions(&self) -> String {
        let known = |name: &str, version: &Option<String>| {
            format!("{name} {}", version.as_deref().unwrap_or("unknown"))
        };
        let mut list = vec![
            known("CANN", &self.software.cann),
            known("driver", &self.software.driver),
            known("firmware", &self.software.firmware),
            known("torch", &self.software.imported.torch),
            known("torch_npu", &self.software.imported.torch_npu),
        ];
        list.extend(
            self.software.imported.vllm_ascend.as_ref().map(|version| format!("vllm_ascend {version}")),
        );
        list.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::assets::AssetFiles;

    fn profile() -> DeviceProfile {
        DeviceProfile::load(&AssetFiles::embedded(), DeviceProfile::default_name()).expect("built in")
    }

    fn chip(cube_cores: u32, vector_cores: u32, clock_mhz: u32) -> DeviceFacts {
        DeviceFacts {
            soc: None,
            cube_cores: Some(cube_cores),
            vector_cores: Some(vector_cores),
            clock_mhz: Some(clock_mhz),
        }
    }

    fn facts(profile: &DeviceProfile) -> HostFacts {
        let DeviceProfile { cube_cores, vector_cores, clock_mhz, .. } = *profile;
        HostFacts {
            software: SoftwareFingerprint {
                cann: Some("8.3.RC1".to_owned()),
                imported: ImportedVersions {
                    torch: Some("2.9.0".to_owned()),
                    torch_npu: Some("2.9.0.post1".to_owned()),
                    ..ImportedVersions::default()
                },
                ..SoftwareFingerprint::default()
            },
            export_python: Some([3, 11, 2]),
            chip: Some(chip(cube_cores, vector_cores, clock_mhz)),
            last_line: "ImportError: libhccl.so".to_owned(),
        }
    }

    #[test]
    fn another_chip_or_old_software_is_a_problem() {
        let profile = profile();
        let good = facts(&profile);
        assert_eq!(good.compare(&profile).1, [""; 0]);
        let problems = |facts: HostFacts| facts.compare(&profile).1.join("; ");
        let other = chip(20, 40, profile.clock_mhz);
        let other = problems(HostFacts { chip: Some(other), ..good.clone() });
        assert!(other.contains("20 cube cores") && other.contains(&profile.device), "{other}");
        let old = SoftwareFingerprint { cann: Some("7.0.RC1".to_owned()), ..good.software.clone() };
        let old = problems(HostFacts { software: old, ..good.clone() });
        assert!(old.contains("CANN is 7.0.RC1"), "{old}");
        let old = problems(HostFacts { export_python: Some([3, 7, 4]), ..good.clone() });
        assert!(old.contains("3.7.4"), "{old}");
        let without = good.software.host_part();
        let without = problems(HostFacts { software: without, ..good });
        assert!(without.contains("libhccl.so"), "{without}");
    }

    #[test]
    fn device_may_be_set_to_a_lower_clock_but_not_to_a_higher_one() {
        let profile = profile();
        let at = |clock_mhz| {
            let chip = Some(chip(profile.cube_cores, profile.vector_cores, clock_mhz));
            HostFacts { chip, ..facts(&profile) }.compare(&profile)
        };
        let (seen, problems) = at(1650);
        assert_eq!(problems, [""; 0]);
        let expected =
            format!("at 1650 MHz, rated {}: durations are those of the lower clock", profile.clock_mhz);
        assert!(seen.ends_with(&expected), "{seen}");
        let (_, problems) = at(profile.clock_mhz + 1);
        assert!(problems[0].contains("MHz"), "{problems:?}");
    }
}
