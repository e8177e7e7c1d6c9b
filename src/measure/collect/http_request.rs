//! One HTTP request over a connection of its own, without proxies and redirects: a proxy of the environment is for other
//! networks, and a repeated request to stop a profiler can end a server.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream, ToSocketAddrs as _},
    time::{Duration, Instant},
};

/// Port of a host without one.
const PORT: u16 = 80;
/// Maximum number of bytes of an answer.
const MAX_ANSWER: u64 = 16 << 20;

#[derive(Debug)]
pub(super) struct HttpAnswer {
    pub(super) status: u16,
    pub(super) text: String,
}

/// Connects to a host such as `node0:8000`.
pub(super) fn connect(host: &str, deadline: Instant) -> io::Result<TcpStream> {
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

/// Returns the time until the deadline, an error if it is over.
fn rest(deadline: Instant) -> io::Result<Duration> {
    let rest = deadline.saturating_duration_since(Instant::now());
    if rest.is_zero() { Err(io::Error::new(io::ErrorKind::TimedOut, "timeout")) } else { Ok(rest) }
}

/// Sends a request and waits for the answer, both until the deadline. A body is JSON. The text of the answer may break off: its
/// status is what counts.
pub(super) fn exchange(
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
    let mut answer = Vec::new();
    let mut block = [0; 1 << 14];
    let mut stream = stream.take(MAX_ANSWER);
    while !is_complete(&answer) {
        let left = match rest(deadline) {
            Err(_) if split_answer(&answer).is_some() => break,
            left => left?,
        };
        stream.get_ref().set_read_timeout(Some(left))?;
        match stream.read(&mut block) {
            Ok(0) => break,
            Ok(length) => answer.extend_from_slice(&block[..length]),
            // The time is checked again.
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) if split_answer(&answer).is_some() => break,
            Err(error) => return Err(error),
        }
    }
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP");
    let (head, body) = split_answer(&answer).ok_or_else(invalid)?;
    let mut words = head.split_ascii_whitespace();
    let status = words.next().filter(|version| version.starts_with("HTTP/")).and(words.next());
    let status = status.and_then(|status| status.parse().ok()).ok_or_else(invalid)?;
    Ok(HttpAnswer { status, text: String::from_utf8_lossy(body).into_owned() })
}

/// Returns the head of an answer and what has arrived of its body; `None` while the head is incomplete.
fn split_answer(answer: &[u8]) -> Option<(String, &[u8])> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    Some((String::from_utf8_lossy(&answer[..end]).into_owned(), &answer[end + 4..]))
}

/// Returns true if an answer has as many bytes as it states.
fn is_complete(answer: &[u8]) -> bool {
    let Some((head, body)) = split_answer(answer) else { return false };
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    length.is_some_and(|length| body.len() >= length)
}
