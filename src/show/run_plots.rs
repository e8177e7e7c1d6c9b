//! Plots of a report as SVG images: the devices over the night, the distribution of intervals, the ratios to production.

use super::{prelude::*, run_results::DeviceResults};

const WIDTH: f64 = 920.0;
/// Space around the axes at the top and the right, and below them for labels.
const MARGIN: f64 = 8.0;
const BELOW: f64 = 38.0;
const ROW: f64 = 16.0;
const MAX_POINTS: usize = 400;
const MAX_KERNELS: usize = 40;
/// Largest half widths of intervals in percent of the classes that are counted.
const WIDTH_CLASSES: [f64; 8] = [0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0];
const BAR: &str = "#2e7d5b";
const LINE: &str = "#b25c22";
const AXIS: &str = "#78808c";

fn new_plot(height: f64, left: f64, x: [f64; 2], y: [f64; 2]) -> Plot {
    let area = PlotArea { left, top: MARGIN, right: WIDTH - MARGIN, bottom: height - BELOW, x, y };
    Plot::of_page(WIDTH, height, area)
}

fn line(plot: &mut Plot, points: impl IntoIterator<Item = (f64, f64)>, color: &str, width: f64) {
    plot.line(points, &format!("stroke=\"{color}\" stroke-width=\"{width}\""));
}

fn bar(plot: &mut Plot, x: [f64; 2], y: [f64; 2]) {
    let ((left, bottom), (right, top)) = (plot.place(x[0], y[0]), plot.place(x[1], y[1]));
    plot.rect([left, top], [(right - left).max(0.5), bottom - top], &format!("fill=\"{BAR}\""));
}

fn x_axis(plot: &mut Plot, labels: impl IntoIterator<Item = (f64, String)>, title: &str) {
    let PlotArea { left, right, bottom, x, y: [low, _], .. } = plot.area;
    line(plot, x.map(|x| (x, low)), AXIS, 1.0);
    for (x, label) in labels {
        let (x, y) = plot.place(x, low);
        plot.text((x, y + 15.0), "text-anchor=\"middle\"", &label);
    }
    plot.text((f64::midpoint(left, right), bottom + BELOW - 6.0), "text-anchor=\"middle\"", title);
}

fn y_axis(plot: &mut Plot, title: &str) {
    let PlotArea { bottom, x: [left, right], y: [low, high], .. } = plot.area;
    for (value, label) in round_labels(low, high, 6.0) {
        line(plot, [(left, value), (right, value)], AXIS, 0.2);
        let (x, y) = plot.place(left, value);
        plot.text((x - 5.0, y + 4.0), "text-anchor=\"end\"", &label);
    }
    line(plot, [(left, low), (left, high)], AXIS, 1.0);
    plot.upward_text((12.0, bottom / 2.0), title);
}

fn row_name(plot: &mut Plot, row: f64, name: &str) {
    let (_, y) = plot.place(plot.area.x[0], row + 0.5);
    plot.text((MARGIN, y + 4.0), "text-anchor=\"start\"", name);
}

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

pub(super) fn busy_plot(results: &RunResults) -> Option<String> {
    let ((start, _), (title, whole, unit)) = (results.span(), time_axis(results));
    let used = results.devices.iter().filter(|(_, device)| device.collections > 0);
    let devices: Vec<u32> = used.map(|(device, _)| *device).collect();
    if devices.is_empty() || whole <= 0.0 {
        return None;
    }
    let rows = as_number(devices.len());
    let mut plot = new_plot(MARGIN + BELOW + ROW * rows, 78.0, [0.0, whole], [0.0, rows]);
    for (row, device) in devices.iter().enumerate() {
        row_name(&mut plot, as_number(row), &format!("device {device}"));
    }
    for collection in &results.collections {
        let Some(ended) = collection.ended else { continue };
        let times = [collection.started, ended].map(|at| seconds_between(start, at) / unit);
        for row in devices.iter().enumerate().filter(|(_, device)| collection.devices.contains(device)) {
            let row = as_number(row.0);
            bar(&mut plot, times, [row + 0.15, row + 0.85]);
        }
    }
    x_axis(&mut plot, round_labels(0.0, whole, 10.0), &title);
    Some(plot.finish())
}

pub(super) fn temperature_plot(results: &RunResults) -> Option<String> {
    let ((start, _), (title, whole, unit)) = (results.span(), time_axis(results));
    let extremes = results.devices.values().filter_map(DeviceResults::temperatures);
    let (low, high) = extremes.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))?;
    if whole <= 0.0 {
        return None;
    }
    let range = [float(low - 2), float(high + 2)];
    let mut plot = new_plot(240.0, 58.0, [0.0, whole], range);
    for device in results.devices.values() {
        let step = device.readings.len().div_ceil(MAX_POINTS).max(1);
        let points = device.readings.iter().step_by(step).filter_map(|reading| {
            Some((seconds_between(start, reading.at) / unit, float(reading.temperature?)))
        });
        line(&mut plot, points, LINE, 1.0);
    }
    y_axis(&mut plot, "degrees Celsius");
    x_axis(&mut plot, round_labels(0.0, whole, 10.0), &title);
    Some(plot.finish())
}

pub(super) fn interval_plot(results: &RunResults) -> Option<String> {
    let widths: Vec<f64> = results.cases.iter().filter_map(|case| case.half_width_percent).collect();
    if widths.is_empty() {
        return None;
    }
    let mut counts = [0_usize; WIDTH_CLASSES.len() + 1];
    for width in widths {
        let class = WIDTH_CLASSES.iter().position(|limit| width <= *limit);
        counts[class.unwrap_or(WIDTH_CLASSES.len())] += 1;
    }
    let most = counts.iter().copied().max().unwrap_or(1);
    let mut plot = new_plot(240.0, 68.0, [0.0, as_number(counts.len())], [0.0, as_number(most) * 1.05]);
    y_axis(&mut plot, "cases");
    for (class, count) in counts.iter().enumerate().map(|(class, count)| (as_number(class), *count)) {
        bar(&mut plot, [class + 0.06, class + 0.94], [0.0, as_number(count)]);
    }
    let labels = WIDTH_CLASSES.iter().enumerate().map(|(at, limit)| (as_number(at + 1), limit.to_string()));
    let labels = [(0.0, "0".to_owned())].into_iter().chain(labels);
    x_axis(&mut plot, labels, "half width of the 95 % interval in percent");
    Some(plot.finish())
}

/// Returns the smallest, the median and the largest ratio to production of each kernel, those that deviate most at the top. The
/// axis is logarithmic: half and double are equally far from 1.
pub(super) fn ratio_plot(results: &RunResults) -> Option<String> {
    let by_kernel = results.kernels();
    let ranges = by_kernel.iter().filter_map(|(kernel, cases)| Some((kernel.as_str(), ratio_range(cases)?)));
    let mut kernels: Vec<(&str, [f64; 3])> =
        ranges.map(|(kernel, range)| (kernel, range.map(f64::log2))).collect();
    if kernels.is_empty() {
        return None;
    }
    kernels.sort_by(|(_, one), (_, other)| other[1].abs().total_cmp(&one[1].abs()));
    kernels.truncate(MAX_KERNELS);
    kernels.reverse();
    let low = kernels.iter().map(|(_, range)| range[0]).fold(-0.4, f64::min) - 0.1;
    let high = kernels.iter().map(|(_, range)| range[2]).fold(0.4, f64::max) + 0.1;
    let rows = as_number(kernels.len());
    let mut plot = new_plot(MARGIN + BELOW + ROW * rows, 228.0, [low, high], [0.0, rows]);
    line(&mut plot, [(0.0, 0.0), (0.0, rows)], AXIS, 2.0);
    for (row, (name, [least, median, most])) in kernels.into_iter().enumerate() {
        let row = as_number(row);
        row_name(&mut plot, row, name);
        line(&mut plot, [(least, row + 0.5), (most, row + 0.5)], LINE, 2.0);
        plot.circle((median, row + 0.5), 4.0, &format!("fill=\"{BAR}\""), "");
    }
    let labels = round_labels(low, high, 8.0).into_iter();
    x_axis(
        &mut plot,
        labels.map(|(exponent, _)| (exponent, format!("{:.2}", exponent.exp2()))),
        "duration alone by duration in production",
    );
    Some(plot.finish())
}

const fn as_number(count: usize) -> f64 {
    count as f64
}
