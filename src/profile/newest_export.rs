//! Choice of the newest export among the files that msprof has written beside each other.
//!
//! Every export of the same records has its time at the end of the names. A table of many rows is written in slices, as
//! `op_summary_slice_0_<yyyymmddHHMMSS>.csv`. Newer versions give all slices of an export one time, older ones give each
//! slice the second in which it was written.

use super::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ExportedFile {
    time: String,
    slice: Option<u32>,
    path: PathBuf,
}

/// Returns the files of the newest export of each table of a folder. Files without a time are kept. Slices that are incomplete are an
/// error.
pub(crate) fn newest_exports(files: Vec<PathBuf>) -> Result<Vec<PathBuf>, ProfileError> {
    let mut tables: BTreeMap<(PathBuf, String), Vec<ExportedFile>> = BTreeMap::new();
    let mut newest = Vec::new();
    for path in files {
        match parse_name(&path) {
            Some((table, file)) => tables.entry(table).or_default().push(file),
            None => newest.push(path),
        }
    }
    for files in tables.into_values() {
        newest.extend(newest_of_table(files)?);
    }
    newest.sort();
    Ok(newest)
}

/// Splits a path into the folder and name of the table, and the slice and the time; `None` without a time.
fn parse_name(path: &Path) -> Option<((PathBuf, String), ExportedFile)> {
    let (table, time) = path.file_stem()?.to_str()?.rsplit_once('_')?;
    if time.len() != 14 || !time.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let sliced = table.rsplit_once("_slice_").and_then(|(table, slice)| Some((table, slice.parse().ok()?)));
    let (table, slice) = sliced.map_or((table, None), |(table, slice)| (table, Some(slice)));
    let table = (path.parent()?.to_owned(), table.to_owned());
    Some((table, ExportedFile { time: time.to_owned(), slice, path: path.to_owned() }))
}

fn newest_of_table(mut files: Vec<ExportedFile>) -> Result<Vec<PathBuf>, ProfileError> {
    files.sort();
    let Some(last) = files.last() else { return Ok(Vec::new()) };
    let Some(count) = last.slice else {
        let newest = files.iter().filter(|file| file.slice.is_none() && file.time == last.time);
        return Ok(newest.map(|file| file.path.clone()).collect());
    };
    let incomplete = |problem: String| ProfileError::IncompleteExport { file: last.path.clone(), problem };
    // The slices of an export are written in the order of their numbers.
    let mut slices = files.iter().rev();
    let mut newest = Vec::new();
    for number in (0..=count).rev() {
        match slices.next() {
            Some(file) if file.slice == Some(number) => newest.push(file.path.clone()),
            Some(file) if file.slice.is_some_and(|slice| slice > number) => {
                return Err(incomplete(format!(
                    "slice {number} of its export is missing or older than slice {}",
                    number + 1
                )));
            }
            _ => return Err(incomplete(format!("slice {number} of its export is missing"))),
        }
    }
    // An export that was interrupted has the first slices only.
    match slices.filter_map(|file| file.slice).max() {
        Some(older) if older > count => Err(incomplete(format!(
            "an older export in the folder has slice {older}, this one ends with slice {count}"
        ))),
        _ => Ok(newest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The files that are read, or the problem.
    fn newest(names: &[&str]) -> Result<Vec<String>, String> {
        let files = names.iter().map(PathBuf::from).collect();
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        newest_exports(files)
            .map(|files| files.into_iter().map(text).collect())
            .map_err(|error| error.to_string())
    }

    fn slice(number: u32, second: u32) -> String {
        format!("op_summary_slice_{number}_202309191723{second:02}.csv")
    }

    /// The times of the first two are taken from the vendor's own tests.
    #[test]
    fn slices_of_different_seconds_are_one_export() {
        let all = [slice(0, 4), slice(1, 5), slice(2, 5)];
        assert_eq!(newest(&all.each_ref().map(String::as_str)), Ok(all.to_vec()));
    }

    #[test]
    fn older_exports_are_left_out_as_a_whole() {
        let older = [slice(0, 4), slice(1, 5)];
        let newer = [slice(0, 9), slice(1, 10)];
        let files = [&older[..], &newer[..]].concat();
        let names: Vec<&str> = files.iter().map(String::as_str).collect();
        assert_eq!(newest(&names), Ok(newer.to_vec()));
        let whole = "op_summary_20230919172330.csv";
        assert_eq!(newest(&[&names[..], &[whole]].concat()), Ok(vec![whole.to_owned()]));
        let early = "op_summary_20230919172300.csv";
        assert_eq!(newest(&[&names[..], &[early]].concat()), Ok(newer.to_vec()));
    }

    #[test]
    fn missing_and_repeated_slices_are_refused() {
        let problem = |slices: &[(u32, u32)]| {
            let files: Vec<String> = slices.iter().map(|(number, second)| slice(*number, *second)).collect();
            newest(&files.iter().map(String::as_str).collect::<Vec<_>>()).expect_err("incomplete")
        };
        assert!(problem(&[(0, 4), (2, 6)]).contains("slice 1 of its export is missing"));
        assert!(problem(&[(1, 4)]).contains("slice 0 of its export is missing"));
        assert!(problem(&[(0, 4), (1, 5), (1, 6)]).contains("slice 0 of its export is missing or older"));
        assert!(problem(&[(0, 4), (1, 5), (2, 6), (0, 9), (1, 9)]).contains("has slice 2"));
        assert!(problem(&[(0, 4), (1, 5), (0, 9)]).contains("has slice 1"));
    }

    #[test]
    fn tables_of_several_devices_are_chosen_one_by_one() {
        let files = [
            "op_summary_0_1_1_20230905213000.csv",
            "op_summary_0_1_1_20230905213500.csv",
            "op_summary_1_1_1_20230905213001.csv",
            "op_summary_2_1.csv",
        ];
        assert_eq!(newest(&files), Ok(files[1..].iter().map(|name| (*name).to_owned()).collect()));
    }
}
