//! Values between rows, and rows whose shapes leave the work open.

use super::*;

const INTERPOLATION_MAPPING: &str = "interpolation_policy: {kernel_overrides: {MatMulV2: {max_interpolation_dim: 1}, \
    GatherV2: {generic_compute: {axis: output_numel}}, Conv: {max_interpolation_dim: 0}}}\noperator_mappings:\n  \
    mm: {kernel_type: MatMulV2}\n  mm3: {kernel_type: MatMulV3}\n  norm: {kernel_type: RmsNorm}\n  \
    emb: {kernel_type: GatherV2, tc_input_count: 2}\n  add: {kernel_type: Add, query_mode: elementwise}\n  \
    quant: {kernel_type: DynamicQuant, tc_input_count: 1, compute_subcategory: compute_scale}\n  conv: {kernel_type: Conv}\n";

#[test]
fn values_between_rows_are_interpolated() {
    let product = |m: u64, k: u64, n: u64, latency: &str| {
        format!("{m},{k};{n},{k} | DT_BF16;DT_BF16 | | {m},{n} | DT_BF16 | {latency}")
    };
    let products = [
        product(100, 512, 64, "10"),
        product(200, 512, 64, "20"),
        product(200, 512, 128, "30"),
        product(400, 512, 128, "60"),
        product(400, 512, 128, "62"),
        product(400, 512, 128, "90"),
        product(100, 1024, 256, "7 |"),
        product(300, 1024, 256, "| 9"),
        product(100, 2048, 256, "| 4"),
        product(300, 2048, 256, "| 8"),
    ];
    let products: Vec<&str> = products.iter().map(String::as_str).collect();
    let database = TestDatabase::new(&[
        ("MatMulV2", &products),
        ("MatMulV3", &products),
        (
            "RmsNorm",
            &[
                "100,5120;5120 | DT_BF16;DT_BF16 | | 100,5120 | DT_BF16 | 10",
                "500,5120;5120 | DT_BF16;DT_BF16 | | 500,5120 | DT_BF16 | 30",
                "900,5120;5120 | FLOAT;FLOAT | | 900,5120 | FLOAT | 90",
                "900,4096;4096 | DT_BF16;DT_BF16 | | 900,4096 | DT_BF16 | 90",
            ],
        ),
        (
            "GatherV2",
            &[
                "1000,64;10;1 | DT_BF16;INT64;INT64 | | 10,64 | DT_BF16 | 10",
                "9000,64;30;1 | DT_BF16;INT64;INT64 | | 30,64 | DT_BF16 | 30",
            ],
        ),
        (
            "Add",
            &[
                "100,64;100,64 | DT_BF16;DT_BF16 | | 100,64 | DT_BF16 | 10",
                "300,64;300,64 | DT_BF16;DT_BF16 | | 300,64 | DT_BF16 | 30",
                "300,64;64 | DT_BF16;DT_BF16 | | 300,64 | DT_BF16 | 25",
            ],
        ),
        (
            "DynamicQuant",
            &[
                "100,512 | DT_BF16 | | 100,512;100 | INT8;FLOAT | 10",
                "300,512 | DT_BF16 | | 300,512;300 | INT8;FLOAT | 30",
            ],
        ),
        ("Conv", &["100,8 | DT_BF16 | | 100,8 | DT_BF16 | 10", "300,8 | DT_BF16 | | 300,8 | DT_BF16 | 30"]),
    ]);
    check(
        &database.engine(INTERPOLATION_MAPPING),
        &[
            ("mm", "150,512;512,64", "BF16", "15 interpolated_1d_linear over M MatMulV2:2 MatMulV2:3"),
            ("mm", "1,150,512;512,64", "BF16", "15 interpolated_1d_linear over M MatMulV2:2 MatMulV2:3"),
            // The median of three equal rows is 62.
            (
                "mm",
                "300,512;512,128",
                "BF16",
                "46 interpolated_1d_linear over M MatMulV2:4 MatMulV2:5 MatMulV2:6 MatMulV2:7",
            ),
            ("mm", "200,512;512,96", "BF16", "25 interpolated_1d_linear over N MatMulV2:3 MatMulV2:4"),
            ("mm", "150,512;512,96", "BF16", "shape_mismatch"),
            ("mm", "150,768;768,64", "BF16", "shape_mismatch"),
            ("mm", "90,512;512,64", "BF16", "shape_mismatch"),
            ("mm", "150,512;512,64", "INT8", "shape_mismatch"),
            // Replay and production are not mixed.
            ("mm", "200,1024;1024,256", "BF16", "shape_mismatch"),
            ("mm", "200,2048;2048,256", "BF16", "6 interpolated_1d_linear over M MatMulV2:10 MatMulV2:11"),
            (
                "mm3",
                "220,512;512,80",
                "BF16",
                "25.7 interpolated_2d_griddata_linear over M, N MatMulV3:3 MatMulV3:4 MatMulV3:5 MatMulV3:6 MatMulV3:7",
            ),
            ("norm", "300,5120;5120", "BF16", "20 interpolated_1d_linear over axis 0 RmsNorm:2 RmsNorm:3"),
            ("norm", "700,5120;5120", "BF16", "shape_mismatch"),
            ("norm", "300,4096;4096", "BF16", "shape_mismatch"),
            (
                "emb",
                "5000,64;20",
                "BF16;INT64",
                "20 interpolated_1d_linear over output_numel GatherV2:2 GatherV2:3",
            ),
            ("add", "200,64;200,64", "BF16", "20 interpolated_1d_linear over io_numel Add:2 Add:3"),
            ("add", "200,64;64", "BF16", "elementwise_output_shape_mismatch"),
            ("quant", "200,512", "BF16", "20 interpolated_1d_linear over M DynamicQuant:2 DynamicQuant:3"),
            ("quant", "2,100,512", "BF16", "20 interpolated_1d_linear over M DynamicQuant:2 DynamicQuant:3"),
            ("conv", "200,8", "BF16", "shape_mismatch"),
            ("Conv", "200,8", "BF16", "shape_mismatch"),
        ],
    );
}

/// The work of attention depends on lengths, the work of communicating kernels on the number of ranks.
#[test]
fn rows_with_open_attributes_do_not_answer_by_shapes() {
    let database = TestDatabase::new(&[]);
    let write = |kernel: &str, attribute: &str, rows: [(u32, u32, u32); 3]| {
        let rows = rows.map(|(tokens, value, latency)| {
            format!("\"{tokens},8\",DT_BF16,ND,\"{tokens},8\",DT_BF16,ND,{latency},,,{value}\n")
        });
        let text = format!("{HEADER},{attribute}\n{}", rows.concat());
        fs::write(database.path().join(format!("{kernel}.csv")), text).expect("written");
    };
    write("Attention", "Runtime avg_seq_len", [(100, 4096, 10), (100, 8192, 20), (300, 4096, 30)]);
    write("Combine", "EP Size", [(100, 8, 10), (300, 8, 30), (500, 8, 50)]);
    write("Cache", "Runtime cache_mode", [(100, 1, 10), (100, 2, 20), (300, 1, 30)]);
    check(
        &database.engine(""),
        &[
            ("Attention", "100,8", "BF16", "open_attributes: Runtime avg_seq_len"),
            ("Attention", "200,8", "BF16", "shape_mismatch"),
            ("Combine", "100,8", "BF16", "open_attributes: EP Size"),
            ("Combine", "200,8", "BF16", "shape_mismatch"),
            ("Cache", "100,8", "BF16", "open_attributes: Runtime cache_mode"),
            ("Cache", "300,8", "BF16", "30 identity Cache:4"),
            ("Cache", "200,8", "BF16", "shape_mismatch"),
        ],
    );
}
