//! Image of the rows of grids.

use std::{collections::BTreeMap, fmt::Write as _};

use crate::cases::grid::{AxisRange, SelectedRows};

/// Width and height of a kernel's panel.
const PANEL: f64 = 220.0;
/// Margin on each side of a panel.
const MARGIN: f64 = 44.0;
/// Panels in a row.
const ACROSS: usize = 4;

/// Draws the rows of each kernel over its two axes with most values, both logarithmic, as an SVG image.
pub(crate) fn coverage_plot(kernels: &[SelectedRows<'_>]) -> String {
    let shown: Vec<&SelectedRows<'_>> = kernels.iter().filter(|kernel| kernel.rows() > 0).collect();
    let step = PANEL + 2.0 * MARGIN;
    #[expect(clippy::cast_precision_loss, reason = "a few hundred panels")]
    let position = |index: usize| ((index % ACROSS) as f64 * step, (index / ACROSS) as f64 * step);
    let (width, height) = (position(ACROSS - 1).0 + step, position(shown.len().max(1) - 1).1 + step);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (index, kernel) in shown.iter().enumerate() {
        draw_panel(&mut svg, kernel, position(index));
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw_panel(svg: &mut String, kernel: &SelectedRows<'_>, (left, top): (f64, f64)) {
    let mut ranges = kernel.ranges();
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
    kernel.for_each(|row| {
        let value = |wanted: &str| row.axes().find(|(name, _)| *name == wanted).map(|(_, number)| number);
        if let (Some(x), Some(y)) = (value(&x), value(&y)) {
            *points.entry((x, y)).or_default() += 1;
        }
    });
    for ((x, y), count) in points {
        let (x, y) = (position_in_range(x, x_range) * PANEL, (1.0 - position_in_range(y, y_range)) * PANEL);
        let radius = 1.5 + f64::from(count.min(64)).log2() / 3.0;
        let _ = writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\" fill=\"#2563eb\" fill-opacity=\"0.6\"/>"
        );
    }
    svg.push_str("</g>\n");
}

/// Returns the position of a value in a range, from 0 to 1, in log space.
#[expect(clippy::cast_precision_loss, reason = "coordinates of an image")]
fn position_in_range(value: i64, range: AxisRange) -> f64 {
    let log = |value: i64| (value.max(1) as f64).log2();
    let width = log(range.greatest) - log(range.least);
    if width > 0.0 { (log(value) - log(range.least)) / width } else { 0.5 }
}
