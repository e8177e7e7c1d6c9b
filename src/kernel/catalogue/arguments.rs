//! The arguments of a resolved call: tensors with the values that they are filled with, numbers, types.
//!
//! In FRACTAL_NZ a matrix of r rows and c columns is stored as (⌈c/c0⌉, ⌈r/r0⌉, r0, c0), after the dimensions of a batch; r0 is
//! 16, and c0 elements take 32 bytes.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Bindings, CatalogueEntry, DeclaredArgument, EntryForm, Expr, ExprValue, Fill, FillKind, FormMismatch,
    SchemaType, TensorSlot, TensorSource,
    mismatch::{RuleMatch, missing_attribute},
    shape_rule::to_signed,
};
use crate::kernel::expression::{BinaryOperator, ExprNumber, product};
use crate::kernel::{Case, Dtype, Tensor, TensorFormat};

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
    Destination(TensorArgument),
    SameAs(String),
    Dtype(String),
    /// HCCL's name of the group of that many processes.
    ProcessGroup(i64),
    Value(Value),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TensorArgument {
    pub(crate) shape: Vec<u64>,
    pub(crate) dtype: String,
    #[serde(flatten)]
    pub(crate) fill: Fill<i64, Vec<i64>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) on_host: bool,
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

    fn of_tensor(tensor: TensorArgument, kind: SchemaType) -> Self {
        if kind == SchemaType::TensorList { Self::Tensors(vec![tensor]) } else { Self::Tensor(tensor) }
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

pub(super) struct ArgumentResolver<'a> {
    pub(super) entry: &'a CatalogueEntry,
    pub(super) form: &'a EntryForm,
    pub(super) bindings: &'a Bindings,
    pub(super) outputs: &'a [Tensor],
    pub(super) case: &'a Case,
}

impl ArgumentResolver<'_> {
    pub(super) fn all(&self) -> Result<Vec<CallArgument>, FormMismatch> {
        let mut arguments = Vec::new();
        for known in &self.entry.operator_of(self.form).schema.arguments {
            let of_name = self.form.tensors().filter(|(_, slot)| slot.argument == known.name);
            let slots: Vec<(usize, &TensorSlot)> = of_name.collect();
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

    fn recorded(&self, index: usize) -> Result<&Tensor, FormMismatch> {
        self.case.input(index).ok_or_else(|| format!("input slot {index} is empty").into())
    }

    fn slot_value(
        &self,
        index: usize,
        slot: &TensorSlot,
        kind: SchemaType,
    ) -> Result<ArgumentValue, FormMismatch> {
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
                None => Err(format!("`{}` must be like `{other}`", slot.argument).into()),
            };
        }
        Ok(ArgumentValue::of_tensor(self.slot_tensor(slot, tensor)?, kind))
    }

    fn slot_tensor(&self, slot: &TensorSlot, tensor: &Tensor) -> Result<TensorArgument, FormMismatch> {
        let TensorSource::Fill(fill) = &slot.source else {
            return Err(format!("`{}` has no values of its own", slot.argument).into());
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
    ) -> Result<Fill<i64, Vec<i64>>, FormMismatch> {
        let list = |list: &Expr| list.evaluate_as(self.bindings, ExprValue::to_items);
        let fill = fill.try_map(|bound| bound.evaluate_number(self.bindings), list)?;
        RuleMatch::new(Bindings::default()).check_fill(&fill, argument, &to_signed(dims))?;
        Ok(fill)
    }

    fn declared_value(
        &self,
        argument: &DeclaredArgument,
        kind: SchemaType,
    ) -> Result<ArgumentValue, FormMismatch> {
        let output =
            |index: usize| self.outputs.get(index).ok_or_else(|| format!("there is no output {index}"));
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
                let number = number.ok_or_else(|| format!("`{expr}` has no root"))?;
                ArgumentValue::Value((1.0 / f64::from(number).sqrt()).into())
            }
            DeclaredArgument::Destination(index) => {
                let Tensor { dims, dtype, .. } = output(*index)?;
                ArgumentValue::Destination(TensorArgument::new(dims.clone(), dtype, FillKind::Empty.into()))
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
            DeclaredArgument::ProcessGroup { ranks, .. } => match ranks.evaluate(self.bindings)? {
                ExprValue::Number(number) => ArgumentValue::ProcessGroup(number),
                other => return Err(format!("`{ranks}` is {other}, not a number of ranks").into()),
            },
            DeclaredArgument::SameAs(other) => ArgumentValue::SameAs(other.clone()),
            DeclaredArgument::Tensor { dims, dtype, fill, on_host } => {
                let dims = dims.evaluate_shapes(self.bindings)?.into_iter().next().unwrap_or_default();
                let fill = self.resolve_fill(fill, "tensor", &dims)?;
                let tensor = TensorArgument { on_host: *on_host, ..TensorArgument::new(dims, dtype, fill) };
                ArgumentValue::of_tensor(tensor, kind)
            }
        })
    }

    fn attribute(&self, column: &str, kind: SchemaType) -> Result<Value, FormMismatch> {
        let text = self.case.attributes.get(column);
        let text = text.ok_or_else(|| FormMismatch::not_covered(missing_attribute(column)))?;
        let numbers = || {
            let numbers = self.case.attributes.numbers(column);
            numbers.ok_or_else(|| format!("`{column}` is {text}, not whole numbers"))
        };
        Ok(match kind {
            SchemaType::IntList => numbers()?.into(),
            SchemaType::Int => match numbers()?.as_slice() {
                [number] => (*number).into(),
                _ => return Err(format!("`{column}` is {text}, not a whole number").into()),
            },
            _ => text.into(),
        })
    }
}

impl<N: ExprNumber> RuleMatch<N> {
    /// Checks that a tensor can hold the values, or collects the conditions on the numbers of a candidate.
    pub(super) fn check_fill(
        &mut self,
        fill: &Fill<N, Vec<i64>>,
        argument: &str,
        dims: &[N],
    ) -> Result<(), FormMismatch> {
        let Fill { kind, below, total, items, used, queries, keys } = fill;
        let elements =
            || product(dims).map_err(|_| format!("`{argument}` has more elements than 63 bits count"));
        let length = |items: &[i64]| i64::try_from(items.len()).unwrap_or(i64::MAX);
        if let Some(below) = below {
            self.compare(below, BinaryOperator::GreaterEqual, 1, || {
                format!("`{argument}` would index an empty range")
            })?;
        }
        let distinct = match kind {
            FillKind::Distinct => elements()?,
            FillKind::Experts => dims.last().cloned().unwrap_or_else(|| N::from(1)),
            FillKind::Blocks => {
                let used = used.as_deref().unwrap_or_default();
                let ([rows, width], true) = (dims, used.iter().all(|blocks| *blocks >= 0)) else {
                    return Err(format!("`{argument}` must be a table with a row for each sequence").into());
                };
                self.compare(rows, BinaryOperator::Equal, length(used), || {
                    format!("`{argument}` has {rows} rows for {} sequences", used.len())
                })?;
                let most = used.iter().copied().max().unwrap_or_default();
                self.compare(width, BinaryOperator::GreaterEqual, most, || {
                    format!("`{argument}` has {width} blocks in a row, a sequence needs {most}")
                })?;
                N::from(used.iter().fold(0_i64, |sum, blocks| sum.saturating_add(*blocks)))
            }
            FillKind::Selection => {
                let [queries, keys] = [queries, keys].map(|list| list.as_deref().unwrap_or_default());
                if queries.len() != keys.len() {
                    let (queries, keys) = (queries.len(), keys.len());
                    let problem = format!("is of {queries} sequences of queries, {keys} of keys");
                    return Err(format!("`{argument}` {problem}").into());
                }
                let rows = product(&dims[..dims.len().saturating_sub(1)])?;
                let last = queries.last().copied().unwrap_or_default();
                return self.compare(&rows, BinaryOperator::Equal, last, || {
                    format!("`{argument}` has {rows} rows, the sequences have {last} queries")
                });
            }
            FillKind::Listed => {
                let (elements, known) = (elements()?, items.as_deref().unwrap_or_default());
                return self.compare(&elements, BinaryOperator::Equal, length(known), || {
                    format!("`{argument}` holds {elements} numbers, {} are known", known.len())
                });
            }
            FillKind::Leading => {
                let (elements, total) = (elements()?, total.clone().unwrap_or_else(|| N::from(0)));
                return self.compare(&elements, BinaryOperator::GreaterEqual, total.clone(), || {
                    format!("`{argument}` has {elements} elements, {total} of them are 1")
                });
            }
            _ => return total.iter().try_for_each(|total| self.require(total.has_value(), String::new)),
        };
        let Some(below) = below else { return Ok(()) };
        let is_enough = self.compare(below, BinaryOperator::GreaterEqual, distinct.clone(), || {
            format!("`{argument}` needs {distinct} different values, there are {below}")
        });
        // The operators also take equal values, such as blocks that sequences share.
        is_enough.map_err(FormMismatch::into_limit)
    }
}

fn block_width(dtype: &Dtype) -> u64 {
    32 / dtype.bytes().unwrap_or(2).clamp(1, 32)
}

/// Returns the dimensions that torch shows for a recorded tensor.
pub(super) fn logical_dims(slot: &TensorSlot, tensor: &Tensor) -> Result<Vec<u64>, FormMismatch> {
    let mut found = RuleMatch::new(Bindings::default());
    let dims = unblocked_dims(slot, tensor, to_signed(&tensor.dims), &mut found)?;
    Ok(dims.into_iter().map(i64::unsigned_abs).collect())
}

pub(super) fn unblocked_dims<N: ExprNumber>(
    slot: &TensorSlot,
    Tensor { dtype, format, .. }: &Tensor,
    dims: Vec<N>,
    found: &mut RuleMatch<N>,
) -> Result<Vec<N>, FormMismatch> {
    let (TensorFormat::Private(_), [batch @ .., c1, r1, r0, c0]) = (format, dims.as_slice()) else {
        return Ok(dims);
    };
    if !slot.formats.iter().any(|format| format == "FRACTAL_NZ") {
        return Ok(dims);
    }
    let width = block_width(dtype);
    for (dim, expected) in [(r0, 16), (c0, i64::try_from(width).unwrap_or(32))] {
        found.compare(dim, BinaryOperator::Equal, expected, || {
            format!("blocks of {r0} by {c0}, in FRACTAL_NZ those of {dtype} are 16 by {width}")
        })?;
    }
    let times = |count: &N, size: &N| N::apply(BinaryOperator::Multiply, count.clone(), size.clone());
    Ok(batch.iter().cloned().chain([times(r1, r0)?, times(c1, c0)?]).collect())
}

/// Inverse of [`logical_dims`] for a matrix in FRACTAL_NZ, padded to whole blocks.
pub(super) fn blocked_dims(dims: &[u64], dtype: &Dtype) -> Option<Vec<u64>> {
    let [batch @ .., rows, columns] = dims else { return None };
    let width = block_width(dtype);
    let blocks = [columns.div_ceil(width), rows.div_ceil(16), 16, width];
    Some(batch.iter().copied().chain(blocks).collect())
}
