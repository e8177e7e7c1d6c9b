//! The example of an entry: a small case that one of its forms fits, for tests of the call on a host.

use super::{
    CatalogueEntry,
    error::{Below, EntryError, fault, value_fault},
    raw::RawExample,
};
use crate::kernel::{Case, CaseAttributes, Dtype, KernelName, Slot, Tensor, TensorFormat};

/// Builds the example of an entry. It is an error if no form of the entry fits it.
pub(super) fn example_case(raw: &RawExample, entry: &CatalogueEntry) -> Result<Case, EntryError> {
    let mut attributes = CaseAttributes::default();
    for (column, cell) in &raw.attributes {
        if !CaseAttributes::is_name(column) {
            let problem = format!("`{column}` is not a column of attributes, such as `Runtime num_heads`");
            return Err(fault(column, problem)).below("attributes");
        }
        attributes.set(column, cell);
    }
    let inputs = example_slots(&raw.inputs).below("inputs")?;
    let outputs = example_slots(&raw.outputs).below("outputs")?;
    let kernel: KernelName = entry.kernel.clone();
    let case = Case { kernel, inputs, outputs, attributes };
    match entry.resolve_call(&case) {
        Ok(_) => Ok(case),
        Err(problem) => Err(value_fault(format!("the example is not a case of this entry: {problem}"))),
    }
}

/// Parses the slots of one side: `16,128 DT_BF16`, with a format behind the type if it is not `ND`, without dimensions
/// for a scalar.
fn example_slots(texts: &[Option<String>]) -> Result<Vec<Slot>, EntryError> {
    let slots = texts.iter().enumerate();
    slots.map(|(index, text)| text.as_deref().map(example_tensor).transpose().below(index)).collect()
}

fn example_tensor(text: &str) -> Result<Tensor, EntryError> {
    let is_number = |word: &&str| word.starts_with(|letter: char| letter.is_ascii_digit());
    let mut words = text.split_whitespace().peekable();
    let dims = words.next_if(is_number).unwrap_or_default();
    let dims = dims.split(',').filter(|dim| !dim.is_empty()).map(str::parse::<u64>);
    let dims: Vec<u64> = dims.collect::<Result<_, _>>().map_err(|_| unreadable(text))?;
    let dtype = words.next().and_then(Dtype::parse).ok_or_else(|| unreadable(text))?;
    let format = words.next().map_or_else(|| Some(TensorFormat::nd()), TensorFormat::parse);
    let format = format.filter(|_| words.next().is_none()).ok_or_else(|| unreadable(text))?;
    Ok(Tensor { dims, dtype, format })
}

fn unreadable(text: &str) -> EntryError {
    value_fault(format!("`{text}` is not a tensor such as `16,128 DT_BF16` or `8,8,16,32 INT8 FRACTAL_NZ`"))
}
