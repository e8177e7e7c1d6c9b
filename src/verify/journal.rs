//! What the replay script says it launched.

use std::{collections::BTreeMap, fs, path::Path};

use serde::Deserialize;

/// One case's line.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct JournalLine {
    /// Place of the case in its collection.
    pub ordinal: u32,
    /// Calls that returned.
    pub launched: u32,
    /// What was raised.
    pub error: Option<Raised>,
}

/// A Python exception.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Raised {
    /// Its class.
    #[serde(rename = "type")]
    pub class: String,
    /// Its text.
    pub message: String,
}

impl Raised {
    /// Whether device memory ran out.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        let message = self.message.to_ascii_lowercase();
        self.class.ends_with("OutOfMemoryError") || message.contains("out of memory")
    }

    /// Whether the device, rather than the call, failed: error codes 107xxx and 507xxx of the runtime.
    #[must_use]
    pub fn is_device_fault(&self) -> bool {
        let is_code = |word: &str| {
            word.len() == 6
                && (word.starts_with("507") || word.starts_with("107"))
                && word.bytes().all(|b| b.is_ascii_digit())
        };
        self.message.split(|c: char| !c.is_ascii_digit()).any(is_code)
    }
}

/// A whole journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Journal {
    /// By ordinal; a case without a line was not reached.
    pub lines: BTreeMap<u32, JournalLine>,
    /// Whether the script came to its end.
    pub is_done: bool,
}

/// Reads a journal; a missing one is empty, and a line that was cut short ends it.
#[must_use]
pub fn read_journal(path: &Path) -> Journal {
    #[derive(Deserialize)]
    struct Done {
        done: bool,
    }
    let mut journal = Journal::default();
    for line in fs::read_to_string(path).unwrap_or_default().lines() {
        if let Ok(case) = serde_json::from_str::<JournalLine>(line) {
            journal.lines.insert(case.ordinal, case);
        } else if let Ok(end) = serde_json::from_str::<Done>(line) {
            journal.is_done = end.done;
        } else {
            break;
        }
    }
    journal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_line_ends_the_journal() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("j");
        fs::write(&path, "{\"ordinal\":0,\"launched\":5,\"error\":null}\n{\"ordinal\":1,\"laun")
            .expect("written");
        let journal = read_journal(&path);
        assert_eq!((journal.lines.len(), journal.is_done), (1, false));
        assert_eq!(read_journal(&folder.path().join("missing")), Journal::default());
    }

    #[test]
    fn faults_of_the_device_are_told_from_wrong_calls() {
        let raised = |message: &str| Raised { class: "RuntimeError".to_owned(), message: message.to_owned() };
        assert!(raised("NPU function error: aclrtSynchronizeStream, error code is 507015").is_device_fault());
        assert!(!raised("shape [507015] is invalid for 16 elements, 5070150").is_out_of_memory());
        assert!(raised("NPU out of memory. Tried to allocate 80.00 GiB").is_out_of_memory());
        assert!(!raised("mat1 and mat2 shapes cannot be multiplied").is_device_fault());
    }
}
