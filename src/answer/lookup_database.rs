//! Opening of a database for lookups, and of workloads; the messages of their collectives.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use super::{
    coverage::{CoverageAnalyzer, add_equal_calls, estimate_durations},
    lookup::{LookupEngine, OpQuery},
    op_mapping::{MAPPING_FILE, OpMapping},
    workload::{DecoderStep, QuestionDefaults, Workload, decoder_step, load_workload},
};
use crate::{
    base::{assets::AssetFiles, command_error::CommandError},
    cases::llm::LlmModel,
    database::{Database, DatabaseError, InterpolationErrors, ledger::Ledger},
    kernel::{CollectiveKind, DataKind, Dtype, catalogue::Catalogue, device::DeviceProfile},
    measure::{
        collective::{
            sweep_session::{SweepPart, WantedGroups},
            tier_of_group,
        },
        run_context::RunContext,
    },
};

#[derive(Debug)]
pub(crate) struct LookupDatabase {
    pub(crate) folder: PathBuf,
    pub(crate) kind: DataKind,
    pub(crate) engine: LookupEngine,
    pub(crate) errors: InterpolationErrors,
    device: String,
}

impl LookupDatabase {
    /// Opens a database. The mapping is `mapping`, else the mapping of the database if it has one.
    pub(crate) fn open(folder: &Path, mapping: Option<&Path>) -> Result<Self, CommandError> {
        Self::open_with(folder, mapping, LookupEngine::new)
    }

    pub(crate) fn open_with(
        folder: &Path,
        mapping: Option<&Path>,
        engine: fn(Database, Option<OpMapping>) -> Result<LookupEngine, DatabaseError>,
    ) -> Result<Self, CommandError> {
        let database = Database::open(folder)?;
        Ledger::require_readable(&database.ledger_path())?;
        let own = database.folder().join(MAPPING_FILE);
        let mapping = match mapping {
            Some(file) => Some(OpMapping::load(file)?),
            None if !DatabaseError::is_missing(&own)? => Some(OpMapping::load(&own)?),
            None => None,
        };
        Ok(Self {
            folder: database.folder().to_owned(),
            kind: database.kind(),
            device: database.device().to_owned(),
            errors: InterpolationErrors::load(&database)?,
            engine: engine(database, mapping)?,
        })
    }

    pub(crate) fn database(&self) -> Result<Database, CommandError> {
        Ok(Database::open(&self.folder)?)
    }

    pub(crate) fn device(&self, assets: &AssetFiles) -> Result<DeviceProfile, CommandError> {
        Ok(DeviceProfile::load(assets, &self.device)?)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct WorkloadSelection<'a> {
    pub(crate) files: &'a [(PathBuf, f64)],
    pub(crate) model: Option<(&'a str, DecoderStep)>,
    pub(crate) defaults: QuestionDefaults,
}

impl WorkloadSelection<'_> {
    pub(crate) fn load(
        &self,
        assets: &AssetFiles,
        catalogue: &Catalogue,
    ) -> Result<Vec<Workload>, CommandError> {
        let mut workloads = load_workloads(self.files, &self.defaults)?;
        if let Some((model, step)) = &self.model {
            let mut step = step_of_model(assets, model, step)?;
            // The step has its own parallel degrees.
            step.set_defaults(&QuestionDefaults { tp: None, ep: None, ..self.defaults.clone() });
            workloads.push(step);
        }
        workloads.iter_mut().for_each(|workload| add_equal_calls(workload, catalogue));
        Ok(workloads)
    }

    pub(crate) fn load_with_durations(
        &self,
        assets: &AssetFiles,
        database: &LookupDatabase,
        analyzer: &CoverageAnalyzer<'_>,
    ) -> Result<Vec<Workload>, CommandError> {
        let mut workloads = self.load(assets, analyzer.catalogue)?;
        let device = database.device(assets)?;
        for workload in &mut workloads {
            if let Some(network) = &device.comm {
                set_tiers(workload, &network.grid);
            }
            estimate_durations(workload, analyzer, &device);
        }
        Ok(workloads)
    }
}

/// Sets the tiers of collectives whose ranks are recorded: rank r of the run is device r of the network's grid.
fn set_tiers(workload: &mut Workload, grid: &[u64]) {
    for question in &mut workload.questions {
        let devices: Vec<u32> =
            question.members.iter().filter_map(|rank| u32::try_from(*rank).ok()).collect();
        if devices.len() < 2 || devices.len() < question.members.len() || question.query.tier.is_some() {
            continue;
        }
        question.query.tier = tier_of_group(grid, &devices).ok().map(|tier| tier as u64);
    }
}

pub(crate) fn step_of_model(
    assets: &AssetFiles,
    model: &str,
    step: &DecoderStep,
) -> Result<Workload, CommandError> {
    decoder_step(&LlmModel::load(assets, model)?, step)
}

/// Reads workloads with their weights, and sets what their questions lack. A file twice is an error; equal names get the path of the
/// file.
pub(crate) fn load_workloads(
    files: &[(PathBuf, f64)],
    defaults: &QuestionDefaults,
) -> Result<Vec<Workload>, CommandError> {
    let resolve = |file: &PathBuf| file.canonicalize().unwrap_or_else(|_| file.clone());
    let mut workloads: Vec<Workload> = Vec::new();
    for (at, (file, weight)) in files.iter().enumerate() {
        if files[..at].iter().any(|(other, _)| resolve(other) == resolve(file)) {
            return Err(CommandError::bad_input(
                format!("`{}` is given twice", file.display()),
                "give each workload once, with its weight as FILE=WEIGHT",
            ));
        }
        let mut workload = load_workload(file)?;
        workload.weight = *weight;
        if workloads.iter().any(|other| other.name == workload.name) {
            workload.name = format!("{} ({})", workload.name, file.display());
        }
        workload.set_defaults(defaults);
        workloads.push(workload);
    }
    Ok(workloads)
}

#[derive(Debug, Default)]
pub(crate) struct WorkloadMessages {
    pub(crate) parts: Vec<SweepPart>,
    pub(crate) notes: Vec<String>,
}

impl WorkloadMessages {
    /// Finds the collectives of workloads with their message sizes, types and groups. `wanted` has the numbers of
    /// ranks of questions that state none, and the tiers of those without one.
    pub(crate) fn of_run(
        context: &RunContext,
        selection: &WorkloadSelection<'_>,
        mapping: Option<&Path>,
        wanted: &WantedGroups,
    ) -> Result<Self, CommandError> {
        let database = LookupDatabase::open(context.database.folder(), mapping)?;
        let analyzer = CoverageAnalyzer { engine: &database.engine, catalogue: &context.catalogue };
        let workloads = selection.load_with_durations(&context.assets, &database, &analyzer)?;
        let mut sizes: BTreeMap<(CollectiveKind, String, u64, Option<u64>), BTreeSet<u64>> = BTreeMap::new();
        let mut notes: BTreeSet<String> = BTreeSet::new();
        for question in workloads.iter().flat_map(|workload| &workload.questions) {
            let query = &question.query;
            let ranks: Vec<Option<u64>> = match (query.ranks, wanted.ranks.as_slice()) {
                (None, ranks @ [_, ..]) => ranks.iter().map(|ranks| Some(*ranks as u64)).collect(),
                (ranks, _) => vec![ranks],
            };
            for ranks in ranks {
                let query = OpQuery { ranks, ..query.clone() };
                let Some((kernel, message)) = database.engine.collective_of_query(&query) else { continue };
                let kind = CollectiveKind::of_kernel(&kernel);
                let dtype = message.dtype.as_ref().and_then(Dtype::torch_name);
                match (kind, dtype) {
                    (Some(kind), Some(dtype)) if message.ranks > 1 => {
                        let key = (kind, dtype.to_owned(), message.ranks, message.tier);
                        sizes.entry(key).or_default().insert(message.bytes);
                    }
                    (Some(_), Some(_)) => {}
                    (Some(kind), None) => {
                        notes.insert(format!("{kind} without an element type is left out"));
                    }
                    (None, _) => {
                        notes.insert(format!("{kernel} is left out: no sweep measures it"));
                    }
                }
            }
        }
        let mut parts = Vec::new();
        for ((kind, dtype, ranks, tier), sizes) in sizes {
            let tiers = tier
                .and_then(|tier| usize::try_from(tier).ok())
                .map_or_else(|| wanted.tiers.clone(), |tier| vec![tier]);
            let groups = WantedGroups { ranks: vec![usize::try_from(ranks).unwrap_or(usize::MAX)], tiers };
            match context.find_groups(&groups) {
                Ok(groups) => parts.push(SweepPart {
                    kinds: vec![kind],
                    dtypes: vec![dtype],
                    sizes: sizes.into_iter().collect(),
                    groups,
                }),
                Err(error) => {
                    notes.insert(format!("{kind} over {ranks} ranks is left out: {}", error.message));
                }
            }
        }
        let notes: Vec<String> = notes.into_iter().collect();
        if parts.is_empty() {
            let (reason, hint) = match notes.is_empty() {
                false => (notes.join("; "), "`npubench comm groups` lists the groups of the devices"),
                true => (
                    "they have no collective with a size and a number of ranks".to_owned(),
                    "give `--ranks` for questions without a number of ranks; `npubench coverage` lists the collectives of a workload",
                ),
            };
            return Err(CommandError::bad_input(format!("the workloads give no message: {reason}"), hint));
        }
        Ok(Self { parts, notes })
    }
}
