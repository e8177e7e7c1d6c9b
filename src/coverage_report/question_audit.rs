//! Audits of the rows that answer workloads: a table and JSON lines.

use std::collections::BTreeMap;

use serde_json::json;

use crate::{
    coverage::{AuditedAnswer, AuditedQuestion},
    report::{align_right, plain_table, trim_lines},
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
pub(crate) fn question_table(audited: &[AuditedQuestion]) -> String {
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
    let mut table = plain_table(
        ["kernel", "measured", "between rows", "too far apart", "missing", "planned", "to add"]
            .map(str::to_owned),
    );
    for (kernel, counts) in kernels {
        let AnswerCounts { measured, dense, sparse, missing, planned, add } = counts;
        let numbers = [measured, dense, sparse, missing, planned, add];
        let numbers = numbers.map(|count| if count == 0 { String::new() } else { count.to_string() });
        table.add_row(std::iter::once(kernel.to_owned()).chain(numbers));
    }
    align_right(&mut table, 1..7);
    let mut text = trim_lines(&table);
    if audited.iter().any(|row| !row.is_answered()) {
        let mut table = plain_table(["kernel", "shapes", "reason", "row"].map(str::to_owned));
        for row in audited.iter().filter(|row| !row.is_answered()) {
            let action = match (row.is_planned, &row.case) {
                (true, _) => "planned",
                (false, Some(_)) => "to add",
                (false, None) => "none possible",
            };
            table.add_row([row.kernel.clone(), row.shapes.clone(), reason(row), action.to_owned()]);
        }
        text.push('\n');
        text.push_str(&trim_lines(&table));
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

/// Formats a line of JSON for each question.
pub(crate) fn question_json(audited: &[AuditedQuestion]) -> String {
    let lines = audited.iter().map(|row| {
        let state = match row.state {
            AuditedAnswer::Measured => "measured",
            AuditedAnswer::Dense => "between_rows",
            AuditedAnswer::Sparse(_) => "too_far_apart",
            AuditedAnswer::Missing(_) => "missing",
        };
        let reason = Some(reason(row)).filter(|reason| !reason.is_empty());
        let object = json!({
            "kernel": row.kernel, "shapes": row.shapes, "state": state, "reason": reason,
            "planned": row.is_planned, "add": row.case.is_some(),
        });
        format!("{object}\n")
    });
    lines.collect()
}
