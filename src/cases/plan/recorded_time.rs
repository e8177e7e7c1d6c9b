//! Time of the production records of planned cases.

use std::collections::BTreeMap;

use crate::kernel::CaseId;

/// Time of the production records of a plan's rows, by case.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordedTime {
    seconds: BTreeMap<CaseId, f64>,
    total: f64,
}

impl RecordedTime {
    /// Adds the seconds of the records of a row.
    pub(crate) fn add_row(&mut self, case: &CaseId, seconds: f64) {
        if seconds > 0.0 {
            *self.seconds.entry(case.clone()).or_default() += seconds;
            self.total += seconds;
        }
    }

    /// Returns the share of distinct cases in the time of all rows; `None` without a recorded time.
    pub(crate) fn share<'a>(&self, cases: impl IntoIterator<Item = &'a CaseId>) -> Option<f64> {
        // The sum of no number would be -0.
        let time = cases
            .into_iter()
            .filter_map(|case| self.seconds.get(case))
            .fold(0.0, |sum, seconds| sum + seconds);
        (self.total > 0.0).then(|| time / self.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_count_all_rows_of_a_case() {
        let [one, other, untimed] = ["a", "b", "c"].map(CaseId::from_stored);
        let mut time = RecordedTime::default();
        assert_eq!(time.share([&one]), None);
        for (case, seconds) in [(&one, 1.0), (&one, 2.0), (&other, 5.0), (&untimed, 0.0)] {
            time.add_row(case, seconds);
        }
        assert_eq!([time.share([&one]), time.share([&untimed])], [Some(0.375), Some(0.0)]);
        assert_eq!(time.share([&one, &other]), Some(1.0));
        assert!(time.share([&untimed]).is_some_and(f64::is_sign_positive), "printed as -0.00 %");
    }
}
