//! Parser of expressions.

use strum::VariantArray as _;

use super::{
    arithmetic::BinaryOperator,
    error::ExprError,
    functions::{ANY_NUMBER, ExprFunction},
    node::ExprNode,
};

/// (text, operator, precedence); longer texts first, so that `<=` is not read as `<`.
const OPERATORS: [(&str, BinaryOperator, u8); 13] = [
    ("or", BinaryOperator::Or, 1),
    ("and", BinaryOperator::And, 2),
    ("==", BinaryOperator::Equal, 4),
    ("!=", BinaryOperator::NotEqual, 4),
    ("<=", BinaryOperator::LessEqual, 4),
    (">=", BinaryOperator::GreaterEqual, 4),
    ("<", BinaryOperator::Less, 4),
    (">", BinaryOperator::Greater, 4),
    ("+", BinaryOperator::Add, 5),
    ("-", BinaryOperator::Subtract, 5),
    ("*", BinaryOperator::Multiply, 6),
    ("/", BinaryOperator::Divide, 6),
    ("%", BinaryOperator::Remainder, 6),
];
/// The precedence of `not` is between those of `and` and of comparisons.
const NOT_BINDS: u8 = 3;
const MINUS_BINDS: u8 = 7;
/// Greatest nesting: more than any file needs. Limits recursion on hostile files.
const DEEPEST: usize = 64;
/// Greatest number of operators: a chain of them is a tree of that depth, which is evaluated recursively.
const MOST_OPERATORS: usize = 400;

pub(crate) fn parse(source: &str) -> Result<ExprNode, ExprError> {
    let mut parser = ExprParser { source, at: 0, depth: 0, operators: 0 };
    let root = parser.expression(0)?;
    parser.skip_blanks();
    if parser.at < source.len() {
        return Err(parser.error("expected an operator or the end"));
    }
    Ok(root)
}

struct ExprParser<'a> {
    source: &'a str,
    at: usize,
    depth: usize,
    operators: usize,
}

impl ExprParser<'_> {
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

    fn expression(&mut self, binds: u8) -> Result<ExprNode, ExprError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.error("nested too deeply"));
        }
        let mut left = self.operand()?;
        while let Some((text, operator, strength)) = self.operator().filter(|found| found.2 > binds) {
            self.operators += 1;
            if self.operators > MOST_OPERATORS {
                return Err(self.error(&format!("more than {MOST_OPERATORS} operators")));
            }
            self.at += text.len();
            let right = self.expression(strength)?;
            left = ExprNode::Binary(operator, Box::new(left), Box::new(right));
        }
        self.depth -= 1;
        Ok(left)
    }

    fn operator(&mut self) -> Option<(&'static str, BinaryOperator, u8)> {
        self.skip_blanks();
        let rest = self.rest();
        OPERATORS.into_iter().find(|(text, ..)| {
            let word = text.as_bytes()[0].is_ascii_alphabetic();
            let ends = rest.as_bytes().get(text.len()).is_none_or(|next| !is_name_byte(*next));
            rest.starts_with(text) && (!word || ends)
        })
    }

    fn operand(&mut self) -> Result<ExprNode, ExprError> {
        if self.take("(") {
            let inner = self.expression(0)?;
            return if self.take(")") { Ok(inner) } else { Err(self.error("expected `)`")) };
        }
        if self.take("-") {
            return Ok(ExprNode::Negative(Box::new(self.expression(MINUS_BINDS)?)));
        }
        let length = self.rest().bytes().take_while(|byte| is_name_byte(*byte)).count();
        let word = self.rest()[..length].to_owned();
        if word.is_empty() {
            return Err(self.error("expected a number, a name or `(`"));
        }
        if word == "not" {
            self.at += length;
            return Ok(ExprNode::Not(Box::new(self.expression(NOT_BINDS)?)));
        }
        if word.as_bytes()[0].is_ascii_digit() {
            let number = word.parse().map_err(|_| self.error("expected a whole number"))?;
            self.at += length;
            return Ok(ExprNode::Number(number));
        }
        if !self.rest()[length..].trim_start().starts_with('(') {
            self.at += length;
            return Ok(ExprNode::Name(word));
        }
        self.call(&word)
    }

    fn call(&mut self, word: &str) -> Result<ExprNode, ExprError> {
        let Ok(function) = word.parse::<ExprFunction>() else {
            let names = ExprFunction::VARIANTS.iter().map(<&str>::from).collect::<Vec<_>>().join(", ");
            return Err(self.error(&format!("there is no function `{word}`; the functions are {names}")));
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
        let counts = function.argument_counts();
        if !counts.contains(&arguments.len()) {
            let (least, most) = counts.into_inner();
            let expected = match most {
                ANY_NUMBER => format!("{least} or more"),
                most if most == least => least.to_string(),
                most => format!("{least} or {most}"),
            };
            let given = arguments.len();
            return Err(self.error(&format!("`{word}` takes {expected} arguments, {given} are given")));
        }
        if self.take(")") { Ok(ExprNode::Call(function, arguments)) } else { Err(self.error("expected `)`")) }
    }
}

const fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}
