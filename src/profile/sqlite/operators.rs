//! `PYTORCH_API`: what the host called, with the shapes of the arguments.

use std::path::Path;

use super::{
    super::ProfileError,
    open::{database_error, open},
    schema::Schema,
};

/// Gives name and input shapes of every operator that has some to `visit`. Nothing where the host was not
/// recorded.
pub(in super::super) fn for_each_operator(
    file: &Path,
    mut visit: impl FnMut(&str, &str),
) -> Result<(), ProfileError> {
    let connection = open(file)?;
    let sql = |source| database_error(file, source);
    let table = |name| Schema::of(&connection, name).map_err(sql);
    let (Some(calls), Some(strings)) = (table("PYTORCH_API")?, table("STRING_IDS")?) else { return Ok(()) };
    let [Some(name), Some(shapes)] = ["name", "inputShapes"].map(|name| calls.column(name)) else {
        return Ok(());
    };
    let [Some(id), Some(value)] = ["id", "value"].map(|name| strings.column(name)) else { return Ok(()) };
    // Names first: an id stands for each distinct one, and few are of interest.
    let names = format!("SELECT {id}, {value} FROM {} WHERE {value} LIKE '%attention%'", strings.table());
    let mut names = connection.prepare(&names).map_err(sql)?;
    let texts = format!(
        "SELECT s.{value} FROM {} c JOIN {} s ON s.{id} = c.{shapes} WHERE c.{name} = ?1",
        calls.table(),
        strings.table()
    );
    let mut texts = connection.prepare(&texts).map_err(sql)?;
    let mut rows = names.query([]).map_err(sql)?;
    while let Some(row) = rows.next().map_err(sql)? {
        let (id, name): (i64, String) = match (row.get(0), row.get(1)) {
            (Ok(id), Ok(name)) => (id, name),
            _ => continue,
        };
        let mut shapes = texts.query([id]).map_err(sql)?;
        while let Some(row) = shapes.next().map_err(sql)? {
            if let Ok(text) = row.get_ref(0).map_err(sql)?.as_str() {
                visit(&name, text);
            }
        }
    }
    Ok(())
}
