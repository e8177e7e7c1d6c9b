//! The tree of a parsed expression.

use std::collections::BTreeSet;

use super::{arithmetic::BinaryOperator, functions::ExprFunction};

/// A node of an expression.
#[derive(Clone, Debug)]
pub(crate) enum ExprNode {
    Number(i64),
    Name(String),
    Not(Box<ExprNode>),
    Negative(Box<ExprNode>),
    Binary(BinaryOperator, Box<ExprNode>, Box<ExprNode>),
    Call(ExprFunction, Vec<ExprNode>),
}

pub(crate) fn collect_names<'a>(node: &'a ExprNode, names: &mut BTreeSet<&'a str>) {
    match node {
        ExprNode::Number(_) => {}
        ExprNode::Name(name) => {
            names.insert(name);
        }
        ExprNode::Not(inner) | ExprNode::Negative(inner) => collect_names(inner, names),
        ExprNode::Binary(_, left, right) => {
            collect_names(left, names);
            collect_names(right, names);
        }
        ExprNode::Call(_, arguments) => arguments.iter().for_each(|argument| collect_names(argument, names)),
    }
}
