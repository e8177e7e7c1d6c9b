//! From the text of an expression to its tree.

use std::{collections::BTreeSet, fmt, iter, ops::Range};

use strum::VariantArray as _;

use super::{
    functions::{ANY_NUMBER, ExprFunction},
    value::BinaryOperator,
};

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
            ExprKind::Binary(_, left, right) => vec![left, right],
            ExprKind::Call(_, arguments) => arguments.iter().collect(),
        }
    }

    pub(crate) fn names(&self) -> BTreeSet<&str> {
        self.nodes().filter_map(Self::name).collect()
    }

    /// Returns the node and all nodes below it, each before its children.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Self> {
        let mut open = vec![self];
        iter::from_fn(move || {
            let node = open.pop()?;
            open.extend(node.children().into_iter().rev());
            Some(node)
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    pub(crate) text: String,
    pub(crate) place: Range<usize>,
    pub(crate) problem: String,
    pub(crate) hint: String,
}

impl SyntaxError {
    pub(crate) fn new(text: &str, place: Range<usize>, problem: impl Into<String>, hint: &str) -> Self {
        Self { text: text.to_owned(), place, problem: problem.into(), hint: hint.to_owned() }
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {} at column {}", self.text, self.problem, self.place.start + 1)
    }
}

/// Most parentheses, calls and `not` within each other, so that no text exhausts the stack.
const MAX_DEPTH: usize = 64;
/// Most operators: a chain of them is a tree of that depth, which is evaluated recursively.
const MAX_OPERATORS: usize = 800;

const NOT: u8 = 3;
const COMPARISON: u8 = 4;
const SUM: u8 = 5;
const MINUS: u8 = 7;

fn strength(operator: BinaryOperator) -> u8 {
    match operator {
        BinaryOperator::Or => 1,
        BinaryOperator::And => 2,
        BinaryOperator::Add | BinaryOperator::Subtract => SUM,
        BinaryOperator::Multiply | BinaryOperator::Divide | BinaryOperator::Remainder => 6,
        _ => COMPARISON,
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word,
    Quoted(String),
    Infix(BinaryOperator),
    Not,
    Has,
    Open,
    Close,
    Comma,
}

/// Operators of signs; longer ones first, so that `<=` is not read as `<`.
static SIGNS: [(&str, Token); 20] = [
    ("==", Token::Infix(BinaryOperator::Equal)),
    ("!=", Token::Infix(BinaryOperator::NotEqual)),
    ("<=", Token::Infix(BinaryOperator::LessEqual)),
    (">=", Token::Infix(BinaryOperator::GreaterEqual)),
    ("!~", Token::Infix(BinaryOperator::ContainsNot)),
    ("=", Token::Infix(BinaryOperator::Equal)),
    ("<", Token::Infix(BinaryOperator::Less)),
    (">", Token::Infix(BinaryOperator::Greater)),
    ("~", Token::Infix(BinaryOperator::Contains)),
    ("|", Token::Infix(BinaryOperator::Or)),
    ("&", Token::Infix(BinaryOperator::And)),
    ("+", Token::Infix(BinaryOperator::Add)),
    ("-", Token::Infix(BinaryOperator::Subtract)),
    ("*", Token::Infix(BinaryOperator::Multiply)),
    ("/", Token::Infix(BinaryOperator::Divide)),
    ("%", Token::Infix(BinaryOperator::Remainder)),
    ("!", Token::Not),
    ("(", Token::Open),
    (")", Token::Close),
    (",", Token::Comma),
];

/// Operators of other languages, with what is written here.
const FOREIGN: [(&str, &str); 6] =
    [("&&", "&"), ("||", "|"), ("=~", "~"), ("<>", "!="), ("=<", "<="), ("=>", ">=")];

fn is_end_of_word(c: char) -> bool {
    c.is_whitespace() || "=!<>~&|()\"',+-*/%".contains(c)
}

pub(super) fn parse(text: &str) -> Result<ExprNode, SyntaxError> {
    let tokens = tokenize(text)?;
    let mut parser = Parser { text, tokens, next: 0, depth: 0, calls: 0, operators: 0 };
    let root = parser.expression(0)?;
    match parser.peek() {
        None => Ok(root),
        Some(Token::Close) => Err(parser.error("`)` without `(`", "remove it, or add `(` in front")),
        Some(_) => Err(parser.error("expected an operator or the end", CONNECT)),
    }
}

const CONNECT: &str = "connect two conditions with `&` or `|`; a value with spaces or operators needs quotes";

fn tokenize(text: &str) -> Result<Vec<(Token, Range<usize>)>, SyntaxError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        }
        let rest = &text[at..];
        if let Some((wrong, right)) = FOREIGN.iter().find(|(wrong, _)| rest.starts_with(wrong)) {
            let (problem, hint) = (format!("`{wrong}` is no operator"), format!("write `{right}`"));
            return Err(SyntaxError::new(text, at..at + 2, problem, &hint));
        }
        let sign = SIGNS.iter().find(|(sign, _)| rest.starts_with(sign));
        let (token, length) = match (first, sign) {
            ('"' | '\'', _) => quoted(text, at, first)?,
            (_, Some((sign, token))) => (token.clone(), sign.len()),
            _ => {
                let length = word_length(rest);
                let token = match &rest[..length] {
                    "or" => Token::Infix(BinaryOperator::Or),
                    "and" => Token::Infix(BinaryOperator::And),
                    "not" => Token::Not,
                    "has" => Token::Has,
                    _ => Token::Word,
                };
                (token, length)
            }
        };
        tokens.push((token, at..at + length));
        at += length;
    }
    Ok(tokens)
}

/// Returns the length of a word. `%` is the unit of a number in front if no number or name follows, as in `20% & …`.
fn word_length(rest: &str) -> usize {
    let length = rest.find(is_end_of_word).unwrap_or(rest.len());
    let is_number = rest.starts_with(|c: char| c.is_ascii_digit());
    let ends = |rest: &str| rest.starts_with(|c: char| c.is_whitespace() || "&|)".contains(c));
    match rest[length..].strip_prefix('%') {
        Some(behind) if is_number && (behind.is_empty() || ends(behind)) => length + 1,
        _ => length,
    }
}

/// Reads a text in quotes; a backslash takes the next character as it is.
fn quoted(text: &str, start: usize, quote: char) -> Result<(Token, usize), SyntaxError> {
    let mut content = String::new();
    let mut characters = text[start..].char_indices().skip(1);
    while let Some((offset, character)) = characters.next() {
        match character {
            '\\' => content.extend(characters.next().map(|(_, next)| next)),
            _ if character == quote => return Ok((Token::Quoted(content), offset + 1)),
            _ => content.push(character),
        }
    }
    let hint = format!("add {quote} behind the text");
    Err(SyntaxError::new(text, start..text.len(), "the quote does not end", &hint))
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<(Token, Range<usize>)>,
    next: usize,
    depth: usize,
    calls: usize,
    operators: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|(token, _)| token)
    }

    fn place(&self, index: usize) -> Range<usize> {
        self.tokens.get(index).map_or(self.text.len()..self.text.len(), |(_, place)| place.clone())
    }

    fn error(&self, problem: impl Into<String>, hint: &str) -> SyntaxError {
        SyntaxError::new(self.text, self.place(self.next), problem, hint)
    }

    fn takes(&mut self, token: &Token) -> bool {
        let is_next = self.peek() == Some(token);
        self.next += usize::from(is_next);
        is_next
    }

    fn node(&self, start: usize, kind: ExprKind) -> ExprNode {
        let end = self.place(self.next.saturating_sub(1)).end;
        ExprNode { kind, place: start..end }
    }

    fn expression(&mut self, binds: u8) -> Result<ExprNode, SyntaxError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            let problem = format!("is nested too deeply, the limit is {MAX_DEPTH} levels");
            return Err(self.error(problem, "remove parentheses that change nothing"));
        }
        let mut left = self.operand()?;
        let mut is_compared = false;
        while let Some(&Token::Infix(operator)) = self.peek()
            && let strength = strength(operator)
            && strength > binds
        {
            if is_compared && strength == COMPARISON {
                return Err(self.error("expected `&` or `|`", "compare each pair on its own"));
            }
            self.operators += 1;
            if self.operators > MAX_OPERATORS {
                let problem = format!("more than {MAX_OPERATORS} operators");
                return Err(self.error(problem, "write a shorter expression"));
            }
            self.next += 1;
            let start = left.place.start;
            is_compared = strength == COMPARISON;
            let right = if is_compared { self.value()? } else { self.expression(strength)? };
            left = self.node(start, ExprKind::Binary(operator, Box::new(left), Box::new(right)));
        }
        self.depth -= 1;
        Ok(left)
    }

    /// Parses the right side of a comparison. Words and signs without blanks that are no expression are one text: `64,1024`.
    fn value(&mut self) -> Result<ExprNode, SyntaxError> {
        let (start, depth, calls, operators) = (self.next, self.depth, self.calls, self.operators);
        let end = self.end_of_run();
        let parsed = self.expression(COMPARISON);
        if start == end || parsed.is_ok() && self.next >= end {
            return parsed;
        }
        (self.next, self.depth, self.calls, self.operators) = (end, depth, calls, operators);
        let place = self.place(start).start..self.place(end - 1).end;
        Ok(ExprNode { kind: ExprKind::Text(self.text[place.clone()].to_owned()), place })
    }

    /// Returns the index behind the tokens without a blank that may be parts of a text. Before `(` it is an expression.
    fn end_of_run(&self) -> usize {
        let is_part = |token: &Token| match token {
            Token::Word => true,
            Token::Infix(operator) => strength(*operator) >= SUM,
            Token::Comma => self.calls == 0,
            _ => false,
        };
        let mut end = self.next;
        while let Some((token, place)) = self.tokens.get(end)
            && is_part(token)
            && (end == self.next || self.place(end - 1).end == place.start)
        {
            end += 1;
        }
        if self.tokens.get(end).is_some_and(|(token, _)| *token == Token::Open) { self.next } else { end }
    }

    fn operand(&mut self) -> Result<ExprNode, SyntaxError> {
        let start = self.place(self.next).start;
        if self.takes(&Token::Open) {
            let open = self.place(self.next - 1);
            let inner = self.expression(0)?;
            return match self.peek() {
                Some(Token::Close) => {
                    self.next += 1;
                    Ok(inner)
                }
                None => Err(SyntaxError::new(self.text, open, "`(` without `)`", "add `)`")),
                Some(_) => Err(self.error("expected an operator or `)`", CONNECT)),
            };
        }
        if self.takes(&Token::Infix(BinaryOperator::Subtract)) {
            let inner = self.expression(MINUS)?;
            return Ok(self.node(start, ExprKind::Negative(Box::new(inner))));
        }
        if self.takes(&Token::Not) {
            let inner = self.expression(NOT)?;
            return Ok(self.node(start, ExprKind::Not(Box::new(inner))));
        }
        if self.takes(&Token::Has) {
            let word = self.word("expected a name behind `has`", "such as `has median`")?;
            return Ok(self.node(start, ExprKind::Has(Box::new(word))));
        }
        let is_call = matches!(self.tokens.get(self.next + 1), Some((Token::Open, _)));
        if is_call && self.peek() == Some(&Token::Word) {
            return self.call(start);
        }
        let hint = match self.next.checked_sub(1).and_then(|before| self.tokens.get(before)) {
            Some((Token::Infix(BinaryOperator::Remainder), _)) => "a percentage has no blank, as `20%`",
            _ => "write a condition such as `kernel ~ MatMul` or `m <= 64`",
        };
        self.word("expected a number, a name or `(`", hint)
    }

    fn word(&mut self, problem: &str, hint: &str) -> Result<ExprNode, SyntaxError> {
        let place = self.place(self.next);
        let word = &self.text[place.clone()];
        let kind = match self.peek() {
            Some(Token::Quoted(content)) => ExprKind::Text(content.clone()),
            Some(Token::Word) if word.starts_with(|c: char| c.is_ascii_digit()) => {
                whole_number(word).map_or_else(|| ExprKind::Text(word.to_owned()), ExprKind::Number)
            }
            Some(Token::Word) if word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') => {
                ExprKind::Name(word.to_owned())
            }
            Some(Token::Word) => ExprKind::Text(word.to_owned()),
            _ => return Err(self.error(problem, hint)),
        };
        self.next += 1;
        Ok(ExprNode { kind, place })
    }

    fn call(&mut self, start: usize) -> Result<ExprNode, SyntaxError> {
        let word = self.text[self.place(self.next)].to_owned();
        let Ok(function) = word.parse::<ExprFunction>() else {
            let names = ExprFunction::VARIANTS.iter().map(<&str>::from).collect::<Vec<_>>().join(", ");
            let problem = format!("there is no function `{word}`; the functions are {names}");
            return Err(self.error(problem, CONNECT));
        };
        self.next += 2;
        self.calls += 1;
        let mut arguments = vec![self.expression(0)?];
        while self.takes(&Token::Comma) {
            arguments.push(self.expression(0)?);
        }
        let counts = function.argument_counts();
        if !counts.contains(&arguments.len()) {
            let (least, most) = counts.into_inner();
            let expected = match most {
                ANY_NUMBER => format!("{least} or more"),
                most if most == least => least.to_string(),
                most => format!("{least} or {most}"),
            };
            let problem = format!("`{word}` takes {expected} arguments, {} are given", arguments.len());
            return Err(self.error(problem, ""));
        }
        if !self.takes(&Token::Close) {
            return Err(self.error("expected `)`", "add `)`"));
        }
        self.calls -= 1;
        Ok(self.node(start, ExprKind::Call(function, arguments)))
    }
}

/// Parses a number such as `64` or `1e6`.
fn whole_number(word: &str) -> Option<i64> {
    const MAX_EXACT: f64 = 9e15;
    let rounded = || word.parse::<f64>().ok().filter(|number| number.fract() == 0.0 && *number < MAX_EXACT);
    word.parse().ok().or_else(|| rounded().map(|number| number as i64))
}
