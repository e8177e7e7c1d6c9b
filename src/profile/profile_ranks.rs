//! Ranks and profiles of kernel tables, and tables that are copies of each other.

use std::io::{self, Read as _, Seek as _, SeekFrom};

use sha2::{Digest as _, Sha256};

use super::{SkippedPath, prelude::*, profiler_info::rank_of_profile};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileRanks {
    /// Folder of the profile, and name of its rank. Slices of one export have one folder; a profile without a rank counts
    /// as a rank of its own.
    files: Vec<(PathBuf, String)>,
}

impl ProfileRanks {
    pub fn of_files(files: &[ProfileFile]) -> Self {
        let of_file = |file: &ProfileFile| {
            let folder = file.0.parent().unwrap_or(Path::new("")).to_owned();
            let rank = rank_of_profile(&file.0);
            let is_slice = file.0.file_name().is_some_and(|name| name.to_string_lossy().contains("_slice_"));
            let profile = if is_slice { folder } else { file.0.clone() };
            let rank = rank.unwrap_or_else(|| profile.to_string_lossy().into_owned());
            (profile, rank)
        };
        Self { files: files.iter().map(of_file).collect() }
    }

    pub fn count_files(&self, numbers: &[u64]) -> (usize, usize) {
        let known: Vec<_> = numbers.iter().filter_map(|number| self.files.get(*number as usize)).collect();
        let ranks: BTreeSet<&String> = known.iter().map(|(_, rank)| rank).collect();
        let profiles: BTreeSet<&PathBuf> = known.iter().map(|(profile, _)| profile).collect();
        (ranks.len().max(1), profiles.len().max(1))
    }
}

/// Bytes at either end of a file by which copies are recognised.
const COMPARED: u64 = 1 << 20;

/// Leaves out files with the same content as an earlier one: equal length, and equal first and last mebibyte, which
/// contain start times of records in nanoseconds. Files that cannot be read are kept; reading them reports the error.
pub fn leave_out_copies(files: Vec<ProfileFile>) -> (Vec<ProfileFile>, Vec<SkippedPath>) {
    let mut first_of: HashMap<(u64, Vec<u8>), PathBuf> = HashMap::new();
    let (mut kept, mut copies) = (Vec::new(), Vec::new());
    for file in files {
        let key = content_key(&file.0).ok().filter(|(length, _)| *length > 0);
        if let Some(first) = key.as_ref().and_then(|key| first_of.get(key)) {
            copies.push(SkippedPath { path: file.0, instead: first.clone(), may_differ: false });
            continue;
        }
        first_of.extend(key.map(|key| (key, file.0.clone())));
        kept.push(file);
    }
    (kept, copies)
}

fn content_key(path: &Path) -> io::Result<(u64, Vec<u8>)> {
    let mut file = open_regular(path)?;
    let length = file.metadata()?.len();
    let mut digest = Sha256::new();
    let mut bytes = Vec::new();
    (&mut file).take(COMPARED).read_to_end(&mut bytes)?;
    digest.update(&bytes);
    if length > COMPARED {
        bytes.clear();
        file.seek(SeekFrom::Start(length.saturating_sub(COMPARED).max(COMPARED)))?;
        file.take(COMPARED).read_to_end(&mut bytes)?;
        digest.update(&bytes);
    }
    Ok((length, digest.finalize().to_vec()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn write(path: &Path, text: &str) -> ProfileFile {
        fs::create_dir_all(path.parent().expect("a parent")).expect("created");
        fs::write(path, text).expect("written");
        ProfileFile(path.to_owned())
    }

    #[test]
    fn ranks_and_profiles_are_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let table = |profile: &str, rank: &str| {
            let root = folder.path().join(profile);
            write(&root.join("profiler_info_0.json"), &format!("{{\"rank_id\": {rank}}}"));
            write(&root.join("ASCEND_PROFILER_OUTPUT/kernel_details.csv"), profile)
        };
        let output = folder.path().join("PROF_1/mindstudio_profiler_output");
        let files = [
            table("a", "0"),
            table("b", "\"1\""),
            table("c", "1"),
            table("d", "-1"),
            write(&output.join("op_summary_slice_0_1.csv"), "x"),
            write(&output.join("op_summary_slice_1_1.csv"), "y"),
        ];
        let ranks = ProfileRanks::of_files(&files);
        assert_eq!(ranks.count_files(&[0, 1, 2]), (2, 3), "two steps of rank 1");
        assert_eq!(ranks.count_files(&[0, 3]), (2, 2), "a profile without a rank is one of its own");
        assert_eq!(ranks.count_files(&[4, 5]), (1, 1), "slices are one profile");
    }

    #[test]
    fn copies_are_left_out_and_similar_files_are_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let large = "x".repeat(3 << 20);
        let files = vec![
            write(&path("a"), "same"),
            write(&path("b"), "other"),
            write(&path("c"), "same"),
            write(&path("large"), &large),
            write(&path("end"), &format!("{}y", &large[1..])),
            write(&path("empty1"), ""),
            write(&path("empty2"), ""),
            ProfileFile(path("missing")),
        ];
        let (kept, copies) = leave_out_copies(files);
        assert_eq!(kept.len(), 7);
        assert_eq!(copies, [SkippedPath { path: path("c"), instead: path("a"), may_differ: false }]);
    }
}
