//! The manifest: every launch of a collection as data, written by npubench and read by the script.

use serde::{Deserialize, Serialize};

use crate::{
    catalogue::{CallArgument, ResolvedCall, ResolvedFill, TensorArgument},
    domain::{CaseId, DataKind, Dtype, IdentifiedCase, Tensor, TensorFormat},
};

/// Everything that one collection launches.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// The run.
    pub run: String,
    /// Number of the collection in its run.
    pub collection: u32,
    /// Measured or rehearsed.
    pub kind: DataKind,
    /// The device, for `torch.npu.set_device`.
    pub device: u32,
    /// The devices of the processes that torchrun starts, by their ranks; `device` is the first. Empty where the
    /// script runs by itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gang: Vec<u32>,
    /// Seed of the run; each case mixes its id into it.
    pub seed: u64,
    /// Launches of a case before its samples.
    pub warm_up: u32,
    /// Launches of a case that are samples.
    pub measured: u32,
    /// How unevenly tokens go to experts: the n-th has a share of n^-skew; 0 is even.
    #[serde(default, skip_serializing_if = "is_even")]
    pub expert_skew: f64,
    /// The launches that bracket each case.
    pub sentinels: SentinelLengths,
    /// The cases, in launch order.
    pub cases: Vec<ManifestCase>,
}

impl Manifest {
    /// The devices, one per process that launches.
    #[must_use]
    pub fn devices(&self) -> &[u32] {
        if self.gang.is_empty() { std::slice::from_ref(&self.device) } else { &self.gang }
    }

    /// Has the script started by torchrun, on these devices, where some case talks to other processes.
    pub fn set_gang(&mut self, devices: &[u32]) {
        if self.group_size().is_some() {
            self.gang = devices.to_vec();
        }
    }

    /// How many processes its cases talk to, the most where they differ; `None` where no case talks to any.
    #[must_use]
    pub fn group_size(&self) -> Option<i64> {
        let arguments = self.cases.iter().flat_map(|case| &case.arguments);
        arguments.filter_map(|argument| argument.process_group).max()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_even(skew: &f64) -> bool {
    *skew == 0.0
}

/// Launches of `torch.neg` on an int32 vector whose length tells where the profile stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentinelLengths {
    /// How the profiler names them.
    pub kernel: String,
    /// Launches of length 1 in front of the first case and behind the last, which a profiler that drops
    /// the first or last records may lose.
    pub padding: u32,
}

impl Default for SentinelLengths {
    fn default() -> Self {
        Self { kernel: "Neg".to_owned(), padding: 16 }
    }
}

impl SentinelLengths {
    /// Length of the vector in front of a case.
    #[must_use]
    pub fn opening(&self, ordinal: u32) -> u64 {
        2 * u64::from(ordinal) + 2
    }

    /// Length of the vector behind a case.
    #[must_use]
    pub fn closing_length(&self, ordinal: u32) -> u64 {
        2 * u64::from(ordinal) + 3
    }
}

/// One case of a collection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ManifestCase {
    /// Place in the collection, from 0; the sentinels carry it.
    pub ordinal: u32,
    /// The case.
    pub case: CaseId,
    /// Seed of its values.
    pub seed: u64,
    /// The kernel that must run.
    pub kernel: String,
    /// Its shapes in words, for whoever reads the manifest.
    #[serde(default)]
    pub shapes: String,
    /// Which form of the catalogue's entry the call takes.
    pub reading: String,
    /// What the call is given.
    pub arguments: Vec<ManifestArgument>,
    /// Shapes that it must return, where they are known.
    pub outputs: Vec<Vec<u64>>,
}

/// One argument of a call: its name and exactly one of `tensor`, `tensors`, `destination`, `same_as`,
/// `process_group`, `dtype` and `value`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ManifestArgument {
    /// Its name.
    pub name: String,
    /// A tensor with values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tensor: Option<ManifestTensor>,
    /// A list of several tensors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tensors: Vec<ManifestTensor>,
    /// A tensor that the call writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<ManifestTensor>,
    /// The argument whose tensor it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_as: Option<String>,
    /// A type of torch, by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<String>,
    /// The name of the group of so many processes that the kernel talks to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_group: Option<i64>,
    /// Whether the call takes a list of such tensors.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub listed: bool,
    /// Anything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<serde_json::Value>,
}

/// A tensor to build.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ManifestTensor {
    /// As it lies in memory, without blocks.
    pub shape: Vec<u64>,
    /// Torch's name of the type.
    pub dtype: String,
    /// What it is filled with: `empty`, or the catalogue's word.
    pub fill: String,
    /// What values are below, or how many items are shared, by `fill`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<i64>,
    /// The numbers themselves, or how many blocks each row uses, by `fill`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<i64>,
    /// Whether it stays on the host.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_host: bool,
    /// The blocked format that it is cast to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Whether the call sees the last two dimensions swapped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub transposed: bool,
}

impl ManifestCase {
    /// Puts a case, as the catalogue reads it, into the form that the script reads.
    #[must_use]
    pub fn new(ordinal: u32, case: &IdentifiedCase, reading: &ResolvedCall, run_seed: u64) -> Self {
        let arguments = reading.arguments.iter().map(|(name, supplied)| argument(name, supplied)).collect();
        Self {
            ordinal,
            // Torch takes seeds of 63 bits.
            seed: (run_seed ^ case.id().seed()) >> 1,
            case: case.id().clone(),
            kernel: case.kernel.as_str().to_owned(),
            shapes: case.shapes(),
            reading: reading.form.clone(),
            arguments,
            outputs: reading.returns.clone(),
        }
    }
}

fn argument(name: &str, supplied: &CallArgument) -> ManifestArgument {
    let mut argument = ManifestArgument { name: name.to_owned(), ..ManifestArgument::default() };
    match supplied {
        CallArgument::Tensor(supplied) => {
            argument.tensor = Some(built(supplied));
            argument.listed = supplied.listed;
        }
        CallArgument::Same(other) => argument.same_as = Some(other.clone()),
        CallArgument::Tensors(several) => argument.tensors = several.iter().map(built).collect(),
        CallArgument::ProcessGroup(ranks) => argument.process_group = Some(*ranks),
        CallArgument::Dtype(name) => argument.dtype = Some(name.clone()),
        CallArgument::Destination(described) => argument.destination = Some(tensor(described, "empty")),
        // 2 and 1.5 are exact in every type, and neither is a value that a kernel may skip.
        CallArgument::Number(dtype) if dtype.is_float() => argument.value = Some(1.5.into()),
        CallArgument::Number(Dtype::Bool) => argument.value = Some(true.into()),
        CallArgument::Number(_) => argument.value = Some(2.into()),
        CallArgument::Constant(value) => argument.value = Some(value.clone()),
    }
    argument
}

fn built(supplied: &TensorArgument) -> ManifestTensor {
    let TensorArgument { tensor: described, logical, transposed, fill, on_host, .. } = supplied;
    let items = match fill {
        ResolvedFill::Listed(items) | ResolvedFill::Blocks { used: items, .. } => items.clone(),
        _ => Vec::new(),
    };
    let (word, bound) = match fill {
        ResolvedFill::Activation => ("activation", None),
        ResolvedFill::Weight => ("weight", None),
        ResolvedFill::Ones => ("ones", None),
        ResolvedFill::Zeros => ("zeros", None),
        ResolvedFill::Scales => ("scales", None),
        ResolvedFill::Causal => ("causal", None),
        ResolvedFill::Index(bound) => ("index", Some(*bound)),
        ResolvedFill::Zipf(bound) => ("zipf", Some(*bound)),
        ResolvedFill::Counting(bound) => ("counting", Some(*bound)),
        ResolvedFill::Distinct(bound) => ("distinct", Some(*bound)),
        ResolvedFill::Experts(bound) => ("experts", Some(*bound)),
        ResolvedFill::Cumulative(total) => ("cumulative", Some(*total)),
        ResolvedFill::Counts(total) => ("counts", Some(*total)),
        ResolvedFill::Picks(bound) => ("picks", Some(*bound)),
        ResolvedFill::Listed(_) => ("listed", None),
        ResolvedFill::Blocks { below, .. } => ("blocks", Some(*below)),
    };
    let format = match &described.format {
        TensorFormat::Private(name) => Some(name.clone()),
        TensorFormat::Base(_) => None,
    };
    let shape = logical.clone();
    ManifestTensor {
        shape,
        bound,
        items,
        on_host: *on_host,
        format,
        transposed: *transposed,
        ..tensor(described, word)
    }
}

fn tensor(described: &Tensor, fill: &str) -> ManifestTensor {
    ManifestTensor {
        shape: described.dims.clone(),
        dtype: described.dtype.torch_name().unwrap_or_default().to_owned(),
        fill: fill.to_owned(),
        bound: None,
        items: Vec::new(),
        on_host: false,
        format: None,
        transposed: false,
    }
}
