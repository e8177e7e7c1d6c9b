//! Groups and variables of a run: `profiler_metadata.json` of torch_npu, and the table `META_DATA` of its databases.

use serde::Deserializer;

use super::parallel_groups::ParallelGroups;
use crate::{kernel::hccl_environment, profile::prelude::*};

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct RunMetadata {
    #[serde(rename = "parallel_group_info")]
    pub(super) groups: ParallelGroups,
    #[serde(rename = "ENV_VARIABLES", deserialize_with = "environment_of")]
    pub(super) environment: String,
}

impl RunMetadata {
    pub(super) fn of_profile(table: &Path) -> Self {
        let file = table.ancestors().skip(1).take(2).find_map(|folder| {
            let bytes = read_regular(&folder.join("profiler_metadata.json"), MAX_DOCUMENT).ok()?;
            serde_json::from_slice(&bytes).ok()
        });
        file.unwrap_or_default()
    }

    /// Reads the metadata in a database; if it has none, the metadata in the files around it.
    pub(super) fn of_database(database: &Path) -> Self {
        let value = |name: &str| {
            let text = sqlite::metadata(database, name)?;
            serde_json::from_str::<Value>(&text).ok()
        };
        let around = Self::of_profile(database);
        let variables = value("ENV_VARIABLES").and_then(|variables| environment_of(variables).ok());
        Self {
            groups: value("parallel_group_info").map_or(around.groups, ParallelGroups::from),
            environment: variables.unwrap_or(around.environment),
        }
    }
}

fn environment_of<'de, D: Deserializer<'de>>(variables: D) -> Result<String, D::Error> {
    let variables = Value::deserialize(variables)?;
    let variables = variables.as_object().into_iter().flatten();
    let texts = variables.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
    Ok(hccl_environment(&texts.collect()))
}
