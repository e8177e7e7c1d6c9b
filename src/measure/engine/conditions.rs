//! Conditions of a collection that neither its manifest nor its records contain, stored beside them, so that it can be
//! assessed again.

use std::{collections::BTreeMap, fs, path::Path};

use serde::{Deserialize, Serialize};

use crate::{
    cases::plan::PlannedCase,
    kernel::{
        Case, CaseAttributes, CaseId, Cause, IdentifiedCase, KernelName, Nanos, Slot, SoftwareFingerprint,
        Tensor,
        render::{RecordedTensor, files},
    },
    measure::verify::{CollectionTermination, SoftwareChange},
};

/// End and software of a collection, and its cases as the plan had them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct CollectionConditions {
    pub(super) termination: CollectionTermination,
    /// Software for which the run checked the host.
    pub(super) software_checked: SoftwareFingerprint,
    pub(super) software_at_start: SoftwareFingerprint,
    pub(super) software_at_end: SoftwareFingerprint,
    /// In the order of the manifest.
    pub(super) cases: Vec<LaunchedCase>,
}

/// A case of a collection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LaunchedCase {
    pub(super) case: StoredCase,
    /// Cases of other rows with the same call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) equal_cases: Vec<StoredCase>,
    /// Assumptions about values that shapes do not determine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) notes: Vec<Cause>,
    /// Roofline bound of the duration on the device of the collection.
    pub(super) fastest_ns: i64,
    #[serde(default)]
    pub(super) is_on_ai_cpu: bool,
}

/// A case as data.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct StoredCase {
    pub(super) case: CaseId,
    kernel: String,
    inputs: Vec<Option<RecordedTensor>>,
    outputs: Vec<Option<RecordedTensor>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    attributes: BTreeMap<String, String>,
}

impl CollectionConditions {
    /// Writes the conditions into the folder of the collection. Without them the collection cannot be assessed again,
    /// and its results hold all the same, so that a failed write is no error.
    pub(super) fn write(&self, folder: &Path) {
        let text = serde_json::to_string(self).expect("conditions are JSON");
        let path = folder.join(files::CONDITIONS);
        if let Err(error) = fs::write(&path, text) {
            tracing::warn!(path = %path.display(), %error, "conditions not written");
        }
    }

    pub(super) fn software_change(&self) -> SoftwareChange {
        SoftwareChange::of_collection(&self.software_checked, &self.software_at_start, &self.software_at_end)
    }
}

impl LaunchedCase {
    pub(super) fn new(planned: &PlannedCase) -> Self {
        Self {
            case: StoredCase::new(&planned.case),
            equal_cases: planned.equal_cases.iter().map(StoredCase::new).collect(),
            notes: planned.call.notes.clone(),
            fastest_ns: planned.fastest.0,
            is_on_ai_cpu: planned.is_on_ai_cpu,
        }
    }

    pub(super) const fn fastest(&self) -> Nanos {
        Nanos(self.fastest_ns)
    }
}

impl StoredCase {
    fn new(case: &IdentifiedCase) -> Self {
        let side =
            |slots: &[Slot]| slots.iter().map(|slot| slot.as_ref().map(RecordedTensor::from)).collect();
        let attributes = case.attributes.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self {
            case: case.id().clone(),
            kernel: case.kernel.as_str().to_owned(),
            inputs: side(&case.inputs),
            outputs: side(&case.outputs),
            attributes: attributes.collect(),
        }
    }

    /// Returns the case; `None` if it has another id than the stored one.
    pub(super) fn restore(&self) -> Option<IdentifiedCase> {
        let tensor = |stored: &RecordedTensor| -> Option<Tensor> { stored.tensor() };
        let side = |slots: &[Option<RecordedTensor>]| -> Vec<Slot> {
            slots.iter().map(|slot| slot.as_ref().and_then(tensor)).collect()
        };
        let mut attributes = CaseAttributes::default();
        self.attributes.iter().for_each(|(name, value)| attributes.set(name, value));
        let kernel = KernelName::new(&self.kernel).ok()?;
        let case = Case { kernel, inputs: side(&self.inputs), outputs: side(&self.outputs), attributes };
        Some(IdentifiedCase::new(case)).filter(|case| *case.id() == self.case)
    }
}
