//! Dispatches a call: a function of the simulated NPU's own, or the launch of the manifest's case.

use super::{
    arguments::{BoundArguments, bind},
    builtin,
    compare_call::compare_call,
    free_calls::{self, CORE_EXCEPTION, EVENT_RECORD},
    kernel_choice::kernel_of_call,
    launch_log::{LaunchedOperation, TaskEngine, plain_operation},
    protocol::{ApiReply, PyArguments, PyError, PyErrorClass, PyValue, TensorHandle, runtime},
    session::ApiSession,
    tensors::{DeviceKind, KnownValues, TensorMemory, row_major_format},
};
use crate::{
    kernel::{
        Dtype, KernelName, Slot, Tensor, TensorFormat,
        catalogue::{
            ArgumentValue, CatalogueEntry, DeclaredArgument, EntryForm, LaunchOperator, OutputDtype,
            group_size,
        },
        device::{ComputeUnit, KernelWork},
        render::{ManifestCase, RecordedTensor},
    },
    rehearsal::fault_plan::HostDefect,
};

/// Arguments by kernel whose rows must ascend; otherwise a core raises an exception, which the next `synchronize` returns.
const ASCENDING: [(&str, &str); 1] = [("SparseFlashAttention", "sparse_indices")];

impl ApiSession {
    pub(super) fn call(&mut self, api: &str, arguments: &PyArguments) -> Result<ApiReply, PyError> {
        let is_free = api == EVENT_RECORD || !self.log.has_cases() || self.is_control_call(api, arguments);
        if is_free && let Some(result) = free_calls::call(self, api, arguments) {
            return result;
        }
        if let Some(result) = builtin::call(self, api, arguments) {
            return result;
        }
        let catalogue = self.catalogue()?;
        let is_launcher = |entry: &CatalogueEntry| entry.operator_of_api(api).is_some();
        // The manifest's entries first, because the search of the whole catalogue parses every entry.
        if !self.manifest_entries(&catalogue).any(is_launcher) && !catalogue.entries().any(is_launcher) {
            let (module, name) = api.rsplit_once('.').unwrap_or(("torch", api));
            let problem = format!(
                "module '{module}' has no attribute '{name}' (the rehearsal host has the functions of op_replay/ only)"
            );
            return Err(PyError::new(PyErrorClass::AttributeError, problem));
        }
        let Some(case) = self.log.current_case() else {
            return Err(runtime(format!(
                "rehearsal: {api} is called outside the sentinels of a case, so the manifest does not describe it"
            )));
        };
        let kernel = KernelName::new(&case.kernel).map_err(|error| runtime(error.to_string()))?;
        if api != case.api {
            let launcher = &case.api;
            return Err(runtime(format!(
                "rehearsal: {api} is called, the kernel {kernel} of the case is launched by {launcher}"
            )));
        }
        let found = catalogue.entry(&kernel).and_then(|entry| Some((entry, entry.operator_of_api(api)?)));
        let no_operator = || runtime(format!("rehearsal: {api} does not launch the kernel {kernel}"));
        let (entry, operator) = found.ok_or_else(no_operator)?;
        let schema = self.installed_schema(operator);
        let numbers =
            case.arguments.iter().filter(|argument| matches!(argument.value, ArgumentValue::Value(_)));
        let numbers: Vec<&str> = numbers.map(|argument| argument.name.as_str()).collect();
        let bound = bind(schema, arguments, &numbers)?;
        let device = compare_call(&case, schema, &bound, &self.memory)?;
        self.execute((entry, operator), &case, device, &bound)
    }

    /// Returns true for a call that the manifest has as a control kernel.
    fn is_control_call(&self, api: &str, arguments: &PyArguments) -> bool {
        let handles = arguments.positional.iter().flat_map(TensorMemory::handles);
        let tensors: Option<Vec<Vec<u64>>> =
            handles.map(|handle| Some(self.memory.operand(handle).ok()?.dims)).collect();
        tensors.is_some_and(|tensors| self.log.is_control_call(api, &tensors))
    }

    /// Launches a call that equals the manifest's case, and returns its results to Python.
    fn execute(
        &mut self,
        (entry, operator): (&CatalogueEntry, &LaunchOperator),
        case: &ManifestCase,
        device: u32,
        bound: &BoundArguments,
    ) -> Result<ApiReply, PyError> {
        let kernel = case.kernel.as_str();
        for (_, argument) in ASCENDING.iter().filter(|(owner, _)| *owner == kernel) {
            if let Some(PyValue::Tensor(handle)) = bound.get(*argument)
                && !matches!(self.memory.operand(*handle)?.contents, KnownValues::Ascending(..))
            {
                self.fail_at_synchronize(CORE_EXCEPTION);
            }
        }
        // The row's name of a row-major format differs from the one that torch_npu takes by rank.
        let inputs = case.record.inputs.iter().map(|slot| slot.as_ref().and_then(RecordedTensor::tensor));
        let inputs: Vec<Slot> = inputs
            .map(|slot| {
                slot.map(|tensor| match tensor.format {
                    TensorFormat::Private(_) => tensor,
                    TensorFormat::Base(_) => Tensor { format: row_major_format(tensor.dims.len()), ..tensor },
                })
            })
            .collect();
        let outputs: Vec<Tensor> = case.record.outputs.iter().filter_map(RecordedTensor::tensor).collect();
        let form = entry.forms.iter().find(|form| form.rule.name == case.form);
        let form = form.ok_or_else(|| runtime(format!("rehearsal: {kernel} has no form `{}`", case.form)))?;
        let destinations =
            form.arguments.iter().filter_map(|(name, argument)| match (argument, bound.get(name)) {
                (DeclaredArgument::Destination(output), Some(PyValue::Tensor(handle))) => {
                    Some((*output, *handle))
                }
                _ => None,
            });
        let destinations: Vec<(usize, TensorHandle)> = destinations.collect();
        if group_size(&case.arguments).is_some() {
            self.common_calls += 1;
            self.group().check(self.common_calls, kernel, &inputs)?;
        }
        let is_cast = |output: usize| {
            form.output_dtypes.get(output) == Some(&OutputDtype::Fixed(Dtype::Int32))
                && entry.also_launches.iter().any(|kernel| kernel == CAST)
        };
        // Memory is taken before the launch, so that a call which finds none leaves no record.
        let mut results = Vec::new();
        for (index, dims) in case.returns.iter().enumerate() {
            // Results that are returned in another order are identified by their shapes.
            let same = |index: &usize| outputs.get(*index).is_some_and(|output| output.dims == *dims);
            let from = Some(index).filter(same).or_else(|| (0..outputs.len()).find(same)).unwrap_or(index);
            let Some(output) = outputs.get(from) else {
                // A result that the kernel does not write.
                results.push(self.allocate(&Tensor::new(dims.clone(), Dtype::Float), device)?);
                continue;
            };
            if let Some((_, handle)) = destinations.iter().find(|(output, _)| *output == index) {
                results.push(ApiReply::Same { same: *handle });
                continue;
            }
            let dtype = match output.dtype.as_str() {
                _ if is_cast(from) => Dtype::Int64,
                // Eight are packed into an element.
                Dtype::INT4 => Dtype::Int32,
                _ => output.dtype.clone(),
            };
            match self.allocate(&Tensor { dims: dims.clone(), dtype, ..output.clone() }, device) {
                Ok(result) => results.push(result),
                Err(raised) => {
                    self.release(&results);
                    return Err(raised);
                }
            }
        }
        let task = if entry.unit == ComputeUnit::Cube { TaskEngine::Cube } else { TaskEngine::Vector };
        let api = aclnn_name(operator.schema.short_name());
        let dtype = inputs.iter().flatten().next().map_or(Dtype::Float, |tensor| tensor.dtype.clone());
        let (flops, bytes) = (case.record.flops, case.record.bytes);
        let is_renamed = kernel == RENAMED.0 && self.log.has_defect(HostDefect::OtherKernelName);
        let ran = kernel_of_call(entry, form, case, self.log.cube_cores());
        let recorded = if is_renamed { RENAMED.1 } else { ran };
        self.log.case_kernel = Some(recorded.to_owned());
        let operation = LaunchedOperation {
            name: format!("aclnn{api}_{recorded}_{recorded}"),
            kernel: recorded.to_owned(),
            task,
            inputs: recorded_inputs(form, inputs),
            outputs: outputs.clone(),
            work: KernelWork { flops, bytes, unit: entry.unit, dtype },
        };
        self.log.launch(device, operation);
        for beside in &entry.also_launches {
            let cast = (0..outputs.len()).find(|output| is_cast(*output)).unwrap_or(0);
            if let Some(from) = outputs.get(cast).cloned() {
                let dtype = if beside == CAST { Dtype::Int64 } else { from.dtype.clone() };
                let (name, to) = (format!("aclnn{api}_{beside}_{beside}"), Tensor { dtype, ..from.clone() });
                self.log.launch(device, plain_operation(&name, beside, vec![from], to));
            }
        }
        for (_, handle) in destinations {
            self.memory.write(handle, KnownValues::Unknown);
        }
        self.release(results.get(operator.schema.returns..).unwrap_or_default());
        results.truncate(operator.schema.returns);
        Ok(match results.as_slice() {
            [single] if operator.schema.returns == 1 && !operator.schema.returns_list => single.clone(),
            _ => ApiReply::Tuple(results),
        })
    }

    fn allocate(&mut self, tensor: &Tensor, device: u32) -> Result<ApiReply, PyError> {
        let handle = self.memory.allocate(tensor, DeviceKind::Npu(device), KnownValues::Unknown)?;
        self.memory.tensor_reply(handle)
    }

    /// Frees results that are not returned to Python.
    fn release(&mut self, results: &[ApiReply]) {
        for result in results {
            if let ApiReply::Tensor { tensor } = result {
                self.memory.free(tensor.handle);
            }
        }
    }
}

const CAST: &str = "Cast";
/// Kernel that a host with [`HostDefect::OtherKernelName`] records under another name.
const RENAMED: (&str, &str) = ("LayerNormV3", "LayerNormV4");

/// The function's name in aclnn: `npu_rms_norm` is `RmsNorm`, `copy_` is `InplaceCopy`.
fn aclnn_name(function: &str) -> String {
    let bare = function.strip_prefix("npu_").unwrap_or(function);
    let (bare, inplace) = bare.strip_suffix('_').map_or((bare, ""), |bare| (bare, "Inplace"));
    let parts = bare.split('_').map(|word| {
        let mut letters = word.chars();
        letters
            .next()
            .map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + letters.as_str())
    });
    format!("{inplace}{}", parts.collect::<String>())
}

/// Returns the inputs as the profiler shows them: bits that the call has as INT64 are UINT64.
fn recorded_inputs(form: &EntryForm, mut inputs: Vec<Slot>) -> Vec<Slot> {
    let bits = Dtype::parse(Dtype::UINT64);
    for (index, slot) in form.tensors() {
        if let (Some(Some(tensor)), Some(bits)) = (inputs.get_mut(index), &bits)
            && tensor.dtype == Dtype::Int64
            && slot.dtypes.contains(bits)
        {
            tensor.dtype = bits.clone();
        }
    }
    inputs
}
