//! The functions of expressions: their names, how many arguments they take, and what they are.

use super::{overflow, shape_functions};
use crate::catalogue::ExprValue;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExprFunction {
    Min,
    Max,
    Align,
    Rank,
    Numel,
    Zeros,
    Broadcast,
    Within,
    List,
    Permuted,
    Permutation,
    Reduced,
    ReducedKept,
    Axes,
    Axis,
    Joined,
    Joint,
    Stacked,
    Stacking,
    Tiled,
    Tiles,
    Padded,
    TrailingPads,
    Strides,
    Sum,
    Count,
    Last,
    Lowest,
    Highest,
    Differences,
    Accumulated,
    Shares,
    Repeated,
    Blocks,
    Dot,
}

/// As an arity: so many arguments and more, where a list of tensors can be given.
pub(crate) const OR_MORE: usize = 100;

/// (name, function, number of arguments)
pub(crate) const FUNCTIONS: [(&str, ExprFunction, usize); 35] = [
    ("min", ExprFunction::Min, 2),
    ("max", ExprFunction::Max, 2),
    ("align", ExprFunction::Align, 2),
    ("rank", ExprFunction::Rank, 1),
    ("numel", ExprFunction::Numel, 1),
    ("zeros", ExprFunction::Zeros, 1),
    ("broadcast", ExprFunction::Broadcast, 2),
    ("within", ExprFunction::Within, 2),
    ("list", ExprFunction::List, OR_MORE + 1),
    ("permuted", ExprFunction::Permuted, 2),
    ("permutation", ExprFunction::Permutation, 2),
    ("reduced", ExprFunction::Reduced, 2),
    ("reduced_kept", ExprFunction::ReducedKept, 2),
    ("axes", ExprFunction::Axes, 3),
    ("axis", ExprFunction::Axis, 2),
    ("joined", ExprFunction::Joined, OR_MORE + 2),
    ("joint", ExprFunction::Joint, OR_MORE + 2),
    ("stacked", ExprFunction::Stacked, OR_MORE + 2),
    ("stacking", ExprFunction::Stacking, OR_MORE + 2),
    ("tiled", ExprFunction::Tiled, 2),
    ("tiles", ExprFunction::Tiles, 2),
    ("padded", ExprFunction::Padded, 2),
    ("trailing_pads", ExprFunction::TrailingPads, 2),
    ("strides", ExprFunction::Strides, 1),
    ("sum", ExprFunction::Sum, 1),
    ("count", ExprFunction::Count, 1),
    ("last", ExprFunction::Last, 1),
    ("lowest", ExprFunction::Lowest, 1),
    ("highest", ExprFunction::Highest, 1),
    ("differences", ExprFunction::Differences, 1),
    ("accumulated", ExprFunction::Accumulated, 1),
    ("shares", ExprFunction::Shares, 2),
    ("repeated", ExprFunction::Repeated, 2),
    ("blocks", ExprFunction::Blocks, 2),
    ("dot", ExprFunction::Dot, 2),
];

/// The value of a function of arguments that are as many as it takes.
pub(crate) fn call(function: ExprFunction, values: &[ExprValue]) -> Result<ExprValue, String> {
    let number = |index: usize| values[index].to_number();
    let list = |index: usize| values[index].as_list();
    Ok(match function {
        ExprFunction::Min => ExprValue::Number(number(0)?.min(number(1)?)),
        ExprFunction::Max => ExprValue::Number(number(0)?.max(number(1)?)),
        ExprFunction::Align => {
            let (value, step) = (number(0)?, number(1)?);
            if step <= 0 {
                return Err(format!("align to {step}, expected a positive step"));
            }
            let missing = (step - value.rem_euclid(step)) % step;
            ExprValue::Number(value.checked_add(missing).ok_or_else(overflow)?)
        }
        ExprFunction::Rank => ExprValue::Number(i64::try_from(list(0)?.len()).map_err(|_| overflow())?),
        ExprFunction::Numel => ExprValue::Number(ExprValue::List(list(0)?.to_vec()).to_number()?),
        ExprFunction::Zeros => match number(0)? {
            length @ 0..=64 => ExprValue::List(vec![0; usize::try_from(length).unwrap_or_default()]),
            other => return Err(format!("a list of {other} zeros")),
        },
        ExprFunction::Broadcast => ExprValue::List(broadcast(list(0)?, list(1)?)?),
        ExprFunction::Within => {
            let (small, large) = (values[0].to_items()?, values[1].to_items()?);
            ExprValue::Bool(small.len() == large.len() && small.iter().zip(&large).all(|(s, l)| s <= l))
        }
        ExprFunction::List => ExprValue::List(flat(values)?),
        ExprFunction::Permuted => ExprValue::List(shape_functions::permuted(list(0)?, list(1)?)?),
        ExprFunction::Permutation => ExprValue::List(shape_functions::permutation(list(0)?, list(1)?)?),
        ExprFunction::Reduced => {
            ExprValue::List(shape_functions::reduced(list(0)?, &flat(&values[1..])?, false)?)
        }
        ExprFunction::ReducedKept => {
            ExprValue::List(shape_functions::reduced(list(0)?, &flat(&values[1..])?, true)?)
        }
        ExprFunction::Axes => ExprValue::List(shape_functions::axes(list(0)?, list(1)?, number(2)?)?),
        ExprFunction::Axis => {
            ExprValue::Number(ExprValue::List(shape_functions::axes(list(0)?, list(1)?, 1)?).to_number()?)
        }
        ExprFunction::Joined => ExprValue::List(shape_functions::joined(number(0)?, &lists(&values[1..])?)?),
        ExprFunction::Joint => ExprValue::Number(shape_functions::joint(list(0)?, &lists(&values[1..])?)?),
        ExprFunction::Stacked => {
            ExprValue::List(shape_functions::stacked(number(0)?, &lists(&values[1..])?)?)
        }
        ExprFunction::Stacking => {
            ExprValue::Number(shape_functions::stacking(list(0)?, &lists(&values[1..])?)?)
        }
        ExprFunction::Tiled => ExprValue::List(shape_functions::tiled(list(0)?, list(1)?)?),
        ExprFunction::Tiles => ExprValue::List(shape_functions::tiles(list(0)?, list(1)?)?),
        ExprFunction::Padded => ExprValue::List(shape_functions::padded(list(0)?, list(1)?)?),
        ExprFunction::TrailingPads => ExprValue::List(shape_functions::trailing_pads(list(0)?, list(1)?)?),
        ExprFunction::Strides => ExprValue::List(shape_functions::strides(list(0)?)?),
        ExprFunction::Sum => ExprValue::Number(sum(values[0].to_items()?.into_iter())?),
        ExprFunction::Count => {
            ExprValue::Number(i64::try_from(values[0].to_items()?.len()).map_err(|_| overflow())?)
        }
        ExprFunction::Last => ExprValue::Number(*values[0].to_items()?.last().ok_or_else(nothing)?),
        ExprFunction::Lowest => {
            ExprValue::Number(values[0].to_items()?.into_iter().min().ok_or_else(nothing)?)
        }
        ExprFunction::Highest => {
            ExprValue::Number(values[0].to_items()?.into_iter().max().ok_or_else(nothing)?)
        }
        ExprFunction::Differences => {
            let ends = values[0].to_items()?;
            let starts = std::iter::once(0).chain(ends.iter().copied());
            let steps = starts.zip(&ends).map(|(start, end)| end.checked_sub(start).ok_or_else(overflow));
            ExprValue::List(steps.collect::<Result<_, _>>()?)
        }
        ExprFunction::Accumulated => {
            let mut end = 0_i64;
            let ends = values[0].to_items()?.into_iter().map(|step| {
                end = end.checked_add(step).ok_or_else(overflow)?;
                Ok(end)
            });
            ExprValue::List(ends.collect::<Result<_, String>>()?)
        }
        ExprFunction::Shares => {
            let (total, groups) = (number(0)?, number(1)?);
            if total < 0 || !(1..=LONGEST).contains(&groups) {
                return Err(format!("{total} items in {groups} shares"));
            }
            let more = total % groups;
            ExprValue::List((0..groups).map(|group| total / groups + i64::from(group < more)).collect())
        }
        ExprFunction::Repeated => match number(1)? {
            times @ 0..=LONGEST => {
                ExprValue::List(vec![number(0)?; usize::try_from(times).unwrap_or_default()])
            }
            other => return Err(format!("a list of {other} numbers")),
        },
        ExprFunction::Blocks => {
            let size = number(1)?;
            if size <= 0 {
                return Err(format!("blocks of {size}, expected a positive size"));
            }
            let blocks = |item: &i64| item / size + i64::from(item % size > 0);
            ExprValue::List(values[0].to_items()?.iter().map(blocks).collect())
        }
        ExprFunction::Dot => {
            let (left, right) = (values[0].to_items()?, values[1].to_items()?);
            if left.len() != right.len() {
                return Err(format!("lists of {} and {} numbers", left.len(), right.len()));
            }
            let products = left.iter().zip(&right).map(|(l, r)| l.checked_mul(*r).ok_or_else(overflow));
            ExprValue::Number(sum(products.collect::<Result<Vec<_>, _>>()?.into_iter())?)
        }
    })
}

/// Longer lists than any batch has sequences.
const LONGEST: i64 = 1 << 20;

fn sum(mut items: impl Iterator<Item = i64>) -> Result<i64, String> {
    items.try_fold(0_i64, i64::checked_add).ok_or_else(overflow)
}

fn nothing() -> String {
    "the list is empty".to_owned()
}

fn lists(values: &[ExprValue]) -> Result<Vec<&[i64]>, String> {
    values.iter().map(ExprValue::as_list).collect()
}

/// Numbers and lists behind each other.
fn flat(values: &[ExprValue]) -> Result<Vec<i64>, String> {
    let mut numbers = Vec::new();
    for value in values {
        numbers.extend(value.to_items()?);
    }
    Ok(numbers)
}

/// The shape of an element-wise operation, by numpy's rule that torch shares.
fn broadcast(left: &[i64], right: &[i64]) -> Result<Vec<i64>, String> {
    let rank = left.len().max(right.len());
    let dim = |dims: &[i64], index: usize| (index + dims.len()).checked_sub(rank).map_or(1, |at| dims[at]);
    (0..rank)
        .map(|index| match (dim(left, index), dim(right, index)) {
            (l, r) if l == r || r == 1 => Ok(l),
            (1, r) => Ok(r),
            (l, r) => Err(format!("{l} and {r} do not broadcast")),
        })
        .collect()
}
