//! Attention as the superseded tool looks it up.

use super::{
    AttentionTable, CONFIDENCE, LENGTH_TOLERANCE, TokenMatch,
    work::{AttentionFamily, AttentionRegime, AttentionWork},
};
use crate::answer::{
    lookup::{
        answer::{LatencyColumn, LookupAnswer, MissReason},
        kernel_rows::KernelRows,
        row_answers::{FoundRows, answer_of_row, choose_median, preferred_columns},
        rules::{MatchRule, RuleKind},
    },
    op_mapping::KernelPolicy,
};

impl AttentionTable {
    /// Finds the row whose mean length of keys, without its fraction, is nearest, at most 16 tokens away at any length.
    /// Padded tokens are as good as equal ones, and the first of several equal rows answers.
    pub(super) fn nearest_superseded(
        &self,
        rows: &KernelRows,
        query: &AttentionWork,
        policy: KernelPolicy,
    ) -> Result<Option<LookupAnswer>, MissReason> {
        let columns = preferred_columns(policy);
        let mut best: Vec<(f64, usize, u32)> = Vec::new();
        // Rotary parts are not compared.
        let regime = AttentionRegime { rope_dim: None, ..query.regime.clone() };
        for row in &self.rows {
            let work = &row.work;
            let gap = (work.kv_length.trunc() - query.kv_length.trunc()).abs();
            let is_same = gap <= LENGTH_TOLERANCE
                && (work.heads, work.head_dim) == (query.heads, query.head_dim)
                && self.regimes[row.regime as usize].unknown_beside(&regime).is_some()
                && TokenMatch::Superseded.padding(query.tokens, work.tokens).is_some();
            let has_lists = self.family == AttentionFamily::Fused
                || match (&work.lengths, &query.lengths) {
                    (Some(row), Some(query)) => row == query,
                    _ => true,
                };
            let latency = rows.rows[row.number as usize].latency();
            let (true, true, Some((column, _))) = (is_same, has_lists, latency) else { continue };
            let distance = gap + if row.has_completeness { 0.0 } else { 0.5 };
            let place = columns.iter().position(|other| *other == column).unwrap_or_default();
            match best.first() {
                Some((least, first, _)) if (*least, *first) < (distance, place) => {}
                Some((least, first, _)) if (*least, *first) == (distance, place) => {
                    best.push((distance, place, row.number));
                }
                _ => best = vec![(distance, place, row.number)],
            }
        }
        let Some((.., number)) = best.first().copied() else { return Ok(None) };
        let found = FoundRows {
            numbers: best.iter().map(|(.., number)| *number).collect(),
            rule: MatchRule::of_kind(RuleKind::Attention),
            confidence: CONFIDENCE,
        };
        if policy.requires_unique {
            return choose_median(rows, &found, policy).map(Some);
        }
        let column = rows.rows[number as usize].latency().map_or(LatencyColumn::Replay, |(column, _)| column);
        Ok(Some(answer_of_row(rows, &found, (number, column), best.len())))
    }
}
