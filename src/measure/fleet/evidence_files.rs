//! Copies of the scripts, logs and compressed evidence of runs from one database into another.

use std::{collections::BTreeMap, ffi::OsStr, fs, io, path::Path};

use crate::{
    base::{
        command_error::CommandError,
        files::{MAX_TABLE, read_regular},
    },
    database::Database,
};

const COLLECTIONS: &str = "collections";
/// Folder of a run with the programs of the rehearsal host.
const PROGRAMS: &str = "host";
const DRAFT: &str = ".merging-";
const NOT_COPIED: &str =
    "check free space and permissions; no result and no row was changed, and the same command continues";

pub(super) type Archives = BTreeMap<(String, u32), Option<String>>;

/// Copies the evidence that a database may lack, by the archives of the source, of the target before the merge, and of the union;
/// returns the number of copied collections. A folder of a collection becomes visible when it is complete.
pub(super) fn copy_evidence_files(
    source: &Database,
    target: &Database,
    [of_source, of_target, of_union]: [&Archives; 3],
) -> Result<usize, CommandError> {
    let mut copied = 0;
    let mut runs: Vec<&str> = of_source.keys().map(|(run, _)| run.as_str()).collect();
    runs.dedup();
    for run in runs {
        let (from, into) = (source.run_folder(run), target.run_folder(run));
        if from.is_dir() {
            copy_longer_files(&from, &into).map_err(CommandError::io("copy", &from, NOT_COPIED))?;
        }
    }
    for (place @ (run, number), archive) in of_source {
        let from = source.collection_folder(run, *number);
        let into = target.collection_folder(run, *number);
        let is_taken = archive.is_some() && of_union.get(place) == Some(archive);
        let is_known = of_target.get(place) == Some(archive);
        if !from.is_dir() || into.exists() && (is_known || !is_taken) {
            continue;
        }
        replace_folder(&from, &into).map_err(CommandError::io("copy", &from, NOT_COPIED))?;
        copied += 1;
    }
    Ok(copied)
}

/// Copies the files of a run outside of its collections that the other folder lacks, or has with fewer bytes: logs grow.
fn copy_longer_files(from: &Path, into: &Path) -> io::Result<()> {
    copy_tree(from, into, &|file, other, name| match file.is_dir() {
        true => Ok(name != COLLECTIONS && name != PROGRAMS),
        false => is_greater(file, other),
    })
}

/// Returns true if a file has more bytes than another, or as many and greater ones. A missing file is the least.
fn is_greater(file: &Path, other: &Path) -> io::Result<bool> {
    let Ok(found) = fs::metadata(other) else { return Ok(true) };
    let length = fs::metadata(file)?.len();
    if length != found.len() {
        return Ok(length > found.len());
    }
    Ok(read_regular(file, MAX_TABLE)? > read_regular(other, MAX_TABLE)?)
}

fn replace_folder(from: &Path, into: &Path) -> io::Result<()> {
    let parent = into.parent().unwrap_or(into);
    let name = into.file_name().unwrap_or_default().to_string_lossy();
    let draft = parent.join(format!("{DRAFT}{name}"));
    if draft.exists() {
        fs::remove_dir_all(&draft)?;
    }
    copy_tree(from, &draft, &|_, _, _| Ok(true))?;
    if into.exists() {
        fs::remove_dir_all(into)?;
    }
    fs::rename(&draft, into)
}

/// Copies the wanted regular files and folders. Links are left out: they may lead anywhere on another host.
fn copy_tree(
    from: &Path,
    into: &Path,
    is_wanted: &impl Fn(&Path, &Path, &OsStr) -> io::Result<bool>,
) -> io::Result<()> {
    fs::create_dir_all(into)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, path, name) = (entry.file_type()?, entry.path(), entry.file_name());
        let target = into.join(&name);
        if !(kind.is_dir() || kind.is_file()) || !is_wanted(&path, &target, &name)? {
            continue;
        }
        if kind.is_dir() {
            copy_tree(&path, &target, is_wanted)?;
        } else {
            fs::copy(path, &target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_files_the_longer_one_is_kept_in_either_order() {
        let root = tempfile::tempdir().expect("a folder");
        let folder = |name: &str, events: &str, log: Option<&str>| {
            let path = root.path().join(name);
            fs::create_dir_all(path.join("logs")).expect("created");
            fs::write(path.join("events.jsonl"), events).expect("written");
            if let Some(log) = log {
                fs::write(path.join("logs/one.log"), log).expect("written");
            }
            fs::create_dir_all(path.join("host")).expect("created");
            fs::write(path.join("host/program"), "a program").expect("written");
            path
        };
        let read = |path: &Path| fs::read_to_string(path.join("events.jsonl")).expect("text");
        let (one, other) = (folder("one", "a\nb\n", None), folder("other", "a\n", Some("log")));
        for order in [[&one, &other], [&other, &one]] {
            let into = root.path().join(format!("into-{}", read(order[0]).len()));
            for from in order {
                copy_longer_files(from, &into).expect("copied");
            }
            assert_eq!(read(&into), "a\nb\n");
            assert_eq!(fs::read_to_string(into.join("logs/one.log")).expect("text"), "log");
            assert!(
                !into.join("host").exists(),
                "programs of the rehearsal host belong to a run in progress"
            );
        }
    }
}
