//! Calls of scripts without cases, as those of a selftest: products and selections.

use super::{
    api_args::{bind_signature, int_argument, tensor_handle},
    launch_log::{LaunchedOperation, TaskEngine},
    protocol::{ApiReply, PyArguments, PyError, runtime},
    session::ApiSession,
    tensors::{DeviceKind, KnownValues},
};
use crate::{
    config::{ComputeUnit, KernelWork},
    domain::Tensor,
    fault_plan::HostDefect,
};

/// Error of the runtime for an exception of a core.
const CORE_EXCEPTION: u32 = 507_015;

/// Answers a call of this module; `None` for other functions.
pub(super) fn call(
    session: &mut ApiSession,
    api: &str,
    arguments: &PyArguments,
) -> Option<Result<ApiReply, PyError>> {
    Some(match api {
        "torch.mm" => product(session, arguments),
        "torch.index_select" => select(session, arguments),
        _ => return None,
    })
}

fn product(session: &mut ApiSession, arguments: &PyArguments) -> Result<ApiReply, PyError> {
    let bound = bind_signature("mm(Tensor self, Tensor mat2) -> Tensor", arguments, &[])?;
    let handles = [tensor_handle(&bound, "self")?, tensor_handle(&bound, "mat2")?];
    let [left, right] = [session.memory.operand(handles[0])?, session.memory.operand(handles[1])?];
    let ([m, k], [inner, n]) = (left.dims.as_slice(), right.dims.as_slice()) else {
        return Err(runtime("self must be a matrix"));
    };
    if k != inner {
        return Err(runtime(format!("mat1 and mat2 shapes cannot be multiplied ({m}x{k} and {inner}x{n})")));
    }
    let DeviceKind::Npu(device) = left.location else {
        return Err(runtime("rehearsal: the tensor is on the host"));
    };
    let output = Tensor::new([*m, *n], left.tensor.dtype.clone());
    let flops = 2.0 * (*m as f64) * (*k as f64) * (*n as f64);
    let bytes = left.tensor.bytes() + right.tensor.bytes() + output.bytes();
    let work =
        KernelWork { flops, bytes: bytes as f64, unit: ComputeUnit::Cube, dtype: left.tensor.dtype.clone() };
    let result = session.memory.allocate(&output, left.location, KnownValues::Unknown)?;
    let operation = LaunchedOperation {
        name: "aclnnMm_MatMulCommon_MatMulV2".to_owned(),
        kernel: "MatMulV2".to_owned(),
        task: TaskEngine::Cube,
        inputs: vec![Some(left.tensor), Some(right.tensor)],
        outputs: vec![output],
        work,
    };
    session.log.launch(device, operation);
    session.memory.tensor_reply(result)
}

/// `torch.index_select`: an index out of range is an exception of a core, which the next `synchronize` raises.
fn select(session: &mut ApiSession, arguments: &PyArguments) -> Result<ApiReply, PyError> {
    let bound = bind_signature("index_select(Tensor self, int dim, Tensor index) -> Tensor", arguments, &[])?;
    let table = session.memory.operand(tensor_handle(&bound, "self")?)?;
    let index = session.memory.operand(tensor_handle(&bound, "index")?)?;
    let rows = table.dims.first().copied().unwrap_or_default();
    let is_inside = match index.contents {
        KnownValues::Between(low, high) | KnownValues::Different(low, high) => {
            low >= 0 && high.unsigned_abs() < rows
        }
        KnownValues::Uninitialised | KnownValues::Unknown => false,
    };
    if int_argument(&bound, "dim") != Some(0) || !is_inside {
        if session.log.has_defect(HostDefect::UnknownErrorText) {
            return Err(runtime("vendor failure 0x7"));
        }
        session.fail_at_synchronize(CORE_EXCEPTION);
    }
    let mut dims = table.dims.clone();
    if let Some(first) = dims.first_mut() {
        *first = index.dims.first().copied().unwrap_or_default();
    }
    let output = Tensor::new(dims, table.tensor.dtype.clone());
    let result = session.memory.allocate(&output, table.location, KnownValues::Unknown)?;
    session.memory.tensor_reply(result)
}
