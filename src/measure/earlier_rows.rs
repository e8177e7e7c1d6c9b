//! Results that rows had before a run, as a file in the folder of the run.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::Path,
};

use crate::{
    base::files::{FileError, atomic::write_atomic},
    cases::plan::EarlierResult,
    kernel::CaseId,
};

/// File of the results that the rows of planned cases had before a run; missing if none had one.
const FILE: &str = "earlier_rows.csv";
const HEADER: [&str; 3] = ["case", "median_us", "average_us"];

/// Writes the results that rows had before a run into its folder.
pub(crate) fn write_earlier_rows(
    folder: &Path,
    results: &BTreeMap<CaseId, EarlierResult>,
) -> Result<(), FileError> {
    if results.is_empty() {
        return Ok(());
    }
    let mut text = HEADER.join(",") + "\n";
    for (case, EarlierResult { median_us, average_us }) in results {
        let [median, average] =
            [median_us, average_us].map(|value| value.map_or_else(String::new, |us| us.to_string()));
        text += &format!("{case},{median},{average}\n");
    }
    fs::create_dir_all(folder).map_err(FileError::io("create", folder))?;
    write_atomic(&folder.join(FILE), text.as_bytes())
}

/// Reads the results that rows had before a run; empty if the file is missing. Lines that are not
/// such results are left out.
pub(crate) fn read_earlier_rows(folder: &Path) -> HashMap<CaseId, EarlierResult> {
    let text = fs::read_to_string(folder.join(FILE)).unwrap_or_default();
    let mut lines = text.lines();
    if lines.next() != Some(HEADER.join(",").as_str()) {
        return HashMap::new();
    }
    let result = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        let [case, median, average] = cells.as_slice() else { return None };
        let [median_us, average_us] =
            [median, average].map(|cell| cell.parse::<f64>().ok().filter(|us| us.is_finite() && *us > 0.0));
        Some((CaseId::from_stored((*case).to_owned()), EarlierResult { median_us, average_us }))
    };
    lines.filter_map(result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_back_and_other_lines_left_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let [first, second] = ["00000000000000aa", "00000000000000bb"].map(CaseId::from_stored);
        let results = BTreeMap::from([
            (first.clone(), EarlierResult { median_us: Some(12.34), average_us: Some(12.5) }),
            (second.clone(), EarlierResult { median_us: None, average_us: Some(3.0) }),
        ]);
        write_earlier_rows(folder.path(), &results).expect("written");
        let path = folder.path().join(FILE);
        let text = fs::read_to_string(&path).expect("readable");
        fs::write(&path, text + "00000000000000cc,nan,-1\nnot a line\n").expect("written");
        let read = read_earlier_rows(folder.path());
        assert_eq!((read.get(&first), read.get(&second)), (results.get(&first), results.get(&second)));
        assert_eq!(read.get(&CaseId::from_stored("00000000000000cc")), Some(&EarlierResult::default()));
        assert_eq!(read.len(), 3);
        fs::write(&path, "case,median\n00000000000000aa,1\n").expect("written");
        assert!(read_earlier_rows(folder.path()).is_empty());
    }
}
