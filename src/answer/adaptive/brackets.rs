//! Brackets: the candidates between neighbouring rows of a line, with the error that is expected there.

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum CandidateState {
    Open,
    /// Latency in microseconds.
    Measured(f64),
    Failed,
}

/// Candidates between two neighbouring measured ones of a line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LineBracket {
    pub(super) ends: [usize; 2],
    /// Open candidates between them, in the order of positions.
    pub(super) inside: Vec<usize>,
}

/// Divides a line, whose candidates are in the order of positions, into brackets with open candidates.
pub(super) fn brackets_of_line(line: &[usize], states: &[CandidateState]) -> Vec<LineBracket> {
    let (mut brackets, mut low, mut inside) = (Vec::new(), None, Vec::new());
    for &candidate in line {
        match states[candidate] {
            CandidateState::Open => inside.push(candidate),
            CandidateState::Failed => {}
            CandidateState::Measured(_) => {
                let inside = std::mem::take(&mut inside);
                if let Some(low) = low.replace(candidate).filter(|_| !inside.is_empty()) {
                    brackets.push(LineBracket { ends: [low, candidate], inside });
                }
            }
        }
    }
    brackets
}

/// Failed candidates after which a line without a measured one is given up.
const MOST_FAILURES: usize = 4;

/// Returns the open candidates with which a line gets its ends: the first and the last one. Where these cannot be
/// measured, as with too little memory, the place from which on they can is searched by halves.
pub(super) fn open_ends(line: &[usize], states: &[CandidateState]) -> Vec<usize> {
    let is_failed = |candidate: &&usize| states[**candidate] == CandidateState::Failed;
    let measured = |candidate: &usize| matches!(states[*candidate], CandidateState::Measured(_));
    let mut ends: Vec<usize> = match (line.iter().position(measured), line.iter().rposition(measured)) {
        (Some(first), Some(last)) => {
            let after: Vec<usize> = line[last + 1..].iter().rev().copied().collect();
            [&line[..first], &after].into_iter().filter_map(|outside| end_outside(outside, states)).collect()
        }
        _ => match line.iter().filter(is_failed).count() {
            0 => line.first().into_iter().chain(line.last()).copied().collect(),
            1..=MOST_FAILURES => {
                let runs = line.split(|candidate| states[*candidate] != CandidateState::Open);
                runs.max_by_key(|run| run.len()).and_then(middle).into_iter().collect()
            }
            _ => Vec::new(),
        },
    };
    ends.dedup();
    ends
}

/// Returns the next end among candidates outside of the measured ones, outermost first.
fn end_outside(outside: &[usize], states: &[CandidateState]) -> Option<usize> {
    match outside.iter().rposition(|candidate| states[*candidate] == CandidateState::Failed) {
        None => outside.first().copied(),
        Some(failed) => middle(&outside[failed + 1..]),
    }
}

fn middle(candidates: &[usize]) -> Option<usize> {
    candidates.get(candidates.len() / 2).copied()
}
