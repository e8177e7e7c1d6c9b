//! Fused mixtures of experts.

use super::*;

const MOE_MAPPING: &str = "communication_data_ref: hccl\noperator_mappings:\n  \
    moe: {kernel_type: DispatchFFNCombine, query_mode: moe_fused, project_full_shape: true}\n  quant:\n    \
    kernel_type: DispatchFFNCombine\n    query_mode: moe_fused\n    project_full_shape: true\n    embedded_compute:\n      \
    - {kernel_type: AddRmsNormBias, input_projection: residual_norm_from_activation}\n      \
    - {kernel_type: Cast, input_projection: routing_weight_cast, output_dtype: FLOAT}\n    \
    embedded_communication: {kernel_type: hcom_alltoall_, message_bytes_mode: routed_input, \
    group_type: expert_parallel, interpolation_method: alpha_beta}\n  \
    outer: {composite: true, sub_kernels: [quant, moe]}\n";

#[test]
fn mixtures_of_experts_need_their_number_of_ranks() {
    let database = TestDatabase::new(&[
        (
            "AddRmsNormBias",
            &["100,64;100,64;64;64 | DT_BF16;DT_BF16;DT_BF16;DT_BF16 | | 100,64 | DT_BF16 | 3"],
        ),
        ("Cast", &["100,8 | DT_BF16 | | 100,8 | INT32 | 9", "100,8 | DT_BF16 | | 100,8 | FLOAT | 2"]),
    ]);
    let row = |tokens: u32, ep: &str, latency: u32| {
        format!(
            "\"{tokens},64;2,64,32;2,16,64;{tokens},8;64;128;{tokens},8\",DT_BF16;INT8;INT8;INT32;INT64;INT64;FLOAT,\
             ND;ND;ND;ND;ND;ND;ND,\"{tokens},64\",DT_BF16,ND,{latency},,,{ep}\n"
        )
    };
    let rows = [row(100, "16", 50), row(300, "16", 90), row(100, "8", 40), row(700, "", 70)];
    let text = format!("{HEADER},EP Size\n{}", rows.concat());
    fs::write(database.path().join("DispatchFFNCombine.csv"), text).expect("written");
    fs::create_dir(database.path().join("hccl")).expect("created");
    // The message of 100 tokens is 100·64·2·8 bytes.
    let table = "message_bytes,num_devices,topology_tier,Duration(us)\n102400,16,0,5\n204800,16,0,7\n";
    fs::write(database.path().join("hccl/hcom_alltoall_.csv"), table).expect("written");
    let engine = database.engine(MOE_MAPPING);
    let lookup = |op: &str, tokens: u32, ep_size: Option<u64>| {
        let shapes = format!("{tokens},64;{tokens},8;2,64,32;2,16,64");
        let query = OpQuery { ep_size, ..query(op, &shapes, "DT_BF16;INT64;INT8;INT8") };
        engine.lookup(&query).expect("readable")
    };
    for (tokens, ep_size, expected) in [
        (100, Some(16), "50 identity DispatchFFNCombine:2"),
        (100, Some(8), "40 identity DispatchFFNCombine:4"),
        (112, Some(16), "52.4 interpolated_1d_linear over axis 0 DispatchFFNCombine:2 DispatchFFNCombine:3"),
        (112, Some(8), "40 padding DispatchFFNCombine:4"),
        (200, Some(16), "70 interpolated_1d_linear over axis 0 DispatchFFNCombine:2 DispatchFFNCombine:3"),
        (200, Some(8), "shape_mismatch"),
        (100, Some(4), "rank_count_mismatch: rows with these inputs are of 8, 16 ranks"),
        (700, Some(16), "shape_mismatch"),
        (100, None, "ep_size_not_configured"),
    ] {
        assert_eq!(shown(&lookup("moe", tokens, ep_size)), expected, "{tokens} {ep_size:?}");
    }
    let unfit = OpQuery { ep_size: Some(16), ..query("moe", "100,64;100,8", "BF16") };
    assert_eq!(shown(&engine.lookup(&unfit).expect("readable")), "decompose_failed");
    let fused = lookup("quant", 100, Some(16));
    assert_eq!(shown(&fused), "60 sum_of_parts");
    let parts: Vec<String> = fused.parts.iter().map(|part| shown(&part.answer)).collect();
    assert_eq!(
        parts,
        [
            "50 identity DispatchFFNCombine:2",
            "3 identity AddRmsNormBias:2",
            "2 identity Cast:3",
            "5 comm hcom_alltoall_:2"
        ]
    );
    // If norm and cast are missing, the sum is partial; the message is larger than all measured messages, so that it
    // has no time.
    let partial = lookup("quant", 300, Some(16));
    assert_eq!((partial.source, partial.parts.len()), (AnswerSource::Partial, 3));
    assert!((partial.confidence - 1.0 / 3.0).abs() < 1e-12);
    assert!(
        partial
            .miss
            .as_ref()
            .is_some_and(|reason| reason.to_string().starts_with("sub_kernel_miss:AddRmsNormBias"))
    );
    // A sum with a partial part is no complete answer.
    let outer = lookup("outer", 300, Some(16));
    let reason = outer.miss.as_ref().map(ToString::to_string).unwrap_or_default();
    assert_eq!(outer.source, AnswerSource::Partial);
    assert!(reason.starts_with("sub_kernel_miss:quant: sub_kernel_miss:AddRmsNormBias"), "{reason}");
}

/// Shapes of the kernel's inputs.
fn kernel_shapes(inputs: &str, dtypes: &str) -> Option<Vec<Vec<u64>>> {
    let query = OpQuery { inputs: tensors(inputs, dtypes), ..OpQuery::default() };
    Some(moe_inputs(&query)?.kernel.into_iter().map(|tensor| tensor.dims).collect())
}

#[test]
fn inputs_of_the_kernel_follow_from_activation_routing_and_weights() {
    let expected = Some(vec![
        vec![12, 64],
        vec![2, 64, 32],
        vec![2, 16, 64],
        vec![12, 8],
        vec![64],
        vec![128],
        vec![12, 8],
    ]);
    for inputs in [
        "12,64;12,8;2,64,32;2,16,64",
        "3,4,64;12,8;2,64,32;64;2,16,64;128",
        "12,64;12,8;64,32;64,32;16,64;16,64",
        "12,64;2,64,32;2,16,64;12,8;64;128;12,8",
    ] {
        assert_eq!(kernel_shapes(inputs, "DT_BF16"), expected, "{inputs}");
    }
    for inputs in ["12,64", "12,64;12,8", "12,64;12,8;2,60,32;2,16,64", "12,64;12,8;2,64,32"] {
        assert_eq!(kernel_shapes(inputs, "DT_BF16"), None, "{inputs}");
    }
}
