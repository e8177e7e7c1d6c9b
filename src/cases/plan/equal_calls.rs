//! Rows with the same call: under several names of a kernel, or under several kernels between which CANN chooses. A run
//! launches the call once, and the results belong to the kernel that ran.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{PlannedCase, RunPlan};
use crate::{
    database::{Database, DatabaseError, row_cases},
    kernel::{
        CacheState, Case, CaseAttributes, CaseId, IdentifiedCase, KernelName, Reason,
        catalogue::{Catalogue, CatalogueEntry, ResolvedCall},
    },
};

#[derive(Debug, Default)]
pub(crate) struct EqualCallEvidence {
    pub(crate) ran_as_other_reasons: BTreeMap<CaseId, Reason>,
    pub(crate) cases_with_samples: BTreeSet<CaseId>,
}

/// Search for the measurements of cases that ran as another kernel, in the tables and the ledger.
pub(super) struct EqualRows<'a> {
    pub(super) database: &'a Database,
    pub(super) catalogue: &'a Catalogue,
    pub(super) cache: CacheState,
    pub(super) evidence: &'a EqualCallEvidence,
    /// Cases of the tables, with true if a row shows a measurement.
    pub(super) tables: BTreeMap<KernelName, BTreeMap<CaseId, bool>>,
}

impl EqualRows<'_> {
    /// Returns the case as which a case was measured: another kernel with the same call, under any of its names, the type
    /// first; true if a row shows the measurement, else only the ledger has it. `None` without one.
    pub(super) fn find(&mut self, case: &Case) -> Result<Option<(IdentifiedCase, bool)>, DatabaseError> {
        let Some(entry) = self.catalogue.entry(&case.kernel) else { return Ok(None) };
        let Ok((form, _)) = entry.matching_form(case) else { return Ok(None) };
        let others = self.catalogue.equal_entries(&entry.kernel, entry.definition_of(form));
        let names = others.flat_map(CatalogueEntry::names);
        for kernel in names.filter_map(|name| KernelName::new(name).ok()) {
            let case = IdentifiedCase::new(Case { kernel, ..case.clone() });
            let is_shown = self.is_shown(&case.kernel, case.id())?;
            if is_shown || self.evidence.cases_with_samples.contains(case.id()) {
                return Ok(Some((case, is_shown)));
            }
        }
        Ok(None)
    }

    fn is_shown(&mut self, kernel: &KernelName, case: &CaseId) -> Result<bool, DatabaseError> {
        if !self.tables.contains_key(kernel) {
            let mut shown = BTreeMap::new();
            let table = self.database.kernel_csv(kernel)?;
            let rows = if table.is_empty() { Vec::new() } else { row_cases(kernel, &table)? };
            for row in rows {
                let is_shown = row.cells(self.cache).shown.is_some();
                if let Ok(case) = row.case {
                    *shown.entry(case.id()).or_default() |= is_shown;
                }
            }
            self.tables.insert(kernel.clone(), shown);
        }
        Ok(self.tables.get(kernel).and_then(|cases| cases.get(case)).copied().unwrap_or_default())
    }
}

impl RunPlan {
    /// Merges cases with the same call, so that it is launched once: the first case is measured, and gets the others as its
    /// equal cases, with the greatest weight. Cases with attributes are compared by the arguments of their calls, because one
    /// may state a default of another one.
    pub(crate) fn merge_equal_calls(&mut self) {
        let mut names: BTreeMap<KernelName, BTreeSet<KernelName>> = BTreeMap::new();
        let mut has_attributes: BTreeSet<KernelName> = BTreeSet::new();
        for planned in &self.cases {
            if !planned.case.attributes.is_empty() {
                has_attributes.insert(planned.call.definition.clone());
            }
            names.entry(planned.call.definition.clone()).or_default().insert(planned.case.kernel.clone());
        }
        let mut places: HashMap<(String, bool), usize> = HashMap::new();
        let mut merged: Vec<PlannedCase> = Vec::with_capacity(self.cases.len());
        for planned in std::mem::take(&mut self.cases) {
            let definition = &planned.call.definition;
            let is_compared_by_arguments = has_attributes.contains(definition);
            if !is_compared_by_arguments && names.get(definition).is_none_or(|names| names.len() < 2) {
                merged.push(planned);
                continue;
            }
            let mut call = Case { kernel: definition.clone(), ..Case::clone(&planned.case) };
            if is_compared_by_arguments {
                call.attributes = CaseAttributes::default();
            }
            let mut text = call.signature();
            if is_compared_by_arguments {
                // Assumptions are parts of reasons, which the cases share.
                let ResolvedCall { api, arguments, returns, switches, notes, .. } = &planned.call;
                text += &serde_json::json!([api, arguments, returns, switches, notes]).to_string();
            }
            match places.entry((text, planned.is_on_ai_cpu)) {
                std::collections::hash_map::Entry::Vacant(place) => {
                    place.insert(merged.len());
                    merged.push(planned);
                }
                std::collections::hash_map::Entry::Occupied(place) => {
                    let first = &mut merged[*place.get()];
                    first.value = first.value.max(planned.value);
                    first.equal_cases.push(planned.case);
                }
            }
        }
        self.cases = merged;
    }
}
