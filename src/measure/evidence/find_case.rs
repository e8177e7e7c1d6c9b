//! Search for a case by its id, the first digits of it, or a row of a table; and the commands that measure cases again.

use std::{cmp::Reverse, path::Path};

use crate::{
    base::{
        command_error::CommandError,
        shell_argument::{quoted_argument, quoted_path},
    },
    database::{
        Database, DatabaseError, RowCase,
        ledger::{KnownCase, Ledger},
        row_cases,
    },
    kernel::{CacheState, CaseId, CollectiveCase, CommandSizes, KernelName, SweepCommand},
};

const MAX_LISTED: usize = 5;

/// Finds the case of `text`: an id, the first digits of one, or `TABLE.csv:LINE`.
pub(crate) fn find_case(
    database: &Database,
    ledger: Option<&Ledger>,
    text: &str,
) -> Result<KnownCase, CommandError> {
    if let Some((table, line)) = text.rsplit_once(':')
        && let Ok(line) = line.parse()
    {
        return case_of_row(database, table, line);
    }
    let digits = text.to_ascii_lowercase();
    if digits.is_empty() || digits.len() > 16 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(no_id(text));
    }
    let in_ledger = |prefix: &str| match ledger {
        Some(ledger) => ledger.cases_with_prefix(prefix).map_err(DatabaseError::from),
        None => Ok(Vec::new()),
    };
    let mut found = in_ledger(&digits)?;
    if digits.len() < 16 || found.is_empty() {
        let rows = all_row_cases(database)?.into_iter();
        found.extend(rows.filter(|row| row.case.as_str().starts_with(&digits)));
        found.sort_by(|one, other| one.case.cmp(&other.case));
        found.dedup_by(|one, other| one.case == other.case);
    }
    if found.len() > 1 {
        let listed: Vec<String> = found.iter().take(MAX_LISTED).map(describe_case).collect();
        let more = found.len() - listed.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        return Err(CommandError::bad_input(
            format!("the ids of {} cases begin with `{digits}`", found.len()),
            format!("give more digits: {}{more}", listed.join(", ")),
        ));
    }
    if let Some(found) = found.pop() {
        return Ok(found);
    }
    let all = all_row_cases(database)?.into_iter().chain(in_ledger("")?);
    let nearest = nearest_cases(all.collect(), &digits);
    Err(CommandError::bad_input(
        format!("no case of this database has an id that begins with `{digits}`"),
        match nearest.is_empty() {
            true => format!(
                "the database has no cases: `npubench ingest PROFILE --db {}` fills it",
                quoted_path(database.folder())
            ),
            false => format!("the nearest are {}", nearest.join(", ")),
        },
    ))
}

fn no_id(text: &str) -> CommandError {
    CommandError::bad_input(
        format!("`{text}` is no id of a case and no row of a table"),
        "give 16 hexadecimal digits of the column `MicroBench Case`, their first ones, or a row such as `SwiGlu.csv:2`",
    )
}

fn describe_case(known: &KnownCase) -> String {
    format!("{} ({})", known.case, known.kernel)
}

fn nearest_cases(mut all: Vec<KnownCase>, digits: &str) -> Vec<String> {
    all.sort_by_cached_key(|KnownCase { case, .. }| {
        let pairs = || case.as_str().bytes().zip(digits.bytes());
        let (distance, shared) =
            (pairs().filter(|(a, b)| a != b).count(), pairs().take_while(|(a, b)| a == b).count());
        (distance, Reverse(shared), case.clone())
    });
    all.dedup_by(|one, other| one.case == other.case);
    all.iter().take(3).map(describe_case).collect()
}

fn all_row_cases(database: &Database) -> Result<Vec<KnownCase>, DatabaseError> {
    let mut all = Vec::new();
    for kernel in database.kernels_and_collectives()? {
        let table = database.kernel_csv(&kernel)?;
        all.extend(row_cases(&kernel, &table)?.into_iter().filter_map(|row| known_case(&row).ok()));
    }
    Ok(all)
}

fn known_case(row: &RowCase) -> Result<KnownCase, String> {
    let case = row.case.as_ref().map_err(Clone::clone)?;
    let signature = case.signature();
    Ok(KnownCase { case: case.id(), kernel: case.kernel.to_string(), signature })
}

/// Finds the case of a row, such as `db/SwiGlu.csv:2` or `SwiGlu:2`.
fn case_of_row(database: &Database, table: &str, line: u64) -> Result<KnownCase, CommandError> {
    let name = Path::new(table).file_name().unwrap_or_default().to_string_lossy();
    let stem = name.strip_suffix(".csv").unwrap_or(&name);
    let kernel = KernelName::from_file_stem(stem);
    let known = database.kernels_and_collectives()?;
    let Some(kernel) = kernel.filter(|kernel| known.contains(kernel)) else {
        return Err(no_id(&format!("{table}:{line}")));
    };
    let rows = row_cases(&kernel, &database.kernel_csv(&kernel)?)?;
    let Some(row) = rows.iter().find(|row| row.line == line) else {
        let last = rows.last().map_or(1, |row| row.line);
        return Err(CommandError::bad_input(
            format!("{stem}.csv has no row in line {line}"),
            format!("its last row is in line {last}; line 1 is the header"),
        ));
    };
    known_case(row).map_err(|problem| {
        CommandError::bad_input(
            format!("{stem}.csv:{line} is not a case: {problem}"),
            format!("`npubench db check {}` lists such rows", quoted_path(database.folder())),
        )
    })
}

/// Maximum number of cases of a command: Linux limits an argument to 128 KiB.
const MAX_CASES: usize = 5_000;

pub(super) fn repeat_command(database: &Database, cache: CacheState, cases: &str) -> String {
    let host = database.kind().host_option();
    let folder = quoted_argument(&database.folder().to_string_lossy());
    let state = if cache.is_hot() { "" } else { " --cache cold" };
    format!("npubench run --db {folder}{host} --case {cases}{state} --update all")
}

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
    match hosts {
        [first, _, ..] => format!(
            "{command} --shared DIR --nnodes {} --node-rank 0 --master-addr {} # on {first}, and on each other node with its --node-rank",
            hosts.len(),
            quoted_argument(first)
        ),
        _ => command.to_string(),
    }
}

pub(crate) fn repeat_commands(database: &Database, cache: CacheState, cases: &[CaseId]) -> Vec<String> {
    let ids: Vec<&str> = cases.iter().map(CaseId::as_str).collect();
    ids.chunks(MAX_CASES).map(|chunk| repeat_command(database, cache, &chunk.join(","))).collect()
}
