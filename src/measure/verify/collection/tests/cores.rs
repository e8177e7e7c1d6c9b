//! Units, blocks and streams on which launches ran.

use super::*;

/// The call was compiled for one core, or all others were reserved.
#[test]
fn large_case_on_one_block_is_suspicious() {
    let mut collection = Collection::without_faults();
    collection.own(0).for_each(|record| {
        record.blocks = Some(1);
        record.task.core = "AI_VECTOR_CORE".to_owned();
    });
    let records: Vec<RawRecord> = collection.own(0).map(|record| record.clone()).collect();
    let used: Vec<&RawRecord> = records.iter().collect();
    let mut case = collection.cases[0].clone();
    assert_eq!(on_one_block(&used, &case), None, "{case:?}");
    case.outputs = vec![Some(Tensor::new([1024, 1024], Dtype::Float))];
    let found = on_one_block(&used, &case).expect("a large case");
    assert!(found.to_string().starts_with("it ran on one block, although its tensors have 4 MiB"), "{found}");
}

/// With an unknown number of blocks, cycles per block of one collection would be compared with cycles of all blocks of
/// another.
#[test]
fn clock_is_unknown_without_a_number_of_blocks() {
    let rate = |blocks: Option<u32>| {
        let mut collection = Collection::without_faults();
        collection.own(0).for_each(|record| record.blocks = blocks);
        collection.attempts().remove(0).cycle_rate
    };
    assert_eq!((rate(None), rate(Some(0))), (None, None));
    let [one, many] = [1, 24].map(|blocks| rate(Some(blocks)).expect("a rate").per_microsecond);
    assert!((one / many - 24.0).abs() < 1e-9, "{one} {many}");
}

/// The exporter's Python part writes times of cores with two decimals, so that short ones show a clock that nobody had.
#[test]
fn clock_of_the_cores_needs_times_of_many_steps() {
    let highest = |works: &[(f64, f64)]| {
        let mut records = Collection::without_faults().records;
        records.truncate(works.len());
        for (record, (recorded, worked)) in records.iter_mut().zip(works) {
            record.blocks = Some(48);
            record.counters = COUNTERS
                .iter()
                .map(|counter| match *counter {
                    "aiv_time(us)" => Some(*recorded),
                    "aiv_total_cycles" => Some(worked * 1_800.0 * 48.0),
                    _ => None,
                })
                .collect();
        }
        crate::measure::verify::record_rules::highest_clock(&records).expect("a clock") * 1e3
    };
    assert!((highest(&[(0.51, 0.5149), (10.0, 10.0)]) - 1_800.0).abs() < 0.1);
    assert!((highest(&[(0.515, 0.515), (10.001, 10.001)]) - 1_800.0).abs() < 0.1);
}
