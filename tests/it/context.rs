//! Temporary folder of a test, and runs of the program in it.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs, iter,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::LazyLock,
};

use serde_json::Value;
use tempfile::TempDir;

/// The header of `kernel_details.csv` as CANN 8.3 writes it, without the counters.
pub(crate) const HEADER: &str = "Step Id,Device_id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,\
    Start Time(us),Duration(us),Wait Time(us),Block Dim,Mix Block Dim,HF32 Eligible,Input Shapes,\
    Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,Context ID";

/// The variable `PATH` behind a folder with the Python interpreter in an environment without packages: `python3` may be the
/// script of a version manager, which takes longer than the interpreter, and starts another one if a child of its own is
/// killed; and packages of the host can run code at each start of the interpreter.
pub(crate) static SEARCH_PATH: LazyLock<OsString> = LazyLock::new(|| {
    let output = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
    let interpreter =
        PathBuf::from(String::from_utf8(output.expect("python3 runs").stdout).expect("a path").trim());
    // Made once for all test programs; of several at a time each writes the same.
    let environment = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python");
    let bin = environment.join("bin");
    fs::create_dir_all(&bin).expect("created");
    let home = interpreter.parent().expect("an interpreter in a folder").display();
    let settings = format!("home = {home}\ninclude-system-site-packages = false\n");
    fs::write(environment.join("pyvenv.cfg"), settings).expect("written");
    let link = bin.join("python3");
    if fs::read_link(&link).ok().as_deref() != Some(&*interpreter) {
        let _ = fs::remove_file(&link);
        symlink(&interpreter, &link).expect("linked");
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(iter::once(bin).chain(std::env::split_paths(&path))).expect("folders without colons")
});

/// A run of the rehearsal host on two devices, with the durations of the steady model. Each collection takes about 0.4 s of a
/// core, so that more devices make a test slower, not faster.
pub(crate) const STEADY_RUN: [&str; 9] =
    ["run", "--db", "db", "--host", "rehearsal", "--devices", "0-1", "--rehearsal-model", "steady"];
/// The same with those of the lifelike model.
pub(crate) const LIFELIKE_RUN: [&str; 9] =
    ["run", "--db", "db", "--host", "rehearsal", "--devices", "0-1", "--rehearsal-model", "lifelike"];
/// Kernels of the decoder layer in `examples`.
pub(crate) const DECODER_KERNELS: [&str; 10] =
    ["Add", "GatherV2", "MatMulV2", "MatMulV3", "Mul", "RmsNorm", "Slice", "Sort", "SwiGlu", "TensorMove"];

/// Files of the database `db` by their paths: what several tests need is measured once, and each has a copy.
pub(crate) type Files = BTreeMap<PathBuf, Vec<u8>>;

/// The database of the decoder layer in `examples`, ingested once for all tests.
static DECODER_LAYER: LazyLock<Files> = LazyLock::new(|| {
    let context = Context::new();
    let profile = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/decoder-layer/kernel_details.csv");
    context.done(&["ingest", profile, "--db", "db", "--kind", "rehearsal"]);
    context.snapshot("db")
});

/// The same behind [`STEADY_RUN`].
static MEASURED_LAYER: LazyLock<Files> = LazyLock::new(|| {
    let context = Context::of_layer();
    context.done(&STEADY_RUN);
    context.snapshot("db")
});

/// Median of a case in the model of the rehearsal host.
#[derive(Clone, Debug)]
pub(crate) struct TrueMedian {
    /// Id of the run; that of a cold run ends with `-cold`.
    pub(crate) run: String,
    pub(crate) case: String,
    pub(crate) kernel: String,
    pub(crate) micros: f64,
}

/// Temporary folder of a test.
pub(crate) struct Context {
    root: TempDir,
}

/// Arguments of a command: a text is split at its spaces; a tuple has the arguments of its parts.
pub(crate) trait Words {
    fn words(&self) -> Vec<&str>;
}

impl Words for str {
    fn words(&self) -> Vec<&str> {
        self.split_whitespace().collect()
    }
}

impl<S: AsRef<str>> Words for [S] {
    fn words(&self) -> Vec<&str> {
        self.iter().map(AsRef::as_ref).collect()
    }
}

impl<S: AsRef<str>, const N: usize> Words for [S; N] {
    fn words(&self) -> Vec<&str> {
        self.as_slice().words()
    }
}

impl<S: AsRef<str>> Words for Vec<S> {
    fn words(&self) -> Vec<&str> {
        self.as_slice().words()
    }
}

impl Words for String {
    fn words(&self) -> Vec<&str> {
        self.as_str().words()
    }
}

impl<W: Words + ?Sized> Words for &W {
    fn words(&self) -> Vec<&str> {
        (**self).words()
    }
}

impl<A: Words, B: Words> Words for (A, B) {
    fn words(&self) -> Vec<&str> {
        [self.0.words(), self.1.words()].concat()
    }
}

impl<A: Words, B: Words, C: Words> Words for (A, B, C) {
    fn words(&self) -> Vec<&str> {
        [self.0.words(), self.1.words(), self.2.words()].concat()
    }
}

impl<A: Words, B: Words, C: Words, D: Words> Words for (A, B, C, D) {
    fn words(&self) -> Vec<&str> {
        [self.0.words(), self.1.words(), self.2.words(), self.3.words()].concat()
    }
}

/// Values of JSON whose type a test knows.
pub(crate) trait Json {
    fn text(&self) -> &str;
    fn list(&self) -> &Vec<Value>;
    fn whole(&self) -> u64;
    fn float(&self) -> f64;
}

impl Json for Value {
    #[track_caller]
    fn text(&self) -> &str {
        self.as_str().unwrap_or_else(|| panic!("no text: {self}"))
    }

    #[track_caller]
    fn list(&self) -> &Vec<Value> {
        self.as_array().unwrap_or_else(|| panic!("no list: {self}"))
    }

    #[track_caller]
    fn whole(&self) -> u64 {
        self.as_u64().unwrap_or_else(|| panic!("no whole number: {self}"))
    }

    #[track_caller]
    fn float(&self) -> f64 {
        self.as_f64().unwrap_or_else(|| panic!("no number: {self}"))
    }
}

/// Exit code and output of the program.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// Asserts the exit code.
    #[track_caller]
    pub(crate) fn ended(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{}{}", self.stdout, self.stderr);
        self
    }

    /// Asserts that the command ended with 0 or, because some cases failed, with 1.
    #[track_caller]
    pub(crate) fn measured(self) -> Self {
        assert!(self.code <= 1, "{}: {}{}", self.code, self.stdout, self.stderr);
        self
    }

    /// Returns the objects of JSON lines.
    #[track_caller]
    pub(crate) fn json(&self) -> Vec<Value> {
        let lines = self.stdout.lines();
        lines.map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }

    /// Asserts that standard error contains a text.
    #[track_caller]
    pub(crate) fn err_has(&self, text: &str) {
        assert!(self.stderr.contains(text), "no `{text}` in: {}", self.stderr);
    }

    #[track_caller]
    pub(crate) fn err_lacks(&self, text: &str) {
        assert!(!self.stderr.contains(text), "`{text}` is in: {}", self.stderr);
    }

    /// Asserts that standard output contains a text.
    #[track_caller]
    pub(crate) fn out_has(&self, text: &str) {
        assert!(self.stdout.contains(text), "no `{text}` in: {}{}", self.stdout, self.stderr);
    }

    #[track_caller]
    pub(crate) fn out_lacks(&self, text: &str) {
        assert!(!self.stdout.contains(text), "`{text}` is in: {}", self.stdout);
    }
}

impl Context {
    pub(crate) fn new() -> Self {
        Self { root: tempfile::tempdir().expect("a folder") }
    }

    /// Returns a context with the decoder layer of `examples` as the database `db`.
    pub(crate) fn of_layer() -> Self {
        let context = Self::new();
        context.decoder_layer("db");
        context
    }

    /// Returns a context with the decoder layer behind [`STEADY_RUN`].
    pub(crate) fn of_measured_layer() -> Self {
        Self::of_files(&MEASURED_LAYER)
    }

    /// Returns a context with these files as the database `db`.
    pub(crate) fn of_files(files: &Files) -> Self {
        let context = Self::new();
        context.write_files("db", files);
        context
    }

    pub(crate) fn decoder_layer(&self, database: &str) {
        self.write_files(database, &DECODER_LAYER);
    }

    fn write_files(&self, database: &str, files: &Files) {
        for (path, content) in files {
            let path = self.path(database).join(path.strip_prefix("db").expect("below the database"));
            fs::create_dir_all(path.parent().expect("below the root")).expect("created");
            fs::write(path, content).expect("written");
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Returns a command of the program, without variables of the environment that change its output.
    pub(crate) fn command(&self, arguments: &(impl Words + ?Sized)) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("npubench"));
        command
            .args(arguments.words())
            .current_dir(self.root.path())
            .env("NO_COLOR", "1")
            .env("PATH", &*SEARCH_PATH)
            // Profiles in tests do not contain their device, and the host of the tests has none.
            .env("NPUBENCH_DEVICE", "ATLAS_800_A3_752T_128G_DIE")
            // One collection per case; tests of further rounds give `--max-collections`.
            .env("NPUBENCH_MAX_COLLECTIONS", "1")
            .env("NPUBENCH_LAUNCHES", "20")
            // Colours depend on it.
            .env_remove("CI")
            .env_remove("COLUMNS")
            .env_remove("NPUBENCH_ASSETS")
            .env_remove("NPUBENCH_LEASES")
            .env_remove("NPUBENCH_DB")
            .env_remove("NPUBENCH_EXPORTER")
            .env("XDG_CONFIG_HOME", self.path("no-settings"));
        command
    }

    pub(crate) fn run(&self, arguments: &(impl Words + ?Sized)) -> Ran {
        self.ran(&self.command(arguments).output().expect("npubench runs"))
    }

    /// Runs the program with as many collections of each case as the rules demand.
    pub(crate) fn run_all_rounds(&self, arguments: &(impl Words + ?Sized)) -> Ran {
        let mut command = self.command(arguments);
        self.ran(&command.env_remove("NPUBENCH_MAX_COLLECTIONS").output().expect("npubench runs"))
    }

    /// Runs the program, which must end with 0.
    #[track_caller]
    pub(crate) fn done(&self, arguments: &(impl Words + ?Sized)) -> Ran {
        self.run(arguments).ended(0)
    }

    /// Runs the program, which must end with this exit code.
    #[track_caller]
    pub(crate) fn exits(&self, code: i32, arguments: &(impl Words + ?Sized)) -> Ran {
        self.run(arguments).ended(code)
    }

    /// Starts the program, whose output is captured.
    pub(crate) fn start(&self, arguments: &(impl Words + ?Sized)) -> Child {
        self.command(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("npubench starts")
    }

    /// Waits for the end of a process of [`Self::start`].
    pub(crate) fn finish(&self, child: Child) -> Ran {
        self.ran(&child.wait_with_output().expect("it ends"))
    }

    /// Returns exit code and output of a process; `ROOT` replaces the path of the temporary folder.
    pub(crate) fn ran(&self, output: &Output) -> Ran {
        let root = self.root.path().canonicalize().expect("the folder exists");
        let text = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            text.replace(&*root.to_string_lossy(), "ROOT")
                .replace(&*self.root.path().to_string_lossy(), "ROOT")
        };
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("below the root")).expect("created");
        fs::write(&path, text).expect("written");
        path
    }

    pub(crate) fn read(&self, name: &str) -> String {
        let path = self.path(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Returns every file below a folder with its content.
    pub(crate) fn snapshot(&self, name: &str) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut folders = vec![self.path(name)];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten() {
                let path = entry.expect("listed").path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let content = fs::read(&path).unwrap_or_default();
                    files.insert(path.strip_prefix(self.root.path()).expect("below").to_owned(), content);
                }
            }
        }
        files
    }

    /// Returns the tables of the database `db` with their content.
    pub(crate) fn csv_files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let is_csv = |path: &PathBuf| {
            path.components().count() == 2 && path.extension().is_some_and(|end| end == "csv")
        };
        self.snapshot("db").into_iter().filter(|(path, _)| is_csv(path)).collect()
    }

    /// Returns the medians of the rehearsal host's model in all runs of the database `db`.
    pub(crate) fn true_medians(&self) -> Vec<TrueMedian> {
        let files = self.snapshot("db/.npubench/runs").into_iter();
        let truth = files.filter(|(path, _)| path.ends_with("host/truth.csv"));
        let medians = truth.flat_map(|(path, content)| {
            let run = path.components().nth(3).expect("a run").as_os_str().to_string_lossy().into_owned();
            let mut reader = csv::Reader::from_reader(content.as_slice());
            let rows = reader.records().map(|row| row.expect("a row"));
            let median = |row: csv::StringRecord| TrueMedian {
                run: run.clone(),
                case: row[0].to_owned(),
                kernel: row[1].to_owned(),
                micros: row[2].parse().expect("a number"),
            };
            rows.map(median).collect::<Vec<_>>()
        });
        medians.collect()
    }

    pub(crate) fn true_medians_by_case(&self) -> BTreeMap<String, f64> {
        self.true_medians().into_iter().map(|median| (median.case, median.micros)).collect()
    }

    /// Creates a database of kind `rehearsal` with one case of `SwiGlu` and one of `Add`.
    pub(crate) fn small_database(&self, name: &str) {
        self.ingest_records(name, &[SWIGLU, ADD], &[]);
    }

    /// Ingests the records of a profile `NAME.csv` into the database of this name and kind `rehearsal`.
    pub(crate) fn ingest_records(&self, name: &str, records: &[&str], more: &[&str]) {
        let file = format!("{name}.csv");
        self.write(&file, &profile(records));
        self.done(&[&["ingest", &file, "--db", name, "--kind", "rehearsal"], more].concat());
    }

    pub(crate) fn rows(&self, database: &str, kernel: &str) -> Vec<BTreeMap<String, String>> {
        let path = self.path(database).join(format!("{kernel}.csv"));
        let mut reader =
            csv::Reader::from_path(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        reader.deserialize().map(|row| row.expect("a row")).collect()
    }
}

pub(crate) const SWIGLU: &str =
    "SwiGlu,59.730,\"\"\"512,6144\"\"\",DT_BF16,ND,\"\"\"512,3072\"\"\",DT_BF16,ND";
pub(crate) const ADD: &str = "Add,2.060,\"\"\"4096;\"\"\",FLOAT;FLOAT,ND;ND,\"\"\"4096\"\"\",FLOAT,ND";

/// Returns a `kernel_details.csv` of records given as `Type,Duration,` and the six signature cells.
pub(crate) fn profile(records: &[&str]) -> String {
    let mut text = format!("{HEADER}\n");
    for (index, record) in records.iter().enumerate() {
        let mut parts = record.splitn(3, ',');
        let (kernel, duration, cells) =
            (parts.next().expect("a type"), parts.next().expect("a duration"), parts.next().expect("cells"));
        text.push_str(&format!(
            "1,0,4294967295,{index},2,aclnn_{kernel},{kernel},dynamic,AI_VECTOR_CORE,\
             17642468770735{index:02}.640\t,{duration},0,40,0,NO,{cells},N/A\n"
        ));
    }
    text
}
