//! Journal of the replay script: the launches of each case.

use std::{collections::BTreeMap, fs, path::Path};

use serde::Deserialize;

use crate::kernel::{CaseOutcome, Cause, CollectionEnd, ImportedVersions, Verdict};

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct JournalLine {
    pub ordinal: u32,
    /// Number of calls that returned.
    pub launched: u32,
    pub error: Option<PythonException>,
    /// False if the exception was raised when the device was synchronised, so that the device cannot be used any more.
    #[serde(default = "is_usable")]
    pub usable: bool,
    /// Seconds of the case, including the construction of its tensors.
    #[serde(default)]
    pub seconds: Option<f64>,
    /// Part by which the product before the case took longer than the fastest of the collection, if its clock had not risen
    /// again.
    #[serde(default)]
    pub unsettled: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct PythonException {
    #[serde(rename = "type")]
    pub class: String,
    pub message: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Memory,
    Device,
    Compact,
    Disk,
}

/// Texts of other programs that tell a fault, whatever the case of their letters.
const FAULT_TEXTS: [(&str, Fault); 4] = [
    // torch and torch_npu.
    ("out of memory", Fault::Memory),
    // CANN's list of errors: the allocation that failed, which is error 207001 of the runtime.
    ("el0004", Fault::Memory),
    // torch_npu with compact error output.
    ("cann error:", Fault::Compact),
    // The C library, for ENOSPC.
    ("no space left on device", Fault::Disk),
];

/// Returns the fault of an error code of CANN's runtime: codes 107xxx and 507xxx are faults of the device, not of the call.
const fn fault_of_code(code: u32) -> Option<Fault> {
    match (code, code / 1000) {
        (207_001, _) => Some(Fault::Memory),
        (_, 107 | 507) => Some(Fault::Device),
        _ => None,
    }
}

impl PythonException {
    fn shows(&self, fault: Fault) -> bool {
        let message = self.message.to_ascii_lowercase();
        FAULT_TEXTS.iter().any(|(text, of)| *of == fault && message.contains(text))
            || error_codes(&self.message).any(|code| fault_of_code(code) == Some(fault))
    }

    pub fn is_out_of_memory(&self) -> bool {
        self.class.ends_with("OutOfMemoryError") || self.shows(Fault::Memory)
    }

    pub fn is_device_fault(&self) -> bool {
        self.shows(Fault::Device)
    }

    /// Returns the verdict of a call that raised this exception. Messages are read here and nowhere else.
    pub(super) fn outcome(&self, usable: bool) -> CaseOutcome {
        let (class, message) = (self.class.clone(), self.message.clone());
        let (verdict, cause) = match self.class.as_str() {
            // The process skipped the case because another rank could not launch it.
            "OtherRank" => (Verdict::NotRun, Cause::OtherRankFailed { class, message }),
            // The script checks before it launches anything whether the catalogue's call fits the installed packages.
            "InstallationMismatch" => (Verdict::Unsupported, Cause::InstallationMismatch { message }),
            // The script compares the data that a collective returns before it launches samples.
            "WrongResult" => (Verdict::WrongResult, Cause::WrongResult { message }),
            _ if self.is_out_of_memory() => (Verdict::Oom, Cause::Oom { class, message }),
            _ if self.is_device_fault() || (self.is_compact() && !usable) => {
                (Verdict::Crashed, Cause::DeviceFault { class, message })
            }
            _ if self.shows(Fault::Disk) => (Verdict::Rejected, Cause::NoSpace { class, message }),
            _ => (Verdict::Rejected, Cause::Refused { class, message }),
        };
        CaseOutcome::new(verdict, cause)
    }

    pub fn is_compact(&self) -> bool {
        self.shows(Fault::Compact)
    }
}

/// Error codes of CANN's functions: numbers of six digits after `error code is` or `error code:`, the wordings of torch_npu.
fn error_codes(text: &str) -> impl Iterator<Item = u32> {
    text.split("error code").skip(1).filter_map(|rest| {
        let rest = rest.strip_prefix(" is").unwrap_or(rest);
        let rest = rest.strip_prefix(':').unwrap_or(rest).trim_start();
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        rest.get(..digits).filter(|code| code.len() == 6)?.parse().ok()
    })
}

/// Returns the line with an error code of CANN in the last uncaught exception that has one, and the meaning of the code that
/// torch_npu adds in a line of its own. The last lines of such an exception are the same for all codes.
pub(crate) fn coded_error(log: &str) -> Option<String> {
    let (_, exceptions) = log.split_once("Traceback (most recent call last)")?;
    let lines: Vec<&str> = exceptions.lines().map(str::trim).collect();
    let at = lines.iter().rposition(|line| error_codes(line).next().is_some())?;
    let meaning = lines[at + 1..].iter().find_map(|line| line.split_once("[Error]:")).map(|(_, text)| text);
    Some(lines[at].to_owned() + &meaning.map_or_else(String::new, |text| format!(":{text}")))
}

const fn is_usable() -> bool {
    true
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct LaunchJournal {
    pub lines: BTreeMap<u32, JournalLine>,
    pub device_count: Option<u32>,
    pub is_started: bool,
    /// Time at which it could, in seconds since the epoch by the host's clock.
    pub started_at: Option<f64>,
    pub imported: Option<ImportedVersions>,
    pub is_done: bool,
    /// True if the script began no further case because its time was over, so that its records are complete but some cases are
    /// not launched.
    pub is_out_of_time: bool,
    /// True if the script ended by itself, also after a case left the device unusable; no case was running then.
    pub has_ended: bool,
    pub controls_error: Option<PythonException>,
    pub settling_error: Option<PythonException>,
}

impl LaunchJournal {
    pub fn merge_all(journals: &[Self]) -> Self {
        let [first, others @ ..] = journals else { return Self::default() };
        let mut all = first.clone();
        for journal in others {
            all.lines.retain(|ordinal, _| journal.lines.contains_key(ordinal));
            for (ordinal, line) in &mut all.lines {
                let Some(other) = journal.lines.get(ordinal) else { continue };
                line.seconds = line.seconds.zip(other.seconds).map(|(one, other)| one.max(other));
                line.unsettled = line.unsettled.into_iter().chain(other.unsettled).reduce(f64::max);
            }
            all.is_started &= journal.is_started;
            all.started_at = all.started_at.zip(journal.started_at).map(|(one, other)| one.max(other));
            all.is_done &= journal.is_done;
            all.is_out_of_time |= journal.is_out_of_time;
            all.has_ended &= journal.has_ended;
            all.controls_error = all.controls_error.or_else(|| journal.controls_error.clone());
            all.settling_error = all.settling_error.or_else(|| journal.settling_error.clone());
        }
        all
    }

    pub(super) fn remarks(&self) -> Vec<Cause> {
        type Exception = PythonException;
        let controls = self.controls_error.clone();
        let controls = controls.map(|Exception { class, message }| Cause::NoControls { class, message });
        let settling = self.settling_error.clone();
        let settling = settling.map(|Exception { class, message }| Cause::NotSettled { class, message });
        controls.into_iter().chain(settling).collect()
    }
}

/// Reads a journal; a missing file is an empty journal, and a truncated line ends it.
pub fn read_journal(path: &Path) -> LaunchJournal {
    #[derive(Default, PartialEq, Deserialize)]
    struct JournalMark {
        device_count: Option<u32>,
        started: Option<bool>,
        at: Option<f64>,
        done: Option<bool>,
        in_time: Option<bool>,
        software: Option<ImportedVersions>,
        /// End of the collection at which the control kernels were launched, and the exception that prevented it.
        controls: Option<CollectionEnd>,
        error: Option<PythonException>,
        settling_error: Option<PythonException>,
    }
    let mut journal = LaunchJournal::default();
    // A process that was killed may have cut its last line within a character.
    for line in String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).lines() {
        if let Ok(case) = serde_json::from_str::<JournalLine>(line) {
            journal.lines.insert(case.ordinal, case);
            continue;
        }
        match serde_json::from_str::<JournalMark>(line) {
            Ok(mark) if mark != JournalMark::default() => {
                journal.device_count = journal.device_count.or(mark.device_count);
                journal.is_started |= mark.started == Some(true);
                journal.started_at = journal.started_at.or(mark.at);
                journal.imported = journal.imported.take().or(mark.software);
                journal.is_done |= mark.done == Some(true);
                journal.is_out_of_time |= mark.in_time == Some(false);
                journal.has_ended |= mark.done.is_some();
                journal.controls_error = journal.controls_error.take().or(mark.error);
                journal.settling_error = journal.settling_error.take().or(mark.settling_error);
            }
            _ => break,
        }
    }
    journal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_line_ends_the_journal() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("j");
        fs::write(&path, "{\"ordinal\":0,\"launched\":5,\"error\":null}\n{\"ordinal\":1,\"laun")
            .expect("written");
        let journal = read_journal(&path);
        assert_eq!((journal.lines.len(), journal.is_done), (1, false));
        assert_eq!(read_journal(&folder.path().join("missing")), LaunchJournal::default());
    }

    #[test]
    fn failed_launches_beside_the_cases_are_read_from_every_process() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("j");
        let text = "{\"settling_error\":{\"type\":\"A\",\"message\":\"a\"}}\n\
                    {\"controls\":\"begin\",\"error\":{\"type\":\"B\",\"message\":\"b\"}}\n\
                    {\"controls\":\"end\",\"error\":null}\n{\"done\":true}\n";
        fs::write(&path, text).expect("written");
        let merged = LaunchJournal::merge_all(&[LaunchJournal::default(), read_journal(&path)]);
        let expected = ["without control kernels: B: b", "the clock was not settled before each case: A: a"];
        let texts: Vec<String> = merged.remarks().iter().map(ToString::to_string).collect();
        assert_eq!(texts, expected);
        assert!(read_journal(&path).is_done);
    }

    /// Wordings of torch_npu and of CANN, from their sources and from logs of users.
    #[test]
    fn causes_of_exceptions_are_read_from_every_wording() {
        let fault = [
            "Initialize:build/CMakeFiles/torch_npu.dir/compiler_depend.ts:147 NPU function error: \
             c10_npu::SetDevice(device_id_), error code is 107001 [ERROR] ERR00100 PTA call acl api failed",
            "NPU function error: c10_npu::acl::AclrtSynchronizeStreamWithTimeout(stream()), error code is 507015",
            "ACL stream synchronize failed, error code:507015",
            "ACL stream synchronize failed, error code: 507048",
            " NPU error,NPU error code is:507018 [ERROR] ERR01001 OPS internal error",
            "NPU warning, error code is 507035[Error]: [Error]: The vector core execution is abnormal.",
        ];
        let memory = [
            "NPU out of memory. Tried to allocate 80.00 GiB",
            "NPU function error: aclrtMalloc, error code is 207001 [Error]: Failed to apply for memory.",
            "call aclnnBatchMatMul failed, error code is 207001",
            "Memory_Allocation_Failure(EL0004): Failed to allocate memory requested by APP module.",
            "EL0004: [PID: 1119] Failed to allocate memory. Possible Cause: Available memory is insufficient.",
        ];
        let call = [
            "size of tensor a (107520) must match the size of tensor b (507015)",
            "mat1 and mat2 shapes cannot be multiplied",
            "call aclnnSwiGlu failed, error code is 161002 EZ1001: Shape of x is invalid",
            "call aclnnAdd failed, error code is 561103",
            "error code is 50701",
            "error code",
        ];
        let raised =
            |message: &str| PythonException { class: "RuntimeError".to_owned(), message: message.to_owned() };
        let causes = |message: &&str| (raised(message).is_device_fault(), raised(message).is_out_of_memory());
        for message in &fault {
            assert_eq!(causes(message), (true, false), "{message}");
        }
        for message in &memory {
            assert_eq!(causes(message), (false, true), "{message}");
        }
        for message in &call {
            assert_eq!(causes(message), (false, false), "{message}");
        }
        let log = "[INFO] start\nTraceback (most recent call last):\n  File \"replay.py\", line 3\nRuntimeError: Initialize:\
                   compiler_depend.ts:361 NPU function error: c10_npu::SetDevice(device_id_), error code is 507033\n\
                   [ERROR] 2026-01-01-00:00:00 ERR00100 PTA call acl api failed\n[Error]: Failed to start the device.\n        \
                   Rectify the fault based on the error information in the ascend log.\n[ERROR] the child failed\n";
        let line = coded_error(log).expect("a code");
        assert!(line.ends_with("error code is 507033: Failed to start the device."), "{line}");
        assert_eq!(
            coded_error("warning, error code is 507035\nTraceback (most recent call last):\nA: b"),
            None
        );
        assert!(raised("CANN error: The argument is invalid.Reason: Set device failed").is_compact());
    }
}
