//! Folders that workers write when their profiler stops: `*_ascend_pt`, one for each rank.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant, SystemTime},
};

use super::profiled_servers::StopSignals;

const SUFFIX: &str = "_ascend_pt";
/// Depth of searched folders: nodes may have a folder each.
const MAX_DEPTH: usize = 3;
const POLL: Duration = Duration::from_millis(200);

pub(crate) fn profile_folders(folders: &[PathBuf]) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for folder in folders {
        add_folders(folder, MAX_DEPTH, &mut found);
    }
    found
}

fn add_folders(folder: &Path, depth: usize, found: &mut BTreeSet<PathBuf>) {
    if folder.file_name().is_some_and(|name| name.to_string_lossy().ends_with(SUFFIX)) {
        found.insert(folder.to_owned());
        return;
    }
    if depth > 0 {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        folders.for_each(|entry| add_folders(&entry.path(), depth - 1, found));
    }
}

fn content(folders: &BTreeSet<PathBuf>) -> (usize, u64, Option<SystemTime>) {
    let (mut files, mut bytes, mut last) = (0, 0, None);
    let mut open: Vec<PathBuf> = folders.iter().cloned().collect();
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => open.push(entry.path()),
                Ok(metadata) => {
                    files += 1;
                    bytes += metadata.len();
                    last = last.max(metadata.modified().ok());
                }
                Err(_) => {}
            }
        }
    }
    (files, bytes, last)
}

/// Waits until new folders of profiles do not change any more. Returns them when there are as many as ranks, or at the time
/// limit those that there are.
pub(super) fn await_new_folders(
    folders: &[PathBuf],
    known: &BTreeSet<PathBuf>,
    ranks: Option<usize>,
    still: Duration,
    limit: Duration,
    signals: &StopSignals,
) -> BTreeSet<PathBuf> {
    let started = Instant::now();
    let (mut last, mut since) = (None, Instant::now());
    loop {
        let new: BTreeSet<PathBuf> = profile_folders(folders).difference(known).cloned().collect();
        let now = Some((new.clone(), content(&new)));
        if now != last {
            (last, since) = (now, Instant::now());
        }
        let is_complete = !new.is_empty() && ranks.is_none_or(|ranks| new.len() >= ranks);
        if (is_complete && since.elapsed() >= still) || started.elapsed() >= limit || signals.is_set() {
            return new;
        }
        thread::sleep(POLL);
    }
}
