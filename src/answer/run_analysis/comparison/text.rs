//! Comparison of two recorded runs as tables.

use super::{
    ComparisonReport, JoinedDatabase, PARTS,
    call_tables::call_tables,
    cells::{
        SELF_COLUMNS, amount, amount_cell, calls_cell, has_amount, more_rows, ratio_cell, self_cell, signed,
    },
    compared_kernels::{IN_MODEL_COLUMNS, compared_kernels, in_model_rows},
    detail_heading, heading, run_text,
};
use crate::{
    base::count_text::format_count,
    profile::timeline::{ComparedPart, ComparedRow},
    show::table::{DETAIL, FittedColumn, fitted_text},
};

/// Returns the difference of the steps by cause, then a table of each part.
pub(crate) fn comparison_text(report: &ComparisonReport<'_>, width: Option<usize>) -> String {
    let mut text = run_text("base ", report.base, report.base_sums);
    text.push_str(&run_text("other", report.other, report.other_sums));
    if report.comparison.span_difference == 0.0 {
        text.push_str("\nthe steps of base and other take the same time");
    } else {
        text.push_str(&format!(
            "\nthe step of other is {} ms {} than that of base",
            amount(ComparedPart::Overall, report.comparison.span_difference.abs()),
            if report.comparison.span_difference < 0.0 { "shorter" } else { "longer" }
        ));
    }
    text.push_str(if report.comparison.attribution.is_empty() {
        ", and so does each part\n"
    } else {
        "; parts of the difference, ms:\n"
    });
    let columns = vec![
        FittedColumn::number("difference", 0),
        FittedColumn::number("share", 1),
        FittedColumn::text("part", 2),
        FittedColumn::text("name", 0).shortened_to(16).wanted(30),
        FittedColumn::text("shapes", 3).shortened_to(16),
    ];
    let mut rows = Vec::new();
    let whole = report.comparison.span_difference;
    for part in report.comparison.attribution.iter().take(report.rows) {
        let share =
            if whole == 0.0 { "-".to_owned() } else { format!("{:.1} %", 100.0 * part.difference / whole) };
        rows.push(vec![
            signed(amount(ComparedPart::Overall, part.difference)),
            share,
            part.kind.to_owned(),
            if part.is_remainder { format!("[{}]", part.name) } else { part.name.clone() },
            part.shapes.clone(),
        ]);
    }
    let rest: f64 = report.comparison.attribution.iter().skip(report.rows).map(|part| part.difference).sum();
    let more = report.comparison.attribution.len().saturating_sub(report.rows);
    if more > 0 {
        let rest = signed(amount(ComparedPart::Overall, rest));
        rows.push(vec![rest, String::new(), String::new(), format!("[{more} more]"), String::new()]);
    }
    if !rows.is_empty() {
        text.push_str(&fitted_text(columns, rows, width));
    }
    for part in PARTS {
        text.push_str(&part_table(report, part, width));
    }
    if let Some(calls) = report.calls {
        text.push_str(&call_tables(calls, report.rows, width));
    }
    if let Some(database) = &report.in_model {
        text.push_str(&in_model_comparison(report, database, width));
    }
    if !report.comparison.not_compared.is_empty() {
        text.push('\n');
    }
    for what in &report.comparison.not_compared {
        text.push_str(&format!("not compared: {what}\n"));
    }
    text
}

fn part_table(report: &ComparisonReport<'_>, part: ComparedPart, width: Option<usize>) -> String {
    let rows: Vec<&ComparedRow> = report.part_rows(part).into_iter().filter(|row| has_amount(row)).collect();
    if rows.is_empty() {
        return String::new();
    }
    let most = if part == ComparedPart::Overall || part == ComparedPart::KernelClass {
        usize::MAX
    } else {
        report.rows
    };
    let mut columns = vec![
        FittedColumn::text("name", 0).shortened_to(16).wanted(30),
        FittedColumn::text(detail_heading(part), 2).shortened_to(16),
        FittedColumn::number("base", 0),
        FittedColumn::number("other", 0),
        FittedColumn::number("difference", 0),
        FittedColumn::number("ratio", 1),
        FittedColumn::number("base calls", DETAIL),
        FittedColumn::number("other calls", DETAIL),
    ];
    if part == ComparedPart::HostCall {
        columns.extend(SELF_COLUMNS.map(|name| FittedColumn::number(name, DETAIL + 1)));
    }
    let cells = |row: &&ComparedRow| {
        let mut cells = vec![
            row.name.clone(),
            row.shapes.clone(),
            amount_cell(part, row.base),
            amount_cell(part, row.other),
            signed(amount(part, row.difference())),
            ratio_cell(row),
            calls_cell(row.base),
            calls_cell(row.other),
        ];
        if part == ComparedPart::HostCall {
            cells.extend([row.base, row.other].map(self_cell));
        }
        cells
    };
    let table = fitted_text(columns, rows.iter().take(most).map(cells), width);
    let more = rows.len().saturating_sub(most);
    let rest = more_rows(more);
    format!("\n{}\n{table}{rest}", heading(part))
}

fn in_model_comparison(
    report: &ComparisonReport<'_>,
    database: &JoinedDatabase<'_>,
    width: Option<usize>,
) -> String {
    let rows = in_model_rows(report);
    if rows.is_empty() {
        return format!("\n{}\n", report.no_measured_row(database));
    }
    let [kernel, numbers @ ..] = IN_MODEL_COLUMNS;
    let mut columns = vec![FittedColumn::text(kernel, 0).shortened_to(16).wanted(30)];
    let ranks = [2, 0, DETAIL, 0, DETAIL, 0];
    columns.extend(numbers.into_iter().zip(ranks).map(|(name, rank)| FittedColumn::number(name, rank)));
    let more = rows.len().saturating_sub(report.rows);
    let table = fitted_text(columns, rows.into_iter().take(report.rows).map(Vec::from), width);
    let rest = more_rows(more);
    let without = compared_kernels(report)
        .iter()
        .filter(|pair| pair.base_or_other().is_some_and(|kernel| kernel.alone.is_none()))
        .count();
    let without = match without {
        0 => String::new(),
        count => format!(
            "{} without a duration alone: `{}` has the reasons\n",
            format_count(count, "kernel"),
            report.modules_command(database)
        ),
    };
    format!("\nkernels against their durations alone\n{table}{rest}{without}")
}
