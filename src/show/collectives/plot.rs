//! Bus bandwidth over message size as an SVG image: points with intervals, lines with their bands, the link's peak.

use super::super::prelude::*;
use crate::{kernel::CollectiveKind, measure::collective::SweepFit};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const MARGIN: f64 = 60.0;
const LEGEND: f64 = 16.0;
const STEPS: u32 = 4;
const COLOURS: [&str; 8] =
    ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f"];

/// Draws the sweeps of one collective over logarithmic axes; `None` without a point.
pub(crate) fn bandwidth_plot(
    fits: &[SweepFit],
    network: Option<&CommNetwork>,
    (kind, data_kind): (CollectiveKind, DataKind),
) -> Option<String> {
    let fits: Vec<&SweepFit> =
        fits.iter().filter(|fit| fit.sweep.kind == kind && !fit.sweep.points.is_empty()).collect();
    let [sizes, bandwidths] = ranges(network, &fits)?;
    let below = |index: usize| HEIGHT + LEGEND * index as f64;
    let mut plot = Plot::of_file(WIDTH, below(fits.len() + 1));
    let (semantics, mark) = (kind.size_semantics(), data_kind.mark());
    let title = format!("{kind}: bus bandwidth in GB/s over message size ({semantics}){mark}");
    plot.text((MARGIN, 24.0), "font-weight=\"bold\"", &title);
    let (left, top, right, bottom) = (MARGIN, MARGIN, WIDTH - MARGIN, HEIGHT - MARGIN);
    let [x, y] = [sizes, bandwidths].map(|range| range.map(f64::ln));
    plot.start_area(PlotArea { left, top, right, bottom, x, y });
    let grid = "stroke=\"#eee\"";
    for bits in (0..64_u32).step_by(2) {
        let bytes = 2.0_f64.powi(i32::try_from(bits).unwrap_or(0));
        if bytes >= sizes[0] && bytes <= sizes[1] {
            plot.line(y.map(|y| (bytes.ln(), y)), grid);
            let (x, _) = plot.place(bytes.ln(), y[0]);
            plot.text((x, bottom + 14.0), "text-anchor=\"middle\"", &size_text(1 << bits));
        }
    }
    for gigabytes in (-6..7).map(|exponent| 10.0_f64.powi(exponent)) {
        if gigabytes >= bandwidths[0] && gigabytes <= bandwidths[1] {
            plot.line(x.map(|x| (x, gigabytes.ln())), grid);
            let (_, y) = plot.place(x[0], gigabytes.ln());
            plot.text((left - 4.0, y + 4.0), "text-anchor=\"end\"", &gigabytes.to_string());
        }
    }
    for (index, fit) in fits.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        draw_sweep(&mut plot, fit, colour);
        let peak = fit.peak(network);
        if let Some(peak) = peak {
            let dashed = format!("class=\"peak\" stroke=\"{colour}\" stroke-dasharray=\"6 4\"");
            plot.line(x.map(|x| (x, peak.ln())), &dashed);
        }
        let peak = or_empty(peak.map(|peak| format!(" (link's peak {peak:.1} GB/s)")));
        plot.rect([MARGIN, below(index) - 9.0], [10.0, 10.0], &format!("fill=\"{colour}\""));
        plot.text((MARGIN + 16.0, below(index)), "", &(fit.sweep.name() + &peak));
    }
    Some(plot.finish() + "\n")
}

/// Returns the ranges of sizes and bandwidths with some room around them; one size or one bandwidth still needs an axis.
fn ranges(network: Option<&CommNetwork>, fits: &[&SweepFit]) -> Option<[[f64; 2]; 2]> {
    let points = || fits.iter().flat_map(|fit| fit.sweep.points.iter().map(move |point| (fit, point)));
    let sizes = points().map(|(_, point)| point.message as f64);
    let buses = points().map(|(fit, point)| fit.sweep.bandwidths(point.bandwidth_bytes, point.micros).1);
    let peaks = fits.iter().filter_map(|fit| fit.peak(network));
    let low = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::INFINITY, f64::min);
    let high = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
    let [from, to] = [low(&mut sizes.clone()), high(&mut sizes.clone())];
    let [slowest, fastest] = [low(&mut buses.clone()), high(&mut buses.chain(peaks))];
    let is_usable = from > 0.0 && slowest > 0.0 && fastest.is_finite() && to > 0.0;
    is_usable.then_some([[from / 1.2, to * 1.2], [slowest / 1.5, fastest * 1.5]])
}

fn draw_sweep(plot: &mut Plot, fit: &SweepFit, colour: &str) {
    let points = &fit.sweep.points;
    let factor = fit.sweep.bus_factor();
    let [low, high] = plot.area.y;
    // An interval may reach far beyond the plot.
    let bus = |bytes: f64, micros: f64| (bytes / micros * 1e-3 * factor).ln().clamp(low, high);
    for range in &fit.ranges {
        // Sizes between the points, equally spaced on the axis; S is proportional to the message.
        let per_message = points[range.first].bandwidth_bytes as f64 / points[range.first].message as f64;
        let mut messages: Vec<f64> = Vec::new();
        for pair in points[range.first..range.end].windows(2) {
            let ratio = pair[1].message as f64 / pair[0].message as f64;
            let part = |step: u32| ratio.powf(f64::from(step) / f64::from(STEPS));
            messages.extend((0..STEPS).map(|step| pair[0].message as f64 * part(step)));
        }
        messages.push(points[range.end - 1].message as f64);
        let place = |message: f64, micros: f64| (message.ln(), bus(message * per_message, micros));
        let interval = |message: &f64| {
            let (low, high) = range.line.interval_at(message * per_message)?;
            Some((*message, low.max(f64::MIN_POSITIVE), high))
        };
        if let Some(band) = messages.iter().map(interval).collect::<Option<Vec<_>>>() {
            let upper = band.iter().map(|(message, low, _)| place(*message, *low));
            let lower = band.iter().rev().map(|(message, _, high)| place(*message, *high));
            let style = format!("class=\"band\" fill=\"{colour}\" opacity=\"0.15\"");
            plot.polygon(upper.chain(lower), &style);
        }
        let line = messages.iter().map(|message| place(*message, range.line.micros(message * per_message)));
        plot.line(line, &format!("class=\"segment\" stroke=\"{colour}\""));
    }
    for point in points {
        let (x, bytes) = ((point.message as f64).ln(), point.bandwidth_bytes as f64);
        if let Some((low, high)) = point.interval {
            plot.line([low, high].map(|micros| (x, bus(bytes, micros))), &format!("stroke=\"{colour}\""));
        }
        let title = format!("{}: {} us", size_text(point.message), point.micros);
        plot.circle((x, bus(bytes, point.micros)), 2.5, &format!("fill=\"{colour}\""), &title);
    }
}
