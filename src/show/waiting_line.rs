//! Line on a terminal while a command waits for a program that may take long, such as npu-smi or an import of torch_npu.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::{kernel::timestamp::format_clock, show::live_lines::LiveLines};

/// Time after which the line appears, and the interval at which its elapsed time is redrawn.
const TICK: Duration = Duration::from_secs(1);

/// The line; it is removed when this is dropped. Without a terminal, or with `--quiet`, there is none.
#[derive(Debug)]
pub(crate) struct WaitingLine {
    /// Name of the program or action, and the start of the wait.
    awaited: Arc<Mutex<(String, Instant)>>,
    ticks: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl WaitingLine {
    /// Starts to wait for a program or action.
    pub(crate) fn for_stderr(awaited: &str) -> Self {
        let awaited = Arc::new(Mutex::new((awaited.to_owned(), Instant::now())));
        let Some(mut line) = LiveLines::on_stderr() else {
            return Self { awaited, ticks: None, thread: None };
        };
        let (ticks, inbox) = mpsc::channel::<()>();
        let shared = Arc::clone(&awaited);
        let work = move || {
            while inbox.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                let awaited = shared.lock().unwrap_or_else(PoisonError::into_inner);
                let elapsed = format_clock(awaited.1.elapsed().as_secs_f64());
                line.draw(&[format!("waiting for {}, {elapsed} elapsed", awaited.0)]);
            }
            line.clear();
        };
        // Without the thread there is no line.
        let thread = thread::Builder::new().name("waiting".to_owned()).spawn(work).ok();
        Self { awaited, ticks: Some(ticks), thread }
    }

    /// Starts to wait for another one.
    pub(crate) fn wait_for(&self, awaited: &str) {
        *self.awaited.lock().unwrap_or_else(PoisonError::into_inner) = (awaited.to_owned(), Instant::now());
    }
}

impl Drop for WaitingLine {
    fn drop(&mut self) {
        self.ticks = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
