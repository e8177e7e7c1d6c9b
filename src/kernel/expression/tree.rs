//! The tree of a parsed expression.

use std::{collections::BTreeSet, ops::Range};

use super::{arithmetic::BinaryOperator, functions::ExprFunction};

/// A node of an expression with its place in the text in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExprNode {
    pub(crate) kind: ExprKind,
    pub(crate) place: Range<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExprKind {
    Number(i64),
    Name(String),
    // A text in quotes, or a word that is neither a name nor a whole number, such as `5ms` or `64,1024`.
    Text(String),
    Not(Box<ExprNode>),
    Negative(Box<ExprNode>),
    // True if the word has a value.
    Has(Box<ExprNode>),
    Binary(BinaryOperator, Box<ExprNode>, Box<ExprNode>),
    // `a ~ b`, or `a !~ b` if it is negated.
    Contains { left: Box<ExprNode>, right: Box<ExprNode>, negated: bool },
    Call(ExprFunction, Vec<ExprNode>),
}

impl ExprNode {
    pub(crate) fn name(&self) -> Option<&str> {
        if let ExprKind::Name(name) = &self.kind { Some(name) } else { None }
    }

    pub(crate) fn children(&self) -> Vec<&Self> {
        match &self.kind {
            ExprKind::Number(_) | ExprKind::Name(_) | ExprKind::Text(_) => Vec::new(),
            ExprKind::Not(inner) | ExprKind::Negative(inner) | ExprKind::Has(inner) => vec![inner],
            ExprKind::Binary(_, left, right) | ExprKind::Contains { left, right, .. } => vec![left, right],
            ExprKind::Call(_, arguments) => arguments.iter().collect(),
        }
    }

    pub(crate) fn names(&self) -> BTreeSet<&str> {
        let mut names = BTreeSet::new();
        self.collect_names(&mut names);
        names
    }

    fn collect_names<'a>(&'a self, names: &mut BTreeSet<&'a str>) {
        if let ExprKind::Name(name) = &self.kind {
            names.insert(name);
        }
        self.children().into_iter().for_each(|child| child.collect_names(names));
    }
}
