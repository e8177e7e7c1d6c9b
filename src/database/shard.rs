//! Databases of shards: parts of the plan of another database, each below its state folder.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    str::FromStr,
};

use serde::{Deserialize, Serialize};

use super::{Database, DatabaseError};
use crate::base::files::{MAX_DOCUMENT, read_regular_text, write_atomic};

/// Folder of the plan and of the databases of its shards, in the state folder of the divided database.
const SHARDS: &str = "shards";
const SHARD_FILE: &str = "shard.json";

/// Number of a shard and the count of all, such as `3/12`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShardNumber {
    /// From 1.
    pub(crate) number: usize,
    pub(crate) count: usize,
}

impl fmt::Display for ShardNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.count)
    }
}

impl FromStr for ShardNumber {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(number, count)| {
            Some(Self { number: number.parse().ok()?, count: count.parse().ok()? })
        });
        numbers.filter(|shard| (1..=shard.count).contains(&shard.number) && shard.count < 100_000).ok_or_else(
            || format!("`{text}` is no shard; write its number and their count, from 1/12 to 12/12"),
        )
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShardIdentity {
    pub(crate) plan: String,
    pub(crate) shard: ShardNumber,
}

impl ShardIdentity {
    pub(crate) fn store_in(&self, folder: &Path) -> Result<(), DatabaseError> {
        let state = folder.join(super::folder::STATE_FOLDER);
        fs::create_dir_all(&state).map_err(DatabaseError::io("create", &state))?;
        let text = serde_json::to_string(self).expect("numbers and texts are JSON") + "\n";
        Ok(write_atomic(&state.join(SHARD_FILE), text.as_bytes())?)
    }
}

impl Database {
    /// Returns the identity of the database of a shard; `None` for any other. Fails if its file cannot be read.
    pub(crate) fn shard(&self) -> Result<Option<ShardIdentity>, DatabaseError> {
        let path = self.state_folder().join(SHARD_FILE);
        let text = match read_regular_text(&path, MAX_DOCUMENT) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(DatabaseError::io("read", &path)(error)),
        };
        let parsed = serde_json::from_str(&text).map(Some);
        parsed.map_err(|error| DatabaseError::ShardFile { path, problem: error.to_string() })
    }

    pub(crate) fn shards_folder(&self) -> PathBuf {
        self.state_folder().join(SHARDS)
    }

    pub(crate) fn shard_folder(&self, identity: &ShardIdentity) -> PathBuf {
        self.shards_folder().join(&identity.plan).join(identity.shard.number.to_string())
    }

    /// Returns the folder of the database whose plan was divided, for the database of a shard.
    pub(crate) fn divided_folder(&self) -> Option<&Path> {
        let is_shard = self.shard().is_ok_and(|shard| shard.is_some());
        // `DIR/.npubench/shards/PLAN/NUMBER`.
        self.folder().ancestors().nth(4).filter(|_| is_shard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_shards_are_from_1_to_their_count() {
        let shard = |text: &str| text.parse::<ShardNumber>();
        assert_eq!(shard("3/12"), Ok(ShardNumber { number: 3, count: 12 }));
        for wrong in ["0/12", "13/12", "3", "/", "a/b", "3/12/1", "-1/2", "1/0", "1/100000"] {
            assert!(shard(wrong).is_err(), "{wrong}");
        }
    }
}
