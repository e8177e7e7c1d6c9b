//! Attributes in which the row nearest to a query of attention deviates from it, for the reason of a miss.

use super::{AttentionTable, AttentionWork, length_tolerance};
use crate::answer::lookup::{
    answer::{AttentionDifference, MissReason},
    kernel_rows::KernelRows,
    query::BatchLengths,
};

/// Most places of rows that are compared: a miss of a large table must not take much longer than an answer.
const MOST_PLACES: usize = 20_000;

impl AttentionTable {
    pub(super) fn reason_of_miss(&self, rows: &KernelRows, query: &AttentionWork) -> MissReason {
        let regimes: Vec<usize> =
            self.regimes.iter().map(|regime| regime.differences(&query.regime).len()).collect();
        let ratio = |one: u64, other: u64| ratio_of(one, other);
        let distance = |(regime, heads, head_dim, tokens): &(u32, u64, u64, u64)| {
            let numbers = [(*heads, query.heads), (*head_dim, query.head_dim), (*tokens, query.tokens)];
            let count = numbers.iter().filter(|(row, query)| row != query).count();
            let far: f64 = numbers.iter().map(|(row, query)| ratio(*row, *query)).sum();
            (count + regimes[*regime as usize], far)
        };
        let mut nearest: Option<((usize, f64), &Vec<u32>)> = None;
        for (place, candidates) in self.places.iter().take(MOST_PLACES) {
            let found = distance(place);
            if nearest.as_ref().is_none_or(|(least, _)| (found.0, found.1) < *least) {
                nearest = Some((found, candidates));
            }
        }
        let Some((_, candidates)) = nearest else { return MissReason::ShapeMismatch };
        let compared = candidates.iter().map(|row| {
            let row = self.row(*row);
            (self.differences(&row.work, query), (row.work.kv_length - query.kv_length).abs(), row)
        });
        let best =
            compared.min_by(|one, other| one.0.len().cmp(&other.0.len()).then(one.1.total_cmp(&other.1)));
        match best {
            Some((differences, _, row)) if !differences.is_empty() => {
                let line = rows.rows[row.number as usize].line;
                MissReason::AttentionMismatch { line, differences }
            }
            _ => MissReason::ShapeMismatch,
        }
    }

    fn differences(&self, row: &AttentionWork, query: &AttentionWork) -> Vec<AttentionDifference> {
        let numbers = [
            ("tokens", row.tokens, query.tokens),
            ("heads", row.heads, query.heads),
            ("head_dim", row.head_dim, query.head_dim),
        ];
        let mut found: Vec<AttentionDifference> = numbers
            .into_iter()
            .filter(|(_, row, query)| row != query)
            .map(|(name, row, query)| AttentionDifference::new(name, &row, &query))
            .collect();
        found.extend(row.regime.differences(&query.regime));
        if let Some((row, query)) = row.batch.zip(query.batch).filter(|(row, query)| row != query) {
            found.push(AttentionDifference::new("batch", &row, &query));
        }
        if (row.kv_length - query.kv_length).abs() > length_tolerance(query.kv_length) {
            found.push(AttentionDifference::new("kv_length", &row.kv_length, &query.kv_length));
        } else if found.is_empty() && self.compare_lengths(row, query).is_none() {
            found.extend(different_sequence(row, query));
        }
        found
    }
}

fn different_sequence(row: &AttentionWork, query: &AttentionWork) -> Option<AttentionDifference> {
    let (row, query) = row.lengths.as_ref().zip(query.lengths.as_ref())?;
    let sequence = |lengths: &BatchLengths, at: usize| match (lengths.queries.get(at), lengths.keys.get(at)) {
        (Some(queries), Some(keys)) => format!("{queries} of {keys}"),
        _ => "none".to_owned(),
    };
    let count = row.keys.len().max(query.keys.len());
    let at = (0..count).find(|at| sequence(row, *at) != sequence(query, *at))?;
    let name = "queries and keys of a sequence";
    Some(AttentionDifference::new(name, &sequence(row, at), &sequence(query, at)))
}

#[expect(clippy::cast_precision_loss, reason = "a distance")]
fn ratio_of(one: u64, other: u64) -> f64 {
    (one.max(1) as f64 / other.max(1) as f64).ln().abs()
}
