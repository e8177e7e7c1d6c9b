//! Kernel names with special meaning for file systems, shells and databases.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use npubench::{database::Database, kernel::KernelName};

use crate::prelude::*;

/// Names that no vendor uses, as in damaged or malicious profiles.
fn hostile() -> Vec<String> {
    let plain = "../../x|..|/etc/passwd|a/b|a\\b|CON|nul.txt|com1|$(touch pwned); rm -rf .|`touch pwned`|'; DROP TABLE runs; --|-rf|~|\
                 *|%41|%ZZ|.hidden|. leading|trailing.|say \"hi\", you|database.yaml|database.yaml.csv|.npubench|op_mapping|\
                 \u{6838}\u{51fd}\u{6570}|\u{e9}|e\u{301}|K\u{202e}vsc.|{{kernel}}";
    let long = ["a", "b"].map(|end| format!("{}{}", "x".repeat(280), end.repeat(20)));
    let mut names: Vec<String> = plain.split('|').map(str::to_owned).chain(long).collect();
    names.extend(["=cmd|' /C calc'!A0".to_owned(), "\u{6838}".repeat(100), "Y".repeat(300)]);
    names
}

/// Returns a profile with one record for each name, whose duration is its number in microseconds.
fn profile_of(names: &[&str]) -> String {
    let mut writer = csv::WriterBuilder::new().flexible(true).from_writer(Vec::new());
    for (number, name) in (1..).zip(names) {
        let duration = format!("{number}.000");
        let front =
            ["1", "0", "1", "7", "2", "aclnn", name, "dynamic", "AI_VECTOR_CORE", "1764246877073502.640\t"];
        let cells = ["\"4096\"", "FLOAT", "ND", "\"4096\"", "FLOAT", "ND", "N/A"];
        let record = [&front[..], &[&duration, "0", "40", "0", "NO"], &cells].concat();
        writer.write_record(record).expect("memory");
    }
    format!("{HEADER}\n{}", String::from_utf8(writer.into_inner().expect("memory")).expect("UTF-8"))
}

fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("listed").map(|entry| entry.expect("listed"));
    let files = entries.filter(|entry| entry.path().is_file());
    files.map(|entry| entry.file_name().into_string().expect("ASCII")).collect()
}

/// Returns the tables of a folder with their content, without the lock, which names a process.
fn tables(context: &Context, folder: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = context.snapshot(folder).into_iter();
    files.filter(|(path, _)| path.extension().is_some_and(|extension| extension == "csv")).collect()
}

/// Checks that each name has its own table with its record, and is listed.
fn assert_found(folder: &Path, names: &[&str]) {
    let database = Database::open(folder).expect("a database");
    let kernels: BTreeSet<KernelName> = database.kernels().expect("listed").into_iter().collect();
    for (number, name) in (1..).zip(names) {
        let kernel = KernelName::new(name).expect("a name");
        assert!(kernels.contains(&kernel), "{kernel} is not found again");
        let path = database.kernel_path(&kernel);
        assert_eq!(path.parent(), Some(database.folder()), "{kernel}");
        let mut reader = csv::Reader::from_path(&path).unwrap_or_else(|error| panic!("{kernel}: {error}"));
        let column =
            reader.headers().expect("a header").iter().position(|c| c == "Profiling Average Duration(us)");
        let rows: Vec<csv::StringRecord> = reader.records().map(|row| row.expect("a row")).collect();
        assert_eq!(rows.len(), 1, "{kernel}");
        assert_eq!(rows[0][column.expect("there")], format!("{number}.000000"), "{kernel}");
    }
    let folded: BTreeSet<String> = files(folder).iter().map(|name| name.to_lowercase()).collect();
    assert_eq!(folded.len(), files(folder).len(), "names of files differ by more than case");
}

#[test]
fn hostile_kernel_names_have_own_tables_inside_folder() {
    let context = Context::new();
    let names = hostile();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    context.write("in/k.csv", &profile_of(&names));
    context.done("ingest in/k.csv --db deep/down/db");
    assert_found(&context.path("deep/down/db"), &names);
    let inside = context.snapshot("deep/down/db");
    assert_eq!(inside.len(), names.len() + 1, "a table for each and database.yaml");
    assert_eq!(context.snapshot("").len(), inside.len() + 1, "nothing beside the database and the profile");
    for file in files(&context.path("deep/down/db")) {
        assert!(file.len() < 140 && !file.starts_with(['.', '-', '~']) || file.starts_with("-rf"), "{file}");
        assert!(file.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"%+-._".contains(&byte)), "{file}");
    }
    let again = context.run("ingest in/k.csv --db deep/down/db");
    again.out_has(" 0 rows added, 0 updated");
    assert!(context.snapshot("deep/down/db") == inside, "the same bytes");
    context.done("db check deep/down/db");
}

#[test]
fn kernel_names_differing_by_case_have_distinct_files() {
    let names = ["ADD", "Add", "add", "aDD", "CON", "con"];
    let context = Context::new();
    context.write("first.csv", &profile(&[SWIGLU]));
    context.run("ingest first.csv --db db");
    context.write("k.csv", &profile_of(&names));
    for database in ["db", "new"] {
        context.done(&["ingest", "k.csv", "--db", database]);
        assert_found(&context.path(database), &names);
        context.done(&["db", "check", database]);
    }
    let before = tables(&context, "db");
    let again = context.run("ingest k.csv --db db");
    again.out_has(" 0 rows added, 0 updated");
    assert!(tables(&context, "db") == before, "the same bytes");
    context.done("db copy db copy --kind rehearsal");
    let mut both = [files(&context.path("db")), files(&context.path("copy"))];
    both.iter_mut().for_each(|names| names.sort());
    assert_eq!(both[0], both[1], "a copy has the same files");
}
