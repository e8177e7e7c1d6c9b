//! One entry of the catalogue: `op_replay/<Kernel>.yaml`, parsed and checked against itself.

mod build;
mod checks;
mod fill;
mod lists;
mod raw;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

pub use fill::Fill;
pub(crate) use fill::FillKind;

use super::{Expr, OperatorSchema, ReturnShapes, ShapeRule};
use crate::{
    config::{YamlError, device_profile::ComputeUnit},
    domain::{Dtype, KernelName},
};

/// How a kernel is replayed.
#[derive(Clone, Debug)]
pub struct CatalogueEntry {
    /// The kernel, as the profiler names it.
    pub kernel: KernelName,
    /// What it computes, in a line.
    pub summary: String,
    /// The Python function, such as `torch_npu.npu_rms_norm`.
    pub api: String,
    /// The function's signature.
    pub schema: OperatorSchema,
    /// The schema as it is written in the file.
    pub schema_text: String,
    /// Other names under which the profiler shows the same kernel.
    pub also_named: Vec<String>,
    /// Which unit bounds its arithmetic.
    pub unit: ComputeUnit,
    /// What the call needs besides torch_npu.
    pub needs: CallRequirements,
    /// What judges its calls where there is no device.
    pub judged_by: EntryCheckMethod,
    /// The ways in which it is called: the first whose shapes fit is taken.
    pub forms: Vec<EntryForm>,
    /// Floating-point operations; one per output element where the file says nothing.
    pub flops: Option<Expr>,
    /// Bytes that must move; all inputs and outputs once where the file says nothing.
    pub bytes: Option<Expr>,
    /// What recorded shapes do not tell, and what the replay takes it for.
    pub assumption: Option<String>,
    /// Kernels that the same call launches besides.
    pub also_launches: Vec<String>,
    /// What dimensions are of a model's work, by their names in the forms.
    pub roles: BTreeMap<String, DimensionRole>,
    /// Where the entry comes from, for messages.
    pub file: PathBuf,
}

/// One way in which a kernel is called.
#[derive(Clone, Debug)]
pub struct EntryForm {
    /// How the shapes hang together.
    pub rule: ShapeRule,
    /// What the profiler's input slots are, in their order.
    pub inputs: Vec<InputSlot>,
    /// Element types of the outputs, in their order.
    pub output_dtypes: Vec<OutputDtype>,
    /// Arguments that are not input slots.
    pub arguments: BTreeMap<String, DeclaredArgument>,
    /// What attributes must say for the form to be meant, such as a layout; `*` is anything.
    pub with: BTreeMap<String, Vec<String>>,
    /// Shapes that Python sees, where they are not those that the profiler shows.
    pub returns: Option<ReturnShapes>,
    /// Whether it is one of several that differ in how many tensors a list has.
    pub of_list: bool,
    /// Floating-point operations, where they are others than the entry's.
    pub flops: Option<Expr>,
    /// Bytes that must move, where they are others than the entry's.
    pub bytes: Option<Expr>,
    /// Kernels whose work the form does in INT8.
    pub quantises: Vec<KernelName>,
}

/// What a dimension is of a model's work. Of a list of dimensions, its first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DimensionRole {
    /// Rows that come from all sequences of a batch.
    Tokens,
    /// Sequences, or whatever else is computed side by side.
    Batch,
    /// The length of a sequence.
    Sequence,
    /// Heads of attention, of queries or of keys and values.
    Heads,
    /// What a head has, or what of it carries positions.
    HeadSize,
    /// Tokens in a block of a cache.
    BlockSize,
    /// Blocks, of a pool or in a row of a block table.
    Blocks,
    /// What the kernel decides, or what follows from what shapes do not carry.
    Fixed,
}

impl DimensionRole {
    /// Whether it stays as it is unless somebody names it.
    #[must_use]
    pub const fn is_kept(self) -> bool {
        !matches!(self, Self::Tokens | Self::Batch | Self::Sequence)
    }
}

/// What a call needs besides torch and torch_npu.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallRequirements {
    /// Python modules that register the operator; with `()` behind it, a function of one that must be called.
    pub modules: Vec<String>,
    /// Operators that CANN does not bring: their package must be in the environment.
    pub custom_operators: bool,
    /// The eager call runs as another kernel: it must be compiled as a graph.
    pub graph: bool,
    /// The kernel talks to other devices.
    pub several_devices: bool,
}

impl CallRequirements {
    /// In words; nothing where it needs nothing.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let mut words: Vec<String> = self.modules.clone();
        let flags = [
            (self.custom_operators, "custom operators"),
            (self.graph, "graph mode"),
            (self.several_devices, "several devices"),
        ];
        words.extend(flags.into_iter().filter(|(needed, _)| *needed).map(|(_, word)| word.to_owned()));
        words
    }
}

/// What of the vendor's code judges a call without a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryCheckMethod {
    /// The operator's Meta kernel.
    #[default]
    Meta,
    /// Its fake implementation only.
    Fake,
    /// Nothing: npubench's own rule is all there is.
    Rule,
}

impl EntryCheckMethod {
    /// Its word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Fake => "fake",
            Self::Rule => "rule",
        }
    }
}

/// What one input slot of the profiler is.
#[derive(Clone, Debug)]
pub enum InputSlot {
    /// A tensor argument of the call.
    Tensor(TensorSlot),
    /// Something the kernel reads from the host, which the profiler shows as a tensor.
    Host {
        /// Its length.
        dims: Expr,
        /// Its type.
        dtype: Dtype,
    },
    /// What the call makes on the way and its last kernel reads, such as the order of a sort.
    Intermediate {
        /// Its dimensions, a list.
        dims: Expr,
        /// Its type.
        dtype: Dtype,
    },
    /// An optional argument that the call leaves out, or a number from the host: the profiler shows a type
    /// without dimensions.
    Omitted(Dtype),
    /// No form reads it.
    Ignored,
}

/// A tensor argument.
#[derive(Clone, Debug)]
pub struct TensorSlot {
    /// The argument's name in the schema.
    pub argument: String,
    /// Its values.
    pub source: TensorSource,
    /// Types that the kernel takes; any where empty.
    pub dtypes: Vec<Dtype>,
    /// Another argument whose type it must have.
    pub same_type_as: Option<String>,
    /// Types for which a slot without dimensions is passed as a Python number.
    pub number_for: Vec<Dtype>,
    /// Blocked formats that the replay can build, besides row-major.
    pub formats: Vec<String>,
    /// Whether the profiler shows a blocked matrix without its blocks.
    pub shown_whole: bool,
}

/// Source of a tensor argument.
#[derive(Clone, Debug)]
pub enum TensorSource {
    /// A new tensor with these values.
    Fill(Fill<Expr>),
    /// The tensor of that other argument, as latent attention passes its keys as values.
    SameAs(String),
}

/// Where an argument that is no input slot comes from.
#[derive(Clone, Debug)]
pub enum DeclaredArgument {
    /// A constant.
    Constant(serde_json::Value),
    /// Follows from the shapes.
    Expression(Expr),
    /// 1 over the root of what follows from the shapes, as attention scales its scores.
    InverseRoot(Expr),
    /// A buffer like that output, which the call writes.
    Destination(usize),
    /// The element type of that output.
    DtypeOf {
        /// The output.
        output: usize,
        /// Whether torch's quantised type of that name is meant, such as `qint8`.
        quantised: bool,
    },
    /// What a column of the row says that shapes do not carry.
    Attribute(String),
    /// The name of the group of so many processes that the kernel talks to.
    ProcessGroup(Expr),
    /// A tensor that the profiler does not show.
    Tensor {
        /// Its shape.
        dims: ReturnShapes,
        /// Its type.
        dtype: Dtype,
        /// Its values.
        fill: Fill<Expr>,
        /// Whether it stays on the host, where the call reads it.
        on_host: bool,
    },
}

/// The type of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputDtype {
    /// That of an input.
    SameAs(String),
    /// That of all tensor inputs together, by torch's promotion.
    Promoted,
    /// Always this one.
    Fixed(Dtype),
    /// What the profiler recorded, one of these; the first where nothing is recorded.
    Recorded(Vec<Dtype>),
    /// The same, and another than that of an input.
    RecordedUnlike(Vec<Dtype>, String),
}

impl CatalogueEntry {
    /// Parses and checks an entry.
    pub(crate) fn parse(file: &Path, text: &str) -> Result<Self, YamlError> {
        build::entry(file, text)
    }

    /// Input slots that the kernel reads from the host or that are left out, in some form: how the profiler
    /// shows them depends on the library that launches.
    #[must_use]
    pub fn host_slots(&self) -> Vec<usize> {
        let slots = self.forms.iter().flat_map(|form| form.inputs.iter().enumerate());
        let hosts = slots.filter(|(_, slot)| matches!(slot, InputSlot::Host { .. } | InputSlot::Omitted(_)));
        let hosts: BTreeSet<usize> = hosts.map(|(index, _)| index).collect();
        hosts.into_iter().collect()
    }

    /// Whether a run, rehearsed or not, can launch it: where it talks to other devices, it must say to how many.
    #[must_use]
    pub fn can_be_launched(&self) -> bool {
        let mut arguments = self.forms.iter().flat_map(|form| form.arguments.values());
        !self.needs.several_devices
            || arguments.any(|given| matches!(given, DeclaredArgument::ProcessGroup(_)))
    }

    /// The names under which the profiler may show the kernel.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.kernel.as_str()).chain(self.also_named.iter().map(String::as_str))
    }

    /// Whether some form gives the call an argument, and whether every form does.
    #[must_use]
    pub fn gives(&self, argument: &str) -> (bool, bool) {
        let mut gives = self.forms.iter().map(|form| form.gives(argument));
        (self.forms.iter().any(|form| form.gives(argument)), gives.all(|given| given))
    }
}

impl EntryForm {
    /// The tensor slots that the form reads, with their places.
    pub fn tensors(&self) -> impl Iterator<Item = (usize, &TensorSlot)> {
        self.inputs.iter().enumerate().filter_map(|(index, slot)| match slot {
            InputSlot::Tensor(slot) if self.rule.takes_slot(index) => Some((index, slot)),
            _ => None,
        })
    }

    /// The slot of a tensor argument.
    #[must_use]
    pub fn tensor(&self, argument: &str) -> Option<(usize, &TensorSlot)> {
        self.tensors().find(|(_, slot)| slot.argument == argument)
    }

    /// The slots of a list of tensors, in their order.
    #[must_use]
    pub fn list(&self, argument: &str) -> Vec<(usize, &TensorSlot)> {
        self.tensors().filter(|(_, slot)| slot.argument == argument).collect()
    }

    /// Whether the form gives the call an argument.
    #[must_use]
    pub fn gives(&self, argument: &str) -> bool {
        self.arguments.contains_key(argument) || self.tensor(argument).is_some()
    }

    /// Whether the argument is passed as a transposed view.
    #[must_use]
    pub fn is_transposed(&self, argument: &str) -> bool {
        self.rule.transposed.iter().any(|name| name == argument)
    }
}
