//! `database.yaml`, the description of a database folder.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::kernel::{DataKind, SoftwareVersions};
use crate::{
    base::yaml::{self, Spanned, YamlError},
    kernel::device::DeviceProfile,
};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatabaseFile {
    /// Version of this file's layout; increased when a field changes its meaning.
    pub npubench_database: u32,
    pub kind: DataKind,
    pub device: String,
    /// Software versions of the ingested profiles; profiles of other versions are not mixed in silently.
    #[serde(default, skip_serializing_if = "SoftwareVersions::is_unknown")]
    pub profiled_on: SoftwareVersions,
    /// True if all ingested profiles are of the rehearsal host, so that its durations can be compared with theirs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_rehearsed_profiles: bool,
}

const LAYOUT: u32 = 1;

#[derive(Deserialize)]
struct Layout {
    npubench_database: Spanned<u32>,
}

impl DatabaseFile {
    pub fn new(kind: DataKind) -> Self {
        let device = DeviceProfile::default_name().to_owned();
        Self {
            npubench_database: LAYOUT,
            kind,
            device,
            profiled_on: SoftwareVersions::default(),
            has_rehearsed_profiles: false,
        }
    }

    pub fn parse(path: &Path, text: &str) -> Result<Self, YamlError> {
        // The layout is checked first: a newer one may have other keys.
        let Layout { npubench_database: layout } = yaml::parse(path, text)?;
        if layout.value > LAYOUT {
            let problem = format!("layout {}, this npubench reads layouts up to {LAYOUT}", layout.value);
            let hint = "use the npubench that wrote it, or a newer one";
            return Err(YamlError::at(path, layout.defined, &problem, hint));
        }
        yaml::parse(path, text)
    }

    pub fn print(&self) -> String {
        format!("# Written by npubench. The kind is given once and never changes.\n{}", yaml::print(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printing_and_parsing_are_inverse() {
        let mut file = DatabaseFile::new(DataKind::Rehearsal);
        assert_eq!(DatabaseFile::parse(Path::new("d"), &file.print()), Ok(file.clone()));
        file.profiled_on.cann = Some("8.3.RC1".to_owned());
        assert_eq!(DatabaseFile::parse(Path::new("d"), &file.print()), Ok(file));
    }

    #[test]
    fn newer_layout_is_refused() {
        let text = "kind: npu\ndevice: x\nnpubench_database: 2\n";
        let error = DatabaseFile::parse(Path::new("database.yaml"), text).expect_err("too new");
        assert_eq!(error.line, Some(3));
    }
}
