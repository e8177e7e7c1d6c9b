//! Files of `key=value` lines with optional `[section]` lines, as CANN and the driver install them: `version.info`,
//! `ascend_toolkit_install.info`, `version.cfg`, `data/platform_config/<SoC>.ini`.

use std::{collections::HashMap, path::Path};

use crate::base::files::{MAX_SETTINGS, read_regular_text};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IniFile {
    /// Values by section (empty before the first section line) and key.
    values: HashMap<(String, String), String>,
}

impl IniFile {
    pub(crate) fn read(path: &Path) -> Option<Self> {
        Some(Self::parse(&read_regular_text(path, MAX_SETTINGS).ok()?))
    }

    /// Parses a text. Lines that start with `#` or `;` and lines without `=` are skipped; blanks around keys and values
    /// and double quotes around values are removed. The first of several values of a key counts.
    pub(crate) fn parse(text: &str) -> Self {
        let mut section = String::new();
        let mut values = HashMap::new();
        for line in text.trim_start_matches('\u{feff}').lines().map(str::trim) {
            if line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                name.trim().clone_into(&mut section);
            } else if let Some((key, value)) = line.split_once('=') {
                let value = value.trim().trim_matches('"').to_owned();
                values.entry((section.clone(), key.trim().to_owned())).or_insert(value);
            }
        }
        Self { values }
    }

    /// Returns a value; `None` if it is missing or empty. The section before the first section line is "".
    pub(crate) fn value(&self, section: &str, key: &str) -> Option<&str> {
        let value = self.values.get(&(section.to_owned(), key.to_owned()))?;
        Some(value.as_str()).filter(|value| !value.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_section() {
        let file = IniFile::parse(
            "\u{feff}# [Platform Info configuration begin]\r\n#***\r\n\r\n[version]\r\nSoC_version=Ascend910X\r\n\
             [SoCInfo]\r\nai_core_cnt=7\r\nmemory_type=\r\n[AICoreSpec]\r\n cube_freq = 1700 \r\nai_core_cnt=9\r\n",
        );
        assert_eq!(file.value("version", "SoC_version"), Some("Ascend910X"));
        assert_eq!(file.value("SoCInfo", "ai_core_cnt"), Some("7"));
        assert_eq!(file.value("AICoreSpec", "cube_freq"), Some("1700"));
        assert_eq!(file.value("SoCInfo", "memory_type"), None, "an empty value is a missing one");
        assert_eq!(file.value("", "SoC_version"), None);
    }

    #[test]
    fn files_without_sections_are_read() {
        let file =
            IniFile::parse("Version=25.0.rc1\npackage_version=\"25.0.rc1\"\nnot a line\nVersion=later\n");
        assert_eq!(file.value("", "Version"), Some("25.0.rc1"));
        assert_eq!(file.value("", "package_version"), Some("25.0.rc1"));
    }

    #[test]
    fn unreadable_files_have_no_values() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(IniFile::read(&folder.path().join("missing")), None);
        assert_eq!(IniFile::read(folder.path()), None);
        let binary = folder.path().join("binary");
        std::fs::write(&binary, [0xff, 0xfe, b'=']).expect("written");
        assert_eq!(IniFile::read(&binary), None);
    }
}
