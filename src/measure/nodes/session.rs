//! Sweeps over several nodes: the place of this process among them, what they must have in common, and the followers.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use indexmap::IndexSet;
use sha2::{Digest as _, Sha256};

use super::{
    AdmissionTerms, LeaderConnection, NodeError, NodeListener, NodePlace,
    message::{NodeAgreement, host_name_of},
};
use crate::{
    base::{
        assets::AssetFiles, command_error::CommandError, exit::ExitStatus, files::ScratchFolder,
        print::print_note, shell_argument::quoted_argument,
    },
    cases::plan::{PlannedCase, RunPlan},
    database::{Database, DatabaseError, database_file::DatabaseFile},
    kernel::{
        DataKind, SoftwareFingerprint, hccl_variables,
        render::{ScriptCommunication, script_templates},
    },
    measure::{
        collective::sweep_session::{CollectiveSweep, SweepPart},
        device_choice::{RehearsedDurations, lease_folder, lease_free_devices, program_environment},
        engine::{EngineError, FollowerRun, SweepNodes},
        events::RunScreen,
        run_context::RunContext,
        run_options::RunOptions,
        vendor_check::{installed_software, installed_torch},
    },
};

/// Versions of a host that all nodes have, by the names of its fingerprint.
const HOST_VERSIONS: [&str; 3] = ["CANN", "driver", "firmware"];
const UNKNOWN: &str = "unknown";

impl NodePlace {
    /// Returns the command of this node for a shell: its arguments after the name of the program, with the variables of
    /// HCCL by their key, and with `srun` in a step of Slurm.
    pub(crate) fn command(&self, arguments: &[String], environment: &str) -> String {
        let mut words = Vec::new();
        if !environment.is_empty() {
            words.push("env".to_owned());
            let variables = hccl_variables(environment).into_iter();
            words.extend(variables.map(|(name, value)| quoted_argument(&format!("{name}={value}"))));
        }
        if self.is_slurm_step {
            words.push(format!("srun --nodes={} --ntasks-per-node=1", self.nodes));
        }
        words.push("npubench".to_owned());
        words.extend(arguments.iter().map(|argument| quoted_argument(argument)));
        words.join(" ")
    }
}

pub(crate) fn resume_on_all_nodes(run: &str, options: &RunOptions) -> CommandError {
    let command = options.command.as_deref().unwrap_or("npubench comm run");
    CommandError::bad_input(
        format!("run {run} is a sweep over several nodes"),
        format!(
            "start its command again on all nodes, each with its own `--node-rank`; with `--update missing` it measures what is \
             missing: {command}"
        ),
    )
}

/// Returns the name of this host for messages: the one of Slurm, which a machine may have several of, else that of
/// the system.
fn host_name(options: &RunOptions) -> String {
    let rehearsed = options.faults.host.as_ref().and_then(|host| host.name.clone());
    let of_slurm = || std::env::var("SLURMD_NODENAME").ok();
    let of_system = || nix::unistd::gethostname().ok()?.into_string().ok();
    host_name_of(&rehearsed.or_else(of_slurm).or_else(of_system).unwrap_or_default())
}

fn digest(text: &str) -> String {
    Sha256::digest(text).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn list<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

fn list_unique<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    list(items.into_iter().map(|item| item.to_string()).collect::<IndexSet<_>>())
}

impl RunContext {
    fn node_agreement(
        &self,
        options: &RunOptions,
        sweep: &CollectiveSweep,
    ) -> Result<NodeAgreement, CommandError> {
        let is_gloo = sweep.communication == ScriptCommunication::Gloo;
        let is_npu = self.database.kind() == DataKind::Npu;
        let parts = || sweep.parts.iter();
        let groups = parts().flat_map(|part| &part.groups);
        let groups = groups.map(|group| format!("{} ranks on tier {}", group.ranks, group.tier));
        let numbers = self.chips.iter().map(|chip| self.numbering.logical_id(chip.physical_id));
        let mut chips: Vec<&str> = self.chips.iter().map(|chip| chip.name.as_str()).collect();
        chips.dedup();
        let cases = sweep.cases()?;
        let ids: Vec<&str> = cases.iter().map(|(case, _)| case.id().as_str()).collect();
        let profile = self.assets.device_profiles()?.remove(&format!("{}.yaml", self.profile.device));
        let values = [
            ("host", if is_npu { "npu" } else { "rehearsal" }.to_owned()),
            ("backend", if is_gloo { "gloo" } else { "hccl" }.to_owned()),
            ("collectives", list_unique(parts().flat_map(|part| &part.kinds))),
            ("types", list_unique(parts().flat_map(|part| &part.dtypes))),
            ("sizes", list_unique(parts().flat_map(|part| &part.sizes))),
            ("groups", list_unique(groups)),
            ("HCCL variables", sweep.environment.clone()),
            ("warm-up", options.warm_up.to_string()),
            ("launches", options.launches.to_string()),
            ("seed", options.seed.to_string()),
            ("options of msprof", options.profiler.options().join(" ")),
            ("number of devices", self.chips.len().to_string()),
            ("devices", list(self.chips.iter().map(|chip| chip.physical_id))),
            ("devices by torch's numbers", list(numbers)),
            ("listed devices", self.numbering.listed().to_string()),
            ("chips", list(chips)),
            ("cases", format!("{} with digest {}", ids.len(), digest(&ids.join("\n")))),
            // Builds of the same version and files of `--assets` may differ.
            ("templates of scripts by digest", digest(&script_templates(&self.assets)?)),
            ("device profile by digest", profile.map(|file| digest(&file.text)).unwrap_or_default()),
        ];
        // The environment of the collections consists of HCCL's variables and the version of npubench.
        let software =
            SoftwareFingerprint { profiler: None, environment: BTreeMap::new(), ..self.software.clone() };
        let software = software.values().map(|(name, version)| (name, version.into_owned()));
        let unknown = HOST_VERSIONS.map(|name| (name, UNKNOWN.to_owned()));
        let all = values.into_iter().chain(unknown).chain(software);
        let mut values: NodeAgreement = all.map(|(name, value)| (name.to_owned(), value)).collect();
        // Versions that cannot be read would be equal on all nodes. The rehearsal host needs no torch.
        if is_gloo || is_npu {
            let torch = match is_gloo {
                true => installed_torch(&options.python)?,
                false => installed_software(&options.python)?.to_string(),
            };
            values.insert("installed torch".to_owned(), torch);
        }
        Ok(values)
    }

    pub(crate) fn admit_nodes(
        &self,
        listener: NodeListener,
        place: &NodePlace,
        options: &RunOptions,
        received: &Path,
    ) -> Result<SweepNodes, CommandError> {
        let sweep = options.sweep.as_ref().expect("the options of a sweep");
        let layout = sweep.nodes.expect("a sweep over several nodes");
        let agreement = self.node_agreement(options, sweep)?;
        let unknown: Vec<&str> =
            HOST_VERSIONS.into_iter().filter(|name| agreement[*name] == UNKNOWN).collect();
        if self.database.kind() == DataKind::Npu && !unknown.is_empty() {
            print_note(&format!(
                "not compared between the nodes, because this one cannot read them: {}",
                list(&unknown)
            ));
        }
        let (others, word) = (place.nodes - 1, if place.nodes == 2 { "node" } else { "nodes" });
        print_note(&format!("waiting for {others} other {word} {}", place.meeting_place()));
        let cluster = listener.admit(AdmissionTerms {
            place: place.clone(),
            host: host_name(options),
            device_profile: self.database.device().to_owned(),
            agreement,
            folder: received.to_owned(),
        })?;
        Ok(SweepNodes { layout, cluster: Arc::new(cluster) })
    }
}

/// A sweep in which this process takes part as another node than the first. Nothing is written but a temporary folder.
#[derive(Debug)]
pub(crate) struct SweepFollower<'a> {
    pub(crate) kind: DataKind,
    pub(crate) assets: AssetFiles,
    pub(crate) options: &'a RunOptions,
    /// The sweep without its parts.
    pub(crate) sweep: &'a CollectiveSweep,
    pub(crate) place: &'a NodePlace,
    pub(crate) screen: &'static dyn RunScreen,
}

impl SweepFollower<'_> {
    pub(crate) fn follow(
        self,
        find_parts: impl Fn(&RunContext) -> Result<Vec<SweepPart>, CommandError>,
    ) -> Result<ExitStatus, CommandError> {
        let scratch = ScratchFolder::create().map_err(CommandError::no_temporary_folder)?;
        let host = host_name(self.options);
        let NodePlace { node, address, .. } = self.place;
        let (mut connection, device) = LeaderConnection::open(self.place, &host)?;
        let (context, options, run, agreement) = match self.prepare(find_parts, &device, &scratch) {
            Ok(prepared) => prepared,
            Err(error) => {
                connection.sender.refuse(NodeError::refused(&error.message, &error.hint));
                return Err(error);
            }
        };
        connection.agree(agreement)?;
        print_note(&format!("node {node} ({host}) takes part in the sweep of {address}"));
        let plan = move |parts: Vec<SweepPart>| context.plan_further_cases(&options, parts);
        match run.follow(connection, plan, |line: &str| print_note(&format!("node: {line}"))) {
            Ok(exit) => {
                let exit = ExitStatus::from_repr(exit).unwrap_or(ExitStatus::Bug);
                if !matches!(exit, ExitStatus::Done | ExitStatus::SomeNotOk) {
                    print_note("the sweep is not complete; the output of node 0 has the reason");
                }
                Ok(exit)
            }
            Err(EngineError::Node(error)) => Err(CommandError {
                message: error.to_string(),
                hint: "the results that node 0 has stored are kept; the same command on all nodes measures the others"
                    .to_owned(),
                exit: ExitStatus::Interrupted,
            }),
            Err(error) => Err(error.into()),
        }
    }

    fn prepare(
        &self,
        find_parts: impl Fn(&RunContext) -> Result<Vec<SweepPart>, CommandError>,
        device: &str,
        scratch: &ScratchFolder,
    ) -> Result<(RunContext, RunOptions, FollowerRun, NodeAgreement), CommandError> {
        let Self { kind, assets, place, .. } = self;
        // Results are in the database of node 0; this one is empty, so that the plan has all cases.
        let db = scratch.path().join("db");
        let file = DatabaseFile { device: device.to_owned(), ..DatabaseFile::new(*kind) };
        Database::create(&db, &file, |_| Ok::<(), DatabaseError>(()))?;
        // The selftest of node 0 counts for all nodes.
        let base = RunOptions { without_selftest: true, ..self.options.clone() };
        let mut context = RunContext::find(&db, *kind, assets.clone(), &base, self.screen)?;
        context.set_node_count(place.nodes)?;
        let parts = find_parts(&context)?;
        let sweep = CollectiveSweep { parts, nodes: context.layout, ..self.sweep.clone() };
        let options = RunOptions { sweep: Some(sweep.clone()), ..base };
        context.require_host(&options)?;
        let RunPlan { cases, .. } = context.plan(&options, &[])?;
        let agreement = context.node_agreement(&options, &sweep)?;
        let folder = context.database.run_folder("part");
        let lease_folder = lease_folder(&context.database, &options, &context.info.chips);
        lease_folder.prepare()?;
        let (leases, free) = lease_free_devices(&lease_folder, &context.info, &context.chips)?;
        let devices = context.chips.iter().map(|chip| chip.physical_id);
        let used: Vec<u32> = devices.clone().filter(|device| !free.contains(device)).collect();
        if !used.is_empty() {
            return Err(CommandError::cannot_measure(
                format!("other programs use the devices {}", list(&used)),
                "end them, or give other devices on all nodes with `--devices`",
            ));
        }
        let host = folder.join("host");
        let environment =
            program_environment(&options, &host, &context.database, RehearsedDurations::default)?;
        let settings = context.collection_settings("part", &folder, &options, environment, lease_folder);
        let run =
            FollowerRun { settings, cases, leases, devices: devices.collect(), place: (*place).clone() };
        if let Some(problem) = run.missing_space() {
            return Err(CommandError::cannot_measure(
                problem,
                "free space there, or set TMPDIR to a folder of a larger disk",
            ));
        }
        Ok((context, options, run, agreement))
    }
}

impl RunContext {
    fn plan_further_cases(
        &self,
        options: &RunOptions,
        parts: Vec<SweepPart>,
    ) -> Result<Vec<PlannedCase>, String> {
        let own = options.sweep.as_ref().expect("the options of a sweep");
        let sweep = own.refined(parts).ok_or("node 0 sent further cases that are not of this sweep")?;
        let options = RunOptions { sweep: Some(sweep), ..options.clone() };
        self.plan(&options, &[]).map(|plan| plan.cases).map_err(|error| error.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::nodes::NodeMeeting;

    #[test]
    fn command_of_a_sweep_is_one_that_a_shell_accepts() {
        let (address, timeout) = ("atlas07".to_owned(), std::time::Duration::from_secs(300));
        let meeting = NodeMeeting::Shared("/shared".into());
        let place =
            NodePlace { nodes: 2, node: 0, address, port: 29480, meeting, timeout, is_slurm_step: true };
        let arguments = ["comm", "run", "--db", "my db"].map(str::to_owned);
        assert_eq!(
            place.command(&arguments, "HCCL_ALGO=level0:NA;level1:ring"),
            "env 'HCCL_ALGO=level0:NA;level1:ring' srun --nodes=2 --ntasks-per-node=1 npubench comm run --db 'my db'"
        );
        let by_hand = NodePlace { is_slurm_step: false, ..place };
        assert_eq!(by_hand.command(&arguments[..2], ""), "npubench comm run");
    }
}
