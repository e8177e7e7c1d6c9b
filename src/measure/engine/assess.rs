//! Output of a collection and its assessment: in the collection itself, and again from the compressed evidence, with the rules and
//! the catalogue of this version.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use indexmap::IndexMap;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::collect::stays_excused;
use crate::{
    base::files::{MAX_TABLE, is_missing, read_regular, unpack_archive},
    cases::plan::{PlannedCase, planned_case},
    database::ledger::{AttemptChange, AttemptState, StoredAttempt},
    kernel::{
        Attempt, CacheState, Case, CaseAttributes, CaseId, CaseOutcome, Cause, CollectiveKind,
        ControlReading, IdentifiedCase, KernelName, Nanos, Slot, SoftwareFingerprint, Verdict,
        catalogue::{Catalogue, CatalogueEntry},
        device::DeviceProfile,
        render::{Manifest, ManifestCase, RecordedTensor, files},
    },
    measure::{
        evidence::{ArchiveState, archive_state},
        verify::{
            CollectionRecords, CollectionTermination, EqualKernel, ExpectedLaunches, LaunchJournal,
            RawRecord, SoftwareChange, assess_collection, control_readings, read_journal, read_records,
        },
    },
    profile::LossOfExporter,
};

pub(crate) struct CollectionOutput {
    pub(super) journals: Vec<LaunchJournal>,
    pub(crate) records: Vec<RawRecord>,
    /// Reason why the profile cannot be read. A malformed table becomes lost records instead of an error of the run.
    pub(super) unreadable: Option<String>,
    pub(crate) damaged: Option<(String, usize)>,
    pub(crate) loss: Option<LossOfExporter>,
}

impl CollectionOutput {
    pub(crate) fn read(folder: &Path, manifest: &Manifest) -> Self {
        let ranks = 0..manifest.devices().len();
        let journals = ranks.map(|rank| read_journal(&folder.join(files::journal(rank)))).collect();
        let mut output = Self { journals, records: Vec::new(), unreadable: None, damaged: None, loss: None };
        for host in 0..manifest.hosts.len().max(1) {
            let of_host = if host == 0 { folder.to_owned() } else { folder.join(files::host_folder(host)) };
            match read_records(&of_host.join(files::PROFILE)) {
                Ok(CollectionRecords { records, damaged, loss }) => {
                    output.records.extend(records.into_iter().map(|record| RawRecord { host, ..record }));
                    output.damaged = output.damaged.or(damaged);
                    output.loss = output.loss.or(loss);
                }
                Err(error) => {
                    (output.records, output.damaged) = (Vec::new(), None);
                    output.unreadable = Some(error.to_string());
                    break;
                }
            }
        }
        output.records.sort_by_key(|record| record.start);
        output
    }

    pub(super) fn journal(&self) -> LaunchJournal {
        LaunchJournal::merge_all(&self.journals)
    }

    pub(super) fn controls(&self, manifest: &Manifest) -> Vec<ControlReading> {
        control_readings(manifest, &self.journals, &self.records)
    }

    pub(crate) fn assess(
        &self,
        manifest: &Manifest,
        expected: &[ExpectedLaunches<'_>],
        end: CollectionTermination,
        software: &SoftwareChange,
    ) -> Vec<Attempt> {
        let mut attempts =
            assess_collection(manifest, expected, &self.journals, &self.records, end, software);
        for attempt in attempts.iter_mut().filter(|attempt| attempt.outcome.verdict == Verdict::LostRecords) {
            if let Some((message, rows)) = self.damaged.clone() {
                attempt.outcome.reason.add(Cause::UnreadableRows { rows, message });
            } else if let Some(message) = self.unreadable.clone() {
                attempt.outcome.reason = Cause::UnreadableProfile { message }.into();
            }
        }
        if let Some(LossOfExporter { line, .. }) = &self.loss {
            for attempt in attempts.iter_mut().filter(|attempt| {
                attempt.outcome.verdict.is_recorded() || attempt.outcome.verdict == Verdict::LostRecords
            }) {
                let cause = Cause::LossOfExporter { line: line.clone() };
                if attempt.outcome.verdict == Verdict::LostRecords {
                    attempt.outcome.reason.add(cause);
                } else {
                    let outcome = CaseOutcome::new(Verdict::LostRecords, cause);
                    *attempt = Attempt::without_launches(attempt.case.clone(), attempt.launched, outcome);
                }
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

    fn differing_software(&self, manifest: &Manifest) -> Option<Cause> {
        let of_host = |host: usize| self.journals.get(manifest.ranks_of_host(host).start)?.imported.clone();
        let first = of_host(0)?;
        let differing = |host| Some((host, of_host(host).filter(|found| *found != first)?));
        let (host, found) = (1..manifest.hosts.len()).find_map(differing)?;
        let text = |versions| serde_json::to_string(&versions).expect("versions are texts");
        let hosts = [0, host].map(|host| manifest.hosts[host].name.clone());
        Some(Cause::SoftwareOfHosts { software: [first, found].map(text), hosts })
    }
}

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

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct CollectionConditions {
    pub(super) termination: CollectionTermination,
    /// Software for which the run checked the host.
    pub(super) software_checked: SoftwareFingerprint,
    pub(super) software_at_start: SoftwareFingerprint,
    pub(super) software_at_end: SoftwareFingerprint,
    pub(super) cases: Vec<LaunchedCase>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LaunchedCase {
    pub(super) case: StoredCase,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) equal_cases: Vec<StoredCase>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) notes: Vec<Cause>,
    pub(super) fastest_ns: i64,
    #[serde(default)]
    pub(super) is_on_ai_cpu: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct StoredCase {
    pub(super) case: CaseId,
    kernel: String,
    inputs: Vec<Option<RecordedTensor>>,
    outputs: Vec<Option<RecordedTensor>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    attributes: BTreeMap<String, String>,
}

impl CollectionConditions {
    pub(super) fn software_change(&self) -> SoftwareChange {
        SoftwareChange::of_collection(&self.software_checked, &self.software_at_start, &self.software_at_end)
    }

    /// Without the conditions the collection cannot be assessed again, and its results hold all the same.
    pub(super) fn write(&self, folder: &Path) {
        let text = serde_json::to_string(self).expect("conditions are JSON");
        let path = folder.join(files::CONDITIONS);
        if let Err(error) = fs::write(&path, text) {
            tracing::warn!(path = %path.display(), %error, "conditions not written");
        }
    }
}

impl LaunchedCase {
    pub(super) fn new(planned: &PlannedCase) -> Self {
        Self {
            case: StoredCase::new(&planned.case),
            equal_cases: planned.equal_cases.iter().map(StoredCase::new).collect(),
            notes: planned.call.notes.clone(),
            fastest_ns: planned.fastest.0,
            is_on_ai_cpu: planned.is_on_ai_cpu,
        }
    }
}

impl StoredCase {
    fn new(case: &IdentifiedCase) -> Self {
        let side =
            |slots: &[Slot]| slots.iter().map(|slot| slot.as_ref().map(RecordedTensor::from)).collect();
        let attributes = case.attributes.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self {
            case: case.id().clone(),
            kernel: case.kernel.as_str().to_owned(),
            inputs: side(&case.inputs),
            outputs: side(&case.outputs),
            attributes: attributes.collect(),
        }
    }

    /// Returns the case; `None` if it has another id than the stored one. A signature would lack the empty slots at the end.
    pub(super) fn restore(&self) -> Option<IdentifiedCase> {
        let side = |slots: &[Option<RecordedTensor>]| -> Vec<Slot> {
            slots.iter().map(|slot| slot.as_ref().and_then(RecordedTensor::tensor)).collect()
        };
        let mut attributes = CaseAttributes::default();
        self.attributes.iter().for_each(|(name, value)| attributes.set(name, value));
        let kernel = KernelName::new(&self.kernel).ok()?;
        let case = Case { kernel, inputs: side(&self.inputs), outputs: side(&self.outputs), attributes };
        Some(IdentifiedCase::new(case)).filter(|case| *case.id() == self.case)
    }
}

#[derive(Debug)]
pub(crate) struct ReassessedCollection {
    pub(crate) attempts: Vec<(IdentifiedCase, Attempt)>,
    pub(crate) controls: Vec<ControlReading>,
    pub(crate) software: SoftwareFingerprint,
    pub(crate) left: Vec<(CaseId, String)>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct AssessmentRules<'a> {
    pub(crate) catalogue: &'a Catalogue,
    pub(crate) device: &'a DeviceProfile,
}

impl AssessmentRules<'_> {
    /// Assesses the collection in `folder`, which has this state of the cache, and whose evidence has the SHA-256 `digest`. It is
    /// unpacked below `scratch`, which must be empty. The error is the reason why the evidence cannot be used.
    pub(crate) fn reassess(
        &self,
        folder: &Path,
        digest: &str,
        cache: CacheState,
        scratch: &Path,
    ) -> Result<ReassessedCollection, String> {
        let archive = folder.join(files::EVIDENCE);
        let refuse = |problem: String| format!("`{}`{problem}", archive.display());
        match archive_state(folder, digest) {
            ArchiveState::Unchanged => {}
            state => return Err(refuse(format!(": {state}"))),
        }
        unpack_archive(&archive, scratch).map_err(|error| refuse(format!(" cannot be unpacked: {error}")))?;
        let manifest: Manifest = read_json(scratch, files::MANIFEST).map_err(refuse)?;
        if manifest.cache() != cache {
            let found = manifest.cache();
            return Err(refuse(format!(" has launches with a {found} cache, the ledger has a {cache} one")));
        }
        if is_missing(&scratch.join(files::CONDITIONS)).is_ok_and(|is_missing| is_missing) {
            return Err(refuse(format!(" has no {}", files::CONDITIONS)));
        }
        let conditions: CollectionConditions = read_json(scratch, files::CONDITIONS).map_err(refuse)?;
        let listed = manifest.cases.iter().map(|case| &case.case);
        if !listed.eq(conditions.cases.iter().map(|launched| &launched.case.case)) {
            let (manifest, conditions) = (files::MANIFEST, files::CONDITIONS);
            return Err(refuse(format!(": {manifest} and {conditions} differ in their cases")));
        }
        let mut left = Vec::new();
        let mut cases: Vec<IdentifiedCase> = Vec::new();
        let mut planned: Vec<Option<PlannedCase>> = Vec::new();
        for (listed, launched) in manifest.cases.iter().zip(&conditions.cases) {
            let case = launched.case.restore().ok_or_else(|| {
                refuse(format!(": case {} of {} cannot be restored", listed.case, files::CONDITIONS))
            })?;
            cases.push(case.clone());
            let resolved = self.planned_case(case, listed, launched, manifest.seed);
            let resolved = resolved.map_err(|problem| left.push((listed.case.clone(), problem)));
            planned.push(resolved.ok());
        }
        let expected = planned.iter().zip(&cases).map(|(planned, case)| match planned {
            Some(planned) => expected_launches(self.catalogue, planned),
            // It is not assessed, but its place in the manifest must be filled.
            None => ExpectedLaunches::without_rules(case),
        });
        let expected: Vec<ExpectedLaunches<'_>> = expected.collect();
        let mut output = CollectionOutput::read(scratch, &manifest);
        // Reasons name the file in the folder of the collection.
        let places = [scratch, folder].map(|path| path.to_string_lossy().into_owned());
        let in_folder = |problem: String| problem.replace(&places[0], &places[1]);
        output.unreadable = output.unreadable.map(in_folder);
        output.damaged = output.damaged.map(|(problem, count)| (in_folder(problem), count));
        let attempts =
            output.assess(&manifest, &expected, conditions.termination, &conditions.software_change());
        drop(expected);
        let attempts = cases.into_iter().zip(attempts).zip(planned);
        let attempts = attempts.filter_map(|(attempt, planned)| planned.map(|_| attempt)).collect();
        let controls = output.controls(&manifest);
        let imported = output.journal().imported.unwrap_or_default();
        let software = conditions.software_at_start.with_imported(imported);
        Ok(ReassessedCollection { attempts, controls, software, left })
    }

    fn planned_case(
        &self,
        case: IdentifiedCase,
        listed: &ManifestCase,
        launched: &LaunchedCase,
        seed: u64,
    ) -> Result<PlannedCase, String> {
        let planned = planned_case(self.catalogue, self.device, case).map_err(|(_, outcome)| {
            let CaseOutcome { verdict, reason } = outcome;
            format!("this version does not launch it: {verdict}: {reason}")
        })?;
        // In the form of the manifest, whose numbers may have lost digits.
        let current = ManifestCase::new(listed.ordinal, &planned.case, &planned.call, seed);
        let current =
            serde_json::to_string(&current).and_then(|text| serde_json::from_str::<ManifestCase>(&text));
        let current = current.map_err(|error| error.to_string())?;
        if (&current.api, &current.arguments) != (&listed.api, &listed.arguments) {
            return Err("this version launches another call for it".to_owned());
        }
        let is_same_work =
            (current.record.flops, current.record.bytes) == (listed.record.flops, listed.record.bytes);
        let fastest = if is_same_work { Nanos(launched.fastest_ns) } else { planned.fastest };
        let equal_cases: Option<Vec<IdentifiedCase>> =
            launched.equal_cases.iter().map(StoredCase::restore).collect();
        let equal_cases = equal_cases.ok_or("a case with the same call cannot be restored")?;
        let mut call = planned.call;
        call.notes.clone_from(&launched.notes);
        Ok(PlannedCase { call, fastest, is_on_ai_cpu: launched.is_on_ai_cpu, equal_cases, ..planned })
    }
}

/// Returns the cases that were launched in the collection of a folder, and those with the same calls; none without its conditions.
pub(crate) fn launched_cases(folder: &Path) -> Vec<IdentifiedCase> {
    let conditions: Option<CollectionConditions> = read_json(folder, files::CONDITIONS).ok();
    let launched = conditions.into_iter().flat_map(|conditions| conditions.cases);
    let stored = launched.flat_map(|launched| std::iter::once(launched.case).chain(launched.equal_cases));
    stored.filter_map(|case| case.restore()).collect()
}

fn read_json<T: DeserializeOwned>(folder: &Path, name: &str) -> Result<T, String> {
    let text = read_regular(&folder.join(name), MAX_TABLE).map_err(|error| error.to_string());
    let value = text.and_then(|text| serde_json::from_slice(&text).map_err(|error| error.to_string()));
    value.map_err(|problem| format!(": {name} cannot be read: {problem}"))
}

/// Returns the changes that turn the `stored` attempts of a collection into the attempts of another assessment.
/// `is_complete` is true if every case of the collection was assessed.
///
/// An attempt that was withdrawn for a clock that deviates, as other collections show, stays withdrawn if it would be a
/// measurement and its launches have the same cycles. An accepted attempt that is no measurement any more is withdrawn.
pub(crate) fn find_changes(
    stored: Vec<StoredAttempt>,
    assessed: &[(IdentifiedCase, Attempt)],
    is_complete: bool,
) -> Vec<AttemptChange> {
    let stored: IndexMap<CaseId, StoredAttempt> =
        stored.into_iter().map(|attempt| (attempt.case.clone(), attempt)).collect();
    let mut seen = BTreeSet::new();
    // Attempts of planned cases are stored first, and of several attempts at a case the first one.
    let all = || assessed.iter().enumerate();
    let planned = all().map(|(index, (case, attempt))| (index, case, attempt));
    let equal = all().flat_map(|(index, (_, attempt))| {
        attempt.of_equal_calls.iter().map(move |equal| (index, &equal.case, &equal.attempt))
    });
    let first = planned.chain(equal).filter(|(_, case, _)| seen.insert(case.id().clone()));
    let first: Vec<(usize, &IdentifiedCase, &Attempt)> = first.collect();
    let other_cycles = first.iter().filter(|(_, case, attempt)| {
        stored.get(case.id()).is_some_and(|stored| stored.state.cycle_rate != attempt.cycle_rate)
    });
    let other_cycles: BTreeSet<usize> = other_cycles.map(|(index, ..)| *index).collect();
    let changes = first.into_iter().filter_map(|(index, case, attempt)| {
        change(stored.get(case.id()), case, attempt, !other_cycles.contains(&index))
    });
    let mut changes: Vec<AttemptChange> = changes.collect();
    let is_counted = |StoredAttempt { case, state, .. }: &StoredAttempt| {
        let counts = is_measurement(state.outcome.verdict) || !state.launches.is_empty();
        is_complete && counts && !seen.contains(case)
    };
    let unassessed = stored.into_values().filter(is_counted);
    changes.extend(unassessed.map(|StoredAttempt { attempt: key, case, kernel, state }| {
        let outcome = CaseOutcome::new(Verdict::NotRun, Cause::NotItsLaunches);
        let empty = AttemptState::from(&Attempt::without_launches(case.clone(), state.launched, outcome));
        let after = AttemptState { is_withdrawn: true, ..empty };
        AttemptChange { case, kernel, before: Some((key, state)), after, new_case: None }
    }));
    changes
}

fn change(
    stored: Option<&StoredAttempt>,
    case: &IdentifiedCase,
    assessed: &Attempt,
    has_same_cycles: bool,
) -> Option<AttemptChange> {
    let mut after = AttemptState::from(assessed);
    let kernel = case.kernel.as_str().to_owned();
    let Some(StoredAttempt { attempt, state, .. }) = stored else {
        let new_case = Some(case.clone());
        return Some(AttemptChange { case: case.id().clone(), kernel, before: None, after, new_case });
    };
    let is_measured = is_measurement(after.outcome.verdict);
    let has_deviating_clock = state.is_withdrawn && state.outcome.verdict == Verdict::Throttled;
    if has_deviating_clock && is_measured && has_same_cycles {
        after.outcome = state.outcome.clone();
        after.is_withdrawn = true;
    } else {
        after.is_withdrawn = !is_measured && (state.is_withdrawn || is_measurement(state.outcome.verdict));
    }
    if stays_excused(&state.outcome, &after.outcome) {
        after.outcome = state.outcome.clone();
        after.launches.clear();
    } else if is_unreadable(&state.outcome) && is_unreadable(&after.outcome) {
        // The messages may differ in the place of the folder.
        after.outcome = state.outcome.clone();
    }
    let (case, before) = (case.id().clone(), Some((*attempt, state.clone())));
    (after != *state).then_some(AttemptChange { case, kernel, before, after, new_case: None })
}

/// Returns true for an attempt that counts: a measurement, or one of the kernel as which the call ran.
pub(super) const fn is_measurement(verdict: Verdict) -> bool {
    verdict.has_samples() || matches!(verdict, Verdict::RanAsOther)
}

const fn is_unreadable(outcome: &CaseOutcome) -> bool {
    matches!(outcome.reason.cause, Cause::UnreadableProfile { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        base::stats::CycleRate,
        kernel::{EqualCallAttempt, Reason, cause::in_tests::with_replaced_texts},
    };

    fn attempt(kernel: &str, verdict: Verdict, rate: f64) -> (IdentifiedCase, Attempt) {
        let case = IdentifiedCase::without_tensors(kernel);
        let outcome = CaseOutcome::new(verdict, "assessed");
        let cycle_rate = Some(CycleRate { per_microsecond: rate, error: 0.001 });
        let attempt = Attempt { cycle_rate, ..Attempt::without_launches(case.id().clone(), 25, outcome) };
        (case, attempt)
    }

    fn stored(
        kernel: &str,
        verdict: Verdict,
        reason: impl Into<Reason>,
        is_withdrawn: bool,
    ) -> StoredAttempt {
        let (case, attempt) = attempt(kernel, verdict, 1_700.0);
        let outcome = CaseOutcome::new(verdict, reason);
        let state = AttemptState { outcome, is_withdrawn, ..AttemptState::from(&attempt) };
        StoredAttempt { attempt: 7, case: case.id().clone(), kernel: kernel.to_owned(), state }
    }

    fn ends(changes: &[AttemptChange]) -> Vec<(&str, Verdict, bool)> {
        let end = |change: &AttemptChange| (change.after.outcome.verdict, change.after.is_withdrawn);
        changes.iter().map(|change| (change.kernel.as_str(), end(change).0, end(change).1)).collect()
    }

    #[test]
    fn withdrawal_for_a_clock_holds_while_the_cycles_are_the_same() {
        let throttled = || vec![stored("Add", Verdict::Throttled, "the clock was lower", true)];
        let find = |rate| find_changes(throttled(), &[attempt("Add", Verdict::Ok, rate)], true);
        assert!(find(1_700.0).is_empty());
        assert_eq!(ends(&find(1_600.0)), [("Add", Verdict::Ok, false)]);
        // A row of the same call follows the launches, also without cycles of its own.
        let (equal, mut shared) = attempt("Mul", Verdict::RanAsOther, 1_700.0);
        shared.cycle_rate = None;
        let mut both = throttled();
        both.push(stored("Mul", Verdict::Throttled, "the clock was lower; ran as Add", true));
        both[1].state.cycle_rate = None;
        let find = |rate| {
            let (case, own) = attempt("Add", Verdict::Ok, rate);
            let of_equal_calls = vec![EqualCallAttempt { case: equal.clone(), attempt: shared.clone() }];
            find_changes(both.clone(), &[(case, Attempt { of_equal_calls, ..own })], true)
        };
        assert!(find(1_700.0).is_empty());
        assert_eq!(ends(&find(1_600.0)), [("Add", Verdict::Ok, false), ("Mul", Verdict::RanAsOther, false)]);
    }

    #[test]
    fn accepted_attempt_that_is_no_measurement_any_more_is_withdrawn() {
        let find = |verdict, is_withdrawn, assessed| {
            let stored = vec![stored("Add", verdict, "assessed", is_withdrawn)];
            find_changes(stored, &[attempt("Add", assessed, 1_700.0)], true)
        };
        let changes = find(Verdict::Ok, false, Verdict::Implausible);
        assert_eq!(ends(&changes), [("Add", Verdict::Implausible, true)]);
        assert_eq!(changes[0].before.as_ref().map(|(key, _)| *key), Some(7));
        assert!(find(Verdict::Implausible, true, Verdict::Implausible).is_empty());
        assert_eq!(ends(&find(Verdict::Implausible, true, Verdict::Ok)), [("Add", Verdict::Ok, false)]);
        assert_eq!(ends(&find(Verdict::LostRecords, false, Verdict::Hung)), [("Add", Verdict::Hung, false)]);
    }

    /// A call that ran as one case by the rules of another version, and as another case by the rules of this version.
    #[test]
    fn attempts_without_a_counterpart_are_withdrawn_or_new() {
        let stored =
            || vec![stored("Add", Verdict::Ok, "assessed", false), stored("Mul", Verdict::Ok, "", false)];
        let assessed = || vec![attempt("Add", Verdict::Ok, 1_700.0)];
        assert_eq!(ends(&find_changes(stored(), &assessed(), true)), [("Mul", Verdict::NotRun, true)]);
        assert!(find_changes(stored(), &assessed(), false).is_empty(), "its planned case was not assessed");
        let mut gone = stored();
        gone[1].state = find_changes(stored(), &assessed(), true).remove(0).after;
        assert!(find_changes(gone, &assessed(), true).is_empty(), "the second time nothing changes");
        let (case, attempt) = attempt("Sub", Verdict::Ok, 1_700.0);
        let mut with_equal = assessed();
        with_equal[0].1.of_equal_calls = vec![EqualCallAttempt { case: case.clone(), attempt }];
        let changes = find_changes(stored(), &with_equal, false);
        assert_eq!(ends(&changes), [("Sub", Verdict::Ok, false)]);
        assert!(changes[0].before.is_none() && changes[0].new_case == Some(case));
    }

    #[test]
    fn attempts_excused_for_a_full_disk_and_unreadable_profiles_stay() {
        let find = |before: &Cause, verdict, assessed: Verdict, cause: &Cause| {
            let (case, mut attempt) = attempt("Add", assessed, 1_700.0);
            attempt.outcome.reason = cause.clone().into();
            let stored = stored("Add", verdict, before.clone(), false);
            find_changes(vec![stored], &[(case, attempt)], true).len()
        };
        let check = || {
            let lost = Cause::RecordCount { launches: 25, records: 3 };
            let excused = Cause::DiskFull { failure: Box::new(lost.clone().into()) };
            assert_eq!(find(&excused, Verdict::NotRun, Verdict::LostRecords, &lost), 0);
            assert_eq!(find(&excused, Verdict::NotRun, Verdict::Ok, &Cause::EveryLaunchRecorded), 1);
            let [here, there] =
                ["/a", "/b"].map(|place| Cause::UnreadableProfile { message: format!("`{place}/x.csv`") });
            assert_eq!(find(&here, Verdict::LostRecords, Verdict::LostRecords, &there), 0);
            assert_eq!(find(&here, Verdict::LostRecords, Verdict::LostRecords, &lost), 1);
        };
        check();
        with_replaced_texts(check);
    }
}
