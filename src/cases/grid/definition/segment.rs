//! Ladders, the values of an axis, written as numbers and segments. Segments of ladders and of density standards are: `FROM..TO`, followed by `step N` (default 1) or `ratio R`, and by
//! `align N` for a ratio whose values are rounded to multiples. Both ends belong to the segment without rounding.

use std::fmt;

use crate::base::{
    suggest::nearest_name,
    yaml::{Location, Spanned, YamlNode},
};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LadderSegment {
    pub(crate) from: i64,
    pub(crate) to: i64,
    pub(crate) pace: SegmentSpacing,
    pub(crate) align: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum SegmentSpacing {
    Step(i64),
    Ratio(f64),
}

impl SegmentSpacing {
    /// Returns true if the distance of two numbers is not greater. Rounding errors of a ratio are tolerated.
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
fn scaled(value: i64, ratio: f64, align: i64) -> i64 {
    let nearest = ((value as f64 * ratio / align as f64).round() as i64).saturating_mul(align);
    nearest.max((value / align + 1).saturating_mul(align))
}

/// Limit of the values of one axis; it stops a mistyped segment before memory is exhausted.
const MAX_VALUES: usize = 1 << 16;

/// Returns the distinct values of numbers and segments, ascending; an error has the position of the wrong value.
pub(super) fn ladder_values(
    items: &[Spanned<YamlNode>],
    place: Location,
) -> Result<Vec<i64>, (Location, String)> {
    let mut values = Vec::new();
    for item in items {
        let wrong = |why: String| (item.defined, why);
        let YamlNode::Scalar(text) = &item.value else {
            return Err(wrong("a list or a mapping is neither a number nor a segment".to_owned()));
        };
        match text.parse::<i64>() {
            Ok(number) if number >= 1 => values.push(number),
            Err(_) if text.parse::<f64>().is_err() => {
                let segment = LadderSegment::parse(text).map_err(|why| wrong(format!("`{text}` {why}")))?;
                values.extend(segment.values(MAX_VALUES));
            }
            _ => return Err(wrong(format!("`{text}` is not a whole number from 1"))),
        }
        if values.len() > MAX_VALUES {
            return Err(wrong(format!("has more than {MAX_VALUES} values")));
        }
    }
    values.sort_unstable();
    values.dedup();
    if values.is_empty() { Err((place, "has no values".to_owned())) } else { Ok(values) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::base::yaml;

    fn read(text: &str) -> Result<Vec<i64>, String> {
        let items: Spanned<Vec<_>> = yaml::parse(Path::new("ladders.yaml"), text).expect("a list");
        ladder_values(&items.value, items.defined).map_err(|(_, why)| why)
    }

    #[test]
    fn segments_include_both_ends() {
        assert_eq!(
            read("[1..4, 4..16 step 4, 16..100 ratio 2]"),
            Ok(vec![1, 2, 3, 4, 8, 12, 16, 32, 64, 100])
        );
        assert_eq!(read("[8192..18432 ratio 1.25 align 128]"), Ok(vec![8192, 10240, 12800, 16000, 18432]));
        assert_eq!(read("[7, 3, 7, 5..5]"), Ok(vec![3, 5, 7]));
        // The next multiple where the nearest one is not greater than the value.
        assert_eq!(read("[64..200 ratio 1.1 align 64]"), Ok(vec![64, 128, 192, 200]));
        assert_eq!(read("[100..300 align 64 ratio 1.1]"), Ok(vec![100, 128, 192, 256, 300]));
    }

    proptest! {
        /// Values ascend, include both ends, and are multiples of `align` between them.
        #[test]
        fn aligned_segments_contain_multiples(from in 1_i64..5000, more in 0_i64..50_000, ratio in 1.001_f64..4.0, align in 1_i64..300) {
            let to = from + more;
            let values = read(&format!("[{from}..{to} ratio {ratio} align {align}]")).expect("a segment");
            prop_assert!(values.windows(2).all(|pair| pair[0] < pair[1]), "{values:?}");
            prop_assert_eq!((values[0], values[values.len() - 1]), (from, to));
            let inside = values.iter().skip(1).take(values.len().saturating_sub(2));
            prop_assert!(inside.copied().all(|value| value % align == 0), "{values:?}");
        }
    }

    #[test]
    fn invalid_segments_are_explained() {
        assert!(read("[1-4]").expect_err("no segment").contains("such as `1..8`"));
        assert!(read("[8..1]").expect_err("downwards").contains("write the smaller end first"));
        assert!(read("[1..8 stpe 2]").expect_err("a wrong word").contains("did you mean `step`?"));
        assert!(read("[1..8 step 2 ratio 2]").expect_err("both").contains("one of them"));
        assert!(read("[1..8 align 4]").expect_err("no ratio").contains("without a ratio"));
        assert!(read("[1..8 step 4 align 4]").expect_err("no ratio").contains("without a ratio"));
        for twice in ["step 2 step 4", "ratio 2 ratio 3", "ratio 2 align 2 align 4"] {
            assert!(read(&format!("[1..8 {twice}]")).expect_err("twice").contains("twice"), "{twice}");
        }
        assert!(read("[~]").expect_err("null").contains("`null` is not a segment"));
        assert!(read("[0]").expect_err("no dimension").contains("from 1"));
        assert!(read("[1.5]").expect_err("no whole number").contains("whole number"));
        assert!(read("[1..9999999999]").expect_err("too many").contains("more than"));
        assert!(read("[]").expect_err("empty").contains("no values"));
    }
}
