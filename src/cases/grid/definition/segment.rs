//! Segments of ladders and of density standards: `FROM..TO`, followed by `step N` (default 1) or `ratio R`, and by
//! `align N` for a ratio whose values are rounded to multiples. Both ends belong to the segment without rounding.

use std::fmt;

use crate::base::suggest::nearest_name;

/// A range of numbers with the spacing of its values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LadderSegment {
    /// Least number, from 1.
    pub(crate) from: i64,
    /// Greatest number.
    pub(crate) to: i64,
    pub(crate) pace: SegmentSpacing,
    /// Values of a ratio are multiples of this number.
    pub(crate) align: Option<i64>,
}

/// Distance of neighbours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum SegmentSpacing {
    Step(i64),
    Ratio(f64),
}

impl SegmentSpacing {
    /// Returns true if the distance of two numbers is not greater. Rounding errors of a ratio are tolerated.
    #[expect(clippy::cast_precision_loss, reason = "dimensions have 53 bits at most")]
    pub(crate) fn allows(self, from: i64, to: i64) -> bool {
        match self {
            Self::Step(step) => to - from <= step,
            Self::Ratio(ratio) => to as f64 <= from as f64 * ratio * (1.0 + 1e-12),
        }
    }
}

impl fmt::Display for SegmentSpacing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step(step) => write!(f, "step {step}"),
            Self::Ratio(ratio) => write!(f, "ratio {ratio}"),
        }
    }
}

impl LadderSegment {
    /// Parses a segment; the error is the reason.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        const EXPECTED: &str = "is not a segment such as `1..8`, `64..128 step 16` or `1024..32768 ratio 2`";
        let mut words = text.split_whitespace();
        let ends = words.next().and_then(|word| word.split_once(".."));
        let ends = ends.and_then(|(from, to)| Some((from.parse::<i64>().ok()?, to.parse::<i64>().ok()?)));
        let (from, to) = ends.filter(|(from, _)| *from >= 1).ok_or(EXPECTED)?;
        if from > to {
            return Err(format!("descends from {from} to {to}; write the smaller end first"));
        }
        let (mut step, mut ratio, mut align) = (None, None, None);
        while let Some(word) = words.next() {
            let number = words.next();
            if matches!(
                (word, step, ratio, align),
                ("step", Some(_), ..) | ("ratio", _, Some(_), _) | ("align", .., Some(_))
            ) {
                return Err(format!("has `{word}` twice"));
            }
            let whole = || number.and_then(|number| number.parse::<i64>().ok()).filter(|number| *number >= 1);
            match word {
                "step" => step = Some(whole().ok_or(EXPECTED)?),
                "align" => align = Some(whole().ok_or(EXPECTED)?),
                "ratio" => {
                    let number = number.and_then(|number| number.parse::<f64>().ok());
                    ratio = Some(number.filter(|ratio| *ratio > 1.0 && *ratio <= 1e6).ok_or(EXPECTED)?);
                }
                other => {
                    let near = nearest_name(other, ["step", "ratio", "align"]);
                    let near = near.map_or_else(String::new, |word| format!(" (did you mean `{word}`?)"));
                    return Err(format!("has `{other}`, expected `step`, `ratio` or `align`{near}"));
                }
            }
        }
        let pace = match (step, ratio) {
            (Some(_), Some(_)) => return Err("has a step and a ratio; it can have one of them".to_owned()),
            (_, Some(ratio)) => SegmentSpacing::Ratio(ratio),
            (step, None) => SegmentSpacing::Step(step.unwrap_or(1)),
        };
        if align.is_some() && ratio.is_none() {
            return Err("has `align` without a ratio; begin at a multiple and step by it".to_owned());
        }
        Ok(Self { from, to, pace, align })
    }

    /// Returns the values in ascending order, stopping soon after `most`.
    pub(crate) fn values(&self, most: usize) -> Vec<i64> {
        let mut values = Vec::new();
        let mut at = self.from;
        while at < self.to && values.len() <= most {
            values.push(at);
            at = match self.pace {
                SegmentSpacing::Step(step) => at.saturating_add(step),
                SegmentSpacing::Ratio(ratio) => scaled(at, ratio, self.align.unwrap_or(1)),
            };
        }
        values.push(self.to);
        values
    }
}

/// Returns the next value of a ratio, rounded to the nearest multiple, but always greater than the last one.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "dimensions have 53 bits at most"
)]
fn scaled(value: i64, ratio: f64, align: i64) -> i64 {
    let nearest = ((value as f64 * ratio / align as f64).round() as i64).saturating_mul(align);
    nearest.max((value / align + 1).saturating_mul(align))
}
