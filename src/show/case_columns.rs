//! The table of the cases of a run.

use std::{collections::HashSet, path::Path};

use crate::{
    base::print::TextStyle,
    kernel::Verdict,
    show::{
        inputs::{SignatureParts, distinguishable_inputs},
        shown_cases::ShownCase,
        table::{DETAIL, FittedColumn, FittedRow, FittedTable},
    },
};

/// Least number of digits of an abbreviated id.
const LEAST_DIGITS: usize = 8;

/// Columns in their order. Verdict and median always stand, the shapes as long as there is room for their ends.
const COLUMNS: [FittedColumn<'static>; 14] = [
    FittedColumn::text("case", 0),
    FittedColumn::text("kernel", 0).shortened_to(8).wanted(24),
    FittedColumn::text("inputs", 1).shortened_to(12).wanted(40),
    FittedColumn::text("verdict", 0),
    FittedColumn::number(MEDIAN, 0),
    FittedColumn::number("+-%", 2),
    FittedColumn::number("interval us", 7),
    FittedColumn::number(CHANGE, 4),
    FittedColumn::number(PRODUCTION, 3),
    FittedColumn::number("device", 6),
    FittedColumn::number("attempts", 9),
    FittedColumn::text("collections", 10),
    FittedColumn::text("reason", DETAIL),
    FittedColumn::text("log", 8),
];
/// Headers of the columns by which lists are sorted.
pub(super) const MEDIAN: &str = "median us";
pub(super) const CHANGE: &str = "change %";
pub(super) const PRODUCTION: &str = "prod %";
const VERDICT: usize = 3;
const REASON: usize = 12;

/// Returns a table of cases, which fits `width` if there is one; else it has all columns, whole texts and whole ids.
pub(crate) fn cases_table(
    cases: &[ShownCase],
    folder: &Path,
    width: Option<usize>,
    is_painted: bool,
) -> String {
    let cases: Vec<&ShownCase> = cases.iter().collect();
    let digits = width.map_or(usize::MAX, |_| id_digits(&cases));
    let table = FittedTable {
        columns: COLUMNS.to_vec(),
        rows: case_rows(&cases, folder, digits, true),
        styled: Some(VERDICT),
        below: Some(REASON),
    };
    table.print(width, is_painted)
}

/// Returns a table of cases with what identifies them and with their numbers alone. The column with the header `sorted_by`
/// always stands.
pub(super) fn numbers_table(
    cases: &[&ShownCase],
    sorted_by: &str,
    digits: usize,
    width: Option<usize>,
    is_painted: bool,
) -> String {
    let rows = case_rows(cases, Path::new(""), digits, false);
    let mut columns = COLUMNS.to_vec();
    columns.iter_mut().filter(|column| column.header == sorted_by).for_each(|column| column.rank = 0);
    let table = FittedTable { columns, rows, styled: Some(VERDICT), below: None };
    table.print(width, is_painted)
}

fn case_rows(cases: &[&ShownCase], folder: &Path, digits: usize, has_details: bool) -> Vec<FittedRow> {
    let parts =
        cases.iter().map(|case| [case.kernel.as_str(), &case.inputs, &case.outputs, &case.attributes]);
    let parts: Vec<SignatureParts<'_>> = parts.collect();
    let inputs = distinguishable_inputs(&parts);
    let row = |(case, inputs): (&&ShownCase, String)| {
        let mut cells = case_cells(case, inputs, folder, digits);
        let details = cells.iter_mut().zip(COLUMNS).filter(|(_, column)| column.rank >= DETAIL);
        details.filter(|_| !has_details).for_each(|(cell, _)| cell.clear());
        FittedRow {
            style: Some(verdict_style(case.verdict)),
            has_line_below: !case.verdict.is_some_and(Verdict::is_done),
            ..FittedRow::from_cells(&cells)
        }
    };
    cases.iter().zip(inputs).map(row).collect()
}

/// Returns the number of digits that distinguish the ids of these cases, as `why` and `--case` accept them.
pub(super) fn id_digits(cases: &[&ShownCase]) -> usize {
    let is_distinct = |digits: usize| {
        let mut seen = HashSet::with_capacity(cases.len());
        cases.iter().all(|case| seen.insert(case.case.as_str().get(..digits)))
    };
    (LEAST_DIGITS..16).find(|digits| is_distinct(*digits)).unwrap_or(16)
}

/// Returns the style of a verdict; open cases are faint.
pub(crate) const fn verdict_style(verdict: Option<Verdict>) -> TextStyle {
    match verdict {
        Some(Verdict::Ok | Verdict::RanAsOther) => TextStyle::Good,
        Some(Verdict::Noisy | Verdict::Suspicious | Verdict::Throttled) => TextStyle::Doubtful,
        None | Some(Verdict::NotRun | Verdict::NoEntry | Verdict::Unsupported) => TextStyle::Faint,
        Some(_) => TextStyle::Bad,
    }
}

fn micros(us: f64) -> String {
    format!("{us:.3}")
}

fn case_cells(case: &ShownCase, inputs: String, folder: &Path, digits: usize) -> [String; COLUMNS.len()] {
    let is_done = case.verdict.is_some_and(Verdict::is_done);
    let id = case.case.as_str();
    let log = case.log.as_ref().filter(|_| case.verdict.is_some() && !is_done);
    let collections: Vec<String> = case.collections.iter().map(ToString::to_string).collect();
    let signed = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:+.1}"));
    [
        id.get(..digits).unwrap_or(id).to_owned(),
        case.kernel.to_string(),
        inputs,
        case.verdict.map_or("open", Verdict::as_str).to_owned(),
        case.median_us.map_or_else(String::new, micros),
        case.half_width_percent.map_or_else(String::new, |percent| format!("{percent:.2}")),
        case.interval_us
            .map_or_else(String::new, |[low, high]| format!("{} to {}", micros(low), micros(high))),
        signed(case.change_percent),
        signed(case.production_percent),
        case.device.map_or_else(String::new, |device| device.to_string()),
        case.attempts.to_string(),
        collections.join(","),
        case.reason.clone().unwrap_or_default(),
        log.map_or_else(String::new, |log| log.strip_prefix(folder).unwrap_or(log).display().to_string()),
    ]
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::kernel::{CaseId, KernelName};

    pub(in super::super) fn case(
        id: &str,
        kernel: &str,
        inputs: &str,
        verdict: Option<Verdict>,
    ) -> ShownCase {
        ShownCase {
            case: CaseId::from_stored(id),
            kernel: KernelName::new(kernel).expect("a name"),
            verdict,
            reason: verdict.map(|verdict| format!("the reason of {verdict}, which may be long")),
            cause: None,
            finding: None,
            device: Some(3),
            attempts: 1,
            collections: vec![4],
            inputs: inputs.to_owned(),
            outputs: String::new(),
            attributes: String::new(),
            log: Some("/db/runs/r/collections/00004/collect.log".into()),
            median_us: None,
            interval_us: None,
            half_width_percent: None,
            change_percent: None,
            production_us: None,
            production_percent: None,
        }
    }

    fn cases() -> Vec<ShownCase> {
        let measured = ShownCase {
            median_us: Some(812.3),
            interval_us: Some([810.1, 815.0]),
            half_width_percent: Some(0.3),
            change_percent: Some(-1.25),
            production_us: Some(700.0),
            production_percent: Some(16.04),
            ..case(
                "0123456789abcdef",
                "MatMulV2",
                "2048,24576:DT_BF16:ND;24576,6144:DT_BF16:ND",
                Some(Verdict::Ok),
            )
        };
        let noisy = ShownCase {
            median_us: Some(2.06),
            change_percent: Some(12.0),
            ..case("0123456799abcdef", "Add", "4096:FLOAT:ND;4096:FLOAT:ND", Some(Verdict::Noisy))
        };
        let slots = "1,16,128:DT_BF16:ND;".repeat(3) + &"-;".repeat(17) + "64:INT64:ND";
        let crashed = case("fedcba9876543210", "FusedInferAttentionScore", &slots, Some(Verdict::Crashed));
        let open = ShownCase { attempts: 0, ..case("aaaaaaaaaaaaaaaa", "Mul", "8:FLOAT:ND;:FLOAT:ND", None) };
        vec![measured, noisy, crashed, open]
    }

    #[test]
    fn table_fits_the_terminal() {
        let cases = cases();
        let folder = Path::new("/db/runs/r");
        for width in 60..240 {
            let text = cases_table(&cases, folder, Some(width), false);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
        }
        let widths = [60, 80, 120, 200];
        let texts =
            widths.map(|width| format!("{width}\n{}", cases_table(&cases, folder, Some(width), false)));
        insta::assert_snapshot!(texts.concat());
    }

    #[test]
    fn wide_table_has_everything() {
        let text = cases_table(&cases(), Path::new("/db/runs/r"), None, false);
        for whole in [
            "0123456789abcdef",
            "-;-;-;-;-;-;-;-;-;-;-;-;-;64:INT64:ND",
            "810.100 to 815.000",
            "collections/00004",
        ] {
            assert!(text.contains(whole), "{whole}: {text}");
        }
        insta::assert_snapshot!(text);
    }

    #[test]
    fn verdicts_have_colours() {
        let text = cases_table(&cases(), Path::new("/db/runs/r"), Some(120), true);
        for painted in [
            "\u{1b}[32mok\u{1b}[0m",
            "\u{1b}[33mnoisy\u{1b}[0m",
            "\u{1b}[31mcrashed\u{1b}[0m",
            "\u{1b}[2mopen\u{1b}[0m",
        ] {
            assert!(text.contains(painted), "{painted:?}: {text}");
        }
    }

    #[test]
    fn abbreviated_ids_are_distinct() {
        let cases = cases();
        let cases: Vec<&ShownCase> = cases.iter().collect();
        assert_eq!(id_digits(&cases), 9, "the first two agree in eight digits");
        assert_eq!(id_digits(&cases[1..]), LEAST_DIGITS);
    }
}
