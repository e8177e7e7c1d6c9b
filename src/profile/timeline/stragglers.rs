//! Ranks that arrive late at collectives. A rank that arrives early waits inside the collective, so that the shortest
//! duration of all ranks is the transfer, and the rank with it arrived last.

use super::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CollectiveArrival {
    pub(crate) name: String,
    pub(crate) step: Option<u64>,
    /// Nanoseconds by rank.
    pub(crate) durations: BTreeMap<u32, i64>,
}

impl CollectiveArrival {
    pub(crate) fn straggler(&self) -> Option<(u32, i64)> {
        self.durations.iter().map(|(rank, duration)| (*rank, *duration)).min_by_key(|(_, duration)| *duration)
    }

    pub(crate) fn last_rank(&self) -> Option<u32> {
        let (rank, _) = self.straggler()?;
        (self.total_wait() > 0).then_some(rank)
    }

    pub(crate) fn longest_wait(&self) -> Option<(u32, i64)> {
        let (_, transfer) = self.straggler()?;
        let waits = self.durations.iter().map(|(rank, duration)| (*rank, duration - transfer));
        waits.max_by_key(|(rank, wait)| (*wait, std::cmp::Reverse(*rank)))
    }

    pub(crate) fn total_wait(&self) -> i64 {
        let transfer = self.straggler().map_or(0, |(_, transfer)| transfer);
        sum_lengths(self.durations.values().map(|duration| duration - transfer))
    }
}

/// Times in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RankWaits {
    pub(crate) waited: i64,
    pub(crate) last: usize,
    pub(crate) caused: i64,
}

/// Returns a rank of several runs, which are of different executions: their collectives do not belong together.
pub(crate) fn repeated_rank(runs: &[RunTimeline]) -> Option<u32> {
    let mut ranks = BTreeSet::new();
    runs.iter().filter_map(|run| run.rank).find(|rank| !ranks.insert(*rank))
}

/// Returns the collectives that at least two ranks recorded, those with the longest waits first. Runs without a rank are
/// left out, and all if a rank is [repeated](repeated_rank). Repetitions of a name in a step are matched in their order.
pub(crate) fn collective_arrivals(runs: &[RunTimeline]) -> Vec<CollectiveArrival> {
    if repeated_rank(runs).is_some() {
        return Vec::new();
    }
    let mut found: BTreeMap<(String, Option<u64>, usize), BTreeMap<u32, i64>> = BTreeMap::new();
    for run in runs {
        let Some(rank) = run.rank else { continue };
        let mut repetitions: BTreeMap<(String, Option<u64>), usize> = BTreeMap::new();
        // Transfers between two ranks are numbered by each rank on its own, so that equal names are of different ones.
        for collective in run.collectives.iter().filter(|one| !one.is_point_to_point(&run.names)) {
            let key = (run.names.text(collective.name).to_owned(), collective.step);
            let repetition = repetitions.entry(key.clone()).or_default();
            let entry = found.entry((key.0, key.1, *repetition)).or_default();
            entry.insert(rank, collective.span.length());
            *repetition += 1;
        }
    }
    let mut arrivals: Vec<CollectiveArrival> = found
        .into_iter()
        .filter(|(_, durations)| durations.len() > 1)
        .map(|((name, step, _), durations)| CollectiveArrival { name, step, durations })
        .collect();
    arrivals.sort_by_key(|arrival| std::cmp::Reverse(arrival.total_wait()));
    arrivals
}

pub(crate) fn waits_by_rank(arrivals: &[CollectiveArrival]) -> BTreeMap<u32, RankWaits> {
    let mut ranks: BTreeMap<u32, RankWaits> = BTreeMap::new();
    for arrival in arrivals {
        let Some((straggler, transfer)) = arrival.straggler() else { continue };
        for (rank, duration) in &arrival.durations {
            let waits = ranks.entry(*rank).or_default();
            waits.waited = sum_lengths([waits.waited, duration - transfer]);
        }
        if arrival.total_wait() == 0 {
            continue;
        }
        let late = ranks.entry(straggler).or_default();
        late.last += 1;
        late.caused = sum_lengths([late.caused, arrival.total_wait()]);
    }
    ranks
}
