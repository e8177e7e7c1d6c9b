//! Parsers of what the programs of Slurm print.

use std::collections::BTreeSet;

use crate::base::command_error::CommandError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueuedTask {
    pub(crate) job: String,
    /// Number of the task; `None` for a job that is no array.
    pub(crate) task: Option<usize>,
    pub(crate) state: String,
    /// Node, or list of nodes; empty before the start.
    pub(crate) node: String,
    /// Reason of the state, such as `JobHeldUser`; empty without one.
    pub(crate) reason: String,
}

pub(super) const QUEUE_FORMAT: &str = "%i|%T|%N|%r";

/// States of jobs that have ended and that Slurm does not start again.
const ENDED: [&str; 11] = [
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "LAUNCH_FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REVOKED",
    "TIMEOUT",
];

impl QueuedTask {
    pub(crate) fn has_ended(&self) -> bool {
        ENDED.contains(&self.state.as_str())
    }
}

/// Parses the output of `squeue --noheader --array` with [`QUEUE_FORMAT`]. An error is the line that is none.
pub(super) fn parse_queue(text: &str) -> Result<Vec<QueuedTask>, String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split('|').collect();
            let [id, state, node, reason] = fields.as_slice() else { return Err(line.to_owned()) };
            let (job, task) = match id.split_once('_') {
                Some((job, task)) => (job, Some(task.parse().map_err(|_| line.to_owned())?)),
                None => (*id, None),
            };
            if state.is_empty() || !is_number(job) {
                return Err(line.to_owned());
            }
            let reason = if *reason == "None" { "" } else { reason };
            Ok(QueuedTask {
                job: job.to_owned(),
                task,
                state: (*state).to_owned(),
                node: (*node).to_owned(),
                reason: reason.to_owned(),
            })
        })
        .collect()
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Parses the output of `sbatch --parsable`: a line with the number of the job, and the cluster where there are several.
pub(super) fn parse_job_number(text: &str) -> Option<String> {
    let mut lines = text.lines().map(|line| line.split(';').next().unwrap_or_default().trim());
    lines.find(|line| is_number(line)).map(str::to_owned)
}

/// Returns the numbers of the devices of a job on a node, from the output of `scontrol show job -d`. The number of an array is also
/// that of its last task, so that the output may contain other tasks.
pub(super) fn parse_devices_of_job(
    text: &str,
    job: &str,
    node: &str,
    resource: &str,
) -> Result<Vec<u32>, CommandError> {
    let command = format!("`scontrol show job -d {job}`");
    let mut is_job = false;
    let mut found: Option<&str> = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("JobId=") {
            is_job = rest.split_whitespace().next() == Some(job);
        }
        let line = line.trim_start();
        if !is_job || !line.starts_with("Nodes=") {
            continue;
        }
        let field = |name: &str| line.split_whitespace().find_map(|field| field.strip_prefix(name));
        if field("Nodes=").is_some_and(|nodes| expand_hosts(nodes).iter().any(|host| host == node)) {
            found = Some(field("GRES=").unwrap_or_default());
        }
    }
    let Some(resources) = found else {
        return Err(CommandError::bad_input(
            format!("{command} shows no resources of the job on node {node}"),
            "the devices of a job are shown only while it runs",
        ));
    };
    let mut devices: Option<BTreeSet<u32>> = None;
    for entry in split_outside_brackets(resources) {
        if entry.split([':', '(']).next() == Some(resource) {
            let list = entry.split_once("IDX:").and_then(|(_, rest)| rest.split_once(')'));
            let numbers = list.and_then(|(list, _)| parse_numbers(list)).ok_or_else(|| {
                CommandError::bad_input(
                    format!("{command} shows `{entry}` without the numbers of the devices"),
                    "name the device files in Slurm's gres.conf, such as `File=/dev/davinci[0-7]`; or request whole nodes and give \
                     the devices of `npubench run`: `npubench slurm submit … --sbatch=--exclusive -- --devices 0-7`",
                )
            })?;
            devices.get_or_insert_default().extend(numbers);
        }
    }
    let devices = devices.ok_or_else(|| {
        CommandError::bad_input(
            format!("{command} shows no `{resource}` on node {node}, but `{resources}`"),
            format!("request devices with `--gres {resource}:8`, or give their name with `--gres`"),
        )
    })?;
    Ok(devices.into_iter().collect())
}

fn parse_numbers(list: &str) -> Option<Vec<u32>> {
    const MAX: u32 = 1024;
    let number = |text: &str| text.parse::<u32>().ok().filter(|number| *number < MAX);
    let mut numbers = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        numbers.extend(number(first)?..=number(last)?);
    }
    Some(numbers)
}

fn split_outside_brackets(list: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_u32, 0);
    for (at, byte) in list.bytes().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                parts.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[start..]);
    parts
}

/// Expands a list of hosts, such as `node[01-03,7],other`.
pub(crate) fn expand_hosts(list: &str) -> Vec<String> {
    split_outside_brackets(list).into_iter().flat_map(expand_pattern).collect()
}

fn expand_pattern(pattern: &str) -> Vec<String> {
    let parts = pattern.split_once('[').and_then(|(before, rest)| Some((before, rest.split_once(']')?)));
    let Some((before, (ranges, behind))) = parts else { return vec![pattern.to_owned()] };
    let ends = expand_pattern(behind);
    let mut hosts = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (Ok(from), Ok(to)) = (first.parse::<u64>(), last.parse::<u64>()) else { continue };
        // Numbers are padded with zeros to the width of the first one.
        let numbers = (from..=to).map(|number| format!("{number:0width$}", width = first.len()));
        hosts.extend(numbers.flat_map(|number| ends.iter().map(move |end| format!("{before}{number}{end}"))));
    }
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of Slurm 22.05 for an array of which a task waits and two run; shortened.
    const ARRAY: &str = "JobId=1 ArrayJobId=1 ArrayTaskId=3 ArrayTaskThrottle=2 JobName=j.sh
   JobState=PENDING Reason=JobArrayTaskLimit Dependency=(null)
   NodeList=
   TresPerNode=gres:npu:3

JobId=5 ArrayJobId=1 ArrayTaskId=2 ArrayTaskThrottle=2 JobName=j.sh
   JobState=RUNNING Reason=None Dependency=(null)
   NodeList=node1
   BatchHost=node1
   NumNodes=1 NumCPUs=1 NumTasks=1 CPUs/Task=1 ReqB:S:C:T=0:0:*:*
   JOB_GRES=npu:3
     Nodes=node1 CPU_IDs=14 Mem=0 GRES=npu:3(IDX:3-5)
   TresPerNode=gres:npu:3

JobId=4 ArrayJobId=1 ArrayTaskId=1 ArrayTaskThrottle=2 JobName=j.sh
   JobState=RUNNING Reason=None Dependency=(null)
   JOB_GRES=npu:3
     Nodes=node1 CPU_IDs=15 Mem=0 GRES=npu:3(IDX:0-2)
   TresPerNode=gres:npu:3
";

    #[test]
    fn hosts_of_a_list_are_expanded() {
        for (list, hosts) in [
            ("node1", "node1"),
            ("node[1-2]", "node1 node2"),
            ("node[09-10,7],other", "node09 node10 node7 other"),
            ("rack[2,4]n[7-8]-x", "rack2n7-x rack2n8-x rack4n7-x rack4n8-x"),
        ] {
            assert_eq!(expand_hosts(list).join(" "), hosts);
        }
    }

    #[test]
    fn devices_of_a_task_are_not_those_of_its_array() {
        let devices = |job: &str, node: &str| {
            parse_devices_of_job(ARRAY, job, node, "npu").map_err(|error| error.message)
        };
        let missing = |job: &str, node: &str| {
            Err(format!("`scontrol show job -d {job}` shows no resources of the job on node {node}"))
        };
        assert_eq!(devices("4", "node1"), Ok(vec![0, 1, 2]));
        assert_eq!(devices("5", "node1"), Ok(vec![3, 4, 5]));
        assert_eq!(devices("1", "node1"), missing("1", "node1"), "a waiting task");
        assert_eq!(devices("5", "node2"), missing("5", "node2"));
        assert_eq!(devices("9", "node1"), missing("9", "node1"));
    }

    #[test]
    fn devices_are_found_among_other_resources_and_nodes() {
        let devices = |line: &str, node: &str| {
            parse_devices_of_job(&format!("JobId=7 JobName=x\n     {line}\n"), "7", node, "npu")
                .map_err(|error| error.message)
        };
        let error = |line: &str, node: &str| devices(line, node).expect_err("no devices");
        let line = "Nodes=rack[1-2]n[07-12],other CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:9),npu:a3:2(IDX:0,4),npu:b:1(IDX:6)";
        for node in ["rack2n07", "rack1n12", "other"] {
            assert_eq!(devices(line, node), Ok(vec![0, 4, 6]), "{node}");
        }
        for node in ["rack2n7", "rack3n07", "rack2n13", "rack2", "others", "rack2n071"] {
            assert!(
                error(line, node).ends_with(&format!("no resources of the job on node {node}")),
                "{node}"
            );
        }
        let other = "GRES=npus:1(IDX:0)";
        let line = format!("Nodes=n1 CPU_IDs=0 Mem=0 {other}");
        assert!(error(&line, "n1").ends_with("no `npu` on node n1, but `npus:1(IDX:0)`"));
        assert!(error("Nodes=n1 CPU_IDs=0 Mem=0 GRES=", "n1").ends_with("on node n1, but ``"));
        for unknown in ["npu:8", "npu:8(CNT:8)", "npu:8(IDX:N/A)", "npu:1(IDX:99999999)"] {
            let line = format!("Nodes=n1 CPU_IDs=0 Mem=0 GRES={unknown}");
            assert!(
                error(&line, "n1")
                    .ends_with(&format!("shows `{unknown}` without the numbers of the devices"))
            );
        }
    }

    #[test]
    fn queue_has_tasks_of_arrays_and_other_jobs() {
        let text = "6_4|PENDING||BeginTime\n7|PENDING||Dependency\n6_2|TIMEOUT|node1|TimeLimit\n6_5|RUNNING|node1|None\n";
        let tasks = parse_queue(text).expect("lines of squeue");
        let shown: Vec<(&str, Option<usize>, bool, &str, &str)> = tasks
            .iter()
            .map(|task| (&*task.job, task.task, task.has_ended(), &*task.node, &*task.reason))
            .collect();
        assert_eq!(
            shown,
            [
                ("6", Some(4), false, "", "BeginTime"),
                ("7", None, false, "", "Dependency"),
                ("6", Some(2), true, "node1", "TimeLimit"),
                ("6", Some(5), false, "node1", ""),
            ]
        );
        for wrong in [
            "slurm_load_jobs error: Invalid job id specified",
            "6_[1-3]|PENDING||None",
            "x|R|n|None",
            "6||n|None",
        ] {
            assert_eq!(parse_queue(wrong), Err(wrong.to_owned()));
        }
    }

    #[test]
    fn job_number_stands_between_warnings() {
        assert_eq!(parse_job_number("sbatch: warning: can't honour 1\n12;alpha\n").as_deref(), Some("12"));
        assert_eq!(parse_job_number("13\n").as_deref(), Some("13"));
        assert_eq!(parse_job_number("sbatch: error: 14\n"), None);
    }
}
