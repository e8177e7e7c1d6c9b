//! Assignment of device tasks to the steps of a run.
//!
//! The device works behind the host, so that the times of a step on the host do not bound its tasks. The window of a
//! step on a device begins with the first kernel or collective that was launched in the step, and ends with the last
//! one of these, but not before the host's end. A task belongs to the window in which it starts. Without recorded steps
//! of the host, the numbers in the kernel table count.

use super::{
    prelude::*,
    run::{HostStep, place_at},
};

pub(super) fn assign_steps(run: &mut RunTimeline) {
    if run.steps.is_empty() {
        return;
    }
    for device in run.devices() {
        let windows = device_windows(run, device);
        let step_at = |time: i64| place_at(&windows, time).map(|at| windows[at].number);
        for task in run.tasks.iter_mut().filter(|task| task.device == device) {
            task.step = step_at(task.span.start);
        }
        for collective in run.collectives.iter_mut().filter(|collective| collective.device == device) {
            collective.step = step_at(collective.span.start);
        }
    }
}

/// Returns the windows of the steps on a device, by start.
fn device_windows(run: &RunTimeline, device: Option<u32>) -> Vec<HostStep> {
    let mut hulls: Vec<Option<TimeSpan>> = vec![None; run.steps.len()];
    for LaunchedSpan { span, operator, launch, .. } in run.launched_on(device) {
        let launch = operator.and_then(|id| run.operator(id)).map(|operator| operator.span).or(launch);
        if let Some(at) = launch.and_then(|launch| place_at(&run.steps, launch.start)) {
            let hull = hulls[at].get_or_insert(span);
            *hull = TimeSpan::new(hull.start.min(span.start), hull.end.max(span.end));
        }
    }
    let mut windows = Vec::new();
    for (hull, step) in hulls.into_iter().zip(&run.steps) {
        // If there are no launches, the device is assumed to follow the host.
        let hull = hull.unwrap_or(step.span);
        // Ends are exclusive, and a task may start where the last one ends.
        let span = TimeSpan::new(hull.start, hull.end.max(step.span.end).saturating_add(1));
        windows.push(HostStep { span, number: step.number });
    }
    windows.sort_by_key(|window| window.span.start);
    for at in 1..windows.len() {
        windows[at - 1].span.end = windows[at - 1].span.end.min(windows[at].span.start);
    }
    windows
}
