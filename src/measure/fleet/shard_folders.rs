//! Folders of shards, also of plans that cannot be read.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{base::shell_argument::quoted_path, database::Database};

/// Returns the folders of the started shards of all plans.
pub(super) fn all_shards(database: &Database) -> Vec<PathBuf> {
    let folders = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut folders: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
        folders.sort();
        folders
    };
    folders(&database.shards_folder()).iter().flat_map(|plan| folders(plan)).collect()
}

/// Returns how the results of the shards of a plan that cannot be read are merged, and the plan is made anew.
pub(super) fn damaged_plan_hint(database: &Database, file: &Path) -> String {
    let (db, file) = (quoted_path(database.folder()), quoted_path(file));
    let mut plans: Vec<PathBuf> =
        all_shards(database).iter().filter_map(|shard| shard.parent().map(Path::to_owned)).collect();
    plans.dedup();
    if plans.is_empty() {
        return format!(
            "no shard of it was started: `npubench shard --db {db} --shards N --replace` writes a new one"
        );
    }
    let merges: Vec<String> =
        plans.iter().map(|plan| format!("`npubench db merge {db} {}/*`", quoted_path(plan))).collect();
    format!(
        "`mv {file} {file}.damaged`, then {} to merge what its shards have measured, then `npubench shard --db {db} --shards N` for a new one",
        merges.join(" and ")
    )
}
