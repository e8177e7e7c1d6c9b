//! The functions of expressions: names, numbers of arguments, values.

use std::ops::RangeInclusive;

use strum::{EnumString, IntoStaticStr, VariantArray};

use super::{
    shape_functions as shapes,
    value::{ArithmeticError, BinaryOperator, ExprError, ExprNumber, ExprValue, product},
};

/// The functions. Their names in snake case are the same as in torch and numpy, if these have the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum ExprFunction {
    Min,
    Max,
    Align,
    Rank,
    Numel,
    Broadcast,
    AllLe,
    List,
    Permute,
    InferPermutation,
    Reduce,
    ReduceKeepdim,
    ReducedDims,
    Cat,
    CatDim,
    Stack,
    StackDim,
    Tile,
    TileRepeats,
    Pad,
    PadAmounts,
    Strides,
    Sum,
    Len,
    Last,
    Diff,
    Cumsum,
    SplitEvenly,
    Full,
    CeilDiv,
    Minimum,
    Dot,
}

/// No upper limit of the number of arguments: a list of tensors.
pub(crate) const ANY_NUMBER: usize = usize::MAX;

impl ExprFunction {
    pub(crate) const fn argument_counts(self) -> RangeInclusive<usize> {
        match self {
            Self::Min | Self::Max => 1..=2,
            Self::Rank
            | Self::Numel
            | Self::Strides
            | Self::Sum
            | Self::Len
            | Self::Last
            | Self::Diff
            | Self::Cumsum => 1..=1,
            Self::List => 1..=ANY_NUMBER,
            Self::Cat | Self::CatDim | Self::Stack | Self::StackDim => 2..=ANY_NUMBER,
            Self::ReducedDims => 3..=3,
            _ => 2..=2,
        }
    }
}

/// Calls a function. If only ranks matter, it takes nodes of compiled expressions; other functions need the numbers.
pub(super) fn call<N: ExprNumber>(
    function: ExprFunction,
    values: &[ExprValue<N>],
) -> Result<ExprValue<N>, ExprError> {
    use ExprFunction as Is;
    let number = |index: usize| values[index].to_number();
    let list = |index: usize| values[index].as_list();
    let of_two = |operator| Ok(ExprValue::Number(N::apply(operator, number(0)?, number(1)?)?));
    let count = |index: usize| number(index)?.constant().ok_or(ExprError::not_constant());
    let dims = |index: usize| constants(list(index)?);
    let items = |index: usize| constants(&values[index].to_items()?);
    let further_dims = || (1..values.len()).map(dims).collect::<Result<Vec<_>, _>>();
    let new_number = |number: i64| Ok(ExprValue::Number(N::from(number)));
    let new_list = |numbers: Vec<i64>| Ok(ExprValue::List(numbers.into_iter().map(N::from).collect()));
    let of_any = |number: Option<i64>| new_number(number.ok_or_else(|| "the list is empty".to_owned())?);
    let fitting = |numbers: Option<Vec<i64>>| numbers.ok_or(ArithmeticError::Overflow);
    let sum = |numbers: Vec<i64>| {
        new_number(numbers.into_iter().try_fold(0_i64, i64::checked_add).ok_or(ArithmeticError::Overflow)?)
    };
    let length = |items: &[N]| new_number(i64::try_from(items.len()).map_err(|_| ArithmeticError::Overflow)?);
    match function {
        Is::Min if values.len() == 1 => of_any(items(0)?.into_iter().min()),
        Is::Max if values.len() == 1 => of_any(items(0)?.into_iter().max()),
        Is::Min => of_two(BinaryOperator::Min),
        Is::Max => of_two(BinaryOperator::Max),
        Is::Align => of_two(BinaryOperator::Align),
        Is::Rank => length(list(0)?),
        Is::Numel => Ok(ExprValue::Number(product(list(0)?)?)),
        Is::Broadcast => Ok(ExprValue::List(broadcast(list(0)?, list(1)?)?)),
        Is::AllLe => {
            let (small, large) = (values[0].to_items()?, values[1].to_items()?);
            let is_rank_equal = N::from(i64::from(small.len() == large.len()));
            let all = small.into_iter().zip(large).try_fold(is_rank_equal, |all, (small, large)| {
                N::apply(BinaryOperator::And, all, N::apply(BinaryOperator::LessEqual, small, large)?)
            });
            Ok(ExprValue::Bool(all?))
        }
        Is::List => {
            let items = values.iter().map(ExprValue::to_items).collect::<Result<Vec<_>, _>>()?;
            Ok(ExprValue::List(items.concat()))
        }
        Is::Len => length(&values[0].to_items()?),
        Is::Permute => new_list(shapes::permute(&dims(0)?, &dims(1)?)?),
        Is::InferPermutation => new_list(shapes::infer_permutation(&dims(0)?, &dims(1)?)?),
        Is::Reduce => new_list(shapes::reduce(&dims(0)?, &items(1)?, false)?),
        Is::ReduceKeepdim => new_list(shapes::reduce(&dims(0)?, &items(1)?, true)?),
        Is::ReducedDims => new_list(shapes::reduced_dims(&dims(0)?, &dims(1)?, count(2)?)?),
        Is::Cat => new_list(shapes::cat(count(0)?, &further_dims()?)?),
        Is::CatDim => new_number(shapes::cat_dim(&dims(0)?, &further_dims()?)?),
        Is::Stack => new_list(shapes::stack(count(0)?, &further_dims()?)?),
        Is::StackDim => new_number(shapes::stack_dim(&dims(0)?, &further_dims()?)?),
        Is::Tile => new_list(shapes::tile(&dims(0)?, &dims(1)?)?),
        Is::TileRepeats => new_list(shapes::tile_repeats(&dims(0)?, &dims(1)?)?),
        Is::Pad => new_list(shapes::pad(&dims(0)?, &dims(1)?)?),
        Is::PadAmounts => new_list(shapes::pad_amounts(&dims(0)?, &dims(1)?)?),
        Is::Strides => new_list(shapes::strides(&dims(0)?)?),
        Is::Sum => sum(items(0)?),
        Is::Last => of_any(items(0)?.last().copied()),
        Is::Diff => {
            let ends = items(0)?;
            let starts = std::iter::once(&0).chain(&ends);
            new_list(fitting(starts.zip(&ends).map(|(start, end)| end.checked_sub(*start)).collect())?)
        }
        Is::Cumsum => {
            let mut end = Some(0_i64);
            let ends = items(0)?.into_iter().map(|step| {
                end = end?.checked_add(step);
                end
            });
            new_list(fitting(ends.collect())?)
        }
        Is::SplitEvenly => {
            let (total, groups) = (count(0)?, count(1)?);
            if total < 0 || !(1..=MAX_LENGTH).contains(&groups) {
                return Err(format!("{total} items in {groups} parts").into());
            }
            let more = total % groups;
            new_list((0..groups).map(|group| total / groups + i64::from(group < more)).collect())
        }
        Is::Full => match count(0)? {
            length @ 0..=MAX_LENGTH => new_list(vec![count(1)?; usize::try_from(length).unwrap_or_default()]),
            other => Err(format!("a list of {other} numbers").into()),
        },
        Is::CeilDiv => match count(1)? {
            size @ 1.. => {
                new_list(items(0)?.iter().map(|item| item / size + i64::from(item % size > 0)).collect())
            }
            size => Err(format!("a divisor of {size}, expected a positive one").into()),
        },
        Is::Minimum => {
            let most = count(1)?;
            new_list(items(0)?.into_iter().map(|item| item.min(most)).collect())
        }
        Is::Dot => {
            let (left, right) = (items(0)?, items(1)?);
            if left.len() != right.len() {
                return Err(format!("lists of {} and {} numbers", left.len(), right.len()).into());
            }
            sum(fitting(left.iter().zip(&right).map(|(left, right)| left.checked_mul(*right)).collect())?)
        }
    }
}

const MAX_LENGTH: i64 = 1 << 20;

fn constants<N: ExprNumber>(numbers: &[N]) -> Result<Vec<i64>, ExprError> {
    numbers.iter().map(|number| number.constant().ok_or(ExprError::not_constant())).collect()
}

fn broadcast<N: ExprNumber>(left: &[N], right: &[N]) -> Result<Vec<N>, ArithmeticError> {
    let rank = left.len().max(right.len());
    let dim = |dims: &[N], index: usize| {
        (index + dims.len()).checked_sub(rank).map_or(N::from(1), |place| dims[place].clone())
    };
    (0..rank).map(|index| N::apply(BinaryOperator::Broadcast, dim(left, index), dim(right, index))).collect()
}
