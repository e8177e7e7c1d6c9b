//! Launches that ran as another kernel with the same call: which of them runs is the choice of CANN. They are a
//! measurement of the kernel that ran, and of every row of the call under one of its names.

use super::{ExpectedLaunches, RawRecord};
use crate::kernel::cause::OtherKernel;
use crate::kernel::{
    Attempt, Case, CaseId, CaseOutcome, Cause, EqualCallAttempt, IdentifiedCase, KernelName, Verdict,
};

#[derive(Clone, Debug)]
pub struct EqualKernel<'a> {
    pub kernel: &'a KernelName,
    pub names: Vec<&'a str>,
}

impl<'a> ExpectedLaunches<'a> {
    /// Returns the names of the kernel that ran: the case's, or the equal kernel with this index.
    pub(super) fn names_of(&self, ran_as: Option<usize>) -> &[&'a str] {
        let other = ran_as.and_then(|index| self.equal_kernels.get(index));
        other.map_or(&self.names, |other| &other.names)
    }
}

/// Returns true if a profile shows a kernel with these names as `recorded`: under one of them, or as a numbered variant.
pub(super) fn is_kernel_name(names: &[&str], recorded: &str) -> bool {
    names.contains(&recorded)
        || KernelName::without_variant(recorded).is_some_and(|kernel| names.contains(&kernel))
}

pub(super) struct KernelRecords<'r> {
    /// Its launches, without those of other kernels of the call.
    pub(super) launches: Vec<&'r RawRecord>,
    /// Index of the equal kernel as which the call ran; `None` for the case's own kernel.
    pub(super) ran_as: Option<usize>,
}

impl<'r> KernelRecords<'r> {
    /// Finds the records of the case's kernel or of the equal kernel that ran; none if there are no records of these. The
    /// error is the outcome of a case whose launches ran as several of them.
    pub(super) fn find(
        expected: &ExpectedLaunches<'_>,
        records: &'r [RawRecord],
    ) -> Result<Self, CaseOutcome> {
        let kernels = std::iter::once(None).chain((0..expected.equal_kernels.len()).map(Some));
        let mut found = kernels.filter_map(|ran_as| {
            let names = expected.names_of(ran_as);
            let is_launch = |record: &&RawRecord| is_kernel_name(names, &record.kernel);
            let launches: Vec<&RawRecord> = records.iter().filter(is_launch).collect();
            (!launches.is_empty()).then_some(Self { launches, ran_as })
        });
        let first = found.next().unwrap_or(Self { launches: Vec::new(), ran_as: None });
        if let (Some(one), Some(other)) = (first.launches.first(), found.next()) {
            let other = other.launches.first().map_or("", |record| record.kernel.as_str());
            let kernels = [one.kernel.clone(), other.to_owned()];
            return Err(CaseOutcome::new(Verdict::WrongKernel, Cause::RanAsSeveral { kernels }));
        }
        Ok(first)
    }
}

/// Divides the attempt at a call among the cases with this call: the planned case, its equal cases, and a case of the type
/// of the kernel that ran, unless an equal case is of that type. Cases under any name of the kernel that ran get the launches
/// and the outcome; the others, of which the planned case may be one, end as `ran_as_other` without launches.
///
/// Launches that are no measurement (`throttled`, `implausible` …) are not divided: the planned case has the outcome, and
/// the launches too if its own kernel ran.
pub(super) fn share_attempt(
    attempt: Attempt,
    expected: &ExpectedLaunches<'_>,
    ran_as: Option<usize>,
) -> Attempt {
    let other = ran_as.and_then(|index| expected.equal_kernels.get(index)).map(|other| other.kernel);
    if !attempt.outcome.verdict.has_samples() {
        let Some(kernel) = other else { return attempt };
        let outcome = failed_as_other(kernel, &attempt.outcome);
        return Attempt::without_launches(attempt.case, attempt.launched, outcome);
    }
    let mut cases = expected.equal_cases.to_vec();
    if let Some(kernel) = other.filter(|kernel| cases.iter().all(|case| case.kernel != **kernel)) {
        cases.push(IdentifiedCase::new(Case { kernel: kernel.clone(), ..expected.case.clone() }));
    }
    let names = expected.names_of(ran_as);
    let kernel = names.first().copied().unwrap_or(expected.case.kernel.as_str());
    let without_launches = |case: CaseId| {
        Attempt::without_launches(case, attempt.launched, ran_as_other_outcome(kernel, &attempt.outcome))
    };
    let of_equal_calls = cases.into_iter().map(|case| {
        let id = case.id().clone();
        let attempt = match is_kernel_name(names, case.kernel.as_str()) {
            true => Attempt { case: id, ..attempt.clone() },
            false => without_launches(id),
        };
        EqualCallAttempt { case, attempt }
    });
    let of_equal_calls = of_equal_calls.collect();
    let of_planned_case = if other.is_some() { without_launches(attempt.case.clone()) } else { attempt };
    Attempt { of_equal_calls, ..of_planned_case }
}

/// Returns the outcome of a case whose launches ran as another kernel, of this type, and are no measurement.
pub(super) fn failed_as_other(kernel: &KernelName, outcome: &CaseOutcome) -> CaseOutcome {
    outcome.clone().with_remark(Cause::RanAs { kernel: kernel.to_string() })
}

/// Returns true for the outcome of a case whose launches ran as a kernel of this type.
pub(super) fn is_measured_as(outcome: &CaseOutcome, kernel: &KernelName) -> bool {
    matches!(&outcome.reason.cause, Cause::MeasuredAs(other) if other.kernel == kernel.as_str())
}

/// Returns the outcome of a case whose launches ran as another kernel, of this type.
fn ran_as_other_outcome(kernel: &str, outcome: &CaseOutcome) -> CaseOutcome {
    let CaseOutcome { verdict, reason } = outcome;
    let result = (*verdict != Verdict::Ok).then(|| (*verdict, Box::new(reason.cause.clone())));
    CaseOutcome::new(
        Verdict::RanAsOther,
        Cause::MeasuredAs(OtherKernel { kernel: kernel.to_owned(), result }),
    )
}
