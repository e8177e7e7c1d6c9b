//! Expressions compiled for the candidates of a grid: names become indices, and evaluation allocates nothing.

use std::fmt;

use super::{
    evaluate::Expr,
    value::{ArithmeticError, BinaryOperator, Bindings, ExprError, ExprNumber, ExprValue, calculate},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompiledExpr {
    pub(crate) source: String,
    pub(crate) node: CompiledNode,
    pub(crate) is_comparison: bool,
}

/// Value of a name in a compiled expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VariableSlot {
    /// Index in the slice of numbers.
    At(usize),
    Is(i64),
}

/// A node of a compiled expression; comparisons are 1 or 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CompiledNode {
    Constant(i64),
    Variable(usize),
    Apply(BinaryOperator, Box<[CompiledNode; 2]>),
}

impl CompiledExpr {
    /// Compiles an expression without lists; `variable` gives the slot of a name.
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

    /// Evaluates the expression; a comparison gives 1 or 0.
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
