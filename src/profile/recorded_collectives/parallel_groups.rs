//! Groups of ranks of a run, as torch_npu records them in `parallel_group_info`.
//!
//! Traces and communication.json identify a group by a hash of HCCL's name of it. The hash is two polynomial hashes of 32
//! bits with the factors 29 and 131 (msprof, `HashData`); the names of collectives end with its last three digits.

use crate::profile::prelude::*;

const FACTORS: [u32; 2] = [29, 131];
const DIGITS: u64 = 1000;

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Value")]
pub(super) struct ParallelGroups(BTreeMap<String, Vec<u64>>);

impl From<Value> for ParallelGroups {
    fn from(groups: Value) -> Self {
        #[derive(Deserialize)]
        struct Group {
            global_ranks: Vec<u64>,
        }
        let groups: BTreeMap<String, Value> = serde_json::from_value(groups).unwrap_or_default();
        let parsed = groups.into_iter().filter_map(|(name, group)| {
            let Group { global_ranks } = serde_json::from_value(group).ok()?;
            (!global_ranks.is_empty()).then_some((name, global_ranks))
        });
        Self(parsed.collect())
    }
}

impl ParallelGroups {
    pub(super) fn of_name(&self, name: &str) -> Option<&[u64]> {
        self.0.get(name).map(Vec::as_slice)
    }

    /// Returns the ranks of the group of a collective by its name, such as `hcom_allReduce__097_4_1`, where 097 are the last digits of
    /// the hash; `None` if no group has them, or several with other ranks.
    pub(super) fn of_collective(&self, name: &str) -> Option<&[u64]> {
        let digits: u64 = group_digits(name)?.parse().ok()?;
        let mut found = self.0.iter().filter(|(name, _)| hash_of_group(name) % DIGITS == digits);
        let (_, ranks) = found.next()?;
        found.all(|(_, others)| others == ranks).then_some(ranks)
    }
}

pub(super) fn group_digits(name: &str) -> Option<&str> {
    name.split_once("__")?.1.split('_').next().filter(|digits| !digits.is_empty())
}

fn hash_of_group(name: &str) -> u64 {
    let hash = |factor: u32| {
        name.bytes().fold(0_u32, |hash, byte| hash.wrapping_mul(factor).wrapping_add(u32::from(byte)))
    };
    let [upper, lower] = FACTORS.map(hash);
    u64::from(upper) << 32 | u64::from(lower)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of groups with the hashes in communication.json of the same profiles.
    #[test]
    fn hashes_are_those_of_msprof() {
        assert_eq!(hash_of_group("group_name_5"), 5_862_276_114_690_318_097);
        assert_eq!(hash_of_group("group_name_13"), 3_985_310_379_703_952_346);
        assert_eq!(
            hash_of_group("90.91.105.46%enp189s0f0_60000_0_1736410538306028"),
            17_148_521_525_495_523_210
        );
    }

    #[test]
    fn ranks_of_a_collective_are_those_of_its_group() {
        let groups = ParallelGroups::from(serde_json::json!(
            {"group_name_0": {"group_name": "default_group", "group_rank": 0, "global_ranks": [0, 1, 2, 3]},
                "group_name_5": {"group_name": "dp", "group_rank": 0, "global_ranks": [0, 1]}, "odd": 3}
        ));
        assert_eq!(groups.of_collective("hcom_reduceScatter__097_4_1"), Some(&[0, 1][..]));
        assert_eq!(groups.of_collective("hcom_allReduce__612_4_1"), Some(&[0, 1, 2, 3][..]));
        assert_eq!(groups.of_collective("hcom_allReduce__613_4_1"), None);
        assert_eq!(groups.of_collective("allReduce"), None);
        assert_eq!(groups.of_name("group_name_5"), Some(&[0, 1][..]));
        assert_eq!(ParallelGroups::from(serde_json::json!([])), ParallelGroups::default());
    }
}
