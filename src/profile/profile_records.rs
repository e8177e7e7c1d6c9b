//! Records of the profiles that are given to a command, and notes on files that are left out.

use rayon::prelude::*;

use super::prelude::*;
use crate::profile::{RecordedCollectives, SkippedPath, add_table, record_problems};

const MAX_PROBLEMS: usize = 10;

#[derive(Clone, Debug)]
pub(crate) struct BadProfile {
    pub(crate) path: PathBuf,
    pub(crate) problems: Vec<String>,
    pub(crate) further: usize,
}

impl BadProfile {
    pub(crate) fn of_error(path: PathBuf, error: &ProfileError) -> Self {
        Self { path, problems: vec![error.to_string()], further: 0 }
    }

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
    read_files(files, accept_rehearsed).into_iter().try_for_each(|read| {
        groups.merge_groups(read?);
        Ok::<_, ProfileError>(())
    })?;
    groups.leave_out_cut_records();
    Ok(groups)
}

/// Does the same as [`read_records`], also for profiles of the rehearsal host, without the files that have no column of
/// shapes, such as exports at profiler level 0; returns their errors, too. It is an error if all files are such.
pub(crate) fn read_records_with_shapes(
    files: &[ProfileFile],
) -> Result<(RecordGroups, Vec<ProfileError>), ProfileError> {
    let mut groups = RecordGroups::default();
    let mut left_out = Vec::new();
    for read in read_files(files, true) {
        match read {
            Err(error @ ProfileError::NoShapes { .. }) => left_out.push(error),
            read => groups.merge_groups(read?),
        }
    }
    groups.leave_out_cut_records();
    match left_out.len() == files.len() && !left_out.is_empty() {
        true => Err(left_out.swap_remove(0)),
        false => Ok((groups, left_out)),
    }
}

fn read_files(files: &[ProfileFile], accept_rehearsed: bool) -> Vec<Result<RecordGroups, ProfileError>> {
    let read = |(number, file): (usize, &ProfileFile)| {
        let mut groups = RecordGroups::default();
        add_table(&mut groups, &file.0, number as u64, accept_rehearsed)?;
        match groups.has_replay_sentinels() {
            true => Err(ProfileError::Replay(file.0.clone())),
            false => Ok(groups),
        }
    };
    files.par_iter().enumerate().map(read).collect()
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
        format!("`{}` is left out: it has the same content as `{}`", path.display(), instead.display())
    });
    exports.chain(copies).collect()
}
