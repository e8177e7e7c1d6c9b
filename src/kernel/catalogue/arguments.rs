//! The arguments of a resolved call: tensors with the values that they are filled with, numbers, types.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Bindings, CatalogueEntry, DeclaredArgument, EntryForm, Expr, ExprValue, Fill, NotReplayable, SchemaType,
    TensorSlot, TensorSource,
    blocked_layout::logical_dims,
    not_replayable::{contradiction, missing_attribute, not_covered},
    rule_error::{RuleMismatch, require},
    shape_rule::to_signed,
};
use crate::kernel::expression::{BinaryOperator, ExprErrorKind, ExprNumber, product};
use crate::kernel::{Case, Dtype, Tensor};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CallArgument {
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) value: ArgumentValue,
}

/// Value of an argument; the key in the manifest is the variant's name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ArgumentValue {
    Tensor(TensorArgument),
    Tensors(Vec<TensorArgument>),
    /// A buffer that the call writes.
    Destination(TensorArgument),
    SameAs(String),
    /// A type, by torch's name.
    Dtype(String),
    /// HCCL's name of the group of that many processes.
    ProcessGroup(i64),
    /// A number, text, list or null.
    Value(Value),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TensorArgument {
    /// Dimensions in memory, without the blocks of a blocked format.
    pub(crate) shape: Vec<u64>,
    pub(crate) dtype: String,
    #[serde(flatten)]
    pub(crate) fill: Fill<i64, Vec<i64>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) on_host: bool,
    /// The blocked format that it is cast to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) format: Option<String>,
    /// True if the call gets a view with the last two dimensions swapped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) transposed: bool,
}

impl ArgumentValue {
    pub(crate) fn tensors(&self) -> &[TensorArgument] {
        match self {
            Self::Tensor(tensor) => std::slice::from_ref(tensor),
            Self::Tensors(tensors) => tensors,
            _ => &[],
        }
    }

    fn of_tensors(mut tensors: Vec<TensorArgument>, kind: SchemaType) -> Self {
        match tensors.pop() {
            Some(tensor) if tensors.is_empty() && kind != SchemaType::TensorList => Self::Tensor(tensor),
            last => Self::Tensors(tensors.into_iter().chain(last).collect()),
        }
    }
}

/// Number of processes of the call's group, the call's own included; `None` for a call of a single process.
pub(crate) fn group_size(arguments: &[CallArgument]) -> Option<i64> {
    arguments.iter().find_map(|argument| match argument.value {
        ArgumentValue::ProcessGroup(ranks) => Some(ranks),
        _ => None,
    })
}

impl TensorArgument {
    fn new(dims: Vec<u64>, dtype: &Dtype, fill: Fill<i64, Vec<i64>>) -> Self {
        let dtype = dtype.passed_torch_name().unwrap_or_default().to_owned();
        Self { shape: dims, dtype, fill, on_host: false, format: None, transposed: false }
    }
}

pub(crate) struct ArgumentResolver<'a> {
    pub(crate) entry: &'a CatalogueEntry,
    pub(crate) form: &'a EntryForm,
    pub(crate) bindings: &'a Bindings,
    pub(crate) outputs: &'a [Tensor],
    pub(crate) case: &'a Case,
}

impl ArgumentResolver<'_> {
    pub(crate) fn all(&self) -> Result<Vec<CallArgument>, NotReplayable> {
        let mut arguments = Vec::new();
        for known in &self.entry.operator_of(self.form).schema.arguments {
            let slots = self.form.list(&known.name);
            let value = match (slots.as_slice(), self.form.arguments.get(&known.name)) {
                ([(index, slot)], _) => self.slot_value(*index, slot, known.kind)?,
                ([], Some(declared)) => self.declared_value(declared, known.kind)?,
                ([], None) => continue,
                _ => {
                    let tensors =
                        slots.iter().map(|(index, slot)| self.slot_tensor(slot, self.recorded(*index)?));
                    ArgumentValue::Tensors(tensors.collect::<Result<_, _>>()?)
                }
            };
            arguments.push(CallArgument { name: known.name.clone(), value });
        }
        Ok(arguments)
    }

    fn recorded(&self, index: usize) -> Result<&Tensor, NotReplayable> {
        self.case.input(index).ok_or_else(|| contradiction(format!("input slot {index} is empty")))
    }

    fn slot_value(
        &self,
        index: usize,
        slot: &TensorSlot,
        kind: SchemaType,
    ) -> Result<ArgumentValue, NotReplayable> {
        let tensor = self.recorded(index)?;
        if tensor.is_scalar() && slot.number_for.contains(&tensor.dtype) {
            // 2 and 1.5 are exact in every type, and no kernel can skip its work for either.
            return Ok(ArgumentValue::Value(match tensor.dtype {
                Dtype::Bool => true.into(),
                ref dtype if dtype.is_float() => 1.5.into(),
                _ => 2.into(),
            }));
        }
        if let TensorSource::SameAs(other) = &slot.source {
            let other = &other.value;
            let first = self.form.tensor(other).and_then(|(index, _)| self.case.input(index));
            return match first.filter(|first| first.dims == tensor.dims && first.dtype == tensor.dtype) {
                Some(_) => Ok(ArgumentValue::SameAs(other.clone())),
                None => Err(contradiction(format!("`{}` must be like `{other}`", slot.argument))),
            };
        }
        Ok(ArgumentValue::of_tensors(vec![self.slot_tensor(slot, tensor)?], kind))
    }

    fn slot_tensor(&self, slot: &TensorSlot, tensor: &Tensor) -> Result<TensorArgument, NotReplayable> {
        let TensorSource::Fill(fill) = &slot.source else {
            return Err(contradiction(format!("`{}` has no values of its own", slot.argument)));
        };
        let dims = logical_dims(slot, tensor)?;
        let fill = self.resolve_fill(fill, &slot.argument, &dims)?;
        Ok(TensorArgument {
            format: tensor.format.private().map(str::to_owned),
            transposed: self.form.is_transposed(&slot.argument),
            ..TensorArgument::new(dims, &tensor.dtype, fill)
        })
    }

    fn resolve_fill(
        &self,
        fill: &Fill<Expr>,
        argument: &str,
        dims: &[u64],
    ) -> Result<Fill<i64, Vec<i64>>, NotReplayable> {
        let list = |list: &Expr| list.evaluate_as(self.bindings, ExprValue::to_items);
        let fill = fill.try_map(|bound| bound.evaluate_number(self.bindings), list)?;
        let checked = check_fill(&fill, argument, &to_signed(dims), &mut Vec::new());
        checked.map_err(|mismatch| match mismatch {
            RuleMismatch::Limit(reason) => not_covered(reason),
            conflict => contradiction(conflict.to_string()),
        })?;
        Ok(fill)
    }

    fn declared_value(
        &self,
        argument: &DeclaredArgument,
        kind: SchemaType,
    ) -> Result<ArgumentValue, NotReplayable> {
        let output = |index: usize| {
            self.outputs.get(index).ok_or_else(|| contradiction(format!("there is no output {index}")))
        };
        Ok(match argument {
            DeclaredArgument::Constant(constant) => ArgumentValue::Value(constant.clone()),
            DeclaredArgument::Expression(expr) => {
                ArgumentValue::Value(match expr.evaluate(self.bindings)? {
                    // A list of one is a number in a row's attributes.
                    ExprValue::Number(number) if kind == SchemaType::IntList => vec![number].into(),
                    ExprValue::Number(number) => number.into(),
                    ExprValue::Bool(truth) => (truth != 0).into(),
                    ExprValue::List(list) => list.into(),
                })
            }
            DeclaredArgument::InverseRoot(expr) => {
                let number = u32::try_from(expr.evaluate_number(self.bindings)?).ok();
                let number = number.filter(|number| *number > 0);
                let number = number.ok_or_else(|| contradiction(format!("`{expr}` has no root")))?;
                ArgumentValue::Value((1.0 / f64::from(number).sqrt()).into())
            }
            DeclaredArgument::Destination(index) => {
                let Tensor { dims, dtype, .. } = output(*index)?;
                ArgumentValue::Destination(TensorArgument::new(dims.clone(), dtype, Fill::Empty))
            }
            DeclaredArgument::DtypeOf { output: index, quantised } => {
                let dtype = &output(*index)?.dtype;
                let name = dtype.torch_name().unwrap_or_default();
                ArgumentValue::Dtype(match (quantised, dtype.as_str()) {
                    (true, Dtype::INT4) => "quint4x2".to_owned(),
                    (true, _) => format!("q{name}"),
                    (false, _) => name.to_owned(),
                })
            }
            DeclaredArgument::Attribute(column) => ArgumentValue::Value(self.attribute(column, kind)?),
            DeclaredArgument::ProcessGroup(ranks) => match ranks.evaluate(self.bindings)? {
                ExprValue::Number(number) => ArgumentValue::ProcessGroup(number),
                other => {
                    return Err(contradiction(format!("`{ranks}` is {other}, not a number of ranks")));
                }
            },
            DeclaredArgument::SameAs(other) => ArgumentValue::SameAs(other.clone()),
            DeclaredArgument::Tensor { dims, dtype, fill, on_host } => {
                let dims = dims.evaluate_shapes(self.bindings).map_err(contradiction)?;
                let dims = dims.into_iter().next().unwrap_or_default();
                let fill = self.resolve_fill(fill, "tensor", &dims)?;
                let tensor = TensorArgument { on_host: *on_host, ..TensorArgument::new(dims, dtype, fill) };
                ArgumentValue::of_tensors(vec![tensor], kind)
            }
        })
    }

    fn attribute(&self, column: &str, kind: SchemaType) -> Result<Value, NotReplayable> {
        let text = self.case.attributes.get(column).ok_or_else(|| missing_attribute(column))?;
        let numbers = || {
            let numbers = self.case.attributes.numbers(column);
            numbers.ok_or_else(|| contradiction(format!("`{column}` is {text}, not whole numbers")))
        };
        Ok(match kind {
            SchemaType::IntList => numbers()?.into(),
            SchemaType::Int => match numbers()?.as_slice() {
                [number] => (*number).into(),
                _ => return Err(contradiction(format!("`{column}` is {text}, not a whole number"))),
            },
            _ => text.into(),
        })
    }
}

/// Checks that a tensor can hold the values, or adds the conditions on the numbers of a candidate.
pub(super) fn check_fill<N: ExprNumber>(
    fill: &Fill<N, Vec<i64>>,
    argument: &str,
    dims: &[N],
    conditions: &mut Vec<N>,
) -> Result<(), RuleMismatch> {
    let mut check = |operator, left: &N, right: N, reason: &dyn Fn() -> String| {
        let holds = N::apply(operator, left.clone(), right).map_err(ExprErrorKind::from)?;
        require(holds, conditions, || format!("`{argument}` {}", reason()))
    };
    let elements = || product(dims).map_err(|_| format!("`{argument}` has more elements than 63 bits count"));
    let length = |items: &[i64]| N::from(i64::try_from(items.len()).unwrap_or(i64::MAX));
    if let Some(below) = fill.below() {
        check(BinaryOperator::GreaterEqual, below, N::from(1), &|| "would index an empty range".to_owned())?;
    }
    let distinct = match fill {
        Fill::Distinct { .. } => elements()?,
        Fill::Experts { .. } => dims.last().cloned().unwrap_or_else(|| N::from(1)),
        Fill::Blocks { used, .. } => {
            let ([rows, width], true) = (dims, used.iter().all(|blocks| *blocks >= 0)) else {
                return Err(format!("`{argument}` must be a table with a row for each sequence").into());
            };
            check(BinaryOperator::Equal, rows, length(used), &|| {
                format!("has {rows} rows for {} sequences", used.len())
            })?;
            let most = used.iter().copied().max().unwrap_or_default();
            check(BinaryOperator::GreaterEqual, width, N::from(most), &|| {
                format!("has {width} blocks in a row, a sequence needs {most}")
            })?;
            N::from(used.iter().fold(0_i64, |sum, blocks| sum.saturating_add(*blocks)))
        }
        Fill::Selection { queries, keys } => {
            if queries.len() != keys.len() {
                let (queries, keys) = (queries.len(), keys.len());
                return Err(
                    format!("`{argument}` is of {queries} sequences of queries, {keys} of keys").into()
                );
            }
            let rows = product(&dims[..dims.len().saturating_sub(1)]).map_err(ExprErrorKind::from)?;
            let last = N::from(queries.last().copied().unwrap_or_default());
            return check(BinaryOperator::Equal, &rows, last.clone(), &|| {
                format!("has {rows} rows, the sequences have {last} queries")
            });
        }
        Fill::Listed { items } => {
            let elements = elements()?;
            return check(BinaryOperator::Equal, &elements, length(items), &|| {
                format!("holds {elements} numbers, {} are known", items.len())
            });
        }
        Fill::Leading { total } => {
            let elements = elements()?;
            return check(BinaryOperator::GreaterEqual, &elements, total.clone(), &|| {
                format!("has {elements} elements, {total} of them are 1")
            });
        }
        Fill::Cumulative { total } | Fill::Counts { total } => {
            return require(total.has_value(), conditions, String::new);
        }
        _ => return Ok(()),
    };
    fill.below().map_or(Ok(()), |below| {
        let is_enough = check(BinaryOperator::GreaterEqual, below, distinct.clone(), &|| {
            format!("needs {distinct} different values, there are {below}")
        });
        // The operators also take equal values, such as blocks that sequences share.
        is_enough.map_err(RuleMismatch::into_limit)
    })
}
