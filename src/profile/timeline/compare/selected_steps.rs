//! Steps of a run whose work is compared.

use crate::profile::timeline::{modules::LaunchedTask, prelude::*};

#[derive(Clone, Debug, Default)]
pub(super) struct SelectedSteps {
    steps: HashSet<Option<u64>>,
    /// True if all calls of the host count: the numbers of a kernel table do not divide them.
    has_all_calls: bool,
}

impl SelectedSteps {
    /// Creates the selection of the steps of `times`. `are_all` is true without a choice of the user, `recorded` is the
    /// number of recorded steps.
    pub(super) fn new(run: &RunTimeline, times: &[&StepTimes], are_all: bool, recorded: usize) -> Self {
        Self {
            steps: times.iter().map(|own| own.step).collect(),
            has_all_calls: are_all && (recorded == 0 || run.steps.is_empty()),
        }
    }

    pub(super) fn includes_step(&self, step: Option<u64>) -> bool {
        self.steps.contains(&step)
    }

    pub(super) fn includes_call(&self, run: &RunTimeline, start: i64) -> bool {
        self.has_all_calls || run.host_step_number(start).is_some_and(|step| self.includes_step(Some(step)))
    }

    /// Returns the time of what a call launched in the selected steps, and true if it launched anything there.
    pub(super) fn time_of_call(&self, run: &RunTimeline, call: &OperatorCall) -> (i64, bool) {
        let tasks = call.tasks.iter().filter_map(|task| match *task {
            LaunchedTask::Kernel(at) => run.tasks.get(at as usize).map(|own| (own.step, own.span)),
            LaunchedTask::Collective(at) => run.collectives.get(at as usize).map(|own| (own.step, own.span)),
        });
        tasks
            .filter(|(step, _)| self.includes_step(*step))
            .fold((0, false), |(sum, _), (_, span)| (span.length().saturating_add(sum), true))
    }

    pub(super) fn numbers(&self) -> Vec<u64> {
        let mut numbers: Vec<u64> = self.steps.iter().copied().flatten().collect();
        numbers.sort_unstable();
        numbers
    }
}
