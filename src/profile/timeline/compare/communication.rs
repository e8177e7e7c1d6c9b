//! Waits and transmission of the collectives of a run.

use crate::profile::timeline::prelude::*;

#[derive(Debug)]
pub(super) struct CollectiveTasks<'a> {
    run: &'a RunTimeline,
    by_collective: HashMap<Option<CollectiveId>, Vec<&'a CollectiveTask>>,
    is_complete: bool,
}

impl<'a> CollectiveTasks<'a> {
    /// Returns the tasks of a run; `None` if it has collectives, but their tasks or the types of these are not recorded.
    pub(super) fn new(run: &'a RunTimeline) -> Option<Self> {
        let has_types = run.collective_tasks.iter().any(|task| task.kind.is_recorded());
        if !has_types && !run.collectives.is_empty() {
            return None;
        }
        let mut by_collective: HashMap<Option<CollectiveId>, Vec<&CollectiveTask>> = HashMap::new();
        for task in &run.collective_tasks {
            by_collective.entry(task.collective).or_default().push(task);
        }
        let is_known = |task: &CollectiveTask| {
            task.kind.is_recorded() && task.plane.is_some() && task.collective.is_some()
        };
        let mut ids = (0..).map(CollectiveId).zip(&run.collectives).map(|(id, _)| id);
        let is_complete =
            run.collective_tasks.iter().all(is_known) && ids.all(|id| by_collective.contains_key(&Some(id)));
        Some(Self { run, by_collective, is_complete })
    }

    pub(super) fn of_collective(&self, id: Option<CollectiveId>) -> &[&'a CollectiveTask] {
        self.by_collective.get(&id).map_or(&[], Vec::as_slice)
    }

    /// Divides the time of collectives that no kernel covers into the time in which all groups that communicate wait for other
    /// ranks, and the rest, the transmission. In each group the plane with the shortest waits decides, because the
    /// collective can continue when one of its planes can; planes without a wait are left out, which the vendor's comparison
    /// does not do for traces. `None` if the tasks are not recorded completely.
    pub(super) fn divide_uncovered(
        &self,
        collectives: &[CollectiveId],
        uncovered: &TimeSet,
    ) -> Option<(i64, i64)> {
        if !self.is_complete {
            return None;
        }
        let mut groups: BTreeMap<NameId, Vec<CollectiveId>> = BTreeMap::new();
        for id in collectives {
            let group = self.run.collective(*id).map_or(NameId::EMPTY, |collective| collective.group);
            groups.entry(group).or_default().push(*id);
        }
        let mut transmitting = TimeSet::default();
        for ids in groups.values() {
            let spans = ids.iter().filter_map(|id| Some(self.run.collective(*id)?.span));
            let of_group = uncovered.intersection(&TimeSet::union_of(spans));
            let tasks = ids.iter().flat_map(|id| self.of_collective(Some(*id)));
            let mut planes: BTreeMap<Option<u32>, Vec<&CollectiveTask>> = BTreeMap::new();
            for task in tasks {
                planes.entry(task.plane).or_default().push(*task);
            }
            let waits = planes.into_values().filter_map(|tasks| {
                let waits = self.waits_of_plane(tasks);
                (!waits.is_empty()).then(|| TimeSet::union_of(waits).intersection(&of_group))
            });
            let waiting = waits.min_by_key(TimeSet::length).unwrap_or_default();
            transmitting = transmitting.union(&of_group.difference(&waiting));
        }
        let transmitting = transmitting.length();
        Some((uncovered.length() - transmitting, transmitting))
    }

    /// Returns the waits of a plane for other ranks. A wait that confirms a transfer by RDMA, whose payload and notification
    /// are two tasks before it, belongs to the transfer.
    fn waits_of_plane(&self, mut tasks: Vec<&CollectiveTask>) -> Vec<TimeSpan> {
        tasks.sort_by_key(|task| task.span);
        // One letter for each task: `w` for a wait, `s` for a transfer.
        let kinds = tasks.iter().map(|task| match &*self.run.names.text(task.kind).to_ascii_lowercase() {
            "notify_wait" | "notify wait" => 'w',
            "rdmasend" => 's',
            _ => '-',
        });
        let kinds: String = kinds.collect();
        let is_confirmation = |at: usize| kinds[..at].ends_with("ss") || kinds[..at].ends_with("ssws");
        let waits = tasks.iter().zip(kinds.char_indices());
        let waits = waits.filter(|(_, (at, kind))| *kind == 'w' && !is_confirmation(*at));
        waits.map(|(task, _)| task.span).collect()
    }
}
