//! Ranks whose profiles `npubench collect` has collected and analysed.

use super::prelude::*;
use crate::measure::collect::{AnalysedRank, RankState};

record! {
    pub(crate) RankRecord<'a>(rank: &'a AnalysedRank)
    with {
        let (state, counts, reason) = match &rank.state {
            RankState::Complete { kernels, collectives } => ("complete", Some((*kernels, *collectives)), None),
            RankState::Failed(reason) => ("failed", None, Some(reason.as_str())),
            RankState::Raw => ("not_analysed", None, None),
        };
    } {
        collectives: Option<usize> = counts.map(|(_, collectives)| collectives),
        folder: &'a Path = &rank.folder,
        item: &'static str = "profile",
        kernels: Option<usize> = counts.map(|(kernels, _)| kernels),
        reason: Option<&'a str> = reason,
        state: &'static str = state,
    }
}

pub(crate) fn ranks_text(ranks: &[AnalysedRank], width: Option<usize>) -> String {
    let name =
        |rank: &AnalysedRank| rank.folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let records: Vec<_> = ranks.iter().map(|rank| (name(rank), RankRecord::new(rank))).collect();
    let table = Table::new(&records)
        .text("profile", rank(0).min(24), |(name, _)| name)
        .text("state", 0, |(_, rank)| rank.state.replace('_', " "))
        .number("kernels", 1, |(_, rank)| or_dash(rank.kernels))
        .number("collectives", 1, |(_, rank)| or_dash(rank.collectives));
    let reasons = records.iter().filter_map(|(name, rank)| Some(format!("{name}: {}\n", rank.reason?)));
    table.print(width) + &reasons.collect::<String>()
}
