//! Shards as jobs of a real Slurm with two nodes of eight devices on this machine.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

use crate::prelude::*;
use crate::requirements::skip;

/// A real Slurm; its processes end with it.
pub(crate) struct Slurm {
    tool: PathBuf,
    folder: PathBuf,
    configuration: String,
}

impl Slurm {
    /// Starts Slurm in a folder, or skips the test where Slurm cannot be installed.
    #[track_caller]
    pub(crate) fn start(folder: PathBuf) -> Option<Self> {
        /// The packages are installed by one test only.
        static STARTS: Mutex<()> = Mutex::new(());
        let tool = shared("tools/slurm_here.sh")?;
        let started = {
            let _guard = STARTS.lock().unwrap_or_else(PoisonError::into_inner);
            Command::new("bash").arg(&tool).arg("start").arg(&folder).output().expect("bash runs")
        };
        let output = String::from_utf8_lossy(&started.stdout).into_owned();
        let errors = String::from_utf8_lossy(&started.stderr).into_owned();
        if !started.status.success() && Command::new("sbatch").arg("--version").output().is_err() {
            skip(&format!("Slurm cannot be installed: {errors}"));
            return None;
        }
        assert!(started.status.success(), "{output}{errors}");
        let configuration = output.lines().find_map(|line| line.strip_prefix("SLURM_CONF="));
        let configuration = configuration.expect("a line").to_owned();
        Some(Self { tool, folder, configuration })
    }

    /// Lets a command use this Slurm.
    pub(crate) fn configure<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("SLURM_CONF", &self.configuration)
    }

    fn run(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(arguments[0]);
        let output = self.configure(command.args(&arguments[1..])).output().expect("Slurm's program runs");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// States and reasons of jobs, or of the tasks of arrays, by their number.
    fn jobs(&self, jobs: &str) -> BTreeMap<String, (String, String)> {
        let text = self.run(&[
            "squeue",
            "--noheader",
            "--array",
            "--states=all",
            "--jobs",
            jobs,
            "--format=%i|%T|%r",
        ]);
        let lines = text.lines().map(|line| line.trim().split('|').map(str::to_owned).collect::<Vec<_>>());
        lines.map(|line| (line[0].clone(), (line[1].clone(), line[2].clone()))).collect()
    }

    /// Waits until jobs have ended. Slurm starts a task again after 120 s, so that a late message about the end of its first step is not
    /// taken for one of the second; here it starts as soon as the first step has gone.
    pub(crate) fn wait_for_end(&self, jobs: &str) -> BTreeMap<String, (String, String)> {
        let mut last = BTreeMap::new();
        wait_until(120, &format!("jobs {jobs} have ended"), || {
            last = self.jobs(jobs);
            let waiting = last.iter().filter(|(_, (_, reason))| reason == "BeginTime");
            for (job, _) in waiting.filter(|(job, _)| !self.has_step(&self.field(job, "JobId="))) {
                self.run(&["scontrol", "update", &format!("JobId={job}"), "StartTime=now"]);
            }
            last.values().all(|(state, _)| {
                ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"].contains(&state.as_str())
            })
        });
        last
    }

    fn field(&self, job: &str, name: &str) -> String {
        let text = self.run(&["scontrol", "show", "job", job]);
        let mut fields = text.split_whitespace().filter_map(|field| field.strip_prefix(name));
        fields.next().expect("a field").to_owned()
    }

    /// Returns how often a task was started again.
    fn restarts(&self, task: &str) -> u32 {
        self.field(task, "Restarts=").parse().expect("a number")
    }

    fn processes(&self, variables: &[&str]) -> Vec<i32> {
        let own = format!("SLURM_CONF={}", self.configuration);
        let process = |entry: &Path| -> Option<i32> {
            let environment = fs::read(entry.join("environ")).ok()?;
            let found: Vec<&[u8]> = environment.split(|byte| *byte == 0).collect();
            let mut wanted = std::iter::once(own.as_str()).chain(variables.iter().copied());
            let is_wanted = wanted.all(|variable| found.contains(&variable.as_bytes()));
            if is_wanted { entry.file_name()?.to_str()?.parse().ok() } else { None }
        };
        let entries = fs::read_dir("/proc").expect("listed").flatten();
        entries.filter_map(|entry| process(&entry.path())).collect()
    }

    /// Returns true if Slurm's process for the batch script of a job is there: it listens at a socket in the folder of its node until it has
    /// reported the end. Its environment does not identify it, because its title overwrites a part of that.
    fn has_step(&self, job: &str) -> bool {
        let nodes = fs::read_dir(&self.folder).expect("listed").flatten();
        let nodes = nodes.filter(|entry| entry.file_name().to_string_lossy().starts_with("spool."));
        let files = nodes.flat_map(|node| fs::read_dir(node.path()).expect("listed").flatten());
        let mut sockets =
            files.filter(|file| file.file_name().to_string_lossy().contains(&format!("_{job}.")));
        // The socket of a killed one stays, and nothing listens there.
        sockets.any(|socket| UnixStream::connect(socket.path()).is_ok())
    }

    /// Kills the daemon of a node with everything that runs on it. The state of the node is set by hand: the
    /// controller sets it only after five minutes without an answer.
    fn lose_node(&self, node: &str) {
        let file = self.folder.join(format!("run/slurmd.{node}.pid"));
        let daemon: i32 = fs::read_to_string(file).expect("a number").trim().parse().expect("a number");
        let mut processes = self.processes(&[&format!("SLURMD_NODENAME={node}")]);
        assert!(processes.len() > 4, "nothing runs on {node}");
        let steps: Vec<i32> = processes.iter().filter_map(|process| step_of(*process)).collect();
        assert!(!steps.is_empty(), "no step on {node}");
        processes.splice(0..0, std::iter::once(daemon).chain(steps));
        for process in processes {
            let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
        }
        self.run(&["scontrol", "update", &format!("NodeName={node}"), "State=DOWN", "Reason=lost"]);
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        let _ = Command::new("bash").arg(&self.tool).arg("stop").arg(&self.folder).output();
        // Of jobs that a failed test has left.
        for process in self.processes(&[]) {
            let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
        }
    }
}

/// Returns the process of Slurm that has started a batch script.
fn step_of(process: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let parent: i32 = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
    let name = fs::read_to_string(format!("/proc/{parent}/comm")).ok()?;
    (name.trim() == "slurmstepd").then_some(parent)
}

fn wait_until(seconds: u64, what: &str, mut is_reached: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(seconds);
    while !is_reached() {
        assert!(Instant::now() < until, "not reached: {what}");
        thread::sleep(Duration::from_millis(100));
    }
}

/// A context whose commands use a real Slurm.
struct Site {
    slurm: Slurm,
    context: Context,
}

impl Site {
    fn start() -> Option<Self> {
        let context = Context::of_layer();
        let slurm = Slurm::start(context.path("slurm"))?;
        Some(Self { slurm, context })
    }

    fn output(&self, arguments: &(impl Words + ?Sized)) -> Output {
        let mut command = self.context.command(arguments);
        self.slurm.configure(&mut command).output().expect("npubench runs")
    }

    fn run(&self, arguments: &(impl Words + ?Sized)) -> Ran {
        self.context.ran(&self.output(arguments))
    }

    /// Submits shards of a database with options of the rehearsal host; returns the numbers of the array and of the merge, and the
    /// submitted shards.
    fn submit(&self, db: &str, options: &str, plan: &str) -> (String, String, Vec<u64>) {
        let end = if options.contains(" -- ") { "" } else { "--" };
        let run = ("--host rehearsal --rehearsal-model steady --rehearsal-faults", [plan]);
        let ran =
            self.run(&(["slurm", "submit", "--db", db, "--format", "json"], options, end, run)).ended(0);
        let submitted: Value = serde_json::from_str(&ran.stdout).expect("JSON");
        let text = |name: &str| submitted[name].text().to_owned();
        let shards = submitted["shards"].list().iter();
        let merge = submitted["merge_job"].as_str().unwrap_or_default().to_owned();
        (text("job"), merge, shards.map(crate::context::Json::whole).collect())
    }

    /// Returns the states of the shards by `npubench slurm status`, and its exit code.
    fn states(&self, db: &str) -> (Vec<String>, i32) {
        let ran = self.run(&["slurm", "status", "--db", db, "--format", "json"]);
        let lines = ran.stdout.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let shards: Vec<Value> = lines.filter(|line| line["shard"].is_u64()).collect();
        let states = shards.iter().map(|shard| shard["state"].text().to_owned());
        (states.collect(), ran.code)
    }

    /// Folder of the shards of a database.
    fn plan_folder(&self, db: &str) -> PathBuf {
        let shards = fs::read_dir(self.context.path(db).join(".npubench/shards")).expect("listed");
        let mut folders = shards.map(|entry| entry.expect("listed").path()).filter(|path| path.is_dir());
        folders.next().expect("a plan")
    }

    fn wait_for_collections(&self, db: &str, shards: &[u64], runs: i64) {
        let folder = self.plan_folder(db);
        let sql = "SELECT count(DISTINCT run) FROM collections";
        wait_until(60, &format!("shards {shards:?} measure"), || {
            shards.iter().all(|shard| {
                let path = folder.join(format!("{shard}/.npubench/ledger.db"));
                let ledger = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY);
                let count = |ledger: Connection| ledger.query_row(sql, [], |row| row.get::<_, i64>(0));
                ledger.and_then(count).is_ok_and(|count| count >= runs)
            })
        });
    }

    /// What Slurm and the job have written about a task.
    fn story(&self, db: &str, task: &str) -> String {
        let controller = fs::read_to_string(self.slurm.folder.join("log/slurmctld.log")).unwrap_or_default();
        let lines = controller.lines().filter(|line| line.contains(&format!("JobId={task}")));
        let controller: Vec<&str> = lines.collect();
        let log = self.log(db, &format!("{}.log", task.split_once('_').map_or("", |(_, number)| number)));
        let job = self.slurm.run(&["scontrol", "show", "job", task]);
        format!("{job}{}\n{log}", controller.join("\n"))
    }

    fn log(&self, db: &str, name: &str) -> String {
        fs::read_to_string(self.plan_folder(db).join("logs").join(name)).unwrap_or_default()
    }
}

fn tables_without_shards(context: &Context, count: usize) -> Vec<(String, String)> {
    let text = |text: String| {
        (1..=count).fold(text, |text, number| text.replace(&format!("RUNshard-{number}-of-{count}"), "RUN"))
    };
    tables(context).into_iter().map(|(name, table)| (name, text(table))).collect()
}

/// Copies a database without results.
fn copy_tables(context: &Context, from: &str, into: &str) {
    fs::create_dir(context.path(into)).expect("created");
    for (path, content) in context.snapshot(from) {
        let name = path.strip_prefix(from).expect("below");
        if name.components().count() == 1 {
            fs::write(context.path(into).join(name), content).expect("written");
        }
    }
}

#[test]
fn array_of_shards_survives_a_lost_node_requeues_cancellation_and_the_time_limit() {
    let Some(site) = Site::start() else { return };
    let (slurm, context) = (&site.slurm, &site.context);
    copy_tables(context, "db", "single");
    copy_tables(context, "db", "late");
    context.write("plan.yaml", "costs: {start: 5}\n");
    // Slurm looks at time limits every 30 s; three collections take longer.
    context.write("slow.yaml", "costs: {start: 10}\n");
    site.run("shard --db late --kernels SwiGlu,Mul --shards 1 --devices 0").ended(0);
    let thrice = "--gres npu:1 --grace 1s -- --max-collections 3 --precision 0.1";
    let (late, late_merge, _) = site.submit("late", thrice, "slow.yaml");
    let options = "--gres npu:1 --partition atlas --time 8:00:00 --grace 60s";
    let (job, merge, shards) = site.submit("db", &format!("{options} --shards 12"), "plan.yaml");
    assert_eq!(shards, (1..=12).collect::<Vec<_>>());
    // Node 1 has a device for `late`, and for the first seven tasks.
    site.wait_for_collections("late", &[1], 1);
    slurm.run(&["scontrol", "update", &format!("JobId={late}_1"), "EndTime=now+1"]);
    site.wait_for_collections("db", &[3], 1);
    slurm.run(&["scancel", &format!("{job}_3")]);
    site.wait_for_collections("db", &[1], 1);
    let first = format!("{job}_1");
    assert!(slurm.has_step(&slurm.field(&first, "JobId=")), "the step of a running task is seen");
    slurm.run(&["scontrol", "requeue", &first]);
    site.wait_for_collections("db", &[8, 12], 1);
    slurm.lose_node("node2");
    let refused = site.run("slurm submit --db db --gres npu:1 -- --host rehearsal").ended(3);
    refused.err_has(&format!("job {job} of this plan is still in the queue"));
    let ended = slurm.wait_for_end(&job);
    for (task, (state, _)) in &ended {
        let expected = if *task == format!("{job}_3") { "CANCELLED" } else { "COMPLETED" };
        assert_eq!(state, expected, "{}", site.story("db", task));
    }
    for (task, restarts) in [(1, 1), (2, 0), (8, 1), (12, 1)] {
        assert_eq!(slurm.restarts(&format!("{job}_{task}")), restarts, "task {task}");
    }
    slurm.wait_for_end(&merge);
    let (states, code) = site.states("db");
    assert_eq!(code, 1, "a shard is left: {states:?}\n{}", site.log("db", "3.log"));
    assert!(
        states.iter().enumerate().all(|(at, state)| state == if at == 2 { "cancelled" } else { "complete" }),
        "{states:?}"
    );
    assert!(site.log("db", "merge.log").contains("from 12 ledgers"), "{}", site.log("db", "merge.log"));
    // The cases of the cancelled task are left, although Slurm has ended its collection, too.
    let (job, merge, shards) = site.submit("db", "--gres npu:1", "plan.yaml");
    assert_eq!(shards, [3]);
    slurm.wait_for_end(&format!("{job},{merge}"));
    assert_eq!(site.states("db"), (vec!["complete".to_owned(); 12], 0));
    let ledger = Connection::open(context.path("db/.npubench/ledger.db")).expect("a ledger");
    let cases = number(&ledger, "SELECT count(DISTINCT case_id) FROM planned");
    assert_eq!(cases, 20);
    let verdicts = "SELECT count(*) FROM verdicts WHERE verdict";
    assert_eq!(number(&ledger, &format!("{verdicts} = 'ok'")), cases, "each case has one verdict");
    assert_eq!(number(&ledger, &format!("{verdicts} NOT IN ('ok', 'not_run')")), 0);
    let measured = "SELECT count(*) FROM attempts WHERE verdict = 'ok'";
    assert_eq!(number(&ledger, measured), cases, "no case was measured twice");
    let merged = tables_without_shards(context, 12);
    // The same plan on one host.
    let mut single = STEADY_RUN.to_vec();
    single[2] = "single";
    site.run(&single).ended(0);
    let set_database =
        |from: &str, into: &str| fs::rename(context.path(from), context.path(into)).expect("renamed");
    set_database("db", "merged");
    set_database("single", "db");
    assert_eq!(merged, tables_without_shards(context, 1), "rows of one host");
    // The time limit has ended all programs of the other array, and its task has queued itself again.
    let ended = slurm.wait_for_end(&format!("{late},{late_merge}"));
    let log = site.log("late", "1.log");
    assert!(ended.values().all(|(state, _)| state == "COMPLETED"), "{ended:?}\n{log}");
    assert_eq!(slurm.restarts(&format!("{late}_1")), 1, "{log}");
    assert!(log.contains("DUE TO TIME LIMIT") && log.contains("shard 1/1 continues run"), "{log}");
    assert_eq!(site.states("late"), (vec!["complete".to_owned()], 0));
    let ledger = Connection::open(context.path("late/.npubench/ledger.db")).expect("a ledger");
    let cases = number(&ledger, "SELECT count(DISTINCT case_id) FROM planned");
    assert!(cases > 1);
    assert_eq!(number(&ledger, &format!("{verdicts} = 'ok'")), cases);
    assert_eq!(number(&ledger, measured), 3 * cases, "each case has three collections, as demanded");
    assert_eq!(number(&ledger, &format!("{verdicts} NOT IN ('ok', 'not_run')")), 0);
}

#[test]
fn refused_jobs_change_nothing_and_cancelled_ones_keep_their_results() {
    let Some(site) = Site::start() else { return };
    let context = &site.context;
    let files = || {
        let mut files = context.snapshot("db");
        files.retain(|path, _| !path.ends_with(".npubench/lock"));
        files
    };
    let refused = |ran: Ran, code: i32, expected: &[&str]| {
        assert_eq!(ran.code, code, "{}{}", ran.stdout, ran.stderr);
        for text in expected {
            ran.err_has(text);
        }
        ran.err_has("hint: ");
    };
    let before = files();
    let submit = |options: &str, run: &str| {
        site.run(&("slurm submit --db db --shards 4", options, "-- --host rehearsal", run))
    };
    let nowhere = ["invalid partition specified: nope", "`sinfo -o '%P %G'` lists the partitions"];
    refused(submit("--gres npu:1 --partition nope", ""), 3, &nowhere);
    refused(submit("--gres gpu:1", ""), 3, &["generic resource", "sinfo -o '%P %G'"]);
    refused(submit("--gres npu:9", ""), 3, &["node configuration is not available"]);
    refused(submit("--gres npu:1 --time soon", ""), 3, &["--time"]);
    refused(submit("", ""), 2, &["the devices of the jobs are not given", "--gres npu:8"]);
    refused(submit("--gres npu:1", "--devices 0"), 2, &["options of `npubench run`", "--devices"]);
    refused(submit("--gres npu:1", "--hots npu"), 2, &["options of `npubench run`", "--hots"]);
    let ran = site.run("slurm submit --db db --shards 4 --gres npu:1");
    refused(ran, 3, &["of kind `rehearsal`, this needs kind `npu`"]);
    let ran = site.run("slurm submit --db db --gres npu:1 -- --host rehearsal");
    refused(ran, 3, &["has no shards", "--shards N"]);
    for command in ["status", "cancel"] {
        refused(site.run(&["slurm", command, "--db", "db"]), 3, &["has no shards", "npubench slurm submit"]);
    }
    refused(site.run("slurm devices"), 3, &["is not part of a job of Slurm"]);
    let warning = "warning: this host has no program `/nowhere/npubench`, and jobs fail on nodes without it: `srun --nodes=1 \
                   /nowhere/npubench --version`";
    let elsewhere = submit("--gres npu:1 --dry-run --npubench /nowhere/npubench", "");
    assert!(elsewhere.code == 0 && elsewhere.stderr.contains(warning), "{elsewhere:?}");
    let dry = submit("--gres npu:1 --dry-run", "");
    dry.err_lacks("warning");
    assert!(dry.code == 0 && dry.stdout.contains("#SBATCH --array=1-4\n"), "{dry:?}");
    dry.out_has("db merge ROOT/db --shards");
    assert!(files() == before, "the database was changed");
    assert_eq!(site.slurm.run(&["squeue", "--noheader"]), "", "a job was submitted");

    // A template of the site with an option of its own.
    let template = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/templates/slurm_array.sh.hbs"));
    let template = template
        .expect("text")
        .replace("#SBATCH --ntasks=1\n", "#SBATCH --ntasks=1\n#SBATCH --comment=site\n");
    context.write("site/templates/slurm_array.sh.hbs", &template);
    context.write("plan.yaml", "costs: {start: 2}\n");
    let options = "--shards 4 --gres npu:1 --max-running 2 --assets site";
    let (job, merge, _) = site.submit("db", options, "plan.yaml");
    site.wait_for_collections("db", &[1, 2], 1);
    let shown = site.slurm.run(&["scontrol", "show", "job", &format!("{job}_1")]);
    assert!(shown.contains("Comment=site"), "{shown}");
    let (states, code) = site.states("db");
    assert_eq!((states, code), (["running", "running", "pending", "pending"].map(str::to_owned).to_vec(), 0));
    let ran = site.run("slurm cancel --db db");
    assert!(ran.code == 0 && ran.stderr.contains("ends after its running collections"), "{ran:?}");
    site.slurm.wait_for_end(&format!("{job},{merge}"));
    let (states, code) = site.states("db");
    assert_eq!((&states[2..], code), (&["not started".to_owned(), "not started".to_owned()][..], 1));
    let ledger = Connection::open(context.path("db/.npubench/ledger.db")).expect("a ledger");
    let attempts = number(&ledger, "SELECT count(*) FROM attempts");
    assert!(attempts >= 2, "running collections ended first");
    assert_eq!(number(&ledger, "SELECT count(*) FROM attempts WHERE verdict <> 'ok'"), 0);
}

#[test]
fn shards_are_not_submitted_without_slurm() {
    let context = Context::of_layer();
    let before = context.snapshot("db");
    let empty = context.path("empty");
    fs::create_dir(&empty).expect("created");
    let run = |options: &str| {
        let submit = "slurm submit --db db --shards 3 --gres npu:2";
        let mut command = context.command(&(submit, options, "-- --host rehearsal"));
        context.ran(&command.env("PATH", &empty).output().expect("npubench runs"))
    };
    let ran = run("").ended(4);
    ran.err_has("the program `sbatch` of Slurm was not found");
    ran.err_has("hint: run the command on a host of the cluster");
    // The scripts can be rendered anywhere.
    let ran = run("--dry-run");
    assert!(ran.code == 0 && ran.stdout.contains("#SBATCH --gres=npu:2"), "{ran:?}");
    let mut after = context.snapshot("db");
    after.retain(|path, _| !path.ends_with(".npubench/lock"));
    assert!(after == before, "the database was changed");
}

/// A stand-in for `npubench` that ends with 5 at SIGTERM, as an interrupted run, and sends signals to the shell by itself.
const INTERRUPTED_RUN: &str = r#"#!/bin/sh
[ "$1" = run ] || { echo 0; exit; }
trap 'exit 5' TERM
for signal in $SIGNALS; do kill -"$signal" "$PPID"; done
while :; do sleep 0.05; done
"#;

/// A stand-in for `scontrol` that writes its arguments to a file. The number of the last task is that of the array, of which
/// another task has reached its limit.
const SCONTROL: &str = r#"#!/bin/sh
echo "$*" >> "$CALLS"
case "$*" in
"show job 6_2") echo "JobState=COMPLETING Reason=$REASON" ;;
show*) echo "JobState=COMPLETING Reason=TimeLimit" ;;
esac
"#;

/// Slurm sends the warning of the time limit and its SIGTERM together if the limit is noticed late.
#[test]
fn tasks_queue_themselves_again_at_the_time_limit_alone() {
    let context = Context::of_layer();
    let bin = context.path("bin");
    fs::create_dir(&bin).expect("a folder");
    for (name, script) in [("npubench", INTERRUPTED_RUN), ("scontrol", SCONTROL)] {
        fs::write(bin.join(name), script).expect("written");
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).expect("executable");
    }
    let program = bin.join("npubench");
    let program = program.to_str().expect("text");
    let submit = [
        "slurm",
        "submit",
        "--db",
        "db",
        "--shards",
        "2",
        "--gres",
        "npu:1",
        "--npubench",
        program,
        "--dry-run",
    ];
    let ran = context.command(&[&submit[..], &["--", "--host", "rehearsal"]].concat()).output();
    let ran = ran.expect("npubench runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let scripts = String::from_utf8(ran.stdout).expect("text");
    let array = scripts.split("#!/bin/sh").nth(1).expect("the script of the array");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").expect("a path"));
    for (signals, reason, is_queued) in [
        ("USR1", "None", true),
        ("TERM USR1", "TimeLimit", true),
        ("TERM", "TimeLimit", true),
        ("TERM", "None", false),
        ("USR2", "None", false),
        ("USR2 USR1", "None", false),
    ] {
        let calls = context.path("calls");
        let _ = fs::remove_file(&calls);
        let mut shell = Command::new("sh");
        shell.args(["-c", array]).env("PATH", &path).env("SIGNALS", signals).env("REASON", reason);
        shell.env("CALLS", &calls).env("SLURM_JOB_ID", "7");
        shell.env("SLURM_ARRAY_JOB_ID", "6").env("SLURM_ARRAY_TASK_ID", "2");
        let status = shell.status().expect("sh");
        assert_eq!(status.code(), Some(5), "{signals} {reason}");
        let calls = fs::read_to_string(&calls).unwrap_or_default();
        assert_eq!(calls.lines().any(|call| call == "requeue 6_2"), is_queued, "{signals} {reason}: {calls}");
    }
}
