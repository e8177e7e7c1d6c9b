//! Rendered calls on meta tensors, checked by the vendor's own torch_npu.

use std::{
    ffi::OsString,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::{ffi::OsStrExt as _, net::UnixStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::OnceLock,
    thread,
};

use npubench::kernel::KernelName;
use tempfile::TempDir;

use crate::prelude::*;

/// Renders script and manifest of a kernel into a folder named by the kernel.
pub(crate) fn render(context: &Context, kernel: &str) {
    for (name, more) in [("replay.py", None), ("manifest.json", Some("--manifest"))] {
        let mut arguments = vec!["render", kernel, "--db", "db"];
        arguments.extend(more);
        let ran = context.run(&arguments);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{kernel}");
        context.write(&format!("{kernel}/{name}"), &ran.stdout);
    }
}

/// Journal of a script that the vendor's code checked.
pub(crate) struct VendorJournal {
    /// Lines of the cases.
    pub(crate) cases: Vec<String>,
    /// Lines with the reason why a case was not accepted.
    pub(crate) errors: Vec<String>,
}

impl VendorJournal {
    pub(crate) fn accepted(&self) -> usize {
        self.cases.iter().filter(|line| line.contains("\"verdict\": \"accepted\"")).count()
    }
}

/// A process that has imported torch_npu, which takes seconds, and starts one for each list of folders: there it runs the
/// scripts, and its connection gets what they print. It ends with the tests.
const CHECK_SERVER: &str = r#"
import os, runpy, select, signal, socket, sys
import torch, torch_npu

def check(connection):
    folders = b""
    while not folders.endswith(b"\0\0"):
        folders += connection.recv(65536) or sys.exit(1)
    os.dup2(connection.fileno(), 1)
    os.dup2(connection.fileno(), 2)
    for folder in folders[:-2].split(b"\0"):
        os.chdir(folder)
        sys.argv = ["replay.py", "manifest.json", "--mode", "check", "--journal", "check.jsonl"]
        try:
            runpy.run_path("replay.py", run_name="__main__")
        except SystemExit:
            pass
        sys.stderr.flush()

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("ready", flush=True)
while sys.stdin.fileno() not in select.select([sys.stdin, listener], [], [])[0]:
    connection, _ = listener.accept()
    if os.fork() == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        listener.close()
        check(connection)
        break
    connection.close()
"#;

/// The server, with the folder of its socket.
struct CheckServer {
    folder: TempDir,
    _process: Child,
}

impl CheckServer {
    fn start(python: &OsString) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let errors = folder.path().join("errors");
        let mut process = Command::new(python)
            .args(["-c", CHECK_SERVER])
            .arg(folder.path().join("socket"))
            .env("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&errors).expect("created"))
            .spawn()
            .expect("the vendor's Python runs");
        let output = process.stdout.take().expect("piped");
        // torch_npu may print warnings first.
        let is_ready = BufReader::new(output).lines().any(|line| line.is_ok_and(|line| line == "ready"));
        assert!(is_ready, "{}", fs::read_to_string(&errors).unwrap_or_default());
        Self { folder, _process: process }
    }
}

/// Checks scripts and manifests of folders by the vendor's code; fails unless each script ends normally.
pub(crate) fn check_by_vendor(python: &OsString, folders: &[PathBuf]) -> Vec<VendorJournal> {
    static SERVER: OnceLock<CheckServer> = OnceLock::new();
    let server = SERVER.get_or_init(|| CheckServer::start(python));
    let mut connection = UnixStream::connect(server.folder.path().join("socket")).expect("it listens");
    let list: Vec<&[u8]> = folders.iter().map(|folder| folder.as_os_str().as_bytes()).collect();
    connection.write_all(&[&list.join(&0)[..], &[0, 0]].concat()).expect("sent");
    let mut errors = Vec::new();
    connection.read_to_end(&mut errors).expect("the scripts end");
    let errors = String::from_utf8_lossy(&errors);
    let read = |folder: &PathBuf| {
        let journal = fs::read_to_string(folder.join("check.jsonl")).unwrap_or_default();
        assert!(journal.contains("\"done\": true"), "{}: {errors}", folder.display());
        let lines =
            |what: &str| journal.lines().filter(|line| line.contains(what)).map(str::to_owned).collect();
        VendorJournal { cases: lines("\"ordinal\""), errors: lines("\"message\"") }
    };
    folders.iter().map(read).collect()
}

/// Renders kernels and checks them by the vendor's code; returns the journal of each.
pub(crate) fn check_kernels<'a>(
    python: &OsString,
    context: &Context,
    kernels: &[&'a str],
) -> Vec<(&'a str, VendorJournal)> {
    kernels.iter().for_each(|kernel| render(context, kernel));
    let folders: Vec<PathBuf> = kernels.iter().map(|kernel| context.path(kernel)).collect();
    kernels.iter().copied().zip(check_by_vendor(python, &folders)).collect()
}

#[test]
fn vendor_accepts_every_call_of_the_decoder_layer() {
    let Some(python) = vendor_python() else { return };
    let context = Context::new();
    let profile = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/decoder-layer/kernel_details.csv");
    context.run(&["ingest", profile, "--db", "db", "--kind", "rehearsal"]);
    let catalogue =
        npubench::kernel::catalogue::Catalogue::load(&npubench::base::assets::AssetFiles::embedded())
            .expect("it loads");
    let has_rows =
        |kernel: &&KernelName| context.path("db").join(format!("{}.csv", kernel.file_stem())).exists();
    let kernels = catalogue.entries().map(|entry| &entry.kernel).filter(has_rows);
    let kernels: Vec<&str> = kernels.map(KernelName::as_str).collect();
    let mut accepted = 0;
    for (kernel, check) in check_kernels(&python, &context, &kernels) {
        let errors = &check.errors;
        // The vendor has no Meta kernel for npu_slice; its schema is checked nevertheless.
        let allowed = kernel == "Slice" && errors.iter().all(|error| error.contains("NotImplementedError"));
        assert!(errors.is_empty() || allowed, "{kernel}: {errors:?}");
        accepted += usize::from(errors.is_empty());
    }
    // Every kernel of the example except Slice is accepted.
    assert_eq!((kernels.len(), accepted), (10, 9));
}

#[test]
fn every_schema_of_the_catalogue_equals_the_vendors() {
    let Some(python) = vendor_python() else { return };
    let script = "import torch, torch_npu\nfor s in torch._C._jit_get_all_schemas(): print(s)";
    let output = Command::new(&python)
        .args(["-c", script])
        .env("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
        .output()
        .expect("the vendor's Python runs");
    let listed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let catalogue =
        npubench::kernel::catalogue::Catalogue::load(&npubench::base::assets::AssetFiles::embedded())
            .expect("it loads");
    // torch_npu does not list the operators of other packages.
    for entry in catalogue.entries().filter(|entry| !entry.needs.custom_operators) {
        for schema in entry.schema_texts() {
            assert!(listed.lines().any(|line| line == schema), "{}: {schema}", entry.kernel);
        }
    }
}

/// Runs the agreement of the script's ranks in processes of the real torchrun; gloo replaces hccl, which needs devices.
const AGREEMENT: &str = r#"
import os, sys
from torch import distributed
import replay

join = distributed.init_process_group
distributed.init_process_group = lambda backend: join({"hccl": "gloo"}[backend])
place = replay.Device.__new__(replay.Device)
place.rank = int(os.environ["RANK"])
place.join()
alone = {"type": "OutOfMemoryError", "message": "none left"} if place.rank == 1 else None
results = [place.agree(0, None), place.agree(1, alone), place.agree(2, None)]
place.leave(3)
with open("results.%d" % place.rank, "w") as file:
    print(results, os.path.realpath("/proc/self/fd/0"), os.environ["NPUBENCH_RECORD"], file=file)
if sys.argv[1:] == ["fails"] and place.rank == 1:
    os.kill(os.getpid(), 9)
"#;

#[test]
fn torchrun_ranks_agree_and_inherit_standard_input_and_process_mark() {
    let Some(python) = vendor_python() else { return };
    let context = Context::new();
    context.small_database("db");
    render(&context, "SwiGlu");
    let folder = context.path("SwiGlu");
    fs::write(folder.join("agreement.py"), AGREEMENT).expect("written");
    let collect = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/templates/collect.sh.hbs"));
    let collect = collect.expect("it ships");
    let script: Vec<&str> =
        collect.lines().skip_while(|line| !line.starts_with("export TORCH_")).take(3).collect();
    let script = script.join("\n");
    // As collect.sh starts it, without msprof.
    let script = script
        .replace("exec msprof --output=\"$(pwd -P)/{{profile}}\"{{#each profiler}} {{this}}{{/each}} ", "");
    let script = script.replace("{{python}}", "\"$PYTHON\"");
    let run = |ranks: &str, more: &str| {
        let script = script.replace("{{replay}} {{manifest}}", &format!("agreement.py {more}"));
        let of_one_host = format!("--standalone --nnodes 1 --local-addr 127.0.0.1 --nproc_per_node {ranks}");
        let script = script.replace("{{#each torchrun}} {{this}}{{/each}}", &of_one_host);
        let output = Command::new("sh")
            .args(["-c", &script])
            .current_dir(&folder)
            .env("PYTHON", &python)
            .env("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
            .env("NPUBENCH_RECORD", "the-mark")
            .stdin(fs::File::open(folder.join("replay.py")).expect("a file"))
            .output()
            .expect("sh runs");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    // Gangs at once have stores of their own.
    let gangs = thread::scope(|scope| {
        let run = &run;
        ["3", "2"].map(|ranks| scope.spawn(move || run(ranks, ""))).map(|gang| gang.join().expect("no panic"))
    });
    assert!(gangs.iter().all(|(succeeded, _)| *succeeded), "{gangs:?}");
    for rank in 0..3 {
        let results = fs::read_to_string(folder.join(format!("results.{rank}"))).expect("the rank has ended");
        let alone = match rank {
            1 => "{'type': 'OutOfMemoryError', 'message': 'none left'}",
            _ => "{'type': 'OtherRank', 'message': 'rank 1 has not launched it'}",
        };
        assert!(results.starts_with(&format!("[None, {alone}, None] ")), "{results}");
        assert!(results.trim_end().ends_with("/SwiGlu/replay.py the-mark"), "{results}");
    }
    // The outcome of a collection takes the failed rank from this text.
    let (succeeded, errors) = run("2", "fails");
    assert!(!succeeded);
    assert!(errors.contains("failed (exitcode: -9) local_rank: 1"), "{errors}");
}
