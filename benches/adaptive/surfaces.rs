//! Durations as functions of shapes, with the steps and cliffs of real kernels: complete waves of tiles over the cores,
//! penalties of sizes that are not aligned, buffers that a row exceeds, and a cache that tensors exceed.

use npubench::{
    answer::lookup::{OpQuery, QueryTensor},
    base::stats::SplitMix64,
    kernel::Dtype,
};

/// Tokens, and widths: N and K of a product, else the number of channels and 0.
pub(crate) type Shape = (u64, (u64, u64));

type InputsAndOutput = (Vec<Vec<u64>>, Vec<u64>);

/// Kernel with known durations.
pub(crate) struct Surface {
    pub(crate) name: &'static str,
    /// Name of the table.
    pub(crate) kernel: &'static str,
    /// Name that questions have: the kernel, or an operator of the mapping.
    pub(crate) op: &'static str,
    /// Numbers of tokens, or rows, of the density standard.
    pub(crate) tokens: Vec<u64>,
    /// Other sizes, each of which is measured with all numbers of tokens.
    pub(crate) widths: Vec<(u64, u64)>,
    /// True if lookups interpolate over the number of elements, and not over tokens at each width.
    pub(crate) is_by_elements: bool,
    /// Share of the ladder's cases with which its error must be reached.
    pub(crate) case_limit: f64,
    /// Inputs and the output at tokens and widths.
    pub(crate) shapes: fn(u64, (u64, u64)) -> InputsAndOutput,
    /// Duration in microseconds.
    pub(crate) duration: fn(u64, (u64, u64)) -> f64,
}

/// Cube cores, vector cores, and bytes of memory that are moved in a microsecond.
const CUBE_CORES: u64 = 24;
const VECTOR_CORES: u64 = 48;
const BYTES: f64 = 1.2e6;
/// Operations of a cube core in a microsecond.
const CUBE_OPERATIONS: f64 = 1.3e7;

/// M of the density standard.
const M: [u64; 37] = [
    1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 36, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192,
    256, 384, 512, 768, 1024, 2048, 4096, 8192, 16384, 32768,
];
/// Tokens of element-wise kernels and norms.
const TOKENS: [u64; 13] = [1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768];
/// N and K, and widths of layers.
const NK: [u64; 37] = [
    128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 1728, 1792, 2048, 2304, 2560, 3072,
    3456, 3584, 4096, 4608, 5120, 6144, 6912, 7168, 8192, 10240, 12288, 13824, 14336, 16384, 18432, 27648,
    28672, 55296,
];
/// N and K of the products of two models under 1 to 8 ranks.
const PRODUCTS: [(u64, u64); 24] = [
    (10240, 5120),
    (5120, 8192),
    (51200, 5120),
    (5120, 25600),
    (5120, 5120),
    (5120, 4096),
    (25600, 5120),
    (5120, 12800),
    (2560, 5120),
    (5120, 2048),
    (12800, 5120),
    (5120, 6400),
    (1280, 5120),
    (5120, 1024),
    (6400, 5120),
    (5120, 3200),
    (1536, 7168),
    (24576, 1536),
    (576, 7168),
    (7168, 16384),
    (4096, 7168),
    (7168, 2048),
    (36864, 7168),
    (7168, 18432),
];

pub(crate) fn all(small: bool) -> Vec<Surface> {
    let some = |items: &[(u64, u64)], count: usize| -> Vec<(u64, u64)> {
        let step = if small { items.len().div_ceil(count) } else { 1 };
        items.iter().copied().step_by(step).collect()
    };
    let widths: Vec<(u64, u64)> = NK.iter().map(|width| (*width, 0)).collect();
    let product = |name, duration| Surface {
        name,
        kernel: "MatMulV2",
        op: "MatMulV2",
        tokens: M.to_vec(),
        widths: some(&PRODUCTS, 6),
        is_by_elements: false,
        case_limit: 1.0 / 3.0,
        shapes: |m, (n, k)| (vec![vec![m, k], vec![n, k]], vec![m, n]),
        duration,
    };
    vec![
        product("product in waves of tiles", wave_product),
        product("product with alignment", aligned_product),
        Surface {
            name: "element-wise sum",
            kernel: "Add",
            op: "add",
            tokens: TOKENS.to_vec(),
            widths: some(&widths, 12),
            is_by_elements: true,
            case_limit: 1.0 / 3.0,
            shapes: |tokens, (width, _)| {
                (vec![vec![tokens, width], vec![tokens, width]], vec![tokens, width])
            },
            duration: elementwise_sum,
        },
        Surface {
            name: "norm",
            kernel: "RmsNorm",
            op: "RmsNorm",
            tokens: TOKENS.to_vec(),
            widths: some(&widths, 12),
            is_by_elements: false,
            // Its ladder has 13 numbers of tokens at each width, and no width answers for another one. A third of them
            // are both ends and two between, fewer than the steps below 500 tokens need.
            case_limit: 1.0,
            shapes: |tokens, (width, _)| (vec![vec![tokens, width], vec![width]], vec![tokens, width]),
            duration: norm,
        },
    ]
}

pub(crate) fn real(number: u64) -> f64 {
    number as f64
}

/// Tiles of 128 by 256 over the cores, each wave as long as one tile, but at least the time of the weight.
fn wave_product(m: u64, (n, k): (u64, u64)) -> f64 {
    let tiles = m.div_ceil(128) * n.div_ceil(256);
    let of_tile = 2.0 * 128.0 * 256.0 * real(k) / CUBE_OPERATIONS;
    let moved = 2.0 * (real(m * k) + real(n * k) + real(m * n)) / BYTES;
    4.0 + (real(tiles.div_ceil(CUBE_CORES)) * of_tile).max(moved)
}

/// The same, slower where M is no multiple of 16 or K none of 256, and with smaller tiles for few rows.
fn aligned_product(m: u64, (n, k): (u64, u64)) -> f64 {
    let rows = if m <= 64 { m.next_multiple_of(16) } else { 128 };
    let tiles = m.div_ceil(rows) * n.div_ceil(256);
    let of_tile = 2.0 * real(rows) * 256.0 * real(k) / CUBE_OPERATIONS;
    let penalty =
        if m.is_multiple_of(16) { 1.0 } else { 1.2 } * if k.is_multiple_of(256) { 1.0 } else { 1.35 };
    let moved = 2.0 * (real(m * k) + real(n * k) + real(m * n)) / BYTES;
    4.0 + (real(tiles.div_ceil(CUBE_CORES)) * of_tile * penalty).max(moved)
}

/// Blocks of 8,192 elements over the cores, each wave at the bandwidth, which is twice as high while all tensors are
/// in a cache of 192 MiB.
fn elementwise_sum(tokens: u64, (width, _): (u64, u64)) -> f64 {
    let waves = (tokens * width).div_ceil(8192).div_ceil(VECTOR_CORES);
    let rate = if 6 * tokens * width < 192 * 1024 * 1024 { 2.0 * BYTES } else { BYTES };
    1.8 + 6.0 * real(waves * 8192 * VECTOR_CORES) / rate
}

/// Rows divided among the cores. A row that exceeds half of the buffer of 192 KiB as FLOAT is read twice.
fn norm(tokens: u64, (width, _): (u64, u64)) -> f64 {
    let reads = if 4 * width > 96 * 1024 { 2.0 } else { 1.0 };
    let of_row = 0.4 + 2.0 * (reads + 1.0) * real(width) / (BYTES / real(VECTOR_CORES));
    2.5 + real(tokens.div_ceil(VECTOR_CORES)) * of_row
}

impl Surface {
    /// Returns the question of shapes.
    pub(crate) fn query(&self, tokens: u64, widths: (u64, u64)) -> OpQuery {
        let (inputs, output) = (self.shapes)(tokens, widths);
        let tensor = |dims: Vec<u64>| QueryTensor { dims, dtype: Some(Dtype::Bf16), format: None };
        OpQuery {
            op: self.op.to_owned(),
            inputs: inputs.into_iter().map(tensor).collect(),
            outputs: vec![tensor(output)],
            ..OpQuery::default()
        }
    }

    /// Returns the measured duration: a thousandth of noise beside the known one, always the same for a shape.
    pub(crate) fn measured(&self, tokens: u64, widths: (u64, u64)) -> f64 {
        let mut random = SplitMix64::new(tokens ^ widths.0 << 20 ^ widths.1 << 40);
        let sum: f64 = (0..12).map(|_| random.next_below(1_000_001) as f64 / 1e6).sum();
        (self.duration)(tokens, widths) * (1.0 + 0.001 * (sum - 6.0))
    }
}
