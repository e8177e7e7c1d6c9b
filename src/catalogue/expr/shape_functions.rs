//! What expressions can do with shapes beyond arithmetic, each with the question that it answers backwards:
//! which order makes this output, which dimensions were summed, where tensors were joined.

/// The place of a dimension that may be counted from the end.
fn place(dim: i64, rank: usize) -> Result<usize, String> {
    let wrapped = if dim < 0 {
        usize::try_from(dim.unsigned_abs()).ok().and_then(|back| rank.checked_sub(back))
    } else {
        usize::try_from(dim).ok()
    };
    wrapped.filter(|place| *place < rank).ok_or_else(|| format!("there is no dimension {dim} among {rank}"))
}

fn places(dims: &[i64], rank: usize) -> Result<Vec<usize>, String> {
    let places: Vec<usize> = dims.iter().map(|dim| place(*dim, rank)).collect::<Result<_, _>>()?;
    match places.iter().enumerate().find(|(index, place)| places[..*index].contains(place)) {
        Some((_, place)) => Err(format!("dimension {place} is named twice")),
        None => Ok(places),
    }
}

fn signed(places: impl IntoIterator<Item = usize>) -> Vec<i64> {
    places.into_iter().map(|place| i64::try_from(place).unwrap_or(i64::MAX)).collect()
}

/// The dimensions in another order.
pub(crate) fn permuted(dims: &[i64], order: &[i64]) -> Result<Vec<i64>, String> {
    let order = places(order, dims.len())?;
    if order.len() != dims.len() {
        return Err(format!("an order of {} for {} dimensions", order.len(), dims.len()));
    }
    Ok(order.into_iter().map(|place| dims[place]).collect())
}

/// The first order that makes one shape of the other and moves something.
pub(crate) fn permutation(from: &[i64], to: &[i64]) -> Result<Vec<i64>, String> {
    let mut order = Vec::new();
    if from.len() == to.len() && from.len() <= MOST_DIMS && ordered(from, to, &mut order) {
        return Ok(signed(order));
    }
    Err("no order of the input's dimensions gives the output".to_owned())
}

/// CANN's tensors have no more dimensions.
const MOST_DIMS: usize = 8;

fn ordered(from: &[i64], to: &[i64], order: &mut Vec<usize>) -> bool {
    let at = order.len();
    if at == to.len() {
        return order.iter().enumerate().any(|(index, place)| index != *place);
    }
    for place in 0..from.len() {
        if from[place] == to[at] && !order.contains(&place) {
            order.push(place);
            if ordered(from, to, order) {
                return true;
            }
            order.pop();
        }
    }
    false
}

/// The shape without these dimensions, or with 1 in their place.
pub(crate) fn reduced(dims: &[i64], over: &[i64], keep: bool) -> Result<Vec<i64>, String> {
    let over = places(over, dims.len())?;
    let each = dims.iter().enumerate();
    Ok(each
        .filter_map(|(index, dim)| match over.contains(&index) {
            true => keep.then_some(1),
            false => Some(*dim),
        })
        .collect())
}

/// So many dimensions that are gone from the output, or 1 in it: the last ones that fit.
pub(crate) fn axes(from: &[i64], to: &[i64], count: i64) -> Result<Vec<i64>, String> {
    let wanted = usize::try_from(count).ok().filter(|wanted| (1..=from.len()).contains(wanted));
    let wanted = wanted.ok_or_else(|| format!("{count} of {} dimensions", from.len()))?;
    if from.len() <= MOST_DIMS {
        // Bit n is the n-th dimension from the end, so that the last ones come first.
        let last_first = (0_u32..1 << from.len()).filter(|set| set.count_ones() as usize == wanted);
        for set in last_first {
            let over = signed((0..from.len()).filter(|index| set & (1 << (from.len() - 1 - index)) != 0));
            let keep = from.len() == to.len();
            if reduced(from, &over, keep)? == to {
                return Ok(over);
            }
        }
    }
    Err(format!("no {wanted} of the input's dimensions can be gone from the output"))
}

/// The shape of tensors joined along a dimension.
pub(crate) fn joined(along: i64, shapes: &[&[i64]]) -> Result<Vec<i64>, String> {
    let first = shapes.first().ok_or("nothing to join")?;
    let along = place(along, first.len())?;
    let mut whole = first.to_vec();
    for shape in &shapes[1..] {
        let fits = shape.len() == first.len()
            && (0..first.len()).all(|index| index == along || shape[index] == first[index]);
        if !fits {
            return Err(format!(
                "tensors differ in other dimensions than {along}, along which they are joined"
            ));
        }
        whole[along] = whole[along].checked_add(shape[along]).ok_or("does not fit 63 bits")?;
    }
    Ok(whole)
}

/// The dimension along which tensors were joined.
pub(crate) fn joint(whole: &[i64], shapes: &[&[i64]]) -> Result<i64, String> {
    (0..i64::try_from(whole.len()).unwrap_or_default())
        .find(|along| joined(*along, shapes).is_ok_and(|shape| shape == whole))
        .ok_or_else(|| "joined along no dimension the inputs give the output".to_owned())
}

/// The shape of tensors of one shape stacked along a new dimension.
pub(crate) fn stacked(along: i64, shapes: &[&[i64]]) -> Result<Vec<i64>, String> {
    let first = shapes.first().ok_or("nothing to stack")?;
    let along = place(along, first.len() + 1)?;
    if shapes.iter().any(|shape| shape != first) {
        return Err("tensors that are stacked have one shape".to_owned());
    }
    let mut whole = first.to_vec();
    whole.insert(along, i64::try_from(shapes.len()).map_err(|_| "too many tensors")?);
    Ok(whole)
}

/// The new dimension along which tensors were stacked.
pub(crate) fn stacking(whole: &[i64], shapes: &[&[i64]]) -> Result<i64, String> {
    (0..i64::try_from(whole.len()).unwrap_or_default())
        .find(|along| stacked(*along, shapes).is_ok_and(|shape| shape == whole))
        .ok_or_else(|| "stacked along no dimension the inputs give the output".to_owned())
}

/// The shape repeated so often along each dimension.
pub(crate) fn tiled(dims: &[i64], times: &[i64]) -> Result<Vec<i64>, String> {
    if dims.len() != times.len() {
        return Err(format!("{} repeats for {} dimensions", times.len(), dims.len()));
    }
    let each = dims.iter().zip(times).map(|(dim, times)| dim.checked_mul(*times));
    each.collect::<Option<_>>().ok_or_else(|| "does not fit 63 bits".to_owned())
}

/// How often a shape is repeated along each dimension.
pub(crate) fn tiles(from: &[i64], to: &[i64]) -> Result<Vec<i64>, String> {
    let is_multiple = |(from, to): (&i64, &i64)| *from > 0 && to % from == 0;
    if from.len() == to.len() && from.iter().zip(to).all(is_multiple) {
        return Ok(from.iter().zip(to).map(|(from, to)| to / from).collect());
    }
    Err("the output is no multiple of the input in each dimension".to_owned())
}

/// The shape with so much in front of and behind each dimension, the last dimension first as torch has it.
pub(crate) fn padded(dims: &[i64], pads: &[i64]) -> Result<Vec<i64>, String> {
    if !pads.len().is_multiple_of(2) || pads.len() / 2 > dims.len() {
        return Err(format!("{} pads for {} dimensions", pads.len(), dims.len()));
    }
    let mut padded = dims.to_vec();
    for (dim, pair) in padded.iter_mut().rev().zip(pads.chunks(2)) {
        let sum = pair.iter().try_fold(*dim, |sum, pad| sum.checked_add(*pad));
        *dim = sum.ok_or("does not fit 63 bits")?;
    }
    Ok(padded)
}

/// What must stand behind each dimension.
pub(crate) fn trailing_pads(from: &[i64], to: &[i64]) -> Result<Vec<i64>, String> {
    if from.len() != to.len() || from.iter().zip(to).any(|(from, to)| to < from) {
        return Err("the output is not the input with something behind it".to_owned());
    }
    if from == to {
        return Err("nothing is added".to_owned());
    }
    Ok(from.iter().zip(to).rev().flat_map(|(from, to)| [0, to - from]).collect())
}

/// How far apart neighbours of each dimension lie, row-major.
pub(crate) fn strides(dims: &[i64]) -> Result<Vec<i64>, String> {
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
    fn orders_are_found() {
        assert_eq!(permutation(&[8192, 1, 6, 6], &[1, 6, 6, 8192]), Ok(vec![1, 2, 3, 0]));
        assert_eq!(permutation(&[4, 4], &[4, 4]), Ok(vec![1, 0]));
        assert!(permutation(&[4], &[4]).is_err());
        assert!(permutation(&[2, 3], &[3, 3]).is_err());
        assert_eq!(permuted(&[2, 3, 4], &[-1, 0, 1]), Ok(vec![4, 2, 3]));
        assert!(permuted(&[2, 3], &[0, 0]).is_err());
        assert!(permuted(&[2, 3], &[0]).is_err());
    }

    #[test]
    fn dimensions_that_are_gone_are_found() {
        assert_eq!(axes(&[32, 256, 169], &[256], 2), Ok(vec![0, 2]));
        assert_eq!(axes(&[32, 4096], &[1, 4096], 1), Ok(vec![0]));
        assert_eq!(axes(&[64, 64], &[64], 1), Ok(vec![1]));
        assert_eq!(axes(&[64], &[], 1), Ok(vec![0]));
        assert!(axes(&[64, 32], &[64, 32], 1).is_err());
        assert!(axes(&[64, 32], &[64], 3).is_err());
        assert_eq!(reduced(&[2, 3, 4], &[-1, 0], true), Ok(vec![1, 3, 1]));
        assert!(reduced(&[2, 3], &[2], false).is_err());
        assert!(reduced(&[2, 3], &[i64::MIN], false).is_err());
    }

    #[test]
    fn joints_repeats_and_pads_are_found() {
        let shapes: [&[i64]; 2] = [&[2, 3], &[2, 5]];
        assert_eq!(joint(&[2, 8], &shapes), Ok(1));
        assert!(joint(&[4, 3], &shapes).is_err());
        assert_eq!(joined(-1, &shapes), Ok(vec![2, 8]));
        assert!(joined(0, &shapes).is_err());
        assert!(joined(0, &[]).is_err());
        let alike: [&[i64]; 3] = [&[2, 5], &[2, 5], &[2, 5]];
        assert_eq!(stacking(&[2, 3, 5], &alike), Ok(1));
        assert_eq!(stacked(-1, &alike), Ok(vec![2, 5, 3]));
        assert!(stacking(&[2, 5], &alike).is_err());
        assert!(stacked(0, &shapes).is_err());
        assert!(stacked(0, &[]).is_err());
        assert_eq!(tiles(&[1, 4], &[3, 8]), Ok(vec![3, 2]));
        assert!(tiles(&[3], &[4]).is_err());
        assert_eq!(tiled(&[1, 4], &[3, 2]), Ok(vec![3, 8]));
        assert_eq!(trailing_pads(&[6, 7], &[8, 7]), Ok(vec![0, 0, 0, 2]));
        assert!(trailing_pads(&[6], &[6]).is_err());
        assert!(trailing_pads(&[6], &[5]).is_err());
        assert_eq!(padded(&[6, 7], &[0, 0, 0, 2]), Ok(vec![8, 7]));
        assert!(padded(&[6], &[0]).is_err());
        assert_eq!(strides(&[2, 3, 4]), Ok(vec![12, 4, 1]));
    }
}
