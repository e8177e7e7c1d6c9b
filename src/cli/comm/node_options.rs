//! Options of a sweep over several nodes.

use std::{io::Read as _, os::unix::fs::MetadataExt as _};

use super::super::prelude::*;
use crate::{
    base::files::open_regular,
    measure::{
        fleet::expand_hosts,
        nodes::{NodeMeeting, NodePlace, NodeSecret},
    },
};

/// Variable with the secret of a sweep over nodes.
const SECRET_VARIABLE: &str = "NPUBENCH_SECRET";
/// MAX of the bytes of a secret.
const MAX_SECRET: u64 = 4096;
const HOW_TO_MEET: &str = "give `--shared DIR` with a folder that all nodes see and no other user can write into, or a secret: the \
                           variable NPUBENCH_SECRET or `--secret-file FILE`, the same on all nodes";

#[derive(Debug, Args)]
#[command(next_help_heading = "Several nodes")]
pub(in crate::cli) struct NodeOptions {
    /// Number of nodes, each of which runs this command; under Slurm's srun by default that of the step
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    nnodes: Option<u16>,
    /// Number of this node; node 0 has the database
    #[arg(long, value_name = "N", requires = "nnodes")]
    node_rank: Option<usize>,
    /// Host of node 0; under Slurm's srun by default the first one of the step
    #[arg(long, value_name = "HOST")]
    master_addr: Option<String>,
    /// Port of torchrun's store on node 0; with a secret, the nodes agree by the following one
    #[arg(long, value_name = "PORT", default_value_t = 29480, value_parser = clap::value_parser!(u16).range(1..=65534))]
    master_port: u16,
    /// Folder that all nodes see, by which they agree and pass on their evidence
    #[arg(long, value_name = "DIR", conflicts_with = "secret_file")]
    shared: Option<PathBuf>,
    /// File with the secret that all nodes have, in place of a shared folder; also the variable NPUBENCH_SECRET
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Seconds in which all nodes must have connected
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86400))]
    node_timeout: u64,
}

/// Returns the numbers of nodes and of this one, and the first host of the step of Slurm that has started this process; `None`
/// without one of several nodes, also in a batch script, which runs on one node.
fn slurm_step(
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<(usize, usize, String)>, CommandError> {
    let number = |name: &str| variable(name)?.trim().parse::<usize>().ok();
    let Some(nodes) = number("SLURM_STEP_NUM_NODES").filter(|nodes| *nodes > 1) else { return Ok(None) };
    let tasks = number("SLURM_STEP_NUM_TASKS").unwrap_or(nodes);
    if tasks != nodes {
        return Err(CommandError::usage(
            format!("the step of Slurm has {tasks} tasks on {nodes} nodes, expected one on each"),
            "start it with `srun --ntasks-per-node=1`, or give `--nnodes 1` for a sweep of this node alone",
        ));
    }
    let (Some(node), Some(list)) = (number("SLURM_NODEID"), variable("SLURM_STEP_NODELIST")) else {
        return Err(CommandError::usage(
            "SLURM_NODEID or SLURM_STEP_NODELIST is not set in this step of Slurm",
            "give `--nnodes`, `--node-rank` and `--master-addr`",
        ));
    };
    let first_host = expand_hosts(&list).into_iter().next().unwrap_or_default();
    Ok(Some((nodes, node, first_host)))
}

impl NodeOptions {
    /// Returns true if the options or the environment state how the nodes exchange messages.
    pub(in crate::cli) fn have_meeting(&self) -> bool {
        self.shared.is_some() || self.secret_file.is_some() || env::var_os(SECRET_VARIABLE).is_some()
    }

    fn meeting(&self, variable: impl Fn(&str) -> Option<String>) -> Result<NodeMeeting, CommandError> {
        if let Some(folder) = &self.shared {
            return Ok(NodeMeeting::Shared(folder.clone()));
        }
        let source = self.secret_file.as_deref().unwrap_or(Path::new(SECRET_VARIABLE));
        let refused = |problem: &str| {
            CommandError::bad_input(
                format!("`{}`: {problem}", source.display()),
                "write a secret, such as that of `openssl rand -hex 32`, into a file with mode 600",
            )
        };
        let read = |error: std::io::Error| refused(&format!("it cannot be read: {error}"));
        let text = match &self.secret_file {
            Some(file) => {
                let file = open_regular(file).map_err(read)?;
                if file.metadata().map_err(read)?.mode() & 0o077 != 0 {
                    return Err(refused("other users can read it"));
                }
                std::io::read_to_string(file.take(MAX_SECRET)).map_err(read)?
            }
            None => variable(SECRET_VARIABLE).ok_or_else(|| {
                CommandError::usage("a sweep of several nodes needs a way to exchange messages", HOW_TO_MEET)
            })?,
        };
        let short = || refused("a secret has 16 characters or more");
        NodeSecret::new(&text).map(NodeMeeting::Secret).ok_or_else(short)
    }

    pub(super) fn place(&self) -> Result<Option<NodePlace>, CommandError> {
        self.place_by(|name| env::var(name).ok())
    }

    fn place_by(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Option<NodePlace>, CommandError> {
        let mut is_slurm_step = false;
        let (nodes, node, address) = match self.nnodes {
            Some(1) => return Ok(None),
            Some(nodes) => (usize::from(nodes), self.node_rank, self.master_addr.clone()),
            None => match slurm_step(&variable)? {
                Some((nodes, node, first_host)) => {
                    is_slurm_step = true;
                    (nodes, Some(node), self.master_addr.clone().or(Some(first_host)))
                }
                None if self.master_addr.is_some() => {
                    return Err(CommandError::usage(
                        "`--master-addr` is for several nodes",
                        "give `--nnodes` and `--node-rank` as well",
                    ));
                }
                None => return Ok(None),
            },
        };
        let (Some(node), Some(address)) = (node, address) else {
            return Err(CommandError::usage(
                "a sweep of several nodes needs the number of this one and the host of node 0",
                "give `--node-rank` and `--master-addr`",
            ));
        };
        if node >= nodes {
            return Err(CommandError::usage(
                format!("`--node-rank` is {node}, expected 0 to {}", nodes - 1),
                "number the nodes from 0",
            ));
        }
        let (port, timeout) = (self.master_port, Duration::from_secs(self.node_timeout));
        let meeting = self.meeting(variable)?;
        Ok(Some(NodePlace { nodes, node, address, port, meeting, timeout, is_slurm_step }))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn place(
        nnodes: Option<u16>,
        node_rank: Option<usize>,
        slurm: &[(&str, &str)],
    ) -> Result<Option<NodePlace>, CommandError> {
        let address = nnodes.filter(|nodes| *nodes > 1).map(|_| "host-a".to_owned());
        let options = NodeOptions {
            nnodes,
            node_rank,
            master_addr: address,
            master_port: 29480,
            shared: Some("/shared".into()),
            secret_file: None,
            node_timeout: 300,
        };
        options
            .place_by(|name| slurm.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn steps_of_slurm_give_the_place_and_batch_scripts_none() {
        let step = [
            ("SLURM_STEP_NUM_NODES", "2"),
            ("SLURM_STEP_NUM_TASKS", "2"),
            ("SLURM_NODEID", "1"),
            ("SLURM_STEP_NODELIST", "atlas[07-08]"),
        ];
        let found = place(None, None, &step).expect("valid").expect("two nodes");
        assert_eq!((found.nodes, found.node, found.address.as_str()), (2, 1, "atlas07"));
        let batch = [("SLURM_NNODES", "2"), ("SLURM_NODEID", "0"), ("SLURM_JOB_NODELIST", "atlas[07-08]")];
        assert!(place(None, None, &batch).expect("valid").is_none());
        assert!(place(Some(1), None, &step).expect("valid").is_none(), "options precede Slurm");
        let by_hand = place(Some(3), Some(2), &step).expect("valid").expect("three nodes");
        assert_eq!((by_hand.nodes, by_hand.node, by_hand.address.as_str()), (3, 2, "host-a"));
        let tasks = [step[0], ("SLURM_STEP_NUM_TASKS", "16"), step[2], step[3]];
        assert!(place(None, None, &tasks).expect_err("too many").to_string().contains("16 tasks on 2 nodes"));
        assert!(place(Some(2), None, &[]).expect_err("no rank").to_string().contains("--node-rank"));
        assert!(place(Some(2), Some(2), &[]).expect_err("too high").to_string().contains("expected 0 to 1"));
    }

    #[test]
    fn nodes_need_a_folder_or_a_secret_that_others_cannot_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("secret");
        let meeting = |secret_file: Option<PathBuf>, value: Option<&str>| {
            let options = NodeOptions {
                nnodes: Some(2),
                node_rank: Some(1),
                master_addr: Some("host-a".to_owned()),
                master_port: 29480,
                shared: None,
                secret_file,
                node_timeout: 300,
            };
            options.place_by(|name| value.filter(|_| name == SECRET_VARIABLE).map(str::to_owned)).map(drop)
        };
        let none = meeting(None, None).expect_err("neither");
        assert_eq!(none.exit, ExitStatus::Usage);
        let hint = none.hint.clone();
        assert!(
            ["--shared", "NPUBENCH_SECRET", "--secret-file"].iter().all(|way| hint.contains(way)),
            "{hint}"
        );
        assert!(meeting(None, Some("a secret of nodes")).is_ok());
        assert!(meeting(None, Some("short")).expect_err("short").message.contains("16 characters or more"));
        assert!(meeting(Some(file.clone()), None).expect_err("missing").message.contains("cannot be read"));
        fs::write(&file, "a secret of nodes\n").expect("written");
        for (mode, is_accepted) in [(0o640, false), (0o604, false), (0o600, true), (0o400, true)] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("set");
            assert_eq!(meeting(Some(file.clone()), None).is_ok(), is_accepted, "{mode:o}");
        }
    }
}
