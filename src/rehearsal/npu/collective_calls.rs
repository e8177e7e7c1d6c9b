//! Collective operations of `torch.distributed`.

use super::{
    api_args::{bind_signature, tensor_handle},
    launch_log::{LaunchedOperation, TaskEngine},
    protocol::{ApiReply, PyArguments, PyError, runtime},
    session::ApiSession,
    tensors::{DeviceKind, KnownValues},
};
use crate::config::{ComputeUnit, KernelWork};

/// Type of the records of sums over the ranks.
const ALL_REDUCE: &str = "hcom_allReduce_";

/// `all_reduce(tensor)`: every rank sums a tensor of the same shape and type. The profiler shows no tensors of it.
pub(super) fn all_reduce(session: &mut ApiSession, arguments: &PyArguments) -> Result<ApiReply, PyError> {
    let bound = bind_signature("all_reduce(Tensor tensor) -> ()", arguments, &[])?;
    let handle = tensor_handle(&bound, "tensor")?;
    let operand = session.memory.operand(handle)?;
    let DeviceKind::Npu(device) = operand.location else {
        return Err(runtime("No backend type associated with device type cpu"));
    };
    session.common_calls += 1;
    let number = session.common_calls;
    session.group().check(number, ALL_REDUCE, &[Some(operand.tensor.clone())])?;
    session.memory.write(handle, KnownValues::Unknown);
    let bytes = 2.0 * operand.tensor.bytes() as f64;
    let operation = LaunchedOperation {
        // Hash of the group, index of the operation, and a number.
        name: format!("{ALL_REDUCE}_534_{number}_1"),
        kernel: ALL_REDUCE.to_owned(),
        task: TaskEngine::Communication,
        inputs: Vec::new(),
        outputs: Vec::new(),
        work: KernelWork { flops: 0.0, bytes, unit: ComputeUnit::Mte, dtype: operand.tensor.dtype },
    };
    session.log.launch(device, operation);
    Ok(ApiReply::Nothing)
}
