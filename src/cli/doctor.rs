//! `npubench doctor`: checks whether this host can measure.

use super::{pause::pause_message, prelude::*};
use crate::{
    base::process::use_short_limits,
    kernel::LogicalDeviceId,
    measure::{
        device::{
            self, CheckStatus, DeviceNumbering, DoctorCheck, LeaseFolder, SoftwareLocations,
            check_installation, check_versions, custom_operators, diagnosis, npu_smi::NpuChip,
            operator_environment,
        },
        device_choice::{lease_free_devices, soc_contradiction},
        engine::{PausedDevices, pause_file},
        vendor_check::{installed_software, package_folders, torch_devices},
    },
    show::progress::WaitingLine,
};

/// Checks whether this host can measure, and lists what is missing with a fix
///
/// Checks devices, CANN, msprof, torch_npu, custom operators, umask and disk, and changes nothing. Ends with 4 if a
/// requirement of every run is missing.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench doctor --db a3")]
pub(super) struct DoctorOptions {
    /// Folder whose disk is checked
    #[arg(long, value_name = "DIR", env = DATABASE_VARIABLE, default_value = ".")]
    db: PathBuf,
    #[command(flatten)]
    python: PythonOption,
    #[command(flatten)]
    leases: LeaseOption,
    #[command(flatten)]
    common: CommonOptions<OutputOptions>,
}

pub(super) fn run(options: &DoctorOptions) -> Result<ExitStatus, CommandError> {
    let (assets, catalogue) = options.common.assets.load_catalogue()?;
    let scratch = ScratchFolder::create().map_err(CommandError::no_temporary_folder)?;
    let variable = |name: &str| env::var(name).ok();
    // A program that hangs must not keep the other checks from the user.
    use_short_limits();
    let waiting = WaitingLine::on_stderr("npu-smi");
    let host = device::query_host_devices(&[], scratch.path());
    waiting.wait_for(&options.python.python);
    let mut points = vec![diagnosis::check_devices(&host)];
    let packages = custom_operators(variable, &package_folders(&options.python.python, "vllm_ascend"));
    let software = SoftwareLocations::of_host(variable).read_software(&packages);
    points.extend(check_installation(variable, software.cann.as_deref(), scratch.path()));
    points.push(diagnosis::check_driver(&software));
    points.push(diagnosis::check_visible_devices(variable));
    let python = &options.python.python;
    let installed = installed_software(python);
    let torch_npu = installed.as_ref().ok().map(|versions| versions.torch_npu.clone());
    points.push(match installed {
        Ok(versions) => DoctorCheck::passed(
            "torch_npu",
            format!("torch {}, torch_npu {} ({python})", versions.torch, versions.torch_npu),
        ),
        Err(error) => DoctorCheck::missing(
            "torch_npu",
            error.message,
            "install torch_npu, or give the Python that has it with `--python`",
        ),
    });
    if let Ok(host) = &host {
        points.insert(1, diagnosis::check_occupied(&host.info));
        waiting.wait_for(&format!("torch_npu of {python}"));
        let environment = operator_environment(&packages, variable);
        points.extend(database_device(&options.db, &assets, &host.info.chips, python, &environment));
        let numbering = DeviceNumbering::of_listed(&host.info);
        let folder = options.leases.folder().map_or_else(LeaseFolder::of_user, LeaseFolder::of_containers);
        let folder = folder.with_names(&host.info.chips, "");
        folder.prepare()?;
        let (leases, free) = lease_free_devices(&folder, &host.info, &host.info.chips)?;
        let free: Vec<LogicalDeviceId> =
            free.into_iter().map(|device| numbering.logical_id(device)).collect();
        let found = torch_devices(python, &environment, &free);
        drop(leases);
        let found = found.map_err(|error| error.message);
        points.push(diagnosis::check_numbering(host, found.clone().map(|devices| devices.count)));
        points.push(diagnosis::check_device_use(found.map(|devices| devices.usable)));
    }
    // A broken driver makes both npu-smi and the import of torch_npu hang.
    if host.is_err()
        && let Err(error) = torch_devices(python, &operator_environment(&packages, variable), &[])
    {
        points.push(diagnosis::check_device_use(Err(error.message)));
    }
    drop(waiting);
    let entries = catalogue.entries_with_key("custom_operators");
    let affected = entries.filter(|entry| entry.needs.custom_operators);
    let affected: Vec<&str> = affected.map(|entry| entry.kernel.as_str()).collect();
    points.push(diagnosis::check_operators(&packages, &affected));
    points.extend(diagnosis::check_files(&options.db));
    if let Err(error) = Database::open(&options.db)
        && options.db != Path::new(".")
    {
        points.push(DoctorCheck::warning("database", error.to_string(), error.hint()));
    }
    points.extend(paused(&options.db));
    points.extend(check_versions(&[
        ("CANN", software.cann.as_deref()),
        ("driver", software.driver.as_deref()),
        ("torch_npu", torch_npu.as_deref()),
    ]));
    emit(options.common.output.format, &points, || plain(&points));
    let is_missing = points.iter().any(|point| point.status == CheckStatus::Missing);
    Ok(if is_missing { ExitStatus::CannotMeasure } else { ExitStatus::Done })
}

fn database_device(
    folder: &Path,
    assets: &AssetFiles,
    chips: &[NpuChip],
    python: &str,
    environment: &[(String, String)],
) -> Option<DoctorCheck> {
    let database = Database::open(folder).ok().filter(|database| database.kind() == DataKind::Npu)?;
    const NAME: &str = "device profile";
    Some(match DeviceProfile::load(assets, database.device()) {
        Err(error) => DoctorCheck::missing(NAME, error.to_string(), error.hint),
        Ok(device) => match soc_contradiction(&device, chips, python, environment) {
            Some(problem) => DoctorCheck::missing(NAME, problem, CORRECT_DEVICE),
            None => DoctorCheck::passed(NAME, device.device),
        },
    })
}

fn paused(folder: &Path) -> Option<DoctorCheck> {
    let database = Database::open(folder).ok()?;
    let (found, fix) = match PausedDevices::load(&pause_file(&database)) {
        Ok(paused) if paused.is_empty() => return None,
        Ok(paused) => (pause_message(&paused), "a run starts no collection there until `npubench unpause`"),
        Err(error) => (error, "the file lists the paused devices; correct or remove it"),
    };
    Some(DoctorCheck::warning("paused.json", found, fix))
}

fn plain(points: &[DoctorCheck]) -> String {
    let mut text = String::new();
    for DoctorCheck { name, status, found, fix } in points {
        text.push_str(&format!("{status:8}{name}: {found}\n"));
        if !fix.is_empty() {
            text.push_str(&format!("        hint: {fix}\n"));
        }
    }
    text
}
