//! Sweeps over several nodes: the place of this process among them, what they must have in common, and the followers.

use std::{sync::Arc, time::Duration};

use sha2::{Digest as _, Sha256};

use super::{
    CollectiveSweep, CommandError, RunContext, RunOptions, SweepPart,
    environment::{
        ProgramEnvironment, RehearsedDurations, lease_folder, lease_free_devices, program_environment,
    },
};
use crate::{
    config::{AssetFiles, DatabaseFile},
    database::{Database, DatabaseError},
    domain::DataKind,
    engine::{EngineError, FollowerRun, SweepNodes},
    exit::ExitStatus,
    files::ScratchFolder,
    nodes::{FollowedConnection, LeaderPlace, NodeAgreement, NodeError, NodeListener},
    plan::RunPlan,
    render::ScriptCommunication,
    report::print_note,
    vendor_check::installed_software,
};

/// Place of this process among the nodes of a sweep.
#[derive(Clone, Debug)]
pub(crate) struct NodePlace {
    pub(crate) nodes: usize,
    /// Number of this node; 0 starts the collections.
    pub(crate) node: usize,
    /// Address and control port of node 0.
    pub(crate) leader: LeaderPlace,
    /// Time in which all nodes must have connected.
    pub(crate) timeout: Duration,
}

impl From<NodeError> for CommandError {
    fn from(error: NodeError) -> Self {
        let exit = match error {
            NodeError::Refused(_) | NodeError::Port { .. } => ExitStatus::BadInput,
            NodeError::Missing { .. } | NodeError::Leader { .. } => ExitStatus::CannotMeasure,
        };
        Self { message: error.to_string(), hint: error.hint().to_owned(), exit }
    }
}

/// Returns the name of this host for messages: the one of Slurm, which a machine may have several of, else that of
/// the system.
fn host_name(options: &RunOptions) -> String {
    let rehearsed = options.faults.host.as_ref().and_then(|host| host.name.clone());
    let of_slurm = || std::env::var("SLURMD_NODENAME").ok();
    let of_system = || nix::unistd::gethostname().ok()?.into_string().ok();
    rehearsed.or_else(of_slurm).or_else(of_system).unwrap_or_else(|| "a host without a name".to_owned())
}

fn list<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

/// Lists each item once, in the order of the first.
fn list_unique<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    let mut unique: Vec<String> = Vec::new();
    for item in items {
        let item = item.to_string();
        if !unique.contains(&item) {
            unique.push(item);
        }
    }
    list(unique)
}

impl RunContext {
    /// Returns what the nodes of a sweep must have in common.
    fn node_agreement(
        &self,
        options: &RunOptions,
        sweep: &CollectiveSweep,
    ) -> Result<NodeAgreement, CommandError> {
        let mut values = NodeAgreement::default();
        let is_gloo = sweep.communication == ScriptCommunication::Gloo;
        values.set("host", if self.database.kind() == DataKind::Npu { "npu" } else { "rehearsal" });
        values.set("backend", if is_gloo { "gloo" } else { "hccl" });
        let parts = || sweep.parts.iter();
        values.set("collectives", list_unique(parts().flat_map(|part| &part.kinds)));
        values.set("types", list_unique(parts().flat_map(|part| &part.dtypes)));
        values.set("sizes", list_unique(parts().flat_map(|part| &part.sizes)));
        let groups = parts().flat_map(|part| &part.groups);
        let groups = groups.map(|group| format!("{} ranks on tier {}", group.ranks, group.tier));
        values.set("groups", list_unique(groups));
        values.set("HCCL variables", sweep.environment.as_str());
        values.set("warm-up", options.warm_up.to_string());
        values.set("launches", options.launches.to_string());
        values.set("seed", options.seed.to_string());
        values.set("options of msprof", options.profiler.options().join(" "));
        values.set("number of devices", self.chips.len().to_string());
        values.set("devices", list(self.chips.iter().map(|chip| chip.physical_id)));
        let numbers = self.chips.iter().map(|chip| self.numbering.logical_id(chip.physical_id));
        values.set("devices by torch's numbers", list(numbers));
        values.set("listed devices", self.numbering.listed().to_string());
        let mut chips: Vec<&str> = self.chips.iter().map(|chip| chip.name.as_str()).collect();
        chips.dedup();
        values.set("chips", list(chips));
        // The environment of the collections is that of HCCL's variables and the version of npubench.
        let software = crate::domain::SoftwareFingerprint {
            profiler: None,
            environment: std::collections::BTreeMap::new(),
            ..self.software.clone()
        };
        values.set("software", software.to_string());
        if is_gloo || self.database.kind() == DataKind::Npu {
            let installed = installed_software(&options.python).map(|installed| installed.to_string());
            values.set("installed torch", installed.unwrap_or_else(|error| error.to_string()));
        }
        let cases = sweep.cases()?;
        let ids: Vec<&str> = cases.iter().map(|(case, _)| case.id().as_str()).collect();
        let digest: String =
            Sha256::digest(ids.join("\n")).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        values.set("cases", format!("{} with digest {digest}", ids.len()));
        Ok(values)
    }

    /// Waits for the other nodes, and compares them with this one.
    pub(crate) fn admit_nodes(
        &self,
        listener: NodeListener,
        place: &NodePlace,
        options: &RunOptions,
        received: &std::path::Path,
    ) -> Result<SweepNodes, CommandError> {
        let Some((sweep, layout)) = options.sweep.as_ref().and_then(|sweep| Some((sweep, sweep.nodes?)))
        else {
            return Err(CommandError::bad_input(
                "the run is no sweep over several nodes",
                "start it on one host",
            ));
        };
        let agreement = self.node_agreement(options, sweep)?;
        let host = host_name(options);
        print_note(&format!(
            "waiting for {} other nodes at {} port {}",
            place.nodes - 1,
            place.leader.address,
            place.leader.port
        ));
        let cluster = listener.admit(
            place.nodes,
            &host,
            self.database.device(),
            &agreement,
            place.timeout,
            received,
        )?;
        Ok(SweepNodes { layout, cluster: Arc::new(cluster) })
    }
}

/// Takes part in a sweep as another node than the first, until that ends it. Nothing is written but a temporary folder.
pub(crate) fn follow_sweep(
    kind: DataKind,
    assets: AssetFiles,
    options: &RunOptions,
    sweep: &CollectiveSweep,
    find_parts: impl Fn(&RunContext) -> Result<Vec<SweepPart>, CommandError>,
    place: &NodePlace,
) -> Result<ExitStatus, CommandError> {
    let scratch = ScratchFolder::create().map_err(CommandError::no_temporary_folder)?;
    let host = host_name(options);
    let NodePlace { nodes, node, leader, timeout } = place;
    let (mut connection, device) =
        FollowedConnection::open(leader.clone(), *node, *nodes, &host, *timeout, scratch.path())?;
    let prepared = prepare_follower(kind, assets, options, sweep, find_parts, place, &device, &scratch);
    let (run, agreement) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            connection.refuse(&error.message);
            return Err(error);
        }
    };
    connection.agree(&agreement)?;
    print_note(&format!("node {node} ({host}) takes part in the sweep of {}", leader.address));
    let report = move |line: &str| print_note(&format!("node: {line}"));
    let ended = run.follow(connection, report);
    match ended {
        Ok(exit) => Ok(ExitStatus::from_code(exit)),
        Err(EngineError::Node(error)) => Err(CommandError {
            message: error.to_string(),
            hint: "the results that node 0 has stored are kept; the same command on all nodes measures the others".to_owned(),
            exit: ExitStatus::Interrupted,
        }),
        Err(error) => Err(error.into()),
    }
}

#[expect(clippy::too_many_arguments, reason = "the conditions of a follower")]
fn prepare_follower(
    kind: DataKind,
    assets: AssetFiles,
    options: &RunOptions,
    sweep: &CollectiveSweep,
    find_parts: impl Fn(&RunContext) -> Result<Vec<SweepPart>, CommandError>,
    place: &NodePlace,
    device: &str,
    scratch: &ScratchFolder,
) -> Result<(FollowerRun, NodeAgreement), CommandError> {
    // Results are in the database of node 0; this one is empty, so that the plan has all cases.
    let db = scratch.path().join("db");
    let file = DatabaseFile { device: device.to_owned(), ..DatabaseFile::new(kind) };
    Database::create(&db, &file, |_| Ok::<(), DatabaseError>(()))?;
    // The selftest is that of node 0.
    let base = RunOptions { without_selftest: true, ..options.clone() };
    let mut context = RunContext::find(&db, kind, assets, &base)?;
    context.set_node_count(place.nodes)?;
    let parts = find_parts(&context)?;
    let sweep = CollectiveSweep { parts, nodes: context.layout, ..sweep.clone() };
    let options = RunOptions { sweep: Some(sweep.clone()), ..base };
    context.require_host(&options)?;
    let RunPlan { cases, .. } = context.plan(&options, &[])?;
    let agreement = context.node_agreement(&options, &sweep)?;
    let folder = context.database.run_folder("part");
    let lease_folder = lease_folder(&context.database, &options, &context.info.chips);
    lease_folder.prepare()?;
    let (leases, free) = lease_free_devices(&lease_folder, &context.info, &context.chips)?;
    let used: Vec<u32> =
        context.chips.iter().map(|chip| chip.physical_id).filter(|device| !free.contains(device)).collect();
    if !used.is_empty() {
        return Err(CommandError {
            message: format!("other programs use the devices {}", list(&used)),
            hint: "end them, or give other devices on all nodes with `--devices`".to_owned(),
            exit: ExitStatus::CannotMeasure,
        });
    }
    let environment: ProgramEnvironment =
        program_environment(&options, &folder.join("host"), &context.database, RehearsedDurations::default)?;
    let settings = context.collection_settings("part", &folder, &options, environment, lease_folder);
    Ok((FollowerRun { settings, cases, leases, address: place.leader.address.clone() }, agreement))
}

/// Returns the first host of a list of Slurm, such as `node03` of `node[03-05,9],other`.
pub(crate) fn first_slurm_host(list: &str) -> String {
    let (mut name, mut rest) = (String::new(), list.trim());
    while let Some(at) = rest.find(['[', ',']) {
        name.push_str(&rest[..at]);
        if rest.as_bytes()[at] == b',' {
            return name;
        }
        let (inside, behind) = rest[at + 1..].split_once(']').unwrap_or((&rest[at + 1..], ""));
        name.push_str(inside.split([',', '-']).next().unwrap_or_default());
        rest = behind;
    }
    name + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_host_of_a_list_of_slurm() {
        for (list, first) in [
            ("node1", "node1"),
            ("node[1-2]", "node1"),
            ("node[03-05,9],other", "node03"),
            ("a,b[1-2]", "a"),
            ("rack[2,4]n[7-8]-x", "rack2n7-x"),
        ] {
            assert_eq!(first_slurm_host(list), first);
        }
    }
}
