//! Preview of a sweep of collectives.

use serde_json::json;

use crate::{
    base::count_text::format_count,
    kernel::timestamp::format_duration,
    show::{
        emit::OutputFormat,
        run_lines::device_ranges,
        table::{DETAIL, FittedColumn, fitted_text},
    },
};

/// Cases of one collective in one kind of group.
#[derive(Clone, Debug)]
pub(crate) struct SweepLine {
    pub(crate) collective: String,
    pub(crate) ranks: usize,
    pub(crate) tier: usize,
    pub(crate) dtype: String,
    /// Devices of the preferred group.
    pub(crate) devices: Vec<u32>,
    /// Number of further groups of devices.
    pub(crate) other_groups: usize,
    /// Message sizes of the cases that are measured.
    pub(crate) sizes: Vec<u64>,
    /// Predicted seconds of their launches.
    pub(crate) seconds: f64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct SweepPreview {
    pub(crate) lines: Vec<SweepLine>,
    pub(crate) already_measured: usize,
    /// Cases that are not launched, with their reasons.
    pub(crate) not_launched: Vec<String>,
    /// Collectives that no group can run, with the reason.
    pub(crate) left_out: Vec<String>,
    pub(crate) collections: u32,
    /// Predicted seconds of the run.
    pub(crate) seconds: f64,
}

impl SweepPreview {
    /// Returns the totals as a line.
    pub(crate) fn summary(&self) -> String {
        let cases = self.lines.iter().map(|line| line.sizes.len()).sum::<usize>();
        let collections = usize::try_from(self.collections).unwrap_or_default();
        let mut text = format!(
            "{} in {}, about {}; {} already measured",
            format_count(cases, "case"),
            format_count(collections, "collection"),
            format_duration(self.seconds),
            self.already_measured
        );
        for reason in &self.not_launched {
            text.push_str(&format!("\nnot launched: {reason}"));
        }
        for reason in &self.left_out {
            text.push_str(&format!("\nleft out: {reason}"));
        }
        text
    }

    /// Prints the lines as a table or as JSON Lines.
    pub(crate) fn print(&self, format: OutputFormat, width: Option<usize>) -> String {
        match format {
            OutputFormat::Plain => self.table(width),
            OutputFormat::Json => self.lines.iter().map(SweepLine::json_line).collect(),
        }
    }

    fn table(&self, width: Option<usize>) -> String {
        let columns = vec![
            FittedColumn::text("collective", 0),
            FittedColumn::number("ranks", 0),
            FittedColumn::number("tier", 1),
            FittedColumn::text("dtype", 3),
            FittedColumn::text("devices", 1).shortened_to(16),
            FittedColumn::number("sizes", 2),
            FittedColumn::text("bytes", DETAIL),
            FittedColumn::number("time", 0),
        ];
        let cells = |line: &SweepLine| {
            let [from, to] =
                [line.sizes.first(), line.sizes.last()].map(|size| size.map_or_else(String::new, size_text));
            let more = match line.other_groups {
                0 => String::new(),
                1 => " or 1 other group".to_owned(),
                others => format!(" or {others} other groups"),
            };
            vec![
                line.collective.clone(),
                line.ranks.to_string(),
                line.tier.to_string(),
                line.dtype.clone(),
                format!("{}{more}", device_ranges(&line.devices)),
                line.sizes.len().to_string(),
                format!("{from} to {to}"),
                format_duration(line.seconds),
            ]
        };
        let table = fitted_text(columns, self.lines.iter().map(cells), width);
        let separator = if table.is_empty() { "" } else { "\n" };
        format!("{table}{separator}{}\n", self.summary())
    }
}

impl SweepLine {
    fn json_line(&self) -> String {
        let line = json!({
            "collective": self.collective, "ranks": self.ranks, "tier": self.tier, "dtype": self.dtype,
            "devices": self.devices, "other_groups": self.other_groups, "sizes": self.sizes, "seconds": self.seconds,
        });
        format!("{line}\n")
    }
}

/// Formats a size: `512M`, `1536`.
fn size_text(bytes: &u64) -> String {
    let unit =
        [(30, "G"), (20, "M"), (10, "K")].into_iter().find(|(shift, _)| bytes.is_multiple_of(1 << shift));
    unit.map_or_else(|| bytes.to_string(), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        assert_eq!(size_text(&(512 << 20)), "512M");
        assert_eq!(size_text(&1536), "1536");
    }
}
