//! Servers whose profilers are started together, and stopped exactly once whatever happens between.

use std::{
    io, mem,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use super::vllm_server::{RequestError, START, STOP, VllmServer};
use crate::base::{command_error::CommandError, print::print_note};

const POLL: Duration = Duration::from_millis(100);
const PROGRESS: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProfilerState {
    Idle,
    /// Started, or possibly: the request has no answer.
    Started,
    /// The one request to stop was sent.
    Stopped,
}

/// Servers with the states of their profilers. Those that run are stopped on drop.
#[derive(Debug)]
pub(super) struct ProfiledServers {
    servers: Vec<(VllmServer, ProfilerState)>,
    stop_limit: Duration,
    signals: StopSignals,
}

impl ProfiledServers {
    pub(super) fn new(servers: &[VllmServer], stop_limit: Duration, signals: StopSignals) -> Self {
        let servers = servers.iter().map(|server| (server.clone(), ProfilerState::Idle)).collect();
        Self { servers, stop_limit, signals }
    }

    /// Starts all profilers one after another, until a signal. After a failure those that run are stopped. `folder` is that
    /// of the profiler.
    pub(super) fn start_all(&mut self, limit: Duration, folder: &str) -> Result<(), CommandError> {
        for place in 0..self.servers.len() {
            if self.signals.is_set() {
                return Ok(());
            }
            let (server, state) = &mut self.servers[place];
            let started = server.post(START, None, limit);
            if matches!(started, Ok(()) | Err(RequestError::NoAnswer { .. })) {
                *state = ProfilerState::Started;
            }
            let Err(error) = started else { continue };
            let mut message = format!("the profiler was not started: {error}");
            for problem in self.stop_all() {
                message = format!("{message}; {problem}");
            }
            let mut hint =
                "see the log of the server; profilers that had been started were stopped".to_owned();
            if matches!(error, RequestError::Status { .. }) {
                let start = self.servers[place].0.start_hint(folder);
                hint = format!("{hint}; if the workers have no profiler, start the server with {start}");
            }
            return Err(CommandError::cannot_measure(message, hint));
        }
        Ok(())
    }

    /// Stops the profilers that run, all at the same time, and waits for the answers. Returns what failed; no request is
    /// repeated.
    pub(super) fn stop_all(&mut self) -> Vec<String> {
        let (sender, answers) = mpsc::channel();
        let mut waiting: Vec<String> = Vec::new();
        for (server, state) in &mut self.servers {
            if mem::replace(state, ProfilerState::Stopped) != ProfilerState::Started {
                continue;
            }
            waiting.push(server.url.clone());
            let (server, sender, limit) = (server.clone(), sender.clone(), self.stop_limit);
            thread::spawn(move || {
                let answer = server.post(STOP, None, limit);
                let _ = sender.send((server.url.clone(), answer));
            });
        }
        drop(sender);
        let (mut problems, started) = (Vec::new(), Instant::now());
        let (mut shown, mut signals_seen) = (Instant::now(), self.signals.count());
        // The signal that led here does not end the wait, and neither does the first one within it.
        let last_signal = signals_seen.max(1) + 1;
        while !waiting.is_empty() {
            match answers.recv_timeout(POLL) {
                Ok((url, answer)) => {
                    waiting.retain(|own| *own != url);
                    if let Err(error) = answer {
                        problems.push(format!(
                            "the profiler may still run: {error}; a second request to stop can end the server, so that none was sent"
                        ));
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let signals = self.signals.count();
            if signals > mem::replace(&mut signals_seen, signals) && signals < last_signal {
                print_note(&format!(
                    "{} received the request to stop and writes its profile; a further Ctrl-C ends the wait",
                    waiting.join(", ")
                ));
            }
            if signals >= last_signal && !waiting.is_empty() {
                let urls = mem::take(&mut waiting).join(", ");
                problems.push(format!("{urls} received the request to stop and has not answered yet"));
            }
            if !waiting.is_empty() && shown.elapsed() >= PROGRESS {
                shown = Instant::now();
                print_note(&format!(
                    "{} writes its profile since {} s; the limit is {} s, Ctrl-C ends the wait",
                    waiting.join(", "),
                    started.elapsed().as_secs(),
                    self.stop_limit.as_secs()
                ));
            }
        }
        problems
    }
}

impl Drop for ProfiledServers {
    fn drop(&mut self) {
        for problem in self.stop_all() {
            print_note(&problem);
        }
    }
}

/// Signals closer together than this count as one: `timeout` signals a process and its group.
const DEBOUNCE: Duration = Duration::from_millis(50);

/// Received signals. The first one ends the work and stops the profilers, the second one ends the wait for the answers
/// of the profilers.
#[derive(Clone, Debug, Default)]
pub(crate) struct StopSignals {
    first: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
}

impl StopSignals {
    pub(crate) fn register() -> io::Result<Self> {
        let stop = Self::default();
        let own = stop.clone();
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        thread::spawn(move || {
            let mut last: Option<Instant> = None;
            for _ in signals.forever() {
                if last.replace(Instant::now()).is_none_or(|last| last.elapsed() >= DEBOUNCE) {
                    own.count.fetch_add(1, Ordering::Relaxed);
                    own.first.store(true, Ordering::Relaxed);
                }
            }
        });
        Ok(stop)
    }

    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.first
    }

    pub(crate) fn is_set(&self) -> bool {
        self.first.load(Ordering::Relaxed)
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}
