use std::path::Path;

use super::*;
use crate::{
    database::COMPUTE_COLUMNS,
    kernel::{AttentionCall, attention_attribute as name},
};

/// A decode over paged keys, as the profiler writes it.
fn shapes(sequences: u64) -> String {
    let mut slots = vec![String::new(); 31];
    slots[0] = format!("{sequences},4,128");
    (slots[1], slots[2]) = ("64,128,128".into(), "64,128,128".into());
    (slots[5], slots[6]) = (sequences.to_string(), sequences.to_string());
    slots[14] = format!("{sequences},8");
    format!("\"{}\"", slots.join(";"))
}

fn table(rows: &[(u64, &[(&str, &str)])]) -> KernelCsv {
    let mut table = KernelCsv::new(Path::new("FusedInferAttentionScore.csv"), &COMPUTE_COLUMNS);
    for (sequences, more) in rows {
        let shapes = shapes(*sequences);
        let dtypes = shapes
            .split(';')
            .map(|slot| if slot.contains(|c: char| c.is_ascii_digit()) { "DT_BF16" } else { "DT_UNDEFINED" })
            .collect::<Vec<_>>()
            .join(";");
        let mut cells = vec![
            ("Input Shapes", shapes.clone()),
            ("Input Data Types", dtypes),
            ("Output Shapes", format!("\"{sequences},4,128\"")),
            ("Output Data Types", "DT_BF16".to_owned()),
        ];
        for (column, value) in *more {
            table.ensure_column(column);
            cells.push((column, (*value).to_owned()));
        }
        table.append_row(&cells);
    }
    table
}

type Call = (AttentionCall, CaseAttributes);

fn dump(calls: &[Call]) -> AttentionDump {
    let mut dump = AttentionDump::default();
    for (call, attributes) in calls {
        dump.add_call(call.clone(), attributes.clone());
    }
    dump
}

fn call(sequences: u64, lengths: &str) -> Call {
    let mut call = AttentionCall::default();
    call.set_shape(0, vec![sequences, 4, 128]);
    call.set_shape(1, vec![64, 128, 1, 128]);
    call.set_shape(2, vec![64, 128, 1, 128]);
    call.set_shape(14, vec![sequences, 8]);
    call.set_shape(6, vec![lengths.split(',').count() as u64]);
    let mut attributes = CaseAttributes::default();
    for (column, value) in [
        (name::LAYOUT, "TND"),
        (name::HEADS, "4"),
        (name::KV_HEADS, "1"),
        (name::SPARSE_MODE, "3"),
        (name::BLOCK_SIZE, "128"),
        (name::QUERY_LENGTHS, "1,2"),
        (name::KV_LENGTHS, lengths),
        (name::AVG_SEQ_LEN, "500"),
    ] {
        attributes.set(column, value);
    }
    (call, attributes)
}

fn cell(table: &KernelCsv, row: usize, column: &str) -> String {
    table.cell_text(row, column).unwrap_or_default()
}

#[test]
fn backfill_completes_row_with_one_call_once() {
    let mut table = table(&[(2, &[]), (3, &[])]);
    let calls = [call(2, "400,600"), call(7, "1,2,3,4,5,6,7")];
    let done = backfill_table(&mut table, &dump(&calls), false).expect("rows");
    assert_eq!(done.complete_rows(), 1);
    assert_eq!((done.rows[0].filled, done.rows[0].calls, done.unused), (8, 1, 1));
    assert_eq!(cell(&table, 0, name::KV_LENGTHS), "400,600");
    assert_eq!(cell(&table, 0, COMPLETENESS), "complete");
    assert!(done.rows[1].completeness.starts_with("partial: no input_layout, "));
    assert_eq!(cell(&table, 1, COMPLETENESS), "", "a row that no call fits is left alone");
    assert_eq!(cell(&table, 1, name::KV_LENGTHS), "");
    let rows: Vec<_> = (0..2).map(|row| table.row_cells(row).expect("utf-8")).collect();
    let again = backfill_table(&mut table, &dump(&calls), true).expect("rows");
    assert_eq!((again.rows[0].filled, again.added), (0, 0));
    assert_eq!((0..2).map(|row| table.row_cells(row).expect("utf-8")).collect::<Vec<_>>(), rows);
}

#[test]
fn backfill_sets_common_attributes_of_different_lengths() {
    let mut table = table(&[(2, &[("Profiling Average Duration(us)", "50.000000")])]);
    let calls = [call(2, "400,600"), call(2, "401,601")];
    let done = backfill_table(&mut table, &dump(&calls), false).expect("rows");
    assert_eq!((done.complete_rows(), table.len()), (0, 1));
    assert_eq!(cell(&table, 0, name::HEADS), "4");
    assert_eq!(cell(&table, 0, name::KV_LENGTHS), "");
    assert_eq!(
        cell(&table, 0, COMPLETENESS),
        "partial: no actual_seq_lengths_kv_values (2 calls of the dump differ)"
    );
    let done = backfill_table(&mut table, &dump(&calls), true).expect("rows");
    assert_eq!((done.added, table.len()), (2, 3));
    assert_eq!(cell(&table, 2, name::KV_LENGTHS), "401,601");
    assert_eq!(cell(&table, 2, COMPLETENESS), "complete");
    assert_eq!(cell(&table, 2, "Input Shapes"), cell(&table, 0, "Input Shapes"));
    assert_eq!(cell(&table, 2, "Profiling Average Duration(us)"), "", "nobody profiled just this");
    assert_eq!(backfill_table(&mut table, &dump(&calls), true).expect("rows").added, 0, "again");
}

#[test]
fn backfill_ignores_calls_that_contradict_row() {
    let mut table = table(&[(2, &[("avg_seq_len", "4096")]), (2, &[("avg_seq_len", "500")])]);
    let done = backfill_table(&mut table, &dump(&[call(2, "400,600")]), false).expect("rows");
    assert_eq!((done.rows[0].calls, done.rows[1].calls), (0, 1));
    assert_eq!(cell(&table, 0, name::KV_LENGTHS), "");
    assert_eq!(cell(&table, 1, name::KV_LENGTHS), "400,600");
    assert_eq!(cell(&table, 1, name::AVG_SEQ_LEN), "", "it is there under its older name");
}

#[test]
fn backfill_keeps_attributes_of_measured_rows_open() {
    let mut table = table(&[(2, &[("Average Duration(us)", "58.2")])]);
    let before = table.row_cells(0).expect("utf-8");
    let done = backfill_table(&mut table, &dump(&[call(2, "400,600")]), false).expect("rows");
    assert_eq!(table.row_cells(0).expect("utf-8"), before);
    assert_eq!(done.rows[0].remark.as_deref(), Some("measured before they were known"));
    let done = backfill_table(&mut table, &dump(&[call(2, "400,600")]), true).expect("rows");
    assert_eq!((done.added, table.len()), (1, 2));
    assert_eq!(cell(&table, 1, "Average Duration(us)"), "");
}

#[test]
fn backfill_treats_verdict_without_number_as_measurement() {
    let mut table = table(&[(2, &[("MicroBench Verdict", "hung"), ("MicroBench Case", "0123456789abcdef")])]);
    let before = table.row_cells(0).expect("utf-8");
    backfill_table(&mut table, &dump(&[call(2, "400,600")]), false).expect("rows");
    assert_eq!(table.row_cells(0).expect("utf-8"), before);
}

#[test]
fn calls_match_by_number_of_lengths() {
    let mut table = table(&[(2, &[])]);
    let done = backfill_table(&mut table, &dump(&[call(2, "400,600,1")]), false).expect("rows");
    assert_eq!((done.rows[0].calls, done.unused), (0, 1));
    assert!(table.column_index(name::KV_LENGTHS).is_none(), "a dump that fits no row touches none");
}

#[test]
fn backfill_sets_empty_cells_and_keeps_foreign_text() {
    let provenance = ("Runtime source_profile", "prof_rank0");
    let tag = ("Runtime metadata_completeness", "shape_grid_scene_generated");
    let mut table = table(&[(2, &[(name::KV_LENGTHS, "N/A"), provenance, tag])]);
    backfill_table(&mut table, &dump(&[call(2, "400,600")]), false).expect("rows");
    assert_eq!(cell(&table, 0, name::KV_LENGTHS), "400,600");
    assert_eq!(cell(&table, 0, SOURCE), "prof_rank0; dump of a serving process");
    assert_eq!(cell(&table, 0, COMPLETENESS), "shape_grid_scene_generated");
}

#[test]
fn later_dump_does_not_settle_differing_attributes() {
    let both = [call(2, "400,600"), call(2, "401,601")];
    let mut table = table(&[(2, &[])]);
    backfill_table(&mut table, &dump(&both), false).expect("rows");
    let done = backfill_table(&mut table, &dump(&both[..1]), false).expect("rows");
    assert_eq!(cell(&table, 0, name::KV_LENGTHS), "");
    assert_eq!(done.rows[0].remark.as_deref(), Some("calls of an earlier dump differ"));
}

#[test]
fn backfill_reports_complete_row_contradicted_by_dump() {
    let mut table = table(&[(2, &[])]);
    backfill_table(&mut table, &dump(&[call(2, "400,600")]), false).expect("rows");
    let done = backfill_table(&mut table, &dump(&[call(2, "5,5")]), false).expect("rows");
    assert_eq!(done.complete_rows(), 1);
    let remark = done.rows[0].remark.as_deref();
    assert_eq!(remark, Some("other calls contradict its `Runtime actual_seq_lengths_kv_values`"));
    assert_eq!(done.unused, 1);
    let done = backfill_table(&mut table, &dump(&[call(2, "5,5")]), true).expect("rows");
    assert_eq!((done.added, done.unused), (1, 0));
    assert_eq!(cell(&table, 1, name::KV_LENGTHS), "5,5");
}

#[test]
fn backfill_of_many_calls_and_rows_is_fast() {
    let calls: Vec<Call> = (1..3000).map(|length| call(2, &format!("{length},1"))).collect();
    let mut table = table(&[(2, &[])]);
    let dump = dump(&calls);
    let done = backfill_table(&mut table, &dump, true).expect("rows");
    assert_eq!((done.added, table.len()), (2999, 3000));
    let again = backfill_table(&mut table, &dump, true).expect("rows");
    assert_eq!((again.added, again.complete_rows()), (0, 2999));
}
