//! Commands that measure cases again.

use crate::{
    base::shell_argument::quoted_argument,
    database::Database,
    kernel::{CacheState, CaseId, CollectiveCase, CommandSizes, SweepCommand},
};

/// Maximum number of cases of a command: Linux limits an argument to 128 KiB.
const MAX_CASES: usize = 5_000;

/// Returns the command that measures cases again; `cases` are ids or first digits of them, separated by commas.
pub(super) fn repeat_command(database: &Database, cache: CacheState, cases: &str) -> String {
    let host = database.kind().host_option();
    let folder = quoted_argument(&database.folder().to_string_lossy());
    let state = if cache.is_hot() { "" } else { " --cache cold" };
    format!("npubench run --db {folder}{host} --case {cases}{state} --update all")
}

/// Returns the command that measures a collective again; `hosts` are the hosts of a group over several nodes.
pub(super) fn repeat_sweep(database: &Database, collective: &CollectiveCase, hosts: &[String]) -> String {
    let CollectiveCase { kind, message, ranks, tier, dtype, environment, parts } = collective;
    let command = SweepCommand {
        database: database.folder(),
        data_kind: database.kind(),
        collective: *kind,
        ranks: *ranks,
        tier: Some(*tier),
        dtype: Some(dtype),
        environment,
        parts,
        sizes: CommandSizes::Listed(vec![*message]),
        measures_again: true,
    };
    command.to_string() + &node_options(hosts)
}

/// Returns the options of a sweep over these hosts, with a comment of the shell; none for one host.
fn node_options(hosts: &[String]) -> String {
    match hosts {
        [first, _, ..] => format!(
            " --nnodes {} --node-rank 0 --master-addr {} # on {first}, and on each other node with its --node-rank",
            hosts.len(),
            quoted_argument(first)
        ),
        _ => String::new(),
    }
}

/// Returns the commands that measure cases again, none without a case.
pub(crate) fn repeat_commands(database: &Database, cache: CacheState, cases: &[CaseId]) -> Vec<String> {
    let ids: Vec<&str> = cases.iter().map(CaseId::as_str).collect();
    ids.chunks(MAX_CASES).map(|chunk| repeat_command(database, cache, &chunk.join(","))).collect()
}
