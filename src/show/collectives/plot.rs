//! Bus bandwidth over message size as an SVG image: points with intervals, lines with their bands, the link's peak.

use std::fmt::Write as _;

use crate::{
    kernel::{CollectiveKind, DataKind, collective::CommNetwork},
    measure::collective::{SweepFit, size_text},
};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const MARGIN: f64 = 60.0;
/// Height of a line of the legend.
const LEGEND: f64 = 16.0;
/// Points of a line between two neighbouring sizes.
const STEPS: u32 = 4;
const COLOURS: [&str; 8] =
    ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f"];

/// Logarithmic axes.
struct PlotAxes {
    sizes: (f64, f64),
    bandwidths: (f64, f64),
}

impl PlotAxes {
    fn x(&self, bytes: f64) -> f64 {
        let (low, high) = self.sizes;
        MARGIN + (WIDTH - 2.0 * MARGIN) * (bytes / low).ln() / (high / low).ln()
    }

    fn y(&self, gigabytes: f64) -> f64 {
        let (low, high) = self.bandwidths;
        let share = (gigabytes.clamp(low, high) / low).ln() / (high / low).ln();
        HEIGHT - MARGIN - (HEIGHT - 2.0 * MARGIN) * share
    }
}

/// Draws the sweeps of one collective; `None` without a point.
pub(crate) fn bandwidth_plot(
    fits: &[SweepFit],
    network: Option<&CommNetwork>,
    (kind, data_kind): (CollectiveKind, DataKind),
) -> Option<String> {
    let fits: Vec<&SweepFit> =
        fits.iter().filter(|fit| fit.sweep.kind == kind && !fit.sweep.points.is_empty()).collect();
    let axes = axes_of(network, &fits)?;
    #[expect(clippy::cast_precision_loss, reason = "a few sweeps")]
    let height = HEIGHT + LEGEND * (fits.len() + 1) as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{MARGIN}\" y=\"24\" font-weight=\"bold\">{kind}: bus bandwidth in GB/s over message size ({}){}</text>\n",
        kind.size_semantics(),
        data_kind.mark(),
    );
    draw_axes(&mut svg, &axes);
    for (index, fit) in fits.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        draw_sweep(&mut svg, &axes, fit, colour);
        if let Some(peak) = fit.peak(network) {
            let y = axes.y(peak);
            let _ = writeln!(
                svg,
                "<line class=\"peak\" x1=\"{MARGIN}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"{colour}\" \
                 stroke-dasharray=\"6 4\"/>",
                WIDTH - MARGIN
            );
        }
        #[expect(clippy::cast_precision_loss, reason = "a few sweeps")]
        let y = HEIGHT + LEGEND * index as f64;
        let peak =
            fit.peak(network).map_or_else(String::new, |peak| format!(" (link's peak {peak:.1} GB/s)"));
        let _ = writeln!(
            svg,
            "<rect x=\"{MARGIN}\" y=\"{:.1}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"{y:.1}\">{}{peak}</text>",
            y - 9.0,
            MARGIN + 16.0,
            escape_text(&fit.sweep.name()),
        );
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

fn escape_text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[expect(clippy::cast_precision_loss, reason = "sizes of messages are below 2^53")]
fn axes_of(network: Option<&CommNetwork>, fits: &[&SweepFit]) -> Option<PlotAxes> {
    let mut sizes = (f64::INFINITY, 0.0_f64);
    let mut range = (f64::INFINITY, 0.0_f64);
    for fit in fits {
        for point in &fit.sweep.points {
            sizes = (sizes.0.min(point.message as f64), sizes.1.max(point.message as f64));
            let (_, bus) = fit.sweep.bandwidths(point.bandwidth_bytes, point.micros);
            range = (range.0.min(bus), range.1.max(bus));
        }
        range.1 = range.1.max(fit.peak(network).unwrap_or(0.0));
    }
    // One size or one bandwidth still needs an axis.
    let is_usable = sizes.0 > 0.0 && range.0 > 0.0 && range.1.is_finite() && sizes.1 > 0.0;
    is_usable.then(|| PlotAxes {
        sizes: (sizes.0 / 1.2, sizes.1 * 1.2),
        bandwidths: (range.0 / 1.5, range.1 * 1.5),
    })
}

fn draw_axes(svg: &mut String, axes: &PlotAxes) {
    let (right, bottom) = (WIDTH - MARGIN, HEIGHT - MARGIN);
    let _ = writeln!(
        svg,
        "<rect x=\"{MARGIN}\" y=\"{MARGIN}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"none\" stroke=\"#999\"/>",
        right - MARGIN,
        bottom - MARGIN
    );
    for bits in (0..64_u32).step_by(2) {
        let bytes = 2.0_f64.powi(i32::try_from(bits).unwrap_or(0));
        if bytes >= axes.sizes.0 && bytes <= axes.sizes.1 {
            let x = axes.x(bytes);
            let name = size_text(1 << bits);
            let _ = writeln!(
                svg,
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{MARGIN}\" y2=\"{bottom}\" stroke=\"#eee\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{name}</text>",
                bottom + 14.0
            );
        }
    }
    for exponent in -6..7 {
        let gigabytes = 10.0_f64.powi(exponent);
        if gigabytes >= axes.bandwidths.0 && gigabytes <= axes.bandwidths.1 {
            let y = axes.y(gigabytes);
            let _ = writeln!(
                svg,
                "<line x1=\"{MARGIN}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#eee\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{gigabytes}</text>",
                MARGIN - 4.0,
                y + 4.0
            );
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "sizes of messages are below 2^53")]
fn draw_sweep(svg: &mut String, axes: &PlotAxes, fit: &SweepFit, colour: &str) {
    let points = &fit.sweep.points;
    let factor = fit.sweep.bus_factor();
    let bus = |bytes: f64, micros: f64| bytes / micros * 1e-3 * factor;
    for range in &fit.ranges {
        // Sizes between the points, equally spaced on the axis; S is proportional to the message.
        let per_message = points[range.first].bandwidth_bytes as f64 / points[range.first].message as f64;
        let mut messages: Vec<f64> = Vec::new();
        for pair in points[range.first..range.end].windows(2) {
            let ratio = pair[1].message as f64 / pair[0].message as f64;
            messages.extend(
                (0..STEPS)
                    .map(|step| pair[0].message as f64 * ratio.powf(f64::from(step) / f64::from(STEPS))),
            );
        }
        messages.push(points[range.end - 1].message as f64);
        let place = |message: f64, micros: f64| {
            format!("{:.1},{:.1}", axes.x(message), axes.y(bus(message * per_message, micros)))
        };
        let line: Vec<String> = messages
            .iter()
            .map(|message| place(*message, range.line.micros(message * per_message)))
            .collect();
        let band: Option<Vec<(f64, f64, f64)>> = messages
            .iter()
            .map(|message| {
                let (low, high) = range.line.interval_at(message * per_message)?;
                Some((*message, low.max(f64::MIN_POSITIVE), high))
            })
            .collect();
        if let Some(band) = band {
            let upper = band.iter().map(|(message, low, _)| place(*message, *low));
            let lower = band.iter().rev().map(|(message, _, high)| place(*message, *high));
            let outline: Vec<String> = upper.chain(lower).collect();
            let _ = writeln!(
                svg,
                "<polygon class=\"band\" points=\"{}\" fill=\"{colour}\" opacity=\"0.15\"/>",
                outline.join(" ")
            );
        }
        let _ = writeln!(
            svg,
            "<polyline class=\"segment\" points=\"{}\" fill=\"none\" stroke=\"{colour}\"/>",
            line.join(" ")
        );
    }
    for point in points {
        let (size, bytes) = (point.message as f64, point.bandwidth_bytes as f64);
        let x = axes.x(size);
        if let Some((low, high)) = point.interval {
            let [top, bottom] = [low, high].map(|micros| axes.y(bus(bytes, micros)));
            let _ = writeln!(
                svg,
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top:.1}\" y2=\"{bottom:.1}\" stroke=\"{colour}\"/>"
            );
        }
        let _ = writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{:.1}\" r=\"2.5\" fill=\"{colour}\"><title>{}: {} us</title></circle>",
            axes.y(bus(bytes, point.micros)),
            size_text(point.message),
            point.micros
        );
    }
}
