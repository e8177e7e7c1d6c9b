//! Merge join of other tables with `COMPUTE_TASK_INFO`, in the order of `globalTaskId`.
//!
//! SQLite sorts unsorted tables in temporary files; a join would depend on indexes, which the profilers do not
//! create.

use rusqlite::{Row, Rows, types::ValueRef};

/// Rows in the order of an id, the first column.
pub(super) struct OrderedCursor<'s, T> {
    rows: Rows<'s>,
    pending: Option<(i64, T)>,
    parse: fn(&Row<'_>) -> rusqlite::Result<T>,
}

impl<'s, T> OrderedCursor<'s, T> {
    pub(super) const fn new(rows: Rows<'s>, parse: fn(&Row<'_>) -> rusqlite::Result<T>) -> Self {
        Self { rows, pending: None, parse }
    }

    /// Returns the next row of an id. Ids must be given in ascending order.
    pub(super) fn next_of(&mut self, id: i64) -> rusqlite::Result<Option<T>> {
        loop {
            match self.pending.take() {
                Some((found, row)) if found == id => return Ok(Some(row)),
                Some(later) if later.0 > id => {
                    self.pending = Some(later);
                    return Ok(None);
                }
                _ => {}
            }
            let Some(row) = self.rows.next()? else { return Ok(None) };
            if let ValueRef::Integer(found) = row.get_ref(0)? {
                self.pending = Some((found, (self.parse)(row)?));
            }
        }
    }
}
