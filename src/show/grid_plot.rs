//! Image of the rows of grids.

use super::prelude::*;
use crate::cases::grid::{AxisRange, SelectedRows};

const PANEL: f64 = 220.0;
const MARGIN: f64 = 44.0;
const ACROSS: usize = 4;

/// Draws the rows of each kernel over its two axes with most values, both logarithmic, as an SVG image.
pub(crate) fn coverage_plot(kernels: &[SelectedRows<'_>]) -> String {
    let shown: Vec<&SelectedRows<'_>> = kernels.iter().filter(|kernel| kernel.rows() > 0).collect();
    let step = PANEL + 2.0 * MARGIN;
    let position = |index: usize| ((index % ACROSS) as f64 * step, (index / ACROSS) as f64 * step);
    let mut plot = Plot::of_file(position(ACROSS - 1).0 + step, position(shown.len().max(1) - 1).1 + step);
    for (index, kernel) in shown.iter().enumerate() {
        draw_panel(&mut plot, kernel, position(index));
    }
    plot.finish() + "\n"
}

fn draw_panel(plot: &mut Plot, kernel: &SelectedRows<'_>, (left, top): (f64, f64)) {
    let mut ranges = kernel.ranges();
    ranges.sort_by_key(|(_, range)| std::cmp::Reverse(range.values));
    let Some((x, x_range)) = ranges.first().cloned() else { return };
    let (y, y_range) = ranges.get(1).cloned().unwrap_or_else(|| (x.clone(), x_range));
    let (left, top) = (left + MARGIN, top + MARGIN);
    let (right, bottom) = (left + PANEL, top + PANEL);
    plot.start_area(PlotArea { left, top, right, bottom, x: log_range(x_range), y: log_range(y_range) });
    plot.text((left, top - 8.0), "font-weight=\"bold\"", kernel.kernel.as_str());
    let (middle, below, beside) = (PANEL / 2.0, bottom + 14.0, left - 4.0);
    let end = "text-anchor=\"end\"";
    plot.text((left, below), "", &x_range.least.to_string());
    plot.text((left + middle, below), "text-anchor=\"middle\"", &x);
    plot.text((right, below), end, &x_range.greatest.to_string());
    plot.text((beside, bottom), end, &y_range.least.to_string());
    plot.text((beside, top + middle), end, &y);
    plot.text((beside, top + 10.0), end, &y_range.greatest.to_string());
    let mut points: BTreeMap<(i64, i64), u32> = BTreeMap::new();
    kernel.for_each(|row| {
        let value = |wanted: &str| row.axes().find(|(name, _)| *name == wanted).map(|(_, number)| number);
        if let (Some(x), Some(y)) = (value(&x), value(&y)) {
            *points.entry((x, y)).or_default() += 1;
        }
    });
    for ((x, y), count) in points {
        let radius = 1.5 + f64::from(count.min(64)).log2() / 3.0;
        plot.circle((log(x), log(y)), radius, "fill=\"#2563eb\" fill-opacity=\"0.6\"", "");
    }
}

fn log(value: i64) -> f64 {
    (value.max(1) as f64).log2()
}

fn log_range(range: AxisRange) -> [f64; 2] {
    let [low, high] = [range.least, range.greatest].map(log);
    if low < high { [low, high] } else { [low - 0.5, low + 0.5] }
}
