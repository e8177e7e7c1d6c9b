//! Lists of questions that people write, in YAML or CSV.

use std::path::Path;

use serde::Deserialize;

use super::{DurationKind, QuestionDefaults, Workload, WorkloadError, WorkloadQuestion, parse_time};
use crate::{
    answer::lookup::{QueryFields, check_degrees, check_kv_length},
    base::{
        suggest::did_you_mean_or,
        yaml::{self, Spanned},
    },
    kernel::Nanos,
};

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

pub(super) fn parse_yaml(path: &Path, text: &str) -> Result<Workload, WorkloadError> {
    let QuestionFile { name, tp, ep, ranks, tier, kv_length, questions } = yaml::parse(path, text)?;
    for (key, checked) in [
        ("tp", check_degrees([tp, None, None])),
        ("ep", check_degrees([None, ep, None])),
        ("ranks", check_degrees([None, None, ranks])),
        ("kv_length", check_kv_length(kv_length)),
    ] {
        let line = || yaml::find_value(text, &[key]).line();
        checked.map_err(|error| WorkloadError::at_line(path, line(), error.message, error.hint))?;
    }
    let questions =
        questions.into_iter().map(|entry| question_of_fields(path, entry.defined.line(), entry.value));
    let questions = questions.collect::<Result<_, _>>()?;
    let mut workload = Workload::new(name.unwrap_or_default(), DurationKind::Stated, questions);
    workload.set_defaults(&QuestionDefaults { tp, ep, ranks, tier, kv_length, dtypes: Vec::new() });
    Ok(workload)
}

pub(super) fn parse_table(path: &Path, text: &str) -> Result<Workload, WorkloadError> {
    let mut reader = csv::ReaderBuilder::new().has_headers(true).flexible(true).from_reader(text.as_bytes());
    let header = reader.headers().cloned().unwrap_or_default();
    let columns: Vec<String> = header.iter().map(|cell| cell.trim().to_owned()).collect();
    for (at, column) in columns.iter().enumerate() {
        if QueryFields::keys().all(|key| key != column) {
            let hint = did_you_mean_or(column, QueryFields::keys(), || {
                format!("a list has the columns {}", QueryFields::keys().collect::<Vec<_>>().join(", "))
            });
            return Err(WorkloadError::at_line(path, 1, format!("unknown column `{column}`"), hint));
        }
        if columns[..at].contains(column) {
            let problem = format!("a second column `{column}`");
            return Err(WorkloadError::at_line(path, 1, problem, "remove one of them"));
        }
    }
    if !columns.iter().any(|column| column == "op") {
        return Err(WorkloadError::at_line(path, 1, "the header lacks `op`", HINT));
    }
    let mut questions = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| WorkloadError::of_file(path, error.to_string(), HINT))?;
        let line = record.position().map_or(0, csv::Position::line);
        if record.len() != columns.len() {
            let problem = format!("{} fields, the header has {}", record.len(), columns.len());
            return Err(WorkloadError::at_line(path, line, problem, "shapes with commas need quotes"));
        }
        let mut fields = serde_json::Map::new();
        for (column, cell) in columns.iter().zip(record.iter().map(str::trim)) {
            if !cell.is_empty() {
                let value = QueryFields::value_of_text(column, cell).map_err(|expected| {
                    let problem = format!("`{cell}` in column `{column}`, expected {expected}");
                    WorkloadError::at_line(path, line, problem, HINT)
                })?;
                fields.insert(column.clone(), value);
            }
        }
        let fields = serde_json::from_value(fields.into())
            .map_err(|error| WorkloadError::at_line(path, line, error.to_string(), HINT))?;
        questions.push(question_of_fields(path, line, fields)?);
    }
    Ok(Workload::new(String::new(), DurationKind::Stated, questions))
}

fn question_of_fields(
    path: &Path,
    line: u64,
    fields: QueryFields,
) -> Result<WorkloadQuestion, WorkloadError> {
    let (count, duration) = (fields.count.unwrap_or(1), fields.duration_us);
    let query = QueryFields { count: None, duration_us: None, ..fields }.into_query();
    let query = query.map_err(|error| WorkloadError::at_line(path, line, error.message, error.hint))?;
    let one = duration.map(|micros| parse_time(path, line, micros)).transpose()?;
    let product = |one: Nanos| {
        let time = i64::try_from(count).ok().and_then(|count| one.0.checked_mul(count));
        time.map(Nanos).ok_or_else(|| {
            let problem = format!("{count} invocations of this duration are more than 292 years");
            let hint = "correct `count` or `duration_us`, which is that of one invocation";
            WorkloadError::at_line(path, line, problem, hint)
        })
    };
    let time = one.map(product).transpose()?;
    Ok(WorkloadQuestion { time, line: Some(line), ..WorkloadQuestion::new(query, count) })
}
