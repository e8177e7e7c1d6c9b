//! Units, blocks and streams on which launches ran.

use super::*;

#[test]
fn launches_on_other_units_or_with_fewer_blocks_are_not_those_of_one_kernel() {
    let on = |unit: &str| RecordedTask { core: unit.to_owned(), ..RecordedTask::default() };
    let (verdict, reason) = after(|c| {
        c.own(0).for_each(|record| record.task = on("AI_CORE"));
        c.own(0).skip(7).for_each(|record| record.task = on("AI_VECTOR_CORE"));
    });
    assert_eq!(verdict, Verdict::WrongKernel);
    assert_eq!(reason, "its launches ran on different units: AI_CORE, AI_VECTOR_CORE");
    let (verdict, reason) = after(|c| {
        c.own(0).for_each(|record| record.blocks = Some(24));
        c.own(0).skip(7).for_each(|record| record.blocks = Some(1));
    });
    assert_eq!(verdict, Verdict::WrongKernel);
    assert_eq!(reason, "its launches used different numbers of blocks: 1, 24");
    let (verdict, _) = after(|c| c.own(0).for_each(|record| record.blocks = Some(24)));
    assert_eq!(verdict, Verdict::Ok);
}

#[test]
fn launches_on_several_streams_are_implausible() {
    let (verdict, reason) = after(|c| {
        c.own(0).for_each(|record| record.stream = Some(3));
        c.own(0).skip(9).for_each(|record| record.stream = Some(11));
    });
    assert_eq!(verdict, Verdict::Implausible);
    assert_eq!(reason, "its launches ran on different streams: 3, 11");
    let (verdict, _) = after(|c| c.own(0).for_each(|record| record.stream = Some(3)));
    assert_eq!(verdict, Verdict::Ok);
}

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

/// With an unknown number of blocks, cycles per block of one collection would be those of all blocks in another.
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

#[test]
fn kernels_on_an_ai_cpu_are_wrong_unless_they_were_recorded_there() {
    let (verdict, reason) =
        after(|c| c.own(0).for_each(|record| record.task.core = RecordedTask::AI_CPU.to_owned()));
    assert_eq!(verdict, Verdict::WrongKernel);
    assert!(reason.starts_with("the kernel ran on an AI CPU"), "{reason}");
}
