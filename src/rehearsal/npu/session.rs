//! One program's time on the pretend NPU: takes calls, line by line, and keeps what they did.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{
    builtin,
    fault_injector::{FaultInjector, ScriptOutcome},
    launch_log::{LaunchLog, LaunchedOperation, LoggedLaunch, TaskEngine},
    process_group::ProcessGroup,
    protocol::{ApiReply, ApiRequest, PyArguments, PyError, PyErrorClass, answer, runtime},
    tensors::{DeviceKind, KnownValues, TensorMemory},
    validate::{ValidCall, judge},
};
use crate::{
    catalogue::{Catalogue, CatalogueEntry, OutputDtype},
    config::{ComputeUnit, DeviceProfile, KernelWork},
    domain::{Dtype, Nanos, Slot, Tensor},
    rehearsal::{HostConfig, HostError, faults::ActiveFaults},
    render::Manifest,
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
        let mut entries: Vec<&CatalogueEntry> = catalogue.callers(api).collect();
        if entries.is_empty() {
            let (module, name) = api.rsplit_once('.').unwrap_or(("torch", api));
            return Err(PyError::new(
                PyErrorClass::Attribute,
                format!(
                    "module '{module}' has no attribute '{name}' (the rehearsal host knows the calls of op_replay/ only)"
                ),
            ));
        }
        // Which of several kernels CANN picks is not modelled: the case's own goes first.
        let case = self.tape.kernel_of_case().map(|(kernel, form)| (kernel.to_owned(), form.to_owned()));
        let (wanted, form) = case.unzip();
        let as_wanted = |entry: &CatalogueEntry| {
            wanted.as_deref().filter(|kernel| entry.names().any(|name| name == *kernel))
        };
        entries.sort_by_key(|entry| as_wanted(entry).is_none());
        let mut refusal = None;
        for entry in entries {
            match judge(entry, arguments, &self.memory, form.as_deref()) {
                Ok(accepted) => {
                    let kernel = as_wanted(entry).unwrap_or(entry.kernel.as_str());
                    return self.execute(entry, kernel, accepted);
                }
                Err(raised) => refusal = refusal.or(Some(raised)),
            }
        }
        Err(refusal.unwrap_or_else(|| runtime(format!("{api}: no entry takes this call"))))
    }

    /// Launches an accepted call and gives Python its results.
    fn execute(
        &mut self,
        entry: &CatalogueEntry,
        kernel: &str,
        accepted: ValidCall,
    ) -> Result<ApiReply, PyError> {
        let ValidCall { device, inputs, outputs, output_dtypes, returns, destinations, work, ranks } =
            accepted;
        if let Some(ranks) = ranks {
            self.check_group(ranks, kernel, &inputs)?;
        }
        // Memory is taken before the launch, so that a call which finds none leaves no record.
        let mut results = Vec::new();
        for (index, dims) in returns.iter().enumerate() {
            // Where Python sees the results in another order, their shapes tell which is which.
            let same = |index: &usize| outputs.get(*index).is_some_and(|output| output.dims == *dims);
            let from = Some(index).filter(same).or_else(|| (0..outputs.len()).find(same)).unwrap_or(index);
            let (Some(output), Some(declared)) = (outputs.get(from), output_dtypes.get(from)) else {
                // What Python sees beyond what the kernel writes.
                results.push(self.allocate(&Tensor::new(dims.clone(), Dtype::Float), device)?);
                continue;
            };
            if let Some((_, handle)) = destinations.iter().find(|(place, _)| *place == index) {
                results.push(ApiReply::Same(*handle));
                continue;
            }
            let dtype = if is_cast(entry, declared) { Dtype::Int64 } else { output.dtype.clone() };
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
        let name = format!("aclnn{api}_{kernel}_{kernel}");
        self.tape.launch(
            device,
            LaunchedOperation {
                name,
                kernel: kernel.to_owned(),
                task,
                inputs,
                outputs: outputs.clone(),
                work,
            },
        );
        for beside in &entry.also_launches {
            let cast = outputs.iter().zip(&output_dtypes).find(|(_, declared)| is_cast(entry, declared));
            let from = cast.map(|(output, _)| output).or(outputs.first());
            if let Some(from) = from.cloned() {
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

    /// The processes of a group make the same calls, and are as many as the case says.
    fn check_group(&mut self, ranks: i64, kernel: &str, inputs: &[Slot]) -> Result<(), PyError> {
        if let Some(wanted) = self.tape.group_of_case().filter(|wanted| *wanted != ranks) {
            return Err(runtime(format!("rehearsal: a group of {ranks} ranks, the case is of {wanted}")));
        }
        self.common_calls += 1;
        self.group().check(self.common_calls, kernel, inputs)
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

/// Whether Python sees 64-bit positions where the kernel writes 32-bit ones.
fn is_cast(entry: &CatalogueEntry, declared: &OutputDtype) -> bool {
    *declared == OutputDtype::Fixed(Dtype::Int32) && entry.also_launches.iter().any(|kernel| kernel == CAST)
}

/// An element-wise task of the vector cores.
pub(super) fn plain_operation(
    name: &str,
    kernel: &str,
    inputs: Vec<Tensor>,
    output: Tensor,
) -> LaunchedOperation {
    let bytes = inputs.iter().chain([&output]).fold(0_u64, |sum, tensor| sum.saturating_add(tensor.bytes()));
    let work = KernelWork {
        flops: output.element_count() as f64,
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
