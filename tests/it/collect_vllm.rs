//! `npubench collect vllm`: a server in this program records its requests and writes raw profiles when its profiler stops; a
//! package `torch_npu` in a folder of the test analyses them.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::prelude::*;
use crate::timeline::write_database;

/// Analyses a profile as torch_npu does: earlier tables are removed, errors are swallowed, and `analyse.done` appears after them
/// as well.
const ANALYSE: &str = r#"
import os, shutil

def analyse(profiler_path, max_process_number=1, export_type=None):
    assert isinstance(export_type, list) and os.path.isabs(profiler_path), (profiler_path, export_type)
    output = os.path.join(profiler_path, "ASCEND_PROFILER_OUTPUT")
    shutil.rmtree(output, ignore_errors=True)
    os.makedirs(output)
    if os.path.exists(os.path.join(profiler_path, "fails")):
        print("[ERROR] the framework's records cannot be parsed")
    else:
        database = os.path.join(output, "ascend_pytorch_profiler_0.db")
        shutil.copy(os.environ["STAND_IN_DATABASE"], database)
        if os.path.exists(os.path.join(profiler_path, "dies")):
            print("[INFO] parsing", flush=True)
            os._exit(9)
    open(os.path.join(output, "analyse.done"), "w").close()
"#;

/// Behaviour of a server.
#[derive(Clone, Debug)]
struct Behaviour {
    version: &'static str,
    has_profiler: bool,
    settings: &'static str,
    start_status: u16,
    start_time: Duration,
    stop_status: u16,
    /// Time from the request to stop until the answer.
    stop_time: Duration,
    /// Time from the answer until the folders are written.
    folder_time: Duration,
    /// Folders that the workers write, each with a file that decides how its analysis ends.
    profiles: Vec<(PathBuf, &'static str)>,
}

impl Behaviour {
    fn new(folder: &Path, ranks: &[(u32, &'static str)]) -> Self {
        let profile = |(rank, end): &(u32, &'static str)| {
            (folder.join(format!("dp0_pp0_tp{rank}_ep0_rank{rank}_2700_20261124_ascend_pt")), *end)
        };
        Self {
            version: "0.15.1",
            has_profiler: true,
            settings: "",
            start_status: 200,
            start_time: Duration::ZERO,
            stop_status: 200,
            stop_time: Duration::ZERO,
            folder_time: Duration::ZERO,
            profiles: ranks.iter().map(profile).collect(),
        }
    }

    fn write_profiles(&self) {
        for (folder, end) in &self.profiles {
            fs::create_dir_all(folder.join("FRAMEWORK")).expect("created");
            fs::write(folder.join("FRAMEWORK/torch.op_range"), "raw").expect("written");
            fs::write(folder.join(end), "").expect("written");
        }
    }
}

/// Server that records its requests.
struct StandIn {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl StandIn {
    fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (behaviour, record) = (behaviour.clone(), Arc::clone(&record));
                thread::spawn(move || answer(stream, &behaviour, &record));
            }
        });
        Self { url, requests }
    }

    fn count(&self, request: &str) -> usize {
        self.requests.lock().expect("no panic").iter().filter(|own| **own == request).count()
    }

    /// Returns the numbers of starts and stops.
    fn switches(&self) -> (usize, usize) {
        (self.count("POST /start_profile"), self.count("POST /stop_profile"))
    }

    fn await_request(&self, request: &str) {
        let started = Instant::now();
        while self.count(request) == 0 {
            assert!(started.elapsed() < Duration::from_secs(60), "no {request}");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

fn answer(stream: TcpStream, behaviour: &Behaviour, record: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream.try_clone().expect("a handle"));
    let mut line = String::new();
    let (mut request, mut length) = (String::new(), 0);
    while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
        if request.is_empty() {
            request = line.rsplit_once(' ').expect("a version").0.to_owned();
        } else if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a number");
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("the body");
    record.lock().expect("no panic").push(request.clone());
    let (status, text) = match &*request {
        "GET /version" => (200, format!("{{\"version\":\"{}\"}}", behaviour.version)),
        "GET /server_info" if !behaviour.settings.is_empty() => (200, behaviour.settings.to_owned()),
        path if path.ends_with("_profile") && !behaviour.has_profiler => (404, "Not Found".to_owned()),
        "GET /start_profile" => (405, "Method Not Allowed".to_owned()),
        "POST /start_profile" => {
            thread::sleep(behaviour.start_time);
            (behaviour.start_status, "start".to_owned())
        }
        "POST /stop_profile" => {
            thread::sleep(behaviour.stop_time);
            if behaviour.folder_time.is_zero() {
                behaviour.write_profiles();
            }
            (behaviour.stop_status, "stop".to_owned())
        }
        "POST /v1/completions" => (200, String::from_utf8(body).expect("text")),
        _ => (404, "Not Found".to_owned()),
    };
    let mut stream = stream;
    let length = text.len();
    // The client may have ended its wait.
    let _ = write!(
        stream,
        "HTTP/1.1 {status} Status\r\nlocation: /stop_profile\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}"
    );
    drop(stream);
    if request == "POST /stop_profile" && !behaviour.folder_time.is_zero() {
        thread::sleep(behaviour.folder_time);
        behaviour.write_profiles();
    }
}

/// Creates the package `torch_npu`, the database of an analysed profile and the folder of the profiler.
fn prepared() -> Context {
    let context = Context::new();
    context.write("packages/torch_npu/__init__.py", "");
    context.write("packages/torch_npu/profiler/__init__.py", "");
    context.write("packages/torch_npu/profiler/profiler.py", ANALYSE);
    write_database(&context.path("analysed.db"), "");
    fs::create_dir(context.path("prof")).expect("created");
    context
}

fn start(context: &Context, servers: &[&StandIn], more: &(impl Words + ?Sized)) -> Child {
    let mut arguments =
        vec!["collect", "vllm", "--profile-dir", "prof", "--still", "300ms", "--logs", "logs"];
    servers.iter().for_each(|server| arguments.extend(["--url", &server.url]));
    arguments.extend(more.words());
    let mut command = context.command(&arguments);
    command.env("PYTHONPATH", context.path("packages")).env("STAND_IN_DATABASE", context.path("analysed.db"));
    // A proxy of the environment must not be used for servers of the cluster.
    command.env("http_proxy", "http://127.0.0.1:9");
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started")
}

fn collect(context: &Context, servers: &[&StandIn], more: &(impl Words + ?Sized)) -> Ran {
    context.ran(&start(context, servers, more).wait_with_output().expect("ended"))
}

fn interrupt(child: &Child) {
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).expect("it runs");
}

#[test]
fn ranks_of_two_nodes_are_collected_analysed_and_ingested() {
    let context = prepared();
    let prof = context.path("prof");
    let late = Duration::from_millis(500);
    let first = StandIn::start(Behaviour { stop_time: late, ..Behaviour::new(&prof, &[(0, "healthy")]) });
    let second = StandIn::start(Behaviour {
        folder_time: late,
        ..Behaviour::new(&prof.join("node1"), &[(1, "healthy")])
    });
    // An older profile in the folder is none of this collection.
    fs::create_dir(prof.join("old_ascend_pt")).expect("created");
    let work =
        ["--ranks", "2", "--db", "db", "--kind", "rehearsal", "--", "sh", "-c", "echo 8 requests done"];
    let ran = collect(&context, &[&first, &second], &work).ended(0);
    assert_eq!((first.switches(), second.switches()), ((1, 1), (1, 1)));
    assert!(ran.stderr.contains("8 requests done") && ran.stderr.contains("vLLM 0.15.1"), "{}", ran.stderr);
    insta::assert_snapshot!(ran.stdout);
    assert!(context.path("db/MatMulV2.csv").is_file());
}

#[test]
fn servers_that_cannot_be_profiled_are_refused_before_the_start() {
    let context = prepared();
    let prof = context.path("prof");
    let healthy = StandIn::start(Behaviour::new(&prof, &[(0, "healthy")]));
    let refused = |behaviour: Behaviour| {
        let server = StandIn::start(behaviour);
        let ran = collect(&context, &[&healthy, &server], "-- touch worked");
        assert_eq!((ran.code, healthy.switches(), server.switches()), (4, (0, 0), (0, 0)), "{}", ran.stderr);
        assert!(!context.path("logs").exists());
        ran.stderr.replace(&server.url, "URL").replace(&healthy.url, "HEALTHY")
    };
    let none = Behaviour { has_profiler: false, ..Behaviour::new(&prof, &[]) };
    let stacks = "{\"vllm_config\":\"profiler_config=ProfilerConfig(torch_profiler_with_stack=True)\"}";
    let shown = [
        refused(none.clone()),
        refused(Behaviour { version: "0.11.0rc1", ..none.clone() }),
        refused(Behaviour { version: "0.13.0", ..none.clone() }),
        refused(Behaviour { version: "", ..none }),
        refused(Behaviour { settings: stacks, ..Behaviour::new(&prof, &[]) }),
    ];
    insta::assert_snapshot!(shown.join("\n"));
    fs::remove_dir_all(context.path("packages/torch_npu")).expect("there");
    let ran = collect(&context, &[&healthy], "-- touch worked");
    assert_eq!((ran.code, healthy.switches()), (4, (0, 0)), "{}", ran.stderr);
    ran.err_has(" has no torch_npu, which analyses the profiles");
    fs::remove_dir_all(context.path("logs")).expect("there");
    let gone = StandIn { url: "http://127.0.0.1:9".to_owned(), requests: Arc::default() };
    let ran = collect(&context, &[&healthy, &gone], "-- touch worked");
    assert_eq!((ran.code, healthy.switches()), (4, (0, 0)), "{}", ran.stderr);
    ran.err_has("error: http://127.0.0.1:9/version cannot be reached");
    assert!(!context.path("worked").exists());
}

#[test]
fn a_failed_start_stops_those_that_were_started() {
    let context = prepared();
    let prof = context.path("prof");
    let first = StandIn::start(Behaviour::new(&prof, &[(0, "healthy")]));
    let second = StandIn::start(Behaviour { start_status: 500, ..Behaviour::new(&prof, &[]) });
    let ran = collect(&context, &[&first, &second], "-- touch worked");
    assert_eq!((ran.code, first.switches(), second.switches()), (4, (1, 1), (1, 0)), "{}", ran.stderr);
    ran.err_has("/start_profile answered with 500: start");
    // Workers of 0.13 that were started with the option alone have no profiler.
    fs::remove_dir_all(context.path("logs")).expect("there");
    let without = Behaviour { version: "0.13.0", start_status: 500, ..Behaviour::new(&prof, &[]) };
    let server = StandIn::start(without);
    let ran = collect(&context, &[&server], "-- touch worked");
    assert_eq!((ran.code, server.switches()), (4, (1, 0)), "{}", ran.stderr);
    ran.err_has("start the server with `VLLM_TORCH_PROFILER_DIR=ROOT/prof VLLM_TORCH_PROFILER_WITH_STACK=0 vllm serve MODEL --profiler-config '{");
    // A server that shows the path to GET only.
    fs::remove_dir_all(context.path("logs")).expect("there");
    let first = StandIn::start(Behaviour::new(&prof, &[(0, "healthy")]));
    let second = StandIn::start(Behaviour { start_status: 404, ..Behaviour::new(&prof, &[]) });
    let ran = collect(&context, &[&first, &second], "-- touch worked");
    assert_eq!((ran.code, first.switches(), second.switches()), (4, (1, 1), (1, 0)), "{}", ran.stderr);
    ran.err_has("--profiler-config");
    assert!(!context.path("worked").exists());
}

#[test]
fn failures_of_command_stop_and_analysis_are_named_and_cost_nothing_else() {
    let context = prepared();
    let ranks = [(0, "healthy"), (1, "dies"), (2, "fails")];
    let behaviour = Behaviour { stop_status: 500, ..Behaviour::new(&context.path("prof"), &ranks) };
    let server = StandIn::start(behaviour);
    let ran = collect(
        &context,
        &[&server],
        &["--ranks", "4", "--folder-limit", "1s", "--", "sh", "-c", "echo out of memory; exit 7"],
    );
    assert_eq!((ran.code, server.switches()), (1, (1, 1)), "{}", ran.stderr);
    for named in [
        "the command ended with exit code 7; see `ROOT/logs/work.log`",
        "/stop_profile answered with 500: stop",
        "3 of 4 ranks have written a profile",
    ] {
        ran.err_has(named);
    }
    insta::assert_snapshot!(ran.stdout);
    // What failed is analysed again when its reason is gone; complete profiles are only read.
    for (rank, end) in &ranks[1..] {
        let folder = format!("prof/dp0_pp0_tp{rank}_ep0_rank{rank}_2700_20261124_ascend_pt");
        fs::remove_file(context.path(&folder).join(end)).expect("there");
    }
    let mut again = context.command("collect analyse prof --format json");
    again.env("PYTHONPATH", context.path("packages")).env("STAND_IN_DATABASE", context.path("analysed.db"));
    let again = context.ran(&again.output().expect("it runs")).ended(0);
    assert_eq!(again.stdout.matches("\"state\":\"complete\"").count(), 3, "{}", again.stdout);
}

#[test]
fn a_stop_is_sent_once_whenever_the_user_interrupts() {
    let context = prepared();
    let behaviour = || Behaviour::new(&context.path("prof"), &[(0, "healthy")]);
    // In the command: it is ended, the profiler is stopped, and the raw profile is kept.
    let server = StandIn::start(behaviour());
    let child = start(&context, &[&server], &["--", "sh", "-c", "touch running; sleep 100"]);
    let started = Instant::now();
    while !context.path("running").exists() {
        assert!(started.elapsed() < Duration::from_secs(60), "the command does not run");
        thread::sleep(Duration::from_millis(10));
    }
    interrupt(&child);
    let ran = context.finish(child);
    assert_eq!((ran.code, server.switches()), (5, (1, 1)), "{}{}", ran.stdout, ran.stderr);
    ran.err_has("`npubench collect analyse prof` continues");
    ran.out_has("not analysed");
    // In the stop: the first signal is answered, the second one ends the wait, and no second request is sent.
    fs::remove_dir_all(context.path("logs")).expect("there");
    let server = StandIn::start(Behaviour { stop_time: Duration::from_secs(100), ..behaviour() });
    let mut child = start(&context, &[&server], "-- true");
    server.await_request("POST /stop_profile");
    let mut errors =
        BufReader::new(child.stderr.take().expect("piped")).lines().map(|line| line.expect("text"));
    interrupt(&child);
    assert!(errors.any(|line| line.ends_with("a further Ctrl-C ends the wait")));
    interrupt(&child);
    let rest: Vec<String> = errors.collect();
    assert!(rest.iter().any(|line| line.contains("request to stop and has not answered yet")), "{rest:?}");
    let ran = context.finish(child);
    assert_eq!((ran.code, server.switches()), (5, (1, 1)), "{}{rest:?}", ran.stdout);
    // In the start of the first of two servers: the second one is not started.
    fs::remove_dir_all(context.path("logs")).expect("there");
    let slow = StandIn::start(Behaviour { start_time: Duration::from_secs(1), ..behaviour() });
    let second = StandIn::start(behaviour());
    let child = start(&context, &[&slow, &second], "-- touch worked");
    slow.await_request("POST /start_profile");
    interrupt(&child);
    let ran = context.finish(child);
    assert_eq!((ran.code, slow.switches(), second.switches()), (5, (1, 1), (0, 0)), "{}", ran.stderr);
    assert!(!context.path("worked").exists());
    // A stop without an answer within its limit.
    fs::remove_dir_all(context.path("logs")).expect("there");
    let server = StandIn::start(Behaviour { stop_time: Duration::from_secs(100), ..behaviour() });
    let limits = "--stop-limit 500ms --folder-limit 1s -- true";
    let ran = collect(&context, &[&server], limits);
    assert_eq!((ran.code, server.switches()), (1, (1, 1)), "{}{}", ran.stdout, ran.stderr);
    ran.err_has("/stop_profile has not answered: timeout");
}

#[test]
fn requests_are_sent_while_the_profiler_runs() {
    let context = prepared();
    let server = StandIn::start(Behaviour::new(&context.path("prof"), &[(0, "healthy")]));
    context.write("bad.jsonl", "{\"model\": \"m\"}\n[1]\n");
    context.write("empty.jsonl", "\n");
    for (file, message) in
        [("bad.jsonl", "bad.jsonl:2: expected an object"), ("empty.jsonl", "has no request")]
    {
        let ran = collect(&context, &[&server], &["--requests", file]).ended(3);
        ran.err_has(message);
    }
    context.write(
        "two.jsonl",
        "{\"model\": \"m\", \"prompt\": \"a\"}\n\n{\"model\": \"m\", \"prompt\": \"b\"}\n",
    );
    let ran = collect(&context, &[&server], "--requests two.jsonl --warm-up");
    assert_eq!((ran.code, server.switches()), (0, (1, 1)), "{}{}", ran.stdout, ran.stderr);
    let requests = server.requests.lock().expect("no panic").clone();
    let posts: Vec<&str> = requests.iter().filter_map(|request| request.strip_prefix("POST ")).collect();
    let prompt = "/v1/completions";
    assert_eq!(posts, [prompt, prompt, "/start_profile", prompt, prompt, "/stop_profile"]);
}

#[test]
fn wrong_options_of_a_collection_are_refused() {
    let context = prepared();
    fs::create_dir(context.path("raw_ascend_pt")).expect("created");
    let refused = |arguments: &str| {
        let ran = context.run(&("collect", arguments));
        assert!((2..=4).contains(&ran.code), "{arguments:?}: {}", ran.stdout);
        format!("$ collect {}\n{}", arguments, ran.stderr)
    };
    let shown = [
        refused("vllm --url https://node0:8000 --profile-dir prof -- true"),
        refused("vllm --url http://node0:8000 --profile-dir prof"),
        refused("vllm --url http://node0:8000 --profile-dir prof --still 0s -- true"),
        refused("vllm --url http://node0:8000 --url http://Node0:8000/ --profile-dir prof -- true"),
        refused("vllm --url http://node0:8000 --profile-dir absent -- true"),
        refused("vllm --url http://node0:8000 --profile-dir prof -- vllm bench serve --profile"),
        refused("analyse prof"),
        refused("analyse raw_ascend_pt --python no-such-python"),
    ];
    insta::assert_snapshot!(shown.join("\n"));
}
