//! A connection of one process to the simulated NPU: its state, and the answer to each line.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, MutexGuard, OnceLock},
    time::Duration,
};

use super::{
    fault_injector::{FaultInjector, ScriptOutcome},
    group_link::{GroupLink, serve_group},
    launch_log::{LaunchLog, LoggedLaunch},
    process_group::{CollectiveCall, ProcessGroup, RankArrival, SharedGroup},
    protocol::{ApiReply, ApiRequest, PyError, answer, runtime},
    tensors::TensorMemory,
    torch_npu_environment::TorchNpuEnvironment,
};
use crate::{
    base::{assets::AssetFiles, yaml::YamlError},
    kernel::{
        CaseId, KernelName, Nanos,
        catalogue::{Catalogue, CatalogueEntry, LaunchOperator, OperatorSchema},
        device::DeviceProfile,
        render::Manifest,
    },
    rehearsal::{HostConfig, HostError, device_activity::DeviceActivity, faults::ActiveFaults},
};

/// Message of a program that ends regularly.
const FINALISE: &str = "finalise";

/// State of a connection to the socket. The session of each process is a clone of an unused one; the clones share
/// the group of the gang.
#[derive(Clone, Debug)]
pub(in crate::rehearsal) struct ApiSession {
    pub(super) devices: u32,
    /// The device of `npu` without a number.
    pub(super) current: u32,
    pub(super) memory: TensorMemory,
    pub(super) log: LaunchLog,
    injector: FaultInjector,
    pub(super) environment: TorchNpuEnvironment,
    assets: AssetFiles,
    /// Kernels of the manifest.
    kernels: BTreeSet<KernelName>,
    /// The catalogue, loaded at the first call of one of its functions.
    catalogue: Arc<OnceLock<Arc<Catalogue>>>,
    /// Schemas of the installation that differ from those of the catalogue, by name.
    other_schemas: BTreeMap<String, OperatorSchema>,
    /// State shared by the processes of a gang.
    group: Arc<SharedGroup>,
    /// Connection to the group on the first host of a gang; `None` on that host.
    link: Option<Arc<GroupLink>>,
    /// Devices of the processes of this host, by rank; empty without torchrun.
    gang: Vec<u32>,
    /// First rank of this host, and the number of all ranks.
    first_rank: usize,
    ranks: usize,
    /// Time by which the clock of this host is ahead.
    pub(super) clock_ahead: Nanos,
    /// Record of the devices in use, for npu-smi.
    activity: Option<DeviceActivity>,
    host: Option<PathBuf>,
    /// True after the program's regular end.
    is_finalised: bool,
    /// Number of calls so far that all processes of the gang must make.
    pub(super) common_calls: u64,
}

impl ApiSession {
    /// Creates a session whose clock starts at `started`; calls are compared with the cases of the manifest.
    pub(in crate::rehearsal) fn new(
        config: &HostConfig,
        manifest: Option<&Manifest>,
        started: Nanos,
        faults: ActiveFaults,
    ) -> Result<Self, HostError> {
        let assets = config.assets()?;
        let profile = DeviceProfile::load(&assets, &config.device_profile)?;
        let memory = TensorMemory::new(profile.hbm_bytes());
        let started = Nanos(started.0.saturating_add(config.clock_ahead().0));
        let log = LaunchLog::new(config.clone(), profile, manifest, started);
        let own_ranks = manifest.map(|manifest| manifest.ranks_of_host(manifest.host)).unwrap_or_default();
        let own_devices =
            manifest.and_then(|manifest| manifest.devices().get(own_ranks.clone())).unwrap_or_default();
        Ok(Self {
            devices: config.device_count(),
            current: 0,
            memory,
            log,
            injector: FaultInjector::new(faults),
            environment: TorchNpuEnvironment::default(),
            assets,
            kernels: manifest.map(manifest_kernels).unwrap_or_default(),
            catalogue: Arc::default(),
            other_schemas: other_schemas(&config.faults.schemas),
            group: Arc::default(),
            link: None,
            gang: own_devices.iter().map(|device| device.0).collect(),
            first_rank: own_ranks.start,
            ranks: manifest.map_or(0, |manifest| manifest.devices().len()),
            clock_ahead: config.clock_ahead(),
            activity: None,
            host: None,
            is_finalised: false,
            common_calls: 0,
        })
    }

    /// Sets the folder of the host, in which npu-smi finds the devices in use.
    pub(in crate::rehearsal) fn with_host(self, folder: &Path) -> Self {
        Self { host: Some(folder.to_owned()), ..self }
    }

    /// Sets the process that has connected.
    pub(super) fn set_process(&mut self, pid: u32) {
        self.activity = self.host.as_deref().map(|host| DeviceActivity::of_host(host, pid));
    }

    /// Makes the next `synchronize` raise an error of the runtime.
    pub(super) fn fail_at_synchronize(&mut self, code: u32) {
        self.injector.fail_at_synchronize(code);
    }

    /// Returns the answer to a line, and the delay before it is sent.
    pub(super) fn answer(&mut self, line: &str) -> (String, Duration) {
        let request = ApiRequest::parse(line);
        if request.as_ref().is_ok_and(|request| request.call == FINALISE) {
            self.is_finalised = true;
            return (answer(&Ok(ApiReply::Nothing), None), Duration::ZERO);
        }
        let result = request.and_then(|mut request| {
            request.freed.iter().for_each(|handle| self.memory.free(*handle));
            if !request.environment.is_empty() {
                self.environment = TorchNpuEnvironment::from_variables(&request.environment);
                self.injector.has_deferred_errors = self.environment.has_deferred_errors;
            }
            let arguments = request.arguments();
            self.injector.before_call(&request.call, &mut self.log, &mut self.memory)?;
            let reply = self.call(&request.call, &arguments);
            self.injector.after_call(&request.call, &mut self.log, &mut self.memory);
            if let Some(activity) = &mut self.activity {
                activity.record(&self.log.physical_devices());
            }
            reply
        });
        let result = result.map_err(|error| self.environment.raised(error));
        (answer(&result, self.injector.action.take()), self.injector.latency.take_pending())
    }

    /// Returns the schema of an operator as the installation has it.
    pub(super) fn installed_schema<'a>(&'a self, operator: &'a LaunchOperator) -> &'a OperatorSchema {
        self.other_schemas.get(&operator.schema.name).unwrap_or(&operator.schema)
    }

    /// Returns the catalogue, loaded at the first call.
    pub(super) fn catalogue(&self) -> Result<Arc<Catalogue>, PyError> {
        if let Some(catalogue) = self.catalogue.get() {
            return Ok(Arc::clone(catalogue));
        }
        let loaded = Catalogue::load(&self.assets).map_err(|error| unreadable(&error))?;
        Ok(Arc::clone(self.catalogue.get_or_init(|| Arc::new(loaded))))
    }

    /// Returns the entries of the manifest's kernels; without a manifest, all entries.
    pub(super) fn manifest_entries<'a>(
        &'a self,
        catalogue: &'a Catalogue,
    ) -> Box<dyn Iterator<Item = &'a CatalogueEntry> + 'a> {
        if self.kernels.is_empty() {
            return Box::new(catalogue.entries());
        }
        Box::new(self.kernels.iter().filter_map(|kernel| catalogue.entry(kernel)))
    }

    pub(super) fn group(&self) -> MutexGuard<'_, ProcessGroup> {
        self.group.lock()
    }

    pub(super) const fn shared_group(&self) -> &Arc<SharedGroup> {
        &self.group
    }

    /// Joins the group of several hosts: the first one opens it once, the others connect to it.
    pub(super) fn join_hosts(&mut self, node: u64, address: &str, port: u16) -> Result<(), PyError> {
        if node > 0 {
            self.link = Some(Arc::new(GroupLink::connect(address, port)?));
        } else if self.group.lock().open_once() {
            serve_group(&self.group, address, port)?;
        }
        Ok(())
    }

    /// Sets a key of torch's store.
    pub(super) fn store_set(&self, key: &str, value: &str) -> Result<(), PyError> {
        match &self.link {
            Some(link) => link.set(key, value),
            None => {
                self.group().set(key, value);
                Ok(())
            }
        }
    }

    /// Returns the value of a key of torch's store; `None` if it is not set.
    pub(super) fn store_get(&self, key: &str) -> Result<Option<String>, PyError> {
        match &self.link {
            Some(link) => link.get(key),
            None => Ok(self.group().get(key)),
        }
    }

    /// As [`SharedGroup::meet`], on any host.
    pub(super) fn meet(&self, number: u64, arrival: RankArrival) -> Result<Vec<Arc<RankArrival>>, PyError> {
        let (rank, ranks) = self.rank();
        let call = CollectiveCall { number, rank, ranks, arrival };
        match &self.link {
            Some(link) => link.meet(call),
            None => self.group.meet(call),
        }
    }

    /// Returns true if the manifest has collectives.
    pub(super) fn has_collectives(&self) -> bool {
        self.kernels.iter().any(KernelName::is_collective)
    }

    /// Returns the rank of this process, and the number of ranks.
    pub(super) fn rank(&self) -> (usize, usize) {
        let place = self.gang.iter().position(|device| *device == self.current).unwrap_or_default();
        (self.first_rank + place, self.ranks)
    }

    /// Sets the device of the process, by which its rank and its faults are known.
    pub(super) fn set_current(&mut self, device: u32) {
        self.current = device;
        self.injector.set_rank(self.rank().0);
    }

    /// Returns the mean durations of the model by case and kernel, without noise and faults.
    pub(in crate::rehearsal) const fn true_medians(&self) -> &BTreeMap<(CaseId, String), Nanos> {
        self.log.true_medians()
    }

    /// Returns the devices that the program used, its launches since the last call, and the effects of faults on it.
    pub(in crate::rehearsal) fn take_results(&mut self) -> (Vec<u32>, Vec<LoggedLaunch>, ScriptOutcome) {
        (self.log.devices(), self.log.take_launches(), self.injector.outcome(self.is_finalised))
    }
}

fn unreadable(error: &YamlError) -> PyError {
    runtime(format!("rehearsal: {error}"))
}

fn manifest_kernels(manifest: &Manifest) -> BTreeSet<KernelName> {
    manifest.cases.iter().filter_map(|case| KernelName::new(&case.kernel).ok()).collect()
}

/// The schemas of a fault plan, which has been checked.
fn other_schemas(texts: &[String]) -> BTreeMap<String, OperatorSchema> {
    let parsed = texts.iter().filter_map(|text| OperatorSchema::parse(text).ok());
    parsed.map(|schema| (schema.name.clone(), schema)).collect()
}
