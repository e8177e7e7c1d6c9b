//! Operator schemas as PyTorch prints them, such as
//! `npu::npu_rms_norm(Tensor input, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)`.

use crate::base::yaml::split_outside_brackets;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorSchema {
    pub(crate) name: String,
    pub(crate) arguments: Vec<SchemaArgument>,
    pub(crate) returns: usize,
    pub(crate) returns_list: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SchemaArgument {
    pub(crate) name: String,
    pub(crate) kind: SchemaType,
    pub(crate) optional: bool,
    pub(crate) has_default: bool,
    pub(crate) keyword_only: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SchemaType {
    Tensor,
    TensorList,
    Int,
    IntList,
    Float,
    FloatList,
    Scalar,
    Bool,
    Str,
    /// An element type, a layout, a device or another type that npubench does not interpret.
    Other,
}

impl SchemaType {
    pub(crate) const fn is_tensor(self) -> bool {
        matches!(self, Self::Tensor | Self::TensorList)
    }
    pub(crate) fn accepts_constant(self, constant: &serde_json::Value) -> bool {
        let all = |items: &serde_json::Value, kind: Self| {
            items.as_array().is_some_and(|items| items.iter().all(|item| kind.accepts_constant(item)))
        };
        match self {
            Self::Int => constant.is_i64(),
            Self::Float | Self::Scalar => constant.is_number(),
            Self::Bool => constant.is_boolean(),
            Self::Str => constant.is_string(),
            Self::IntList => all(constant, Self::Int),
            Self::FloatList => all(constant, Self::Float),
            // Only a list without tensors is a constant.
            Self::TensorList => constant.as_array().is_some_and(Vec::is_empty),
            Self::Tensor | Self::Other => false,
        }
    }
}

impl OperatorSchema {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let error = |problem| format!("`{}` is not an operator schema: {problem}", text.trim());
        let (name, rest) = text.trim().split_once('(').ok_or_else(|| error("expected `name(`"))?;
        let (inside, returns) = rest.rsplit_once("->").ok_or_else(|| error("expected `-> type`"))?;
        let inside = inside.trim_end().strip_suffix(')').ok_or_else(|| error("expected `)` before `->`"))?;
        let mut arguments = Vec::new();
        let mut keyword_only = false;
        for part in split_outside_brackets(inside).into_iter().map(str::trim).filter(|part| !part.is_empty())
        {
            if part == "*" {
                keyword_only = true;
                continue;
            }
            let argument = parse_argument(part, keyword_only);
            arguments.push(argument.ok_or_else(|| error("expected `type name` or `type name=default`"))?);
        }
        let returns = returns.trim();
        let returns_list = returns.ends_with("[]");
        let returned = returns.strip_prefix('(').and_then(|inner| inner.strip_suffix(')'));
        let returns = returned.map_or(1, |inner| {
            split_outside_brackets(inner).iter().filter(|part| !part.trim().is_empty()).count()
        });
        Ok(Self { name: name.trim().to_owned(), arguments, returns, returns_list })
    }

    pub(crate) fn argument(&self, name: &str) -> Option<&SchemaArgument> {
        self.arguments.iter().find(|argument| argument.name == name)
    }

    /// Returns the operator's name in Python, without namespace and overload.
    pub(crate) fn short_name(&self) -> &str {
        let name = self.name.rsplit("::").next().unwrap_or(&self.name);
        name.split('.').next().unwrap_or(name)
    }
}

fn parse_argument(part: &str, keyword_only: bool) -> Option<SchemaArgument> {
    let (declared, has_default) = part.split_once('=').map_or((part, false), |(left, _)| (left.trim(), true));
    let (kind, name) = declared.rsplit_once(' ')?;
    let (kind, optional) = kind.trim().strip_suffix('?').map_or((kind.trim(), false), |kind| (kind, true));
    let (base, list) = kind.split_once('[').map_or((kind, false), |(base, _)| (base, true));
    let base = base.split('(').next().unwrap_or(base).trim_end_matches(['?', '!']);
    let kind = match (base, list) {
        ("Tensor", false) => SchemaType::Tensor,
        ("Tensor", true) => SchemaType::TensorList,
        ("int" | "SymInt", false) => SchemaType::Int,
        ("int" | "SymInt", true) => SchemaType::IntList,
        ("float", false) => SchemaType::Float,
        ("float", true) => SchemaType::FloatList,
        ("Scalar", false) => SchemaType::Scalar,
        ("bool", false) => SchemaType::Bool,
        ("str", false) => SchemaType::Str,
        _ => SchemaType::Other,
    };
    let valid = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    valid.then(|| SchemaArgument { name: name.to_owned(), kind, optional, has_default, keyword_only })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_reads_keyword_only_arguments_defaults_and_lists() {
        let text = "npu::npu_x(Tensor(a!) self, int[] size, *, Tensor? bias=None, float eps=1e-06, \
                    SymInt[]? lengths=None, str layout=\"BSH\", int[2] k=[1, 2]) -> (Tensor, Tensor[])";
        let schema = OperatorSchema::parse(text).expect("a schema");
        assert_eq!(schema.short_name(), "npu_x");
        assert_eq!((schema.returns, schema.returns_list), (2, false));
        let list = OperatorSchema::parse("npu::npu_x(Tensor[] x) -> Tensor[]").expect("a schema");
        assert_eq!((list.returns, list.returns_list), (1, true));
        let names: Vec<&str> = schema.arguments.iter().map(|argument| argument.name.as_str()).collect();
        assert_eq!(names, ["self", "size", "bias", "eps", "lengths", "layout", "k"]);
        let bias = schema.argument("bias").expect("is there");
        assert!(bias.optional && bias.has_default && bias.keyword_only);
        assert_eq!(schema.argument("lengths").expect("is there").kind, SchemaType::IntList);
        assert_eq!(schema.argument("self").expect("is there").kind, SchemaType::Tensor);
        assert!(!schema.argument("size").expect("is there").keyword_only);
    }

    #[test]
    fn short_name_has_neither_overload_nor_namespace() {
        let schema =
            OperatorSchema::parse("aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor");
        assert_eq!(schema.expect("a schema").short_name(), "add");
    }

    #[test]
    fn parse_rejects_incomplete_schemas() {
        for text in ["", "mm", "mm(Tensor self", "mm(Tensor) -> Tensor", "mm(Tensor a b) Tensor"] {
            assert!(OperatorSchema::parse(text).is_err(), "{text}");
        }
    }
}
