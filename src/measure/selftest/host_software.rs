//! Experiment 0: versions of the host's software, and the chip against the device profile of the database.

use std::path::Path;

use serde_json::json;

use super::{
    evidence::SelftestContext,
    experiment::{EvidenceError, Experiment, Finding},
};
use crate::{
    kernel::{DeviceFacts, ImportedVersions, SoftwareFingerprint, device::DeviceProfile, version_numbers},
    measure::device::{MIN_CANN, MIN_EXPORT_PYTHON, run_host_program},
    profile::stated_facts,
};

pub(super) const EXPERIMENT: Experiment = Experiment {
    number: 0,
    name: "host-software",
    assumption: "the host's software is recent enough, and the chip is that of the database's device profile",
    expected: "CANN 8.0 or later, python3 3.7.5 or later for the export, torch_npu on the device, and a chip with the \
               cores of the database's device profile and at most its clock",
    fix: "install the named versions, or use a database of this device (`npubench ingest --device`)",
    run,
};

fn run(context: &SelftestContext, folder: &Path) -> Result<Finding, EvidenceError> {
    let run_program = |name: &str, arguments: &str, log: &str| {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        run_host_program(name, &arguments, &context.environment, &folder.join(log), &context.stop)
    };
    let mut chips = context.host.info.chips.iter();
    let card = chips.find(|chip| chip.physical_id == context.devices[0]).map_or(0, |chip| chip.npu);
    let board = format!("info -t board -i {card}");
    for (arguments, log) in [("info", "info"), ("info -m", "map"), (&*board, "board")] {
        // The outputs are evidence for people; the devices have been read from them already.
        let _ = run_program("npu-smi", arguments, &format!("npu-smi-{log}.txt"));
    }
    let python = run_program("python3", "--version", "python3.txt")?;
    let evidence = context.script(folder.join("import"), "host", json!({})).collect()?;
    let imported = evidence.journal.iter().find(|line| line.get("torch").is_some());
    let imported = imported.and_then(|line| serde_json::from_value(line.clone()).ok()).unwrap_or_default();
    let software = HostFacts {
        software: context.host.software.with_imported(imported),
        export_python: version_numbers(&python),
        chip: evidence.profile_folders().first().and_then(|profile| stated_facts(profile)),
        last_line: evidence.last_line(),
    };
    Ok(software.compare(&context.host.profile))
}

#[derive(Clone, Debug)]
struct HostFacts {
    software: SoftwareFingerprint,
    export_python: Option<[u32; 3]>,
    chip: Option<DeviceFacts>,
    last_line: String,
}

impl HostFacts {
    fn compare(&self, profile: &DeviceProfile) -> Finding {
        let mut problems = Vec::new();
        let cann = self.software.cann.as_deref().unwrap_or("unknown");
        if version_numbers(cann).is_some_and(|version| version < MIN_CANN) {
            problems.push(format!("CANN is {cann}, whose msprof has other options than that of 8.0"));
        }
        match self.export_python {
            Some(version) if version >= MIN_EXPORT_PYTHON => {}
            Some([major, minor, patch]) => problems
                .push(format!("python3 is {major}.{minor}.{patch}, msprof exports with 3.7.5 or later")),
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
            return Finding::new(String::new(), problems);
        };
        // A device may be set to a clock below the clock of its chip, as real steps of a 1800 MHz chip at 1650 MHz
        // show.
        let numbers = [
            ("cube cores", cube_cores, profile.cube_cores, cube_cores == profile.cube_cores),
            ("vector cores", vector_cores, profile.vector_cores, vector_cores == profile.vector_cores),
            ("MHz", clock_mhz, profile.clock_mhz, clock_mhz <= profile.clock_mhz),
        ];
        let differs = numbers.iter().filter(|(.., fits)| !fits);
        problems.extend(differs.map(|(name, found, known, _)| {
            format!("the chip has {found} {name}, the device profile {} has {known}", profile.device)
        }));
        let firmware = self.software.firmware.as_deref().unwrap_or("unknown");
        let rated = match profile.clock_mhz {
            rated if clock_mhz == rated => String::new(),
            rated => format!(", rated {rated}: durations are those of the lower clock"),
        };
        let seen = format!(
            "{}, firmware {firmware}; {cube_cores} cube and {vector_cores} vector cores at {clock_mhz} MHz{rated}",
            self.software
        );
        Finding::new(seen, problems)
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
        assert_eq!(good.compare(&profile).problems, [""; 0]);
        let problems = |facts: HostFacts| facts.compare(&profile).problems.join("; ");
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
        let Finding { seen, problems, .. } = at(1650);
        assert_eq!(problems, [""; 0]);
        let expected =
            format!("at 1650 MHz, rated {}: durations are those of the lower clock", profile.clock_mhz);
        assert!(seen.ends_with(&expected), "{seen}");
        let problems = at(profile.clock_mhz + 1).problems;
        assert!(problems[0].contains("MHz"), "{problems:?}");
    }
}
