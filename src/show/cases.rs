//! `npubench show`: the cases of a run with their numbers, the slowest ones and those that deviate most, and the state of the run.

use std::{
    cmp::Ordering,
    collections::{BTreeSet, HashSet},
    fs,
    path::{Path, PathBuf},
};

use serde::Serialize;

use crate::{
    base::{count_text::format_count, print::TextStyle},
    database::ledger::{CaseRecord, CollectionRecord},
    kernel::{
        CaseId, Cause, KernelName, Verdict, signature_attributes, split_signature,
        timestamp::{Timestamp, format_clock},
    },
    measure::{
        case_numbers::{CaseNumbers, RunNumbers},
        recorder::{case_log, collection_log},
    },
    show::{
        inputs::{SignatureParts, distinguishable_inputs},
        run_lines::device_ranges,
        runs::{PastRun, verdict_counts},
        table::{DETAIL, FittedColumn, FittedRow, FittedTable},
    },
};
/// A case of a run. The fields are in the order of the JSON keys.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct ShownCase {
    pub case: CaseId,
    pub kernel: KernelName,
    /// Verdict; `None` while the case is open.
    pub verdict: Option<Verdict>,
    pub reason: Option<String>,
    /// Name of the cause.
    pub(crate) cause: Option<&'static str>,
    /// The cause itself.
    #[serde(skip)]
    pub(crate) finding: Option<Cause>,
    /// Device of the last attempt; of a gang the first one.
    pub device: Option<u32>,
    pub attempts: usize,
    /// Numbers of the collections of the attempts.
    pub collections: Vec<u32>,
    /// Inputs as in the canonical signature.
    pub inputs: String,
    /// Outputs as in the canonical signature.
    pub outputs: String,
    /// Attributes as in the canonical signature, such as `EP Size=16`; empty without any.
    pub(crate) attributes: String,
    /// Log of the last attempt; the link named by the case if its verdict is not `ok`.
    pub log: Option<PathBuf>,
    /// Median and its 95 % interval.
    pub(crate) median_us: Option<f64>,
    pub(crate) interval_us: Option<[f64; 2]>,
    /// Half the width of the interval, relative to its centre.
    pub(crate) half_width_percent: Option<f64>,
    /// Change against the row before the run.
    pub(crate) change_percent: Option<f64>,
    /// Median in production profiles, and the difference of the run's from it.
    pub(crate) production_us: Option<f64>,
    pub(crate) production_percent: Option<f64>,
}

/// Returns the cases of a run in the order of its plan.
pub(crate) fn shown_cases(cases: Vec<CaseRecord>, numbers: &RunNumbers, folder: &Path) -> Vec<ShownCase> {
    let shown = |case: CaseRecord| {
        let numbers = numbers.of_case(&case.case);
        shown_case(case, &numbers, folder)
    };
    cases.into_iter().map(shown).collect()
}

fn shown_case(record: CaseRecord, numbers: &CaseNumbers, folder: &Path) -> ShownCase {
    let CaseRecord { case, kernel, signature, outcome, attempts, .. } = record;
    let (verdict, reason) = outcome.map(|outcome| (outcome.verdict, outcome.reason)).unzip();
    let cause = reason.as_ref().map(|reason| reason.cause.name());
    let last = attempts.last();
    let log = last.map(|attempt| {
        let by_name = folder.join(case_log(&case, attempt.collection));
        let is_there = !verdict.is_some_and(Verdict::is_done) && fs::symlink_metadata(&by_name).is_ok();
        if is_there { by_name } else { folder.join(collection_log(attempt.collection)) }
    });
    let (inputs, outputs) = split_signature(&kernel, &signature);
    ShownCase {
        attributes: signature_attributes(&kernel, &signature).to_owned(),
        inputs: inputs.to_owned(),
        outputs: outputs.to_owned(),
        device: last.map(|attempt| attempt.device),
        attempts: attempts.len(),
        collections: attempts.iter().map(|attempt| attempt.collection).collect(),
        case,
        kernel,
        verdict,
        reason: reason.as_ref().map(ToString::to_string),
        cause,
        finding: reason.map(|reason| reason.cause),
        log,
        median_us: numbers.median_us,
        interval_us: numbers.interval_us,
        half_width_percent: numbers.half_width_percent(),
        change_percent: numbers.change_percent(),
        production_us: numbers.production_us,
        production_percent: numbers.production_percent(),
    }
}

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
const MEDIAN: &str = "median us";
const CHANGE: &str = "change %";
const PRODUCTION: &str = "prod %";
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
fn numbers_table(
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
fn id_digits(cases: &[&ShownCase]) -> usize {
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

/// Number of cases of a list.
const LISTED: usize = 5;
/// Greatest number of measured cases that are listed all.
const MOST_WHOLE: usize = 10;

/// Returns lists of the slowest cases, of those farthest from production, and of those that changed most against their rows; empty
/// if so few cases are measured that one table has all of them.
pub(crate) fn notable_cases(cases: &[ShownCase], width: Option<usize>, is_painted: bool) -> String {
    let measured: Vec<&ShownCase> = cases.iter().filter(|case| case.median_us.is_some()).collect();
    if measured.len() <= MOST_WHOLE {
        return String::new();
    }
    let digits = shown_digits(cases, width);
    let deviation = |percent: f64| (1.0 + percent / 100.0).ln().abs();
    let lists = [
        ("slowest", MEDIAN, greatest(&measured, |case| case.median_us)),
        (
            "farthest from production",
            PRODUCTION,
            greatest(&measured, |case| case.production_percent.map(deviation)),
        ),
        (
            "changed most against their rows",
            CHANGE,
            greatest(&measured, |case| case.change_percent.map(deviation)),
        ),
    ];
    let lists = lists.into_iter().filter(|(.., cases)| !cases.is_empty());
    lists
        .map(|(title, sorted_by, cases)| {
            format!("{title}:\n{}\n", numbers_table(&cases, sorted_by, digits, width, is_painted))
        })
        .collect()
}

/// Returns the measured cases, the slowest first, if they are few; else lists of notable ones.
pub(super) fn measured_cases(cases: &[ShownCase], width: Option<usize>, is_painted: bool) -> String {
    let measured: Vec<&ShownCase> = cases.iter().filter(|case| case.median_us.is_some()).collect();
    match measured.len() {
        0 => String::new(),
        1..=MOST_WHOLE => {
            let sorted = greatest(&measured, |case| case.median_us);
            numbers_table(&sorted, MEDIAN, shown_digits(cases, width), width, is_painted)
        }
        _ => notable_cases(cases, width, is_painted),
    }
}

/// Returns the number of digits by which the ids of cases are shown.
fn shown_digits(cases: &[ShownCase], width: Option<usize>) -> usize {
    width.map_or(usize::MAX, |_| id_digits(&cases.iter().collect::<Vec<_>>()))
}

/// Returns the cases with the greatest values, at most as many as a table of all cases has or a list.
fn greatest<'a>(cases: &[&'a ShownCase], value: impl Fn(&ShownCase) -> Option<f64>) -> Vec<&'a ShownCase> {
    let valued =
        cases.iter().filter_map(|case| Some((value(case).filter(|value| value.is_finite())?, *case)));
    let mut valued: Vec<(f64, &ShownCase)> = valued.collect();
    let descending = |one: &(f64, &ShownCase), other: &(f64, &ShownCase)| -> Ordering {
        other.0.total_cmp(&one.0).then_with(|| one.1.case.cmp(&other.1.case))
    };
    valued.sort_by(descending);
    let shown = if cases.len() <= MOST_WHOLE { MOST_WHOLE } else { LISTED };
    valued.into_iter().take(shown).map(|(_, case)| case).collect()
}

/// Returns the text below the table: state of the run, cases by verdict, collections, folder.
pub(crate) fn run_summary(past: &PastRun, collections: &[CollectionRecord], now: Timestamp) -> String {
    let record = &past.record;
    let devices: BTreeSet<u32> = collections.iter().flat_map(|one| one.devices.iter().copied()).collect();
    let devices: Vec<u32> = devices.into_iter().collect();
    let on = match devices.as_slice() {
        [] => String::new(),
        [one] => format!(" on device {one}"),
        _ => format!(" on devices {}", device_ranges(&devices)),
    };
    let elapsed = past
        .elapsed_seconds(now)
        .map_or_else(String::new, |seconds| format!(", {} elapsed", format_clock(seconds)));
    let verdicts = if record.planned == 0 { String::new() } else { format!(": {}", verdict_counts(record)) };
    format!(
        "run {} ({}), {}, started {}{elapsed}\n{}{verdicts}; {}{on}\nlogs, scripts and raw output are in {}\n",
        record.run,
        record.kind,
        past.state,
        Timestamp(record.started).local_date_time(),
        format_count(record.planned, "case"),
        format_count(collections.len(), "collection"),
        past.folder.display(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(id: &str, kernel: &str, inputs: &str, verdict: Option<Verdict>) -> ShownCase {
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

    fn measured(index: u32, production_percent: Option<f64>) -> ShownCase {
        let id = format!("{index:016x}");
        ShownCase {
            median_us: Some(f64::from(index)),
            production_percent,
            ..case(&id, "Add", "8:FLOAT:ND", Some(Verdict::Ok))
        }
    }

    /// Half as fast deviates as much as twice as fast.
    #[test]
    fn slowest_and_most_deviating_cases_come_first() {
        let mut cases: Vec<ShownCase> = (1..=12).map(|index| measured(index, None)).collect();
        cases[2].production_percent = Some(-60.0);
        cases[3].production_percent = Some(99.0);
        cases[4].production_percent = Some(5.0);
        cases.push(case("00000000000000ff", "Mul", "8:FLOAT:ND", Some(Verdict::Crashed)));
        let text = notable_cases(&cases, Some(80), false);
        insta::assert_snapshot!(text, @r"
        slowest:
         case              kernel  inputs      verdict  median us
         000000000000000c  Add     8:FLOAT:ND  ok          12.000
         000000000000000b  Add     8:FLOAT:ND  ok          11.000
         000000000000000a  Add     8:FLOAT:ND  ok          10.000
         0000000000000009  Add     8:FLOAT:ND  ok           9.000
         0000000000000008  Add     8:FLOAT:ND  ok           8.000

        farthest from production:
         case              kernel  inputs      verdict  median us  prod %
         0000000000000003  Add     8:FLOAT:ND  ok           3.000   -60.0
         0000000000000004  Add     8:FLOAT:ND  ok           4.000   +99.0
         0000000000000005  Add     8:FLOAT:ND  ok           5.000    +5.0
        ");
    }

    #[test]
    fn few_cases_are_one_table() {
        let cases: Vec<ShownCase> = (1..=10).map(|index| measured(index, Some(1.0))).collect();
        assert_eq!(notable_cases(&cases, Some(80), false), "");
        let text = measured_cases(&cases, Some(80), false);
        assert_eq!(text.lines().count(), 11, "{text}");
        assert!(text.lines().nth(1).is_some_and(|line| line.contains("10.000")), "{text}");
    }
}
