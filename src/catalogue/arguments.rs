//! What a call is given: tensors to build and what they are filled with, constants, types.

use super::{
    Bindings, CatalogueEntry, DeclaredArgument, DeclaredFill, EntryForm, Expr, ExprValue, NotReplayable,
    SchemaType, TensorSlot,
    blocked_layout::logical_dims,
    not_replayable::{contradiction, missing_attribute},
};
use crate::domain::{Case, Dtype, Tensor};

/// What one argument of the call is given.
#[derive(Clone, Debug)]
pub enum CallArgument {
    /// A tensor with values.
    Tensor(TensorArgument),
    /// A list of several tensors.
    Tensors(Vec<TensorArgument>),
    /// A Python number, where the profiler shows a scalar of that type.
    Number(Dtype),
    /// A constant or something that follows from the shapes.
    Constant(serde_json::Value),
    /// A type, by torch's name.
    Dtype(String),
    /// See [`DeclaredArgument::ProcessGroup`]; so many ranks.
    ProcessGroup(i64),
    /// A buffer that the call writes.
    Destination(Tensor),
    /// The tensor of that argument itself.
    Same(String),
}

/// A tensor to build.
#[derive(Clone, Debug)]
pub struct TensorArgument {
    /// As the profiler shows it.
    pub tensor: Tensor,
    /// Its dimensions for torch, which does not see blocks.
    pub logical: Vec<u64>,
    /// Whether the call sees its last two dimensions swapped.
    pub transposed: bool,
    /// Whether the call takes a list of such tensors.
    pub listed: bool,
    /// What it is filled with.
    pub fill: ResolvedFill,
    /// Whether it stays on the host.
    pub on_host: bool,
}

/// What a tensor is filled with; see [`DeclaredFill`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResolvedFill {
    /// See [`DeclaredFill::Activation`].
    Activation,
    /// See [`DeclaredFill::Weight`].
    Weight,
    /// Ones.
    Ones,
    /// Zeros.
    Zeros,
    /// See [`DeclaredFill::Scales`].
    Scales,
    /// See [`DeclaredFill::Causal`].
    Causal,
    /// Whole numbers, uniform from 0 to below this bound.
    Index(i64),
    /// See [`DeclaredFill::Zipf`].
    Zipf(i64),
    /// See [`DeclaredFill::Counting`].
    Counting(i64),
    /// See [`DeclaredFill::Distinct`].
    Distinct(i64),
    /// See [`DeclaredFill::Experts`].
    Experts(i64),
    /// See [`DeclaredFill::Cumulative`].
    Cumulative(i64),
    /// See [`DeclaredFill::Counts`].
    Counts(i64),
    /// See [`DeclaredFill::Picks`].
    Picks(i64),
    /// See [`DeclaredFill::Listed`].
    Listed(Vec<i64>),
    /// See [`DeclaredFill::Blocks`].
    Blocks {
        /// Blocks of the pool.
        below: i64,
        /// How many each row uses.
        used: Vec<i64>,
    },
}

/// Everything that one call is given.
pub(crate) struct ArgumentResolver<'a> {
    pub(crate) entry: &'a CatalogueEntry,
    pub(crate) form: &'a EntryForm,
    pub(crate) bindings: &'a Bindings,
    pub(crate) outputs: &'a [Tensor],
    pub(crate) case: &'a Case,
}

impl ArgumentResolver<'_> {
    /// All arguments, in the schema's order.
    pub(crate) fn all(&self) -> Result<Vec<(String, CallArgument)>, NotReplayable> {
        let mut supplied = Vec::new();
        for argument in &self.entry.schema.arguments {
            let list = self.form.list(&argument.name);
            if list.len() > 1 {
                let mut tensors = Vec::with_capacity(list.len());
                for (index, slot) in list {
                    if let CallArgument::Tensor(tensor) = self.slot(index, slot, argument.kind)? {
                        tensors.push(tensor);
                    }
                }
                supplied.push((argument.name.clone(), CallArgument::Tensors(tensors)));
            } else if let Some((index, slot)) = self.form.tensor(&argument.name) {
                supplied.push((argument.name.clone(), self.slot(index, slot, argument.kind)?));
            } else if let Some(other) = self.form.arguments.get(&argument.name) {
                supplied.push((argument.name.clone(), self.other(other, argument.kind)?));
            }
        }
        Ok(supplied)
    }

    fn slot(&self, index: usize, slot: &TensorSlot, kind: SchemaType) -> Result<CallArgument, NotReplayable> {
        let tensor = self.case.inputs.get(index).and_then(Option::as_ref);
        let tensor = tensor.ok_or_else(|| contradiction(format!("input slot {index} is empty")))?;
        if tensor.is_scalar() && slot.number_for.contains(&tensor.dtype) {
            return Ok(CallArgument::Number(tensor.dtype.clone()));
        }
        if let DeclaredFill::SameAs(other) = &slot.values {
            let first = self.form.tensor(other).and_then(|(index, _)| self.case.inputs.get(index)?.as_ref());
            return match first.filter(|first| first.dims == tensor.dims && first.dtype == tensor.dtype) {
                Some(_) => Ok(CallArgument::Same(other.clone())),
                None => Err(contradiction(format!("`{}` must be like `{other}`", slot.argument))),
            };
        }
        let logical = logical_dims(slot, tensor)?;
        let fill = self.fill(&slot.values, &slot.argument, &logical)?;
        Ok(CallArgument::Tensor(TensorArgument {
            tensor: tensor.clone(),
            logical,
            transposed: self.form.is_transposed(&slot.argument),
            listed: kind == SchemaType::TensorList,
            fill,
            on_host: false,
        }))
    }

    fn fill(
        &self,
        values: &DeclaredFill,
        argument: &str,
        dims: &[u64],
    ) -> Result<ResolvedFill, NotReplayable> {
        let number = |expr: &Expr| {
            expr.evaluate_number(self.bindings).map_err(|error| contradiction(error.to_string()))
        };
        let range = |expr: &Expr| match number(expr)? {
            bound @ 1.. => Ok(bound),
            _ => Err(contradiction(format!("`{argument}` would index an empty range"))),
        };
        // So many different values are needed at once.
        let enough = |bound: i64, count: u64| {
            if u64::try_from(bound).is_ok_and(|bound| bound >= count) {
                return Ok(bound);
            }
            Err(contradiction(format!("`{argument}` needs {count} different values, there are {bound}")))
        };
        let list = |expr: &Expr| {
            expr.evaluate_as(self.bindings, ExprValue::to_items)
                .map_err(|error| contradiction(error.to_string()))
        };
        Ok(match values {
            DeclaredFill::Activation => ResolvedFill::Activation,
            DeclaredFill::Weight => ResolvedFill::Weight,
            DeclaredFill::Ones => ResolvedFill::Ones,
            DeclaredFill::Zeros => ResolvedFill::Zeros,
            DeclaredFill::Scales => ResolvedFill::Scales,
            DeclaredFill::Causal => ResolvedFill::Causal,
            DeclaredFill::SameAs(_) => {
                return Err(contradiction(format!("`{argument}` has no values of its own")));
            }
            DeclaredFill::Index(bound) => ResolvedFill::Index(range(bound)?),
            DeclaredFill::Zipf(bound) => ResolvedFill::Zipf(range(bound)?),
            DeclaredFill::Counting(bound) => ResolvedFill::Counting(range(bound)?),
            DeclaredFill::Distinct(bound) => ResolvedFill::Distinct(enough(range(bound)?, elements(dims)?)?),
            DeclaredFill::Experts(bound) => {
                ResolvedFill::Experts(enough(range(bound)?, dims.last().copied().unwrap_or(1))?)
            }
            DeclaredFill::Cumulative(total) => ResolvedFill::Cumulative(number(total)?),
            DeclaredFill::Counts(total) => ResolvedFill::Counts(number(total)?),
            DeclaredFill::Picks(bound) => {
                ResolvedFill::Picks(enough(range(bound)?, dims.last().copied().unwrap_or(1))?)
            }
            DeclaredFill::Listed(items) => {
                let (items, count) = (list(items)?, elements(dims)?);
                if items.len() as u64 != count {
                    return Err(contradiction(format!(
                        "`{argument}` holds {count} numbers, {} are known",
                        items.len()
                    )));
                }
                ResolvedFill::Listed(items)
            }
            DeclaredFill::Blocks { below, used } => {
                let (below, used) = (range(below)?, list(used)?);
                let (&[rows, width], true) = (dims, used.iter().all(|blocks| *blocks >= 0)) else {
                    return Err(contradiction(format!(
                        "`{argument}` must be a table with a row for each sequence"
                    )));
                };
                if used.len() as u64 != rows {
                    return Err(contradiction(format!(
                        "`{argument}` has {rows} rows for {} sequences",
                        used.len()
                    )));
                }
                let most = used.iter().copied().max().unwrap_or_default().unsigned_abs();
                if most > width {
                    return Err(contradiction(format!(
                        "a sequence needs {most} blocks, a row of `{argument}` has {width}"
                    )));
                }
                let all = used.iter().fold(0_u64, |sum, blocks| sum.saturating_add(blocks.unsigned_abs()));
                ResolvedFill::Blocks { below: enough(below, all)?, used }
            }
        })
    }

    fn other(&self, argument: &DeclaredArgument, kind: SchemaType) -> Result<CallArgument, NotReplayable> {
        let output = |index: usize| {
            self.outputs.get(index).ok_or_else(|| contradiction(format!("there is no output {index}")))
        };
        Ok(match argument {
            DeclaredArgument::Constant(constant) => CallArgument::Constant(constant.clone()),
            DeclaredArgument::Expression(expr) => {
                let value = expr.evaluate(self.bindings).map_err(|error| contradiction(error.to_string()))?;
                CallArgument::Constant(match value {
                    // A list of one is a number in a row's attributes.
                    ExprValue::Number(number) if kind == SchemaType::IntList => vec![number].into(),
                    ExprValue::Number(number) => number.into(),
                    ExprValue::Bool(truth) => (truth != 0).into(),
                    ExprValue::List(list) => list.into(),
                })
            }
            DeclaredArgument::InverseRoot(expr) => {
                let number =
                    expr.evaluate_number(self.bindings).map_err(|error| contradiction(error.to_string()))?;
                let number = u32::try_from(number).ok().filter(|number| *number > 0);
                let number = number.ok_or_else(|| contradiction(format!("`{expr}` has no root")))?;
                CallArgument::Constant((1.0 / f64::from(number).sqrt()).into())
            }
            DeclaredArgument::Destination(index) => CallArgument::Destination(output(*index)?.clone()),
            DeclaredArgument::DtypeOf { output: index, quantised } => {
                let dtype = &output(*index)?.dtype;
                let name = dtype.torch_name().unwrap_or_default();
                CallArgument::Dtype(if *quantised { format!("q{name}") } else { name.to_owned() })
            }
            DeclaredArgument::Attribute(column) => CallArgument::Constant(self.attribute(column, kind)?),
            DeclaredArgument::ProcessGroup(ranks) => CallArgument::ProcessGroup(
                ranks.evaluate_number(self.bindings).map_err(|error| contradiction(error.to_string()))?,
            ),
            DeclaredArgument::Tensor { dims, dtype, values, on_host } => {
                let dims = dims
                    .evaluate_shapes(self.bindings)
                    .map_err(contradiction)?
                    .into_iter()
                    .next()
                    .unwrap_or_default();
                let fill = self.fill(values, "tensor", &dims)?;
                CallArgument::Tensor(TensorArgument {
                    tensor: Tensor::new(dims.clone(), dtype.clone()),
                    logical: dims,
                    transposed: false,
                    listed: kind == SchemaType::TensorList,
                    fill,
                    on_host: *on_host,
                })
            }
        })
    }

    fn attribute(&self, column: &str, kind: SchemaType) -> Result<serde_json::Value, NotReplayable> {
        let text = self.case.attributes.get(column).ok_or_else(|| missing_attribute(column))?;
        let numbers = || {
            let numbers = self.case.attributes.numbers(column);
            numbers.ok_or_else(|| contradiction(format!("`{column}` is {text}, not whole numbers")))
        };
        Ok(match kind {
            SchemaType::IntList => numbers()?.into(),
            SchemaType::Int => numbers()?.first().copied().into(),
            _ => text.into(),
        })
    }
}

fn elements(dims: &[u64]) -> Result<u64, NotReplayable> {
    let product = dims.iter().try_fold(1_u64, |product, dim| product.checked_mul(*dim));
    product.ok_or_else(|| contradiction("a tensor has more elements than 64 bits count"))
}
