//! Names in the expressions of a form that decide its call. Those of its cost do not.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
};

use super::{DeclaredArgument, Fill, InputSlot, TensorSource};
use crate::kernel::{
    CaseAttributes,
    catalogue::{ReturnShapes, ShapeRule, shape_rule::OutputTerm},
    expression::Expr,
};

/// Returns the names in conditions, output shapes, values and arguments.
pub(crate) fn names_of_call(
    rule: &ShapeRule,
    inputs: &[InputSlot],
    arguments: &BTreeMap<String, DeclaredArgument>,
    returns: Option<&ReturnShapes>,
) -> BTreeSet<String> {
    let names = CollectedNames::default();
    rule.conditions().for_each(|condition| names.add(condition));
    rule.inferred.iter().for_each(|(_, expr)| names.add(expr));
    [Some(&rule.outputs), returns].into_iter().flatten().for_each(|shapes| names.add_shapes(shapes));
    for (index, slot) in inputs.iter().enumerate() {
        if let InputSlot::Tensor(slot) = slot
            && let TensorSource::Fill(fill) = &slot.source
            && rule.takes_slot(index)
        {
            names.add_fill(fill);
        }
    }
    arguments.values().for_each(|argument| names.add_argument(argument));
    names.0.into_inner()
}

#[derive(Default)]
struct CollectedNames(RefCell<BTreeSet<String>>);

impl CollectedNames {
    fn add(&self, expr: &Expr) {
        self.0.borrow_mut().extend(expr.variable_names().into_iter().map(str::to_owned));
    }

    fn add_shapes(&self, shapes: &ReturnShapes) {
        for term in shapes.terms() {
            if let OutputTerm::Expr(expr) = term {
                self.add(expr);
            }
        }
    }

    fn add_fill(&self, fill: &Fill<Expr>) {
        let add = |expr: &Expr| {
            self.add(expr);
            Ok::<(), Infallible>(())
        };
        let Ok(_) = fill.try_map(add, add);
    }

    fn add_argument(&self, argument: &DeclaredArgument) {
        match argument {
            DeclaredArgument::Expression(expr)
            | DeclaredArgument::InverseRoot(expr)
            | DeclaredArgument::ProcessGroup(expr) => self.add(expr),
            DeclaredArgument::Attribute(column) => {
                self.0.borrow_mut().insert(CaseAttributes::variable_name(column));
            }
            DeclaredArgument::Tensor { dims, fill, .. } => {
                self.add_shapes(dims);
                self.add_fill(fill);
            }
            DeclaredArgument::Constant(_)
            | DeclaredArgument::Destination(_)
            | DeclaredArgument::SameAs(_)
            | DeclaredArgument::DtypeOf { .. } => {}
        }
    }
}
