//! Shape functions of the expression language, each with its inverse, which infers an argument from a recorded output:
//! the order of a permutation, the dimensions of a reduction, the dimension of a concatenation.

fn dim_index(dim: i64, rank: usize) -> Result<usize, String> {
    let end = if dim < 0 { i64::try_from(rank).unwrap_or_default() } else { 0 };
    let index = usize::try_from(end.saturating_add(dim)).ok().filter(|index| *index < rank);
    index.ok_or_else(|| format!("dimension {dim} is out of range for rank {rank}"))
}

fn dim_indices(dims: &[i64], rank: usize) -> Result<Vec<usize>, String> {
    let places: Vec<usize> = dims.iter().map(|dim| dim_index(*dim, rank)).collect::<Result<_, _>>()?;
    match places.iter().enumerate().find(|(index, place)| places[..*index].contains(place)) {
        Some((_, place)) => Err(format!("dimension {place} is named twice")),
        None => Ok(places),
    }
}

fn to_signed_dims(places: impl IntoIterator<Item = usize>) -> Vec<i64> {
    places.into_iter().map(|place| i64::try_from(place).unwrap_or(i64::MAX)).collect()
}

fn all_fitting(dims: impl Iterator<Item = Option<i64>>) -> Result<Vec<i64>, String> {
    dims.collect::<Option<_>>().ok_or_else(|| "does not fit 63 bits".to_owned())
}

pub(super) fn permute(dims: &[i64], order: &[i64]) -> Result<Vec<i64>, String> {
    let order = dim_indices(order, dims.len())?;
    if order.len() != dims.len() {
        return Err(format!("an order of {} for {} dimensions", order.len(), dims.len()));
    }
    Ok(order.into_iter().map(|place| dims[place]).collect())
}

/// Returns the first order, other than the identity, that turns one shape into the other.
pub(super) fn infer_permutation(from: &[i64], to: &[i64]) -> Result<Vec<i64>, String> {
    let mut order = Vec::new();
    if from.len() == to.len() && from.len() <= MAX_DIMS && extend_order(from, to, &mut order) {
        return Ok(to_signed_dims(order));
    }
    Err("no order of the input's dimensions gives the output".to_owned())
}

/// Limit of the rank of a tensor in CANN.
const MAX_DIMS: usize = 8;

fn extend_order(from: &[i64], to: &[i64], order: &mut Vec<usize>) -> bool {
    let at = order.len();
    if at == to.len() {
        return order.iter().enumerate().any(|(index, place)| index != *place);
    }
    for place in 0..from.len() {
        if from[place] == to[at] && !order.contains(&place) {
            order.push(place);
            if extend_order(from, to, order) {
                return true;
            }
            order.pop();
        }
    }
    false
}

pub(super) fn reduce(dims: &[i64], over: &[i64], keep: bool) -> Result<Vec<i64>, String> {
    let over = dim_indices(over, dims.len())?;
    let kept = dims.iter().enumerate().filter_map(|(index, dim)| match over.contains(&index) {
        true => keep.then_some(1),
        false => Some(*dim),
    });
    Ok(kept.collect())
}

/// Returns the last `count` dimensions that the output may lack or have as 1.
pub(super) fn reduced_dims(from: &[i64], to: &[i64], count: i64) -> Result<Vec<i64>, String> {
    let rank = from.len();
    let wanted = usize::try_from(count).ok().filter(|wanted| (1..=rank).contains(wanted));
    let wanted = wanted.ok_or_else(|| format!("{count} of {rank} dimensions"))?;
    // Bit n is the n-th dimension from the end, so that the last ones come first.
    let sets = if rank <= MAX_DIMS { 0_u32..1 << rank } else { 0..0 };
    let sets = sets.filter(|set| set.count_ones() as usize == wanted);
    let mut dims =
        sets.map(|set| to_signed_dims((0..rank).filter(|index| set & (1 << (rank - 1 - index)) != 0)));
    let found = dims.find(|over| reduce(from, over, rank == to.len()).is_ok_and(|reduced| reduced == to));
    found.ok_or_else(|| format!("no {wanted} of the input's dimensions are reduced in the output"))
}

pub(super) fn cat(along: i64, shapes: &[Vec<i64>]) -> Result<Vec<i64>, String> {
    let first = shapes.first().ok_or("no tensor to concatenate")?;
    let along = dim_index(along, first.len())?;
    let mut whole = first.clone();
    for shape in &shapes[1..] {
        let fits = shape.len() == first.len()
            && (0..first.len()).all(|index| index == along || shape[index] == first[index]);
        if !fits {
            return Err(format!(
                "tensors differ in dimensions other than {along}, along which they are concatenated"
            ));
        }
        whole[along] = whole[along].checked_add(shape[along]).ok_or("does not fit 63 bits")?;
    }
    Ok(whole)
}

pub(super) fn cat_dim(whole: &[i64], shapes: &[Vec<i64>]) -> Result<i64, String> {
    let found =
        to_signed_dims(0..whole.len()).into_iter().find(|along| cat(*along, shapes).as_deref() == Ok(whole));
    found.ok_or_else(|| "the inputs give the output by concatenation along no dimension".to_owned())
}

pub(super) fn stack(along: i64, shapes: &[Vec<i64>]) -> Result<Vec<i64>, String> {
    let first = shapes.first().ok_or("no tensor to stack")?;
    let along = dim_index(along, first.len() + 1)?;
    if shapes.iter().any(|shape| shape != first) {
        return Err("stacked tensors must have the same shape".to_owned());
    }
    let mut whole = first.clone();
    whole.insert(along, i64::try_from(shapes.len()).map_err(|_| "too many tensors")?);
    Ok(whole)
}

pub(super) fn stack_dim(whole: &[i64], shapes: &[Vec<i64>]) -> Result<i64, String> {
    let found = to_signed_dims(0..whole.len())
        .into_iter()
        .find(|along| stack(*along, shapes).as_deref() == Ok(whole));
    found.ok_or_else(|| "the inputs give the output by stacking along no dimension".to_owned())
}

pub(super) fn tile(dims: &[i64], times: &[i64]) -> Result<Vec<i64>, String> {
    if dims.len() != times.len() {
        return Err(format!("{} repeats for {} dimensions", times.len(), dims.len()));
    }
    all_fitting(dims.iter().zip(times).map(|(dim, times)| dim.checked_mul(*times)))
}

pub(super) fn tile_repeats(from: &[i64], to: &[i64]) -> Result<Vec<i64>, String> {
    let is_multiple = |(from, to): (&i64, &i64)| *from > 0 && to % from == 0;
    if from.len() == to.len() && from.iter().zip(to).all(is_multiple) {
        return Ok(from.iter().zip(to).map(|(from, to)| to / from).collect());
    }
    Err("the output is not a multiple of the input in each dimension".to_owned())
}

/// Returns the padded shape; `pads` are as in `torch.nn.functional.pad`: two per dimension, the last one first.
pub(super) fn pad(dims: &[i64], pads: &[i64]) -> Result<Vec<i64>, String> {
    if !pads.len().is_multiple_of(2) || pads.len() / 2 > dims.len() {
        return Err(format!("{} pads for {} dimensions", pads.len(), dims.len()));
    }
    let pads = pads.chunks(2).chain(std::iter::repeat(&[][..]));
    let padded = dims
        .iter()
        .rev()
        .zip(pads)
        .map(|(dim, pads)| pads.iter().try_fold(*dim, |sum, pad| sum.checked_add(*pad)));
    let mut padded = all_fitting(padded)?;
    padded.reverse();
    Ok(padded)
}

/// Returns the padding after each dimension that gives the output, with 0 before it.
pub(super) fn pad_amounts(from: &[i64], to: &[i64]) -> Result<Vec<i64>, String> {
    if from.len() != to.len() || from.iter().zip(to).any(|(from, to)| to < from) {
        return Err("the output is not the input padded at the end".to_owned());
    }
    if from == to {
        return Err("no dimension is padded".to_owned());
    }
    Ok(from.iter().zip(to).rev().flat_map(|(from, to)| [0, to - from]).collect())
}

pub(super) fn strides(dims: &[i64]) -> Result<Vec<i64>, String> {
    let mut strides = vec![1_i64; dims.len()];
    for index in (1..dims.len()).rev() {
        strides[index - 1] = strides[index].checked_mul(dims[index]).ok_or("does not fit 63 bits")?;
    }
    Ok(strides)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn infer_permutation_finds_an_order_that_moves_a_dimension() {
        assert_eq!(infer_permutation(&[8192, 1, 6, 6], &[1, 6, 6, 8192]), Ok(vec![1, 2, 3, 0]));
        assert_eq!(infer_permutation(&[4, 4], &[4, 4]), Ok(vec![1, 0]));
        assert!(infer_permutation(&[4], &[4]).is_err());
        assert!(infer_permutation(&[2, 3], &[3, 3]).is_err());
        assert_eq!(permute(&[2, 3, 4], &[-1, 0, 1]), Ok(vec![4, 2, 3]));
        assert!(permute(&[2, 3], &[0, 0]).is_err());
        assert!(permute(&[2, 3], &[0]).is_err());
    }

    #[test]
    fn reduced_dims_prefers_the_last_dimensions() {
        assert_eq!(reduced_dims(&[32, 256, 169], &[256], 2), Ok(vec![0, 2]));
        assert_eq!(reduced_dims(&[32, 4096], &[1, 4096], 1), Ok(vec![0]));
        assert_eq!(reduced_dims(&[64, 64], &[64], 1), Ok(vec![1]));
        assert_eq!(reduced_dims(&[64], &[], 1), Ok(vec![0]));
        assert!(reduced_dims(&[64, 32], &[64, 32], 1).is_err());
        assert!(reduced_dims(&[64, 32], &[64], 3).is_err());
        assert_eq!(reduce(&[2, 3, 4], &[-1, 0], true), Ok(vec![1, 3, 1]));
        assert!(reduce(&[2, 3], &[2], false).is_err());
        assert!(reduce(&[2, 3], &[i64::MIN], false).is_err());
    }

    #[test]
    fn inverse_functions_find_the_arguments_of_cat_stack_tile_and_pad() {
        let shapes = [vec![2, 3], vec![2, 5]];
        assert_eq!(cat_dim(&[2, 8], &shapes), Ok(1));
        assert!(cat_dim(&[4, 3], &shapes).is_err());
        assert_eq!(cat(-1, &shapes), Ok(vec![2, 8]));
        assert!(cat(0, &shapes).is_err());
        assert!(cat(0, &[]).is_err());
        let alike = [vec![2, 5], vec![2, 5], vec![2, 5]];
        assert_eq!(stack_dim(&[2, 3, 5], &alike), Ok(1));
        assert_eq!(stack(-1, &alike), Ok(vec![2, 5, 3]));
        assert!(stack_dim(&[2, 5], &alike).is_err());
        assert!(stack(0, &shapes).is_err());
        assert!(stack(0, &[]).is_err());
        assert_eq!(tile_repeats(&[1, 4], &[3, 8]), Ok(vec![3, 2]));
        assert!(tile_repeats(&[3], &[4]).is_err());
        assert_eq!(tile(&[1, 4], &[3, 2]), Ok(vec![3, 8]));
        assert_eq!(pad_amounts(&[6, 7], &[8, 7]), Ok(vec![0, 0, 0, 2]));
        assert!(pad_amounts(&[6], &[6]).is_err());
        assert!(pad_amounts(&[6], &[5]).is_err());
        assert_eq!(pad(&[6, 7], &[0, 0, 0, 2]), Ok(vec![8, 7]));
        assert!(pad(&[6], &[0]).is_err());
        assert_eq!(strides(&[2, 3, 4]), Ok(vec![12, 4, 1]));
    }
}
