//! The experiments of a selftest, and their execution in order.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use super::{
    cache_bandwidth, call_errors, catalogue_entries, core_clock, device_numbers,
    evidence::SelftestContext,
    exit_codes,
    finding::{EvidenceError, ExperimentFinding, ExperimentReport, ExperimentStatus},
    gangs, host_software, production_agreement, profiler_overhead, record_loss, repeated_collections,
};

/// Function that collects the evidence of an experiment in a folder and evaluates it.
type ExperimentFunction = fn(&SelftestContext, &Path) -> Result<ExperimentFinding, EvidenceError>;

/// An experiment.
pub(crate) struct Experiment {
    /// Number, which stays the same in later versions.
    pub(crate) number: u32,
    /// Name, part of the folder of its evidence.
    pub(crate) name: &'static str,
    /// Assumption on which measurements rely.
    pub(crate) assumption: &'static str,
    /// Action after a failure.
    pub(crate) fix: &'static str,
    run: ExperimentFunction,
}

/// Last of the experiments that measurements on a device require.
const LAST_REQUIRED: u32 = 4;

/// The experiments in the order of execution.
pub(crate) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        number: 0,
        name: "host-software",
        assumption: "the host's software is recent enough, and the chip is that of the database's device profile",
        fix: "install the named versions, or use a database of this device (`npubench ingest --device`)",
        run: host_software::run,
    },
    Experiment {
        number: 1,
        name: "device-numbers",
        assumption: "torch's number of a device, the profiler's Device_id and the row of npu-smi belong to one chip",
        fix: "compare `npu-smi info -m` with docs/devices.md; choose devices whose numbers agree with `--devices`",
        run: device_numbers::run,
    },
    Experiment {
        number: 2,
        name: "exit-codes",
        assumption: "exit codes and exports of msprof are those of its source, and a second export recovers tables",
        fix: "compare collect.log with docs/selftest.md; a run trusts records and not exit codes",
        run: exit_codes::run,
    },
    Experiment {
        number: 3,
        name: "record-loss",
        assumption: "every launch between the padding is recorded, in order, with type and shape",
        fix: "use another version of CANN; rows of this host would end as lost_records",
        run: record_loss::run,
    },
    Experiment {
        number: 4,
        name: "catalogue-entries",
        assumption: "the call of each catalogue entry runs as its kernel and is recorded with the entry's shapes and types",
        fix: "see entries.csv of the evidence; rows of the named kernels would end as wrong_kernel or rejected",
        run: catalogue_entries::run,
    },
    Experiment {
        number: 5,
        name: "core-clock",
        assumption: "the clock of the cores settles at its rating after idle times, and durations are steps of 20 ns",
        fix: "see temperature and power in `npu-smi info`; durations at another clock are not those of the chip",
        run: core_clock::run,
    },
    Experiment {
        number: 6,
        name: "cache-bandwidth",
        assumption: "the cache has the size of the device profile, and no kernel is faster than its roofline bound",
        fix: "correct `l2_mib` and the rates of the device profile; true durations would end as implausible",
        run: cache_bandwidth::run,
    },
    Experiment {
        number: 7,
        name: "repeated-collections",
        assumption: "durations of equal launches agree within and between collections and devices",
        fix: "see temperature and power of the devices in `npu-smi info`; leave out a slower one with `--devices`",
        run: repeated_collections::run,
    },
    Experiment {
        number: 8,
        name: "profiler-overhead",
        assumption: "a recorded duration does not depend on the profiler's settings and agrees with events",
        fix: "measure with `--aic-metrics none`; durations with counters contain the profiler's overhead",
        run: profiler_overhead::run,
    },
    Experiment {
        number: 9,
        name: "production-agreement",
        assumption: "replays with a cold cache take as long as the same kernels in production, with a warm one no longer",
        fix: "see production.csv of the evidence; compare software, clock and `--aic-metrics` with those of the profile",
        run: production_agreement::run,
    },
    Experiment {
        number: 10,
        name: "call-errors",
        assumption: "errors of calls are recognised by their texts, and the next collection works",
        fix: "report the text of the error; until then such cases end with another verdict",
        run: call_errors::run,
    },
    Experiment {
        number: 11,
        name: "gangs",
        assumption: "each rank of a gang has a profile with its own Device_id, and several gangs run at once",
        fix: "see collect.log of the gang; HCCL may need HCCL_IF_IP, HCCL_BUFFSIZE or /etc/hccn.conf in the container",
        run: gangs::run,
    },
];

/// Returns the numbers of the experiments that measurements on a device require.
pub(crate) fn required_experiments() -> impl Iterator<Item = u32> {
    EXPERIMENTS.iter().map(|experiment| experiment.number).filter(|number| *number <= LAST_REQUIRED)
}

/// Runs the selected experiments. `on_report` receives each report when its experiment has ended. Returns false if the
/// selftest was interrupted.
pub(crate) fn run_experiments(
    context: &SelftestContext,
    folder: &Path,
    selected: &[u32],
    mut on_report: impl FnMut(ExperimentReport) -> Result<(), EvidenceError>,
) -> Result<bool, EvidenceError> {
    for experiment in EXPERIMENTS.iter().filter(|experiment| selected.contains(&experiment.number)) {
        let evidence = folder.join(experiment.folder_name());
        fs::create_dir_all(&evidence).map_err(EvidenceError::io(&evidence))?;
        let started = Instant::now();
        let finding = match (experiment.run)(context, &evidence) {
            Err(EvidenceError::Interrupted) => return Ok(false),
            Ok(finding) => finding,
            Err(error) => ExperimentFinding::unknown("evidence for the experiment", error.to_string()),
        };
        on_report(experiment.report(finding, started.elapsed().as_secs_f64(), evidence))?;
    }
    Ok(true)
}

impl Experiment {
    /// Returns the name of the folder of its evidence.
    fn folder_name(&self) -> String {
        format!("{:02}-{}", self.number, self.name)
    }

    fn report(&self, finding: ExperimentFinding, seconds: f64, evidence: PathBuf) -> ExperimentReport {
        let ExperimentFinding { expected, seen, status } = finding;
        let fix = match status {
            ExperimentStatus::Pass => String::new(),
            ExperimentStatus::Fail => self.fix.to_owned(),
            ExperimentStatus::Unknown => "provide what is missing and repeat the selftest".to_owned(),
        };
        ExperimentReport {
            number: self.number,
            name: self.name.to_owned(),
            assumption: self.assumption.to_owned(),
            expected,
            seen,
            status,
            seconds: (seconds * 1e3).round() / 1e3,
            evidence,
            fix,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn numbers_and_names_of_experiments_are_unique() {
        let numbers: BTreeSet<u32> = EXPERIMENTS.iter().map(|experiment| experiment.number).collect();
        let names: BTreeSet<&str> = EXPERIMENTS.iter().map(|experiment| experiment.name).collect();
        assert_eq!((numbers.len(), names.len()), (EXPERIMENTS.len(), EXPERIMENTS.len()));
    }
}
