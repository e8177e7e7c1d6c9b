//! Journal of the replay script: the launches of each case.

use std::{collections::BTreeMap, path::Path};

use serde::Deserialize;

use crate::base::files::{MAX_TABLE, read_regular};
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

/// What an exception tells about its cause. Where several are told, the first counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Memory,
    Link,
    Device,
    Disk,
    Host,
    Call,
    Unclear,
}

/// Texts of other programs that tell a fault, whatever the case of their letters, where a word begins.
const FAULT_TEXTS: [(&str, Fault); 10] = [
    // torch and torch_npu.
    ("out of memory", Fault::Memory),
    // The C library, for ENOSPC.
    ("no space left on device", Fault::Disk),
    // torch_npu for errors of the runtime (Ascend/pytorch, torch_npu/csrc/core/npu/NPUException.cpp, 9e73e708).
    ("hccs link error", Fault::Link),
    ("ub link error", Fault::Link),
    ("hccl op retry failed", Fault::Link),
    ("suspect remote error", Fault::Link),
    ("hbm multi bit ecc error", Fault::Device),
    ("uce error", Fault::Device),
    ("suspect mem error", Fault::Device),
    ("force stop", Fault::Device),
];

/// Exceptions of torch's store and process groups (pytorch/pytorch, torch/csrc/Exceptions.h, v2.9.0).
const LINK_CLASSES: [&str; 3] = ["DistBackendError", "DistNetworkError", "DistStoreError"];
/// Exceptions of Python and torch about arguments, raised before anything reaches the device.
const CALL_CLASSES: [&str; 6] =
    ["AttributeError", "IndexError", "KeyError", "NotImplementedError", "TypeError", "ValueError"];
/// Beginning of torch_npu's text where its second thread failed, which has printed the error itself (Ascend/pytorch,
/// torch_npu/csrc/core/npu/NPUQueue.cpp, 9e73e708). The call may be at fault, although the error is raised late.
const QUEUE_TEXT: &str = "inner error is reported as above";

/// Returns the fault of an error code of CANN's runtime (hicann/runtime, include/external/acl/error_codes/rt_error_codes.h,
/// 681ef761) or of an aclnn call: 161xxx are arguments, 561xxx the preparation of the kernel.
const fn fault_of_code(code: u32) -> Option<Fault> {
    match (code, code / 1000) {
        (207_001 | 207_018, _) => Some(Fault::Memory),
        (507_056 | 507_057 | 507_904, _) => Some(Fault::Link),
        // Files and permissions.
        (107_009 | 107_010 | 207_006, _) => Some(Fault::Host),
        // A device that is not there or was reset, waits and tasks that ended. The others of 107xxx are arguments and states of the
        // process, whose cause is unclear.
        (107_001 | 107_002 | 107_019 | 107_020 | 107_022 | 107_023 | 107_035 | 207_004, _) | (_, 507) => {
            Some(Fault::Device)
        }
        (100_000 | 207_000, _) | (_, 161 | 561) => Some(Fault::Call),
        _ => None,
    }
}

/// Returns the fault of a code of a module of CANN, such as EI0006, by its letter and number (hicann/runtime,
/// src/dfx/error_manager/error_code.json, 681ef761). Numbers from 9000 on are internal errors.
const fn fault_of_module(module: u8, number: u32) -> Option<Fault> {
    match (module, number) {
        (b'L', 4) | (b'I', 11) => Some(Fault::Memory),
        // Memory, threads and files of the host; variables, versions, tables of ranks and ports of HCCL; profiling.
        (b'E', 1013 | 1014 | 1021 | 2002)
        | (b'H', 3 | 4 | 10)
        | (b'I', 1 | 4 | 7 | 8 | 14 | 16 | 17 | 19 | 20)
        | (b'K', _) => Some(Fault::Host),
        (b'I', 3 | 5) => Some(Fault::Call),
        // HCCL and its processes on the network.
        (b'I' | b'J', _) => Some(Fault::Link),
        // The driver, and executions of the runtime; other codes of the runtime are arguments that may not be of the call.
        (b'L', _) | (b'E' | b'H', 9000..) | (b'E', 1002 | 1009 | 1010 | 1019) => Some(Fault::Device),
        (b'E' | b'H', _) | (_, 9000..) => None,
        (b'Z' | b'B' | b'1'..=b'9', _) => Some(Fault::Call),
        _ => None,
    }
}

/// Returns the fault of a result of HCCL (hicann/hccl, HcclResult in hccl_types.h).
const fn fault_of_hccl(result: u32) -> Option<Fault> {
    match result {
        24 => Some(Fault::Memory),
        6 | 7 | 9 | 11..=14 | 19..=23 => Some(Fault::Link),
        15 | 16 | 18 => Some(Fault::Device),
        8 | 10 | 17 => Some(Fault::Host),
        1 | 2 | 5 => Some(Fault::Call),
        _ => None,
    }
}

/// Returns the fault of torch_npu's own code, such as ERR02200, by module and number (Ascend/pytorch, SubModule and ErrCode
/// in torch_npu/csrc/core/npu/NPUException.h, 9e73e708). 00100 and 01100 say only that CANN refused something.
const fn fault_of_torch_npu(module: u32, number: u32) -> Option<Fault> {
    match (module, number) {
        (_, 1..=3 | 7) => Some(Fault::Call),
        (_, 10 | 12) => Some(Fault::Host),
        (2, _) => Some(Fault::Link),
        (_, 11) => Some(Fault::Device),
        _ => None,
    }
}

impl PythonException {
    /// Returns the fault that a code or a text names for certain, whenever the exception was raised.
    fn named_fault(&self) -> Option<Fault> {
        let message = self.message.to_ascii_lowercase();
        let begins_word = |at: usize| !message[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
        let is_said = |text: &str| message.match_indices(text).any(|(at, _)| begins_word(at));
        let texts = FAULT_TEXTS.iter().filter(|(text, _)| is_said(text)).map(|(_, fault)| *fault);
        let codes = error_codes(&self.message).filter_map(|code| match code {
            0..=99 if message.contains("hccl") => fault_of_hccl(code),
            code => fault_of_code(code),
        });
        let modules = self.words().filter_map(|word| match word.as_bytes() {
            [b'E', module, digits @ ..] if digits.len() == 4 => {
                fault_of_module(*module, word.get(2..)?.parse().ok()?)
            }
            _ => None,
        });
        let class = match self.class.as_str() {
            class if class.ends_with("OutOfMemoryError") => Some(Fault::Memory),
            class if LINK_CLASSES.contains(&class) => Some(Fault::Link),
            class if CALL_CLASSES.contains(&class) => Some(Fault::Call),
            _ => None,
        };
        // torch_npu also raises memory of the host that CANN cannot allocate as its own error of memory.
        let of_host = || self.words().any(|word| matches!(word, "EE1013" | "EH0010")).then_some(Fault::Host);
        of_host().or_else(|| texts.chain(codes).chain(modules).chain(class).min())
    }

    /// Returns the fault by everything that is known. An error that was raised when the device was synchronised is none of the
    /// arguments, unless torch_npu's second thread prepares the calls.
    fn fault(&self, usable: bool) -> Fault {
        let message = self.message.to_ascii_lowercase();
        let of_torch_npu = || {
            let number = |word: &str| word.strip_prefix("ERR").filter(|code| code.len() == 5)?.parse().ok();
            let numbers = self.words().filter_map(number);
            numbers.filter_map(|code: u32| fault_of_torch_npu(code / 1000, code % 1000)).min()
        };
        let is_late = ["timeout", "times out", "timed out"].iter().any(|text| message.contains(text))
            || !(usable || message.contains(QUEUE_TEXT));
        let fault = self.named_fault().or_else(of_torch_npu).or(is_late.then_some(Fault::Device));
        fault.unwrap_or(Fault::Unclear)
    }

    /// Returns the verdict of a call that raised this exception. Messages are read here and nowhere else.
    pub(crate) fn outcome(&self, usable: bool) -> CaseOutcome {
        let (class, message) = (self.class.clone(), self.message.clone());
        let (verdict, cause) = match (self.class.as_str(), self.fault(usable)) {
            // The process skipped the case because another rank could not launch it.
            ("OtherRank", _) => (Verdict::NotRun, Cause::OtherRankFailed { class, message }),
            // The script checks before it launches anything whether the catalogue's call fits the installed packages.
            ("InstallationMismatch", _) => (Verdict::Unsupported, Cause::InstallationMismatch { message }),
            // The script compares the data that a collective returns before it launches samples.
            ("WrongResult", _) => (Verdict::WrongResult, Cause::WrongResult { message }),
            (_, Fault::Memory) => (Verdict::Oom, Cause::Oom { class, message }),
            (_, Fault::Link) => (Verdict::Crashed, Cause::LinkFault { class, message }),
            (_, Fault::Device) => (Verdict::Crashed, Cause::DeviceFault { class, message }),
            (_, Fault::Disk) => (Verdict::Rejected, Cause::NoSpace { class, message }),
            (_, Fault::Host) => (Verdict::Rejected, Cause::HostFault { class, message }),
            (_, Fault::Call) => (Verdict::Rejected, Cause::Refused { class, message }),
            (_, Fault::Unclear) => (Verdict::Rejected, Cause::Unclear { class, message }),
        };
        CaseOutcome::new(verdict, cause)
    }

    fn words(&self) -> impl Iterator<Item = &str> {
        self.message.split(|c: char| !c.is_ascii_alphanumeric())
    }
}

/// Numbers after `error code is` or `error code:`, the wordings of torch_npu: six digits from CANN's functions, one or two
/// from HCCL's.
fn error_codes(text: &str) -> impl Iterator<Item = u32> {
    text.split("error code").skip(1).filter_map(|rest| {
        let rest = rest.strip_prefix(" is").unwrap_or(rest);
        let rest = rest.strip_prefix(':').unwrap_or(rest).trim_start();
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        rest.get(..digits).filter(|code| matches!(code.len(), 1 | 2 | 6))?.parse().ok()
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
    for line in String::from_utf8_lossy(&read_regular(path, MAX_TABLE).unwrap_or_default()).lines() {
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
    use std::fs;

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
        let verdict = |message: &str| raised(message).outcome(true).verdict;
        for (messages, expected) in
            [(&fault[..], Verdict::Crashed), (&memory[..], Verdict::Oom), (&call[..], Verdict::Rejected)]
        {
            messages.iter().for_each(|message| assert_eq!(verdict(message), expected, "{message}"));
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
    }

    /// A text, whether the device can be used afterwards, and the fault.
    const TEXTS: [(&str, bool, Fault); 36] = [
        ("mat1 and mat2 shapes cannot be multiplied", true, Fault::Unclear),
        ("CANN error: The argument is invalid.Reason: Set device failed", true, Fault::Unclear),
        ("CANN error: The argument is invalid.Reason: Set device failed", false, Fault::Device),
        ("ACL stream synchronize failed. EI9999: Inner Error! fftsplus task timeout", false, Fault::Link),
        ("EZ9999: Inner Error! a task has an exception", true, Fault::Unclear),
        ("EZ9999: Inner Error! a task has an exception", false, Fault::Device),
        ("call aclnnSwiGlu failed, error code is 161002 EZ1001: Shape of x is invalid", true, Fault::Call),
        ("EZ1001: Shape of x is invalid", false, Fault::Call),
        ("E80012: the shape of the input is not supported", true, Fault::Call),
        ("EZ9999: tiling failed, error code is 561002", true, Fault::Call),
        ("EE1001: The argument is invalid. Reason: stream", true, Fault::Unclear),
        ("EE1001: The argument is invalid. Reason: stream", false, Fault::Device),
        ("EE9999: Inner Error!", true, Fault::Device),
        ("EL0005: The resources are busy.", true, Fault::Device),
        ("EI0011: Failed to allocate 209715200 bytes of NPU memory.", true, Fault::Memory),
        ("EE1013: Failed to allocate 64 bytes of host memory via malloc to Runtime.", true, Fault::Host),
        ("EI0005: The parameters of operator AllReduce are inconsistent between ranks", true, Fault::Call),
        ("EI0020: Failed to enable listening for the NPU network adapter socket.", true, Fault::Host),
        ("EJ0002: The network port is down.", true, Fault::Link),
        (
            "HCCL function error: hcclAllReduce, error code is 9 [ERROR] ERR02200 DIST call hccl api failed",
            true,
            Fault::Link,
        ),
        (
            "HCCL function error: hcclAllReduce, error code is 1 [ERROR] ERR02200 DIST call hccl api failed",
            true,
            Fault::Call,
        ),
        (
            "HCCL function error: hcclAllReduce, error code is 4 [ERROR] ERR02200 DIST call hccl api failed",
            true,
            Fault::Link,
        ),
        ("HCCL function error: hcclAllReduce, error code is 15", true, Fault::Device),
        ("HCCL function error: hcclAllReduce, error code is 24", true, Fault::Memory),
        ("NPU function error: HCCS LINK ERROR, error code is 507056", true, Fault::Link),
        ("HBM MULTI BIT ECC ERROR.time is 7", true, Fault::Device),
        ("UCE ERROR", true, Fault::Device),
        ("aclnnReduce error: cannot produce error text", true, Fault::Unclear),
        ("aclrtMemcpy, error code is 107000", true, Fault::Unclear),
        ("task timeout, error code is 107020", true, Fault::Device),
        ("SUSPECT REMOTE ERROR", false, Fault::Link),
        ("the input has 3 dimensions [ERROR] ERR01001 OPS invalid parameter", true, Fault::Call),
        ("[ERROR] ERR01005 OPS internal error", true, Fault::Unclear),
        ("The Inner error is reported as above. ERR00100 PTA call acl api failed", false, Fault::Unclear),
        (
            "The Inner error is reported as above. ERR00100 PTA call acl api failed, EL0004",
            false,
            Fault::Memory,
        ),
        ("error code is 6, CODE12345, EEE0001, E12, \u{e9}E", true, Fault::Unclear),
    ];

    #[test]
    fn codes_and_the_place_of_an_error_decide_between_call_device_link_and_host() {
        for (message, usable, fault) in TEXTS {
            let raised = PythonException { class: "RuntimeError".to_owned(), message: message.to_owned() };
            assert_eq!(raised.fault(usable), fault, "{message}");
        }
        let host = "EE1013: Failed to allocate 64 bytes of host memory via malloc to Runtime.".to_owned();
        let raised = PythonException { class: "torch.OutOfMemoryError".to_owned(), message: host };
        assert_eq!(raised.fault(true), Fault::Host);
        let of_class =
            |class: &str| PythonException { class: class.to_owned(), message: "?".to_owned() }.fault(true);
        assert_eq!(["TypeError", "DistNetworkError"].map(of_class), [Fault::Call, Fault::Link]);
    }
}
