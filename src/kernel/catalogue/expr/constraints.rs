//! Dependencies between names that follow from conditions: names equal to an expression of others, and lists of
//! dimensions that are compared element by element. The case editor needs them to change a dimension consistently.

use std::collections::BTreeSet;

use super::{
    arithmetic::BinaryOperator,
    bindings::{Bindings, ExprValue},
    evaluate::{Expr, evaluate},
    functions::ExprFunction,
    node::{ExprNode, collect_names},
};

/// A name whose value is that of an expression.
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
        let mut names = BTreeSet::new();
        collect_names(&self.value, &mut names);
        names
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
    /// Returns the equalities of a condition that hold; of alternatives, those of the first that is true.
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
    use BinaryOperator::{And, Equal, Greater, GreaterEqual, Less, LessEqual, NotEqual, Or, Remainder};
    let has_names = |node: &ExprNode| {
        let mut names = BTreeSet::new();
        collect_names(node, &mut names);
        !names.is_empty()
    };
    match node {
        ExprNode::Number(_) | ExprNode::Name(_) => false,
        ExprNode::Not(inner) | ExprNode::Negative(inner) => is_relation(inner),
        ExprNode::Binary(And | Or, left, right) => is_relation(left) || is_relation(right),
        ExprNode::Binary(operator, left, right) => {
            let compares =
                matches!(operator, Equal | NotEqual | Less | LessEqual | Greater | GreaterEqual | Remainder);
            (compares && has_names(left) && has_names(right)) || is_relation(left) || is_relation(right)
        }
        ExprNode::Call(function, arguments) => {
            *function == ExprFunction::AllLe || arguments.iter().any(is_relation)
        }
    }
}

fn collect_equalities(node: &ExprNode, bindings: &Bindings, found: &mut Vec<NameEquality>) {
    let holds = |node: &ExprNode| matches!(evaluate(node, bindings), Ok(ExprValue::Bool(1)));
    match node {
        ExprNode::Binary(BinaryOperator::And, left, right) => {
            collect_equalities(left, bindings, found);
            collect_equalities(right, bindings, found);
        }
        ExprNode::Binary(BinaryOperator::Or, left, right) => {
            let taken = if holds(left) { left } else { right };
            collect_equalities(taken, bindings, found);
        }
        ExprNode::Binary(BinaryOperator::Equal, left, right) if holds(node) => match (&**left, &**right) {
            (ExprNode::Name(name), value) | (value, ExprNode::Name(name)) => {
                let equality = NameEquality { name: name.clone(), value: value.clone() };
                if !equality.names().contains(name.as_str()) {
                    found.push(equality);
                }
            }
            _ => {}
        },
        _ => {}
    }
}

fn value_of(node: &ExprNode, wanted: &str, bindings: &Bindings) -> Option<ExprValue> {
    let ExprNode::Binary(operator, left, right) = node else { return None };
    match (operator, &**left, &**right) {
        (BinaryOperator::And | BinaryOperator::Or, left, right) => {
            value_of(left, wanted, bindings).or_else(|| value_of(right, wanted, bindings))
        }
        (BinaryOperator::Equal, ExprNode::Name(name), value)
        | (BinaryOperator::Equal, value, ExprNode::Name(name))
            if name == wanted =>
        {
            evaluate(value, bindings).ok()
        }
        _ => None,
    }
}

fn collect_pairs(node: &ExprNode, found: &mut Vec<AlignedLists>) {
    match node {
        ExprNode::Number(_) | ExprNode::Name(_) => {}
        ExprNode::Not(inner) | ExprNode::Negative(inner) => collect_pairs(inner, found),
        ExprNode::Binary(_, left, right) => {
            collect_pairs(left, found);
            collect_pairs(right, found);
        }
        ExprNode::Call(function, arguments) => {
            if matches!(function, ExprFunction::Broadcast | ExprFunction::AllLe | ExprFunction::Cat) {
                let names: Vec<&String> = arguments
                    .iter()
                    .skip(usize::from(*function == ExprFunction::Cat))
                    .filter_map(
                        |argument| if let ExprNode::Name(name) = argument { Some(name) } else { None },
                    )
                    .collect();
                let from_the_end = *function == ExprFunction::Broadcast;
                found.extend(
                    names
                        .windows(2)
                        .map(|pair| AlignedLists { names: [pair[0].clone(), pair[1].clone()], from_the_end }),
                );
            }
            arguments.iter().for_each(|argument| collect_pairs(argument, found));
        }
    }
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
