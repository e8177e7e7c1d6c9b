//! Loading of a workload, whose kind is recognised by its content, and lists of questions that people write in YAML or CSV.

use std::{
    collections::BTreeMap,
    io::Read as _,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    DurationKind, QuestionDefaults, Workload, WorkloadQuestion, parse_inventory, profile_records, read_trace,
};
use crate::{
    answer::lookup::{QueryFields, check_degrees, check_kv_length},
    base::{
        command_error::CommandError,
        count_text::format_count,
        files::{MAX_DOCUMENT, open_regular, read_regular},
        json_error::json_message,
        suggest::did_you_mean_or,
        yaml::{self, Spanned},
    },
    kernel::{Nanos, NoKernelDuration, is_kernel_micros},
};

const START: u64 = 1 << 16;
/// Bytes of an inventory, which may be a trace whose events begin late.
const MAX_BYTES: u64 = 1 << 30;
const MAX_INVOCATIONS: u64 = 1 << 52;
/// Maximum nanoseconds of a workload: ten years.
pub(crate) const MAX_TIME: i64 = 320_000_000_000_000_000;
const SQLITE: &[u8] = b"SQLite format 3\0";

const KINDS: &str = "give kernel_details.csv or op_summary_*.csv of a run or its folder, an inventory or a chrome trace of a \
                     simulator, or a list of questions in YAML or CSV (docs/coverage.md)";

/// Reads a workload. Its kind follows from the content: a profile (also a folder), an inventory or a chrome trace of a
/// simulator, or a list of questions in YAML or CSV.
pub fn load_workload(path: &Path) -> Result<Workload, CommandError> {
    let mut workload = read_workload(path)?;
    if workload.invocations() == 0 {
        return Err(CommandError::in_file(path, None, "has no invocations", KINDS));
    }
    check_sums(path, &workload)?;
    if workload.name.is_empty() {
        workload.name = path.display().to_string();
    }
    let all = workload.questions.len();
    workload.questions.retain(|question| question.count > 0);
    let unused = all - workload.questions.len();
    if unused > 0 {
        let unused = format_count(unused, "question");
        workload.notes.push(format!("`{}`: left out: {unused} with a count of 0", workload.name));
    }
    Ok(workload)
}

/// Refuses sums beyond which those of several workloads may overflow, or are no exact floating-point numbers.
fn check_sums(path: &Path, workload: &Workload) -> Result<(), CommandError> {
    let (mut count, mut time) = (0_u64, 0_i64);
    for question in &workload.questions {
        count = count.saturating_add(question.count);
        time = time.saturating_add(question.time.map_or(0, |time| time.0));
        let problem = if count > MAX_INVOCATIONS {
            format!("the counts up to here add up to more than {MAX_INVOCATIONS} invocations")
        } else if time > MAX_TIME {
            "the times up to here add up to more than ten years".to_owned()
        } else {
            continue;
        };
        let hint = "correct the counts and durations";
        return Err(CommandError::in_file(path, question.line, problem, hint));
    }
    Ok(())
}

fn unreadable(path: &Path, error: &std::io::Error) -> CommandError {
    CommandError::in_file(path, None, format!("cannot be read: {error}"), KINDS)
}

fn read_workload(path: &Path) -> Result<Workload, CommandError> {
    if path.is_dir() {
        return profile_records::read_profile(path);
    }
    let mut start = Vec::new();
    let read = open_regular(path).and_then(|file| file.take(START).read_to_end(&mut start));
    read.map_err(|error| unreadable(path, &error))?;
    if start.starts_with(SQLITE) || start.starts_with(b"version https://git-lfs") {
        return profile_records::read_profile(path);
    }
    let text = String::from_utf8_lossy(start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&start)).into_owned();
    let text = text.trim_start();
    let first = text.lines().next().unwrap_or_default();
    let is_kernel_table =
        first.split(',').any(|cell| matches!(cell.trim(), "Type" | "OP Type" | "Input Shapes"));
    let is_named_table = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("csv"));
    match text.as_bytes().first() {
        None => Err(CommandError::in_file(path, None, "is empty", KINDS)),
        Some(b'[') => read_trace(path),
        Some(b'{') if text.contains("\"traceEvents\"") => read_trace(path),
        Some(b'{') => read_json(path),
        Some(_) if is_kernel_table => profile_records::read_profile(path),
        Some(_) if is_named_table || is_header(first) => parse_table(path, &read_text(path, MAX_DOCUMENT)?),
        Some(_) => parse_yaml(path, &read_text(path, MAX_DOCUMENT)?),
    }
}

fn read_text(path: &Path, max: u64) -> Result<String, CommandError> {
    let bytes = read_regular(path, max).map_err(|error| unreadable(path, &error))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
        CommandError::in_file(path, Some(line), "is not UTF-8", KINDS)
    })?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// Reads an object: an inventory, a trace whose events begin late, or a list of questions, since JSON is YAML.
fn read_json(path: &Path) -> Result<Workload, CommandError> {
    let text = read_text(path, MAX_BYTES)?;
    let keys: BTreeMap<String, &RawValue> = match serde_json::from_str(&text) {
        Ok(keys) => keys,
        // YAML in braces.
        Err(_) if !text.contains('"') => return parse_yaml(path, &text),
        Err(error) => {
            return Err(CommandError::in_file(path, Some(error.line() as u64), json_message(&error), KINDS));
        }
    };
    match () {
        () if keys.contains_key("ops") => parse_inventory(path, &text, &keys),
        () if keys.contains_key("traceEvents") => read_trace(path),
        () if keys.contains_key("questions") => parse_yaml(path, &text),
        () => {
            let found: Vec<String> = keys.keys().take(8).map(|key| format!("`{key}`")).collect();
            let problem = format!(
                "is JSON with the keys {}, expected `ops` (an inventory), `traceEvents` (a trace) or `questions`",
                found.join(", ")
            );
            Err(CommandError::in_file(path, None, problem, KINDS))
        }
    }
}

pub(super) fn line_of(text: &str, part: &str) -> u64 {
    let offset = (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize).min(text.len());
    text.as_bytes()[..offset].iter().filter(|byte| **byte == b'\n').count() as u64 + 1
}

/// Returns the duration of one invocation; 0 stands for none.
fn parse_duration(path: &Path, line: u64, micros: f64) -> Result<Nanos, CommandError> {
    match micros == 0.0 || is_kernel_micros(micros) {
        true => parse_time(path, line, micros),
        false => {
            let problem = format!("the duration {micros:e} us {NoKernelDuration}");
            Err(CommandError::in_file(path, Some(line), problem, "give the microseconds of one invocation"))
        }
    }
}

/// Returns the time of all invocations together.
pub(super) fn parse_time(path: &Path, line: u64, micros: f64) -> Result<Nanos, CommandError> {
    // Ten years; sums of such times do not overflow.
    const MAX: f64 = 3.2e14;
    match micros.is_finite() && (0.0..=MAX).contains(&micros) {
        true => Ok(Nanos::from_seconds(micros * 1e-6)),
        false => {
            let problem = format!("the duration {micros:?} us is not between 0 and {MAX:?}");
            Err(CommandError::in_file(path, Some(line), problem, "give microseconds"))
        }
    }
}

const MAX_WEIGHT: f64 = 1e12;

/// Parses `FILE` or `FILE=WEIGHT`. A path that exists as it is has weight 1.
pub fn parse_weighted_path(argument: &str) -> Result<(PathBuf, f64), String> {
    let whole = Path::new(argument);
    match argument.rsplit_once('=') {
        // A folder may have an `=` in its name.
        Some((path, weight)) if !whole.exists() && !weight.contains('/') => {
            let number = weight.trim().parse::<f64>().ok();
            match number.filter(|weight| weight.is_finite() && *weight > 0.0 && *weight <= MAX_WEIGHT) {
                Some(weight) => Ok((PathBuf::from(path), weight)),
                None => Err(format!("the weight `{weight}` is no number above 0 and at most {MAX_WEIGHT:e}")),
            }
        }
        _ => Ok((whole.to_owned(), 1.0)),
    }
}

const HINT: &str = "docs/coverage.md lists the keys of a question";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuestionFile {
    name: Option<String>,
    tp: Option<u64>,
    ep: Option<u64>,
    ranks: Option<u64>,
    tier: Option<u64>,
    kv_length: Option<f64>,
    questions: Vec<Spanned<QueryFields>>,
}

pub(super) fn is_header(line: &str) -> bool {
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    cells.contains(&"op") && cells.iter().all(|cell| QueryFields::keys().any(|key| key == *cell))
}

pub(super) fn parse_yaml(path: &Path, text: &str) -> Result<Workload, CommandError> {
    let QuestionFile { name, tp, ep, ranks, tier, kv_length, questions } = yaml::parse(path, text)?;
    for (key, checked) in [
        ("tp", check_degrees([tp, None, None])),
        ("ep", check_degrees([None, ep, None])),
        ("ranks", check_degrees([None, None, ranks])),
        ("kv_length", check_kv_length(kv_length)),
    ] {
        let line = || yaml::find_value(text, &[key]).line();
        checked.map_err(|error| CommandError::in_file(path, Some(line()), error.message, error.hint))?;
    }
    let questions =
        questions.into_iter().map(|entry| question_of_fields(path, entry.defined.line(), entry.value));
    let questions = questions.collect::<Result<_, _>>()?;
    let mut workload = Workload::new(name.unwrap_or_default(), DurationKind::Stated, questions);
    workload.set_defaults(&QuestionDefaults { tp, ep, ranks, tier, kv_length, dtypes: Vec::new() });
    Ok(workload)
}

pub(super) fn parse_table(path: &Path, text: &str) -> Result<Workload, CommandError> {
    let mut reader = csv::ReaderBuilder::new().has_headers(true).flexible(true).from_reader(text.as_bytes());
    let header = reader.headers().cloned().unwrap_or_default();
    let columns: Vec<String> = header.iter().map(|cell| cell.trim().to_owned()).collect();
    for (at, column) in columns.iter().enumerate() {
        if QueryFields::keys().all(|key| key != column) {
            let hint = did_you_mean_or(column, QueryFields::keys(), || {
                format!("a list has the columns {}", QueryFields::keys().collect::<Vec<_>>().join(", "))
            });
            return Err(CommandError::in_file(path, Some(1), format!("unknown column `{column}`"), hint));
        }
        if columns[..at].contains(column) {
            let problem = format!("a second column `{column}`");
            return Err(CommandError::in_file(path, Some(1), problem, "remove one of them"));
        }
    }
    if !columns.iter().any(|column| column == "op") {
        return Err(CommandError::in_file(path, Some(1), "the header lacks `op`", HINT));
    }
    let mut questions = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| CommandError::in_file(path, None, error.to_string(), HINT))?;
        let line = record.position().map_or(0, csv::Position::line);
        if record.len() != columns.len() {
            let problem = format!("{} fields, the header has {}", record.len(), columns.len());
            return Err(CommandError::in_file(path, Some(line), problem, "shapes with commas need quotes"));
        }
        let mut fields = serde_json::Map::new();
        for (column, cell) in columns.iter().zip(record.iter().map(str::trim)) {
            if !cell.is_empty() {
                let value = QueryFields::value_of_text(column, cell).map_err(|expected| {
                    let problem = format!("`{cell}` in column `{column}`, expected {expected}");
                    CommandError::in_file(path, Some(line), problem, HINT)
                })?;
                fields.insert(column.clone(), value);
            }
        }
        let fields = serde_json::from_value(fields.into())
            .map_err(|error| CommandError::in_file(path, Some(line), error.to_string(), HINT))?;
        questions.push(question_of_fields(path, line, fields)?);
    }
    Ok(Workload::new(String::new(), DurationKind::Stated, questions))
}

fn question_of_fields(
    path: &Path,
    line: u64,
    mut fields: QueryFields,
) -> Result<WorkloadQuestion, CommandError> {
    let (count, duration) = (fields.count.take().unwrap_or(1), fields.duration_us.take());
    let query = fields
        .into_query()
        .map_err(|error| CommandError::in_file(path, Some(line), error.message, error.hint))?;
    let one = duration.map(|micros| parse_duration(path, line, micros)).transpose()?;
    let product = |one: Nanos| {
        let time = i64::try_from(count).ok().and_then(|count| one.0.checked_mul(count));
        time.map(Nanos).ok_or_else(|| {
            let problem = format!("{count} invocations of this duration are more than 292 years");
            let hint = "correct `count` or `duration_us`, which is that of one invocation";
            CommandError::in_file(path, Some(line), problem, hint)
        })
    };
    let time = one.map(product).transpose()?;
    Ok(WorkloadQuestion { time, line: Some(line), ..WorkloadQuestion::new(query, count) })
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
