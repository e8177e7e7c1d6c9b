//! Audits of the rows that answer workloads: a table and JSON lines.

use super::prelude::*;
use crate::answer::coverage::{AuditedAnswer, AuditedQuestion};

pub(crate) fn question_table(audited: &[AuditedQuestion], width: Option<usize>) -> String {
    let mut kernels: BTreeMap<&str, Vec<&AuditedQuestion>> = BTreeMap::new();
    audited.iter().for_each(|row| kernels.entry(&row.kernel).or_default().push(row));
    let count = |rows: &[&AuditedQuestion], is_counted: fn(&AuditedQuestion) -> bool| {
        unless_zero(rows.iter().filter(|row| is_counted(row)).count())
    };
    let counts = Table::new(&kernels)
        .text("kernel", rank(0).min(12), |(kernel, _)| kernel)
        .number("measured", 3, |(_, rows)| count(rows, |row| matches!(row.state, AuditedAnswer::Measured)))
        .number("between rows", 4, |(_, rows)| count(rows, |row| matches!(row.state, AuditedAnswer::Dense)))
        .number("too far apart", 1, |(_, rows)| {
            count(rows, |row| matches!(row.state, AuditedAnswer::Sparse(_)))
        })
        .number("missing", 0, |(_, rows)| count(rows, |row| matches!(row.state, AuditedAnswer::Missing(_))))
        .number("planned", 2, |(_, rows)| count(rows, |row| row.is_planned))
        .number("to add", 0, |(_, rows)| count(rows, |row| row.case.is_some()));
    let action = |row: &AuditedQuestion| match (row.is_planned, &row.case) {
        (true, _) => "planned",
        (false, Some(_)) => "to add",
        (false, None) => "none possible",
    };
    let open = Table::new(audited.iter().filter(|row| !row.is_answered()))
        .text("kernel", rank(0).min(12), |row| &row.kernel)
        .text("shapes", rank(0).min(16).wanted(24), |row| &row.shapes)
        .text("reason", rank(DETAIL).min(14), reason)
        .text("row", 0, action)
        .print(width);
    let separator = if open.is_empty() { "" } else { "\n" };
    format!("{}{separator}{open}", counts.print(width))
}

fn reason(row: &AuditedQuestion) -> String {
    match &row.state {
        AuditedAnswer::Measured | AuditedAnswer::Dense => String::new(),
        AuditedAnswer::Sparse(axis) => axis.to_string(),
        AuditedAnswer::Missing(reason) => reason.clone(),
    }
}

record! {
    pub(crate) QuestionRecord<'a>(row: &'a AuditedQuestion) {
        add: bool = row.case.is_some(),
        kernel: &'a str = &row.kernel,
        planned: bool = row.is_planned,
        reason: Option<String> = Some(reason(row)).filter(|reason| !reason.is_empty()),
        shapes: &'a str = &row.shapes,
        state: &'static str = match row.state {
            AuditedAnswer::Measured => "measured",
            AuditedAnswer::Dense => "between_rows",
            AuditedAnswer::Sparse(_) => "too_far_apart",
            AuditedAnswer::Missing(_) => "missing",
        },
    }
}
