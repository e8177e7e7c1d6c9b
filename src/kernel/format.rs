//! Memory formats of tensors, under the names that the profiler uses.

use std::fmt;

/// Arrangement of a tensor's elements in device memory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TensorFormat {
    /// Row-major in the order of the dimensions. The profiler shows it under several names (`ND`, `NCHW`, `NCL`,
    /// `FORMAT_ND` …) which differ by rank and by the library that built the tensor, not by layout.
    Base(String),
    /// A blocked layout such as `FRACTAL_NZ`, which is another kernel variant.
    Private(String),
}

const BASE: [&str; 5] = ["ND", "NCL", "NCHW", "NCDHW", "NHWC"];

/// Formats of CANN that are not row-major.
const BLOCKED: [&str; 13] = [
    "FRACTAL_NZ",
    "FRACTAL_NZ_C0_16",
    "FRACTAL_NZ_C0_32",
    "FRACTAL_Z",
    "FRACTAL_Z_3D",
    "FRACTAL_ZN_LSTM",
    "FRACTAL_ZN_RNN",
    "NC1HWC0",
    "NC1HWC0_C04",
    "NDC1HWC0",
    "HWCN",
    "NDHWC",
    "ND_RNN_BIAS",
];

impl TensorFormat {
    /// Returns the row-major format `ND`.
    pub fn nd() -> Self {
        Self::Base("ND".to_owned())
    }

    /// Parses a name of the profiler or a database; `None` for a slot without a tensor.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let name = name.trim();
        let bare = name.strip_prefix("FORMAT_").unwrap_or(name);
        match bare {
            "" | "NULL" | "NONE" | "None" | "N/A" | "NA" | "UNDEFINED" => None,
            base if BASE.contains(&base) => Some(Self::Base(base.to_owned())),
            private => Some(Self::Private(private.to_owned())),
        }
    }

    /// Returns true for the formats of CANN.
    pub(crate) fn is_of_cann(&self) -> bool {
        self.private().is_none_or(|name| BLOCKED.contains(&name))
    }

    /// Returns the names of the formats of CANN.
    pub(crate) fn cann_names() -> impl Iterator<Item = &'static str> {
        BASE.into_iter().chain(BLOCKED)
    }

    /// Returns the profiler's name.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Base(name) | Self::Private(name) => name,
        }
    }

    /// Returns the name of a blocked layout; `None` for row-major.
    pub(crate) fn private(&self) -> Option<&str> {
        match self {
            Self::Private(name) => Some(name),
            Self::Base(_) => None,
        }
    }

    pub(crate) fn same_layout(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Base(_), Self::Base(_)) => true,
            (left, right) => left == right,
        }
    }
}

impl fmt::Display for TensorFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
