//! The stand-in for msprof: starts a program with a simulated NPU, and exports the records of its launches.
//!
//! Exit codes, console lines and folders are the real one's, with its weaknesses: the program's exit status is not
//! passed on, and every message goes to standard output.

mod clock_track;
mod corrupt;
mod counters;
mod export;
mod op_summary;
mod options;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::{fs::PermissionsExt as _, process::ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    thread,
    time::{Duration, Instant},
};

use super::{
    HostConfig, HostError, TRUTH,
    faults::ActiveFaults,
    msprof::{
        corrupt::ExportFault,
        export::{ExportError, ExportedTable, ProgramRecords},
        options::{MsprofCollection, MsprofCommand},
    },
    now,
    npu::{ApiServer, ApiSession, ScriptOutcome, ServerError},
    shim_env::{FAILED, host_of_process, print_line},
    variables,
};
use crate::base::command_error::Failure;
use crate::{
    kernel::{
        CaseId, Nanos,
        device::DeviceProfile,
        render::{Manifest, files},
    },
    rehearsal::fault_plan::{HostDefect, RecordsKept},
};

/// Number of first records that a host with [`HostDefect::LostHead`] loses, more than the padding of a replay.
const LOST_HEAD: usize = 20;
/// Number of matrix cores that the chip of a host with [`HostDefect::OtherChip`] lacks.
const OTHER_CHIP_CORES: u32 = 4;
/// Number of last records that are lost if the program ends with `os._exit(0)`.
const UNFINALISED_TAIL: usize = 9;

/// Error of a collection.
#[derive(Debug, thiserror::Error)]
enum MsprofError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error("cannot start `{}`: {source}", .program.to_string_lossy())]
    Start {
        program: OsString,
        #[source]
        source: io::Error,
    },
    #[error("`{}` is not this rehearsal host's: {source}", .file.display())]
    Manifest {
        file: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error("there is no `PROF_*` folder in `{}`", .0.display())]
    NoProfile(PathBuf),
    #[error("{0}")]
    Application(String),
    #[error(
        "Failed to find profiling data, please check that the application executes AI-related business, or \
         ensure that aclInit/GEInitialize is invoked in the application"
    )]
    NoData,
}

/// Runs the stand-in, and returns the exit code.
pub(super) fn run(arguments: &[String]) -> u8 {
    match options::parse(arguments) {
        MsprofCommand::Help => {
            print_line(options::USAGE);
            0
        }
        MsprofCommand::Usage(problem) => {
            if let Some(problem) = problem {
                print_line(&format!("[ERROR] {problem}"));
            }
            print_line(options::USAGE);
            FAILED
        }
        MsprofCommand::Start(start) => exit_code(collect(&start)),
        MsprofCommand::Export(folder) => exit_code(export_again(&folder)),
    }
}

fn exit_code(result: Result<u8, MsprofError>) -> u8 {
    let failure = match result {
        Ok(code) => return code,
        Err(failure) => failure,
    };
    print_line(&format!("[ERROR] {failure}"));
    if let MsprofError::Host(error) = &failure {
        print_line(&format!("hint: {}", error.hint()));
    }
    FAILED
}

/// Appends the medians of the model to the host's file of true medians; a case has a line for each of its collections.
fn append_true_medians(host: &Path, medians: &BTreeMap<(CaseId, String), Nanos>) -> io::Result<()> {
    let lines: String =
        medians.iter().map(|((case, kernel), median)| format!("{case},{kernel},{median}\n")).collect();
    // One write, because several collections append at once.
    OpenOptions::new().append(true).open(host.join(TRUTH))?.write_all(lines.as_bytes())
}

/// Runs a program and exports its records. Returns the exit code.
fn collect(start: &MsprofCollection) -> Result<u8, MsprofError> {
    check_application(start)?;
    let (config, host) = host_of_process()?;
    let manifest = manifest(Path::new(files::MANIFEST))?;
    let faults = || ActiveFaults::new(&config, Some(&host), manifest.as_ref());
    let started = now();
    let session = ApiSession::new(&config, manifest.as_ref(), started, faults())?.with_host(&host);
    let server = ApiServer::start(session)?;
    print_line("[INFO] Start profiling....");
    let status = Command::new(&start.program)
        .args(&start.arguments)
        .env(variables::SOCKET, server.socket())
        .status()
        .map_err(|source| MsprofError::Start { program: start.program.clone().into(), source });
    let processes = server.finish(|session| {
        // A disk that is full or cannot be written is reported by the export.
        let _ = append_true_medians(&host, session.true_medians());
        session.take_results()
    });
    let status = status?;
    if let Some(warning) = warning(status) {
        print_line(&warning);
    }
    let processes: Vec<_> = processes
        .into_iter()
        .filter(|(devices, _, outcome)| !devices.is_empty() && outcome.records != RecordsKept::None)
        .collect();
    if processes.is_empty() {
        return Err(MsprofError::NoData);
    }
    let export_started = Instant::now();
    let ended = now();
    let profile = DeviceProfile::load(&config.assets()?, &config.device_profile).map_err(HostError::from)?;
    let mut slowness = 1.0_f64;
    // Each process that used a device has a profile of its own.
    for (number, (devices, launches, outcome)) in (0..).zip(processes) {
        let mut collected = ProgramRecords { devices, launches, started, ended };
        if config.has_defect(HostDefect::LostHead) {
            corrupt::drop_records(&mut collected, LOST_HEAD, 0);
        }
        if status.success() && !outcome.is_finalised {
            corrupt::drop_records(&mut collected, 0, UNFINALISED_TAIL);
        }
        corrupt::corrupt_records(&mut collected, &outcome.faults, outcome.records, config.device_count());
        report(&config, &profile, &collected, number, &outcome, start)?;
        slowness = slowness.max(outcome.slowness);
    }
    let delay = config.real_seconds(config.faults.costs.export) * slowness;
    let stretched = export_started.elapsed().as_secs_f64() * (slowness - 1.0);
    thread::sleep(Duration::try_from_secs_f64(delay + stretched).unwrap_or_default());
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED);
    Ok(if config.has_defect(HostDefect::MsprofExitCode) { code } else { 0 })
}

/// Exports, and prints the lines of the real one.
fn report(
    config: &HostConfig,
    profile: &DeviceProfile,
    collected: &ProgramRecords,
    number: u64,
    outcome: &ScriptOutcome,
    start: &MsprofCollection,
) -> Result<(), MsprofError> {
    let folder = export::folder_name(collected.started, config.seed.wrapping_add(number));
    let parent = start.output.clone().unwrap_or_else(|| PathBuf::from("."));
    let export_fault = ExportFault::from_faults(&outcome.faults);
    if export_fault == ExportFault::NoFolder {
        print_line("[INFO] Profiling finished.");
        return Ok(());
    }
    let mut tables = export::tables(profile, &collected.launches, start.content);
    corrupt::corrupt_tables(&mut tables, &outcome.faults);
    let mut shown = profile.clone();
    if config.has_defect(HostDefect::OtherChip) {
        shown.cube_cores = shown.cube_cores.saturating_sub(OTHER_CHIP_CORES);
    }
    let written = export::write(&parent, &folder, &shown, collected, start.content)?;
    print_line(&format!("[INFO] Start export data in {folder}."));
    match export_fault {
        ExportFault::Deferred { later } => {
            store_for_later(later, &written, &tables)?;
            print_line("[ERROR] Analysis environment is not OK.");
        }
        ExportFault::DiskFull(full) => {
            store_for_later(full.second_export, &written, &tables)?;
            tables.iter_mut().for_each(|(_, table)| corrupt::truncate_to_share(table, full.keeps));
            export::export(&written, &tables, collected.ended)?;
            print_line(&format!(
                "[ERROR] Failed to export data in {folder}: [Errno 28] No space left on device"
            ));
        }
        ExportFault::None | ExportFault::NoFolder => {
            export::export(&written, &tables, collected.ended)?;
            print_exported(&folder);
        }
    }
    let settles = !config.has_defect(HostDefect::UnsettledClock);
    let track = clock_track::clock_events(profile, &collected.launches, settles);
    export::write_trace(&written, &track, collected.ended)?;
    print_line("[INFO] Profiling finished.");
    print_line(&format!("[INFO] Process profiling data complete. Data is saved in {}", written.display()));
    Ok(())
}

/// Stores the tables for a later export, unless a fault excludes it.
fn store_for_later(later: bool, written: &Path, tables: &[ExportedTable]) -> Result<(), ExportError> {
    if later { export::store_tables(written, tables) } else { export::mark_not_exportable(written) }
}

fn print_exported(folder: &str) {
    print_line(&format!("[INFO] Export all data in {folder} done."));
    print_line(&format!("[INFO] Start query data in {folder}."));
    print_line(&format!("[INFO] Query all data in {folder} done."));
}

/// `msprof --export=on`: exports a folder, or all folders below it, again.
fn export_again(folder: &Path) -> Result<u8, MsprofError> {
    let is_profile = |path: &Path| {
        path.is_dir() && path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("PROF_"))
    };
    let mut profiles: Vec<PathBuf> = if is_profile(folder) {
        vec![folder.to_owned()]
    } else {
        let entries = fs::read_dir(folder).into_iter().flatten();
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| is_profile(path)).collect()
    };
    profiles.sort();
    if profiles.is_empty() {
        return Err(MsprofError::NoProfile(folder.to_owned()));
    }
    for profile in profiles {
        let name = profile.file_name().unwrap_or_default().to_string_lossy().into_owned();
        print_line(&format!("[INFO] Start export data in {name}."));
        if export::export_again(&profile, now())? {
            print_exported(&name);
        } else {
            // A failed export prints an error, with status 0.
            print_line(&format!("[ERROR] Failed to export data in {name}."));
        }
    }
    Ok(0)
}

/// Finds the program: an interpreter in `PATH`, which must have a script, or an executable file.
fn check_application(start: &MsprofCollection) -> Result<(), MsprofError> {
    let program = Path::new(&start.program);
    let base = program.file_name().unwrap_or_default().to_string_lossy();
    if base == "bash" || base == "sh" || base.starts_with("python") {
        if start.arguments.is_empty() {
            let problem = "an interpreter (python/bash/sh) requires a script or module argument";
            return Err(MsprofError::Application(problem.to_owned()));
        }
        return Ok(());
    }
    let problem = match fs::symlink_metadata(program) {
        Err(_) => "does not exist",
        Ok(metadata) if metadata.is_symlink() => "is soft link, which is not support!",
        Ok(metadata) if metadata.is_dir() => "is a directory",
        Ok(metadata) if metadata.permissions().mode() & 0o111 == 0 => "has no execute permission",
        Ok(_) => return Ok(()),
    };
    Err(MsprofError::Application(format!("application {} {problem}", start.program)))
}

/// Reads the manifest in the working folder; `None` without one.
fn manifest(file: &Path) -> Result<Option<Manifest>, MsprofError> {
    let Ok(text) = fs::read_to_string(file) else { return Ok(None) };
    let parsed = serde_json::from_str(&text);
    parsed.map(Some).map_err(|source| MsprofError::Manifest { file: file.to_owned(), source })
}

/// Warning of the real one about a program that failed; it exports nevertheless.
fn warning(status: ExitStatus) -> Option<String> {
    let reason = match (status.code(), status.signal()) {
        (Some(0), _) => return None,
        // The real one prints the exit status as an `errno`: 1 is "Operation not permitted".
        (Some(code), _) => nix::errno::Errno::from_raw(code).desc().to_owned(),
        (None, signal) => format!("killed by signal {}", signal.unwrap_or_default()),
    };
    Some(format!("[WARNING] An exception has occurred in process App, return code: {reason}."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rehearsal::msprof::options::RecordContent;

    #[test]
    fn exit_statuses_are_read_as_errno() {
        let exited = |code: i32| warning(ExitStatus::from_raw(code << 8));
        assert_eq!(exited(0), None);
        let expected =
            "[WARNING] An exception has occurred in process App, return code: Operation not permitted.";
        assert_eq!(exited(1).as_deref(), Some(expected));
        assert!(warning(ExitStatus::from_raw(9)).is_some_and(|text| text.contains("signal 9")));
    }

    #[test]
    fn applications_are_checked_as_the_real_one_does() {
        let refused = |program: &str, arguments: &[&str]| {
            let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
            let content = RecordContent::default();
            let start = MsprofCollection { output: None, content, program: program.to_owned(), arguments };
            check_application(&start).err().map(|failure| failure.to_string())
        };
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        fs::write(path("plain"), "").expect("written");
        std::os::unix::fs::symlink("/bin/ls", path("link")).expect("linked");
        assert_eq!(refused("python3.11", &["replay.py"]), None);
        assert!(refused("/usr/bin/python3", &[]).is_some_and(|text| text.contains("requires a script")));
        assert!(refused(&path("link"), &[]).is_some_and(|text| text.contains("soft link")));
        assert!(refused(&path("plain"), &[]).is_some_and(|text| text.contains("execute permission")));
        assert!(refused(&path("none"), &[]).is_some_and(|text| text.contains("does not exist")));
    }

    #[test]
    fn damaged_manifest_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("manifest.json");
        assert!(manifest(&file).expect("there is none").is_none());
        fs::write(&file, "{").expect("written");
        assert!(manifest(&file).is_err());
    }
}
