//! Kernels of a profile that the catalogue cannot replay, with their device time.

use super::prelude::*;
use crate::answer::kernel_gaps::{GapKind, KernelEngine, KernelGap, ProfileGaps, time_ratio};

pub(crate) fn gaps_table(gaps: &ProfileGaps, width: Option<usize>) -> String {
    let engines = [
        (KernelEngine::AiCore, "AI cores"),
        (KernelEngine::AiCpu, "AI CPU"),
        (KernelEngine::Collective, "collectives"),
    ];
    let tables = engines.into_iter().map(|(engine, title)| engine_table(gaps, engine, title, width));
    let parts: Vec<String> = tables.filter(|table| !table.is_empty()).chain([summary_line(gaps)]).collect();
    parts.join("\n")
}

fn engine_table(gaps: &ProfileGaps, engine: KernelEngine, title: &str, width: Option<usize>) -> String {
    // Collectives have neither a share of the AI cores nor a reason.
    let reason = |gap: &KernelGap| {
        gap.kind.map(|kind| match gap.reason.as_str() {
            "" => kind.label().to_owned(),
            reason => format!("{}: {reason}", kind.label()),
        })
    };
    Table::new(gaps.of_engine(engine))
        .text(title, rank(0).min(16), |gap| &gap.kernel)
        .number("records", 2, |gap| gap.records)
        .number("time (ms)", 0, |gap| millis(gap.time.0))
        .number("share (%)", 1, |gap| or_empty(gaps.share(gap).map(|share| format!("{:.2}", share * 100.0))))
        .text("reason", rank(0).min(16), |gap| or_empty(reason(gap)))
        .print(width)
}

fn summary_line(gaps: &ProfileGaps) -> String {
    let of_kind = |kind: GapKind| {
        let gaps_of_kind = gaps.of_engine(KernelEngine::AiCore).filter(|gap| gap.kind == Some(kind));
        let time = Nanos(gaps_of_kind.map(|gap| gap.time.0).sum());
        let share = time_ratio(time, gaps.ai_core_time) * 100.0;
        or_empty((time.0 > 0).then(|| format!("; {} {share:.2} %", kind.label())))
    };
    let kinds: String = GapKind::ALL.into_iter().map(of_kind).collect();
    let kernels = format_count(gaps.kernels, "kernel");
    format!("{kernels} on AI cores, {} ms{kinds}\n", millis(gaps.ai_core_time.0))
}

record! {
    pub(crate) GapRecord<'a>(gap: &'a KernelGap, gaps: &ProfileGaps) {
        kernel: &'a str = &gap.kernel,
        engine: KernelEngine = gap.engine,
        records: u64 = gap.records,
        time_us: f64 = gap.time.micros(),
        share: Option<f64> = gaps.share(gap).map(|share| (share * 1e6).round() / 1e6),
        gap: Option<GapKind> = gap.kind,
        reason: Option<&'a str> = Some(gap.reason.as_str()).filter(|reason| !reason.is_empty()),
    }
}

pub(crate) fn gap_records(gaps: &ProfileGaps) -> Vec<GapRecord<'_>> {
    gaps.gaps.iter().map(|gap| GapRecord::new(gap, gaps)).collect()
}
