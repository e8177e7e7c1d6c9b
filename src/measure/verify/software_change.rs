//! Changes of the host's software during a run: samples of a collection during which it changed are of no known software.

use crate::kernel::{CaseOutcome, Cause, SoftwareFingerprint, Verdict};

/// Change of the software of the host, as far as it concerns the samples of one collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SoftwareChange {
    /// The software is that for which the run checked the host.
    None,
    /// It changed between the beginning and the end of the collection; with the differences.
    DuringCollection(String),
    /// It changed earlier in the run: the samples are of the new software, which no selftest has checked; with the
    /// differences.
    BeforeCollection(String),
}

impl SoftwareChange {
    /// Compares the software at the beginning and at the end of a collection with that for which the run checked the host.
    pub(crate) fn of_collection(
        checked: &SoftwareFingerprint,
        at_start: &SoftwareFingerprint,
        at_end: &SoftwareFingerprint,
    ) -> Self {
        if at_end != at_start {
            Self::DuringCollection(at_end.differences_from(at_start))
        } else if at_end != checked {
            Self::BeforeCollection(at_end.differences_from(checked))
        } else {
            Self::None
        }
    }

    /// Returns the outcome of recorded launches: `implausible` if the software changed meanwhile, with a remark if it changed
    /// before.
    pub(super) fn judge_outcome(&self, outcome: CaseOutcome) -> CaseOutcome {
        match self {
            Self::None => outcome,
            Self::DuringCollection(differences) => {
                let differences = differences.clone();
                CaseOutcome::new(Verdict::Implausible, Cause::SoftwareChanged { differences })
            }
            Self::BeforeCollection(differences) => {
                outcome.with_remark(Cause::UncheckedSoftware { differences: differences.clone() })
            }
        }
    }
}
