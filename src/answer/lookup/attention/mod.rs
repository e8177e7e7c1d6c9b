//! Attention: rows by query shape, heads, layout and lengths of the keys.

mod interpolation;
mod layout;
mod work;

pub(crate) use self::{layout::*, work::*};

use std::{
    collections::{BTreeMap, HashMap},
    ops::RangeInclusive,
};

use indexmap::IndexSet;

use super::{
    AttentionDifference, BatchLengths, CacheQuery, CandidateKernels, KernelIndex, KernelRows, Listed,
    LookupAnswer, LookupEngine, LookupResult, MAX_PADDING, MatchRule, MissReason, OpQuery, PADDED_CONFIDENCE,
    Padding, QueryTensor, RuleKind, best_of, choose_median, compared_tensors, keep_least, match_padding,
};
use crate::{
    answer::op_mapping::MappedKernel,
    database::{DatabaseError, KernelCsv, row_cases::RowColumns},
    kernel::Case,
};

/// Maximum difference of the mean lengths of keys of a row and a query, in tokens and as a share of the length.
pub(in crate::answer) const LENGTH_TOLERANCE: f64 = 16.0;
const LENGTH_SHARE: f64 = 0.02;
pub(in crate::answer) const CONFIDENCE: f64 = 0.9;

#[derive(Clone, Copy, Debug)]
pub(in crate::answer) struct TokenMatch {
    pub(in crate::answer) reach: u64,
    pub(in crate::answer) is_padded: fn(u64, u64) -> bool,
    /// True if the tokens of a decode step, which are sequences, may differ between rows of an interpolation.
    pub(in crate::answer) joins_sequences: bool,
    /// True if answers state that tokens are padded. Tokens of a decode step are not: a framework does not pad sequences.
    pub(in crate::answer) shows_padding: bool,
}

const EQUAL_TOKENS: TokenMatch =
    TokenMatch { reach: 0, is_padded: |_, _| false, joins_sequences: true, shows_padding: false };
/// One number is the other one, rounded by a framework.
const PADDED_TOKENS: TokenMatch = TokenMatch {
    reach: MAX_PADDING,
    is_padded: |padded, tokens| match_padding(padded, tokens, false).is_some(),
    joins_sequences: false,
    shows_padding: true,
};

impl TokenMatch {
    const fn range(self, tokens: u64) -> RangeInclusive<u64> {
        tokens.saturating_sub(self.reach)..=tokens.saturating_add(self.reach)
    }

    /// Returns the padding by which the tokens of a query fit the tokens of a row.
    pub(in crate::answer) fn padding(self, query: u64, row: u64) -> Option<Padding> {
        if query == row {
            Some(Padding::None)
        } else if (self.is_padded)(query, row) {
            Some(Padding::Query)
        } else {
            (self.is_padded)(row, query).then_some(Padding::Row)
        }
    }

    /// Returns true unless the tokens of a row or a query are sequences, which cannot be padded.
    fn allows_phases(self, row: &AttentionWork, query: &AttentionWork) -> bool {
        !self.shows_padding || row.tokens == query.tokens || !row.is_decode() && !query.is_decode()
    }
}

#[derive(Clone, Debug)]
pub(in crate::answer) struct AttentionRow {
    pub(in crate::answer) work: AttentionWork,
    pub(in crate::answer) regime: u32,
    pub(in crate::answer) number: u32,
    pub(in crate::answer) has_completeness: bool,
}

/// Rows of one regime, number of heads, dimension of heads and number of tokens.
type AttentionPlace = (u32, u64, u64, u64);

#[derive(Debug)]
pub(crate) struct AttentionTable {
    pub(in crate::answer) family: AttentionFamily,
    pub(in crate::answer) regimes: IndexSet<AttentionRegime>,
    pub(in crate::answer) rows: Vec<AttentionRow>,
    /// Rows by place, sorted by the length of keys.
    places: BTreeMap<AttentionPlace, Vec<u32>>,
    by_tokens: BTreeMap<(u32, u64), Vec<u32>>,
    unmeasured: Vec<AttentionWork>,
}

impl AttentionTable {
    pub(crate) fn load(
        family: AttentionFamily,
        rows: &KernelRows,
        table: &KernelCsv,
    ) -> Result<Self, DatabaseError> {
        let columns = RowColumns::from_table(table)?;
        let completeness = table.column_index(crate::database::columns::COMPLETENESS);
        let numbers: HashMap<u64, u32> =
            (0..).zip(&rows.rows).map(|(number, row)| (u64::from(row.line), number)).collect();
        let mut found = Self {
            family,
            regimes: IndexSet::new(),
            rows: Vec::new(),
            places: BTreeMap::new(),
            by_tokens: BTreeMap::new(),
            unmeasured: Vec::new(),
        };
        table.for_each_row(|row, cells| {
            let number = numbers.get(&table.row_line(row));
            let stated = completeness.and_then(|index| cells.get(index)).unwrap_or_default();
            if let (Some(number), Ok(case)) = (number, columns.parse_case(&rows.kernel, cells)) {
                if rows.rows[*number as usize].is_measured() {
                    found.add_case(&case, *number, is_stated(stated));
                } else {
                    found.unmeasured.extend(AttentionWork::of_case(&case, found.family));
                }
            }
        });
        let lengths = &found.rows;
        for rows in found.places.values_mut() {
            let length = |row: &u32| lengths[*row as usize].work.kv_length;
            rows.sort_by(|one, other| length(one).total_cmp(&length(other)).then(one.cmp(other)));
        }
        Ok(found)
    }

    fn add_case(&mut self, case: &Case, number: u32, has_completeness: bool) {
        let Some(work) = AttentionWork::of_case(case, self.family) else { return };
        // A table has fewer rows than numbers.
        let (regime, _) = self.regimes.insert_full(work.regime.clone());
        let regime = u32::try_from(regime).unwrap_or(u32::MAX);
        let row = u32::try_from(self.rows.len()).unwrap_or(u32::MAX);
        self.places.entry((regime, work.heads, work.head_dim, work.tokens)).or_default().push(row);
        self.by_tokens.entry((regime, work.tokens)).or_default().push(row);
        self.rows.push(AttentionRow { work, regime, number, has_completeness });
    }

    /// Finds the row with the nearest length of keys, else interpolates, else does both with padded tokens.
    pub(crate) fn lookup(&self, rows: &KernelRows, work: &AttentionWork) -> LookupAnswer {
        for tokens in [EQUAL_TOKENS, PADDED_TOKENS] {
            let found = self.nearest(rows, work, tokens);
            if let Some(answer) = found.or_else(|| self.interpolated(rows, work, &[tokens])) {
                return answer;
            }
        }
        self.missed(rows, work)
    }

    pub(in crate::answer) fn missed(&self, rows: &KernelRows, query: &AttentionWork) -> LookupAnswer {
        let tolerance = length_tolerance(query.kv_length);
        let has_unmeasured = self.unmeasured.iter().any(|row| {
            (row.tokens, row.heads, row.head_dim) == (query.tokens, query.heads, query.head_dim)
                && (row.kv_length - query.kv_length).abs() <= tolerance
                && row.regime.unknown_beside(&query.regime).is_some()
                && self.compare_lengths(row, query).is_some()
        });
        let reason = || self.reason_of_miss(rows, query);
        LookupAnswer::missed(if has_unmeasured { MissReason::NotMeasured } else { reason() })
    }

    /// Returns the regimes that fit a query, and whether a value of them is unknown.
    fn fitting_regimes(&self, query: &AttentionRegime) -> impl Iterator<Item = (u32, bool)> {
        let regimes = (0..).zip(&self.regimes);
        regimes.filter_map(|(number, regime)| Some((number, regime.unknown_beside(query)?)))
    }

    /// Returns the rows with the heads of a query and with tokens in a range, by number of tokens: true if a value of their regime
    /// is unknown, the tokens, and the rows.
    fn places_of(
        &self,
        query: &AttentionWork,
        tokens: RangeInclusive<u64>,
    ) -> impl Iterator<Item = (bool, u64, &[u32])> {
        self.fitting_regimes(&query.regime).flat_map(move |(regime, is_unknown)| {
            let place = |tokens: u64| (regime, query.heads, query.head_dim, tokens);
            let places = self.places.range(place(*tokens.start())..=place(*tokens.end()));
            places.map(move |((.., own), rows)| (is_unknown, *own, rows.as_slice()))
        })
    }

    fn row(&self, row: u32) -> &AttentionRow {
        &self.rows[row as usize]
    }

    fn nearest(&self, rows: &KernelRows, query: &AttentionWork, tokens: TokenMatch) -> Option<LookupAnswer> {
        let tolerance = length_tolerance(query.kv_length);
        let mut best: Vec<(f64, (Padding, u32))> = Vec::new();
        for (is_unknown, own, candidates) in self.places_of(query, tokens.range(query.tokens)) {
            let Some(padding) = tokens.padding(query.tokens, own) else { continue };
            let start =
                candidates.partition_point(|row| self.row(*row).work.kv_length < query.kv_length - tolerance);
            for row in &candidates[start..] {
                let AttentionRow { work, number, .. } = self.row(*row);
                let gap = (work.kv_length - query.kv_length).abs();
                if work.kv_length > query.kv_length && gap > tolerance {
                    break;
                }
                let Some(is_other) = self.compare_lengths(work, query) else { continue };
                if gap > tolerance || !tokens.allows_phases(work, query) {
                    continue;
                }
                // Complete rows precede those with unknown values.
                let distance = gap + if is_unknown || is_other { 0.5 } else { 0.0 };
                keep_least(&mut best, distance, (padding, *number));
            }
        }
        let (_, (padding, _)) = best.first().copied()?;
        let rule = MatchRule { padding, ..MatchRule::of_kind(RuleKind::Attention) };
        let numbers: Vec<u32> = best.iter().map(|(_, (_, number))| *number).collect();
        let confidence = if padding == Padding::None { CONFIDENCE } else { PADDED_CONFIDENCE };
        Some(choose_median(rows, &numbers, (rule, confidence)))
    }

    /// Compares the sequences of a row with the sequences of a query: `None` if they differ, `Some(true)` if those of
    /// the row are unknown or others of the same work. Fused attention needs the number of keys per query, kernels that
    /// select keys need the same lists.
    fn compare_lengths(&self, row: &AttentionWork, query: &AttentionWork) -> Option<bool> {
        if row.batch.zip(query.batch).is_some_and(|(row, query)| row != query) {
            return None;
        }
        match (&row.lengths, &query.lengths) {
            (Some(row), Some(query)) if row == query => Some(false),
            (Some(_), Some(_)) if self.family != AttentionFamily::Fused => None,
            (Some(row), Some(query)) => {
                let (row, query) = (row.keys_per_query(), query.keys_per_query());
                let tolerance = length_tolerance(query);
                ((row - query).abs() <= tolerance).then_some(true)
            }
            (None, Some(_)) => Some(true),
            (_, None) => Some(false),
        }
    }

    fn reason_of_miss(&self, rows: &KernelRows, query: &AttentionWork) -> MissReason {
        let regimes: Vec<usize> =
            self.regimes.iter().map(|regime| regime.differences(&query.regime).len()).collect();
        let ratio = |one: u64, other: u64| (one.max(1) as f64 / other.max(1) as f64).ln().abs();
        let distance = |(regime, heads, head_dim, tokens): &(u32, u64, u64, u64)| {
            let numbers = [(*heads, query.heads), (*head_dim, query.head_dim), (*tokens, query.tokens)];
            let count = numbers.iter().filter(|(row, query)| row != query).count();
            let far: f64 = numbers.iter().map(|(row, query)| ratio(*row, *query)).sum();
            (count + regimes[*regime as usize], far)
        };
        let mut nearest: Option<((usize, f64), &Vec<u32>)> = None;
        for (place, candidates) in self.places.iter().take(MAX_PLACES) {
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
                MissReason::AttentionMismatch { line, differences: Listed(differences) }
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

/// Maximum number of places of rows that are compared: a miss of a large table must not take much longer than an answer.
const MAX_PLACES: usize = 20_000;

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

fn is_stated(cell: &[u8]) -> bool {
    let cell = std::str::from_utf8(cell).unwrap_or_default().trim().to_ascii_lowercase();
    !matches!(cell.as_str(), "" | "legacy")
}

fn length_tolerance(length: f64) -> f64 {
    LENGTH_TOLERANCE.min(length * LENGTH_SHARE)
}

impl LookupEngine {
    pub(super) fn lookup_attention(
        &self,
        kernels: &[MappedKernel],
        query: &OpQuery,
        order: KeyOrder,
    ) -> LookupResult {
        self.best_answer(&self.candidates(kernels)?, |index| {
            let family = AttentionFamily::of_kernel(&index.rows.kernel).unwrap_or(AttentionFamily::Fused);
            match AttentionWork::of_query(query, family, order) {
                Ok(work) => self.find_work(index, &work),
                Err(reason) => Ok(LookupAnswer::missed(reason)),
            }
        })
    }

    pub(super) fn find_work(&self, index: &KernelIndex, work: &AttentionWork) -> LookupResult {
        Ok(self.rules.find_work(self.index.attention(index)?, &index.rows, work))
    }

    /// Looks the write of rows to a cache up. A framework passes the rows, the cache and the indices; the kernel has
    /// the cache, the indices and the rows.
    pub(super) fn lookup_cache_update(&self, kernels: &[MappedKernel], query: &OpQuery) -> LookupResult {
        let tensors: Vec<QueryTensor> = compared_tensors(&query.inputs).cloned().collect();
        let inputs = match tensors.as_slice() {
            [cache, index, rows] if index.is_index() => vec![cache.clone(), index.clone(), rows.clone()],
            [rows, cache, index] => vec![cache.clone(), index.clone(), rows.clone()],
            _ => return Ok(LookupAnswer::missed(MissReason::InputCountMismatch)),
        };
        if inputs.iter().any(|tensor| tensor.dtype.is_none()) {
            return Ok(LookupAnswer::missed(MissReason::ContextMissing("dtype")));
        }
        let query = CacheQuery { inputs, attributes: Vec::new() };
        self.best_answer(&self.candidates(kernels)?, |index| Ok(index.find_cache_write(&query)))
    }

    pub(super) fn best_answer(
        &self,
        kernels: &CandidateKernels<'_>,
        lookup: impl Fn(&KernelIndex) -> LookupResult,
    ) -> LookupResult {
        let answers = kernels.indices.iter().map(|index| lookup(index));
        Ok(best_of(answers, &*self.rules)?.unwrap_or_else(|| kernels.missed()))
    }
}
