//! Collectives: durations by message size, number of ranks and tier of the topology.

use std::path::Path;

use super::{
    answer::{AnswerSource, DispatchOverhead, LatencyColumn, LookupAnswer, Micros, MissReason, UsedRow},
    row_answers::verdict_factor,
    rules::{LookupRules, MatchRule, RuleKind},
};
use crate::{
    answer::{
        op_mapping::MessageInterpolation,
        op_query::collective_message::{CollectiveMessage, is_across_change},
    },
    database::{
        CollectiveOverhead, DatabaseError, KernelCsv,
        collective_rows::{
            ALGORITHM_TYPE, DTYPE, ENVIRONMENT, MESSAGE_BYTES, NUM_DEVICES as RANKS, PART_WEIGHTS,
            TOPOLOGY_TIER as TIER,
        },
        columns,
    },
    kernel::{Dtype, KernelName, Verdict},
};

/// Factor of the confidence in rows of another element type, with as many bytes.
const OTHER_TYPE_FACTOR: f64 = 0.9;

#[derive(Clone, Debug)]
struct CollectiveRow {
    bytes: u64,
    ranks: u64,
    tier: Option<u64>,
    dtype: Option<Dtype>,
    /// Variables of HCCL.
    environment: String,
    /// True for an `all_to_all_v` with unequal parts.
    has_unequal_parts: bool,
    /// Algorithm of the measurement; empty if it is not recorded.
    algorithm: String,
    line: u32,
    column: LatencyColumn,
    latency: f64,
    /// Verdict of the replay that the latency is from.
    verdict: Option<Verdict>,
    /// True for a latency of an older tool, which contains the time to dispatch.
    has_overhead: bool,
}

impl CollectiveRow {
    /// Returns true if a row of a larger message is of another algorithm, by its name or by the durations.
    fn is_of_other_algorithm(&self, larger: &Self) -> bool {
        let [one, other] = [&self.algorithm, &larger.algorithm];
        !one.is_empty() && !other.is_empty() && one != other
            || is_across_change((self.bytes, self.latency), (larger.bytes, larger.latency))
    }
}

/// The rows of a collective with a latency.
#[derive(Clone, Debug)]
pub(crate) struct CollectiveTable {
    kernel: KernelName,
    rows: Vec<CollectiveRow>,
    /// Columns without which no row can be found.
    missing: Vec<&'static str>,
    /// Models of the time to dispatch it; none for the superseded tool, whose rows contain them.
    overheads: Vec<CollectiveOverhead>,
}

impl CollectiveTable {
    /// Reads the table of a collective; `None` if the file does not exist. Replays with bad verdicts and durations of production
    /// profiles are no latencies, but for the superseded tool.
    pub(crate) fn load(
        kernel: &KernelName,
        folder: &Path,
        rules: LookupRules,
    ) -> Result<Option<Self>, DatabaseError> {
        let path = folder.join(format!("{}.csv", kernel.file_stem()));
        if !path.is_file() {
            return Ok(None);
        }
        let table = KernelCsv::load(&path)?;
        let column = |name: &str| table.column_index(name);
        let latencies: Vec<(LatencyColumn, usize)> = LatencyColumn::ALL
            .into_iter()
            .flat_map(|kind| kind.names().iter().map(move |name| (kind, *name)))
            .filter_map(|(kind, name)| Some((kind, column(name)?)))
            .collect();
        let verdict = column(columns::VERDICT).filter(|_| rules == LookupRules::Current);
        let [bytes, ranks, tier, dtype] = [MESSAGE_BYTES, RANKS, TIER, DTYPE].map(column);
        let [environment, algorithm, parts] = [ENVIRONMENT, ALGORITHM_TYPE, PART_WEIGHTS].map(column);
        let overheads = match rules {
            LookupRules::Current => CollectiveOverhead::load(kernel, folder)?,
            LookupRules::Superseded => Vec::new(),
        };
        let mut found = Self { kernel: kernel.clone(), rows: Vec::new(), missing: Vec::new(), overheads };
        let (Some(bytes), Some(ranks)) = (bytes, ranks) else {
            let needed = [(MESSAGE_BYTES, bytes), (RANKS, ranks)];
            found.missing =
                needed.into_iter().filter(|(_, index)| index.is_none()).map(|(name, _)| name).collect();
            return Ok(Some(found));
        };
        table.for_each_row(|row, cells| {
            let text =
                |index: usize| std::str::from_utf8(cells.get(index).unwrap_or_default()).unwrap_or("").trim();
            let number = |index: usize| parse_whole(text(index));
            let verdict = verdict.and_then(|index| text(index).parse::<Verdict>().ok());
            // A duration in a model contains the wait for the other ranks.
            let usable = latencies.iter().filter(|(kind, _)| match kind {
                LatencyColumn::Production => rules == LookupRules::Superseded,
                _ => !verdict.is_some_and(Verdict::refutes_replay),
            });
            let latency = usable.into_iter().find_map(|(kind, index)| {
                let number: f64 = text(*index).parse().ok()?;
                (number.is_finite() && number > 0.0).then_some((*kind, number))
            });
            let line = table.row_line(row).and_then(|line| u32::try_from(line).ok());
            if let (Some(bytes), Some(ranks), Some((column, latency)), Some(line)) =
                (number(bytes), number(ranks), latency, line)
            {
                let (tier, dtype) =
                    (tier.and_then(number), dtype.and_then(|index| Dtype::parse(text(index))));
                let [environment, algorithm] =
                    [environment, algorithm].map(|index| index.map(text).unwrap_or_default().to_owned());
                found.rows.push(CollectiveRow {
                    bytes,
                    ranks,
                    tier,
                    dtype,
                    environment,
                    has_unequal_parts: !parts.map(text).unwrap_or_default().is_empty(),
                    algorithm,
                    line,
                    column,
                    latency,
                    verdict,
                    has_overhead: verdict.is_none(),
                });
            }
        });
        Ok(Some(found))
    }

    /// Looks a message up: rows of its size, else a straight line between those of the neighbouring sizes. Rows of its
    /// element type precede those of others, which also answer outside the sizes of the type. Rows of one size stand for
    /// their median. The time to dispatch is added to rows that do not contain it.
    pub(crate) fn lookup(&self, message: &CollectiveMessage, rules: LookupRules) -> LookupAnswer {
        if !self.missing.is_empty() {
            let missing = self.missing.iter().map(ToString::to_string).collect();
            return LookupAnswer::missed(MissReason::CsvFormatRaw(missing));
        }
        let of_group = |row: &&CollectiveRow| {
            row.ranks == message.ranks
                && (message.tier.is_none() || row.tier.is_none() || row.tier == message.tier)
        };
        let is_current = rules == LookupRules::Current;
        // A query has no sizes of parts: it is for equal ones.
        let mut rows: Vec<&CollectiveRow> =
            self.rows.iter().filter(of_group).filter(|row| !row.has_unequal_parts).collect();
        if is_current && message.tier.is_none() && rows.iter().any(|row| row.tier != rows[0].tier) {
            return LookupAnswer::missed(MissReason::AmbiguousTier);
        }
        if is_current && rows.iter().any(|row| row.environment.is_empty()) {
            // Variables of HCCL change the algorithm; a query is for the defaults.
            rows.retain(|row| row.environment.is_empty());
        }
        if is_current && rows.iter().any(|row| row.environment != rows[0].environment) {
            return LookupAnswer::missed(MissReason::OpenAttributes(vec![ENVIRONMENT.to_owned()]));
        }
        if is_current {
            let same: Vec<&CollectiveRow> =
                rows.iter().filter(|row| row.dtype == message.dtype).copied().collect();
            let has_size = |is_beyond: fn(&u64, &u64) -> bool| {
                same.iter().any(|row| is_beyond(&row.bytes, &message.bytes))
            };
            if has_size(u64::le) && has_size(u64::ge) {
                rows = same;
            }
        }
        let lower = rows.iter().map(|row| row.bytes).filter(|bytes| *bytes <= message.bytes).max();
        let upper = rows.iter().map(|row| row.bytes).filter(|bytes| *bytes >= message.bytes).min();
        let (Some(lower), Some(upper)) = (lower, upper) else {
            let sizes = || rows.iter().map(|row| row.bytes);
            return LookupAnswer::missed(match (sizes().min(), sizes().max()) {
                (Some(least), Some(most)) => {
                    MissReason::MessageOutOfRange { bytes: message.bytes, least, most }
                }
                _ => MissReason::NoRowsOfGroup(message.ranks),
            });
        };
        let [low, high] = [lower, upper].map(|bytes| match is_current {
            true => median_row(&rows, bytes),
            false => first_row(&rows, bytes),
        });
        let used = |row: &CollectiveRow| UsedRow {
            kernel: self.kernel.clone(),
            line: row.line,
            column: row.column,
            latency: Micros(row.latency),
            #[expect(clippy::cast_precision_loss, reason = "messages are below 2^53 bytes")]
            coordinates: (lower < upper).then_some([row.bytes as f64, 0.0, 0.0]),
        };
        let is_exact = lower == upper;
        #[expect(clippy::cast_precision_loss, reason = "messages are below 2^53 bytes")]
        let share = if is_exact { 0.0 } else { (message.bytes - lower) as f64 / (upper - lower) as f64 };
        let is_fit = !is_current && message.interpolation == MessageInterpolation::AlphaBeta;
        let (kind, source, confidence) = match is_exact {
            true => (RuleKind::Message, AnswerSource::Measured, 0.9),
            false if is_fit => (RuleKind::MessageFit, AnswerSource::Interpolated, 0.8),
            false if is_current && low.is_of_other_algorithm(high) => {
                (RuleKind::MessageAcrossChange, AnswerSource::Interpolated, 0.5)
            }
            false => (RuleKind::MessageBracket, AnswerSource::Interpolated, 0.8),
        };
        let has_other_type = |row: &CollectiveRow| match (&row.dtype, &message.dtype) {
            (Some(row), Some(message)) => is_current && row != message,
            _ => false,
        };
        let trust = |row: &CollectiveRow| {
            verdict_factor(row.verdict) * if has_other_type(row) { OTHER_TYPE_FACTOR } else { 1.0 }
        };
        let latency = if kind == RuleKind::MessageFit {
            let (least, most) = (low.latency.min(high.latency), low.latency.max(high.latency));
            fit_of_all_sizes(&rows, message.bytes).clamp(least, most)
        } else {
            low.latency + share * (high.latency - low.latency)
        };
        let tier = message.tier.or(low.tier);
        let overhead = CollectiveOverhead::of_group(&self.overheads, message.ranks, tier)
            .filter(|_| !low.has_overhead || !high.has_overhead)
            .map(|overhead| {
                let missing = |row: &CollectiveRow| if row.has_overhead { 0.0 } else { overhead.overhead_us };
                let latency = Micros(missing(low) + share * (missing(high) - missing(low)));
                DispatchOverhead { latency, source: overhead.source.clone() }
            });
        let latency = latency + overhead.as_ref().map_or(0.0, |overhead| overhead.latency.0);
        LookupAnswer {
            latency: Some(Micros(latency)),
            source,
            confidence: confidence * trust(low).min(trust(high)),
            rule: Some(MatchRule::of_kind(kind)),
            rows: if is_exact { vec![used(low)] } else { vec![used(low), used(high)] },
            equal_rows: if is_exact { rows.iter().filter(|row| row.bytes == lower).count() } else { 1 },
            miss: None,
            parts: Vec::new(),
            overhead,
        }
    }
}

/// Returns the row of this size with the median latency.
fn median_row<'r>(rows: &[&'r CollectiveRow], bytes: u64) -> &'r CollectiveRow {
    let mut equal: Vec<&CollectiveRow> = rows.iter().filter(|row| row.bytes == bytes).copied().collect();
    equal.sort_by(|one, other| one.latency.total_cmp(&other.latency).then(one.line.cmp(&other.line)));
    equal[(equal.len() - 1) / 2]
}

/// Returns the first row of this size.
fn first_row<'r>(rows: &[&'r CollectiveRow], bytes: u64) -> &'r CollectiveRow {
    rows.iter().find(|row| row.bytes == bytes).unwrap_or(&rows[0])
}

/// Returns the latency of a message by the line through all sizes with the least squares.
#[expect(clippy::cast_precision_loss, reason = "messages are below 2^53 bytes")]
fn fit_of_all_sizes(rows: &[&CollectiveRow], bytes: u64) -> f64 {
    let count = rows.len() as f64;
    let size = |row: &CollectiveRow| row.bytes as f64;
    let mean_size = rows.iter().map(|row| size(row)).sum::<f64>() / count;
    let mean = rows.iter().map(|row| row.latency).sum::<f64>() / count;
    let spread: f64 = rows.iter().map(|row| (size(row) - mean_size).powi(2)).sum();
    let common: f64 = rows.iter().map(|row| (size(row) - mean_size) * (row.latency - mean)).sum();
    mean + common / spread * (bytes as f64 - mean_size)
}

/// Parses a whole number, also as `16.0`.
fn parse_whole(text: &str) -> Option<u64> {
    text.strip_suffix(".0").unwrap_or(text).parse().ok()
}
