//! Arguments of the functions that the simulated NPU implements itself.

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use super::{
    arguments::{BoundArguments, bind},
    protocol::{PyArguments, PyError, PyValue, TensorHandle, runtime},
    session::ApiSession,
    tensors::DeviceKind,
};
use crate::kernel::catalogue::OperatorSchema;

/// Binds the arguments of a function with this signature.
pub(super) fn bind_signature(
    signature: &str,
    arguments: &PyArguments,
    numbers: &[&str],
) -> Result<BoundArguments, PyError> {
    let schema = parsed_signature(signature)?;
    bind(&schema, arguments, numbers)
}

thread_local! {
    /// Parsed signatures by their text: a script calls the same functions thousands of times.
    static SIGNATURES: RefCell<HashMap<String, Rc<OperatorSchema>>> = RefCell::default();
}

/// Parses a signature at its first use.
fn parsed_signature(text: &str) -> Result<Rc<OperatorSchema>, PyError> {
    SIGNATURES.with_borrow_mut(|signatures| {
        if let Some(parsed) = signatures.get(text) {
            return Ok(Rc::clone(parsed));
        }
        let parsed = OperatorSchema::parse(text).map_err(|error| runtime(format!("rehearsal: {error}")))?;
        Ok(Rc::clone(signatures.entry(text.to_owned()).or_insert_with(|| Rc::new(parsed))))
    })
}

/// The handle of a tensor argument.
pub(super) fn tensor_handle(bound: &BoundArguments, name: &str) -> Result<TensorHandle, PyError> {
    match bound.get(name) {
        Some(PyValue::Tensor(handle)) => Ok(*handle),
        _ => Err(runtime(format!("`{name}` must be a tensor"))),
    }
}

/// The value of an argument that is a whole number.
pub(super) fn int_argument(bound: &BoundArguments, name: &str) -> Option<i64> {
    if let Some(PyValue::Int(number)) = bound.get(name) { Some(*number) } else { None }
}

/// Checks that the host has a device.
pub(super) fn check_device(session: &ApiSession, device: u32) -> Result<(), PyError> {
    if device < session.devices {
        return Ok(());
    }
    Err(runtime(format!(
        "SetDevice: NPU function error: aclrtSetDevice({device}), error code is 107001. [Error]: Invalid device ID. \
         Check whether the device ID is valid. (the rehearsal host shows torch {} devices)",
        session.devices
    )))
}

/// Parses a `device` argument: `npu:3`, `npu`, `cpu`, or the CPU where none is given.
pub(super) fn device_argument(session: &ApiSession, given: Option<&PyValue>) -> Result<DeviceKind, PyError> {
    let text = match given {
        None | Some(PyValue::None) => return Ok(DeviceKind::Cpu),
        Some(PyValue::Text(text)) => text.as_str(),
        Some(other) => return Err(runtime(format!("rehearsal: a device is named by a text, not {other}"))),
    };
    let index = match text.split_once(':') {
        Some(("npu", index)) => index.parse().ok(),
        None if text == "npu" => Some(session.current),
        None if text == "cpu" => return Ok(DeviceKind::Cpu),
        _ => None,
    };
    let device = index.ok_or_else(|| {
        let why = if text == "meta" { "meta tensors need the vendor's own torch" } else { "no such device" };
        runtime(format!("rehearsal: `{text}`: {why}"))
    })?;
    check_device(session, device)?;
    Ok(DeviceKind::Npu(device))
}
