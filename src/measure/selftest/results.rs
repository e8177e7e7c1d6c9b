//! Results of selftests in the state folder of a database: `selftest/<host>-<time>/` with `selftest.json` and
//! `results.jsonl`, one line for each experiment.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::experiment::{EXPERIMENTS, EntryMismatch, ExperimentReport, ExperimentStatus};
use crate::{
    base::{
        command_error::CommandError,
        files::{MAX_TABLE, entries, read_json, read_regular_text, write_atomic},
        printable::markdown_cell,
    },
    database::{Database, DatabaseError, ledger::Ledger},
    kernel::{DataKind, KernelName},
};

const FOLDER: &str = "selftest";
const DESCRIPTION_FILE: &str = "selftest.json";
const RESULTS_FILE: &str = "results.jsonl";
/// Experiment that proves the numbers of each device of its selftest.
const DEVICE_NUMBERS: u32 = 1;
const CATALOGUE_ENTRIES: u32 = 4;
/// Last of the experiments that measurements on a device require.
const LAST_REQUIRED: u32 = 4;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SelftestDescription {
    pub(super) host: String,
    pub(super) kind: DataKind,
    /// Start, UTC.
    pub(super) started: String,
    /// Host and software, as text that is equal for equal hosts.
    pub(super) fingerprint: String,
    pub(super) devices: Vec<u32>,
    pub(super) npubench: String,
}

#[derive(Clone, Debug)]
pub(super) struct StoredSelftest {
    pub(super) description: SelftestDescription,
    pub(super) reports: Vec<ExperimentReport>,
}

impl SelftestDescription {
    pub(super) fn store(&self, database: &Database, time: &str) -> Result<PathBuf, CommandError> {
        let safe = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        let name: String = self.host.chars().map(safe).collect();
        let folder =
            database.state_folder().join(FOLDER).join(format!("{name}-{time}-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(DatabaseError::io("create", &folder))?;
        let text = serde_json::to_string_pretty(self).expect("a description has texts as keys");
        write_atomic(&folder.join(DESCRIPTION_FILE), text.as_bytes())?;
        Ok(folder)
    }
}

pub(super) fn not_stored(path: &Path) -> impl FnOnce(io::Error) -> CommandError + use<> {
    let path = path.display().to_string();
    move |error| {
        CommandError::bad_input(
            format!("the results of the selftest cannot be stored: `{path}`: {error}"),
            "check free space and permissions of the database folder",
        )
    }
}

pub(super) fn append_report(folder: &Path, report: &ExperimentReport) -> Result<(), CommandError> {
    let path = folder.join(RESULTS_FILE);
    let line = serde_json::to_string(report).expect("a report has texts as keys");
    let append = || {
        let mut file = fs::File::options().create(true).append(true).open(&path)?;
        writeln!(file, "{line}")?;
        file.sync_all()
    };
    append().map_err(not_stored(&path))
}

pub(super) fn stored_selftests(database: &Database) -> Result<Vec<StoredSelftest>, CommandError> {
    Ledger::require_readable(&database.ledger_path())?;
    let folder = database.state_folder().join(FOLDER);
    let mut found = Vec::new();
    for entry in entries(&folder).map_err(DatabaseError::io("read", &folder))? {
        found.extend(read_selftest(&entry)?);
    }
    found.sort_by(|one, other| one.description.started.cmp(&other.description.started));
    Ok(found)
}

/// Reads a selftest; `None` if it was ended before it had a description. The last line of its results may be cut.
fn read_selftest(folder: &Path) -> Result<Option<StoredSelftest>, CommandError> {
    let hint = || "remove its folder, and repeat the selftest".to_owned();
    let description = read_json(&folder.join(DESCRIPTION_FILE), "description of a selftest", hint)?;
    let Some(description) = description else { return Ok(None) };
    let path = folder.join(RESULTS_FILE);
    let lines = match read_regular_text(&path, MAX_TABLE) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        lines => lines.map_err(DatabaseError::io("read", &path))?,
    };
    let reports = lines.lines().map_while(|line| serde_json::from_str(line).ok()).collect();
    Ok(Some(StoredSelftest { description, reports }))
}

/// Returns the reason why the stored selftests do not allow measurements on devices of a host with this fingerprint;
/// `None` if the last result of each required experiment is a pass, and the last result of each device's numbers, too.
pub(super) fn missing_selftest(
    stored: &[StoredSelftest],
    fingerprint: &str,
    devices: &[u32],
) -> Option<String> {
    let same = |selftest: &&StoredSelftest| {
        selftest.description.kind == DataKind::Npu && selftest.description.fingerprint == fingerprint
    };
    let mut last: BTreeMap<u32, &ExperimentReport> = BTreeMap::new();
    let mut numbered = BTreeSet::new();
    for StoredSelftest { description, reports } in stored.iter().filter(same) {
        for report in reports {
            last.insert(report.number, report);
            if report.number == DEVICE_NUMBERS && report.status == ExperimentStatus::Pass {
                numbered.extend(description.devices.iter().copied());
            } else if report.number == DEVICE_NUMBERS {
                numbered.retain(|device| !description.devices.contains(device));
            }
        }
    }
    if last.is_empty() {
        return Some("this host has no selftest with its present software".to_owned());
    }
    let mut problems = Vec::new();
    for number in 0..=LAST_REQUIRED {
        match last.get(&number) {
            None => problems.push(format!("experiment {number} was not run")),
            Some(report) if !report.blocks_runs => {}
            Some(ExperimentReport { name, status, .. }) => {
                problems.push(format!("experiment {number} ({name}) ended with {status}"));
            }
        }
    }
    if !problems.is_empty() {
        return Some(format!("the selftest of this host did not pass: {}", problems.join(", ")));
    }
    let untested: Vec<String> =
        devices.iter().filter(|device| !numbered.contains(device)).map(u32::to_string).collect();
    (!untested.is_empty()).then(|| {
        format!("experiment {DEVICE_NUMBERS} of the selftest did not pass for device {}", untested.join(", "))
    })
}

/// Returns the entries that do not fit a host with this fingerprint by the last result of experiment 4, with the reasons.
pub(super) fn mismatched_entries(
    stored: &[StoredSelftest],
    kind: DataKind,
    fingerprint: impl FnOnce() -> String,
) -> BTreeMap<KernelName, String> {
    let mut last: BTreeMap<&str, &[EntryMismatch]> = BTreeMap::new();
    for StoredSelftest { description, reports } in stored.iter().filter(|one| one.description.kind == kind) {
        for report in reports.iter().filter(|report| report.number == CATALOGUE_ENTRIES) {
            last.insert(&description.fingerprint, &report.mismatches);
        }
    }
    if last.values().all(|mismatches| mismatches.is_empty()) {
        return BTreeMap::new();
    }
    let of_host = last.get(fingerprint().as_str()).copied().unwrap_or_default();
    of_host.iter().map(|one| (one.kernel.clone(), one.reason.clone())).collect()
}

pub(crate) fn markdown_report(database: &Database) -> Result<String, CommandError> {
    let stored = stored_selftests(database)?;
    let results =
        stored.iter().flat_map(|selftest| selftest.reports.iter().map(move |report| (selftest, report)));
    let last: BTreeMap<u32, (&StoredSelftest, &ExperimentReport)> =
        results.map(|(selftest, report)| (report.number, (selftest, report))).collect();
    let mut text =
        "| assumption | experiment | last result | host and date |\n|---|---|---|---|\n".to_owned();
    for experiment in &EXPERIMENTS {
        let (result, place) = match last.get(&experiment.number) {
            None => ("not run".to_owned(), String::new()),
            Some((StoredSelftest { description, .. }, report)) => {
                let mark = if description.kind == DataKind::Rehearsal { " (rehearsal)" } else { "" };
                let day = description.started.get(..10).unwrap_or(&description.started);
                (format!("{}{mark}: {}", report.status, report.seen), format!("{}, {day}", description.host))
            }
        };
        let cells =
            [experiment.assumption, &format!("{} {}", experiment.number, experiment.name), &result, &place]
                .map(markdown_cell);
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selftest(kind: DataKind, statuses: &[(u32, ExperimentStatus)]) -> StoredSelftest {
        let report = |&(number, status): &(u32, ExperimentStatus)| ExperimentReport {
            number,
            name: format!("n{number}"),
            assumption: String::new(),
            expected: String::new(),
            seen: String::new(),
            status,
            seconds: 0.0,
            evidence: PathBuf::new(),
            fix: String::new(),
            mismatches: Vec::new(),
            blocks_runs: status != Pass,
        };
        StoredSelftest {
            description: SelftestDescription {
                host: "h".to_owned(),
                kind,
                started: "2026-03-01T00:00:00Z".to_owned(),
                fingerprint: "f".to_owned(),
                devices: vec![0],
                npubench: String::new(),
            },
            reports: statuses.iter().map(report).collect(),
        }
    }

    use ExperimentStatus::Pass;

    const PASSED: [(u32, ExperimentStatus); 5] = [(0, Pass), (1, Pass), (2, Pass), (3, Pass), (4, Pass)];

    #[test]
    fn the_last_result_of_each_required_experiment_counts() {
        let passed = selftest(DataKind::Npu, &PASSED);
        assert_eq!(missing_selftest(std::slice::from_ref(&passed), "f", &[0]), None);
        assert!(
            missing_selftest(std::slice::from_ref(&passed), "other software", &[0])
                .is_some_and(|why| why.contains("no selftest"))
        );
        let later = selftest(DataKind::Npu, &[(3, ExperimentStatus::Fail), (7, ExperimentStatus::Fail)]);
        let why = missing_selftest(&[passed.clone(), later.clone()], "f", &[0]).expect("a later failure");
        assert!(why.contains("experiment 3 (n3) ended with fail") && !why.contains('7'), "{why}");
        assert_eq!(missing_selftest(&[later, passed], "f", &[0]), None);
        let partial = selftest(DataKind::Npu, &PASSED[..1]);
        assert!(missing_selftest(&[partial], "f", &[0]).is_some_and(|why| why.contains("was not run")));
    }

    #[test]
    fn a_mismatch_of_one_entry_leaves_out_its_kernel_alone() {
        let name = KernelName::new("SwiGlu").expect("a name");
        let mut one = selftest(DataKind::Npu, &PASSED);
        let reason = "wrong_kernel".to_owned();
        let mismatch = EntryMismatch { kernel: name.clone(), reason, time_share: None };
        (one.reports[4].status, one.reports[4].mismatches) = (ExperimentStatus::Fail, vec![mismatch]);
        assert_eq!(missing_selftest(std::slice::from_ref(&one), "f", &[0]), None);
        let entries = |stored: &[StoredSelftest], kind, fingerprint: &str| -> Vec<KernelName> {
            mismatched_entries(stored, kind, || fingerprint.to_owned()).into_keys().collect()
        };
        assert_eq!(entries(std::slice::from_ref(&one), DataKind::Npu, "f"), [name]);
        assert_eq!(entries(std::slice::from_ref(&one), DataKind::Npu, "other software"), []);
        assert_eq!(entries(std::slice::from_ref(&one), DataKind::Rehearsal, "f"), []);
        let repeated = [one, selftest(DataKind::Npu, &PASSED[4..])];
        assert_eq!(entries(&repeated, DataKind::Npu, "f"), []);
    }

    #[test]
    fn every_device_of_a_run_needs_proven_numbers() {
        let first = selftest(DataKind::Npu, &PASSED);
        let mut second = selftest(DataKind::Npu, &[(1, Pass)]);
        second.description.devices = vec![2, 3];
        let why = missing_selftest(std::slice::from_ref(&first), "f", &[0, 2, 3]).expect("untested devices");
        assert_eq!(why, "experiment 1 of the selftest did not pass for device 2, 3");
        assert_eq!(missing_selftest(&[first.clone(), second.clone()], "f", &[0, 2, 3]), None);
        let mut failed = selftest(DataKind::Npu, &[(1, ExperimentStatus::Fail)]);
        failed.description.devices = vec![2];
        let later = [second, failed, first];
        let why = missing_selftest(&later, "f", &[0, 2, 3]).expect("the last proof of device 2 failed");
        assert_eq!(why, "experiment 1 of the selftest did not pass for device 2");
    }

    #[test]
    fn a_rehearsal_never_allows_measurements() {
        assert!(missing_selftest(&[selftest(DataKind::Rehearsal, &PASSED)], "f", &[0]).is_some());
    }

    #[test]
    fn results_are_read_back_and_damaged_lines_end_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let example = selftest(DataKind::Npu, &PASSED[..2]);
        let description = serde_json::to_string(&example.description).expect("JSON");
        fs::write(folder.path().join(DESCRIPTION_FILE), description).expect("written");
        for report in &example.reports {
            append_report(folder.path(), report).expect("written");
        }
        let path = folder.path().join(RESULTS_FILE);
        let mut text = fs::read_to_string(&path).expect("readable");
        text.push_str("{\"number\":2,\"na");
        fs::write(&path, text).expect("written");
        let read = read_selftest(folder.path()).expect("readable").expect("a selftest");
        assert_eq!((read.description, read.reports.len()), (example.description, 2));
    }

    #[test]
    fn a_damaged_description_is_an_error_and_a_missing_one_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(read_selftest(folder.path()).is_ok_and(|read| read.is_none()));
        fs::write(folder.path().join(DESCRIPTION_FILE), "{").expect("written");
        let error = read_selftest(folder.path()).expect_err("damaged");
        assert!(error.message.contains("is no description of a selftest"), "{error}");
    }
}
