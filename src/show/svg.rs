//! SVG images of plots: the place of a point between linear axes, and the elements that are drawn.

use std::fmt::Write as _;

use crate::kernel::render::html_text;

pub(super) struct Plot {
    svg: String,
    pub(super) area: PlotArea,
}

/// Edges of an area in pixels, and the ranges of its axes; callers take logarithms.
#[derive(Clone, Copy, Default)]
pub(super) struct PlotArea {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
    pub(super) x: [f64; 2],
    pub(super) y: [f64; 2],
}

impl Plot {
    /// Creates an image that is part of a page, in its colours.
    pub(super) fn of_page(width: f64, height: f64, area: PlotArea) -> Self {
        let svg = format!(
            "<svg role=\"img\" style=\"max-width:100%;height:auto\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" xmlns=\"http://www.w3.org/2000/svg\" font-family=\"sans-serif\" \
             font-size=\"12\" fill=\"currentColor\">\n"
        );
        Self { svg, area }
    }

    /// Creates an image that is a file, on white ground.
    pub(super) fn of_file(width: f64, height: f64) -> Self {
        let svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        Self { svg, area: PlotArea::default() }
    }

    pub(super) fn start_area(&mut self, area: PlotArea) {
        self.area = area;
        let PlotArea { left, top, right, bottom, .. } = area;
        self.rect([left, top], [right - left, bottom - top], "fill=\"none\" stroke=\"#999\"");
    }

    pub(super) fn place(&self, x: f64, y: f64) -> (f64, f64) {
        let part = |value: f64, [low, high]: [f64; 2]| (value - low) / (high - low);
        let PlotArea { left, top, right, bottom, .. } = self.area;
        (left + part(x, self.area.x) * (right - left), bottom - part(y, self.area.y) * (bottom - top))
    }

    /// Draws a text at a place in pixels; `attributes` are attributes of SVG, such as `text-anchor="end"`.
    pub(super) fn text(&mut self, (x, y): (f64, f64), attributes: &str, text: &str) {
        let text = html_text(text);
        let _ = writeln!(self.svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" {attributes}>{text}</text>");
    }

    pub(super) fn upward_text(&mut self, (x, y): (f64, f64), text: &str) {
        let text = html_text(text);
        let place = format!("transform=\"translate({x},{y}) rotate(-90)\"");
        let _ = writeln!(self.svg, "<text {place} text-anchor=\"middle\">{text}</text>");
    }

    pub(super) fn rect(&mut self, [x, y]: [f64; 2], [width, height]: [f64; 2], attributes: &str) {
        let size = format!("width=\"{width:.1}\" height=\"{height:.1}\"");
        let _ = writeln!(self.svg, "<rect x=\"{x:.1}\" y=\"{y:.1}\" {size} {attributes}/>");
    }

    pub(super) fn line(&mut self, points: impl IntoIterator<Item = (f64, f64)>, attributes: &str) {
        let points = self.places(points);
        let _ = writeln!(self.svg, "<polyline points=\"{points}\" fill=\"none\" {attributes}/>");
    }

    pub(super) fn polygon(&mut self, points: impl IntoIterator<Item = (f64, f64)>, attributes: &str) {
        let points = self.places(points);
        let _ = writeln!(self.svg, "<polygon points=\"{points}\" {attributes}/>");
    }

    fn places(&self, points: impl IntoIterator<Item = (f64, f64)>) -> String {
        let places = points.into_iter().map(|(x, y)| self.place(x, y));
        places.map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ")
    }

    /// Draws a circle around a point of the area, with a text for the pointer of a mouse.
    pub(super) fn circle(&mut self, (x, y): (f64, f64), radius: f64, attributes: &str, title: &str) {
        let (x, y) = self.place(x, y);
        let title = if title.is_empty() { String::new() } else { format!("<title>{title}</title>") };
        let _ = writeln!(
            self.svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\" {attributes}>{title}</circle>"
        );
    }

    pub(super) fn finish(self) -> String {
        self.svg + "</svg>"
    }
}
