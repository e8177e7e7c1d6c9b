use std::path::{Path, PathBuf};

use super::*;

fn parsed(text: &str) -> OpMapping {
    OpMapping::parse(Path::new("op_mapping.yaml"), text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn refused(text: &str) -> String {
    let error = OpMapping::parse(Path::new("op_mapping.yaml"), text).expect_err(text);
    format!("{error}; {}", error.hint)
}

#[test]
fn all_keys_of_an_operator_are_read() {
    let mapping = parsed(
        "communication_data_ref: ../hccl\nlatency_policy:\n  kernel_overrides:\n    A: {prefer_profiling_rows: true}\n    \
         Q: {profiling_core_envelope_fallback: {max_duration_to_core_ratio: 1.5}}\nquery_selection_policy:\n  \
         kernel_overrides: {A: {require_semantic_unique: true}}\ninterpolation_policy:\n  kernel_overrides:\n    \
         A: {max_interpolation_dim: 1, generic_compute: {axis: output_numel}}\n    F: {axis_transform: sqrt_seq}\n\
         operator_mappings:\n  \"aten.mm.default\":\n    kernel_type: MatMulV2\n    alternate_kernel_types: [MatMulV3, MatMulV2]\n    \
         degenerate_bmm_kernel_type: Mul\n  q:\n    kernel_type: Q\n    tc_input_count: 2\n    \
         compute_subcategory: quantized_matmul\n    expected_input_formats: [ND, FRACTAL_NZ]\n    \
         tp_linear_projection: {shard_axis: input, logical_global_dims: [16384], otherwise: physical_local}\n    \
         kernel_types_by_input_rank:\n      3: [B]\n  view: {zero_cost: true}\n  miss: {accepted_miss: not profiled}\n  \
         sum:\n    composite: true\n    sub_kernels: [RmsNorm, view]\n  add: {kernel_type: Add, query_mode: elementwise}\n  \
         moe:\n    kernel_type: D\n    query_mode: moe_fused\n    embedded_compute:\n      \
         - {kernel_type: Cast, input_projection: routing_weight_cast, output_dtype: FLOAT}\n",
    );
    let operator = |name: &str| mapping.operator(name).expect(name);
    let product = operator("torch.ops.aten.mm.default");
    assert_eq!(product.route, OperatorRoute::Compute);
    assert_eq!(product.kernels.iter().map(|k| k.name.as_str()).collect::<Vec<_>>(), ["MatMulV2", "MatMulV3"]);
    assert_eq!(product.kernels[1].line, 15);
    let quantized = operator("q");
    assert_eq!((quantized.input_count, quantized.formats.len()), (Some(2), 2));
    assert_eq!(quantized.kernels_by_rank[&3][0].name.as_str(), "B");
    assert_eq!(quantized.tp_projection.as_ref().map(|rule| rule.shard_axis), Some(ShardAxis::Input));
    assert_eq!(operator("view").route, OperatorRoute::ZeroCost);
    assert_eq!(operator("miss").route, OperatorRoute::AcceptedMiss);
    assert_eq!(operator("add").route, OperatorRoute::Elementwise);
    assert_eq!(operator("sum").parts()[1], CompositePart::Operator("view".to_owned()));
    assert_eq!(operator("moe").route, OperatorRoute::MoeFused);
    assert_eq!(operator("moe").embedded_compute[0].input_projection, InputProjection::RoutingWeightCast);
    let policy = mapping.policy("A");
    assert!(policy.prefers_profiling && policy.requires_unique);
    assert_eq!((policy.max_interpolation_dim, policy.generic_axis), (Some(1), GenericAxis::OutputElements));
    assert_eq!(mapping.policy("Q").max_core_ratio, Some(1.5));
    assert_eq!(mapping.policy("F").axis_transform, AxisTransform::SqrtSeq);
    assert_eq!(mapping.policy("other"), KernelPolicy::default());
    assert_eq!(mapping.communication_folder(), Some(PathBuf::from("../hccl")));
}

#[test]
fn errors_name_the_line_and_what_was_expected() {
    let operators = |text: &str| refused(&format!("operator_mappings:\n{text}"));
    for (text, expected) in [
        ("  a: {kernel: X}\n", "op_mapping.yaml:2:7: unknown key `kernel`, expected one of"),
        ("  a: {notes: x}\n", "op_mapping.yaml:2:3: `a` has no `kernel_type`; name its kernel"),
        ("  a: {kernel_type: \"\"}\n", "op_mapping.yaml:2:20: ``: the kernel has no name"),
        ("  a:\n    composite: true\n", "op_mapping.yaml:3:16: the composite `a` has neither"),
        ("  a: {kernel_type: X, sub_kernels: [Y]}\n", "op_mapping.yaml:2:36: `sub_kernels` of `a` without"),
        ("  a: {kernel_type: X, decomposer: true}\n", "op_mapping.yaml:2:35: `decomposer` of `a` without"),
        ("  a: {kernel_type: X, query_mode: attention}\n", "op_mapping.yaml:2:35: unknown value `attention`"),
        (
            "  a: {kernel_type: X, query_mode: elementwise, tc_input_count: 2}\n",
            "op_mapping.yaml:2:64: `tc_input_count` beside `query_mode: elementwise`",
        ),
        ("  a: {kernel_type: X, tc_input_count: 0}\n", "op_mapping.yaml:2:39: `tc_input_count` is 0"),
        (
            "  a: {kernel_type: X, compute_subcategory: quantized_matmul, tc_input_count: 2}\n",
            "op_mapping.yaml:2:44: a `quantized_matmul` needs as many",
        ),
        (
            "  a: {composite: true, sub_kernels: [b]}\n  b: {composite: true, sub_kernels: [X, a]}\n",
            "op_mapping.yaml:3:41: a composite contains itself: a -> b -> a; list the kernels",
        ),
        (
            "  a: {composite: true, sub_kernels: [a]}\n",
            "op_mapping.yaml:2:38: a composite contains itself: a -> a",
        ),
        (
            "  a: {kernel_type: X, tp_linear_projection: {shard_axis: input, logical_global_dims: []}}\n",
            "op_mapping.yaml:2:45: `logical_global_dims` needs lengths",
        ),
        (
            "  a: {kernel_type: X, tp_linear_projection: {shard_axis: input, logical_global_dims: [1], \
             otherwise: mlapo_preprocess}}\n",
            "op_mapping.yaml:2:102: unknown value `mlapo_preprocess`",
        ),
    ] {
        let found = operators(text);
        assert!(found.starts_with(expected), "{text}: {found}");
    }
    assert!(refused("version: 1\n").contains("the key `operator_mappings` is missing"));
    let limit =
        "interpolation_policy: {kernel_overrides: {A: {max_interpolation_dim: 4}}}\noperator_mappings: {}\n";
    let found = refused(limit);
    assert!(found.starts_with("op_mapping.yaml:1:70: found `4`, expected a number of dimensions"), "{found}");
    let missing = OpMapping::load(Path::new("/nonexistent/op_mapping.yaml")).expect_err("no file");
    assert!(missing.to_string().starts_with("/nonexistent/op_mapping.yaml: cannot be read"), "{missing}");
}

/// Each of these operators contains the next one twice.
#[test]
fn composites_of_too_many_operators_are_refused() {
    let chain =
        (0..5000).map(|level| format!("  c{level}: {{composite: true, sub_kernels: [c{}]}}\n", level + 1));
    let chain = format!("operator_mappings:\n{}  c5000: {{kernel_type: Add}}\n", chain.collect::<String>());
    assert!(refused(&chain).contains("composites of more than 100 levels"), "{}", refused(&chain));
    let nested = |levels: usize| {
        let operators = (0..levels)
            .map(|level| format!("  c{level}: {{composite: true, sub_kernels: [c{0}, c{0}]}}\n", level + 1));
        format!("operator_mappings:\n{}  c{levels}: {{kernel_type: Add}}\n", operators.collect::<String>())
    };
    let path = Path::new("op_mapping.yaml");
    assert!(OpMapping::parse(path, &nested(10)).is_ok());
    for levels in [14, 60] {
        let error = OpMapping::parse(path, &nested(levels)).expect_err("too many").to_string();
        assert!(error.starts_with("op_mapping.yaml:") && error.contains("the limit is 10000"), "{error}");
    }
}
