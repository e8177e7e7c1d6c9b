//! Ladders: the values of an axis, written as numbers and segments.

use super::segment::LadderSegment;
use crate::base::yaml::{Location, Spanned, YamlNode};

/// Limit of the values of one axis; it stops a mistyped segment before memory is exhausted.
const MAX_VALUES: usize = 1 << 16;

/// Returns the distinct values of numbers and segments, ascending; an error has the position of the wrong value.
pub(crate) fn ladder_values(items: &Spanned<Vec<Spanned<YamlNode>>>) -> Result<Vec<i64>, (Location, String)> {
    let mut values = Vec::new();
    for item in &items.value {
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
    if values.is_empty() { Err((items.defined, "has no values".to_owned())) } else { Ok(values) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::base::yaml;

    fn read(text: &str) -> Result<Vec<i64>, String> {
        let items = yaml::parse(Path::new("ladders.yaml"), text).expect("a list");
        ladder_values(&items).map_err(|(_, why)| why)
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
