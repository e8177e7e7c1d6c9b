//! Audits of the rows that answer workloads: a table and JSON lines.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    answer::coverage::{AuditedAnswer, AuditedQuestion},
    show::table::{DETAIL, FittedColumn, FittedRow, FittedTable},
};

/// Counts of the questions about a kernel.
#[derive(Default)]
struct AnswerCounts {
    measured: usize,
    dense: usize,
    sparse: usize,
    missing: usize,
    planned: usize,
    add: usize,
}

/// Formats the counts of each kernel, and below them the questions that rows do not answer.
pub(crate) fn question_table(audited: &[AuditedQuestion], width: Option<usize>) -> String {
    let mut kernels: BTreeMap<&str, AnswerCounts> = BTreeMap::new();
    for row in audited {
        let counts = kernels.entry(&row.kernel).or_default();
        *match row.state {
            AuditedAnswer::Measured => &mut counts.measured,
            AuditedAnswer::Dense => &mut counts.dense,
            AuditedAnswer::Sparse(_) => &mut counts.sparse,
            AuditedAnswer::Missing(_) => &mut counts.missing,
        } += 1;
        counts.planned += usize::from(row.is_planned);
        counts.add += usize::from(row.case.is_some());
    }
    let mut columns = vec![FittedColumn::text("kernel", 0).shortened_to(12)];
    columns.extend(
        [
            ("measured", 3),
            ("between rows", 4),
            ("too far apart", 1),
            ("missing", 0),
            ("planned", 2),
            ("to add", 0),
        ]
        .map(|(header, rank)| FittedColumn::number(header, rank)),
    );
    let row = |(kernel, counts): (&str, AnswerCounts)| {
        let AnswerCounts { measured, dense, sparse, missing, planned, add } = counts;
        let numbers = [measured, dense, sparse, missing, planned, add];
        let numbers = numbers.map(|count| if count == 0 { String::new() } else { count.to_string() });
        FittedRow::from_cells(&[&[kernel.to_owned()], &numbers[..]].concat())
    };
    let rows = kernels.into_iter().map(row).collect();
    let mut text = FittedTable { columns, rows, ..FittedTable::default() }.print(width, false);
    if audited.iter().any(|row| !row.is_answered()) {
        let columns = vec![
            FittedColumn::text("kernel", 0).shortened_to(12),
            FittedColumn::text("shapes", 0).shortened_to(16).wanted(24),
            FittedColumn::text("reason", DETAIL).shortened_to(14),
            FittedColumn::text("row", 0),
        ];
        let row = |row: &AuditedQuestion| {
            let action = match (row.is_planned, &row.case) {
                (true, _) => "planned",
                (false, Some(_)) => "to add",
                (false, None) => "none possible",
            };
            let cells = [row.kernel.clone(), row.shapes.clone(), reason(row), action.to_owned()];
            FittedRow::from_cells(&cells)
        };
        let rows = audited.iter().filter(|row| !row.is_answered()).map(row).collect();
        text.push('\n');
        text.push_str(&FittedTable { columns, rows, ..FittedTable::default() }.print(width, false));
    }
    text
}

fn reason(row: &AuditedQuestion) -> String {
    match &row.state {
        AuditedAnswer::Measured | AuditedAnswer::Dense => String::new(),
        AuditedAnswer::Sparse(axis) => axis.to_string(),
        AuditedAnswer::Missing(reason) => reason.clone(),
    }
}

/// An audited question in JSON.
#[derive(Serialize, JsonSchema)]
pub(crate) struct QuestionRecord<'a> {
    /// True if a row is to be added.
    add: bool,
    kernel: &'a str,
    planned: bool,
    reason: Option<String>,
    shapes: &'a str,
    state: &'static str,
}

impl<'a> QuestionRecord<'a> {
    pub(crate) fn new(row: &'a AuditedQuestion) -> Self {
        let state = match row.state {
            AuditedAnswer::Measured => "measured",
            AuditedAnswer::Dense => "between_rows",
            AuditedAnswer::Sparse(_) => "too_far_apart",
            AuditedAnswer::Missing(_) => "missing",
        };
        Self {
            add: row.case.is_some(),
            kernel: &row.kernel,
            planned: row.is_planned,
            reason: Some(reason(row)).filter(|reason| !reason.is_empty()),
            shapes: &row.shapes,
            state,
        }
    }
}
