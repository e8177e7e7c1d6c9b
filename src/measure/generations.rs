//! Notes on results that were measured with other software than that of a run. They are kept, and never pooled with
//! new samples.

use crate::{cases::plan::UpdateMode, database::ledger::SoftwareGeneration, kernel::SoftwareFingerprint};

/// Returns a note for each software of measured cases that differs from the host's in what is known before a script has
/// run.
pub(crate) fn other_host_software(
    generations: &[SoftwareGeneration],
    host: &SoftwareFingerprint,
    update: UpdateMode,
) -> Vec<String> {
    let host = host.host_part();
    let notes = generations.iter().filter_map(|SoftwareGeneration { software, cases }| {
        let Some(software) = software else {
            return Some(generation_note(cases.len(), "an unknown version of the software", update));
        };
        let differences = software.host_part().differences_from(&host);
        (!differences.is_empty()).then(|| generation_note(cases.len(), &differences, update))
    });
    notes.collect()
}

/// Returns a note for each software of measured cases that differs from the software of a run only in what its scripts
/// imported; [`other_host_software`] reports the others before the run.
pub(crate) fn other_imported_software(
    generations: &[SoftwareGeneration],
    used: &SoftwareFingerprint,
) -> Vec<String> {
    let notes = generations.iter().filter_map(|SoftwareGeneration { software, cases }| {
        let software = software.as_ref().filter(|software| software.host_part() == used.host_part())?;
        let differences = software.differences_from(used);
        (!differences.is_empty()).then(|| generation_note(cases.len(), &differences, UpdateMode::Missing))
    });
    notes.collect()
}

fn generation_note(cases: usize, software: &str, update: UpdateMode) -> String {
    let were = if cases == 1 { "case was" } else { "cases were" };
    let consequence = match update {
        UpdateMode::Missing => "these results are kept, `--update all` measures the cases again",
        UpdateMode::All => {
            "new samples are not pooled with them; the ledger keeps both, a row shows the newest"
        }
    };
    format!("{cases} {were} measured with {software}: {consequence}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::kernel::{CaseId, ImportedVersions};

    fn software(cann: &str, torch: &str) -> SoftwareFingerprint {
        SoftwareFingerprint {
            cann: Some(cann.to_owned()),
            imported: ImportedVersions { torch: Some(torch.to_owned()), ..ImportedVersions::default() },
            ..SoftwareFingerprint::default()
        }
    }

    fn generation(software: Option<SoftwareFingerprint>) -> SoftwareGeneration {
        let cases = BTreeSet::from(["00000000000000aa", "00000000000000bb"].map(CaseId::from_stored));
        SoftwareGeneration { software, cases }
    }

    #[test]
    fn each_other_software_is_reported_once() {
        let generations = [
            generation(Some(software("8.3.RC1", "2.7.1"))),
            generation(Some(software("8.5.0", "2.7.1"))),
            generation(Some(software("8.5.0", "2.9.0"))),
            generation(None),
        ];
        let host = software("8.5.0", "2.9.0").host_part();
        let kept = "these results are kept, `--update all` measures the cases again";
        assert_eq!(
            other_host_software(&generations, &host, UpdateMode::Missing),
            [
                format!("2 cases were measured with CANN 8.3.RC1, not 8.5.0: {kept}"),
                format!("2 cases were measured with an unknown version of the software: {kept}"),
            ]
        );
        assert_eq!(
            other_imported_software(&generations, &software("8.5.0", "2.9.0")),
            [format!("2 cases were measured with torch 2.7.1, not 2.9.0: {kept}")]
        );
    }
}
