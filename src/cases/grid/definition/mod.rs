//! Grid files, `grids/*.yaml`: ladders, axes, constants, constraints and shape templates, which declare the cases that
//! are worth measuring. A file is parsed into [`CandidateSpace`]s: one kernel, one pattern, at most one model, with
//! all names resolved and all expressions compiled.

mod density;
mod model_tables;
mod mutations;
mod pattern;
mod segment;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use crate::{
    base::{
        assets::{AssetError, AssetFile, AssetFiles},
        suggest::did_you_mean_or,
        yaml::YamlError,
    },
    cases::llm::LlmModel,
    kernel::{
        Case, CaseAttributes, Dtype, KernelName, Slot, Tensor, TensorFormat,
        catalogue::Catalogue,
        expression::{CompiledExpr, Expr},
    },
};
pub use density::DensityFile;
pub(crate) use density::{AuditedAxis, AxisPoint, DensityStandard};
pub use model_tables::{ModelValues, ValueTable};
pub use mutations::{Mutation, MutationChange, MutationFile};
use pattern::{GridFileContext, LadderValues, parse_ladders, parse_spaces};
pub(crate) use segment::{LadderSegment, SegmentSpacing};

const SHARED: &str = "ladders.yaml";

const BEFORE_SEED: &str = ", seed ";

/// The candidates of one kernel declared by one pattern, for one model if the pattern uses models.
#[derive(Clone, Debug)]
pub struct CandidateSpace {
    pub kernel: KernelName,
    pub(crate) grid: String,
    pub pattern: String,
    pub model: Option<String>,
    /// The axes; the last one moves fastest.
    pub axes: Vec<GridAxis>,
    /// Names of all numbers of a candidate: first of the axes, then derived from them.
    pub names: Vec<String>,
    pub(crate) derived: Vec<CompiledExpr>,
    pub(crate) conditions: Vec<CompiledExpr>,
    pub(crate) inputs: Vec<SlotTemplate>,
    pub(crate) outputs: Vec<SlotTemplate>,
    pub(crate) attributes: Vec<(String, AttributeTemplate)>,
    pub(crate) constants: Vec<(String, i64)>,
}

/// One axis: a name, or several names whose values form rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GridAxis {
    pub names: Vec<String>,
    /// Values of the names: rows of one number per name, one row after the other.
    pub values: Vec<i64>,
}

pub(crate) type SlotTemplate = Option<TensorTemplate>;

#[derive(Clone, Debug)]
pub(crate) struct TensorTemplate {
    pub(crate) dims: Vec<CompiledExpr>,
    pub(crate) dtype: Dtype,
    pub(crate) format: TensorFormat,
}

#[derive(Clone, Debug)]
pub(crate) enum AttributeTemplate {
    Text(String),
    Expression(Expr),
}

impl GridAxis {
    pub(crate) fn len(&self) -> usize {
        self.values.len() / self.names.len().max(1)
    }
}

impl CandidateSpace {
    pub fn candidates(&self) -> u64 {
        self.axes.iter().fold(1, |product, axis| product.saturating_mul(axis.len() as u64))
    }

    pub(crate) fn blank(&self, dim: u64) -> Case {
        let tensor = |TensorTemplate { dims, dtype, format }: &TensorTemplate| Tensor {
            dims: vec![dim; dims.len()],
            dtype: dtype.clone(),
            format: format.clone(),
        };
        // As in parsed rows, empty slots at the end are omitted.
        let slots = |templates: &[SlotTemplate]| -> Vec<Slot> {
            let count = templates.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
            templates[..count].iter().map(|template| template.as_ref().map(tensor)).collect()
        };
        let (inputs, outputs) = (slots(&self.inputs), slots(&self.outputs));
        Case { kernel: self.kernel.clone(), inputs, outputs, attributes: CaseAttributes::default() }
    }

    /// Returns the origin of its rows: the part of their provenance that is equal for all seeds.
    pub fn origin(&self) -> String {
        let model = self.model.as_ref().map_or_else(String::new, |model| format!(" of {model}"));
        format!("grid {}: {}{model}", self.grid, self.pattern)
    }

    pub(crate) fn with_seed(origin: &str, seed: u64) -> String {
        format!("{origin}{BEFORE_SEED}{seed}")
    }

    pub(crate) fn origin_in(provenance: &str) -> &str {
        provenance.rsplit_once(BEFORE_SEED).map_or(provenance, |(origin, _)| origin)
    }
}

#[derive(Clone, Debug, Default)]
pub struct GridFiles {
    spaces: Vec<CandidateSpace>,
    /// The kernels of files that are not embedded, each with the error to report if it has no entry.
    named: Vec<(KernelName, YamlError)>,
}

#[derive(Clone, Debug, Default)]
pub struct GridModels {
    known: Vec<ModelValues>,
    /// The chosen models. Without a choice, patterns with a variant for models use the one without.
    chosen: Option<Vec<ModelValues>>,
    /// Notes on unused parts of the chosen models, such as products that no grid has.
    pub(crate) left_out: Vec<String>,
}

impl GridModels {
    pub const fn new(known: Vec<ModelValues>, chosen: Option<Vec<ModelValues>>) -> Self {
        Self { known, chosen, left_out: Vec::new() }
    }

    pub fn load(assets: &AssetFiles, chosen: &[String]) -> Result<Self, YamlError> {
        let known = LlmModel::all(assets)?.values().map(ModelValues::from_model).collect();
        let models = chosen.iter().map(|name| LlmModel::load(assets, name));
        let models = models.collect::<Result<Vec<_>, YamlError>>()?;
        let left_out = models.iter().flat_map(|model| {
            let notes = model.left_open.iter().cloned().chain(model_tables::without_table(model));
            notes.map(|note| format!("{}: {note}", model.model)).collect::<Vec<_>>()
        });
        let left_out = left_out.collect();
        let values = models.iter().map(ModelValues::from_model).collect();
        Ok(Self { known, chosen: (!chosen.is_empty()).then_some(values), left_out })
    }

    fn used(&self) -> &[ModelValues] {
        self.chosen.as_deref().unwrap_or(&self.known)
    }

    fn all(&self) -> impl Iterator<Item = &ModelValues> {
        self.known.iter().chain(self.chosen.iter().flatten())
    }
}

fn take_shared_ladders(files: &mut BTreeMap<String, AssetFile>) -> Result<LadderValues, YamlError> {
    let shared = files.remove(SHARED);
    shared.map_or(Ok(LadderValues::new()), |asset| parse_ladders(&asset.path, &asset.text))
}

impl GridFiles {
    pub fn load(assets: &AssetFiles, models: &GridModels) -> Result<Self, YamlError> {
        let mut files = assets.grids()?;
        let ladders = take_shared_ladders(&mut files)?;
        files.retain(|name, _| ![density::FILE, mutations::FILE].contains(&name.as_str()));
        Self::parse_files(files, &GridFileContext { ladders: &ladders, models, assets })
    }

    pub(crate) fn load_files(
        assets: &AssetFiles,
        models: &GridModels,
        paths: &[PathBuf],
    ) -> Result<Self, YamlError> {
        let ladders = take_shared_ladders(&mut assets.grids()?)?;
        let files = paths.iter().map(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Ok((name, AssetFile::read(path)?))
        });
        let files = files.collect::<Result<BTreeMap<_, _>, AssetError>>();
        let files = files.map_err(|error| YamlError {
            hint: "give the path of a grid file, a text in UTF-8".to_owned(),
            ..error.into()
        })?;
        if files.len() < paths.len() {
            let problem = "two files have the same name, and rows refer to the name of their file";
            return Err(YamlError::of_file(Path::new("--grids"), problem, "rename one of them"));
        }
        Self::parse_files(files, &GridFileContext { ladders: &ladders, models, assets })
    }

    fn parse_files(
        files: BTreeMap<String, AssetFile>,
        context: &GridFileContext<'_>,
    ) -> Result<Self, YamlError> {
        let mut grids = Self::default();
        for (name, asset) in files {
            let own = parse_spaces(&name, &asset.path, &asset.text, context)?;
            grids.spaces.extend(own.spaces);
            grids.named.extend(own.named.into_iter().filter(|_| !asset.is_built_in));
        }
        Ok(grids)
    }

    pub fn parse(
        file: &Path,
        text: &str,
        shared: (&Path, &str),
        models: &GridModels,
    ) -> Result<Self, YamlError> {
        let ladders = parse_ladders(shared.0, shared.1)?;
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let context = GridFileContext { ladders: &ladders, models, assets: &AssetFiles::embedded() };
        parse_spaces(&name, file, text, &context)
    }

    pub(crate) fn without_entry(&self, catalogue: &Catalogue) -> Vec<(KernelName, YamlError)> {
        let unknown = self.named.iter().filter(|(kernel, _)| catalogue.entry(kernel).is_none());
        let errors = unknown.map(|(kernel, place)| {
            let hint = did_you_mean_or(kernel.as_str(), catalogue.kernel_names(), || {
                "docs/adding-a-kernel.md explains how to add a kernel".to_owned()
            });
            (kernel.clone(), YamlError { hint, ..place.clone() })
        });
        errors.collect()
    }

    pub fn spaces(&self) -> &[CandidateSpace] {
        &self.spaces
    }

    pub fn kernels(&self) -> Vec<KernelName> {
        let mut kernels: Vec<KernelName> = self.spaces.iter().map(|space| space.kernel.clone()).collect();
        kernels.sort();
        kernels.dedup();
        kernels
    }

    pub fn spaces_of_kernel<'a>(
        &'a self,
        kernel: &'a KernelName,
    ) -> impl Iterator<Item = &'a CandidateSpace> {
        self.spaces.iter().filter(move |space| space.kernel == *kernel)
    }
}
