//! `npubench new-kernel`: generates the first version of a catalogue entry.

use super::prelude::*;
use crate::{
    database::row_cases, kernel::entry_scaffold::scaffold_entry, measure::vendor_check::operator_schemas,
    show::progress::WaitingLine,
};

/// Generates a catalogue entry from a kernel's rows and from the schema of the function that launches it
///
/// Prints the entry, or writes it: `--assets my-assets` writes `my-assets/op_replay/<Kernel>.yaml`, which the other
/// commands read with the same option. Complete the lines marked TODO; docs/adding-a-kernel.md explains every key.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench new-kernel npu_swiglu")]
pub(super) struct NewKernelOptions {
    /// Name of the kernel in the profiler
    #[arg(value_name = "KERNEL")]
    kernel: String,
    /// Database with rows of the kernel
    #[arg(long, value_name = "DIR", env = DATABASE_VARIABLE)]
    db: Option<PathBuf>,
    /// Python function that launches the kernel, such as `torch_npu.npu_swiglu`
    #[arg(long, value_name = "PATH")]
    api: Option<String>,
    /// Schema of the function; by default that of the torch_npu of `--python`
    #[arg(long, value_name = "SCHEMA")]
    schema: Option<String>,
    #[command(flatten)]
    python: PythonOption,
    #[command(flatten)]
    assets: AssetOptions,
}

pub(super) fn run(options: &NewKernelOptions) -> Result<ExitStatus, CommandError> {
    let kernel = KernelName::new(&options.kernel)?;
    if let Some(entry) = Catalogue::load(&options.assets.load_or_embedded()?)?.entry(&kernel) {
        return Err(CommandError::bad_input(
            format!("`{kernel}` already has an entry: {}", entry.file.display()),
            "copy it into the folder given with `--assets` to change it",
        ));
    }
    let mut cases = Vec::new();
    if let Some(folder) = &options.db {
        let table = Database::open(folder)?.kernel_csv(&kernel)?;
        cases.extend(row_cases(&kernel, &table)?.into_iter().filter_map(|row| row.case.ok()));
        if cases.is_empty() {
            return Err(CommandError::bad_input(
                format!("`{}` has no rows of `{kernel}`", folder.display()),
                "ingest a profile that contains the kernel, or remove `--db`",
            ));
        }
    }
    let schema = match (&options.schema, &options.api) {
        (Some(schema), _) => Some(schema.clone()),
        (None, Some(api)) => Some(schema_of(&options.python.program()?, api)?),
        (None, None) => None,
    };
    let text = scaffold_entry(&kernel, &cases, options.api.as_deref(), schema.as_deref());
    let Some(folder) = &options.assets.assets else {
        print_data(&text);
        return Ok(ExitStatus::Done);
    };
    let folder = folder.join("op_replay");
    let path = folder.join(format!("{}.yaml", kernel.file_stem()));
    let written = fs::create_dir_all(&folder).and_then(|()| fs::write(&path, text));
    written.map_err(CommandError::io("write", &path, "check the folder's permissions"))?;
    print_note(&format!("{}: complete the lines marked TODO", path.display()));
    Ok(ExitStatus::Done)
}

fn schema_of(python: &str, api: &str) -> Result<String, CommandError> {
    let function = api.rsplit('.').next().unwrap_or(api);
    let waiting = WaitingLine::on_stderr(&format!("torch_npu of {python}"));
    let found = operator_schemas(python, function)?;
    drop(waiting);
    let (problem, hint) = match &found[..] {
        [only] => return Ok(only.clone()),
        [] => (
            format!("`{python}` has no operator `{function}`"),
            "check the name given with `--api`, or give `--schema`",
        ),
        several => (
            format!("`{function}` has several schemas:\n{}", several.join("\n")),
            "give one of these with `--schema`",
        ),
    };
    Err(CommandError::bad_input(problem, hint))
}
