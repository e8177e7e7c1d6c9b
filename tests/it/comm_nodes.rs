//! `npubench comm run` over several nodes: two processes of this machine with different host names and clocks.

use std::{
    collections::BTreeMap,
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{self, Child, Command, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::prelude::*;
use crate::{
    comm_run::{SWEEP, modelled},
    slurm::Slurm,
};

/// Options of all nodes behind those of a sweep of one host.
const NODES: [&str; 5] = ["0-1", "--master-addr", "127.0.0.1", "--nnodes", "2"];

/// Two ranks on node 0, one on node 1.
const SMALL: [&str; 8] = ["--ranks", "3", "--tiers", "0", "--ops", "all_reduce", "--sizes", "1K,4K,64K"];

/// Two nodes with a folder and ports of their own.
struct Nodes {
    context: Context,
    port: u16,
    /// The secret of each node; they meet in a folder without one.
    secrets: Option<[&'static str; 2]>,
}

const SECRET: &str = "a secret of all nodes";

/// Returns a port that is free together with the following one. No outgoing connection takes one of them before it is
/// used: they are below the range from which Linux chooses (`ip_local_port_range`, from 32768).
fn free_ports() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let place = process::id() % 100 * 200 + u32::from(NEXT.fetch_add(2, Ordering::Relaxed) % 200);
        let port = 12_000 + u16::try_from(place).expect("below 20,000");
        if (port..port + 2).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return port;
        }
    }
}

impl Nodes {
    fn new() -> Self {
        let nodes = Self { context: Context::new(), port: free_ports(), secrets: None };
        fs::create_dir(nodes.context.path("shared")).expect("created");
        for (node, clock) in [(0, 0.0), (1, -3.5)] {
            nodes.set_faults(node, clock, "");
            fs::create_dir(nodes.context.path(&format!("tmp{node}"))).expect("created");
        }
        nodes
    }

    fn with_secret() -> Self {
        Self { secrets: Some([SECRET; 2]), ..Self::new() }
    }

    fn set_faults(&self, node: usize, clock: f64, faults: &str) {
        let text = format!("host: {{name: host-{node}, clock_ahead: {clock}}}\n{faults}");
        self.context.write(&format!("node{node}.yaml"), &text);
    }

    fn command(&self, node: usize, more: &(impl Words + ?Sized)) -> Command {
        let more = more.words();
        let is_replaced = |option: &&[&str]| more.contains(&option[0]);
        let sweep = (SWEEP, NODES).words();
        let options = sweep[2..].chunks(2).filter(|option| !is_replaced(option)).flatten().copied();
        let arguments: Vec<&str> = sweep[..2].iter().copied().chain(options).collect();
        let mut command = self.context.command(&(&arguments, &more));
        let faults = self.context.path(&format!("node{node}.yaml"));
        command
            .args(["--node-rank", &node.to_string(), "--master-port", &self.port.to_string()])
            .arg("--rehearsal-faults")
            .arg(faults)
            // Processes of a collection work below it.
            .env("TMPDIR", self.context.path(&format!("tmp{node}")));
        match self.secrets {
            Some(secrets) => command.env("NPUBENCH_SECRET", secrets[node]),
            None => command.arg("--shared").arg(self.context.path("shared")),
        };
        if !more.contains(&"--node-timeout") {
            command.args(["--node-timeout", "30"]);
        }
        command
    }

    fn start(&self, mut command: Command) -> Child {
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs")
    }

    /// Runs node 0 and node 1 to their ends.
    fn run_both(&self, commands: [Command; 2]) -> [Ran; 2] {
        let started = commands.map(|command| self.start(command));
        started.map(|child| self.context.finish(child))
    }

    fn sweep(&self, more: &(impl Words + ?Sized)) -> [Ran; 2] {
        self.run_both([self.command(0, more), self.command(1, more)])
    }

    /// Rows of a table with their keys; asserts that their durations are those of the rehearsal host's model,
    /// although the clocks of the hosts differ by seconds.
    fn rows(&self, table: &str) -> Vec<String> {
        if !self.context.path(&format!("db/{table}.csv")).exists() {
            return Vec::new();
        }
        let shown = |row: BTreeMap<String, String>| {
            let [size, duration]: [f64; 2] = ["Bandwidth Size(bytes)", "Duration(us)"]
                .map(|column| row[column].parse().expect("a number"));
            let expected = modelled(size as u64);
            assert!((duration / expected - 1.0).abs() < 0.02, "{duration}, not {expected}");
            let column = |name: &str| row[name].clone();
            let key = ["num_devices", "topology_tier", "message_bytes", "Result Check", "Duration Method"]
                .map(column);
            format!("{} ranks, tier {}, {} bytes: {}, {}", key[0], key[1], key[2], key[3], key[4])
        };
        self.context.rows("db", table).into_iter().map(shown).collect()
    }

    /// Waits until a collection has started its ranks on node 1; returns the journal of its first rank.
    fn wait_for_ranks(&self) -> PathBuf {
        wait_for_file(&self.context.path("tmp1"), "launched.2.jsonl")
    }

    /// Asserts that no process of the sweep is left; the kernel ends killed ones shortly after.
    fn assert_no_process(&self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let left = processes_in(&self.context.path("."));
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "processes {left:?} are left");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn wait_for_file(folder: &Path, name: &str) -> PathBuf {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = find_file(folder, name) {
            return found;
        }
        assert!(Instant::now() < deadline, "no file {name} in {}", folder.display());
        thread::sleep(Duration::from_millis(5));
    }
}

fn find_file(folder: &Path, name: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.into_iter().find_map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => find_file(&entry.path(), name),
        _ => (entry.file_name() == name).then(|| entry.path()),
    })
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(child.id()).expect("an id")), signal).expect("sent");
}

#[test]
fn sweep_over_two_nodes_is_measured_and_repeated_without_a_new_row() {
    let nodes = Nodes::new();
    let all = ["--ranks", "2,3", "--ops", "all_reduce,all_gather", "--sizes", "1K,64K"];
    let [first, second] = nodes.sweep(&all);
    assert_eq!((first.code, second.code), (0, 0), "{}{}", first.stderr, second.stderr);
    second.err_has("node 1 (host-1) takes part");
    assert_eq!(
        fs::read_dir(nodes.context.path("shared")).expect("listed").count(),
        0,
        "the session is removed"
    );
    assert_eq!(nodes.rows("hcom_allGather_").len(), 6);
    // Groups of one node are measured by the same command.
    assert_eq!(
        nodes.rows("hcom_allReduce_"),
        [
            "2 ranks, tier 0, 1024 bytes: ok, shortest rank",
            "2 ranks, tier 0, 65536 bytes: ok, shortest rank",
            "2 ranks, tier 2, 1024 bytes: ok, last end - last start",
            "2 ranks, tier 2, 65536 bytes: ok, last end - last start",
            "3 ranks, tier 0, 1024 bytes: ok, shortest rank",
            "3 ranks, tier 0, 65536 bytes: ok, shortest rank",
        ]
    );
    let case = nodes.context.rows("db", "hcom_allReduce_")[0]["MicroBench Case"].clone();
    let why = nodes.context.run(&["why", &case, "--db", "db"]);
    why.out_has("the time is of the shortest rank");
    let again = "--update all --shared DIR --nnodes 2 --node-rank 0 --master-addr host-0 # on host-0, and on each other node";
    why.out_has(again);
    let before = tables(&nodes.context);
    nodes.context.exits(0, "reparse --db db");
    let [again, follower] = nodes.sweep(&all);
    assert_eq!((again.code, follower.code), (0, 0), "{}{}", again.stderr, follower.stderr);
    again.err_has("12 already measured");
    assert_eq!(tables(&nodes.context), before);
    nodes.assert_no_process();
}

#[test]
fn nodes_that_differ_end_before_the_first_launch_with_both_values() {
    let nodes = Nodes::with_secret();
    let python = nodes.context.write("python", "#!/bin/sh\necho no torch here\nexit 1\n");
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).expect("set");
    let python = python.to_string_lossy();
    let template = concat!(env!("CARGO_MANIFEST_DIR"), "/templates/collect.sh.hbs");
    let template = fs::read_to_string(template).expect("text") + "# changed\n";
    fs::create_dir_all(nodes.context.path("assets/templates")).expect("created");
    nodes.context.write("assets/templates/collect.sh.hbs", &template);
    let assets = nodes.context.path("assets");
    let assets = assets.to_string_lossy();
    let mut variable = nodes.command(1, &SMALL);
    variable.env("HCCL_ALGO", "level0:ring");
    let software = "software: {cann: 9.9}\n";
    let other_size = [&SMALL[..6], &["--sizes", "1K"]].concat();
    let other_device = [&SMALL[..], &["--devices", "0-2"]].concat();
    for (follower, expected) in [
        (variable, "HCCL variables: none on node 0 (host-0), `HCCL_ALGO=level0:ring` on node 1 (host-1)"),
        (
            nodes.command(1, &other_size),
            "sizes: `1024, 4096, 65536` on node 0 (host-0), `1024` on node 1 (host-1)",
        ),
        (nodes.command(1, &(SMALL, "--warm-up 3")), "warm-up: `2` on node 0 (host-0), `3`"),
        (
            nodes.command(1, &other_device),
            "number of devices: `2` on node 0 (host-0), `3` on node 1 (host-1)",
        ),
        (nodes.command(1, &(SMALL, "--nnodes 3")), "number of nodes is 2 on node 0 (host-0) and 3"),
        (nodes.command(1, &(SMALL, &["--assets", &assets])), "templates of scripts by digest: `"),
        (
            nodes.command(1, &(SMALL, &["--backend", "gloo", "--python", &python])),
            "node 1 (host-1) cannot take part: ",
        ),
        (nodes.command(1, &(SMALL, "--devices 0-99")), "node 1 (host-1) cannot take part: "),
    ] {
        let [first, second] = nodes.run_both([nodes.command(0, &SMALL), follower]);
        // A node without torch cannot measure.
        let codes = if second.stderr.contains("no torch here") { (3, 4) } else { (3, 3) };
        assert_eq!((first.code, second.code), codes, "{expected}: {}{}", first.stderr, second.stderr);
        first.err_has(expected);
        if !expected.ends_with("take part: ") {
            second.err_has(expected);
        }
    }
    nodes.set_faults(1, 0.0, software);
    let [first, second] = nodes.sweep(&SMALL);
    assert!(first.code == 3 && first.stderr.contains("CANN: `"), "{}", first.stderr);
    first.err_has("`9.9` on node 1 (host-1)");
    let hint =
        "hint: start the same command, with the same options and variables of HCCL, on hosts with the same";
    assert!(first.stderr.contains(hint) && second.stderr.contains(hint), "{}{}", first.stderr, second.stderr);
    assert!(!nodes.context.path("db").exists(), "a refused sweep leaves no database");
}

#[test]
fn ports_in_use_and_missing_nodes_are_errors_before_the_first_launch() {
    let mut nodes = Nodes::with_secret();
    for port in [nodes.port, nodes.port + 1] {
        let taken = TcpListener::bind(("127.0.0.1", port)).expect("a port");
        let ran = nodes.context.ran(&nodes.command(0, &SMALL).output().expect("it runs")).ended(3);
        let expected = format!("port {port} of 127.0.0.1 cannot be opened: another program uses it");
        assert!(ran.stderr.contains(&expected) && ran.stderr.contains("--master-port"), "{}", ran.stderr);
        assert!(!nodes.context.path("db").exists());
        drop(taken);
    }
    let short = [&SMALL[..], &["--node-timeout", "1"]].concat();
    let at = format!("at 127.0.0.1 port {}", nodes.port + 1);
    for (secrets, leader_place, lost) in [
        (nodes.secrets, &*at, format!("node 0 {at} is not reachable within 1 s")),
        (
            None,
            "in the folder `ROOT/shared`",
            "node 0 did not begin a sweep in `ROOT/shared` within 1 s".to_owned(),
        ),
    ] {
        nodes.secrets = secrets;
        let [leader, follower] = [0, 1].map(|node| {
            // One after the other: each misses the other.
            nodes.context.ran(&nodes.command(node, &short).output().expect("it runs"))
        });
        assert_eq!((leader.code, follower.code), (4, 4), "{}{}", leader.stderr, follower.stderr);
        leader.err_has(&format!("node 1 did not connect {leader_place} within 1 s"));
        follower.err_has(&lost);
    }
    nodes.secrets = Some([SECRET, "another secret of a node"]);
    let waiting = [&SMALL[..], &["--node-timeout", "3"]].concat();
    let [leader, follower] = nodes.sweep(&waiting);
    assert_eq!((leader.code, follower.code), (4, 3), "{}{}", leader.stderr, follower.stderr);
    leader.err_has("127.0.0.1 connected without the secret of this sweep and was refused");
    follower.err_has(&format!("node 0 {at} has another secret than this node"));
    let none = nodes
        .context
        .ran(&nodes.context.command(&(SWEEP, NODES, SMALL, "--node-rank 0")).output().expect("it runs"))
        .ended(2);
    assert!(none.stderr.contains("--shared") && none.stderr.contains("NPUBENCH_SECRET"), "{}", none.stderr);
    let beyond = nodes.context.command(&(SWEEP, NODES, SMALL, "--node-rank 7")).output();
    let ran = nodes.context.ran(&beyond.expect("it runs"));
    assert!(ran.code == 2 && ran.stderr.contains("expected 0 to 1"), "{}", ran.stderr);
}

#[test]
fn rank_of_another_node_that_dies_costs_one_size() {
    let nodes = Nodes::new();
    let fault = "faults:\n  - crash: {launch: 3}\n    where: {kernel: hcom_allReduce_, shapes: '2048'}\n";
    nodes.set_faults(1, 7.25, fault);
    let [first, second] = nodes.sweep(&SMALL);
    assert_eq!((first.code, second.code), (1, 1), "{}{}", first.stderr, second.stderr);
    let rows = nodes.rows("hcom_allReduce_");
    assert!(rows.len() == 2 && !rows.iter().any(|row| row.contains("4096")), "{rows:?}");
    first.err_has("on host-1: failed (exitcode: ");
    nodes.assert_no_process();
}

#[test]
fn killed_nodes_and_stopped_sweeps_are_continued_by_the_same_command() {
    for (node, number) in [(1, Signal::SIGKILL), (0, Signal::SIGKILL), (0, Signal::SIGINT)] {
        // A closed connection shows a killed node at once, a folder after minutes.
        let nodes = if number == Signal::SIGKILL { Nodes::with_secret() } else { Nodes::new() };
        // A second in which the collection can be disturbed.
        nodes.set_faults(0, 0.0, "costs: {init: 1.0}\n");
        let started = [0, 1].map(|node| nodes.start(nodes.command(node, &SMALL)));
        nodes.wait_for_ranks();
        signal(&started[node], number);
        if number == Signal::SIGINT {
            // Once more ends the running collection as well.
            thread::sleep(Duration::from_millis(150));
            signal(&started[node], number);
        }
        let ran = started.map(|child| nodes.context.finish(child));
        let killed = |of: usize| number == Signal::SIGKILL && node == of;
        let codes = [0, 1].map(|of| if killed(of) { -1 } else { 5 });
        assert_eq!([ran[0].code, ran[1].code], codes, "{}{}", ran[0].stderr, ran[1].stderr);
        if !killed(0) {
            ran[0].err_has("the same command on all nodes measures what is missing");
        }
        if number == Signal::SIGKILL {
            assert!(ran[1 - node].stderr.contains("was lost: "), "{ran:?}");
        }
        if !killed(0) {
            nodes.assert_no_process();
        }
        let resumed = nodes.context.run("resume --db db");
        let given = nodes.command(0, &SMALL);
        let given: Vec<_> = given.get_args().map(|argument| argument.to_string_lossy()).collect();
        let root = nodes.context.path("node0.yaml");
        let root = root.parent().expect("a folder").to_string_lossy();
        let given = given.join(" ").replace(&*root, "ROOT");
        let command = format!("it measures what is missing: npubench {given}");
        assert_eq!(resumed.code, 3, "{}", resumed.stderr);
        resumed.err_has(&command);
        nodes.set_faults(0, 0.0, "");
        let [first, second] = nodes.sweep(&SMALL);
        assert_eq!((first.code, second.code), (0, 0), "{}{}", first.stderr, second.stderr);
        assert_eq!(nodes.rows("hcom_allReduce_").len(), 3);
        // Programs of a killed node 0 are ended by the next run.
        nodes.assert_no_process();
    }
}

#[test]
fn sweep_with_gloo_exchanges_data_between_two_nodes() {
    let Some(python) = vendor_python() else { return };
    let nodes = Nodes::new();
    let python = python.to_str().expect("text");
    let arguments =
        ["--backend", "gloo", "--python", python, "--dtypes", "fp32", "--ranks", "2", "--tiers", "0"];
    let [first, second] = nodes.sweep(&(&arguments[..], "--ops all_reduce --sizes 4K"));
    assert!(first.code <= 1 && first.code == second.code, "{}{}", first.stderr, second.stderr);
    let rows = nodes.context.rows("db", "hcom_allReduce_");
    assert_eq!(rows.len(), 1, "{}", first.stderr);
    assert_eq!((&*rows[0]["Result Check"], &*rows[0]["Duration Method"]), ("ok", "shortest rank"));
}

#[test]
fn step_of_slurm_starts_the_nodes_of_a_sweep() {
    let nodes = Nodes::new();
    let Some(slurm) = Slurm::start(nodes.context.path("slurm")) else { return };
    let port = nodes.port.to_string();
    let job = "slurm comm --db db --nodes 2 --gres npu:2 --grace 30s --format json --";
    // The names of the nodes are of no host, and both are this machine.
    let place = ["--master-addr", "127.0.0.1", "--master-port", &port];
    let sizes = "--ranks 4 --tiers 0 --ops all_reduce --sizes 1K";
    // Without the database and the devices, which the job adds.
    let sweep: Vec<&str> = SWEEP.words()[2..]
        .chunks(2)
        .filter(|option| !["--db", "--devices"].contains(&option[0]))
        .flatten()
        .copied()
        .collect();
    let mut command = nodes.context.command(&(job, sweep, place, sizes));
    let ran = nodes.context.ran(&slurm.configure(&mut command).output().expect("npubench runs")).ended(0);
    let submitted: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let job = submitted["job"].text();
    let ended = slurm.wait_for_end(job);
    let log = fs::read_to_string(nodes.context.path(&format!("npubench-comm-{job}.log"))).expect("a log");
    assert_eq!(ended[job].0, "COMPLETED", "{log}");
    assert!(log.contains("node 1 (node2) takes part"), "{log}");
    assert_eq!(nodes.rows("hcom_allReduce_"), ["4 ranks, tier 0, 1024 bytes: ok, shortest rank"]);
}
