//! Grid files, `grids/*.yaml`: ladders, axes, constants, constraints and shape templates, which together declare
//! the cases that are worth measuring.
//!
//! A file is read into [`CandidateSpace`]s: one kernel, one pattern, one model at most, with every name resolved and every
//! expression compiled. Expanding a space is the business of the module `grid`; nothing is expanded here.

mod bind;
mod build;
mod density;
mod ladder;
mod model_tables;
mod mutations;
mod pattern;
mod raw;
mod segment;
mod values;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

pub use density::{AuditedAxis, AxisPoint, DensityFile, DensityStandard};
pub use mutations::{Mutation, MutationChange, MutationFile};
pub use segment::{LadderSegment, SegmentSpacing};
pub use values::{ModelValues, ValueTable};

use crate::{
    catalogue::{Catalogue, CompiledExpr, Expr},
    config::{AssetError, AssetFiles, YamlError, assets::AssetFile, device_profile::from_assets},
    domain::{Case, CaseAttributes, Dtype, KernelName, Slot, Tensor, TensorFormat, did_you_mean_or},
    llm::LlmModel,
};

/// The file whose ladders all others may use.
const SHARED: &str = "ladders.yaml";

/// What stands between a row's origin and the seed of the growth that made it.
const BEFORE_SEED: &str = ", seed ";

/// The cases of one kernel that one pattern declares, for one model where it speaks of models.
#[derive(Clone, Debug)]
pub struct CandidateSpace {
    /// The kernel.
    pub kernel: KernelName,
    /// The grid file's name, without its folder.
    pub grid: String,
    /// The pattern's name.
    pub pattern: String,
    /// The model whose numbers it uses.
    pub model: Option<String>,
    /// The axes; the last one moves fastest.
    pub axes: Vec<GridAxis>,
    /// Names of all numbers of a candidate: those of the axes, then those derived from them.
    pub names: Vec<String>,
    /// What is derived from the axes, in an order in which each can be computed.
    pub derived: Vec<CompiledExpr>,
    /// What must hold.
    pub conditions: Vec<CompiledExpr>,
    /// Input slots.
    pub inputs: Vec<SlotTemplate>,
    /// Output slots.
    pub outputs: Vec<SlotTemplate>,
    /// What shapes do not carry, by column.
    pub attributes: Vec<(String, AttributeTemplate)>,
    /// Constants that the attributes speak of.
    pub constants: Vec<(String, i64)>,
}

/// One axis: a name or several that move together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GridAxis {
    /// Its names.
    pub names: Vec<String>,
    /// Its values: as many numbers for each as there are names.
    pub values: Vec<i64>,
}

/// A slot of a shape template; `None` where it holds nothing.
pub type SlotTemplate = Option<TensorTemplate>;

/// A tensor whose dimensions follow from a candidate's numbers.
#[derive(Clone, Debug)]
pub struct TensorTemplate {
    /// Its dimensions.
    pub dims: Vec<CompiledExpr>,
    /// Its type.
    pub dtype: Dtype,
    /// Its format.
    pub format: TensorFormat,
}

/// What stands in a column of a row.
#[derive(Clone, Debug)]
pub enum AttributeTemplate {
    /// Always the same.
    Text(String),
    /// A number or a list of numbers that follows from the candidate.
    Expression(Expr),
}

impl GridAxis {
    /// Number of its values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len() / self.names.len().max(1)
    }

    /// Whether it has no value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

impl CandidateSpace {
    /// Number of candidates, refused ones included.
    #[must_use]
    pub fn candidates(&self) -> u64 {
        self.axes.iter().fold(1, |product, axis| product.saturating_mul(axis.len() as u64))
    }

    /// A case of its types and formats whose dimensions are all `dim`, without attributes.
    #[must_use]
    pub fn blank(&self, dim: u64) -> Case {
        let slots = |templates: &[SlotTemplate]| -> Vec<Slot> {
            let slots = templates.iter().map(|template| {
                template.as_ref().map(|tensor| Tensor {
                    dims: vec![dim; tensor.dims.len()],
                    dtype: tensor.dtype.clone(),
                    format: tensor.format.clone(),
                })
            });
            let mut slots: Vec<Slot> = slots.collect();
            // As rows are read: slots at the end that hold nothing are none.
            while slots.last().is_some_and(Option::is_none) {
                slots.pop();
            }
            slots
        };
        Case {
            kernel: self.kernel.clone(),
            inputs: slots(&self.inputs),
            outputs: slots(&self.outputs),
            attributes: CaseAttributes::default(),
        }
    }

    /// Where its rows are from, in words: all that is the same for every seed.
    #[must_use]
    pub fn origin(&self) -> String {
        let model = self.model.as_ref().map_or_else(String::new, |model| format!(" of {model}"));
        format!("grid {}: {}{model}", self.grid, self.pattern)
    }

    /// The same, with the seed.
    #[must_use]
    pub fn provenance(&self, seed: u64) -> String {
        format!("{}{BEFORE_SEED}{seed}", self.origin())
    }

    /// The [`CandidateSpace::origin`] in a row's provenance.
    #[must_use]
    pub fn origin_in(provenance: &str) -> &str {
        provenance.rsplit_once(BEFORE_SEED).map_or(provenance, |(origin, _)| origin)
    }
}

/// All grid files.
#[derive(Clone, Debug, Default)]
pub struct GridFiles {
    spaces: Vec<CandidateSpace>,
    /// The kernels of files that are not built in, with the place of each.
    named: Vec<(KernelName, YamlError)>,
}

/// The models that patterns speak of.
#[derive(Clone, Debug, Default)]
pub struct GridModels {
    /// All whose numbers have a name.
    known: Vec<ModelValues>,
    /// Those that somebody chose; patterns that do without models do so where nobody did.
    chosen: Option<Vec<ModelValues>>,
    /// What is left out of those that were chosen, in words.
    left_out: Vec<String>,
}

impl GridModels {
    /// Models whose values are given.
    #[must_use]
    pub const fn new(known: Vec<ModelValues>, chosen: Option<Vec<ModelValues>>) -> Self {
        Self { known, chosen, left_out: Vec::new() }
    }

    /// All models that there are, of which some may be chosen by name or by the path of a `config.json`.
    ///
    /// # Errors
    /// [`YamlError`] where there is none of a name, or its file is bad.
    pub fn load(assets: &AssetFiles, chosen: &[String]) -> Result<Self, YamlError> {
        let known = LlmModel::all(assets)?.values().map(ModelValues::from_model).collect();
        let models = chosen.iter().map(|name| LlmModel::load(assets, name));
        let models = models.collect::<Result<Vec<_>, YamlError>>()?;
        let left_out = models.iter().flat_map(|model| {
            let said = model.left_open.iter().cloned().chain(model_tables::without_table(model));
            said.map(|said| format!("{}: {said}", model.model)).collect::<Vec<_>>()
        });
        let left_out = left_out.collect();
        let values = models.iter().map(ModelValues::from_model).collect();
        Ok(Self { known, chosen: (!chosen.is_empty()).then_some(values), left_out })
    }

    /// What is left out of the models that were chosen, in words: products that no grid has, and what an imported file
    /// says and nobody takes over.
    #[must_use]
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    fn used(&self) -> &[ModelValues] {
        self.chosen.as_deref().unwrap_or(&self.known)
    }

    fn all(&self) -> impl Iterator<Item = &ModelValues> {
        self.known.iter().chain(self.chosen.iter().flatten())
    }
}

impl GridFiles {
    /// Reads all grid files.
    ///
    /// # Errors
    /// [`YamlError`] for the first file that is wrong.
    pub fn load(assets: &AssetFiles, models: &GridModels) -> Result<Self, YamlError> {
        let mut files = assets.grids().map_err(|error| from_assets(&error))?;
        let shared = files.remove(SHARED);
        for other in [density::FILE, mutations::FILE] {
            files.remove(other);
        }
        let ladders = match &shared {
            Some(asset) => build::parse_ladders(&asset.path, &asset.text)?,
            None => pattern::LadderValues::new(),
        };
        Self::of_files(files, &build::GridFileContext { ladders: &ladders, models, assets })
    }

    /// Reads these grid files only; the shared ladders are there for them.
    ///
    /// # Errors
    /// [`YamlError`] for the first file that cannot be read or is wrong.
    pub fn load_files(
        assets: &AssetFiles,
        models: &GridModels,
        paths: &[PathBuf],
    ) -> Result<Self, YamlError> {
        let shared = assets.grids().map_err(|error| from_assets(&error))?.remove(SHARED);
        let ladders = shared.map(|asset| build::parse_ladders(&asset.path, &asset.text)).transpose()?;
        let files = paths.iter().map(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Ok((name, AssetFile::read(path)?))
        });
        let files = files.collect::<Result<BTreeMap<_, _>, AssetError>>();
        let files = files.map_err(|error| YamlError {
            hint: "give the path of a grid file, a text in UTF-8".to_owned(),
            ..from_assets(&error)
        })?;
        if files.len() < paths.len() {
            let problem = "two files have the same name, and rows refer to the name of their file";
            return Err(YamlError::of_file(Path::new("--grids"), problem, "rename one of them"));
        }
        Self::of_files(
            files,
            &build::GridFileContext { ladders: &ladders.unwrap_or_default(), models, assets },
        )
    }

    fn of_files(
        files: BTreeMap<String, AssetFile>,
        context: &build::GridFileContext<'_>,
    ) -> Result<Self, YamlError> {
        let mut grids = Self::default();
        for (name, asset) in files {
            let own = build::parse_spaces(&name, &asset.path, &asset.text, context)?;
            grids.spaces.extend(own.spaces);
            grids.named.extend(own.named.into_iter().filter(|_| !asset.is_built_in()));
        }
        Ok(grids)
    }

    /// Reads one grid file's text, with the ladders of another.
    ///
    /// # Errors
    /// [`YamlError`].
    pub fn parse(
        file: &Path,
        text: &str,
        shared: (&Path, &str),
        models: &GridModels,
    ) -> Result<Self, YamlError> {
        let ladders = build::parse_ladders(shared.0, shared.1)?;
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let context = build::GridFileContext { ladders: &ladders, models, assets: &AssetFiles::embedded() };
        let own = build::parse_spaces(&name, file, text, &context)?;
        Ok(Self { spaces: own.spaces, named: own.named })
    }

    /// The kernels of files that are not built in and have no entry in the catalogue, so that they get no rows: where
    /// each stands, and which may have been meant.
    #[must_use]
    pub fn without_entry(&self, catalogue: &Catalogue) -> Vec<(KernelName, YamlError)> {
        let unknown = self.named.iter().filter(|(kernel, _)| catalogue.entry(kernel).is_none());
        let said = unknown.map(|(kernel, place)| {
            let hint = did_you_mean_or(kernel.as_str(), catalogue.kernel_names(), || {
                "docs/adding-a-kernel.md says how to make one replayable".to_owned()
            });
            (kernel.clone(), YamlError { hint, ..place.clone() })
        });
        said.collect()
    }

    /// Every space, in the order of files, patterns, kernels and models.
    #[must_use]
    pub fn spaces(&self) -> &[CandidateSpace] {
        &self.spaces
    }

    /// The kernels that some pattern speaks of, each once, in the order of names.
    #[must_use]
    pub fn kernels(&self) -> Vec<KernelName> {
        let mut kernels: Vec<KernelName> = self.spaces.iter().map(|space| space.kernel.clone()).collect();
        kernels.sort();
        kernels.dedup();
        kernels
    }

    /// The spaces of a kernel.
    pub fn spaces_of_kernel<'a>(
        &'a self,
        kernel: &'a KernelName,
    ) -> impl Iterator<Item = &'a CandidateSpace> {
        self.spaces.iter().filter(move |space| space.kernel == *kernel)
    }
}
