//! Runs the scheduler against a simulated host in virtual time: for previews of a plan and for tests. No result is stored.

use std::collections::{BTreeMap, BTreeSet};

use super::{CollectionFinished, SchedAction, SchedEvent, SchedulerState, Seconds, StartCollection};

pub trait SimulatedHost {
    fn finish_collection(&mut self, now: Seconds, start: &StartCollection) -> CollectionFinished;

    fn on_action(&mut self, _now: Seconds, _action: &SchedAction) {}
}

/// End of a collection in virtual nanoseconds, and its number: collections end in this order.
type VirtualTime = (u64, u32);

fn virtual_time(at: Seconds) -> u64 {
    (at.max(0.0) * 1e9) as u64
}

pub fn simulate(
    state: &mut SchedulerState,
    host: &mut impl SimulatedHost,
    mut others: Vec<(Seconds, SchedEvent)>,
) -> (Seconds, u64) {
    let mut ends: BTreeSet<VirtualTime> = BTreeSet::new();
    let mut ended: BTreeMap<u32, (Seconds, CollectionFinished)> = BTreeMap::new();
    others.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut wakes_at: Option<Seconds> = None;
    let mut now = 0.0;
    let mut events = 0;
    let mut next = Some(SchedEvent::Started);
    while let Some(event) = next.take() {
        events += 1;
        for action in state.on_event(now, event) {
            host.on_action(now, &action);
            match action {
                SchedAction::Start(start) => {
                    let end = host.finish_collection(now, &start);
                    let at = now + end.total;
                    ends.insert((virtual_time(at), start.collection));
                    ended.insert(start.collection, (at, end));
                }
                SchedAction::SetTimer(at) => wakes_at = Some(at),
                SchedAction::Finish => return (now, events),
                _ => {}
            }
        }
        let finish = ends.first().and_then(|(_, collection)| Some((*collection, ended.get(collection)?.0)));
        let other = others.last().map(|(at, _)| *at);
        let soonest =
            [finish.map(|(_, at)| at), other, wakes_at].into_iter().flatten().min_by(f64::total_cmp);
        let Some(soonest) = soonest else { break };
        now = soonest.max(now);
        if let Some((collection, at)) = finish
            && at <= soonest
        {
            ends.pop_first();
            next = ended.remove(&collection).map(|(_, end)| SchedEvent::Finished(end));
        } else if other.is_some_and(|at| at <= soonest) {
            next = others.pop().map(|(_, event)| event);
        } else {
            wakes_at = None;
            next = Some(SchedEvent::TimerFired);
        }
    }
    (now, events)
}
