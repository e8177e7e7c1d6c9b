//! Launches beside those of the cases: sentinels, between which the records of a case are, and flushes of the cache.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use super::RawRecord;
use crate::kernel::{Dtype, LogicalDeviceId, Nanos, render::Manifest};

/// Indices of the sentinels among the records of a process, by their length.
pub(super) struct Sentinels(BTreeMap<u64, Vec<usize>>);

impl Sentinels {
    pub(super) fn find(manifest: &Manifest, records: &[RawRecord]) -> Self {
        let mut positions: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (index, record) in records.iter().enumerate() {
            if record.kernel.starts_with(&manifest.sentinels.kernel)
                && let [Some(tensor)] = record.inputs.as_slice()
                && let (Dtype::Int32, [length]) = (&tensor.dtype, tensor.dims.as_slice())
            {
                positions.entry(*length).or_default().push(index);
            }
        }
        Self(positions)
    }

    /// Returns the range of the records between the sentinels of an ordinal, of a case or of a control kernel, if there is exactly
    /// one of each.
    pub(super) fn between(&self, manifest: &Manifest, ordinal: u32) -> Option<Range<usize>> {
        let single = |length: u64| match self.0.get(&length).map(Vec::as_slice) {
            Some([index]) => Some(*index),
            _ => None,
        };
        let from = single(manifest.sentinels.opening(ordinal))?;
        let to = single(manifest.sentinels.closing_length(ordinal))?;
        (from < to).then_some(from + 1..to)
    }
}

/// Flushes of a collection by device and start; `None` for one with a warm cache.
#[derive(Clone, Debug, Default)]
pub(super) struct CacheFlushes {
    starts: Option<BTreeSet<(Option<LogicalDeviceId>, Nanos)>>,
}

impl CacheFlushes {
    /// Divides the records of a collection into those of flushes and the others, which are returned. A flush is known by its
    /// kernel and the shape of its tensor, which no case of the manifest has.
    pub(super) fn split<'a>(manifest: &Manifest, records: &'a [RawRecord]) -> (Self, Cow<'a, [RawRecord]>) {
        let Some(dims) = manifest.flush_dims() else { return (Self::default(), Cow::Borrowed(records)) };
        let is_flush = |record: &&RawRecord| {
            let [Some(tensor)] = record.inputs.as_slice() else { return false };
            record.kernel.starts_with(&manifest.sentinels.kernel)
                && tensor.dtype == Dtype::Int32
                && tensor.dims == dims
        };
        let (flushes, others): (Vec<&RawRecord>, Vec<&RawRecord>) = records.iter().partition(is_flush);
        let starts = flushes.into_iter().map(|record| (record.device, record.start)).collect();
        (Self { starts: Some(starts) }, Cow::Owned(others.into_iter().cloned().collect()))
    }

    /// Returns the number of the first launch without a flush between it and the launch before, so that the cache may have had
    /// its tensors. Other kernels of the call may be between the flush and the launch.
    pub(super) fn launch_without_flush(&self, launches: &[&RawRecord]) -> Option<usize> {
        let starts = self.starts.as_ref()?;
        let mut earlier = Nanos(i64::MIN);
        launches.iter().position(|record| {
            let from = std::mem::replace(&mut earlier, record.start);
            from > record.start
                || starts.range((record.device, from)..(record.device, record.start)).next().is_none()
        })
    }
}
