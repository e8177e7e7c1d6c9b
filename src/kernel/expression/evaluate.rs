//! Parsed expressions and their evaluation.

use std::{collections::BTreeSet, fmt};

use super::{
    functions::{ExprFunction, call},
    parse::{ExprKind, ExprNode, SyntaxError, parse},
    value::{ArithmeticError, BinaryOperator, Bindings, ExprError, ExprNumber, ExprValue, calculate},
};
use serde::Deserialize;

#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct Expr {
    source: String,
    pub(crate) root: ExprNode,
}

/// A text with a list such as `X...` is parsed again when the names in the list are known.
impl TryFrom<String> for Expr {
    type Error = String;

    fn try_from(source: String) -> Result<Self, String> {
        let parsed = if source.contains("...") { Self::parse_any(&source) } else { Self::parse(&source) };
        parsed.map_err(|error| error.to_string())
    }
}

impl Expr {
    pub(crate) fn parse(source: &str) -> Result<Self, SyntaxError> {
        let expr = Self::parse_any(source)?;
        expr.root.nodes().try_for_each(|node| expr.refuse_text(node))?;
        Ok(expr)
    }

    pub(crate) fn parse_any(source: &str) -> Result<Self, SyntaxError> {
        let source = source.trim();
        Ok(Self { source: source.to_owned(), root: parse(source)? })
    }

    fn refuse_text(&self, node: &ExprNode) -> Result<(), SyntaxError> {
        let problem = match &node.kind {
            ExprKind::Text(text) if text.starts_with(|c: char| c.is_ascii_digit()) => {
                "expected a whole number".to_owned()
            }
            ExprKind::Text(text) => format!("`{text}` is a text, expected a number or a name"),
            ExprKind::Binary(BinaryOperator::Contains | BinaryOperator::ContainsNot, ..) => {
                "`~` compares texts, but each name is a number here".to_owned()
            }
            ExprKind::Has(_) => "`has` is for filters, but each name has a value here".to_owned(),
            _ => return Ok(()),
        };
        Err(self.syntax_error(node, problem, ""))
    }

    pub(crate) fn syntax_error(
        &self,
        node: &ExprNode,
        problem: impl Into<String>,
        hint: &str,
    ) -> SyntaxError {
        SyntaxError::new(&self.source, node.place.clone(), problem, hint)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.source
    }

    pub(crate) fn variable_names(&self) -> BTreeSet<&str> {
        self.root.names()
    }

    pub(crate) fn bare_name(&self) -> Option<&str> {
        self.root.name()
    }

    /// Evaluates the expression on numbers or on nodes; inexact divisions and overflows are errors.
    pub(crate) fn evaluate<N: ExprNumber>(&self, bindings: &Bindings<N>) -> Result<ExprValue<N>, ExprError> {
        self.evaluate_as(bindings, |value| Ok(value.clone()))
    }

    pub(crate) fn evaluate_number<N: ExprNumber>(&self, bindings: &Bindings<N>) -> Result<N, ExprError> {
        self.evaluate_as(bindings, ExprValue::to_number)
    }

    pub(crate) fn evaluate_as<N: ExprNumber, T>(
        &self,
        bindings: &Bindings<N>,
        convert: impl FnOnce(&ExprValue<N>) -> Result<T, ExprError>,
    ) -> Result<T, ExprError> {
        let converted = evaluate(&self.root, bindings).and_then(|value| convert(&value));
        converted.map_err(|error| error.within(&self.source))
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.source)
    }
}

pub(crate) fn evaluate<N: ExprNumber>(
    node: &ExprNode,
    bindings: &Bindings<N>,
) -> Result<ExprValue<N>, ExprError> {
    match &node.kind {
        ExprKind::Number(number) => Ok(ExprValue::Number(N::from(*number))),
        ExprKind::Name(name) => bindings.get(name).cloned().ok_or_else(|| ExprError::Unknown(name.clone())),
        ExprKind::Text(text) => Err(format!("`{text}` is a text, expected a number").into()),
        ExprKind::Has(_) => Err("compares texts".to_owned().into()),
        ExprKind::Not(inner) => {
            let truth = evaluate(inner, bindings)?.to_bool()?;
            Ok(ExprValue::Bool(N::apply(BinaryOperator::Equal, truth, N::from(0))?))
        }
        ExprKind::Negative(inner) => {
            let number = evaluate(inner, bindings)?.to_number()?;
            Ok(ExprValue::Number(N::apply(BinaryOperator::Subtract, N::from(0), number)?))
        }
        ExprKind::Binary(operator @ (BinaryOperator::Or | BinaryOperator::And), left, right) => {
            let left = evaluate(left, bindings)?.to_bool()?;
            let decides = i64::from(*operator == BinaryOperator::Or);
            if left.constant() == Some(decides) {
                return Ok(ExprValue::Bool(left));
            }
            let right = evaluate(right, bindings).and_then(|right| right.to_bool());
            // Where the left side differs between candidates, some of them may not need the right one.
            let right = right.map_err(|error| left.constant().map_or(ExprError::not_constant(), |_| error));
            Ok(ExprValue::Bool(N::apply(*operator, left, right?)?))
        }
        ExprKind::Binary(operator, left, right) => {
            let (left, right) = (evaluate(left, bindings)?, evaluate(right, bindings)?);
            let numbers = || Ok::<_, ExprError>(N::apply(*operator, left.to_number()?, right.to_number()?)?);
            match operator {
                BinaryOperator::Equal => Ok(ExprValue::Bool(left.equals(&right)?)),
                BinaryOperator::NotEqual => {
                    let is_equal = left.equals(&right)?;
                    Ok(ExprValue::Bool(N::apply(BinaryOperator::Equal, is_equal, N::from(0))?))
                }
                BinaryOperator::Contains | BinaryOperator::ContainsNot => {
                    Err("compares texts".to_owned().into())
                }
                operator if operator.compares() => numbers().map(ExprValue::Bool),
                _ => numbers().map(ExprValue::Number),
            }
        }
        ExprKind::Call(function, arguments) => {
            let values = arguments.iter().map(|argument| evaluate(argument, bindings));
            call(*function, &values.collect::<Result<Vec<_>, _>>()?)
        }
    }
}

/// A name, and the value that a condition equates with it.
pub(crate) type NameEquality = (String, ExprNode);

/// Two lists of dimensions that are compared element by element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AlignedLists {
    pub(crate) names: [String; 2],
    /// True if they are aligned at their last elements, as in a broadcast; otherwise at their first.
    pub(crate) from_the_end: bool,
}

impl Expr {
    pub(crate) fn aligned_lists(&self) -> Vec<AlignedLists> {
        let calls = self.root.nodes().filter_map(|node| match &node.kind {
            ExprKind::Call(function, arguments) => Some((function, arguments)),
            _ => None,
        });
        let aligned = calls.flat_map(|(function, arguments)| {
            let skipped = match function {
                ExprFunction::Broadcast | ExprFunction::AllLe => 0,
                ExprFunction::Cat => 1,
                _ => arguments.len(),
            };
            let names: Vec<&str> = arguments.iter().skip(skipped).filter_map(ExprNode::name).collect();
            let from_the_end = *function == ExprFunction::Broadcast;
            let pair =
                |pair: &[&str]| AlignedLists { names: [pair[0], pair[1]].map(str::to_owned), from_the_end };
            names.windows(2).map(pair).collect::<Vec<_>>()
        });
        aligned.collect()
    }
}

impl ExprNode {
    /// Returns true if a condition relates names to each other, as `R == rank(X)` and `N % K == 0`, and false if it compares
    /// them with numbers only, as `K % 128 == 0` and `C <= 2048`.
    pub(crate) fn relates_names(&self) -> bool {
        self.nodes().any(|node| match &node.kind {
            ExprKind::Binary(operator, left, right)
                if operator.compares() || *operator == BinaryOperator::Remainder =>
            {
                !left.names().is_empty() && !right.names().is_empty()
            }
            ExprKind::Call(function, _) => *function == ExprFunction::AllLe,
            _ => false,
        })
    }

    /// Returns the equalities of a condition that hold, of alternatives only in the first that is true.
    pub(crate) fn equalities(&self, bindings: &Bindings) -> Vec<NameEquality> {
        let holds = |node: &Self| matches!(evaluate(node, bindings), Ok(ExprValue::Bool(1)));
        match &self.kind {
            ExprKind::Binary(BinaryOperator::And, left, right) => {
                [left.equalities(bindings), right.equalities(bindings)].concat()
            }
            ExprKind::Binary(BinaryOperator::Or, left, right) => {
                if holds(left) { left } else { right }.equalities(bindings)
            }
            ExprKind::Binary(BinaryOperator::Equal, left, right) if holds(self) => {
                let sides = [(left, right), (right, left)];
                let side = sides.into_iter().find_map(|(side, value)| Some((side.name()?, value)));
                let side = side.filter(|(name, value)| !value.names().contains(name));
                side.map(|(name, value)| (name.to_owned(), Self::clone(value))).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the first value that an equality gives an unbound name, in any alternative.
    pub(crate) fn equated_value(&self, name: &str, bindings: &Bindings) -> Option<ExprValue> {
        match &self.kind {
            ExprKind::Binary(BinaryOperator::And | BinaryOperator::Or, left, right) => {
                left.equated_value(name, bindings).or_else(|| right.equated_value(name, bindings))
            }
            ExprKind::Binary(BinaryOperator::Equal, left, right) => {
                let sides = [(left, right), (right, left)];
                let (_, value) = sides.into_iter().find(|(side, _)| side.name() == Some(name))?;
                evaluate(value, bindings).ok()
            }
            _ => None,
        }
    }
}

/// An expression compiled for the candidates of a grid: names are indices, and evaluation allocates nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompiledExpr {
    pub(crate) source: String,
    pub(crate) node: CompiledNode,
    pub(crate) is_comparison: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VariableSlot {
    At(usize),
    Is(i64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CompiledNode {
    Constant(i64),
    Variable(usize),
    Apply(BinaryOperator, Box<[CompiledNode; 2]>),
}

impl CompiledExpr {
    pub(crate) fn compile(
        expr: &Expr,
        variable: &dyn Fn(&str) -> Option<VariableSlot>,
    ) -> Result<Self, ExprError> {
        let mut bindings = Bindings::default();
        for name in expr.variable_names() {
            let node = match variable(name) {
                Some(VariableSlot::At(index)) => CompiledNode::Variable(index),
                Some(VariableSlot::Is(number)) => CompiledNode::Constant(number),
                None => return Err(ExprError::Unknown(name.to_owned())),
            };
            bindings.set(name, ExprValue::Number(node));
        }
        let (node, is_comparison) = expr.evaluate_as(&bindings, |value| match value {
            ExprValue::Number(node) => Ok((node.clone(), false)),
            ExprValue::Bool(node) => Ok((node.clone(), true)),
            ExprValue::List(_) => Err("is a list, expected a number or a comparison".to_owned().into()),
        })?;
        Ok(Self { source: expr.to_string(), node, is_comparison })
    }

    pub(crate) fn evaluate_at(&self, numbers: &[i64]) -> Result<i64, ArithmeticError> {
        self.node.evaluate_at(numbers)
    }
}

impl CompiledNode {
    pub(crate) fn evaluate_at(&self, numbers: &[i64]) -> Result<i64, ArithmeticError> {
        match self {
            Self::Constant(number) => Ok(*number),
            Self::Variable(index) => Ok(numbers[*index]),
            Self::Apply(operator, operands) => {
                let [left, right] = &**operands;
                let left = left.evaluate_at(numbers)?;
                match operator {
                    BinaryOperator::Or if left != 0 => return Ok(1),
                    BinaryOperator::And if left == 0 => return Ok(0),
                    _ => {}
                }
                calculate(*operator, left, right.evaluate_at(numbers)?)
            }
        }
    }
}

impl fmt::Display for CompiledNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl From<i64> for CompiledNode {
    fn from(number: i64) -> Self {
        Self::Constant(number)
    }
}

impl ExprNumber for CompiledNode {
    fn constant(&self) -> Option<i64> {
        if let Self::Constant(number) = self { Some(*number) } else { None }
    }

    fn apply(operator: BinaryOperator, left: Self, right: Self) -> Result<Self, ArithmeticError> {
        use BinaryOperator::{Add, And, Broadcast, Equal, LessEqual, Multiply};
        Ok(match (operator, &left, &right) {
            (_, Self::Constant(left), Self::Constant(right)) => {
                Self::Constant(calculate(operator, *left, *right)?)
            }
            // A node without a value is found where it is evaluated as a dimension.
            (Equal | LessEqual, ..) if left == right => Self::Constant(1),
            (Broadcast, ..) if left == right => left,
            (Multiply | And | Broadcast, Self::Constant(1), _) | (Add, Self::Constant(0), _) => right,
            (Multiply | And | Broadcast, _, Self::Constant(1)) => left,
            _ => Self::Apply(operator, Box::new([left, right])),
        })
    }

    fn has_value(&self) -> Self {
        match self {
            Self::Apply(..) => {
                Self::Apply(BinaryOperator::GreaterEqual, Box::new([self.clone(), self.clone()]))
            }
            _ => Self::Constant(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(source: &str) -> Result<ExprValue, ExprError> {
        let mut bindings = Bindings::default();
        bindings.set("M", ExprValue::Number(4096));
        bindings.set("X", ExprValue::List(vec![4, 1, 8]));
        bindings.set("Y", ExprValue::List(vec![6, 1]));
        let parsed = Expr::parse(source).map_err(|error| ExprError::Value(error.to_string()));
        parsed?.evaluate(&bindings)
    }

    #[test]
    fn operators_have_the_precedence_of_arithmetic() {
        assert_eq!(value("2 + 3 * 4 - 6 / 2"), Ok(ExprValue::Number(11)));
        assert_eq!(value("-(2 + 3) * 4"), Ok(ExprValue::Number(-20)));
        assert_eq!(value("10 - 4 - 3"), Ok(ExprValue::Number(3)));
        assert_eq!(value("-7 % 4"), Ok(ExprValue::Number(1)));
        assert_eq!(value("not M < 5 and M >= 4096 or 1 == 2"), Ok(ExprValue::Bool(1)));
        assert_eq!(value("align(M + 1, 16)"), Ok(ExprValue::Number(4112)));
    }

    #[test]
    fn shape_functions_take_lists() {
        assert_eq!(value("broadcast(X, Y)"), Ok(ExprValue::List(vec![4, 6, 8])));
        assert_eq!(value("rank(X) + numel(Y)"), Ok(ExprValue::Number(9)));
        assert_eq!(value("full(rank(X), 0)"), Ok(ExprValue::List(vec![0, 0, 0])));
        assert_eq!(value("all_le(Y, X)"), Ok(ExprValue::Bool(0)));
    }

    #[test]
    fn list_functions_take_a_number_as_a_list_of_one() {
        assert_eq!(value("sum(X) + len(X) + last(X) + min(X) + max(X)"), Ok(ExprValue::Number(33)));
        assert_eq!(value("diff(cumsum(X))"), Ok(ExprValue::List(vec![4, 1, 8])));
        assert_eq!(value("split_evenly(10, 3)"), Ok(ExprValue::List(vec![4, 3, 3])));
        assert_eq!(value("dot(ceil_div(X, 4), full(3, 2))"), Ok(ExprValue::Number(8)));
        assert_eq!(value("sum(M) + len(M) + last(cumsum(M))"), Ok(ExprValue::Number(8193)));
        let text = |source: &str| value(source).expect_err("no value").to_string();
        assert_eq!(text("dot(X, Y)"), "`dot(X, Y)`: lists of 3 and 2 numbers");
        assert_eq!(text("split_evenly(4, 0)"), "`split_evenly(4, 0)`: 4 items in 0 parts");
        assert_eq!(text("ceil_div(X, 0)"), "`ceil_div(X, 0)`: a divisor of 0, expected a positive one");
        assert!(text("full(9999999, 1)").contains("a list of 9999999 numbers"));
    }

    #[test]
    fn errors_quote_the_expression_and_the_reason() {
        let text = |source: &str| value(source).expect_err("no value").to_string();
        assert_eq!(text("M / 3"), "`M / 3`: 4096 is not a multiple of 3");
        assert_eq!(text("N + 1"), "`N` has no value here");
        assert_eq!(text("M +"), "`M +`: expected a number, a name or `(` at column 4");
        assert_eq!(text("1 / 0"), "`1 / 0`: divides by zero");
        assert_eq!(text("9223372036854775807 + 1"), "`9223372036854775807 + 1`: does not fit 63 bits");
        assert!(text("median(M)").contains("there is no function `median`"));
        assert!(text("import os").contains("expected an operator"));
        assert!(text(&"(".repeat(500)).contains("nested too deeply, the limit is 64 levels"));
    }

    proptest! {
        #[test]
        fn parsing_never_panics(source in "[-+*/%()<>=!, a-zA-Z0-9_]{0,40}") {
            let _ = value(&source);
        }

        #[test]
        fn sums_and_products_agree_with_rust(a in -1000_i64..1000, b in -1000_i64..1000, c in 1_i64..50) {
            let source = format!("({a}) * ({b}) + {c} - ({a}) % {c}");
            prop_assert_eq!(value(&source), Ok(ExprValue::Number(a * b + c - a.rem_euclid(c))));
        }
    }

    fn bindings() -> Bindings {
        let mut bindings = Bindings::default();
        for (name, value) in [("S", 1), ("N", 64), ("W", 192), ("C", 128), ("R", 64)] {
            bindings.set(name, ExprValue::Number(value));
        }
        bindings
    }

    fn equalities(source: &str) -> Vec<(String, Option<ExprValue>)> {
        let known = bindings();
        let found = Expr::parse(source).expect("an expression").root.equalities(&known);
        found.into_iter().map(|(name, value)| (name, evaluate(&value, &known).ok())).collect()
    }

    #[test]
    fn equalities_are_those_of_the_first_true_alternative() {
        assert_eq!(equalities("S == N or S == 1"), [("S".to_owned(), Some(ExprValue::Number(1)))]);
        assert_eq!(equalities("N == R and W == C + R").len(), 2);
        assert_eq!(equalities("C + R == W"), [("W".to_owned(), Some(ExprValue::Number(192)))]);
        assert_eq!(equalities("C + R == W + 0"), [], "no side is a single name");
        assert_eq!(equalities("S == N"), [], "it does not hold");
        assert_eq!(equalities("max(N, R) == N"), [], "a name does not depend on itself");
        let first =
            Expr::parse("T == N or T == 1").expect("an expression").root.equated_value("T", &bindings());
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

    const NAMES: [&str; 3] = ["a", "b", "c"];

    fn compiled(source: &str) -> Result<CompiledExpr, ExprError> {
        let expr = Expr::parse(source).expect("an expression");
        CompiledExpr::compile(&expr, &|name| {
            NAMES.iter().position(|known| *known == name).map(VariableSlot::At)
        })
    }

    fn evaluated(source: &str, numbers: [i64; 3]) -> Option<i64> {
        let mut bindings = Bindings::default();
        for (name, number) in NAMES.into_iter().zip(numbers) {
            bindings.set(name, ExprValue::Number(number));
        }
        match Expr::parse(source).expect("an expression").evaluate(&bindings).ok()? {
            ExprValue::Number(number) | ExprValue::Bool(number) => Some(number),
            ExprValue::List(_) => None,
        }
    }

    #[test]
    fn expressions_that_need_the_numbers_are_not_compiled() {
        assert_eq!(compiled("x + 1"), Err(ExprError::Unknown("x".to_owned())));
        assert_eq!(compiled("sum(a)"), Err(ExprError::NotConstant("sum(a)".to_owned())));
        assert_eq!(
            compiled("a < b or 1 / 0 > 1"),
            Err(ExprError::NotConstant("a < b or 1 / 0 > 1".to_owned()))
        );
        assert!(matches!(compiled("(a < b) + 1"), Err(ExprError::Value(_))));
        assert!(matches!(compiled("list(a, b)"), Err(ExprError::Value(_))));
        assert!(compiled("a < b").expect("compiles").is_comparison);
    }

    #[test]
    fn constant_parts_are_computed_at_compile_time() {
        let node = |source: &str| compiled(source).expect("compiles").node;
        assert_eq!(node("numel(list(2, 3)) * 4 - 24 + a"), CompiledNode::Variable(0));
        assert_eq!(node("rank(broadcast(list(a, 1), list(b))) == 2"), CompiledNode::Constant(1));
        assert_eq!(node("1 * a == a"), CompiledNode::Constant(1));
        assert_eq!(node("all_le(list(a, b), list(a, b))"), CompiledNode::Constant(1));
    }

    proptest! {
        /// A compiled expression has the value of the expression on the same numbers, or none if that has none.
        #[test]
        fn compiled_expressions_equal_evaluated_ones(
            source in "(not |-)?[abc1-9]( ?[-+*/%<]| ==| !=| <=| >=)? ?(max\\(a, b\\)|align\\(b, c\\)|min\\(a, 7\\)|[abc]|[0-9]{1,3})( [-+*%] [abc]| (or|and) [abc] < [1-9])?",
            numbers in proptest::array::uniform3(-9_i64..9),
        ) {
            if let Ok(expr) = Expr::parse(&source) {
                let place = |name: &str| NAMES.iter().position(|known| *known == name).map(VariableSlot::At);
                if let Ok(compiled) = CompiledExpr::compile(&expr, &place) {
                    prop_assert_eq!(compiled.evaluate_at(&numbers).ok(), evaluated(&source, numbers), "{}", source);
                }
            }
        }
    }
}
