//! The socket of the simulated NPU.

use std::{
    fs,
    io::{self, BufRead as _, BufReader, Write as _},
    os::unix::net::{UnixListener, UnixStream},
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use signal_hook::{consts::SIGTERM, iterator::Signals, low_level::emulate_default_handler};

use super::{ApiSession, process_group::SharedGroup};
use crate::base::files::scratch::{ScratchFolder, temporary_folder};

#[derive(Debug, thiserror::Error)]
#[error("cannot open a socket in `{}`: {source}", .folder.display())]
pub(in crate::rehearsal) struct ServerError {
    folder: PathBuf,
    #[source]
    source: io::Error,
}

type SessionMap = Arc<Mutex<Vec<Arc<Mutex<ApiSession>>>>>;

/// Answers until [`ApiServer::finish`].
#[derive(Debug)]
pub(in crate::rehearsal) struct ApiServer {
    /// Folder of the socket, removed with the server.
    folder: ScratchFolder,
    /// One per process, in the order of their first calls.
    sessions: SessionMap,
    stop: Arc<AtomicBool>,
    /// The group of the processes, in which threads may wait for others.
    group: Arc<SharedGroup>,
    listening: JoinHandle<()>,
}

impl ApiServer {
    /// Opens a socket; every process that connects has a session of its own, a clone of this one.
    pub(in crate::rehearsal) fn start(session: ApiSession) -> Result<Self, ServerError> {
        // A socket's path may have 107 bytes, which a run's folder can exceed.
        let base = [temporary_folder(), PathBuf::from("/tmp")];
        let base = base.into_iter().find(|folder| folder.as_os_str().len() < 64);
        let base = base.unwrap_or_else(|| PathBuf::from("/tmp"));
        let failed = |source| ServerError { folder: base.clone(), source };
        let folder = ScratchFolder::create_in(&base).map_err(failed)?;
        clear_up_when_ended(folder.path().to_owned()).map_err(failed)?;
        let listener = UnixListener::bind(folder.path().join(SOCKET)).map_err(failed)?;
        let sessions = SessionMap::default();
        let stop = Arc::new(AtomicBool::new(false));
        let group = Arc::clone(session.shared_group());
        let listening = {
            let (sessions, stop) = (Arc::clone(&sessions), Arc::clone(&stop));
            thread::spawn(move || listen(&listener, &session, &sessions, &stop))
        };
        Ok(Self { folder, sessions, stop, group, listening })
    }

    pub(in crate::rehearsal) fn socket(&self) -> PathBuf {
        self.folder.path().join(SOCKET)
    }

    /// Stops accepting connections, closes the socket, and returns `read` of each session.
    pub(in crate::rehearsal) fn finish<T>(self, mut read: impl FnMut(&mut ApiSession) -> T) -> Vec<T> {
        self.stop.store(true, Ordering::Release);
        // A waiting thread holds its session.
        self.group.close();
        // The listener reads the flag at its next connection.
        drop(UnixStream::connect(self.socket()));
        // A listener that panicked has ended as well.
        let _ = self.listening.join();
        // A connection that a left-over process still holds may wait in its thread; it ends with this process.
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let read_one = |session: &Arc<Mutex<ApiSession>>| {
            read(&mut session.lock().unwrap_or_else(PoisonError::into_inner))
        };
        sessions.iter().map(read_one).collect()
    }
}

/// Removes the folder when the stand-in is ended by SIGTERM, as hung collections are.
fn clear_up_when_ended(folder: PathBuf) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM])?;
    thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            // The process is ending; an error cannot be reported.
            let _ = fs::remove_dir_all(folder);
            let _ = emulate_default_handler(signal);
        }
    });
    Ok(())
}

const SOCKET: &str = "npu";

fn listen(listener: &UnixListener, first: &ApiSession, sessions: &SessionMap, stop: &AtomicBool) {
    for connection in listener.incoming() {
        if stop.load(Ordering::Acquire) {
            return;
        }
        if let Ok(connection) = connection {
            let session = Arc::new(Mutex::new(first.clone()));
            sessions.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&session));
            thread::spawn(move || {
                // The program has ended; an error cannot be reported to it.
                let _ = serve(&connection, &session);
            });
        }
    }
}

fn serve(connection: &UnixStream, session: &Mutex<ApiSession>) -> io::Result<()> {
    if let Ok(peer) = getsockopt(connection, PeerCredentials) {
        let mut session = session.lock().unwrap_or_else(PoisonError::into_inner);
        session.set_process(peer.pid().unsigned_abs());
    }
    let mut writer = connection;
    for line in BufReader::new(connection).lines() {
        let (answer, pause) = session.lock().unwrap_or_else(PoisonError::into_inner).answer(&line?);
        if !pause.is_zero() {
            thread::sleep(pause);
        }
        writer.write_all(answer.as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        kernel::Nanos,
        rehearsal::{HostConfig, faults::ActiveFaults},
    };

    #[test]
    fn each_line_is_answered_and_the_socket_is_removed() {
        let config = HostConfig::default();
        let faults = ActiveFaults::new(&config, None, None);
        let session = ApiSession::new(&config, None, Nanos(0), faults).expect("the built-in catalogue");
        let server = ApiServer::start(session).expect("a socket");
        let socket = server.socket();
        let mut connection = UnixStream::connect(&socket).expect("connected");
        connection.write_all(b"{\"call\": \"torch.npu.device_count\"}\nnonsense\n").expect("written");
        let mut lines = BufReader::new(connection.try_clone().expect("cloned")).lines();
        assert_eq!(lines.next().expect("a line").expect("read"), r#"{"value":16}"#);
        assert!(lines.next().expect("a line").expect("read").contains("not a call"));
        connection = UnixStream::connect(&socket).expect("connected");
        connection.write_all(b"{\"call\": \"torch.npu.set_device\", \"args\": [3]}\n").expect("written");
        lines = BufReader::new(connection.try_clone().expect("cloned")).lines();
        assert_eq!(lines.next().expect("a line").expect("read"), r#"{"value":null}"#);
        assert_eq!(server.finish(|session| session.take_results().0), [vec![], vec![3]], "one each");
        assert!(!socket.exists());
    }
}
