//! Kernels of a profile that the catalogue cannot replay, with their device time: table and JSON of
//! `npubench kernels --missing`.

use std::{collections::BTreeSet, fmt::Write as _};

use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    base::count_text::format_count,
    kernel::{Nanos, Verdict},
    show::{
        coverage::milliseconds,
        table::{FittedColumn, fitted_text},
    },
};

/// Unit of a device that ran the records of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KernelEngine {
    AiCore,
    AiCpu,
    Collective,
}

/// Reason why records of a kernel cannot be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
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
    const ALL: [Self; 5] =
        [Self::NoEntry, Self::NotLaunchable, Self::Unsupported, Self::InvalidArgs, Self::WithoutShapes];

    fn label(self) -> &'static str {
        match self {
            Self::NoEntry => "no entry",
            Self::NotLaunchable => "not launchable",
            Self::Unsupported => Verdict::Unsupported.as_str(),
            Self::InvalidArgs => Verdict::InvalidArgs.as_str(),
            Self::WithoutShapes => "without shapes",
        }
    }
}

/// Records of a kernel that cannot be replayed for one reason.
#[derive(Clone, Debug)]
pub(crate) struct KernelGap {
    pub kernel: String,
    pub engine: KernelEngine,
    /// `None` for collectives, which no catalogue replays.
    pub kind: Option<GapKind>,
    pub records: u64,
    /// Sum of the durations.
    pub time: Nanos,
    /// Explanation; empty where the kind explains it.
    pub reason: String,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ProfileGaps {
    /// Longest total time first.
    pub gaps: Vec<KernelGap>,
    /// Number of kernel types on AI cores.
    pub kernels: usize,
    /// Time of all records on AI cores, those without a gap as well.
    pub ai_core_time: Nanos,
}

impl ProfileGaps {
    /// Share of a gap in the time of AI cores; `None` for gaps of other engines.
    fn share(&self, gap: &KernelGap) -> Option<f64> {
        (gap.engine == KernelEngine::AiCore).then(|| time_ratio(gap.time, self.ai_core_time))
    }

    /// Returns a line about the kernels on AI cores that can be replayed with all their recorded shapes, and their share of the time;
    /// `None` without such kernels.
    pub(crate) fn replayable_text(&self) -> Option<String> {
        let of_cores = || self.of_engine(KernelEngine::AiCore);
        let with_gaps: BTreeSet<&str> = of_cores().map(|gap| gap.kernel.as_str()).collect();
        let missing = Nanos(of_cores().map(|gap| gap.time.0).sum());
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

    fn of_engine(&self, engine: KernelEngine) -> impl Iterator<Item = &KernelGap> {
        self.gaps.iter().filter(move |gap| gap.engine == engine)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share is printed with four digits")]
fn time_ratio(part: Nanos, whole: Nanos) -> f64 {
    if whole.0 == 0 { 0.0 } else { part.0 as f64 / whole.0 as f64 }
}

/// Returns a table of the gaps on AI cores with their share of the time, tables of AI CPU kernels and of collectives, and
/// the share of each kind of gap.
pub(crate) fn gaps_table(gaps: &ProfileGaps, width: Option<usize>) -> String {
    let mut text = String::new();
    for (engine, title) in [
        (KernelEngine::AiCore, "AI cores"),
        (KernelEngine::AiCpu, "AI CPU"),
        (KernelEngine::Collective, "collectives"),
    ] {
        if gaps.of_engine(engine).next().is_some() {
            let separator = if text.is_empty() { "" } else { "\n" };
            let _ = write!(text, "{separator}{}", engine_table(gaps, engine, title, width));
        }
    }
    let separator = if text.is_empty() { "" } else { "\n" };
    let _ = writeln!(text, "{separator}{}", summary_line(gaps));
    text
}

fn engine_table(gaps: &ProfileGaps, engine: KernelEngine, title: &str, width: Option<usize>) -> String {
    let columns = vec![
        FittedColumn::text(title, 0).shortened_to(16),
        FittedColumn::number("records", 2),
        FittedColumn::number("time (ms)", 0),
        FittedColumn::number("share (%)", 1),
        FittedColumn::text("reason", 0).shortened_to(16),
    ];
    // Collectives have neither a share of the AI cores nor a reason.
    let cells = |gap: &KernelGap| {
        let reason = gap.kind.map(|kind| match gap.reason.as_str() {
            "" => kind.label().to_owned(),
            reason => format!("{}: {reason}", kind.label()),
        });
        vec![
            gap.kernel.clone(),
            gap.records.to_string(),
            milliseconds(gap.time.0),
            gaps.share(gap).map_or_else(String::new, |share| format!("{:.2}", share * 100.0)),
            reason.unwrap_or_default(),
        ]
    };
    fitted_text(columns, gaps.of_engine(engine).map(cells), width)
}

fn summary_line(gaps: &ProfileGaps) -> String {
    let kernels = format_count(gaps.kernels, "kernel");
    let mut line = format!("{kernels} on AI cores, {} ms", milliseconds(gaps.ai_core_time.0));
    for kind in GapKind::ALL {
        let of_kind = gaps.of_engine(KernelEngine::AiCore).filter(|gap| gap.kind == Some(kind));
        let time = Nanos(of_kind.map(|gap| gap.time.0).sum());
        if time.0 > 0 {
            let share = time_ratio(time, gaps.ai_core_time) * 100.0;
            let _ = write!(line, "; {} {share:.2} %", kind.label());
        }
    }
    line
}

pub(crate) fn gaps_json(gaps: &ProfileGaps) -> String {
    let lines = gaps.gaps.iter().map(|gap| {
        let share = gaps.share(gap).map(|share| (share * 1e6).round() / 1e6);
        let reason = if gap.reason.is_empty() { Value::Null } else { gap.reason.as_str().into() };
        #[expect(clippy::cast_precision_loss, reason = "times of profiles have fewer than 53 bits")]
        let time_us = gap.time.0 as f64 / 1e3;
        let object = json!({
            "kernel": gap.kernel, "engine": gap.engine, "records": gap.records, "time_us": time_us,
            "share": share, "gap": gap.kind, "reason": reason,
        });
        format!("{object}\n")
    });
    lines.collect()
}
