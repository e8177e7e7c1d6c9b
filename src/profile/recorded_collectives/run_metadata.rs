//! Groups and variables of a run: `profiler_metadata.json` of torch_npu, and the table `META_DATA` of its databases.

use super::parallel_groups::ParallelGroups;
use crate::{kernel::hccl_environment, profile::prelude::*};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RunMetadata {
    pub(super) groups: ParallelGroups,
    pub(super) environment: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct MetadataFile {
    parallel_group_info: Value,
    #[serde(rename = "ENV_VARIABLES")]
    variables: Value,
}

impl RunMetadata {
    pub(super) fn of_profile(table: &Path) -> Self {
        let file = table.ancestors().skip(1).take(2).find_map(|folder| {
            let bytes = read_regular(&folder.join("profiler_metadata.json")).ok()?;
            serde_json::from_slice::<MetadataFile>(&bytes).ok()
        });
        file.map(Self::from_file).unwrap_or_default()
    }

    /// Reads the metadata in a database; if it has none, the metadata in the files around it.
    pub(super) fn of_database(database: &Path) -> Self {
        let value = |name: &str| {
            let text = sqlite::metadata(database, name)?;
            serde_json::from_str::<Value>(&text).ok()
        };
        let around = Self::of_profile(database);
        Self {
            groups: value("parallel_group_info").map_or(around.groups, ParallelGroups::from_json),
            environment: value("ENV_VARIABLES")
                .map_or(around.environment, |variables| environment_of(&variables)),
        }
    }

    fn from_file(file: MetadataFile) -> Self {
        Self {
            groups: ParallelGroups::from_json(file.parallel_group_info),
            environment: environment_of(&file.variables),
        }
    }
}

fn environment_of(variables: &Value) -> String {
    let variables = variables.as_object().into_iter().flatten();
    let texts = variables.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
    hccl_environment(&texts.collect::<BTreeMap<_, _>>())
}
