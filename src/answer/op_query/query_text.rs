//! Shapes, types and formats of a query as text.

use super::query::QueryTensor;
use crate::{
    base::suggest::did_you_mean_or,
    kernel::{Dtype, TensorFormat},
};

/// Text that does not describe the tensors of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueryTextError {
    pub(crate) message: String,
    pub(crate) hint: String,
}

/// Parses `136,5120;5120,768`, also with parentheses around each shape and the quotes of CSVs around all.
pub(crate) fn parse_shapes(text: &str) -> Result<Vec<Vec<u64>>, String> {
    let shapes = text.trim().trim_matches('"');
    let shape = |(at, shape): (usize, &str)| {
        parse_dims(shape).ok_or_else(|| {
            format!(
                "shape {} is `{}`, expected lengths such as `136,5120`, and `;` between shapes",
                at + 1,
                shape.trim()
            )
        })
    };
    shapes.split(';').enumerate().map(shape).collect()
}

/// Parses the lengths of one shape, with or without parentheses; no lengths for a scalar.
pub(crate) fn parse_dims(shape: &str) -> Option<Vec<u64>> {
    let bare = shape.trim();
    let bare = bare.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or(bare);
    let bare = bare.trim();
    let bare = bare.strip_suffix(',').unwrap_or(bare);
    if bare.is_empty() {
        return Some(Vec::new());
    }
    bare.split(',').map(|dim| dim.trim().parse().ok()).collect()
}

/// Splits a list at `;` or `,`; an empty one has no items.
pub(crate) fn split_list(list: &str) -> Vec<String> {
    let items = list.split([';', ',']).map(|item| item.trim().to_owned());
    if list.trim().is_empty() { Vec::new() } else { items.collect() }
}

/// Parses a type in the spelling of torch or of the profiler, in any case.
pub(crate) fn parse_dtype(name: &str) -> Option<Dtype> {
    let name = name.trim();
    let bare = name.strip_prefix("torch.").unwrap_or(name);
    Dtype::from_torch(&bare.to_lowercase()).or_else(|| Dtype::parse(&bare.to_uppercase()))
}

/// Parses a type that a user writes; `None` for a tensor whose type is not compared. The error is for names that are no
/// type of CANN: they would be compared, and equal none.
pub(crate) fn parse_known_dtype(name: &str) -> Result<Option<Dtype>, QueryTextError> {
    let dtype = parse_dtype(name);
    match &dtype {
        Some(dtype) if !dtype.is_of_cann() => Err(QueryTextError {
            message: format!("`{}` is no element type", name.trim()),
            hint: did_you_mean_or(name.trim(), Dtype::cann_names(), || {
                "give a type of torch or of the profiler, such as `bf16`, `float32` or `INT8`".to_owned()
            }),
        }),
        _ => Ok(dtype),
    }
}

/// Parses a format that a user writes, as [`parse_known_dtype`].
fn parse_known_format(name: &str) -> Result<Option<TensorFormat>, QueryTextError> {
    let format = TensorFormat::parse(&name.to_uppercase());
    match &format {
        Some(format) if !format.is_of_cann() => Err(QueryTextError {
            message: format!("`{}` is no format", name.trim()),
            hint: did_you_mean_or(name.trim(), TensorFormat::cann_names(), || {
                "give a format of the profiler, such as `ND` or `FRACTAL_NZ`".to_owned()
            }),
        }),
        _ => Ok(format),
    }
}

/// Returns tensors of these shapes. Types and formats are one for all, or one for each, or none.
pub(crate) fn query_tensors(
    shapes: &[Vec<u64>],
    dtypes: &[String],
    formats: &[String],
) -> Result<Vec<QueryTensor>, QueryTextError> {
    let count = shapes.len();
    let dtypes = spread(dtypes, count, "types", parse_known_dtype)?;
    let formats = spread(formats, count, "formats", parse_known_format)?;
    let tensors = shapes.iter().zip(dtypes).zip(formats);
    Ok(tensors.map(|((dims, dtype), format)| QueryTensor { dims: dims.clone(), dtype, format }).collect())
}

/// Returns the items for `count` tensors; `None` where nothing is given.
fn spread<T: Clone>(
    items: &[String],
    count: usize,
    what: &str,
    parse: impl Fn(&str) -> Result<Option<T>, QueryTextError>,
) -> Result<Vec<Option<T>>, QueryTextError> {
    let items = items.iter().map(|item| parse(item.trim())).collect::<Result<Vec<Option<T>>, _>>()?;
    match items.len() {
        0 => Ok(vec![None; count]),
        1 => Ok(vec![items[0].clone(); count]),
        given if given == count => Ok(items),
        given => Err(QueryTextError {
            message: format!("{given} {what} are given for {count} shapes"),
            hint: format!("give one of the {what} for all shapes, or one for each, with `;` between them"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_read_in_all_usual_spellings() {
        for text in ["1,136;5120,768", "(1, 136);(5120, 768)", "\"1,136;5120,768\"", "(1,136,) ; (5120,768)"]
        {
            assert_eq!(parse_shapes(text).expect(text), [vec![1, 136], vec![5120, 768]], "{text}");
        }
        assert_eq!(parse_shapes("7;;()").expect("scalars"), [vec![7], vec![], vec![]]);
        for text in ["1x2", "-1", "1;a", "1,,2", "((1))", "1,,", "18446744073709551616"] {
            assert!(parse_shapes(text).is_err(), "{text}");
        }
        for (name, hint) in [
            ("bfloat61", "did you mean `BFLOAT16`?"),
            ("bf61", "did you mean `BF16`?"),
            ("bfloot", "give a type"),
        ] {
            let error = parse_known_dtype(name).expect_err(name);
            assert!(error.hint.starts_with(hint), "{name}: {}", error.hint);
        }
        for name in ["bf16", "torch.bfloat16", "DT_BF16", "Int4", "HIFLOAT8", "float8_e4m3fn", "UINT64"] {
            assert!(parse_known_dtype(name).expect(name).is_some(), "{name}");
        }
        assert_eq!(parse_known_dtype(""), Ok(None));
        let problem = parse_shapes("4;4,x").expect_err("a letter");
        assert!(problem.starts_with("shape 2 is `4,x`, expected lengths"), "{problem}");
    }
}
