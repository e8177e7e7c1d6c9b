//! Dependencies between names that follow from conditions: names equal to an expression of others, and lists of
//! dimensions that are compared element by element. The case editor needs them to change a dimension consistently.

use std::collections::BTreeSet;

use super::{
    evaluate::{Expr, evaluate},
    functions::ExprFunction,
    parse::{ExprKind, ExprNode},
    value::{BinaryOperator, Bindings, ExprValue},
};

/// A name with the value of an expression.
#[derive(Clone, Debug)]
pub(crate) struct NameEquality {
    pub(crate) name: String,
    value: ExprNode,
}

impl NameEquality {
    /// Returns the value of the name under other bindings, if it can be computed.
    pub(crate) fn value(&self, bindings: &Bindings) -> Option<ExprValue> {
        evaluate(&self.value, bindings).ok()
    }

    pub(crate) fn names(&self) -> BTreeSet<&str> {
        self.value.names()
    }
}

/// Two lists of dimensions that are compared element by element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AlignedLists {
    pub(crate) names: [String; 2],
    /// True if they are aligned at their last elements, as in a broadcast; otherwise at their first.
    pub(crate) from_the_end: bool,
}

impl Expr {
    /// Returns the equalities of a condition that hold, of alternatives only in the first that is true.
    pub(crate) fn equalities(&self, bindings: &Bindings) -> Vec<NameEquality> {
        let mut found = Vec::new();
        collect_equalities(&self.root, bindings, &mut found);
        found
    }

    /// Returns the first value that an equality gives an unbound name, in any alternative.
    pub(crate) fn equated_value(&self, name: &str, bindings: &Bindings) -> Option<ExprValue> {
        value_of(&self.root, name, bindings)
    }

    /// Returns true if a condition relates names to each other, as `R == rank(X)` and `N % K == 0`, and false if it compares
    /// them with numbers only, as `K % 128 == 0` and `C <= 2048`.
    pub(crate) fn relates_names(&self) -> bool {
        is_relation(&self.root)
    }

    pub(crate) fn aligned_lists(&self) -> Vec<AlignedLists> {
        let mut found = Vec::new();
        collect_pairs(&self.root, &mut found);
        found
    }
}

fn is_relation(node: &ExprNode) -> bool {
    let relates = match &node.kind {
        ExprKind::Binary(operator, left, right)
            if operator.compares() || *operator == BinaryOperator::Remainder =>
        {
            !left.names().is_empty() && !right.names().is_empty()
        }
        ExprKind::Call(function, _) => *function == ExprFunction::AllLe,
        _ => false,
    };
    relates || node.children().into_iter().any(is_relation)
}

/// Returns the sides of `NAME == VALUE` and of `VALUE == NAME`, each with the name first.
fn sides_of_equality(node: &ExprNode) -> Option<(&str, &ExprNode)> {
    let ExprKind::Binary(BinaryOperator::Equal, left, right) = &node.kind else { return None };
    left.name().map(|name| (name, &**right)).or_else(|| right.name().map(|name| (name, &**left)))
}

fn collect_equalities(node: &ExprNode, bindings: &Bindings, found: &mut Vec<NameEquality>) {
    let holds = |node: &ExprNode| matches!(evaluate(node, bindings), Ok(ExprValue::Bool(1)));
    match &node.kind {
        ExprKind::Binary(BinaryOperator::And, left, right) => {
            collect_equalities(left, bindings, found);
            collect_equalities(right, bindings, found);
        }
        ExprKind::Binary(BinaryOperator::Or, left, right) => {
            let taken = if holds(left) { left } else { right };
            collect_equalities(taken, bindings, found);
        }
        _ => {
            if let Some((name, value)) = sides_of_equality(node).filter(|_| holds(node))
                && !value.names().contains(name)
            {
                found.push(NameEquality { name: name.to_owned(), value: value.clone() });
            }
        }
    }
}

fn value_of(node: &ExprNode, wanted: &str, bindings: &Bindings) -> Option<ExprValue> {
    match &node.kind {
        ExprKind::Binary(BinaryOperator::And | BinaryOperator::Or, left, right) => {
            value_of(left, wanted, bindings).or_else(|| value_of(right, wanted, bindings))
        }
        ExprKind::Binary(BinaryOperator::Equal, left, right) => {
            let sides = [(left, right), (right, left)];
            let (_, value) = sides.into_iter().find(|(side, _)| side.name() == Some(wanted))?;
            evaluate(value, bindings).ok()
        }
        _ => None,
    }
}

fn collect_pairs(node: &ExprNode, found: &mut Vec<AlignedLists>) {
    if let ExprKind::Call(function, arguments) = &node.kind
        && matches!(function, ExprFunction::Broadcast | ExprFunction::AllLe | ExprFunction::Cat)
    {
        let lists = arguments.iter().skip(usize::from(*function == ExprFunction::Cat));
        let names: Vec<&str> = lists.filter_map(ExprNode::name).collect();
        let from_the_end = *function == ExprFunction::Broadcast;
        let pair =
            |pair: &[&str]| AlignedLists { names: [pair[0], pair[1]].map(str::to_owned), from_the_end };
        found.extend(names.windows(2).map(pair));
    }
    node.children().into_iter().for_each(|child| collect_pairs(child, found));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bindings() -> Bindings {
        let mut bindings = Bindings::default();
        for (name, value) in [("S", 1), ("N", 64), ("W", 192), ("C", 128), ("R", 64)] {
            bindings.set(name, ExprValue::Number(value));
        }
        bindings
    }

    fn equalities(source: &str) -> Vec<(String, Option<ExprValue>)> {
        let known = bindings();
        let found = Expr::parse(source).expect("an expression").equalities(&known);
        found.iter().map(|equality| (equality.name.clone(), equality.value(&known))).collect()
    }

    #[test]
    fn equalities_are_those_of_the_first_true_alternative() {
        assert_eq!(equalities("S == N or S == 1"), [("S".to_owned(), Some(ExprValue::Number(1)))]);
        assert_eq!(equalities("N == R and W == C + R").len(), 2);
        assert_eq!(equalities("C + R == W"), [("W".to_owned(), Some(ExprValue::Number(192)))]);
        assert_eq!(equalities("C + R == W + 0"), [], "no side is a single name");
        assert_eq!(equalities("S == N"), [], "it does not hold");
        assert_eq!(equalities("max(N, R) == N"), [], "a name does not depend on itself");
        let first = Expr::parse("T == N or T == 1").expect("an expression").equated_value("T", &bindings());
        assert_eq!(first, Some(ExprValue::Number(64)));
    }

    #[test]
    fn broadcast_all_le_and_cat_align_lists() {
        let pairs = |source: &str| Expr::parse(source).expect("an expression").aligned_lists();
        assert_eq!(
            pairs("broadcast(X, Y) == Y"),
            [AlignedLists { names: ["X".to_owned(), "Y".to_owned()], from_the_end: true }]
        );
        assert!(!pairs("all_le(Y, X)")[0].from_the_end);
        assert_eq!(pairs("cat(D, X_0, X_1, X_2)").len(), 2);
        assert_eq!(pairs("rank(X) == R"), []);
    }
}
