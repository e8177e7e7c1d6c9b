//! Measurements with their samples, in the order of their attempts.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use rusqlite::{
    Params, Row, params,
    types::{FromSql, FromSqlResult, ValueRef},
};

use super::{
    Ledger, LedgerError, WITH_SAMPLES,
    launch_lists::{MeasuredDurations, read_samples},
    outcomes::{parse_reason, parse_verdict},
    parse_json, read_word,
    software::stored_fingerprint,
};
use crate::kernel::{
    AttemptSamples, CacheState, CaseId, CollectionSamples, IdentifiedSoftware, Reason, RecordedTask, Verdict,
};

/// Columns of an attempt with a measurement, see [`AttemptReader::read`].
const ATTEMPTS: &str =
    "SELECT a.attempt, a.case_id, a.collection, c.device, c.software, c.run, c.cache, a.verdict, a.cause,
        a.counters, a.op_state, a.core, a.operator, s.fingerprint, l.states, l.durations_ns, a.remarks
 FROM attempts a JOIN collections c USING (collection) LEFT JOIN software s ON s.digest = c.software
 LEFT JOIN launch_lists l USING (attempt)";

#[derive(Debug)]
pub(crate) struct MeasuredAttempt {
    /// Samples with the place of their collection, for the fit of all cases.
    pub(crate) measured: CollectionSamples,
    pub(crate) samples: AttemptSamples,
}

/// Reader of attempts that stores texts and software once, and equal tasks of attempts that follow each other: hundreds of
/// thousands of attempts have few different ones.
#[derive(Debug, Default)]
struct AttemptReader {
    texts: HashSet<Arc<str>>,
    /// Reasons by the JSON of their causes and remarks.
    reasons: HashMap<String, Arc<Reason>>,
    software: HashMap<Arc<str>, Option<Arc<IdentifiedSoftware>>>,
    /// Task of the attempt before.
    task: Arc<RecordedTask>,
}

impl AttemptReader {
    fn share(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        let new: Arc<str> = text.into();
        self.texts.insert(Arc::clone(&new));
        new
    }

    fn share_reason(&mut self, cause: &str, remarks: &str) -> rusqlite::Result<Arc<Reason>> {
        let key = format!("{cause}{remarks}");
        if let Some(known) = self.reasons.get(&key) {
            return Ok(Arc::clone(known));
        }
        let reason = Arc::new(parse_reason(cause, remarks)?);
        self.reasons.insert(key, Arc::clone(&reason));
        Ok(reason)
    }

    fn share_task(&mut self, [state, core, operator]: [&str; 3]) -> Arc<RecordedTask> {
        if [&self.task.state, &self.task.core, &self.task.operator] != [state, core, operator] {
            let [state, core, operator] = [state, core, operator].map(str::to_owned);
            self.task = Arc::new(RecordedTask { state, core, operator });
        }
        Arc::clone(&self.task)
    }

    /// Reads the columns of [`ATTEMPTS`].
    fn read(&mut self, row: &Row<'_>) -> rusqlite::Result<MeasuredAttempt> {
        let text = |column: usize| -> rusqlite::Result<&str> { Ok(row.get_ref(column)?.as_str()?) };
        let digest = row.get_ref(4)?.as_str_or_null()?.map(|digest| self.share(digest));
        let software = match &digest {
            None => None,
            Some(digest) => match self.software.get(digest) {
                Some(known) => known.clone(),
                None => {
                    let fingerprint = stored_fingerprint(row, 13)?.map(IdentifiedSoftware::new).map(Arc::new);
                    self.software.insert(Arc::clone(digest), fingerprint.clone());
                    fingerprint
                }
            },
        };
        let counters: Vec<Option<f64>> = parse_json(text(9)?)?;
        let MeasuredDurations { accepted, outliers } = read_samples(row, [14, 15])?;
        let samples = AttemptSamples {
            run: self.share(text(5)?),
            cache: read_word(row, 6)?,
            verdict: parse_verdict(text(7)?)?,
            reason: self.share_reason(text(8)?, text(16)?)?,
            samples: accepted.as_slice().into(),
            outliers,
            counters: counters.into(),
            task: self.share_task([text(10)?, text(11)?, text(12)?]),
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

impl FromSql for CaseId {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        value.as_str().map(Self::from_stored)
    }
}

impl Ledger {
    /// Visits every attempt with a measurement in one state of the cache, in the order of the attempts. Fails with
    /// [`LedgerError`] if the ledger cannot be read.
    pub(crate) fn for_each_attempt(
        &self,
        cache: CacheState,
        visit: impl FnMut(MeasuredAttempt),
    ) -> Result<(), LedgerError> {
        let condition = format!("c.cache = ?1 AND a.verdict IN ({WITH_SAMPLES})");
        self.visit_attempts(&condition, [cache.as_str()], visit).map_err(self.sqlite_error())
    }

    /// Returns the samples of every attempt of a case with a measurement in one state of the cache, oldest first.
    pub(crate) fn attempt_samples(
        &self,
        case: &CaseId,
        cache: CacheState,
    ) -> Result<Vec<AttemptSamples>, LedgerError> {
        let condition = format!("a.case_id = ?1 AND c.cache = ?2 AND a.verdict IN ({WITH_SAMPLES})");
        let mut attempts = Vec::new();
        let place = params![case.as_str(), cache.as_str()];
        self.visit_attempts(&condition, place, |attempt| attempts.push(attempt.samples))
            .map_err(self.sqlite_error())?;
        Ok(attempts)
    }

    fn visit_attempts(
        &self,
        condition: &str,
        parameters: impl Params,
        mut visit: impl FnMut(MeasuredAttempt),
    ) -> rusqlite::Result<()> {
        let mut reader = AttemptReader::default();
        let sql = format!("{ATTEMPTS} WHERE {condition} ORDER BY a.attempt");
        let mut attempts = self.connection.prepare_cached(&sql)?;
        let mut attempts = attempts.query(parameters)?;
        while let Some(row) = attempts.next()? {
            visit(reader.read(row)?);
        }
        Ok(())
    }

    /// Visits the accepted samples of every attempt with a measurement in one state of the cache, in the order of the
    /// attempts; without texts and counters, faster than [`Self::for_each_attempt`]. Fails with [`LedgerError`] if the ledger
    /// cannot be read.
    pub(crate) fn for_each_measurement(
        &self,
        cache: CacheState,
        mut visit: impl FnMut(&CollectionSamples),
    ) -> Result<(), LedgerError> {
        let sql = format!(
            "SELECT a.case_id, a.collection, c.software, c.device, CASE a.verdict WHEN 'noisy' THEN a.cause END,
                    l.states, l.durations_ns, a.remarks
             FROM attempts a JOIN collections c USING (collection) JOIN launch_lists l USING (attempt)
             WHERE c.cache = ?1 AND a.verdict IN ({WITH_SAMPLES}) ORDER BY a.attempt"
        );
        let mut read_all = || -> rusqlite::Result<()> {
            let mut statement = self.connection.prepare_cached(&sql)?;
            let mut rows = statement.query([cache.as_str()])?;
            while let Some(row) = rows.next()? {
                let samples = read_samples(row, [5, 6])?.accepted;
                if samples.is_empty() {
                    continue;
                }
                let noise = match row.get_ref(4)?.as_str_or_null()? {
                    Some(cause) => Some(Arc::new(parse_reason(cause, row.get_ref(7)?.as_str()?)?)),
                    None => None,
                };
                visit(&CollectionSamples {
                    case: row.get(0)?,
                    collection: row.get(1)?,
                    software: row.get(2)?,
                    device: row.get(3)?,
                    noise,
                    samples,
                });
            }
            Ok(())
        };
        read_all().map_err(self.sqlite_error())
    }
}
