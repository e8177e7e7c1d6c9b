//! Answers of the tool that npubench supersedes, for `npubench query --compat`, where npubench answers differently on
//! purpose. docs/lookup.md lists the differences. Every row is compared, in the order of the file.

use std::sync::Arc;

use super::{
    lookup::{
        AnswerSource, AttentionFamily, AttentionParameters, AttentionRegime, AttentionTable, AttentionWork,
        CONFIDENCE, CandidateKernels, CollectiveMessage, CollectiveRow, CollectiveTable, ElementwiseOutput,
        IndexedRow, InputSlot, KernelIndex, KernelRows, KernelsQuery, LENGTH_TOLERANCE, LatencyColumn,
        Listed, LookupAnswer, LookupEngine, LookupRules, MatchRule, Micros, MissReason, OpQuery, Padding,
        RuleKind, SlotDims, TILES, TokenMatch, VariantsOfKernels, answer_of_row, choose_median, fills_tiles,
        input_slots, interpolate_kernels, keep_least, missed, neighbouring_sizes, output_of_query,
    },
    op_mapping::{MessageInterpolation, OpMapping},
};
use crate::{
    database::{Database, DatabaseError},
    kernel::{Dtype, EP_SIZE},
};

/// Tile to which the superseded tool assumes tokens to be padded, in addition to the tiles of npubench.
const LARGE_TILE: u64 = 64;

#[derive(Debug)]
pub(crate) struct SupersededTool;

impl SupersededTool {
    pub(crate) fn engine(
        database: Database,
        mapping: Option<OpMapping>,
    ) -> Result<LookupEngine, DatabaseError> {
        LookupEngine::with_rules(database, mapping, Arc::new(Self))
    }

    /// Returns a query as the tool takes it: it knows no FLOAT16.
    pub(crate) fn query(query: &OpQuery) -> OpQuery {
        let mut query = query.clone();
        query.replace_dtype(&Dtype::Float16, &Dtype::Bf16);
        query
    }
}

impl LookupRules for SupersededTool {
    fn is_superseded(&self) -> bool {
        true
    }

    fn match_kernels(
        &self,
        _engine: &LookupEngine,
        kernels: &VariantsOfKernels<'_>,
        query: &KernelsQuery<'_>,
    ) -> LookupAnswer {
        let slots = kernels.iter().map(|(index, variants)| (*index, variants[0].slots.clone()));
        find_first_row(&slots.collect::<Vec<_>>(), query)
            .or_else(|| interpolate_kernels(kernels, query))
            .unwrap_or_else(|| missed(kernels, query, MissReason::InputCountMismatch))
    }

    /// Finds a row by the output in the table of the first kernel, scaled by the bytes of the element type, then
    /// interpolates.
    fn lookup_elementwise(
        &self,
        engine: &LookupEngine,
        kernels: &CandidateKernels<'_>,
        query: &OpQuery,
    ) -> LookupAnswer {
        let missed = || LookupAnswer::missed(MissReason::ElementwiseOutputShapeMismatch);
        let (Some(output), Some(index)) = (output_of_query(query), kernels.indices.first()) else {
            return missed();
        };
        find_first_output(index, &output)
            .or_else(|| engine.interpolate_elementwise(kernels, &input_slots(&query.inputs), &output))
            .unwrap_or_else(missed)
    }

    fn find_work(&self, table: &AttentionTable, rows: &KernelRows, work: &AttentionWork) -> LookupAnswer {
        nearest_work(table, rows, work)
            .or_else(|| table.interpolated(rows, work, &[EQUAL_TOKENS, PADDED_TOKENS]))
            .unwrap_or_else(|| table.missed(rows, work))
    }

    /// Finds the first row of the size of a message, of any type, environment and tier, else fits all sizes.
    fn find_message(&self, table: &CollectiveTable, message: &CollectiveMessage) -> LookupAnswer {
        if !table.missing.is_empty() {
            return LookupAnswer::missed(MissReason::CsvFormatRaw(Listed(table.missing.clone())));
        }
        let rows = table.rows_of_group(message);
        let (lower, upper) = match neighbouring_sizes(&rows, message) {
            Ok(sizes) => sizes,
            Err(reason) => return LookupAnswer::missed(reason),
        };
        let [low, high] = [lower, upper]
            .map(|bytes| rows.iter().copied().find(|row| row.bytes == bytes).unwrap_or(rows[0]));
        let (kind, confidence, latency) = match message.interpolation {
            _ if lower == upper => (RuleKind::Message, 0.9, low.latency),
            MessageInterpolation::AlphaBeta => {
                let (least, most) = (low.latency.min(high.latency), low.latency.max(high.latency));
                (RuleKind::MessageFit, 0.8, fit_of_all_sizes(&rows, message.bytes).clamp(least, most))
            }
            MessageInterpolation::BracketLinear => {
                let share = (message.bytes - lower) as f64 / (upper - lower) as f64;
                (RuleKind::MessageBracket, 0.8, low.latency + share * (high.latency - low.latency))
            }
        };
        let rule = MatchRule::of_kind(kind);
        LookupAnswer {
            latency: Some(Micros(latency)),
            source: AnswerSource::of_rule(rule),
            confidence,
            rule: Some(rule),
            rows: table.used_rows(low, high),
            equal_rows: if lower == upper { rows.iter().filter(|row| row.bytes == lower).count() } else { 1 },
            ..LookupAnswer::default()
        }
    }

    /// Divides tokens among sequences whose queries are unknown, the first ones having one more.
    fn query_lengths(&self, attention: &AttentionParameters, tokens: u64) -> Vec<u64> {
        let sequences = attention.kv_lengths.len() as u64;
        match attention.query_lengths.is_empty() {
            false => attention.query_lengths.clone(),
            true if sequences == 0 || tokens < sequences => Vec::new(),
            true => (0..sequences)
                .map(|number| tokens / sequences + u64::from(number < tokens % sequences))
                .collect(),
        }
    }

    fn latent_tokens(&self, tokens: u64, batch: Option<u64>) -> Option<u64> {
        batch.or(Some(tokens))
    }
}

const EQUAL_TOKENS: TokenMatch =
    TokenMatch { reach: 0, is_padded: |_, _| false, joins_sequences: false, shows_padding: false };
const PADDED_TOKENS: TokenMatch =
    TokenMatch { reach: LARGE_TILE - 1, is_padded: is_padded_number, ..EQUAL_TOKENS };

fn is_padded_number(query: u64, row: u64) -> bool {
    fills_tiles(query, row, &TILES) || fills_tiles(query, row, &[LARGE_TILE])
}

/// Finds the row whose mean length of keys, without its fraction, is nearest, at most 16 tokens away at any length.
/// Padded tokens are as good as equal ones, and the first of several equal rows answers.
fn nearest_work(table: &AttentionTable, rows: &KernelRows, query: &AttentionWork) -> Option<LookupAnswer> {
    let columns = rows.columns();
    let mut best: Vec<((f64, usize), u32)> = Vec::new();
    // Rotary parts are not compared.
    let regime = AttentionRegime { rope_dim: None, ..query.regime.clone() };
    for row in &table.rows {
        let work = &row.work;
        let gap = (work.kv_length.trunc() - query.kv_length.trunc()).abs();
        let is_same = gap <= LENGTH_TOLERANCE
            && (work.heads, work.head_dim) == (query.heads, query.head_dim)
            && table.regimes[row.regime as usize].unknown_beside(&regime).is_some()
            && PADDED_TOKENS.padding(query.tokens, work.tokens).is_some();
        let has_lists = table.family == AttentionFamily::Fused
            || match (&work.lengths, &query.lengths) {
                (Some(row), Some(query)) => row == query,
                _ => true,
            };
        let latency = rows.rows[row.number as usize].latency();
        let (true, true, Some((column, _))) = (is_same, has_lists, latency) else { continue };
        let distance = gap + if row.has_completeness { 0.0 } else { 0.5 };
        let place = columns.iter().position(|other| *other == column).unwrap_or_default();
        keep_least(&mut best, (distance, place), row.number);
    }
    let (_, number) = best.first().copied()?;
    let rule = (MatchRule::of_kind(RuleKind::Attention), CONFIDENCE);
    if rows.policy.requires_unique {
        let numbers: Vec<u32> = best.iter().map(|(_, number)| *number).collect();
        return Some(choose_median(rows, &numbers, rule));
    }
    let column = rows.rows[number as usize].latency().map_or(LatencyColumn::Replay, |(column, _)| column);
    Some(answer_of_row(rows, (number, column), rule, best.len()))
}

fn fit_of_all_sizes(rows: &[&CollectiveRow], bytes: u64) -> f64 {
    let count = rows.len() as f64;
    let size = |row: &CollectiveRow| row.bytes as f64;
    let mean_size = rows.iter().map(|row| size(row)).sum::<f64>() / count;
    let mean = rows.iter().map(|row| row.latency).sum::<f64>() / count;
    let spread: f64 = rows.iter().map(|row| (size(row) - mean_size).powi(2)).sum();
    let common: f64 = rows.iter().map(|row| (size(row) - mean_size) * (row.latency - mean)).sum();
    mean + common / spread * (bytes as f64 - mean_size)
}

#[derive(Clone, Copy, Debug)]
struct SupersededMatch {
    row: u32,
    rule: MatchRule,
    scale: f64,
    column: LatencyColumn,
}

/// Returns the first row with the best score among those of several kernels. Rows of a kernel whose mapping requires
/// agreement must agree.
fn find_first_row(
    kernels: &[(&KernelIndex, Vec<InputSlot<'_>>)],
    query: &KernelsQuery<'_>,
) -> Option<LookupAnswer> {
    let mut best: Vec<((bool, usize, usize), SupersededMatch)> = Vec::new();
    for (place, (index, slots)) in kernels.iter().enumerate() {
        for (number, row) in (0..).zip(&index.rows.rows) {
            let Some((column, column_place)) = column_of_row(&index.rows, row) else { continue };
            if let Some(rule) = match_row(index, row, slots, query) {
                // Padded rows follow others, unless another rule came behind the padding.
                let score = (rule.padding != Padding::None, place, column_place);
                keep_least(&mut best, score, SupersededMatch { row: number, rule, scale: 1.0, column });
            }
        }
    }
    let ((_, place, _), _) = best.first()?;
    let found: Vec<SupersededMatch> = best.iter().map(|(_, found)| *found).collect();
    Some(answer_of_first(kernels[*place].0, &found))
}

/// Returns the first row with this output, of any element type, in proportion to the bytes.
fn find_first_output(index: &KernelIndex, output: &ElementwiseOutput) -> Option<LookupAnswer> {
    let wanted = strip(&output.dims);
    for (number, row) in (0..).zip(&index.rows.rows) {
        let (Some(form), Some((column, _))) =
            (index.rows.form(row).outputs.first(), column_of_row(&index.rows, row))
        else {
            continue;
        };
        let recorded = SlotDims::new(index.rows.output_dims(row, 0));
        let flat = flattened(&wanted);
        let fits = |dims: &SlotDims| {
            [recorded, strip(&recorded)].iter().any(|row| dims == row || is_padded(dims, row))
        };
        if !fits(&wanted) && !flat.is_some_and(|flat| recorded.as_slice().len() == 2 && fits(&flat)) {
            continue;
        }
        let is_same = form.dtype == output.dtype;
        let scale = match (output.dtype.bytes(), form.dtype.bytes()) {
            _ if is_same => 1.0,
            (Some(ours), Some(theirs)) => ours as f64 / theirs as f64,
            _ => continue,
        };
        let kind = if is_same { RuleKind::ElementwiseOutput } else { RuleKind::ElementwiseBytes };
        let rule = MatchRule::of_kind(kind);
        let found = SupersededMatch { row: number, rule, scale, column };
        return Some(answer_of_first(index, &[found]));
    }
    None
}

fn column_of_row(rows: &KernelRows, row: &IndexedRow) -> Option<(LatencyColumn, usize)> {
    let (column, _) = row.latency()?;
    let place = rows.columns().iter().position(|other| *other == column)?;
    Some((column, place))
}

fn answer_of_first(index: &KernelIndex, best: &[SupersededMatch]) -> LookupAnswer {
    let rows = &index.rows;
    let latency = |found: &SupersededMatch| {
        rows.rows[found.row as usize].latency_in(found.column).unwrap_or_default() * found.scale
    };
    let first = &best[0];
    if rows.policy.requires_unique && best.iter().any(|found| (latency(found) - latency(first)).abs() > 1e-12)
    {
        let kernel = rows.kernel.as_str().to_owned();
        return LookupAnswer::missed(MissReason::AmbiguousSemanticMatch(kernel));
    }
    let is_scaled = first.rule.kind == RuleKind::ElementwiseBytes;
    let confidence = if is_scaled { 0.9 } else { 1.0 };
    let answer = answer_of_row(rows, (first.row, first.column), (first.rule, confidence), best.len());
    LookupAnswer { latency: Some(Micros(latency(first))), source: AnswerSource::Measured, ..answer }
}

/// Returns the rule by which the inputs of a row fit. Each input may be padded in any dimension.
fn match_row(
    index: &KernelIndex,
    row: &IndexedRow,
    slots: &[InputSlot<'_>],
    query: &KernelsQuery<'_>,
) -> Option<MatchRule> {
    let form = index.rows.form(row);
    let count = form.inputs.len();
    if count != slots.len() && !(query.is_prefix && count > slots.len()) {
        return None;
    }
    if query.needs_ep_size {
        let ranks = form.attributes.get(EP_SIZE).and_then(|text| text.parse::<u64>().ok());
        if ranks != query.ep_size {
            return None;
        }
    }
    let mut found = MatchRule::of_kind(RuleKind::Identity);
    for (input, (slot, tensor)) in slots.iter().zip(&form.inputs).enumerate() {
        if let Some(dtype) = slot.dtype {
            let (fits, is_relaxed) = index.traits.match_dtype(dtype, &tensor.dtype);
            if !fits {
                return None;
            }
            found.has_relaxed_dtype |= is_relaxed;
        }
        let (kind, padding) = match_input(index, input, &slot.dims, &index.rows.logical_input(row, input))?;
        let is_plain = matches!(found.kind, RuleKind::Identity | RuleKind::BatchStrip);
        match (kind, padding) {
            (RuleKind::Identity, Padding::None) => {}
            // Padding does not replace the name of another rule, but every other rule replaces the name of padding.
            (RuleKind::Identity | RuleKind::BatchStrip, Padding::Query) if !is_plain => {}
            (RuleKind::Identity, Padding::Query) if found.kind != RuleKind::Identity => {}
            (kind, padding) => (found.kind, found.padding) = (kind, padding),
        }
    }
    Some(found)
}

fn match_input(
    index: &KernelIndex,
    input: usize,
    query: &SlotDims,
    row: &SlotDims,
) -> Option<(RuleKind, Padding)> {
    if let Some(kind) = index.traits.match_slot(input, query, row) {
        return Some((kind, Padding::None));
    }
    let stripped = strip(query);
    if is_padded(&stripped, row) {
        return Some((RuleKind::Identity, Padding::Query));
    }
    if is_padded(&stripped, &strip(row)) {
        return Some((RuleKind::BatchStrip, Padding::Query));
    }
    if row.as_slice().len() != 2 {
        return None;
    }
    let three = if stripped.as_slice().len() == 3 { stripped } else { *query };
    let flat = flattened(&three).filter(|_| index.traits.flattens_batch);
    let merged = match *three.as_slice() {
        [tokens, heads, dim] if index.traits.merges_last_dims => {
            Some(SlotDims::new(&[tokens, heads.saturating_mul(dim)]))
        }
        _ => None,
    };
    [(flat, RuleKind::FlattenThreeDims), (merged, RuleKind::MergeLastDims)].into_iter().find_map(
        |(dims, kind)| {
            let dims = dims?;
            if dims == *row {
                return Some((kind, Padding::None));
            }
            is_padded(&dims, row).then_some((kind, Padding::Query))
        },
    )
}

fn flattened(dims: &SlotDims) -> Option<SlotDims> {
    match *dims.as_slice() {
        [one, two, three] => Some(SlotDims::new(&[one.saturating_mul(two), three])),
        _ => None,
    }
}

/// Returns the dimensions without one leading 1.
fn strip(dims: &SlotDims) -> SlotDims {
    match dims.as_slice() {
        [1, rest @ ..] if !rest.is_empty() => SlotDims::new(rest),
        _ => *dims,
    }
}

/// Returns true if the dimensions of a query equal the dimensions of a row after at least one of them is completed to
/// tiles.
fn is_padded(query: &SlotDims, row: &SlotDims) -> bool {
    let (query, row) = (query.as_slice(), row.as_slice());
    query.len() == row.len()
        && query != row
        && query.iter().zip(row).all(|(query, row)| query == row || is_padded_number(*query, *row))
}

#[cfg(test)]
mod tests;
