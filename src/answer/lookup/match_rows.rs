//! Search for the rows of one kernel that fit the inputs of a query, with tokens that frameworks pad, and with the outputs
//! of products that communicate.

use std::collections::BTreeSet;

use super::{
    IndexedRow, InputSlot, InputVariant, InterpolationKind, KernelIndex, MatchRule, MissReason, OpQuery,
    Padding, QueryTensor, RuleKind, SlotDims, TensorForm, has_blocked, keep_least,
};
use crate::kernel::{Dtype, EP_SIZE, KernelName, WORLD_SIZE};

/// Inputs by which the rows of kernels are found, and what rows must have beside them.
#[derive(Clone, Debug, Default)]
pub(crate) struct KernelsQuery<'q> {
    pub(in crate::answer) slots: Vec<InputSlot<'q>>,
    pub(crate) outputs: Vec<SlotDims>,
    /// First output of a kernel by its own name, which rows must have; `None` if it is unknown.
    pub(crate) output: Option<RequiredOutput<'q>>,
    pub(crate) formats: &'q [String],
    /// True if a row may have more inputs than the query.
    pub(crate) is_prefix: bool,
    pub(crate) ep_size: Option<u64>,
    pub(crate) needs_ep_size: bool,
    pub(crate) ranks: Option<u64>,
    pub(crate) is_hf32: bool,
    pub(crate) interpolation: InterpolationKind,
    pub(crate) source: QuerySource,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum QuerySource {
    #[default]
    Kernel,
    /// A kernel that runs for an operator, with the inputs in its order. A framework may have padded the tokens.
    Part,
    /// An operator, with the inputs as a framework has them, which may have padded the tokens.
    Operator,
}

impl KernelsQuery<'_> {
    pub(super) fn has_dtypes(&self) -> bool {
        self.slots.iter().all(|slot| slot.dtype.is_some())
    }
}

/// First output that rows must have: inputs alike may belong to another operation, such as a product of the transposed left side,
/// another slice, or a conversion to another type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequiredOutput<'m> {
    pub(crate) dims: SlotDims,
    pub(crate) dtype: Option<&'m Dtype>,
    pub(crate) product: Option<FusedProduct>,
}

impl RequiredOutput<'_> {
    /// Returns the number of ranks of a row with the inputs of the query, if its output shows that it is another one.
    fn other_ranks_of_row(self, index: &KernelIndex, row: &IndexedRow) -> Option<u64> {
        let input = index.rows.logical_input(row, 0);
        let ranks = |output: SlotDims| {
            self.product?.ranks_of_rows(*input.as_slice().first()?, *output.as_slice().first()?)
        };
        let (wanted, recorded) = (ranks(self.dims)?, ranks(index.first_output(row)?)?);
        (recorded != wanted).then_some(recorded)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RowMatch {
    pub(crate) row: u32,
    pub(crate) rule: MatchRule,
    /// Factor of the latency, 1 but for other element types.
    pub(crate) scale: f64,
    /// 0 for the preferred formats.
    pub(crate) format_rank: u8,
}

/// Compares a form with the inputs of a query, but not their ranks. The error is the reason of a miss.
fn compare_form(
    index: &KernelIndex,
    number: u32,
    slots: &[InputSlot<'_>],
    query: &KernelsQuery<'_>,
) -> Result<FittingForm, MissReason> {
    let form = &index.rows.forms[number as usize];
    let mut is_relaxed = false;
    let mut pairs = slots.iter().zip(&form.inputs);
    for (slot, input) in pairs.clone() {
        if let Some(dtype) = slot.dtype {
            let (fits, relaxed) = index.traits.match_dtype(dtype, &input.dtype);
            if !fits {
                return Err(MissReason::DtypeMismatch);
            }
            is_relaxed |= relaxed;
        }
    }
    if pairs.any(|(slot, input)| slot.format.is_some_and(|format| !format.same_layout(&input.format))) {
        return Err(MissReason::FormatMismatch);
    }
    if let (Some(output), Some(recorded)) = (query.output, form.outputs.first())
        && let Some(dtype) = output.dtype
    {
        // Another type beside equal inputs is another operation.
        let (fits, relaxed) = index.traits.match_dtype(dtype, &recorded.dtype);
        if !fits || relaxed && !is_relaxed {
            return Err(MissReason::OutputMismatch);
        }
    }
    let stated = |column: &str| form.attributes.get(column).and_then(|text| text.parse::<u64>().ok());
    let ep_size = stated(EP_SIZE);
    if query.ep_size.is_some() && ep_size != query.ep_size && (ep_size.is_some() || query.needs_ep_size) {
        return Err(ep_size.map_or(MissReason::ShapeMismatch, MissReason::of_ranks));
    }
    if let (Some(ranks), Some(recorded)) = (query.ranks, stated(WORLD_SIZE))
        && ranks != recorded
    {
        return Err(MissReason::of_ranks(recorded));
    }
    if form.attributes.allows_hf32() != query.is_hf32 {
        return Err(MissReason::Hf32Mismatch);
    }
    let is_open = |name: &str| match name {
        EP_SIZE => query.ep_size.is_none(),
        WORLD_SIZE => query.ranks.is_none(),
        _ => true,
    };
    if form.work_attributes().any(is_open) {
        return Err(MissReason::OpenAttributes(form.work_attributes().map(str::to_owned).collect()));
    }
    let is_preferred = if query.formats.is_empty() {
        !has_blocked(&form.inputs)
    } else {
        let is_expected =
            |(input, expected): (&TensorForm, &String)| input.format.private().unwrap_or("ND") == expected;
        form.inputs.iter().zip(query.formats).all(is_expected)
    };
    Ok(FittingForm { form: number, is_relaxed, format_rank: u8::from(!is_preferred) })
}

pub(crate) fn find_exact(
    index: &KernelIndex,
    variants: &[InputVariant<'_>],
    query: &KernelsQuery<'_>,
    seen: &mut MissReason,
) -> Vec<RowMatch> {
    let mut matches: Vec<RowMatch> = Vec::new();
    for variant in variants {
        let count = variant.slots.len();
        let found: BTreeSet<u32> = matches.iter().map(|found| found.row).collect();
        for (number, row) in index.rows_with_inputs(&variant.slots) {
            let form = index.rows.form(row);
            if form.inputs.len() != count && !query.is_prefix {
                continue;
            }
            let Some(kind) = match_inputs(index, variant, row) else { continue };
            let FittingForm { is_relaxed, format_rank, .. } =
                match compare_form(index, row.form, &variant.slots, query) {
                    Ok(fit) => fit,
                    Err(reason) => {
                        seen.add(reason);
                        continue;
                    }
                };
            if let Some(output) = query.output.filter(|output| {
                let recorded = index.first_output(row);
                recorded.is_some_and(|dims| dims.element_count() != output.dims.element_count())
            }) {
                let ranks = output.other_ranks_of_row(index, row);
                seen.add(ranks.map_or(MissReason::OutputMismatch, MissReason::of_ranks));
                continue;
            }
            if row.latency().is_none() {
                seen.add(row.reason_without_latency());
                continue;
            }
            let rule = MatchRule { has_relaxed_dtype: is_relaxed, ..MatchRule::of_kind(kind) };
            if !found.contains(&number) {
                matches.push(RowMatch { row: number, rule, scale: 1.0, format_rank });
            }
        }
    }
    matches
}

/// Returns the rule by which all inputs fit; the first one that is no identity names it.
fn match_inputs(index: &KernelIndex, variant: &InputVariant<'_>, row: &IndexedRow) -> Option<RuleKind> {
    let mut found = variant.kind;
    for (input, slot) in variant.slots.iter().enumerate() {
        let kind = index.traits.match_slot(input, &slot.dims, &index.rows.logical_input(row, input))?;
        if found == RuleKind::Identity {
            found = kind;
        }
    }
    Some(found)
}

/// Returns the forms in which tokens are the first dimension: as they are, and without batches of one.
pub(crate) fn token_variants<'q>(variants: &[InputVariant<'q>]) -> Vec<InputVariant<'q>> {
    let mut found: Vec<InputVariant<'q>> = Vec::new();
    for variant in variants {
        let strip =
            |slot: &InputSlot<'q>| InputSlot { dims: slot.dims.without_leading_ones(2), ..slot.clone() };
        let stripped: Vec<InputSlot<'q>> = variant.slots.iter().map(strip).collect();
        let is_changed = stripped.iter().zip(&variant.slots).any(|(new, old)| new.dims != old.dims);
        found.push(variant.clone());
        if is_changed {
            let kind = if variant.kind == RuleKind::Identity { RuleKind::BatchStrip } else { variant.kind };
            found.push(InputVariant { kind, slots: stripped });
        }
    }
    found
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct FittingForm {
    pub(crate) form: u32,
    pub(crate) is_relaxed: bool,
    pub(crate) format_rank: u8,
}

pub(crate) fn fitting_forms(
    index: &KernelIndex,
    slots: &[InputSlot<'_>],
    query: &KernelsQuery<'_>,
) -> Vec<FittingForm> {
    let mut fitting = Vec::new();
    for (number, form) in (0..).zip(&index.rows.forms) {
        let has_ranks = slots.iter().zip(&form.inputs).all(|(slot, input)| {
            let rank = slot.dims.as_slice().len();
            rank == input.rank || input.format.private().is_some() && rank + 2 == input.rank
        });
        if has_ranks {
            fitting.extend(compare_class(index, number, slots, query));
        }
    }
    if have_different_attributes(index, fitting.iter().map(|fit| fit.form)) {
        return Vec::new();
    }
    fitting.sort_by_key(|fit| (fit.is_relaxed, fit.format_rank, fit.form));
    fitting
}

pub(crate) fn compare_class(
    index: &KernelIndex,
    number: u32,
    slots: &[InputSlot<'_>],
    query: &KernelsQuery<'_>,
) -> Option<FittingForm> {
    let count = index.rows.forms[number as usize].inputs.len();
    let has_count = count == slots.len() || query.is_prefix && count > slots.len();
    if has_count { compare_form(index, number, slots, query).ok() } else { None }
}

/// Returns true if forms differ in attributes, which a query by shapes leaves open.
pub(crate) fn have_different_attributes(index: &KernelIndex, mut forms: impl Iterator<Item = u32>) -> bool {
    let attributes = |form: u32| &index.rows.forms[form as usize].attributes;
    let first = forms.next();
    first.is_some_and(|first| forms.any(|form| attributes(form) != attributes(first)))
}

/// Finds the rows nearest in tokens to a query of a framework whose tokens are padded. The first dimension of a product
/// of batches is no number of tokens.
pub(crate) fn find_padded(
    index: &KernelIndex,
    variants: &[InputVariant<'_>],
    query: &KernelsQuery<'_>,
) -> Vec<RowMatch> {
    let mut best: Vec<(u64, RowMatch)> = Vec::new();
    for variant in variants {
        let Some(&tokens) = variant.slots.first().and_then(|slot| slot.dims.as_slice().first()) else {
            continue;
        };
        let is_product = index.traits.is_product;
        if is_product && variant.slots[0].dims.as_slice().len() != 2 {
            continue;
        }
        let is_plain_product = is_product && !index.traits.is_grouped;
        for fit in fitting_forms(index, &variant.slots, query) {
            for rows in index.rows_by_tokens(fit.form, &variant.slots) {
                let is_near = |other: u64, row: u32| {
                    other.abs_diff(tokens) <= MAX_PADDING && index.rows.rows[row as usize].latency().is_some()
                };
                for (other, row) in rows.iter().filter(|(other, row)| is_near(*other, *row)) {
                    let Some(padding) = match_padding(tokens, *other, is_plain_product) else { continue };
                    let rule = MatchRule {
                        padding,
                        has_relaxed_dtype: fit.is_relaxed,
                        ..MatchRule::of_kind(variant.kind)
                    };
                    let found = RowMatch { row: *row, rule, scale: 1.0, format_rank: fit.format_rank };
                    keep_least(&mut best, tokens.abs_diff(*other), found);
                }
            }
        }
    }
    best.into_iter().map(|(_, found)| found).collect()
}

pub(in crate::answer) const TILES: [u64; 2] = [16, 32];
/// Tile that is assumed only from this number of tokens on: heads are padded to nothing.
const SMALL_TILE: (u64, u64) = (8, 64);
/// Rows of a tile of the cube unit, which a product completes itself.
const CUBE_TILE: u64 = 16;

/// Maximum ratio of padded tokens to the others, as a fraction. The rounding of a sequence to tiles of 16 or 32 tokens
/// adds less to one of usual length; more tokens are more work.
const MAX_GROWTH: (u64, u64) = (5, 4);

/// Returns the padding by which the tokens of a framework fit the tokens of a row. A plain product, one matrix times
/// one matrix, completes tiles of the cube unit.
pub(crate) fn match_padding(query: u64, row: u64, is_plain_product: bool) -> Option<Padding> {
    let is_near = |more: u64, less: u64| {
        u128::from(more) * u128::from(MAX_GROWTH.1) <= u128::from(less) * u128::from(MAX_GROWTH.0)
    };
    if fills_tiles(query, row, &TILES) && (is_near(query, row) || is_plain_product && query <= CUBE_TILE) {
        Some(Padding::Query)
    } else if is_plain_product
        && query.checked_next_multiple_of(CUBE_TILE) == Some(row)
        && is_near(row, query)
        && row > query
    {
        Some(Padding::Row)
    } else {
        None
    }
}

/// Returns true if tokens are fewer ones, completed to one of the tiles, or to the small one.
pub(in crate::answer) fn fills_tiles(tokens: u64, fewer: u64, tiles: &[u64]) -> bool {
    let fills = |tile: u64| fewer.checked_next_multiple_of(tile) == Some(tokens);
    let (small, from) = SMALL_TILE;
    tokens > fewer && fewer > 0 && (tiles.iter().any(|tile| fills(*tile)) || fewer >= from && fills(small))
}

pub(crate) const MAX_PADDING: u64 = 31;

/// Product whose output has the number of ranks: rows of several numbers of ranks have the same inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FusedProduct {
    AllGatherMatmul,
    MatmulReduceScatter,
}

impl FusedProduct {
    pub(crate) fn of_kernel(kernel: &KernelName) -> Option<Self> {
        match kernel.as_str() {
            "AllGatherMatmul" | "AllGatherMatmulV2" => Some(Self::AllGatherMatmul),
            "MatmulReduceScatter" | "MatmulReduceScatterV2" => Some(Self::MatmulReduceScatter),
            _ => None,
        }
    }

    pub(crate) fn output_of_query(self, query: &OpQuery) -> Result<QueryTensor, MissReason> {
        let ranks = query.ranks.filter(|ranks| *ranks > 0).ok_or(MissReason::RanksNotGiven)?;
        let [one, other, ..] = query.inputs.as_slice() else { return Err(MissReason::InputCountMismatch) };
        let (&[rows, inner], &[left, right]) = (one.dims.as_slice(), other.dims.as_slice()) else {
            return Err(MissReason::ShapeMismatch);
        };
        let columns = if left == inner { right } else { left };
        let rows = match self {
            Self::AllGatherMatmul => rows.checked_mul(ranks).ok_or(MissReason::ShapeMismatch)?,
            Self::MatmulReduceScatter if rows.is_multiple_of(ranks) => rows / ranks,
            Self::MatmulReduceScatter => return Err(MissReason::UndividedRows { rows, ranks }),
        };
        Ok(QueryTensor { dims: vec![rows, columns], dtype: None, format: None })
    }

    /// Returns the number of ranks of a row by the rows of its left operand and of its output; `None` if they have no whole ratio.
    pub(crate) fn ranks_of_rows(self, input: u64, output: u64) -> Option<u64> {
        let (larger, smaller) = match self {
            Self::AllGatherMatmul => (output, input),
            Self::MatmulReduceScatter => (input, output),
        };
        (larger > 0 && smaller > 0 && larger.is_multiple_of(smaller)).then(|| larger / smaller)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_completes_tiles() {
        let (query_padded, row_padded) = (Some(Padding::Query), Some(Padding::Row));
        for (query, row, of_products, of_others) in [
            (144, 136, query_padded, query_padded),
            (160, 136, query_padded, query_padded),
            (136, 129, query_padded, query_padded),
            (336, 330, query_padded, query_padded),
            (512, 496, query_padded, query_padded),
            (4104, 4099, query_padded, query_padded),
            // More than a quarter, or another tile.
            (192, 136, None, None),
            (320, 260, None, None),
            (32, 24, None, None),
            (64, 1, None, None),
            (40, 33, None, None),
            (145, 136, None, None),
            (136, 136, None, None),
            // One tile of the cube unit.
            (16, 3, query_padded, None),
            (32, 3, None, None),
            (136, 144, row_padded, None),
            (136, 160, None, None),
            (17, 32, None, None),
            (9, 16, None, None),
            (16, 0, None, None),
            (u64::MAX, u64::MAX - 1, None, None),
        ] {
            assert_eq!(match_padding(query, row, true), of_products, "{query} and {row}");
            assert_eq!(match_padding(query, row, false), of_others, "{query} and {row}");
        }
    }
}

#[cfg(test)]
mod fused_products_tests {
    use super::*;

    #[test]
    fn outputs_follow_from_the_ranks() {
        let output = |product: FusedProduct, ranks: Option<u64>, right: [u64; 2]| {
            let tensor = |dims: [u64; 2]| QueryTensor { dims: dims.to_vec(), dtype: None, format: None };
            let inputs = vec![tensor([64, 512]), tensor(right)];
            let output = product.output_of_query(&OpQuery { inputs, ranks, ..OpQuery::default() });
            output.map(|tensor| tensor.dims)
        };
        let (gather, scatter) = (FusedProduct::AllGatherMatmul, FusedProduct::MatmulReduceScatter);
        assert_eq!(output(gather, Some(4), [512, 128]), Ok(vec![256, 128]));
        assert_eq!(output(scatter, Some(4), [128, 512]), Ok(vec![16, 128]));
        let undivided = MissReason::UndividedRows { rows: 64, ranks: 5 };
        assert_eq!(undivided.to_string(), "shape_mismatch: 5 ranks cannot share 64 rows");
        assert_eq!(output(scatter, Some(5), [128, 512]), Err(undivided));
        assert_eq!(output(scatter, None, [128, 512]), Err(MissReason::RanksNotGiven));
        assert_eq!(output(gather, Some(u64::MAX), [512, 128]), Err(MissReason::ShapeMismatch));
        assert_eq!(gather.ranks_of_rows(64, 256), Some(4));
        assert_eq!(scatter.ranks_of_rows(64, 16), Some(4));
        assert_eq!([scatter.ranks_of_rows(64, 48), gather.ranks_of_rows(64, 16)], [None, None]);
    }
}
