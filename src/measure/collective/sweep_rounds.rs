//! Runs of a sweep: the first one, and further ones around the changes of the algorithm that it shows.

use std::{collections::BTreeSet, path::Path};

use crate::{
    base::command_error::CommandError,
    cli::run_options::RunOptions,
    measure::{
        collective::sweep_session::{CollectiveSweep, SweepPart},
        run_context::{EndedRun, RunContext},
        run_id::new_run_id,
    },
};
use crate::{
    base::{assets::AssetFiles, deadline::Deadline, exit::ExitStatus, files::FolderLock, print::print_note},
    database::Database,
    kernel::{CaseId, DataKind},
    measure::engine::SweepNodes,
    show::emit::OutputFormat,
};

/// Most runs that refine a sweep; each divides the sizes around a change at least by four.
const MOST_REFINEMENTS: usize = 4;

/// Runs of one sweep until a deadline.
pub(crate) struct SweepRounds<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) kind: DataKind,
    pub(crate) assets: AssetFiles,
    /// Options of all runs, without the sweep.
    pub(crate) options: RunOptions,
    /// Deadline of all runs.
    pub(crate) deadline: Option<Deadline>,
    pub(crate) format: OutputFormat,
    /// Connected nodes of a sweep over several hosts.
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
        for _ in 0..MOST_REFINEMENTS {
            if !is_open || self.deadline.is_some_and(|deadline| deadline.rest() <= 0.0) {
                break;
            }
            let database = Database::open_as(self.folder, self.kind)?;
            let parts = sweep.refining_parts(&database)?;
            drop(database);
            let further = CollectiveSweep { parts, ..sweep.clone() };
            let new = match further.parts.is_empty() {
                true => BTreeSet::new(),
                false => further.cases()?.into_iter().map(|(case, _)| case.id().clone()).collect(),
            };
            if new.is_subset(&attempted) {
                let what = if further.parts.is_empty() {
                    "all changes of the algorithm are located"
                } else {
                    "no further size can locate the changes"
                };
                print_note(what);
                break;
            }
            print_note(&describe_parts(&further.parts));
            attempted.extend(new);
            if let Some(nodes) = &self.nodes {
                nodes.cluster.add_cases(&serde_json::to_string(&further).expect("a sweep is JSON"));
            }
            let ended = self.run(&further, &mut lock)?;
            exit = if ended.exit == ExitStatus::Done { exit } else { ended.exit };
            is_open = !ended.is_stopped;
        }
        Ok(exit)
    }

    fn run(&self, sweep: &CollectiveSweep, lock: &mut FolderLock) -> Result<EndedRun, CommandError> {
        let options = RunOptions { sweep: Some(sweep.clone()), ..self.options.clone() };
        let mut context = RunContext::find(self.folder, self.kind, self.assets.clone(), &options)?;
        context.nodes.clone_from(&self.nodes);
        let plan = context.plan(&options, &[])?;
        context.database.initialise(lock)?;
        let run = new_run_id(&context.database, options.cache);
        context.measure(&run, options, plan, None, self.deadline, self.format)
    }
}

/// Describes the sizes of a further run.
fn describe_parts(parts: &[SweepPart]) -> String {
    let sizes: usize = parts.iter().map(|part| part.sizes.len()).sum();
    let sweeps = if parts.len() == 1 { "sweep" } else { "sweeps" };
    format!(
        "the algorithm changes between sizes of {} {sweeps}: {sizes} further sizes are measured",
        parts.len()
    )
}
