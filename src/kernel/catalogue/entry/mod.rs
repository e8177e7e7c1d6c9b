//! One entry of the catalogue: `op_replay/<Kernel>.yaml`, parsed and checked against itself.

mod file;
mod lists;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

pub(super) use file::{HINT, kernel_of_file};
use lists::is_identifier;

use super::{Expr, OperatorSchema, ReturnShapes, ShapeRule};
use crate::{
    base::yaml::{Location, Spanned},
    kernel::{Case, CaseAttributes, CheckMethod, Dtype, KernelName, TensorFormat, device::ComputeUnit},
};

#[derive(Clone, Debug)]
pub struct CatalogueEntry {
    pub kernel: KernelName,
    pub(crate) summary: String,
    pub(crate) operators: Vec<LaunchOperator>,
    pub(crate) also_named: Vec<String>,
    /// The kernel whose entry defines this one; `None` for an entry with a definition of its own.
    pub(crate) defined_by: Option<KernelName>,
    pub(crate) unit: ComputeUnit,
    pub needs: CallRequirements,
    pub(crate) check_method: CheckMethod,
    /// The forms of its calls: the first whose shapes fit is taken.
    pub(crate) forms: Vec<EntryForm>,
    pub(crate) cost: Cost,
    pub also_launches: Vec<String>,
    /// Number of input slots that records show, including slots of absent tensors at the end; 0 if the entry does not
    /// give it.
    pub(crate) recorded_inputs: usize,
    pub(crate) roles: BTreeMap<String, DimensionRole>,
    /// Switch below `torch.npu` that allows HF32 in its calls; `None` if none does.
    pub(crate) hf32_switch: Option<String>,
    pub(crate) example: Option<Case>,
    pub(crate) file: PathBuf,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cost {
    /// Floating-point operations; one per output element by default.
    pub(crate) flops: Option<Expr>,
    /// Bytes that must move; all inputs and outputs once by default.
    pub(crate) bytes: Option<Expr>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LaunchOperator {
    pub(crate) api: String,
    pub(crate) schema: OperatorSchema,
    pub(crate) schema_text: String,
    /// Schemas of other versions, which need no other arguments. The installed version decides which one is called.
    pub(crate) other_schemas: Vec<OperatorSchema>,
}

#[derive(Clone, Debug)]
pub(crate) struct EntryForm {
    pub(crate) rule: ShapeRule,
    pub(crate) operator: usize,
    /// Reason why no call launches the kernel with such tensors; `None` for a form that is replayed.
    pub(crate) unsupported: Option<String>,
    pub(crate) inputs: Vec<InputSlot>,
    pub(crate) output_dtypes: Vec<OutputDtype>,
    pub(crate) arguments: BTreeMap<String, DeclaredArgument>,
    /// Attributes, such as a layout, with the values that the form accepts; `*` is any value.
    pub(crate) with: BTreeMap<String, Vec<String>>,
    /// Attributes that follow from the shapes and other attributes, by column.
    pub(crate) implied: BTreeMap<String, ImpliedValue>,
    /// Names in the conditions, values and arguments of the call, which may be names of attributes.
    pub(crate) names: BTreeSet<String>,
    /// A property that records leave open, with the value that the replay assumes.
    pub(crate) assumption: Option<String>,
    /// Shapes returned to Python, where they differ from those that the profiler shows.
    pub(crate) returns: Option<ReturnShapes>,
    /// True for a form of one length of a list of tensors.
    pub(crate) of_list: bool,
    /// True for a form of some of the cases that lack attributes. A case that does not fit it is judged by the other forms.
    pub(crate) special_case: bool,
    pub(crate) cost: Cost,
    pub(crate) quantises: Vec<KernelName>,
    /// The kernel whose entry defines the call of such tensors; `None` if this entry does. The call runs as that kernel or
    /// as one that shares its definition, and never as the kernel of this entry.
    pub(crate) runs_as: Option<Spanned<KernelName>>,
}

/// Role of a dimension in the model. For a list such as `*B`, the role of its first dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DimensionRole {
    Tokens,
    Batch,
    Sequence,
    Heads,
    /// Size of a head, or of its part that carries positions.
    HeadSize,
    BlockSize,
    Blocks,
    /// Fixed by the kernel, or by attributes that shapes do not carry.
    Fixed,
}

impl DimensionRole {
    /// Returns true if mutations keep the dimension unless they name it.
    pub(crate) const fn is_kept(self) -> bool {
        !matches!(self, Self::Tokens | Self::Batch | Self::Sequence)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CallRequirements {
    /// Python modules that register the operator; a name with `()` is a function that must be called.
    #[serde(deserialize_with = "python_modules")]
    pub(crate) modules: Vec<String>,
    /// Operators that are not part of CANN: their package must be in the environment.
    pub custom_operators: bool,
    /// The eager call runs as another kernel: it must be compiled as a graph.
    pub(crate) graph: bool,
    pub(crate) several_devices: bool,
}

#[derive(Deserialize)]
#[serde(try_from = "String")]
struct PythonModule(String);

impl TryFrom<String> for PythonModule {
    type Error = String;

    fn try_from(module: String) -> Result<Self, String> {
        if module.strip_suffix("()").unwrap_or(&module).split('.').all(is_identifier) {
            return Ok(Self(module));
        }
        Err(format!("`{module}` is not the name of a Python module"))
    }
}

fn python_modules<'de, D: Deserializer<'de>>(list: D) -> Result<Vec<String>, D::Error> {
    Ok(Vec::<PythonModule>::deserialize(list)?.into_iter().map(|module| module.0).collect())
}

impl CallRequirements {
    pub(crate) fn words(&self) -> Vec<String> {
        let flags = [
            (self.custom_operators, "custom operators"),
            (self.graph, "graph mode"),
            (self.several_devices, "several devices"),
        ];
        let flags = flags.into_iter().filter(|(needed, _)| *needed).map(|(_, word)| word.to_owned());
        self.modules.iter().cloned().chain(flags).collect()
    }
}

#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "most slots of an entry are tensors")]
pub(crate) enum InputSlot {
    Tensor(TensorSlot),
    /// A list that the kernel reads from the host; the profiler shows it as a tensor.
    Host(Dtype),
    /// A tensor that the call creates and its last kernel reads, such as the order of a sort.
    Intermediate(Dtype),
    /// Omitted argument, or a number from the host: the profiler shows a type without dimensions.
    Omitted(Dtype),
    Ignored,
}

#[derive(Clone, Debug)]
pub(crate) struct TensorSlot {
    pub(crate) argument: String,
    pub(super) place: Location,
    pub(crate) source: TensorSource,
    /// Types that the kernel takes; any where empty.
    pub(crate) dtypes: Vec<Dtype>,
    pub(crate) same_type_as: Option<Spanned<String>>,
    /// Types for which a slot without dimensions is passed as a Python number.
    pub(crate) number_for: Vec<Dtype>,
    /// Blocked formats that the replay can build, besides row-major.
    pub(crate) formats: Vec<String>,
    /// True if the profiler shows a blocked matrix without its blocks.
    pub(crate) shown_whole: bool,
    /// True if the kernel reads every matrix as a blocked one.
    pub(crate) only_blocked: bool,
}

impl TensorSlot {
    pub(super) fn builds(&self, format: &TensorFormat) -> bool {
        format.private().is_none_or(|name| self.formats.iter().any(|known| known == name))
    }
}

#[derive(Clone, Debug)]
pub(crate) enum TensorSource {
    Fill(Fill<Expr>),
    /// The tensor of that other argument, as latent attention passes its keys as values.
    SameAs(Spanned<String>),
}

#[derive(Clone, Debug)]
pub(crate) enum DeclaredArgument {
    Constant(serde_json::Value),
    Expression(Expr),
    /// 1 over the square root of a value that follows from the shapes, as the scale of attention scores.
    InverseRoot(Expr),
    /// A buffer like that output, which the call writes.
    Destination(usize),
    /// The element type of that output, or torch's quantised type of that name, such as `qint8`.
    DtypeOf {
        output: usize,
        quantised: bool,
    },
    Attribute(String),
    /// HCCL's name of a group of so many processes, and the numbers that the call takes; none stated: any.
    ProcessGroup {
        ranks: Expr,
        allowed: Vec<i64>,
    },
    SameAs(String),
    /// A tensor that the profiler does not show; `on_host` if it stays in the host's memory, where the call reads it.
    Tensor {
        dims: ReturnShapes,
        dtype: Dtype,
        fill: Fill<Expr>,
        on_host: bool,
    },
}

#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "file::DeclaredImplied")]
pub(crate) enum ImpliedValue {
    Expression(Expr),
    Mean(Expr),
    Text(String),
    /// The only number or list of numbers that the form covers.
    Only(Expr),
    /// Any value: it has no effect on the call.
    Ignored,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OutputDtype {
    SameAs(String),
    Blocked(String, TensorFormat),
    /// The common type of all tensor inputs, by torch's promotion.
    Promoted,
    Fixed(Dtype),
    /// The recorded type, which is one of these and differs from the type of an input; the first where none is recorded.
    Recorded {
        allowed: Vec<Dtype>,
        unlike: Option<String>,
    },
}

impl CatalogueEntry {
    /// Returns the input slots from the host or left out, whose records depend on the library that launches.
    pub fn host_slots(&self) -> Vec<usize> {
        let slots = self.forms.iter().flat_map(|form| form.inputs.iter().enumerate());
        let hosts = slots.filter(|(_, slot)| matches!(slot, InputSlot::Host(_) | InputSlot::Omitted(_)));
        let hosts: BTreeSet<usize> = hosts.map(|(index, _)| index).collect();
        hosts.into_iter().collect()
    }

    pub(crate) fn definition(&self) -> &KernelName {
        self.defined_by.as_ref().unwrap_or(&self.kernel)
    }

    pub(crate) fn definition_of<'a>(&'a self, form: &'a EntryForm) -> &'a KernelName {
        form.runs_as.as_ref().map_or_else(|| self.definition(), |kernel| &kernel.value)
    }

    /// Returns true if a run can launch it: a kernel on several devices needs an argument with the size of its group.
    pub(crate) fn can_be_launched(&self) -> bool {
        let mut arguments = self.forms.iter().flat_map(|form| form.arguments.values());
        !self.needs.several_devices
            || arguments.any(|given| matches!(given, DeclaredArgument::ProcessGroup { .. }))
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.kernel.as_str()).chain(self.also_named.iter().map(String::as_str))
    }

    pub fn schema_texts(&self) -> impl Iterator<Item = &str> {
        self.operators.iter().map(|operator| operator.schema_text.as_str())
    }

    pub(crate) fn cost_of<'a>(&'a self, form: &'a EntryForm) -> [Option<&'a Expr>; 2] {
        let (own, all) = (&form.cost, &self.cost);
        [own.flops.as_ref().or(all.flops.as_ref()), own.bytes.as_ref().or(all.bytes.as_ref())]
    }

    pub(crate) fn main_operator(&self) -> &LaunchOperator {
        &self.operators[0]
    }

    pub(crate) fn operator_of(&self, form: &EntryForm) -> &LaunchOperator {
        self.operators.get(form.operator).unwrap_or_else(|| self.main_operator())
    }

    /// Returns true if a replayed form of an operator gives an argument, and if all of them do.
    pub(crate) fn argument_coverage(&self, operator: &LaunchOperator, argument: &str) -> (bool, bool) {
        let launches = |form: &&EntryForm| self.operator_of(form).api == operator.api && form.is_replayed();
        let mut forms = self.forms.iter().filter(launches).map(|form| form.gives_argument(argument));
        (forms.clone().any(|gives| gives), forms.all(|gives| gives))
    }
}

impl EntryForm {
    pub(crate) fn tensors(&self) -> impl Iterator<Item = (usize, &TensorSlot)> + Clone {
        self.inputs.iter().enumerate().filter_map(|(index, slot)| match slot {
            InputSlot::Tensor(slot) if self.rule.takes_slot(index) => Some((index, slot)),
            _ => None,
        })
    }

    pub(crate) fn tensor(&self, argument: &str) -> Option<(usize, &TensorSlot)> {
        self.tensors().find(|(_, slot)| slot.argument == argument)
    }

    /// Returns the names in conditions, output shapes, values and arguments. Names of the cost decide no call.
    fn names_of_call(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        let shapes = [Some(&self.rule.outputs), self.returns.as_ref()];
        let inferred = self.rule.inferred.iter().map(|(_, expr)| expr);
        let mut exprs: Vec<&Expr> = self.rule.conditions().chain(inferred).collect();
        exprs.extend(shapes.into_iter().flatten().flat_map(ReturnShapes::exprs));
        for (_, slot) in self.tensors() {
            if let TensorSource::Fill(fill) = &slot.source {
                exprs.extend(fill.parts());
            }
        }
        for argument in self.arguments.values() {
            match argument {
                DeclaredArgument::Expression(expr)
                | DeclaredArgument::InverseRoot(expr)
                | DeclaredArgument::ProcessGroup { ranks: expr, .. } => exprs.push(expr),
                DeclaredArgument::Attribute(column) => {
                    names.insert(CaseAttributes::variable_name(column));
                }
                DeclaredArgument::Tensor { dims, fill, .. } => {
                    exprs.extend(dims.exprs().chain(fill.parts()));
                }
                DeclaredArgument::Constant(_)
                | DeclaredArgument::Destination(_)
                | DeclaredArgument::SameAs(_)
                | DeclaredArgument::DtypeOf { .. } => {}
            }
        }
        names.extend(exprs.into_iter().flat_map(Expr::variable_names).map(str::to_owned));
        names
    }

    pub(crate) const fn is_replayed(&self) -> bool {
        self.unsupported.is_none()
    }

    pub(crate) fn gives_argument(&self, argument: &str) -> bool {
        self.arguments.contains_key(argument) || self.tensor(argument).is_some()
    }

    /// Returns true if the value of an attribute's column decides the call or is checked against it.
    pub(crate) fn uses_attribute(&self, column: &str) -> bool {
        self.names.contains(&CaseAttributes::variable_name(column))
            || self.implied.contains_key(column)
            || self.with.get(column).is_some_and(|values| !values.iter().any(|value| value == "*"))
    }

    /// Returns the columns of the attributes that are arguments.
    pub(crate) fn given_attributes(&self) -> impl Iterator<Item = &String> {
        self.arguments.values().filter_map(|argument| match argument {
            DeclaredArgument::Attribute(column) => Some(column),
            _ => None,
        })
    }

    pub(crate) fn is_transposed(&self, argument: &str) -> bool {
        self.rule.transposed.iter().any(|name| name == argument)
    }
}

/// Values of a tensor, seeded by the case. `B` is the type of a bound or total, `L` of a list of numbers: an expression in
/// the catalogue, numbers in a call. Each kind has the fields of [`FillKind::keys`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fill<B, L = B> {
    #[serde(rename = "fill", deserialize_with = "kind_of_manifest")]
    pub(crate) kind: FillKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) below: Option<B>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) total: Option<B>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) items: Option<L>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) used: Option<L>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) queries: Option<L>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) keys: Option<L>,
}

/// A kind of values: the words of `values:`, which docs/adding-a-kernel.md explains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display, strum::EnumString)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub(crate) enum FillKind {
    Activation,
    Weight,
    Ones,
    Zeros,
    /// 0.01, stored as the bits of a float in integers of 64 bits.
    Scales,
    Causal,
    Index,
    /// In [0, `below`), the n-th with a share of 1/n.
    Zipf,
    Counting,
    Distinct,
    Experts,
    /// Ends of groups that share the items evenly.
    Cumulative,
    Counts,
    Leading,
    /// Ascending, then -1.
    Selection,
    Listed,
    /// Row by row as many block numbers as the sequence uses, each once and in order, then 0.
    Blocks,
    /// Uninitialised memory that the call writes; not available in the catalogue.
    #[serde(skip_deserializing)]
    Empty,
}

/// Reads a kind of the manifest, which also has [`FillKind::Empty`].
fn kind_of_manifest<'de, D: Deserializer<'de>>(kind: D) -> Result<FillKind, D::Error> {
    String::deserialize(kind)?.parse().map_err(D::Error::custom)
}

impl FillKind {
    pub(super) const fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Index | Self::Zipf | Self::Counting | Self::Distinct | Self::Experts => &["below"],
            Self::Cumulative | Self::Counts | Self::Leading => &["total"],
            Self::Listed => &["items"],
            Self::Selection => &["queries", "keys"],
            Self::Blocks => &["below", "used"],
            _ => &[],
        }
    }
}

impl<B, L> From<FillKind> for Fill<B, L> {
    fn from(kind: FillKind) -> Self {
        Self { kind, below: None, total: None, items: None, used: None, queries: None, keys: None }
    }
}

impl<B, L> Fill<B, L> {
    pub(crate) fn try_map<C, M, E>(
        &self,
        bound: impl Fn(&B) -> Result<C, E>,
        list: impl Fn(&L) -> Result<M, E>,
    ) -> Result<Fill<C, M>, E> {
        Ok(Fill {
            kind: self.kind,
            below: self.below.as_ref().map(&bound).transpose()?,
            total: self.total.as_ref().map(&bound).transpose()?,
            items: self.items.as_ref().map(&list).transpose()?,
            used: self.used.as_ref().map(&list).transpose()?,
            queries: self.queries.as_ref().map(&list).transpose()?,
            keys: self.keys.as_ref().map(&list).transpose()?,
        })
    }
}

impl<B> Fill<B> {
    pub(crate) fn parts(&self) -> impl Iterator<Item = &B> {
        let Self { kind: _, below, total, items, used, queries, keys } = self;
        [below, total, items, used, queries, keys].into_iter().flatten()
    }
}
