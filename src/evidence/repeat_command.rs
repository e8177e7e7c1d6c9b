//! Commands that measure cases again.

use crate::{
    database::Database,
    domain::{CacheState, CaseId, CollectiveCase, DataKind, hccl_variables},
};

/// Maximum number of cases of a command: Linux limits an argument to 128 KiB.
const MAX_CASES: usize = 5_000;

/// Returns the command that measures cases again; `cases` are ids or first digits of them, separated by commas.
pub(super) fn repeat_command(database: &Database, cache: CacheState, cases: &str) -> String {
    let host = match database.kind() {
        DataKind::Npu => "",
        DataKind::Rehearsal => " --host rehearsal",
    };
    let folder = quoted_argument(&database.folder().to_string_lossy());
    let state = if cache.is_hot() { "" } else { " --cache cold" };
    format!("npubench run --db {folder}{host} --case {cases}{state} --update all")
}

/// Returns the command that measures a collective again.
pub(super) fn repeat_sweep(database: &Database, collective: &CollectiveCase) -> String {
    let CollectiveCase { kind, message, ranks, tier, dtype, environment } = collective;
    let variables = hccl_variables(environment).into_iter();
    let variables: String =
        variables.map(|(name, value)| format!("{name}={} ", quoted_argument(&value))).collect();
    let host = match database.kind() {
        DataKind::Npu => "",
        DataKind::Rehearsal => " --host rehearsal",
    };
    let folder = quoted_argument(&database.folder().to_string_lossy());
    let dtype = dtype.torch_name().unwrap_or_default();
    format!(
        "{variables}npubench comm run --db {folder}{host} --ops {kind} --ranks {ranks} --tiers {tier} --dtypes {dtype} \
         --sizes {message} --update all"
    )
}

/// Returns the commands that measure cases again, none without a case.
pub(crate) fn repeat_commands(database: &Database, cache: CacheState, cases: &[CaseId]) -> Vec<String> {
    let ids: Vec<&str> = cases.iter().map(CaseId::as_str).collect();
    ids.chunks(MAX_CASES).map(|chunk| repeat_command(database, cache, &chunk.join(","))).collect()
}

/// Returns a text as an argument of a shell.
pub(crate) fn quoted_argument(text: &str) -> String {
    let is_plain = !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+@=,%:".contains(&byte));
    if is_plain { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}
