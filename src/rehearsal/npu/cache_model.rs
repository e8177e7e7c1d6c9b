//! Model of the cache that all cores share: the storages used last, as far as their sum fits.

use std::collections::VecDeque;

/// Storages in the cache of one device, the one used last at the end.
#[derive(Clone, Debug, Default)]
pub(super) struct CacheModel {
    storages: VecDeque<(u64, u64)>,
}

impl CacheModel {
    /// Uses a storage of a number of bytes; returns true if it was in a cache of this capacity.
    pub(super) fn access(&mut self, storage: u64, bytes: u64, capacity: u64) -> bool {
        let found = self.storages.iter().position(|(known, _)| *known == storage);
        if let Some(index) = found {
            self.storages.remove(index);
        }
        self.storages.push_back((storage, bytes));
        let mut sum: u64 = self.storages.iter().map(|(_, bytes)| *bytes).sum();
        while sum > capacity {
            let Some((_, bytes)) = self.storages.pop_front() else { break };
            sum -= bytes;
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
        assert!(!cache.access(1, 60, 100) && cache.access(1, 60, 100));
        assert!(!cache.access(2, 40, 100) && cache.access(1, 60, 100));
        assert!(!cache.access(3, 50, 100), "1 and 2 leave");
        assert!(!cache.access(1, 60, 100) && !cache.access(2, 40, 100));
        assert!(!cache.access(4, 101, 100) && !cache.access(4, 101, 100), "larger than the cache");
    }
}
