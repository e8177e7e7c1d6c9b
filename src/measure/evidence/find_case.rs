//! Search for a case by its id, the first digits of it, or a row of a table.

use std::{
    cmp::Reverse,
    path::{Path, PathBuf},
};

use crate::{
    base::{command_error::Failure, shell_argument::quoted_path},
    database::{
        Database, DatabaseError, RowCase,
        ledger::{KnownCase, Ledger},
        row_cases,
    },
    kernel::KernelName,
};

/// Maximum number of cases in a message.
const MAX_LISTED: usize = 5;

#[derive(Debug, thiserror::Error)]
pub(crate) enum CaseLookupError {
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error("`{text}` is no id of a case and no row of a table")]
    NoId { text: String },
    #[error("no case of this database has an id that begins with `{text}`")]
    NoCase { text: String, nearest: Vec<String>, folder: PathBuf },
    #[error("the ids of {} cases begin with `{text}`", cases.len())]
    Ambiguous { text: String, cases: Vec<String> },
    #[error("{table} has no row in line {line}")]
    NoRow { table: String, line: u64, last: u64 },
    #[error("{table}:{line} is not a case: {problem}")]
    NotACase { table: String, line: u64, problem: String, folder: PathBuf },
}

impl Failure for CaseLookupError {
    fn hint(&self) -> String {
        match self {
            Self::Database(error) => error.hint(),
            Self::NoId { .. } => {
                "give 16 hexadecimal digits of the column `MicroBench Case`, their first ones, or a row \
                                  such as `SwiGlu.csv:2`"
                    .to_owned()
            }
            Self::NoCase { nearest, folder, .. } if nearest.is_empty() => format!(
                "the database has no cases: `npubench ingest PROFILE --db {}` fills it",
                quoted_path(folder)
            ),
            Self::NoCase { nearest, .. } => format!("the nearest are {}", nearest.join(", ")),
            Self::Ambiguous { cases, .. } => {
                let more = cases.len().saturating_sub(MAX_LISTED);
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                format!("give more digits: {}{more}", cases[..cases.len().min(MAX_LISTED)].join(", "))
            }
            Self::NoRow { last, .. } => format!("its last row is in line {last}; line 1 is the header"),
            Self::NotACase { folder, .. } => {
                format!("`npubench db check {}` lists such rows", quoted_path(folder))
            }
        }
    }
}

/// Finds the case of `text`: an id, the first digits of one, or `TABLE.csv:LINE`. Fails with [`CaseLookupError`].
pub(crate) fn find_case(
    database: &Database,
    ledger: Option<&Ledger>,
    text: &str,
) -> Result<KnownCase, CaseLookupError> {
    if let Some((table, line)) = text.rsplit_once(':')
        && let Ok(line) = line.parse()
    {
        return case_of_row(database, table, line);
    }
    let digits = text.to_ascii_lowercase();
    if digits.is_empty() || digits.len() > 16 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(CaseLookupError::NoId { text: text.to_owned() });
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
        let cases = found.iter().map(describe_case).collect();
        return Err(CaseLookupError::Ambiguous { text: digits, cases });
    }
    if let Some(found) = found.pop() {
        return Ok(found);
    }
    let all = all_row_cases(database)?.into_iter().chain(in_ledger("")?);
    let (nearest, folder) = (nearest_cases(all.collect(), &digits), database.folder().to_owned());
    Err(CaseLookupError::NoCase { nearest, text: digits, folder })
}

fn describe_case(known: &KnownCase) -> String {
    format!("{} ({})", known.case, known.kernel)
}

/// Returns the cases whose ids share the most digits with a text.
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
fn case_of_row(database: &Database, table: &str, line: u64) -> Result<KnownCase, CaseLookupError> {
    let name = Path::new(table).file_name().unwrap_or_default().to_string_lossy();
    let stem = name.strip_suffix(".csv").unwrap_or(&name);
    let no_id = || CaseLookupError::NoId { text: format!("{table}:{line}") };
    let kernel = KernelName::from_file_stem(stem).ok_or_else(no_id)?;
    if !database.kernels_and_collectives()?.contains(&kernel) {
        return Err(no_id());
    }
    let rows = row_cases(&kernel, &database.kernel_csv(&kernel)?)?;
    let last = rows.last().map_or(1, |row| row.line);
    let table = format!("{stem}.csv");
    match rows.iter().find(|row| row.line == line) {
        Some(row) => known_case(row).map_err(|problem| CaseLookupError::NotACase {
            table,
            line,
            problem,
            folder: database.folder().to_owned(),
        }),
        None => Err(CaseLookupError::NoRow { table, line, last }),
    }
}
