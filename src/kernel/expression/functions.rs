//! The functions of expressions: names, numbers of arguments, values.

use std::ops::RangeInclusive;

use strum::{EnumString, IntoStaticStr, VariantArray};

use super::{
    arithmetic::{ArithmeticError, BinaryOperator, ExprNumber, product},
    bindings::ExprValue,
    error::ExprErrorKind,
    shape_functions,
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
pub(crate) fn call<N: ExprNumber>(
    function: ExprFunction,
    values: &[ExprValue<N>],
) -> Result<ExprValue<N>, ExprErrorKind> {
    let number = |index: usize| values[index].to_number();
    let list = |index: usize| values[index].as_list();
    let of_two = |operator| Ok(ExprValue::Number(N::apply(operator, number(0)?, number(1)?)?));
    let count = |index: usize| number(index)?.constant().ok_or(ExprErrorKind::NotConstant);
    let dims = |index: usize| constants(list(index)?);
    let items = |index: usize| constants(&values[index].to_items()?);
    let further_dims = || (1..values.len()).map(dims).collect::<Result<Vec<_>, _>>();
    let new_number = |number: i64| Ok(ExprValue::Number(N::from(number)));
    let new_list = |numbers: Vec<i64>| Ok(ExprValue::List(numbers.into_iter().map(N::from).collect()));
    match function {
        ExprFunction::Min if values.len() == 1 => {
            new_number(items(0)?.into_iter().min().ok_or_else(empty_list)?)
        }
        ExprFunction::Max if values.len() == 1 => {
            new_number(items(0)?.into_iter().max().ok_or_else(empty_list)?)
        }
        ExprFunction::Min => of_two(BinaryOperator::Min),
        ExprFunction::Max => of_two(BinaryOperator::Max),
        ExprFunction::Align => of_two(BinaryOperator::Align),
        ExprFunction::Rank => Ok(ExprValue::Number(length(list(0)?)?)),
        ExprFunction::Numel => Ok(ExprValue::Number(product(list(0)?)?)),
        ExprFunction::Broadcast => Ok(ExprValue::List(broadcast(list(0)?, list(1)?)?)),
        ExprFunction::AllLe => {
            let (small, large) = (values[0].to_items()?, values[1].to_items()?);
            let is_rank_equal = N::from(i64::from(small.len() == large.len()));
            let all = small.into_iter().zip(large).try_fold(is_rank_equal, |all, (small, large)| {
                N::apply(BinaryOperator::And, all, N::apply(BinaryOperator::LessEqual, small, large)?)
            });
            Ok(ExprValue::Bool(all?))
        }
        ExprFunction::List => Ok(ExprValue::List(flat(values)?)),
        ExprFunction::Len => Ok(ExprValue::Number(length(&values[0].to_items()?)?)),
        ExprFunction::Permute => new_list(shape_functions::permute(&dims(0)?, &dims(1)?)?),
        ExprFunction::InferPermutation => new_list(shape_functions::infer_permutation(&dims(0)?, &dims(1)?)?),
        ExprFunction::Reduce => new_list(shape_functions::reduce(&dims(0)?, &items(1)?, false)?),
        ExprFunction::ReduceKeepdim => new_list(shape_functions::reduce(&dims(0)?, &items(1)?, true)?),
        ExprFunction::ReducedDims => {
            new_list(shape_functions::reduced_dims(&dims(0)?, &dims(1)?, count(2)?)?)
        }
        ExprFunction::Cat => new_list(shape_functions::cat(count(0)?, &further_dims()?)?),
        ExprFunction::CatDim => new_number(shape_functions::cat_dim(&dims(0)?, &further_dims()?)?),
        ExprFunction::Stack => new_list(shape_functions::stack(count(0)?, &further_dims()?)?),
        ExprFunction::StackDim => new_number(shape_functions::stack_dim(&dims(0)?, &further_dims()?)?),
        ExprFunction::Tile => new_list(shape_functions::tile(&dims(0)?, &dims(1)?)?),
        ExprFunction::TileRepeats => new_list(shape_functions::tile_repeats(&dims(0)?, &dims(1)?)?),
        ExprFunction::Pad => new_list(shape_functions::pad(&dims(0)?, &dims(1)?)?),
        ExprFunction::PadAmounts => new_list(shape_functions::pad_amounts(&dims(0)?, &dims(1)?)?),
        ExprFunction::Strides => new_list(shape_functions::strides(&dims(0)?)?),
        ExprFunction::Sum => new_number(sum(items(0)?.into_iter())?),
        ExprFunction::Last => new_number(*items(0)?.last().ok_or_else(empty_list)?),
        ExprFunction::Diff => {
            let ends = items(0)?;
            let starts = std::iter::once(0).chain(ends.iter().copied());
            let steps = starts.zip(&ends).map(|(start, end)| end.checked_sub(start));
            new_list(steps.collect::<Option<_>>().ok_or(ArithmeticError::Overflow)?)
        }
        ExprFunction::Cumsum => {
            let mut end = 0_i64;
            let ends = items(0)?.into_iter().map(|step| {
                end = end.checked_add(step)?;
                Some(end)
            });
            new_list(ends.collect::<Option<_>>().ok_or(ArithmeticError::Overflow)?)
        }
        ExprFunction::SplitEvenly => {
            let (total, groups) = (count(0)?, count(1)?);
            if total < 0 || !(1..=MAX_LENGTH).contains(&groups) {
                return Err(format!("{total} items in {groups} parts").into());
            }
            let more = total % groups;
            new_list((0..groups).map(|group| total / groups + i64::from(group < more)).collect())
        }
        ExprFunction::Full => match count(0)? {
            length @ 0..=MAX_LENGTH => new_list(vec![count(1)?; usize::try_from(length).unwrap_or_default()]),
            other => Err(format!("a list of {other} numbers").into()),
        },
        ExprFunction::CeilDiv => {
            let size = count(1)?;
            if size <= 0 {
                return Err(format!("a divisor of {size}, expected a positive one").into());
            }
            new_list(items(0)?.iter().map(|item| item / size + i64::from(item % size > 0)).collect())
        }
        ExprFunction::Minimum => {
            let most = count(1)?;
            new_list(items(0)?.into_iter().map(|item| item.min(most)).collect())
        }
        ExprFunction::Dot => {
            let (left, right) = (items(0)?, items(1)?);
            if left.len() != right.len() {
                return Err(format!("lists of {} and {} numbers", left.len(), right.len()).into());
            }
            let products = left.iter().zip(&right).map(|(left, right)| left.checked_mul(*right));
            let products: Option<Vec<i64>> = products.collect();
            new_number(sum(products.ok_or(ArithmeticError::Overflow)?.into_iter())?)
        }
    }
}

/// Longer lists than any batch has sequences.
const MAX_LENGTH: i64 = 1 << 20;

fn sum(mut items: impl Iterator<Item = i64>) -> Result<i64, ArithmeticError> {
    items.try_fold(0_i64, i64::checked_add).ok_or(ArithmeticError::Overflow)
}

fn empty_list() -> String {
    "the list is empty".to_owned()
}

fn length<N: ExprNumber>(items: &[N]) -> Result<N, ArithmeticError> {
    i64::try_from(items.len()).map(N::from).map_err(|_| ArithmeticError::Overflow)
}

fn constants<N: ExprNumber>(numbers: &[N]) -> Result<Vec<i64>, ExprErrorKind> {
    numbers.iter().map(|number| number.constant().ok_or(ExprErrorKind::NotConstant)).collect()
}

fn flat<N: ExprNumber>(values: &[ExprValue<N>]) -> Result<Vec<N>, ExprErrorKind> {
    let mut numbers = Vec::new();
    for value in values {
        numbers.extend(value.to_items()?);
    }
    Ok(numbers)
}

/// Returns the shape of an element-wise operation, by numpy's rule, which is torch's as well.
fn broadcast<N: ExprNumber>(left: &[N], right: &[N]) -> Result<Vec<N>, ArithmeticError> {
    let rank = left.len().max(right.len());
    let dim = |dims: &[N], index: usize| {
        (index + dims.len()).checked_sub(rank).map_or(N::from(1), |place| dims[place].clone())
    };
    (0..rank).map(|index| N::apply(BinaryOperator::Broadcast, dim(left, index), dim(right, index))).collect()
}
