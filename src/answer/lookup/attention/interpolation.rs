//! Interpolation between rows of attention.

use crate::{
    answer::{
        lookup::{
            AttentionFamily, AttentionRow, AttentionTable, AttentionWork, KernelRows, LatencyColumn,
            LookupAnswer, MAX_DIMS, MatchRule, PADDED_CONFIDENCE, Padding, TokenMatch, interpolated_answer,
            kind_of_dims, nearest_points,
        },
        op_mapping::AxisTransform,
    },
    base::stats::simplex_interpolation::{ValuedPoint, interpolate},
};

/// Number of axes of fused attention: length of keys, sequences, heads, dimension of heads.
const AXES: usize = 4;
const GROUPS: [(&[usize], &str); 14] = [
    (&[0], "seq"),
    (&[1], "batch"),
    (&[2], "heads"),
    (&[3], "head_dim"),
    (&[0, 1], "seq, batch"),
    (&[0, 2], "seq, heads"),
    (&[0, 3], "seq, head_dim"),
    (&[1, 2], "batch, heads"),
    (&[1, 3], "batch, head_dim"),
    (&[2, 3], "heads, head_dim"),
    (&[0, 1, 2], "seq, batch, heads"),
    (&[0, 1, 3], "seq, batch, head_dim"),
    (&[0, 2, 3], "seq, heads, head_dim"),
    (&[1, 2, 3], "batch, heads, head_dim"),
];
const SEQUENCE_GROUPS: [(&[usize], &str); 2] = [GROUPS[1], GROUPS[4]];
/// Axes of kernels that select keys, or read selected keys: tokens, keys per query.
const SELECTION_GROUPS: [(&[usize], &str); 3] =
    [(&[0], "q_tokens"), (&[1], "effective_kv_len"), (&[0, 1], "q_tokens, effective_kv_len")];

/// Maximum difference of the ratios of keys per query to keys per sequence.
const SKEW_TOLERANCE: f64 = 0.02;

/// A row that serves as a point of an interpolation, with its coordinates; unknown coordinates are NaN.
#[derive(Clone, Copy, Debug)]
struct AttentionPoint<const N: usize> {
    at: [f64; N],
    number: u32,
    padding: Padding,
}

struct AttentionLine<'a> {
    rows: &'a KernelRows,
    column: LatencyColumn,
    limit: u8,
    is_sqrt: bool,
    shows_padding: bool,
}

impl AttentionTable {
    pub(in crate::answer) fn interpolated(
        &self,
        rows: &KernelRows,
        query: &AttentionWork,
        tokens: &[TokenMatch],
    ) -> Option<LookupAnswer> {
        let limit = rows.policy.max_interpolation_dim.unwrap_or(MAX_DIMS);
        let is_sqrt = rows.policy.axis_transform == AxisTransform::SqrtSeq;
        let is_sqrt = is_sqrt && self.family == AttentionFamily::Fused;
        let shows_padding = tokens.iter().any(|tokens| tokens.shows_padding);
        rows.columns().into_iter().find_map(|column| {
            let line = AttentionLine { rows, column, limit, is_sqrt, shows_padding };
            match self.family {
                AttentionFamily::Fused => self.along_lengths(query, &line, tokens),
                // Tokens are an axis here, so that padded tokens are not interpolated.
                AttentionFamily::Sparse | AttentionFamily::Indexer if shows_padding => None,
                AttentionFamily::Sparse | AttentionFamily::Indexer => self.along_selection(query, &line),
            }
        })
    }

    /// Interpolates fused attention between rows with the query's number of tokens. A decode step is also interpolated
    /// between rows with other numbers of tokens, where each token is a sequence. The `tokens` are tried in their
    /// order.
    fn along_lengths(
        &self,
        query: &AttentionWork,
        line: &AttentionLine<'_>,
        tokens: &[TokenMatch],
    ) -> Option<LookupAnswer> {
        let target = line.coordinates(query);
        let between = |tokens: TokenMatch| {
            let near = self.rows_around(query, line, tokens);
            line.interpolate(&near, target, &GROUPS[..1]).or_else(|| {
                let all = self.rows_of_tokens(query, line, tokens);
                line.interpolate(&all, target, &GROUPS[1..])
            })
        };
        let joins = |tokens: &TokenMatch| tokens.joins_sequences && query.is_decode();
        let between_steps = || line.interpolate(&self.decode_rows(query, line), target, &SEQUENCE_GROUPS);
        let found = tokens.iter().copied().find_map(between);
        found.or_else(|| if tokens.iter().any(joins) { between_steps() } else { None })
    }

    fn decode_rows(&self, query: &AttentionWork, line: &AttentionLine<'_>) -> Vec<AttentionPoint<AXES>> {
        let rows =
            self.places_of(query, 0..=u64::MAX).flat_map(|(_, _, rows)| rows).map(|row| self.row(*row));
        let fitting = rows.filter(|row| row.work.is_decode() && has_skew(&row.work, query));
        let point = |row: &AttentionRow| {
            let (at, number) = (line.coordinates(&row.work), row.number);
            AttentionPoint { at, number, padding: Padding::None }
        };
        fitting.map(point).collect()
    }

    /// Returns the nearest rows on both sides that differ from a query in the length of keys only.
    fn rows_around(
        &self,
        query: &AttentionWork,
        line: &AttentionLine<'_>,
        tokens: TokenMatch,
    ) -> Vec<AttentionPoint<AXES>> {
        let mut points = Vec::new();
        for (_, own, candidates) in self.places_of(query, tokens.range(query.tokens)) {
            let Some(padding) = tokens.padding(query.tokens, own) else { continue };
            let middle = candidates.partition_point(|row| self.row(*row).work.kv_length < query.kv_length);
            let (below, above) = candidates.split_at(middle);
            let sides: [&mut dyn Iterator<Item = &u32>; 2] = [&mut below.iter().rev(), &mut above.iter()];
            for side in sides {
                let fitting = side.map(|row| self.row(*row)).filter(|row| {
                    let batches = row.work.batch.zip(query.batch);
                    (batches.is_none_or(|(row, query)| row == query)
                        || row.work.is_decode() && query.is_decode())
                        && has_skew(&row.work, query)
                        && tokens.allows_phases(&row.work, query)
                        && line.rows.rows[row.number as usize].latency_in(line.column).is_some()
                });
                let nearest = nearest_points(fitting, |row| row.work.kv_length);
                points.extend(nearest.into_iter().map(|row| line.point(row, query, padding)));
            }
        }
        points
    }

    fn rows_of_tokens(
        &self,
        query: &AttentionWork,
        line: &AttentionLine<'_>,
        tokens: TokenMatch,
    ) -> Vec<AttentionPoint<AXES>> {
        let mut points = Vec::new();
        for (regime, _) in self.fitting_regimes(&query.regime) {
            let (from, to) = tokens.range(query.tokens).into_inner();
            for ((_, own), candidates) in self.by_tokens.range((regime, from)..=(regime, to)) {
                let Some(padding) = tokens.padding(query.tokens, *own) else { continue };
                let rows = candidates.iter().map(|row| self.row(*row));
                let fitting =
                    rows.filter(|row| has_skew(&row.work, query) && tokens.allows_phases(&row.work, query));
                points.extend(fitting.map(|row| line.point(row, query, padding)));
            }
        }
        points
    }

    /// Interpolates kernels that select keys, or read selected keys, between complete rows of the query's phase.
    fn along_selection(&self, query: &AttentionWork, line: &AttentionLine<'_>) -> Option<LookupAnswer> {
        let (keys, phase) = query.keys_per_query()?;
        let target = [query.tokens as f64, keys];
        let mut points = Vec::new();
        let known = self.places_of(query, 0..=u64::MAX).filter(|(is_unknown, ..)| !is_unknown);
        for row in known.flat_map(|(_, _, rows)| rows).map(|row| self.row(*row)) {
            let lengths = row.work.lengths.as_ref().and_then(|_| row.work.keys_per_query());
            if let Some((keys, _)) = lengths.filter(|(_, row_phase)| *row_phase == phase) {
                let at = [row.work.tokens as f64, keys];
                points.push(AttentionPoint { at, number: row.number, padding: Padding::None });
            }
        }
        line.interpolate(&points, target, &SELECTION_GROUPS)
    }
}

/// Returns true unless the lengths of both are known and distribute the keys differently over the sequences.
fn has_skew(row: &AttentionWork, query: &AttentionWork) -> bool {
    let skew = |work: &AttentionWork| Some(work.lengths.as_ref()?.keys_per_query() / work.kv_length);
    match (skew(row), skew(query)) {
        (Some(row), Some(query)) => (row - query).abs() <= SKEW_TOLERANCE * query,
        _ => true,
    }
}

impl AttentionLine<'_> {
    fn coordinates(&self, work: &AttentionWork) -> [f64; AXES] {
        let length = if self.is_sqrt { work.kv_length.sqrt() } else { work.kv_length };
        let batch = work.batch.map_or(f64::NAN, |batch| batch as f64);
        [length, batch, work.heads as f64, work.head_dim as f64]
    }

    /// Returns the point of a row. Where each sequence has one query, padded tokens are padded sequences.
    fn point(&self, row: &AttentionRow, query: &AttentionWork, padding: Padding) -> AttentionPoint<AXES> {
        let mut at = self.coordinates(&row.work);
        if row.work.is_decode() && query.is_decode() {
            at[1] = query.tokens as f64;
        }
        AttentionPoint { at, number: row.number, padding }
    }

    /// Interpolates along the first group of axes that has points around the target. The other coordinates are equal.
    fn interpolate<const N: usize>(
        &self,
        points: &[AttentionPoint<N>],
        target: [f64; N],
        groups: &[(&[usize], &'static str)],
    ) -> Option<LookupAnswer> {
        groups.iter().filter(|(group, _)| group.len() <= usize::from(self.limit)).find_map(|(group, axes)| {
            let along = |at: [f64; N]| {
                let mut along = [0.0; 3];
                group.iter().zip(&mut along).for_each(|(axis, place)| *place = at[*axis]);
                along
            };
            if along(target).iter().any(|coordinate| coordinate.is_nan()) {
                return None;
            }
            let candidates: Vec<&AttentionPoint<N>> = points
                .iter()
                .filter(|point| {
                    (0..N).all(|axis| match group.contains(&axis) {
                        true => !point.at[axis].is_nan(),
                        false => is_equal_where_known(point.at[axis], target[axis]),
                    })
                })
                .collect();
            // Rows with different numbers of sequences cannot be interpolated if the query's number is unknown.
            let is_mixed =
                (0..N).filter(|axis| !group.contains(axis) && target[*axis].is_nan()).any(|axis| {
                    candidates.iter().any(|point| point.at[axis].total_cmp(&candidates[0].at[axis]).is_ne())
                });
            if is_mixed {
                return None;
            }
            let valued: Vec<ValuedPoint> = candidates
                .iter()
                .filter_map(|point| {
                    let value = self.rows.rows[point.number as usize].latency_in(self.column)?;
                    Some(ValuedPoint { at: along(point.at), value, row: point.number })
                })
                .collect();
            let found = interpolate(&valued, along(target), group.len())?;
            let dims = u32::try_from(group.len()).unwrap_or(u32::MAX);
            let (kind, confidence) = kind_of_dims(dims);
            let is_sqrt = self.is_sqrt && group.contains(&0);
            let padded = candidates.iter().filter(|point| found.rows.contains(&point.number));
            let padding = padded.map(|point| point.padding).max().filter(|_| self.shows_padding);
            let padding = padding.unwrap_or_default();
            let confidence =
                if padding == Padding::None { confidence } else { confidence.min(PADDED_CONFIDENCE) };
            let rule = MatchRule { axes, is_sqrt, padding, ..MatchRule::of_kind(kind) };
            let mut used = found.used_points(&valued);
            if is_sqrt && let Some(place) = group.iter().position(|axis| *axis == 0) {
                // The axis is the square root of the length; lengths have at most a few decimals.
                used.iter_mut().for_each(|(_, at)| at[place] = (at[place].powi(2) * 1e6).round() / 1e6);
            }
            Some(interpolated_answer(self.rows, found.value, &used, self.column, (rule, confidence)))
        })
    }
}

fn is_equal_where_known(row: f64, query: f64) -> bool {
    row.is_nan() || query.is_nan() || row == query
}
