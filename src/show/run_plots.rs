//! Plots of a report as SVG images: the devices over the night, the distribution of intervals, the ratios to production.

use plotters::{
    backend::SVGBackend,
    chart::{ChartBuilder, LabelAreaPosition},
    drawing::{DrawingAreaErrorKind, IntoDrawingArea as _},
    element::{Circle, PathElement, Rectangle, Text},
    series::LineSeries,
    style::{Color as _, RGBColor, ShapeStyle},
};

use crate::show::run_results::{RunResults, seconds_between};

const WIDTH: u32 = 920;
/// Greatest number of points of a line.
const MOST_POINTS: usize = 400;
/// Greatest number of kernels in a plot.
const MOST_KERNELS: usize = 40;
const BUSY: RGBColor = RGBColor(46, 125, 91);
const LINE: RGBColor = RGBColor(178, 92, 34);
const AXIS: RGBColor = RGBColor(120, 128, 140);

/// Error of a plot; an image in memory has none in practice.
type PlotResult = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Returns the image that `draw` draws; `None` if it cannot be drawn.
fn image(height: u32, draw: impl FnOnce(SVGBackend<'_>) -> PlotResult) -> Option<String> {
    let mut svg = String::new();
    draw(SVGBackend::with_string(&mut svg, (WIDTH, height))).ok()?;
    // The size of the page decides, and text has its colour.
    let svg = svg.replacen("<svg ", "<svg role=\"img\" style=\"max-width:100%;height:auto\" ", 1);
    Some(svg.replace("fill=\"#000000\"", "fill=\"currentColor\""))
}

/// Returns the unit of the time axis of a run, with its seconds.
const fn time_unit(seconds: f64) -> (&'static str, f64) {
    match seconds {
        ..300.0 => ("seconds", 1.0),
        ..10_800.0 => ("minutes", 60.0),
        _ => ("hours", 3600.0),
    }
}

/// Returns the times of the collections of each device since the start of the run.
pub(super) fn busy_plot(results: &RunResults) -> Option<String> {
    let (start, end) = results.span();
    let (unit, unit_seconds) = time_unit(seconds_between(start, end));
    let whole = seconds_between(start, end) / unit_seconds;
    if results.devices.values().all(|device| device.collections == 0) || whole <= 0.0 {
        return None;
    }
    let used = results.devices.iter().filter(|(_, device)| device.collections > 0);
    let devices: Vec<u32> = used.map(|(device, _)| *device).collect();
    let rows = devices.len();
    let height = 60 + 16 * u32::try_from(rows).ok()?;
    image(height, |backend| {
        let area = backend.into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(6)
            .set_label_area_size(LabelAreaPosition::Left, 70)
            .set_label_area_size(LabelAreaPosition::Bottom, 30)
            .build_cartesian_2d(0.0..whole, 0.0..as_number(rows))?;
        chart
            .configure_mesh()
            .disable_mesh()
            .axis_style(AXIS)
            .x_desc(format!("{unit} since the start"))
            .y_labels(0)
            .draw()?;
        for (row, device) in devices.iter().enumerate() {
            let (_, y) = chart.backend_coord(&(0.0, as_number(row) + 0.5));
            area.draw(&row_name(format!("device {device}"), (8, y)))?;
        }
        for collection in &results.collections {
            let Some(ended) = collection.ended else { continue };
            let [from, to] = [collection.started, ended].map(|at| seconds_between(start, at) / unit_seconds);
            for device in &collection.devices {
                let Some(row) = devices.iter().position(|known| known == device) else { continue };
                let row = as_number(row);
                let bar = Rectangle::new([(from, row + 0.15), (to, row + 0.85)], BUSY.filled());
                chart.draw_series(std::iter::once(bar))?;
            }
        }
        area.present()
    })
}

/// Returns the name of a row, left of the axis, with its middle at a place in pixels.
fn row_name(name: String, (x, y): (i32, i32)) -> Text<'static, (i32, i32), String> {
    const HEIGHT: i32 = 12;
    Text::new(name, (x, y - HEIGHT / 2), ("sans-serif", HEIGHT))
}

/// Returns the temperatures of all devices over the run.
pub(super) fn temperature_plot(results: &RunResults) -> Option<String> {
    let (start, end) = results.span();
    let (unit, unit_seconds) = time_unit(seconds_between(start, end));
    let whole = seconds_between(start, end) / unit_seconds;
    let extremes = results.devices.values().filter_map(super::run_results::DeviceResults::temperatures);
    let (low, high) = extremes.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))?;
    if whole <= 0.0 {
        return None;
    }
    #[expect(clippy::cast_precision_loss, reason = "degrees")]
    let range = (low - 2) as f64..(high + 2) as f64;
    image(240, |backend| {
        let area = backend.into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(6)
            .set_label_area_size(LabelAreaPosition::Left, 50)
            .set_label_area_size(LabelAreaPosition::Bottom, 30)
            .build_cartesian_2d(0.0..whole, range)?;
        chart
            .configure_mesh()
            .axis_style(AXIS)
            .light_line_style(AXIS.mix(0.1))
            .bold_line_style(AXIS.mix(0.25))
            .x_desc(format!("{unit} since the start"))
            .y_desc("degrees Celsius")
            .draw()?;
        for device in results.devices.values() {
            let step = device.readings.len().div_ceil(MOST_POINTS).max(1);
            #[expect(clippy::cast_precision_loss, reason = "degrees")]
            let points = device.readings.iter().step_by(step).filter_map(|reading| {
                Some((seconds_between(start, reading.at) / unit_seconds, reading.temperature? as f64))
            });
            chart.draw_series(LineSeries::new(points, LINE.mix(0.7).stroke_width(1)))?;
        }
        area.present()
    })
}

/// Returns the numbers of cases by the half width of their interval, in classes that double.
pub(super) fn interval_plot(results: &RunResults) -> Option<String> {
    let widths = results.half_widths();
    if widths.is_empty() {
        return None;
    }
    let limits = [0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0];
    let class = |width: f64| limits.iter().position(|limit| width <= *limit).unwrap_or(limits.len());
    let mut counts = [0_usize; 9];
    widths.iter().for_each(|width| counts[class(*width)] += 1);
    let most = counts.iter().copied().max().unwrap_or(1);
    image(240, |backend| {
        let area = backend.into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(6)
            .set_label_area_size(LabelAreaPosition::Left, 60)
            .set_label_area_size(LabelAreaPosition::Bottom, 30)
            .build_cartesian_2d(0.0..9.0, 0.0..as_number(most) * 1.05)?;
        let label = |place: &f64| {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "one of nine classes"
            )]
            let class = place.round().max(0.0) as usize;
            match limits.get(class.wrapping_sub(1)) {
                Some(limit) => format!("{limit}"),
                None => "0".to_owned(),
            }
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .axis_style(AXIS)
            .light_line_style(AXIS.mix(0.1))
            .bold_line_style(AXIS.mix(0.25))
            .x_labels(9)
            .x_label_formatter(&label)
            .x_desc("half width of the 95 % interval in percent")
            .y_desc("cases")
            .draw()?;
        let bars = counts.iter().enumerate().map(|(class, count)| {
            let left = as_number(class);
            Rectangle::new([(left + 0.06, 0.0), (left + 0.94, as_number(*count))], BUSY.filled())
        });
        chart.draw_series(bars)?;
        area.present()
    })
}

/// Returns the least, median and greatest ratio to production of each kernel, those that deviate most first.
pub(super) fn ratio_plot(results: &RunResults) -> Option<String> {
    let mut kernels: Vec<(&str, [f64; 3])> = results
        .kernels
        .iter()
        .filter_map(|(kernel, results)| Some((kernel.as_str(), results.ratio_range()?)))
        .collect();
    if kernels.is_empty() {
        return None;
    }
    let deviation = |range: &[f64; 3]| range[1].ln().abs();
    kernels.sort_by(|(_, one), (_, other)| deviation(other).total_cmp(&deviation(one)));
    kernels.truncate(MOST_KERNELS);
    kernels.reverse();
    let low = kernels.iter().map(|(_, range)| range[0]).fold(0.8, f64::min) * 0.95;
    let high = kernels.iter().map(|(_, range)| range[2]).fold(1.2, f64::max) * 1.05;
    let rows = kernels.len();
    let height = 60 + 16 * u32::try_from(rows).ok()?;
    image(height, |backend| {
        let area = backend.into_drawing_area();
        // Ratios on a logarithmic axis: half and double are equally far.
        let mut chart = ChartBuilder::on(&area)
            .margin(6)
            .set_label_area_size(LabelAreaPosition::Left, 220)
            .set_label_area_size(LabelAreaPosition::Bottom, 30)
            .build_cartesian_2d(low.log2()..high.log2(), 0.0..as_number(rows))?;
        let ratio = |exponent: &f64| format!("{:.2}", exponent.exp2());
        chart
            .configure_mesh()
            .disable_y_mesh()
            .axis_style(AXIS)
            .light_line_style(AXIS.mix(0.1))
            .bold_line_style(AXIS.mix(0.25))
            .y_labels(0)
            .x_label_formatter(&ratio)
            .x_desc("duration alone by duration in production")
            .draw()?;
        let one =
            PathElement::new([(0.0, 0.0), (0.0, as_number(rows))], ShapeStyle::from(AXIS).stroke_width(2));
        chart.draw_series(std::iter::once(one))?;
        for (row, (name, range)) in kernels.iter().enumerate() {
            let y = as_number(row) + 0.5;
            let (_, place) = chart.backend_coord(&(0.0, y));
            area.draw(&row_name((*name).to_owned(), (8, place)))?;
            let [least, median, most] = range.map(f64::log2);
            let line =
                PathElement::new([(least, y), (most, y)], ShapeStyle::from(LINE.mix(0.6)).stroke_width(2));
            chart.draw_series(std::iter::once(line))?;
            chart.draw_series(std::iter::once(Circle::new((median, y), 4, BUSY.filled())))?;
        }
        area.present()
    })
}

#[expect(clippy::cast_precision_loss, reason = "numbers of rows and cases")]
const fn as_number(count: usize) -> f64 {
    count as f64
}
