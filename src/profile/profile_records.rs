//! Records of the profiles that are given to a command, and notes on files that are left out.

use std::path::PathBuf;

use crate::profile::{
    ProfileError, ProfileFile, ReadOptions, RecordGroups, RecordedCollectives, SkippedPath, add_table,
    record_problems,
};

/// Greatest number of problems of a file that are listed.
const MAX_PROBLEMS: usize = 10;

/// A file that cannot be read.
#[derive(Clone, Debug)]
pub(crate) struct BadProfile {
    pub(crate) path: PathBuf,
    /// The first problems.
    pub(crate) problems: Vec<String>,
    /// Number of those that are not listed.
    pub(crate) further: usize,
}

impl BadProfile {
    /// Creates the file of an error that was found before its rows were read.
    pub(crate) fn of_error(path: PathBuf, error: &ProfileError) -> Self {
        Self { path, problems: vec![error.to_string()], further: 0 }
    }

    /// Returns a line for each problem.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.problems.iter().map(|problem| format!("bad: {problem}")).collect();
        if self.further > 0 {
            notes.push(format!("bad: `{}`: {} more rows", self.path.display(), self.further));
        }
        notes
    }
}

/// Divides files into those that can be read as a whole and the others, with all rows that have another number of fields than
/// their header.
pub(crate) fn divide_readable(
    files: Vec<ProfileFile>,
    accept_rehearsed: bool,
) -> (Vec<ProfileFile>, Vec<BadProfile>) {
    let (mut readable, mut bad) = (Vec::new(), Vec::new());
    for file in files {
        let one = std::slice::from_ref(&file);
        let read = read_records(one, accept_rehearsed).and_then(|_| RecordedCollectives::of_files(one));
        match read {
            Ok(_) => readable.push(file),
            Err(error) => bad.push(bad_profile(file.0, &error)),
        }
    }
    (readable, bad)
}

/// Returns a file with the problems of all its records.
fn bad_profile(path: PathBuf, error: &ProfileError) -> BadProfile {
    let mut bad = BadProfile::of_error(path, error);
    let problems = match error {
        ProfileError::Ragged { .. } | ProfileError::Cell { .. } => record_problems(&bad.path),
        _ => Vec::new(),
    };
    if !problems.is_empty() {
        bad.further = problems.len().saturating_sub(MAX_PROBLEMS);
        bad.problems = problems.iter().take(MAX_PROBLEMS).map(ToString::to_string).collect();
    }
    bad
}

/// Reads the records of all files. A profile of a replay is an error, and one of the rehearsal host unless it is accepted.
pub(crate) fn read_records(
    files: &[ProfileFile],
    accept_rehearsed: bool,
) -> Result<RecordGroups, ProfileError> {
    let mut groups = RecordGroups::default();
    for (file, number) in files.iter().zip(0..) {
        add_file(&mut groups, file, number, accept_rehearsed)?;
    }
    Ok(groups)
}

/// Does the same as [`read_records`], also for profiles of the rehearsal host, without the files that have no column of
/// shapes, such as exports at profiler level 0; returns their errors, too. It is an error if all files are such.
pub(crate) fn read_records_with_shapes(
    files: &[ProfileFile],
) -> Result<(RecordGroups, Vec<ProfileError>), ProfileError> {
    let mut groups = RecordGroups::default();
    let mut left_out = Vec::new();
    for (file, number) in files.iter().zip(0..) {
        match add_file(&mut groups, file, number, true) {
            Err(error @ ProfileError::NoShapes { .. }) => left_out.push(error),
            result => result?,
        }
    }
    match left_out.len() == files.len() && !left_out.is_empty() {
        true => Err(left_out.swap_remove(0)),
        false => Ok((groups, left_out)),
    }
}

fn add_file(
    groups: &mut RecordGroups,
    file: &ProfileFile,
    number: u64,
    accept_rehearsed: bool,
) -> Result<(), ProfileError> {
    add_table(groups, &file.0, number, ReadOptions { accept_rehearsed, workers: None })?;
    if groups.has_replay_sentinels() {
        return Err(ProfileError::Replay(file.0.clone()));
    }
    Ok(())
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
