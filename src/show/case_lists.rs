//! The slowest cases of a run, and those that deviate most.

use std::cmp::Ordering;

use crate::show::{
    case_columns::{CHANGE, MEDIAN, PRODUCTION, id_digits, numbers_table},
    shown_cases::ShownCase,
};

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{kernel::Verdict, show::case_columns::tests::case};

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
