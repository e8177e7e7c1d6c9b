//! Records of the kernel that flushes the cache before each launch of a case.

use std::{borrow::Cow, collections::BTreeSet};

use super::RawRecord;
use crate::kernel::{Dtype, LogicalDeviceId, Nanos, render::Manifest};

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
