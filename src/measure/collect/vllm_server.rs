//! HTTP interface of one server of vLLM: its version, its profiler, and requests to its model.
//!
//! Each request has a connection of its own, without proxies and redirects: a proxy of the environment is for other
//! networks, and a repeated request to stop a profiler can end a server. The paths belong to vLLM's API server.
//! `/start_profile` and `/stop_profile` exist only if the server was started with a profiler, see [`PROFILER_STARTS`].

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream, ToSocketAddrs as _},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::base::command_error::CommandError;

/// Time limit of questions that a server answers at once.
const PROBE_LIMIT: Duration = Duration::from_secs(20);
pub(super) const START: &str = "/start_profile";
/// A second request to stop the profiler ends workers of the server, so that it is sent once.
pub(super) const STOP: &str = "/stop_profile";
const MAX_SHOWN_TEXT: usize = 300;

/// Start of a server with a profiler, for some versions.
#[derive(Clone, Copy, Debug)]
struct ProfilerStart {
    /// Versions of vLLM-Ascend. It has the numbers of vLLM, which `/version` returns.
    versions: &'static str,
    first: (u32, u32),
    /// Command with `FOLDER` for the folder of the profiler.
    command: &'static str,
}

/// Stacks are on by default (vllm-project/vllm, vllm/envs.py before 0.13).
const BY_VARIABLE: &str = "VLLM_TORCH_PROFILER_DIR=FOLDER VLLM_TORCH_PROFILER_WITH_STACK=0 vllm serve MODEL";
const BY_BOTH: &str = "VLLM_TORCH_PROFILER_DIR=FOLDER VLLM_TORCH_PROFILER_WITH_STACK=0 vllm serve MODEL --profiler-config \
     '{\"profiler\":\"torch\",\"torch_profiler_dir\":\"FOLDER\",\"torch_profiler_with_stack\":false}'";
const BY_OPTION: &str = "vllm serve MODEL --profiler-config \
     '{\"profiler\":\"torch\",\"torch_profiler_dir\":\"FOLDER\",\"torch_profiler_with_stack\":false}'";

/// Starts of all versions, oldest first; docs/collecting.md has the same table.
///
/// Sources, all vllm-project/vllm-ascend: vllm_ascend/worker/worker_v1.py of v0.9.1 to v0.12.0rc1; vllm_ascend/worker/worker.py of
/// v0.13.0, releases/v0.13.0 and v0.14.0rc1 (commit 9cad1a8 moved to the option) to v0.19.1rc1;
/// vllm_ascend/profiler/torch_npu_profiler.py of v0.20.2rc1 to releases/v0.26.0rc and commit 182b75e. Workers of 0.13 read the
/// variable only, and vLLM's paths need the option: with the option alone, a start is answered with 500.
const PROFILER_STARTS: [ProfilerStart; 3] = [
    ProfilerStart { versions: "up to 0.12", first: (0, 0), command: BY_VARIABLE },
    ProfilerStart { versions: "0.13", first: (0, 13), command: BY_BOTH },
    ProfilerStart { versions: "0.14 to 0.26", first: (0, 14), command: BY_OPTION },
];

impl ProfilerStart {
    /// Returns the start of a version such as `0.13.0` or `0.15.1rc2+empty`; of later versions the newest. `None` for a text that
    /// is no version.
    fn of_version(version: &str) -> Option<&'static Self> {
        let mut numbers = version.trim_start_matches('v').split('.').map(str::parse::<u32>);
        let version = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        PROFILER_STARTS.iter().rev().find(|start| start.first <= version)
    }

    /// Returns the command of a version; of an unknown one those of all versions.
    fn hint(version: Option<&str>, folder: &str) -> String {
        let command = |start: &Self| format!("`{}`", start.command.replace("FOLDER", folder));
        match version.and_then(Self::of_version) {
            Some(start) => command(start),
            None => {
                let texts =
                    PROFILER_STARTS.iter().map(|start| format!("{}: {}", start.versions, command(start)));
                format!("the command of its version: {}", texts.collect::<Vec<_>>().join("; "))
            }
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum RequestError {
    /// The request did not reach the server.
    #[error("{url} cannot be reached: {source}")]
    NotSent { url: String, source: io::Error },
    /// The request may have reached the server.
    #[error("{url} has not answered: {source}")]
    NoAnswer { url: String, source: io::Error },
    #[error("{url} answered with {status}{}", text_of(.text))]
    Status { url: String, status: u16, text: String },
}

fn text_of(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(MAX_SHOWN_TEXT) {
        _ if text.is_empty() => String::new(),
        Some((end, _)) => format!(": {}…", &text[..end]),
        None => format!(": {text}"),
    }
}

#[derive(Clone, Debug)]
pub(crate) struct VllmServer {
    pub(super) url: String,
}

impl VllmServer {
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let url = url.trim_end_matches('/');
        let host = url.strip_prefix("http://").unwrap_or_default();
        if host.is_empty() || host.contains(['/', '?', '#', ' ']) {
            return Err(format!("`{url}` is not the address of a server; write it as http://HOST:PORT"));
        }
        Ok(Self { url: url.to_owned() })
    }

    fn get(&self, path: &str) -> Result<HttpAnswer, RequestError> {
        self.request("GET", path, None, PROBE_LIMIT)
    }

    fn request(
        &self,
        method: &str,
        path: &str,
        body: Option<&str>,
        limit: Duration,
    ) -> Result<HttpAnswer, RequestError> {
        let (host, url) = (self.url.trim_start_matches("http://"), format!("{}{path}", self.url));
        let deadline = Instant::now() + limit;
        match connect(host, deadline) {
            Err(source) => Err(RequestError::NotSent { url, source }),
            Ok(stream) => exchange(stream, host, (method, path), body, deadline)
                .map_err(|source| RequestError::NoAnswer { url, source }),
        }
    }

    /// Checks that the server answers and was started with a profiler, without a change. Returns its version.
    pub(super) fn probe(&self, folder: &str, accept_stacks: bool) -> Result<Option<String>, CommandError> {
        let unreachable = |error: RequestError| {
            let hint =
                "check the address and that the server is up: `curl ADDRESS/health`; nothing was started";
            CommandError::cannot_measure(error.to_string(), hint)
        };
        let version = self.version().map_err(unreachable)?;
        // A path that takes only POST answers GET with 405.
        if self.get(START).map_err(unreachable)?.0 == 404 {
            return Err(self.missing_profiler(version.as_deref(), folder));
        }
        if !accept_stacks && self.records_stacks() {
            return Err(CommandError::cannot_measure(
                format!("{} was started with `torch_profiler_with_stack`", self.url),
                "call stacks end workers of vLLM-Ascend with a segmentation fault when the profiler stops: start the server \
                 with `\"torch_profiler_with_stack\":false`, or go on with `--force`",
            ));
        }
        Ok(version)
    }

    fn version(&self) -> Result<Option<String>, RequestError> {
        let (_, answer) = self.get("/version")?;
        // Other servers may answer with another text.
        let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
        Ok(answer["version"].as_str().filter(|version| !version.is_empty()).map(str::to_owned))
    }

    fn records_stacks(&self) -> bool {
        let Ok((status, answer)) = self.get("/server_info") else { return false };
        let text: String =
            answer.to_lowercase().chars().filter(|letter| !" '\"\\".contains(*letter)).collect();
        status == 200
            && ["torch_profiler_with_stack=true", "torch_profiler_with_stack:true"]
                .iter()
                .any(|setting| text.contains(setting))
    }

    /// Returns how a server of this version is started with a profiler.
    pub(super) fn start_hint(&self, folder: &str) -> String {
        ProfilerStart::hint(self.version().ok().flatten().as_deref(), folder)
    }

    fn missing_profiler(&self, version: Option<&str>, folder: &str) -> CommandError {
        let start = ProfilerStart::hint(version, folder);
        let version = version.map(|version| format!(" (vLLM {version})")).unwrap_or_default();
        CommandError::cannot_measure(
            format!("{}{version} has no {START}: it was started without a profiler", self.url),
            format!("start the server with {start}; of servers behind a proxy give the address of each node"),
        )
    }

    pub(super) fn post(&self, path: &str, body: Option<&str>, limit: Duration) -> Result<(), RequestError> {
        let (status, text) = self.request("POST", path, body, limit)?;
        match status {
            200..300 => Ok(()),
            _ => Err(RequestError::Status { url: format!("{}{path}", self.url), status, text }),
        }
    }

    pub(super) fn send_request(&self, body: &Value, limit: Duration) -> Result<(), RequestError> {
        let path = if body.get("messages").is_some() { "/v1/chat/completions" } else { "/v1/completions" };
        self.post(path, Some(&body.to_string()), limit)
    }
}

const PORT: u16 = 80;
const MAX_ANSWER: u64 = 16 << 20;

type HttpAnswer = (u16, String);

fn connect(host: &str, deadline: Instant) -> io::Result<TcpStream> {
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let addresses: Vec<SocketAddr> = match has_port {
        true => host.to_socket_addrs()?.collect(),
        false => (host.trim_matches(['[', ']']), PORT).to_socket_addrs()?.collect(),
    };
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, rest(deadline)?) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn rest(deadline: Instant) -> io::Result<Duration> {
    let rest = deadline.saturating_duration_since(Instant::now());
    if rest.is_zero() { Err(timeout()) } else { Ok(rest) }
}

fn timeout() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "timeout")
}

/// Sends a request and waits for the answer, both until the deadline. A body is JSON. The text of the answer may break off: its
/// status is what counts.
fn exchange(
    mut stream: TcpStream,
    host: &str,
    (method, path): (&str, &str),
    body: Option<&str>,
    deadline: Instant,
) -> io::Result<HttpAnswer> {
    let kind = body.map_or("", |_| "Content-Type: application/json\r\n");
    let body = body.unwrap_or_default();
    // Version 1.0, so that the connection ends with the answer. Chunks would stay in the text; vLLM's answers have a length.
    let request = format!(
        "{method} {path} HTTP/1.0\r\nHost: {host}\r\nAccept: */*\r\n{kind}Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.set_write_timeout(Some(rest(deadline)?))?;
    stream.write_all(request.as_bytes())?;
    stream.set_read_timeout(Some(rest(deadline)?))?;
    let mut answer = Vec::new();
    let read = stream.take(MAX_ANSWER).read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP");
    let Some((head, text)) = answer.split_once("\r\n\r\n") else {
        return Err(match read {
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                timeout()
            }
            Err(error) => error,
            Ok(_) => invalid(),
        });
    };
    let mut words = head.split_ascii_whitespace();
    let status = words.next().filter(|version| version.starts_with("HTTP/")).and(words.next());
    let status = status.and_then(|status| status.parse().ok()).ok_or_else(invalid)?;
    Ok((status, text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_has_one_start_and_the_document_the_same() {
        let command = |version: &str| ProfilerStart::of_version(version).map(|start| start.command);
        for (version, expected) in [
            ("0.9.2rc1", BY_VARIABLE),
            ("0.12.0", BY_VARIABLE),
            ("0.13.0", BY_BOTH),
            ("v0.13.0rc3", BY_BOTH),
            ("0.14.0rc1", BY_OPTION),
            ("0.26.0rc1+empty", BY_OPTION),
            ("1.0.0", BY_OPTION),
        ] {
            assert_eq!(command(version), Some(expected), "{version}");
        }
        assert_eq!((command(""), command("dev"), command("0")), (None, None, None));
        let document = include_str!("../../../docs/collecting.md");
        for ProfilerStart { versions, command, .. } in PROFILER_STARTS {
            let row = format!("| {versions} | `{}` |", command.replace("FOLDER", "/data/prof"));
            assert!(document.contains(&row), "{row}");
        }
    }
}
