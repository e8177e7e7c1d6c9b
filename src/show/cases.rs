//! `npubench show`: the cases of a run with their numbers, the slowest ones and those that deviate most, and the state of the run.
//! `measure/case_numbers.rs` computes the numbers, docs/runs.md and the help in `cli/show.rs` list the
//! columns.

use std::{collections::HashSet, fs};

use super::{prelude::*, run_lines::device_list, runs::verdict_counts, table::Room};
use crate::{
    base::print::TextStyle,
    database::ledger::CaseRecord,
    kernel::{RUNTIME, signature_parts},
    measure::recorder::{case_log, collection_log},
};

record! {
    /// A case of a run. The fields are in the order of the JSON keys.
    #[derive(Clone, Debug, JsonSchema)]
    pub(crate) ShownCase(record: CaseRecord, numbers: &RunNumbers, folder: &Path)
    with {
        let numbers = numbers.of_case(&record.case);
        let CaseRecord { case, kernel, signature, outcome, attempts, .. } = record;
        let (verdict, reason) = outcome.map(|outcome| (outcome.verdict, outcome.reason)).unzip();
        let last = attempts.last();
        let log = last.map(|attempt| {
            let by_name = folder.join(case_log(&case, attempt.collection));
            let is_there = !verdict.is_some_and(Verdict::is_done) && fs::symlink_metadata(&by_name).is_ok();
            if is_there { by_name } else { folder.join(collection_log(attempt.collection)) }
        });
        let [inputs, outputs, attributes] = signature_parts(&kernel, &signature).map(str::to_owned);
    } {
        pub(crate) case: CaseId = case,
        pub(crate) kernel: KernelName = kernel,
        /// Verdict; `None` while the case is open.
        pub(crate) verdict: Option<Verdict> = verdict,
        pub(crate) reason: Option<String> = reason.as_ref().map(ToString::to_string),
        /// Name of the cause.
        pub(crate) cause: Option<&'static str> = reason.as_ref().map(|reason| reason.cause.name()),
        /// The cause itself.
        #[serde(skip)]
        pub(crate) finding: Option<Cause> = reason.map(|reason| reason.cause),
        /// Device of the last attempt; of a gang the first one.
        pub(crate) device: Option<u32> = last.map(|attempt| attempt.device),
        pub(crate) attempts: usize = attempts.len(),
        /// Numbers of the collections of the attempts.
        pub(crate) collections: Vec<u32> = attempts.iter().map(|attempt| attempt.collection).collect(),
        /// Inputs as in the canonical signature.
        pub(crate) inputs: String = inputs,
        /// Outputs as in the canonical signature.
        pub(crate) outputs: String = outputs,
        /// Attributes as in the canonical signature, such as `EP Size=16`; empty without any.
        pub(crate) attributes: String = attributes,
        /// Log of the last attempt; the link named by the case if its verdict is not `ok`.
        pub(crate) log: Option<PathBuf> = log,
        /// Median and its 95 % interval.
        pub(crate) median_us: Option<f64> = numbers.median_us,
        pub(crate) interval_us: Option<[f64; 2]> = numbers.interval_us,
        /// Half the width of the interval, relative to its centre.
        pub(crate) half_width_percent: Option<f64> = numbers.half_width_percent(),
        /// Change against the row before the run.
        pub(crate) change_percent: Option<f64> = numbers.change_percent(),
        /// Median in production profiles, and the difference of the run's from it.
        pub(crate) production_us: Option<f64> = numbers.production_us,
        pub(crate) production_percent: Option<f64> = numbers.production_percent(),
    }
}

pub(crate) fn shown_cases(cases: Vec<CaseRecord>, numbers: &RunNumbers, folder: &Path) -> Vec<ShownCase> {
    cases.into_iter().map(|case| ShownCase::new(case, numbers, folder)).collect()
}

const MIN_DIGITS: usize = 8;
const MEDIAN: &str = "median us";
const CHANGE: &str = "change %";
const PRODUCTION: &str = "prod %";

#[derive(Clone, Copy, Debug)]
pub(crate) struct CaseTables<'a> {
    pub(crate) cases: &'a [ShownCase],
    pub(crate) folder: &'a Path,
    pub(crate) width: Option<usize>,
    pub(crate) is_painted: bool,
}

impl CaseTables<'_> {
    /// Returns a table of all cases, which fits the width if there is one; else it has all columns, whole texts and whole ids.
    pub(crate) fn all(self) -> String {
        self.table(&self.cases.iter().collect::<Vec<_>>(), "").print(self.width)
    }

    /// Returns a table of cases. The column with the header `sorted_by` always stands. Verdict and median always stand, too, the
    /// shapes as long as there is room for their ends.
    fn table<'c>(self, cases: &[&'c ShownCase], sorted_by: &str) -> Table<(&'c ShownCase, usize)> {
        let parts: Vec<_> = cases
            .iter()
            .map(|case| [case.kernel.as_str(), &case.inputs, &case.outputs, &case.attributes])
            .collect();
        let inputs = distinguishable_inputs(&parts);
        let digits = self.width.map_or(usize::MAX, |_| id_digits(self.cases));
        let room = |header: &str, number: u8| -> Room { rank(if header == sorted_by { 0 } else { number }) };
        let is_done = |case: &ShownCase| case.verdict.is_some_and(Verdict::is_done);
        let change = |value: Option<f64>| or_empty(value.map(|value| signed(value, 1)));
        let interval = |[low, high]: [f64; 2]| format!("{low:.3} to {high:.3}");
        let log = |case: &ShownCase| {
            let log = case.log.as_ref().filter(|_| case.verdict.is_some() && !is_done(case));
            or_empty(log.map(|log| log.strip_prefix(self.folder).unwrap_or(log).display()))
        };
        let table = Table::new(cases.iter().copied().zip(0..))
            .text("case", 0, |(case, _)| case.case.as_str().get(..digits).unwrap_or(case.case.as_str()))
            .text("kernel", rank(0).min(8).wanted(24), |(case, _)| &case.kernel)
            .text("inputs", rank(1).min(12).wanted(40), |(_, index)| &inputs[index])
            .text("verdict", 0, |(case, _)| case.verdict.map_or("open", Verdict::as_str));
        let table =
            if self.is_painted { table.styled(|(case, _)| verdict_style(case.verdict)) } else { table };
        table
            .number(MEDIAN, 0, |(case, _)| or_empty(case.median_us.map(decimals3)))
            .number("+-%", 2, |(case, _)| or_empty(case.half_width_percent.map(|half| format!("{half:.2}"))))
            .number("interval us", 7, |(case, _)| or_empty(case.interval_us.map(interval)))
            .number(CHANGE, room(CHANGE, 4), |(case, _)| change(case.change_percent))
            .number(PRODUCTION, room(PRODUCTION, 3), |(case, _)| change(case.production_percent))
            .number("device", 6, |(case, _)| or_empty(case.device))
            .number("attempts", 9, |(case, _)| case.attempts)
            .text("collections", 10, |(case, _)| joined(&case.collections, ","))
            .text("reason", DETAIL, |(case, _)| case.reason.as_deref().unwrap_or_default())
            .below(|(case, _)| !is_done(case))
            .text("log", 8, |(case, _)| log(case))
    }

    fn numbers(self, cases: &[&ShownCase], sorted_by: &str) -> String {
        self.table(cases, sorted_by).without_details().print(self.width)
    }

    fn measured(&self) -> Vec<&ShownCase> {
        self.cases.iter().filter(|case| case.median_us.is_some()).collect()
    }

    /// Returns lists of the slowest cases, of those farthest from production, and of those that changed most against their rows;
    /// empty if so few cases are measured that one table has all of them.
    pub(crate) fn notable(self) -> String {
        let measured = self.measured();
        if measured.len() <= MAX_WHOLE {
            return String::new();
        }
        type Value = fn(&ShownCase) -> Option<f64>;
        let lists: [(&str, &str, Value); 3] = [
            ("slowest", MEDIAN, |case| case.median_us),
            ("farthest from production", PRODUCTION, |case| case.production_percent.map(deviation)),
            ("changed most against their rows", CHANGE, |case| case.change_percent.map(deviation)),
        ];
        let lists = lists.into_iter().map(|(title, by, value)| (title, by, greatest(&measured, value)));
        let lists = lists.filter(|(.., cases)| !cases.is_empty());
        lists.map(|(title, by, cases)| format!("{title}:\n{}\n", self.numbers(&cases, by))).collect()
    }

    /// Returns the measured cases, the slowest first, if they are few; else lists of notable ones.
    pub(super) fn measured_or_notable(self) -> String {
        let measured = self.measured();
        match measured.len() {
            0 => String::new(),
            1..=MAX_WHOLE => self.numbers(&greatest(&measured, |case| case.median_us), MEDIAN),
            _ => self.notable(),
        }
    }
}

/// Returns for each case, given by kernel, inputs, outputs and attributes as in its signature, the inputs, followed by the attributes that other cases of the kernel with the same inputs and outputs
/// do not have, without the prefix of runtime columns.
pub(crate) fn distinguishable_inputs(cases: &[[&str; 4]]) -> Vec<String> {
    let attributes = |case: usize| cases[case][3].split(';').filter(|attribute| !attribute.is_empty());
    let mut alike: BTreeMap<&[&str], Vec<usize>> = BTreeMap::new();
    for (index, case) in cases.iter().enumerate() {
        alike.entry(&case[..3]).or_default().push(index);
    }
    let mut texts: Vec<String> = cases.iter().map(|case| case[1].to_owned()).collect();
    for group in alike.into_values().filter(|group| group.len() > 1) {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let all = group.iter().copied().flat_map(attributes);
        all.for_each(|attribute| *counts.entry(attribute).or_default() += 1);
        for &case in &group {
            for attribute in attributes(case).filter(|attribute| counts[attribute] < group.len()) {
                texts[case] += " ";
                texts[case] += attribute.strip_prefix(RUNTIME).unwrap_or(attribute);
            }
        }
    }
    texts
}

/// Returns the number of digits that distinguish the ids of these cases, as `why` and `--case` accept them.
fn id_digits(cases: &[ShownCase]) -> usize {
    let is_distinct = |digits: usize| {
        let mut seen = HashSet::with_capacity(cases.len());
        cases.iter().all(|case| seen.insert(case.case.as_str().get(..digits)))
    };
    (MIN_DIGITS..16).find(|digits| is_distinct(*digits)).unwrap_or(16)
}

pub(crate) const fn verdict_style(verdict: Option<Verdict>) -> TextStyle {
    match verdict {
        None => TextStyle::Faint,
        Some(verdict) if verdict.is_done() => TextStyle::Good,
        Some(verdict) if verdict.is_recorded() => TextStyle::Doubtful,
        Some(verdict) if verdict.keeps_the_row() => TextStyle::Faint,
        Some(_) => TextStyle::Bad,
    }
}

#[derive(Debug, Default)]
pub(super) struct SimilarCases {
    pub(super) first: String,
    differ: bool,
    pub(super) kernels: BTreeMap<KernelName, usize>,
}

impl SimilarCases {
    pub(super) fn add(&mut self, reason: &str, kernel: &KernelName) {
        if self.kernels.is_empty() {
            reason.clone_into(&mut self.first);
        }
        self.differ |= self.first != reason;
        *self.kernels.entry(kernel.clone()).or_default() += 1;
    }

    pub(super) fn count(&self) -> String {
        format_count(self.kernels.values().sum::<usize>(), "case")
    }

    pub(super) const fn such_as(&self) -> &'static str {
        if self.differ { ", such as" } else { "" }
    }
}

fn deviation(percent: f64) -> f64 {
    (1.0 + percent / 100.0).ln().abs()
}

const LISTED: usize = 5;
const MAX_WHOLE: usize = 10;

/// Returns the cases with the greatest values, at most as many as a table of all cases has or a list.
fn greatest<'a>(cases: &[&'a ShownCase], value: impl Fn(&ShownCase) -> Option<f64>) -> Vec<&'a ShownCase> {
    let valued =
        cases.iter().filter_map(|case| Some((value(case).filter(|value| value.is_finite())?, *case)));
    let mut valued: Vec<(f64, &ShownCase)> = valued.collect();
    valued.sort_by(|one, other| other.0.total_cmp(&one.0).then_with(|| one.1.case.cmp(&other.1.case)));
    let shown = if cases.len() <= MAX_WHOLE { MAX_WHOLE } else { LISTED };
    valued.into_iter().take(shown).map(|(_, case)| case).collect()
}

pub(crate) fn run_summary(past: &PastRun, collections: &[CollectionRecord], now: Timestamp) -> String {
    let record = &past.record;
    let devices: BTreeSet<u32> = collections.iter().flat_map(|one| one.devices.iter().copied()).collect();
    let devices: Vec<u32> = devices.into_iter().collect();
    let on = or_empty((!devices.is_empty()).then(|| format!(" on {}", device_list(&devices))));
    let elapsed =
        or_empty(past.elapsed_seconds(now).map(|seconds| format!(", {} elapsed", format_clock(seconds))));
    let verdicts = or_empty((record.planned > 0).then(|| format!(": {}", verdict_counts(record))));
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

    fn tables(cases: &[ShownCase], width: Option<usize>) -> CaseTables<'_> {
        CaseTables { cases, folder: Path::new("/db/runs/r"), width, is_painted: false }
    }

    #[test]
    fn table_fits_the_terminal() {
        let cases = cases();
        for width in 60..240 {
            let text = tables(&cases, Some(width)).all();
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
        }
        let widths = [60, 80, 120, 200];
        let texts = widths.map(|width| format!("{width}\n{}", tables(&cases, Some(width)).all()));
        insta::assert_snapshot!(texts.concat());
    }

    #[test]
    fn wide_table_has_everything() {
        let text = tables(&cases(), None).all();
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
        let cases = cases();
        let text = CaseTables { is_painted: true, ..tables(&cases, Some(120)) }.all();
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
        assert_eq!(id_digits(&cases), 9, "the first two agree in eight digits");
        assert_eq!(id_digits(&cases[1..]), MIN_DIGITS);
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
        let text = tables(&cases, Some(80)).notable();
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
        assert_eq!(tables(&cases, Some(80)).notable(), "");
        let text = tables(&cases, Some(80)).measured_or_notable();
        assert_eq!(text.lines().count(), 11, "{text}");
        assert!(text.lines().nth(1).is_some_and(|line| line.contains("10.000")), "{text}");
    }
}
