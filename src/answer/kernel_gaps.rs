//! Comparison of profiles with the catalogue: records that no entry replays, with their device time.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    base::{command_error::CommandError, count_text::format_count},
    kernel::{KernelName, Nanos, Verdict, catalogue::Catalogue},
    profile::{
        DiscoveredProfiles, ProfileFile, RankCounts, RecordGroup, ShapelessRecords, add_attributes,
        leave_out_copies,
        profile_records::{left_out_files, read_records_with_shapes},
    },
};

/// Unit of a device that ran the records of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KernelEngine {
    AiCore,
    AiCpu,
    Collective,
}

/// Reason why records of a kernel cannot be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GapKind {
    NoEntry,
    /// No call launches the kernel alone.
    NotLaunchable,
    /// The entry of the kernel does not cover the recorded slots, types or attributes.
    Unsupported,
    /// The recorded dimensions contradict each other by the entry of the kernel.
    InvalidArgs,
    WithoutShapes,
}

impl GapKind {
    pub(crate) const ALL: [Self; 5] =
        [Self::NoEntry, Self::NotLaunchable, Self::Unsupported, Self::InvalidArgs, Self::WithoutShapes];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::NoEntry => "no entry",
            Self::NotLaunchable => "not launchable",
            Self::Unsupported => Verdict::Unsupported.as_str(),
            Self::InvalidArgs => Verdict::InvalidArgs.as_str(),
            Self::WithoutShapes => "without shapes",
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct KernelGap {
    pub kernel: String,
    pub engine: KernelEngine,
    /// `None` for collectives, which no catalogue replays.
    pub kind: Option<GapKind>,
    pub records: u64,
    pub time: Nanos,
    pub reason: String,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ProfileGaps {
    pub gaps: Vec<KernelGap>,
    /// Number of kernel types on AI cores.
    pub kernels: usize,
    /// Time of all records on AI cores, including records that can be replayed.
    pub ai_core_time: Nanos,
}

impl ProfileGaps {
    /// Share of a gap in the time of AI cores; `None` for gaps of other engines.
    pub(crate) fn share(&self, gap: &KernelGap) -> Option<f64> {
        (gap.engine == KernelEngine::AiCore).then(|| time_ratio(gap.time, self.ai_core_time))
    }

    /// Returns a line about the kernels on AI cores that can be replayed with all their recorded shapes, and their share of the time;
    /// `None` without such kernels.
    pub(crate) fn replayable_text(&self) -> Option<String> {
        let of_cores = || self.of_engine(KernelEngine::AiCore);
        let with_gaps: BTreeSet<&str> = of_cores().map(|gap| gap.kernel.as_str()).collect();
        let missing = of_cores().map(|gap| gap.time).sum();
        let percent = 100.0 * (1.0 - time_ratio(missing, self.ai_core_time));
        (self.kernels > 0).then(|| {
            format!(
                "{} of {} can be replayed with all recorded shapes, {percent:.2} % of the time on AI cores",
                self.kernels - with_gaps.len(),
                format_count(self.kernels, "kernel")
            )
        })
    }

    /// Returns true if some kernels on AI cores cannot be replayed with all their recorded shapes.
    pub(crate) fn has_kernels(&self) -> bool {
        self.of_engine(KernelEngine::AiCore).next().is_some()
    }

    pub(crate) fn of_engine(&self, engine: KernelEngine) -> impl Iterator<Item = &KernelGap> {
        self.gaps.iter().filter(move |gap| gap.engine == engine)
    }
}

pub(crate) fn time_ratio(part: Nanos, whole: Nanos) -> f64 {
    if whole.0 == 0 { 0.0 } else { part.0 as f64 / whole.0 as f64 }
}

/// Reads profiles and returns the kernels that the catalogue cannot replay, with notes on files that are left out.
pub(crate) fn find_kernel_gaps(
    paths: &[PathBuf],
    catalogue: &Catalogue,
) -> Result<(ProfileGaps, Vec<String>), CommandError> {
    let DiscoveredProfiles { files, passed_over } = ProfileFile::find_all(paths)?;
    let (files, copies) = leave_out_copies(files);
    let (records, without_shapes) = read_records_with_shapes(&files)?;
    let mut notes = left_out_files(&passed_over, &copies);
    notes.extend(without_shapes.iter().map(|error| format!("{error}; the file is left out")));
    let untimed: u64 = records.without_duration.values().sum();
    if untimed > 0 {
        notes.push(format!("left out: {} without a duration", format_count(untimed, "record")));
    }
    let shapeless = records.without_shapes.clone();
    let mut kernels = records.into_kernels();
    // The notes on attributes concern an ingest; here, a row without attributes is a gap and has a reason.
    add_attributes(&mut kernels, &files, RankCounts::default())?;
    Ok((gaps_of_groups(catalogue, &kernels, &shapeless), notes))
}

/// Returns the gaps of records with shapes and of those without, the longest time first.
pub(crate) fn gaps_of_groups(
    catalogue: &Catalogue,
    kernels: &BTreeMap<KernelName, Vec<RecordGroup>>,
    shapeless: &BTreeMap<String, ShapelessRecords>,
) -> ProfileGaps {
    let mut found = ProfileGaps::default();
    let mut ai_core_kernels: BTreeSet<&str> = BTreeSet::new();
    let mut gaps: BTreeMap<(KernelEngine, &str, Option<GapKind>), GapRecords> = BTreeMap::new();
    let mut add = |engine, kernel, (records, time), gap: Option<(Option<GapKind>, String)>| {
        if engine == KernelEngine::AiCore {
            ai_core_kernels.insert(kernel);
            found.ai_core_time += time;
        }
        if let Some((kind, reason)) = gap {
            let gap = gaps.entry((engine, kernel, kind)).or_default();
            *gap.reasons.entry(reason).or_default() += time;
            gap.records += records;
            gap.time += time;
        }
    };
    let without_entry = |kernel: &str| match catalogue.not_launchable_reason(kernel) {
        Some(reason) => (Some(GapKind::NotLaunchable), reason.to_owned()),
        None => (Some(GapKind::NoEntry), String::new()),
    };
    for (kernel, group) in
        kernels.iter().flat_map(|(kernel, groups)| groups.iter().map(move |group| (kernel, group)))
    {
        let gap = match catalogue.entry(kernel) {
            None => Some(without_entry(kernel.as_str())),
            Some(entry) => entry.resolve_call(&group.case).err().map(|why| {
                let kind = if why.is_contradiction { GapKind::InvalidArgs } else { GapKind::Unsupported };
                (Some(kind), why.problem)
            }),
        };
        let records = (group.record_count() as u64, group.total_duration());
        add(engine_of(kernel.as_str(), &group.core), kernel.as_str(), records, gap);
    }
    for (kernel, records) in shapeless {
        let has_entry = KernelName::new(kernel).is_ok_and(|kernel| catalogue.entry(&kernel).is_some());
        let engine = engine_of(kernel, &records.core);
        let gap = match engine {
            KernelEngine::Collective => (None, String::new()),
            _ if has_entry => (Some(GapKind::WithoutShapes), String::new()),
            _ => without_entry(kernel),
        };
        add(engine, kernel.as_str(), (records.count, records.duration), Some(gap));
    }
    found.kernels = ai_core_kernels.len();
    found.gaps.extend(gaps.into_iter().map(|((engine, kernel, kind), gap)| {
        let (records, time, reason) = (gap.records, gap.time, gap.main_reason());
        KernelGap { kernel: kernel.to_owned(), engine, kind, records, time, reason }
    }));
    found.gaps.sort_by_key(|gap| std::cmp::Reverse(gap.time));
    found
}

#[derive(Default)]
struct GapRecords {
    records: u64,
    time: Nanos,
    reasons: BTreeMap<String, Nanos>,
}

impl GapRecords {
    fn main_reason(self) -> String {
        let others = self.reasons.len().saturating_sub(1);
        // Of reasons with equal times, the alphabetically first one is taken.
        let longest = self.reasons.into_iter().rev().max_by_key(|(_, time)| *time);
        let reason = longest.map(|(reason, _)| reason).unwrap_or_default();
        if others == 0 { reason } else { format!("{reason}; and {}", format_count(others, "other reason")) }
    }
}

fn engine_of(kernel: &str, core: &str) -> KernelEngine {
    match core {
        _ if KernelName::is_collective_record(kernel, core) => KernelEngine::Collective,
        "AI_CPU" => KernelEngine::AiCpu,
        _ => KernelEngine::AiCore,
    }
}
