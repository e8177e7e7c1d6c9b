//! Lookups of the questions of a workload.

use super::{AnswerClass, CoverageTotals};
use crate::{
    answer::{
        lookup::{AnswerSource, LookupAnswer, LookupEngine, LookupError, MissReason, OpQuery, RuleKind},
        op_mapping::MappedOperator,
        workload::{Workload, WorkloadQuestion},
    },
    kernel::{KernelName, catalogue::Catalogue},
};

#[derive(Clone, Debug)]
pub struct AnsweredQuestion<'w> {
    pub question: &'w WorkloadQuestion,
    /// The query that the answer is for: of kernels of which one runs, the first with the best answer, from
    /// [`AnswerSource::Measured`] on.
    pub query: &'w OpQuery,
    /// The answer; `None` if the question cannot be looked up.
    pub answer: Option<LookupAnswer>,
    pub class: AnswerClass,
    /// True if no kernel runs, or one that counts as 0.
    pub is_free: bool,
    /// True if the catalogue has an entry of a kernel that would run; `None` if none runs, and for collectives.
    pub has_entry: Option<bool>,
}

impl AnsweredQuestion<'_> {
    /// Returns the reason of a missing answer; empty for others.
    pub fn reason(&self) -> String {
        self.reason_by(ToString::to_string)
    }

    pub(super) fn short_reason(&self) -> String {
        self.reason_by(|miss| miss.without_places().to_string())
    }

    fn reason_by(&self, text: impl Fn(&MissReason) -> String) -> String {
        match (&self.answer, &self.question.unreadable) {
            _ if self.class != AnswerClass::Missing => String::new(),
            (None, Some(reason)) => reason.to_string(),
            (Some(answer), _) => answer.miss.as_ref().map(text).unwrap_or_default(),
            (None, None) => String::new(),
        }
    }
}

#[derive(Clone, Debug)]
pub struct WorkloadCoverage<'w> {
    pub workload: &'w Workload,
    pub answers: Vec<AnsweredQuestion<'w>>,
}

impl WorkloadCoverage<'_> {
    pub fn totals(&self) -> CoverageTotals {
        let mut totals = CoverageTotals::default();
        for answer in &self.answers {
            totals.add_invocations(answer.class, answer.question.count, answer.question.time);
        }
        totals
    }
}

/// Adds the other names of a kernel's call to the alternates of questions about kernels: CANN chooses which of them runs, so that
/// a case of one may have been measured as the other.
pub(crate) fn add_equal_calls(workload: &mut Workload, catalogue: &Catalogue) {
    for question in &mut workload.questions {
        let Ok(kernel) = KernelName::new(&question.query.op) else { continue };
        if catalogue.entry(&kernel).is_none() {
            continue;
        }
        for name in catalogue.names_with_same_call(&kernel).into_iter().skip(1) {
            if question.queries().all(|query| query.op != name.as_str()) {
                question.alternates.push(OpQuery { op: name.as_str().to_owned(), ..question.query.clone() });
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct CoverageAnalyzer<'a> {
    pub engine: &'a LookupEngine,
    pub catalogue: &'a Catalogue,
}

impl CoverageAnalyzer<'_> {
    /// Looks all questions of a workload up. Fails with [`LookupError`] if a table cannot be read.
    pub fn answer_workload<'w>(&self, workload: &'w Workload) -> Result<WorkloadCoverage<'w>, LookupError> {
        let answers = workload.questions.iter().map(|question| self.answer_question(question));
        Ok(WorkloadCoverage { workload, answers: answers.collect::<Result<_, _>>()? })
    }

    pub(crate) fn answer_workloads<'w>(
        &self,
        workloads: &'w [Workload],
    ) -> Result<Vec<WorkloadCoverage<'w>>, LookupError> {
        workloads.iter().map(|workload| self.answer_workload(workload)).collect()
    }

    fn answer_question<'w>(
        &self,
        question: &'w WorkloadQuestion,
    ) -> Result<AnsweredQuestion<'w>, LookupError> {
        let has_entry = self.has_entry(question);
        // If there are no inputs, only operators without a kernel have an answer.
        let is_readable = question.unreadable.is_none() || self.is_free(&question.query.op);
        let mut best: Option<(&OpQuery, LookupAnswer)> = None;
        for query in question.queries().filter(|_| is_readable) {
            let answer = self.engine.lookup(query)?;
            let is_final = answer.source == AnswerSource::Measured;
            let is_better = best.as_ref().is_none_or(|(_, other)| {
                answer.source < other.source
                    || answer.source == other.source && !has_table(other) && has_table(&answer)
            });
            if is_better {
                best = Some((query, answer));
            }
            if is_final {
                break;
            }
        }
        let (query, answer) = best.map_or((&question.query, None), |(query, answer)| (query, Some(answer)));
        let class = answer.as_ref().map_or(AnswerClass::Missing, |answer| class_of_source(answer.source));
        let rule = answer.as_ref().and_then(|answer| answer.rule).map(|rule| rule.kind);
        let is_free = matches!(rule, Some(RuleKind::ZeroCost | RuleKind::AcceptedMiss));
        let has_entry = has_entry.filter(|_| !is_free);
        Ok(AnsweredQuestion { question, query, answer, class, is_free, has_entry })
    }

    pub(super) fn is_free(&self, op: &str) -> bool {
        self.engine.mapping().operator(op).is_some_and(MappedOperator::is_free)
    }

    /// Returns true if the catalogue can measure a kernel of a question; `None` if its kernels are collectives, or
    /// unknown.
    fn has_entry(&self, question: &WorkloadQuestion) -> Option<bool> {
        let mut is_known = false;
        for query in question.queries() {
            let kernels = self.engine.kernels_of(&query.op, &[]);
            if kernels.iter().any(KernelName::is_collective) {
                continue;
            }
            is_known |= !kernels.is_empty();
            if kernels.iter().any(|kernel| self.catalogue.entry(kernel).is_some()) {
                return Some(true);
            }
        }
        is_known.then_some(false)
    }
}

const fn class_of_source(source: AnswerSource) -> AnswerClass {
    match source {
        AnswerSource::Measured => AnswerClass::Measured,
        AnswerSource::Interpolated | AnswerSource::Scaled | AnswerSource::Padded => AnswerClass::Interpolated,
        AnswerSource::Partial | AnswerSource::Miss => AnswerClass::Missing,
    }
}

/// Returns true unless the reason of a miss is that there are no rows of the kernel at all.
fn has_table(answer: &LookupAnswer) -> bool {
    !matches!(answer.miss, Some(MissReason::Unmapped | MissReason::CsvNotFound(_)))
}
