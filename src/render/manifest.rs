//! The manifest: every launch of a collection as data, written by npubench and read by the script.

use serde::{Deserialize, Serialize};

use crate::{
    catalogue::{CallArgument, ResolvedCall, group_size},
    domain::{Case, CaseId, DataKind},
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
        self.cases.iter().filter_map(|case| group_size(&case.arguments)).max()
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
    pub arguments: Vec<CallArgument>,
    /// Shapes that it must return, where they are known.
    pub outputs: Vec<Vec<u64>>,
}

impl ManifestCase {
    /// Puts a case, as the catalogue reads it, into the form that the script reads.
    #[must_use]
    pub fn new(ordinal: u32, case: &Case, reading: &ResolvedCall, run_seed: u64) -> Self {
        let id = case.id();
        Self {
            ordinal,
            // Torch takes seeds of 63 bits.
            seed: (run_seed ^ id.seed()) >> 1,
            case: id,
            kernel: case.kernel.as_str().to_owned(),
            shapes: case.shapes(),
            reading: reading.form.clone(),
            arguments: reading.arguments.clone(),
            outputs: reading.returns.clone(),
        }
    }
}
