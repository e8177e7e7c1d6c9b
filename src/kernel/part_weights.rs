//! Relative sizes of the parts that ranks send to each other in an `all_to_all_v`.

use std::{fmt, iter, str::FromStr};

use serde::{Deserialize, Serialize};

use super::Dims;
/// Relative sizes of the parts between all pairs of ranks.
///
/// As text, they are empty for equal parts, `hot:4`, or a matrix with one row for each sender, such as
/// `1,2/3,0`. There is no `;`: a cell with numbers between `,` and `;` would be one list.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum PartWeights {
    #[default]
    Equal,
    /// Each rank sends this many times as much to rank 0 as to each other rank, itself included: one expert has the most tokens.
    Hot(u64),
    Matrix(Vec<Vec<u64>>),
}

/// Limit of weights and factors: sums over all ranks stay far below 2^64.
const MAX_WEIGHT: u64 = 1 << 32;

impl PartWeights {
    pub(crate) fn check_ranks(&self, ranks: u64) -> Result<(), String> {
        match self {
            Self::Matrix(rows) if rows.len() as u64 != ranks => {
                Err(format!("the matrix of parts is of {} ranks, not of {ranks}", rows.len()))
            }
            _ => Ok(()),
        }
    }

    fn sent_by(&self, sender: u64, ranks: u64) -> Vec<u64> {
        let place = usize::try_from(sender).unwrap_or(usize::MAX);
        let first = match self {
            Self::Equal => 1,
            Self::Hot(factor) => *factor,
            Self::Matrix(rows) => return rows.get(place).cloned().unwrap_or_default(),
        };
        let others = usize::try_from(ranks.saturating_sub(1)).unwrap_or_default();
        iter::once(first).chain(iter::repeat_n(1, others)).collect()
    }

    /// Returns the sizes of all parts, by sender and receiver, if the rank that sends most sends `message` elements. They
    /// are rounded so that the sizes of that rank add up to the message.
    pub(crate) fn part_sizes(&self, message: u64, ranks: u64) -> Vec<Vec<u64>> {
        let weights: Vec<Vec<u64>> = (0..ranks).map(|sender| self.sent_by(sender, ranks)).collect();
        let sum = |row: &Vec<u64>| row.iter().map(|weight| u128::from(*weight)).sum::<u128>();
        let most = weights.iter().map(sum).max().unwrap_or_default().max(1);
        // Differences of rounded sums, not rounded parts.
        let until = |weight: u128| u64::try_from(u128::from(message) * weight / most).unwrap_or(u64::MAX);
        let sizes = |row: &Vec<u64>| -> Vec<u64> {
            let mut weight = 0;
            let parts = row.iter().map(|part| {
                let first = until(weight);
                weight += u128::from(*part);
                until(weight) - first
            });
            parts.collect()
        };
        weights.iter().map(sizes).collect()
    }

    /// Returns the size of the output of the rank that receives most, and the size of the largest transfer of a rank with
    /// others, sent or received, if the rank that sends most sends `message`.
    pub(crate) fn busiest_sizes(&self, message: u64, ranks: u64) -> BusiestSizes {
        if *self == Self::Equal {
            let own = message / ranks.max(1);
            return BusiestSizes { received: message, with_others: message - own };
        }
        let parts = self.part_sizes(message, ranks);
        let (mut received, mut with_others) = (0, 0);
        for (rank, sent) in parts.iter().enumerate() {
            let own = sent.get(rank).copied().unwrap_or_default();
            let output: u64 = parts.iter().filter_map(|row| row.get(rank)).sum();
            received = received.max(output);
            with_others = with_others.max(sent.iter().sum::<u64>() - own).max(output - own);
        }
        BusiestSizes { received, with_others }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BusiestSizes {
    pub(crate) received: u64,
    /// Sent to others or received from others, without the rank's own part.
    pub(crate) with_others: u64,
}

impl fmt::Display for PartWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Equal => Ok(()),
            Self::Hot(factor) => write!(f, "hot:{factor}"),
            Self::Matrix(rows) => {
                let rows: Vec<String> = rows.iter().map(|row| Dims(row).to_string()).collect();
                f.write_str(&rows.join("/"))
            }
        }
    }
}

impl FromStr for PartWeights {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if matches!(text, "" | "equal") {
            return Ok(Self::Equal);
        }
        let whole = |cell: &str| cell.trim().parse::<u64>().ok().filter(|weight| *weight <= MAX_WEIGHT);
        if let Some(factor) = text.strip_prefix("hot:") {
            let factor =
                whole(factor).ok_or_else(|| format!("`{text}`: expected `hot:` and a factor up to 2^32"))?;
            return Ok(if factor == 1 { Self::Equal } else { Self::Hot(factor) });
        }
        let weight = |cell: &str| {
            let problem = "is no weight of a part; expected a whole number up to 2^32";
            whole(cell).ok_or_else(|| format!("`{}` {problem}", cell.trim()))
        };
        let row = |row: &str| row.split(',').map(weight).collect();
        let rows: Vec<Vec<u64>> = text.split('/').map(row).collect::<Result<_, _>>()?;
        if let Some((number, row)) = rows.iter().enumerate().find(|(_, row)| row.len() != rows.len()) {
            let (number, weights, count) = (number + 1, row.len(), rows.len());
            return Err(format!(
                "row {number} of the parts has {weights} weights, but there are {count} rows; expected one row for each sender, one \
                 weight for each receiver"
            ));
        }
        let sends = |(sender, row): (usize, &Vec<u64>)| {
            row.iter().enumerate().any(|(receiver, weight)| receiver != sender && *weight > 0)
        };
        if !rows.iter().enumerate().any(sends) {
            return Err("no rank sends a part to another one".to_owned());
        }
        Ok(Self::Matrix(rows))
    }
}

impl TryFrom<String> for PartWeights {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<PartWeights> for String {
    fn from(weights: PartWeights) -> Self {
        weights.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn weights(text: &str) -> PartWeights {
        text.parse().expect("weights")
    }

    #[test]
    fn sizes_of_the_busiest_ranks() {
        // Rank 0 receives 4/7 of each of 4 inputs, one of them its own: 3 * 400 bytes from others.
        let hot = weights("hot:4").busiest_sizes(700, 4);
        assert_eq!(hot, BusiestSizes { received: 1600, with_others: 1200 });
        assert_eq!(weights("").busiest_sizes(700, 4), BusiestSizes { received: 700, with_others: 525 });
        // Rank 1 sends most: 300 to rank 0 and 100 to itself.
        let matrix = weights("0,2/3,1");
        assert_eq!(matrix.part_sizes(400, 2), [[0, 200], [300, 100]]);
        assert_eq!(matrix.busiest_sizes(400, 2), BusiestSizes { received: 300, with_others: 300 });
        assert_eq!(weights("hot:1"), PartWeights::Equal);
    }

    #[test]
    fn wrong_texts_are_errors_that_name_the_place() {
        let error = |text: &str| text.parse::<PartWeights>().expect_err(text);
        assert!(error("1,2/3").starts_with("row 2 of the parts has 1 weights, but there are 2 rows"));
        assert!(error("1,x/3,4").starts_with("`x` is no weight of a part"));
        assert!(error("hot:-1").contains("a factor up to 2^32"));
        assert!(error("hot:99999999999").contains("a factor up to 2^32"));
        assert_eq!(error("5,0/0,7"), "no rank sends a part to another one");
        assert!(weights("1,2/3,4").check_ranks(4).expect_err("2 ranks").contains("of 2 ranks, not of 4"));
    }

    proptest! {
        #[test]
        fn parts_of_the_busiest_sender_add_up_to_the_message(
            rows in (2_usize..6).prop_flat_map(|ranks| {
                prop::collection::vec(prop::collection::vec(0_u64..9, ranks), ranks)
            }),
            message in 1_u64..1 << 40,
        ) {
            let ranks = rows.len() as u64;
            let text = PartWeights::Matrix(rows.clone()).to_string();
            let Ok(parsed) = text.parse::<PartWeights>() else { return Ok(()) };
            prop_assert_eq!(&parsed, &PartWeights::Matrix(rows.clone()));
            let parts = parsed.part_sizes(message, ranks);
            let sums: Vec<u64> = parts.iter().map(|row| row.iter().sum()).collect();
            prop_assert_eq!(sums.iter().max(), Some(&message));
            let most: u64 = rows.iter().map(|row| row.iter().sum()).max().unwrap_or_default();
            for (part, weight) in parts.iter().flatten().zip(rows.iter().flatten()) {
                let exact = message as f64 * *weight as f64 / most as f64;
                prop_assert!((*part as f64 - exact).abs() <= 1.0 + exact * 1e-12);
                prop_assert!(*weight > 0 || *part == 0);
            }
        }
    }
}
