//! Runs of a sweep and their database: the first run, and further ones around the changes of the algorithm that it shows.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use super::{
    SweepFit, SweepKey,
    sweep::read_sweeps,
    sweep_session::{CollectiveSweep, SweepGroup, SweepPart},
};
use crate::{
    base::{
        assets::AssetFiles,
        command_error::CommandError,
        count_text::format_count,
        deadline::Deadline,
        exit::ExitStatus,
        files::{FolderLock, ScratchFolder},
        print::print_note,
    },
    database::{Database, DatabaseError, check_new_folder, database_file::DatabaseFile},
    kernel::{CaseId, CollectiveKind, DataKind},
    measure::{
        device_choice::{chip_of_host, choose_device},
        engine::SweepNodes,
        events::RunScreen,
        run_context::{EndedRun, RunContext, new_run_id},
        run_options::RunOptions,
    },
    profile::DeviceEvidence,
};

/// Greatest number of runs that refine a sweep; each divides the sizes around a change at least by four.
pub(crate) const MAX_REFINEMENTS: usize = 4;

pub(crate) struct SweepRounds<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) kind: DataKind,
    pub(crate) assets: AssetFiles,
    pub(crate) options: RunOptions,
    pub(crate) deadline: Option<Deadline>,
    pub(crate) screen: &'static dyn RunScreen,
    pub(crate) nodes: Option<SweepNodes>,
}

impl SweepRounds<'_> {
    /// Measures the sweep, and with `refine` the sizes that locate the changes of the algorithm until all are
    /// located, none of the new sizes can be measured, or the time is over.
    pub(crate) fn measure(&self, sweep: &CollectiveSweep, refine: bool) -> Result<ExitStatus, CommandError> {
        let mut lock = Database::open_as(self.folder, self.kind)?.lock()?;
        let EndedRun { mut exit, is_stopped } = self.run(sweep, &mut lock)?;
        let mut attempted: BTreeSet<CaseId> = BTreeSet::new();
        let mut is_open = refine && !is_stopped;
        for _ in 0..MAX_REFINEMENTS {
            if !is_open || self.deadline.is_some_and(|deadline| deadline.rest() <= 0.0) {
                break;
            }
            let database = Database::open_as(self.folder, self.kind)?;
            let parts = refining_parts(sweep, &database)?;
            drop(database);
            let further = CollectiveSweep { parts, ..sweep.clone() };
            let new = match further.parts.is_empty() {
                true => BTreeSet::new(),
                false => further.cases()?.into_iter().map(|(case, _)| case.id().clone()).collect(),
            };
            if new.is_subset(&attempted) {
                print_note(match further.parts.is_empty() {
                    true => "all changes of the algorithm are located",
                    false => "no further size can locate the changes",
                });
                break;
            }
            let sizes: usize = further.parts.iter().map(|part| part.sizes.len()).sum();
            let sweeps = format_count(further.parts.len(), "sweep");
            print_note(&format!(
                "the algorithm changes between sizes of {sweeps}: {sizes} further sizes are measured"
            ));
            attempted.extend(new);
            if let Some(nodes) = &self.nodes {
                nodes.cluster.add_cases(&further.parts);
            }
            let ended = self.run(&further, &mut lock)?;
            exit = if ended.exit == ExitStatus::Done { exit } else { ended.exit };
            is_open = !ended.is_stopped;
        }
        Ok(exit)
    }

    fn run(&self, sweep: &CollectiveSweep, lock: &mut FolderLock) -> Result<EndedRun, CommandError> {
        let options = RunOptions { sweep: Some(sweep.clone()), ..self.options.clone() };
        let mut context =
            RunContext::find(self.folder, self.kind, self.assets.clone(), &options, self.screen)?;
        context.nodes.clone_from(&self.nodes);
        let plan = context.plan(&options, &[])?;
        context.database.initialise(lock)?;
        let run = new_run_id(&context.database, options.cache);
        context.measure(&run, options, plan, None, self.deadline)
    }
}

/// Returns the parts with the sizes that locate the changes of the algorithm in the rows of a sweep; empty if
/// all are located within a quarter.
fn refining_parts(sweep: &CollectiveSweep, database: &Database) -> Result<Vec<SweepPart>, CommandError> {
    let kinds: BTreeSet<CollectiveKind> =
        sweep.parts.iter().flat_map(|part| part.kinds.iter().copied()).collect();
    let names: Vec<String> = kinds.iter().map(ToString::to_string).collect();
    let mut parts = Vec::new();
    for measured in read_sweeps(database, &names)?.0 {
        let Some((group, dtype)) = group_of(sweep, measured.kind, &measured.key) else { continue };
        let fit = SweepFit::from_sweep(measured);
        let sizes: BTreeSet<u64> =
            fit.switches.iter().flat_map(|switch| switch.refining_sizes.iter().copied()).collect();
        if !sizes.is_empty() {
            parts.push(SweepPart {
                kinds: vec![fit.sweep.kind],
                dtypes: vec![dtype],
                sizes: sizes.into_iter().collect(),
                groups: vec![group.clone()],
            });
        }
    }
    Ok(parts)
}

/// Returns the group of a sweep with this key and its type by torch's name; `None` if it is not of this sweep.
fn group_of<'a>(
    sweep: &'a CollectiveSweep,
    kind: CollectiveKind,
    key: &SweepKey,
) -> Option<(&'a SweepGroup, String)> {
    let dtype = key.dtype.as_ref()?.torch_name()?.to_owned();
    let is_of_parts = kind != CollectiveKind::AllToAllV || key.parts == sweep.part_weights;
    if key.environment != sweep.environment || !is_of_parts {
        return None;
    }
    let has_key =
        |group: &&SweepGroup| group.ranks as u64 == key.ranks && Some(group.tier as u64) == key.tier;
    let parts = sweep.parts.iter().filter(|part| part.kinds.contains(&kind) && part.dtypes.contains(&dtype));
    let group = parts.flat_map(|part| &part.groups).find(has_key)?;
    Some((group, dtype))
}

/// Database of a sweep. A new one is created after everything that can refuse the sweep, so that a refused sweep leaves
/// none.
#[derive(Debug)]
pub(crate) struct SweepDatabase {
    folder: PathBuf,
    /// A new database: its file, the source of its device, and the temporary folder with an empty one, by which the sweep is
    /// planned.
    draft: Option<(DatabaseFile, String, ScratchFolder)>,
}

impl SweepDatabase {
    /// Finds the database of a folder. A new database gets the given device or the device of the host.
    pub(crate) fn find(
        folder: &Path,
        kind: DataKind,
        assets: &AssetFiles,
        device: Option<&str>,
    ) -> Result<Self, CommandError> {
        let mut found = Self { folder: folder.to_owned(), draft: None };
        if Database::is_new(folder)? {
            check_new_folder(folder, kind)?;
            let device = choose_device(assets, kind, device, &DeviceEvidence::default(), chip_of_host)?;
            let file = DatabaseFile { device: device.name, ..DatabaseFile::new(kind) };
            let scratch = ScratchFolder::create().map_err(CommandError::no_temporary_folder)?;
            create(&scratch.path().join(DRAFT), &file)?;
            found.draft = Some((file, device.source, scratch));
        }
        Ok(found)
    }

    pub(crate) fn planning_folder(&self) -> PathBuf {
        self.draft.as_ref().map_or_else(|| self.folder.clone(), |(.., scratch)| scratch.path().join(DRAFT))
    }

    pub(crate) fn create(self) -> Result<PathBuf, CommandError> {
        if let Some((file, ..)) = &self.draft {
            create(&self.folder, file)?;
            self.announce("created");
        }
        Ok(self.folder)
    }

    pub(crate) fn announce(&self, verb: &str) {
        if let Some((file, source, _)) = &self.draft {
            let (folder, device) = (self.folder.display(), &file.device);
            print_note(&format!("{verb} the database `{folder}` for {device} ({source})"));
        }
    }
}

const DRAFT: &str = "database";

fn create(folder: &Path, file: &DatabaseFile) -> Result<(), CommandError> {
    Ok(Database::create(folder, file, |_| Ok::<(), DatabaseError>(()))?)
}
