//! Words and operators of a filter.

use std::{cmp::Reverse, ops::Range};

use strum::VariantArray as _;

use super::{
    error::FilterFault,
    expr::{FilterOperator, HAS, SPECIAL},
};

/// A part of a filter.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum FilterToken {
    Word(String),
    Has,
    Operator(FilterOperator),
    Not,
    And,
    Or,
    Open,
    Close,
}

pub(super) type PlacedToken = (FilterToken, Range<usize>);

/// Divides a filter into its parts.
pub(super) fn tokenize(text: &str) -> Result<Vec<PlacedToken>, FilterFault> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        }
        let (token, length) = match first {
            '"' | '\'' => quoted_word(text, at, first)?,
            _ if SPECIAL.contains(first) => operator(text, at)?,
            _ => {
                let is_end = |c: char| c.is_whitespace() || SPECIAL.contains(c);
                let rest = &text[at..];
                let word = &rest[..rest.find(is_end).unwrap_or(rest.len())];
                let token = if word == HAS { FilterToken::Has } else { FilterToken::Word(word.to_owned()) };
                (token, word.len())
            }
        };
        tokens.push((token, at..at + length));
        at += length;
    }
    Ok(tokens)
}

/// Reads a word in quotes; a backslash takes the next character as it is.
fn quoted_word(text: &str, start: usize, quote: char) -> Result<(FilterToken, usize), FilterFault> {
    let mut word = String::new();
    let mut characters = text[start..].char_indices().skip(1);
    while let Some((offset, character)) = characters.next() {
        match character {
            '\\' => word.extend(characters.next().map(|(_, next)| next)),
            _ if character == quote => return Ok((FilterToken::Word(word), offset + 1)),
            _ => word.push(character),
        }
    }
    Err(FilterFault::new(start..text.len(), "the quote does not end", format!("add {quote} behind the text")))
}

fn operator(text: &str, at: usize) -> Result<(FilterToken, usize), FilterFault> {
    // Operators of other languages, with what this one has.
    let foreign =
        [("==", "="), ("&&", "&"), ("||", "|"), ("=~", "~"), ("<>", "!="), ("=<", "<="), ("=>", ">=")];
    let rest = &text[at..];
    if let Some((wrong, right)) = foreign.iter().find(|(wrong, _)| rest.starts_with(wrong)) {
        let problem = format!("`{wrong}` is no operator");
        return Err(FilterFault::new(at..at + wrong.len(), problem, format!("write `{right}`")));
    }
    // The longest first: `<=` begins with `<`.
    let mut comparisons: Vec<(String, FilterOperator)> =
        FilterOperator::VARIANTS.iter().map(|operator| (operator.to_string(), *operator)).collect();
    comparisons.sort_by_key(|(sign, _)| Reverse(sign.len()));
    if let Some((sign, operator)) = comparisons.into_iter().find(|(sign, _)| rest.starts_with(sign.as_str()))
    {
        return Ok((FilterToken::Operator(operator), sign.len()));
    }
    let token = match rest.as_bytes().first() {
        Some(b'!') => FilterToken::Not,
        Some(b'&') => FilterToken::And,
        Some(b'|') => FilterToken::Or,
        Some(b'(') => FilterToken::Open,
        _ => FilterToken::Close,
    };
    Ok((token, 1))
}
