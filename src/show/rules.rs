//! `npubench rules`.

use super::prelude::*;
use crate::measure::verify::VerificationRule;

pub(crate) fn rules_table(rules: &[VerificationRule], width: Option<usize>) -> String {
    Table::new(rules)
        .text("rule", rank(0).min(16), |rule| rule.rule)
        .text("of", 2, |rule| rule.scope)
        .text("verdict", 0, |rule| rule.verdict)
        .text("condition of ok", rank(1).min(60), |rule| &rule.condition)
        .below(|_| true)
        .print(width)
}
