use proptest::prelude::*;

use super::*;

const SIGNATURE: &str =
    "Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats";

/// Normalizes a table that needs it, and checks that a second pass changes nothing.
fn normalized(stem: &str, text: &str) -> (String, NormalizeReport) {
    let name = format!("{stem}.csv");
    let (report, bytes) = normalize_table(&name, stem, DataKind::Npu, text.as_bytes());
    let bytes = bytes.unwrap_or_else(|| text.as_bytes().to_vec());
    let (again, unchanged) = normalize_table(&name, stem, DataKind::Npu, &bytes);
    assert!(again.done.is_empty() && unchanged.is_none(), "{again:?}");
    assert_eq!(again.left.len(), report.left.len());
    (String::from_utf8(bytes).expect("UTF-8"), report)
}

#[test]
fn normalize_fills_row_from_later_duplicate() {
    let row = "4,FLOAT,ND,4,FLOAT,ND".replace("4,", "\"4\",");
    let header = format!("{SIGNATURE},Average Duration(us),Profiling Average Duration(us),Note\n");
    let (text, report) = normalized("K", &format!("{header}{row},5,,\n{row},,7,mine\n"));
    assert_eq!(text, format!("{header}4,FLOAT,ND,4,FLOAT,ND,5,7,mine\n"));
    assert_eq!(
        report.done[0].text,
        "the same signature as line 2, which gets `Profiling Average Duration(us)`, `Note`"
    );
}

#[test]
fn normalize_merges_complete_measurements_only() {
    let header =
        format!("{SIGNATURE},Average Duration(us),MicroBench aiv_time(us),MicroBench Verdict,Note\n");
    let row = "4,FLOAT,ND,4,FLOAT,ND";
    let parted = format!("{header}{row},5,,,\n{row},,,oom,\n");
    let (text, report) = normalized("K", &parted);
    assert_eq!((text, report.left.len()), (parted, 1), "`oom` was not report of the 5 µs");
    // The third row has the values of the first two, so that they are merged.
    let (text, report) = normalized("K", &format!("{header}{row},5,,,\n{row},,4,ok,\n{row},5,4,ok,x\n"));
    assert_eq!((text, report.left.len()), (format!("{header}{row},5,4,ok,x\n"), 0));
}

#[test]
fn normalize_keeps_bytes_of_unchanged_rows() {
    let header = format!("\"Note\",{SIGNATURE}\r\n");
    let same = "\"a\",\"\"\"4\"\"\",FLOAT,ND,\"4\",FLOAT,ND";
    let other = "\"b\",8,FLOAT,ND,\"8\",FLOAT,ND";
    let (text, _) = normalized("K", &format!("\u{feff}{header}{same}\r\n\n{other}\n{same}"));
    assert_eq!(text, format!("{header}{same}\r\n\r\n{other}\r\n"));
    let (text, _) = normalized("K", &format!("\u{feff}{header}{same}\r\n{other}"));
    assert_eq!(text, format!("{header}{same}\r\n{other}"), "a last line without an ending stays so");
}

#[test]
fn normalize_merges_collectives_by_key() {
    let header = "message_bytes,num_devices,dtype,topology_tier,Duration(us),bandwidth_gbps\n";
    let (text, report) =
        normalized("hcom_allReduce_", &format!("{header}1,2,DT_FP16,0,3.5,1\n1,2,DT_FP16,0,3.5,1\n"));
    assert_eq!((text, report.done.len()), (format!("{header}1,2,DT_FP16,0,3.5,1\n"), 1));
    let two = format!("{header}1,2,DT_FP16,0,3.5,1\n1,2,DT_FP16,0,3.6,1\n");
    let (text, report) = normalized("hcom_allReduce_", &two);
    assert_eq!((text, report.left.len()), (two, 1));
}

const COLUMNS: [&str; 7] = [
    "Average Duration(us)",
    "MicroBench aiv_time(us)",
    "MicroBench Verdict",
    "Profiling Average Duration(us)",
    "Profiling Std Duration(us)",
    "Runtime x",
    "Note",
];

/// A row as the test knows it: its signature's spelling, then its cells.
type TestRow = (&'static str, Vec<&'static str>);

fn test_row() -> impl Strategy<Value = TestRow> {
    let cell = |values: &'static [&'static str]| proptest::sample::select(values);
    let cells = (
        cell(&["", "", "0", "1.5", "2"]),
        cell(&["", "", "0", "3"]),
        cell(&["", "", "ok", "oom"]),
        cell(&["", "", "0", "7"]),
        cell(&["", "0", "1"]),
        cell(&["", "", "0", "5"]),
        cell(&["", "", "a,b", "\"q\"", "two\r\nlines", " "]),
    );
    let signature = cell(&["4,FLOAT,ND", "8,FLOAT,ND", "\"\"\"4\"\"\",FLOAT,ND", "x,FLOAT,ND"]);
    (signature, cells.prop_map(|c| vec![c.0, c.1, c.2, c.3, c.4, c.5, c.6]))
}

fn read_rows(text: &str) -> Vec<Vec<String>> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
    reader.records().skip(1).map(|row| row.expect("sound").iter().map(String::from).collect()).collect()
}

/// Returns the values of a row: its cells after the signature, without the zeros of a replay or a profile that was
/// never measured.
fn values(cells: &[String]) -> Vec<String> {
    let mut values: Vec<String> = cells.iter().map(|cell| cell.trim().to_owned()).collect();
    for measured in [[0, 1], [3, 4]] {
        let has_verdict = measured == [0, 1] && !cells[2].is_empty();
        let idle = !has_verdict && measured.iter().all(|&i| cells[i].is_empty() || cells[i] == "0");
        if idle && cells[measured[0]] == "0" {
            measured.iter().for_each(|&i| values[i].clear());
        }
    }
    values
}

proptest! {
    #[test]
    fn nothing_is_lost_or_made_up(
        rows in proptest::collection::vec((test_row(), proptest::sample::select(&["\n", "\r\n", "\r"][..])), 0..10),
        bom: bool,
        old_name: bool,
    ) {
        let header = format!("{SIGNATURE},{}", COLUMNS.join(","));
        let old = header.replacen(",Average Duration(us)", ",MicroBench Duration(us)", 1);
        let mut text = format!("{}{}\n", if bom { "\u{feff}" } else { "" }, if old_name { &old } else { &header });
        for ((signature, cells), newline) in &rows {
            let quoted: Vec<String> = cells.iter().map(|c| format!("\"{}\"", c.replace('"', "\"\""))).collect();
            text.push_str(&format!("{signature},4,FLOAT,ND,{}{newline}", quoted.join(",")));
        }
        let before = read_rows(&text);
        let (after, report) = normalized("K", &text);
        prop_assert!(report.refused.is_none(), "{:?}", report);
        prop_assert_eq!(after.lines().next(), Some(header.as_str()));
        let after = read_rows(&after);
        for row in &before {
            let kept = after.iter().any(|other| {
                row[..6] == other[..6]
                    && values(&row[6..]).iter().zip(values(&other[6..])).all(|(a, b)| a.is_empty() || *a == b)
            });
            prop_assert!(kept, "{row:?} is lost: {after:?}");
        }
        for row in &after {
            for block in [0..3, 3..5, 5..6, 6..7] {
                let report = values(&row[6..])[block.clone()].to_vec();
                let source = before.iter().any(|other| {
                    row[..6] == other[..6] && values(&other[6..])[block.clone()] == report[..]
                });
                prop_assert!(source, "no source of {report:?}");
            }
        }
    }

    #[test]
    fn any_bytes_are_handled(bytes in proptest::collection::vec(proptest::sample::select(&b"\xef\xbb\xbf\r\n\",ab0\xff"[..]), 0..60)) {
        for stem in ["K", "hcom_x_"] {
            let _ = normalize_table("f", stem, DataKind::Npu, &bytes);
            let header = [SIGNATURE.as_bytes(), b"\n", &bytes].concat();
            let (_, once) = normalize_table("f", stem, DataKind::Npu, &header);
            if let Some(once) = once {
                prop_assert!(normalize_table("f", stem, DataKind::Npu, &once).1.is_none());
            }
        }
    }
}
