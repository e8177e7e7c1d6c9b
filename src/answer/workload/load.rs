//! Recognition of a workload's kind by its content.

use std::{
    collections::BTreeMap,
    io::Read as _,
    path::{Path, PathBuf},
};

use serde_json::value::RawValue;

use super::{
    Workload, WorkloadError, chrome_trace, inventory,
    plain::{self, WorkloadColumns},
    profile_records,
};
use crate::base::files::open_regular;
use crate::base::json_error::json_message;

/// Bytes at the start of a file by which its kind is recognised.
const START: u64 = 1 << 16;
/// Size limit of files that are read as a whole.
const MOST_BYTES: u64 = 1 << 30;
const SQLITE: &[u8] = b"SQLite format 3\0";

const KINDS: &str = "give kernel_details.csv or op_summary_*.csv of a run or its folder, an inventory or a chrome trace of a \
                     simulator, or a list of questions in YAML or CSV (docs/coverage.md)";

enum WorkloadKind {
    Profile,
    Trace,
    Json,
    PlainTable,
    PlainYaml,
}

/// Reads a workload. Its kind follows from the content: a profile (also a folder), an inventory or a chrome trace of a
/// simulator, or a list of questions in YAML or CSV.
pub fn load_workload(path: &Path) -> Result<Workload, WorkloadError> {
    let mut workload = match kind_of(path)? {
        WorkloadKind::Profile => profile_records::read_profile(path)?,
        WorkloadKind::Trace => chrome_trace::read_trace(path)?,
        WorkloadKind::Json => read_json(path)?,
        WorkloadKind::PlainTable => plain::parse_table(path, &read_text(path)?)?,
        WorkloadKind::PlainYaml => plain::parse_yaml(path, &read_text(path)?)?,
    };
    if workload.invocations() == 0 {
        return Err(WorkloadError::of_file(path, "has no invocations", KINDS));
    }
    if let Some((line, problem)) = workload.excess() {
        let hint = "correct the counts and durations";
        return Err(match line {
            Some(line) => WorkloadError::at_line(path, line, problem, hint),
            None => WorkloadError::of_file(path, problem, hint),
        });
    }
    if workload.name.is_empty() {
        workload.name = path.display().to_string();
    }
    workload.leave_out_unused();
    Ok(workload)
}

fn kind_of(path: &Path) -> Result<WorkloadKind, WorkloadError> {
    let failed =
        |error: std::io::Error| WorkloadError::of_file(path, format!("cannot be read: {error}"), KINDS);
    if path.is_dir() {
        return Ok(WorkloadKind::Profile);
    }
    let mut start = Vec::new();
    open_regular(path).map_err(failed)?.take(START).read_to_end(&mut start).map_err(failed)?;
    if start.starts_with(SQLITE) || start.starts_with(b"version https://git-lfs") {
        return Ok(WorkloadKind::Profile);
    }
    let text = String::from_utf8_lossy(start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&start)).into_owned();
    let text = text.trim_start();
    Ok(match text.as_bytes().first() {
        None => return Err(WorkloadError::of_file(path, "is empty", KINDS)),
        Some(b'[') => WorkloadKind::Trace,
        Some(b'{') if text.contains("\"traceEvents\"") => WorkloadKind::Trace,
        Some(b'{') => WorkloadKind::Json,
        Some(_) => {
            let first = text.lines().next().unwrap_or_default();
            let is_kernel_table = ["Type", "OP Type", "Input Shapes"]
                .iter()
                .any(|name| first.split(',').any(|cell| cell.trim() == *name));
            let is_named_table = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("csv"));
            match () {
                () if is_kernel_table => WorkloadKind::Profile,
                () if is_named_table || WorkloadColumns::is_header(first) => WorkloadKind::PlainTable,
                () => WorkloadKind::PlainYaml,
            }
        }
    })
}

fn read_text(path: &Path) -> Result<String, WorkloadError> {
    let failed =
        |error: std::io::Error| WorkloadError::of_file(path, format!("cannot be read: {error}"), KINDS);
    let mut bytes = Vec::new();
    open_regular(path).map_err(failed)?.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(WorkloadError::of_file(path, format!("has more than {MOST_BYTES} bytes"), KINDS));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
        WorkloadError::at_line(path, line, "is not UTF-8", KINDS)
    })?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// Reads an object: an inventory, a trace whose events begin late, or a list of questions, since JSON is YAML.
fn read_json(path: &Path) -> Result<Workload, WorkloadError> {
    let text = read_text(path)?;
    let keys: BTreeMap<String, &RawValue> = match serde_json::from_str(&text) {
        Ok(keys) => keys,
        // YAML in braces.
        Err(_) if !text.contains('"') => return plain::parse_yaml(path, &text),
        Err(error) => {
            return Err(WorkloadError::at_line(path, error.line() as u64, json_message(&error), KINDS));
        }
    };
    match () {
        () if keys.contains_key("ops") => inventory::parse_inventory(path, &text, &keys),
        () if keys.contains_key("traceEvents") => chrome_trace::read_trace(path),
        () if keys.contains_key("questions") => plain::parse_yaml(path, &text),
        () => {
            let found: Vec<String> = keys.keys().take(8).map(|key| format!("`{key}`")).collect();
            let problem = format!(
                "is JSON with the keys {}, expected `ops` (an inventory), `traceEvents` (a trace) or `questions`",
                found.join(", ")
            );
            Err(WorkloadError::of_file(path, problem, KINDS))
        }
    }
}

/// Parses `FILE` or `FILE=WEIGHT`. A path that exists as it is has weight 1.
pub fn parse_weighted_path(argument: &str) -> Result<(PathBuf, f64), String> {
    let whole = Path::new(argument);
    match argument.rsplit_once('=') {
        // A folder may have an `=` in its name.
        Some((path, weight)) if !whole.exists() && !weight.contains('/') => {
            let number = weight.trim().parse::<f64>().ok();
            match number.filter(|weight| weight.is_finite() && *weight > 0.0 && *weight <= 1e12) {
                Some(weight) => Ok((PathBuf::from(path), weight)),
                None => Err(format!("the weight `{weight}` is no number above 0")),
            }
        }
        _ => Ok((whole.to_owned(), 1.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_stand_behind_the_last_equals_sign() {
        assert_eq!(parse_weighted_path("a.csv"), Ok((PathBuf::from("a.csv"), 1.0)));
        assert_eq!(parse_weighted_path("a=b.csv=2.5"), Ok((PathBuf::from("a=b.csv"), 2.5)));
        for wrong in ["a.csv=x", "a.csv=", "a.csv=0", "a.csv=-1", "a.csv=nan", "a.csv=inf"] {
            assert!(parse_weighted_path(wrong).is_err(), "{wrong}");
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tp=4");
        std::fs::write(&path, "").expect("written");
        let argument = path.to_str().expect("text");
        let missing = format!("{argument}/missing.csv");
        assert_eq!(parse_weighted_path(&missing), Ok((PathBuf::from(&missing), 1.0)));
        assert_eq!(parse_weighted_path(argument), Ok((path.clone(), 1.0)));
        assert_eq!(parse_weighted_path(&format!("{argument}=3")), Ok((path, 3.0)));
    }
}
