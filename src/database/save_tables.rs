//! Writes of several tables by one command.

use rayon::prelude::*;

use super::{DatabaseError, KernelCsv};

/// Saves tables on all cores. Fails with [`DatabaseError::PartlyWritten`] if some were written and others were not, else
/// with the error of the first.
pub(crate) fn save_tables(tables: &[&KernelCsv]) -> Result<(), DatabaseError> {
    let saved: Vec<_> = tables.par_iter().map(|table| table.save()).collect();
    let name =
        |table: &KernelCsv| table.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
    let written = tables.iter().zip(&saved).filter(|(_, saved)| saved.is_ok()).map(|(table, _)| name(table));
    let (written, total): (Vec<String>, usize) = (written.collect(), tables.len());
    match saved.into_iter().find_map(Result::err) {
        None => Ok(()),
        Some(error) if written.is_empty() => Err(error),
        Some(error) => Err(DatabaseError::PartlyWritten { written, total, source: Box::new(error) }),
    }
}
