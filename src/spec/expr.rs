//! The expression language of the YAML files: whole numbers, lists of dimensions, truth values.
//!
//! Operators, loosest first: `or`, `and`, `not`, comparisons, `+ -`, `* / %`, unary `-`. `/` must
//! divide exactly, so that a shape rule such as `D/2` refuses an odd width by itself. Overflow is an
//! error, never a wrap.

use std::{collections::BTreeSet, fmt};

use super::{Bindings, Value, shapes};

/// A parsed expression; prints as it was written.
#[derive(Clone, Debug)]
pub struct Expr {
    source: String,
    pub(super) root: Node,
}

/// Why an expression cannot be read or has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExprError {
    /// The text is no expression.
    #[error("`{source_text}`: {problem} at column {column}")]
    Syntax {
        /// The whole expression.
        source_text: String,
        /// What is wrong.
        problem: String,
        /// From 1.
        column: usize,
    },
    /// A name that nothing gives a value.
    #[error("`{0}` has no value here")]
    Unknown(String),
    /// An operation that its operands do not allow.
    #[error("`{source_text}`: {problem}")]
    Value {
        /// The whole expression.
        source_text: String,
        /// What is wrong.
        problem: String,
    },
}

#[derive(Clone, Debug)]
pub(super) enum Node {
    Number(i64),
    Name(String),
    Not(Box<Node>),
    Negative(Box<Node>),
    Binary(Operator, Box<Node>, Box<Node>),
    Call(Function, Vec<Node>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Or,
    And,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// (text, operator, how tightly it binds); longer texts first, so that `<=` is not read as `<`.
const OPERATORS: [(&str, Operator, u8); 13] = [
    ("or", Operator::Or, 1),
    ("and", Operator::And, 2),
    ("==", Operator::Equal, 4),
    ("!=", Operator::NotEqual, 4),
    ("<=", Operator::LessEqual, 4),
    (">=", Operator::GreaterEqual, 4),
    ("<", Operator::Less, 4),
    (">", Operator::Greater, 4),
    ("+", Operator::Add, 5),
    ("-", Operator::Subtract, 5),
    ("*", Operator::Multiply, 6),
    ("/", Operator::Divide, 6),
    ("%", Operator::Remainder, 6),
];
/// `not` binds looser than comparisons and tighter than `and`.
const NOT_BINDS: u8 = 3;
const MINUS_BINDS: u8 = 7;
/// Deeper nesting than any file needs; keeps recursion bounded for hostile files.
const DEEPEST: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Min,
    Max,
    Align,
    Rank,
    Numel,
    Zeros,
    Broadcast,
    Within,
    List,
    Permuted,
    Permutation,
    Reduced,
    ReducedKept,
    Axes,
    Axis,
    Joined,
    Joint,
    Tiled,
    Tiles,
    Padded,
    TrailingPads,
    Strides,
    Sum,
    Count,
    Last,
    Lowest,
    Highest,
    Differences,
    Accumulated,
    Shares,
    Repeated,
    Blocks,
    Dot,
}

/// As an arity: so many arguments and more, where a list of tensors can be given.
const OR_MORE: usize = 100;

/// (name, function, number of arguments)
const FUNCTIONS: [(&str, Function, usize); 33] = [
    ("min", Function::Min, 2),
    ("max", Function::Max, 2),
    ("align", Function::Align, 2),
    ("rank", Function::Rank, 1),
    ("numel", Function::Numel, 1),
    ("zeros", Function::Zeros, 1),
    ("broadcast", Function::Broadcast, 2),
    ("within", Function::Within, 2),
    ("list", Function::List, OR_MORE + 1),
    ("permuted", Function::Permuted, 2),
    ("permutation", Function::Permutation, 2),
    ("reduced", Function::Reduced, 2),
    ("reduced_kept", Function::ReducedKept, 2),
    ("axes", Function::Axes, 3),
    ("axis", Function::Axis, 2),
    ("joined", Function::Joined, OR_MORE + 2),
    ("joint", Function::Joint, OR_MORE + 2),
    ("tiled", Function::Tiled, 2),
    ("tiles", Function::Tiles, 2),
    ("padded", Function::Padded, 2),
    ("trailing_pads", Function::TrailingPads, 2),
    ("strides", Function::Strides, 1),
    ("sum", Function::Sum, 1),
    ("count", Function::Count, 1),
    ("last", Function::Last, 1),
    ("lowest", Function::Lowest, 1),
    ("highest", Function::Highest, 1),
    ("differences", Function::Differences, 1),
    ("accumulated", Function::Accumulated, 1),
    ("shares", Function::Shares, 2),
    ("repeated", Function::Repeated, 2),
    ("blocks", Function::Blocks, 2),
    ("dot", Function::Dot, 2),
];

impl Expr {
    /// Parses an expression.
    ///
    /// # Errors
    /// [`ExprError::Syntax`] with the column.
    pub fn parse(source: &str) -> Result<Self, ExprError> {
        let mut parser = Parser { source, at: 0, depth: 0 };
        let root = parser.expression(0)?;
        parser.skip_blanks();
        if parser.at < source.len() {
            return Err(parser.error("expected an operator or the end"));
        }
        Ok(Self { source: source.trim().to_owned(), root })
    }

    /// Every name that needs a value.
    #[must_use]
    pub fn names(&self) -> BTreeSet<&str> {
        let mut names = BTreeSet::new();
        collect_names(&self.root, &mut names);
        names
    }

    /// The name, where the expression is nothing else.
    #[must_use]
    pub fn bare_name(&self) -> Option<&str> {
        if let Node::Name(name) = &self.root { Some(name) } else { None }
    }

    /// The value under the given bindings.
    ///
    /// # Errors
    /// [`ExprError`] for an unbound name, a wrong operand, an inexact division or an overflow.
    pub fn value(&self, bindings: &Bindings) -> Result<Value, ExprError> {
        evaluate(&self.root, bindings).map_err(|problem| match problem {
            Problem::Unknown(name) => ExprError::Unknown(name),
            Problem::Value(problem) => ExprError::Value { source_text: self.source.clone(), problem },
        })
    }

    /// The value as a whole number; a list counts as the product of its dimensions.
    ///
    /// # Errors
    /// As [`Expr::value`], and where the value is a truth value.
    pub fn number(&self, bindings: &Bindings) -> Result<i64, ExprError> {
        let value = self.value(bindings)?;
        value.number().map_err(|problem| ExprError::Value { source_text: self.source.clone(), problem })
    }

    /// The value as a truth value.
    ///
    /// # Errors
    /// As [`Expr::value`], and where the value is a number or a list.
    pub fn holds(&self, bindings: &Bindings) -> Result<bool, ExprError> {
        match self.value(bindings)? {
            Value::Truth(truth) => Ok(truth),
            other => Err(ExprError::Value {
                source_text: self.source.clone(),
                problem: format!("is {other}, expected a comparison"),
            }),
        }
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.source)
    }
}

fn collect_names<'a>(node: &'a Node, names: &mut BTreeSet<&'a str>) {
    match node {
        Node::Number(_) => {}
        Node::Name(name) => {
            names.insert(name);
        }
        Node::Not(inner) | Node::Negative(inner) => collect_names(inner, names),
        Node::Binary(_, left, right) => {
            collect_names(left, names);
            collect_names(right, names);
        }
        Node::Call(_, arguments) => arguments.iter().for_each(|argument| collect_names(argument, names)),
    }
}

enum Problem {
    Unknown(String),
    Value(String),
}

impl From<String> for Problem {
    fn from(problem: String) -> Self {
        Self::Value(problem)
    }
}

fn overflow() -> String {
    "does not fit 63 bits".to_owned()
}

fn evaluate(node: &Node, bindings: &Bindings) -> Result<Value, Problem> {
    match node {
        Node::Number(number) => Ok(Value::Number(*number)),
        Node::Name(name) => bindings.get(name).cloned().ok_or_else(|| Problem::Unknown(name.clone())),
        Node::Not(inner) => Ok(Value::Truth(!evaluate(inner, bindings)?.truth()?)),
        Node::Negative(inner) => {
            let number = evaluate(inner, bindings)?.number()?;
            Ok(Value::Number(number.checked_neg().ok_or_else(overflow)?))
        }
        Node::Binary(operator, left, right) => binary(*operator, left, right, bindings),
        Node::Call(function, arguments) => {
            let values: Vec<Value> =
                arguments.iter().map(|argument| evaluate(argument, bindings)).collect::<Result<_, _>>()?;
            Ok(call(*function, &values)?)
        }
    }
}

fn binary(operator: Operator, left: &Node, right: &Node, bindings: &Bindings) -> Result<Value, Problem> {
    let left = evaluate(left, bindings)?;
    match operator {
        Operator::Or if left.truth()? => return Ok(Value::Truth(true)),
        Operator::And if !left.truth()? => return Ok(Value::Truth(false)),
        _ => {}
    }
    let right = evaluate(right, bindings)?;
    Ok(match operator {
        Operator::Or | Operator::And => Value::Truth(right.truth()?),
        Operator::Equal => Value::Truth(left == right),
        Operator::NotEqual => Value::Truth(left != right),
        Operator::Less => Value::Truth(left.number()? < right.number()?),
        Operator::LessEqual => Value::Truth(left.number()? <= right.number()?),
        Operator::Greater => Value::Truth(left.number()? > right.number()?),
        Operator::GreaterEqual => Value::Truth(left.number()? >= right.number()?),
        _ => Value::Number(arithmetic(operator, left.number()?, right.number()?)?),
    })
}

fn arithmetic(operator: Operator, left: i64, right: i64) -> Result<i64, String> {
    let value = match operator {
        Operator::Add => left.checked_add(right),
        Operator::Subtract => left.checked_sub(right),
        Operator::Multiply => left.checked_mul(right),
        _ if right == 0 => return Err("divides by zero".to_owned()),
        Operator::Divide if left.checked_rem(right).is_some_and(|rest| rest != 0) => {
            return Err(format!("{left} is not a multiple of {right}"));
        }
        Operator::Divide => left.checked_div(right),
        _ => left.checked_rem_euclid(right),
    };
    value.ok_or_else(overflow)
}

fn call(function: Function, values: &[Value]) -> Result<Value, String> {
    let number = |index: usize| values[index].number();
    let list = |index: usize| values[index].list();
    Ok(match function {
        Function::Min => Value::Number(number(0)?.min(number(1)?)),
        Function::Max => Value::Number(number(0)?.max(number(1)?)),
        Function::Align => {
            let (value, step) = (number(0)?, number(1)?);
            if step <= 0 {
                return Err(format!("align to {step}, expected a positive step"));
            }
            let missing = (step - value.rem_euclid(step)) % step;
            Value::Number(value.checked_add(missing).ok_or_else(overflow)?)
        }
        Function::Rank => Value::Number(i64::try_from(list(0)?.len()).map_err(|_| overflow())?),
        Function::Numel => Value::Number(Value::List(list(0)?.to_vec()).number()?),
        Function::Zeros => match number(0)? {
            length @ 0..=64 => Value::List(vec![0; usize::try_from(length).unwrap_or_default()]),
            other => return Err(format!("a list of {other} zeros")),
        },
        Function::Broadcast => Value::List(broadcast(list(0)?, list(1)?)?),
        Function::Within => {
            let (small, large) = (values[0].items()?, values[1].items()?);
            Value::Truth(small.len() == large.len() && small.iter().zip(&large).all(|(s, l)| s <= l))
        }
        Function::List => Value::List(flat(values)?),
        Function::Permuted => Value::List(shapes::permuted(list(0)?, list(1)?)?),
        Function::Permutation => Value::List(shapes::permutation(list(0)?, list(1)?)?),
        Function::Reduced => Value::List(shapes::reduced(list(0)?, &flat(&values[1..])?, false)?),
        Function::ReducedKept => Value::List(shapes::reduced(list(0)?, &flat(&values[1..])?, true)?),
        Function::Axes => Value::List(shapes::axes(list(0)?, list(1)?, number(2)?)?),
        Function::Axis => Value::Number(Value::List(shapes::axes(list(0)?, list(1)?, 1)?).number()?),
        Function::Joined => Value::List(shapes::joined(number(0)?, &lists(&values[1..])?)?),
        Function::Joint => Value::Number(shapes::joint(list(0)?, &lists(&values[1..])?)?),
        Function::Tiled => Value::List(shapes::tiled(list(0)?, list(1)?)?),
        Function::Tiles => Value::List(shapes::tiles(list(0)?, list(1)?)?),
        Function::Padded => Value::List(shapes::padded(list(0)?, list(1)?)?),
        Function::TrailingPads => Value::List(shapes::trailing_pads(list(0)?, list(1)?)?),
        Function::Strides => Value::List(shapes::strides(list(0)?)?),
        Function::Sum => Value::Number(sum(values[0].items()?.into_iter())?),
        Function::Count => Value::Number(i64::try_from(values[0].items()?.len()).map_err(|_| overflow())?),
        Function::Last => Value::Number(*values[0].items()?.last().ok_or_else(nothing)?),
        Function::Lowest => Value::Number(values[0].items()?.into_iter().min().ok_or_else(nothing)?),
        Function::Highest => Value::Number(values[0].items()?.into_iter().max().ok_or_else(nothing)?),
        Function::Differences => {
            let ends = values[0].items()?;
            let starts = std::iter::once(0).chain(ends.iter().copied());
            let steps = starts.zip(&ends).map(|(start, end)| end.checked_sub(start).ok_or_else(overflow));
            Value::List(steps.collect::<Result<_, _>>()?)
        }
        Function::Accumulated => {
            let mut end = 0_i64;
            let ends = values[0].items()?.into_iter().map(|step| {
                end = end.checked_add(step).ok_or_else(overflow)?;
                Ok(end)
            });
            Value::List(ends.collect::<Result<_, String>>()?)
        }
        Function::Shares => {
            let (total, groups) = (number(0)?, number(1)?);
            if total < 0 || !(1..=LONGEST).contains(&groups) {
                return Err(format!("{total} items in {groups} shares"));
            }
            let more = total % groups;
            Value::List((0..groups).map(|group| total / groups + i64::from(group < more)).collect())
        }
        Function::Repeated => match number(1)? {
            times @ 0..=LONGEST => Value::List(vec![number(0)?; usize::try_from(times).unwrap_or_default()]),
            other => return Err(format!("a list of {other} numbers")),
        },
        Function::Blocks => {
            let size = number(1)?;
            if size <= 0 {
                return Err(format!("blocks of {size}, expected a positive size"));
            }
            let blocks = |item: &i64| item / size + i64::from(item % size > 0);
            Value::List(values[0].items()?.iter().map(blocks).collect())
        }
        Function::Dot => {
            let (left, right) = (values[0].items()?, values[1].items()?);
            if left.len() != right.len() {
                return Err(format!("lists of {} and {} numbers", left.len(), right.len()));
            }
            let products = left.iter().zip(&right).map(|(l, r)| l.checked_mul(*r).ok_or_else(overflow));
            Value::Number(sum(products.collect::<Result<Vec<_>, _>>()?.into_iter())?)
        }
    })
}

/// Longer lists than any batch has sequences.
const LONGEST: i64 = 1 << 20;

fn sum(mut items: impl Iterator<Item = i64>) -> Result<i64, String> {
    items.try_fold(0_i64, i64::checked_add).ok_or_else(overflow)
}

fn nothing() -> String {
    "the list is empty".to_owned()
}

fn lists(values: &[Value]) -> Result<Vec<&[i64]>, String> {
    values.iter().map(Value::list).collect()
}

/// Numbers and lists behind each other.
fn flat(values: &[Value]) -> Result<Vec<i64>, String> {
    let mut numbers = Vec::new();
    for value in values {
        numbers.extend(value.items()?);
    }
    Ok(numbers)
}

/// The shape of an element-wise operation, by numpy's rule that torch shares.
fn broadcast(left: &[i64], right: &[i64]) -> Result<Vec<i64>, String> {
    let rank = left.len().max(right.len());
    let dim = |dims: &[i64], index: usize| (index + dims.len()).checked_sub(rank).map_or(1, |at| dims[at]);
    (0..rank)
        .map(|index| match (dim(left, index), dim(right, index)) {
            (l, r) if l == r || r == 1 => Ok(l),
            (1, r) => Ok(r),
            (l, r) => Err(format!("{l} and {r} do not broadcast")),
        })
        .collect()
}

struct Parser<'a> {
    source: &'a str,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn error(&self, problem: &str) -> ExprError {
        ExprError::Syntax {
            source_text: self.source.trim().to_owned(),
            problem: problem.to_owned(),
            column: self.at + 1,
        }
    }

    fn rest(&self) -> &str {
        &self.source[self.at..]
    }

    fn skip_blanks(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn take(&mut self, text: &str) -> bool {
        self.skip_blanks();
        let found = self.rest().starts_with(text);
        self.at += if found { text.len() } else { 0 };
        found
    }

    fn expression(&mut self, binds: u8) -> Result<Node, ExprError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.error("nested too deeply"));
        }
        let mut left = self.operand()?;
        while let Some((text, operator, strength)) = self.operator().filter(|found| found.2 > binds) {
            self.at += text.len();
            let right = self.expression(strength)?;
            left = Node::Binary(operator, Box::new(left), Box::new(right));
        }
        self.depth -= 1;
        Ok(left)
    }

    fn operator(&mut self) -> Option<(&'static str, Operator, u8)> {
        self.skip_blanks();
        let rest = self.rest();
        OPERATORS.into_iter().find(|(text, ..)| {
            let word = text.as_bytes()[0].is_ascii_alphabetic();
            let ends = rest.as_bytes().get(text.len()).is_none_or(|next| !is_name_byte(*next));
            rest.starts_with(text) && (!word || ends)
        })
    }

    fn operand(&mut self) -> Result<Node, ExprError> {
        if self.take("(") {
            let inner = self.expression(0)?;
            return if self.take(")") { Ok(inner) } else { Err(self.error("expected `)`")) };
        }
        if self.take("-") {
            return Ok(Node::Negative(Box::new(self.expression(MINUS_BINDS)?)));
        }
        let length = self.rest().bytes().take_while(|byte| is_name_byte(*byte)).count();
        let word = self.rest()[..length].to_owned();
        if word.is_empty() {
            return Err(self.error("expected a number, a name or `(`"));
        }
        if word == "not" {
            self.at += length;
            return Ok(Node::Not(Box::new(self.expression(NOT_BINDS)?)));
        }
        if word.as_bytes()[0].is_ascii_digit() {
            let number = word.parse().map_err(|_| self.error("expected a whole number"))?;
            self.at += length;
            return Ok(Node::Number(number));
        }
        if !self.rest()[length..].trim_start().starts_with('(') {
            self.at += length;
            return Ok(Node::Name(word));
        }
        self.call(&word)
    }

    fn call(&mut self, word: &str) -> Result<Node, ExprError> {
        let Some((_, function, arity)) = FUNCTIONS.into_iter().find(|(name, ..)| *name == word) else {
            let names = FUNCTIONS.map(|(name, ..)| name).join(", ");
            return Err(self.error(&format!("there is no function `{word}`; there are {names}")));
        };
        self.at += word.len();
        self.take("(");
        let mut arguments = Vec::new();
        loop {
            arguments.push(self.expression(0)?);
            if !self.take(",") {
                break;
            }
        }
        let (least, open) = if arity > OR_MORE { (arity - OR_MORE, true) } else { (arity, false) };
        if arguments.len() < least || (arguments.len() > least && !open) {
            let more = if open { " or more" } else { "" };
            return Err(
                self.error(&format!("`{word}` takes {least}{more} arguments, {} are given", arguments.len()))
            );
        }
        if self.take(")") { Ok(Node::Call(function, arguments)) } else { Err(self.error("expected `)`")) }
    }
}

const fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(source: &str) -> Result<Value, ExprError> {
        let mut bindings = Bindings::default();
        bindings.set("M", Value::Number(4096));
        bindings.set("X", Value::List(vec![4, 1, 8]));
        bindings.set("Y", Value::List(vec![6, 1]));
        Expr::parse(source)?.value(&bindings)
    }

    #[test]
    fn operators_bind_as_in_arithmetic() {
        assert_eq!(value("2 + 3 * 4 - 6 / 2"), Ok(Value::Number(11)));
        assert_eq!(value("-(2 + 3) * 4"), Ok(Value::Number(-20)));
        assert_eq!(value("10 - 4 - 3"), Ok(Value::Number(3)));
        assert_eq!(value("-7 % 4"), Ok(Value::Number(1)));
        assert_eq!(value("not M < 5 and M >= 4096 or 1 == 2"), Ok(Value::Truth(true)));
        assert_eq!(value("align(M + 1, 16)"), Ok(Value::Number(4112)));
    }

    #[test]
    fn lists_are_shapes() {
        assert_eq!(value("broadcast(X, Y)"), Ok(Value::List(vec![4, 6, 8])));
        assert_eq!(value("rank(X) + numel(Y)"), Ok(Value::Number(9)));
        assert_eq!(value("zeros(rank(X))"), Ok(Value::List(vec![0, 0, 0])));
        assert_eq!(value("within(Y, X)"), Ok(Value::Truth(false)));
    }

    #[test]
    fn lists_are_lengths_of_sequences_and_a_number_is_a_list_of_one() {
        assert_eq!(value("sum(X) + count(X) + last(X) + lowest(X) + highest(X)"), Ok(Value::Number(33)));
        assert_eq!(value("differences(accumulated(X))"), Ok(Value::List(vec![4, 1, 8])));
        assert_eq!(value("shares(10, 3)"), Ok(Value::List(vec![4, 3, 3])));
        assert_eq!(value("dot(blocks(X, 4), repeated(2, 3))"), Ok(Value::Number(8)));
        assert_eq!(value("sum(M) + count(M) + last(accumulated(M))"), Ok(Value::Number(8193)));
        let text = |source: &str| value(source).expect_err("no value").to_string();
        assert_eq!(text("dot(X, Y)"), "`dot(X, Y)`: lists of 3 and 2 numbers");
        assert_eq!(text("shares(4, 0)"), "`shares(4, 0)`: 4 items in 0 shares");
        assert_eq!(text("blocks(X, 0)"), "`blocks(X, 0)`: blocks of 0, expected a positive size");
        assert!(text("repeated(1, 9999999)").contains("a list of 9999999 numbers"));
    }

    #[test]
    fn what_has_no_value_says_why() {
        let text = |source: &str| value(source).expect_err("no value").to_string();
        assert_eq!(text("M / 3"), "`M / 3`: 4096 is not a multiple of 3");
        assert_eq!(text("N + 1"), "`N` has no value here");
        assert_eq!(text("M +"), "`M +`: expected a number, a name or `(` at column 4");
        assert_eq!(text("1 / 0"), "`1 / 0`: divides by zero");
        assert_eq!(text("9223372036854775807 + 1"), "`9223372036854775807 + 1`: does not fit 63 bits");
        assert!(text("median(M)").contains("there is no function `median`"));
        assert!(text("import os").contains("expected an operator"));
        assert!(text(&"(".repeat(500)).contains("nested too deeply"));
    }

    proptest! {
        #[test]
        fn any_text_is_handled(source in "[-+*/%()<>=!, a-zA-Z0-9_]{0,40}") {
            let _ = value(&source);
        }

        #[test]
        fn sums_and_products_agree_with_rust(a in -1000_i64..1000, b in -1000_i64..1000, c in 1_i64..50) {
            let source = format!("({a}) * ({b}) + {c} - ({a}) % {c}");
            prop_assert_eq!(value(&source), Ok(Value::Number(a * b + c - a.rem_euclid(c))));
        }
    }
}
