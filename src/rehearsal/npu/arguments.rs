//! Binds the arguments of a call to a schema, as torch's own parser does: every error is a
//! `TypeError` that names the argument.

use std::collections::BTreeMap;

use super::protocol::{PyArguments, PyError, PyErrorClass, PyValue};
use crate::kernel::catalogue::{OperatorSchema, SchemaArgument, SchemaType};

/// Given arguments by name; those left out are absent.
pub(super) type BoundArguments = BTreeMap<String, PyValue>;

/// Binds arguments. `numbers` names the tensor arguments that take a Python number as well.
pub(super) fn bind(
    schema: &OperatorSchema,
    arguments: &PyArguments,
    numbers: &[&str],
) -> Result<BoundArguments, PyError> {
    let function = schema.short_name();
    let refuse = |problem: String| PyError::new(PyErrorClass::TypeError, format!("{function}() {problem}"));
    let accepted: Vec<&SchemaArgument> =
        schema.arguments.iter().filter(|known| !known.keyword_only).collect();
    let positional = gather_list(&accepted, &arguments.positional);
    if positional.len() > accepted.len() {
        let (most, given) = (accepted.len(), positional.len());
        return Err(refuse(format!("takes {most} positional arguments but {given} were given")));
    }
    let mut bound = BoundArguments::new();
    for (index, (argument, value)) in accepted.iter().zip(positional).enumerate() {
        let at = format!(" (position {})", index + 1);
        check(function, argument, &value, numbers, &at)?;
        bound.insert(argument.name.clone(), value);
    }
    for (name, value) in &arguments.keyword {
        let Some(known) = schema.argument(name) else {
            return Err(refuse(format!("got an unexpected keyword argument '{name}'")));
        };
        check(function, known, value, numbers, "")?;
        if bound.insert(name.clone(), value.clone()).is_some() {
            return Err(refuse(format!("got multiple values for argument '{name}'")));
        }
    }
    let is_missing = |known: &&SchemaArgument| !known.has_default && !bound.contains_key(&known.name);
    let missing = schema.arguments.iter().filter(is_missing).map(|known| format!("\"{}\"", known.name));
    let missing: Vec<String> = missing.collect();
    if !missing.is_empty() {
        let count = missing.len();
        return Err(refuse(format!("missing {count} required positional arguments: {}", missing.join(", "))));
    }
    Ok(bound)
}

/// Gathers whole numbers in place of a first list into a list: `torch.randn(2, 3)` is `torch.randn([2, 3])`.
fn gather_list(accepted: &[&SchemaArgument], positional: &[PyValue]) -> Vec<PyValue> {
    let spread = accepted.len() == 1
        && accepted[0].kind == SchemaType::IntList
        && !positional.is_empty()
        && positional.iter().all(|value| matches!(value, PyValue::Int(_)));
    if spread { vec![PyValue::List(positional.to_vec())] } else { positional.to_vec() }
}

fn check(
    function: &str,
    known: &SchemaArgument,
    value: &PyValue,
    numbers: &[&str],
    at: &str,
) -> Result<(), PyError> {
    let is_number = matches!(value, PyValue::Int(_) | PyValue::Float(_) | PyValue::Bool(_));
    let is_list_of =
        |fits: fn(&PyValue) -> bool| matches!(value, PyValue::List(items) if items.iter().all(fits));
    let (fits, wanted) = match known.kind {
        SchemaType::Tensor => {
            let number = is_number && numbers.contains(&known.name.as_str());
            (matches!(value, PyValue::Tensor(_)) || number, "Tensor")
        }
        SchemaType::TensorList => (is_list_of(|item| matches!(item, PyValue::Tensor(_))), "tuple of Tensors"),
        // Torch's own parser accepts the number of a type.
        SchemaType::Int => (matches!(value, PyValue::Int(_) | PyValue::Dtype(_)), "int"),
        SchemaType::IntList => (is_list_of(|item| matches!(item, PyValue::Int(_))), "tuple of ints"),
        SchemaType::Float => (matches!(value, PyValue::Int(_) | PyValue::Float(_)), "float"),
        SchemaType::FloatList => {
            (is_list_of(|item| matches!(item, PyValue::Int(_) | PyValue::Float(_))), "tuple of floats")
        }
        SchemaType::Scalar => (is_number, "Number"),
        SchemaType::Bool => (matches!(value, PyValue::Bool(_)), "bool"),
        SchemaType::Str => (matches!(value, PyValue::Text(_)), "str"),
        SchemaType::Other => (true, ""),
    };
    if fits || (known.optional && *value == PyValue::None) {
        return Ok(());
    }
    let (name, found) = (&known.name, value.python_type());
    let message = format!("{function}(): argument '{name}'{at} must be {wanted}, not {found}");
    Err(PyError::new(PyErrorClass::TypeError, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = "npu::npu_x(Tensor self, int[] size, *, Tensor? bias=None, float eps=1e-06, str layout=\"BSH\") -> Tensor";

    fn refusal(positional: &[PyValue], keyword: &[(&str, PyValue)]) -> String {
        let keyword = keyword.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let arguments = PyArguments { positional: positional.to_vec(), keyword };
        let schema = OperatorSchema::parse(SCHEMA).expect("a schema");
        let bound = bind(&schema, &arguments, &[]);
        bound.map_or_else(|raised| raised.message, |bound| format!("{:?}", bound.keys().collect::<Vec<_>>()))
    }

    #[test]
    fn errors_contain_the_argument() {
        let size = PyValue::List(vec![PyValue::Int(2)]);
        let good = [PyValue::Tensor(1), size.clone()];
        assert_eq!(refusal(&good, &[("bias", PyValue::None)]), r#"["bias", "self", "size"]"#);
        assert_eq!(refusal(&good[..1], &[("size", size.clone())]), r#"["self", "size"]"#);
        let wrong = [
            (
                refusal(&good, &[("epsilon", PyValue::Float(1.0))]),
                "npu_x() got an unexpected keyword argument 'epsilon'",
            ),
            (refusal(&good[..1], &[]), "npu_x() missing 1 required positional arguments: \"size\""),
            (refusal(&good, &[("size", size)]), "npu_x() got multiple values for argument 'size'"),
            (
                refusal(&[PyValue::Tensor(1), PyValue::Int(2)], &[]),
                "npu_x(): argument 'size' (position 2) must be tuple of ints, not int",
            ),
            (
                refusal(&[PyValue::Float(1.5), good[1].clone()], &[]),
                "npu_x(): argument 'self' (position 1) must be Tensor, not float",
            ),
            (
                refusal(&[good[0].clone(), good[1].clone(), PyValue::None], &[]),
                "npu_x() takes 2 positional arguments but 3 were given",
            ),
            (
                refusal(&good, &[("layout", PyValue::Int(1))]),
                "npu_x(): argument 'layout' must be str, not int",
            ),
        ];
        for (found, expected) in wrong {
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn numbers_are_accepted_as_tensors_only_if_the_entry_lists_them() {
        let schema =
            OperatorSchema::parse("aten::mul.Tensor(Tensor self, Tensor other) -> Tensor").expect("a schema");
        let positional = vec![PyValue::Tensor(1), PyValue::Float(1.5)];
        let arguments = PyArguments { positional, ..PyArguments::default() };
        assert!(bind(&schema, &arguments, &["other"]).is_ok());
        assert!(bind(&schema, &arguments, &[]).is_err());
    }

    #[test]
    fn sizes_may_be_separate_arguments() {
        let schema = OperatorSchema::parse("randn(SymInt[] size, *, ScalarType? dtype=None) -> Tensor")
            .expect("a schema");
        let positional = vec![PyValue::Int(2), PyValue::Int(3)];
        let bound =
            bind(&schema, &PyArguments { positional: positional.clone(), ..PyArguments::default() }, &[]);
        assert_eq!(bound.expect("fits")["size"], PyValue::List(positional));
    }
}
