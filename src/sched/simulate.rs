//! The scheduler against a pretended host, in virtual time: what a plan comes to, and how the scheduler is tested.
//!
//! Nothing here is measured, and nothing of it is kept.

use std::collections::{BTreeMap, BTreeSet};

use super::{CollectionFinished, SchedAction, SchedEvent, SchedulerState, Seconds, StartCollection};

/// A host that is asked how a collection ends.
pub trait SimulatedHost {
    /// How a collection that begins now ends; its `total` says when.
    fn end(&mut self, now: Seconds, start: &StartCollection) -> CollectionFinished;

    /// Hears of every action.
    fn watch(&mut self, _now: Seconds, _action: &SchedAction) {}
}

/// A moment in virtual time; nanoseconds, so that moments can be keys.
type VirtualTime = (u64, u32);

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "virtual nanoseconds")]
fn moment(at: Seconds) -> u64 {
    (at.max(0.0) * 1e9) as u64
}

/// Carries a plan out on a pretended host; gives the moment at which everything had ended, and the number of events.
///
/// `others` are events besides the ends of collections, with their moments.
pub fn simulate(
    state: &mut SchedulerState,
    host: &mut impl SimulatedHost,
    others: Vec<(Seconds, SchedEvent)>,
) -> (Seconds, u64) {
    let mut ends: BTreeSet<VirtualTime> = BTreeSet::new();
    let mut ended: BTreeMap<u32, (Seconds, CollectionFinished)> = BTreeMap::new();
    let mut others: Vec<(Seconds, SchedEvent)> = others;
    others.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut wakes_at: Option<Seconds> = None;
    let mut now = 0.0;
    let mut events = 0;
    let mut next = Some(SchedEvent::Started);
    while let Some(event) = next.take() {
        events += 1;
        for action in state.on_event(now, event) {
            host.watch(now, &action);
            match action {
                SchedAction::Start(start) => {
                    let end = host.end(now, &start);
                    let at = now + end.total;
                    ends.insert((moment(at), start.collection));
                    ended.insert(start.collection, (at, end));
                }
                SchedAction::WakeAt(at) => wakes_at = Some(at),
                SchedAction::End => return (now, events),
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
            next = Some(SchedEvent::Woke);
        }
    }
    (now, events)
}
