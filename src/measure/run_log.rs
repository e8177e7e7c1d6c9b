//! Log of a run: `npubench.log` in its folder, from which a night can be replayed on paper. It has the decisions of the
//! scheduler, programs with their arguments and ends, the verdicts of each collection, and writes of tables.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::Path,
    sync::Mutex,
};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tracing::Level;

pub(crate) const LOG_FILE: &str = "npubench.log";

/// File of the present run; a command may have several runs, one after the other.
static FILE: Mutex<Option<File>> = Mutex::new(None);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogLevel {
    /// Decisions, programs, verdicts of collections, and writes.
    #[default]
    Info,
    /// Also the events on which the scheduler decides, with the outcomes of all cases.
    Debug,
}

/// Directs the log to the folder of a run, which is created. The first call of a process decides on the detail.
pub(crate) fn start(folder: &Path, level: LogLevel) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let file = OpenOptions::new().create(true).append(true).open(folder.join(LOG_FILE))?;
    *FILE.lock().expect("no writer panics") = Some(file);
    let level = match level {
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
    };
    let log = tracing_subscriber::fmt().with_max_level(level).with_ansi(false).with_target(false);
    // A full disk must not fill the screen: the events have what the log lacks.
    let log = log.log_internal_errors(false);
    // It is there from the second run of a command on.
    let _ = log.with_writer(|| LogWriter).try_init();
    Ok(())
}

struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match FILE.lock().expect("no writer panics").as_mut() {
            Some(file) => file.write(line),
            None => Ok(line.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
