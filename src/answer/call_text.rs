//! Calls of kernels in a short notation, for calls that follow from sizes.

use crate::kernel::{Case, CaseAttributes, Dtype, KernelName, Slot, Tensor, TensorFormat};

/// Returns the cases of a text such as `CastAiCore|Cast: BF16[8,64] -*2 NZ:INT8[64] -> FLOAT[8,64]`: one for each name in front, with
/// these inputs and outputs. `-` is an input that the call does not have, `-*2` two of them; `NZ:` stands in front of FRACTAL_NZ.
///
/// # Panics
///
/// If the text has another form: texts are constants of the program, with numbers in them.
pub(super) fn calls(text: &str) -> Vec<Case> {
    let (names, tensors) = text.split_once(": ").expect("names, then tensors");
    let (inputs, outputs) = tensors.split_once(" ->").unwrap_or((tensors, ""));
    let [inputs, outputs] = [inputs, outputs].map(|side| side.split_whitespace().flat_map(slots).collect());
    let names = names.split('|').map(|name| KernelName::new(name).expect("the name of a kernel"));
    let case = |kernel| {
        let (inputs, outputs): (&Vec<Slot>, &Vec<Slot>) = (&inputs, &outputs);
        let attributes = CaseAttributes::default();
        Case { kernel, inputs: inputs.clone(), outputs: outputs.clone(), attributes }
    };
    names.map(case).collect()
}

fn slots(text: &str) -> Vec<Slot> {
    if let Some(count) = text.strip_prefix('-') {
        let count = count.strip_prefix('*').unwrap_or("1").parse().expect("a number of inputs");
        return vec![None; count];
    }
    let (plain, format) = match text.strip_prefix("NZ:") {
        Some(plain) => (plain, TensorFormat::parse("FRACTAL_NZ").expect("a format")),
        None => (text, TensorFormat::nd()),
    };
    let (dtype, dims) = plain.strip_suffix(']').and_then(|text| text.split_once('[')).expect("a tensor");
    let dims = dims.split(',').filter(|dim| !dim.is_empty());
    let dims = dims.map(|dim| dim.parse().expect("a dimension")).collect();
    vec![Some(Tensor { dims, dtype: Dtype::parse(dtype).expect("a type"), format })]
}
