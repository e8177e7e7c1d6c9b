//! Zeros in place of missing measurements: the superseded grid tool fills every measurement of a new row with `0`.

use csv::StringRecord;

use super::columns::{self, MeasureKind};

#[derive(Debug)]
pub(crate) struct ZeroFilled {
    /// Columns of the replay, and of production profiles, each with true for a duration.
    sources: [Vec<(usize, bool)>; 2],
    verdict: Option<usize>,
}

impl ZeroFilled {
    pub(crate) fn from_header(header: &[String]) -> Self {
        let measured = |is_profile: bool| {
            let columns = header.iter().enumerate();
            let columns = columns.filter(|(_, name)| {
                !columns::is_cold_column(name) && name.starts_with("Profiling ") == is_profile
            });
            let kinds = columns.filter_map(|(index, name)| Some((index, columns::measured_kind(name)?)));
            let kinds = kinds.filter(|(_, kind)| *kind != MeasureKind::Count);
            kinds.map(|(index, kind)| (index, kind == MeasureKind::Duration)).collect()
        };
        Self {
            sources: [false, true].map(measured),
            verdict: header.iter().position(|name| name == columns::VERDICT),
        }
    }

    /// Returns the zeros of a row that stand for missing measurements: every measurement of the replay is 0 or empty,
    /// with a duration among them and no verdict; likewise for measurements of production profiles, for which the verdict
    /// of the replay states nothing. If one of them was measured, a zero beside it may have been measured too.
    pub(crate) fn find_zeros(&self, row: &StringRecord) -> Vec<usize> {
        let cell = |index: usize| row.get(index).unwrap_or_default().trim();
        let is_zero = |index: usize| cell(index).parse().is_ok_and(|value: f64| value == 0.0);
        let has_no_value = |index: usize| cell(index).is_empty() || is_zero(index);
        let has_verdict = self.verdict.is_some_and(|index| !cell(index).is_empty());
        let mut cells = Vec::new();
        for columns in &self.sources[usize::from(has_verdict)..] {
            let has_zero_duration = columns.iter().any(|&(index, is_duration)| is_duration && is_zero(index));
            if has_zero_duration && columns.iter().all(|&(index, _)| has_no_value(index)) {
                cells.extend(columns.iter().map(|(index, _)| *index).filter(|&index| is_zero(index)));
            }
        }
        cells.sort_unstable();
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rows_without_any_measurement_count() {
        let header = ["Average Duration(us)", "MicroBench Std Duration(us)", "MicroBench aiv_vec_ratio"];
        let header = [&header[..], &["MicroBench Verdict", "Runtime num_tokens"]].concat();
        let zeros = ZeroFilled::from_header(&header.iter().map(ToString::to_string).collect::<Vec<_>>());
        let cells = |row: [&str; 5]| zeros.find_zeros(&StringRecord::from(row.to_vec()));
        assert_eq!(cells(["0", "0", "0", "", "0"]), [0, 1, 2]);
        assert_eq!(cells(["0.000000", "", "", "", ""]), [0]);
        assert!(cells(["", "0", "0", "", ""]).is_empty(), "no duration is claimed");
        assert!(cells(["3.5", "0", "0", "", ""]).is_empty(), "it was measured once");
        assert!(cells(["0", "0", "0.5", "", ""]).is_empty(), "a counter was measured");
        assert!(cells(["0", "", "", "oom", ""]).is_empty(), "npubench wrote it");
        assert!(cells(["-0x", "0", "", "", ""]).is_empty());
        let header = ["Average Duration(us)", "Profiling Average Duration(us)"].map(String::from);
        let cells =
            |row: [&str; 2]| ZeroFilled::from_header(&header).find_zeros(&StringRecord::from(row.to_vec()));
        assert_eq!(cells(["0", "0"]), [0, 1]);
        assert_eq!(cells(["0", "3.5"]), [0], "a profile went in since");
        assert_eq!(cells(["3.5", "0"]), [1]);
    }

    /// The superseded tool fills the columns of production profiles too, and a run writes only the columns of the
    /// replay.
    #[test]
    fn verdict_of_the_replay_states_nothing_about_profiles() {
        let header = [
            "Average Duration(us)",
            "MicroBench Verdict",
            "Profiling Average Duration(us)",
            "Profiling Std Duration(us)",
            "Profiling Average aiv_vec_ratio",
        ];
        let zeros = ZeroFilled::from_header(&header.map(String::from));
        let cells = |row: [&str; 5]| zeros.find_zeros(&StringRecord::from(row.to_vec()));
        assert_eq!(cells(["3.5", "ok", "0", "0", "0"]), [2, 3, 4]);
        assert_eq!(cells(["0", "oom", "0", "0", ""]), [2, 3], "the zero beside the verdict is kept");
        assert!(cells(["3.5", "ok", "7", "0", "0"]).is_empty(), "a profile was measured");
        assert!(cells(["3.5", "ok", "0", "0", "0.5"]).is_empty(), "a counter of a profile was measured");
        assert!(cells(["3.5", "ok", "", "0", "0"]).is_empty(), "no duration is claimed");
    }
}
