//! `collective_overheads.yaml`, a model of the time that the dispatch of a collective takes in a framework, beside the tables
//! of collectives. Tables have measured durations only; lookups add the overhead and state it.

use std::{collections::BTreeSet, path::Path};

use serde::Deserialize;

use super::DatabaseError;
use crate::{
    base::{
        files::{MAX_DOCUMENT, read_regular_text},
        yaml,
        yaml::YamlError,
    },
    kernel::{CollectiveKind, KernelName},
};

const FILE: &str = "collective_overheads.yaml";
const LAYOUT: u32 = 1;
/// Greatest overhead in microseconds; a greater one is probably in another unit.
const MAX_MICROS: f64 = 1e5;
const HINT: &str = "docs/collectives.md describes the file";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OverheadFile {
    npubench_collective_overheads: u32,
    overheads: Vec<CollectiveOverhead>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CollectiveOverhead {
    kernel: String,
    pub(crate) ranks: u64,
    /// Tier of the topology; of all tiers without one.
    #[serde(default)]
    pub(crate) tier: Option<u64>,
    /// Microseconds of a call, whatever its message.
    pub(crate) overhead_us: f64,
    pub(crate) source: String,
}

impl CollectiveOverhead {
    pub(crate) fn load(kernel: &KernelName, folder: &Path) -> Result<Vec<Self>, DatabaseError> {
        let path = folder.join(FILE);
        if DatabaseError::is_missing(&path)? {
            return Ok(Vec::new());
        }
        let text = read_regular_text(&path, MAX_DOCUMENT).map_err(DatabaseError::io("read", &path))?;
        let mut overheads = parse(&path, &text)?;
        overheads.retain(|overhead| overhead.kernel == kernel.as_str());
        Ok(overheads)
    }

    /// Returns the overhead of a group: the overhead of its tier, else the overhead of all tiers.
    pub(crate) fn of_group(overheads: &[Self], ranks: u64, tier: Option<u64>) -> Option<&Self> {
        let of_tier = |wanted: Option<u64>| {
            overheads.iter().find(|overhead| overhead.ranks == ranks && overhead.tier == wanted)
        };
        tier.and_then(|tier| of_tier(Some(tier))).or_else(|| of_tier(None))
    }
}

fn parse(path: &Path, text: &str) -> Result<Vec<CollectiveOverhead>, YamlError> {
    let file: OverheadFile = yaml::parse(path, text)?;
    let layout = file.npubench_collective_overheads;
    if layout != LAYOUT {
        let problem = format!("layout {layout}, this npubench reads layout {LAYOUT}");
        return Err(YamlError::of_file(path, problem, "use the npubench that it was written for"));
    }
    let mut known = BTreeSet::new();
    for (index, overhead) in file.overheads.iter().enumerate() {
        let error = |key: &str, problem: String| {
            let position = yaml::find_value(text, &["overheads", &index.to_string(), key]);
            Err(YamlError::at(path, position, &problem, HINT))
        };
        let kind = KernelName::new(&overhead.kernel).ok().and_then(|name| CollectiveKind::of_kernel(&name));
        if kind.is_none() {
            let names: Vec<&str> = CollectiveKind::ALL.iter().map(|kind| kind.kernel_name()).collect();
            let problem =
                format!("`{}` is not a collective, expected one of {}", overhead.kernel, names.join(", "));
            return error("kernel", problem);
        }
        if overhead.ranks < 2 {
            return error("ranks", format!("{} ranks, expected at least 2", overhead.ranks));
        }
        if !(0.0..=MAX_MICROS).contains(&overhead.overhead_us) {
            let problem =
                format!("an overhead of {} us, expected 0 to {MAX_MICROS} us", overhead.overhead_us);
            return error("overhead_us", problem);
        }
        if overhead.source.trim().is_empty() {
            return error(
                "source",
                "no source, expected the hardware and software of the measurement".to_owned(),
            );
        }
        if !known.insert((&overhead.kernel, overhead.ranks, overhead.tier)) {
            return error("kernel", format!("a second overhead of `{}` for the same group", overhead.kernel));
        }
    }
    Ok(file.overheads)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(entries: &str) -> String {
        let text = format!("npubench_collective_overheads: 1\noverheads:\n{entries}");
        match parse(Path::new("o.yaml"), &text) {
            Ok(found) => format!("{found:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn errors_name_the_place() {
        let entry = |kernel: &str, ranks: &str, overhead: &str, source: &str| {
            format!("- {{kernel: {kernel}, ranks: {ranks}, overhead_us: {overhead}, source: \"{source}\"}}\n")
        };
        let good = entry("hcom_allReduce_", "16", "7.7", "A3");
        for (entries, expected) in [
            (
                entry("MatMulV2", "16", "7.7", "A3"),
                "o.yaml:3:12: `MatMulV2` is not a collective, expected one of",
            ),
            (entry("hcom_allReduce_", "1", "7.7", "A3"), "o.yaml:3:36: 1 ranks, expected at least 2"),
            (entry("hcom_allReduce_", "16", "-1", "A3"), "an overhead of -1 us, expected 0 to 100000 us"),
            (entry("hcom_allReduce_", "16", ".nan", "A3"), "an overhead of NaN us"),
            (entry("hcom_allReduce_", "16", "7.7", " "), "no source, expected the hardware"),
            (
                format!("{good}{good}"),
                "o.yaml:4:12: a second overhead of `hcom_allReduce_` for the same group",
            ),
            (good.replace("ranks", "size"), "unknown key `size`"),
        ] {
            let error = refused(&entries);
            assert!(error.contains(expected), "{entries}: {error}");
        }
    }

    #[test]
    fn overhead_of_the_tier_precedes_that_of_all_tiers() {
        let overhead = |ranks, tier, overhead_us| CollectiveOverhead {
            kernel: "hcom_allGather_".to_owned(),
            ranks,
            tier,
            overhead_us,
            source: "A3".to_owned(),
        };
        let all = [overhead(16, None, 14.6), overhead(16, Some(1), 9.0), overhead(8, Some(1), 1.2)];
        let found = |ranks, tier| {
            CollectiveOverhead::of_group(&all, ranks, tier).map(|overhead| overhead.overhead_us)
        };
        assert_eq!(
            [found(16, Some(1)), found(16, Some(0)), found(16, None)],
            [Some(9.0), Some(14.6), Some(14.6)]
        );
        assert_eq!([found(8, Some(0)), found(8, None), found(4, None)], [None, None, None]);
    }
}
