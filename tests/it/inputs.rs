//! Input tensors: their memory while they are built, and their values.

use std::process::Command;

use crate::prelude::*;
use crate::vendor::render;

/// Tensors of which random numbers in single precision would not fit into the 64 GiB of a die: 16 GiB of INT8 with its
/// copy need 80 GiB while the numbers are converted, 22 GiB of BF16 need 66.
#[test]
fn tensors_are_built_without_a_copy_in_single_precision() {
    let context = Context::new();
    let moved = |shape: &str, dtype: &str| {
        format!("TensorMove,30000,\"\"\"{shape}\"\"\",{dtype},ND,\"\"\"{shape}\"\"\",{dtype},ND")
    };
    let records = [moved("16,1073741824", "INT8"), moved("11,1073741824", "DT_BF16")];
    context.ingest_records("db", &records.each_ref().map(String::as_str), &[]);
    rehearse(&context, "db", "--devices 0").ended(0);
}

/// Indices are made with whole numbers: the rehearsed device rounds uniform numbers up to the bound itself, as single
/// precision may.
#[test]
fn indices_are_below_their_bound() {
    let context = Context::new();
    let record =
        "GatherV2,5,\"\"\"151936,64;4096;1\"\"\",DT_BF16;INT64;INT64,ND;ND;ND,\"\"\"4096,64\"\"\",DT_BF16,ND";
    context.ingest_records("db", &[record], &[]);
    rehearse(&context, "db", "--devices 0").ended(0);
}

/// The functions of the script, on the host's torch, with chunks of 1000 elements.
const BUILD: &str = r#"
import torch, replay

replay.CHUNK = 1000
place = replay.Device.__new__(replay.Device)
place.name, place.skew, place.rank = "cpu", 0.0, 0
place.generator, place.host_generator = torch.Generator(), torch.Generator()

def built(seed=7, **spec):
    place.seed(seed)
    return place.row_major(spec)

for shape in ([], [1], [1000], [1001], [7, 1001], [3, 5, 977], [0, 4]):
    for dtype in ("int8", "uint8", "bool", "bfloat16", "float32", "int64"):
        spec = {"shape": shape, "dtype": dtype, "fill": "activation"}
        one = built(**spec)
        assert list(one.shape) == shape and one.dtype == getattr(torch, dtype) and one.is_contiguous(), spec
        assert torch.equal(one, built(**spec)), spec
        if one.numel() > 100:
            assert not torch.equal(one, built(seed=8, **spec)), spec
            assert one.flatten()[-100:].to(torch.float32).std() > 0.4, spec
weight = built(shape=[50, 400], dtype="float32", fill="weight")
assert 0.045 < weight.std() < 0.055, weight.std()
for below in (1, 3, 1000, (1 << 24) + 3, (1 << 31) - 1):
    numbers = built(shape=[20, 977], dtype="int64", fill="index", below=below)
    assert numbers.min() >= 0 and numbers.max() < below, below
    assert below < 1000 or numbers.unique().numel() > 0.5 * min(below, numbers.numel()), below
    assert below < 2 or (numbers % 2 == 1).any(), below
print("built")
"#;

#[test]
fn chunks_are_values_of_the_stated_type_and_range() {
    let Some(python) = vendor_python() else { return };
    let context = Context::new();
    context.small_database("db");
    render(&context, "Add");
    let output = Command::new(python)
        .args(["-c", BUILD])
        .current_dir(context.path("Add"))
        .env("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
        .output()
        .expect("the vendor's Python runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    // torch_npu may print warnings first.
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().last(), Some("built"), "{errors}");
}
