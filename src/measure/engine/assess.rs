//! Output of a collection in its folder, and its assessment: in the collection itself, and again in `npubench reparse`.

use std::path::Path;

use super::conditions::CollectionConditions;
use crate::{
    cases::plan::PlannedCase,
    kernel::{
        Attempt, CaseOutcome, Cause, CollectiveKind, ControlReading, Verdict,
        catalogue::{Catalogue, CatalogueEntry},
        render::{Manifest, files},
    },
    measure::verify::{
        CollectionRecords, EqualKernel, ExpectedLaunches, LaunchJournal, RawRecord, assess_collection,
        control_readings, read_journal, read_records,
    },
};

/// Journals and records of a collection.
#[derive(Debug)]
pub(super) struct CollectionOutput {
    /// A journal per process, by rank.
    pub(super) journals: Vec<LaunchJournal>,
    /// Empty if the profile is unreadable.
    pub(super) records: Vec<RawRecord>,
    /// Reason why the profile cannot be read. A truncated or malformed table becomes lost records instead of an error
    /// of the run.
    pub(super) unreadable: Option<String>,
    /// First row of the profile that is no record, and the number of such rows.
    pub(super) damaged: Option<(String, usize)>,
}

impl CollectionOutput {
    pub(super) fn read(folder: &Path, manifest: &Manifest) -> Self {
        let ranks = 0..manifest.devices().len();
        let journals = ranks.map(|rank| read_journal(&folder.join(files::journal(rank)))).collect();
        let mut output = Self { journals, records: Vec::new(), unreadable: None, damaged: None };
        for host in 0..manifest.hosts.len().max(1) {
            let of_host = if host == 0 { folder.to_owned() } else { folder.join(files::host_folder(host)) };
            match read_records(&of_host.join(files::PROFILE)) {
                Ok(CollectionRecords { records, damaged }) => {
                    output.records.extend(records.into_iter().map(|record| RawRecord { host, ..record }));
                    output.damaged = output.damaged.or(damaged);
                }
                Err(error) => {
                    return Self {
                        records: Vec::new(),
                        unreadable: Some(error.to_string()),
                        damaged: None,
                        ..output
                    };
                }
            }
        }
        output.records.sort_by_key(|record| record.start);
        output
    }

    /// Returns the journal of all processes together.
    pub(super) fn journal(&self) -> LaunchJournal {
        LaunchJournal::merge_all(&self.journals)
    }

    /// Returns the readings of the control kernels.
    pub(super) fn controls(&self, manifest: &Manifest) -> Vec<ControlReading> {
        control_readings(manifest, &self.journals, &self.records)
    }

    /// Assesses every case of the manifest; `expected` has the cases in its order.
    pub(super) fn assess(
        &self,
        manifest: &Manifest,
        expected: &[ExpectedLaunches<'_>],
        conditions: &CollectionConditions,
    ) -> Vec<Attempt> {
        let (end, change) = (conditions.termination, conditions.software_change());
        let mut attempts = assess_collection(manifest, expected, &self.journals, &self.records, end, &change);
        for attempt in attempts.iter_mut().filter(|attempt| attempt.outcome.verdict == Verdict::LostRecords) {
            if let Some((message, rows)) = self.damaged.clone() {
                attempt.outcome.reason.add(Cause::UnreadableRows { rows, message });
            } else if let Some(message) = self.unreadable.clone() {
                attempt.outcome.reason = Cause::UnreadableProfile { message }.into();
            }
        }
        if let Some(problem) = self.differing_software(manifest) {
            for attempt in attempts.iter_mut().filter(|attempt| attempt.outcome.verdict.is_recorded()) {
                let outcome = CaseOutcome::new(Verdict::Unsupported, problem.clone());
                *attempt = Attempt::without_launches(attempt.case.clone(), attempt.launched, outcome);
            }
        }
        attempts
    }

    /// Returns the software in which the hosts of a gang differ, as the scripts have imported it; `None` if it is equal.
    fn differing_software(&self, manifest: &Manifest) -> Option<Cause> {
        let of_host = |host: usize| {
            let first = self.journals.get(manifest.ranks_of_host(host).start)?;
            first.imported.clone()
        };
        let first = of_host(0)?;
        let other = (1..manifest.hosts.len()).find_map(|host| {
            let found = of_host(host).filter(|found| *found != first)?;
            Some((host, found))
        });
        let (host, found) = other?;
        let text = |versions| serde_json::to_string(&versions).expect("versions are texts");
        let software = [first, found].map(text);
        Some(Cause::SoftwareOfHosts {
            software,
            hosts: [0, host].map(|host| manifest.hosts[host].name.clone()),
        })
    }
}

/// Returns the records that the launches of a case must have by its catalogue entry.
pub(crate) fn expected_launches<'a>(
    catalogue: &'a Catalogue,
    planned: &'a PlannedCase,
) -> ExpectedLaunches<'a> {
    let entry = catalogue.entry(&planned.case.kernel);
    let collective = CollectiveKind::of_kernel(&planned.case.kernel);
    let names = entry.map(|entry| entry.names().collect());
    ExpectedLaunches {
        case: &planned.case,
        names: names.or(collective.map(CollectiveKind::record_types)).unwrap_or_default(),
        equal_kernels: entry.map(|entry| equal_kernels(catalogue, entry, planned)).unwrap_or_default(),
        equal_cases: &planned.equal_cases,
        also_launched: entry.map(|entry| entry.also_launches.as_slice()).unwrap_or_default(),
        fastest: planned.fastest,
        notes: &planned.call.notes,
        is_on_ai_cpu: planned.is_on_ai_cpu,
        host_slots: entry.map(CatalogueEntry::host_slots).unwrap_or_default(),
    }
}

fn equal_kernels<'a>(
    catalogue: &'a Catalogue,
    entry: &'a CatalogueEntry,
    planned: &'a PlannedCase,
) -> Vec<EqualKernel<'a>> {
    let others = catalogue.equal_entries(&entry.kernel, &planned.call.definition);
    others.map(|other| EqualKernel { kernel: &other.kernel, names: other.names().collect() }).collect()
}
