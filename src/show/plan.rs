//! `npubench plan`: cases by kernel, predicted duration, and reasons of cases that would not be measured.

use super::{cases::SimilarCases, prelude::*};
use crate::{
    base::stats::{PrecisionAim, least_repeats},
    cases::plan::{InitialCosts, PlannedCase, RunPlan},
    kernel::{CaseOutcome, IdentifiedCase},
    measure::engine::{PlanPreview, ScheduledSlot},
};

record! {
    /// A case of a plan in JSON. A case has no keys without a value.
    #[derive(JsonSchema)]
    pub(crate) PlannedCaseRecord<'a>(
        case: &'a IdentifiedCase,
        planned: Option<(&'a PlannedCase, &Result<ScheduledSlot, Cause>, &InitialCosts)>,
        outcome: Option<&CaseOutcome>,
        cache: Option<CacheState>
    ) with {
        let slot = planned.and_then(|(_, slot, _)| slot.as_ref().ok());
        let refused = planned.and_then(|(_, slot, _)| slot.as_ref().err());
        let is_launched = |planned: &PlannedCase| case.id() == planned.case.id();
        let cost = |(planned, _, costs): (&PlannedCase, _, &InitialCosts)| {
            if is_launched(planned) { costs.case_seconds(planned.predicted_launch()) } else { 0.0 }
        };
        let shared = planned.map(|(planned, ..)| planned).filter(|planned| !is_launched(planned));
        let reason = |outcome: &CaseOutcome| format!("{}: {}", outcome.verdict, outcome.reason);
    } {
        case: &'a str = case.id().as_str(),
        kernel: &'a str = case.kernel.as_str(),
        inputs: String = case.shapes(),
        #[serde(skip_serializing_if = "Option::is_none")]
        weight: Option<f64> = planned.map(|(planned, ..)| planned.value),
        #[serde(skip_serializing_if = "Option::is_none")]
        cost_s: Option<f64> = planned.map(cost),
        /// Case with the same call whose launches it shares.
        #[serde(skip_serializing_if = "Option::is_none")]
        launched_as: Option<&'a str> = shared.map(|planned| planned.case.id().as_str()),
        #[serde(skip_serializing_if = "Option::is_none")]
        collection: Option<u32> = slot.map(|slot| slot.collection),
        #[serde(skip_serializing_if = "Option::is_none")]
        device: Option<u32> = slot.map(|slot| slot.device),
        #[serde(skip_serializing_if = "Option::is_none")]
        start_s: Option<f64> = slot.map(|slot| slot.starts_at),
        #[serde(skip_serializing_if = "Option::is_none")]
        end_s: Option<f64> = slot.map(|slot| slot.ends_at),
        #[serde(skip_serializing_if = "Option::is_none")]
        verdict: Option<Verdict> = outcome.map(|outcome| outcome.verdict),
        /// Reason why the case would not be launched.
        #[serde(skip_serializing_if = "Option::is_none")]
        not_launched: Option<String> = refused.map(ToString::to_string).or_else(|| outcome.map(reason)),
        /// Name of the cause of it.
        #[serde(skip_serializing_if = "Option::is_none")]
        cause: Option<&'static str> = refused.or(outcome.map(|outcome| &outcome.reason.cause)).map(Cause::name),
        #[serde(skip_serializing_if = "Option::is_none")]
        cache: Option<CacheState> = cache,
    }
}

/// Returns the cases of a plan, with the state of the cache if it is given: scheduled cases in the order of the plan, each
/// followed by those that share its launches, then cases that are not launched.
pub(crate) fn planned_cases<'a>(
    plan: &'a RunPlan,
    preview: &PlanPreview,
    costs: &InitialCosts,
    cache: Option<CacheState>,
) -> Vec<PlannedCaseRecord<'a>> {
    let scheduled = plan.cases.iter().zip(&preview.cases).flat_map(|(planned, slot)| {
        let of_case = move |case| PlannedCaseRecord::new(case, Some((planned, slot, costs)), None, cache);
        planned.cases().map(of_case)
    });
    let others = plan.not_launched.iter();
    let others = others.map(|(case, outcome)| PlannedCaseRecord::new(case, None, Some(outcome), cache));
    scheduled.chain(others).collect()
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanReport<'a> {
    pub(crate) plan: &'a RunPlan,
    pub(crate) preview: &'a PlanPreview,
    pub(crate) further: Option<FurtherCollections>,
    pub(crate) budget: Option<f64>,
    /// Seconds until the start, for example while another state of the cache is measured first.
    pub(crate) starts_in: f64,
    /// True if another state of the cache takes the time that this one does not use.
    pub(crate) is_followed: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct FurtherCollections {
    percent: f64,
    /// Seconds of the cases that are measured again in any case.
    pub(crate) least: f64,
    most: f64,
}

impl FurtherCollections {
    /// Predicts the time in proportion to the time of the first collections.
    pub(crate) fn new(aim: PrecisionAim, preview: &PlanPreview) -> Option<Self> {
        let cases = preview.cases.iter().filter(|slot| slot.is_ok()).count();
        let least = least_repeats(cases, aim.max_collections) as f64;
        (cases > 0).then(|| Self {
            percent: aim.half_width * 100.0,
            least: preview.duration * least / cases as f64,
            most: preview.duration * (aim.max_collections - 1) as f64,
        })
    }
}

impl PlanReport<'_> {
    /// Returns the seconds of the given time that the run does not use, even with all further collections.
    fn unused_seconds(&self) -> Option<f64> {
        let most = self.further.map_or(0.0, |further| further.most);
        Some(self.budget.filter(|_| !self.is_followed)? - self.preview.duration - most)
    }

    /// Returns the shares of the plan in the time of the production records of its rows: to measure, not in time, not launched.
    fn recorded_shares(&self) -> Option<[f64; 3]> {
        let recorded = &self.plan.recorded;
        let share_of = |is_scheduled: bool| {
            let slots = self.preview.cases.iter().zip(&self.plan.cases);
            let planned = slots.filter(|(slot, _)| slot.is_ok() == is_scheduled).map(|(_, planned)| planned);
            recorded.share(planned.flat_map(PlannedCase::cases).map(IdentifiedCase::id))
        };
        let not_launched = recorded.share(self.plan.not_launched.iter().map(|(case, _)| case.id()))?;
        Some([share_of(true)?, share_of(false)?, not_launched])
    }

    pub(crate) fn text(&self, now: Timestamp, width: Option<usize>) -> String {
        let Self { plan, preview, .. } = self;
        // To measure, not in time, not launched.
        let mut lines: BTreeMap<&KernelName, [usize; 3]> = BTreeMap::new();
        let mut groups: BTreeMap<String, SimilarCases> = BTreeMap::new();
        for (slot, planned) in preview.cases.iter().zip(&plan.cases) {
            for case in planned.cases() {
                let line = lines.entry(&case.kernel).or_default();
                let Err(cause) = slot else {
                    line[0] += 1;
                    continue;
                };
                line[1] += 1;
                groups.entry(cause.group().join(" ")).or_default().add(&cause.to_string(), &case.kernel);
            }
        }
        for (case, outcome) in &plan.not_launched {
            lines.entry(&case.kernel).or_default()[2] += 1;
            let group = format!("{} {}", outcome.verdict, outcome.reason.cause.group().join(" "));
            let text = format!("{}: {}", outcome.verdict, outcome.reason);
            groups.entry(group).or_default().add(&text, &case.kernel);
        }
        let all = [0, 1, 2].map(|at| lines.values().map(|line| line[at]).sum::<usize>());
        let rows = lines.iter().map(|(kernel, line)| (kernel.as_str(), line));
        let mut text = Table::new(rows.chain((!lines.is_empty()).then_some(("all", &all))))
            .text("kernel", rank(0).min(8), |(kernel, _)| kernel)
            .number("to measure", 0, |(_, line)| unless_zero(line[0]))
            .number("not in time", 0, |(_, line)| unless_zero(line[1]))
            .number("not launched", 0, |(_, line)| unless_zero(line[2]))
            .print(width);
        let already_measured = format_count(plan.already_measured, "case");
        text += &match all[0] {
            0 => format!("no case would be measured; {already_measured} already measured\n"),
            measured => format!(
                "{} in {} on {} would take about {}; {already_measured} already measured\n",
                format_count(measured, "case"),
                format_count(preview.collections, "collection"),
                format_count(preview.devices.len(), "device"),
                format_duration(preview.duration),
            ),
        };
        if let Some(FurtherCollections { percent, least, most }) = self.further {
            let (least, most) = (format_duration(least), format_duration(most));
            text += &format!(
                "further collections for {percent} % take from {least} to {most}, or the rest of the given time\n"
            );
        }
        text += &self.time_lines(now, all[0] > 0);
        let equal_cases: usize = plan.cases.iter().map(|planned| planned.equal_cases.len()).sum();
        if equal_cases > 0 {
            let cases = format_count(equal_cases, "case");
            text += &format!("{cases} with the same call as another one: each call is launched once\n");
        }
        for similar in groups.into_values() {
            let kernels = match similar.kernels.len() {
                1 => joined(similar.kernels.keys(), ", "),
                _ => with_counts(&similar.kernels),
            };
            text += &format!("{} of {kernels}{}: {}\n", similar.count(), similar.such_as(), similar.first);
        }
        text
    }

    fn time_lines(&self, now: Timestamp, is_measuring: bool) -> String {
        let mut text = String::new();
        if let Some(budget) = self.budget {
            let [ends, limit] = [self.preview.duration, budget]
                .map(|seconds| now.plus_seconds(self.starts_in + seconds).local_date_time());
            text += &match is_measuring {
                true => {
                    format!("the first collections end at about {ends}; the given time ends at {limit}\n")
                }
                false => format!("the given time ends at {limit}\n"),
            };
        }
        if let Some(unused) = self.unused_seconds().filter(|unused| *unused >= 60.0) {
            text += &format!(
                "{} of it stay unused: `run` takes more with a smaller `--precision` or a greater `--max-collections`, \
                 `--update all` measures all rows again, and `npubench fill` and `npubench adapt` measure cases that the \
                 database lacks\n",
                format_duration(unused)
            );
        }
        // Rounded, a share of 0.00 % is nothing.
        let is_shown = |share: f64| share >= 5e-5;
        if let Some([to_measure, not_in_time, not_launched]) =
            self.recorded_shares().filter(|[to_measure, ..]| is_shown(1.0 - to_measure))
        {
            let shares = [
                (to_measure, "to measure"),
                (not_in_time, "not in time"),
                (not_launched, "not launched"),
                ((1.0 - to_measure - not_in_time - not_launched).max(0.0), "already measured"),
            ];
            let shares = shares.into_iter().filter(|(share, _)| is_shown(*share));
            let shares = joined(shares.map(|(share, name)| format!("{:.2} % {name}", 100.0 * share)), ", ");
            text += &format!("of the recorded time of the rows: {shares}\n");
        }
        text
    }
}
