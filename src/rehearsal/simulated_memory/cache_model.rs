//! Model of the cache that all cores share: the storages used last, as far as their sum fits.

use std::collections::VecDeque;

/// A storage that a kernel reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UsedStorage {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
}

/// Storages in the cache of one device, the one used last at the end.
#[derive(Clone, Debug, Default)]
pub(crate) struct CacheModel {
    storages: VecDeque<UsedStorage>,
}

impl CacheModel {
    /// Uses a storage; returns true if it was in a cache of this capacity in bytes.
    pub(crate) fn use_storage(&mut self, storage: UsedStorage, capacity: u64) -> bool {
        let found = self.storages.iter().position(|cached| cached.number == storage.number);
        if let Some(index) = found {
            self.storages.remove(index);
        }
        self.storages.push_back(storage);
        let mut sum: u64 = self.storages.iter().map(|cached| cached.bytes).sum();
        while sum > capacity {
            let Some(removed) = self.storages.pop_front() else { break };
            sum -= removed.bytes;
        }
        found.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storages_used_least_recently_leave_the_cache() {
        let mut cache = CacheModel::default();
        let mut is_cached = |number, bytes| cache.use_storage(UsedStorage { number, bytes }, 100);
        assert!(!is_cached(1, 60) && is_cached(1, 60));
        assert!(!is_cached(2, 40) && is_cached(1, 60));
        assert!(!is_cached(3, 50), "1 and 2 leave");
        assert!(!is_cached(1, 60) && !is_cached(2, 40));
        assert!(!is_cached(4, 101) && !is_cached(4, 101), "larger than the cache");
    }
}
