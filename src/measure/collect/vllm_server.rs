//! HTTP interface of one server of vLLM: its version, its profiler, and requests to its model.
//!
//! The paths are those of vLLM's API server. `/start_profile` and `/stop_profile` exist only if the server was started with
//! a profiler: since version 0.13 by `--profiler-config`, before by the variable `VLLM_TORCH_PROFILER_DIR`.

use std::{
    io,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::http_request::{HttpAnswer, connect, exchange};
use crate::base::command_error::CommandError;

/// Time limit of questions that a server answers at once.
const PROBE_LIMIT: Duration = Duration::from_secs(20);
const START: &str = "/start_profile";
const STOP: &str = "/stop_profile";
/// First version with `--profiler-config`.
const PROFILER_CONFIG_VERSION: (u32, u32) = (0, 13);
/// Longest text of an answer in an error.
const MAX_SHOWN_TEXT: usize = 300;

/// Request without a usable answer.
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
    /// Address without a slash at its end.
    pub(super) url: String,
}

impl VllmServer {
    /// Creates a server from its address, such as `http://node0:8000`.
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
        let answer = self.get("/version").map_err(unreachable)?;
        // Other servers may answer with another text.
        let answer: Value = serde_json::from_str(&answer.text).unwrap_or_default();
        let version = answer["version"].as_str().filter(|version| !version.is_empty()).map(str::to_owned);
        // A path that takes only POST answers GET with 405.
        if self.get(START).map_err(unreachable)?.status == 404 {
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

    /// Returns true if the server's settings, which it shows in development mode, have call stacks.
    fn records_stacks(&self) -> bool {
        let Ok(answer) = self.get("/server_info") else { return false };
        let text: String =
            answer.text.to_lowercase().chars().filter(|letter| !" '\"\\".contains(*letter)).collect();
        answer.status == 200
            && ["torch_profiler_with_stack=true", "torch_profiler_with_stack:true"]
                .iter()
                .any(|setting| text.contains(setting))
    }

    /// Creates the error of a server that was started without a profiler.
    pub(super) fn missing_profiler(&self, version: Option<&str>, folder: &str) -> CommandError {
        let new = format!(
            "`--profiler-config '{{\"profiler\":\"torch\",\"torch_profiler_dir\":\"{folder}\",\"torch_profiler_with_stack\":false}}'`"
        );
        let old = format!("`VLLM_TORCH_PROFILER_DIR={folder}` in its environment");
        let is_new = version.and_then(number_of).map(|number| number >= PROFILER_CONFIG_VERSION);
        let hint = match is_new {
            Some(true) => format!(
                "start the server with {new}; with vLLM-Ascend the variable VLLM_TORCH_PROFILER_DIR has no effect since 2026"
            ),
            Some(false) => format!("start the server with {old}; versions from 0.13 on need {new}"),
            None => format!("start the server with {new}; versions before 0.13 need {old}"),
        };
        let version = version.map(|version| format!(" (vLLM {version})")).unwrap_or_default();
        CommandError::cannot_measure(
            format!("{}{version} has no {START}: it was started without a profiler", self.url),
            format!("{hint}; of servers behind a proxy give the address of each node"),
        )
    }

    fn post(&self, path: &str, body: Option<&str>, limit: Duration) -> Result<(), RequestError> {
        let HttpAnswer { status, text } = self.request("POST", path, body, limit)?;
        match status {
            200..300 => Ok(()),
            _ => Err(RequestError::Status { url: format!("{}{path}", self.url), status, text }),
        }
    }

    pub(super) fn start_profiler(&self, limit: Duration) -> Result<(), RequestError> {
        self.post(START, None, limit)
    }

    /// Stops the profiler. A second request ends workers of the server, so that this is called once.
    pub(super) fn stop_profiler(&self, limit: Duration) -> Result<(), RequestError> {
        self.post(STOP, None, limit)
    }

    /// Sends a request to the model: to its chat interface if it has messages.
    pub(super) fn send_request(&self, body: &Value, limit: Duration) -> Result<(), RequestError> {
        let path = if body.get("messages").is_some() { "/v1/chat/completions" } else { "/v1/completions" };
        self.post(path, Some(&body.to_string()), limit)
    }
}

/// Returns major and minor number of a version such as `0.13.0rc1`.
fn number_of(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.trim_start_matches('v').split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}
