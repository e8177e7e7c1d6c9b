//! `runs`, `show`, `status`, `pause` and `unpause`, also while a run is active in another process.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{Read as _, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::LazyLock,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::prelude::*;

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// Returns the rows of a query of the ledger as text.
fn query(context: &Context, sql: &str) -> Vec<Vec<Option<String>>> {
    let path = context.path("db/.npubench/ledger.db");
    let connection = rusqlite::Connection::open(path).expect("a ledger");
    let mut statement = connection.prepare(sql).expect("a query");
    let columns = statement.column_count();
    let rows = statement.query_map([], |row| (0..columns).map(|column| row.get(column)).collect());
    rows.expect("rows").collect::<Result<_, _>>().expect("text")
}

fn run_folder(context: &Context) -> PathBuf {
    let mut runs = fs::read_dir(context.path("db/.npubench/runs")).expect("listed");
    let run = runs.next().expect("a run").expect("listed").path();
    assert!(runs.next().is_none(), "more than one run");
    run
}

fn events(context: &Context) -> Vec<Value> {
    lines(&fs::read_to_string(run_folder(context).join("events.jsonl")).expect("a file of events"))
}

/// Creates a database of a decoder layer and a kernel without catalogue entry, rehearsed on devices 2 and 3.
fn rehearsed_database() -> Context {
    static REHEARSED: LazyLock<Files> = LazyLock::new(|| {
        let context = Context::of_layer();
        context.write("more.csv", &profile(&[&SWIGLU.replacen("SwiGlu", "Mystery", 1)]));
        context.done("ingest more.csv --db db");
        rehearse(&context, "db", "--devices 2-3").ended(0);
        context.snapshot("db")
    });
    Context::of_files(&REHEARSED)
}

#[test]
fn json_of_commands_has_the_published_schemas() {
    let context = rehearsed_database();
    let text = include_str!("../../docs/json-schemas.json");
    let schemas: Value = serde_json::from_str(text).expect("JSON");
    let case = context.run("show --db db --format json").json()[0]["case"].clone();
    let case = case.text().to_owned();
    let commands: [&[&str]; 8] = [
        &["kernels"],
        &["models"],
        &["rules"],
        &["runs", "--db", "db"],
        &["show", "--db", "db"],
        &["plan", "--db", "db", "--devices", "0", "--update", "all"],
        &["why", &case, "--db", "db"],
        &["diff", "db", "db"],
    ];
    for command in commands {
        let validator = jsonschema::validator_for(&schemas[command[0]]).expect("a schema");
        let printed = context.run(&(command, "--format json"));
        let records = printed.json();
        assert!(!records.is_empty(), "{command:?}: {}", printed.stderr);
        for record in records {
            let problems: Vec<String> =
                validator.iter_errors(&record).map(|error| error.to_string()).collect();
            assert!(problems.is_empty(), "{command:?}: {problems:?}: {record}");
        }
    }
}

/// A Python program that waits while a file exists, so that a test can hold the collections of a run.
struct ScriptGate {
    python: String,
    closed: PathBuf,
}

impl ScriptGate {
    fn closed(context: &Context) -> Self {
        let closed = context.write("closed", "");
        let script = format!(
            "#!/bin/sh\nwhile [ -e '{}' ]; do sleep 0.02; done\nexec python3 \"$@\"\n",
            closed.display()
        );
        let python = context.write("python-waits", &script);
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).expect("executable");
        Self { python: python.to_string_lossy().into_owned(), closed }
    }

    fn open(&self) {
        fs::remove_file(&self.closed).expect("the gate is closed");
    }

    fn start_run(&self, context: &Context, devices: &str) -> Child {
        let arguments =
            ["run", "--db", "db", "--host", "rehearsal", "--devices", devices, "--python", &self.python];
        let mut command = context.command(&arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("npubench runs")
    }
}

/// Polls until `poll` returns a value; fails after a minute.
pub(crate) fn wait_for<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(value) = poll() {
            return value;
        }
        assert!(Instant::now() < deadline, "timeout while waiting for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn active_status(context: &Context) -> Option<Value> {
    let ran = context.run("status --db db --format json");
    (ran.code == 0).then(|| serde_json::from_str(&ran.stdout).expect("JSON"))
}

/// Returns the states of the devices by their numbers.
fn device_states(status: &Value) -> BTreeMap<u64, String> {
    let devices = status["devices"].list();
    let state = |line: &Value| (line["device"].whole(), line["state"].text().to_owned());
    devices.iter().map(state).collect()
}

/// Returns the index of the first event of a name from index `from` on.
fn find_event(events: &[Value], from: usize, name: &str) -> Option<usize> {
    events.iter().skip(from).position(|event| event["event"] == name).map(|at| at + from)
}

fn without_run_id(text: &str) -> String {
    let run = text.find("rehearsal-2").and_then(|at| text[at..].split([' ', ',']).next());
    run.map_or_else(|| text.to_owned(), |run| text.replace(run, "RUN"))
}

#[test]
fn show_lists_the_cases_of_the_ledger() {
    let context = rehearsed_database();
    let ran = context.done("show --db db --format json");
    let keys = [
        "case",
        "kernel",
        "verdict",
        "reason",
        "cause",
        "device",
        "attempts",
        "collections",
        "inputs",
        "outputs",
        "log",
    ];
    for line in ran.stdout.lines() {
        let places =
            keys.map(|key| line.find(&format!("\"{key}\":")).unwrap_or_else(|| panic!("{key}: {line}")));
        assert!(places.is_sorted(), "{line}");
    }
    let shown = ran.json();
    let stored = query(
        &context,
        "SELECT p.case_id, c.kernel, v.verdict, v.cause ->> 'cause',
                (SELECT json_group_array(number) FROM (SELECT number FROM attempts a JOIN collections USING (collection)
                 WHERE a.case_id = p.case_id ORDER BY number)),
                (SELECT CAST(device AS TEXT) FROM attempts a JOIN collections USING (collection)
                 WHERE a.case_id = p.case_id ORDER BY number DESC LIMIT 1)
         FROM planned p JOIN cases c USING (case_id) LEFT JOIN verdicts v USING (run, case_id) ORDER BY ordinal",
    );
    assert_eq!((shown.len(), stored.len()), (21, 21));
    for (shown, stored) in shown.iter().zip(&stored) {
        let collections: Value = serde_json::from_str(stored[4].as_ref().expect("a list")).expect("JSON");
        let texts = ["case", "kernel", "verdict", "cause"].map(|key| shown[key].as_str().map(str::to_owned));
        assert_eq!(texts.as_slice(), &stored[..4]);
        assert_eq!(shown["collections"], collections);
        assert_eq!(shown["attempts"], collections.list().len());
        assert_eq!(shown["device"].as_u64().map(|device| device.to_string()), stored[5]);
        match shown["log"].as_str() {
            Some(log) => assert!(context.path(log.trim_start_matches("ROOT/")).is_file(), "{log}"),
            None => assert_eq!(shown["kernel"], "Mystery"),
        }
    }
    let swiglu = shown.iter().find(|case| case["kernel"] == "SwiGlu").expect("a case of SwiGlu");
    assert_eq!(
        (&swiglu["inputs"], &swiglu["outputs"]),
        (&json!("2048,24576:DT_BF16:ND"), &json!("2048,12288:DT_BF16:ND"))
    );
}

#[test]
fn run_is_found_by_an_unambiguous_prefix_of_its_id() {
    let context = Context::new();
    context.small_database("db");
    let none = context.exits(3, "show --db db");
    insta::assert_snapshot!(none.stderr, @r"
    error: no run has been started on this database
    hint: `npubench run --db ROOT/db --host rehearsal` starts one
    ");
    assert_eq!(rehearse(&context, "db", "--devices 0").code, 0);
    assert_eq!(rehearse(&context, "db", "--devices 0 --update all").code, 0);
    let listed = context.run("runs --db db --format json").json();
    let ids: Vec<&str> = listed.iter().map(|run| run["run"].text()).collect();
    assert_eq!(ids.len(), 2);
    let shown = |word: &str| context.run(&["show", word, "--db", "db", "--format", "json"]);
    assert_eq!(shown("last").stdout, shown(ids[1]).stdout);
    assert_ne!(shown(ids[0]).stdout, shown(ids[1]).stdout);
    let differs = ids[0].bytes().zip(ids[1].bytes()).position(|(one, other)| one != other).expect("two ids");
    assert_eq!(shown(&ids[0][..=differs]).stdout, shown(ids[0]).stdout);
    let ambiguous = shown("rehearsal-").ended(3);
    ambiguous.err_has("the ids of 2 runs begin with `rehearsal-`");
    let unknown = shown("2019");
    assert!(unknown.code == 3 && unknown.stderr.contains(ids[1]), "{}", unknown.stderr);
}

#[test]
fn event_file_has_all_attempts_verdicts_and_collections_of_the_ledger() {
    let context = rehearsed_database();
    let events = events(&context);
    let of = |name: &'static str| events.iter().filter(move |event| event["event"] == name);
    let text =
        |event: &Value, key: &str| event[key].as_str().map_or_else(|| event[key].to_string(), str::to_owned);
    let recorded = |name: &'static str, keys: &str| -> BTreeSet<Vec<Option<String>>> {
        of(name).map(|event| keys.split(' ').map(|key| Some(text(event, key))).collect()).collect()
    };
    let stored = |sql: &str| query(&context, sql).into_iter().collect::<BTreeSet<_>>();
    assert_eq!(
        recorded("case_attempted", "case collection verdict cause"),
        stored(
            "SELECT case_id, CAST(number AS TEXT), verdict, cause ->> 'cause' FROM attempts JOIN collections USING (collection)"
        )
    );
    assert_eq!(
        recorded("case_finished", "case verdict cause"),
        stored("SELECT case_id, verdict, cause ->> 'cause' FROM verdicts")
    );
    assert_eq!(
        recorded("collection_started", "collection devices purpose"),
        stored("SELECT CAST(number AS TEXT), '[' || device || ']', purpose FROM collections")
    );
    assert_eq!(
        recorded("collection_finished", "collection outcome"),
        stored("SELECT CAST(number AS TEXT), outcome FROM collections")
    );
    // Devices are read once before the run, and repeatedly during it.
    let devices = stored("SELECT DISTINCT CAST(device AS TEXT) FROM device_readings ORDER BY device");
    assert_eq!(devices.len(), 2);
    let readings = query(&context, "SELECT CAST(device AS TEXT) FROM device_readings");
    assert_eq!(of("device_read").count(), readings.len());
    let names: Vec<&Value> = events.iter().map(|event| &event["event"]).collect();
    assert_eq!((names[0], names[names.len() - 1]), (&json!("run_started"), &json!("run_finished")));
    let times: Vec<&str> = events.iter().map(|event| event["at"].text()).collect();
    assert!(times.is_sorted() && times.iter().all(|time| time.len() == 27), "{times:?}");
    // The status file has the final state.
    let status: Value =
        serde_json::from_slice(&fs::read(run_folder(&context).join("status.json")).expect("a status file"))
            .expect("JSON");
    assert_eq!(
        (&status["phase"], &status["done"], &status["open"]),
        (&json!("ended"), &json!(20), &json!(0))
    );
    assert_eq!(status["verdicts"], json!({"ok": 20, "no_entry": 1}));
}

#[test]
fn timeline_has_each_collection_on_the_track_of_its_device() {
    let context = rehearsed_database();
    let ran = context.run("show --db db --timeline trace.json");
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""), "{}", ran.stderr);
    let trace: Value =
        serde_json::from_slice(&fs::read(context.path("trace.json")).expect("written")).expect("JSON");
    let events = trace["traceEvents"].list();
    let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).collect::<Vec<_>>();
    let names: BTreeMap<u64, &str> = of("M")
        .iter()
        .filter(|event| event["name"] == "thread_name")
        .map(|event| (event["tid"].whole(), event["args"]["name"].text()))
        .collect();
    let mut slices: Vec<Vec<String>> = Vec::new();
    for slice in of("X") {
        let nanos = |key: &str| (slice[key].float() * 1e3).round().to_string();
        let args = &slice["args"];
        slices.push(vec![
            args["collection"].to_string(),
            names[&slice["tid"].whole()].to_owned(),
            nanos("ts"),
            nanos("dur"),
            args["outcome"].text().to_owned(),
            args["cases"].to_string(),
        ]);
    }
    let stored = query(
        &context,
        "SELECT CAST(number AS TEXT), 'device ' || device, CAST(c.started_ns - r.started_ns AS TEXT),
                CAST(c.ended_ns - c.started_ns AS TEXT), outcome,
                CAST((SELECT count(*) FROM attempts a WHERE a.collection = c.collection) AS TEXT)
         FROM collections c JOIN runs r USING (run) ORDER BY number",
    );
    let stored: Vec<Vec<String>> =
        stored.into_iter().map(|row| row.into_iter().flatten().collect()).collect();
    assert_eq!(slices, stored);
    assert_eq!(of("C").last().expect("counters")["args"], json!({"ok": 20, "no_entry": 1}));
    // An older timeline is replaced, any other file is not.
    context.done("show --db db --timeline trace.json");
    for (name, content) in [("notes.txt", "keep me\n"), ("other.json", "{\"traceEvents\":[]}\n")] {
        context.write(name, content);
        let refused = context.exits(3, &["show", "--db", "db", "--timeline", name]);
        refused.err_has("is not a timeline of npubench");
        assert_eq!(context.read(name), content);
    }
}

#[test]
fn status_shows_an_active_run_and_fails_after_its_end() {
    let context = Context::of_layer();
    let none = context.run("status --db db");
    assert_eq!((none.code, none.stdout.as_str()), (3, ""));
    insta::assert_snapshot!(none.stderr, @r"
    error: no run has been started on this database
    hint: `npubench run --db ROOT/db --host rehearsal` starts one
    ");
    let gate = ScriptGate::closed(&context);
    let child = gate.start_run(&context, "4-5");
    let status = wait_for("a collection on each device", || {
        active_status(&context)
            .filter(|status| device_states(status).values().all(|state| state == "running"))
    });
    assert_eq!(device_states(&status).into_keys().collect::<Vec<_>>(), [4, 5]);
    assert_eq!((&status["process"], &status["phase"]), (&json!(child.id()), &json!("running")));
    assert_eq!((&status["cases"], &status["done"], &status["open"]), (&json!(20), &json!(0), &json!(20)));
    let stored = query(
        &context,
        "SELECT run, CAST(number AS TEXT), CAST(device AS TEXT), purpose FROM collections ORDER BY device",
    );
    for (line, row) in status["devices"].list().iter().zip(stored) {
        let current = &line["collection"];
        assert_eq!(status["run"].as_str(), row[0].as_deref());
        assert_eq!(current["purpose"].as_str(), row[3].as_deref());
        assert_eq!(Some(current["number"].to_string()), row[1]);
        assert_eq!(Some(line["device"].to_string()), row[2]);
        assert!(line["reading"]["temperature_c"].is_i64(), "{line}");
    }
    let table = context.run("status --db db");
    table.out_has("0 of 20 cases done");
    table.out_has("running");
    let runs = context.run("runs --db db --format json").json();
    assert_eq!((&runs[0]["state"], &runs[0]["process"]), (&json!("running"), &json!(child.id())));
    gate.open();
    context.finish(child).ended(0);
    let after = context.run("status --db db");
    assert_eq!((after.code, after.stdout.as_str()), (3, ""));
    insta::assert_snapshot!(without_run_id(&after.stderr), @r"
    error: no run is active; the last, RUN, is done
    hint: `npubench show --db ROOT/db` shows its cases
    ");
}

#[test]
fn state_of_a_killed_run_is_killed() {
    let context = Context::of_layer();
    let gate = ScriptGate::closed(&context);
    let child = gate.start_run(&context, "0");
    wait_for("a collection", || {
        active_status(&context).filter(|status| device_states(status)[&0] == "running")
    });
    signal(&child, nix::sys::signal::Signal::SIGKILL);
    child.wait_with_output().expect("it ends");
    let after = context.exits(3, "status --db db");
    insta::assert_snapshot!(without_run_id(&after.stderr), @r"
    error: no run is active; the last, RUN, was killed
    hint: `npubench resume --db ROOT/db` continues it, `npubench show --db ROOT/db` shows its cases
    ");
    let runs = context.run("runs --db db --format json").json();
    assert_eq!(
        (&runs[0]["state"], &runs[0]["ended"], &runs[0]["exit_code"], &runs[0]["cases"]),
        (&json!("killed"), &Value::Null, &Value::Null, &json!(20))
    );
    let shown = context.run("show --db db --format json").json();
    assert!(shown.iter().all(|case| case["verdict"].is_null() && case["attempts"] == 0));
    context.done("show --db db --timeline t.json");
    let trace = context.read("t.json");
    assert!(trace.contains("\"outcome\":\"interrupted\""), "{trace}");
    gate.open();
}

/// Creates a database with more cases of one kernel than its first collection has.
fn database_of_many_cases(context: &Context) {
    let rows: Vec<String> = (1..=20).map(|n| SWIGLU.replace("512,", &format!("{},", n * 128))).collect();
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    context.ingest_records("db", &rows, &[]);
}

#[test]
fn no_collection_is_started_on_a_paused_device_until_it_is_unpaused() {
    let context = Context::new();
    database_of_many_cases(&context);
    let gate = ScriptGate::closed(&context);
    let child = gate.start_run(&context, "6");
    wait_for("a collection", || {
        active_status(&context).filter(|status| device_states(status)[&6] == "running")
    });
    let paused = context.done("pause --db db --devices 6,9");
    assert!(
        paused.stdout.starts_with("devices 6,9 are paused\ndevice 6: collection 1 is predicted to end at ")
    );
    paused.out_has("device 9 is not part of run rehearsal-");
    wait_for("the pause", || find_event(&events(&context), 0, "device_reserved"));
    gate.open();
    // `progress` is emitted after the scheduler has started all collections that it can.
    let progress = wait_for("the end of the collection", || {
        let events = events(&context);
        find_event(&events, find_event(&events, 0, "collection_finished")?, "progress")
    });
    let so_far = events(&context);
    let started = so_far.iter().filter(|event| event["event"] == "collection_started").count();
    assert_eq!((started, so_far[progress]["open"].as_u64() > Some(0)), (1, true), "{so_far:?}");
    let reserved = wait_for("the status of a reserved device", || {
        active_status(&context)
            .filter(|status| device_states(status)[&6] == "reserved" && status["done"] != 0)
    });
    assert_eq!(reserved["devices"][0]["reserved"], true);
    let unpaused = context.run("unpause --db db --devices 6");
    assert_eq!((unpaused.code, unpaused.stdout.as_str()), (0, "device 9 is paused\n"));
    context.finish(child).ended(0);
    let all = events(&context);
    let returned = find_event(&all, 0, "device_released").expect("it was unpaused");
    let second = find_event(
        &all,
        find_event(&all, 0, "collection_started").expect("the first") + 1,
        "collection_started",
    );
    assert!(second > Some(returned), "{all:?}");
    assert_eq!(query(&context, "SELECT DISTINCT verdict FROM verdicts"), [[Some("ok".to_owned())]]);
}

#[test]
fn pauses_of_devices_are_added_and_removed() {
    let context = Context::new();
    context.small_database("db");
    let output = |arguments: &str| {
        let (command, more) = arguments.split_once(' ').unwrap_or((arguments, ""));
        let ran = context.done(&([command, "--db", "db"], more));
        format!("$ {}\n{}", arguments, ran.stdout)
    };
    let text = [
        output("unpause"),
        output("pause --devices 0-2,7"),
        output("pause --devices 3"),
        output("unpause --devices 1,9"),
        output("pause"),
        output("unpause --devices 5"),
        output("unpause"),
    ];
    insta::assert_snapshot!(text.concat(), @r"
    $ unpause
    no device was paused
    $ pause --devices 0-2,7
    devices 0-2,7 are paused
    no run is active: this applies to the next one
    $ pause --devices 3
    devices 0-3,7 are paused
    no run is active: this applies to the next one
    $ unpause --devices 1,9
    device 9 is not paused
    devices 0,2-3,7 are paused
    $ pause
    all devices are paused
    no run is active: this applies to the next one
    $ unpause --devices 5
    all devices but 5 are paused
    $ unpause
    no device is paused
    ");
}

#[test]
fn invalid_pause_changes_no_file() {
    let context = Context::new();
    context.small_database("db");
    fs::create_dir(context.path("empty")).expect("created");
    let before = context.snapshot("db");
    assert_eq!(context.run("pause --db db --devices three").code, 2);
    for arguments in [
        ["pause", "--db", "empty"],
        ["pause", "--db", "nowhere"],
        ["unpause", "--db", "empty"],
        ["runs", "--db", "empty"],
    ] {
        let ran = context.exits(3, &arguments);
        ran.err_has("is not a database folder");
    }
    assert_eq!(context.snapshot("db"), before);
    assert_eq!(context.snapshot("empty").len(), 0);
    context.write("db/.npubench/paused.json", "{\"all\": maybe}");
    let damaged = context.exits(3, "pause --db db --devices 3");
    damaged.err_has("paused.json");
    assert_eq!(context.read("db/.npubench/paused.json"), "{\"all\": maybe}");
}

#[test]
fn failed_case_has_log_links_of_its_name() {
    let context = Context::new();
    context.small_database("db");
    let python = context.write("python-fails", "#!/bin/sh\necho 'the driver is missing'\nexit 7\n");
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).expect("executable");
    let ran = rehearse(&context, "db", &["--devices", "0", "--python", &python.to_string_lossy()]);
    assert_ne!(ran.code, 0, "{}", ran.stderr);
    let shown = context.run("show --db db --format json").json();
    assert_eq!(shown.len(), 2);
    let folder = run_folder(&context);
    for case in &shown {
        for collection in case["collections"].list() {
            let name = format!("{}.{collection}.log", case["case"].text());
            let link = folder.join("logs").join(&name);
            assert!(fs::read_link(&link).expect("a link").is_relative());
            assert!(fs::read_to_string(&link).expect("the log").contains("the driver is missing"));
        }
        let last = case["collections"].as_array().and_then(|all| all.last()).expect("an attempt");
        let log = case["log"].text();
        assert!(log.ends_with(&format!("/logs/{}.{last}.log", case["case"].text())), "{log}");
    }
}

#[test]
fn ctrl_c_on_a_terminal_stops_the_run() {
    let context = Context::new();
    context.small_database("db");
    let gate = ScriptGate::closed(&context);
    let program = context.command("").get_program().to_owned();
    let script = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
    let run = ["run", "--db", "db", "--host", "rehearsal", "--devices", "0", "--python", &gate.python];
    let mut terminal = Command::new("python3");
    terminal.args(["-c", script]).arg(program).args(run).current_dir(context.path("."));
    terminal.env("TERM", "xterm").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut terminal = terminal.spawn().expect("python3 runs");
    let (mut keys, mut screen) =
        (terminal.stdin.take().expect("a pipe"), terminal.stdout.take().expect("a pipe"));
    let mut shown = String::new();
    let mut read_until = |text: Option<&str>| {
        let mut buffer = [0; 4096];
        while text.is_none_or(|text| !shown.contains(text)) {
            let count = screen.read(&mut buffer).expect("readable");
            if count == 0 {
                break;
            }
            shown += &String::from_utf8_lossy(&buffer[..count]);
        }
        shown.clone()
    };
    read_until(Some("collection 1: "));
    keys.write_all(b"\x03").expect("written");
    read_until(Some("stopping: "));
    gate.open();
    let shown = read_until(None);
    assert!(shown.contains("stopping: 1 running collection may end"), "{shown}");
    assert!(
        terminal.wait().expect("it ends").code().is_some_and(|code| matches!(code, 0 | 1 | 5)),
        "{shown}"
    );
}
