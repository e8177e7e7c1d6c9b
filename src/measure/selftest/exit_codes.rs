//! Experiment 2: exit codes and exports of msprof for programs that end in different ways, and the second export.
//!
//! Source of the expectations: `running_mode.cpp` of msprof. The exit status of the program is not passed on; msprof
//! ends with 0 where it leaves a profile, and with 255 (-1) where the program used no device.

use std::{fs, path::Path};

use serde_json::json;

use super::{
    evidence::{CollectedEvidence, SelftestContext},
    finding::{EvidenceError, ExperimentFinding},
    record_loss::mark_length,
};
use crate::{base::process::ExitKind, kernel::DataKind};

/// Number of marked launches of each script.
const MARKS: u64 = 20;
/// Padding of each script, more than a profiler loses: lost records are the subject of another experiment.
const PADDING: u32 = 100;
/// Seconds from the last launch to the end of a script that does not finalise the profiler, which loses the records
/// of its last second.
const WAIT_SECONDS: f64 = 1.5;
/// Folder of msprof's tables in a profile.
const TABLES: &str = "mindstudio_profiler_output";
const EXPECTED: &str = "exit code 0 and all records after a clean end, exit code 3, SIGSEGV and SIGTERM; 255 and no \
     profile without a device; tables again by a second export";

/// End of the script, exit code of msprof, and whether it leaves a profile.
const ENDS: [(&str, i32, bool); 5] = [
    ("clean", 0, true),
    ("exit_3", 0, true),
    ("SIGSEGV", 0, true),
    ("SIGTERM", 0, true),
    ("without_device", 255, false),
];

/// Runs the experiment.
pub(super) fn run(context: &SelftestContext, folder: &Path) -> Result<ExperimentFinding, EvidenceError> {
    let mut problems = Vec::new();
    for (end, code, has_profile) in ENDS {
        // The rehearsal host keeps the records of the last second.
        let loses_records = end.starts_with("SIG") && context.kind() == DataKind::Npu;
        let wait = if loses_records { WAIT_SECONDS } else { 0.0 };
        let parameters = json!({ "end": end, "marks": MARKS, "padding": PADDING, "wait": wait });
        let evidence = context.complete(&folder.join(end), "records", parameters)?;
        let found = MsprofEnd::read(&evidence);
        problems.extend(found.problem(code, has_profile).map(|problem| format!("{end}: {problem}")));
    }
    problems.extend(second_export(context, &folder.join("clean"))?);
    let seen = format!("as expected for {} ends and the second export", ENDS.len());
    Ok(ExperimentFinding::from_problems(EXPECTED, seen, &problems))
}

/// Deletes the tables of a collection and exports them again.
fn second_export(context: &SelftestContext, folder: &Path) -> Result<Option<String>, EvidenceError> {
    let devices = [context.first_device()];
    let before = context.read_evidence(folder, ExitKind::Exited(0))?;
    for profile in before.profile_folders() {
        let tables = profile.join(TABLES);
        if tables.is_dir() {
            fs::remove_dir_all(&tables).map_err(EvidenceError::io(&tables))?;
        }
    }
    let found = MsprofEnd::read(&context.export_again(folder, &devices)?);
    Ok(found.problem(0, true).map(|problem| format!("second export: {problem}")))
}

/// Result of a start of msprof.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MsprofEnd {
    exit: ExitKind,
    profiles: usize,
    /// Recorded marks, or the reason why they cannot be read.
    marks: Result<usize, String>,
}

impl MsprofEnd {
    fn read(evidence: &CollectedEvidence) -> Self {
        let is_mark = |length: &u64| *length > 1;
        let marks = evidence.records.as_ref().map_err(Clone::clone);
        Self {
            exit: evidence.exit,
            profiles: evidence.profile_folders().len(),
            marks: marks.map(|records| records.iter().filter_map(mark_length).filter(is_mark).count()),
        }
    }

    /// Returns the first difference from the expected exit code and profile.
    fn problem(&self, code: i32, has_profile: bool) -> Option<String> {
        if self.exit != ExitKind::Exited(code) {
            return Some(format!("msprof ended with {:?}, expected exit code {code}", self.exit));
        }
        let marks = match (&self.marks, has_profile) {
            (_, false) if self.profiles > 0 => {
                return Some("msprof left a profile, expected none".to_owned());
            }
            (_, false) => return None,
            (_, true) if self.profiles == 0 => return Some("msprof left no profile".to_owned()),
            (Ok(marks), true) => *marks,
            (Err(problem), true) => return Some(problem.clone()),
        };
        (marks as u64 != MARKS).then(|| format!("{marks} of {MARKS} launches are recorded"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_from_the_source_are_reported() {
        let end = |code, profiles, marks| MsprofEnd { exit: ExitKind::Exited(code), profiles, marks };
        assert_eq!(end(0, 1, Ok(20)).problem(0, true), None);
        assert_eq!(end(255, 0, Ok(0)).problem(255, false), None);
        let problem = |end: MsprofEnd, code, has_profile| end.problem(code, has_profile).expect("a problem");
        assert!(problem(end(3, 1, Ok(20)), 0, true).contains("expected exit code 0"));
        assert!(problem(end(0, 1, Ok(19)), 0, true).contains("19 of 20"));
        assert!(problem(end(0, 0, Ok(0)), 0, true).contains("no profile"));
        assert!(problem(end(255, 1, Ok(0)), 255, false).contains("expected none"));
        assert!(problem(end(0, 1, Err("cut".to_owned())), 0, true).contains("cut"));
        let killed = MsprofEnd { exit: ExitKind::Signalled(15), ..end(0, 1, Ok(20)) };
        assert!(problem(killed, 0, true).contains("Signalled(15)"));
    }
}
