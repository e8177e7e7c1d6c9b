//! Requirements of a case by the meaning of its kernel, stated without the catalogue.

use npubench::kernel::{Case, Dtype, Slot, Tensor};

/// The dimensions in a slot; none where it holds nothing.
pub(crate) fn dims(slot: Option<&Slot>) -> Vec<u64> {
    slot.and_then(Option::as_ref).map(|tensor| tensor.dims.clone()).unwrap_or_default()
}

/// Rows and columns of a matrix, in blocks or not; the batch is left out.
fn matrix(tensor: &Tensor) -> (u64, u64) {
    match tensor.dims[..] {
        [.., c1, r1, r0, c0] if tensor.format.as_str() == "FRACTAL_NZ" && r0 == 16 => (r1 * r0, c1 * c0),
        [.., rows, columns] => (rows, columns),
        _ => panic!("{tensor} is no matrix"),
    }
}

/// Requirements of a case by the meaning of its kernel, stated without the catalogue.
pub(crate) fn assert_consistent(case: &Case) {
    let shown = format!("{} {}", case.kernel, case.shapes());
    let input = |slot: usize| dims(case.inputs.get(slot));
    let tensor = |slot: usize| case.inputs[slot].as_ref().expect("it is there");
    let output = dims(case.outputs.first());
    match case.kernel.as_str() {
        "MatMulV2" | "MatMulV3" | "BatchMatMulV2" | "BatchMatMulNd" | "QuantBatchMatmulV3"
        | "GroupedMatmul" => {
            let ((a, b), (c, d)) = (matrix(tensor(0)), matrix(tensor(1)));
            let [.., m, n] = output[..] else { panic!("{shown}: no product") };
            // Some orientation of both has one length in common, and gives the output.
            let fits = [(a, b), (b, a)].iter().any(|(rows, inner)| {
                [(c, d), (d, c)].iter().any(|(k, columns)| inner == k && (*rows, *columns) == (m, n))
            });
            assert!(fits, "{shown}: the inner lengths differ");
            if case.kernel.as_str() == "QuantBatchMatmulV3" {
                let scale = input(2);
                assert!(scale == [n] || scale == [1], "{shown}: scales of columns");
                assert!(
                    [0, 1, 2].iter().all(|slot| input(*slot).len() <= 4) && tensor(0).dtype == Dtype::Int8
                );
            }
            if case.kernel.as_str() == "GroupedMatmul" {
                let experts = input(1)[0];
                assert_eq!(input(7), [experts], "{shown}: a group for each expert");
                if tensor(0).dtype == Dtype::Int8 {
                    assert_eq!(input(3), [experts, n], "{shown}: scales of experts");
                    assert!(case.inputs.len() < 9 || input(8) == [m], "{shown}: scales of rows");
                }
            }
        }
        "Add" | "Mul" | "Sub" | "Less" | "Equal" => {
            let (left, right) = (input(0), input(1));
            let rank = left.len().max(right.len());
            for place in 1..=rank {
                let at = |dims: &[u64]| dims.len().checked_sub(place).map_or(1, |at| dims[at]);
                let (l, r) = (at(&left), at(&right));
                assert!(l == r || l == 1 || r == 1, "{shown}: they do not broadcast");
                assert_eq!(at(&output), l.max(r), "{shown}");
            }
        }
        "RmsNorm" | "AddRmsNorm" | "AddRmsNormBias" => {
            let x = input(0);
            assert_eq!(output, x, "{shown}");
            let gamma = if case.kernel.as_str() == "RmsNorm" { 1 } else { 2 };
            assert_eq!(input(gamma), x[x.len() - 1..], "{shown}: a weight for each column");
            let rows = dims(case.outputs.get(1));
            assert_eq!((rows.last(), &rows[..rows.len() - 1]), (Some(&1), &x[..x.len() - 1]), "{shown}");
        }
        "ReshapeAndCacheNdKernel" | "reshape_and_cache_200000000" => {
            assert_eq!(input(4), [input(0)[0]], "{shown}: a slot for each token");
            assert_eq!(input(2)[..3], input(3)[..3], "{shown}: both caches are alike");
            assert!(input(2)[0] * input(2)[1] >= input(0)[0], "{shown}: they hold all tokens");
            assert_eq!(output, input(2), "{shown}");
        }
        "FusedInferAttentionScore" => assert_attention(case, &shown),
        _ => {}
    }
}

fn assert_attention(case: &Case, shown: &str) {
    let input = |slot: usize| dims(case.inputs.get(slot));
    let message =
        |column: &str| case.attributes.get(&format!("Runtime {column}")).unwrap_or_default().to_owned();
    let numbers = |column: &str| -> Vec<u64> {
        message(column).split(',').map(|number| number.parse().expect("a number")).collect()
    };
    let (query, key, table) = (input(0), input(1), input(14));
    let (ends, keys) = (numbers("actual_seq_lengths_values"), numbers("actual_seq_lengths_kv_values"));
    let batch = ends.len();
    assert_eq!((keys.len(), input(5), input(6)), (batch, vec![batch as u64], vec![batch as u64]), "{shown}");
    assert_eq!(input(1), input(2), "{shown}: keys and values are alike");
    let queries: Vec<u64> = if message("input_layout") == "TND" {
        assert_eq!(*ends.last().unwrap(), query[0], "{shown}: queries end with the last sequence");
        assert_eq!(numbers("num_heads"), [query[1]], "{shown}");
        assert_eq!(dims(case.outputs.first()), query, "{shown}");
        ends.iter().zip(std::iter::once(&0).chain(&ends)).map(|(end, start)| end - start).collect()
    } else {
        assert_eq!((query[0], numbers("num_heads")), (batch as u64, vec![query[1]]), "{shown}");
        assert!(ends.iter().all(|length| *length <= query[2]), "{shown}: no more queries than there is room");
        assert_eq!(input(24)[..3], query[..3], "{shown}: the rotary part has the same queries");
        assert_eq!(input(25)[..3], key[..3], "{shown}: and the same blocks");
        ends.clone()
    };
    assert!(queries.iter().all(|length| *length > 0), "{shown}");
    if table.is_empty() {
        assert_eq!(*keys.last().unwrap(), key[0], "{shown}: keys end with the last sequence");
        return;
    }
    let block = numbers("block_size")[0];
    assert!(key[1..].contains(&block) && table[0] == batch as u64, "{shown}");
    let used: Vec<u64> = keys.iter().map(|length| length.div_ceil(block)).collect();
    assert!(used.iter().max().unwrap() <= &table[1], "{shown}: the table is as wide as the longest");
    assert!(used.iter().sum::<u64>() <= key[0], "{shown}: the pool has a block for each");
    assert!(
        queries.iter().zip(&keys).all(|(queries, keys)| queries <= keys),
        "{shown}: keys for all queries"
    );
    if !message("block_table_valid_blocks").is_empty() {
        assert_eq!(numbers("block_table_valid_blocks"), used, "{shown}");
    }
    if !message("avg_seq_len").is_empty() {
        let mean = keys.iter().sum::<u64>() as f64 / batch as f64;
        assert!((message("avg_seq_len").parse::<f64>().unwrap() - mean).abs() < 1e-5, "{shown}");
    }
}
