//! Kernels that write caches: their time does not depend on the capacity of a cache, the first dimension of its input.

use super::{
    IndexedRow, InputSlot, KernelIndex, KernelRows, KernelTraits, LatencyColumn, Listed, LookupAnswer,
    MatchRule, MissReason, QueryTensor, RuleKind, choose_median, group_rows, interpolated_answer,
    kind_of_dims,
};
use crate::{
    base::stats::simplex_interpolation::{ValuedPoint, interpolate},
    kernel::KernelName,
};

/// Inputs of a kernel that writes caches, in its order. The capacities of caches select among equal rows; 0 stands for
/// an unknown one.
#[derive(Clone, Debug)]
pub(crate) struct CacheQuery {
    /// Leading inputs. Types that are not given are not compared; without a format a row must be row-major.
    pub(crate) inputs: Vec<QueryTensor>,
    pub(crate) attributes: Vec<(&'static str, String)>,
}

impl CacheQuery {
    /// Creates a query with the inputs of a kernel that writes caches; `None` for other kernels, and without the kernel's
    /// inputs.
    pub(crate) fn of_kernel(kernel: &KernelName, slots: &[InputSlot<'_>]) -> Option<Self> {
        CacheSlots::of_writer(kernel).filter(|writer| writer.count == slots.len())?;
        Some(Self { inputs: slots.iter().map(InputSlot::to_tensor).collect(), attributes: Vec::new() })
    }
}

/// Inputs of a kernel whose first dimension is a capacity, and those whose first dimension is the number of tokens.
struct CacheSlots {
    count: usize,
    capacities: &'static [usize],
    tokens: &'static [usize],
    /// True if all dimensions but the last one count as the first: a cache in blocks has as many rows as one without.
    is_flat: bool,
    confidence: [f64; 2],
}

const KEY_CACHE: CacheSlots = CacheSlots {
    count: 7,
    capacities: &[5, 6],
    tokens: &[0, 2, 3, 4],
    is_flat: false,
    confidence: [1.0, 0.7],
};
const SCATTER: CacheSlots =
    CacheSlots { count: 3, capacities: &[0], tokens: &[1, 2], is_flat: true, ..KEY_CACHE };
const BLOCK_CACHE: CacheSlots = CacheSlots { count: 5, capacities: &[2, 3], tokens: &[0, 1, 4], ..KEY_CACHE };
const PREPROCESS: CacheSlots = CacheSlots {
    count: 22,
    capacities: &[11, 12],
    tokens: &[0, 8, 9, 13],
    confidence: [0.9, 0.75],
    ..KEY_CACHE
};

impl CacheSlots {
    /// Returns the inputs of a kernel that only writes caches; `None` for other kernels.
    fn of_writer(kernel: &KernelName) -> Option<&'static Self> {
        match kernel.as_str() {
            "ScatterNdUpdate" | "ScatterNdUpdateAiCore" => Some(&SCATTER),
            "KvRmsNormRopeCache" => Some(&KEY_CACHE),
            _ if KernelTraits::of_kernel(kernel).writes_cache => Some(&BLOCK_CACHE),
            _ => None,
        }
    }

    /// Returns the dimensions without capacities and tokens, and the tokens; `None` if tokens contradict each other.
    fn key<'d>(&self, inputs: impl Iterator<Item = &'d [u64]>) -> Option<(Box<[u64]>, u64)> {
        let mut key = Vec::new();
        let mut tokens = None;
        for (slot, dims) in inputs.enumerate() {
            let is_index = self.is_flat && slot == 1;
            let (outer, kept) = match dims {
                _ if is_index => (dims, &dims[..0]),
                [outer @ .., _] if self.is_flat => (outer, &dims[outer.len()..]),
                [_, rest @ ..] => (&dims[..1], rest),
                [] => return None,
            };
            let is_token = self.tokens.contains(&slot);
            if is_token && *tokens.get_or_insert(elements(outer)) != elements(outer) {
                return None;
            }
            let kept = if is_token || self.capacities.contains(&slot) { kept } else { dims };
            key.extend_from_slice(kept);
            key.push(u64::MAX);
        }
        Some((key.into_boxed_slice(), tokens?))
    }
}

impl KernelIndex {
    /// Finds rows with the tokens of a query, else interpolates between the nearest numbers of tokens.
    pub(crate) fn find_cache_write(&self, query: &CacheQuery) -> LookupAnswer {
        let rows = &self.rows;
        let slots = CacheSlots::of_writer(&rows.kernel).unwrap_or(&PREPROCESS);
        let key = slots.key(query.inputs.iter().map(|input| input.dims.as_slice()));
        let key = key.filter(|_| query.inputs.len() == slots.count);
        let Some((key, tokens)) = key else { return LookupAnswer::missed(MissReason::DecomposeFailed) };
        let table = self.caches.get_or_init(|| {
            group_rows(rows, |row| {
                let is_usable = rows.form(row).inputs.len() >= slots.count && row.is_measured();
                let inputs = (0..slots.count).filter(|_| is_usable).map(|input| rows.input_dims(row, input));
                slots.key(inputs)
            })
        });
        let found = table.get(&key).map(Vec::as_slice).unwrap_or_default();
        let is_fitting = |(_, number): &(u64, u32)| {
            let row = &rows.rows[*number as usize];
            row.latency().is_some() && fits(rows, row, query)
        };
        let fitting: Vec<(u64, u32)> = found.iter().copied().filter(is_fitting).collect();
        let exact: Vec<u32> =
            fitting.iter().filter(|(other, _)| *other == tokens).map(|(_, number)| *number).collect();
        if exact.is_empty() {
            return interpolated(rows, &fitting, tokens, slots.confidence[1]);
        }
        let numbers = with_nearest_capacity(rows, exact, query, slots);
        if let Some(names) = open_attributes(rows, &numbers) {
            return LookupAnswer::missed(MissReason::OpenAttributes(names));
        }
        let rule = (MatchRule::of_kind(RuleKind::CacheUpdate), slots.confidence[0]);
        choose_median(rows, &numbers, rule)
    }
}

fn fits(rows: &KernelRows, row: &IndexedRow, query: &CacheQuery) -> bool {
    let form = rows.form(row);
    let has_form = query.inputs.iter().zip(&form.inputs).all(|(input, recorded)| {
        input.dtype.as_ref().is_none_or(|dtype| *dtype == recorded.dtype)
            && match &input.format {
                Some(format) => format.same_layout(&recorded.format),
                None => recorded.format.private().is_none(),
            }
    });
    let is_same = |recorded: &str, value: &str| {
        recorded.eq_ignore_ascii_case(value) || matches!((recorded, value), ("1", "true") | ("0", "false"))
    };
    has_form
        && query
            .attributes
            .iter()
            .all(|(name, value)| form.attributes.get(name).is_none_or(|recorded| is_same(recorded, value)))
}

fn with_nearest_capacity(
    rows: &KernelRows,
    numbers: Vec<u32>,
    query: &CacheQuery,
    slots: &CacheSlots,
) -> Vec<u32> {
    let wanted: u64 = slots.capacities.iter().map(|slot| elements(&query.inputs[*slot].dims)).sum();
    if wanted == 0 {
        return numbers;
    }
    let distance = |number: &u32| {
        let row = &rows.rows[*number as usize];
        let own: u64 = slots.capacities.iter().map(|slot| elements(rows.input_dims(row, *slot))).sum();
        own.abs_diff(wanted)
    };
    let least = numbers.iter().map(distance).min();
    numbers.into_iter().filter(|number| Some(distance(number)) == least).collect()
}

fn elements(dims: &[u64]) -> u64 {
    dims.iter().fold(1, |product: u64, dim| product.saturating_mul(*dim))
}

fn open_attributes(rows: &KernelRows, numbers: &[u32]) -> Option<Listed<String>> {
    let attributes = |number: &u32| &rows.form(&rows.rows[*number as usize]).attributes;
    let latency = |number: &u32| rows.rows[*number as usize].latency().map(|(_, latency)| latency);
    let first = numbers.first()?;
    let other = numbers
        .iter()
        .find(|number| attributes(number) != attributes(first) && latency(number) != latency(first))?;
    let names = attributes(first).iter().chain(attributes(other).iter());
    Some(names.map(|(name, _)| name.to_owned()).collect())
}

fn interpolated(rows: &KernelRows, fitting: &[(u64, u32)], tokens: u64, confidence: f64) -> LookupAnswer {
    let numbers: Vec<u32> = fitting.iter().map(|(_, number)| *number).collect();
    let missed = || LookupAnswer::missed(MissReason::ShapeMismatch);
    if rows.policy.max_interpolation_dim == Some(0) || open_attributes(rows, &numbers).is_some() {
        return missed();
    }
    let along = |column: LatencyColumn| {
        let points: Vec<ValuedPoint> = fitting
            .iter()
            .filter_map(|(tokens, number)| {
                let value = rows.rows[*number as usize].latency_in(column)?;
                Some(ValuedPoint { at: [*tokens as f64, 0.0, 0.0], value, row: *number })
            })
            .collect();
        let found = interpolate(&points, [tokens as f64, 0.0, 0.0], 1)?;
        let (kind, _) = kind_of_dims(1);
        let rule = MatchRule { axes: "tokens", ..MatchRule::of_kind(kind) };
        let used = found.used_points(&points);
        Some(interpolated_answer(rows, found.value, &used, column, (rule, confidence)))
    };
    rows.columns().into_iter().find_map(along).unwrap_or_else(missed)
}
