//! The three CSV cells (shapes, types, formats) of a kernel's inputs or outputs. An empty shape with a type is a
//! scalar, a slot with an undefined type an omitted input. Tools differ in the number of slots: a type behind the last
//! shape is a scalar, a shape behind the last type a tensor of undefined type. The profiler's literal quotes are
//! stripped here and nowhere else.

use super::{Dtype, Slot, Tensor, TensorFormat};

/// Text of the cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignatureCells<'a> {
    /// Such as `"4096,1024;1024"`, with or without the literal quotes.
    pub shapes: &'a str,
    /// Such as `DT_BF16;DT_BF16`.
    pub dtypes: &'a str,
    /// Such as `ND;FRACTAL_NZ`.
    pub formats: &'a str,
}

/// Invalid cells of one side.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CellsError(String);

impl SignatureCells<'_> {
    /// Parses the cells into slots; empty slots at the end are removed.
    pub fn parse(self) -> Result<Vec<Slot>, CellsError> {
        let shapes = strip_quotes(self.shapes);
        let dtypes = absent_to_empty(self.dtypes.trim());
        if matches!(shapes, "N/A" | "NA" | "NULL" | "None") || (shapes.is_empty() && dtypes.is_empty()) {
            return Ok(Vec::new());
        }
        let formats = absent_to_empty(self.formats.trim());
        let dtype_slots: Vec<&str> = if dtypes.is_empty() { Vec::new() } else { dtypes.split(';').collect() };
        let format_slots: Vec<&str> =
            if formats.is_empty() { Vec::new() } else { formats.split(';').collect() };
        let shape_slots: Vec<&str> = shapes.split(';').collect();
        let mut slots = Vec::with_capacity(shape_slots.len());
        for (index, shape) in shape_slots.iter().enumerate() {
            let dims = parse_dims(shape, index, shapes)?;
            let dtype = dtype_slots.get(index).and_then(|name| Dtype::parse(name));
            let format = match format_slots.get(index).map(|name| name.trim()) {
                None | Some("") => Some(TensorFormat::nd()),
                Some(name) => TensorFormat::parse(name),
            };
            slots.push(match (dtype, format) {
                (Some(dtype), Some(format)) => Some(Tensor { dims, dtype, format }),
                (_, _) if dims.is_empty() => None,
                (None, _)
                    if dtype_slots.is_empty()
                        || dtype_slots.get(index).is_some_and(|name| name.trim().is_empty()) =>
                {
                    return Err(CellsError(format!("slot {index} has a shape but no type")));
                }
                // A slot with a shape is a tensor, even with an undefined type or behind the last type.
                (dtype, format) => Some(Tensor {
                    dims,
                    dtype: dtype.unwrap_or_else(Dtype::undefined),
                    format: format.unwrap_or_else(TensorFormat::nd),
                }),
            });
        }
        // Some tools leave out the empty shapes at the end.
        let further = dtype_slots.iter().enumerate().skip(shape_slots.len());
        slots.extend(further.map(|(index, name)| scalar_slot(name, format_slots.get(index).copied())));
        while slots.last().is_some_and(Option::is_none) {
            slots.pop();
        }
        Ok(slots)
    }
}

/// Returns the slot of a type without a shape: a scalar, or an omitted input for an undefined type.
fn scalar_slot(dtype: &str, format: Option<&str>) -> Slot {
    let format = match format.map(str::trim) {
        None | Some("") => TensorFormat::nd(),
        Some(name) => TensorFormat::parse(name)?,
    };
    Some(Tensor { dims: Vec::new(), dtype: Dtype::parse(dtype)?, format })
}

/// Strips blanks, and the layer of literal quotes of the profiler's shape cells.
fn strip_quotes(cell: &str) -> &str {
    let cell = cell.trim();
    cell.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(cell).trim()
}

fn absent_to_empty(cell: &str) -> &str {
    if matches!(cell, "N/A" | "NA") { "" } else { cell }
}

/// Parses `4096,1,128`, also with one pair of parentheses and blanks; empty for a scalar.
fn parse_dims(shape: &str, slot: usize, cell: &str) -> Result<Vec<u64>, CellsError> {
    let shape = shape.trim();
    let shape = shape.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or(shape).trim();
    if shape.is_empty() {
        return Ok(Vec::new());
    }
    shape
        .split(',')
        .map(|dim| {
            let dim = dim.trim();
            let digits = !dim.is_empty() && dim.len() <= 18 && dim.bytes().all(|byte| byte.is_ascii_digit());
            digits
                .then(|| dim.parse().ok())
                .flatten()
                .ok_or_else(|| CellsError(format!("`{dim}` is not a dimension (slot {slot} of `{cell}`)")))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(shapes: &str, dtypes: &str, formats: &str) -> Result<Vec<Slot>, CellsError> {
        SignatureCells { shapes, dtypes, formats }.parse()
    }

    #[test]
    fn scalars_are_slots() {
        let slots = parse("\"4096;\"", "FLOAT;FLOAT", "ND;ND").expect("a tensor and a scalar");
        assert_eq!(slots.len(), 2);
        assert!(slots[1].as_ref().is_some_and(Tensor::is_scalar));
        assert_eq!(parse("\"\"", "INT32", "ND").expect("a scalar").len(), 1);
        assert_eq!(parse("\";;\"", "DOUBLE;DOUBLE;DOUBLE", "ND;ND;ND").expect("three scalars").len(), 3);
    }

    #[test]
    fn omitted_slots_are_kept_except_at_end() {
        let slots =
            parse("1,2;;3;;", "FLOAT;DT_UNDEFINED;INT8;UNDEFINED;DT_UNDEFINED", "ND;NULL;ND;NULL;NULL")
                .expect("optional inputs left out");
        assert_eq!(slots.len(), 3);
        assert!(slots[1].is_none());
        assert_eq!(parse("N/A", "N/A", "N/A"), Ok(Vec::new()));
    }

    #[test]
    fn text_is_refused_as_a_shape() {
        for cell in ["__import__('os')", "4096;$(reboot)", "-1,4", "1e3", "4,,4", "99999999999999999999"] {
            assert!(
                parse(cell, "FLOAT;FLOAT", "ND;ND")
                    .is_err_and(|error| error.0.contains("is not a dimension")),
                "{cell}"
            );
        }
        for types in ["", "FLOAT;"] {
            let error = parse("4;4", types, "ND").expect_err("a shape without a type");
            assert!(error.0.contains("has a shape but no type"), "{error}");
        }
    }

    /// Rows of `MaskedFill` and `Slice` that another tool's grid writes.
    #[test]
    fn slots_with_only_a_type_or_only_a_shape_at_the_end_are_read() {
        let scalar =
            parse("\"1,128;1,128\"", "INT32;BOOL;INT32", "ND;ND;ND").expect("a scalar behind tensors");
        assert_eq!(Ok(scalar), parse("1,128;1,128;", "INT32;BOOL;INT32", "ND;ND;ND"));
        let omitted = parse("4", "FLOAT;DT_UNDEFINED", "ND;NULL").expect("an omitted input behind a tensor");
        assert_eq!(Ok(omitted), parse("4", "FLOAT", "ND"));
        let slots = parse("1,128;2;2;2;2", "INT32;INT64;INT64", "ND;ND;ND").expect("shapes behind the types");
        let last = slots.last().and_then(Option::as_ref).expect("a tensor");
        assert!(slots.len() == 5 && last.dtype.is_undefined() && last.dims == [2], "{last}");
    }

    proptest! {
        #[test]
        fn any_cells_are_handled(shapes in "[0-9,;()\" NA/-]{0,30}", dtypes in "[A-Z_0-9;]{0,30}", formats in "[A-Z_;]{0,30}") {
            let _ = parse(&shapes, &dtypes, &formats);
        }
    }
}
