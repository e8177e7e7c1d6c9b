//! Launches of an attempt in one row of the ledger: see ledger.sql for the columns.

use rusqlite::{Connection, Error, Row, Transaction, params, types::Type};

use super::values::{Json, unreadable_rows};
use crate::kernel::{Launch, Nanos, NoKernelDuration, Verdict};

const WARM_UP: u8 = b'w';
const ACCEPTED: u8 = b'a';
const OUTLIER: u8 = b'o';

/// Stores the launches of the attempt with this key, numbered from 0; an attempt without launches has no row.
pub(super) fn insert_launches(
    tx: &Transaction<'_>,
    attempt: i64,
    launches: &[Launch],
) -> rusqlite::Result<()> {
    let Some(first) = launches.iter().map(|launch| launch.start).min() else { return Ok(()) };
    let state = |launch: &Launch| match launch {
        Launch { is_measured: false, .. } => char::from(WARM_UP),
        Launch { is_accepted: true, .. } => char::from(ACCEPTED),
        Launch { .. } => char::from(OUTLIER),
    };
    let states: String = launches.iter().map(state).collect();
    let list = |number: fn(&Launch, Nanos) -> i64| {
        let numbers: Vec<i64> = launches.iter().map(|launch| number(launch, first)).collect();
        Json(numbers)
    };
    tx.prepare_cached(
        "INSERT INTO launch_lists (attempt, states, start_ns, offsets_ns, durations_ns) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute(params![
        attempt,
        states,
        first,
        list(|launch, first| launch.start.0 - first.0),
        list(|launch, _| launch.duration.0)
    ])?;
    Ok(())
}

/// Reads the launches of an attempt from the four columns that start with `states`; none from NULL.
pub(super) fn read_launches(row: &Row<'_>, column: usize) -> rusqlite::Result<Vec<Launch>> {
    let Some(states) = row.get_ref(column)?.as_bytes_or_null()? else { return Ok(Vec::new()) };
    let first: i64 = row.get(column + 1)?;
    let offsets = read_list(row, column + 2, states.len())?;
    let durations = read_list(row, column + 3, states.len())?;
    let launches = states.iter().zip(offsets.into_iter().zip(durations)).zip(0..);
    launches
        .map(|((&state, (offset, duration)), number)| {
            let [is_measured, is_accepted] = state_flags(state, column)?;
            let (start, duration) = (Nanos(first.saturating_add(offset)), Nanos(duration));
            Ok(Launch { number, is_measured, is_accepted, start, duration })
        })
        .collect()
}

/// Reads the accepted samples of an attempt in nanoseconds, and the number of its outliers, from the columns `states` and
/// `durations_ns`.
pub(super) fn read_samples(row: &Row<'_>, column: usize) -> rusqlite::Result<(Vec<i64>, usize)> {
    let Some(states) = row.get_ref(column)?.as_bytes_or_null()? else { return Ok((Vec::new(), 0)) };
    let durations = read_list(row, column + 1, states.len())?;
    // The exact capacity: a ledger has millions of samples.
    let mut accepted = Vec::with_capacity(states.iter().filter(|state| **state == ACCEPTED).count());
    let mut outliers = 0;
    for (&state, duration) in states.iter().zip(durations) {
        match state_flags(state, column)? {
            [true, true] => accepted.push(duration),
            [true, false] => outliers += 1,
            [false, _] => {}
        }
    }
    Ok((accepted, outliers))
}

/// Returns the flags of a launch in this state: measured, accepted.
fn state_flags(state: u8, column: usize) -> rusqlite::Result<[bool; 2]> {
    match state {
        WARM_UP => Ok([false, false]),
        ACCEPTED => Ok([true, true]),
        OUTLIER => Ok([true, false]),
        _ => Err(unreadable(column, format!("unknown state {:?} of a launch", char::from(state)))),
    }
}

fn read_list(row: &Row<'_>, column: usize, launches: usize) -> rusqlite::Result<Vec<i64>> {
    let text = row.get_ref(column)?.as_bytes()?;
    let list: Vec<i64> = serde_json::from_slice(text)
        .map_err(|error| unreadable(column, format!("a list of an attempt's launches: {error}")))?;
    if list.len() == launches {
        return Ok(list);
    }
    Err(unreadable(column, format!("a list of {} values for {launches} launches", list.len())))
}

fn unreadable(column: usize, problem: String) -> Error {
    Error::FromSqlConversionFailure(column, Type::Text, problem.into())
}

pub(super) fn unreadable_launches(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let sql = "SELECT l.states, l.start_ns, l.offsets_ns, l.durations_ns, l.attempt, a.verdict
               FROM launch_lists l LEFT JOIN attempts a USING (attempt)";
    let describe = |row: &Row<'_>| Ok(format!("launches of attempt {}", row.get::<_, i64>(4)?));
    let read = |row: &Row<'_>| {
        let launches = read_launches(row, 0)?;
        let verdict: Option<String> = row.get(5)?;
        let counts = verdict.is_some_and(|verdict| verdict.parse().is_ok_and(Verdict::has_samples));
        let wrong =
            launches.iter().find(|launch| launch.is_accepted && !launch.duration.is_kernel_duration());
        match wrong.filter(|_| counts) {
            Some(Launch { duration, .. }) => {
                Err(unreadable(3, format!("{:e} us, which {NoKernelDuration}", duration.micros())))
            }
            None => Ok(launches),
        }
    };
    unreadable_rows(connection, sql, read, describe)
}
