//! Attention: rows by query shape, heads, layout and mean length of the keys.

use std::collections::HashMap;

use super::{
    answer::{AnswerSource, LatencyColumn, LookupAnswer, Micros, MissReason, UsedRow},
    kernel_rows::KernelRows,
    linear::{ValuedPoint, interpolate},
    match_rows::verdict_factor,
    op_mapping::{AxisTransform, KernelPolicy},
    query::{AttentionParameters, OpQuery},
    rules::{LookupAxes, MatchRule, Padding, RuleKind, match_padding},
};
use crate::{
    database::{DatabaseError, KernelCsv, row_cases::RowColumns},
    domain::{AttentionCase, AttentionSlot, Case, Dtype, attention_attribute as name},
};

/// Greatest difference of the mean lengths of keys of a row and a query, in tokens and as a share of the length.
const LENGTH_TOLERANCE: f64 = 16.0;
const LENGTH_SHARE: f64 = 0.02;
/// Use of the mask in serving: causal from the lower right.
const CAUSAL: &str = "3";

/// Values that are compared of rows and queries. Unknown values of a row are compared with none.
#[derive(Clone, Debug)]
struct AttentionKey {
    tokens: u64,
    heads: u64,
    head_dim: u64,
    dtype: Dtype,
    kv_length: f64,
    kv_heads: Option<u64>,
    sparse_mode: Option<String>,
    layout: Option<String>,
}

/// Rows of a kernel with the parameters of attention.
#[derive(Debug)]
pub(crate) struct AttentionTable {
    rows: Vec<(AttentionKey, u32)>,
}

impl AttentionTable {
    /// Reads the parameters of the rows that have a latency and a length of keys.
    pub(crate) fn load(rows: &KernelRows, table: &KernelCsv) -> Result<Self, DatabaseError> {
        let columns = RowColumns::from_table(table)?;
        let numbers: HashMap<u64, u32> =
            (0..).zip(&rows.rows).map(|(number, row)| (u64::from(row.line), number)).collect();
        let mut found = Vec::new();
        table.for_each_row(|row, cells| {
            let number = table.row_line(row).and_then(|line| numbers.get(&line));
            let number = number.filter(|number| rows.rows[**number as usize].latency().is_some());
            if let (Some(number), Ok(case)) = (number, columns.parse_case(&rows.kernel, cells))
                && let Some(key) = key_of_case(&case)
            {
                found.push((key, *number));
            }
        });
        Ok(Self { rows: found })
    }

    /// Finds the row with the nearest length of keys, else interpolates.
    pub(crate) fn lookup(&self, rows: &KernelRows, query: &OpQuery, policy: KernelPolicy) -> LookupAnswer {
        let key = match key_of_query(query) {
            Ok(key) => key,
            Err(reason) => return LookupAnswer::missed(reason),
        };
        match self.nearest(rows, &key, policy) {
            Ok(Some(answer)) => answer,
            Ok(None) => self
                .interpolated(rows, &key, policy)
                .unwrap_or_else(|| LookupAnswer::missed(MissReason::ShapeMismatch)),
            Err(reason) => LookupAnswer::missed(reason),
        }
    }

    fn nearest(
        &self,
        rows: &KernelRows,
        key: &AttentionKey,
        policy: KernelPolicy,
    ) -> Result<Option<LookupAnswer>, MissReason> {
        let tolerance = LENGTH_TOLERANCE.min(key.kv_length * LENGTH_SHARE);
        let mut best: Vec<(f64, Padding, u32)> = Vec::new();
        for (row, number) in &self.rows {
            let gap = (row.kv_length - key.kv_length).abs();
            if gap > tolerance || (row.heads, row.head_dim) != (key.heads, key.head_dim) {
                continue;
            }
            let (Some(unknown), Some(padding)) =
                (row.unknown_beside(key), token_padding(key.tokens, row.tokens))
            else {
                continue;
            };
            // Complete rows precede those with unknown values, equal numbers of tokens padded ones.
            let distance = gap
                + if unknown { 0.5 } else { 0.0 }
                + if padding == Padding::None { 0.0 } else { LENGTH_TOLERANCE };
            match best.first() {
                Some((least, ..)) if *least < distance => {}
                Some((least, ..)) if least.total_cmp(&distance).is_eq() => {
                    best.push((distance, padding, *number));
                }
                _ => best = vec![(distance, padding, *number)],
            }
        }
        let latency = |number: u32| rows.rows[number as usize].latency();
        let column = best.iter().filter_map(|(_, _, number)| Some(latency(*number)?.0)).min();
        best.retain(|(_, _, number)| latency(*number).map(|(column, _)| column) == column);
        best.sort_by(|one, other| {
            let value = |number: u32| latency(number).map_or(0.0, |(_, value)| value);
            value(one.2).total_cmp(&value(other.2)).then(one.2.cmp(&other.2))
        });
        let (Some(first), Some(last), Some(column)) = (best.first(), best.last(), column) else {
            return Ok(None);
        };
        if policy.requires_unique && latency(first.2) != latency(last.2) {
            return Err(MissReason::AmbiguousSemanticMatch(rows.kernel.as_str().to_owned()));
        }
        let (_, padding, number) = best[(best.len() - 1) / 2];
        let used = used_row(rows, number, column);
        let verdict = rows.rows[number as usize].verdict.filter(|_| column == LatencyColumn::Replay);
        Ok(Some(LookupAnswer {
            latency: Some(used.latency),
            source: AnswerSource::Measured,
            confidence: 0.9 * verdict_factor(verdict),
            rule: Some(MatchRule { padding, ..MatchRule::of_kind(RuleKind::Attention) }),
            rows: vec![used],
            equal_rows: best.len(),
            miss: None,
            parts: Vec::new(),
        }))
    }

    /// Interpolates along the length of keys, the heads and their dimension, in this order, then along several of them.
    fn interpolated(
        &self,
        rows: &KernelRows,
        key: &AttentionKey,
        policy: KernelPolicy,
    ) -> Option<LookupAnswer> {
        let is_sqrt = policy.axis_transform == AxisTransform::SqrtSeq;
        let at = |row: &AttentionKey| {
            let length = if is_sqrt { row.kv_length.sqrt() } else { row.kv_length };
            [length, as_coordinate(row.heads), as_coordinate(row.head_dim)]
        };
        let target = at(key);
        let candidates: Vec<([f64; 3], u32)> = self
            .rows
            .iter()
            .filter(|(row, _)| {
                row.unknown_beside(key).is_some() && token_padding(key.tokens, row.tokens).is_some()
            })
            .map(|(row, number)| (at(row), *number))
            .collect();
        let limit = policy.max_interpolation_dim.unwrap_or(3);
        for column in LatencyColumn::ALL {
            for (group, axes) in GROUPS {
                if group.len() > usize::from(limit) {
                    continue;
                }
                #[expect(clippy::float_cmp, reason = "numbers of heads are whole, lengths as recorded")]
                let differs =
                    |at: &[f64; 3]| (0..3).any(|axis| !group.contains(&axis) && at[axis] != target[axis]);
                let along = |at: [f64; 3]| {
                    let mut along = [0.0; 3];
                    group.iter().zip(&mut along).for_each(|(axis, place)| *place = at[*axis]);
                    along
                };
                let points: Vec<ValuedPoint> = candidates
                    .iter()
                    .filter(|(at, _)| !differs(at))
                    .filter_map(|(at, number)| {
                        let value = rows.rows[*number as usize].latency_in(column)?;
                        Some(ValuedPoint { at: along(*at), value, row: *number })
                    })
                    .collect();
                let Some(found) = interpolate(&points, along(target), group.len()) else { continue };
                let (kind, confidence) = match group.len() {
                    1 => (RuleKind::InterpolatedOneDim, 0.7),
                    2 => (RuleKind::InterpolatedTwoDims, 0.65),
                    _ => (RuleKind::InterpolatedThreeDims, 0.6),
                };
                let is_sqrt = is_sqrt && group.contains(&0);
                return Some(LookupAnswer {
                    latency: Some(Micros(found.value)),
                    source: AnswerSource::Interpolated,
                    confidence,
                    rule: Some(MatchRule { axes, is_sqrt, ..MatchRule::of_kind(kind) }),
                    rows: found.rows.iter().map(|number| used_row(rows, *number, column)).collect(),
                    equal_rows: 1,
                    miss: None,
                    parts: Vec::new(),
                });
            }
        }
        None
    }
}

/// Axes that vary, in the order in which they are tried: length of keys, heads, dimension of heads.
const GROUPS: [(&[usize], LookupAxes); 7] = [
    (&[0], LookupAxes::named("seq")),
    (&[1], LookupAxes::named("heads")),
    (&[2], LookupAxes::named("head_dim")),
    (&[0, 1], LookupAxes::named("seq, heads")),
    (&[0, 2], LookupAxes::named("seq, head_dim")),
    (&[1, 2], LookupAxes::named("heads, head_dim")),
    (&[0, 1, 2], LookupAxes::named("seq, heads, head_dim")),
];

#[expect(clippy::cast_precision_loss, reason = "numbers of heads and tokens")]
const fn as_coordinate(count: u64) -> f64 {
    count as f64
}

fn used_row(rows: &KernelRows, number: u32, column: LatencyColumn) -> UsedRow {
    let row = &rows.rows[number as usize];
    let latency = Micros(row.latency_in(column).unwrap_or_default());
    UsedRow { kernel: rows.kernel.clone(), line: row.line, column, latency }
}

/// Returns the padding by which the tokens of a query fit those of a row, in either direction.
fn token_padding(query: u64, row: u64) -> Option<Padding> {
    if query == row {
        return Some(Padding::None);
    }
    let reverse = || (match_padding(row, query) == Some(Padding::Query)).then_some(Padding::Row);
    match_padding(query, row).or_else(reverse)
}

impl AttentionKey {
    /// Compares type, heads of keys, mask and layout of a row with those of a query. `Some(true)` if a value of the row
    /// is unknown, `None` if one differs.
    fn unknown_beside(&self, query: &Self) -> Option<bool> {
        if self.dtype != query.dtype {
            return None;
        }
        let mut is_unknown = false;
        let mut agrees = |is_known: bool, is_equal: bool| {
            is_unknown |= !is_known;
            is_equal || !is_known
        };
        let fits = agrees(
            self.kv_heads.is_some() || query.kv_heads.is_none(),
            query.kv_heads.is_none() || self.kv_heads == query.kv_heads,
        ) && agrees(self.sparse_mode.is_some(), self.sparse_mode == query.sparse_mode)
            && agrees(
                self.layout.is_some() || query.layout.is_none(),
                query.layout.is_none() || self.layout == query.layout,
            );
        fits.then_some(is_unknown)
    }
}

/// Returns the query of three dimensions: tokens, heads and their dimension.
fn three_dims(dims: &[u64], heads: Option<u64>, head_dim: Option<u64>) -> Option<[u64; 3]> {
    match *dims {
        [tokens, heads, head_dim] => Some([tokens, heads, head_dim]),
        [batch, heads, 1, head_dim] => Some([batch, heads, head_dim]),
        [tokens, width] => {
            let heads = heads.or_else(|| Some(width / head_dim.filter(|dim| *dim > 0)?))?;
            (heads > 0 && width % heads == 0).then(|| [tokens, heads, width / heads])
        }
        _ => None,
    }
}

fn key_of_case(case: &Case) -> Option<AttentionKey> {
    let view = AttentionCase::new(case);
    let implied = view.implied_attributes();
    let attribute = |name: &str| case.attributes.get(name).or_else(|| implied.get(name));
    let number = |name: &str| attribute(name).and_then(|text| text.parse::<u64>().ok());
    let layout = attribute(name::LAYOUT);
    let lengths = case.attributes.numbers(name::KV_LENGTHS).filter(|lengths| !lengths.is_empty());
    let mean_of_lengths = || {
        let lengths = lengths.as_deref()?;
        // Packed keys that are not in blocks are recorded by their ends.
        let has_ends = !view.is_paged() && layout.is_some_and(|layout| layout.starts_with('T'));
        let total: u64 = if has_ends { *lengths.last()? } else { lengths.iter().sum() };
        Some(as_coordinate(total) / as_coordinate(lengths.len() as u64))
    };
    let recorded = case.attributes.get(name::AVG_SEQ_LEN).and_then(|text| text.parse::<f64>().ok());
    let kv_length = mean_of_lengths().or(recorded).filter(|length| length.is_finite() && *length > 0.0)?;
    let query = case.inputs.first()?.as_ref()?;
    let key_dims = view.dims(AttentionSlot::Key);
    let head_dim = key_dims.and_then(|dims| dims.last().copied());
    let [tokens, heads, head_dim] = three_dims(&query.dims, number(name::HEADS), head_dim)?;
    Some(AttentionKey {
        tokens,
        heads,
        head_dim,
        dtype: query.dtype.clone(),
        kv_length,
        kv_heads: number(name::KV_HEADS),
        sparse_mode: attribute(name::SPARSE_MODE).map(str::to_owned),
        layout: layout.map(str::to_owned),
    })
}

/// Returns the parameters of a recorded case, as a query has them.
pub(crate) fn parameters_of_case(case: &Case) -> AttentionParameters {
    match key_of_case(case) {
        Some(key) => AttentionParameters {
            kv_length: Some(key.kv_length),
            kv_heads: key.kv_heads,
            sparse_mode: key.sparse_mode,
            layout: key.layout,
        },
        None => AttentionParameters::default(),
    }
}

fn key_of_query(query: &OpQuery) -> Result<AttentionKey, MissReason> {
    let parameters = &query.attention;
    let length = parameters.kv_length.filter(|length| length.is_finite() && *length > 0.0);
    let kv_length = length.ok_or(MissReason::ContextMissing("avg_seq_len"))?;
    let input = query.inputs.first().ok_or(MissReason::ContextMissing("q_shape"))?;
    let dtype = input.dtype.clone().ok_or(MissReason::ContextMissing("dtype"))?;
    let key = query.inputs.get(1).map(|key| key.dims.as_slice()).unwrap_or_default();
    let head_dim = key.last().copied();
    let kv_heads = parameters.kv_heads.or_else(|| key.iter().rev().nth(1).copied());
    let dims = three_dims(&input.dims, None, head_dim).ok_or(MissReason::ContextMissing("q_shape"))?;
    let layout = parameters.layout.clone().or_else(|| match input.dims.len() {
        3 => Some("TND".to_owned()),
        4 => Some("BNSD_NBSD".to_owned()),
        _ => None,
    });
    Ok(AttentionKey {
        tokens: dims[0],
        heads: dims[1],
        head_dim: dims[2],
        dtype,
        kv_length,
        kv_heads,
        sparse_mode: Some(parameters.sparse_mode.clone().unwrap_or_else(|| CAUSAL.to_owned())),
        layout,
    })
}
