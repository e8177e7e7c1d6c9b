//! Collectives: durations by message size, number of ranks and tier of the topology; the message of a query, and the sweep
//! that measures the rows that a query lacks.

use std::path::Path;

use super::{
    AnswerSource, DispatchOverhead, LatencyColumn, LatencyReader, Listed, LookupAnswer, LookupEngine,
    LookupResult, MatchRule, Micros, MissReason, OpQuery, QueryTensor, RuleKind, UsedRow, best_of,
    element_bytes, verdict_factor,
};
use crate::{
    answer::op_mapping::{
        CommunicationRule, KernelPolicy, MappedKernel, MessageBytes, MessageInterpolation, OperatorRoute,
        RankGroup,
    },
    database::{
        CollectiveOverhead, DatabaseError, KernelCsv,
        collective_rows::{
            ALGORITHM_TYPE, CollectiveKey, CollectiveKeyColumns, ENVIRONMENT, MESSAGE_BYTES, NUM_DEVICES,
        },
    },
    kernel::{CollectiveKind, CommandSizes, Dtype, KernelName, PartWeights, SweepCommand, Verdict},
};

impl LookupEngine {
    pub(super) fn lookup_collective(
        &self,
        kernels: &[MappedKernel],
        query: &OpQuery,
        is_operator: bool,
    ) -> LookupResult {
        let message = match message_of_query(kernels.first().map(|kernel| &kernel.name), query, is_operator) {
            Ok(message) => message,
            Err(reason) => return Ok(LookupAnswer::missed(reason)),
        };
        let answers = kernels.iter().map(|kernel| self.lookup_message(kernel, &message));
        Ok(best_of(answers, &*self.rules)?.unwrap_or_else(|| LookupAnswer::missed(MissReason::Unmapped)))
    }

    /// Returns the collective that answers a query, with its message; `None` for other queries, and without a number of ranks or
    /// a size.
    pub(crate) fn collective_of_query(&self, query: &OpQuery) -> Option<(KernelName, CollectiveMessage)> {
        let (kernel, is_operator) = match self.mapping.operator(&query.op) {
            Some(operator) if operator.route == OperatorRoute::Communication => {
                (operator.kernels.first()?.name.clone(), true)
            }
            Some(_) => return None,
            None => (KernelName::new(&query.op).ok().filter(KernelName::is_collective)?, false),
        };
        let message = message_of_query(Some(&kernel), query, is_operator).ok()?;
        Some((kernel, message))
    }

    pub(super) fn lookup_message(&self, kernel: &MappedKernel, message: &CollectiveMessage) -> LookupResult {
        Ok(match self.index.collective(&kernel.name, &self.mapping)? {
            Some(table) => self.rules.find_message(&table, message),
            None => LookupAnswer::missed(MissReason::CsvNotFound(Listed(vec![self.missing_table(kernel)]))),
        })
    }

    /// Returns true if rows of a collective answer the sum of a product over all ranks.
    pub(crate) fn sums_product(&self, kernel: &KernelName, query: &OpQuery) -> bool {
        if kernel.as_str() != "hcom_allReduce_" || query.is_sequence_parallel {
            return false;
        }
        let Ok(message) = message_of_product(query, None) else { return false };
        let answer = self.lookup_message(&MappedKernel::unmapped(kernel.clone()), &message);
        answer.is_ok_and(|answer| answer.latency.is_some() && answer.miss.is_none())
    }

    /// Returns the command that measures the rows of a collective that a query lacks; `None` for a collective that no
    /// sweep has, and without the number of ranks.
    pub(crate) fn collective_command(
        &self,
        query: &OpQuery,
        kernel: &KernelName,
        reason: Option<&MissReason>,
    ) -> Option<String> {
        let collective = CollectiveKind::of_kernel(kernel)?;
        let is_group = |ranks: &u64| *ranks == 2 || *ranks > 2 && collective != CollectiveKind::SendReceive;
        let ranks = query.ranks.filter(is_group)?;
        // A collective has one input; further inputs belong to a composite.
        let message = message_of_query(Some(kernel), query, query.op != kernel.as_str()).ok();
        let message = message.filter(|_| query.inputs.len() == 1).map(|message| message.bytes);
        // Rows of the default type answer for types that no sweep has.
        let dtype = query.inputs.first().and_then(|input| input.dtype.as_ref());
        let dtype = dtype.filter(|dtype| dtype.is_of_messages());
        let element = dtype.unwrap_or(&Dtype::Bf16).bytes()?;
        let granularity = collective.size_granularity(element, ranks);
        let sizes = match (reason, message) {
            (Some(MissReason::MessageOutOfRange { bytes, .. }), _) => {
                CommandSizes::around(*bytes, granularity)
            }
            (_, Some(bytes)) => CommandSizes::ladder_to(bytes, granularity)?,
            (_, None) => CommandSizes::default_of(granularity),
        };
        let command = SweepCommand {
            database: self.index.database.folder(),
            data_kind: self.index.database.kind(),
            collective,
            ranks,
            tier: query.tier,
            dtype,
            environment: "",
            parts: &PartWeights::Equal,
            sizes,
            measures_again: false,
        };
        Some(command.to_string())
    }
}

/// Collective whose tables have the output of one rank.
const REDUCE_SCATTER: &str = "hcom_reduceScatter_";

/// Relative difference of durations that noise explains.
const NOISE: f64 = 0.1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CollectiveMessage {
    pub(crate) bytes: u64,
    pub(crate) ranks: u64,
    pub(crate) tier: Option<u64>,
    pub(crate) dtype: Option<Dtype>,
    /// Interpolation between sizes that a mapping states; lookups use a line.
    pub(crate) interpolation: MessageInterpolation,
}

/// Returns the message of a query for a collective. The input of an operator that scatters is that of all ranks together; tables
/// have the output of one. The error is the reason of a miss.
pub(crate) fn message_of_query(
    kernel: Option<&KernelName>,
    query: &OpQuery,
    is_operator: bool,
) -> Result<CollectiveMessage, MissReason> {
    let ranks = query.ranks.filter(|ranks| *ranks > 0).ok_or(MissReason::RanksNotGiven)?;
    let input = query.inputs.first();
    let dtype = input.and_then(|input| input.dtype.clone());
    let bytes = input.zip(dtype.as_ref()).and_then(|(input, dtype)| {
        let size = element_bytes(dtype)?;
        input.dims.iter().try_fold(size, |product, dim| product.checked_mul(*dim))
    });
    let scatters = kernel.is_some_and(|kernel| kernel.as_str() == REDUCE_SCATTER);
    let mut bytes = bytes.ok_or(MissReason::MessageUnknown)?;
    if is_operator && scatters {
        bytes = bytes.is_multiple_of(ranks).then(|| bytes / ranks).ok_or(MissReason::MessageUnknown)?;
    }
    let interpolation = MessageInterpolation::default();
    Ok(CollectiveMessage { bytes, ranks, tier: query.tier, dtype, interpolation })
}

/// Returns the dimension of a weight that is not summed over; `None` if the inputs share none.
pub(crate) fn other_dim(shared: u64, [one, other]: [u64; 2]) -> Option<u64> {
    if one == shared { Some(other) } else { (other == shared).then_some(one) }
}

/// Returns the bytes of a product's output, as a collective behind it sends them. Products of one-byte types have an
/// output of two bytes per element.
pub(crate) fn product_bytes(inputs: &[QueryTensor]) -> Option<u64> {
    let [input, weight, ..] = inputs else { return None };
    let ([outer @ .., k], &[one, other]) = (&*input.dims, &*weight.dims) else { return None };
    let n = other_dim(*k, [one, other])?;
    let size = element_bytes(input.dtype.as_ref()?)?.max(2);
    outer.iter().chain([&n, &size]).try_fold(1_u64, |product, dim| product.checked_mul(*dim))
}

/// Returns the message of a composite's collective, or of the one that replaces it by a rule; the error is the reason of a miss.
pub(crate) fn message_of_product(
    query: &OpQuery,
    rule: Option<&CommunicationRule>,
) -> Result<CollectiveMessage, MissReason> {
    let ranks = query.ranks.ok_or(MissReason::RanksNotGiven)?;
    let group = rule.and_then(|rule| rule.group_type);
    if group == Some(RankGroup::TensorParallel) && query.tp_size != Some(ranks) {
        return Err(MissReason::RanksNotGiven);
    }
    let bytes = product_bytes(&query.inputs).ok_or(MissReason::MessageUnknown)?;
    let bytes = match rule.map(|rule| rule.message_bytes_mode).unwrap_or_default() {
        MessageBytes::FullOutput => bytes,
        MessageBytes::PerRankOutput if ranks > 1 && bytes.is_multiple_of(ranks) => bytes / ranks,
        MessageBytes::PerRankOutput | MessageBytes::RoutedInput => return Err(MissReason::MessageUnknown),
    };
    let interpolation = rule.map(|rule| rule.interpolation_method).unwrap_or_default();
    Ok(CollectiveMessage { bytes, ranks, tier: query.tier, dtype: None, interpolation })
}

/// Returns true if no latency and bandwidth give both durations: the larger message is faster, or takes longer than in proportion to
/// its size. The algorithm changes between the two sizes then. `smaller` and `larger` are bytes with their durations.
pub(crate) fn is_across_change(smaller: (u64, f64), larger: (u64, f64)) -> bool {
    let (sizes, durations) = (larger.0 as f64 / smaller.0 as f64, larger.1 / smaller.1);
    durations < 1.0 - NOISE || durations > sizes * (1.0 + NOISE)
}

/// Factor of the confidence in rows of another element type, with as many bytes.
const OTHER_TYPE_FACTOR: f64 = 0.9;

#[derive(Clone, Debug)]
pub(crate) struct CollectiveRow {
    pub(in crate::answer) bytes: u64,
    ranks: u64,
    tier: Option<u64>,
    dtype: Option<Dtype>,
    environment: String,
    /// True for an `all_to_all_v` with unequal parts.
    has_unequal_parts: bool,
    /// Algorithm of the measurement; empty if it is not recorded.
    algorithm: String,
    line: u32,
    column: LatencyColumn,
    pub(in crate::answer) latency: f64,
    verdict: Option<Verdict>,
}

impl CollectiveRow {
    /// Returns true for a latency of an older tool, which contains the time to dispatch.
    const fn has_overhead(&self) -> bool {
        self.verdict.is_none()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct CollectiveTable {
    kernel: KernelName,
    rows: Vec<CollectiveRow>,
    pub(in crate::answer) missing: Vec<&'static str>,
    overheads: Vec<CollectiveOverhead>,
    /// Line of the first row that is left out because a cell is no duration.
    wrong_line: Option<u32>,
}

impl CollectiveTable {
    /// Reads the table of a collective; `None` if the file does not exist. Replays with bad verdicts and durations of production
    /// profiles are no latencies, unless verdicts are not read.
    pub(crate) fn load(
        kernel: &KernelName,
        folder: &Path,
        reads_verdicts: bool,
    ) -> Result<Option<Self>, DatabaseError> {
        let path = folder.join(format!("{}.csv", kernel.file_stem()));
        if DatabaseError::is_missing(&path)? {
            return Ok(None);
        }
        let table = KernelCsv::load(&path)?;
        let latencies = LatencyReader::new(&table, KernelPolicy::default(), reads_verdicts);
        let keys = CollectiveKeyColumns::find(table.column_names());
        let algorithm = table.column_index(ALGORITHM_TYPE);
        let overheads = CollectiveOverhead::load(kernel, folder)?;
        let mut missing = vec![MESSAGE_BYTES, NUM_DEVICES];
        missing.retain(|name| table.column_index(name).is_none());
        let mut found =
            Self { kernel: kernel.clone(), rows: Vec::new(), missing, overheads, wrong_line: None };
        if !found.missing.is_empty() {
            return Ok(Some(found));
        }
        table.for_each_row(|row, cells| {
            let Ok(CollectiveKey { message, ranks: Some(ranks), tier, dtype, environment, parts }) =
                keys.key(cells)
            else {
                return;
            };
            let picked = latencies.columns.iter().map(|index| cells.get(*index).unwrap_or_default());
            let (values, verdict) = latencies.read(&picked.collect::<Vec<_>>());
            let Ok(values) = values else {
                found.wrong_line = found.wrong_line.or(u32::try_from(table.row_line(row)).ok());
                return;
            };
            // A duration in a model contains the wait for the other ranks.
            let is_usable = |column: LatencyColumn| match column {
                LatencyColumn::Production => !reads_verdicts,
                _ => !verdict.is_some_and(Verdict::refutes_replay),
            };
            let mut columns = LatencyColumn::ALL.into_iter().zip(values);
            let latency = columns.find(|(column, value)| *value > 0.0 && is_usable(*column));
            if let (Some((column, latency)), Ok(line)) = (latency, u32::try_from(table.row_line(row))) {
                let algorithm = algorithm.and_then(|index| cells.get(index)).unwrap_or_default();
                found.rows.push(CollectiveRow {
                    bytes: message,
                    ranks,
                    tier,
                    dtype,
                    environment,
                    has_unequal_parts: parts != PartWeights::Equal,
                    algorithm: String::from_utf8_lossy(algorithm).trim().to_owned(),
                    line,
                    column,
                    latency,
                    verdict,
                });
            }
        });
        Ok(Some(found))
    }

    /// Looks a message up: rows of its size, else a straight line between those of the neighbouring sizes. Rows of its
    /// element type are preferred to rows of other types, which also answer outside the sizes of its type. Rows of one
    /// size stand for their median. The time to dispatch is added to rows that do not contain it.
    pub(crate) fn lookup(&self, message: &CollectiveMessage) -> LookupAnswer {
        if !self.missing.is_empty() {
            return LookupAnswer::missed(MissReason::CsvFormatRaw(Listed(self.missing.clone())));
        }
        // A query has no sizes of parts: it is for equal ones.
        let mut rows = self.rows_of_group(message);
        if message.tier.is_none() && rows.iter().any(|row| row.tier != rows[0].tier) {
            return LookupAnswer::missed(MissReason::AmbiguousTier);
        }
        if rows.iter().any(|row| row.environment.is_empty()) {
            // Variables of HCCL change the algorithm; a query is for the defaults.
            rows.retain(|row| row.environment.is_empty());
        }
        if rows.iter().any(|row| row.environment != rows[0].environment) {
            return LookupAnswer::missed(MissReason::OpenAttributes(Listed(vec![ENVIRONMENT.to_owned()])));
        }
        let same: Vec<&CollectiveRow> =
            rows.iter().filter(|row| row.dtype == message.dtype).copied().collect();
        let has_size =
            |is_beyond: fn(&u64, &u64) -> bool| same.iter().any(|row| is_beyond(&row.bytes, &message.bytes));
        if has_size(u64::le) && has_size(u64::ge) {
            rows = same;
        }
        let (lower, upper) = match neighbouring_sizes(&rows, message) {
            Ok(sizes) => sizes,
            Err(reason) => {
                return LookupAnswer::missed(self.wrong_line.map_or(reason, MissReason::WrongDuration));
            }
        };
        let [low, high] = [lower, upper].map(|bytes| median_row(&rows, bytes));
        let is_exact = lower == upper;
        let share = if is_exact { 0.0 } else { (message.bytes - lower) as f64 / (upper - lower) as f64 };
        let algorithms = [&low.algorithm, &high.algorithm];
        let has_other_name = algorithms[0] != algorithms[1] && algorithms.iter().all(|name| !name.is_empty());
        let (kind, source, confidence) = match is_exact {
            true => (RuleKind::Message, AnswerSource::Measured, 0.9),
            false if has_other_name || is_across_change((lower, low.latency), (upper, high.latency)) => {
                (RuleKind::MessageAcrossChange, AnswerSource::Interpolated, 0.5)
            }
            false => (RuleKind::MessageBracket, AnswerSource::Interpolated, 0.8),
        };
        let has_other_type = |row: &CollectiveRow| match (&row.dtype, &message.dtype) {
            (Some(row), Some(message)) => row != message,
            _ => false,
        };
        let trust = |row: &CollectiveRow| {
            verdict_factor(row.verdict) * if has_other_type(row) { OTHER_TYPE_FACTOR } else { 1.0 }
        };
        let latency = low.latency + share * (high.latency - low.latency);
        let tier = message.tier.or(low.tier);
        let overhead = CollectiveOverhead::of_group(&self.overheads, message.ranks, tier)
            .filter(|_| !low.has_overhead() || !high.has_overhead())
            .map(|overhead| {
                let missing =
                    |row: &CollectiveRow| if row.has_overhead() { 0.0 } else { overhead.overhead_us };
                let latency = Micros(missing(low) + share * (missing(high) - missing(low)));
                DispatchOverhead { latency, source: overhead.source.clone() }
            });
        let latency = latency + overhead.as_ref().map_or(0.0, |overhead| overhead.latency.0);
        LookupAnswer {
            latency: Some(Micros(latency)),
            source,
            confidence: confidence * trust(low).min(trust(high)),
            rule: Some(MatchRule::of_kind(kind)),
            rows: self.used_rows(low, high),
            equal_rows: if is_exact { rows.iter().filter(|row| row.bytes == lower).count() } else { 1 },
            overhead,
            ..LookupAnswer::default()
        }
    }

    pub(in crate::answer) fn rows_of_group(&self, message: &CollectiveMessage) -> Vec<&CollectiveRow> {
        let of_group = |row: &&CollectiveRow| {
            row.ranks == message.ranks
                && !row.has_unequal_parts
                && (message.tier.is_none() || row.tier.is_none() || row.tier == message.tier)
        };
        self.rows.iter().filter(of_group).collect()
    }

    /// Returns the rows that an answer uses: one, or both on the sides of a message with their sizes.
    pub(in crate::answer) fn used_rows(&self, low: &CollectiveRow, high: &CollectiveRow) -> Vec<UsedRow> {
        let is_exact = low.bytes == high.bytes;
        let used = |row: &CollectiveRow| UsedRow {
            kernel: self.kernel.clone(),
            line: row.line,
            column: row.column,
            latency: Micros(row.latency),
            coordinates: (!is_exact).then_some([row.bytes as f64, 0.0, 0.0]),
        };
        if is_exact { vec![used(low)] } else { vec![used(low), used(high)] }
    }
}

/// Returns the nearest measured sizes: the greatest one that is at most the size of a message, and the least one that
/// is at least this size. The error is the reason of a miss.
pub(in crate::answer) fn neighbouring_sizes(
    rows: &[&CollectiveRow],
    message: &CollectiveMessage,
) -> Result<(u64, u64), MissReason> {
    let sizes = || rows.iter().map(|row| row.bytes);
    let lower = sizes().filter(|bytes| *bytes <= message.bytes).max();
    let upper = sizes().filter(|bytes| *bytes >= message.bytes).min();
    lower.zip(upper).ok_or_else(|| match (sizes().min(), sizes().max()) {
        (Some(min), Some(max)) => MissReason::MessageOutOfRange { bytes: message.bytes, min, max },
        _ => MissReason::NoRowsOfGroup(message.ranks),
    })
}

fn median_row<'r>(rows: &[&'r CollectiveRow], bytes: u64) -> &'r CollectiveRow {
    let mut equal: Vec<&CollectiveRow> = rows.iter().filter(|row| row.bytes == bytes).copied().collect();
    equal.sort_by(|one, other| one.latency.total_cmp(&other.latency).then(one.line.cmp(&other.line)));
    equal[(equal.len() - 1) / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_that_no_line_gives_are_those_of_two_algorithms() {
        for (larger, expected) in [
            ((2048, 10.0), false),
            ((2048, 9.5), false),
            ((2048, 20.0), false),
            ((2048, 21.0), false),
            ((2048, 8.0), true),
            ((2048, 23.0), true),
            ((1 << 20, 23.0), false),
        ] {
            assert_eq!(is_across_change((1024, 10.0), larger), expected, "{larger:?}");
        }
    }
}
