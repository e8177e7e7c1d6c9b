//! Tensors and slots of a kernel's signature: shapes, element types, memory formats.

use std::fmt;

/// Slot of a signature: a tensor, or `None` for an omitted optional input.
pub type Slot = Option<Tensor>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tensor {
    /// Outermost first; empty for a scalar.
    pub dims: Vec<u64>,
    pub dtype: Dtype,
    pub format: TensorFormat,
}

impl Tensor {
    pub(crate) fn new(dims: impl Into<Vec<u64>>, dtype: Dtype) -> Self {
        Self { dims: dims.into(), dtype, format: TensorFormat::nd() }
    }

    pub fn element_count(&self) -> u64 {
        self.dims.iter().fold(1, |product, &dim| product.saturating_mul(dim))
    }

    /// Returns the bytes of device memory; unknown types count two bytes per element.
    pub(crate) fn bytes(&self) -> u64 {
        self.element_count().saturating_mul(self.dtype.bytes().unwrap_or(2))
    }

    pub(crate) fn is_scalar(&self) -> bool {
        self.dims.is_empty()
    }
}

/// Dimensions or other numbers, displayed as the CSVs have them: `4096,1,1024`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dims<'a, T = u64>(pub &'a [T]);

impl<T: fmt::Display> fmt::Display for Dims<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, dim) in self.0.iter().enumerate() {
            write!(f, "{}{dim}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// Form in messages: `DT_BF16[4096,1024]`, followed by the format if it is not row-major.
impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.dtype, Dims(&self.dims))?;
        if let TensorFormat::Private(name) = &self.format {
            write!(f, " {name}")?;
        }
        Ok(())
    }
}

/// Element type of a tensor: `BF16`, `DT_BF16` and `BFLOAT16` are one type; an unknown name is kept. YAML files have only
/// types of tensors that torch can pass.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize)]
#[serde(try_from = "String")]
pub enum Dtype {
    Float,
    Float16,
    Bf16,
    Double,
    Int8,
    Uint8,
    Int16,
    Int32,
    Int64,
    Bool,
    Other(String),
}

/// (type, the profiler's name, torch's name, bytes, further spellings)
type DtypeSpellings = (Dtype, &'static str, &'static str, u64, &'static [&'static str]);

const KNOWN: [DtypeSpellings; 10] = [
    (Dtype::Float, "FLOAT", "float32", 4, &["FLOAT32", "FP32"]),
    (Dtype::Float16, "FLOAT16", "float16", 2, &["FP16"]),
    (Dtype::Bf16, "DT_BF16", "bfloat16", 2, &["BF16", "BFLOAT16"]),
    (Dtype::Double, "DOUBLE", "float64", 8, &["FLOAT64"]),
    (Dtype::Int8, "INT8", "int8", 1, &[]),
    (Dtype::Uint8, "UINT8", "uint8", 1, &[]),
    (Dtype::Int16, "INT16", "int16", 2, &[]),
    (Dtype::Int32, "INT32", "int32", 4, &[]),
    (Dtype::Int64, "INT64", "int64", 8, &[]),
    (Dtype::Bool, "BOOL", "bool", 1, &[]),
];

/// Types of outputs that torch_npu does not have: it packs eight INT4 into an INT32.
pub(super) const WITHOUT_TORCH_TYPE: [&str; 4] = ["INT4", "UINT16", "UINT32", "UINT64"];

const OTHER_CANN_TYPES: [&str; 14] = [
    "INT2",
    "UINT1",
    "STRING",
    "COMPLEX32",
    "COMPLEX64",
    "COMPLEX128",
    "HIFLOAT8",
    "FLOAT8_E4M3FN",
    "FLOAT8_E5M2",
    "FLOAT8_E8M0",
    "FLOAT6_E2M3",
    "FLOAT6_E3M2",
    "FLOAT4_E1M2",
    "FLOAT4_E2M1",
];

impl TryFrom<String> for Dtype {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let dtype = Self::parse(&name).filter(|dtype| dtype.passed_torch_name().is_some());
        dtype.ok_or_else(|| format!("`{name}` is not a type of torch"))
    }
}

impl Dtype {
    /// Eight of them are an INT32 in torch.
    pub(crate) const INT4: &'static str = "INT4";
    /// Type that CANN gives tensors of bits, such as scales of products, which torch_npu passes as INT64.
    pub(crate) const UINT64: &'static str = "UINT64";
    const UNDEFINED: &'static str = "DT_UNDEFINED";

    pub(crate) fn undefined() -> Self {
        Self::Other(Self::UNDEFINED.to_owned())
    }

    pub(crate) fn is_undefined(&self) -> bool {
        matches!(self, Self::Other(name) if name == Self::UNDEFINED)
    }

    /// Parses a name; `None` for a slot without a tensor (`DT_UNDEFINED`, `UNDEFINED`, `NULL`, `N/A` or empty).
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let name = name.trim();
        let bare = name.strip_prefix("DT_").unwrap_or(name);
        if matches!(bare, "" | "UNDEFINED" | "NULL" | "NONE" | "None" | "N/A" | "NA") {
            return None;
        }
        let known = KNOWN.iter().find(|(_, profiler, _, _, more)| {
            profiler.strip_prefix("DT_").unwrap_or(profiler) == bare || more.contains(&bare)
        });
        Some(known.map_or_else(|| Self::Other(name.to_owned()), |entry| entry.0.clone()))
    }

    pub(crate) fn known_names() -> impl Iterator<Item = &'static str> + Clone {
        KNOWN.iter().map(|entry| entry.1)
    }

    pub(crate) fn is_of_cann(&self) -> bool {
        let name = self.as_str();
        let bare = name.strip_prefix("DT_").unwrap_or(name);
        self.known_spellings().is_some()
            || WITHOUT_TORCH_TYPE.contains(&bare)
            || OTHER_CANN_TYPES.contains(&bare)
    }

    pub(crate) fn cann_names() -> impl Iterator<Item = &'static str> {
        let known =
            KNOWN.iter().flat_map(|entry| [entry.1, entry.2].into_iter().chain(entry.4.iter().copied()));
        known.chain(WITHOUT_TORCH_TYPE).chain(OTHER_CANN_TYPES)
    }

    pub(crate) fn from_torch(name: &str) -> Option<Self> {
        KNOWN.iter().find(|entry| entry.2 == name).map(|entry| entry.0.clone())
    }

    fn known_spellings(&self) -> Option<&'static DtypeSpellings> {
        KNOWN.iter().find(|entry| entry.0 == *self)
    }

    pub fn as_str(&self) -> &str {
        match self {
            Self::Other(name) => name,
            known => known.known_spellings().map_or("", |entry| entry.1),
        }
    }

    /// Returns the name of the attribute of `torch`; `None` for unknown types.
    pub(crate) fn torch_name(&self) -> Option<&'static str> {
        self.known_spellings().map(|entry| entry.2)
    }

    /// Returns torch's name of the type of tensors that are passed for an input of this type: INT64 for UINT64, which
    /// torch_npu does not have.
    pub(crate) fn passed_torch_name(&self) -> Option<&'static str> {
        let passed = if self.as_str() == Self::UINT64 { &Self::Int64 } else { self };
        passed.torch_name()
    }

    /// Returns true if a profile may show an input of this type as the other one: CANN turns the INT64 of bits into UINT64.
    pub(crate) fn may_be_recorded_as(&self, recorded: &Self) -> bool {
        let is_of_bits = |dtype: &Self| *dtype == Self::Int64 || dtype.as_str() == Self::UINT64;
        self == recorded || is_of_bits(self) && is_of_bits(recorded)
    }

    pub(crate) fn bytes(&self) -> Option<u64> {
        match self {
            Self::Other(name) => (name == Self::UINT64).then_some(8),
            known => known.known_spellings().map(|entry| entry.3),
        }
    }

    pub(crate) const fn is_float(&self) -> bool {
        matches!(self, Self::Float | Self::Float16 | Self::Bf16 | Self::Double)
    }

    pub(crate) const fn is_index(&self) -> bool {
        matches!(self, Self::Int32 | Self::Int64)
    }

    /// Promotes types as torch does: by tensors with dimensions, or by scalars if there are no others.
    pub(crate) fn promote_slots(slots: &[Slot]) -> Result<Self, String> {
        let only_scalars = slots.iter().flatten().all(Tensor::is_scalar);
        let deciding = slots.iter().flatten().filter(|tensor| only_scalars || !tensor.is_scalar());
        let mut dtypes = deciding.map(|tensor| &tensor.dtype);
        let first = dtypes.next().cloned().ok_or_else(|| "no input decides the output type".to_owned())?;
        dtypes.try_fold(first, |left, right| {
            left.promote_with(right).ok_or_else(|| format!("{left} and {right} have no common type"))
        })
    }

    pub(crate) fn promote_with(&self, other: &Self) -> Option<Self> {
        let rank = |dtype: &Self| match dtype {
            Self::Bool => Some(0),
            Self::Uint8 | Self::Int8 => Some(1),
            Self::Int16 => Some(2),
            Self::Int32 => Some(3),
            Self::Int64 => Some(4),
            Self::Float16 | Self::Bf16 => Some(5),
            Self::Float => Some(6),
            Self::Double => Some(7),
            Self::Other(_) => None,
        };
        match (rank(self), rank(other)) {
            _ if self == other => Some(self.clone()),
            (Some(1), Some(1)) => Some(Self::Int16),
            (Some(5), Some(5)) => Some(Self::Float),
            (Some(left), Some(right)) => Some(if left > right { self } else { other }.clone()),
            _ => None,
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TensorFormat {
    /// Row-major in the order of the dimensions. The profiler shows it under several names (`ND`, `NCHW`, `NCL`,
    /// `FORMAT_ND` …) which differ by rank and by the library that built the tensor, not by layout.
    Base(String),
    /// A blocked layout such as `FRACTAL_NZ`, which is another kernel variant.
    Private(String),
}

const BASE: [&str; 5] = ["ND", "NCL", "NCHW", "NCDHW", "NHWC"];

const BLOCKED: [&str; 16] = [
    "FRACTAL_NZ",
    "FRACTAL_NZ_C0_2",
    "FRACTAL_NZ_C0_4",
    "FRACTAL_NZ_C0_8",
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

    pub(crate) fn is_of_cann(&self) -> bool {
        self.private().is_none_or(|name| BLOCKED.contains(&name))
    }

    pub(crate) fn cann_names() -> impl Iterator<Item = &'static str> {
        BASE.into_iter().chain(BLOCKED)
    }

    pub fn as_str(&self) -> &str {
        match self {
            Self::Base(name) | Self::Private(name) => name,
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_type_are_one_type() {
        for name in ["BF16", "DT_BF16", "BFLOAT16", "DT_BFLOAT16"] {
            assert_eq!(Dtype::parse(name), Some(Dtype::Bf16), "{name}");
        }
        assert_eq!(Dtype::parse("DT_FLOAT"), Some(Dtype::Float));
        assert_eq!(Dtype::parse("HIFLOAT8"), Some(Dtype::Other("HIFLOAT8".to_owned())));
        assert_eq!(Dtype::parse("DT_UNDEFINED"), None);
    }

    #[test]
    fn bits_are_passed_as_int64_and_may_be_recorded_as_either() {
        let bits = Dtype::parse("UINT64").expect("a type");
        assert_eq!(
            (bits.torch_name(), bits.passed_torch_name(), bits.bytes()),
            (None, Some("int64"), Some(8))
        );
        assert!(bits.may_be_recorded_as(&Dtype::Int64) && Dtype::Int64.may_be_recorded_as(&bits));
        assert!(!Dtype::Int32.may_be_recorded_as(&bits) && !bits.may_be_recorded_as(&Dtype::Float));
    }

    #[test]
    fn promotion_follows_torch() {
        assert_eq!(Dtype::Float.promote_with(&Dtype::Bf16), Some(Dtype::Float));
        assert_eq!(Dtype::Bf16.promote_with(&Dtype::Float16), Some(Dtype::Float));
        assert_eq!(Dtype::Int64.promote_with(&Dtype::Bf16), Some(Dtype::Bf16));
        assert_eq!(Dtype::Uint8.promote_with(&Dtype::Int8), Some(Dtype::Int16));
    }
}
