//! Command that measures collectives.

use std::{fmt, path::Path};

use super::{CollectiveKind, DataKind, Dims, Dtype, PartWeights, hccl_variables};
use crate::base::shell_argument::quoted_argument;

const LADDER_START: u64 = 1024;
const DEFAULT_LADDER_END: u64 = 512 << 20;

/// `npubench comm run` for one collective, which a shell accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SweepCommand<'c> {
    pub(crate) database: &'c Path,
    pub(crate) data_kind: DataKind,
    pub(crate) collective: CollectiveKind,
    pub(crate) ranks: u64,
    pub(crate) tier: Option<u64>,
    pub(crate) dtype: Option<&'c Dtype>,
    pub(crate) environment: &'c str,
    pub(crate) parts: &'c PartWeights,
    pub(crate) sizes: CommandSizes,
    pub(crate) measures_again: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CommandSizes {
    Default,
    Listed(Vec<u64>),
    Ladder(u64, u64),
}

impl CommandSizes {
    /// Returns the size itself if it is a multiple of `granularity`, else the multiples beside it.
    pub(crate) fn around(bytes: u64, granularity: u64) -> Self {
        let below = bytes - bytes % granularity.max(1);
        let above = below.checked_add(granularity).filter(|_| below < bytes);
        Self::Listed([below].into_iter().filter(|size| *size > 0).chain(above).collect())
    }

    /// Returns doubled sizes, multiples of `granularity`, on both sides of a size; `None` above 2^64.
    pub(crate) fn ladder_to(bytes: u64, granularity: u64) -> Option<Self> {
        let doubled = |from: u64| std::iter::successors(Some(from), |size: &u64| size.checked_mul(2));
        let first = granularity.max(1);
        let from = doubled(first).take_while(|size| *size <= bytes.min(LADDER_START)).last().unwrap_or(first);
        doubled(from).find(|size| *size >= bytes).map(|to| Self::Ladder(from, to))
    }

    pub(crate) fn default_of(granularity: u64) -> Self {
        if LADDER_START.is_multiple_of(granularity.max(1)) {
            return Self::Default;
        }
        Self::ladder_to(DEFAULT_LADDER_END, granularity).unwrap_or(Self::Default)
    }
}

impl fmt::Display for SweepCommand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let variables = hccl_variables(self.environment);
        if !variables.is_empty() {
            f.write_str("env ")?;
        }
        for (name, value) in variables {
            write!(f, "{} ", quoted_argument(&format!("{name}={value}")))?;
        }
        let folder = quoted_argument(&self.database.to_string_lossy());
        let host = self.data_kind.host_option();
        write!(f, "npubench comm run --db {folder}{host} --ops {} --ranks {}", self.collective, self.ranks)?;
        if let Some(tier) = self.tier {
            write!(f, " --tiers {tier}")?;
        }
        if let Some(name) = self.dtype.and_then(Dtype::torch_name) {
            write!(f, " --dtypes {name}")?;
        }
        if *self.parts != PartWeights::Equal {
            write!(f, " --parts {}", quoted_argument(&self.parts.to_string()))?;
        }
        match &self.sizes {
            CommandSizes::Default => {}
            CommandSizes::Listed(sizes) => write!(f, " --sizes {}", Dims(sizes))?,
            CommandSizes::Ladder(from, to) => write!(f, " --from {from} --to {to}")?,
        }
        f.write_str(if self.measures_again { " --update all" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_such_as_the_ranks_can_share() {
        use CommandSizes::{Default, Ladder, Listed};
        assert_eq!(CommandSizes::around(4096, 2), Listed(vec![4096]));
        for (ranks, expected) in [(3, vec![996, 1002]), (6, vec![996, 1008]), (12, vec![984, 1008])] {
            let granularity = CollectiveKind::AllToAll.size_granularity(2, ranks);
            assert_eq!(CommandSizes::around(1000, granularity), Listed(expected), "{ranks} ranks");
            let Some(Ladder(from, to)) = CommandSizes::ladder_to(50_000, granularity) else {
                panic!("a ladder of {ranks} ranks")
            };
            assert_eq!((from, to), (768, 98_304), "{ranks} ranks");
            assert_eq!(CommandSizes::default_of(granularity), Ladder(768, 768 << 20), "{ranks} ranks");
        }
        assert_eq!(CommandSizes::around(3, 32), Listed(vec![32]));
        assert_eq!(CommandSizes::around(u64::MAX, 4), Listed(vec![u64::MAX - 3]));
        assert_eq!(CommandSizes::ladder_to(655_360, 2), Some(Ladder(1024, 1 << 20)));
        assert_eq!(CommandSizes::ladder_to(128, 2), Some(Ladder(128, 128)));
        assert_eq!(CommandSizes::ladder_to(u64::MAX, 2), None);
        assert_eq!(CommandSizes::default_of(32), Default);
    }

    #[test]
    fn a_command_has_the_key_of_its_rows_for_a_shell() {
        let command = SweepCommand {
            database: Path::new("my db"),
            data_kind: DataKind::Rehearsal,
            collective: CollectiveKind::AllGather,
            ranks: 8,
            tier: Some(1),
            dtype: Some(&Dtype::Float),
            environment: "HCCL_ALGO=level0:ring;level1:H-D_R;HCCL_BUFFSIZE=400",
            parts: &PartWeights::Equal,
            sizes: CommandSizes::Listed(vec![1024, 1536]),
            measures_again: true,
        };
        assert_eq!(
            command.to_string(),
            "env 'HCCL_ALGO=level0:ring;level1:H-D_R' HCCL_BUFFSIZE=400 npubench comm run --db 'my db' --host rehearsal \
             --ops all_gather --ranks 8 --tiers 1 --dtypes float32 --sizes 1024,1536 --update all"
        );
        let parts: PartWeights = "0,2/3,1".parse().expect("weights");
        let unequal =
            SweepCommand { collective: CollectiveKind::AllToAllV, ranks: 2, parts: &parts, ..command };
        assert!(unequal.to_string().contains(" --parts 0,2/3,1 --sizes"), "{unequal}");
    }
}
