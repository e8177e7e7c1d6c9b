//! Lists of questions that people write, in YAML or CSV.

use std::path::Path;

use serde::Deserialize;

use super::{
    DurationKind, QuestionDefaults, Workload, WorkloadError, WorkloadQuestion, source_text::parse_time,
};
use crate::{
    config::yaml::{self, Spanned},
    domain::{Nanos, nearest_name},
    lookup::{AttentionParameters, OpQuery, parse_shapes, query_tensors, split_list},
};

const HINT: &str = "docs/coverage.md lists the keys of a question";
const DEGREE_HINT: &str = "give a number of ranks from 1 on";

/// A list in YAML.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuestionFile {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    tp: Option<u64>,
    #[serde(default)]
    ep: Option<u64>,
    #[serde(default)]
    ranks: Option<u64>,
    #[serde(default)]
    tier: Option<u64>,
    #[serde(default)]
    kv_length: Option<f64>,
    questions: Vec<Spanned<QuestionEntry>>,
}

/// A question; the keys are those of a query, and `count` and `duration_us` of one invocation.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct QuestionEntry {
    op: String,
    #[serde(alias = "shapes")]
    inputs: String,
    dtypes: String,
    formats: String,
    outputs: Option<String>,
    output_dtypes: String,
    count: Option<u64>,
    duration_us: Option<f64>,
    tp: Option<u64>,
    ep: Option<u64>,
    ranks: Option<u64>,
    tier: Option<u64>,
    sequence_parallel: bool,
    kv_length: Option<f64>,
    kv_heads: Option<u64>,
    sparse_mode: Option<u8>,
    layout: Option<String>,
}

/// Columns of a list in CSV.
pub(super) struct WorkloadColumns;

impl WorkloadColumns {
    const ALL: [&str; 18] = [
        "op",
        "inputs",
        "shapes",
        "dtypes",
        "formats",
        "outputs",
        "output_dtypes",
        "count",
        "duration_us",
        "tp",
        "ep",
        "ranks",
        "tier",
        "sequence_parallel",
        "kv_length",
        "kv_heads",
        "sparse_mode",
        "layout",
    ];

    /// Returns true if a line is the header of such a list.
    pub(super) fn is_header(line: &str) -> bool {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        cells.contains(&"op") && cells.iter().all(|cell| Self::ALL.contains(cell))
    }
}

/// Parses a list in YAML.
pub(super) fn parse_yaml(path: &Path, text: &str) -> Result<Workload, WorkloadError> {
    let file: QuestionFile = yaml::parse(path, text)?;
    check_degrees([file.tp, file.ep, file.ranks])
        .map_err(|problem| WorkloadError::of_file(path, problem, DEGREE_HINT))?;
    let mut questions = Vec::new();
    for entry in file.questions {
        questions.push(question_of_entry(path, entry.defined.line(), entry.value)?);
    }
    let mut workload = Workload::new(file.name.unwrap_or_default(), DurationKind::Stated, questions);
    let QuestionFile { tp, ep, ranks, tier, kv_length, .. } = file;
    workload.set_defaults(&QuestionDefaults { tp, ep, ranks, tier, kv_length });
    Ok(workload)
}

/// Refuses groups of no ranks, of tensor and expert parallelism and of collectives.
fn check_degrees(degrees: [Option<u64>; 3]) -> Result<(), String> {
    match ["tp", "ep", "ranks"].iter().zip(degrees).find(|(_, degree)| *degree == Some(0)) {
        Some((key, _)) => Err(format!("`{key}` is 0")),
        None => Ok(()),
    }
}

/// Parses a list in CSV.
pub(super) fn parse_table(path: &Path, text: &str) -> Result<Workload, WorkloadError> {
    let mut reader = csv::ReaderBuilder::new().has_headers(true).flexible(true).from_reader(text.as_bytes());
    let header = reader.headers().cloned().unwrap_or_default();
    let columns: Vec<String> = header.iter().map(|cell| cell.trim().to_owned()).collect();
    for (at, column) in columns.iter().enumerate() {
        if !WorkloadColumns::ALL.contains(&column.as_str()) {
            let near = nearest_name(column, WorkloadColumns::ALL);
            let hint = near.map_or_else(
                || format!("a list has the columns {}", WorkloadColumns::ALL.join(", ")),
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
        let entry = entry_of_record(path, line, &columns, &record)?;
        questions.push(question_of_entry(path, line, entry)?);
    }
    Ok(Workload::new(String::new(), DurationKind::Stated, questions))
}

fn entry_of_record(
    path: &Path,
    line: u64,
    columns: &[String],
    record: &csv::StringRecord,
) -> Result<QuestionEntry, WorkloadError> {
    let mut entry = QuestionEntry::default();
    for (column, cell) in columns.iter().zip(record) {
        let cell = cell.trim();
        if cell.is_empty() {
            continue;
        }
        let wrong = |expected: &str| {
            let problem = format!("`{cell}` in column `{column}`, expected {expected}");
            WorkloadError::at_line(path, line, problem, HINT)
        };
        let whole = || cell.parse::<u64>().map_err(|_| wrong("a whole number of at least 0"));
        let number = || cell.parse::<f64>().map_err(|_| wrong("a number"));
        match column.as_str() {
            "op" => cell.clone_into(&mut entry.op),
            "inputs" | "shapes" => cell.clone_into(&mut entry.inputs),
            "dtypes" => cell.clone_into(&mut entry.dtypes),
            "formats" => cell.clone_into(&mut entry.formats),
            "outputs" => entry.outputs = Some(cell.to_owned()),
            "output_dtypes" => cell.clone_into(&mut entry.output_dtypes),
            "count" => entry.count = Some(whole()?),
            "duration_us" => entry.duration_us = Some(number()?),
            "tp" => entry.tp = Some(whole()?),
            "ep" => entry.ep = Some(whole()?),
            "ranks" => entry.ranks = Some(whole()?),
            "tier" => entry.tier = Some(whole()?),
            "sequence_parallel" => {
                entry.sequence_parallel = cell.parse().map_err(|_| wrong("`true` or `false`"))?;
            }
            "kv_length" => entry.kv_length = Some(number()?),
            "kv_heads" => entry.kv_heads = Some(whole()?),
            "sparse_mode" => entry.sparse_mode = Some(cell.parse().map_err(|_| wrong("a number up to 255"))?),
            "layout" => entry.layout = Some(cell.to_owned()),
            _ => {}
        }
    }
    Ok(entry)
}

fn question_of_entry(
    path: &Path,
    line: u64,
    entry: QuestionEntry,
) -> Result<WorkloadQuestion, WorkloadError> {
    let wrong = |problem: String, hint: &str| WorkloadError::at_line(path, line, problem, hint);
    if entry.op.trim().is_empty() {
        return Err(wrong("the question has no `op`".to_owned(), HINT));
    }
    check_degrees([entry.tp, entry.ep, entry.ranks]).map_err(|problem| wrong(problem, DEGREE_HINT))?;
    if entry.kv_length.is_some_and(|length| !(length.is_finite() && length > 0.0)) {
        return Err(wrong("`kv_length` is not a number of tokens above 0".to_owned(), HINT));
    }
    let shapes_of = |text: &str| match text.is_empty() {
        true => Ok(Vec::new()),
        false => parse_shapes(text).map_err(|problem| wrong(problem, HINT)),
    };
    let tensors = |shapes: &str, dtypes: &str, formats: &str| {
        query_tensors(&shapes_of(shapes)?, &split_list(dtypes), &split_list(formats))
            .map_err(|error| wrong(error.message, &error.hint))
    };
    let query = OpQuery {
        inputs: tensors(&entry.inputs, &entry.dtypes, &entry.formats)?,
        outputs: tensors(entry.outputs.as_deref().unwrap_or_default(), &entry.output_dtypes, "")?,
        op: entry.op.trim().to_owned(),
        tp_size: entry.tp,
        ep_size: entry.ep,
        ranks: entry.ranks,
        tier: entry.tier,
        is_sequence_parallel: entry.sequence_parallel,
        attention: AttentionParameters {
            kv_length: entry.kv_length,
            kv_heads: entry.kv_heads,
            sparse_mode: entry.sparse_mode.map(|mode| mode.to_string()),
            layout: entry.layout,
            ..AttentionParameters::default()
        },
    };
    query.check().map_err(|error| wrong(error.to_string(), "give the shapes as the framework has them"))?;
    let count = entry.count.unwrap_or(1);
    let one = entry.duration_us.map(|micros| parse_time(path, line, micros)).transpose()?;
    let time = one.map(|one| Nanos(one.0.saturating_mul(i64::try_from(count).unwrap_or(i64::MAX))));
    Ok(WorkloadQuestion { time, line: Some(line), ..WorkloadQuestion::new(query, count) })
}
