//! Audit of the rows that answer workloads: by the lookups, and by the density standard between the rows of an
//! interpolation.

use std::collections::{BTreeMap, BTreeSet};

use super::{AnswerClass, AnsweredQuestion, CoverageAnalyzer, WorkloadCoverage, gap_key};
use crate::{
    answer::lookup::AnswerSource,
    cases::grid::{GridAuditor, SparseAxis},
    database::{Database, DatabaseError, for_each_measured_case, row_cases},
    kernel::{Case, KernelName},
};

#[derive(Clone, Debug)]
pub(crate) struct AuditedQuestion {
    pub(crate) kernel: String,
    pub(crate) shapes: String,
    pub(crate) state: AuditedAnswer,
    /// The case to add; `None` if nothing is to be added, or nothing can be.
    pub(crate) case: Option<Case>,
    /// True if a row without a latency has the case.
    pub(crate) is_planned: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AuditedAnswer {
    Measured,
    /// Rows between which the standard allows an interpolation.
    Dense,
    Sparse(SparseAxis),
    Missing(String),
}

impl AuditedQuestion {
    pub(crate) const fn is_answered(&self) -> bool {
        matches!(self.state, AuditedAnswer::Measured | AuditedAnswer::Dense)
    }
}

struct RowIndex<'a> {
    auditor: GridAuditor<'a>,
    database: &'a Database,
    by_line: BTreeMap<KernelName, BTreeMap<u64, Case>>,
    /// Signatures of the cases without a latency, in the form of the kernel's signatures.
    planned: BTreeMap<KernelName, BTreeSet<String>>,
}

/// Audits the distinct questions of workloads, in the order of the workloads. Questions that no kernel runs for are
/// left out.
pub(crate) fn audit_questions(
    analyzer: &CoverageAnalyzer<'_>,
    auditor: GridAuditor<'_>,
    database: &Database,
    coverages: &[WorkloadCoverage<'_>],
) -> Result<Vec<AuditedQuestion>, DatabaseError> {
    let (by_line, planned) = Default::default();
    let mut index = RowIndex { auditor, database, by_line, planned };
    let (mut known, mut audited) = (BTreeSet::new(), Vec::new());
    for answered in coverages.iter().flat_map(|coverage| &coverage.answers) {
        if answered.is_free || !known.insert(gap_key(answered)) {
            continue;
        }
        let case = analyzer.case_to_measure(answered);
        let source = answered.answer.as_ref().map(|answer| answer.source);
        let state = match answered.class {
            AnswerClass::Measured => AuditedAnswer::Measured,
            AnswerClass::Missing => AuditedAnswer::Missing(answered.reason()),
            // The standard is one of rows on both sides.
            AnswerClass::Interpolated
                if let Some(source @ (AnswerSource::Scaled | AnswerSource::Padded)) = source =>
            {
                AuditedAnswer::Missing(source.to_string())
            }
            AnswerClass::Interpolated => match &case {
                Some(case) => index.sparse_axis(answered, case)?,
                None => None,
            }
            .map_or(AuditedAnswer::Dense, AuditedAnswer::Sparse),
        };
        let query = &answered.question.query;
        let shapes =
            || query.inputs.iter().map(|tensor| format!("{:?}", tensor.dims)).collect::<Vec<_>>().join(";");
        let mut row = AuditedQuestion {
            kernel: case.as_ref().map_or_else(|| query.op.clone(), |case| case.kernel.to_string()),
            shapes: case.as_ref().map_or_else(shapes, Case::shapes),
            state,
            case: None,
            is_planned: false,
        };
        if let Some(case) = case.filter(|_| !row.is_answered()) {
            row.is_planned = index.is_planned(&case)?;
            row.case = Some(case).filter(|_| !row.is_planned);
        }
        audited.push(row);
    }
    Ok(audited)
}

impl RowIndex<'_> {
    fn sparse_axis(
        &mut self,
        answered: &AnsweredQuestion<'_>,
        case: &Case,
    ) -> Result<Option<SparseAxis>, DatabaseError> {
        let mut used = Vec::new();
        for row in answered.answer.iter().flat_map(|answer| &answer.rows) {
            if !self.by_line.contains_key(&row.kernel) {
                let rows = row_cases(&row.kernel, &self.database.kernel_csv(&row.kernel)?)?;
                let rows = rows.into_iter().filter_map(|row| Some((row.line, row.case.ok()?)));
                self.by_line.insert(row.kernel.clone(), rows.collect());
            }
            used.extend(self.by_line[&row.kernel].get(&u64::from(row.line)).cloned());
        }
        Ok(self.auditor.sparse_axis(case, &used))
    }

    /// Returns true if a row without a latency has the case, under any name of its call.
    fn is_planned(&mut self, case: &Case) -> Result<bool, DatabaseError> {
        if !self.planned.contains_key(&case.kernel) {
            let mut signatures = BTreeSet::new();
            for name in self.auditor.catalogue.names_with_same_call(&case.kernel) {
                let table = self.database.kernel_csv(&name)?;
                if !table.is_empty() {
                    for_each_measured_case(&name, &table, |row, is_measured| {
                        if !is_measured {
                            let row = Case { kernel: case.kernel.clone(), ..row.clone() };
                            signatures.insert(row.signature());
                        }
                    })?;
                }
            }
            self.planned.insert(case.kernel.clone(), signatures);
        }
        Ok(self.planned[&case.kernel].contains(&case.signature()))
    }
}
