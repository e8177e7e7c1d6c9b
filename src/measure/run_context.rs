//! A host with a database that can be measured, and the start of a run on it.

use std::{
    collections::BTreeSet,
    mem,
    path::Path,
    process,
    sync::{Arc, atomic::AtomicBool},
    time::Instant,
};

use crate::{
    base::{
        assets::AssetFiles,
        command_error::CommandError,
        count_text::format_count,
        deadline::Deadline,
        exit::ExitStatus,
        files::ScratchFolder,
        print::{print_note, print_warning},
        process::sees_host_processes,
    },
    cases::plan::{InitialCosts, PlannedCase, RunPlan, UpdateMode},
    database::{
        Database, REHEARSAL_RUN, ShardIdentity, ShardNumber, check_path,
        ledger::{Ledger, SoftwareGeneration},
    },
    kernel::{
        CacheState, CaseId, Cause, DataKind, IdentifiedCase, KernelName, LogicalDeviceId,
        SoftwareFingerprint, catalogue::Catalogue, device::DeviceProfile, is_in_hccl_environment,
        render::overridden_variables, timestamp::Timestamp,
    },
    measure::{
        case_numbers::write_earlier_rows,
        collective::NodeLayout,
        collective::sweep_session::set_hccl_variables,
        device::{
            self, CheckStatus, DeviceNumbering, DoctorCheck, HostFingerprint, LeaseFolder,
            diagnosis::{check_device_count, check_device_use},
            npu_smi::{NpuChip, NpuSmiInfo},
        },
        device_choice::{
            ProgramEnvironment, RehearsedDurations, adapt_to_host, lease_folder, lease_free_devices,
            program_environment,
        },
        engine::{self, CollectionSettings, ResumedRun, SweepNodes},
        events::{EventSink, RunEnd, RunEvent, RunScreen},
        recorder::{RunRecorder, start_log},
        run_options::{BusyPolicy, RunOptions},
        run_plan::{check_expert_skew, resume_plan, unmerged_plan},
        vendor_check::torch_devices,
    },
};

pub(crate) struct RunContext {
    pub(crate) database: Database,
    pub(crate) assets: AssetFiles,
    pub(crate) catalogue: Catalogue,
    pub(crate) profile: DeviceProfile,
    pub(crate) info: NpuSmiInfo,
    pub(crate) chips: Vec<NpuChip>,
    pub(crate) numbering: DeviceNumbering,
    pub(crate) software: SoftwareFingerprint,
    variables: Vec<(String, String)>,
    /// Set by signals that come before a run; `None` where these end the program.
    pub(crate) stop: Option<Arc<AtomicBool>>,
    pub(crate) nodes: Option<SweepNodes>,
    pub(crate) layout: Option<NodeLayout>,
    screen: &'static dyn RunScreen,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedRun {
    pub(crate) exit: ExitStatus,
    pub(crate) is_stopped: bool,
}

fn require_check(check: DoctorCheck) -> Result<(), CommandError> {
    let DoctorCheck { name, status, found, fix } = check;
    if status != CheckStatus::Missing {
        return Ok(());
    }
    Err(CommandError {
        message: format!("this host cannot measure: {name}: {found}"),
        hint: format!("{fix}; `npubench doctor` lists all checks"),
        exit: ExitStatus::CannotMeasure,
    })
}

impl RunContext {
    pub(crate) fn find(
        db: &Path,
        kind: DataKind,
        assets: AssetFiles,
        options: &RunOptions,
        screen: &'static dyn RunScreen,
    ) -> Result<Self, CommandError> {
        let catalogue = Catalogue::load(&assets)?;
        let database = Database::open_as(db, kind)?;
        let mut profile = DeviceProfile::load(&assets, database.device())?;
        check_path(database.folder(), kind)?;
        // The database is not written before the plan is known, so npu-smi runs in a temporary folder.
        let scratch = ScratchFolder::create().map_err(CommandError::no_temporary_folder)?;
        let ProgramEnvironment { variables, software } =
            program_environment(options, scratch.path(), &database, RehearsedDurations::default)?;
        let software = software.read_fingerprint();
        let waiting = screen.wait_for("npu-smi");
        let host = device::query_host_devices(&variables, scratch.path())?;
        drop(waiting);
        let mut numbering = DeviceNumbering::of_listed(&host.info);
        if kind == DataKind::Npu {
            device::check_environment()?;
        }
        // Torch is imported only where the logic ids have gaps, because that takes seconds.
        if numbering.has_gaps() {
            let waiting = screen.wait_for(&format!("torch_npu of {}", options.python));
            numbering = numbering.resolve_gaps(torch_devices(&options.python, &variables, &[])?.count)?;
            drop(waiting);
        }
        if let Some(remark) = numbering.remark(&host) {
            print_note(&remark);
        }
        let info = host.info;
        let mut selected = device::select_devices(&info, options.chosen_devices.as_deref())?;
        if options.busy == BusyPolicy::Skip {
            selected = device::leave_out_busy(&info, selected)?;
        }
        for line in selected.left_out {
            print_note(&format!("left out: {line}"));
        }
        let chips = selected.chips;
        adapt_to_host(&mut profile, &database, &chips, &options.python, &variables)?;
        Ok(Self {
            database,
            assets,
            catalogue,
            profile,
            info,
            chips,
            numbering,
            software,
            variables,
            stop: None,
            nodes: None,
            layout: None,
            screen,
        })
    }

    pub(crate) fn require_host(&self, options: &RunOptions) -> Result<(), CommandError> {
        if self.database.kind() == DataKind::Rehearsal {
            return Ok(());
        }
        // Without CANN, msprof, or a Python for the export, each collection would fail. These checks of `doctor` take no time.
        let scratch = ScratchFolder::create().map_err(CommandError::no_temporary_folder)?;
        let variable = |name: &str| std::env::var(name).ok();
        let checks = device::check_installation(variable, self.software.cann.as_deref(), scratch.path());
        checks.into_iter().try_for_each(require_check)?;
        if !options.without_selftest {
            self.require_selftest(&options.python)?;
        }
        self.require_usable_device(options)
    }

    /// Refuses a host whose torch counts other devices than npu-smi lists, or can use none of the selected devices
    /// that are free. Importing torch_npu takes seconds, which is less than the collections that would fail.
    fn require_usable_device(&self, options: &RunOptions) -> Result<(), CommandError> {
        let folder = lease_folder(&self.database, options, &self.info.chips);
        folder.prepare()?;
        let (leases, free) = lease_free_devices(&folder, &self.info, &self.chips)?;
        let free: Vec<LogicalDeviceId> = free.into_iter().map(|one| self.numbering.logical_id(one)).collect();
        let waiting = self.screen.wait_for(&format!("torch_npu of {}", options.python));
        let found = torch_devices(&options.python, &self.variables, &free);
        drop((leases, waiting));
        let found = found.map_err(|error| error.message);
        if let Ok(devices) = &found {
            require_check(check_device_count(&self.numbering, devices.count))?;
        }
        require_check(check_device_use(found.map(|devices| devices.usable)))
    }

    pub(crate) fn plan(&self, options: &RunOptions, kernels: &[KernelName]) -> Result<RunPlan, CommandError> {
        let mut plan = self.plan_on_host(options, kernels)?;
        plan.merge_equal_calls();
        self.note_other_software(options, &plan)?;
        Ok(plan)
    }

    /// Plans what an interrupted run has left open, and returns it with what the run has done. Cases with the same
    /// call are merged afterwards: of those, some may have their verdict, or be in rows that were added since.
    pub(crate) fn resumed_plan(
        &self,
        options: &RunOptions,
        kernels: &[KernelName],
        ledger: &Ledger,
        run: &str,
    ) -> Result<(RunPlan, ResumedRun), CommandError> {
        // Rows that the run has measured already are excluded by means of the ledger, not by the update mode.
        let all = RunOptions { update: UpdateMode::All, filter: None, ..options.clone() };
        let mut plan = self.plan_on_host(&all, kernels)?;
        let recorded = ledger.run_cases(run)?;
        if options.filter.is_some() {
            // The run itself changes the verdicts, medians and ages that its filter compared when it started.
            let planned: BTreeSet<&CaseId> = recorded.iter().map(|case| &case.case).collect();
            plan.cases.retain(|case| planned.contains(case.case.id()));
            plan.not_launched.retain(|(case, _)| planned.contains(case.id()));
        }
        let last = ledger.run_collections(run)?.last().map_or(0, |collection| collection.number);
        let (mut plan, resumed) = resume_plan(plan, &recorded, last, options.precision_aim().is_some());
        plan.merge_equal_calls();
        self.note_other_software(options, &plan)?;
        Ok((plan, resumed))
    }

    fn note_other_software(&self, options: &RunOptions, plan: &RunPlan) -> Result<(), CommandError> {
        if let Some(ledger) = self.database.existing_ledger()? {
            let generations = ledger.measured_generations(options.cache)?;
            let planned = plan.cases.iter().flat_map(PlannedCase::cases).map(IdentifiedCase::id).collect();
            let notes = other_host_software(&generations, &self.software, options.update, &planned);
            notes.iter().for_each(|note| print_note(note));
        }
        Ok(())
    }

    /// Plans the rows of the database with a planned case for each row. Refuses an expert skew other than that of earlier runs
    /// and calls that need more devices than are selected.
    fn plan_on_host(&self, options: &RunOptions, kernels: &[KernelName]) -> Result<RunPlan, CommandError> {
        check_expert_skew(&self.database, options.expert_skew)?;
        let mut plan = unmerged_plan(&self.database, &self.catalogue, &self.profile, options, kernels)?;
        let nodes = options.sweep.as_ref().and_then(|sweep| sweep.nodes).map_or(1, |nodes| nodes.nodes);
        plan.refuse_larger_gangs(self.chips.len().saturating_mul(nodes));
        if !options.without_selftest {
            let mismatches = self.mismatched_entries(&options.python)?;
            plan.refuse_cases(|planned| {
                let message = mismatches.get(&self.catalogue.entry(&planned.case.kernel)?.kernel)?.clone();
                Some(Cause::EntryMismatch { message })
            });
        }
        if options.without_selftest && self.database.kind() == DataKind::Npu {
            plan.cases.iter_mut().for_each(|planned| planned.call.notes.push(Cause::WithoutSelftest));
        }
        Ok(plan)
    }

    pub(super) fn collection_settings(
        &self,
        run: &str,
        folder: &Path,
        options: &RunOptions,
        environment: ProgramEnvironment,
        leases: LeaseFolder,
    ) -> CollectionSettings {
        let database = &self.database;
        let costs = InitialCosts::new(options.warm_up, options.launches);
        CollectionSettings {
            kind: database.kind(),
            environment: environment.variables,
            software: environment.software.read_fingerprint(),
            host_software: environment.software,
            run: run.to_owned(),
            folder: folder.to_owned(),
            options: options.clone(),
            leases,
            sees_host_processes: database.kind() == DataKind::Npu && sees_host_processes(),
            numbering: self.numbering.clone(),
            processes: database.processes(),
            costs: costs.with_cache(options.cache, &self.profile),
            nodes: self.nodes.clone(),
            catalogue: self.catalogue.clone(),
            assets: self.assets.clone(),
        }
    }

    pub(crate) fn measure(
        self,
        run: &str,
        mut options: RunOptions,
        mut plan: RunPlan,
        resumed: Option<ResumedRun>,
        deadline: Option<Deadline>,
    ) -> Result<EndedRun, CommandError> {
        let (database, info, chips) = (&self.database, &self.info, &self.chips);
        let folder = database.run_folder(run);
        engine::require_large_disk(database.kind(), database.folder())?;
        // All listed chips, so that the names do not depend on the selection.
        let leases = lease_folder(database, &options, &info.chips);
        leases.prepare()?;
        let mut ledger = database.ledger()?;
        ledger.check_runs_of_copy()?;
        options.environment = Some(options.pinned_environment());
        // A sweep uses the variables of HCCL, and its rows state them.
        let is_used = |name: &str| options.sweep.is_some() && is_in_hccl_environment(name);
        let variable = |name: &str| std::env::var(name).ok().filter(|_| !is_used(name));
        overridden_variables(variable).iter().for_each(|line| print_note(line));
        let unset = set_hccl_variables()
            .into_iter()
            .filter(|(name, _)| options.sweep.is_none() && name != "HCCL_BUFFSIZE");
        unset.for_each(|(name, value)| {
            print_note(&format!("{name}={value} of your environment is not used, it is unset: kernels that communicate are measured with HCCL's defaults"));
        });
        options.devices = chips.iter().map(|chip| chip.physical_id).collect();
        let runs = ledger.run_options()?;
        let earlier_runs = runs.iter().take_while(|(earlier, _)| earlier != run).count() as u64;
        let durations = || RehearsedDurations { earlier_runs, ..RehearsedDurations::default() };
        let environment = program_environment(&options, &folder.join("host"), database, durations)?;
        let host = HostFingerprint::of_host(info, chips, environment.software.read_fingerprint());
        let settings = self.collection_settings(run, &folder, &options, environment, leases);
        let Self { database, info, nodes, stop, screen, .. } = self;
        // A run that goes on has them from its start.
        if resumed.is_none()
            && let Err(error) = write_earlier_rows(&folder, &plan.earlier_results)
        {
            print_warning(&format!(
                "{error}; the run continues, `show` will not show changes against the rows"
            ));
        }
        if let Err(error) = start_log(&folder, options.log) {
            print_warning(&format!("`{}` has no log: {error}", folder.display()));
        }
        let recorded = mem::take(&mut plan.recorded);
        let attempted = resumed.as_ref().map(|resumed| resumed.attempted.clone()).unwrap_or_default();
        let request = engine::RunRequest {
            database: &database,
            ledger: &mut ledger,
            plan,
            host: serde_json::to_string(&host).expect("a fingerprint is JSON"),
            info,
            settings,
            deadline,
            resumed,
            stop,
        };
        let mut sink = RunRecorder::new(screen.events(), &folder, &attempted);
        let started = Instant::now();
        let outcome = engine::execute_run(request, &mut |event: &RunEvent| sink.on_event(event))?;
        if let Err(error) = ledger.write_copy() {
            print_warning(&format!("{error}; the ledger has all results, its copy is older"));
        }
        if options.update == UpdateMode::Missing
            && let Some(used) = ledger.run_software(run)?
        {
            let generations = ledger.measured_generations(options.cache)?;
            other_imported_software(&generations, &used).iter().for_each(|note| print_note(note));
        }
        screen.end(&RunEnd {
            recorded: &recorded,
            database: &database,
            ledger: &ledger,
            run,
            folder: &folder,
            options: &options,
            outcome: &outcome,
            nodes: nodes.as_ref(),
            elapsed: started.elapsed(),
        });
        Ok(EndedRun { exit: outcome.exit, is_stopped: outcome.is_stopped })
    }
}

/// Notes on software of measured cases that differs from the host's in what is known before a script has run.
fn other_host_software(
    generations: &[SoftwareGeneration],
    host: &SoftwareFingerprint,
    update: UpdateMode,
    planned: &BTreeSet<&CaseId>,
) -> Vec<String> {
    let host = host.host_part();
    generation_notes(generations, update, planned, |software| match software {
        Some(software) => software.host_part().differences_from(&host),
        None => "an unknown version of the software".to_owned(),
    })
}

/// Notes on software that differs from that of a run only in what its scripts imported.
fn other_imported_software(generations: &[SoftwareGeneration], used: &SoftwareFingerprint) -> Vec<String> {
    let is_of_host = |software: &&SoftwareFingerprint| software.host_part() == used.host_part();
    generation_notes(generations, UpdateMode::Missing, &BTreeSet::new(), |software| {
        software.filter(is_of_host).map_or_else(String::new, |software| software.differences_from(used))
    })
}

fn generation_notes(
    generations: &[SoftwareGeneration],
    update: UpdateMode,
    planned: &BTreeSet<&CaseId>,
    differences: impl Fn(Option<&SoftwareFingerprint>) -> String,
) -> Vec<String> {
    const NOT_POOLED: &str =
        "new samples are not pooled with them; the ledger keeps both, a row shows the newest";
    let notes = generations.iter().flat_map(|SoftwareGeneration { software, cases }| {
        let differences = differences(software.as_ref());
        let again = cases.iter().filter(|case| planned.contains(case)).count();
        let (kept, why) = match update {
            UpdateMode::Missing => {
                (cases.len() - again, "measured again, because further collections are needed; ")
            }
            UpdateMode::All => (0, ""),
        };
        let parts = [
            (kept, "these results are kept, `--update all` measures the cases again".to_owned()),
            (again, format!("{why}{NOT_POOLED}")),
        ];
        let parts = parts.into_iter().filter(|(count, _)| *count > 0 && !differences.is_empty());
        let note = |(count, consequence)| {
            let were = if count == 1 { "was" } else { "were" };
            format!("{} {were} measured with {differences}: {consequence}", format_count(count, "case"))
        };
        parts.map(note).collect::<Vec<_>>()
    });
    notes.collect()
}

/// Returns the id of a new run of a database: sorted by time, distinct from all others, marked if durations are simulated or the
/// cache is cold. Runs of shards have the shard in their id: several hosts may start them in the same second, with processes of
/// one number.
pub(crate) fn new_run_id(database: &Database, cache: CacheState) -> String {
    let mark = if database.kind() == DataKind::Rehearsal { REHEARSAL_RUN } else { "" };
    let state = if cache.is_hot() { "" } else { "-cold" };
    let shard = database.shard().ok().flatten().map(|ShardIdentity { shard, .. }| shard);
    let shard =
        shard.map_or_else(String::new, |ShardNumber { number, count }| format!("-shard-{number}-of-{count}"));
    let time = Timestamp::now().to_jiff().strftime("%Y%m%d-%H%M%S").to_string();
    let numbered = |number: u32| {
        let number = if number == 0 { String::new() } else { format!("-{number}") };
        format!("{mark}{time}-{:05}{number}{shard}{state}", process::id() % 100_000)
    };
    // A command may start several runs within a second.
    let mut ids = (0..).map(numbered).skip_while(|id| database.run_folder(id).exists());
    ids.next().unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::kernel::{CaseId, ImportedVersions};

    fn software(cann: &str, torch: &str) -> SoftwareFingerprint {
        SoftwareFingerprint {
            cann: Some(cann.to_owned()),
            imported: ImportedVersions { torch: Some(torch.to_owned()), ..ImportedVersions::default() },
            ..SoftwareFingerprint::default()
        }
    }

    fn generation(software: Option<SoftwareFingerprint>) -> SoftwareGeneration {
        let cases = BTreeSet::from(["00000000000000aa", "00000000000000bb"].map(CaseId::from_stored));
        SoftwareGeneration { software, cases }
    }

    #[test]
    fn each_other_software_is_reported_once() {
        let generations = [
            generation(Some(software("8.3.RC1", "2.7.1"))),
            generation(Some(software("8.5.0", "2.7.1"))),
            generation(Some(software("8.5.0", "2.9.0"))),
            generation(None),
        ];
        let host = software("8.5.0", "2.9.0").host_part();
        let kept = "these results are kept, `--update all` measures the cases again";
        assert_eq!(
            other_host_software(&generations, &host, UpdateMode::Missing, &BTreeSet::new()),
            [
                format!("2 cases were measured with CANN 8.3.RC1, not 8.5.0: {kept}"),
                format!("2 cases were measured with an unknown version of the software: {kept}"),
            ]
        );
        let planned = CaseId::from_stored("00000000000000bb");
        let planned = BTreeSet::from([&planned]);
        let not_pooled =
            "new samples are not pooled with them; the ledger keeps both, a row shows the newest";
        let one = "1 case was measured with CANN 8.3.RC1, not 8.5.0";
        assert_eq!(
            other_host_software(&generations[..1], &host, UpdateMode::Missing, &planned),
            [
                format!("{one}: {kept}"),
                format!("{one}: measured again, because further collections are needed; {not_pooled}"),
            ]
        );
        assert_eq!(
            other_host_software(&generations[..1], &host, UpdateMode::All, &planned),
            [format!("{one}: {not_pooled}")]
        );
        assert_eq!(
            other_imported_software(&generations, &software("8.5.0", "2.9.0")),
            [format!("2 cases were measured with torch 2.7.1, not 2.9.0: {kept}")]
        );
    }
}
