//! `PYTORCH_API`: calls of fused attention by the host, with the shapes of their arguments.

use std::path::Path;

use rusqlite::OptionalExtension as _;

use super::{
    open::{database_error, open_database},
    schema::TableSchema,
};
use crate::profile::ProfileError;

/// Visits name and input shapes of every distinct call. Without a record of the host there are no calls.
pub(in crate::profile) fn for_each_operator(
    file: &Path,
    mut visit: impl FnMut(&str, &str),
) -> Result<(), ProfileError> {
    let connection = open_database(file)?;
    let sql = |source| database_error(file, source);
    let table = |name| TableSchema::read_schema(&connection, name).map_err(sql);
    let (Some(calls), Some(strings)) = (table("PYTORCH_API")?, table("STRING_IDS")?) else { return Ok(()) };
    let [Some(name), Some(shapes)] = ["name", "inputShapes"].map(|name| calls.quoted_column(name)) else {
        return Ok(());
    };
    let [Some(id), Some(value)] = ["id", "value"].map(|name| strings.quoted_column(name)) else {
        return Ok(());
    };
    let (calls, strings) = (calls.quoted_name(), strings.quoted_name());
    // One pass over the names and one over the calls, because neither may be indexed; then the few distinct shapes.
    // Call stacks are most of the strings and contain such names too, but are long.
    let pairs = format!(
        "SELECT DISTINCT {name}, {shapes} FROM {calls} WHERE {name} IN (SELECT {id} FROM {strings} \
         WHERE length({value}) < 200 AND {value} LIKE '%npu\\_fused\\_infer\\_attention\\_score%' ESCAPE '\\')"
    );
    let mut pairs = connection.prepare(&pairs).map_err(sql)?;
    let text = format!("SELECT {value} FROM {strings} WHERE {id} = ?1");
    let mut text = connection.prepare(&text).map_err(sql)?;
    let mut text_of = |id: Option<i64>| -> Result<Option<String>, ProfileError> {
        let found = text.query_row([id], |row| row.get::<_, String>(0)).optional();
        // Shapes that are not text are ignored.
        found.or_else(|error| match error {
            rusqlite::Error::InvalidColumnType(..) => Ok(None),
            other => Err(sql(other)),
        })
    };
    let mut rows = pairs.query([]).map_err(sql)?;
    while let Some(row) = rows.next().map_err(sql)? {
        let id = |column| row.get_ref(column).map(|value| value.as_i64().ok()).map_err(sql);
        if let (Some(name), Some(shapes)) = (text_of(id(0)?)?, text_of(id(1)?)?) {
            visit(&name, &shapes);
        }
    }
    Ok(())
}
