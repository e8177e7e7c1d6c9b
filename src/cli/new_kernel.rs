//! `npubench new-kernel`: a first entry of the catalogue.

use std::{fs, path::PathBuf};

use clap::Args;

use super::options::{AssetOptions, python_program};
use crate::{
    catalogue::{Catalogue, scaffold_entry},
    database::{Database, row_cases},
    domain::KernelName,
    exit::ExitStatus,
    report::{print_data, print_note},
    session::CommandError,
    vendor_check::schemas,
};

/// Starts an entry of the catalogue from a kernel's rows, and from the schema of the function that launches it
///
/// Prints it, or writes it where it is found at once: `--assets my-assets` puts it into
/// `my-assets/op_replay/<Kernel>.yaml`. What is marked TODO is yours; docs/adding-a-kernel.md explains every key.
#[derive(Debug, Args)]
pub(super) struct NewKernelOptions {
    /// The kernel, as the profiler names it
    #[arg(value_name = "KERNEL")]
    kernel: String,
    /// Database that has rows of it
    #[arg(long, value_name = "DIR")]
    db: Option<PathBuf>,
    /// The Python function that launches it, such as `torch_npu.npu_swiglu`
    #[arg(long, value_name = "PATH")]
    api: Option<String>,
    /// Its schema; asked of `--python` where not given
    #[arg(long, value_name = "SCHEMA")]
    schema: Option<String>,
    /// Python that has torch and torch_npu
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: String,
    #[command(flatten)]
    assets: AssetOptions,
}

pub(super) fn run(options: &NewKernelOptions) -> Result<ExitStatus, CommandError> {
    let kernel = KernelName::new(&options.kernel)?;
    if let Some(entry) = Catalogue::load(&options.assets.load_where_there()?)?.entry(&kernel) {
        return Err(CommandError::bad_input(
            format!("`{kernel}` has an entry: {}", entry.file.display()),
            "copy it into the folder of `--assets` to change it",
        ));
    }
    let mut cases = Vec::new();
    if let Some(folder) = &options.db {
        let table = Database::open(folder)?.kernel_csv(&kernel)?;
        cases.extend(row_cases(&kernel, &table)?.into_iter().filter_map(|row| row.case.ok()));
        if cases.is_empty() {
            return Err(CommandError::bad_input(
                format!("`{}` has no rows of `{kernel}`", folder.display()),
                "ingest a profile that holds the kernel, or leave `--db` out",
            ));
        }
    }
    let schema = match (&options.schema, &options.api) {
        (Some(schema), _) => Some(schema.clone()),
        (None, Some(api)) => Some(schema_of(&python_program(&options.python)?, api)?),
        (None, None) => None,
    };
    let text = scaffold_entry(&kernel, &cases, options.api.as_deref(), schema.as_deref());
    let Some(folder) = &options.assets.assets else {
        print_data(&text);
        return Ok(ExitStatus::Done);
    };
    let folder = folder.join("op_replay");
    let path = folder.join(format!("{}.yaml", kernel.file_stem()));
    fs::create_dir_all(&folder).and_then(|()| fs::write(&path, text)).map_err(|error| {
        CommandError::bad_input(
            format!("cannot write `{}`: {error}", path.display()),
            "check the folder's permissions",
        )
    })?;
    print_note(&format!("{}: complete what is marked TODO", path.display()));
    Ok(ExitStatus::Done)
}

/// The schema of a function by its last word; several overloads are listed.
fn schema_of(python: &str, api: &str) -> Result<String, CommandError> {
    let function = api.rsplit('.').next().unwrap_or(api);
    let mut found = schemas(python, function)?;
    match (found.pop(), found.is_empty()) {
        (Some(only), true) => Ok(only),
        (None, _) => Err(CommandError::bad_input(
            format!("`{python}` has no operator called `{function}`"),
            "check the name given with `--api`, or give `--schema`",
        )),
        (Some(last), false) => {
            found.push(last);
            Err(CommandError::bad_input(
                format!("`{function}` has several schemas:\n{}", found.join("\n")),
                "give one of them with `--schema`",
            ))
        }
    }
}
