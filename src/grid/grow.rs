//! From the spaces of one kernel to the candidates that become rows, with a count for every reason.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    hash::BuildHasher as _,
};

use foldhash::quality::FixedState;

use super::{Candidates, Draft, sample};
use crate::{
    model::Case,
    spec::{DeviceProfile, Entry, QuickRule, grid::Space},
};

/// What is there of a kernel: its cases, and which spaces made how many of them.
///
/// Signatures are kept as hashes: of a million cases, two share one with a chance of 1 to 30 million, as ids do.
#[derive(Clone, Debug, Default)]
pub struct Known {
    signatures: HashSet<u64, FixedState>,
    grown: BTreeMap<String, usize>,
}

impl Known {
    /// Nothing but how many rows earlier growths made, by the [`Space::origin`] of each.
    #[must_use]
    pub fn with_rows(grown: BTreeMap<String, usize>) -> Self {
        Self { grown, ..Self::default() }
    }

    /// Remembers a case; says whether it is new.
    pub fn insert(&mut self, case: &Case) -> bool {
        self.signatures.insert(Self::key(case))
    }

    /// Whether the case is there.
    #[must_use]
    pub fn contains(&self, case: &Case) -> bool {
        self.signatures.contains(&Self::key(case))
    }

    /// Rows that earlier growths of a space made.
    #[must_use]
    pub fn rows_of(&self, space: &Space) -> usize {
        self.grown.get(&space.origin()).copied().unwrap_or_default()
    }

    fn key(case: &Case) -> u64 {
        FixedState::with_seed(0).hash_one(case.signature())
    }
}

/// What is asked of the spaces of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Order<'a> {
    /// The catalogue's entry; without one nothing can be replayed.
    pub entry: Option<&'a Entry>,
    /// Bytes of device memory.
    pub budget: u64,
    /// How many rows are wanted of these spaces, those of earlier growths included; all where `None`.
    pub rows: Option<usize>,
    /// Decides the sample.
    pub seed: u64,
}

/// Why a candidate becomes no row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refused {
    /// A constraint of the grid does not hold, or what it derives has no whole value.
    Constraint(String),
    /// A dimension has no whole value from 1 on.
    Dimension(String),
    /// It needs more memory than there is.
    Memory,
    /// The catalogue has no entry.
    NoEntry,
    /// The catalogue's rule refuses it.
    Rule,
    /// A row of that signature is there.
    Known,
    /// Another candidate has the same signature.
    Twice,
    /// It is valid, and not among those that were taken.
    NotTaken,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constraint(source) => write!(f, "`{source}` does not hold"),
            Self::Dimension(source) => write!(f, "`{source}` is no dimension"),
            Self::Memory => f.write_str("too large for the memory"),
            Self::NoEntry => f.write_str("the catalogue has no entry"),
            Self::Rule => f.write_str("refused by the shape rule"),
            Self::Known => f.write_str("there already"),
            Self::Twice => f.write_str("the same as another"),
            Self::NotTaken => f.write_str("not taken"),
        }
    }
}

/// Least and greatest value of an axis among the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The least.
    pub least: i64,
    /// The greatest.
    pub greatest: i64,
    /// How many different values there are.
    pub values: usize,
}

/// What became of the candidates of a kernel.
#[derive(Debug)]
pub struct Grown<'a> {
    /// The spaces that they are from.
    pub spaces: Vec<&'a Space>,
    /// All candidates.
    pub candidates: u64,
    /// Those that become no row, by reason.
    pub refused: BTreeMap<Refused, u64>,
    /// What the catalogue's rule said of the first one that it refused.
    pub example: Option<String>,
    /// Numbers of the candidates of each space that become rows, ascending.
    pub taken: Vec<Vec<u64>>,
}

/// Counts of one space, by place: what is derived, constraints, then the rest.
struct Tally<'a> {
    space: &'a Space,
    constraints: Vec<u64>,
    refused: BTreeMap<Refused, u64>,
}

impl<'a> Tally<'a> {
    fn new(space: &'a Space) -> Self {
        let constraints = vec![0; space.derived.len() + space.conditions.len()];
        Self { space, constraints, refused: BTreeMap::new() }
    }

    fn add_to(self, all: &mut BTreeMap<Refused, u64>) {
        let formulas = self.space.derived.iter().chain(&self.space.conditions);
        for (formula, count) in formulas.zip(self.constraints).filter(|(_, count)| *count > 0) {
            *all.entry(Refused::Constraint(formula.source().to_owned())).or_default() += count;
        }
        for (reason, count) in self.refused {
            *all.entry(reason).or_default() += count;
        }
    }
}

/// Expands the spaces of a kernel against what is known of it. Rows that earlier growths of these spaces made count
/// among those that are wanted, so that growing twice adds nothing; rows of other spaces, as of other models, do not.
#[must_use]
pub fn grow<'a>(spaces: Vec<&'a Space>, order: &Order<'_>, known: &Known) -> Grown<'a> {
    let mut seen = Known::default();
    let mut refused = BTreeMap::new();
    let mut example = None;
    let (mut valid, mut there) = (Vec::with_capacity(spaces.len()), Vec::with_capacity(spaces.len()));
    for space in &spaces {
        let mut tally = Tally::new(space);
        valid.push(valid_of(space, order, known, &mut seen, &mut tally, &mut example));
        there.push(tally.refused.get(&Refused::Known).copied().unwrap_or_default());
        tally.add_to(&mut refused);
    }
    let strata = spaces.iter().zip(&valid).zip(there);
    let strata = strata.map(|((space, valid), there)| sample::Stratum {
        space,
        valid,
        grown: known.rows_of(space),
        there,
    });
    let strata: Vec<sample::Stratum<'_>> = strata.collect();
    let taken = sample::sample(&strata, order.rows, order.seed);
    let left = valid.iter().map(Vec::len).sum::<usize>() - taken.iter().map(Vec::len).sum::<usize>();
    if left > 0 {
        refused.insert(Refused::NotTaken, left as u64);
    }
    let candidates = spaces.iter().map(|space| space.candidates()).sum();
    Grown { spaces, candidates, refused, example, taken }
}

fn valid_of(
    space: &Space,
    order: &Order<'_>,
    known: &Known,
    seen: &mut Known,
    tally: &mut Tally<'_>,
    example: &mut Option<String>,
) -> Vec<u64> {
    let mut candidates = Candidates::new(space);
    let mut draft = Draft::new(space);
    let mut judge = order.entry.map(|entry| Judge::new(entry, space));
    let mut valid = Vec::new();
    while let Some(index) = candidates.advance() {
        let numbers = match candidates.check() {
            Ok(numbers) => numbers,
            Err(place) => {
                tally.constraints[place] += 1;
                continue;
            }
        };
        let reason = match draft.fill(numbers) {
            Err(formula) => Some(Refused::Dimension(formula.source().to_owned())),
            Ok(footprint) if footprint.bytes() > order.budget => Some(Refused::Memory),
            Ok(_) => match judge.as_mut().map(|judge| judge.refusal(&mut draft, numbers)) {
                None => Some(Refused::NoEntry),
                Some(Some(refusal)) => {
                    example.get_or_insert(refusal);
                    Some(Refused::Rule)
                }
                Some(None) if known.contains(draft.filled()) => Some(Refused::Known),
                Some(None) => (!seen.insert(draft.filled())).then_some(Refused::Twice),
            },
        };
        match reason {
            Some(reason) => *tally.refused.entry(reason).or_default() += 1,
            None => valid.push(index),
        }
    }
    valid
}

/// Whether the catalogue takes the candidates of a space: by the compiled rule where it has been seen to agree
/// with the whole one, else by that.
struct Judge<'a> {
    entry: &'a Entry,
    quick: Option<QuickRule>,
    /// By form: whether the whole rule has taken a candidate that the compiled one takes. What is left to it
    /// depends on types alone, which are those of all candidates.
    agreed: Vec<bool>,
}

impl<'a> Judge<'a> {
    fn new(entry: &'a Entry, space: &Space) -> Self {
        let quick = entry.quick(space);
        let agreed = vec![false; quick.as_ref().map_or(0, QuickRule::forms)];
        Self { entry, quick, agreed }
    }

    fn refusal(&mut self, draft: &mut Draft<'_>, numbers: &[i64]) -> Option<String> {
        let form = self.quick.as_ref().and_then(|quick| quick.form(numbers));
        if form.is_some_and(|form| self.agreed[form]) {
            return None;
        }
        let refusal = match draft.case(numbers) {
            Ok(case) => self.entry.read(case).err().map(|refusal| refusal.to_string()),
            Err(problem) => Some(problem),
        };
        if let Some(form) = form {
            self.agreed[form] = refusal.is_none();
        }
        refusal
    }
}

impl Grown<'_> {
    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.taken.iter().map(Vec::len).sum()
    }

    /// Goes through the rows in order: the space, its numbers, and the draft filled in with them.
    pub fn for_each<E>(
        &self,
        mut visit: impl FnMut(&Space, &[i64], &mut Draft<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        for (space, taken) in self.spaces.iter().zip(&self.taken) {
            let mut candidates = Candidates::new(space);
            let mut draft = Draft::new(space);
            for index in taken {
                candidates.go_to(*index);
                // They were valid before.
                let Ok(numbers) = candidates.check() else { continue };
                if draft.fill(numbers).is_ok() && draft.case(numbers).is_ok() {
                    visit(space, numbers, &mut draft)?;
                }
            }
        }
        Ok(())
    }

    /// Seconds that one launch of each row takes at the least.
    #[must_use]
    pub fn fastest(&self, entry: &Entry, device: &DeviceProfile) -> f64 {
        let mut sum = 0.0;
        let _ = self.for_each(|_, _, draft| {
            if let Ok(reading) = entry.read(draft.filled()) {
                sum += device.fastest(&reading.work).seconds();
            }
            Ok::<(), std::convert::Infallible>(())
        });
        sum
    }

    /// The range of each name among the rows, in the order of the spaces' names.
    #[must_use]
    pub fn ranges(&self) -> Vec<(String, Range)> {
        let mut values: Vec<(String, std::collections::BTreeSet<i64>)> = Vec::new();
        let _ = self.for_each(|space, numbers, _| {
            let axes = space.names.len() - space.derived.len();
            for (name, number) in space.names.iter().zip(numbers).take(axes) {
                match values.iter_mut().find(|(known, _)| known == name) {
                    Some((_, values)) => {
                        values.insert(*number);
                    }
                    None => values.push((name.clone(), [*number].into())),
                }
            }
            Ok::<(), std::convert::Infallible>(())
        });
        let range = |values: &std::collections::BTreeSet<i64>| {
            Some(Range { least: *values.first()?, greatest: *values.last()?, values: values.len() })
        };
        values.iter().filter_map(|(name, values)| Some((name.clone(), range(values)?))).collect()
    }
}
