//! HTTP interface of one server of vLLM: its version, its profiler, and requests to its model.
//!
//! Each request has a connection of its own, without proxies and redirects: a proxy of the environment is for other
//! networks, and a repeated request to stop a profiler can end a server. The paths belong to vLLM's API server.
//! `/start_profile` and `/stop_profile` exist only if the server was started with a profiler: since version 0.13 by
//! `--profiler-config`, before by the variable `VLLM_TORCH_PROFILER_DIR`. Workers of vLLM-Ascend read the variable up to 0.13 and the
//! option from 0.14 on (vllm-project/vllm-ascend, vllm_ascend/worker/worker.py of v0.13.0 and v0.14.0rc1).

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
        let (_, answer) = self.get("/version").map_err(unreachable)?;
        // Other servers may answer with another text.
        let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
        let version = answer["version"].as_str().filter(|version| !version.is_empty()).map(str::to_owned);
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

    fn records_stacks(&self) -> bool {
        let Ok((status, answer)) = self.get("/server_info") else { return false };
        let text: String =
            answer.to_lowercase().chars().filter(|letter| !" '\"\\".contains(*letter)).collect();
        status == 200
            && ["torch_profiler_with_stack=true", "torch_profiler_with_stack:true"]
                .iter()
                .any(|setting| text.contains(setting))
    }

    pub(super) fn missing_profiler(&self, version: Option<&str>, folder: &str) -> CommandError {
        let version = version.map(|version| format!(" (vLLM {version})")).unwrap_or_default();
        CommandError::cannot_measure(
            format!("{}{version} has no {START}: it was started without a profiler", self.url),
            format!(
                "start the server with `--profiler-config '{{\"profiler\":\"torch\",\"torch_profiler_dir\":\"{folder}\",\
                 \"torch_profiler_with_stack\":false}}'`, before 0.13 with `VLLM_TORCH_PROFILER_DIR={folder}` in its \
                 environment, and with vLLM-Ascend 0.13 with both; of servers behind a proxy give the address of each node"
            ),
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
