//! `db check` and `db normalize` on folders that are broken in every way we could think of.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use crate::prelude::*;

const SIGNATURE: &str =
    "Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats";
const ROW: &str = "4,FLOAT,ND,4,FLOAT,ND";
const OTHER: &str = "8,FLOAT,ND,8,FLOAT,ND";
const COLLECTIVE: &str = "message_bytes,num_devices,dtype,topology_tier,Duration(us),bandwidth_gbps";

fn table(columns: &str, rows: &[&str]) -> String {
    let rows: String = rows.iter().map(|row| format!("{row}\n")).collect();
    format!("{SIGNATURE}{columns}\n{rows}")
}

/// Checks a folder that holds one file, which must not change; returns its output without the lines about columns
/// that short tables lack.
fn check_output(file: &str, bytes: &[u8]) -> String {
    let context = Context::new();
    fs::create_dir(context.path("db")).expect("created");
    fs::write(context.path("db").join(file), bytes).expect("written");
    if !file.ends_with(".csv") {
        context.write("db/Sound.csv", &table("", &[ROW]));
    }
    let before = context.snapshot("");
    let ran = context.run("db check db");
    assert_eq!(context.snapshot(""), before, "a check wrote something");
    let is_bad = ran.stdout.lines().any(|line| !line.contains(": note: "));
    assert_eq!(ran.code, i32::from(is_bad), "{}{}", ran.stdout, ran.stderr);
    let lines = ran.stdout.lines().filter(|line| !line.ends_with("[missing-columns]"));
    lines.map(|line| format!("{line}\n")).collect()
}

/// A file that ends in its header, as after an interrupted copy, is not a table without cases.
#[test]
fn table_cut_in_its_header_is_an_error() {
    let context = Context::new();
    context.small_database("db");
    let text = context.read("db/SwiGlu.csv");
    let signature = text.find("Output Formats").expect("a column") + "Output Formats".len();
    let cut = context.write("db/SwiGlu.csv", &text[..signature + 4]);
    let ran = context.exits(1, "db check db");
    let errors: Vec<&str> = ran.stdout.lines().filter(|line| !line.contains(": note: ")).collect();
    insta::assert_snapshot!(errors.join("\n"), @"db/SwiGlu.csv:1: error: the header has no line break and no rows follow: the file was cut, or its last line lacks a line break; restore the file from version control, or end the line [cut-header]");
    let plan = context.run("plan --db db --devices 0");
    insta::assert_snapshot!(plan.stderr, @"
    error: ROOT/db/SwiGlu.csv:1: the header has no line break and no rows follow: the file was cut, or its last line lacks a line break
    hint: fix the line, or restore the file from version control, or move it out of the folder: `npubench db rebuild` writes the rows that runs have measured, and then `npubench ingest PROFILE` those of a profile
    ");
    let run = context.run("run --db db --host rehearsal --devices 0");
    assert_eq!((plan.code, run.code, run.stderr), (3, 3, plan.stderr));
    // The whole header is a table without rows.
    let header = text.lines().next().expect("a header");
    fs::write(&cut, format!("{header}\n")).expect("written");
    let ran = context.run("db check db");
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""));
    context.done("plan --db db --devices 0");
}

#[test]
fn db_check_reports_files_that_are_no_tables() {
    let outputs = [
        check_output("K.csv", b"version https://git-lfs.github.com/spec/v1\noid sha256:62a5\nsize 5528\n"),
        check_output("op_mapping.yaml", b"version https://git-lfs.github.com/spec/v1\n"),
        check_output("K.csv", b""),
        check_output("K.csv", b"\xef\xbb\xbf\r\n\r\n"),
        check_output("K.csv", b"\xff\xfeI\0n\0"),
        check_output("K.csv", b"Input Shapes\n4\n\0\0\0\0"),
        check_output("K.csv", b"Input Shapes;Input Data Types\n\"4;8,8\";FLOAT\n1,5;FLOAT\n"),
        check_output("K.csv", b"PK\x03\x04\x9c,\x01\n"),
        check_output("notes.csv", b"a,b\n1,2\n"),
        check_output("database.yaml", b"npubench_database: 1\nkind: nqu\n"),
    ];
    insta::assert_snapshot!(outputs.join("--\n"), @r"
    db/K.csv:1: error: a Git LFS pointer, not the data; `git lfs pull` fetches it [lfs-pointer]
    --
    db/op_mapping.yaml:1: error: a Git LFS pointer, not the data; `git lfs pull` fetches it [lfs-pointer]
    --
    db/K.csv:1: error: the file is empty, expected a header: restore it, or remove it, so that `npubench db rebuild` writes its measured rows [empty]
    --
    db/K.csv:1: warning: starts with a byte-order mark, which hides the first column from some readers [byte-order-mark]
    db/K.csv:1: error: the file is empty, expected a header: restore it, or remove it, so that `npubench db rebuild` writes its measured rows [empty]
    --
    db/K.csv:1: error: is UTF-16, expected UTF-8 [not-csv]
    --
    db/K.csv:1: error: is not text: a NUL byte in line 3 [not-csv]
    --
    db/K.csv:1: error: `Input Shapes;Input Data Types` has no comma; is the table separated by ';'? [not-csv]
    --
    db/K.csv:1: error: the name of column 1 is not UTF-8 [not-utf8]
    db/K.csv:1: error: the header lacks `Input Shapes`, `Input Data Types`, `Input Formats`, `Output Shapes`, `Output Data Types`, `Output Formats` [no-column]
    db/K.csv:1: note: not in the contract, kept as they are: `PK\u{3}\u{4}�`, `\u{1}` [own-column]
    --
    db/notes.csv:1: error: the header lacks `Input Shapes`, `Input Data Types`, `Input Formats`, `Output Shapes`, `Output Data Types`, `Output Formats` [no-column]
    db/notes.csv:1: note: not in the contract, kept as they are: `a`, `b` [own-column]
    --
    db/database.yaml:2: error: unknown value `nqu`, expected one of `npu`, `rehearsal` [unreadable]
    ");
}

#[test]
fn db_check_reports_invalid_rows() {
    let double = format!("{SIGNATURE},Note,Note, Note ,\n{ROW},,,,\n");
    let outputs = [
        check_output("K.csv", double.as_bytes()),
        check_output(
            "K.csv",
            table(",Note", &["4,FLOAT", &format!("{ROW},a,b"), &format!("{ROW},")]).as_bytes(),
        ),
        check_output("K.csv", &[table(",Note", &[]).as_bytes(), ROW.as_bytes(), b",\xb2\xe2\n"].concat()),
        check_output(
            "K.csv",
            table("", &["6k,FLOAT,ND,4,FLOAT,ND", "4;4,FLOAT;,ND,,,", "N/A,N/A,N/A,,,", ",,,,,"]).as_bytes(),
        ),
        check_output(
            "K.csv",
            table("", &[ROW, OTHER, "\"\"\"4;\"\"\",FLOAT;DT_UNDEFINED,ND,4,DT_FLOAT,ND", OTHER]).as_bytes(),
        ),
        check_output("K.csv", table("", &[ROW, &ROW.replacen(",ND", ",\"ND", 1)]).as_bytes()),
        check_output("K.csv", format!("\u{feff}{SIGNATURE}\r\n{ROW}\r\n\n{OTHER}\n").as_bytes()),
        check_output("K.csv", table(",MicroBench Duration(us)", &[&format!("{ROW},3.5")]).as_bytes()),
        check_output(
            "K.csv",
            table(
                ",Average Duration(us),Std Duration(us)",
                &[&format!("{ROW},0,0"), &format!("{OTHER},0.0,")],
            )
            .as_bytes(),
        ),
    ];
    insta::assert_snapshot!(outputs.join("--\n"), @r#"
    db/K.csv:1: error: `Note` is the name of columns 7 and 8 [double-column]
    db/K.csv:1: error: `Note` is the name of columns 7 and 9 [double-column]
    db/K.csv:1: note: not in the contract, kept as they are: `Note`, `Note`, `Note`, `` [own-column]
    --
    db/K.csv:1: note: not in the contract, kept as they are: `Note` [own-column]
    db/K.csv:2: error: 2 fields, the header has 7; fields are missing at or before `Input Formats` (column 3) [ragged]
    db/K.csv:3: error: 8 fields, the header has 7; field 8 has no column [ragged]
    --
    db/K.csv:1: note: not in the contract, kept as they are: `Note` [own-column]
    db/K.csv:2: error: `Note` (column 7) is not UTF-8 [not-utf8]
    --
    db/K.csv:2: error: `6k` is not a dimension (slot 0 of `6k`) [signature]
    db/K.csv:3: error: slot 1 has a shape but no type [signature]
    db/K.csv:4: warning: the row has no input shapes [no-shapes]
    db/K.csv:5: warning: the row has no input shapes [no-shapes]
    --
    db/K.csv:4: warning: the same signature as line 2; different columns: `Input Shapes`, `Input Data Types`, `Output Data Types` [duplicate]
    db/K.csv:5: warning: the same row as line 3 [duplicate]
    --
    db/K.csv:3: error: 3 fields, the header has 6; fields are missing at or before `Output Shapes` (column 4) [ragged]
    db/K.csv:3: error: a quote in this row is not closed before the file ends [open-quote]
    --
    db/K.csv:1: warning: starts with a byte-order mark, which hides the first column from some readers [byte-order-mark]
    db/K.csv:4: warning: the header ends in "\r\n", this line does not [line-endings]
    --
    db/K.csv:1: warning: `MicroBench Duration(us)` is now called `Average Duration(us)` [old-column]
    --
    db/K.csv:1: note: not in the contract, kept as they are: `Std Duration(us)` [own-column]
    db/K.csv:2: warning: 2 rows from here on have 0 in place of measurements that do not exist (3 cells); `npubench db normalize` empties them [zeros]
    "#);
}

#[test]
fn unknown_types_and_formats_are_named_with_the_nearest() {
    let rows = [
        "4;4,DT_BF17;DT_BF16,ND;ND,4,DT_BF17,ND",
        "8;8,DT_BF17;FLOAT,ND;FRACTAL_NX,8,DT_BF16,ND",
        "9;9,DT_UNDEFINED;STRING,FORMAT_ND;NC1HWC0,9,WHATEVER,ND",
    ];
    insta::assert_snapshot!(check_output("K.csv", table("", &rows).as_bytes()), @r"
    db/K.csv:2: warning: `Input Data Types`: `DT_BF17` is not a known type, 2 rows from here on; did you mean `DT_BF16`? [unknown-name]
    db/K.csv:2: warning: `Output Data Types`: `DT_BF17` is not a known type, 1 row from here on; did you mean `DT_BF16`? [unknown-name]
    db/K.csv:3: warning: `Input Formats`: `FRACTAL_NX` is not a known format, 1 row from here on; did you mean `FRACTAL_NZ`? [unknown-name]
    db/K.csv:4: warning: `Output Data Types`: `WHATEVER` is not a known type, 1 row from here on; CANN has no such type [unknown-name]
    ");
}

#[test]
fn two_folders_are_refused() {
    let context = Context::new();
    context.small_database("one");
    context.small_database("other");
    for command in ["check", "normalize", "rebuild"] {
        let ran = context.exits(2, &["db", command, "one", "--db", "other"]);
        ran.err_has("'[DIR]' cannot be used with '--db <DIR>'");
    }
    // The usual folder is not a second one.
    let mut command = context.command("db check one");
    context.ran(&command.env("NPUBENCH_DB", "nowhere").output().expect("it runs")).measured();
}

#[test]
fn db_check_reports_invalid_numbers() {
    let columns = ",Average Duration(us),MicroBench aiv_time(us),MicroBench Samples,MicroBench Verdict";
    let rows: Vec<String> =
        ["-1,,,", "nan,,,", "inf,N/A,2.5,fine", "fast,\u{1b}[31m,-3,ok", "0,1,20,", "1e1,0,20,"]
            .iter()
            .zip(1..)
            .map(|(cells, size)| format!("{size},FLOAT,ND,4,FLOAT,ND,{cells}"))
            .collect();
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    insta::assert_snapshot!(check_output("K.csv", table(columns, &rows).as_bytes()), @r"
    db/K.csv:2: error: `Average Duration(us)` is `-1`, which is negative [number]
    db/K.csv:3: error: `Average Duration(us)` is `nan`, which is not finite [number]
    db/K.csv:4: error: `Average Duration(us)` is `inf`, which is not finite [number]
    db/K.csv:4: error: `MicroBench Samples` is `2.5`, which is not a whole number [number]
    db/K.csv:4: error: `MicroBench Verdict` is `fine`, which is not a verdict [number]
    db/K.csv:5: error: `Average Duration(us)` is `fast`, which is not a number [number]
    db/K.csv:5: error: `MicroBench aiv_time(us)` is `\u{1b}[31m`, which is not a number [number]
    db/K.csv:5: error: `MicroBench Samples` is `-3`, which is negative [number]
    db/K.csv:6: error: `Average Duration(us)` is `0`, which is no duration of a kernel, expected 0.001 to 3600000000 us (an hour); a cell that was not measured is empty [number]
    ");
}

#[test]
fn db_check_reports_invalid_collectives() {
    let good = "1024,16,DT_FP16,1,3.5,0.29";
    let outputs = [
        check_output("hcom_allReduce_.csv", format!("{COLLECTIVE}\n{good}\n").as_bytes()),
        check_output("hcom_allReduce_.csv", b"message_bytes,dtype,Duration(us),Note\n1024,DT_FP16,3.5,\n"),
        check_output(
            "hcom_allReduce_.csv",
            format!("{COLLECTIVE}\n{good}\n1k,16.5,DT_FP16,N/A,-1,\n1024,16,DT_FP16,1,3.6,0.3\n").as_bytes(),
        ),
    ];
    insta::assert_snapshot!(outputs.join("--\n"), @r"
    --
    db/hcom_allReduce_.csv:1: error: the header lacks `num_devices`, `topology_tier`, `bandwidth_gbps` [no-column]
    db/hcom_allReduce_.csv:1: note: not in the contract, kept as they are: `Note` [own-column]
    --
    db/hcom_allReduce_.csv:3: error: `message_bytes` is `1k`, which is not a number [number]
    db/hcom_allReduce_.csv:3: error: `num_devices` is `16.5`, which is not a whole number [number]
    db/hcom_allReduce_.csv:3: error: `topology_tier` is empty [number]
    db/hcom_allReduce_.csv:3: error: `Duration(us)` is `-1`, which is negative [number]
    db/hcom_allReduce_.csv:3: error: `bandwidth_gbps` is empty [number]
    db/hcom_allReduce_.csv:4: warning: the same message_bytes, num_devices, dtype, topology_tier as line 2: 1024, 16, DT_FP16, 1 [duplicate]
    ");
}

#[test]
fn db_check_reports_names_of_no_kernel() {
    let good = table("", &[ROW]);
    let outputs = [
        check_output("%ZZ.csv", good.as_bytes()),
        check_output("a b.csv", good.as_bytes()),
        check_output("K\n\u{1b}[31m.csv", good.as_bytes()),
        check_output(".npubench-x1.tmp", b""),
        check_output("~$Add.csv", b"\x05Anna\0"),
    ];
    insta::assert_snapshot!(outputs.join("--\n"), @r"
    db/%ZZ.csv:1: error: `%ZZ` is not a kernel name: control characters are not allowed, and `%` must precede two hexadecimal digits [file-name]
    --
    db/a b.csv:1: error: is read as kernel `a b`, whose file is `a%20b.csv` [file-name]
    --
    db/K??[31m.csv:1: error: `K\n\u{1b}[31m` is not a kernel name: control characters are not allowed, and `%` must precede two hexadecimal digits [file-name]
    --
    db/.npubench-x1.tmp:1: note: a temporary file of an interrupted npubench; remove it when none is running [left-behind]
    --
    db/~$Add.csv:1: note: a spreadsheet program locks an open table by this file; remove it if none has the table open [left-behind]
    ");
    let context = Context::new();
    context.write("db/Add.csv", &good);
    context.write("db/ADD.csv", &good);
    fs::create_dir(context.path("db/.npubench")).expect("created");
    let checked = context.run("db check db").stdout;
    assert!(
        checked.contains("db/database.yaml:1: warning: is missing: the folder is read as one of kind `npu`"),
        "{checked}"
    );
    let refused = context.run("run --db db --host rehearsal").stderr;
    assert!(refused.contains("of kind `npu`, because it has no `database.yaml`, this needs"), "{refused}");
    if context.snapshot("db").len() == 2 {
        let ran = context.run("db check db");
        ran.out_has("db/Add.csv:1: error: `ADD.csv` differs only by case");
    }
}

#[test]
fn db_check_of_valid_database_is_empty() {
    let context = Context::new();
    context.small_database("db");
    context.done("run --db db --host rehearsal --devices 0");
    let ran = context.run("db check db");
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""));
    let note = "the `Profiling` cells of 2 rows are not compared: the database does not have the profiles\n";
    assert_eq!(ran.stderr, "0 errors, 0 warnings, 0 notes in 3 files of db\n".to_owned() + note);
    let before = context.snapshot("db");
    let ran = context.run("db normalize db");
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""), "{}", ran.stderr);
    assert!(tables(&context).iter().all(|(path, bytes)| before.get(path) == Some(bytes)));
    // The same rows in a folder of kind npu are a lie.
    let text = context.read("db/SwiGlu.csv");
    context.write("real/SwiGlu.csv", &text);
    let ran = context.run("db check real");
    assert_eq!(
        ran.stdout,
        "real/SwiGlu.csv:2: error: a rehearsed run wrote it (1 row), in a folder of kind `npu` [rehearsed]\n"
    );
    assert_eq!(context.run("db normalize real").code, 1);
    assert!(!context.path("real/.npubench").exists() && !context.path("real/database.yaml").exists());
}

/// A folder with everything that can be repaired, and files that cannot.
fn broken() -> Context {
    let context = Context::new();
    let grid = ",Average Duration(us),Profiling Average Duration(us),MicroBench aiv_time(us),Runtime x,Note";
    let rows = [
        "1,FLOAT,ND,1,FLOAT,ND,0,0,0,0,",
        "2,FLOAT,ND,2,FLOAT,ND,5.5,,,,",
        "2,FLOAT,ND,2,FLOAT,ND,,7.1,,,mine",
        "3,FLOAT,ND,3,FLOAT,ND,1,,,,a",
        "1,FLOAT,ND,1,FLOAT,ND,4.5,,2,0,",
        "3,FLOAT,ND,3,FLOAT,ND,1,,,,b",
        "3,FLOAT,ND,3,FLOAT,ND,1,,,,a",
        "4,FLOAT,ND,4,FLOAT,ND,0,0,0,0,\"as it is\"",
        "5,FLOAT,ND,5,FLOAT,ND,\"9\",,,,\"as, it is\"",
    ];
    context.write("db/Grid.csv", &table(grid, &rows));
    context.write("db/Mixed.csv", &format!("\u{feff}{SIGNATURE},Note\r\n{ROW},\"a\nb\"\n\r\n{OTHER},\"c\""));
    context.write("db/Old.csv", &table(",MicroBench Duration(us)", &[&format!("{ROW},3.5")]));
    context.write("db/Fine.csv", &format!("{SIGNATURE}\n\n\"4\",FLOAT,\"ND\",4,FLOAT,ND"));
    context.write("db/Pointer.csv", "version https://git-lfs.github.com/spec/v1\noid x\n");
    context.write("db/Ragged.csv", &format!("\u{feff}{}", table("", &[ROW, ROW, "4"])));
    let rows = "\n64,2,DT_FP16,0,3.5,\n64,2,DT_FP16,0,3.5,1\n64,2,DT_FP16,0,3.6,1\n";
    context.write("db/hcom_allReduce_.csv", &format!("{COLLECTIVE}{rows}"));
    context
}

/// Everything in the folder but the lock, which names its last owner.
fn tables(context: &Context) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = context.snapshot("db");
    files.retain(|path, _| !path.ends_with("lock"));
    files
}

#[test]
fn db_normalize_fixes_issues_once() {
    let context = broken();
    let before = context.snapshot("db");
    let dry = context.run("db normalize db --dry-run");
    assert_eq!(context.snapshot("db"), before, "a dry run wrote something");
    let ran = context.run("db normalize db");
    assert_eq!((dry.code, ran.code), (1, 1), "a pointer and a ragged file were refused");
    assert_eq!(dry.stdout.replace("would repair:", "repaired:"), ran.stdout);
    insta::assert_snapshot!(format!("{}{}{}", ran.stdout, dry.stderr, ran.stderr), @r#"
    db/Grid.csv:2: repaired: 2 rows from here on had 0 in place of measurements that do not exist: 6 cells emptied
    db/Grid.csv:4: repaired: the same signature as line 3, which gets `Profiling Average Duration(us)`, `Note`
    db/Grid.csv:6: repaired: the same signature as line 2, which gets `Average Duration(us)`, `MicroBench aiv_time(us)`
    db/Grid.csv:8: repaired: the same row as line 5: one was removed
    db/Grid.csv:7: left: the same signature as line 5, both are kept: they contradict each other in `Note`
    db/Mixed.csv:1: repaired: the byte-order mark was removed
    db/Mixed.csv:1: repaired: every line now ends in "\r\n", as the header does
    db/Old.csv:1: repaired: `MicroBench Duration(us)` was renamed to `Average Duration(us)`
    db/Pointer.csv:1: refused: a Git LFS pointer, not the data; `git lfs pull` fetches it
    db/Ragged.csv:4: refused: 1 field, the header has 6; fields are missing at or before `Input Data Types` (column 2)
    db/hcom_allReduce_.csv:3: repaired: the same signature as line 2, which gets `bandwidth_gbps`
    db/hcom_allReduce_.csv:4: left: the same signature as line 2, both are kept: they contradict each other in `Duration(us)`
    4 files would be repaired (dry run: nothing was written), 2 refused; 2 duplicates kept because their values contradict each other
    4 files repaired, 2 refused; 2 duplicates kept because their values contradict each other
    "#);
    let after = tables(&context);
    let bytes = |name: &str| &after[Path::new(&format!("db/{name}.csv"))];
    for name in ["Fine", "Pointer", "Ragged"] {
        assert_eq!(bytes(name), &before[Path::new(&format!("db/{name}.csv"))]);
    }
    let text = |name: &str| String::from_utf8_lossy(bytes(name)).into_owned();
    insta::assert_snapshot!(text("Grid"), @r#"
    Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,Average Duration(us),Profiling Average Duration(us),MicroBench aiv_time(us),Runtime x,Note
    1,FLOAT,ND,1,FLOAT,ND,4.5,,2,0,
    2,FLOAT,ND,2,FLOAT,ND,5.5,7.1,,,mine
    3,FLOAT,ND,3,FLOAT,ND,1,,,,a
    3,FLOAT,ND,3,FLOAT,ND,1,,,,b
    4,FLOAT,ND,4,FLOAT,ND,,,,0,as it is
    5,FLOAT,ND,5,FLOAT,ND,"9",,,,"as, it is"
    "#);
    assert_eq!(text("Mixed"), format!("{SIGNATURE},Note\r\n{ROW},\"a\nb\"\r\n\r\n{OTHER},\"c\""));
    assert_eq!(text("Old"), table(",Average Duration(us)", &[&format!("{ROW},3.5")]));
    assert_eq!(
        text("hcom_allReduce_"),
        format!("{COLLECTIVE}\n64,2,DT_FP16,0,3.5,1\n64,2,DT_FP16,0,3.6,1\n")
    );
    assert!(after.keys().any(|path| path.ends_with("database.yaml")), "the folder was adopted");
    let again = context.run("db normalize db");
    again.out_lacks("repaired:");
    assert_eq!(tables(&context), after);
    let checked = context.run("db check db");
    for kind in ["line-endings", "old-column", "zeros"] {
        checked.out_lacks(&format!("[{kind}]"));
    }
    let left: Vec<&str> = checked.stdout.lines().filter(|line| line.ends_with("[duplicate]")).collect();
    insta::assert_snapshot!(left.join("\n"), @r"
    db/Grid.csv:5: warning: the same signature as line 4; different columns: `Note` [duplicate]
    db/Ragged.csv:3: warning: the same row as line 2 [duplicate]
    db/hcom_allReduce_.csv:3: warning: the same message_bytes, num_devices, dtype, topology_tier as line 2: 64, 2, DT_FP16, 0 [duplicate]
    ");
}

#[test]
fn db_normalize_continues_after_unreadable_file() {
    let context = broken();
    nix::unistd::mkfifo(&context.path("db/Pipe.csv"), nix::sys::stat::Mode::S_IRWXU).expect("created");
    std::os::unix::fs::symlink("nowhere", context.path("db/Link.csv")).expect("created");
    let checked = context.exits(1, "db check db --format json");
    let all: serde_json::Value = serde_json::from_str(&checked.stdout).expect("JSON");
    let findings = all["findings"].list();
    let files = |kind: &str| -> Vec<&str> {
        let of = findings.iter().filter(|outcome| outcome["kind"] == kind);
        of.map(|outcome| outcome["file"].text()).collect()
    };
    assert_eq!(files("unreadable"), ["Link.csv", "Pipe.csv"]);
    assert_eq!(files("ragged"), ["Ragged.csv"]);
    assert_eq!(files("zeros"), ["Grid.csv"]);
    assert_eq!(all["files"], 9);
    let ran = context.run("db normalize db --format json");
    let all: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let refused = all["files"].list().iter().filter(|file| !file["refused"].is_null());
    let refused: Vec<&str> = refused.map(|file| file["file"].text()).collect();
    assert_eq!((ran.code, refused), (1, vec!["Link.csv", "Pipe.csv", "Pointer.csv", "Ragged.csv"]));
}
