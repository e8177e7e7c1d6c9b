//! From the text of a filter to its tree.

use std::ops::Range;

use super::{
    error::FilterFault,
    expr::{FilterExpr, FilterWord},
    lexer::{FilterToken, PlacedToken, tokenize},
};

/// Most parentheses and `!` within each other, so that no input exhausts the stack.
const MAX_DEPTH: usize = 64;
/// Most operators of a filter, whose tree is as deep as a chain of them is long.
const MAX_TOKENS: usize = 2000;

/// Parses a filter.
pub(super) fn parse_filter(text: &str) -> Result<FilterExpr, FilterFault> {
    let tokens = tokenize(text)?;
    if tokens.len() > MAX_TOKENS {
        let place = tokens[MAX_TOKENS].1.clone();
        let problem = format!("the filter has more than {MAX_TOKENS} words and operators");
        return Err(FilterFault::new(
            place,
            problem,
            "write a shorter filter, such as one by kernel or verdict",
        ));
    }
    let mut parser = FilterParser { tokens, next: 0, end: text.len() };
    let expr = parser.parse_or(0)?;
    match parser.peek() {
        None => Ok(expr),
        Some(FilterToken::Close) => Err(parser.fault("`)` without `(`", "remove it, or add `(` in front")),
        Some(token) => {
            let hint = hint_of_further_word(token);
            Err(parser.fault("expected `&` or `|`", hint))
        }
    }
}

/// Returns the hint for a token behind a condition.
fn hint_of_further_word(token: &FilterToken) -> &'static str {
    match token {
        FilterToken::Word(word) if word.starts_with('%') => {
            "write a value and its unit without a blank, such as `20%`"
        }
        _ => "connect two conditions with `&` or `|`",
    }
}

struct FilterParser {
    tokens: Vec<PlacedToken>,
    next: usize,
    /// Length of the text in bytes.
    end: usize,
}

impl FilterParser {
    fn peek(&self) -> Option<&FilterToken> {
        self.tokens.get(self.next).map(|(token, _)| token)
    }

    /// Place of the next token, or the end of the text.
    fn place(&self) -> Range<usize> {
        self.tokens.get(self.next).map_or(self.end..self.end, |(_, place)| place.clone())
    }

    fn fault(&self, problem: &str, hint: &str) -> FilterFault {
        let problem =
            if self.peek().is_none() { format!("{problem} at the end") } else { problem.to_owned() };
        FilterFault::new(self.place(), problem, hint)
    }

    fn takes(&mut self, token: &FilterToken) -> bool {
        let is_next = self.peek() == Some(token);
        self.next += usize::from(is_next);
        is_next
    }

    fn parse_or(&mut self, depth: usize) -> Result<FilterExpr, FilterFault> {
        let mut expr = self.parse_and(depth)?;
        while self.takes(&FilterToken::Or) {
            expr = FilterExpr::Or(Box::new(expr), Box::new(self.parse_and(depth)?));
        }
        Ok(expr)
    }

    fn parse_and(&mut self, depth: usize) -> Result<FilterExpr, FilterFault> {
        let mut expr = self.parse_condition(depth)?;
        while self.takes(&FilterToken::And) {
            expr = FilterExpr::And(Box::new(expr), Box::new(self.parse_condition(depth)?));
        }
        Ok(expr)
    }

    fn parse_condition(&mut self, depth: usize) -> Result<FilterExpr, FilterFault> {
        if depth > MAX_DEPTH {
            let problem = format!("more than {MAX_DEPTH} parentheses and `!` within each other");
            return Err(FilterFault::new(self.place(), problem, "remove some that change nothing"));
        }
        if self.takes(&FilterToken::Not) {
            return Ok(FilterExpr::Not(Box::new(self.parse_condition(depth + 1)?)));
        }
        if self.peek() == Some(&FilterToken::Open) {
            let open = self.place();
            self.next += 1;
            let inner = self.parse_or(depth + 1)?;
            return match self.peek() {
                Some(FilterToken::Close) => {
                    self.next += 1;
                    Ok(inner)
                }
                None => Err(FilterFault::new(open, "`(` without `)`", "add `)`")),
                Some(token) => {
                    let hint = hint_of_further_word(token);
                    Err(self.fault("expected `&`, `|` or `)`", hint))
                }
            };
        }
        if self.takes(&FilterToken::Has) {
            return Ok(FilterExpr::Has(self.parse_word("a name behind `has`", "such as `has median`")?));
        }
        let name = self.parse_word("a condition", "write one such as `kernel ~ MatMul` or `m <= 64`")?;
        let Some(FilterToken::Operator(operator)) = self.peek().cloned() else {
            let hint = format!("compare it, such as `{} = VALUE`, or write `has {}`", name.text, name.text);
            return Err(self.fault("expected an operator (= != < <= > >= ~ !~)", &hint));
        };
        self.next += 1;
        let value = self.parse_word("a value", "a value with spaces or operators needs quotes")?;
        Ok(FilterExpr::Comparison { name, operator, value })
    }

    fn parse_word(&mut self, expected: &str, hint: &str) -> Result<FilterWord, FilterFault> {
        let place = self.place();
        let Some(FilterToken::Word(text)) = self.peek().cloned() else {
            return Err(self.fault(&format!("expected {expected}"), hint));
        };
        self.next += 1;
        Ok(FilterWord { text, place })
    }
}
