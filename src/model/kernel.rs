//! Names of kernels, and the file names that stand for them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An NPU kernel type as the profiler names it, such as `MatMulV2`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KernelName(String);

/// Why a text is not a kernel's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KernelNameError {
    /// Nothing is left after trimming, or the profiler wrote `N/A`.
    #[error("the kernel has no name")]
    Empty,
    /// Control characters, which no profiler writes.
    #[error("the kernel name {0:?} has control characters")]
    Control(String),
}

/// Longest stem that is used as it is; file systems allow 255 bytes, and `.csv` and temporary
/// suffixes come on top.
const LONGEST_STEM: usize = 120;

impl KernelName {
    /// Takes a name from a profile or a command line.
    ///
    /// # Errors
    /// [`KernelNameError`] where the text names nothing or has control characters.
    pub fn new(text: &str) -> Result<Self, KernelNameError> {
        let text = text.trim();
        if matches!(text, "" | "N/A" | "NA") {
            return Err(KernelNameError::Empty);
        }
        if text.chars().any(char::is_control) {
            return Err(KernelNameError::Control(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }

    /// The kernel whose CSV has this stem; `None` where no kernel has it. An over-long name that was
    /// cut does not come back in full.
    #[must_use]
    pub fn from_file_stem(stem: &str) -> Option<Self> {
        let encoded = stem.strip_prefix('%').filter(|rest| is_reserved(rest)).unwrap_or(stem);
        let mut bytes = Vec::with_capacity(encoded.len());
        let mut rest = encoded.as_bytes();
        while let [first, tail @ ..] = rest {
            rest = tail;
            match (first, tail) {
                (b'%', [high, low, after @ ..]) => {
                    let digit = |byte: &u8| char::from(*byte).to_digit(16);
                    bytes.push(u8::try_from(digit(high)? * 16 + digit(low)?).ok()?);
                    rest = after;
                }
                (b'%', _) => return None,
                (byte, _) => bytes.push(*byte),
            }
        }
        Self::new(&String::from_utf8(bytes).ok()?).ok()
    }

    /// The name as the profiler wrote it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is a collective, which the communication files hold.
    #[must_use]
    pub fn is_collective(&self) -> bool {
        self.0.starts_with("hcom_")
    }

    /// The stem of the kernel's CSV: the name itself for every name a vendor uses. Bytes that could
    /// leave the folder or confuse a shell become `%XX`, names that a file system reserves get a
    /// `%` in front, and over-long ones are cut and told apart by a hash.
    #[must_use]
    pub fn file_stem(&self) -> String {
        let mut stem = String::with_capacity(self.0.len());
        for byte in self.0.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'+' => stem.push(char::from(byte)),
                b'.' if !stem.is_empty() => stem.push('.'),
                other => stem.push_str(&format!("%{other:02X}")),
            }
        }
        if is_reserved(&stem) {
            stem.insert(0, '%');
        }
        if stem.len() > LONGEST_STEM {
            let hash = super::case::short_hash(self.0.as_bytes());
            stem.truncate(LONGEST_STEM - hash.len() - 1);
            stem = format!("{stem}%{hash}");
        }
        stem
    }
}

/// Names that Windows and its network shares keep for devices.
fn is_reserved(stem: &str) -> bool {
    let base = stem.split('.').next().unwrap_or(stem).to_ascii_uppercase();
    matches!(base.as_str(), "CON" | "PRN" | "AUX" | "NUL")
        || (base.len() == 4
            && (base.starts_with("COM") || base.starts_with("LPT"))
            && base.as_bytes()[3].is_ascii_digit())
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
    fn hostile_names_stay_inside_the_folder() {
        let stem = |name: &str| KernelName::new(name).expect("printable").file_stem();
        assert_eq!(stem("../../x"), "%2E.%2F..%2Fx");
        assert_eq!(stem("CON"), "%CON");
        assert_eq!(stem("com1.x"), "%com1.x");
        assert_eq!(stem(".hidden"), "%2Ehidden");
        assert_eq!(stem("$(reboot)"), "%24%28reboot%29");
        assert!(stem(&"x".repeat(300)).len() <= LONGEST_STEM);
        assert_ne!(stem(&"x".repeat(300)), stem(&"x".repeat(301)));
    }

    proptest! {
        #[test]
        fn stems_are_one_path_component(name in "\\PC{1,200}") {
            if let Ok(kernel) = KernelName::new(&name) {
                let stem = kernel.file_stem();
                prop_assert!(stem.bytes().all(|b| b.is_ascii_graphic() && !b"/\\$`'\"*?<>|;&".contains(&b)));
                prop_assert!(!stem.starts_with('.') && stem.len() <= LONGEST_STEM);
                if name.len() * 3 < LONGEST_STEM {
                    prop_assert_eq!(KernelName::from_file_stem(&stem), Some(kernel));
                }
            }
        }

        #[test]
        fn different_names_have_different_stems(left in "[a-c./%]{1,6}", right in "[a-c./%]{1,6}") {
            if let (Ok(l), Ok(r)) = (KernelName::new(&left), KernelName::new(&right)) {
                prop_assert_eq!(l == r, l.file_stem() == r.file_stem());
            }
        }
    }
}
