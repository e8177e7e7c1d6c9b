//! Faults of the rehearsal host, each as npubench sees it: one collection's script is run on a host with a fault
//! plan, and its journal and records are judged as those of any collection. No engine is asked what it makes of it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use npubench::{
    base::{
        assets::AssetFiles,
        process::{self, CommandSpec, ExitKind},
    },
    kernel::{
        Attempt, Case, CaseAttributes, KernelName, Nanos, SignatureCells, Verdict,
        catalogue::{Catalogue, CatalogueEntry},
        render::Manifest,
    },
    measure::{
        device::npu_smi::{NpuSmiInfo, parse_info},
        verify::{
            CollectionTermination, ExpectedLaunches, LaunchJournal, SoftwareChange, assess_collection,
            read_journal, read_records,
        },
    },
    rehearsal::fault_plan::{FaultPlan, ValidNames},
};

use crate::{
    context::Context,
    rehearsal::{decoder_layer, rehearse},
};

const KERNEL: &str = "RmsNorm";

/// A collection of the three `RmsNorm` of a decoder layer on device 0, and a host to run it on.
struct CollectionFixture {
    context: Context,
    host: PathBuf,
    manifest: Manifest,
    cases: Vec<Case>,
    catalogue: Catalogue,
}

/// Log, journal and attempts of a collection.
struct CollectionResult {
    log: String,
    /// The exit code of the script, as msprof gives it.
    ended: ExitKind,
    seconds: f64,
    journal: LaunchJournal,
    /// Why the records cannot be read.
    unreadable: Option<String>,
    attempts: Vec<Attempt>,
}

impl CollectionResult {
    fn verdicts(&self) -> Vec<Verdict> {
        self.attempts.iter().map(|attempt| attempt.outcome.verdict).collect()
    }

    fn reason(&self, case: usize) -> String {
        self.attempts[case].outcome.reason.to_string()
    }

    /// Start and duration of every launch of a case.
    fn launches(&self, case: usize) -> Vec<(Nanos, Nanos)> {
        self.attempts[case].launches.iter().map(|launch| (launch.start, launch.duration)).collect()
    }
}

impl CollectionFixture {
    fn new() -> Self {
        let context = Context::new();
        decoder_layer(&context, "db");
        assert_eq!(rehearse(&context, "db", &["--devices", "0", "--kernels", KERNEL]).code, 0);
        let collect = context
            .snapshot("db")
            .into_iter()
            .find(|(path, _)| path.ends_with("collect.sh"))
            .expect("a script");
        context.write("own/collect.sh", &String::from_utf8(collect.1).expect("text"));
        let script = context.run(&["render", KERNEL, "--db", "db"]).stdout;
        context.write("own/replay.py", &script);
        let manifest = context.run(&["render", KERNEL, "--db", "db", "--manifest"]).stdout;
        // Without control kernels and settling, whose numbers of launches depend on the readings, records have known positions.
        let mut manifest: serde_json::Value = serde_json::from_str(&manifest).expect("a manifest");
        manifest.as_object_mut().and_then(|manifest| manifest.remove("controls")).expect("controls");
        let manifest = manifest.to_string();
        context.write("own/manifest.json", &manifest);
        let manifest: Manifest = serde_json::from_str(&manifest).expect("a manifest");
        let rows = context.rows("db", KERNEL);
        let side = |row: &std::collections::BTreeMap<String, String>, side: &str| {
            let cell = |what: &str| row[&format!("{side} {what}")].clone();
            let (shapes, dtypes, formats) = (cell("Shapes"), cell("Data Types"), cell("Formats"));
            SignatureCells { shapes: &shapes, dtypes: &dtypes, formats: &formats }.parse().expect("cells")
        };
        let known = rows.iter().map(|row| Case {
            kernel: KernelName::new(KERNEL).expect("a name"),
            inputs: side(row, "Input"),
            outputs: side(row, "Output"),
            attributes: CaseAttributes::default(),
        });
        let known: Vec<Case> = known.collect();
        let case = |id: &_| known.iter().find(|case| case.id() == *id).expect("a row").clone();
        let cases: Vec<Case> = manifest.cases.iter().map(|listed| case(&listed.case)).collect();
        assert_eq!((cases.len(), manifest.device.0), (3, 0));
        let runs = context.path("db/.npubench/runs");
        let run = fs::read_dir(runs).expect("listed").next().expect("a run").expect("listed").path();
        let catalogue = Catalogue::load(&AssetFiles::embedded()).expect("built in");
        Self { host: run.join("host"), context, manifest, cases, catalogue }
    }

    /// Gives the host another plan; nothing has been counted, and the host begins now.
    fn plan(&self, text: &str) {
        let known = ValidNames { kernels: &[KERNEL], devices: 16 };
        let plan = FaultPlan::parse(Path::new("faults.yaml"), text, &known).expect(text);
        let file = self.host.join("host.json");
        let mut config: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(&file).expect("there")).expect("JSON");
        config["faults"] = serde_json::to_value(plan).expect("JSON");
        fs::write(file, config.to_string()).expect("written");
        for entry in fs::read_dir(self.host.join("faults")).expect("listed") {
            fs::remove_file(entry.expect("listed").path()).expect("removed");
        }
        let now = jiff::Timestamp::now().as_nanosecond().to_string();
        fs::write(self.host.join("faults/started"), now).expect("written");
    }

    fn own(&self) -> PathBuf {
        self.context.path("own").canonicalize().expect("there")
    }

    /// Runs the collection; ends it, as a time limit does, once that is so.
    fn collect_until(&self, is_over: impl Fn() -> bool + Sync) -> CollectionResult {
        let folder = self.own();
        let _ = fs::remove_dir_all(folder.join("profile"));
        let _ = fs::remove_file(folder.join("launched.jsonl"));
        fs::create_dir(folder.join("profile")).expect("made");
        let log = folder.join("collect.log");
        let scratch = self.context.path("tmp");
        fs::create_dir_all(&scratch).expect("made");
        let job = CommandSpec {
            command: vec!["sh".into(), "collect.sh".into()],
            folder: &folder,
            environment: &[("TMPDIR".to_owned(), scratch.display().to_string())],
            log: &log,
            limit: Duration::from_secs(120),
            cut_off: None,
            stdin: None,
            record: None,
        };
        let begun = Instant::now();
        let (stop, has_ended) = (AtomicBool::new(false), AtomicBool::new(false));
        let ended = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !has_ended.load(Ordering::Relaxed) && !stop.load(Ordering::Relaxed) {
                    stop.store(is_over(), Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(10));
                }
            });
            let ended = process::run_command(&job, &stop).expect("sh runs");
            has_ended.store(true, Ordering::Relaxed);
            ended
        });
        assert_eq!(fs::read_dir(scratch).expect("listed").count(), 0, "nothing is left behind");
        let end = if ended == ExitKind::Stopped {
            CollectionTermination::TimedOut
        } else {
            CollectionTermination::Exited
        };
        self.left(ended, end, begun.elapsed().as_secs_f64())
    }

    /// Runs the collection.
    fn collect_again(&self) -> CollectionResult {
        self.collect_until(|| false)
    }

    fn left(&self, ended: ExitKind, end: CollectionTermination, seconds: f64) -> CollectionResult {
        let folder = self.own();
        let journal = read_journal(&folder.join("launched.jsonl"));
        let (records, unreadable) = match read_records(&folder.join("profile")) {
            Ok(read) => (read.records, read.damaged.map(|(problem, _)| problem)),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let entry = self.catalogue.entry(&self.cases[0].kernel).expect("an entry");
        let expected = |case| ExpectedLaunches {
            equal_kernels: Vec::new(),
            equal_cases: &[],
            case,
            names: entry.names().collect(),
            also_launched: &entry.also_launches,
            fastest: Nanos(1),
            notes: &[],
            is_on_ai_cpu: false,
            host_slots: CatalogueEntry::host_slots(entry),
        };
        let expected: Vec<ExpectedLaunches<'_>> = self.cases.iter().map(expected).collect();
        let journals = std::slice::from_ref(&journal);
        let unchanged = SoftwareChange::None;
        let attempts = assess_collection(&self.manifest, &expected, journals, &records, end, &unchanged);
        let log = fs::read_to_string(folder.join("collect.log")).expect("a log");
        CollectionResult { log, ended, seconds, journal, unreadable, attempts }
    }

    fn collect(&self, plan: &str) -> CollectionResult {
        self.plan(plan);
        self.collect_again()
    }

    /// Runs one of the host's programs.
    fn program(&self, name: &str, arguments: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(self.host.join("bin").join(name));
        let settings = self.host.join("host.json");
        let output = command.args(arguments).env("NPUBENCH_REHEARSAL", settings).output().expect("it runs");
        (output.status.code(), String::from_utf8(output.stdout).expect("text"))
    }

    fn npu_smi(&self) -> NpuSmiInfo {
        parse_info(&self.program("npu-smi", &["info"]).1).expect("the table")
    }

    fn profile_folder(&self) -> Option<PathBuf> {
        let mut entries = fs::read_dir(self.own().join("profile")).expect("listed");
        entries.next().map(|entry| entry.expect("listed").path())
    }
}

use Verdict::{Crashed, Hung, Implausible, InvalidArgs, LostRecords, NotRun, Ok as VerdictOk, Oom};

#[test]
fn plan_without_faults_measures_all_cases() {
    let fixture = CollectionFixture::new();
    let left = fixture.collect("{}");
    assert_eq!(
        (left.verdicts(), left.ended, left.journal.is_done),
        (vec![VerdictOk; 3], ExitKind::Exited(0), true)
    );
    assert_eq!(fixture.npu_smi().chips.len(), 16);
    assert!(!left.log.contains("[WARNING]") && !left.log.contains("[ERROR]"), "{}", left.log);
}

/// Compares the verdicts of the cases. The verdict of a case behind a crash, which was not reached, is left open.
fn assert_matches(left: &CollectionResult, verdicts: [Verdict; 3], fault: &str) {
    let found = left.verdicts();
    let reached = if verdicts[1] == Crashed { 2 } else { 3 };
    assert_eq!(found[..reached], verdicts[..reached], "{fault}: {}", left.log);
    assert!(reached == 3 || found[2] != VerdictOk, "{fault}");
}

#[test]
fn fault_of_a_case_affects_only_that_case() {
    let fixture = CollectionFixture::new();
    let table = [
        (
            "crash: {exit: 3}",
            [VerdictOk, Crashed, NotRun],
            "the process ended while it ran",
            "No such process.",
        ),
        ("crash: {launch: 7}", [VerdictOk, Crashed, NotRun], "the process ended while it ran", "signal 11."),
        ("crash: {signal: SIGKILL}", [VerdictOk, Crashed, NotRun], "the process ended", "signal 9."),
        (
            "crash: {signal: SIGABRT, records: last_second_lost}",
            [LostRecords, Crashed, NotRun],
            "the process ended",
            "signal 6.",
        ),
        (
            "crash: {signal: SIGBUS, records: none}",
            [LostRecords, Crashed, NotRun],
            "the process ended",
            "Failed to find profiling data",
        ),
        (
            "out_of_memory:",
            [VerdictOk, Oom, VerdictOk],
            "OutOfMemoryError: NPU out of memory. Tried to allocate 48.00 MiB",
            "",
        ),
        ("out_of_memory: {at: launch}", [VerdictOk, Oom, VerdictOk], "; 0 bytes free; ", ""),
        (
            "device_error:",
            [VerdictOk, Crashed, NotRun],
            "error code is 507015 [ERROR] ERR00100",
            "Operation not permitted",
        ),
        (
            "device_error: {code: 507035}",
            [VerdictOk, Crashed, NotRun],
            "The vector core execution is abnormal.",
            "",
        ),
        (
            "clock_jump: {seconds: -10}",
            [VerdictOk, LostRecords, VerdictOk],
            "their sentinels are not in the profile",
            "",
        ),
        ("clock_jump: {seconds: 9}", [VerdictOk, VerdictOk, VerdictOk], "every launch recorded", ""),
        ("hang: {seconds: 0.2}", [VerdictOk, VerdictOk, VerdictOk], "every launch recorded", ""),
    ];
    for (fault, verdicts, reason, log) in table {
        let left = fixture.collect(&format!("faults:\n- {fault}\n  where: {{ordinal: 1}}\n"));
        assert_matches(&left, verdicts, fault);
        assert!(left.reason(1).contains(reason), "{fault}: {}", left.reason(1));
        assert!(left.log.contains(log), "{fault}: {}", left.log);
        let crashed = verdicts.contains(&Crashed);
        assert_eq!((left.journal.is_started, left.journal.is_done), (true, !crashed), "{fault}");
        // Whatever became of the script, msprof exits with 0 unless it found nothing at all.
        let code = if fault.contains("records: none") { 255 } else { 0 };
        assert_eq!(left.ended, ExitKind::Exited(code), "{fault}");
    }
}

#[test]
fn fault_with_a_limit_does_not_affect_the_retry() {
    let fixture = CollectionFixture::new();
    for (fault, verdict) in [("crash:", Crashed), ("out_of_memory:", Oom)] {
        for times in ["times: 1", "times_each: 1"] {
            fixture.plan(&format!("faults:\n- {fault}\n  where: {{ordinal: 1}}\n  {times}\n"));
            assert_eq!(fixture.collect_again().verdicts()[1], verdict, "{fault} {times}");
            assert_eq!(fixture.collect_again().verdicts(), [VerdictOk; 3], "{fault} {times}");
        }
    }
}

#[test]
fn crash_at_exit_keeps_all_results() {
    let left = CollectionFixture::new().collect("faults:\n- crash: {at: exit}\n  where: {kernel: RmsNorm}\n");
    assert_eq!((left.verdicts(), left.journal.is_done), (vec![VerdictOk; 3], true));
    assert!(left.log.contains("return code: killed by signal 11."), "{}", left.log);
}

#[test]
fn records_and_tables_are_damaged_as_planned() {
    let fixture = CollectionFixture::new();
    let lost = [LostRecords; 3];
    // A row that ends early is no record; the cases before it are complete.
    let cut = [VerdictOk, LostRecords, LostRecords];
    let table = [
        ("lost_records: {head: 10, tail: 10}", [VerdictOk; 3], ""),
        ("lost_records: {head: 30}", [LostRecords, VerdictOk, VerdictOk], ""),
        ("lost_records: {tail: 30}", [VerdictOk, VerdictOk, LostRecords], ""),
        ("lost_records: {tail: 1000}", lost, ""),
        ("truncated_csv:", cut, "fields, the header has 46"),
        ("truncated_csv: {keeps: 0}", lost, "is empty"),
        ("wrong_device_id:", [Implausible; 3], ""),
        ("disk_full:", lost, "is empty"),
        ("disk_full: {keeps: 0.5}", cut, "fields, the header has 46"),
    ];
    for (fault, verdicts, unreadable) in table {
        let left = fixture.collect(&format!("faults:\n- {fault}\n"));
        assert_eq!(left.verdicts(), verdicts, "{fault}");
        assert_eq!((left.ended, left.journal.is_done), (ExitKind::Exited(0), true), "{fault}");
        let message = left.unreadable.unwrap_or_default();
        assert!(
            message.contains(unreadable) && message.is_empty() == unreadable.is_empty(),
            "{fault}: {message}"
        );
        assert_eq!(left.log.contains("No space left on device"), fault.starts_with("disk_full"), "{fault}");
    }
    // Three rows, spread over the table, cost the cases that they belong to.
    let left = fixture.collect("faults:\n- ragged_csv: {rows: 3}\n");
    let verdicts = left.verdicts();
    assert!(verdicts.contains(&VerdictOk) && verdicts.contains(&LostRecords), "{verdicts:?}");
    assert!(left.unreadable.is_some_and(|problem| problem.contains("45 fields, the header has 46")));
    let left = fixture.collect("faults:\n- wrong_device_id: {shows: 7}\n");
    assert_eq!(left.reason(0), "launched on device 0, recorded on device 7");
}

#[test]
fn failed_export_can_be_repeated() {
    let fixture = CollectionFixture::new();
    for (fault, is_there_later) in [
        ("missing_output:", true),
        ("missing_output: {second_export: false}", false),
        ("disk_full: {second_export: true}", true),
        ("disk_full:", false),
    ] {
        let left = fixture.collect(&format!("faults:\n- {fault}\n"));
        assert_eq!((left.verdicts(), left.ended), (vec![LostRecords; 3], ExitKind::Exited(0)), "{fault}");
        let folder = fixture.profile_folder().expect("a folder");
        let is_missing = fault.starts_with("missing");
        assert_eq!(folder.join("mindstudio_profiler_output").exists(), !is_missing, "{fault}");
        // Exports are named by the second.
        std::thread::sleep(Duration::from_millis(1_100));
        let output = format!("--output={}", folder.display());
        let (code, message) = fixture.program("msprof", &["--export=on", &output]);
        assert_eq!((code, message.contains("[ERROR]")), (Some(0), !is_there_later), "{fault}: {message}");
        let left = fixture.left(left.ended, CollectionTermination::Exited, 0.0);
        let expected = if is_there_later { VerdictOk } else { LostRecords };
        assert_eq!(left.verdicts(), [expected; 3], "{fault}: {message}");
    }
    let left = fixture.collect("faults:\n- missing_output: {folder: false, second_export: false}\n");
    assert_eq!((left.ended, fixture.profile_folder()), (ExitKind::Exited(0), None));
    let output = format!("--output={}", fixture.own().join("profile").display());
    assert_eq!(fixture.program("msprof", &["--export=on", &output]).0, Some(255));
    // The parent of a whole profile is exported anew, and read once.
    let before = fixture.collect("{}");
    std::thread::sleep(Duration::from_millis(1_100));
    assert_eq!(fixture.program("msprof", &["--export=on", &output]).0, Some(0));
    let after = fixture.left(before.ended, CollectionTermination::Exited, 0.0);
    assert_eq!((after.verdicts(), after.launches(0)), (vec![VerdictOk; 3], before.launches(0)));
}

/// Process ids of `sleep` for so many seconds.
fn sleep_processes(seconds: f64) -> Vec<i32> {
    let wanted = format!("sleep\0{seconds:.6}\0");
    let entries = fs::read_dir("/proc").expect("Linux").filter_map(|entry| Some(entry.ok()?.path()));
    let is_one = |path: &PathBuf| fs::read_to_string(path.join("cmdline")).is_ok_and(|line| line == wanted);
    let pid = |path: PathBuf| path.file_name()?.to_str()?.parse().ok();
    entries.filter(is_one).filter_map(pid).collect()
}

#[test]
fn hang_blocks_the_process() {
    let fixture = CollectionFixture::new();
    let own = f64::from(std::process::id() % 10_000) / 1e4;
    for (number, (more, survivors)) in (1_u32..).zip([
        ("", 0),
        (", ignores_sigterm: true", 0),
        (", ignores_sigterm: true, grandchild: same_group", 0),
        (", grandchild: own_session", 1),
        (", grandchild: own_group", 1),
    ]) {
        // Every grandchild has a time of its own, by which it is found.
        let seconds = f64::from(100 + number) + own;
        let fault = format!("faults:\n- hang: {{seconds: {seconds}{more}}}\n  where: {{ordinal: 1}}\n");
        fixture.plan(&fault);
        let journal = fixture.own().join("launched.jsonl");
        let left = fixture.collect_until(|| {
            let is_reached = read_journal(&journal).lines.contains_key(&0)
                && (!more.contains("grandchild") || !sleep_processes(seconds).is_empty());
            std::thread::sleep(Duration::from_millis(if is_reached { 300 } else { 0 }));
            is_reached
        });
        assert_eq!((left.ended, left.verdicts()), (ExitKind::Stopped, vec![NotRun, Hung, NotRun]), "{more}");
        let mut found = sleep_processes(seconds);
        let deadline = Instant::now() + Duration::from_secs(10);
        while found.len() > survivors && Instant::now() < deadline {
            // What was killed takes a moment to go.
            std::thread::sleep(Duration::from_millis(20));
            found = sleep_processes(seconds);
        }
        for pid in &found {
            let pid = nix::unistd::Pid::from_raw(*pid);
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("it is there");
        }
        assert_eq!(found.len(), survivors, "{more}");
    }
}

#[test]
fn throttled_device_is_hot_and_its_kernels_are_slow() {
    let fixture = CollectionFixture::new();
    let cool = fixture.collect("{}");
    let hot =
        fixture.collect("faults:\n- throttling: {factor: 1.5, temperature: 101}\n  where: {devices: 0}\n");
    assert_eq!(hot.verdicts(), [Verdict::Throttled; 3]);
    for ((_, before), (_, after)) in cool.launches(0).into_iter().zip(hot.launches(0)) {
        // Each duration is rounded once, by up to 10 ns.
        let expected = before.seconds() * 1.5;
        assert!((after.seconds() - expected).abs() <= 25.5e-9, "{before:?} {after:?}");
    }
    // As many cycles as before, in a longer duration; the profiler computes the time of the cores from the cycles.
    let counters = |left: &CollectionResult| left.attempts[0].counters.clone();
    let cycles = |left: &CollectionResult| counters(left)[14].expect("a number");
    assert!((cycles(&hot) / cycles(&cool) - 1.0).abs() < 1e-3, "{} {}", cycles(&hot), cycles(&cool));
    let time = |left: &CollectionResult| counters(left)[13].expect("a number");
    assert!((time(&hot) / time(&cool) - 1.0).abs() < 1e-2, "{} {}", time(&hot), time(&cool));
    let chips = fixture.npu_smi().chips;
    assert_eq!(chips[0].temperature_c, Some(101));
    assert!(chips[1].temperature_c < Some(60));
}

#[test]
fn slow_device_takes_longer_with_equal_durations() {
    let fixture = CollectionFixture::new();
    let usual = fixture.collect("{}");
    let slow = fixture.collect("faults:\n- slow_device: {factor: 8}\n");
    assert_eq!(slow.verdicts(), [VerdictOk; 3]);
    let durations =
        |left: &CollectionResult| left.launches(2).into_iter().map(|launch| launch.1).collect::<Vec<_>>();
    assert_eq!(durations(&slow), durations(&usual));
    // The quicker of two, because other tests run meanwhile.
    let quick = usual.seconds.min(fixture.collect("{}").seconds);
    assert!(slow.seconds > 2.5 * quick, "{} {quick}", slow.seconds);
}

#[test]
fn lost_device_is_not_listed_and_cannot_be_used() {
    let fixture = CollectionFixture::new();
    let left = fixture.collect("faults:\n- device_lost:\n  where: {devices: [0, 4, 5]}\n");
    assert_eq!((left.verdicts(), left.journal.is_started), (vec![NotRun; 3], false));
    assert!(left.log.contains("c10_npu::SetDevice(device_id_), error code is 507033"), "{}", left.log);
    let devices: Vec<u32> = fixture.npu_smi().chips.iter().map(|chip| chip.physical_id).collect();
    assert_eq!(devices, [1, 2, 3, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    let list = fixture.program("npu-smi", &["info", "-l"]).1;
    assert!(list.contains(": 7\n") && !list.contains("NPU ID                         : 2\n"), "{list}");
}

#[test]
fn device_lost_during_a_case_crashes_that_case() {
    let fixture = CollectionFixture::new();
    let plan = "costs: {case: 2}\nfaults:\n- device_lost:\n  when: {from: 4}\n";
    let left = fixture.collect(plan);
    let verdicts = left.verdicts();
    let affected = verdicts.iter().position(|verdict| *verdict == Crashed).expect("one of them");
    assert!(left.reason(affected).contains("error code is 507033"), "{}", left.reason(affected));
    assert!(verdicts[..affected].iter().all(|v| *v == VerdictOk), "{verdicts:?}");
    assert!(verdicts[affected + 1..].iter().all(|v| *v != VerdictOk), "{verdicts:?}");
}

#[test]
fn leftover_process_occupies_the_device() {
    let fixture = CollectionFixture::new();
    for (holds, error) in [("memory", "NPU out of memory. Tried to allocate"), ("device", "EL0005")] {
        let fault = format!("leftover_process: {{holds: {holds}, pid: 4711, name: vllm}}");
        let left = fixture.collect(&format!("faults:\n- {fault}\n  where: {{devices: 0}}\n"));
        assert_eq!((left.verdicts(), left.journal.is_started), (vec![NotRun; 3], false), "{holds}");
        assert!(left.log.contains(error), "{}", left.log);
        let info = fixture.npu_smi();
        assert_eq!(info.processes.len(), 1);
        assert_eq!((info.processes[0].pid, info.processes[0].name.as_str()), (4711, "vllm"));
        assert!(info.chips[0].memory_used_mb > Some(60_000) && info.chips[1].memory_used_mb < Some(4_000));
    }
    let left = fixture.collect("faults:\n- leftover_process: {seconds: 0.001}\n");
    assert_eq!(left.verdicts(), [VerdictOk; 3], "it has gone");
    assert_eq!(fixture.npu_smi().processes, []);
    let left = fixture.collect("faults:\n- leftover_process: {free_mb: 1}\n");
    assert_eq!(left.verdicts(), [Oom; 3], "there is room for little");
    assert!(left.verdicts().iter().all(|verdict| *verdict != InvalidArgs));
}

#[test]
fn simulated_costs_are_divided_by_the_speed() {
    let fixture = CollectionFixture::new();
    let costs = "{start: 20, init: 10, case: 10, launch: 0.2, export: 15}";
    // 20 + 10 + 3 × 10 + 3 × 25 × 0.2 + 15 = 90 simulated seconds.
    let left = fixture.collect(&format!("speed: 100\ncosts: {costs}\n"));
    assert_eq!(left.verdicts(), [VerdictOk; 3]);
    assert!((0.9..45.0).contains(&left.seconds), "{} s, of which 0.9 are simulated", left.seconds);
}
