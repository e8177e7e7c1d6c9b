//! `npubench modules`: time of a recorded run by module of the model, and against a database.

use super::prelude::*;
use crate::{
    answer::{
        coverage::{join_kernels, missing_kernels_csv},
        recorded_runs::{modules_of_run, nothing_on_device, peak_of_run},
    },
    profile::timeline::{MODULE_DOMAIN, ModuleTable, PeakRate, module_table},
    show::run_modules::{ModulesReport, modules_csv, modules_records, modules_text, modules_workbook},
};

const SNIPPET: &str = include_str!("../../templates/mark_modules.py");

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ModulesFormat {
    /// Tables of modules and of the operators with the most time
    Plain,
    /// All rows, with the columns of the vendor's module statistic
    Csv,
    /// JSON Lines: one object per line
    Json,
}

/// Shows the time of a recorded model by module, and how much slower its kernels are in the model than alone
///
/// Modules are ranges of mstx in the domain `Module`, or the modules that torch recorded; `--snippet` prints the lines
/// that mark them. What lies outside of all modules has rows of its own, so that all times add up. With `--db`, each
/// kernel is compared with the database's duration. docs/timeline.md has the rules.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench modules --snippet > mark_modules.py
  npubench modules profiles/worker0_ascend_pt
  npubench modules profiles/ --db a3 --missing missing.csv
  npubench modules profiles/ --format csv > modules.csv")]
pub(super) struct ModulesOptions {
    /// Profiles: folders of one rank or of several, databases, traces or kernel tables
    #[arg(value_name = "PROFILE", required_unless_present = "snippet")]
    profiles: Vec<PathBuf>,
    /// Domain of mstx with the ranges of modules
    #[arg(long, value_name = "NAME", default_value = MODULE_DOMAIN)]
    domain: String,
    /// Database with durations of the kernels alone
    #[arg(long, value_name = "DIR", env = DATABASE_VARIABLE)]
    db: Option<PathBuf>,
    /// Writes the kernels without a row in the database as a workload for `coverage` and `fill`
    #[arg(long, value_name = "FILE", requires = "db")]
    missing: Option<PathBuf>,
    /// Peak of the matrix units in TFLOPS, for the utilisation; by default by number of cores and clock of the profile
    #[arg(long, value_name = "TFLOPS", conflicts_with = "device_profile", value_parser = parse_tflops)]
    peak: Option<f64>,
    /// Device profile with the peak of the matrix units by type
    #[arg(long, value_name = "NAME")]
    device_profile: Option<String>,
    /// Number of operators and kernels in a table
    #[arg(long, value_name = "N", default_value_t = 20)]
    rows: usize,
    /// Output format
    #[arg(long, value_enum, default_value = "plain")]
    format: ModulesFormat,
    #[command(flatten)]
    wide: WideOption,
    /// Writes all rows as a workbook, too
    #[arg(long, value_name = "FILE")]
    xlsx: Option<PathBuf>,
    /// Prints the lines of Python that mark modules and arguments of attention in a script
    #[arg(long, conflicts_with_all = ["profiles", "missing", "xlsx"])]
    snippet: bool,
    #[command(flatten)]
    assets: AssetOptions,
}

fn parse_tflops(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(rate),
        _ => Err("give a number above 0, such as 294.9".to_owned()),
    }
}

pub(super) fn run(options: &ModulesOptions) -> Result<ExitStatus, CommandError> {
    if options.snippet {
        print_data(SNIPPET);
        return Ok(ExitStatus::Done);
    }
    let file = |path: &Option<PathBuf>, extension| {
        path.as_ref().map(|path| ResultFile::new(path, options.db.as_deref(), extension)).transpose()
    };
    let (xlsx, missing) = (file(&options.xlsx, "xlsx")?, file(&options.missing, "csv")?);
    let (assets, catalogue) = options.assets.load_catalogue()?;
    let profile =
        options.device_profile.as_deref().map(|name| DeviceProfile::load(&assets, name)).transpose()?;
    let (runs, notes) = read_all_runs(&options.profiles)?;
    notes.iter().for_each(|note| print_note(note));
    if runs.iter().all(|run| run.hull().is_none()) {
        return Err(nothing_on_device());
    }
    let inputs = || runs.iter().flat_map(|run| &run.files).map(PathBuf::as_path);
    let apart = |file: Option<ResultFile>| file.map(|file| file.apart_from(inputs())).transpose();
    let (xlsx, missing) = (apart(xlsx)?, apart(missing)?);
    let tables: Vec<ModuleTable> = runs.iter().map(|run| module_table(run, &options.domain)).collect();
    let database = options.db.as_ref().map(|folder| LookupDatabase::open(folder, None)).transpose()?;
    if let Some(database) = &database {
        note_simulated(database.kind);
    }
    let join = |database| join_kernels(&runs, &|_| true, database, &catalogue);
    let in_model = database.as_ref().map(join).transpose()?;
    let peaks: Vec<Option<PeakRate>> =
        runs.iter().map(|run| peak_of_run(run, options.peak, profile.as_ref())).collect();
    let of_runs = runs.iter().zip(&tables).zip(&peaks).enumerate();
    let of_runs = of_runs.map(|(number, ((run, table), peak))| {
        modules_of_run(number, run, table, peak.as_ref(), &catalogue, in_model.as_ref())
    });
    let report = ModulesReport { runs: of_runs.collect(), in_model: in_model.as_ref(), rows: options.rows };
    if tables.iter().all(|table| table.ranges == 0) {
        print_note(&format!(
            "no range of a module is recorded in the domain `{}`: all time is outside of modules; `npubench modules \
             --snippet` prints the lines that mark them",
            options.domain
        ));
    }
    if let (Some(file), Some(database), Some(in_model)) = (missing, &database, &in_model) {
        let (path, missing) = (file.path.display(), in_model.missing().len());
        if missing == 0 {
            print_note(&format!("no kernel is missing in the database: `{path}` is not written"));
        } else {
            let table = missing_kernels_csv(in_model)
                .map_err(|error| CommandError::bad_input(error.to_string(), "report this as a bug"))?;
            file.write(&table)?;
            print_note(&format!(
                "wrote `{path}` with {}: `npubench fill --db {database} --workload {workload}{}` measures those that can be \
                 launched, `npubench coverage --db {database} --workload {workload}` has what the others need",
                format_count(missing, "kernel"),
                database.kind.host_option(),
                database = quoted_path(options.db.as_deref().unwrap_or(&file.path)),
                workload = quoted_path(&file.path)
            ));
        }
    }
    if let Some(file) = xlsx {
        let book = modules_workbook(&report).map_err(|error| {
            CommandError::bad_input(format!("cannot create the workbook: {error}"), "use `--format csv`")
        })?;
        file.write(&book)?;
        print_note(&format!("wrote `{}`", file.path.display()));
    }
    print_data(&match options.format {
        ModulesFormat::Plain => modules_text(&report, options.wide.width()),
        ModulesFormat::Csv => modules_csv(&report),
        ModulesFormat::Json => json_lines(modules_records(&report)),
    });
    Ok(ExitStatus::Done)
}
