//! Versions of the software that determines kernel durations.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Versions of the software that determines kernel durations.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SoftwareVersions {
    /// CANN, such as `8.3.RC1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cann: Option<String>,
    /// torch_npu, such as `2.7.1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub torch_npu: Option<String>,
}

impl SoftwareVersions {
    pub(crate) const fn is_unknown(&self) -> bool {
        self.cann.is_none() && self.torch_npu.is_none()
    }

    /// Returns true if a version differs; an unknown version is not a contradiction.
    pub(crate) fn contradicts(&self, other: &Self) -> bool {
        let differ = |mine: &Option<String>, theirs: &Option<String>| matches!((mine, theirs), (Some(mine), Some(theirs)) if mine != theirs);
        differ(&self.cann, &other.cann) || differ(&self.torch_npu, &other.torch_npu)
    }

    /// Returns the versions for data of both: the known version, or `mixed` if they differ.
    pub(crate) fn merge_versions(&self, other: &Self) -> Self {
        let join = |mine: &Option<String>, theirs: &Option<String>| match (mine, theirs) {
            (Some(mine), Some(theirs)) if mine != theirs => Some("mixed".to_owned()),
            (Some(known), _) | (None, Some(known)) => Some(known.clone()),
            (None, None) => None,
        };
        Self { cann: join(&self.cann, &other.cann), torch_npu: join(&self.torch_npu, &other.torch_npu) }
    }
}

/// Format: `CANN 8.3.RC1, torch_npu 2.7.1`.
impl fmt::Display for SoftwareVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = [("CANN", &self.cann), ("torch_npu", &self.torch_npu)];
        let parts: Vec<String> = known
            .iter()
            .filter_map(|(name, version)| Some(format!("{name} {}", version.as_ref()?)))
            .collect();
        f.write_str(if parts.is_empty() { "unknown software" } else { "" })?;
        f.write_str(&parts.join(", "))
    }
}

/// Parses the first version in a text such as `Python 3.11.2` or `8.3.RC1`; a part without digits counts as 0. `None`
/// without a number that a point follows.
pub(crate) fn version_numbers(text: &str) -> Option<[u32; 3]> {
    text.split_whitespace().find_map(|word| {
        let mut parts = word.split('.').map(|part| {
            let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().ok()
        });
        Some([parts.next()??, parts.next()??, parts.next().flatten().unwrap_or(0)])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(cann: &str, torch_npu: &str) -> SoftwareVersions {
        let known = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        SoftwareVersions { cann: known(cann), torch_npu: known(torch_npu) }
    }

    #[test]
    fn numbers_of_versions_are_parsed() {
        assert_eq!(version_numbers("Python 3.11.2\n"), Some([3, 11, 2]));
        assert_eq!(version_numbers("Python 3.8.0rc1"), Some([3, 8, 0]));
        assert_eq!(version_numbers("8.3.RC1"), Some([8, 3, 0]));
        assert_eq!(version_numbers("command not found"), None);
    }

    #[test]
    fn unknown_version_does_not_contradict() {
        assert!(stack("8.3", "2.7").contradicts(&stack("8.5", "2.7")));
        assert!(!stack("8.3", "").contradicts(&stack("", "2.7")));
        assert_eq!(stack("8.3", "").merge_versions(&stack("8.5", "2.7")), stack("mixed", "2.7"));
        assert_eq!(stack("8.3", "").merge_versions(&stack("", "2.7")), stack("8.3", "2.7"));
        assert!(stack("mixed", "2.7").contradicts(&stack("8.3", "2.7")));
        assert_eq!(stack("8.3", "2.7").to_string(), "CANN 8.3, torch_npu 2.7");
        assert_eq!(SoftwareVersions::default().to_string(), "unknown software");
    }
}
