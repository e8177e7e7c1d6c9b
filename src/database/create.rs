//! Creation of database folders: atomic, and exclusive among processes.

use std::{
    collections::BTreeSet,
    fs::{self, File, Permissions},
    io,
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use super::{
    Database, DatabaseError,
    folder::{DATABASE_FILE, STATE_FOLDER, has_database_files, is_profile},
};
use crate::{
    base::{
        files::{
            atomic::sync_folder,
            scratch::{DRAFT, ScratchFolder, remove_abandoned},
            stale::is_empty_or_drafts,
            write_atomic,
        },
        printable::is_harmful,
    },
    database::database_file::DatabaseFile,
    kernel::DataKind,
};

/// Refuses a folder whose path msprof does not accept, by the list of its argument check; `:` separates the entries of `PATH` on the
/// rehearsal host.
pub(crate) fn check_path(folder: &Path, kind: DataKind) -> Result<(), DatabaseError> {
    const REFUSED: &str = "'\"\\%><|&$;`";
    let is_refused = |c: &char| {
        // What is not UTF-8 is shown by this character.
        let is_odd = c.is_control() || is_harmful(*c) || *c == char::REPLACEMENT_CHARACTER;
        is_odd || REFUSED.contains(*c) || (kind == DataKind::Rehearsal && *c == ':')
    };
    let found: BTreeSet<char> = folder.to_string_lossy().chars().filter(is_refused).collect();
    let names = found.iter().map(|c| match c {
        &char::REPLACEMENT_CHARACTER => "bytes that are not UTF-8".to_owned(),
        c => format!("{c:?}"),
    });
    let names = names.collect::<Vec<_>>().join(", ");
    match found.is_empty() {
        true => Ok(()),
        false => Err(DatabaseError::RefusedPath { path: folder.to_owned(), found: names }),
    }
}

/// Refuses a place for a new database: by its path, and inside of another database. Shards are in the state folder of theirs.
pub(crate) fn check_new_folder(folder: &Path, kind: DataKind) -> Result<(), DatabaseError> {
    let path = std::path::absolute(folder).map_err(DatabaseError::io("find", folder))?;
    let resolved = path.ancestors().find_map(|place| Some((place, place.canonicalize().ok()?)));
    let Some((place, resolved)) = resolved else { return check_path(&path, kind) };
    let path = resolved.join(path.strip_prefix(place).unwrap_or(&path));
    check_path(&path, kind)?;
    let is_database =
        |place: &&Path| [DATABASE_FILE, STATE_FOLDER].iter().any(|name| place.join(name).exists());
    let outer = path.ancestors().skip(1).find(is_database);
    match outer.filter(|outer| !path.starts_with(outer.join(STATE_FOLDER))) {
        Some(outer) => Err(DatabaseError::Nested { path: folder.to_owned(), outer: outer.to_owned() }),
        None => Ok(()),
    }
}

impl Database {
    /// Returns true if a database can be created: the folder does not exist, or has no files of a database.
    pub fn is_new(folder: &Path) -> Result<bool, DatabaseError> {
        match fs::metadata(folder) {
            Ok(there) if !there.is_dir() => Err(DatabaseError::NotAFolder { path: folder.to_owned() }),
            _ if is_empty_or_drafts(folder) => Ok(true),
            _ if is_profile(folder) => Err(DatabaseError::Profile { path: folder.to_owned() }),
            _ => Ok(!has_database_files(folder)?),
        }
    }

    /// Creates a database folder atomically: `fill` writes files into a temporary folder that becomes the database when
    /// it is complete. If the folder appears in the meantime, nothing is created.
    pub fn create<T, E: From<DatabaseError>>(
        folder: &Path,
        file: &DatabaseFile,
        fill: impl FnOnce(&Path) -> Result<T, E>,
    ) -> Result<T, E> {
        let just_made = || DatabaseError::CreatedConcurrently { path: folder.to_owned() };
        check_new_folder(folder, file.kind)?;
        if !Self::is_new(folder)? {
            return Err(just_made().into());
        }
        // An existing folder is filled and not replaced: it may be another process's working directory.
        let is_there = folder.is_dir();
        let parent =
            folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let place = if is_there { folder } else { parent };
        fs::create_dir_all(place).map_err(DatabaseError::io("create", place))?;
        remove_abandoned(place, DRAFT);
        let draft = ScratchFolder::create_in(place, DRAFT).map_err(DatabaseError::io("write into", place))?;
        write_atomic(&draft.path().join(DATABASE_FILE), file.print().as_bytes())
            .map_err(DatabaseError::from)?;
        let filled = fill(draft.path())?;
        sync_folder(draft.path()).map_err(DatabaseError::from)?;
        if is_there {
            // Another creation in the same folder holds this lock until its files exist.
            let one_at_a_time = File::open(folder).map_err(DatabaseError::io("open", folder))?;
            let _ = one_at_a_time.lock();
            if has_database_files(folder)? {
                return Err(just_made().into());
            }
            move_files(draft.path(), folder)?;
            sync_folder(folder).map_err(DatabaseError::from)?;
            return Ok(filled);
        }
        let mode = Permissions::from_mode(0o777 & !current_umask());
        fs::set_permissions(draft.path(), mode)
            .map_err(DatabaseError::io("set the mode of", draft.path()))?;
        fs::rename(draft.path(), folder).map_err(|source| match source.kind() {
            io::ErrorKind::DirectoryNotEmpty
            | io::ErrorKind::AlreadyExists
            | io::ErrorKind::NotADirectory => just_made(),
            _ => DatabaseError::io("create", folder)(source),
        })?;
        // The folder was renamed and must not be removed.
        draft.keep();
        sync_folder(parent).map_err(DatabaseError::from)?;
        Ok(filled)
    }
}

/// Moves all files of a folder into another; if one cannot be moved, the moved ones are removed from the target.
fn move_files(from: &Path, to: &Path) -> Result<(), DatabaseError> {
    let mut moved = Vec::new();
    let result = fs::read_dir(from).and_then(|entries| {
        for entry in entries {
            let entry = entry?;
            let target = to.join(entry.file_name());
            fs::rename(entry.path(), &target)?;
            moved.push(target);
        }
        Ok(())
    });
    result.map_err(|source| {
        for file in &moved {
            let _ = fs::remove_file(file);
        }
        DatabaseError::io("write into", to)(source)
    })
}

fn current_umask() -> u32 {
    // umask(2) returns the mask only when setting it; /proc shows it without a change.
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o022)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_msprof_refuses_and_places_in_databases_are_refused_first() {
        use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};
        for kind in [DataKind::Npu, DataKind::Rehearsal] {
            assert!(check_new_folder(Path::new("/data/night run (2)/db-1"), kind).is_ok());
            for wrong in
                ["/data/a|b", "/data/$HOME", "/data/a;b", "/data/a\nb", "/data/it's", "/data/\u{202e}"]
            {
                assert!(check_new_folder(Path::new(wrong), kind).is_err(), "{wrong}");
            }
            let error = check_path(Path::new(OsStr::from_bytes(b"/data/$a\xff")), kind).expect_err("both");
            assert!(error.to_string().contains("'$', bytes that are not UTF-8"), "{error}");
        }
        assert!(check_path(Path::new("/data/a:b"), DataKind::Npu).is_ok());
        assert!(check_path(Path::new("/data/a:b"), DataKind::Rehearsal).is_err());
        let root = tempfile::tempdir().expect("a folder");
        make(&root.path().join("db"), || ()).expect("new");
        let error = make(&root.path().join("db/x/y"), || ()).expect_err("inside");
        assert!(matches!(error, DatabaseError::Nested { .. }), "{error}");
    }

    fn make(folder: &Path, meanwhile: impl FnOnce()) -> Result<(), DatabaseError> {
        Database::create(folder, &DatabaseFile::new(DataKind::Npu), |draft| {
            meanwhile();
            fs::write(draft.join("Add.csv"), "mine").map_err(DatabaseError::io("write", draft))
        })
    }

    #[test]
    fn concurrent_database_creation_fails_for_second_process() {
        for is_there in [false, true] {
            let root = tempfile::tempdir().expect("a folder");
            let folder = root.path().join("db");
            if is_there {
                fs::create_dir(&folder).expect("created");
            }
            let other = || {
                make(&folder, || ()).expect("nobody else was at it");
                fs::write(folder.join("Add.csv"), "theirs").expect("written");
            };
            let error = make(&folder, other).expect_err("it is there now");
            assert!(matches!(error, DatabaseError::CreatedConcurrently { .. }), "{error}");
            assert_eq!(fs::read_to_string(folder.join("Add.csv")).expect("there"), "theirs");
            let names: Vec<_> =
                fs::read_dir(&folder).expect("listed").map(|e| e.expect("one").file_name()).collect();
            assert_eq!(names.len(), 2, "{names:?}");
            assert_eq!(fs::read_dir(root.path()).expect("listed").count(), 1, "a draft is left");
        }
    }

    #[test]
    fn database_creation_refuses_file_path() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let error = make(file.path(), || ()).expect_err("a file");
        assert!(matches!(error, DatabaseError::NotAFolder { .. }), "{error}");
    }
}
