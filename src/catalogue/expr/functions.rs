//! The functions of expressions: their names, how many arguments they take, and what they are.

use super::overflow;
use super::shape_functions;
use crate::catalogue::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
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
pub(crate) const FUNCTIONS: [(&str, Function, usize); 35] = [
    ("min", Function::Min, 2),
    ("max", Function::Max, 2),
    ("align", Function::Align, 2),
    ("rank", Function::Rank, 1),
    ("numel", Function::Numel, 1),
    ("zeros", Function::Zeros, 1),
    ("broadcast", Function::Broadcast, 2),
    ("within", Function::Within, 2),
    ("list", Function::List, OR_MORE + 1),
    ("permuted", Function::Permuted, 2),
    ("permutation", Function::Permutation, 2),
    ("reduced", Function::Reduced, 2),
    ("reduced_kept", Function::ReducedKept, 2),
    ("axes", Function::Axes, 3),
    ("axis", Function::Axis, 2),
    ("joined", Function::Joined, OR_MORE + 2),
    ("joint", Function::Joint, OR_MORE + 2),
    ("stacked", Function::Stacked, OR_MORE + 2),
    ("stacking", Function::Stacking, OR_MORE + 2),
    ("tiled", Function::Tiled, 2),
    ("tiles", Function::Tiles, 2),
    ("padded", Function::Padded, 2),
    ("trailing_pads", Function::TrailingPads, 2),
    ("strides", Function::Strides, 1),
    ("sum", Function::Sum, 1),
    ("count", Function::Count, 1),
    ("last", Function::Last, 1),
    ("lowest", Function::Lowest, 1),
    ("highest", Function::Highest, 1),
    ("differences", Function::Differences, 1),
    ("accumulated", Function::Accumulated, 1),
    ("shares", Function::Shares, 2),
    ("repeated", Function::Repeated, 2),
    ("blocks", Function::Blocks, 2),
    ("dot", Function::Dot, 2),
];

/// The value of a function of arguments that are as many as it takes.
pub(crate) fn call(function: Function, values: &[Value]) -> Result<Value, String> {
    let number = |index: usize| values[index].number();
    let list = |index: usize| values[index].list();
    Ok(match function {
        Function::Min => Value::Number(number(0)?.min(number(1)?)),
        Function::Max => Value::Number(number(0)?.max(number(1)?)),
        Function::Align => {
            let (value, step) = (number(0)?, number(1)?);
            if step <= 0 {
                return Err(format!("align to {step}, expected a positive step"));
            }
            let missing = (step - value.rem_euclid(step)) % step;
            Value::Number(value.checked_add(missing).ok_or_else(overflow)?)
        }
        Function::Rank => Value::Number(i64::try_from(list(0)?.len()).map_err(|_| overflow())?),
        Function::Numel => Value::Number(Value::List(list(0)?.to_vec()).number()?),
        Function::Zeros => match number(0)? {
            length @ 0..=64 => Value::List(vec![0; usize::try_from(length).unwrap_or_default()]),
            other => return Err(format!("a list of {other} zeros")),
        },
        Function::Broadcast => Value::List(broadcast(list(0)?, list(1)?)?),
        Function::Within => {
            let (small, large) = (values[0].items()?, values[1].items()?);
            Value::Truth(small.len() == large.len() && small.iter().zip(&large).all(|(s, l)| s <= l))
        }
        Function::List => Value::List(flat(values)?),
        Function::Permuted => Value::List(shape_functions::permuted(list(0)?, list(1)?)?),
        Function::Permutation => Value::List(shape_functions::permutation(list(0)?, list(1)?)?),
        Function::Reduced => Value::List(shape_functions::reduced(list(0)?, &flat(&values[1..])?, false)?),
        Function::ReducedKept => Value::List(shape_functions::reduced(list(0)?, &flat(&values[1..])?, true)?),
        Function::Axes => Value::List(shape_functions::axes(list(0)?, list(1)?, number(2)?)?),
        Function::Axis => Value::Number(Value::List(shape_functions::axes(list(0)?, list(1)?, 1)?).number()?),
        Function::Joined => Value::List(shape_functions::joined(number(0)?, &lists(&values[1..])?)?),
        Function::Joint => Value::Number(shape_functions::joint(list(0)?, &lists(&values[1..])?)?),
        Function::Stacked => Value::List(shape_functions::stacked(number(0)?, &lists(&values[1..])?)?),
        Function::Stacking => Value::Number(shape_functions::stacking(list(0)?, &lists(&values[1..])?)?),
        Function::Tiled => Value::List(shape_functions::tiled(list(0)?, list(1)?)?),
        Function::Tiles => Value::List(shape_functions::tiles(list(0)?, list(1)?)?),
        Function::Padded => Value::List(shape_functions::padded(list(0)?, list(1)?)?),
        Function::TrailingPads => Value::List(shape_functions::trailing_pads(list(0)?, list(1)?)?),
        Function::Strides => Value::List(shape_functions::strides(list(0)?)?),
        Function::Sum => Value::Number(sum(values[0].items()?.into_iter())?),
        Function::Count => Value::Number(i64::try_from(values[0].items()?.len()).map_err(|_| overflow())?),
        Function::Last => Value::Number(*values[0].items()?.last().ok_or_else(nothing)?),
        Function::Lowest => Value::Number(values[0].items()?.into_iter().min().ok_or_else(nothing)?),
        Function::Highest => Value::Number(values[0].items()?.into_iter().max().ok_or_else(nothing)?),
        Function::Differences => {
            let ends = values[0].items()?;
            let starts = std::iter::once(0).chain(ends.iter().copied());
            let steps = starts.zip(&ends).map(|(start, end)| end.checked_sub(start).ok_or_else(overflow));
            Value::List(steps.collect::<Result<_, _>>()?)
        }
        Function::Accumulated => {
            let mut end = 0_i64;
            let ends = values[0].items()?.into_iter().map(|step| {
                end = end.checked_add(step).ok_or_else(overflow)?;
                Ok(end)
            });
            Value::List(ends.collect::<Result<_, String>>()?)
        }
        Function::Shares => {
            let (total, groups) = (number(0)?, number(1)?);
            if total < 0 || !(1..=LONGEST).contains(&groups) {
                return Err(format!("{total} items in {groups} shares"));
            }
            let more = total % groups;
            Value::List((0..groups).map(|group| total / groups + i64::from(group < more)).collect())
        }
        Function::Repeated => match number(1)? {
            times @ 0..=LONGEST => Value::List(vec![number(0)?; usize::try_from(times).unwrap_or_default()]),
            other => return Err(format!("a list of {other} numbers")),
        },
        Function::Blocks => {
            let size = number(1)?;
            if size <= 0 {
                return Err(format!("blocks of {size}, expected a positive size"));
            }
            let blocks = |item: &i64| item / size + i64::from(item % size > 0);
            Value::List(values[0].items()?.iter().map(blocks).collect())
        }
        Function::Dot => {
            let (left, right) = (values[0].items()?, values[1].items()?);
            if left.len() != right.len() {
                return Err(format!("lists of {} and {} numbers", left.len(), right.len()));
            }
            let products = left.iter().zip(&right).map(|(l, r)| l.checked_mul(*r).ok_or_else(overflow));
            Value::Number(sum(products.collect::<Result<Vec<_>, _>>()?.into_iter())?)
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

fn lists(values: &[Value]) -> Result<Vec<&[i64]>, String> {
    values.iter().map(Value::list).collect()
}

/// Numbers and lists behind each other.
fn flat(values: &[Value]) -> Result<Vec<i64>, String> {
    let mut numbers = Vec::new();
    for value in values {
        numbers.extend(value.items()?);
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
