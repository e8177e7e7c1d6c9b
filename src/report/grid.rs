//! What became of the candidates of grids: a table, JSON lines, and a plot of what the rows cover.

use std::{collections::BTreeMap, fmt::Write as _};

use comfy_table::{Cell, CellAlignment, Table, presets::NOTHING};

use crate::{
    domain::KernelName,
    grid::{AxisRange, RejectCount, RejectReason, SelectedCandidates},
};

/// One kernel.
#[derive(Debug)]
pub struct GrownKernel<'a> {
    /// The kernel.
    pub kernel: &'a KernelName,
    /// Its candidates.
    pub grown: &'a SelectedCandidates<'a>,
    /// Seconds that one launch of each row takes at the least, where somebody computed it.
    pub fastest: Option<f64>,
}

/// Columns of reasons: expressions together, each other reason by itself.
const REASONS: [&str; 9] = [
    "constraint",
    "no value",
    "no dimension",
    "memory",
    "no entry",
    "shape rule",
    "there already",
    "same as another",
    "not taken",
];

const fn column(reason: &RejectReason) -> usize {
    match reason {
        RejectReason::Constraint(_) => 0,
        RejectReason::NoValue(_) => 1,
        RejectReason::Dimension(_) => 2,
        RejectReason::Memory => 3,
        RejectReason::NoEntry => 4,
        RejectReason::Rule => 5,
        RejectReason::Known => 6,
        RejectReason::Twice => 7,
        RejectReason::NotTaken => 8,
    }
}

/// A row for each kernel, with the sums below; reasons that did not occur have no column.
#[must_use]
pub fn grid_table(kernels: &[GrownKernel<'_>]) -> String {
    let lines = kernels.iter().map(|GrownKernel { kernel, grown, fastest }| GridLine {
        kernel: kernel.as_str(),
        candidates: grown.candidates,
        refused: grown.refused().into_iter().map(|(reason, refusals)| (reason, refusals.count)).collect(),
        rows: grown.rows(),
        fastest: *fastest,
        last: ranges(&grown.ranges()),
    });
    table(&lines.collect::<Vec<_>>(), "ranges of the rows")
}

/// A row of the table.
pub(super) struct GridLine<'a> {
    pub(super) kernel: &'a str,
    pub(super) candidates: u64,
    pub(super) refused: BTreeMap<&'a RejectReason, u64>,
    pub(super) rows: usize,
    pub(super) fastest: Option<f64>,
    /// What stands in the last column.
    pub(super) last: String,
}

/// The table of some kernels, whose last column has that header.
pub(super) fn table(lines: &[GridLine<'_>], last_header: &str) -> String {
    let counts = |line: &GridLine<'_>| {
        let mut counts = [0_u64; REASONS.len()];
        for (reason, count) in &line.refused {
            counts[column(reason)] += count;
        }
        counts
    };
    let mut sums = [0_u64; REASONS.len()];
    for line in lines {
        for (sum, count) in sums.iter_mut().zip(counts(line)) {
            *sum += count;
        }
    }
    let shown: Vec<usize> = (0..REASONS.len()).filter(|&reason| sums[reason] > 0).collect();
    let timed = lines.iter().any(|line| line.fastest.is_some());
    let mut table = Table::new();
    table.load_style(NOTHING);
    let header = ["kernel", "candidates"].into_iter().chain(shown.iter().map(|&reason| REASONS[reason]));
    table.set_header(header.chain(["rows"]).chain(timed.then_some("at least")).chain([last_header]));
    let mut add = |line: &GridLine<'_>, counts: [u64; REASONS.len()]| {
        let number = |count: u64| if count == 0 { String::new() } else { count.to_string() };
        let cells = [line.kernel.to_owned(), number(line.candidates)];
        let cells = cells.into_iter().chain(shown.iter().map(|&reason| number(counts[reason])));
        let time = line.fastest.filter(|_| line.rows > 0).map_or_else(String::new, seconds);
        let last = std::iter::once(number(line.rows as u64)).chain(timed.then_some(time));
        table.add_row(cells.chain(last).chain([line.last.clone()]).map(Cell::new).collect::<Vec<_>>());
    };
    for line in lines {
        add(line, counts(line));
    }
    let all = GridLine {
        kernel: "all",
        candidates: lines.iter().map(|line| line.candidates).sum(),
        refused: BTreeMap::new(),
        rows: lines.iter().map(|line| line.rows).sum(),
        fastest: timed.then(|| lines.iter().filter_map(|line| line.fastest).sum()),
        last: String::new(),
    };
    add(&all, sums);
    let last = shown.len() + 3 + usize::from(timed);
    for column in table.column_iter_mut().skip(1).take(last - 1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    super::summary_tables::trim_lines(&table)
}

fn seconds(seconds: f64) -> String {
    match seconds {
        ..1e-3 => format!("{:.1} us", seconds * 1e6),
        ..1.0 => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{seconds:.1} s"),
    }
}

fn ranges(ranges: &[(String, AxisRange)]) -> String {
    let texts = ranges.iter().map(|(name, AxisRange { least, greatest, values })| match values {
        1 => format!("{name} {least}"),
        _ => format!("{name} {least}..{greatest} ({values})"),
    });
    texts.collect::<Vec<_>>().join(", ")
}

/// What was asked of a growth, for whoever reads its result.
#[derive(Clone, Copy, Debug)]
pub struct GridRequest<'a> {
    /// The models that were named.
    pub models: &'a [String],
    /// Decides the sample.
    pub seed: u64,
    /// Whether rows were only counted.
    pub dry_run: bool,
}

/// A line of JSON for each kernel (JSON Lines).
#[must_use]
pub fn grid_json(kernels: &[GrownKernel<'_>], asked: &GridRequest<'_>) -> String {
    let lines = kernels.iter().map(|GrownKernel { kernel, grown, fastest }| {
        let ranges: BTreeMap<String, serde_json::Value> = grown
            .ranges()
            .into_iter()
            .map(|(name, AxisRange { least, greatest, values })| {
                (name, serde_json::json!({"least": least, "greatest": greatest, "values": values}))
            })
            .collect();
        let refused: Vec<_> = grown.refused().iter().map(|(reason, refusals)| refusal(reason, refusals)).collect();
        let object = serde_json::json!({
            "kernel": kernel.as_str(), "candidates": grown.candidates, "rows": grown.rows(), "refused": refused,
            "ranges": ranges, "fastest_s": fastest.map(to_nanoseconds), "models": asked.models, "seed": asked.seed,
            "dry_run": asked.dry_run,
        });
        format!("{object}\n")
    });
    lines.collect()
}

/// Seconds to whole nanoseconds, so that no rounding of sums is printed.
pub(super) fn to_nanoseconds(seconds: f64) -> f64 {
    (seconds * 1e9).round() / 1e9
}

/// A reason of refusal, as JSON.
pub(super) fn refusal(reason: &RejectReason, refusals: &RejectCount) -> serde_json::Value {
    let mut object = serde_json::json!({"reason": reason.label(), "count": refusals.count});
    for (key, text) in [("expression", reason.expression()), ("example", refusals.example.as_deref())] {
        if let Some(text) = text {
            object[key] = text.into();
        }
    }
    object
}

/// What the catalogue's rule refused, and for each pattern that gives no row at all every reason, with an example.
#[must_use]
pub fn grid_notes(kernels: &[GrownKernel<'_>]) -> Vec<String> {
    let mut notes = Vec::new();
    for GrownKernel { kernel, grown, .. } in kernels {
        let barren: Vec<_> = grown.empty_spaces().collect();
        for (space, refused) in &barren {
            let model = space.model.as_ref().map_or_else(String::new, |model| format!(" of {model}"));
            notes.push(format!(
                "{kernel}: no candidate of {}: {}{model} can be a row",
                space.grid, space.pattern
            ));
            notes.extend(refused.iter().map(|(reason, RejectCount { count, example })| {
                let example =
                    example.as_ref().map_or_else(String::new, |example| format!(", such as: {example}"));
                format!("  {count}: {reason}{example}")
            }));
        }
        let of_rule = grown.refused().remove(&RejectReason::Rule).and_then(|refusals| refusals.example);
        let is_said = barren.iter().any(|(_, refused)| refused.contains_key(&RejectReason::Rule));
        notes.extend(
            of_rule
                .filter(|_| !is_said)
                .map(|example| format!("{kernel}: the rule refuses such as: {example}")),
        );
    }
    notes
}

const PANEL: f64 = 220.0;
const MARGIN: f64 = 44.0;
const ACROSS: usize = 4;

/// The rows of each kernel over its two axes of most values, both logarithmic, as an SVG image.
#[must_use]
pub fn coverage_plot(kernels: &[GrownKernel<'_>]) -> String {
    let shown: Vec<&GrownKernel<'_>> = kernels.iter().filter(|kernel| kernel.grown.rows() > 0).collect();
    let step = PANEL + 2.0 * MARGIN;
    #[expect(clippy::cast_precision_loss, reason = "a few hundred panels")]
    let place = |index: usize| ((index % ACROSS) as f64 * step, (index / ACROSS) as f64 * step);
    let (width, height) = (place(ACROSS - 1).0 + step, place(shown.len().max(1) - 1).1 + step);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (index, kernel) in shown.iter().enumerate() {
        panel(&mut svg, kernel, place(index));
    }
    svg.push_str("</svg>\n");
    svg
}

fn panel(svg: &mut String, kernel: &GrownKernel<'_>, (left, top): (f64, f64)) {
    let mut ranges = kernel.grown.ranges();
    ranges.sort_by_key(|(_, range)| std::cmp::Reverse(range.values));
    let Some((x, x_range)) = ranges.first().cloned() else { return };
    let (y, y_range) = ranges.get(1).cloned().unwrap_or_else(|| (x.clone(), x_range));
    let (left, top) = (left + MARGIN, top + MARGIN);
    let name = kernel.kernel.as_str().replace('&', "&amp;").replace('<', "&lt;");
    let (middle, below) = (PANEL / 2.0, PANEL + 14.0);
    let ((x_least, x_greatest), (y_least, y_greatest)) =
        ((x_range.least, x_range.greatest), (y_range.least, y_range.greatest));
    let _ = write!(
        svg,
        "<g transform=\"translate({left},{top})\">\n<text y=\"-8\" font-weight=\"bold\">{name}</text>\n\
         <rect width=\"{PANEL}\" height=\"{PANEL}\" fill=\"none\" stroke=\"#999\"/>\n\
         <text y=\"{below}\">{x_least}</text>\n\
         <text x=\"{middle}\" y=\"{below}\" text-anchor=\"middle\">{x}</text>\n\
         <text x=\"{PANEL}\" y=\"{below}\" text-anchor=\"end\">{x_greatest}</text>\n\
         <text x=\"-4\" y=\"{PANEL}\" text-anchor=\"end\">{y_least}</text>\n\
         <text x=\"-4\" y=\"{middle}\" text-anchor=\"end\">{y}</text>\n\
         <text x=\"-4\" y=\"10\" text-anchor=\"end\">{y_greatest}</text>\n"
    );
    let mut points: BTreeMap<(i64, i64), u32> = BTreeMap::new();
    let _ = kernel.grown.for_each(|space, numbers, _| {
        let value = |wanted: &str| {
            let at = space.names.iter().position(|name| name == wanted);
            at.and_then(|at| numbers.get(at)).copied()
        };
        if let (Some(x), Some(y)) = (value(&x), value(&y)) {
            *points.entry((x, y)).or_default() += 1;
        }
        Ok::<(), std::convert::Infallible>(())
    });
    for ((x, y), count) in points {
        let (x, y) = (share(x, x_range) * PANEL, (1.0 - share(y, y_range)) * PANEL);
        let radius = 1.5 + f64::from(count.min(64)).log2() / 3.0;
        let _ = writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\" fill=\"#2563eb\" fill-opacity=\"0.6\"/>"
        );
    }
    svg.push_str("</g>\n");
}

/// Where a value stands in a range, in log space.
#[expect(clippy::cast_precision_loss, reason = "for the eye")]
fn share(value: i64, range: AxisRange) -> f64 {
    let log = |value: i64| (value.max(1) as f64).log2();
    let width = log(range.greatest) - log(range.least);
    if width > 0.0 { (log(value) - log(range.least)) / width } else { 0.5 }
}
