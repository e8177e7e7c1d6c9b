//! Events of a chrome trace, read one by one, since a trace may be larger than memory.
//!
//! Profilers write the list of events at the top of the file, simulators and torch below `traceEvents`.

use std::{fmt, io, io::BufReader, marker::PhantomData, path::Path};

use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use crate::files::open_regular;

/// Bytes that are read at once.
const BUFFER: usize = 1 << 18;

/// Trace that cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TraceError {
    #[error("cannot be read: {0}")]
    Io(#[source] io::Error),
    /// Text that is no JSON, an event of another form, or one that was refused.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("has no `traceEvents`")]
    NoEvents,
}

/// Reads the events of a trace in their order. Keys without a field are ignored. An error of `on_event` ends the reading.
pub(crate) fn for_each_event<E: for<'de> Deserialize<'de>>(
    path: &Path,
    on_event: &mut dyn FnMut(E) -> Result<(), String>,
) -> Result<(), TraceError> {
    let file = open_regular(path).map_err(TraceError::Io)?;
    let mut parser = serde_json::Deserializer::from_reader(BufReader::with_capacity(BUFFER, file));
    let mut is_found = false;
    let seed = EventList { is_found: &mut is_found, on_event, event: PhantomData };
    seed.deserialize(&mut parser)?;
    parser.end()?;
    if is_found { Ok(()) } else { Err(TraceError::NoEvents) }
}

/// Reader of the list of events, at the top or below `traceEvents`.
struct EventList<'a, E> {
    is_found: &'a mut bool,
    on_event: &'a mut dyn FnMut(E) -> Result<(), String>,
    event: PhantomData<E>,
}

impl<'de, E: Deserialize<'de>> DeserializeSeed<'de> for EventList<'_, E> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de, E: Deserialize<'de>> Visitor<'de> for EventList<'_, E> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of events, or an object with `traceEvents`")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut events: A) -> Result<(), A::Error> {
        *self.is_found = true;
        while let Some(event) = events.next_element::<E>()? {
            (self.on_event)(event).map_err(A::Error::custom)?;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "traceEvents" => map.next_value_seed(EventList {
                    is_found: self.is_found,
                    on_event: self.on_event,
                    event: self.event,
                })?,
                _ => map.next_value::<IgnoredAny>().map(drop)?,
            }
        }
        Ok(())
    }
}
