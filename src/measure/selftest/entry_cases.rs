//! The smallest case of each entry of the catalogue: its example, else a row of the database.
//!
//! Rows come second, because those of a grid may have shapes that CANN launches as another kernel.

use std::collections::BTreeMap;

use super::{evidence::SelftestContext, finding::EvidenceError};
use crate::{
    cases::plan::PlannedCase,
    database::{DatabaseError, row_cases},
    kernel::{Case, IdentifiedCase, KernelName, catalogue::CatalogueEntry},
};

/// Origin of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub(super) enum CaseOrigin {
    Row,
    Example,
}

/// Case of an entry, or the reason why it is not launched.
#[derive(Clone, Debug)]
pub(super) struct EntryCase<'a> {
    pub(super) entry: &'a CatalogueEntry,
    pub(super) origin: CaseOrigin,
    pub(super) planned: Result<PlannedCase, String>,
}

/// Returns the smallest case of each entry that runs on one device, in the order of the entries.
pub(super) fn entry_cases(context: &SelftestContext) -> Result<Vec<EntryCase<'_>>, EvidenceError> {
    let mut rows = smallest_rows(context).map_err(|error| EvidenceError::Missing(error.to_string()))?;
    let cases = context.catalogue.entries().map(|entry| {
        let example = entry.example.clone().map(|case| (case, CaseOrigin::Example));
        let mut row = || rows.remove(&entry.kernel).map(|case| (case, CaseOrigin::Row));
        let Some((case, origin)) = example.or_else(&mut row) else {
            let reason = "no row in the database, and no example in the entry".to_owned();
            return EntryCase { entry, origin: CaseOrigin::Example, planned: Err(reason) };
        };
        let planned = context.planned_case(IdentifiedCase::new(case)).and_then(|planned| {
            if planned.devices > 1 {
                return Err("it needs several devices; experiment 11".to_owned());
            }
            Ok(planned)
        });
        EntryCase { entry, origin, planned }
    });
    Ok(cases.collect())
}

/// Returns the row with the fewest bytes of each entry that has one; rows that cannot be replayed on one device do not
/// count.
fn smallest_rows(context: &SelftestContext) -> Result<BTreeMap<KernelName, Case>, DatabaseError> {
    let mut smallest: BTreeMap<KernelName, Case> = BTreeMap::new();
    for kernel in context.database.kernels()? {
        let Some(entry) = context.catalogue.entry(&kernel) else { continue };
        let table = context.database.kernel_csv(&kernel)?;
        let cases = row_cases(&kernel, &table)?;
        // A row of a kernel on an AI CPU proves nothing about the AI cores.
        let cases = cases.into_iter().filter(|row| !row.is_on_ai_cpu);
        let mut cases: Vec<Case> = cases.filter_map(|row| row.case.ok()).collect();
        cases.sort_by_cached_key(|case| (case.bytes(), case.id()));
        let fits = |case: &Case| {
            context.planned_case(IdentifiedCase::new(case.clone())).is_ok_and(|planned| planned.devices == 1)
        };
        let Some(case) = cases.into_iter().find(fits) else { continue };
        if smallest.get(&entry.kernel).is_none_or(|known| case.bytes() < known.bytes()) {
            smallest.insert(entry.kernel.clone(), case);
        }
    }
    Ok(smallest)
}
