//! Reasons why a case fits no form of an entry: the nearest form, and the difference between a case that contradicts itself
//! and one that the entry lacks.
//!
//! A case contradicts itself only if its dimensions or attributes conflict in every form with its slots. It is not covered if
//! one of these agrees with its dimensions and differs in types, in a limit, or in a value that the form fixes.

use std::cmp::Reverse;

use crate::kernel::{
    Case,
    catalogue::{
        EntryForm, NotReplayable,
        not_replayable::{Refusal, not_covered},
        rule_error::RuleMismatch,
    },
};

/// Reason why a case does not fit a form.
#[derive(Clone, Debug)]
pub(super) struct FormMismatch {
    pub(super) stage: MatchStage,
    /// Number of attributes, slots, dimensions, outputs and conditions that conflict.
    pub(super) conflicts: usize,
    reason: String,
}

/// The part in which a case and a form differ, of the farthest form first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MatchStage {
    /// The form is for rows with other attributes.
    Attributes,
    /// The form has other slots or other numbers of dimensions.
    Structure,
    /// Types or formats, and the dimensions conflict as well.
    Types,
    /// The dimensions conflict with each other, or attributes with them.
    Conflict,
    /// The dimensions agree; the type or format of an input is not that of the form.
    OnlyTypes,
    /// The dimensions and types of the inputs agree; the type of an output or an attribute is not that of the form.
    Value,
    /// The dimensions and types agree, and are beyond a limit of the form.
    Limit,
}

impl FormMismatch {
    pub(super) fn new(stage: MatchStage, refusal: &NotReplayable) -> Self {
        Self { stage, conflicts: 0, reason: refusal.to_string() }
    }

    /// Returns the mismatch of a form whose dimensions agree with the case.
    pub(super) fn after_dimensions(refusal: &NotReplayable) -> Self {
        let stage = match refusal {
            NotReplayable::Contradiction(_) => MatchStage::Conflict,
            NotReplayable::NotCovered(_) => MatchStage::Value,
        };
        Self::new(stage, refusal)
    }

    const fn is_about_shapes(&self) -> bool {
        matches!(self.stage, MatchStage::Structure | MatchStage::Conflict | MatchStage::Limit)
    }
}

impl From<RuleMismatch> for FormMismatch {
    fn from(mismatch: RuleMismatch) -> Self {
        let stage = match &mismatch {
            RuleMismatch::Structure(_) => MatchStage::Structure,
            RuleMismatch::Limit(_) => MatchStage::Limit,
            RuleMismatch::Dimensions(_) | RuleMismatch::NotConstant => MatchStage::Conflict,
        };
        Self { stage, conflicts: 0, reason: mismatch.to_string() }
    }
}

/// Returns the error of a case that fits no form, with the reason of the nearest one and the number of the others.
pub(super) fn no_form_fits(case: &Case, misfits: &[(&EntryForm, FormMismatch)]) -> NotReplayable {
    let Some((nearest, mismatch)) = nearest_form(misfits) else {
        return not_covered(format!("{} has no form for such rows", case.kernel));
    };
    let same = misfits.iter().filter(|(_, other)| other.reason == mismatch.reason).count();
    let problem = if same == misfits.len() && !mismatch.is_about_shapes() {
        mismatch.reason.clone()
    } else {
        let reason = &mismatch.reason;
        let nearest = match same - 1 {
            0 => format!("{}: {reason}", nearest.rule.name),
            more => format!("{} and {more} more: {reason}", nearest.rule.name),
        };
        let others = match misfits.len() - same {
            0 => String::new(),
            1 => "; another form differs more".to_owned(),
            count => format!("; {count} other forms differ more"),
        };
        let subject = match mismatch.is_about_shapes() {
            true => format!("the shapes {} fit no form of {}: ", case.shapes(), case.kernel),
            false => String::new(),
        };
        format!("{subject}{nearest}{others}")
    };
    let refusal = Refusal { problem, form: nearest.rule.name.clone() };
    match contradicts_itself(misfits) {
        true => NotReplayable::Contradiction(refusal),
        false => NotReplayable::NotCovered(refusal),
    }
}

fn contradicts_itself(misfits: &[(&EntryForm, FormMismatch)]) -> bool {
    let is_conflict = |(form, mismatch): &(&EntryForm, FormMismatch)| {
        form.is_replayed() && mismatch.stage == MatchStage::Conflict
    };
    let agrees = |(_, mismatch): &(&EntryForm, FormMismatch)| mismatch.stage > MatchStage::Conflict;
    misfits.iter().any(is_conflict) && !misfits.iter().any(agrees)
}

/// Returns the form that agrees with the case in most parts, of several the first. A form that no call launches is not the
/// nearest because of its types. Other attributes and other slots are equally far: one attribute too many is less than two
/// slots.
fn nearest_form<'a>(
    misfits: &'a [(&'a EntryForm, FormMismatch)],
) -> Option<(&'a EntryForm, &'a FormMismatch)> {
    let rank = |(form, mismatch): &(&EntryForm, FormMismatch)| {
        let is_replayed = form.is_replayed();
        let stage = if is_replayed { mismatch.stage } else { mismatch.stage.min(MatchStage::Conflict) };
        (stage.max(MatchStage::Structure), is_replayed, Reverse(mismatch.conflicts), mismatch.stage)
    };
    let nearest = misfits.iter().rev().max_by_key(|misfit| rank(misfit))?;
    Some((nearest.0, &nearest.1))
}
