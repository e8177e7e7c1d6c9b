//! Disks that are full for a while: a run waits for space and ends in the bytes of an undisturbed run, and a command that
//! cannot write all of its tables reports which ones it wrote.
//!
//! The disk is a small tmpfs in a mount namespace of its own. `NPUBENCH_DISK_FILLS` raises the number of disturbed runs.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::prelude::*;
use crate::requirements;

/// Size of the disk in MiB: a run on the rehearsal host starts no collection with less than 34 MiB.
const DISK_MIB: u32 = 90;
const FILLER: &str = "filler";

/// A small file system, mounted on the folder `disk` of a context, visible only to the commands run here.
struct SmallDisk {
    context: Context,
    /// Process that keeps the mount namespace.
    holder: Child,
}

impl SmallDisk {
    /// Mounts the file system, or skips the test.
    #[track_caller]
    fn mounted(context: Context) -> Option<Self> {
        Self::mounted_with(context, DISK_MIB)
    }

    #[track_caller]
    fn mounted_with(context: Context, mib: u32) -> Option<Self> {
        let disk = context.path("disk");
        fs::create_dir(&disk).expect("created");
        let script = format!("mount -t tmpfs -o size={mib}m tmpfs \"$0\" && echo mounted && exec cat");
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", &script]).arg(&disk);
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let Ok(mut holder) = started else {
            requirements::skip("there is no program `unshare`");
            return None;
        };
        let mut line = String::new();
        let output = holder.stdout.take().expect("piped");
        let _ = BufReader::new(output).read_line(&mut line);
        let this = Self { context, holder };
        if line.trim() == "mounted" && this.command("true", &[]).status().is_ok_and(|status| status.success())
        {
            return Some(this);
        }
        requirements::skip("this user may not mount a tmpfs in a namespace of its own");
        None
    }

    /// A command in the folder of the disk.
    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &self.holder.id().to_string(), "--user", "--mount", "--preserve-credentials"])
            .args(["sh", "-c", "cd \"$0\" && exec \"$@\""])
            .arg(self.context.path("disk"))
            .arg(program)
            .args(arguments)
            .env("NO_COLOR", "1")
            .env("NPUBENCH_MAX_COLLECTIONS", "1")
            .env("NPUBENCH_LAUNCHES", "20")
            .env_remove("NPUBENCH_ASSETS");
        command
    }

    fn npubench(&self, arguments: &[&str]) -> Command {
        let program = assert_cmd::cargo::cargo_bin!("npubench");
        self.command(&program.to_string_lossy(), arguments)
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        self.context.ran(&self.npubench(arguments).output().expect("npubench runs"))
    }

    /// Path of a file of the disk for this process, which is not in the namespace.
    fn path(&self, name: &str) -> PathBuf {
        let disk = self.context.path("disk");
        let disk = disk.strip_prefix("/").expect("an absolute path");
        ["/proc", &self.holder.id().to_string(), "root"].iter().collect::<PathBuf>().join(disk).join(name)
    }

    /// Copies a folder of the context onto the disk.
    fn copy_in(&self, name: &str) {
        let source = self.context.path(name);
        assert!(self.command("cp", &["-a", &source.to_string_lossy(), "."]).status().expect("cp").success());
    }

    /// Replaces a folder of the context by that of the disk.
    fn copy_out(&self, name: &str) {
        let _ = fs::remove_dir_all(self.context.path(name));
        let target = self.context.path(".");
        assert!(self.command("cp", &["-a", name, &target.to_string_lossy()]).status().expect("cp").success());
    }

    /// Fills the disk but for some KiB.
    fn fill(&self, left_kib: u64) {
        let mut filler = File::create(self.path(FILLER)).expect("created");
        while filler.write_all(&[0; 4096]).is_ok() {}
        let length = filler.metadata().expect("there").len();
        filler.set_len(length.saturating_sub(left_kib << 10)).expect("shortened");
    }

    /// Starts a run and waits until it writes events: before that, a full disk is an error of the command.
    fn start_run(&self) -> Child {
        let mut command = self.npubench(&STEADY_RUN);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it runs");
        while self.events().is_none() {
            assert!(child.try_wait().expect("a status").is_none(), "the run ended before its start");
            thread::sleep(Duration::from_millis(2));
        }
        child
    }

    /// Returns the events of the only run; `None` before it has started.
    fn events(&self) -> Option<String> {
        let run = fs::read_dir(self.path("db/.npubench/runs")).ok()?.next()?.ok()?;
        fs::read_to_string(run.path().join("events.jsonl")).ok()
    }

    fn free(&self) {
        fs::remove_file(self.path(FILLER)).expect("removed");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// The n-th of a sequence that covers the interval from 0 to 1 evenly: multiples of the golden ratio.
fn fraction(n: u64) -> f64 {
    (f64::from(u32::try_from(n).expect("few")) * 0.618_033_988_75).fract()
}

fn undisturbed() -> (Vec<(String, String)>, Duration) {
    let context = Context::of_layer();
    let started = Instant::now();
    context.done(&STEADY_RUN);
    (tables(&context), started.elapsed())
}

/// Returns the exit code and standard error of a run.
fn ended(child: &mut Child) -> (i32, String) {
    let mut stderr = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut stderr).expect("UTF-8");
    (child.wait().expect("reaped").code().unwrap_or(-1), stderr)
}

#[test]
fn run_waits_for_disk_space_and_ends_in_the_same_rows() {
    let Some(first) = SmallDisk::mounted(Context::of_layer()) else { return };
    drop(first);
    let fills = std::env::var("NPUBENCH_DISK_FILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(2);
    let (expected, takes) = undisturbed();
    let mut waits = 0;
    for n in 0..fills {
        let Some(disk) = SmallDisk::mounted(Context::of_layer()) else { return };
        disk.copy_in("db");
        let mut child = disk.start_run();
        // Filled twice, the second time shortly after it was freed.
        for instant in [fraction(n), fraction(n + 7) / 2.0] {
            thread::sleep(takes.mul_f64(instant));
            disk.fill(0);
            thread::sleep(Duration::from_millis(500 + n % 3 * 700));
            disk.free();
        }
        let (code, stderr) = ended(&mut child);
        assert_eq!(code, 0, "fill {n}: {stderr}{}", disk.run(&["show", "--db", "db"]).stdout);
        disk.copy_out("db");
        let context = &disk.context;
        assert_eq!(tables(context), expected, "fill {n}");
        assert_eq!(processes_in(&context.path("disk")), Vec::<String>::new(), "fill {n}");
        let ledger = ledger(context).expect("it ran");
        assert_eq!(number(&ledger, "SELECT count(*) FROM collections WHERE ended_ns IS NULL"), 0);
        assert_eq!(number(&ledger, "SELECT count(*) FROM verdicts WHERE verdict <> 'ok'"), 0);
        let blamed = ["quarantined", "is paused"].iter().any(|blame| stderr.contains(blame));
        assert!(!blamed, "fill {n}: {stderr}");
        waits += u32::from(stderr.contains("waiting "));
    }
    assert!(waits > 0, "no run had to wait");
}

/// Removing other files would give it no space for a collection.
#[test]
fn run_on_too_small_a_disk_ends_at_its_start() {
    let Some(disk) = SmallDisk::mounted_with(Context::of_layer(), 20) else { return };
    disk.copy_in("db");
    let ran = disk.run(&[&STEADY_RUN[..], &["--budget", "10m"]].concat());
    assert_eq!(ran.code, 4, "{ran:?}");
    ran.err_has("has 20 MiB in all, a collection needs 34 MiB");
}

#[test]
fn status_shows_a_run_that_waits_for_space_and_ctrl_c_ends_it() {
    let (expected, _) = undisturbed();
    let Some(disk) = SmallDisk::mounted(Context::of_layer()) else { return };
    disk.copy_in("db");
    let mut child = disk.start_run();
    disk.fill(0);
    // Running collections may end, no other is started.
    let started = Instant::now();
    let status = loop {
        assert!(child.try_wait().expect("a status").is_none(), "the run did not wait");
        let ran = disk.run(&["status", "--db", "db"]);
        assert!(started.elapsed() < Duration::from_secs(300), "{}{}", ran.stdout, ran.stderr);
        if ran.code == 0 && ran.stdout.contains("waiting ") {
            break ran.stdout;
        }
        thread::sleep(Duration::from_millis(50));
    };
    let progress = status.lines().nth(1).expect("a line of the progress");
    assert!(!progress.contains(" at "), "{status}");
    // `nsenter` has been replaced by the program.
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("an id"));
    for _ in 0..2 {
        let _ = kill(pid, Signal::SIGINT);
        thread::sleep(Duration::from_millis(200));
    }
    let (code, stderr) = ended(&mut child);
    assert_eq!(code, 5, "{stderr}");
    disk.free();
    disk.run(&["resume", "--db", "db"]).ended(0);
    disk.copy_out("db");
    assert_eq!(tables(&disk.context), expected);
}
