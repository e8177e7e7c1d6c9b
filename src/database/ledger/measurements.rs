//! Measurements with their samples, in the order of their attempts.

use std::{collections::HashMap, sync::Arc};

use rusqlite::{Params, Row, params};

use super::{
    Ledger, LedgerError, WITH_SAMPLES,
    launch_lists::read_samples,
    values::{Json, parse_reason},
};
use crate::kernel::{
    AttemptSamples, CacheState, CaseId, CollectionSamples, IdentifiedSoftware, Reason, RecordedTask, Verdict,
};

const ATTEMPTS: &str =
    "SELECT a.attempt, a.case_id, a.collection, c.device, c.software, c.run, c.cache, a.verdict, a.cause,
        a.remarks, a.counters, a.op_state, a.core, a.operator, s.fingerprint, l.states, l.durations_ns
 FROM attempts a JOIN collections c USING (collection) LEFT JOIN software s ON s.digest = c.software
 LEFT JOIN launch_lists l USING (attempt)";

#[derive(Debug)]
pub(crate) struct MeasuredAttempt {
    pub(crate) measured: CollectionSamples,
    pub(crate) samples: AttemptSamples,
}

/// Reader of attempts that stores equal texts, reasons, tasks and software once: hundreds of thousands of attempts have few
/// different ones.
#[derive(Debug, Default)]
struct AttemptReader {
    texts: HashMap<String, Arc<str>>,
    reasons: HashMap<String, Arc<Reason>>,
    software: HashMap<String, Option<Arc<IdentifiedSoftware>>>,
    tasks: HashMap<String, Arc<RecordedTask>>,
}

fn shared<T: Clone>(
    known: &mut HashMap<String, T>,
    key: &str,
    make: impl FnOnce() -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    if let Some(value) = known.get(key) {
        return Ok(value.clone());
    }
    let value = make()?;
    known.insert(key.to_owned(), value.clone());
    Ok(value)
}

impl AttemptReader {
    fn read(&mut self, row: &Row<'_>) -> rusqlite::Result<MeasuredAttempt> {
        let text = |column: usize| -> rusqlite::Result<&str> { Ok(row.get_ref(column)?.as_str()?) };
        let digest = row.get_ref(4)?.as_str_or_null()?;
        let software = match digest {
            None => None,
            Some(digest) => shared(&mut self.software, digest, || {
                let stored: Option<Json<_>> = row.get(14)?;
                Ok(stored.map(|Json(stored)| Arc::new(IdentifiedSoftware::new(stored))))
            })?,
        };
        let texts = &mut self.texts;
        let mut share = |text: &str| shared(texts, text, || Ok(text.into()));
        let digest = digest.map(&mut share).transpose()?;
        let (cause, remarks) = (text(8)?, text(9)?);
        let [state, core, operator] = [text(11)?, text(12)?, text(13)?];
        let task = shared(&mut self.tasks, &format!("{state}\n{core}\n{operator}"), || {
            let [state, core, operator] = [state, core, operator].map(str::to_owned);
            Ok(Arc::new(RecordedTask { state, core, operator }))
        })?;
        let Json(counters): Json<Vec<Option<f64>>> = row.get(10)?;
        let (accepted, outliers) = read_samples(row, 15)?;
        let samples = AttemptSamples {
            run: share(text(5)?)?,
            cache: row.get(6)?,
            verdict: row.get(7)?,
            reason: shared(&mut self.reasons, &format!("{cause}{remarks}"), || {
                parse_reason(cause, remarks).map(Arc::new)
            })?,
            samples: accepted.as_slice().into(),
            outliers,
            counters: counters.into(),
            task,
            software,
        };
        let measured = CollectionSamples {
            case: row.get(1)?,
            collection: row.get(2)?,
            device: row.get(3)?,
            software: digest,
            noise: (samples.verdict == Verdict::Noisy).then(|| Arc::clone(&samples.reason)),
            samples: accepted,
        };
        Ok(MeasuredAttempt { measured, samples })
    }
}

impl Ledger {
    pub(crate) fn for_each_attempt(
        &self,
        cache: CacheState,
        visit: impl FnMut(MeasuredAttempt),
    ) -> Result<(), LedgerError> {
        self.visit_attempts("c.cache = ?1", [cache], visit)
    }

    pub(crate) fn attempt_samples(
        &self,
        case: &CaseId,
        cache: CacheState,
    ) -> Result<Vec<AttemptSamples>, LedgerError> {
        let mut attempts = Vec::new();
        self.visit_attempts("a.case_id = ?1 AND c.cache = ?2", params![case, cache], |attempt| {
            attempts.push(attempt.samples);
        })?;
        Ok(attempts)
    }

    fn visit_attempts(
        &self,
        condition: &str,
        parameters: impl Params,
        mut visit: impl FnMut(MeasuredAttempt),
    ) -> Result<(), LedgerError> {
        let mut reader = AttemptReader::default();
        let sql =
            format!("{ATTEMPTS} WHERE {condition} AND a.verdict IN ({WITH_SAMPLES}) ORDER BY a.attempt");
        self.visit_rows(&sql, parameters, |row| {
            visit(reader.read(row)?);
            Ok(())
        })
    }

    /// Visits the accepted samples of every attempt that has some, see [`Self::for_each_attempt`].
    pub(crate) fn for_each_measurement(
        &self,
        cache: CacheState,
        mut visit: impl FnMut(&CollectionSamples),
    ) -> Result<(), LedgerError> {
        self.for_each_attempt(cache, |MeasuredAttempt { measured, .. }| {
            if !measured.samples.is_empty() {
                visit(&measured);
            }
        })
    }
}
