//! One program's time on the pretend NPU: takes calls, line by line, and keeps what they did.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{
    arguments::{BoundArguments, bind},
    builtin,
    compare_call::compare_call,
    fault_injector::{FaultInjector, ScriptOutcome},
    launch_log::{LaunchLog, LaunchedOperation, LoggedLaunch, TaskEngine},
    process_group::ProcessGroup,
    protocol::{ApiReply, ApiRequest, PyArguments, PyError, PyErrorClass, PyValue, answer, runtime},
    tensors::{DeviceKind, KnownValues, TensorHandle, TensorMemory, row_major_format},
};
use crate::{
    catalogue::{ArgumentValue, Catalogue, CatalogueEntry, DeclaredArgument, OutputDtype, group_size},
    config::{ComputeUnit, DeviceProfile, KernelWork},
    domain::{Dtype, KernelName, Nanos, Slot, Tensor, TensorFormat},
    rehearsal::{HostConfig, HostError, faults::ActiveFaults},
    render::{Manifest, ManifestCase, RecordedTensor},
};

/// State behind a connection to the socket. A clone of one that was not used is another process's, of the same gang.
#[derive(Clone, Debug)]
pub(in crate::rehearsal) struct ApiSession {
    pub(super) devices: u32,
    /// The device that `npu` without a number means.
    pub(super) current: u32,
    pub(super) memory: TensorMemory,
    pub(super) tape: LaunchLog,
    course: FaultInjector,
    catalogue: Arc<Catalogue>,
    /// What it shares with the other processes of its gang.
    group: Arc<Mutex<ProcessGroup>>,
    /// Calls so far that it made together with them.
    common_calls: u64,
}

impl ApiSession {
    /// A session that starts at that instant; the manifest says which kernel is played where one
    /// call has several.
    pub(in crate::rehearsal) fn new(
        config: &HostConfig,
        manifest: Option<&Manifest>,
        started: Nanos,
        faults: ActiveFaults,
    ) -> Result<Self, HostError> {
        let assets = config.assets()?;
        let profile = DeviceProfile::load(&assets, &config.device_profile)?;
        let memory = TensorMemory::new(profile.hbm_bytes());
        let tape = LaunchLog::new(config.clone(), profile, manifest, started);
        Ok(Self {
            devices: config.devices,
            current: 0,
            memory,
            tape,
            course: FaultInjector::new(faults),
            catalogue: Arc::new(Catalogue::load(&assets)?),
            group: Arc::default(),
            common_calls: 0,
        })
    }

    /// The line that answers a line, and how long it takes to come.
    pub(super) fn answer(&mut self, line: &str) -> (String, Duration) {
        let result = ApiRequest::parse(line).and_then(|mut request| {
            request.freed.iter().for_each(|handle| self.memory.free(*handle));
            let arguments = request.arguments();
            self.course.before(&request.call, &mut self.tape, &mut self.memory)?;
            let reply = self.call(&request.call, &arguments);
            self.course.after(&request.call, &mut self.tape, &mut self.memory);
            reply
        });
        (answer(&result, self.course.take_order()), self.course.pace.due())
    }

    pub(super) fn group(&self) -> MutexGuard<'_, ProcessGroup> {
        self.group.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Devices that the program used.
    pub(in crate::rehearsal) fn devices_used(&self) -> Vec<u32> {
        self.tape.devices()
    }

    /// What was executed, in order.
    pub(in crate::rehearsal) fn take_launches(&mut self) -> Vec<LoggedLaunch> {
        self.tape.take()
    }

    /// What faults have done.
    pub(in crate::rehearsal) fn outcome(&mut self) -> ScriptOutcome {
        self.course.end()
    }

    pub(super) fn call(&mut self, api: &str, arguments: &PyArguments) -> Result<ApiReply, PyError> {
        if let Some(result) = builtin::call(self, api, arguments) {
            return result;
        }
        let catalogue = Arc::clone(&self.catalogue);
        if catalogue.entries_calling(api).next().is_none() {
            let (module, name) = api.rsplit_once('.').unwrap_or(("torch", api));
            return Err(PyError::new(
                PyErrorClass::Attribute,
                format!(
                    "module '{module}' has no attribute '{name}' (the rehearsal host has the functions of \
                     op_replay/ only)"
                ),
            ));
        }
        let Some(case) = self.tape.current_case() else {
            return Err(runtime(format!(
                "rehearsal: {api} is called outside the sentinels of a case, so the manifest does not describe it"
            )));
        };
        let kernel = KernelName::new(&case.kernel).map_err(|error| runtime(error.to_string()))?;
        let entry = catalogue.entry(&kernel).filter(|entry| entry.api == api);
        let entry = entry.ok_or_else(|| {
            let launcher = catalogue.entry(&kernel).map_or("no function", |entry| entry.api.as_str());
            runtime(format!(
                "rehearsal: {api} is called, the kernel {kernel} of the case is launched by {launcher}"
            ))
        })?;
        let numbers =
            case.arguments.iter().filter(|argument| matches!(argument.value, ArgumentValue::Value(_)));
        let numbers: Vec<&str> = numbers.map(|argument| argument.name.as_str()).collect();
        let bound = bind(&entry.schema, arguments, &numbers)?;
        let device = compare_call(&case, api, &bound, &self.memory)?;
        self.execute(entry, &case, device, &bound)
    }

    /// Launches a call that equals the manifest's case, and returns its results to Python.
    fn execute(
        &mut self,
        entry: &CatalogueEntry,
        case: &ManifestCase,
        device: u32,
        bound: &BoundArguments,
    ) -> Result<ApiReply, PyError> {
        let kernel = case.kernel.as_str();
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
        let is_cast = |place: usize| {
            form.output_dtypes.get(place) == Some(&OutputDtype::Fixed(Dtype::Int32))
                && entry.also_launches.iter().any(|kernel| kernel == CAST)
        };
        // Memory is taken before the launch, so that a call which finds none leaves no record.
        let mut results = Vec::new();
        for (index, dims) in case.returns.iter().enumerate() {
            // Where Python sees the results in another order, their shapes tell which is which.
            let same = |index: &usize| outputs.get(*index).is_some_and(|output| output.dims == *dims);
            let from = Some(index).filter(same).or_else(|| (0..outputs.len()).find(same)).unwrap_or(index);
            let Some(output) = outputs.get(from) else {
                // What Python sees beyond what the kernel writes.
                results.push(self.allocate(&Tensor::new(dims.clone(), Dtype::Float), device)?);
                continue;
            };
            if let Some((_, handle)) = destinations.iter().find(|(place, _)| *place == index) {
                results.push(ApiReply::Same(*handle));
                continue;
            }
            let dtype = if is_cast(from) { Dtype::Int64 } else { output.dtype.clone() };
            match self.allocate(&Tensor { dims: dims.clone(), dtype, ..output.clone() }, device) {
                Ok(result) => results.push(result),
                Err(raised) => {
                    self.release(&results);
                    return Err(raised);
                }
            }
        }
        let task = if entry.unit == ComputeUnit::Cube { TaskEngine::Cube } else { TaskEngine::Vector };
        let api = api_word(entry.schema.short_name());
        let dtype = inputs.iter().flatten().next().map_or(Dtype::Float, |tensor| tensor.dtype.clone());
        let (flops, bytes) = (case.record.flops, case.record.bytes);
        self.tape.launch(
            device,
            LaunchedOperation {
                name: format!("aclnn{api}_{kernel}_{kernel}"),
                kernel: kernel.to_owned(),
                task,
                inputs,
                outputs: outputs.clone(),
                work: KernelWork { flops, bytes, unit: entry.unit, dtype },
            },
        );
        for beside in &entry.also_launches {
            let cast = (0..outputs.len()).find(|place| is_cast(*place)).unwrap_or(0);
            if let Some(from) = outputs.get(cast).cloned() {
                let to = Tensor {
                    dtype: if beside == CAST { Dtype::Int64 } else { from.dtype.clone() },
                    ..from.clone()
                };
                self.tape.launch(
                    device,
                    plain_operation(&format!("aclnn{api}_{beside}_{beside}"), beside, vec![from], to),
                );
            }
        }
        for (_, handle) in destinations {
            self.memory.write(handle, KnownValues::Unknown);
        }
        self.release(results.get(entry.schema.returns..).unwrap_or_default());
        results.truncate(entry.schema.returns);
        Ok(match results.as_slice() {
            [single] if entry.schema.returns == 1 && !entry.schema.returns_list => single.clone(),
            _ => ApiReply::Tuple(results),
        })
    }

    fn allocate(&mut self, tensor: &Tensor, device: u32) -> Result<ApiReply, PyError> {
        let handle = self.memory.allocate(tensor, DeviceKind::Npu(device), KnownValues::Unknown)?;
        Ok(ApiReply::Tensor(self.memory.describe(handle)?))
    }

    /// Frees results that Python will not see.
    fn release(&mut self, results: &[ApiReply]) {
        for result in results {
            if let ApiReply::Tensor(tensor) = result {
                self.memory.free(tensor.handle);
            }
        }
    }
}

const CAST: &str = "Cast";

/// An element-wise task of the vector cores.
pub(super) fn plain_operation(
    name: &str,
    kernel: &str,
    inputs: Vec<Tensor>,
    output: Tensor,
) -> LaunchedOperation {
    let bytes = inputs.iter().chain([&output]).fold(0_u64, |sum, tensor| sum.saturating_add(tensor.bytes()));
    let work = KernelWork {
        flops: output.elements() as f64,
        bytes: bytes as f64,
        unit: ComputeUnit::Vector,
        dtype: output.dtype.clone(),
    };
    let outputs = vec![output];
    let inputs = inputs.into_iter().map(Some).collect();
    LaunchedOperation {
        name: name.to_owned(),
        kernel: kernel.to_owned(),
        task: TaskEngine::Vector,
        inputs,
        outputs,
        work,
    }
}

/// The word that aclnn has for a function: `npu_rms_norm` is `RmsNorm`, `copy_` is `InplaceCopy`.
fn api_word(function: &str) -> String {
    let bare = function.strip_prefix("npu_").unwrap_or(function);
    let (bare, inplace) = bare.strip_suffix('_').map_or((bare, ""), |bare| (bare, "Inplace"));
    let words = bare.split('_').map(|word| {
        let mut letters = word.chars();
        letters
            .next()
            .map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + letters.as_str())
    });
    format!("{inplace}{}", words.collect::<String>())
}
