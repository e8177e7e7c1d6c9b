//! Generates a first entry for a kernel from its recorded cases and its schema, with guesses and gaps marked with TODO.

use std::collections::{BTreeMap, BTreeSet};

use crate::kernel::{Case, Dtype, KernelName, Slot, Tensor, catalogue::OperatorSchema};

/// Returns the text of an entry. `schema` is as PyTorch prints it, `api` the function's path in Python.
pub(crate) fn scaffold_entry(
    kernel: &KernelName,
    cases: &[Case],
    api: Option<&str>,
    schema: Option<&str>,
) -> String {
    let parsed = schema.and_then(|text| OperatorSchema::parse(text).ok());
    let known = || parsed.iter().flat_map(|schema| &schema.arguments);
    let arguments: Vec<&str> =
        known().filter(|argument| argument.kind.is_tensor()).map(|argument| argument.name.as_str()).collect();
    let slots = cases.iter().map(|case| case.inputs.len()).max().unwrap_or_default();
    let outputs = cases.iter().map(|case| case.outputs.len()).max().unwrap_or_default();
    let schema = schema.unwrap_or("npu::TODO(Tensor self) -> Tensor").replace('"', "\\\"");
    let inputs: String = (0..slots).map(|index| input_entry(index, cases, &arguments)).collect();
    let dtypes: Vec<String> = (0..outputs).map(|index| output_dtype(index, cases, &arguments)).collect();
    let mut text = format!(
        "kernel: {kernel}\nsummary: TODO, in one line\napi: {}\nschema: \"{schema}\"\n\
         unit: vector  # TODO: cube, vector or mte\n\
         # TODO: which slot is which argument; here they stand in the schema's order, which is a guess.\n\
         inputs:\n{inputs}outputs: [{}]\nforms:\n",
        api.unwrap_or("torch_npu.TODO"),
        dtypes.join(", ")
    );
    for (number, (form, example)) in scaffold_forms(cases, slots, outputs).into_iter().enumerate() {
        let name = format!("form {}", number + 1);
        text += &format!("  # such as {example}\n  - {{name: {name}, shapes: \"{form}\"}}\n");
    }
    let required = known().filter(|argument| !argument.has_default && !argument.kind.is_tensor());
    let required: String =
        required.map(|argument| format!("  {}: {{constant: TODO}}\n", argument.name)).collect();
    if !required.is_empty() {
        text += &format!("arguments:\n{required}");
    }
    text + "# cost: {flops: TODO, bytes: TODO}  # the least that the kernel cannot do without\n"
}

fn slot_tensors<'a>(index: usize, cases: &'a [Case], side: fn(&'a Case) -> &'a [Slot]) -> Vec<&'a Tensor> {
    cases.iter().filter_map(|case| side(case).get(index)?.as_ref()).collect()
}

fn dtype_list(tensors: &[&Tensor]) -> String {
    join_distinct(tensors.iter().map(|tensor| tensor.dtype.as_str()))
}

fn join_distinct<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ")
}

fn input_entry(index: usize, cases: &[Case], arguments: &[&str]) -> String {
    let tensors = slot_tensors(index, cases, |case| &case.inputs);
    if tensors.is_empty() {
        return "  - ~\n".to_owned();
    }
    let name = arguments.get(index).map_or_else(|| format!("TODO_{index}"), ToString::to_string);
    let formats = join_distinct(tensors.iter().filter_map(|tensor| tensor.format.private()));
    let formats = if formats.is_empty() { formats } else { format!(", formats: [{formats}]") };
    let is_whole = tensors.iter().all(|t| matches!(t.dtype, Dtype::Int32 | Dtype::Int64));
    let values = if is_whole { "index, below: TODO" } else { "activation" };
    format!("  - {{argument: {name}, values: {values}, dtypes: [{}]{formats}}}\n", dtype_list(&tensors))
}

fn output_dtype(index: usize, cases: &[Case], arguments: &[&str]) -> String {
    let same = cases.iter().all(|case| {
        let of = |slots: &[Slot], at: usize| slots.get(at).cloned().flatten().map(|tensor| tensor.dtype);
        of(&case.inputs, 0).is_some() && of(&case.outputs, index) == of(&case.inputs, 0)
    });
    match arguments.first() {
        Some(first) if same => (*first).to_owned(),
        None if same => "TODO_0".to_owned(),
        _ => format!("{{recorded: [{}]}}", dtype_list(&slot_tensors(index, cases, |case| &case.outputs))),
    }
}

type SlotShapes = Vec<Option<Vec<u64>>>;

fn scaffold_forms(cases: &[Case], slots: usize, outputs: usize) -> Vec<(String, String)> {
    let mut by_ranks: BTreeMap<Vec<Option<usize>>, Vec<(SlotShapes, String)>> = BTreeMap::new();
    for case in cases {
        let dims = |slots: &[Slot], count: usize| -> SlotShapes {
            (0..count).map(|at| slots.get(at).cloned().flatten().map(|tensor| tensor.dims)).collect()
        };
        let shape = [dims(&case.inputs, slots), dims(&case.outputs, outputs)].concat();
        let ranks = shape.iter().map(|dims| dims.as_ref().map(Vec::len)).collect();
        by_ranks.entry(ranks).or_default().push((shape, case.shapes()));
    }
    by_ranks
        .into_values()
        .map(|shapes| {
            let example = shapes[0].1.clone();
            (common_rule(&shapes.into_iter().map(|(shape, _)| shape).collect::<Vec<_>>(), slots), example)
        })
        .collect()
}

fn common_rule(shapes: &[SlotShapes], slots: usize) -> String {
    let mut names: Vec<(Vec<u64>, String)> = Vec::new();
    let mut cells = Vec::new();
    for (at, first) in shapes[0].iter().enumerate() {
        let Some(first) = first else {
            // An output without dimensions is an empty text, an empty input is `-`.
            cells.push(if at < slots { "-".to_owned() } else { String::new() });
            continue;
        };
        let terms = (0..first.len()).map(|dim| {
            let values: Vec<u64> =
                shapes.iter().filter_map(|shape| shape[at].as_ref()?.get(dim).copied()).collect();
            shape_term(&values, &mut names, at < slots)
        });
        cells.push(terms.collect::<Vec<_>>().join(","));
    }
    let (left, right) = cells.split_at(slots);
    format!("{} -> {}", left.join("; "), right.join("; "))
}

/// Returns a name or 1; in an output, also the double or half of a known name.
fn shape_term(values: &[u64], names: &mut Vec<(Vec<u64>, String)>, is_input: bool) -> String {
    if values.iter().all(|value| *value == 1) {
        return "1".to_owned();
    }
    if let Some((_, name)) = names.iter().find(|(known, _)| known == values) {
        return name.clone();
    }
    if !is_input {
        let by = |of: fn(u64) -> Option<u64>| {
            let is =
                |known: &[u64]| known.iter().zip(values).all(|(known, value)| of(*known) == Some(*value));
            names.iter().find(|(known, _)| is(known)).map(|(_, name)| name.clone())
        };
        if let Some(name) = by(|known| known.checked_mul(2)) {
            return format!("2 * {name}");
        }
        if let Some(name) = by(|known| known.is_multiple_of(2).then_some(known / 2)) {
            return format!("{name}/2");
        }
    }
    let letter = char::from(b'A' + u8::try_from(names.len() % 26).unwrap_or_default());
    let name = if names.len() < 26 { letter.to_string() } else { format!("{letter}{}", names.len() / 26) };
    names.push((values.to_vec(), name.clone()));
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{CaseAttributes, SignatureCells};

    fn case(inputs: [&str; 2], outputs: [&str; 2]) -> Case {
        let side = |[shapes, dtypes]: [&str; 2]| {
            SignatureCells { shapes, dtypes, formats: "" }.parse().expect("cells")
        };
        Case {
            kernel: KernelName::new("SwiGlu").expect("a name"),
            inputs: side(inputs),
            outputs: side(outputs),
            attributes: CaseAttributes::default(),
        }
    }

    #[test]
    fn scaffold_names_equal_dimensions_alike() {
        let cases = [
            case(["512,6144", "DT_BF16"], ["512,3072", "DT_BF16"]),
            case(["512,1024", "FLOAT16"], ["512,512", "FLOAT16"]),
            case(["64,1,128", "DT_BF16"], ["64,1,64", "DT_BF16"]),
        ];
        let schema = "npu::npu_swiglu(Tensor self, int dim=-1) -> Tensor";
        let kernel = KernelName::new("SwiGlu").expect("a name");
        insta::assert_snapshot!(scaffold_entry(&kernel, &cases, Some("torch_npu.npu_swiglu"), Some(schema)), @r#"
        kernel: SwiGlu
        summary: TODO, in one line
        api: torch_npu.npu_swiglu
        schema: "npu::npu_swiglu(Tensor self, int dim=-1) -> Tensor"
        unit: vector  # TODO: cube, vector or mte
        # TODO: which slot is which argument; here they stand in the schema's order, which is a guess.
        inputs:
          - {argument: self, values: activation, dtypes: [DT_BF16, FLOAT16]}
        outputs: [self]
        forms:
          # such as 512,6144 -> 512,3072
          - {name: form 1, shapes: "A,B -> A,B/2"}
          # such as 64,1,128 -> 64,1,64
          - {name: form 2, shapes: "A,1,B -> A,1,A"}
        # cost: {flops: TODO, bytes: TODO}  # the least that the kernel cannot do without
        "#);
    }
}
