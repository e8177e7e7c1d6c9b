//! Events of a chrome trace, read one by one, since a trace may be larger than memory.
//!
//! Profilers write the list of events at the top of the file, simulators and torch below `traceEvents`. The file is read
//! in blocks and events are parsed in place: text is borrowed from the block, and arguments stay text until a reader
//! parses them.

use std::{
    borrow::Cow,
    fs::File,
    io::{self, Read as _},
};

use serde::de::IgnoredAny;
use serde_json::{Deserializer, value::RawValue};

use super::prelude::*;
use crate::{base::json_error::json_message, profile::timeline::TimeSpan};

const BLOCK: usize = 1 << 20;
const MAX_EVENT: usize = 256 << 20;

#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("cannot be read: {0}")]
    Io(#[source] io::Error),
    /// Text that is no JSON, an event of another form, or one that was refused.
    #[error("line {line}, column {column}: {problem}")]
    Text {
        line: u64,
        /// Column in bytes, from 1.
        column: u64,
        problem: String,
    },
    #[error("has no `traceEvents`")]
    NoEvents,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct TraceEvent<'a> {
    #[serde(borrow)]
    pub(crate) name: Cow<'a, str>,
    /// Kind of the event: `X` for one with a duration, `M` for metadata, `s` and `f` for the ends of a flow.
    #[serde(borrow)]
    pub(crate) ph: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) cat: Cow<'a, str>,
    #[serde(borrow)]
    ts: Option<&'a RawValue>,
    #[serde(borrow)]
    dur: Option<&'a RawValue>,
    #[serde(borrow)]
    pid: Option<&'a RawValue>,
    #[serde(borrow)]
    tid: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
}

/// Returns the text of a number or a text without escapes; `None` for other values.
pub(crate) fn plain_text(value: Option<&RawValue>) -> Option<&str> {
    let text = value?.get().trim();
    match text.strip_prefix('"') {
        Some(quoted) => quoted.strip_suffix('"'),
        None => text.starts_with(|first: char| first.is_ascii_digit() || first == '-').then_some(text),
    }
}

/// Parses microseconds exactly: start times since the epoch have more digits than a floating point number.
fn parse_time(value: Option<&RawValue>) -> Option<Nanos> {
    let text = plain_text(value)?;
    Nanos::parse_micros(text.as_bytes()).ok().or_else(|| {
        // Small and large durations may have an exponent.
        let micros: f64 = text.parse().ok()?;
        (micros.abs() < 1e12).then(|| Nanos::from_seconds(micros * 1e-6))
    })
}

impl<'a> TraceEvent<'a> {
    pub(crate) fn start(&self) -> Option<Nanos> {
        parse_time(self.ts)
    }

    pub(crate) fn duration(&self) -> Option<Nanos> {
        parse_time(self.dur)
    }

    /// Returns start and end; `None` if one is missing, or if they are not [valid](TimeSpan::recorded).
    pub(crate) fn span(&self) -> Option<TimeSpan> {
        self.start().zip(self.duration()).and_then(TimeSpan::of_start)
    }

    pub(crate) fn has_duration(&self) -> bool {
        self.dur.is_some_and(|value| value.get() != "null")
    }

    pub(crate) fn process(&self) -> &'a str {
        plain_text(self.pid).unwrap_or_default()
    }

    pub(crate) fn thread(&self) -> &'a str {
        plain_text(self.tid).unwrap_or_default()
    }

    pub(crate) fn flow(&self) -> &'a str {
        plain_text(self.id).unwrap_or_default()
    }

    /// Parses the arguments; the default if there are none, or if they have another form.
    pub(crate) fn arguments<T: Default + Deserialize<'a>>(&self) -> T {
        self.args.and_then(|args| serde_json::from_str(args.get()).ok()).unwrap_or_default()
    }
}

/// Visits the events of a trace in their order. Keys without a field are ignored. An error of `on_event` ends the reading.
pub(crate) fn for_each_trace_event(
    path: &Path,
    on_event: &mut dyn FnMut(&TraceEvent<'_>) -> Result<(), String>,
) -> Result<(), TraceError> {
    let file = open_regular(path).map_err(TraceError::Io)?;
    let mut text = TraceText { file, block: Vec::new(), at: 0, is_read: false, line: 1, column: 1 };
    if text.peek()? == Some(0xef) {
        text.expect_text(b"\xef\xbb\xbf")?;
    }
    match text.peek()? {
        Some(b'[') => text.read_list(on_event)?,
        Some(b'{') => text.read_object(on_event)?,
        _ => return Err(text.error_at(text.at, "expected a list of events, or an object with `traceEvents`")),
    }
    match text.peek()? {
        None => Ok(()),
        Some(_) => Err(text.error_at(text.at, "trailing characters behind the events")),
    }
}

type ParsedValue = serde_json::Result<(usize, Result<(), String>)>;

/// Visits the value at the start of a text; `None` for a blank text.
fn first_value<'t, T: Deserialize<'t>>(
    text: &'t [u8],
    visit: &mut dyn FnMut(T) -> Result<(), String>,
) -> Option<ParsedValue> {
    let mut values = Deserializer::from_slice(text).into_iter::<T>();
    let result = values.next()?.map(visit);
    Some(result.map(|result| (values.byte_offset(), result)))
}

struct TraceText {
    file: File,
    block: Vec<u8>,
    at: usize,
    is_read: bool,
    line: u64,
    column: u64,
}

impl TraceText {
    /// Drops what was parsed, and reads more behind the rest; false at the end of the file.
    fn read_more(&mut self) -> Result<bool, TraceError> {
        (self.line, self.column) = self.place_at(self.at);
        self.block.drain(..self.at);
        self.at = 0;
        if self.is_read {
            return Ok(false);
        }
        if self.block.len() > MAX_EVENT {
            return Err(self.error_at(0, "the event does not end within 256 MiB"));
        }
        // An event that is longer than a block needs few attempts.
        let wanted = self.block.len().max(BLOCK);
        let mut input = (&self.file).take(wanted as u64);
        let read = input.read_to_end(&mut self.block).map_err(TraceError::Io)?;
        self.is_read = read < wanted;
        Ok(read > 0)
    }

    fn peek(&mut self) -> Result<Option<u8>, TraceError> {
        loop {
            while let Some(byte) = self.block.get(self.at) {
                if !byte.is_ascii_whitespace() {
                    return Ok(Some(*byte));
                }
                self.at += 1;
            }
            if !self.read_more()? {
                return Ok(None);
            }
        }
    }

    fn expect_text(&mut self, expected: &[u8]) -> Result<(), TraceError> {
        while self.block.len() - self.at < expected.len() && self.read_more()? {}
        if !self.block[self.at..].starts_with(expected) {
            let problem = format!("expected `{}`", String::from_utf8_lossy(expected));
            return Err(self.error_at(self.at, &problem));
        }
        self.at += expected.len();
        Ok(())
    }

    /// Parses the next value with `parse`, which gets the rest of the block, and reads more of the file until it is complete.
    fn parse_value(&mut self, parse: &mut dyn FnMut(&[u8]) -> Option<ParsedValue>) -> Result<(), TraceError> {
        loop {
            match parse(&self.block[self.at..]) {
                Some(Ok((length, result))) if self.is_complete(self.at + length) => {
                    let at = self.at;
                    self.at += length;
                    return result.map_err(|problem| self.error_at(at, &problem));
                }
                // A number at the end of the block may go on behind it.
                Some(Err(error)) if !error.is_eof() && self.place_of_error(&error) + 1 < self.block.len() => {
                    return Err(self.error_at(self.place_of_error(&error), &json_message(&error)));
                }
                _ => {}
            }
            if !self.read_more()? {
                return Err(
                    self.error_at(self.block.len(), "the file ends within an event; it is incomplete")
                );
            }
        }
    }

    /// Returns true if a value ends at a place of the block: a number at the end of the block may go on behind it.
    fn is_complete(&self, end: usize) -> bool {
        self.is_read || end < self.block.len() || matches!(self.block[end - 1], b'}' | b']' | b'"')
    }

    fn read_list(
        &mut self,
        on_event: &mut dyn FnMut(&TraceEvent<'_>) -> Result<(), String>,
    ) -> Result<(), TraceError> {
        self.at += 1;
        if self.peek()? == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.parse_value(&mut |rest| first_value(rest, &mut |event: TraceEvent<'_>| on_event(&event)))?;
            match self.peek()? {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(_) => return Err(self.error_at(self.at, "expected `,` or `]` behind an event")),
                None => {
                    return Err(self.error_at(self.at, "the list of events does not end; it is incomplete"));
                }
            }
            self.peek()?;
        }
    }

    fn read_object(
        &mut self,
        on_event: &mut dyn FnMut(&TraceEvent<'_>) -> Result<(), String>,
    ) -> Result<(), TraceError> {
        self.at += 1;
        let mut is_found = false;
        let mut byte = self.peek()?;
        while byte != Some(b'}') {
            let mut is_events = false;
            self.parse_value(&mut |rest| {
                first_value(rest, &mut |key: String| {
                    is_events = key == "traceEvents";
                    Ok(())
                })
            })?;
            self.peek()?;
            self.expect_text(b":")?;
            match (is_events, self.peek()?) {
                (true, Some(b'[')) => {
                    is_found = true;
                    self.read_list(on_event)?;
                }
                (true, _) => return Err(self.error_at(self.at, "`traceEvents` is not a list")),
                (false, _) => self.parse_value(&mut |rest| first_value(rest, &mut |_: IgnoredAny| Ok(())))?,
            }
            byte = self.peek()?;
            match byte {
                Some(b',') => {
                    self.at += 1;
                    byte = self.peek()?;
                }
                Some(b'}') => {}
                _ => return Err(self.error_at(self.at, "expected `,` or `}` behind a value")),
            }
        }
        self.at += 1;
        if is_found { Ok(()) } else { Err(TraceError::NoEvents) }
    }

    fn place_of_error(&self, error: &serde_json::Error) -> usize {
        let rest = &self.block[self.at..];
        let lines = error.line().saturating_sub(1);
        let starts = memchr::memchr_iter(b'\n', rest).take(lines).last().map_or(0, |end| end + 1);
        self.at + starts + error.column().saturating_sub(1)
    }

    fn place_at(&self, at: usize) -> (u64, u64) {
        let before = &self.block[..at.min(self.block.len())];
        match memchr::memrchr(b'\n', before) {
            Some(last) => {
                let lines = memchr::memchr_iter(b'\n', before).count() as u64;
                (self.line + lines, (before.len() - last) as u64)
            }
            None => (self.line, self.column + before.len() as u64),
        }
    }

    fn error_at(&self, at: usize, problem: &str) -> TraceError {
        let (line, column) = self.place_at(at);
        TraceError::Text { line, column, problem: problem.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns name, start and arguments of the events of a text.
    fn events_of(text: &str) -> Result<Vec<(String, Option<i64>, i64)>, TraceError> {
        #[derive(Default, Deserialize)]
        struct Arguments {
            n: i64,
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("trace_view.json");
        fs::write(&path, text).expect("written");
        let mut events = Vec::new();
        for_each_trace_event(&path, &mut |event| {
            if event.name == "refused" {
                return Err("the event is refused".to_owned());
            }
            let arguments: Arguments = event.arguments();
            events.push((event.name.to_string(), event.start().map(|time| time.0), arguments.n));
            Ok(())
        })?;
        Ok(events)
    }

    #[test]
    fn events_larger_than_a_block_and_at_its_end_are_read() {
        let long = "x".repeat(3 * BLOCK / 2);
        let names: Vec<String> = (0..30_000).map(|n| format!("event {n} \\u00e9 \"quoted\"")).collect();
        let mut events: Vec<String> = names
            .iter()
            .zip(0..)
            .map(|(name, n)| {
                serde_json::json!({"name": name, "ts": format!("17364088836{n:05}.25{}", n % 10), "args": {"n": n}})
                    .to_string()
            })
            .collect();
        events.insert(20_000, format!("{{\"name\": \"{long}\", \"ts\": 1.5}}"));
        for text in [
            format!("[{}]", events.join(",")),
            format!("{{\"a\": [{{}}], \"traceEvents\": [\n{}\n],\n \"z\": null}}\n", events.join(" ,\n")),
        ] {
            let read = events_of(&text).expect("read");
            assert_eq!(read.len(), 30_001);
            assert_eq!(read[20_000], (long.clone(), Some(1_500), 0));
            for (n, (name, start, argument)) in (0_i64..).zip(read.iter().filter(|(name, ..)| *name != long))
            {
                assert_eq!(*name, names[usize::try_from(n).expect("small")]);
                let expected = (17_364_088_836 * 100_000 + n) * 1_000 + 250 + n % 10;
                assert_eq!((*start, *argument), (Some(expected), n));
            }
        }
    }

    #[test]
    fn numbers_at_the_end_of_a_block_are_read() {
        let number = "-12.25e+1";
        for inside in 0..=number.len() {
            let head = "[{\"name\": \"";
            let middle =
                format!("\"}},{{\"name\": \"a\", \"args\": {{\"n\": 7, \"other\": {number}}}, \"ts\": ");
            let pad = BLOCK - head.len() - middle.len() - inside;
            let text = format!("{head}{}{middle}{number}}}]", "x".repeat(pad));
            assert_eq!(events_of(&text).expect("read")[1], ("a".to_owned(), Some(-122_500), 7), "{inside}");
        }
    }

    #[test]
    fn errors_have_line_and_column() {
        let cases = [
            ("", "line 1, column 1: expected a list of events, or an object with `traceEvents`"),
            ("[{\"name\": \"a\"},\n  {\"name\": }]", "line 2, column 12: expected value"),
            ("[{\"name\": \"a\"},\n  {\"name\": \"refused\"}]", "line 2, column 3: the event is refused"),
            (
                "[{\"name\": \"a\"},\n  {\"name\"",
                "line 2, column 10: the file ends within an event; it is incomplete",
            ),
            ("[{}\n", "line 2, column 1: the list of events does not end; it is incomplete"),
            ("[{} {}]", "line 1, column 5: expected `,` or `]` behind an event"),
            ("[{}] 1", "line 1, column 6: trailing characters behind the events"),
            ("{\"traceEvents\": 1}", "line 1, column 17: `traceEvents` is not a list"),
            ("{\"other\": []}", "has no `traceEvents`"),
        ];
        for (text, expected) in cases {
            assert_eq!(events_of(text).expect_err(text).to_string(), expected, "{text}");
        }
        assert!(events_of(&format!("[{}", "{},".repeat(1 << 20))).is_err());
    }

    #[test]
    fn odd_times_are_missing_times() {
        for (time, expected) in [
            ("\"1736408883688177.930\"", Some(1_736_408_883_688_177_930)),
            ("1.5e3", Some(1_500_000)),
            ("1e300", None),
            ("null", None),
            ("\"\"", None),
            ("{\"a\": 1}", None),
            ("true", None),
        ] {
            assert_eq!(events_of(&format!("[{{\"ts\": {time}}}]")).expect("read")[0].1, expected, "{time}");
        }
    }
}
