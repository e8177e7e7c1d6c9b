//! Grid files, `grids/*.yaml`: ladders, axes, constants, constraints and shape templates, which together declare
//! the cases that are worth measuring.
//!
//! A file is read into [`Space`]s: one kernel, one pattern, one model at most, with every name resolved and every
//! expression compiled. Expanding a space is the business of the module `grid`; nothing is expanded here.

mod bind;
mod build;
mod density;
mod ladder;
mod of_models;
mod parts;
mod place;
mod raw;
mod segment;
mod values;

pub use density::{AuditedAxis, AxisPoint, Density, Standard};
pub use segment::{Pace, Segment};
pub use values::{ModelValues, Table};

use std::path::Path;

use super::{Assets, Expr, Formula, LlmModel, SpecError, device_profile::from_assets};
use crate::model::{Attributes, Case, Dtype, Format, KernelName, Slot, Tensor};

/// The file whose ladders all others may use.
const SHARED: &str = "ladders.yaml";

/// The cases of one kernel that one pattern declares, for one model where it speaks of models.
#[derive(Clone, Debug)]
pub struct Space {
    /// The kernel.
    pub kernel: KernelName,
    /// The grid file's name, without its folder.
    pub grid: String,
    /// The pattern's name.
    pub pattern: String,
    /// The model whose numbers it uses.
    pub model: Option<String>,
    /// The axes; the last one moves fastest.
    pub axes: Vec<Axis>,
    /// Names of all numbers of a candidate: those of the axes, then those derived from them.
    pub names: Vec<String>,
    /// What is derived from the axes, in an order in which each can be computed.
    pub derived: Vec<Formula>,
    /// What must hold.
    pub conditions: Vec<Formula>,
    /// Input slots.
    pub inputs: Vec<SlotTemplate>,
    /// Output slots.
    pub outputs: Vec<SlotTemplate>,
    /// What shapes do not carry, by column.
    pub attributes: Vec<(String, Cell)>,
    /// Constants that the attributes speak of.
    pub constants: Vec<(String, i64)>,
}

/// One axis: a name or several that move together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
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
    pub dims: Vec<Formula>,
    /// Its type.
    pub dtype: Dtype,
    /// Its format.
    pub format: Format,
}

/// What stands in a column of a row.
#[derive(Clone, Debug)]
pub enum Cell {
    /// Always the same.
    Text(String),
    /// A number or a list of numbers that follows from the candidate.
    Expression(Expr),
}

impl Axis {
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

impl Space {
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
            attributes: Attributes::default(),
        }
    }

    /// Where its rows are from, in words.
    #[must_use]
    pub fn provenance(&self, seed: u64) -> String {
        let model = self.model.as_ref().map_or_else(String::new, |model| format!(" of {model}"));
        format!("grid {}: {}{model}, seed {seed}", self.grid, self.pattern)
    }
}

/// All grid files.
#[derive(Clone, Debug)]
pub struct Grids {
    spaces: Vec<Space>,
}

/// The models that patterns speak of.
#[derive(Clone, Debug, Default)]
pub struct Models {
    /// All whose numbers have a name.
    known: Vec<ModelValues>,
    /// Those that somebody chose; patterns that do without models do so where nobody did.
    chosen: Option<Vec<ModelValues>>,
}

impl Models {
    /// Models whose values are given.
    #[must_use]
    pub const fn new(known: Vec<ModelValues>, chosen: Option<Vec<ModelValues>>) -> Self {
        Self { known, chosen }
    }

    /// All models that there are, of which some may be chosen by name or by the path of a `config.json`.
    ///
    /// # Errors
    /// [`SpecError`] where there is none of a name, or its file is bad.
    pub fn load(assets: &Assets, chosen: &[String]) -> Result<Self, SpecError> {
        let known = LlmModel::all(assets)?.values().map(ModelValues::of).collect();
        let models = chosen.iter().map(|name| Ok(ModelValues::of(&LlmModel::load(assets, name)?)));
        let models = models.collect::<Result<Vec<_>, SpecError>>()?;
        Ok(Self { known, chosen: (!chosen.is_empty()).then_some(models) })
    }

    fn used(&self) -> &[ModelValues] {
        self.chosen.as_deref().unwrap_or(&self.known)
    }

    fn all(&self) -> impl Iterator<Item = &ModelValues> {
        self.known.iter().chain(self.chosen.iter().flatten())
    }
}

impl Grids {
    /// Reads all grid files.
    ///
    /// # Errors
    /// [`SpecError`] for the first file that is wrong.
    pub fn load(assets: &Assets, models: &Models) -> Result<Self, SpecError> {
        let mut files = assets.grids().map_err(|error| from_assets(&error))?;
        let shared = files.remove(SHARED);
        files.remove(density::FILE);
        let ladders = match &shared {
            Some(asset) => build::ladders(&asset.path, &asset.text)?,
            None => parts::Ladders::new(),
        };
        let context = build::Context { ladders: &ladders, models };
        let mut spaces = Vec::new();
        for (name, asset) in &files {
            spaces.extend(build::spaces(name, &asset.path, &asset.text, &context)?);
        }
        Ok(Self { spaces })
    }

    /// Reads one grid file's text, with the ladders of another.
    ///
    /// # Errors
    /// [`SpecError`].
    pub fn parse(file: &Path, text: &str, shared: (&Path, &str), models: &Models) -> Result<Self, SpecError> {
        let ladders = build::ladders(shared.0, shared.1)?;
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { spaces: build::spaces(&name, file, text, &build::Context { ladders: &ladders, models })? })
    }

    /// Every space, in the order of files, patterns, kernels and models.
    #[must_use]
    pub fn spaces(&self) -> &[Space] {
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
    pub fn of<'a>(&'a self, kernel: &'a KernelName) -> impl Iterator<Item = &'a Space> {
        self.spaces.iter().filter(move |space| space.kernel == *kernel)
    }
}
