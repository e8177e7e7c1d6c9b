//! A process that ends the programs of a follower which was killed.

use std::{
    io::{self, Read as _},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
};

use super::end_orphans;

#[derive(Debug)]
pub(crate) struct ProcessGuard {
    child: Child,
    input: Option<ChildStdin>,
}

impl ProcessGuard {
    pub(crate) fn start(processes: &Path) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("guard").arg(processes);
        // It is npubench itself, must outlive this process, and ends with its input: it has neither limit nor record.
        // Ctrl-C in a terminal must not reach it.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let input = child.stdin.take();
        Ok(Self { child, input })
    }
}

impl Drop for ProcessGuard {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

pub(crate) fn guard_processes(processes: &Path) {
    let mut input = io::stdin().lock();
    let mut buffer = [0; 64];
    while input.read(&mut buffer).is_ok_and(|length| length > 0) {}
    end_orphans(processes);
}
