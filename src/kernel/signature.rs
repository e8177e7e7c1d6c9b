//! Canonical signatures, which decide if two cases are equal.
//!
//! Ingest, grids, write-back, lookup and the ledger compare cases only by signature. In general a signature is the
//! kernel with shape, type and format of each input and output, and the attributes. Some kernels have their own
//! rules, because the profiler shows one computation in several ways:
//!
//! | kernels | rule |
//! |---|---|
//! | MatMulV2, MatMulV3 | `(M,K);(N,K)` in whatever orientation and layout it is stored |
//! | Index | the source, and one index vector as long as the output's first dimension |
//! | Slice, SliceV2, Transpose, TransposeV2 | the first input, row-major |
//! | FusedInferAttentionScore | attributes that repeat what its shapes imply are left out, see [`AttentionCase`] |
//! | those with lengths of keys | a mean and numbers of blocks that follow from the lengths are left out |
//!
//! What a rule leaves out follows from the rest: a row with another value contradicts itself, is a case of its own, and
//! shares no result with the others.
//!
//! The rules hold for every name of a kernel that the catalogue lists; a test of the catalogue compares them.

use super::{
    AttentionCase, Case, CaseAttributes, Cause, Dtype, KernelName, Slot, Tensor, TensorFormat,
    attention::without_derived_values, cause::TensorSide,
};
use crate::base::printable::printable_cell;

pub(super) fn canonical_signature(case: &Case) -> String {
    let by_rule = signature_rule(&case.kernel).and_then(|rule| rule(case));
    by_rule.unwrap_or_else(|| {
        write_signature(case, &signature_slots(&case.inputs), &signature_slots(&case.outputs))
    })
}

/// Returns the case of a signature, with the inputs and attributes that the signature has: what a rule leaves out is lost,
/// such as scalars beside tensors. `None` if the text is not the signature of such a case.
pub(crate) fn case_of_signature(kernel: &KernelName, signature: &str) -> Option<Case> {
    let [inputs, outputs, attributes] = signature_parts(kernel, signature);
    let [inputs, outputs] = [slots_of_signature(inputs)?, slots_of_signature(outputs)?];
    let attributes = CaseAttributes::from_signature(attributes)?;
    let case = Case { kernel: kernel.clone(), inputs, outputs, attributes };
    (canonical_signature(&case) == signature).then_some(case)
}

fn slots_of_signature(text: &str) -> Option<Vec<Slot>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    let slot = |slot: &str| -> Option<Slot> {
        if slot == "-" {
            return Some(None);
        }
        let mut parts = slot.splitn(3, ':');
        let (dims, dtype, format) = (parts.next()?, parts.next()?, parts.next()?);
        let dims = dims.split(',').filter(|dim| !dim.is_empty()).map(|dim| dim.parse().ok());
        Some(Some(Tensor {
            dims: dims.collect::<Option<_>>()?,
            dtype: Dtype::parse(dtype).unwrap_or_else(Dtype::undefined),
            format: TensorFormat::parse(format).unwrap_or_else(TensorFormat::nd),
        }))
    };
    text.split(';').map(slot).collect()
}

/// Returns inputs, outputs and attributes of a signature; the kernel's name may contain the separator `|`.
pub(crate) fn signature_parts<'a>(kernel: &KernelName, signature: &'a str) -> [&'a str; 3] {
    let slots = signature.strip_prefix(kernel.as_str()).and_then(|rest| rest.strip_prefix('|'));
    let mut parts = slots.unwrap_or_default().splitn(3, '|');
    [(); 3].map(|()| parts.next().unwrap_or_default())
}

/// Returns the dimensions of all slots, and the signature without them: cases with the same rest differ only in size.
pub(crate) fn split_signature_dims(kernel: &KernelName, signature: &str) -> (Vec<u64>, String) {
    let [inputs, outputs, attributes] = signature_parts(kernel, signature);
    let mut dims = Vec::new();
    let mut rest = String::with_capacity(signature.len());
    for slot in inputs.split(';').chain(outputs.split(';')) {
        let (shape, form) = slot.split_once(':').unwrap_or(("", slot));
        let before = dims.len();
        dims.extend(shape.split(',').filter_map(|dim| dim.parse::<u64>().ok()));
        push_number(&mut rest, (dims.len() - before) as u64);
        rest.push(':');
        rest.push_str(form);
        rest.push(';');
    }
    rest.push_str(attributes);
    (dims, rest)
}

fn signature_rule(kernel: &KernelName) -> Option<fn(&Case) -> Option<String>> {
    match kernel.as_str() {
        "MatMulV2" | "MatMulCommon" | "MatMulV3" | "MatMulV3Common" => Some(matmul_signature),
        "Index" | "IndexAiCore" => Some(index_signature),
        "Slice" | "SliceAiCore" | "SliceV2" | "SliceV2AiCore" | "Transpose" | "TransposeAiCore"
        | "TransposeV2" | "TransposeV2AiCore" => Some(first_input_signature),
        _ => None,
    }
}

#[derive(Clone, Copy)]
struct SignatureSlot<'a> {
    dims: &'a [u64],
    dtype: &'a Dtype,
    format: &'a str,
}

fn signature_slot(tensor: &Tensor) -> SignatureSlot<'_> {
    SignatureSlot { dims: &tensor.dims, dtype: &tensor.dtype, format: tensor.format.as_str() }
}

/// Returns the slots of one side, without scalars beside tensors, whose types differ between tools. Without tensors
/// the types are kept: an `Add` of two INT64 scalars takes three times as long as one of two FLOAT.
fn signature_slots(slots: &[Slot]) -> Vec<Option<SignatureSlot<'_>>> {
    let only_scalars = slots.iter().flatten().all(Tensor::is_scalar);
    let is_shown = |slot: &&Tensor| only_scalars || !slot.is_scalar();
    slots.iter().map(|slot| slot.as_ref().filter(is_shown).map(signature_slot)).collect()
}

fn write_signature(
    case: &Case,
    inputs: &[Option<SignatureSlot<'_>>],
    outputs: &[Option<SignatureSlot<'_>>],
) -> String {
    let mut text = String::with_capacity(128);
    text.push_str(case.kernel.as_str());
    for slots in [inputs, outputs] {
        text.push('|');
        let count = slots.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        for (index, slot) in slots[..count].iter().enumerate() {
            if index > 0 {
                text.push(';');
            }
            let Some(tensor) = slot else {
                text.push('-');
                continue;
            };
            for (position, dim) in tensor.dims.iter().enumerate() {
                if position > 0 {
                    text.push(',');
                }
                push_number(&mut text, *dim);
            }
            for name in [tensor.dtype.as_str(), tensor.format] {
                text.push(':');
                text.push_str(name);
            }
        }
    }
    let implied = match case.kernel.as_str() {
        AttentionCase::KERNEL => AttentionCase::new(case).implied_attributes(),
        _ => CaseAttributes::default(),
    };
    without_derived_values(case, case.attributes.without(&implied)).append_to(&mut text);
    text
}

/// Appends a number. Grids compute millions of signatures, and most of the time would be formatting.
fn push_number(text: &mut String, number: u64) {
    let (mut digits, mut first, mut rest) = ([b'0'; 20], 20, number);
    loop {
        first -= 1;
        digits[first] = b'0' + u8::try_from(rest % 10).unwrap_or_default();
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    text.extend(digits[first..].iter().map(|digit| char::from(*digit)));
}

fn matmul_signature(case: &Case) -> Option<String> {
    let (a, b) = (case.inputs.first()?.as_ref()?, case.inputs.get(1)?.as_ref()?);
    let output = case.outputs.first()?.as_ref()?;
    let &[m, n] = output.dims.as_slice() else { return None };
    let k = shared_dim((a, m), (b, n))?;
    let mut inputs = signature_slots(&case.inputs);
    let (left, right) = ([m, k], [n, k]);
    inputs[0] = Some(SignatureSlot { dims: &left, ..signature_slot(a) });
    inputs[1] = Some(SignatureSlot { dims: &right, ..signature_slot(b) });
    Some(write_signature(case, &inputs, &signature_slots(&case.outputs)))
}

/// Length of a stored dimension, padded to whole blocks, and the size of the block.
type StoredDim = (u64, u64);

/// Returns the other dimension for each dimension of a stored matrix that may be `outer`. The four dimensions of FRACTAL_NZ are
/// (⌈c/c0⌉, ⌈r/r0⌉, r0, c0) for r rows and c columns.
fn other_dims(tensor: &Tensor, outer: u64) -> Option<Vec<StoredDim>> {
    let [rows, columns] = match (tensor.dims.as_slice(), tensor.format.as_str()) {
        (&[rows, columns], _) => [(rows, 1), (columns, 1)],
        (&[c1, r1, r0, c0], "FRACTAL_NZ") if r0 > 0 && c0 > 0 => {
            [(r1.checked_mul(r0)?, r0), (c1.checked_mul(c0)?, c0)]
        }
        _ => return None,
    };
    let pairs = [(rows, columns), (columns, rows)].into_iter();
    Some(pairs.filter(|(one, _)| is_padded_length(*one, outer)).map(|(_, other)| other).collect())
}

/// Returns true if a stored dimension is the length, padded to complete blocks.
fn is_padded_length((stored, block): StoredDim, length: u64) -> bool {
    length.div_ceil(block).checked_mul(block) == Some(stored)
}

/// Returns the contracted dimension of two matrices with their dimensions of the output. The output decides which
/// dimension of a matrix is contracted, so that a square operand is not ambiguous.
fn shared_dim((a, m): (&Tensor, u64), (b, n): (&Tensor, u64)) -> Option<u64> {
    let others = other_dims(b, n)?;
    let pairs = other_dims(a, m)?.into_iter().flat_map(|one| others.iter().map(move |other| (one, *other)));
    // The dimension with the smaller block is more exact.
    let mut ordered = pairs.map(|(one, other)| if one.1 <= other.1 { (one, other) } else { (other, one) });
    ordered.find(|(exact, rough)| is_padded_length(*rough, exact.0)).map(|(exact, _)| exact.0)
}

/// Returns source, index length and output, which determine the sizes and strides that the profiler lists. `None` if the
/// recorded slots contradict each other, so that such a row is a case of its own.
fn index_signature(case: &Case) -> Option<String> {
    let source = case.inputs.first()?.as_ref()?;
    let further: Vec<&Tensor> = case.inputs.iter().skip(1).map(Option::as_ref).collect::<Option<_>>()?;
    let output = &case.outputs.first()?.as_ref()?.dims;
    // The slots beside the indices are the number of indexed dimensions, and the dimensions of the output.
    let (count, indices) = match further.as_slice() {
        [indices] => (1, indices),
        [one, sizes, indices] if is_host_vector(one, 1) && is_host_vector(sizes, output.len()) => {
            (1, indices)
        }
        // A grid writes the number of rows and a 1 in place of the two.
        [one, indices, other] if is_host_vector(one, 1) && is_host_vector(other, 1) => (1, indices),
        [two, sizes, indices, same]
            if is_host_vector(two, 2)
                && is_host_vector(sizes, output.len())
                && (&indices.dims, &indices.dtype) == (&same.dims, &same.dtype) =>
        {
            (2, indices)
        }
        _ => return None,
    };
    let selected = indices.dims.iter().chain(source.dims.get(count..)?);
    if indices.is_scalar() || !selected.eq(output) {
        return None;
    }
    let dims = [*output.first()?];
    let inputs =
        [Some(signature_slot(source)), Some(SignatureSlot { dims: &dims, ..signature_slot(indices) })];
    Some(write_signature(case, &inputs, &signature_slots(&case.outputs)))
}

/// Returns true for a list of whole numbers of that length, which the kernel reads from the host.
fn is_host_vector(tensor: &Tensor, length: usize) -> bool {
    let is_whole = matches!(tensor.dtype, Dtype::Int32 | Dtype::Int64) || tensor.dtype.is_undefined();
    is_whole && matches!(*tensor.dims, [found] if usize::try_from(found) == Ok(length))
}

/// Returns the first input and the output, which determine the offsets, sizes and permutations of further inputs. `None` if
/// one of these has not a number for each dimension, or the first is in blocks.
fn first_input_signature(case: &Case) -> Option<String> {
    let source = case.inputs.first()?.as_ref()?;
    let further = case.inputs.iter().skip(1).flatten();
    let is_determined = |tensor: &Tensor| tensor.is_scalar() || is_host_vector(tensor, source.dims.len());
    if matches!(source.format, TensorFormat::Private(_)) || !further.into_iter().all(is_determined) {
        return None;
    }
    let plain = TensorFormat::nd();
    let inputs = [Some(SignatureSlot { format: plain.as_str(), ..signature_slot(source) })];
    Some(write_signature(case, &inputs, &signature_slots(&case.outputs)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignatureCells<'a> {
    pub shapes: &'a str,
    pub dtypes: &'a str,
    pub formats: &'a str,
}

/// Returns true for a word that can be the vendor's name of a type, a format or a unit, such as `FRACTAL_NZ`. A spreadsheet takes
/// others for formulas.
pub(crate) fn is_vendor_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '_')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte))
}

impl SignatureCells<'_> {
    pub fn parse(self) -> Result<Vec<Slot>, String> {
        let list =
            |cell| if str::is_empty(cell) { Vec::new() } else { cell.split(';').map(str::trim).collect() };
        // The profiler writes literal quotes around shapes.
        let shapes = self.shapes.trim();
        let shapes =
            shapes.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(shapes).trim();
        let dtypes = absent_to_empty(self.dtypes.trim());
        if matches!(shapes, "N/A" | "NA" | "NULL" | "None") || (shapes.is_empty() && dtypes.is_empty()) {
            return Ok(Vec::new());
        }
        let dtype_slots: Vec<&str> = list(dtypes);
        let format_slots: Vec<&str> = list(absent_to_empty(self.formats.trim()));
        for (noun, names) in [("type", &dtype_slots), ("format", &format_slots)] {
            if let Some(wrong) =
                names.iter().find(|name| !matches!(**name, "" | "N/A") && !is_vendor_name(name))
            {
                return Err(format!("`{}` is no name of a {noun}", printable_cell(wrong)));
            }
        }
        let shape_slots: Vec<&str> = shapes.split(';').collect();
        // Some tools leave out the empty shapes at the end.
        let count = shape_slots.len().max(dtype_slots.len());
        let mut slots = Vec::with_capacity(count);
        for index in 0..count {
            let dims = parse_dims(shape_slots.get(index).unwrap_or(&""), index, shapes)?;
            let dtype = dtype_slots.get(index).and_then(|name| Dtype::parse(name));
            let format = match format_slots.get(index) {
                None | Some(&"") => Some(TensorFormat::nd()),
                Some(name) => TensorFormat::parse(name),
            };
            slots.push(match (dtype, format) {
                (Some(dtype), Some(format)) => Some(Tensor { dims, dtype, format }),
                (_, _) if dims.is_empty() => None,
                (None, _) if dtype_slots.is_empty() || dtype_slots.get(index) == Some(&"") => {
                    return Err(format!("slot {index} has a shape but no type"));
                }
                // A slot with a shape is a tensor, even with an undefined type or behind the last type.
                (dtype, format) => Some(Tensor {
                    dims,
                    dtype: dtype.unwrap_or_else(Dtype::undefined),
                    format: format.unwrap_or_else(TensorFormat::nd),
                }),
            });
        }
        while slots.last().is_some_and(Option::is_none) {
            slots.pop();
        }
        Ok(slots)
    }
}

fn absent_to_empty(cell: &str) -> &str {
    if matches!(cell, "N/A" | "NA") { "" } else { cell }
}

/// Parses `4096,1,128`, also with one pair of parentheses and blanks; empty for a scalar.
fn parse_dims(shape: &str, slot: usize, cell: &str) -> Result<Vec<u64>, String> {
    let shape = shape.trim();
    let shape = shape.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or(shape).trim();
    if shape.is_empty() {
        return Ok(Vec::new());
    }
    let dims = shape.split(',').map(str::trim).map(|dim| {
        let digits = Some(dim).filter(|dim| dim.len() <= 18 && dim.bytes().all(|byte| byte.is_ascii_digit()));
        let number = digits.and_then(|digits| digits.parse().ok());
        number.ok_or_else(|| format!("`{dim}` is not a dimension (slot {slot} of `{cell}`)"))
    });
    dims.collect()
}

type NumberedSlots<'a> = Vec<(usize, &'a Slot)>;

/// Returns the first difference between a case and a record, inputs in `host_slots` left out; `None` if they match.
pub(crate) fn signature_mismatch(
    case: &Case,
    host_slots: &[usize],
    recorded_inputs: &[Slot],
    recorded_outputs: &[Slot],
) -> Option<Cause> {
    let compared = |(slot, _): &(usize, &Slot)| !host_slots.contains(slot);
    let [inputs, recorded] = [case.inputs.as_slice(), recorded_inputs]
        .map(|slots| slots.iter().enumerate().filter(compared).collect::<NumberedSlots<'_>>());
    let mismatch = side_mismatch(TensorSide::Input, &inputs, &recorded);
    if mismatch.is_some() || case.outputs.is_empty() || recorded_outputs.is_empty() {
        // Kernels that work in place show no outputs.
        return mismatch;
    }
    // Omitted results follow the others without dimensions, or are not shown.
    let length = case.outputs.len().min(recorded_outputs.len());
    let is_shown = |slot: &Slot| slot.as_ref().is_some_and(|tensor| !tensor.is_scalar());
    let [outputs, recorded] = [case.outputs.as_slice(), recorded_outputs].map(|slots| {
        let shown = slots.iter().rposition(is_shown).map_or(0, |last| last + 1);
        slots[..shown.max(length)].iter().enumerate().collect::<NumberedSlots<'_>>()
    });
    side_mismatch(TensorSide::Output, &outputs, &recorded)
}

fn side_mismatch(
    side: TensorSide,
    expected: &NumberedSlots<'_>,
    recorded: &NumberedSlots<'_>,
) -> Option<Cause> {
    if expected.len() != recorded.len() {
        return Some(Cause::SlotCount { side, recorded: recorded.len(), expected: expected.len() });
    }
    let mut pairs = expected.iter().zip(recorded);
    let ((slot, expected), (_, recorded)) =
        pairs.find(|((_, expected), (_, recorded))| !slots_match(expected, recorded))?;
    let text = |slot: &Slot| slot.as_ref().map(ToString::to_string);
    Some(Cause::OtherSlot { side, slot: *slot, recorded: text(recorded), expected: text(expected) })
}

fn slots_match(expected: &Slot, recorded: &Slot) -> bool {
    match (expected, recorded) {
        // The framework selects the type of a scalar, not the caller.
        (Some(expected), Some(recorded)) => {
            expected.dims == recorded.dims
                && (expected.is_scalar()
                    || (expected.dtype.may_be_recorded_as(&recorded.dtype)
                        && expected.format.same_layout(&recorded.format)))
        }
        (None, None) => true,
        // The library that launches shows an omitted slot as empty or without dimensions.
        (Some(only), None) | (None, Some(only)) => only.is_scalar(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kernel::{CaseAttributes, KernelName};

    fn slots([shapes, dtypes, formats]: [&str; 3]) -> Vec<Slot> {
        SignatureCells { shapes, dtypes, formats }.parse().expect("readable cells")
    }

    fn case(kernel: &str, inputs: [&str; 3], outputs: [&str; 3]) -> Case {
        Case {
            kernel: KernelName::new(kernel).expect("a name"),
            inputs: slots(inputs),
            outputs: slots(outputs),
            attributes: CaseAttributes::default(),
        }
    }

    fn gemm(shapes: &str, formats: &str, output: &str) -> String {
        canonical_signature(&case(
            "MatMulV2",
            [shapes, "DT_BF16;DT_BF16", formats],
            [output, "DT_BF16", "ND"],
        ))
    }

    #[test]
    fn cases_come_back_from_their_signatures() {
        let kernel = KernelName::new("Add").expect("a name");
        let mut with = case("Add", ["2,3;4", "DT_BF16;FLOAT", "ND;ND"], ["2,3", "FLOAT", "ND"]);
        with.attributes.set("Runtime note", "50%;a=b|c");
        let signature = canonical_signature(&with);
        assert_eq!(case_of_signature(&kernel, &signature), Some(with));
        let scalar = case("Add", ["2;", "FLOAT;FLOAT", "ND;ND"], ["2", "FLOAT", "ND"]);
        let found = case_of_signature(&kernel, &canonical_signature(&scalar)).expect("a case");
        assert_eq!((found.id(), found.inputs.len()), (scalar.id(), 1), "without the scalar");
        for other in
            ["Add|2:FLOAT|2:FLOAT:ND", "Add|x:FLOAT:ND|", "Add", "Mul|2:FLOAT:ND|", "Add|2:FLOAT:ND||no"]
        {
            assert_eq!(case_of_signature(&kernel, other), None, "{other}");
        }
    }

    #[test]
    fn four_matmul_orientations_have_one_signature() {
        let expected = "MatMulV2|32,4096:DT_BF16:ND;1024,4096:DT_BF16:ND|32,1024:DT_BF16:ND";
        for shapes in ["32,4096;1024,4096", "32,4096;4096,1024", "4096,32;1024,4096", "4096,32;4096,1024"] {
            assert_eq!(gemm(shapes, "ND;ND", "32,1024"), expected, "{shapes}");
        }
        assert_ne!(gemm("32,4096;512,4096", "ND;ND", "32,512"), expected);
        // Written by other kernels, it is another case.
        let other = case("MatMulV3", ["32,4096;1024,4096", "BF16;BF16", "ND;ND"], ["32,1024", "BF16", "ND"]);
        assert_ne!(canonical_signature(&other), expected);
    }

    #[test]
    fn blocked_weights_have_signature_of_their_matrix() {
        // Recorded on a 910B: 64 blocks of 16 columns, 160 of 16 rows.
        let blocked = gemm("1,1024;64,160,16,16", "ND;FRACTAL_NZ", "1,2560");
        assert_eq!(blocked, "MatMulV2|1,1024:DT_BF16:ND;2560,1024:DT_BF16:FRACTAL_NZ|1,2560:DT_BF16:ND");
        assert_eq!(gemm("1,1024;2560,1024", "ND;FRACTAL_NZ", "1,2560"), blocked);
        assert_eq!(gemm("1,1024;160,64,16,16", "ND;FRACTAL_NZ", "1,2560"), blocked, "stored (K,N)");
        assert_ne!(gemm("1,1024;2560,1024", "ND;ND", "1,2560"), blocked, "the layout decides the time");
        // K = 1000 and N = 100 fill 63 and 7 blocks.
        assert_eq!(
            gemm("8,1000;63,7,16,16", "ND;FRACTAL_NZ", "8,100"),
            gemm("8,1000;100,1000", "ND;FRACTAL_NZ", "8,100")
        );
        // Eight-bit blocks are 32 wide.
        assert_eq!(
            gemm("8,4096;128,16,16,32", "ND;FRACTAL_NZ", "8,256"),
            gemm("8,4096;256,4096", "ND;FRACTAL_NZ", "8,256")
        );
    }

    #[test]
    fn inconsistent_matmul_shapes_are_kept_in_signature() {
        let odd = gemm("32,4096;1024,512", "ND;ND", "32,1024");
        assert_eq!(odd, "MatMulV2|32,4096:DT_BF16:ND;1024,512:DT_BF16:ND|32,1024:DT_BF16:ND");
        let batched = case("MatMulV2", ["2,8,4;4,8", "BF16;BF16", "ND;ND"], ["2,8,8", "BF16", "ND"]);
        assert!(canonical_signature(&batched).starts_with("MatMulV2|2,8,4:"));
    }

    #[test]
    fn matmul_bias_changes_signature() {
        let with = case("MatMulV2", ["8,64;32,64;32", "BF16;BF16;BF16", "ND;ND;ND"], ["8,32", "BF16", "ND"]);
        assert!(canonical_signature(&with).contains("8,64:DT_BF16:ND;32,64:DT_BF16:ND;32:DT_BF16:ND|"));
        let transposed =
            case("MatMulV2", ["8,64;64,32;32", "BF16;BF16;BF16", "ND;ND;ND"], ["8,32", "BF16", "ND"]);
        assert_eq!(canonical_signature(&transposed), canonical_signature(&with));
    }

    #[test]
    fn index_signature_has_source_and_length() {
        let one = case(
            "Index",
            ["4096,128;1;2;77", "BF16;INT64;INT64;INT64", "ND;ND;ND;ND"],
            ["77,128", "BF16", "ND"],
        );
        let other = case("Index", ["4096,128;77", "BF16;INT64", "ND;ND"], ["77,128", "BF16", "ND"]);
        assert_eq!(canonical_signature(&one), "Index|4096,128:DT_BF16:ND;77:INT64:ND|77,128:DT_BF16:ND");
        assert_eq!(canonical_signature(&one), canonical_signature(&other));
        for wrong in
            ["4096,128;1;9;8", "4096,128;1;2;76", "4096,128;2;2;77", "4096,128;1;77;2", "4096,128;76"]
        {
            let count = wrong.matches(';').count();
            let dtypes = ["BF16;INT64", "BF16;INT64;INT64", "BF16;INT64;INT64;INT64"][count - 1];
            let wrong = case("Index", [wrong, dtypes, ""], ["77,128", "BF16", "ND"]);
            assert_ne!(canonical_signature(&wrong), canonical_signature(&one), "{}", wrong.shapes());
        }
    }

    #[test]
    fn slice_and_transpose_signatures_have_first_input_only() {
        for kernel in ["Slice", "SliceAiCore", "Transpose", "TransposeAiCore"] {
            let one = case(kernel, ["64,128;2;2", "BF16;INT64;INT64", "NCHW;ND;ND"], ["64,32", "BF16", "ND"]);
            let other = case(kernel, ["64,128;2", "BF16;INT32", "ND;ND"], ["64,32", "BF16", "ND"]);
            assert_eq!(canonical_signature(&one), canonical_signature(&other));
            assert_eq!(canonical_signature(&one), format!("{kernel}|64,128:DT_BF16:ND|64,32:DT_BF16:ND"));
            let wrong = case(kernel, ["64,128;5", "BF16;INT64", "NCHW;ND"], ["64,32", "BF16", "ND"]);
            assert_ne!(
                canonical_signature(&one),
                canonical_signature(&wrong),
                "five numbers of two dimensions"
            );
        }
    }

    #[test]
    fn scalar_types_count_only_without_tensors() {
        let add = |shapes: &str, dtypes: &str| {
            canonical_signature(&case("Add", [shapes, dtypes, ""], ["", "", ""]))
        };
        assert_eq!(add("4096;", "FLOAT;FLOAT"), add("4096", "FLOAT"));
        assert_eq!(add(";4096", "INT64;FLOAT"), add(";4096", "DT_UNDEFINED;FLOAT"));
        assert_ne!(add(";4096", "FLOAT;FLOAT"), add("4096;", "FLOAT;FLOAT"));
        assert_ne!(add(";", "INT64;INT64"), add(";", "FLOAT;FLOAT"));
    }

    #[test]
    fn signature_is_split_behind_a_kernel_name_with_separators() {
        for kernel in ["Add", "a|b", "|", "a|"] {
            let text =
                canonical_signature(&case(kernel, ["4,8;8", "FLOAT;FLOAT", "ND;ND"], ["4,8", "FLOAT", "ND"]));
            let kernel = KernelName::new(kernel).expect("a name");
            let parts = signature_parts(&kernel, &text);
            assert_eq!(parts, ["4,8:FLOAT:ND;8:FLOAT:ND", "4,8:FLOAT:ND", ""], "{kernel}");
        }
    }

    #[test]
    fn attributes_are_part_of_signature() {
        let mut dispatch = case("DispatchFFNCombine", ["64,128", "BF16", "ND"], ["64,128", "BF16", "ND"]);
        let without = canonical_signature(&dispatch);
        dispatch.attributes.set("EP Size", "16");
        assert_eq!(canonical_signature(&dispatch), format!("{without}|EP Size=16"));
    }

    proptest! {
        /// The matmul is found again for any orientation and layout of the operands.
        #[test]
        fn matmul_signature_ignores_storage_order(
            (m, n, k) in (1_u64..70, 1_u64..70, 1_u64..70),
            (turn_a, turn_b, blocked) in any::<(bool, bool, bool)>(),
        ) {
            let a = if turn_a { format!("{k},{m}") } else { format!("{m},{k}") };
            let (rows, columns) = if turn_b { (k, n) } else { (n, k) };
            let b = if blocked {
                format!("{},{},16,16", columns.div_ceil(16), rows.div_ceil(16))
            } else {
                format!("{rows},{columns}")
            };
            let format = if blocked { "ND;FRACTAL_NZ" } else { "ND;ND" };
            let output = format!("{m},{n}");
            prop_assert_eq!(
                gemm(&format!("{a};{b}"), format, &output),
                gemm(&format!("{m},{k};{n},{k}"), format, &output)
            );
        }

        /// Matmuls of other sizes are others.
        #[test]
        fn matmuls_of_other_sizes_have_other_signatures(sizes in proptest::array::uniform3(1_u64..6), others in proptest::array::uniform3(1_u64..6)) {
            let text = |[m, n, k]: [u64; 3]| gemm(&format!("{k},{m};{k},{n}"), "ND;ND", &format!("{m},{n}"));
            prop_assert_eq!(text(sizes) == text(others), sizes == others);
        }
    }

    fn parse(shapes: &str, dtypes: &str, formats: &str) -> Result<Vec<Slot>, String> {
        SignatureCells { shapes, dtypes, formats }.parse()
    }

    #[test]
    fn types_and_formats_are_names() {
        for [dtype, format] in
            [["=1+1", "ND"], ["FLOAT", "=cmd|' /C calc'!A0"], ["-2", "ND"], ["A\u{202e}", "ND"]]
        {
            assert!(parse("2", dtype, format).is_err(), "{dtype} {format}");
        }
        assert!(parse("2;3", "torch.bfloat16;DT_BF16", "FRACTAL_NZ;FORMAT_ND").is_ok());
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
                parse(cell, "FLOAT;FLOAT", "ND;ND").is_err_and(|error| error.contains("is not a dimension")),
                "{cell}"
            );
        }
        for types in ["", "FLOAT;"] {
            let error = parse("4;4", types, "ND").expect_err("a shape without a type");
            assert!(error.contains("has a shape but no type"), "{error}");
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
