//! The group of a gang on several hosts: the processes of the first host share it, those of the others use it over
//! TCP, by lines of JSON.

use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{
    process_group::{CollectiveCall, RankArrival, SharedGroup, rank_has_ended},
    protocol::{PyError, runtime},
};

/// Time in which the first host opens the store, as that of torchrun.
const STORE_TIMEOUT: Duration = Duration::from_secs(60);
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum GroupRequest {
    Set { key: String, value: String },
    Get { key: String },
    Meet(CollectiveCall),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum GroupReply {
    Value(Option<String>),
    Arrivals(Vec<RankArrival>),
    Failed(String),
}

/// Connection of a process to the group on the first host.
#[derive(Debug)]
pub(crate) struct GroupLink(Mutex<BufReader<TcpStream>>);

/// Opens the port of the group on the first host, and serves it until the process ends.
pub(crate) fn serve_group(group: &Arc<SharedGroup>, address: &str, port: u16) -> Result<(), PyError> {
    let failed = |error: io::Error| {
        runtime(format!("rehearsal: the store cannot listen on {address}:{port}: {error}"))
    };
    let listener = TcpListener::bind((address, port)).map_err(failed)?;
    let group = Arc::clone(group);
    let accept = move || {
        for stream in listener.incoming().flatten() {
            let group = Arc::clone(&group);
            thread::spawn(move || serve_process(&group, &stream));
        }
    };
    thread::Builder::new().spawn(accept).map(drop).map_err(failed)
}

fn serve_process(group: &SharedGroup, stream: &TcpStream) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut writer = stream;
    for line in BufReader::new(stream).lines() {
        let reply = match serde_json::from_str(&line.ok()?).ok()? {
            GroupRequest::Set { key, value } => {
                group.lock().set(&key, &value);
                GroupReply::Value(None)
            }
            GroupRequest::Get { key } => GroupReply::Value(group.lock().get(&key)),
            GroupRequest::Meet(call) => match group.meet(call) {
                Ok(arrivals) => {
                    GroupReply::Arrivals(arrivals.iter().map(|arrival| (**arrival).clone()).collect())
                }
                Err(error) => GroupReply::Failed(error.message),
            },
        };
        let mut text = serde_json::to_vec(&reply).ok()?;
        text.push(b'\n');
        writer.write_all(&text).ok()?;
    }
    Some(())
}

impl GroupLink {
    /// Connects to the group; waits until the first host has opened it.
    pub(crate) fn connect(address: &str, port: u16) -> Result<Self, PyError> {
        let deadline = Instant::now() + STORE_TIMEOUT;
        loop {
            match TcpStream::connect((address, port)) {
                Ok(stream) => {
                    let _ = stream.set_nodelay(true);
                    return Ok(Self(Mutex::new(BufReader::new(stream))));
                }
                Err(error) if Instant::now() >= deadline => {
                    return Err(runtime(format!(
                        "The client socket has timed out while trying to connect to ({address}, {port}): {error}"
                    )));
                }
                Err(_) => thread::sleep(RETRY_INTERVAL),
            }
        }
    }

    fn request(&self, request: &GroupRequest) -> Result<GroupReply, PyError> {
        let lost = |_| rank_has_ended();
        let mut stream = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut line = serde_json::to_string(request).unwrap_or_default();
        line.push('\n');
        stream.get_mut().write_all(line.as_bytes()).map_err(lost)?;
        line.clear();
        stream.read_line(&mut line).map_err(lost)?;
        match serde_json::from_str(&line) {
            Ok(GroupReply::Failed(message)) => Err(runtime(message)),
            Ok(reply) => Ok(reply),
            Err(_) => Err(rank_has_ended()),
        }
    }

    pub(crate) fn set(&self, key: &str, value: &str) -> Result<(), PyError> {
        self.request(&GroupRequest::Set { key: key.to_owned(), value: value.to_owned() }).map(drop)
    }

    pub(crate) fn get(&self, key: &str) -> Result<Option<String>, PyError> {
        match self.request(&GroupRequest::Get { key: key.to_owned() })? {
            GroupReply::Value(value) => Ok(value),
            GroupReply::Arrivals(_) | GroupReply::Failed(_) => Ok(None),
        }
    }

    /// As [`SharedGroup::meet`].
    pub(crate) fn meet(&self, call: CollectiveCall) -> Result<Vec<Arc<RankArrival>>, PyError> {
        match self.request(&GroupRequest::Meet(call))? {
            GroupReply::Arrivals(arrivals) => Ok(arrivals.into_iter().map(Arc::new).collect()),
            GroupReply::Value(_) | GroupReply::Failed(_) => Ok(Vec::new()),
        }
    }
}
