//! Names of kernels and of their files.

use crate::base::command_error::Failure;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::case::short_hash;

/// An NPU kernel type as the profiler names it, such as `MatMulV2`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct KernelName(String);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KernelNameError(String);

/// Maximum length of the stem of a file name; file systems allow 255 bytes, including `.csv` and suffixes.
const MAX_STEM: usize = 120;
const HASH: usize = 16;
const MAX_BEGIN: usize = MAX_STEM - HASH - 2;

const VARIANT_CORES: [&str; 2] = ["_mix_aic", "_mix_aiv"];

impl Failure for KernelNameError {
    fn hint(&self) -> String {
        "give the kernel's name as the profiler shows it, such as `MatMulV2`".to_owned()
    }
}

impl KernelName {
    /// Parses a name, which must not be empty or have control characters. A name too long for a file name is replaced
    /// everywhere by its start, a `+`, and a hash of the complete name.
    pub fn new(text: &str) -> Result<Self, KernelNameError> {
        let text = text.trim();
        if matches!(text, "" | "N/A" | "NA") {
            return Err(KernelNameError("the kernel has no name".to_owned()));
        }
        if text.chars().any(char::is_control) {
            return Err(KernelNameError(format!("the kernel name {text:?} has control characters")));
        }
        if encode_stem(text.bytes()).len() < MAX_STEM {
            return Ok(Self(text.to_owned()));
        }
        let fits =
            |end: &usize| text.is_char_boundary(*end) && encode_stem(text[..*end].bytes()).len() <= MAX_BEGIN;
        let end = (0..=MAX_BEGIN).rev().find(fits).unwrap_or_default();
        Ok(Self(format!("{}+{}", &text[..end], short_hash(text.as_bytes()))))
    }

    pub(crate) fn from_file_stem(stem: &str) -> Option<Self> {
        let apart = stem.rsplit_once('%').filter(|(_, hash)| hash.len() == HASH);
        if let Some(kernel) = apart.and_then(|(plain, _)| Self::from_plain_stem(plain))
            && kernel.disambiguated_stem() == stem
        {
            return Some(kernel);
        }
        Self::from_plain_stem(stem)
    }

    fn from_plain_stem(stem: &str) -> Option<Self> {
        let mut parts = stem.split('%');
        let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
        for part in parts {
            let digits =
                part.get(..2).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            bytes.extend(&part.as_bytes()[2..]);
        }
        Self::new(&String::from_utf8(bytes).ok()?).ok()
    }

    /// Returns the kernel of which a name is a numbered variant: that of a Triton kernel or a kernel library is a
    /// function's name, to which the compiler appends `_` and a number, and for some its cores (`_mix_aic`). `None` for
    /// other names. Numbers in names of CANN's own kernels, which start with a capital, are part of the kernel.
    pub(crate) fn without_variant(name: &str) -> Option<&str> {
        let name = VARIANT_CORES.iter().find_map(|cores| name.strip_suffix(cores)).unwrap_or(name);
        let (kernel, number) = name.rsplit_once('_')?;
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let is_function = kernel.bytes().any(|byte| byte.is_ascii_lowercase())
            && kernel.bytes().next().is_some_and(|byte| byte == b'_' || byte.is_ascii_lowercase());
        (is_number && is_function).then_some(kernel)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn is_collective(&self) -> bool {
        Self::is_collective_name(&self.0)
    }

    pub(crate) fn is_collective_name(name: &str) -> bool {
        name.starts_with("hcom_")
    }

    /// Returns true for a record of a collective, by its name and `Accelerator Core` or `Task Type`.
    pub(crate) fn is_collective_record(name: &str, core: &str) -> bool {
        Self::is_collective_name(name) || matches!(core, "COMMUNICATION" | "HCCL")
    }

    /// Returns the stem of the kernel's CSV: the name itself for every name a vendor uses. Bytes that could leave the
    /// folder or be interpreted by a shell become `%XX`.
    pub fn file_stem(&self) -> String {
        encode_stem(self.0.bytes())
    }

    /// Returns the stem in a folder: the stem of an existing file, or [`Self::file_stem`], or, if another kernel's stem
    /// differs from it only by case, the same followed by a `%` and a hash of the name.
    pub(crate) fn file_stem_among<'a>(&self, stems: impl IntoIterator<Item = &'a str>) -> String {
        let [plain, apart] = self.own_file_stems();
        let (mut is_taken, mut is_apart) = (false, false);
        for stem in stems {
            if stem == plain {
                return plain;
            }
            is_apart |= stem == apart;
            is_taken |= stem.eq_ignore_ascii_case(&plain);
        }
        if is_apart || is_taken { apart } else { plain }
    }

    /// Returns the stem of the table, and that beside a table of another kernel whose stem differs only by case.
    pub(crate) fn own_file_stems(&self) -> [String; 2] {
        [self.file_stem(), self.disambiguated_stem()]
    }

    pub(crate) fn may_have_file_stem(&self, stem: &str) -> bool {
        stem == self.file_stem() || stem == self.disambiguated_stem()
    }

    fn disambiguated_stem(&self) -> String {
        format!("{}%{}", self.file_stem(), short_hash(self.0.as_bytes()))
    }
}

fn encode_stem(bytes: impl Iterator<Item = u8>) -> String {
    let mut stem = String::new();
    for byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'+' => stem.push(char::from(byte)),
            b'.' if !stem.is_empty() => stem.push('.'),
            other => stem.push_str(&format!("%{other:02X}")),
        }
    }
    stem
}

impl fmt::Display for KernelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn vendor_names_are_file_names_as_they_are() {
        for name in ["MatMulV2", "hcom_allReduce_", "_triton_rope_1", "split_qkv_rmsnorm_rope_kernel_0"] {
            assert_eq!(KernelName::new(name).expect("a vendor's name").file_stem(), name);
        }
    }

    #[test]
    fn numbered_variants_belong_to_functions_only() {
        let variants = [
            ("_triton_rope_1", Some("_triton_rope")),
            ("split_qkv_rmsnorm_rope_kernel_0", Some("split_qkv_rmsnorm_rope_kernel")),
            ("mla_preprocess_0_mix_aic", Some("mla_preprocess")),
            ("_triton_rope", None),
            ("_triton_rope_siso", None),
            ("kernel_", None),
            ("_1", None),
            ("MatMul_2", None),
            ("hcom_allReduce_", None),
        ];
        for (name, kernel) in variants {
            assert_eq!(KernelName::without_variant(name), kernel, "{name}");
        }
    }

    #[test]
    fn hostile_names_stay_inside_the_folder() {
        let stem = |name: &str| KernelName::new(name).expect("printable").file_stem();
        assert_eq!(stem("../../x"), "%2E.%2F..%2Fx");
        assert_eq!(stem(".hidden"), "%2Ehidden");
        assert_eq!(stem("$(reboot)"), "%24%28reboot%29");
    }

    #[test]
    fn long_kernel_names_are_shortened_uniquely() {
        let name = |text: &str| KernelName::new(text).expect("printable");
        let (long, longer) = (name(&"x".repeat(300)), name(&"x".repeat(301)));
        assert_ne!(long, longer);
        assert!(long.as_str().starts_with(&"x".repeat(MAX_BEGIN)) && long.as_str().len() < MAX_STEM);
        assert_eq!(name(long.as_str()), long);
        assert_eq!(KernelName::from_file_stem(&long.file_stem()), Some(long));
        let ordinary = "triton_".repeat(17);
        assert_eq!(name(&ordinary).file_stem(), ordinary, "119 characters are not too long");
        assert_ne!(name(&format!("{ordinary}x")).as_str(), format!("{ordinary}x"));
        let wide = name(&"\u{6838}".repeat(30));
        assert!(wide.file_stem().len() < MAX_STEM && wide.as_str().starts_with('\u{6838}'));
    }

    #[test]
    fn kernel_names_differing_by_case_have_distinct_stems() {
        let [add, upper, lower] = ["Add", "ADD", "add"].map(|name| KernelName::new(name).expect("a name"));
        assert_eq!(upper.file_stem_among([]), "ADD");
        assert_eq!(upper.file_stem_among(["Mul", "ADD", "Add"]), "ADD", "what is there stays");
        let apart = upper.file_stem_among(["Mul", "Add"]);
        assert!(
            apart.starts_with("ADD%") && upper.may_have_file_stem(&apart) && !add.may_have_file_stem(&apart)
        );
        assert_eq!(upper.file_stem_among(["Add", &apart]), apart);
        assert_eq!(upper.file_stem_among([&*apart]), apart, "also where the other is gone");
        assert_eq!(KernelName::from_file_stem(&apart), Some(upper));
        let other = lower.file_stem_among(["Add", &apart]);
        assert!(!other.eq_ignore_ascii_case(&apart));
        assert_eq!(KernelName::from_file_stem(&other), Some(lower));
    }

    proptest! {
        #[test]
        fn stems_are_one_path_component(name in "\\PC{1,200}") {
            if let Ok(kernel) = KernelName::new(&name) {
                let stem = kernel.file_stem();
                prop_assert!(stem.bytes().all(|b| b.is_ascii_graphic() && !b"/\\$`'\"*?<>|;&".contains(&b)));
                prop_assert!(!stem.starts_with('.') && stem.len() <= MAX_STEM);
                prop_assert_eq!(KernelName::from_file_stem(&stem), Some(kernel.clone()));
                prop_assert_eq!(KernelName::from_file_stem(&kernel.disambiguated_stem()), Some(kernel.clone()));
                prop_assert_eq!(KernelName::new(kernel.as_str()), Ok(kernel));
            }
        }

        #[test]
        fn different_names_have_different_file_stems(left in "[a-c./%]{1,6}", right in "[a-c./%]{1,6}") {
            if let (Ok(l), Ok(r)) = (KernelName::new(&left), KernelName::new(&right)) {
                prop_assert_eq!(l == r, l.file_stem() == r.file_stem());
            }
        }
    }
}
