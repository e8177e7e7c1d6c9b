//! A run as markdown, short enough for a chat.

use std::fmt::Write as _;

use super::prelude::*;
use crate::base::printable::markdown_cell as cell;

const MAX_LISTED: usize = 10;

pub(crate) fn run_markdown(results: &RunResults) -> String {
    let record = &results.past.record;
    let (start, end) = results.span();
    let mut text = format!("# npubench run {}\n\n", record.run);
    if record.kind == "rehearsal" {
        text.push_str("**rehearsal: simulated durations**\n\n");
    }
    let verdicts = match results.verdicts() {
        none if none.is_empty() => "none was left to measure".to_owned(),
        verdicts => counted(verdicts),
    };
    let _ = writeln!(
        text,
        "{}, {} on {}, started {}, took {}\n\n{}: {}\n",
        results.past.state,
        format_count(results.collections.len(), "collection"),
        format_count(results.devices.values().filter(|device| device.collections > 0).count(), "device"),
        Timestamp(record.started).local_date_time(),
        format_duration(seconds_between(start, end)),
        format_count(results.cases.len(), "case"),
        verdicts
    );
    let unused = results.devices.iter().filter_map(|(device, found)| {
        Some(format!("- device {device}: {}\n", cell(found.unused_reason.as_ref()?)))
    });
    let unused: String = unused.collect();
    if !unused.is_empty() {
        text += &(unused + "\n");
    }
    let causes = results.causes();
    if !causes.is_empty() {
        text.push_str("| cases | verdict | cause |\n|---:|---|---|\n");
        for (verdict, cause, cases) in causes.iter().take(MAX_LISTED) {
            let _ = writeln!(text, "| {} | {verdict} | {} |", cases.len(), cell(cause));
        }
        text.push('\n');
    }
    if !results.notable.is_empty() {
        text.push_str("| case | kernel | inputs | why |\n|---|---|---|---|\n");
        for (index, why) in results.notable.iter().take(MAX_LISTED) {
            let case = &results.cases[*index];
            let (inputs, why) = (cell(&case.inputs), cell(why));
            let _ = writeln!(text, "| `{}` | {} | {inputs} | {why} |", case.case, case.kernel);
        }
        text.push('\n');
    }
    let kernels = results.kernels().into_iter();
    let kernels = kernels.filter_map(|(kernel, cases)| Some((kernel, cases.len(), ratio_range(&cases)?)));
    let mut kernels: Vec<_> = kernels.collect();
    kernels.sort_by(|(.., one), (.., other)| other[1].ln().abs().total_cmp(&one[1].ln().abs()));
    if !kernels.is_empty() {
        text.push_str(
            "| kernel | cases | to production, median | least | most |\n|---|---:|---:|---:|---:|\n",
        );
        for (kernel, cases, [least, median, most]) in kernels.into_iter().take(MAX_LISTED) {
            let _ = writeln!(text, "| {kernel} | {cases} | {median:.3} | {least:.3} | {most:.3} |");
        }
    }
    text
}
