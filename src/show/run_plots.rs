//! Plots of a report as SVG images: the devices over the night, the distribution of intervals, the ratios to production.

use std::fmt::Write as _;

use handlebars::html_escape;

use crate::show::run_results::{DeviceResults, RunResults, seconds_between};

const WIDTH: f64 = 920.0;
/// Space around the axes at the top and the right, and below them for labels.
const MARGIN: f64 = 8.0;
const BELOW: f64 = 38.0;
/// Height of a row of a device or kernel.
const ROW: f64 = 16.0;
const MAX_POINTS: usize = 400;
const MAX_KERNELS: usize = 40;
/// Largest half widths of intervals in percent of the classes that are counted.
const WIDTH_CLASSES: [f64; 8] = [0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0];
const BAR: &str = "#2e7d5b";
const LINE: &str = "#b25c22";
const AXIS: &str = "#78808c";

/// An image that is drawn, with the ranges of its axes.
struct Plot {
    svg: String,
    height: f64,
    /// Space left of the vertical axis.
    left: f64,
    x: [f64; 2],
    y: [f64; 2],
}

impl Plot {
    fn new(height: f64, left: f64, x: [f64; 2], y: [f64; 2]) -> Self {
        let svg = format!(
            "<svg role=\"img\" style=\"max-width:100%;height:auto\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" xmlns=\"http://www.w3.org/2000/svg\" font-family=\"sans-serif\" \
             font-size=\"12\" fill=\"currentColor\">\n"
        );
        Self { svg, height, left, x, y }
    }

    /// Returns the place of a point in pixels.
    fn place(&self, x: f64, y: f64) -> (f64, f64) {
        let part = |value: f64, [low, high]: [f64; 2]| (value - low) / (high - low);
        let bottom = self.height - BELOW;
        (
            self.left + part(x, self.x) * (WIDTH - self.left - MARGIN),
            bottom - part(y, self.y) * (bottom - MARGIN),
        )
    }

    fn text(&mut self, (x, y): (f64, f64), anchor: &str, text: &str) {
        let text = html_escape(text);
        let _ = writeln!(self.svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
    }

    /// Draws a line through points of the plot.
    fn line(&mut self, points: impl Iterator<Item = (f64, f64)>, color: &str, width: f64) {
        let places = points.map(|(x, y)| self.place(x, y));
        let places: Vec<String> = places.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            self.svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"{width}\"/>",
            places.join(" ")
        );
    }

    fn bar(&mut self, x: [f64; 2], y: [f64; 2]) {
        let ((left, bottom), (right, top)) = (self.place(x[0], y[0]), self.place(x[1], y[1]));
        let (width, height) = ((right - left).max(0.5), bottom - top);
        let _ = writeln!(
            self.svg,
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{BAR}\"/>"
        );
    }

    /// Draws the horizontal axis with labels at these values.
    fn x_axis(&mut self, labels: impl IntoIterator<Item = (f64, String)>, title: &str) {
        let low = self.y[0];
        self.line(self.x.map(|x| (x, low)).into_iter(), AXIS, 1.0);
        for (x, label) in labels {
            let (x, y) = self.place(x, low);
            self.text((x, y + 15.0), "middle", &label);
        }
        let middle = f64::midpoint(self.left, WIDTH - MARGIN);
        self.text((middle, self.height - 6.0), "middle", title);
    }

    /// Draws the vertical axis with labels and faint lines at round values.
    fn y_axis(&mut self, title: &str) {
        let ([left, right], [low, high]) = (self.x, self.y);
        for (value, label) in round_labels(low, high, 6.0) {
            self.line([(left, value), (right, value)].into_iter(), AXIS, 0.2);
            let (x, y) = self.place(left, value);
            self.text((x - 5.0, y + 4.0), "end", &label);
        }
        self.line([(left, low), (left, high)].into_iter(), AXIS, 1.0);
        let (x, y) = (12.0, (self.height - BELOW) / 2.0);
        let _ = writeln!(
            self.svg,
            "<text transform=\"translate({x},{y}) rotate(-90)\" text-anchor=\"middle\">{title}</text>"
        );
    }

    /// Names a row of a plot whose rows have the height 1.
    fn row_name(&mut self, row: f64, name: &str) {
        let (_, y) = self.place(self.x[0], row + 0.5);
        self.text((MARGIN, y + 4.0), "start", name);
    }

    fn finish(self) -> String {
        self.svg + "</svg>"
    }
}

/// Returns about `count` round values of a range with their labels.
fn round_labels(low: f64, high: f64, count: f64) -> Vec<(f64, String)> {
    let rough = (high - low) / count;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= rough);
    let step = step.unwrap_or(rough);
    let decimals = if step < 1.0 { 1 } else { 0 };
    let values = std::iter::successors(Some((low / step).ceil() * step), |value| Some(value + step));
    values.take_while(|value| *value <= high).map(|value| (value, format!("{value:.decimals$}"))).collect()
}

/// Returns the unit of the time axis of a run, its length in it, and the seconds of the unit.
fn time_axis(results: &RunResults) -> (String, f64, f64) {
    let (start, end) = results.span();
    let seconds = seconds_between(start, end);
    let (unit, unit_seconds) = match seconds {
        ..300.0 => ("seconds", 1.0),
        ..10_800.0 => ("minutes", 60.0),
        _ => ("hours", 3600.0),
    };
    (format!("{unit} since the start"), seconds / unit_seconds, unit_seconds)
}

/// Returns the times of the collections of each device since the start of the run.
pub(super) fn busy_plot(results: &RunResults) -> Option<String> {
    let ((start, _), (title, whole, unit)) = (results.span(), time_axis(results));
    let used = results.devices.iter().filter(|(_, device)| device.collections > 0);
    let devices: Vec<u32> = used.map(|(device, _)| *device).collect();
    if devices.is_empty() || whole <= 0.0 {
        return None;
    }
    let rows = as_number(devices.len());
    let mut plot = Plot::new(MARGIN + BELOW + ROW * rows, 78.0, [0.0, whole], [0.0, rows]);
    for (row, device) in devices.iter().enumerate() {
        plot.row_name(as_number(row), &format!("device {device}"));
    }
    for collection in &results.collections {
        let Some(ended) = collection.ended else { continue };
        let times = [collection.started, ended].map(|at| seconds_between(start, at) / unit);
        for row in devices.iter().enumerate().filter(|(_, device)| collection.devices.contains(device)) {
            let row = as_number(row.0);
            plot.bar(times, [row + 0.15, row + 0.85]);
        }
    }
    plot.x_axis(round_labels(0.0, whole, 10.0), &title);
    Some(plot.finish())
}

/// Returns the temperatures of all devices over the run.
pub(super) fn temperature_plot(results: &RunResults) -> Option<String> {
    let ((start, _), (title, whole, unit)) = (results.span(), time_axis(results));
    let extremes = results.devices.values().filter_map(DeviceResults::temperatures);
    let (low, high) = extremes.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))?;
    if whole <= 0.0 {
        return None;
    }
    #[expect(clippy::cast_precision_loss, reason = "degrees")]
    let range = [(low - 2) as f64, (high + 2) as f64];
    let mut plot = Plot::new(240.0, 58.0, [0.0, whole], range);
    for device in results.devices.values() {
        let step = device.readings.len().div_ceil(MAX_POINTS).max(1);
        #[expect(clippy::cast_precision_loss, reason = "degrees")]
        let points = device.readings.iter().step_by(step).filter_map(|reading| {
            Some((seconds_between(start, reading.at) / unit, reading.temperature? as f64))
        });
        plot.line(points, LINE, 1.0);
    }
    plot.y_axis("degrees Celsius");
    plot.x_axis(round_labels(0.0, whole, 10.0), &title);
    Some(plot.finish())
}

/// Returns the numbers of cases by the half width of their interval, in classes that double.
pub(super) fn interval_plot(results: &RunResults) -> Option<String> {
    let widths = results.half_widths();
    if widths.is_empty() {
        return None;
    }
    let mut counts = [0_usize; WIDTH_CLASSES.len() + 1];
    for width in widths {
        let class = WIDTH_CLASSES.iter().position(|limit| width <= *limit);
        counts[class.unwrap_or(WIDTH_CLASSES.len())] += 1;
    }
    let most = counts.iter().copied().max().unwrap_or(1);
    let mut plot = Plot::new(240.0, 68.0, [0.0, as_number(counts.len())], [0.0, as_number(most) * 1.05]);
    plot.y_axis("cases");
    for (class, count) in counts.iter().enumerate().map(|(class, count)| (as_number(class), *count)) {
        plot.bar([class + 0.06, class + 0.94], [0.0, as_number(count)]);
    }
    let labels = WIDTH_CLASSES.iter().enumerate().map(|(at, limit)| (as_number(at + 1), limit.to_string()));
    let labels = [(0.0, "0".to_owned())].into_iter().chain(labels);
    plot.x_axis(labels, "half width of the 95 % interval in percent");
    Some(plot.finish())
}

/// Returns the smallest, the median and the largest ratio to production of each kernel, those that deviate most at the top. The
/// axis is logarithmic: half and double are equally far from 1.
pub(super) fn ratio_plot(results: &RunResults) -> Option<String> {
    let kernels = results.kernels.iter();
    let mut kernels: Vec<(&str, [f64; 3])> = kernels
        .filter_map(|(kernel, results)| Some((kernel.as_str(), results.ratio_range()?.map(f64::log2))))
        .collect();
    if kernels.is_empty() {
        return None;
    }
    kernels.sort_by(|(_, one), (_, other)| other[1].abs().total_cmp(&one[1].abs()));
    kernels.truncate(MAX_KERNELS);
    kernels.reverse();
    let low = kernels.iter().map(|(_, range)| range[0]).fold(-0.4, f64::min) - 0.1;
    let high = kernels.iter().map(|(_, range)| range[2]).fold(0.4, f64::max) + 0.1;
    let rows = as_number(kernels.len());
    let mut plot = Plot::new(MARGIN + BELOW + ROW * rows, 228.0, [low, high], [0.0, rows]);
    plot.line([(0.0, 0.0), (0.0, rows)].into_iter(), AXIS, 2.0);
    for (row, (name, [least, median, most])) in kernels.into_iter().enumerate() {
        let row = as_number(row);
        plot.row_name(row, name);
        plot.line([(least, row + 0.5), (most, row + 0.5)].into_iter(), LINE, 2.0);
        let (x, y) = plot.place(median, row + 0.5);
        let _ = writeln!(plot.svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{BAR}\"/>");
    }
    let labels = round_labels(low, high, 8.0).into_iter();
    plot.x_axis(
        labels.map(|(exponent, _)| (exponent, format!("{:.2}", exponent.exp2()))),
        "duration alone by duration in production",
    );
    Some(plot.finish())
}

#[expect(clippy::cast_precision_loss, reason = "numbers of rows and cases")]
const fn as_number(count: usize) -> f64 {
    count as f64
}
