//! Profiles without records among others: ranks that were not analysed, or whose export was not finished.

use std::io::{BufRead as _, BufReader};

use super::{discover::is_of_msprof, prelude::*};
use crate::base::shell_argument::quoted_path;

/// Number of levels below a given folder that are searched: the folders of the ranks may be in one of their host.
const LEVELS: usize = 2;

/// Describes the folders of profilers below given folders from which none of the files is read, and the tables without a row.
pub(crate) fn profiles_without_records(paths: &[PathBuf], files: &[ProfileFile]) -> Vec<String> {
    let read: Vec<PathBuf> = files.iter().filter_map(|file| file.0.canonicalize().ok()).collect();
    let mut folders = Vec::new();
    // The folder of a rank contains the folder of its raw data.
    for path in paths.iter().filter(|path| path.is_dir() && !is_of_profiler(path)) {
        add_unread_folders(path, LEVELS, &read, &mut folders);
    }
    folders.sort();
    folders.dedup();
    let folders = folders.iter().map(|folder| {
        let command = match is_of_msprof(folder) {
            true => "msprof --export=on --output=PROF_...".to_owned(),
            false => format!("npubench collect analyse {}", quoted_path(folder)),
        };
        format!(
            "`{}` is left out: it has no table of kernels; `{command}` writes it from raw data",
            folder.display()
        )
    });
    let empty = files.iter().filter(|_| files.len() > 1).filter(|file| has_header_alone(&file.0));
    folders.chain(empty.map(|file| format!("`{}` has no records", file.0.display()))).collect()
}

fn add_unread_folders(folder: &Path, levels: usize, read: &[PathBuf], found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for inner in entries.map(|entry| entry.path()).filter(|path| path.is_dir()) {
        if is_of_profiler(&inner) {
            let is_unread =
                inner.canonicalize().is_ok_and(|inner| !read.iter().any(|file| file.starts_with(&inner)));
            found.extend(is_unread.then_some(inner));
        } else if levels > 1 {
            add_unread_folders(&inner, levels - 1, read, found);
        }
    }
}

/// Returns true for a folder that torch_npu.profiler writes for a rank, or msprof for a collection.
fn is_of_profiler(folder: &Path) -> bool {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let is_of_rank = |entry: fs::DirEntry| {
        let name = entry.file_name();
        name == "ASCEND_PROFILER_OUTPUT" || name.to_string_lossy().starts_with("profiler_info")
    };
    name.ends_with("_ascend_pt")
        || is_of_msprof(folder)
        || fs::read_dir(folder).into_iter().flatten().flatten().any(is_of_rank)
}

fn has_header_alone(path: &Path) -> bool {
    if path.extension().is_none_or(|extension| extension != "csv") {
        return false;
    }
    let Ok(file) = open_regular(path) else { return false };
    // An unreadable line is not blank.
    let lines = BufReader::new(file).lines().map(|line| line.map_or(true, |line| !line.trim().is_empty()));
    lines.filter(|is_content| *is_content).take(2).count() == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_without_records_are_described() {
        let root = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("created");
            fs::write(&path, text).expect("written");
            path
        };
        write("host/rank0_ascend_pt/profiler_info_0.json", "{}");
        let table = write("host/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv", "Name\nAdd\n");
        write("host/rank1_ascend_pt/PROF_1/device_0/data", "");
        write("host/step/profiler_info_2.json", "{}");
        write("host/notes/readme.txt", "");
        let empty = write("host/rank3_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv", "Name\r\n\r\n");
        let files = [ProfileFile(table.clone()), ProfileFile(empty)];
        let found = profiles_without_records(&[root.path().to_owned(), table.clone()], &files);
        let places = |texts: &[String]| -> Vec<String> {
            let place = |text: &String| text.split('`').nth(1).unwrap_or_default().to_owned();
            let relative = |path: String| path.replace(&format!("{}/", root.path().display()), "");
            texts.iter().map(place).map(relative).collect()
        };
        let empty = "host/rank3_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv";
        assert_eq!(places(&found), ["host/rank1_ascend_pt", "host/step", empty]);
        // The folder of one rank is given, also under another name.
        write("host/rank0_ascend_pt/PROF_1/device_0/data", "");
        write("renamed/PROF_2/device_0/data", "");
        let other = write("renamed/ASCEND_PROFILER_OUTPUT/kernel_details.csv", "Name\nAdd\n");
        for (given, table) in [("host/rank0_ascend_pt", table), ("renamed", other)] {
            assert_eq!(profiles_without_records(&[root.path().join(given)], &[ProfileFile(table)]), [""; 0]);
        }
    }
}
