//! Screen of commands that measure, which shows their progress. The folder `show` implements it.

use std::{any::Any, fmt::Debug, path::Path, time::Duration};

use crate::{
    cases::plan::RecordedTime,
    database::{Database, ledger::Ledger},
    measure::{
        engine::{RunOutcome, SweepNodes},
        events::EventSink,
        run_options::RunOptions,
    },
};

/// The screen, or another receiver, of a command that measures.
pub(crate) trait RunScreen: Debug + Sync {
    /// Shows that the command waits for a program, until the result is dropped.
    fn wait_for(&self, awaited: &str) -> Box<dyn Any>;

    fn events(&self) -> Box<dyn EventSink>;

    fn end(&self, end: &RunEnd<'_>);
}

#[derive(Debug)]
pub(crate) struct RunEnd<'a> {
    /// Time of the rows of the plan according to production profiles.
    pub(crate) recorded: &'a RecordedTime,
    pub(crate) database: &'a Database,
    pub(crate) ledger: &'a Ledger,
    pub(crate) run: &'a str,
    pub(crate) folder: &'a Path,
    pub(crate) options: &'a RunOptions,
    pub(crate) outcome: &'a RunOutcome,
    pub(crate) nodes: Option<&'a SweepNodes>,
    pub(crate) elapsed: Duration,
}
