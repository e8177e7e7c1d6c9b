//! Lists of questions that people write, in YAML or CSV.

use std::path::Path;

use serde::Deserialize;

use super::{
    DurationKind, QuestionDefaults, Workload, WorkloadError, WorkloadQuestion, source_text::parse_time,
};
use crate::{
    answer::lookup::{QueryFields, QueryTextError, check_degrees, check_kv_length},
    base::{
        suggest::nearest_name,
        yaml::{self, Spanned},
    },
    kernel::Nanos,
};

const HINT: &str = "docs/coverage.md lists the keys of a question";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuestionFile {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    tp: Option<Spanned<u64>>,
    #[serde(default)]
    ep: Option<Spanned<u64>>,
    #[serde(default)]
    ranks: Option<Spanned<u64>>,
    #[serde(default)]
    tier: Option<u64>,
    #[serde(default)]
    kv_length: Option<Spanned<f64>>,
    questions: Vec<Spanned<QueryFields>>,
}

impl QuestionFile {
    /// Returns the parameters of all questions. The error has the line of a wrong one.
    fn defaults(&self, path: &Path) -> Result<QuestionDefaults, WorkloadError> {
        let of_line = |line: u64, checked: Result<(), QueryTextError>| {
            checked.map_err(|error| WorkloadError::at_line(path, line, error.message, error.hint))
        };
        for (at, degree) in [&self.tp, &self.ep, &self.ranks].into_iter().enumerate() {
            if let Some(degree) = degree {
                let mut degrees = [None; 3];
                degrees[at] = Some(degree.value);
                of_line(degree.defined.line(), check_degrees(degrees))?;
            }
        }
        if let Some(length) = &self.kv_length {
            of_line(length.defined.line(), check_kv_length(Some(length.value)))?;
        }
        let degree = |degree: &Option<Spanned<u64>>| degree.as_ref().map(|degree| degree.value);
        Ok(QuestionDefaults {
            tp: degree(&self.tp),
            ep: degree(&self.ep),
            ranks: degree(&self.ranks),
            tier: self.tier,
            kv_length: self.kv_length.as_ref().map(|length| length.value),
        })
    }
}

pub(super) struct WorkloadColumns;

impl WorkloadColumns {
    pub(super) fn is_header(line: &str) -> bool {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        cells.contains(&"op") && cells.iter().all(|cell| QueryFields::KEYS.contains(cell))
    }
}

pub(super) fn parse_yaml(path: &Path, text: &str) -> Result<Workload, WorkloadError> {
    let file: QuestionFile = yaml::parse(path, text)?;
    let defaults = file.defaults(path)?;
    let mut questions = Vec::new();
    for entry in file.questions {
        questions.push(question_of_fields(path, entry.defined.line(), entry.value)?);
    }
    let mut workload = Workload::new(file.name.unwrap_or_default(), DurationKind::Stated, questions);
    workload.set_defaults(&defaults);
    Ok(workload)
}

pub(super) fn parse_table(path: &Path, text: &str) -> Result<Workload, WorkloadError> {
    let mut reader = csv::ReaderBuilder::new().has_headers(true).flexible(true).from_reader(text.as_bytes());
    let header = reader.headers().cloned().unwrap_or_default();
    let columns: Vec<String> = header.iter().map(|cell| cell.trim().to_owned()).collect();
    for (at, column) in columns.iter().enumerate() {
        if !QueryFields::KEYS.contains(&column.as_str()) {
            let near = nearest_name(column, QueryFields::KEYS);
            let hint = near.map_or_else(
                || format!("a list has the columns {}", QueryFields::KEYS.join(", ")),
                |near| format!("did you mean `{near}`?"),
            );
            return Err(WorkloadError::at_line(path, 1, format!("unknown column `{column}`"), hint));
        }
        if columns[..at].contains(column) {
            return Err(WorkloadError::at_line(
                path,
                1,
                format!("a second column `{column}`"),
                "remove one of them",
            ));
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
        let fields = fields_of_record(path, line, &columns, &record)?;
        questions.push(question_of_fields(path, line, fields)?);
    }
    Ok(Workload::new(String::new(), DurationKind::Stated, questions))
}

fn fields_of_record(
    path: &Path,
    line: u64,
    columns: &[String],
    record: &csv::StringRecord,
) -> Result<QueryFields, WorkloadError> {
    let mut fields = QueryFields::default();
    for (column, cell) in columns.iter().zip(record) {
        let cell = cell.trim();
        if cell.is_empty() {
            continue;
        }
        fields.set_text(column, cell).map_err(|expected| {
            let problem = format!("`{cell}` in column `{column}`, expected {expected}");
            WorkloadError::at_line(path, line, problem, HINT)
        })?;
    }
    Ok(fields)
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
            WorkloadError::at_line(
                path,
                line,
                problem,
                "correct `count` or `duration_us`, which is that of one invocation",
            )
        })
    };
    let time = one.map(product).transpose()?;
    Ok(WorkloadQuestion { time, line: Some(line), ..WorkloadQuestion::new(query, count) })
}
