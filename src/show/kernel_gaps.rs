//! Kernels of a profile that the catalogue cannot replay, with their device time: table and JSON of
//! `npubench kernels --missing`.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    answer::kernel_gaps::{GapKind, KernelEngine, KernelGap, ProfileGaps, time_ratio},
    base::count_text::format_count,
    kernel::Nanos,
    show::{
        coverage::milliseconds,
        table::{FittedColumn, fitted_text},
    },
};

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

/// Records that cannot be replayed, in JSON.
#[derive(Serialize, JsonSchema)]
pub(crate) struct GapRecord<'a> {
    kernel: &'a str,
    engine: KernelEngine,
    records: u64,
    time_us: f64,
    /// Part of the time on AI cores; null for other engines.
    share: Option<f64>,
    gap: Option<GapKind>,
    reason: Option<&'a str>,
}

impl<'a> GapRecord<'a> {
    /// Returns a record for each gap.
    pub(crate) fn of_gaps(gaps: &'a ProfileGaps) -> Vec<Self> {
        let record = |gap: &'a KernelGap| Self {
            kernel: &gap.kernel,
            engine: gap.engine,
            records: gap.records,
            time_us: gap.time.micros(),
            share: gaps.share(gap).map(|share| (share * 1e6).round() / 1e6),
            gap: gap.kind,
            reason: Some(gap.reason.as_str()).filter(|reason| !reason.is_empty()),
        };
        gaps.gaps.iter().map(record).collect()
    }
}
