//! Versions of the software that determines kernel durations, and what of it makes results comparable.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::case::short_hash;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SoftwareVersions {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cann: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub torch_npu: Option<String>,
}

impl SoftwareVersions {
    pub(crate) const fn is_unknown(&self) -> bool {
        self.cann.is_none() && self.torch_npu.is_none()
    }

    pub(crate) fn contradicts(&self, other: &Self) -> bool {
        let differ = |mine: &Option<String>, theirs: &Option<String>| {
            mine.is_some() && theirs.is_some() && mine != theirs
        };
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

impl fmt::Display for SoftwareVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = [("CANN", &self.cann), ("torch_npu", &self.torch_npu)];
        f.write_str(&joined_versions(
            known.into_iter().filter_map(|(name, version)| Some((name, version.as_ref()?))),
        ))
    }
}

fn joined_versions<V: fmt::Display>(versions: impl Iterator<Item = (impl fmt::Display, V)>) -> String {
    let versions: Vec<String> = versions.map(|(name, version)| format!("{name} {version}")).collect();
    if versions.is_empty() { "unknown software".to_owned() } else { versions.join(", ") }
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

/// Versions and settings on which durations of kernels depend. `None` and empty values are unknown.
///
/// The name of the host, the paths of the installation and the version of npubench are not part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct SoftwareFingerprint {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cann: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cann_build: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cann_operators: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
    /// Packages of custom operators: name and digest of each, sorted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub custom_operators: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profiler: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    #[serde(flatten)]
    pub imported: ImportedVersions,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct ImportedVersions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub python: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torch_npu: Option<String>,
    /// Version of the installed package, which need not be imported to provide custom operators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vllm_ascend: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub soc: Option<String>,
}

impl SoftwareFingerprint {
    /// Returns 16 hexadecimal digits that are equal for equal fingerprints. Unknown values have no part in them, so that
    /// fields of later versions do not change the digests of earlier ones.
    pub fn digest(&self) -> String {
        let mut text = String::new();
        for (name, value) in self.values() {
            text.extend([name, "=", &value, "\n"]);
        }
        short_hash(text.as_bytes())
    }

    /// Returns the versions with the digest in parentheses, as rows have them: `CANN 8.3.RC1 (0123456789abcdef)`.
    pub(crate) fn cell_text(&self) -> String {
        format!("{self} ({})", self.digest())
    }

    pub(crate) fn with_imported(&self, imported: ImportedVersions) -> Self {
        Self { imported, ..self.clone() }
    }

    pub(crate) fn is_unknown(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn host_part(&self) -> Self {
        self.with_imported(ImportedVersions::default())
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = (&str, Cow<'_, str>)> {
        let ImportedVersions { python, torch, torch_npu, vllm_ascend, soc } = &self.imported;
        let custom = Some(self.custom_operators.join(", ")).filter(|list| !list.is_empty()).map(Cow::Owned);
        let values = [
            ("CANN", &self.cann),
            ("CANN build", &self.cann_build),
            ("CANN operators", &self.cann_operators),
            ("driver", &self.driver),
            ("firmware", &self.firmware),
            ("torch", torch),
            ("torch_npu", torch_npu),
            ("vllm_ascend", vllm_ascend),
            ("Python", python),
            ("SoC", soc),
            ("profiler", &self.profiler),
        ];
        let values = values.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?.into())));
        let values = values.chain(custom.map(|list| ("custom operators", list)));
        let environment = self.environment.iter();
        values.chain(environment.map(|(name, value)| (name.as_str(), Cow::Borrowed(value.as_str()))))
    }

    pub(crate) fn differences_from(&self, other: &Self) -> String {
        let [mine, theirs] = [self, other].map(|software| software.values().collect::<IndexMap<_, _>>());
        let added = theirs.keys().filter(|name| !mine.contains_key(*name));
        let differences = mine.keys().chain(added).filter_map(|name| {
            let [one, another] =
                [&mine, &theirs].map(|values| values.get(name).map_or("unknown", |value| value));
            (one != another).then(|| format!("{name} {one}, not {another}"))
        });
        differences.collect::<Vec<_>>().join("; ")
    }
}

impl fmt::Display for SoftwareFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: [&str; 5] = ["CANN", "driver", "torch", "torch_npu", "vllm_ascend"];
        f.write_str(&joined_versions(self.values().filter(|(name, _)| SHOWN.contains(name))))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentifiedSoftware {
    pub(crate) fingerprint: SoftwareFingerprint,
    pub(crate) digest: String,
    pub(crate) cell_text: String,
}

impl IdentifiedSoftware {
    pub(crate) fn new(fingerprint: SoftwareFingerprint) -> Self {
        Self { digest: fingerprint.digest(), cell_text: fingerprint.cell_text(), fingerprint }
    }
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

    fn fingerprint() -> SoftwareFingerprint {
        let known = |text: &str| Some(text.to_owned());
        SoftwareFingerprint {
            cann: known("8.3.RC1"),
            driver: known("25.0.rc1"),
            custom_operators: vec!["customize 00aa".to_owned()],
            imported: ImportedVersions { torch: known("2.7.1"), ..ImportedVersions::default() },
            ..SoftwareFingerprint::default()
        }
    }

    #[test]
    fn every_value_changes_the_digest() {
        let first = fingerprint();
        assert_eq!(first.digest(), fingerprint().digest());
        assert_eq!(first.digest().len(), 16);
        let mut digests = vec![first.digest()];
        let text = serde_json::to_value(&first).expect("JSON");
        let fields = [
            "cann",
            "cann_build",
            "cann_operators",
            "driver",
            "firmware",
            "profiler",
            "python",
            "torch",
            "torch_npu",
            "vllm_ascend",
            "soc",
        ];
        for field in fields {
            let mut changed = text.clone();
            changed[field] = "x".into();
            let changed: SoftwareFingerprint = serde_json::from_value(changed).expect("a fingerprint");
            assert!(!digests.contains(&changed.digest()), "{field}");
            digests.push(changed.digest());
        }
        let mut changed = first.clone();
        changed.environment.insert("TASK_QUEUE_ENABLE".to_owned(), "2".to_owned());
        assert!(!digests.contains(&changed.digest()));
        let without_operators = SoftwareFingerprint { custom_operators: Vec::new(), ..first };
        assert!(!digests.contains(&without_operators.digest()));
    }

    /// The ledger keeps the JSON; digests of later versions must stay equal.
    #[test]
    fn stored_fingerprints_keep_their_digest() {
        let text =
            r#"{"cann":"8.3.RC1","driver":"25.0.rc1","custom_operators":["customize 00aa"],"torch":"2.7.1"}"#;
        assert_eq!(serde_json::to_string(&fingerprint()).expect("JSON"), text);
        let read: SoftwareFingerprint = serde_json::from_str(text).expect("a fingerprint");
        assert_eq!(read, fingerprint());
        assert_eq!(read.digest(), "a935fc056d803931");
        let newer: SoftwareFingerprint =
            serde_json::from_str(r#"{"cann":"9","later":1}"#).expect("other keys");
        assert_eq!(newer.cann.as_deref(), Some("9"));
    }

    #[test]
    fn differences_name_both_versions() {
        let mut other = fingerprint();
        assert_eq!(fingerprint().differences_from(&other), "");
        other.cann = Some("8.5.0".to_owned());
        other.driver = None;
        other.firmware = Some("7.7".to_owned());
        assert_eq!(
            fingerprint().differences_from(&other),
            "CANN 8.3.RC1, not 8.5.0; driver 25.0.rc1, not unknown; firmware unknown, not 7.7"
        );
        assert_eq!(other.to_string(), "CANN 8.5.0, torch 2.7.1");
        assert_eq!(SoftwareFingerprint::default().to_string(), "unknown software");
    }

    #[test]
    fn host_part_excludes_imported_versions() {
        let upgraded = fingerprint().with_imported(ImportedVersions::default());
        assert_ne!(upgraded.digest(), fingerprint().digest());
        assert_eq!(upgraded, fingerprint().host_part());
        assert!(!upgraded.is_unknown() && SoftwareFingerprint::default().is_unknown());
    }
}
