//! Flushes of the cache before each launch of a case.

use super::*;

fn add_flushes(collection: &mut Collection) {
    collection.manifest.set_flush(Some(1 << 30));
    let dims = collection.manifest.flush_dims().expect("a flush").to_vec();
    let tensor = Some(Tensor::new(dims, Dtype::Int32));
    let flush =
        RawRecord { inputs: vec![tensor.clone()], outputs: vec![tensor], ..record("Neg", &case(1), 900_000) };
    let records = std::mem::take(&mut collection.records);
    collection.records = records
        .into_iter()
        .flat_map(|record| match record.kernel.as_str() {
            "Neg" => vec![record],
            _ => vec![flush.clone(), record],
        })
        .collect();
    collection.restamp();
}

#[test]
fn a_launch_without_a_flush_before_it_has_an_unknown_cache() {
    let mut collection = Collection::without_faults();
    add_flushes(&mut collection);
    let flush = collection.records.iter().rposition(|record| record.duration.0 == 900_000).expect("a flush");
    collection.records.remove(flush);
    let outcomes = collection.outcomes();
    assert_eq!(outcomes[0].verdict, Verdict::Ok);
    let reason = "no record of a flush of the cache before launch 9";
    assert_eq!(outcomes[1], (Verdict::LostRecords, reason));
}

/// A case of the kernel of the flush may read a tensor of its shape.
#[test]
fn flush_has_the_shape_of_no_case() {
    let mut manifest = Collection::without_faults().manifest;
    manifest.set_flush(Some(1 << 30));
    assert_eq!(manifest.flush_dims(), Some([2, 1 << 27]));
    let tensor = Tensor::new([2, 1 << 27], Dtype::Int32);
    manifest.cases[1].record.inputs = vec![Some((&tensor).into())];
    manifest.set_flush(Some(1 << 30));
    assert_eq!(manifest.flush_dims(), Some([2, (1 << 27) + 1]));
    manifest.set_flush(None);
    assert_eq!(manifest.flush_dims(), None);
}
