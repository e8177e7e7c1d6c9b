//! Whether a call is one form of a catalogue's entry: its shapes, views, types and values.

use super::{
    arguments::BoundArguments,
    process_group::ranks_of,
    protocol::{PyError, PyValue, runtime},
    tensors::{KnownValues, OperandLayout, TensorOperand},
    validate::CallOperands,
};
use crate::{
    catalogue::{
        Bindings, CatalogueEntry, DeclaredArgument, DeclaredFill, EntryForm, Expr, ExprValue, InputSlot,
        ShapeRule, TensorSlot, logical_dims,
    },
    domain::{CaseAttributes, Dtype, Slot as Recorded, Tensor},
};

/// One input slot as it was given.
pub(super) struct GivenSlot {
    pub(super) tensor: Tensor,
    pub(super) layout: OperandLayout,
    pub(super) contents: KnownValues,
}

/// A form that fits, with the input slots as the profiler shows them.
pub(super) struct MatchedForm<'a> {
    pub(super) form: &'a EntryForm,
    pub(super) bindings: Bindings,
    pub(super) inputs: Vec<Recorded>,
    pub(super) attributes: CaseAttributes,
    /// Types that the call asks for, by output.
    pub(super) asked: Vec<Dtype>,
    /// Of the group that the call talks to.
    pub(super) ranks: Option<i64>,
}

/// Why a form does not fit.
pub(super) enum CallMismatch {
    /// The call would be wrong in any form that takes such arguments.
    Refused(PyError),
    /// The form fits, and the values of its tensors do not.
    Values(PyError),
    /// Another form may fit.
    Shapes(String),
}

impl From<PyError> for CallMismatch {
    fn from(raised: PyError) -> Self {
        Self::Refused(raised)
    }
}

/// One form held against one call.
pub(super) struct FormMatcher<'a> {
    pub(super) entry: &'a CatalogueEntry,
    pub(super) form: &'a EntryForm,
    pub(super) bound: &'a BoundArguments,
    pub(super) operands: &'a CallOperands<'a>,
}

impl<'a> FormMatcher<'a> {
    /// The form with everything bound.
    pub(super) fn fit(&self) -> Result<MatchedForm<'a>, CallMismatch> {
        self.check_given()?;
        self.check_constants()?;
        let ranks = self.group()?;
        let attributes = self.attributes(ranks)?;
        let slots = self.slots()?;
        self.check_layouts(&slots).map_err(CallMismatch::Shapes)?;
        let known = self.named_by_arguments().map_err(CallMismatch::Shapes)?;
        let inputs = self.with_host_slots(&slots, known.clone()).map_err(CallMismatch::Shapes)?;
        let dims = self.dims(&inputs).map_err(CallMismatch::Shapes)?;
        let written = self.written();
        let bindings = self.form.rule.bind(&dims, written.as_deref(), known).map_err(CallMismatch::Shapes)?;
        self.check_expressions(&bindings).map_err(CallMismatch::Shapes)?;
        // An output that has no shape is a reason to try the next form as well.
        self.form.rule.outputs(&bindings).map_err(CallMismatch::Shapes)?;
        self.check_values(&slots, &bindings).map_err(CallMismatch::Values)?;
        Ok(MatchedForm { form: self.form, bindings, inputs, attributes, asked: self.asked()?, ranks })
    }

    /// A tensor that the form does not pass makes another call of it.
    fn check_given(&self) -> Result<(), CallMismatch> {
        let stranger = self.operands.names().find(|name| !self.form.gives(name));
        match stranger {
            Some(name) => Err(CallMismatch::Shapes(format!("`{name}` is left out"))),
            None => Ok(()),
        }
    }

    /// The entry passes one constant; another may start another kernel.
    fn check_constants(&self) -> Result<(), PyError> {
        for (name, argument) in &self.form.arguments {
            if let (DeclaredArgument::Constant(constant), Some(given)) = (argument, self.bound.get(name))
                && !same_constant(constant, given)
            {
                return Err(runtime(format!(
                    "rehearsal: {name}={given}, the catalogue's entry of {} knows {name}={constant} only",
                    self.entry.kernel
                )));
            }
        }
        Ok(())
    }

    /// How many ranks the group has that the call talks to.
    fn group(&self) -> Result<Option<i64>, PyError> {
        let mut arguments = self.form.arguments.iter();
        let group = arguments.find(|(_, argument)| matches!(argument, DeclaredArgument::ProcessGroup(_)));
        group.map(|(name, _)| ranks_of(self.bound.get(name))).transpose()
    }

    /// What the call says of values that shapes do not carry; a form may want certain ones.
    fn attributes(&self, ranks: Option<i64>) -> Result<CaseAttributes, CallMismatch> {
        let mut attributes = CaseAttributes::default();
        for (name, argument) in &self.form.arguments {
            if let (DeclaredArgument::ProcessGroup(expr), Some(ranks)) = (argument, ranks) {
                let named = expr.to_string();
                let columns = self.form.with.keys();
                for column in columns.filter(|column| CaseAttributes::variable_name(column) == named) {
                    attributes.set(column, &ranks.to_string());
                }
            }
            if let (DeclaredArgument::Attribute(column), Some(given)) = (argument, self.bound.get(name)) {
                attributes.set(column, &given.to_string());
            }
        }
        for (column, values) in &self.form.with {
            let said = attributes.get(column).unwrap_or("not given");
            if !values.iter().any(|value| value == said || value == "*") {
                return Err(CallMismatch::Shapes(format!(
                    "`{column}` is {said}, not {}",
                    values.join(" or ")
                )));
            }
        }
        Ok(attributes)
    }

    /// The tensor slots, in the entry's order; `None` for what the call leaves out or the kernel reads from
    /// the host.
    fn slots(&self) -> Result<Vec<Option<GivenSlot>>, CallMismatch> {
        let mut slots: Vec<Option<GivenSlot>> = self.form.inputs.iter().map(|_| None).collect();
        for (index, declared) in self.form.tensors() {
            let TensorSlot { argument, dtypes, .. } = declared;
            let place = self.form.list(argument).iter().take_while(|(other, _)| *other != index).count();
            let slot = match self.operands.nth(argument, place) {
                Some(operand) => self.tensor_slot(declared, operand)?,
                None if self.bound.contains_key(argument) => self.number_slot(declared)?,
                None if self.entry.forms.len() > 1 => {
                    return Err(CallMismatch::Shapes(format!("`{argument}` is missing")));
                }
                None => self.number_slot(declared)?,
            };
            if !dtypes.is_empty() && !dtypes.contains(&slot.tensor.dtype) {
                let allowed: Vec<&str> = dtypes.iter().map(Dtype::as_str).collect();
                let (api, dtype, allowed) = (&self.entry.api, &slot.tensor.dtype, allowed.join(", "));
                return Err(CallMismatch::Refused(runtime(format!(
                    "{api}: input {index} ({argument}) is {dtype}, the kernel {} takes {allowed}",
                    self.entry.kernel
                ))));
            }
            slots[index] = Some(slot);
        }
        Ok(slots)
    }

    fn tensor_slot(&self, declared: &TensorSlot, operand: &TensorOperand) -> Result<GivenSlot, PyError> {
        let argument = &declared.argument;
        if operand.contents == KnownValues::Uninitialised {
            return Err(runtime(format!(
                "rehearsal: {}: uninitialised input `{argument}`: it comes from `torch.empty` and nothing wrote it",
                self.entry.api
            )));
        }
        let TensorOperand { mut tensor, dims, layout, contents, .. } = operand.clone();
        if declared.shown_whole {
            tensor.dims = dims;
        }
        Ok(GivenSlot { tensor, layout, contents })
    }

    /// A Python number, which the profiler shows as a scalar of the tensors' type.
    fn number_slot(&self, slot: &TensorSlot) -> Result<GivenSlot, PyError> {
        let (api, kernel, argument) = (&self.entry.api, &self.entry.kernel, &slot.argument);
        match (self.bound.get(argument), self.operands.first_dtype()) {
            (Some(number @ PyValue::Float(_)), Some(dtype)) if !dtype.is_float() => Err(runtime(format!(
                "rehearsal: {api}: `{argument}` = {number} with {dtype} gives another type, which the entry of \
                 {kernel} does not describe"
            ))),
            (Some(number @ (PyValue::Int(_) | PyValue::Float(_) | PyValue::Bool(_))), Some(dtype))
                if !slot.number_for.contains(&dtype) =>
            {
                Err(runtime(format!(
                    "rehearsal: {api}: `{argument}` = {number} with {dtype} does not run as {kernel}"
                )))
            }
            (Some(PyValue::Int(_) | PyValue::Float(_) | PyValue::Bool(_)), Some(dtype)) => Ok(GivenSlot {
                tensor: Tensor::new([], dtype),
                layout: OperandLayout::Contiguous,
                contents: KnownValues::Unknown,
            }),
            _ => Err(runtime(format!("{api}: the kernel {kernel} needs `{argument}`"))),
        }
    }

    fn check_layouts(&self, slots: &[Option<GivenSlot>]) -> Result<(), String> {
        for (index, TensorSlot { argument, .. }) in self.form.tensors() {
            let Some(slot) = &slots[index] else { continue };
            let wanted = if self.form.is_transposed(argument) {
                OperandLayout::Transposed
            } else {
                OperandLayout::Contiguous
            };
            if slot.layout != wanted {
                let (wanted, is) = (layout_words(wanted), layout_words(slot.layout));
                return Err(format!("`{argument}` must be {wanted}, it is {is}"));
            }
        }
        Ok(())
    }

    /// The outputs, where the inputs do not tell them and the call brings all of them with it.
    fn written(&self) -> Option<Vec<Vec<u64>>> {
        if self.form.rule.outputs_follow() {
            return None;
        }
        let dims = (0..self.form.output_dtypes.len()).map(|output| {
            let is_its =
                |argument: &DeclaredArgument| matches!(argument, DeclaredArgument::Destination(place) if *place == output);
            let name =
                self.form.arguments.iter().find(|(_, argument)| is_its(argument)).map(|(name, _)| name);
            name.and_then(|name| self.operands.get(name)).map(|operand| operand.dims.clone())
        });
        dims.collect()
    }

    /// An argument whose expression is a bare name gives that name its value; so does an attribute.
    fn named_by_arguments(&self) -> Result<Bindings, String> {
        let mut known = Bindings::default();
        for (name, argument) in &self.form.arguments {
            let Some(given) = self.bound.get(name) else { continue };
            match argument {
                DeclaredArgument::Expression(expr) => {
                    let text = expr.to_string();
                    if expr.names().contains(text.as_str()) {
                        let value = value(given).ok_or_else(|| format!("`{name}` = {given} is no shape"))?;
                        known.set(&text, value);
                    }
                }
                DeclaredArgument::Attribute(column) => {
                    if let Some(value) = value(given) {
                        known.set(&CaseAttributes::variable_name(column), value);
                    }
                }
                DeclaredArgument::ProcessGroup(expr) => {
                    let ranks = ranks_of(Some(given)).map_err(|raised| raised.message)?;
                    known.set(&expr.to_string(), ExprValue::Number(ranks));
                }
                _ => {}
            }
        }
        Ok(known)
    }

    /// All other expressions must come out as what was given.
    fn check_expressions(&self, bindings: &Bindings) -> Result<(), String> {
        for (name, argument) in &self.form.arguments {
            let Some(given) = self.bound.get(name) else { continue };
            match argument {
                DeclaredArgument::Expression(expr) => {
                    let expected = expr.value(bindings).map_err(|error| error.to_string())?;
                    let is_same = value(given).is_some_and(|given| {
                        given == expected
                            || given == ExprValue::List(vec![expected.number().unwrap_or(i64::MIN)])
                    });
                    if !is_same {
                        return Err(format!("`{name}` is {given}, the entry passes {expected}"));
                    }
                }
                DeclaredArgument::InverseRoot(expr) => {
                    let number = expr.number(bindings).map_err(|error| error.to_string())?;
                    let expected = 1.0 / (number as f64).sqrt();
                    if !matches!(given, PyValue::Float(found) if (found - expected).abs() <= 1e-9 * expected)
                    {
                        return Err(format!(
                            "`{name}` is {given}, the entry passes 1/sqrt({expr}) = {expected}"
                        ));
                    }
                }
                DeclaredArgument::Tensor { dims, dtype, .. } => {
                    let expected = dims.dims(bindings)?.into_iter().next().unwrap_or_default();
                    let expected = Tensor::new(expected, dtype.clone());
                    let Some(operand) = self.operands.get(name) else {
                        return Err(format!("`{name}` is {given}, the entry passes {expected}"));
                    };
                    if operand.dims != expected.dims || operand.tensor.dtype != expected.dtype {
                        return Err(format!("`{name}` is {}, the entry passes {expected}", operand.tensor));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Types that the call asks for, by output; those that nothing asks for are the first recorded one.
    fn asked(&self) -> Result<Vec<Dtype>, PyError> {
        let mut asked: Vec<Option<Dtype>> = vec![None; self.form.output_dtypes.len()];
        for (name, argument) in &self.form.arguments {
            if let (DeclaredArgument::DtypeOf { output, .. }, Some(given)) = (argument, self.bound.get(name))
            {
                let dtype = match given {
                    PyValue::Dtype(name) => Dtype::from_torch(name.strip_prefix('q').unwrap_or(name)),
                    _ => None,
                };
                let dtype =
                    dtype.ok_or_else(|| runtime(format!("`{name}` must be a torch.dtype, not {given}")))?;
                if let Some(place) = asked.get_mut(*output) {
                    *place = Some(dtype);
                }
            }
        }
        for (name, argument) in &self.form.arguments {
            if let (DeclaredArgument::Destination(output), Some(operand)) =
                (argument, self.operands.get(name))
                && let Some(place @ None) = asked.get_mut(*output)
            {
                *place = Some(operand.tensor.dtype.clone());
            }
        }
        // Only a whole list says which output is meant.
        if asked.iter().all(Option::is_none) {
            return Ok(Vec::new());
        }
        let defaults = self.form.output_dtypes.iter().map(|declared| match declared {
            crate::catalogue::OutputDtype::Fixed(dtype) => dtype.clone(),
            crate::catalogue::OutputDtype::Recorded(allowed)
            | crate::catalogue::OutputDtype::RecordedUnlike(allowed, _) => allowed[0].clone(),
            _ => Dtype::Float,
        });
        Ok(asked.into_iter().zip(defaults).map(|(asked, default)| asked.unwrap_or(default)).collect())
    }

    /// Adds the slots that the kernel reads from the host. Their lengths may depend on the tensors, so the
    /// rule is first bound to the tensors alone.
    fn with_host_slots(&self, slots: &[Option<GivenSlot>], known: Bindings) -> Result<Vec<Recorded>, String> {
        let rule = &self.form.rule;
        let left = rule.source().split("->").next().unwrap_or_default();
        let given: Vec<Recorded> =
            slots.iter().map(|slot| slot.as_ref().map(|slot| slot.tensor.clone())).collect();
        let terms: Vec<&str> = left
            .split(';')
            .zip(&given)
            .map(|(terms, slot)| if slot.is_some() { terms } else { "-" })
            .collect();
        let written = self.written();
        let right = match &written {
            Some(_) => rule.source().split_once("->").map_or("", |(_, right)| right),
            None => "",
        };
        let partial =
            ShapeRule::parse(&rule.name, &format!("{} -> {right}", terms.join(";")), &[], Vec::new())
                .map_err(|error| error.to_string())?;
        let bindings = partial.bind(&self.dims(&given)?, written.as_deref(), known)?;
        let inputs = self.form.inputs.iter().zip(given).enumerate().map(|(index, (declared, slot))| {
            let (dims, dtype) = match declared {
                InputSlot::Host { dims, dtype } => (dims, dtype),
                InputSlot::Intermediate { dims, dtype } => {
                    let dims = dims.value(&bindings).map_err(|error| error.to_string())?;
                    let dims = dims.items()?.into_iter().map(|dim| u64::try_from(dim).unwrap_or_default());
                    return Ok(Some(Tensor::new(dims.collect::<Vec<_>>(), dtype.clone())));
                }
                InputSlot::Omitted(dtype) if rule.takes(index) => {
                    return Ok(Some(Tensor::new([], dtype.clone())));
                }
                _ => return Ok(slot),
            };
            if !rule.takes(index) {
                return Ok(None);
            }
            let length = dims.number(&bindings).map_err(|error| error.to_string())?;
            let length = u64::try_from(length).map_err(|_| format!("`{dims}` is {length}"))?;
            Ok(Some(Tensor::new([length], dtype.clone())))
        });
        inputs.collect()
    }

    /// Dimensions that the rule speaks of: without blocks.
    fn dims(&self, inputs: &[Recorded]) -> Result<Vec<Option<Vec<u64>>>, String> {
        let dims = self.form.inputs.iter().zip(inputs).map(|(declared, slot)| {
            let Some(tensor) = slot else { return Ok(None) };
            match declared {
                InputSlot::Tensor(declared) => {
                    let is_built = match &tensor.format {
                        crate::domain::TensorFormat::Private(format) => declared.formats.contains(format),
                        crate::domain::TensorFormat::Base(_) => true,
                    };
                    if !is_built {
                        return Err(format!("`{}` is in {}", declared.argument, tensor.format));
                    }
                    logical_dims(declared, tensor).map(Some).map_err(|refusal| refusal.to_string())
                }
                _ => Ok(Some(tensor.dims.clone())),
            }
        });
        dims.collect()
    }

    /// Values that the kernel takes for places must be known to be some.
    fn check_values(&self, slots: &[Option<GivenSlot>], bindings: &Bindings) -> Result<(), PyError> {
        for (index, TensorSlot { argument, values, .. }) in self.form.tensors() {
            let Some(slot) = &slots[index] else { continue };
            if let DeclaredFill::Cumulative(total) | DeclaredFill::Counts(total) = values {
                self.check_shares(argument, total, slot.contents, bindings)?;
                continue;
            }
            let (bound, distinct) = match values {
                DeclaredFill::Index(bound)
                | DeclaredFill::Zipf(bound)
                | DeclaredFill::Counting(bound)
                | DeclaredFill::Experts(bound)
                | DeclaredFill::Picks(bound)
                | DeclaredFill::Blocks { below: bound, .. } => (bound, false),
                DeclaredFill::Distinct(bound) => (bound, true),
                DeclaredFill::Listed(items) => {
                    let items = items.value(bindings).map_err(|error| runtime(error.to_string()))?;
                    self.check_list(argument, &items, slot.contents)?;
                    continue;
                }
                _ => continue,
            };
            let below = bound.number(bindings).map_err(|error| runtime(error.to_string()))?;
            let found = match slot.contents {
                KnownValues::Different(least, most) if least >= 0 && most < below => continue,
                KnownValues::Between(least, most) if least >= 0 && most < below && !distinct => continue,
                KnownValues::Between(least, most) if least >= 0 && most < below => {
                    format!("values in [{least}, {most}] may repeat")
                }
                KnownValues::Between(least, most) | KnownValues::Different(least, most) => {
                    format!("its values lie in [{least}, {most}]")
                }
                _ => "its values are not known".to_owned(),
            };
            let each = if distinct { " once each" } else { "" };
            return Err(runtime(format!(
                "rehearsal: {}: index out of range: `{argument}` must lie in [0, {below}){each}, {found}",
                self.entry.api
            )));
        }
        Ok(())
    }
    /// Where groups end, or how many items they have, must be known to share no more than there are.
    fn check_shares(
        &self,
        argument: &str,
        total: &Expr,
        contents: KnownValues,
        bindings: &Bindings,
    ) -> Result<(), PyError> {
        let total = total.number(bindings).map_err(|error| runtime(error.to_string()))?;
        let found = match contents {
            KnownValues::Between(least, most) | KnownValues::Different(least, most)
                if least >= 0 && most <= total =>
            {
                return Ok(());
            }
            KnownValues::Between(least, most) | KnownValues::Different(least, most) => {
                format!("its values lie in [{least}, {most}]")
            }
            _ => "its values are not known".to_owned(),
        };
        Err(runtime(format!("rehearsal: {}: `{argument}` must lie in [0, {total}], {found}", self.entry.api)))
    }
}

impl FormMatcher<'_> {
    /// Of a list that a tensor must hold, its least and its greatest number are looked at.
    fn check_list(&self, argument: &str, items: &ExprValue, contents: KnownValues) -> Result<(), PyError> {
        let items = match items {
            ExprValue::List(items) => items.clone(),
            other => vec![other.number().map_err(runtime)?],
        };
        let wanted = (items.iter().copied().min(), items.iter().copied().max());
        match contents {
            KnownValues::Between(least, most) | KnownValues::Different(least, most)
                if wanted == (Some(least), Some(most)) =>
            {
                Ok(())
            }
            found => Err(runtime(format!(
                "rehearsal: {}: `{argument}` must hold {}, its values are {found:?}",
                self.entry.api,
                ExprValue::List(items)
            ))),
        }
    }
}

pub(super) const fn layout_words(layout: OperandLayout) -> &'static str {
    match layout {
        OperandLayout::Contiguous => "contiguous",
        OperandLayout::Transposed => "a transposed view",
        OperandLayout::Permuted => "a view in another order",
    }
}

fn same_constant(constant: &serde_json::Value, given: &PyValue) -> bool {
    match given {
        PyValue::None => constant.is_null(),
        PyValue::Bool(truth) => constant.as_bool() == Some(*truth),
        PyValue::Int(number) => constant.as_i64() == Some(*number),
        PyValue::Float(number) => constant.as_f64() == Some(*number),
        PyValue::Text(text) => constant.as_str() == Some(text),
        PyValue::List(items) => constant.as_array().is_some_and(|constants| {
            constants.len() == items.len()
                && constants.iter().zip(items).all(|(constant, item)| same_constant(constant, item))
        }),
        _ => false,
    }
}

fn value(given: &PyValue) -> Option<ExprValue> {
    let number = |given: &PyValue| if let PyValue::Int(number) = given { Some(*number) } else { None };
    match given {
        PyValue::List(items) => items.iter().map(number).collect::<Option<_>>().map(ExprValue::List),
        PyValue::Bool(truth) => Some(ExprValue::Bool(*truth)),
        other => number(other).map(ExprValue::Number),
    }
}
