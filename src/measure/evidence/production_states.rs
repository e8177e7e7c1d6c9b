//! Nearness of the measurements with a hot and with a cold cache to production.

use std::fmt;

use crate::{
    base::stats::median_of_floats,
    database::{Database, DatabaseError, RowCase, row_cases},
    kernel::CacheState,
};

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ProductionStates {
    ratios: [Vec<f64>; 2],
    rows: usize,
    both: usize,
    /// Numbers of rows with both states of which this one is nearer to production.
    nearer: [usize; 2],
}

impl ProductionStates {
    /// Compares the rows of a database. `None` if production cannot be compared, or no row with it was measured with a cold cache.
    pub(crate) fn read(database: &Database) -> Result<Option<Self>, DatabaseError> {
        if !database.has_comparable_production() {
            return Ok(None);
        }
        let mut states = Self::default();
        for kernel in database.kernels()? {
            for row in row_cases(&kernel, &database.kernel_csv(&kernel)?)? {
                if let Some(production) = row.production {
                    states.add_row(production.micros(), measured_medians(&row));
                }
            }
        }
        Ok((!states.ratios[1].is_empty()).then_some(states))
    }

    fn add_row(&mut self, production: f64, medians: [Option<f64>; 2]) {
        let ratios = medians.map(|median| median.map(|median| median / production));
        for (all, ratio) in self.ratios.iter_mut().zip(ratios) {
            all.extend(ratio);
        }
        self.rows += usize::from(ratios.iter().any(Option::is_some));
        if let [Some(hot), Some(cold)] = ratios {
            self.both += 1;
            let [hot, cold] = [hot, cold].map(|ratio| ratio.ln().abs());
            self.nearer[0] += usize::from(hot < cold);
            self.nearer[1] += usize::from(cold < hot);
        }
    }
}

/// Returns the medians of a row, hot and cold, in microseconds. Rows of older tools have a mean alone.
fn measured_medians(row: &RowCase) -> [Option<f64>; 2] {
    [CacheState::Hot, CacheState::Cold].map(|cache| {
        let cells = row.cells(cache);
        cells.shown.as_ref()?;
        cells.median.or(cells.average)
    })
}

impl fmt::Display for ProductionStates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = if self.rows == 1 { "1 row has".to_owned() } else { format!("{} rows have", self.rows) };
        write!(f, "{rows} a median of production and a measurement: ")?;
        for (place, (cache, ratios)) in CacheState::ALL.iter().zip(&self.ratios).enumerate() {
            let separator = if place > 0 { ", " } else { "" };
            match median_of_floats(&mut ratios.clone()) {
                Some(ratio) => {
                    write!(f, "{separator}{cache} / production is {ratio:.3} ({} rows)", ratios.len())?;
                }
                None => write!(f, "{separator}no row is measured {cache}")?,
            }
        }
        let [hot, cold] = self.nearer;
        write!(f, "; of {} with both states, hot is nearer in {hot} and cold in {cold}", self.both)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_has_its_ratio_and_the_nearer_one_is_counted() {
        let mut states = ProductionStates::default();
        for (production, medians) in [
            (10.0, [Some(8.0), Some(10.5)]),
            (10.0, [Some(9.9), Some(14.0)]),
            (10.0, [Some(5.0), Some(10.0)]),
            (10.0, [None, Some(11.0)]),
            (10.0, [Some(7.0), None]),
            (10.0, [None, None]),
        ] {
            states.add_row(production, medians);
        }
        insta::assert_snapshot!(states, @"5 rows have a median of production and a measurement: hot / production is 0.750 (4 rows), cold / production is 1.075 (4 rows); of 3 with both states, hot is nearer in 1 and cold in 2");
    }
}
