//! Records of the profiles that are given to a command, and notes on files that are left out.

use crate::profile::{ProfileError, ProfileFile, ReadOptions, RecordGroups, SkippedPath, add_table};

/// Reads the records of all files. A profile of a replay is an error, and one of the rehearsal host unless it is accepted.
pub(crate) fn read_records(
    files: &[ProfileFile],
    accept_rehearsed: bool,
) -> Result<RecordGroups, ProfileError> {
    let mut groups = RecordGroups::default();
    let options = ReadOptions { accept_rehearsed, workers: None };
    for (file, number) in files.iter().zip(0..) {
        add_table(&mut groups, &file.0, number, options)?;
        if groups.has_replay_sentinels() {
            return Err(ProfileError::Replay(file.0.clone()));
        }
    }
    Ok(groups)
}

/// Returns a note for each file that is not read: another export of a profile, or a copy of a file.
pub(crate) fn left_out_files(other_exports: &[SkippedPath], copies: &[SkippedPath]) -> Vec<String> {
    let exports = other_exports.iter().map(|SkippedPath { path, instead, may_differ }| {
        let (path, instead) = (path.display(), instead.display());
        match may_differ {
            false => format!("`{path}` is left out: `{instead}` is an export of the same profile"),
            true => format!(
                "`{path}` is left out: it may be of the same profile as `{instead}` beside it; give both files to read both"
            ),
        }
    });
    let copies = copies.iter().map(|SkippedPath { path, instead, .. }| {
        let (path, instead) = (path.display(), instead.display());
        format!("`{path}` is left out: it has the same content as `{instead}`")
    });
    exports.chain(copies).collect()
}
