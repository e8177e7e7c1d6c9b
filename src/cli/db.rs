//! `npubench db`: what is done to a database as a whole.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Failure, options::KindWord};
use crate::{
    exit::Exit,
    report::print_data,
    store::{Database, copy_shapes},
};

/// Works on a database as a whole
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Copy(CopyOptions),
}

/// Copies the shapes of a database into a new folder and leaves its measurements behind
///
/// What production profiles measured is copied with the shapes. Use it to rehearse a run on real shapes
/// without touching the real rows.
#[derive(Debug, Args)]
pub(super) struct CopyOptions {
    /// The database
    #[arg(value_name = "DIR")]
    source: PathBuf,
    /// The new folder, which must not exist
    #[arg(value_name = "NEW")]
    target: PathBuf,
    /// Kind of the new database
    #[arg(long, value_enum)]
    kind: KindWord,
}

pub(super) fn run(command: &Command) -> Result<Exit, Failure> {
    let Command::Copy(options) = command;
    let source = Database::open(&options.source)?;
    let rows = copy_shapes(&source, &options.target, options.kind.into())?;
    print_data(&format!("{rows} rows copied into {}\n", options.target.display()));
    Ok(Exit::Done)
}
