//! `npubench modules`: the vendor's module statistic on real profiles, utilisation, and the join with a database.

use std::{collections::BTreeMap, fs, path::PathBuf, process::Command};

use serde_json::Value;

use crate::{
    context::{Context, STEADY_RUN},
    requirements::shared,
    timeline::{objects, raw_database, write_database, write_text_profile},
};

/// Row of the table: parent, module, operator, kernels, sum and mean in nanoseconds, calls.
type Row = (String, String, String, String, f64, f64, u64);

/// Makes a profile with ranges of mstx from the real database.
fn marked_profile(context: &Context, variant: &str) -> Option<PathBuf> {
    let (source, tool) =
        (shared("real/cnn_db_level1_rank0")?, shared("tools/model_analysis/make_mstx_db.py")?);
    let profile = context.path(&format!("{variant}_ascend_pt"));
    let made =
        Command::new("python3").args([&tool, &source, &profile]).arg(variant).output().expect("python3 runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Some(profile)
}

fn reference(name: &str) -> Option<Value> {
    let path = shared(&format!("real/model_analysis/{name}"))?;
    Some(serde_json::from_str(&fs::read_to_string(path).expect("read")).expect("JSON"))
}

fn reference_rows(rows: &Value) -> Vec<Row> {
    let text = |cell: &Value| cell.as_str().unwrap_or_default().to_owned();
    let number = |cell: &Value| cell.as_f64().expect("a number");
    let rows = rows.as_array().expect("rows").iter();
    rows.map(|row| {
        let calls = row[6].as_u64().expect("a count");
        (text(&row[0]), text(&row[1]), text(&row[2]), text(&row[3]), number(&row[4]), number(&row[5]), calls)
    })
    .collect()
}

fn without_mean(row: &Row) -> (&str, &str, &str, &str, f64, u64) {
    (&row.0, &row.1, &row.2, &row.3, row.4, row.6)
}

/// Returns the rows in modules, and the sum of the time outside.
fn own_rows(csv: &str) -> (Vec<Row>, f64) {
    let mut rows = Vec::new();
    let mut outside = 0.0;
    for row in csv::Reader::from_reader(csv.as_bytes()).deserialize() {
        let row: BTreeMap<String, String> = row.expect("a row");
        let text = |column: &str| row[column].clone();
        let number = |column: &str| row[column].parse::<f64>().expect("a number");
        if row["module"] == "[outside modules]" {
            outside += number("totalKernelDuration(ns)");
            continue;
        }
        rows.push((
            text("parentModule"),
            text("module"),
            text("opName"),
            text("kernelList"),
            number("totalKernelDuration(ns)"),
            number("avgKernelDuration(ns)"),
            row["opCount"].parse().expect("a count"),
        ));
    }
    (rows, outside)
}

#[test]
fn real_rows_are_those_of_the_vendors_statistic() {
    let context = Context::new();
    for variant in ["basic", "hostile"] {
        let Some(expected) = reference(&format!("module_statistic_{variant}_db.json")) else { return };
        let Some(profile) = marked_profile(&context, variant) else { return };
        let ran = context.run(&["modules", &profile.to_string_lossy(), "--format", "csv"]);
        let unfinished = "1 range of mstx has no end behind its start and is left out";
        assert_eq!((ran.code, ran.stderr.contains(unfinished)), (0, variant == "hostile"), "{}", ran.stderr);
        let (rows, outside) = own_rows(&ran.stdout);
        let expected = reference_rows(&expected["ModuleStatistic"]["rows"]);
        assert_eq!(rows.len(), expected.len(), "{variant}");
        for (own, theirs) in rows.iter().zip(&expected) {
            assert_eq!(without_mean(own), without_mean(theirs), "{variant}");
            assert!((own.5 - theirs.5).abs() < 1e-6, "{variant}: {own:?}, {theirs:?}");
        }
        if variant == "basic" {
            let Some(independent) = reference("module_statistic_basic_independent.json") else { return };
            assert_eq!(independent["outside_any_module_ns"].as_f64(), Some(outside));
            let attributed: f64 = rows.iter().map(|row| row.4).sum();
            assert_eq!(independent["attributed_ns"].as_f64(), Some(attributed));
        }
    }
}

/// The vendor's tool leaves out what no module encloses: 46 kernels and collectives with 95 % of the time.
#[test]
fn time_outside_of_modules_is_counted_and_every_kernel_has_an_operator() {
    let context = Context::new();
    let Some(profile) = marked_profile(&context, "basic") else { return };
    let database = raw_database(&profile);
    let all = "SELECT count(*), sum(length) FROM (
        SELECT t.endNs - t.startNs AS length FROM TASK t JOIN COMPUTE_TASK_INFO USING (globalTaskId)
        UNION ALL SELECT endNs - startNs FROM COMMUNICATION_OP)";
    let counts = |query: &str| -> (i64, i64) {
        database.query_row(query, [], |row| Ok((row.get(0)?, row.get(1)?))).expect("a sum")
    };
    let ran = context.run(&["modules", &profile.to_string_lossy(), "--format", "json"]);
    let rows = objects(&ran.stdout);
    let operators: Vec<&Value> = rows.iter().filter(|row| row["item"] == "operator").collect();
    let number = |value: &Value| value.as_i64().expect("a whole number");
    let count = |rows: &mut dyn Iterator<Item = &&Value>| {
        rows.fold((0, 0), |(kernels, time), row| {
            let of_call = i64::try_from(row["kernels"].as_array().expect("a list").len()).expect("few");
            (kernels + of_call * number(&row["calls"]), time + number(&row["total_ns"]))
        })
    };
    assert_eq!(count(&mut operators.iter()), counts(all));
    let outside = count(&mut operators.iter().filter(|row| row["module"].is_null()));
    assert_eq!(outside, (46, 105_228_703));
    assert!(operators.iter().all(|row| row["operator"].as_str().is_some_and(|name| !name.is_empty())));
}

/// Operations and utilisation of one product, by its recorded shapes: `m,k` and `k,n`, in any order, give `m,n`.
fn product_of(row: &Value, rate: f64) -> (f64, f64, f64) {
    let shapes = |cell: &Value| -> Vec<Vec<f64>> {
        let text = cell.as_str().expect("a text").to_owned();
        let tensors =
            text.split(';').map(|dims| dims.split(',').map(|dim| dim.parse().expect("a number")).collect());
        tensors.collect()
    };
    let (inputs, output) = (shapes(&row[11]), shapes(&row[12]));
    let elements = |dims: &[f64]| dims.iter().product::<f64>();
    // The inputs share one dimension: m·k · k·n / (m·n) is its square.
    let shared = (elements(&inputs[0]) * elements(&inputs[1]) / elements(&output[0])).sqrt();
    let flops = 2.0 * elements(&output[0]) * shared;
    let time = row[5].as_f64().expect("a time");
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
    let products = recorded["OperatorMFU"]["rows"].as_array().expect("rows");
    let mut sums: BTreeMap<&str, (f64, Vec<f64>)> = BTreeMap::new();
    for row in products {
        let (flops, _, utilisation) = product_of(row, rate);
        assert_eq!(row[9].as_f64(), Some(flops), "{row}");
        assert!((row[6].as_f64().expect("a ratio") - utilisation).abs() < 1e-4, "{row}");
        let sum = sums.entry(row[1].as_str().expect("an operator")).or_default();
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
    let old: Vec<&str> = by_shapes["Sheet1"]["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .filter_map(|row| row[7].as_str())
        .collect();
    assert_eq!(means, *old);
    let context = Context::new();
    // The operations are recorded in one profile, and follow from shapes in the other one.
    for (variant, peak) in [("mfu", &[][..]), ("basic", &["--peak", "294.912"])] {
        let Some(profile) = marked_profile(&context, variant) else { return };
        let path = profile.to_string_lossy();
        let ran = context.run(&[&["modules", &*path, "--format", "json"], peak].concat());
        let rows = objects(&ran.stdout);
        let mut own: BTreeMap<&str, f64> = BTreeMap::new();
        for row in rows.iter().filter(|row| row["flops"].is_number()) {
            let number = |key: &str| row[key].as_f64().expect("a number");
            *own.entry(row["operator"].as_str().expect("a text")).or_default() += number("flops");
            let expected = number("flops") / (number("total_ns") * 1e-9 * rate);
            assert!((number("mfu") - expected).abs() < 1e-9, "{variant}: {row}");
        }
        let expected: BTreeMap<&str, f64> = sums.iter().map(|(name, sum)| (*name, sum.0)).collect();
        assert_eq!(own, expected, "{variant}");
    }
}

/// The rows of the old version, which repeats neither parents nor modules.
#[test]
fn rows_of_the_old_statistic_are_the_same() {
    let Some(old) = reference("module_statistic_mfu_v26.0.0.json") else { return };
    let context = Context::new();
    let Some(profile) = marked_profile(&context, "mfu") else { return };
    let ran = context.run(&["modules", &profile.to_string_lossy(), "--format", "csv"]);
    let (rows, _) = own_rows(&ran.stdout);
    let expected = old["Sheet1"]["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), expected.len());
    for (own, theirs) in rows.iter().zip(expected) {
        for (column, own) in [&own.0, &own.1, &own.2, &own.3].into_iter().enumerate() {
            assert!(theirs[column].is_null() || theirs[column] == **own, "{own}, {theirs}");
        }
        assert_eq!((Some(own.4), Some(own.6)), (theirs[4].as_f64(), theirs[6].as_u64()), "{theirs}");
        assert!((own.5 - theirs[5].as_f64().expect("a mean")).abs() < 1e-6, "{theirs}");
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
    let ran = context.run(&["modules", "ascend_pytorch_profiler_0.db", "--peak", "100", "--format", "json"]);
    let rows = objects(&ran.stdout);
    let operators = rows.iter().filter(|row| row["item"] == "operator");
    let flops: Vec<f64> = operators.filter_map(|row| row["flops"].as_f64()).collect();
    assert_eq!(flops.iter().filter(|flops| **flops >= 3e9).count(), 1, "{flops:?}");
}

#[test]
fn utilisation_is_weighted_by_time() {
    let Some(reference) = reference("operator_mfu_v26.2.0.json") else { return };
    let context = Context::new();
    let Some(profile) = marked_profile(&context, "mfu") else { return };
    let ran = context.run(&["modules", &profile.to_string_lossy(), "--format", "json"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let rows = objects(&ran.stdout);
    let linear =
        rows.iter().find(|row| row["module"] == "Linear" && row["operator"] == "aclnnAddmm").expect("a row");
    let mfu = linear["mfu"].as_f64().expect("recorded");
    // Three calls of 2.29, 2.85 and 1.55 %: the vendor's plain mean is 2.23 %, operations by time are 2.34 %.
    assert_eq!(format!("{:.2}%", 100.0 * mfu), "2.34%");
    assert!(reference["ModuleMFU"].to_string().contains("\"2.23%\""), "{reference}");
    let rank = rows.iter().find(|row| row["item"] == "rank").expect("a rank");
    assert!(
        rank["peak"].as_str().expect("a peak").starts_with("294.91 TFLOPS, 20 matrix cores at 1800 MHz"),
        "{rank}"
    );
    let half = context.run(&["modules", &profile.to_string_lossy(), "--format", "json", "--peak", "589.824"]);
    let rows = objects(&half.stdout);
    let linear =
        rows.iter().find(|row| row["module"] == "Linear" && row["operator"] == "aclnnAddmm").expect("a row");
    assert!((linear["mfu"].as_f64().expect("recorded") * 2.0 - mfu).abs() < 1e-6);
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
        if !mark.is_empty() {
            statements +=
                &format!("INSERT INTO MSTX_EVENTS VALUES ({0}, {0}, 0, {s8}, 500, 1);", start - 100);
        }
    }
    statements
}

/// Operations by formulas of the test, for each kind of product: blocked weights, batches, groups, INT8, and attention
/// whose mask is recorded by a mark before its call.
#[test]
fn operations_follow_from_shapes_and_recorded_masks() {
    // Type, shapes, types and formats of inputs and outputs, operations, and the mark before the operator.
    let attention = |mark| {
        (
            "FlashAttentionScore",
            ["2,512,4,64;2,512,4,64;2,512,4,64", "DT_BF16;DT_BF16;DT_BF16", "ND;ND;ND"],
            ["2,4,512,8;2,4,512,8;;2,512,4,64", "FLOAT;FLOAT;DT_BF16;DT_BF16", "ND;ND;ND;ND"],
            mark,
        )
    };
    let kernels = [
        (
            (
                "MatMulV3",
                ["16,128;8,8,16,16", "DT_BF16;DT_BF16", "ND;FRACTAL_NZ"],
                ["16,128", "DT_BF16", "ND"],
                "",
            ),
            Some(2 * 16 * 128 * 128),
        ),
        (
            (
                "BatchMatMulV2",
                ["4,16,128;4,128,256", "DT_BF16;DT_BF16", "ND;ND"],
                ["4,16,256", "DT_BF16", "ND"],
                "",
            ),
            Some(2 * 4 * 16 * 128 * 256),
        ),
        (
            (
                "GroupedMatmul",
                [
                    "16,256;4,256,512;;;;;;4",
                    "DT_BF16;DT_BF16;DT_UNDEFINED;DT_UNDEFINED;DT_UNDEFINED;DT_UNDEFINED;DT_UNDEFINED;INT64",
                    "ND;ND;NULL;NULL;NULL;NULL;NULL;ND",
                ],
                ["16,512", "DT_BF16", "ND"],
                "",
            ),
            Some(2 * 16 * 256 * 512),
        ),
        (
            (
                "QuantBatchMatmulV3",
                ["16,128;8,8,16,32;256;256", "INT8;INT8;FLOAT;INT32", "ND;FRACTAL_NZ;ND;ND"],
                ["16,256", "DT_BF16", "ND"],
                "",
            ),
            Some(2 * 16 * 128 * 256),
        ),
        (attention(r#"{"input_layout":"BSND","sparse_mode":0}"#), Some(2 * 2 * 2 * 4 * 64 * 512 * 512)),
        (attention(r#"{"input_layout":"BSND","sparse_mode":2}"#), Some(2 * 2 * 2 * 4 * 64 * (512 * 513 / 2))),
        // A prefix of each sequence without a mask: its lengths are not recorded.
        (attention(r#"{"input_layout":"BSND","sparse_mode":6}"#), None),
    ];
    let context = Context::new();
    let statements = statements_of_kernels(kernels.iter().map(|(kernel, _)| kernel));
    write_database(&context.path("ascend_pytorch_profiler_0.db"), &statements);
    let peak = ["--peak", "100", "--format", "json"];
    let ran = context.run(&[&["modules", "ascend_pytorch_profiler_0.db"], &peak[..]].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let rows = objects(&ran.stdout);
    for (number, ((kind, ..), operations)) in kernels.iter().enumerate() {
        let name = format!("operator {number}");
        let row = rows
            .iter()
            .find(|row| row["operator"] == *name)
            .unwrap_or_else(|| panic!("{name}: {}", ran.stdout));
        assert_eq!(row["flops"].as_f64(), operations.map(f64::from), "{kind}: {row}");
        // 100 TFLOPS for a microsecond.
        assert_eq!(
            row["mfu"].as_f64(),
            operations.map(|operations| f64::from(operations) / 1e8),
            "{kind}: {row}"
        );
    }
}

/// Returns the operations of the operators `operator 0` and so on of the kernels.
fn flops_of_kernels(kernels: &[MarkedKernel<'_>], options: &[&str], context: &Context) -> Vec<Option<f64>> {
    let file = context.path("ascend_pytorch_profiler_0.db");
    drop(fs::remove_file(&file));
    write_database(&file, &statements_of_kernels(kernels.iter()));
    let ran =
        context.run(&[&["modules", "ascend_pytorch_profiler_0.db", "--format", "json"], options].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let rows = objects(&ran.stdout);
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
    let ran = context.run(&["modules", "p_ascend_pt", "--format", "json"]);
    let rows = objects(&ran.stdout);
    for (number, (kernel, flops)) in kernels.iter().zip(&expected).enumerate() {
        let row = rows.iter().find(|row| row["operator"] == *format!("operator {number}")).expect("a row");
        let rate = 20.0 * 1.8e9 * if kernel.1[1].starts_with("INT8") { 16_384.0 } else { 8192.0 };
        let utilisation = flops.expect("known") / (1e-6 * rate);
        assert!((row["mfu"].as_f64().expect("known") / utilisation - 1.0).abs() < 1e-9, "{row}");
    }
}

/// Attention whose mask is recorded: the test counts the pairs of queries and keys one by one. The vendor's formulas for
/// unequal lengths compare sizes of heads instead of lengths.
#[test]
fn operations_of_attention_equal_a_count_of_pairs() {
    // Layout, shapes of query, key and output, and sequences of queries and keys.
    type AttentionCall<'a> = (&'a str, [&'a str; 3], &'a [(u32, u32)]);
    let calls: [AttentionCall<'_>; 6] = [
        ("BNSD", ["2,4,48,64", "2,2,80,64", "2,4,48,64"], &[(48, 80), (48, 80)]),
        ("BNSD", ["1,4,80,64", "1,4,48,64", "1,4,80,64"], &[(80, 48)]),
        ("BSND", ["1,33,4,192", "1,33,4,192", "1,33,4,128"], &[(33, 33)]),
        ("BSH", ["2,16,256", "2,40,256", "2,16,256"], &[(16, 40), (16, 40)]),
        ("SBH", ["16,2,256", "40,2,256", "16,2,256"], &[(16, 40), (16, 40)]),
        ("TND", ["60,4,64", "90,4,64", "60,4,64"], &[(10, 30), (45, 20), (5, 40)]),
    ];
    let ends = |lengths: &mut dyn Iterator<Item = u32>| -> String {
        let mut end = 0;
        let ends = lengths.map(|length| {
            end += length;
            end.to_string()
        });
        ends.collect::<Vec<_>>().join(",")
    };
    let elements =
        |shape: &str| shape.split(',').map(|dim| dim.parse::<f64>().expect("a number")).product::<f64>();
    let mut texts = Vec::new();
    let mut expected = Vec::new();
    for (layout, [query, key, output], sequences) in calls {
        for mode in [0, 2, 3] {
            let mut mark = format!(r#"{{"input_layout":"{layout}","sparse_mode":{mode}"#);
            if layout == "TND" {
                let (queries, keys) = (
                    ends(&mut sequences.iter().map(|pair| pair.0)),
                    ends(&mut sequences.iter().map(|pair| pair.1)),
                );
                mark += &format!(r#","actual_seq_qlen":[{queries}],"actual_seq_kvlen":[{keys}]"#);
            }
            let (mut pairs, mut rows) = (0_u32, 0);
            for (queries, keys) in sequences {
                rows += queries;
                for query in 0..*queries {
                    // Mode 2 is causal from the first query and key, mode 3 from the last ones.
                    let last = match mode {
                        0 => i64::from(*keys) - 1,
                        2 => i64::from(query),
                        _ => i64::from(query) + i64::from(*keys) - i64::from(*queries),
                    };
                    pairs += (0..*keys).map(|key| u32::from(i64::from(key) <= last)).sum::<u32>();
                }
            }
            // A pair has two operations for each element of its row of the query and of the output.
            let width = (elements(query) + elements(output)) / f64::from(rows);
            expected.push(Some(2.0 * f64::from(pairs) * width));
            let softmax = if layout == "TND" { "60,4,8" } else { "1,4,48,8" };
            texts.push((
                format!("{query};{key};{key}"),
                format!("{softmax};{softmax};;{output}"),
                mark + "}",
            ));
        }
    }
    let kernels: Vec<MarkedKernel<'_>> = texts
        .iter()
        .map(|(inputs, outputs, mark)| -> MarkedKernel<'_> {
            let types = ["DT_BF16;DT_BF16;DT_BF16", "FLOAT;FLOAT;DT_BF16;DT_BF16"];
            ("FlashAttentionScore", [inputs, types[0], "ND;ND;ND"], [outputs, types[1], "ND;ND;ND;ND"], mark)
        })
        .collect();
    let own = flops_of_kernels(&kernels, &["--peak", "100"], &Context::new());
    for ((own, expected), (inputs, _, mark)) in own.iter().zip(&expected).zip(&texts) {
        assert_eq!(own, expected, "{inputs} {mark}");
    }
    assert_eq!(own.len(), 18);
}

#[test]
fn both_forms_of_a_run_have_the_same_modules() {
    let context = Context::new();
    write_text_profile(&context, "text_ascend_pt", 0);
    write_database(&context.path("ascend_pytorch_profiler_0.db"), "");
    let run = |arguments: &[&str]| {
        let ran = context.run(&[&["modules"], arguments].concat());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        ran.stdout
    };
    let peak = ["--peak", "100"];
    insta::assert_snapshot!(run(&[&["text_ascend_pt"], &peak[..]].concat()));
    for format in ["plain", "csv", "json"] {
        let of = |profile| run(&[&[profile, "--format", format], &peak[..]].concat());
        assert_eq!(of("text_ascend_pt"), of("ascend_pytorch_profiler_0.db"), "{format}");
    }
    // Ranges of mstx come first, and another domain is selected by its name.
    let ranges = "CREATE TABLE MSTX_EVENTS (startNs, endNs, eventType, message, domainId, globalTid);
        INSERT INTO STRING_IDS VALUES (900, 'Decoder'), (901, 'Module'), (902, 'mine'), (903, 'Phase');
        INSERT INTO MSTX_EVENTS VALUES (1700000000000000000, 1700000000000050000, 2, 900, 901, 1),
            (1700000000000000000, 1700000000000150000, 2, 903, 902, 1)";
    write_database(&context.path("marked/ascend_pytorch_profiler_0.db"), ranges);
    let modules = |arguments: &[&str]| -> Vec<String> {
        let (rows, outside) = own_rows(&run(&[&["marked", "--format", "csv"], arguments].concat()));
        let mut modules: Vec<String> = rows.into_iter().map(|row| row.1).collect();
        modules.dedup();
        modules.push(outside.to_string());
        modules
    };
    assert_eq!(modules(&[]), ["Decoder", "55000"]);
    assert_eq!(modules(&["--domain", "mine"]), ["Phase", "0"]);
    assert_eq!(modules(&["--domain", "nothing"]), ["84500"]);
}

/// Asserts that `compare --db` has calls and times of the chosen steps, divided by the steps of each side. `products` are the lines
/// of the kernel table, and `alone` is the duration alone in nanoseconds.
fn assert_compared_per_step(context: &Context, products: &[String], alone: f64) {
    // Step 7 has two products of 10,000 ns each, step 8 one of 20,000 ns; `one_step` has step 7 only.
    let first: Vec<&str> =
        products.iter().map(String::as_str).filter(|line| !line.starts_with("8,")).collect();
    context.write("one_step/kernel_details.csv", &first.concat());
    let document = include_str!("../../docs/timeline.md");
    let compare = |format: &str, options: &[&str]| {
        let arguments = ["compare", "p_ascend_pt", "one_step", "--db", "db", "--format", format];
        let ran = context.run(&[&arguments, options].concat());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        ran.stdout
    };
    for (options, expected) in [(&[][..], [1.5, 2.0]), (&["--step", "7"], [2.0, 2.0])] {
        let output = objects(&compare("json", options));
        let found = output.iter().filter(|row| row["item"] == "kernel" && row["kernel"] == "MatMulV2");
        let found: Vec<&Value> = found.collect();
        assert_eq!(found.iter().map(|row| &row["run"]).collect::<Vec<_>>(), ["base", "other"]);
        for (row, calls) in found.into_iter().zip(expected) {
            assert_eq!((&row["calls"], &row["total_ns"]), (&calls.into(), &20_000.0.into()), "{options:?}");
            let excess = row["excess_ns"].as_f64().expect("known");
            assert!((excess - (20_000.0 - calls * alone)).abs() < 1e-6, "{row}");
            for key in row.as_object().expect("an object").keys() {
                assert!(document.contains(&format!("`{key}`")), "`{key}` is not in docs/timeline.md");
            }
        }
        let csv = compare("csv", options);
        let mut reader = csv::Reader::from_reader(csv.as_bytes());
        let header: Vec<String> = reader.headers().expect("a header").iter().map(str::to_owned).collect();
        let records: Vec<csv::StringRecord> = reader.records().map(|record| record.expect("a row")).collect();
        let of_part: Vec<_> = records.iter().filter(|record| &record[0] == "kernel_alone").collect();
        let [record] = *of_part else { panic!("{csv}") };
        let cell = |name: &str| &record[header.iter().position(|cell| cell == name).expect("a column")];
        let cells = ["name", "base", "base calls", "other", "other calls", "difference", "ratio"].map(cell);
        let [base, other] = expected.map(|calls: f64| calls.to_string());
        assert_eq!(cells, ["MatMulV2", "20000", &base, "20000", &other, "0", "1"], "{csv}");
        let ratios = ["alone", "base slowdown", "other slowdown"].map(|name| cell(name).parse::<f64>());
        let ratios = ratios.map(|ratio| ratio.expect("a number"));
        assert!((ratios[0] - alone).abs() < 1e-6, "{csv}");
        for (slowdown, calls) in ratios[1..].iter().zip(expected) {
            assert!((slowdown * alone * calls - 20_000.0).abs() < 1e-6, "{csv}");
        }
    }
}

#[test]
fn kernels_are_compared_with_a_database_and_the_missing_ones_are_listed() {
    let context = Context::new();
    write_text_profile(&context, "p_ascend_pt", 0);
    let table = fs::read_to_string(context.path("p_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv"));
    let products: Vec<String> = table
        .expect("read")
        .lines()
        .filter(|line| line.starts_with("Step Id") || line.contains("MatMulV2"))
        .map(|line| format!("{line}\n"))
        .collect();
    context.write("products/kernel_details.csv", &products.concat());
    assert_eq!(context.run(&["ingest", "products", "--db", "db", "--kind", "rehearsal"]).code, 0);
    let ran = context.run(&[
        "modules",
        "p_ascend_pt",
        "--db",
        "db",
        "--missing",
        "missing.csv",
        "--xlsx",
        "all.xlsx",
    ]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    // The row has the duration of this profile only, which is not that of the kernel alone.
    assert!(ran.stdout.contains("without a duration alone: 3 kernels, 0.044 ms\n"), "{}", ran.stdout);
    assert!(ran.stdout.contains("row without a measurement; `npubench run` measures it\n"), "{}", ran.stdout);
    assert!(!ran.stdout.contains("slowdown"), "{}", ran.stdout);
    let one = context.run(&["modules", "products", "--db", "db"]);
    assert!(one.stdout.contains("without a duration alone: 1 kernel, 0.040 ms\n"), "{}", one.stdout);
    let compared = context.run(&["compare", "p_ascend_pt", "products", "--db", "db"]);
    assert!(compared.stdout.contains("no kernel of base or other has a measured row"), "{}", compared.stdout);
    assert!(compared.stdout.contains("`npubench run` measures its rows"), "{}", compared.stdout);
    assert_eq!(compared.stderr.matches("are simulated").count(), 1, "{}", compared.stderr);
    assert_eq!(context.run(&STEADY_RUN).code, 0);
    let measured = context.run(&["modules", "p_ascend_pt", "--db", "db", "--format", "json"]);
    let rows = objects(&measured.stdout);
    let product = rows.iter().find(|row| row["kernel"] == "MatMulV2").expect("a kernel");
    let number = |key: &str| product[key].as_f64().expect("a number");
    assert!((number("slowdown") - 13_333.333_333 / number("alone_ns")).abs() < 1e-6, "{product}");
    assert!((number("excess_ns") - (40_000.0 - 3.0 * number("alone_ns"))).abs() < 1e-6, "{product}");
    let linear = rows.iter().find(|row| row["module"] == "Linear").expect("a row");
    assert!((linear["excess_ns"].as_f64().expect("known") - number("excess_ns")).abs() < 1e-6, "{linear}");
    assert_compared_per_step(&context, &products, number("alone_ns"));
    let compared =
        context.run(&["compare", "p_ascend_pt", "p_ascend_pt", "--db", "db", "--html", "page.html"]);
    assert_eq!(compared.code, 0, "{}", compared.stderr);
    let (slowdown, alone) =
        (format!("{:.3}", number("slowdown")), format!("{:.3}", number("alone_ns") / 1e3));
    let (_, table) =
        compared.stdout.split_once("\nkernels against their durations alone\n").expect("a table");
    let line = table.lines().find(|line| line.contains("MatMulV2")).expect("a row");
    let cells: Vec<&str> = line.split_whitespace().rev().take(6).collect();
    assert_eq!(cells, ["0.000", &slowdown, "13.333", &slowdown, "13.333", &alone], "{line}");
    let page = fs::read_to_string(context.path("page.html")).expect("written");
    let cells =
        format!("<td class=\"n\">{alone}</td><td class=\"n\">13.333</td><td class=\"n\">{slowdown}</td>");
    assert!(page.contains(&cells), "{page}");
    let book = fs::read(context.path("all.xlsx")).expect("written");
    assert!(book.starts_with(b"PK"), "a workbook is an archive");
    let missing = fs::read_to_string(context.path("missing.csv")).expect("written");
    assert!(missing.starts_with("Name,Type,Duration(us),Input Shapes,"), "{missing}");
    let covered = context.run(&["coverage", "--db", "db", "--workload", "missing.csv", "--format", "json"]);
    assert!(covered.code <= 1, "{}", covered.stderr);
    // Without operators on the host, no time can belong to a module, and the output says so.
    let table = context.run(&["modules", "products"]);
    assert!(
        table.stderr.contains("no range of a module is recorded in the domain `Module`"),
        "{}",
        table.stderr
    );
    assert!(
        table.stdout.contains("\nnot recorded: host operators and what they launched"),
        "{}",
        table.stdout
    );
    // The result is neither an input nor in the database.
    for (option, path) in
        [("--missing", "p_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv"), ("--missing", "db/a.csv")]
    {
        let ran = context.run(&["modules", "p_ascend_pt", "--db", "db", option, path]);
        assert!(matches!(ran.code, 2 | 3) && ran.stderr.contains("\nhint: "), "{ran:?}");
    }
}

/// Reads the cells of a workbook with the parsers of Python's standard library, and prints them as JSON.
const READ_WORKBOOK: &str = r#"
import json, sys, zipfile, xml.etree.ElementTree as tree
book = zipfile.ZipFile(sys.argv[1])
assert book.testzip() is None
parse = lambda name: tree.fromstring(book.read(name))
space = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
text = lambda node: "".join(part.text or "" for part in node.iter(space + "t"))
strings = [text(node) for node in parse("xl/sharedStrings.xml")]
names = [sheet.get("name") for sheet in parse("xl/workbook.xml").iter(space + "sheet")]
def column(cell):
    letters = "".join(letter for letter in cell.get("r") if letter.isalpha())
    place = 0
    for letter in letters:
        place = 26 * place + ord(letter) - 64
    return place - 1
rows = []
for row in parse("xl/worksheets/sheet1.xml").iter(space + "row"):
    cells = {}
    for cell in row.iter(space + "c"):
        assert cell.find(space + "f") is None, "a formula"
        value = cell.find(space + "v").text
        cells[column(cell)] = strings[int(value)] if cell.get("t") == "s" else float(value)
    rows.append([cells.get(place) for place in range(9)])
json.dump({"sheets": names, "rows": rows}, sys.stdout)
"#;

#[test]
fn a_workbook_has_the_cells_of_the_csv() {
    let context = Context::new();
    // Names that are no formula, no markup, and longer than a cell of a workbook may be.
    let statements = "UPDATE STRING_IDS SET value = '=1+1' WHERE value = 'aclnnAddmm_MatMulV2';
        UPDATE STRING_IDS SET value = '<a & \"b\">, \u{e4}' WHERE value = 'aclnnMul';
        UPDATE STRING_IDS SET value = hex(zeroblob(20000)) WHERE value = 'aclnnAdd_Add'";
    write_database(&context.path("ascend_pytorch_profiler_0.db"), statements);
    let base = ["modules", "ascend_pytorch_profiler_0.db", "--peak", "100", "--format", "csv"];
    let ran = context.run(&[&base[..], &["--xlsx", "all.xlsx"]].concat());
    assert_eq!((ran.code, &*ran.stderr), (0, "wrote `all.xlsx`\n"));
    let mut python = Command::new("python3");
    python.args(["-c", READ_WORKBOOK]).arg(context.path("all.xlsx"));
    let output = context.ran(&python.output().expect("python3 runs"));
    assert_eq!((output.code, &*output.stderr), (0, ""));
    let book: Value = serde_json::from_str(&output.stdout).expect("JSON");
    assert_eq!(book["sheets"], serde_json::json!(["module_statistic"]));
    let rows = book["rows"].as_array().expect("rows");
    let mut csv = csv::ReaderBuilder::new().has_headers(false).from_reader(ran.stdout.as_bytes());
    let expected: Vec<csv::StringRecord> = csv.records().map(|row| row.expect("a row")).collect();
    assert_eq!((rows.len(), expected.len()), (1 + 6, 1 + 6));
    for (number, (row, expected)) in rows.iter().zip(&expected).enumerate() {
        for (column, text) in expected.iter().enumerate() {
            let cell = &row[column];
            match cell.as_f64() {
                Some(value) if number > 0 => assert_eq!(Ok(value), text.parse(), "{row}"),
                _ if text.len() > 32_767 => {
                    let cell = cell.as_str().expect("a text");
                    assert!(
                        cell.chars().count() <= 32_767
                            && cell.starts_with("00000")
                            && cell.contains('\u{2026}')
                    );
                }
                _ => assert_eq!(cell.as_str().unwrap_or_default(), text, "{row}"),
            }
        }
    }
    let cells: Vec<&str> = rows.iter().flat_map(|row| [&row[2], &row[3]]).filter_map(Value::as_str).collect();
    assert!(cells.contains(&"=1+1") && cells.contains(&"<a & \"b\">, \u{e4}"));
}

#[test]
fn lines_that_mark_modules_are_python() {
    let context = Context::new();
    let output = context.command(&["modules", "--snippet"]).env("NPUBENCH_DB", "db").output();
    let snippet = context.ran(&output.expect("npubench runs"));
    assert_eq!((snippet.code, &*snippet.stderr), (0, ""));
    context.write("mark_modules.py", &snippet.stdout);
    // Stand-ins for torch record what is called.
    context.write(
        "torch/__init__.py",
        "class nn:\n    class Module:\n        def __call__(self, x):\n            return self.forward(x)\n",
    );
    context.write(
        "torch_npu/__init__.py",
        "calls = []\nclass npu:\n    class mstx:\n        def range_start(*a):\n            calls.append(a)\n            return len(calls)\n        \
         def range_end(*a):\n            calls.append(a)\n        def mark(*a):\n            calls.append(a)\n",
    );
    let script = "import torch, torch_npu, mark_modules\nmark_modules.mark_modules()\n\
                  class Net(torch.nn.Module):\n    def forward(self, x):\n        return x + 1\n\
                  assert Net()(1) == 2\nmark_modules.mark_attention('BSND', 3, [1, 2])\nprint(torch_npu.calls)";
    let ran = Command::new("python3")
        .args(["-c", script])
        .current_dir(context.path(""))
        .output()
        .expect("python3 runs");
    let expected = "[('Net', None, 'Module'), (1, 'Module'), ('{\"input_layout\": \"BSND\", \"sparse_mode\": 3, \
                    \"actual_seq_qlen\": [1, 2]}', None, 'flash_attn_args')]\n";
    assert_eq!(String::from_utf8_lossy(&ran.stdout), expected, "{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn wrong_options_and_profiles_without_work_are_refused() {
    let context = Context::new();
    write_text_profile(&context, "p_ascend_pt", 0);
    context.write(
        "empty/kernel_details.csv",
        "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us)\n",
    );
    for (arguments, expected) in [
        (&[][..], "required"),
        (&["p_ascend_pt", "--snippet"], "cannot be used with"),
        (&["p_ascend_pt", "--missing", "a.csv"], "--db"),
        (&["p_ascend_pt", "--peak", "0"], "give a number above 0"),
        (&["p_ascend_pt", "--peak", "nan"], "give a number above 0"),
        (&["p_ascend_pt", "--device-profile", "none"], "none"),
        (&["p_ascend_pt", "--db", "nowhere"], "nowhere"),
        (&["p_ascend_pt", "--xlsx", "a.csv"], "does not end in `.xlsx`"),
        // A table of a range that launched nothing is no module without time.
        (&["empty/kernel_details.csv"], "neither a kernel nor a collective"),
    ] {
        let ran = context.run(&[&["modules"], arguments].concat());
        assert!(matches!(ran.code, 2 | 3), "{arguments:?}: {ran:?}");
        assert!(ran.stderr.contains(expected) && ran.stdout.is_empty(), "{arguments:?}: {ran:?}");
    }
}
