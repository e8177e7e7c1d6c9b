//! Operations of kernels and their utilisation, by `npubench modules`.

use std::{collections::BTreeMap, fs};

use serde_json::Value;

use crate::prelude::*;
use crate::{
    modules::{marked_profile, reference},
    timeline::write_database,
};

/// Operations and utilisation of one product, by its recorded shapes: `m,k` and `k,n`, in any order, give `m,n`.
fn product_of(row: &Value, rate: f64) -> (f64, f64, f64) {
    let shapes = |cell: &Value| -> Vec<Vec<f64>> {
        let text = cell.text().to_owned();
        let tensors =
            text.split(';').map(|dims| dims.split(',').map(|dim| dim.parse().expect("a number")).collect());
        tensors.collect()
    };
    let (inputs, output) = (shapes(&row[11]), shapes(&row[12]));
    let elements = |dims: &[f64]| dims.iter().product::<f64>();
    // The inputs share one dimension: m·k · k·n / (m·n) is its square.
    let shared = (elements(&inputs[0]) * elements(&inputs[1]) / elements(&output[0])).sqrt();
    let flops = 2.0 * elements(&output[0]) * shared;
    let time = row[5].float();
    (flops, time, flops / (time * 1e-9 * rate))
}

/// The vendor's tools print the plain mean of the calls, and take the time of the products only; ours divides all operations by
/// the time of all kernels of the operators.
#[test]
fn operations_of_products_are_those_of_the_vendor_and_each_counts_once() {
    let (Some(recorded), Some(by_shapes)) =
        (reference("operator_mfu_v26.2.0.json"), reference("module_statistic_mfu_v26.0.0.json"))
    else {
        return;
    };
    // 20 cores at 1800 MHz, 8192 operations a cycle.
    let rate = 20.0 * 1800e6 * 8192.0;
    let products = recorded["OperatorMFU"]["rows"].list();
    let mut sums: BTreeMap<&str, (f64, Vec<f64>)> = BTreeMap::new();
    for row in products {
        let (flops, _, utilisation) = product_of(row, rate);
        assert_eq!(row[9].as_f64(), Some(flops), "{row}");
        assert!((row[6].float() - utilisation).abs() < 1e-4, "{row}");
        let sum = sums.entry(row[1].text()).or_default();
        sum.0 += flops;
        sum.1.push(utilisation);
    }
    let percent = |utilisations: &[f64]| {
        #[expect(clippy::cast_precision_loss, reason = "few calls")]
        let mean = utilisations.iter().sum::<f64>() / utilisations.len() as f64;
        format!("{:.2}%", 100.0 * mean)
    };
    // The calls of the old table: three of the forward pass; three, two and one of the backward pass.
    let backward = &sums["aclnnMm"].1;
    let means = [
        percent(&sums["aclnnAddmm"].1),
        percent(&[backward[0], backward[2], backward[4]]),
        percent(&[backward[1], backward[3]]),
        percent(&backward[5..]),
    ];
    let old: Vec<&str> =
        by_shapes["Sheet1"]["rows"].list().iter().filter_map(|row| row[7].as_str()).collect();
    assert_eq!(means, *old);
    let context = Context::new();
    // The operations are recorded in one profile, and follow from shapes in the other one.
    for (variant, peak) in [("mfu", &[][..]), ("basic", &["--peak", "294.912"])] {
        let Some(profile) = marked_profile(&context, variant) else { return };
        let path = profile.to_string_lossy();
        let ran = context.run(&(&["modules", &*path, "--format", "json"], peak));
        let rows = ran.json();
        let mut own: BTreeMap<&str, f64> = BTreeMap::new();
        for row in rows.iter().filter(|row| row["flops"].is_number()) {
            let number = |key: &str| row[key].float();
            *own.entry(row["operator"].text()).or_default() += number("flops");
            let expected = number("flops") / (number("total_ns") * 1e-9 * rate);
            assert!((number("mfu") - expected).abs() < 1e-9, "{variant}: {row}");
        }
        let expected: BTreeMap<&str, f64> = sums.iter().map(|(name, sum)| (*name, sum.0)).collect();
        assert_eq!(own, expected, "{variant}");
    }
}

/// Recorded operations belong to one operator, although two of its kernels and another operator run in the range.
#[test]
fn recorded_operations_of_a_range_count_once() {
    let context = Context::new();
    let ranges = "CREATE TABLE MSTX_EVENTS (startNs, endNs, eventType, message, domainId, globalTid);
        INSERT INTO STRING_IDS VALUES (900, '3000000000-mm'), (901, 'mfu_flops');
        INSERT INTO MSTX_EVENTS
            SELECT CAST(min(startNs) AS INTEGER), CAST(max(endNs) AS INTEGER), 2, 900, 901, 1
            FROM PYTORCH_API WHERE type = 50001";
    write_database(&context.path("ascend_pytorch_profiler_0.db"), ranges);
    let ran = context.run("modules ascend_pytorch_profiler_0.db --peak 100 --format json");
    let rows = ran.json();
    let operators = rows.iter().filter(|row| row["item"] == "operator");
    let flops: Vec<f64> = operators.filter_map(|row| row["flops"].as_f64()).collect();
    assert_eq!(flops.iter().filter(|flops| **flops >= 3e9).count(), 1, "{flops:?}");
}

#[test]
fn utilisation_is_weighted_by_time() {
    let Some(reference) = reference("operator_mfu_v26.2.0.json") else { return };
    let context = Context::new();
    let Some(profile) = marked_profile(&context, "mfu") else { return };
    let ran = context.done(&["modules", &profile.to_string_lossy(), "--format", "json"]);
    let rows = ran.json();
    let linear =
        rows.iter().find(|row| row["module"] == "Linear" && row["operator"] == "aclnnAddmm").expect("a row");
    let mfu = linear["mfu"].float();
    // Three calls of 2.29, 2.85 and 1.55 %: the vendor's plain mean is 2.23 %, operations by time are 2.34 %.
    assert_eq!(format!("{:.2}%", 100.0 * mfu), "2.34%");
    assert!(reference["ModuleMFU"].to_string().contains("\"2.23%\""), "{reference}");
    let rank = rows.iter().find(|row| row["item"] == "rank").expect("a rank");
    assert!(rank["peak"].text().starts_with("294.91 TFLOPS, 20 matrix cores at 1800 MHz"), "{rank}");
    let half = context.run(&["modules", &profile.to_string_lossy(), "--format", "json", "--peak", "589.824"]);
    let rows = half.json();
    let linear =
        rows.iter().find(|row| row["module"] == "Linear" && row["operator"] == "aclnnAddmm").expect("a row");
    assert!((linear["mfu"].float() * 2.0 - mfu).abs() < 1e-6);
}

/// Type of a kernel; shapes, types and formats of its inputs and outputs; text of the mark before its operator.
type MarkedKernel<'a> = (&'a str, [&'a str; 3], [&'a str; 3], &'a str);

/// Returns the statements that add kernels of one microsecond with operators `operator 0` and so on to the synthetic run.
fn statements_of_kernels<'a>(kernels: impl Iterator<Item = &'a MarkedKernel<'a>>) -> String {
    let mut statements = "CREATE TABLE MSTX_EVENTS (startNs, endNs, eventType, message, domainId, globalTid);
        INSERT INTO STRING_IDS VALUES (500, 'flash_attn_args');"
        .to_owned();
    for (number, (kind, inputs, outputs, mark)) in (0..).zip(kernels) {
        let (strings, start) = (1000 + 20 * number, 1_700_000_000_000_110_000_i64 + 1000 * number);
        let [shapes, output_shapes] = [inputs[0], outputs[0]].map(|shapes| format!("\"{shapes}\""));
        let texts = [
            &format!("operator {number}"),
            *kind,
            &shapes,
            inputs[1],
            inputs[2],
            &output_shapes,
            outputs[1],
            outputs[2],
            mark,
        ];
        for (text, id) in texts.into_iter().zip(strings..) {
            statements += &format!("INSERT INTO STRING_IDS VALUES ({id}, '{text}');");
        }
        let id = 500 + number;
        let [s0, s1, s2, s3, s4, s5, s6, s7, s8] = [0, 1, 2, 3, 4, 5, 6, 7, 8].map(|place| strings + place);
        statements += &format!(
            "INSERT INTO PYTORCH_API VALUES ('{start}', '{}', 17179869184001, {id}, {s0}, 50001);
             INSERT INTO CONNECTION_IDS VALUES ({id}, {id});
             INSERT INTO TASK VALUES ({}, {}, 0, {id}, {id}, 14, 2);
             INSERT INTO COMPUTE_TASK_INFO VALUES ({s1}, {id}, {s1}, 17, {s2}, {s3}, {s4}, {s5}, {s6}, {s7});",
            start + 500,
            start + 70_000,
            start + 71_000,
        );
        // Marks of several parts have `|` between them. CANN before 9.1.0 drops a mark of 156 bytes and more.
        for (place, mark) in (0..).zip(mark.split('|').filter(|mark| !mark.is_empty() && mark.len() < 156)) {
            let (text, at) = (s8 + place, start - 100 + place);
            if place > 0 {
                statements += &format!("INSERT INTO STRING_IDS VALUES ({text}, '{mark}');");
            } else {
                statements += &format!("UPDATE STRING_IDS SET value = '{mark}' WHERE id = {s8};");
            }
            statements += &format!("INSERT INTO MSTX_EVENTS VALUES ({at}, {at}, 0, {text}, 500, 1);");
        }
    }
    statements
}

/// Returns the operations of the operators `operator 0` and so on of the kernels.
fn flops_of_kernels(kernels: &[MarkedKernel<'_>], options: &[&str], context: &Context) -> Vec<Option<f64>> {
    let file = context.path("ascend_pytorch_profiler_0.db");
    drop(fs::remove_file(&file));
    write_database(&file, &statements_of_kernels(kernels.iter()));
    let ran = context.done(&("modules ascend_pytorch_profiler_0.db --format json", options));
    let rows = ran.json();
    let flops_of = |number: usize| {
        let name = format!("operator {number}");
        rows.iter().find(|row| row["operator"] == *name).expect("a row")["flops"].as_f64()
    };
    (0..kernels.len()).map(flops_of).collect()
}

/// Products in all their layouts: 2·M·N·K, for each batch, with weights in blocks of 16 by 16 (16 by 32 for INT8), and with
/// the rows of all groups.
#[test]
fn operations_of_products_equal_a_computation_by_hand() {
    let bf16 = |kernel, shapes, formats, output| -> MarkedKernel<'_> {
        (kernel, [shapes, "DT_BF16;DT_BF16", formats], [output, "DT_BF16", "ND"], "")
    };
    let cases = [
        // Rows of one token, and a transposed weight.
        (bf16("MatMulV2", "1,4096;4096,2560", "ND;ND", "1,2560"), 20_971_520.0),
        (bf16("MatMulV2", "7,384;640,384", "ND;ND", "7,640"), 3_440_640.0),
        // N1, K1, 16, 16: 128 columns, 384 rows of the weight.
        (bf16("MatMulV2", "7,384;8,24,16,16", "ND;FRACTAL_NZ", "7,128"), 688_128.0),
        (bf16("BatchMatMulV2", "3,5,7,64;3,5,64,32", "ND;ND", "3,5,7,32"), 430_080.0),
        (bf16("BatchMatMulV2", "4,16,128;4,256,128", "ND;ND", "4,16,256"), 4_194_304.0),
        (
            (
                "GroupedMatmul",
                [
                    "30,128;6,128,64;;6,64;;;;6;30",
                    "INT8;INT8;DT_UNDEFINED;FLOAT;DT_UNDEFINED;DT_UNDEFINED;DT_UNDEFINED;INT64;FLOAT",
                    "ND;FRACTAL_NZ;NULL;ND;NULL;NULL;NULL;ND;ND",
                ],
                ["30,64", "DT_BF16", "ND"],
                "",
            ),
            491_520.0,
        ),
        (
            (
                "QuantBatchMatmulV3",
                ["16,128;8,8,16,32;256;256", "INT8;INT8;FLOAT;INT32", "ND;FRACTAL_NZ;ND;ND"],
                ["16,256", "DT_BF16", "ND"],
                "",
            ),
            1_048_576.0,
        ),
    ];
    let context = Context::new();
    let (kernels, expected): (Vec<MarkedKernel<'_>>, Vec<f64>) = cases.into_iter().unzip();
    let own = flops_of_kernels(&kernels, &["--peak", "100"], &context);
    let expected: Vec<Option<f64>> = expected.into_iter().map(Some).collect();
    assert_eq!(own, expected);
    // 20 cores at 1800 MHz: 8192 operations a cycle, twice as many for INT8.
    context.write(
        "p_ascend_pt/PROF_1/device_0/info.json.0",
        r#"{"DeviceInfo": [{"id": 0, "ai_core_num": 20, "aic_frequency": "1800"}]}"#,
    );
    let database = context.path("p_ascend_pt/ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_0.db");
    write_database(&database, &statements_of_kernels(kernels.iter()));
    let ran = context.run("modules p_ascend_pt --format json");
    let rows = ran.json();
    for (number, (kernel, flops)) in kernels.iter().zip(&expected).enumerate() {
        let row = rows.iter().find(|row| row["operator"] == *format!("operator {number}")).expect("a row");
        let rate = 20.0 * 1.8e9 * if kernel.1[1].starts_with("INT8") { 16_384.0 } else { 8192.0 };
        let utilisation = flops.expect("known") / (1e-6 * rate);
        assert!((row["mfu"].float() / utilisation - 1.0).abs() < 1e-9, "{row}");
    }
}

/// Arguments of 32 packed sequences in marks of the snippet: as one mark, CANN before 9.1.0 would drop them.
#[test]
fn arguments_of_many_sequences_are_read_from_several_marks() {
    let ends = |length: u64| (1..=32).map(|end| (end * length).to_string()).collect::<Vec<_>>().join(",");
    let text = format!(
        r#"{{"input_layout":"TND","sparse_mode":0,"actual_seq_qlen":[{}],"actual_seq_kvlen":[{}]}}"#,
        ends(8),
        ends(16)
    );
    let pieces: Vec<&str> =
        text.as_bytes().chunks(125).map(|piece| std::str::from_utf8(piece).expect("ASCII")).collect();
    let marks = |left_out: Option<usize>| {
        let parts = (1..).zip(&pieces).filter(|(part, _)| Some(*part) != left_out);
        let parts = parts.map(|(part, piece)| format!("7:{part}/{}:{piece}", pieces.len()));
        parts.collect::<Vec<_>>().join("|")
    };
    let (whole, complete, incomplete) = (text.clone(), marks(None), marks(Some(2)));
    let kernel = |mark| -> MarkedKernel<'_> {
        let inputs = ["256,4,64;512,4,64;512,4,64", "DT_BF16;DT_BF16;DT_BF16", "ND;ND;ND"];
        ("FlashAttentionScore", inputs, ["4,2,8,8;256,4,64", "FLOAT;DT_BF16", "ND;ND"], mark)
    };
    let context = Context::new();
    let kernels = [kernel(&complete), kernel(&incomplete), kernel(&whole), kernel("")];
    let own = flops_of_kernels(&kernels, &["--peak", "100"], &context);
    // 32 sequences of 8 queries and 16 keys, 4 heads of 64.
    assert_eq!(own[0], Some(2.0 * 512.0 * 32.0 * 128.0));
    assert_ne!(own[0], own[3]);
    assert_eq!((own[1], own[2]), (own[3], own[3]), "a lost mark");
}
