//! The rows of a database with the greatest production time.

use crate::{
    cases::plan::{PlannedCase, planned_case},
    database::{Database, DatabaseError, ProductionRow, production_rows},
    kernel::{
        IdentifiedCase, Nanos,
        catalogue::{Catalogue, CatalogueEntry},
        device::DeviceProfile,
    },
};

/// A row that one device can replay.
#[derive(Clone, Debug)]
pub(crate) struct PlannedRow {
    pub(crate) planned: PlannedCase,
    /// Median of the production records.
    pub(crate) median: Nanos,
    /// Number of production records.
    pub(crate) records: u64,
}

/// Returns the rows with the greatest production time (median times records) that one device can replay, the heaviest
/// first.
pub(crate) fn heaviest_rows(
    database: &Database,
    catalogue: &Catalogue,
    profile: &DeviceProfile,
    count: usize,
) -> Result<Vec<PlannedRow>, DatabaseError> {
    let mut rows: Vec<ProductionRow> = Vec::new();
    for kernel in database.kernels()? {
        rows.extend(production_rows(&kernel, &database.kernel_csv(&kernel)?)?);
    }
    rows.sort_by(|one, other| other.total_seconds().total_cmp(&one.total_seconds()));
    let planned = rows.into_iter().filter_map(|ProductionRow { case, median, records, is_on_ai_cpu }| {
        let planned = planned_case(catalogue, profile, IdentifiedCase::new(case)).ok()?;
        let planned = PlannedCase { is_on_ai_cpu, ..planned };
        let can_be_launched =
            catalogue.entry(&planned.case.kernel).is_some_and(CatalogueEntry::can_be_launched);
        (planned.devices == 1 && can_be_launched).then_some(PlannedRow { planned, median, records })
    });
    Ok(planned.take(count).collect())
}
